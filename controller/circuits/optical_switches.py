"""Makes optical switches connect what is wanted, without a packet lost where that is possible.

In: the circuits that jobs own, what optical switches are read to connect, answers to changes. Out: the circuits that
may be used (``lit``), and changes. A change has three steps: circuits that are to be connected elsewhere are not lit
any more, so that rules lead around them; when switches have confirmed that, and what was queued has left, optical
switches are told; when these have confirmed it, the new circuits are lit, and probes look for them.

What optical switches hold, and when they are read, is known by a ``SwitchSync`` of their own. A circuit that no job
owns stays as it is until its ports are needed. An optical switch that leaves goes on connecting what it did. Pure;
``now`` is monotonic seconds.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from controller.circuits.cabling import Cabling, Circuits
from controller.circuits.cross_connects import changes, connected_by, cross_connects
from controller.circuits.status import FibreStatus, OpticalStatus
from controller.fabric.topology import Dpid, Fabric, Link, LinkId, Port, PortNo, PortRef
from controller.histogram import Histogram
from controller.memo import MemoPerKey
from controller.tables.messages import InstallStage, ReadRules, StageDone, SwitchRules
from controller.tables.rules import FlowRule, RuleSet, Stage
from controller.tables.switch_sync import SwitchSync

MISSING_S = 5.0
"""A probe is sent at once when a circuit is made, and every second."""

ABSENT_S = 1.0
"""An optical switch is asked what it connects when a circuit of it has been missing for so long."""

AWAY_S = 15.0
"""How long an optical switch may not be connected before that is an alarm, and nothing new is made there."""

NO_FABRIC = Fabric()


@dataclass(frozen=True, slots=True)
class PendingChange:
    """``dark``: circuits that are not made any more. ``drain_s``: seconds that packets queued there take to leave.
    ``drained_at``: when they have left; None while a rule still leads there. ``number``: of the change that was sent to
    the optical switches at ``sent_at``; None before."""

    stage: Stage
    dark: Circuits
    drain_s: float
    drained_at: float | None = None
    number: int | None = None
    sent_at: float = math.inf

    @property
    def ports(self) -> int:
        """How many ports of optical switches are connected otherwise: each has one rule for the light that comes in."""
        mods = ((dpid, mod.rule) for dpid, of in self.stage.mods.items() for mod in of)
        return len({(dpid, rule.key) for dpid, rule in mods if isinstance(rule, FlowRule)})


class OpticalSwitches:
    """``dark_s``: while an optical switch moves its mirrors. ``drain_s``: how long packets that were queued for a
    circuit take to leave. ``change``: the one that is under way. ``dark``: interfaces whose optical switch has the port
    down. ``missing``: circuits of jobs that are lit, and by which no probes have come for ``MISSING_S``.
    ``change_times``: seconds from the message to the answers of all optical switches; ``latest_change``: its number,
    its circuits, its seconds. ``away_since``: of optical switches that are not connected; ``away``:
    those for longer than ``AWAY_S``."""

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
        self.away: frozenset[Dpid] = frozenset()
        self.change: PendingChange | None = None
        self.change_times = Histogram()
        self.latest_change: tuple[int, int, float] | None = None
        self.dark: frozenset[PortRef] = frozenset()
        self.missing: frozenset[tuple[PortRef, PortRef]] = frozenset()
        self._dark_s = dark_s
        self._drain_s = drain_s
        self._of_jobs: Circuits = {}
        self._owned: Circuits = {}
        self._up: dict[Dpid, frozenset[PortNo]] = {}
        """Ports that are up, of optical switches that are connected."""
        self._known: dict[Dpid, Mapping[PortNo, PortNo]] = {}
        """The cross-connects of each optical switch when it was last read: port in, port out."""
        self._connected_by = MemoPerKey[Dpid, RuleSet, Mapping[PortNo, PortNo]](connected_by)
        self._names: dict[Dpid, str] = {}
        self._looked = False
        self._lit: Circuits | None = None
        self._followed: tuple[object, ...] = ()
        self._since: dict[tuple[PortRef, PortRef], float] = {}
        self._looked_for: set[PortRef] = set()
        self._told = MemoPerKey[
            Dpid,
            str,
            tuple[tuple[PortNo, PortRef], ...],
            frozenset[PortNo] | None,
            Mapping[PortNo, PortNo] | None,
            OpticalStatus,
        ](_optical_status)

    # ---- optical switches

    def connected(self, dpid: Dpid, name: str, ports: tuple[Port, ...]) -> ReadRules:
        asked = self.sync.connected(dpid)
        self._up[dpid] = frozenset(port.number for port in ports if port.up)
        self._names[dpid] = name
        self.away_since.pop(dpid, None)
        self._forget_change(dpid)
        self._look_for_dark()
        return asked

    def left(self, dpid: Dpid, now: float) -> None:
        """What it connects stays."""
        self.sync.left(dpid)
        self._up.pop(dpid, None)
        self.away_since.setdefault(dpid, now)
        self._forget_change(dpid)
        self._look_for_dark()

    def _forget_change(self, dpid: Dpid) -> None:
        """A change there that was not sent is begun anew; one that was is over when all others have answered."""
        if self.change and dpid in self.change.stage.mods and self.change.number not in self.sync.under_way:
            self.change = None
            self._look_again()

    def port_changed(self, dpid: Dpid, port: Port, removed: bool) -> None:
        if dpid in self._up:
            rest = self._up[dpid] - {port.number}
            self._up[dpid] = rest | {port.number} if port.up and not removed else rest
            self._look_for_dark()

    def _look_for_dark(self) -> None:
        """As optical switches that are connected have their ports."""
        self.dark = frozenset(
            interface
            for at, interface in self.cabling.interface_at.items()
            if at.dpid in self._up and at.port not in self._up[at.dpid]
        )

    def rules_read(self, message: SwitchRules, now: float) -> None:
        """A rule of others holds no place here: light goes where the controller says."""
        dpid = message.dpid
        news = self.sync.rules_read(replace(message, foreign_keys=frozenset()), NO_FABRIC, now)
        if news == "outdated":
            self.sync.read_soon(dpid, now)
        elif news != "same":
            self._forget_change(dpid)
            self._look_again()

    def read_again(self, dpids: Iterable[Dpid], now: float) -> None:
        """Read these switches soon: others may have changed their cross-connects."""
        for dpid in dpids:
            self.sync.read_soon(dpid, now)

    def tick(self, now: float) -> list[ReadRules]:
        """Read-backs that are due."""
        reads = self.sync.tick(now)
        if self.sync.retrying:
            self._looked = False
        return reads

    # ---- what is wanted

    def own(self, circuits: Circuits) -> None:
        """Those of jobs."""
        if circuits is not self._of_jobs:
            fibres = self.cabling.fibre_of
            known = {src: dst for src, dst in circuits.items() if src in fibres and dst in fibres}
            self._owned = {src: dst for src, dst in known.items() if fibres[src].dpid == fibres[dst].dpid}
            self._of_jobs = circuits
            self._look_again()

    def _look_again(self) -> None:
        held = {dpid: (rules,) for dpid, rules in self.sync.installed.items()}
        self._known |= self._connected_by(held)
        self._looked, self._lit = False, None

    @property
    def wanted(self) -> Mapping[Dpid, Mapping[PortNo, PortNo]]:
        """By optical switch the circuits of jobs, and what it connects besides. Of several circuits to one port, as
        others may have made them, one."""
        owned = self.cabling.connected(self._owned)
        found = {}
        for dpid in self.cabling.optical:
            by_end = {dst: src for src, dst in self._known.get(dpid, {}).items() if src not in owned[dpid]}
            by_end |= {dst: src for src, dst in owned[dpid].items()}
            found[dpid] = {src: dst for dst, src in by_end.items()}
        return found

    @property
    def lit(self) -> Circuits:
        """What is wanted and, as far as that is known, connected. Without what a change makes dark. The same object
        while nothing changes."""
        if self._lit is None:
            self._lit = self._found_lit()
        return self._lit

    def _found_lit(self) -> Circuits:
        found: dict[PortRef, PortRef] = {}
        for dpid, wanted in self.wanted.items():
            known = self._known.get(dpid)
            as_known = {src: dst for src, dst in wanted.items() if known is None or known.get(src) == dst}
            found |= self.cabling.circuits(_at(dpid, as_known))
        if self.change:
            found = {src: dst for src, dst in found.items() if self.change.dark.get(src) != dst}
        return found

    def name(self, dpid: Dpid) -> str:
        """Of an optical switch; its dpid in hexadecimal as long as it has not connected."""
        return self._names.get(dpid, f"{dpid:#x}")

    @property
    def optical(self) -> Mapping[Dpid, OpticalStatus]:
        """All of them. The same object while nothing changes."""
        return self._told(
            {
                dpid: (self.name(dpid), fibres, self._up.get(dpid), self._known.get(dpid))
                for dpid, fibres in self.cabling.fibres.items()
            }
        )

    @property
    def unable(self) -> frozenset[Dpid]:
        """Optical switches that are not connected, or did not do what they were told last."""
        refuse = {dpid for dpid, _ in self.sync.refused}
        silent = self._up.keys() & self._known.keys() - self.sync.installed.keys()
        return frozenset((*self.away_since, *refuse, *silent))

    # ---- changes

    def begin(self, used: Container[LinkId]) -> None:
        """Begin a change if one is needed and none is under way. What becomes dark is not ``lit`` any more. ``used``:
        links that packets may be on."""
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
            self._lit = None

    def send(self, now: float) -> list[InstallStage]:
        """The change, when nothing is queued at what becomes dark. To be called when switches hold what they should, so
        that no rule leads there."""
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
        """Optical switches have answered, or will not. Returns the interfaces whose circuits have come or gone."""
        change = self.change
        if change is None or change.number != -message.change_id:
            return frozenset()
        before = self._made
        self.sync.stage_done(replace(message, change_id=change.number), now)
        if change.number not in self.sync.under_way:
            took_s = now - change.sent_at
            self.change = None
            self.change_times = self.change_times.observed(took_s)
            self.latest_change = change.number, change.ports, took_s
        self._look_again()
        after = self._made
        return frozenset(src for src in before.keys() | after.keys() if before.get(src) != after.get(src))

    @property
    def _made(self) -> Circuits:
        """The circuits that optical switches connect, as they were read last."""
        found: dict[PortRef, PortRef] = {}
        for dpid, known in self._known.items():
            found |= self.cabling.circuits(_at(dpid, known))
        return found

    def follow_links(self, links: Mapping[LinkId, Link], servers: Container[Dpid], now: float) -> None:
        """Which of the circuits of jobs are not there, also of those that cannot be made. ``servers``: those that are
        connected; of others nothing is known. To be called ten times a second."""
        away = frozenset(dpid for dpid, since in self.away_since.items() if now >= since + AWAY_S)
        if away != self.away:
            self.away = away
        lit, unable = self.lit if self._owned else {}, self.unable.difference(self.away_since) | self.away
        inputs: tuple[object, ...] = (lit, links, servers, self.away)
        before, self._followed = self._followed, inputs
        if not self._since and before and all(old is new for old, new in zip(before, inputs, strict=True)):
            return
        absent = {
            (src, dst)
            for src, dst in self._owned.items()
            if (lit.get(src) == dst or self.cabling.fibre_of[src].dpid in unable)
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
    """One stage for all that differs."""
    mods = {dpid: changes(rules, held[dpid]) for dpid, rules in wanted.items()}
    differing = {dpid: of for dpid, of in mods.items() if of}
    return [Stage("circuits", differing)] if differing else []


def _optical_status(
    name: str,
    fibres: tuple[tuple[PortNo, PortRef], ...],
    ports: frozenset[PortNo] | None,
    known: Mapping[PortNo, PortNo] | None,
) -> OpticalStatus:
    """``ports``: those that are up; None while it is not connected. ``known``: what it connects, None before it was
    read."""
    up, out = ports or frozenset[PortNo](), known or {}
    told = tuple(FibreStatus(port, interface, port in up, out.get(port)) for port, interface in fibres)
    return OpticalStatus(name, ports is not None, told)


def _at(dpid: Dpid, connected: Mapping[PortNo, PortNo]) -> Mapping[PortRef, PortRef]:
    return {PortRef(dpid, src): PortRef(dpid, dst) for src, dst in connected.items()}
