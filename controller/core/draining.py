"""Progress of drains: a part can be pulled when no route uses it, and counters show only probes on its links.

In: the drained parts, the flows on their links, the rules of neighbouring switches, and counters. Out: a
``DrainStatus`` for each part. Neighbours are the switches with a cable to the part. A drain waits only for neighbours
whose rules send packets to the part. Pure; ``now`` is monotonic seconds.
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
from controller.planning.problem import FlowId
from controller.shared_map import MemoPerKey
from controller.status import DrainState, DrainStatus
from controller.tables.counters import CounterIntake
from controller.tables.rules import RuleSet
from controller.tables.switch_sync import SwitchSync

BYTES_PER_PROBE = 200
"""Upper bound of the bytes that a link counts per probe interval while it carries only LLDP.

The bound allows for LLDP of the switches, which is sent at most as often as probes of the controller."""

MAX_NAMED = 4
"""Largest number of obstacles that ``DrainStatus.waits_for`` names."""


class Drained(NamedTuple):
    """Drained parts and the flows on them."""

    parts: Mapping[str, DrainedPart]
    """Drained parts by name."""
    flows: Mapping[LinkId, frozenset[FlowId]]
    """Flows on each drained link; a link without flows has no entry."""
    waiting: frozenset[LinkId]
    """Drained links on which flows may still be planned."""


@dataclass(slots=True)
class _Progress:
    """Progress of one drained part that no route uses."""

    quiet: dict[PortRef, bool] = field(default_factory=dict)
    """Ports that send no packets to the part.

    The value is False if the switch of the port has disconnected since the port was found quiet, else True."""
    empty_at: float | None = None
    waits_for: tuple[str, ...] = ()
    """Obstacles to pulling the part, in words."""

    def wait_for(self, names: Mapping[str, None], now: float) -> None:
        """Record the obstacles to pulling the part.

        The part counts as empty from the first call without obstacles until the next call with obstacles."""
        self.waits_for = _first_names(names)
        self.empty_at = None if names else now if self.empty_at is None else self.empty_at

    def note(self, src: PortRef, quiet: bool | None) -> None:
        """Record the new value of a port in ``self.quiet``; None removes the port, because the port may send."""
        self.quiet.pop(src, None)
        self.quiet |= {} if quiet is None else {src: quiet}


class _Surroundings(NamedTuple):
    """Forwarding state of the neighbours of drained parts."""

    sending: frozenset[PortRef] = frozenset()
    """Ports that may send to a drained part, under the installed rules or the rules to be installed."""
    fed: frozenset[Dpid] = frozenset()
    """Switches that packets may enter: switches with hosts, and switches to which ports in ``sending`` lead."""
    refused: Mapping[Dpid, int] = Counter()


class Draining:
    """Progress of all drains. ``probe_interval_s``: seconds between two probes over a link."""

    def __init__(self, load: LinkLoad, sync: SwitchSync, counters: CounterIntake, probe_interval_s: float) -> None:
        self._load = load
        self._sync = sync
        self._counters = counters
        self._probe_interval_s = probe_interval_s
        self._progress: dict[str, _Progress] = {}
        self._ports = MemoPerKey[Dpid, RuleSet, set[PortNo]](lambda rules: rules.group_ports)
        self._now = 0.0

    def follow(self, drained: Drained, fabric: Fabric, rules_due: bool, now: float) -> None:
        """Update the progress of each drain.

        An empty part stays empty until flows use it, or until a neighbour reconnects with other rules. ``rules_due``:
        whether the wanted rules are about to be derived again."""
        self._now = now
        before, self._progress = self._progress, {}
        for name, part in drained.parts.items():
            if drained.flows.keys().isdisjoint(part.links) and drained.waiting.isdisjoint(part.links):
                self._progress[name] = before.get(name, _Progress())
        around = None if rules_due else self._surroundings(drained, fabric)
        for name, of in self._progress.items():
            waits: dict[str, None] = dict.fromkeys(f"{ip} (host connected)" for ip in drained.parts[name].hosts)
            for sender in drained.parts[name].senders:
                if why := self._why_not_quiet(sender, of, around, fabric):
                    waits[f"{sender.name} ({why})"] = None
            of.wait_for(waits, now)

    def forget(self) -> None:
        """Forget the progress of all drains, because rules may send packets to drained parts again."""
        self._progress = {}

    def _surroundings(self, drained: Drained, fabric: Fabric) -> _Surroundings:
        """Return the forwarding state of the neighbours; empty if none of their ports sends to a drained part."""
        if all(of.quiet.get(one.src) for name, of in self._progress.items() for one in drained.parts[name].senders):
            return _Surroundings()
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
                else not (one.src.dpid in switches or _is_known_down(fabric, one.dst))
            )
        }
        fed = {one.dst.dpid for one in sending} | {host.at.dpid for host in fabric.hosts.values()}
        refused = Counter(dpid for dpid, _ in self._sync.refused)
        return _Surroundings(frozenset(one.src for one in sending), frozenset(fed), refused)

    def _why_not_quiet(self, sender: Sender, of: _Progress, around: _Surroundings | None, fabric: Fabric) -> str:
        """Return why a port may still send to the part, or an empty string if the port does not.

        A disconnected switch keeps its rules, so the last result for its port remains valid. ``around``: None while
        rules are about to be derived again."""
        src = sender.src
        is_read = src.dpid in self._sync.installed
        if not is_read and src in of.quiet:
            of.note(src, quiet=False)
            return ""
        if of.quiet.get(src):
            return ""
        refused = around.refused[src.dpid] if around else 0
        settled = src.dpid in self._sync.settled and not refused
        # A switch whose only path leads over the part keeps its groups (tables.pipeline). They send nothing as long as
        # no packet enters the switch.
        if around and (src not in around.sending or (settled and is_read and src.dpid not in around.fed)):
            if is_read:
                of.note(src, quiet=True)
            return ""
        of.note(src, quiet=None)
        if not is_read:
            return "its rules are being read" if src.dpid in fabric.switches else "no control connection"
        if settled and around:  # for example rules kept for hosts that are not found yet
            return "rules still send to it"
        return f"{refused} rules refused" if refused else "rules not confirmed"

    # ---- published status

    def statuses(
        self, drained: Drained, fabric: Fabric, known: Mapping[PartKey, Part], down: Collection[PartKey]
    ) -> Mapping[str, DrainStatus]:
        """Return the status of each drained part, by name.

        ``known``: remembered parts of the fabric. ``down``: keys of the parts that are down."""
        return {name: self._status(name, drained, fabric, known, down) for name in drained.parts}

    def _status(
        self, name: str, drained: Drained, fabric: Fabric, known: Mapping[PartKey, Part], down: Collection[PartKey]
    ) -> DrainStatus:
        drain, links, senders, _ = drained.parts[name]
        of = self._progress.get(name)
        # A flow through a drained switch uses two of the switch's links, but counts once.
        left = len(frozenset[FlowId]().union(*(drained.flows.get(link, ()) for link in links)))
        state: DrainState = "moving" if left else "confirming"
        found = DrainStatus(name, drain.since, state, left, len(links))
        if left or of is None or of.empty_at is None:
            return replace(found, waits_for=of.waits_for if of and not left else ())
        if not (links or drain.key in down):
            why = "not seen yet" if drain.key in known else "the controller knows no such part: undrain it"
            return replace(found, state="confirming", waits_for=(f"{name} ({why})",))
        measured = {*links, *(LinkId(*s.src) for s in senders if is_up(fabric.switches, s.src))}
        if not measured:
            return replace(found, state="safe")
        late = [link.dpid for link in sorted(measured) if self._is_late(link, of.empty_at)]
        if late:
            names = dict.fromkeys(f"{fabric.name(dpid)} (counters not read yet)" for dpid in late)
            return replace(found, state="measuring", waits_for=_first_names(names))
        counted = self._load.counted_since(measured, of.empty_at)
        assert counted, "each measured link has two samples"
        seconds, most_bytes = counted
        probes = BYTES_PER_PROBE * (seconds / self._probe_interval_s + 2)
        state = "carrying" if most_bytes > probes else "safe"
        return DrainStatus(name, drain.since, state, 0, len(links), 8 * most_bytes / seconds)

    def _is_late(self, link: LinkId, empty_at: float) -> bool:
        read = self._counters.read.get(link.dpid)
        if read is None or read.ports < self._now - self._counters.stale_after_s:
            return True
        return self._load.counted_since([link], empty_at) is None


def _is_known_down(fabric: Fabric, at: PortRef) -> bool:
    return at.dpid in fabric.switches and not is_up(fabric.switches, at)


def _first_names(names: Mapping[str, None]) -> tuple[str, ...]:
    found = tuple(names)
    return (*found[:MAX_NAMED], f"{len(found) - MAX_NAMED} more") if len(found) > MAX_NAMED else found
