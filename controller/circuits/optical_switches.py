"""Makes optical switches connect what is wanted, without a packet lost where that is possible.

In: the circuits that jobs own, what optical switches are read to connect, answers to changes. Out: the circuits that
may be used (``lit``), and changes. A change has three steps: circuits that are to be connected elsewhere are not lit
any more, so that rules lead around them; when switches have confirmed that, and what was queued has left, optical
switches are told; when these have confirmed it, the new circuits are lit, and probes look for them.

A circuit that no job owns stays as it is until its ports are needed. An optical switch that leaves goes on connecting
what it did. Pure; ``now`` is monotonic seconds.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from controller.circuits.cabling import Cabling, Circuits
from controller.circuits.cross_connects import changes, connected_by, cross_connects
from controller.circuits.status import FibreStatus, OpticalStatus
from controller.fabric.topology import Dpid, Link, LinkId, Port, PortNo, PortRef
from controller.histogram import Histogram
from controller.memo import MemoPerKey
from controller.tables.messages import InstallStage, ReadRules, StageDone, SwitchRules
from controller.tables.rules import FlowKey, FlowRule, RuleMod, RuleSet, Stage, applied

MISSING_S = 5.0
"""A probe is sent at once when a circuit is made, and every second."""

ABSENT_S = 1.0
"""An optical switch is asked what it connects when a circuit of it has been missing for so long."""

AWAY_S = 15.0
"""How long an optical switch may not be connected before that is an alarm, and nothing new is made there."""

REREAD_AFTER_S = 2.0
"""An optical switch that has not answered a change, or refused it, is asked what it connects."""


@dataclass(slots=True)
class _Optical:
    """``ports``: those that are up. ``held``: None before it was read. ``asked``: its rules are being read.
    ``read_at``: when they are to be read next. ``rests_until``: it did not do what it was told last."""

    ports: frozenset[PortNo] = frozenset()
    held: RuleSet | None = None
    asked: bool = False
    read_at: float = math.inf
    rests_until: float = -math.inf


@dataclass(frozen=True, slots=True)
class Change:
    """``ports``: of optical switches that are connected otherwise. ``dark``: circuits that are not made any more.
    ``drain_s``: how long packets that are queued there take to leave; ``drained_at``: when they have, None until no
    rule leads there."""

    number: int
    stage: Stage
    ports: int
    dark: Circuits
    drain_s: float
    drained_at: float | None = None
    sent_at: float | None = None


@dataclass
class CircuitState:
    """``dark_s``: while an optical switch moves its mirrors. ``drain_s``: how long packets that were queued for a
    circuit take to leave. ``change``: the one that is under way. ``dark``: interfaces whose optical switch has the port
    down. ``missing``: circuits of jobs that are lit, and by which no probes have come for ``MISSING_S``.
    ``change_times``: seconds from the message to the answers of all optical switches; ``latest_change``: its number,
    its circuits, its seconds. ``away_since``: of optical switches that are not connected; ``away``:
    those for longer than ``AWAY_S``."""

    cabling: Cabling
    dark_s: float
    drain_s: float
    audit_interval_s: float = math.inf
    away_since: dict[Dpid, float] = field(default_factory=dict)
    change: Change | None = None
    change_times: Histogram = field(default_factory=Histogram)
    latest_change: tuple[int, int, float] | None = None
    _of_jobs: Circuits = field(default_factory=dict)
    _owned: Circuits = field(default_factory=dict)
    _optical: dict[Dpid, _Optical] = field(default_factory=dict)
    _known: dict[Dpid, Mapping[PortNo, PortNo]] = field(default_factory=dict)
    _names: dict[Dpid, str] = field(default_factory=dict)
    _numbers: int = 0
    _is_news: bool = True
    _looked: bool = False
    _lit: Circuits | None = None
    _followed: tuple[object, ...] = ()
    dark: frozenset[PortRef] = frozenset()
    missing: frozenset[tuple[PortRef, PortRef]] = frozenset()
    away: frozenset[Dpid] = frozenset()
    _since: dict[tuple[PortRef, PortRef], float] = field(default_factory=dict)
    _looked_for: set[PortRef] = field(default_factory=set)
    _told: MemoPerKey[
        Dpid,
        str,
        tuple[tuple[PortNo, PortRef], ...],
        frozenset[PortNo] | None,
        Mapping[PortNo, PortNo] | None,
        OpticalStatus,
    ] = field(default_factory=lambda: MemoPerKey(_optical_status))

    # ---- optical switches

    def connected(self, dpid: Dpid, name: str, ports: tuple[Port, ...]) -> ReadRules:
        self._forget_change(dpid)
        up = frozenset(port.number for port in ports if port.up)
        self._optical[dpid] = _Optical(up, asked=True)
        self._names[dpid] = name
        self.away_since.pop(dpid, None)
        self._look_for_dark()
        return ReadRules(dpid)

    def left(self, dpid: Dpid, now: float) -> None:
        """What it connects stays."""
        self.away_since.setdefault(dpid, now)
        self._forget_change(dpid)
        self._optical.pop(dpid, None)
        self._look_for_dark()

    def _forget_change(self, dpid: Dpid) -> None:
        """Its answer does not come, or says nothing any more: it is read when it is back."""
        if self.change and dpid in self.change.stage.mods:
            mods = {other: mods for other, mods in self.change.stage.mods.items() if other != dpid}
            self.change = _with(self.change, mods)
            self._changed()

    def port_changed(self, dpid: Dpid, port: Port, removed: bool) -> None:
        optical = self._optical.get(dpid)
        if optical:
            rest = optical.ports - {port.number}
            optical.ports = rest | {port.number} if port.up and not removed else rest
            self._look_for_dark()

    def _look_for_dark(self) -> None:
        """As optical switches that are connected have their ports."""
        self.dark = frozenset(
            interface
            for at, interface in self.cabling.interface_at.items()
            if at.dpid in self._optical and at.port not in self._optical[at.dpid].ports
        )

    def rules_read(self, message: SwitchRules, now: float) -> None:
        """What was asked before a change of it says nothing about it now."""
        optical = self._optical.get(message.dpid)
        if optical is None:
            return
        optical.asked = False
        if self.change and message.dpid in self.change.stage.mods:
            optical.read_at = now
            return
        self._hold(message.dpid, message.rules)
        rests = now < optical.rests_until
        optical.read_at = optical.rests_until if rests else now + self.audit_interval_s

    def _hold(self, dpid: Dpid, rules: RuleSet) -> None:
        self._optical[dpid].held, self._known[dpid] = rules, connected_by(rules)
        self._changed()

    # ---- what is wanted

    def own(self, circuits: Circuits) -> None:
        """Those of jobs."""
        if circuits is not self._of_jobs:
            fibres = self.cabling.fibre_of
            known = {src: dst for src, dst in circuits.items() if src in fibres and dst in fibres}
            self._owned = {src: dst for src, dst in known.items() if fibres[src].dpid == fibres[dst].dpid}
            self._of_jobs = circuits
            self._changed()

    def _changed(self) -> None:
        self._is_news, self._looked, self._lit = True, False, None

    def take_news(self) -> bool:
        """Whether ``lit`` may be another than when this was asked last."""
        news, self._is_news = self._is_news, False
        return news

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
        ports = {dpid: optical.ports for dpid, optical in self._optical.items()}
        return self._told(
            {
                dpid: (self.name(dpid), fibres, ports.get(dpid), self._known.get(dpid))
                for dpid, fibres in self.cabling.fibres.items()
            }
        )

    @property
    def unable(self) -> frozenset[Dpid]:
        """Optical switches that are not connected, or did not do what they were told last."""
        refuse = (dpid for dpid, optical in self._optical.items() if optical.rests_until > -math.inf)
        return frozenset((*self.away_since, *refuse))

    # ---- changes

    def begin(self, used: Container[LinkId], now: float) -> None:
        """Begin a change if one is needed and none is under way. What becomes dark is not ``lit`` any more. ``used``:
        links that packets may be on."""
        if self.change or self._looked:
            return
        self._looked = True
        mods = {}
        dark: dict[PortRef, PortRef] = {}
        for dpid, wanted in self.wanted.items():
            optical = self._optical.get(dpid)
            if optical is None or optical.held is None or optical.read_at <= now or now < optical.rests_until:
                continue
            if needed := changes(cross_connects(wanted), optical.held):
                mods[dpid] = needed
                known = self._known[dpid]
                dark |= self.cabling.circuits(_at(dpid, {s: d for s, d in known.items() if wanted.get(s) != d}))
        if mods:
            self._numbers -= 1
            was_used = any(LinkId(*src) in used for src in dark)
            ports = sum(len(_ports(of)) for of in mods.values())
            self.change = Change(self._numbers, Stage("circuits", mods), ports, dark, self.drain_s * was_used)
            self._is_news, self._lit = True, None

    def send(self, now: float) -> list[InstallStage]:
        """The change, when nothing is queued at what becomes dark. To be called when switches hold what they should, so
        that no rule leads there."""
        change = self.change
        if not change or change.sent_at is not None:
            return []
        drained_at = now + change.drain_s if change.drained_at is None else change.drained_at
        if now < drained_at:
            self.change = replace(change, drained_at=drained_at)
            return []
        self.change = replace(change, sent_at=now)
        return [InstallStage(change.number, change.stage, self.dark_s)]

    def stage_done(self, message: StageDone, now: float) -> frozenset[PortRef]:
        """Optical switches have answered, or will not. Returns the interfaces whose circuits have come or gone."""
        change = self.change
        if change is None or message.change_id != change.number or change.sent_at is None:
            return frozenset()
        answered = change.stage.mods.keys() & message.results.keys()
        moved: set[PortRef] = set()
        for dpid in answered:
            result, optical = message.results[dpid], self._optical.get(dpid)
            if optical is None or optical.held is None:
                continue
            refused = {mod for mod, _ in result.rejected}
            before = self.cabling.circuits(_at(dpid, self._known[dpid]))
            self._hold(dpid, applied(optical.held, [mod for mod in change.stage.mods[dpid] if mod not in refused]))
            optical.rests_until = -math.inf
            if result.timed_out or refused:
                optical.read_at = optical.rests_until = now + REREAD_AFTER_S
            after = self.cabling.circuits(_at(dpid, self._known[dpid]))
            moved |= {src for src in before.keys() | after.keys() if before.get(src) != after.get(src)}
        left = {dpid: mods for dpid, mods in change.stage.mods.items() if dpid not in answered}
        self.change = _with(change, left)
        self._changed()
        if not left:
            took_s = now - change.sent_at
            self.change_times = self.change_times.observed(took_s)
            self.latest_change = -change.number, change.ports, took_s
        return frozenset(moved)

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
        for src in late - self._looked_for:  # others may have changed what is connected
            if optical := self._optical.get(self.cabling.fibre_of[src].dpid):
                optical.read_at = min(optical.read_at, now)
        self._looked_for = late
        missing = frozenset(each for each, since in self._since.items() if now >= since + MISSING_S)
        if missing != self.missing:
            self.missing = missing

    def read_again(self, dpids: Iterable[Dpid], now: float) -> None:
        """What these connect may have been changed by others."""
        for dpid in dpids:
            if optical := self._optical.get(dpid):
                optical.read_at = min(optical.read_at, now)

    def tick(self, now: float) -> list[ReadRules]:
        """Read-backs that are due."""
        due = [dpid for dpid, optical in self._optical.items() if optical.read_at <= now and not optical.asked]
        due = [dpid for dpid in due if not (self.change and dpid in self.change.stage.mods)]
        for dpid in due:
            self._optical[dpid].asked = True
        return [ReadRules(dpid) for dpid in due]


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


def _with(change: Change, mods: Mapping[Dpid, tuple[RuleMod, ...]]) -> Change | None:
    """The change with what is left of it."""
    if not mods:
        return None
    return replace(change, stage=Stage(change.stage.name, mods))


def _ports(mods: Iterable[RuleMod]) -> set[FlowKey]:
    """One rule for each port that light comes in by."""
    return {mod.rule.key for mod in mods if isinstance(mod.rule, FlowRule)}


def _at(dpid: Dpid, connected: Mapping[PortNo, PortNo]) -> Mapping[PortRef, PortRef]:
    return {PortRef(dpid, src): PortRef(dpid, dst) for src, dst in connected.items()}
