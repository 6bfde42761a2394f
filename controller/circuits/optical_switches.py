"""Control of optical switches: makes the wanted circuits, without packet loss where possible. Pure.

In: the circuits that jobs own, the cross-connects that were read from optical switches, answers to changes. Out: the
active circuits, which rules may use, changes, and the published state. ``now`` is monotonic seconds. A change has three
steps:

1. Circuits that the change removes become inactive, so that rules lead around them.
2. When switches have confirmed these rules and the queued packets have left, the change is sent to the optical
   switches.
3. When the optical switches have confirmed the change, the new circuits become active, and servers send probes over
   them.

A circuit that no job owns stays until its ports are needed. A disconnected optical switch keeps its cross-connects.

An optical switch is emulated by a bridge with a single table. A cross-connect is a rule that matches only ``in_port``,
and outputs to one port. A ``SwitchSync`` knows these rules, and decides when to read them.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from controller.circuits.fibres import Cabling, Circuits
from controller.fabric.topology import Dpid, Fabric, Link, LinkId, Port, PortNo, PortRef
from controller.shared_map import Histogram, MemoPerKey
from controller.status import ExtensionSwitch
from controller.tables.messages import InstallStage, ReadRules, StageDone, SwitchRules
from controller.tables.rules import (
    FlowKey,
    FlowRule,
    Match,
    Output,
    RuleMod,
    RuleSet,
    Stage,
    Table,
    cookie,
    mods_between,
)
from controller.tables.switch_sync import SwitchSync


@dataclass(frozen=True, slots=True)
class FibreStatus:
    """Port of an optical switch that leads to a server."""

    port: PortNo
    interface: PortRef
    """Interface of the server at the port."""
    up: bool
    """Whether the port is up and the optical switch is connected."""
    out_port: PortNo | None
    """Port by which the incoming light leaves, as last read; None before the first reading, and without a
    cross-connect."""


@dataclass(frozen=True, slots=True)
class OpticalStatus(ExtensionSwitch):
    """State of one optical switch."""

    fibres: tuple[FibreStatus, ...]
    """Ports that lead to servers, ordered by port number."""


MISSING_S = 5.0
"""Seconds without a probe after which a circuit is missing.

Servers send a probe at once when a circuit is made, and every second."""

ABSENT_S = 1.0
"""Seconds for which a job's circuit may be without a link before its optical switch is read again."""

AWAY_S = 15.0
"""Seconds after which a disconnected optical switch raises an alarm and is left out of new wirings."""

NO_FABRIC = Fabric()


@dataclass(frozen=True, slots=True)
class PendingChange:
    """Change of circuits that is under way."""

    stage: Stage
    dark: Circuits
    """Circuits that the change removes."""
    drain_s: float
    """Seconds in which packets that are queued on the circuits in ``dark`` leave; 0 if no rule used these circuits."""
    drained_at: float | None = None
    """Time from which on no packets are queued; None while a rule still leads over a circuit in ``dark``."""
    number: int | None = None
    """Number of the change; None before it is sent to the optical switches."""
    sent_at: float = math.inf
    """Time at which the change was sent to the optical switches; infinity before it is sent."""

    @property
    def ports(self) -> int:
        """Number of input ports of optical switches whose cross-connect changes."""
        mods = ((dpid, mod.rule) for dpid, of in self.stage.mods.items() for mod in of)
        return len({(dpid, rule.key) for dpid, rule in mods if isinstance(rule, FlowRule)})


class OpticalSwitches:
    """State of all optical switches.

    ``dark_s``: seconds that an optical switch needs to move its mirrors. ``drain_s``: seconds that the packets in the
    queue of a circuit need to leave."""

    def __init__(
        self,
        cabling: Cabling,
        dark_s: float,
        drain_s: float,
        audit_interval_s: float = math.inf,
        away_since: Mapping[Dpid, float] | None = None,
    ) -> None:
        self.cabling = cabling
        self.sync = SwitchSync(audit_interval_s, _stages)
        self.away_since = dict(away_since or {})
        """Time at which each disconnected optical switch was lost; for a switch that has never connected, the
        controller's start."""
        self.away: frozenset[Dpid] = frozenset()
        """Optical switches that have been disconnected for longer than ``AWAY_S``."""
        self.change: PendingChange | None = None
        """Change that is under way."""
        self.change_times = Histogram()
        """Distribution of the seconds from sending a change until all optical switches concerned have answered."""
        self.latest_change: tuple[int, int, float] | None = None
        """Latest completed change: its number, the number of changed input ports, and its duration in seconds."""
        self.dark: frozenset[PortRef] = frozenset()
        """Interfaces whose port at the optical switch is down."""
        self.missing: frozenset[tuple[PortRef, PortRef]] = frozenset()
        """Circuits of jobs over which no probe has arrived for ``MISSING_S``, although they are active or should be
        made."""
        self._dark_s = dark_s
        self._drain_s = drain_s
        self._of_jobs: Circuits = {}
        self._owned: Circuits = {}
        self._up: dict[Dpid, frozenset[PortNo]] = {}
        self._known: dict[Dpid, Mapping[PortNo, PortNo]] = {}
        """Output port by input port, as last read from each optical switch."""
        self._connected_by = MemoPerKey[Dpid, RuleSet, Mapping[PortNo, PortNo]](connected_by)
        self._names: dict[Dpid, str] = {}
        self._looked = False
        self._active: Circuits | None = None
        self._expected: Circuits | None = None
        self._followed: tuple[object, ...] = ()
        self._since: dict[tuple[PortRef, PortRef], float] = {}
        self._looked_for: set[PortRef] = set()
        self._published = MemoPerKey[
            Dpid,
            str,
            tuple[tuple[PortNo, PortRef], ...],
            frozenset[PortNo] | None,
            Mapping[PortNo, PortNo] | None,
            OpticalStatus,
        ](_optical_status)

    # ---- optical switches

    def switch_connected(self, dpid: Dpid, name: str, ports: tuple[Port, ...]) -> ReadRules:
        asked = self.sync.switch_connected(dpid)
        self._up[dpid] = frozenset(port.number for port in ports if port.up)
        self._names[dpid] = name
        self.away_since.pop(dpid, None)
        self._forget_change(dpid)
        self._look_for_dark()
        return asked

    def switch_left(self, dpid: Dpid, now: float) -> None:
        """Record that an optical switch has disconnected. The cross-connects of the switch stay."""
        self.sync.switch_left(dpid)
        self._up.pop(dpid, None)
        self.away_since.setdefault(dpid, now)
        self._forget_change(dpid)
        self._look_for_dark()

    def _forget_change(self, dpid: Dpid) -> None:
        """Drop a change that concerns this optical switch and was not sent yet; a new change is derived instead.

        A change that was sent is kept, and ends when all other switches have answered."""
        if self.change and dpid in self.change.stage.mods and self.change.number not in self.sync.under_way:
            self.change = None
            self._look_again()

    def port_changed(self, dpid: Dpid, port: Port, removed: bool) -> None:
        if dpid in self._up:
            rest = self._up[dpid] - {port.number}
            self._up[dpid] = rest | {port.number} if port.up and not removed else rest
            self._look_for_dark()

    def _look_for_dark(self) -> None:
        self.dark = frozenset(
            interface
            for at, interface in self.cabling.interface_at.items()
            if at.dpid in self._up and at.port not in self._up[at.dpid]
        )

    def rules_read(self, message: SwitchRules, now: float) -> frozenset[PortRef]:
        """Record the rules that were read.

        Return the sending interfaces whose circuits other programs or people have changed. Foreign rules do not block a
        cross-connect: the controller overwrites them."""
        dpid, before = message.dpid, dict(self._known)
        news = self.sync.rules_read(replace(message, foreign_keys=frozenset()), NO_FABRIC, now)
        if news == "outdated":
            self.sync.read_soon(dpid, now)
        elif news != "same":
            self._forget_change(dpid)
            self._look_again()
        return self._moved(before)

    def read_again(self, dpids: Iterable[Dpid], now: float) -> None:
        """Read these switches soon, because another controller or a person may have changed their cross-connects."""
        for dpid in dpids:
            self.sync.read_soon(dpid, now)

    def tick(self, now: float) -> list[ReadRules]:
        """Return the requests to read rules that are due."""
        reads = self.sync.tick(now)
        if self.sync.retrying:
            self._looked = False
        return reads

    # ---- wanted circuits

    def set_owned(self, circuits: Circuits) -> None:
        """Set the circuits that jobs own."""
        if circuits is not self._of_jobs:
            fibres = self.cabling.fibre_of
            known = {src: dst for src, dst in circuits.items() if src in fibres and dst in fibres}
            self._owned = {src: dst for src, dst in known.items() if fibres[src].dpid == fibres[dst].dpid}
            self._of_jobs = circuits
            self._look_again()

    def _look_again(self) -> None:
        held = {dpid: (rules,) for dpid, rules in self.sync.installed.items()}
        self._known |= self._connected_by(held)
        self._looked = False
        self._active = self._expected = None

    @property
    def wanted(self) -> Mapping[Dpid, Mapping[PortNo, PortNo]]:
        """Wanted cross-connects: output port by input port, for each optical switch.

        A switch should have the cross-connects for the circuits of jobs. A switch keeps any other present cross-connect
        if no circuit of a job needs one of its two ports. If other programs or people have connected several input
        ports to one output port, only one of these cross-connects is kept."""
        owned = self.cabling.connected(self._owned)
        found = {}
        for dpid in self.cabling.optical:
            by_end = {dst: src for src, dst in self._known.get(dpid, {}).items() if src not in owned[dpid]}
            by_end |= {dst: src for src, dst in owned[dpid].items()}
            found[dpid] = {src: dst for dst, src in by_end.items()}
        return found

    @property
    def active(self) -> Circuits:
        """Active circuits: wanted circuits that are connected, and that no pending change removes.

        A switch that was not read yet is assumed to have the wanted cross-connects. The result is the same object while
        nothing changes."""
        if self._active is None:
            self._active = self._found_active()
        return self._active

    @property
    def expected(self) -> Circuits:
        """Circuits over which probes should pass: active circuits, and all other circuits that are still connected.

        The result is the same object while nothing changes."""
        if self._expected is None:
            made = {src: dst for dpid, known in self._known.items() for src, dst in _at(dpid, known).items()}
            self._expected = {**self.cabling.circuits(made), **self.active}
        return self._expected

    def _found_active(self) -> Circuits:
        found: dict[PortRef, PortRef] = {}
        for dpid, wanted in self.wanted.items():
            known = self._known.get(dpid)
            as_known = {src: dst for src, dst in wanted.items() if known is None or known.get(src) == dst}
            found |= self.cabling.circuits(_at(dpid, as_known))
        if self.change:
            found = {src: dst for src, dst in found.items() if self.change.dark.get(src) != dst}
        return found

    def name(self, dpid: Dpid) -> str:
        """Return the name of an optical switch; before it has connected, its dpid in hexadecimal."""
        return self._names.get(dpid, f"{dpid:#x}")

    @property
    def optical(self) -> Mapping[Dpid, OpticalStatus]:
        """Status of all optical switches; the same object while nothing changes."""
        return self._published(
            {
                dpid: (self.name(dpid), fibres, self._up.get(dpid), self._known.get(dpid))
                for dpid, fibres in self.cabling.fibres.items()
            }
        )

    @property
    def unable(self) -> frozenset[Dpid]:
        """Optical switches that are disconnected, or have not carried out their latest change."""
        refuse = {dpid for dpid, _ in self.sync.refused}
        silent = self._up.keys() & self._known.keys() - self.sync.installed.keys()
        return frozenset((*self.away_since, *refuse, *silent))

    # ---- changes

    def begin(self, used: Container[LinkId]) -> None:
        """Begin a change if one is needed and none is under way. Circuits that the change removes become inactive.

        ``used``: links that packets may be using."""
        if self.change or self._looked:
            return
        self._looked, wanted = True, self.wanted
        for stage in self.sync.left_to_do({dpid: cross_connects(of) for dpid, of in wanted.items()}):
            dark: dict[PortRef, PortRef] = {}
            for dpid in stage.mods:
                known = self._known[dpid]
                dark |= self.cabling.circuits(_at(dpid, {s: d for s, d in known.items() if wanted[dpid].get(s) != d}))
            was_used = any(LinkId(*src) in used for src in dark)
            self.change = PendingChange(stage, dark, self._drain_s * was_used)
            self._active = self._expected = None

    def send(self, now: float) -> list[InstallStage]:
        """Return the command for the pending change, once no packets are queued on circuits that it removes.

        Call this only when switches hold their wanted rules, so that no rule leads over the removed circuits."""
        change = self.change
        if not change or change.number is not None:
            return []
        drained_at = now + change.drain_s if change.drained_at is None else change.drained_at
        if now < drained_at:
            self.change = replace(change, drained_at=drained_at)
            return []
        sent = self.sync.send(change.stage)
        self.change = replace(change, number=sent.change_id, sent_at=now)
        return [InstallStage(-sent.change_id, sent.stage, self._dark_s)]

    def stage_done(self, message: StageDone, now: float) -> frozenset[PortRef]:
        """Record that optical switches have answered a change, or failed to answer.

        Return the sending interfaces whose circuits are new or removed."""
        change = self.change
        if change is None or change.number != -message.change_id:
            return frozenset()
        before = dict(self._known)
        self.sync.stage_done(StageDone(change.number, message.results), now)
        if change.number not in self.sync.under_way:
            took_s = now - change.sent_at
            self.change = None
            self.change_times = self.change_times.observed(took_s)
            self.latest_change = change.number, change.ports, took_s
        self._look_again()
        return self._moved(before)

    def _moved(self, before: Mapping[Dpid, Mapping[PortNo, PortNo]]) -> frozenset[PortRef]:
        """Return the sending interfaces whose circuits have changed since the cross-connects were ``before``.

        Switches that are not in ``before`` are left out: their cross-connects have just been read for the first time.
        The probes so far have already passed over these cross-connects."""
        changed = (
            PortRef(dpid, src)
            for dpid, was in before.items()
            for src in was.keys() | self._known[dpid].keys()
            if was.get(src) != self._known[dpid].get(src)
        )
        return frozenset(interface for at in changed if (interface := self.cabling.interface_at.get(at)))

    def follow_links(self, links: Mapping[LinkId, Link], servers: Container[Dpid], now: float) -> None:
        """Update ``missing``. Called ten times a second.

        ``servers``: connected servers; the state of other servers is unknown."""
        away = frozenset(dpid for dpid, since in self.away_since.items() if now >= since + AWAY_S)
        if away != self.away:
            self.away = away
        active, unable = self.active if self._owned else {}, self.unable.difference(self.away_since) | self.away
        inputs: tuple[object, ...] = (active, links, servers, self.away)
        before, self._followed = self._followed, inputs
        if not self._since and before and all(old is new for old, new in zip(before, inputs, strict=True)):
            return
        absent = {
            (src, dst)
            for src, dst in self._owned.items()
            if (active.get(src) == dst or self.cabling.fibre_of[src].dpid in unable)
            and LinkId(*src) not in links
            and src.dpid in servers
            and dst.dpid in servers
        }
        self._since = {each: self._since.get(each, now) for each in absent}
        late = {src for (src, _), since in self._since.items() if now >= since + ABSENT_S}
        self.read_again({self.cabling.fibre_of[src].dpid for src in late - self._looked_for}, now)
        self._looked_for = late
        missing = frozenset(each for each, since in self._since.items() if now >= since + MISSING_S)
        if missing != self.missing:
            self.missing = missing


def _stages(wanted: Mapping[Dpid, RuleSet], held: Mapping[Dpid, RuleSet]) -> list[Stage]:
    mods = {dpid: changes(rules, held[dpid]) for dpid, rules in wanted.items()}
    differing = {dpid: of for dpid, of in mods.items() if of}
    return [Stage("circuits", differing)] if differing else []


def _optical_status(
    name: str,
    fibres: tuple[tuple[PortNo, PortRef], ...],
    ports: frozenset[PortNo] | None,
    known: Mapping[PortNo, PortNo] | None,
) -> OpticalStatus:
    """Return the status of an optical switch.

    ``ports``: ports that are up; None while the switch is disconnected. ``known``: cross-connects of the switch;
    None before they were read."""
    up, out = ports or frozenset[PortNo](), known or {}
    shown = tuple(FibreStatus(port, interface, port in up, out.get(port)) for port, interface in fibres)
    return OpticalStatus(name, ports is not None, shown)


def _at(dpid: Dpid, connected: Mapping[PortNo, PortNo]) -> Mapping[PortRef, PortRef]:
    return {PortRef(dpid, src): PortRef(dpid, dst) for src, dst in connected.items()}


PRIORITY = 100


def cross_connects(connected: Mapping[PortNo, PortNo]) -> RuleSet:
    return RuleSet.of(
        FlowRule(FlowKey(Table.CONTROL, PRIORITY, Match(in_port=src)), cookie(Table.CONTROL), (Output(dst),))
        for src, dst in connected.items()
    )


def connected_by(rules: RuleSet) -> Mapping[PortNo, PortNo]:
    """Return the cross-connects of these rules.

    Rules of other forms do not count as cross-connects. Rules of other forms differ from all wanted rules, so the
    controller deletes them."""
    found = {}
    for key, rule in rules.flows.items():
        src = key.match.in_port
        if src is not None and key == FlowKey(Table.CONTROL, PRIORITY, Match(in_port=src)) and len(rule.actions) == 1:
            (action,) = rule.actions
            if isinstance(action, Output):
                found[src] = action.port
    return found


def changes(wanted: RuleSet, held: RuleSet) -> tuple[RuleMod, ...]:
    """Return the changes from the rules ``held`` to the rules ``wanted``: all deletions, then all additions.

    A rule whose actions change is deleted and added again."""
    mods = list(mods_between(wanted, held))
    new = {mod.rule.key: mod.rule for mod in mods if mod.op != "delete" and isinstance(mod.rule, FlowRule)}
    gone = (rule for key, rule in held.flows.items() if key in new or key not in wanted.flows)
    return (*(RuleMod("delete", rule) for rule in gone), *(RuleMod("add", rule) for rule in new.values()))
