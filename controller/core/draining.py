"""When a drained part of the fabric can be pulled: no route uses it, no switch beside it sends there, and counters show
that nothing is sent over it but probes.

In: what is drained, the flows on it, what the switches at the other ends of its cables hold, counters. Out: a
``DrainStatus`` each. Switches without a cable to the part, and rules that lead elsewhere, hold no drain. Pure; ``now``
is monotonic seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from controller.fabric.drains import DrainedPart, Sender
from controller.fabric.link_load import LinkLoad
from controller.fabric.parts import Part, PartKey
from controller.fabric.topology import Dpid, Fabric, LinkId, PortNo, PortRef, is_up
from controller.memo import MemoPerKey
from controller.planning.problem import FlowId
from controller.status import DrainState, DrainStatus
from controller.tables.counters import CounterIntake
from controller.tables.pins import NO_FLOWS
from controller.tables.rules import RuleSet
from controller.tables.switch_sync import SwitchSync

BYTES_PER_PROBE = 200
"""A probe has fewer; LLDP that switches send themselves is not more often."""

MAX_NAMED = 4
"""Of what a part waits for."""


class Drained(NamedTuple):
    """What is drained. ``parts``: by name. ``flows``: on each drained link that has any. ``waiting``: links that flows
    may still be planned on."""

    parts: Mapping[str, DrainedPart]
    flows: Mapping[LinkId, frozenset[FlowId]]
    waiting: frozenset[LinkId]


@dataclass(slots=True)
class _Emptying:
    """``quiet``: the ports that send nothing there, by the rules of their switches; False while the switch has left
    since. ``empty_at``: when all of them were, None while they are not. ``waits_for``: in words."""

    quiet: dict[PortRef, bool] = field(default_factory=dict)
    empty_at: float | None = None
    waits_for: tuple[str, ...] = ()

    def wait_for(self, names: Mapping[str, None], now: float) -> None:
        """Note what the part waits for. It is empty from ``now`` on when that is nothing."""
        self.waits_for = _some(names)
        self.empty_at = None if names else now if self.empty_at is None else self.empty_at

    def note_quiet(self, src: PortRef, is_read: bool) -> None:
        """Note that a port sends nothing to the part."""
        self.quiet[src] = is_read

    def note_sending(self, src: PortRef) -> None:
        """Note that a port may send to the part."""
        self.quiet.pop(src, None)


class _Beside(NamedTuple):
    """What the switches around drained parts hold. ``sending``: of the ports that could send to a part those that may,
    by the rules that their switches hold or are about to. ``fed``: switches that packets may come into, from these or
    from hosts. ``refused``: how many rules each switch refuses."""

    sending: frozenset[PortRef] = frozenset()
    fed: frozenset[Dpid] = frozenset()
    refused: Mapping[Dpid, int] = Counter()


class Draining:
    """``probe_interval_s``: between two probes over a link."""

    def __init__(self, load: LinkLoad, sync: SwitchSync, counters: CounterIntake, probe_interval_s: float) -> None:
        self._load = load
        self._sync = sync
        self._counters = counters
        self._probe_interval_s = probe_interval_s
        self._emptying: dict[str, _Emptying] = {}
        self._ports = MemoPerKey[Dpid, RuleSet, set[PortNo]](lambda rules: rules.group_ports)
        self._now = 0.0

    def follow(self, drained: Drained, fabric: Fabric, rules_due: bool, now: float) -> None:
        """``rules_due``: what switches should hold is to be derived anew. A part that was empty once is, until flows
        use it, or a switch beside it comes back with other rules."""
        self._now = now
        before, self._emptying = self._emptying, {}
        for name, part in drained.parts.items():
            if drained.flows.keys().isdisjoint(part.links) and drained.waiting.isdisjoint(part.links):
                self._emptying[name] = before.get(name, _Emptying())
        beside = None if rules_due else self._beside(drained, fabric)
        for name, of in self._emptying.items():
            waits: dict[str, None] = dict.fromkeys(f"{ip} (a host on it)" for ip in drained.parts[name].hosts)
            for sender in drained.parts[name].senders:
                if why := self._why_not_quiet(sender, of, beside, fabric):
                    waits[f"{sender.name} ({why})"] = None
            of.wait_for(waits, now)

    def forget(self) -> None:
        """It is not known any more which routes run."""
        self._emptying = {}

    def _beside(self, drained: Drained, fabric: Fabric) -> _Beside:
        """Not worked out when all is quiet."""
        if all(of.quiet.get(one.src) for name, of in self._emptying.items() for one in drained.parts[name].senders):
            return _Beside()
        senders = {sender for part in drained.parts.values() for sender in part.senders}
        held = self._sync.installed
        dpids = sorted({sender.src.dpid for sender in senders} & held.keys())
        ports = self._ports({dpid: (held[dpid],) for dpid in dpids})
        changing = {dpid: self._sync.changing(dpid).group_ports for dpid in dpids}
        switches = frozenset(part.drain.part for part in drained.parts.values() if isinstance(part.drain.part, int))
        sending = {
            one
            for one in senders
            if (
                one.src.port in ports[one.src.dpid] | changing[one.src.dpid]
                if one.src.dpid in ports
                else not (one.src.dpid in switches or _is_dark(fabric, one.dst))
            )
        }
        fed = {one.dst.dpid for one in sending} | {host.at.dpid for host in fabric.hosts.values()}
        refused = Counter(dpid for dpid, _ in self._sync.refused)
        return _Beside(frozenset(one.src for one in sending), frozenset(fed), refused)

    def _why_not_quiet(self, sender: Sender, of: _Emptying, beside: _Beside | None, fabric: Fabric) -> str:
        """Empty for a port that sends nothing to the part. A switch that has left keeps its rules: what it was found to
        hold before counts. ``beside``: None while rules are due."""
        src = sender.src
        is_read = src.dpid in self._sync.installed
        if not is_read and src in of.quiet:
            of.note_quiet(src, is_read=False)
            return ""
        if of.quiet.get(src):
            return ""
        refused = beside.refused[src.dpid] if beside else 0
        settled = src.dpid in self._sync.settled and not refused
        # A switch without another way keeps its groups (tables.pipeline); where nothing comes in they send nothing.
        if beside and (src not in beside.sending or (settled and is_read and src.dpid not in beside.fed)):
            if is_read:
                of.note_quiet(src, is_read=True)
            return ""
        of.note_sending(src)
        if not is_read:
            return "its rules are being read" if src.dpid in fabric.switches else "no control connection"
        if settled and beside:  # such as rules that are kept for hosts that are not found since the start
            return "rules still send there"
        return f"{refused} rules refused" if refused else "rules not confirmed"

    # ---- what is published

    def statuses(
        self, drained: Drained, fabric: Fabric, known: Mapping[PartKey, Part], down: Collection[PartKey]
    ) -> Mapping[str, DrainStatus]:
        """Of each part, by name. ``known``: the parts of the fabric that are remembered; ``down``: those of them that
        are not there."""
        return {name: self._status(name, drained, fabric, known, down) for name in drained.parts}

    def _status(
        self,
        name: str,
        drained: Drained,
        fabric: Fabric,
        known: Mapping[PartKey, Part],
        down: Collection[PartKey],
    ) -> DrainStatus:
        drain, links, senders, _ = drained.parts[name]
        of = self._emptying.get(name)
        # Through a switch a flow uses two of its links.
        left = len(frozenset[FlowId]().union(*(drained.flows.get(link, NO_FLOWS) for link in links)))
        state: DrainState = "moving" if left else "confirming"
        found = DrainStatus(name, drain.since, state, left, len(links))
        if left or of is None or of.empty_at is None:
            return replace(found, waits_for=of.waits_for if of and not left else ())
        if not (links or drain.key in down):
            why = "not seen yet" if drain.key in known else "no such part is remembered: undrain it"
            return replace(found, state="confirming", waits_for=(f"{name} ({why})",))
        measured = {*links, *(LinkId(*s.src) for s in senders if is_up(fabric.switches, s.src))}
        if not measured:
            return replace(found, state="safe")
        late = [link.dpid for link in sorted(measured) if self._is_late(link, of.empty_at)]
        if late:
            names = dict.fromkeys(f"{fabric.name(dpid)} (counters)" for dpid in late)
            return replace(found, state="measuring", waits_for=_some(names))
        counted = self._load.counted_since(measured, of.empty_at)
        assert counted, "each of them has two samples"
        seconds, most_bytes = counted
        probes = BYTES_PER_PROBE * (seconds / self._probe_interval_s + 2)
        state = "carrying" if most_bytes > probes else "safe"
        return DrainStatus(name, drain.since, state, 0, len(links), 8 * most_bytes / seconds)

    def _is_late(self, link: LinkId, empty_at: float) -> bool:
        """Whether the counter of the link has not been read twice since the part was empty, or not for long."""
        read = self._counters.read.get(link.dpid)
        if read is None or read.ports < self._now - self._counters.stale_after_s:
            return True
        return self._load.counted_since([link], empty_at) is None


def _is_dark(fabric: Fabric, at: PortRef) -> bool:
    """Whether the port is known to be down, so that nothing can come in there."""
    return at.dpid in fabric.switches and not is_up(fabric.switches, at)


def _some(names: Mapping[str, None]) -> tuple[str, ...]:
    """The first of them, and how many more there are."""
    found = tuple(names)
    return (*found[:MAX_NAMED], f"{len(found) - MAX_NAMED} more") if len(found) > MAX_NAMED else found
