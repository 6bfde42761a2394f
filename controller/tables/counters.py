"""Intake of the counters of switches, and the links that counted and uncounted flows may use.

``LinkLoad`` gets the bytes of links and of flow rules, and ``PairCounters`` the bytes and packets of pairs of
addresses. ``CounterIntake`` records the number of packets that ports sent to the controller beyond their limits, and
the number of dropped packets of each kind.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, compress, zip_longest
from typing import Literal, NamedTuple

import numpy as np

from controller.demand.pair_counters import PairCounters
from controller.fabric.counter_samples import NO_USES, Counted, Uses, UsesOf
from controller.fabric.link_load import LinkLoad
from controller.fabric.topology import (
    CandidatePaths,
    Dpid,
    Fabric,
    Host,
    Link,
    LinkId,
    PortNo,
    PortRef,
    Switch,
    ports_by_switch,
)
from controller.jobs.job import Job
from controller.planning.problem import FlowId
from controller.planning.snapshot import Pairs
from controller.shared_map import ChangedKeys, Memo, differing, updated
from controller.tables.flow_tables import Dropped, Pin, counted, dropped_packets
from controller.tables.messages import Counters, LearningCounters, PortCount, RuleCount
from controller.tables.pins import PinSet
from controller.tables.rules import FlowKey
from signalbox.jobs.spec import JobId


class _Links(NamedTuple):
    """Links at the ports of a switch: outgoing links (``out``), and incoming links from hosts (``into``)."""

    out: Mapping[PortNo, LinkId]
    into: Mapping[PortNo, LinkId]


class _Flows(NamedTuple):
    """Counted flows of the rules of a switch."""

    here: tuple[bool, ...]
    """Whether each rule counts a flow that begins at the switch."""
    what: tuple[Counted, ...]
    """Traffic that each rule with True in ``here`` counts."""


class PuntDrops(NamedTuple):
    """Packets that a port's meter dropped, because the port sent more to the controller than its limit."""

    total: int
    """Number of dropped packets since the meter was created."""
    packets: int | None
    """Number of packets dropped between the latest two readings of the meters; None after the first reading."""
    seconds: float
    """Seconds between the latest two readings."""


LATE_INTERVALS = 2
"""Number of intervals after which counters do not show the present load of a switch any more."""

STALE_INTERVALS = 10
"""Number of intervals after which counters are stale.

An unanswered poll takes three intervals (``southbound.pollers``)."""

CountersKind = Literal["ports", "flows"]


class CountersRead(NamedTuple):
    """Monotonic time of the latest reading of each kind of counters.

    Before the first reading it is the time when the switch connected."""

    ports: float
    flows: float

    @property
    def oldest(self) -> CountersKind:
        return "flows" if self.flows < self.ports else "ports"


APART = 0.25
"""Smallest difference between the due times of two rounds of polls, as a fraction of the interval."""

HALFWAY = 0.75
"""Fraction of the interval; a poll that is due sooner after a regular poll is not regular."""

PATIENCE = 0.25
"""Longest wait for late switches after the first switch has answered, as a fraction of the interval."""


class CounterIntake:
    """State of the counters of all switches."""

    def __init__(self, load: LinkLoad, pairs: PairCounters, interval_s: float) -> None:
        self.late_after_s = LATE_INTERVALS * interval_s
        """Age in seconds from which counters do not show the present load."""
        self.stale_after_s = STALE_INTERVALS * interval_s
        """Age in seconds from which a switch counts as not answering."""
        self.read: Mapping[Dpid, CountersRead] = {}
        """Times of the latest readings of each connected switch; a new mapping on each change."""
        self.drops: dict[PortRef, PuntDrops] = {}
        """Packets that meters dropped, by port of a connected switch; ports without dropped packets have no entry."""
        self.dropped: dict[Dpid, Mapping[Dropped, int]] = {}
        """Number of packets of each kind that drop rules have dropped, by connected switch that has reported them."""
        self._drops_at: dict[Dpid, float] = {}
        self._interval_s = interval_s
        self._evaluated_at = -math.inf
        self._round_at = -math.inf  # due time of the current or last round
        self._regular_at = -math.inf  # due time of the last regular round
        self._answers_since: float | None = None
        self._awaited: set[Dpid] = set()
        self._load = load
        self._pairs = pairs
        self._edges = Memo(lambda hosts: ports_by_switch(host.at for host in hosts.values()))
        self._links = defaultdict[Dpid, Memo[Switch, Mapping[Dpid, frozenset[PortNo]], _Links]](lambda: Memo(_links))
        self._flows = defaultdict[tuple[Dpid, bool], Memo[Dpid, Mapping[str, Host], tuple[FlowKey, ...], _Flows]](
            lambda: Memo(_counted_here)
        )

    def switch_connected(self, dpid: Dpid, now: float) -> None:
        """Expect counters of this switch from now on."""
        self.read = {**self.read, dpid: CountersRead(now, now)}

    def take(self, fabric: Fabric, message: Counters) -> None:
        """Record the counters of one poll.

        Counters of unknown switches and ports are ignored. Counters that arrive after their switch has disconnected are
        ignored too: otherwise the controller would wait for the next counters of this switch without end."""
        switch = fabric.switches.get(message.dpid)
        if switch is None or message.dpid not in self.read:
            return
        ports_at, flows_at = self.read[message.dpid]
        if message.ports is not None:
            ports_at = message.at
            self._load.count_links(message.at, self._link_bytes(fabric, switch, message.ports))
        if message.flows is not None:
            flows_at = message.at
            self._count_flows(fabric, message.dpid, message.at, message.flows)
            if packets := dropped_packets(message.flows):
                self.dropped[message.dpid] = packets
        self.read = {**self.read, message.dpid: CountersRead(ports_at, flows_at)}
        self._answered(message)
        if message.punt_drops:
            self._count_drops(switch, message.at, message.punt_drops)

    def take_learning(self, fabric: Fabric, message: LearningCounters) -> None:
        """Record counters of pairs that are being learnt; the message has no counters of links."""
        if message.dpid in fabric.switches and message.dpid in self.read:
            self._count_pairs(fabric, message.dpid, message.at, message.flows, all_rules=False)

    def round_over(self, now: float) -> bool:
        """Return whether counters are to be evaluated now.

        All switches are polled at the same time. Their counters are evaluated when all switches have answered, or when
        the wait for late switches is over."""
        if self._answers_since is None:
            return now >= self._evaluated_at + LATE_INTERVALS * self._interval_s
        return not self._awaited or now >= self._answers_since + PATIENCE * self._interval_s

    @property
    def is_halfway(self) -> bool:
        """Whether the counters to be evaluated were read between two regular polls."""
        return self._answers_since is not None and self._round_at < self._regular_at + HALFWAY * self._interval_s

    def evaluated(self, now: float) -> None:
        """Record that counters were evaluated, or that none arrived.

        Later answers to the same polls start no evaluation."""
        if self._answers_since is None:
            self._round_at = self._evaluated_at + LATE_INTERVALS * self._interval_s
        if not self.is_halfway:
            self._regular_at = self._round_at
        self._evaluated_at, self._answers_since = now, None

    def _answered(self, message: Counters) -> None:
        """Assign an answer to its round. A round is all polls with one due time, however late their answers are."""
        due = message.at if message.due is None else message.due
        if due >= self._round_at + APART * self._interval_s:
            self._round_at, self._answers_since, self._awaited = due, message.at, set(self.read)
        if due > self._round_at - APART * self._interval_s:
            self._awaited.discard(message.dpid)

    def switch_left(self, dpid: Dpid) -> None:
        self.read = {known: read for known, read in self.read.items() if known != dpid}
        self._awaited.discard(dpid)
        self.dropped.pop(dpid, None)
        self._drops_at.pop(dpid, None)
        self._links.pop(dpid, None)
        for all_rules in (True, False):
            self._flows.pop((dpid, all_rules), None)
        self._pairs.switch_left(dpid)
        self.drops = {at: drops for at, drops in self.drops.items() if at.dpid != dpid}

    def _link_bytes(self, fabric: Fabric, switch: Switch, ports: Mapping[PortNo, PortCount]) -> dict[LinkId, int]:
        """Return the bytes of every link out of the switch, and of the links from its hosts."""
        out, into = self._links[switch.dpid](switch, self._edges(fabric.hosts))
        totals = {}
        for port, count in ports.items():
            if count.tx_bytes is not None and port in out:
                totals[out[port]] = count.tx_bytes
            if count.rx_bytes is not None and port in into:
                totals[into[port]] = count.rx_bytes
        return totals

    def _count_flows(self, fabric: Fabric, dpid: Dpid, at: float, counts: Mapping[FlowKey, RuleCount]) -> None:
        what, here = self._count_pairs(fabric, dpid, at, counts, all_rules=True)
        self._load.count_flows(at, {flow: total for flow, (total, _) in zip(what, here, strict=True)})

    def _count_pairs(
        self, fabric: Fabric, dpid: Dpid, at: float, counts: Mapping[FlowKey, RuleCount], all_rules: bool
    ) -> tuple[tuple[Counted, ...], list[RuleCount]]:
        """Count pairs by the rules at the source's switch, because other rules on a path count the same bytes again.

        Returns the traffic that each of these rules counts, and the counts of the rules."""
        flows = self._flows[dpid, all_rules](dpid, fabric.hosts, tuple(counts))
        here = list(compress(counts.values(), flows.here))
        if all(packets is not None for _, packets in here):
            self._pairs.count(dpid, at, flows.what, np.array(here, np.float64).reshape(-1, 2), all_rules)
        return flows.what, here

    def _count_drops(self, switch: Switch, read_at: float, totals: Mapping[PortNo, int]) -> None:
        """Record drops of the ports that the switch has, since it may report any number of meters."""
        last_at = self._drops_at.get(switch.dpid)
        if last_at is not None and read_at <= last_at:
            return
        self._drops_at[switch.dpid] = read_at
        for port in totals.keys() & switch.ports.keys():
            at, total = PortRef(switch.dpid, port), totals[port]
            before = self.drops[at].total if at in self.drops else 0
            if last_at is None:
                drops = PuntDrops(total, None, 0.0)
            else:  # a lower total means a new meter
                drops = PuntDrops(total, total - before if total >= before else total, read_at - last_at)
            if total or before:
                self.drops[at] = drops


def _links(switch: Switch, edges: Mapping[Dpid, frozenset[PortNo]]) -> _Links:
    edge = edges.get(switch.dpid, frozenset())
    out = {port: LinkId(switch.dpid, port) for port in switch.ports}
    return _Links(out, {port: LinkId(switch.dpid, port, "in") for port in switch.ports if port in edge})


def _counted_here(dpid: Dpid, hosts: Mapping[str, Host], keys: tuple[FlowKey, ...]) -> _Flows:
    flows = [counted(key) for key in keys]
    here = tuple(bool(flow and flow.src_ip in hosts and hosts[flow.src_ip].at.dpid == dpid) for flow in flows)
    return _Flows(here, tuple(flow for flow, is_here in zip(flows, here, strict=True) if flow and is_here))


# ---- links of announced flows


def possible_links(fabric: Fabric, pins: Iterable[Pin], candidates: CandidatePaths) -> Uses:
    """Return every link that the packets of each counting rule may use, the links of hosts included.

    A pinned flow uses its path. Without a pin, or after a failover, a flow may use all candidate paths."""
    uses: dict[Counted, tuple[frozenset[LinkId], ...]] = {}
    everywhere: dict[tuple[Dpid, Dpid], tuple[frozenset[LinkId], ...]] = {}
    shared: dict[frozenset[LinkId], frozenset[LinkId]] = {}
    for pin in pins:
        src, dst = fabric.hosts[pin.flow.src_ip], fabric.hosts[pin.flow.dst_ip]
        leaves = src.at.dpid, dst.at.dpid
        if pin.path is not None and all(link in fabric.links for link in pin.path):
            links: tuple[frozenset[LinkId], ...] = (frozenset((*pin.path, src.uplink, dst.downlink)),)
        else:
            if leaves not in everywhere:
                sets = _candidate_links(candidates, *leaves)
                everywhere[leaves] = tuple(shared.setdefault(some, some) for some in sets)
            links = (*everywhere[leaves], frozenset((src.uplink, dst.downlink)))
        what = counted(pin.key)
        assert what is not None
        uses[what] = links
    return uses


def _candidate_links(candidates: CandidatePaths, src: Dpid, dst: Dpid) -> Iterator[frozenset[LinkId]]:
    """Yield the links of all candidate paths, in disjoint sets; other pairs of leaves may have equal sets."""
    if candidates.distance(src, dst) == 2:
        yield from map(frozenset, candidates.ends(src, dst))
    else:
        yield frozenset(link for path in candidates.between(src, dst) for link in path)


class Uncounted:
    """Derivation of the announced flows that are not counted yet.

    A new job has uncounted flows from its registration on, before it has rules. Only changed jobs are examined, or all
    jobs when the set of counted flows has changed."""

    def __init__(self) -> None:
        self._changed = ChangedKeys[JobId]()
        self._counted: Pairs = frozenset()
        self._of_job: dict[JobId, Pairs] = {}

    def __call__(
        self,
        jobs: Mapping[JobId, Job],
        missing: Mapping[JobId, tuple[str, ...]],
        orphans: tuple[Pin, ...],
        hosts: Mapping[str, Host],
        counted: Pairs,
    ) -> Pairs:
        changed, gone = self._changed(jobs, missing)
        if counted is not self._counted and counted != self._counted:
            self._counted, self._of_job = counted, {}
            changed = list(jobs)
        for job_id in chain(gone, changed):
            self._of_job.pop(job_id, None)
        for job_id in changed:
            left = (jobs[job_id].pairs | jobs[job_id].counted) - self._counted
            if job_id in missing:
                left = frozenset((src, dst) for src, dst in left if src in hosts and dst in hosts)
            if left:
                self._of_job[job_id] = left
        unclaimed = {pin.flow.pair for pin in orphans if hosts.keys() >= set(pin.flow.pair)} - self._counted
        return frozenset[tuple[str, str]](unclaimed).union(*self._of_job.values())


class CountedLinks:
    """Derivation of the links that the packets of each counting rule may use, by job.

    Only rules of changed pins, of moved hosts, and of changed links are computed again."""

    def __init__(self) -> None:
        self._hosts: Mapping[str, Host] = {}
        self._links: Mapping[LinkId, Link] = {}
        self._usable: Mapping[LinkId, Link] = {}
        self._pins: Mapping[str, tuple[Pin, ...]] = {}
        self._uses: UsesOf = {}

    def __call__(
        self, hosts: Mapping[str, Host], links: Mapping[LinkId, Link], pins: PinSet, paths: CandidatePaths
    ) -> UsesOf:
        before, self._pins = self._pins, pins.of
        again = self._otherwise(hosts, links, paths.links)
        other = {name: was or () for name, was, _ in differing(before, pins.of)}
        fabric = Fabric(links=links, hosts=hosts)
        changes: dict[str, Uses | None] = {}
        for name in {**dict.fromkeys(again), **other}:
            of_name, pairs, uses = pins.of.get(name, ()), again.get(name, set()), dict(self._uses.get(name, NO_USES))
            if name in other:
                known = {id(pin) for pin in other[name]}
                same = [counted(pin.key) for pin in of_name if id(pin) in known]
                uses = {what: uses[what] for what in same if what}
                of_name = tuple(pin for pin in of_name if id(pin) not in known or pin.flow.pair in pairs)
            else:
                of_name = tuple(pin for pin in of_name if pin.flow.pair in pairs)
            uses |= possible_links(fabric, of_name, paths)
            changes[name] = uses or None
        self._uses = updated(self._uses, changes)
        return self._uses

    def _otherwise(
        self, hosts: Mapping[str, Host], links: Mapping[LinkId, Link], usable: Mapping[LinkId, Link]
    ) -> dict[str, set[tuple[str, str]]]:
        """Return the pairs whose packets may use other links although their rules are unchanged, by owner of the rules.

        The links change when links are added, removed, drained or undrained, or when hosts move. A pair that is not
        pinned to a path has several sets of links, and is returned after any change of links."""
        places, self._hosts = differing(self._hosts, hosts), hosts
        moved = {ip for ip, was, now in places if was and now and was.at != now.at}
        changed = {link for link, *_ in chain(differing(self._links, links), differing(self._usable, usable))}
        self._links, self._usable = links, usable
        if not moved and not changed:
            return {}
        found = (
            (name, {what[:2] for what, sets in uses.items() if len(sets) > 1 or not changed.isdisjoint(sets[0])})
            for name, uses in self._uses.items()
        )
        again = {name: pairs for name, pairs in found if pairs}
        for name, uses in self._uses.items() if moved else ():
            if pairs := {what[:2] for what in uses if not moved.isdisjoint(what[:2])}:
                again[name] = again.get(name, set()) | pairs
        return again

    def follows(self, hosts: Mapping[str, Host], links: Mapping[LinkId, Link], usable: Mapping[LinkId, Link]) -> bool:
        """Return whether hosts and links are the objects of the last call, so that only changed pins are examined."""
        return hosts is self._hosts and links is self._links and usable is self._usable


class UncountedLinks:
    """Derivation of all links that each uncounted flow may use; known results are kept while hosts and paths stay."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Uses] = {}
        self._of: tuple[object, ...] = ()

    def __call__(
        self, hosts: Mapping[str, Host], links: Mapping[LinkId, Link], uncounted: Pairs, paths: CandidatePaths
    ) -> Uses:
        if not all(a is b for a, b in zip_longest(self._of, (hosts, links, paths))):
            self._of, self._known = (hosts, links, paths), {}
        fabric, known = Fabric(links=links, hosts=hosts), self._known
        new = sorted(uncounted - known.keys())
        found = possible_links(fabric, (Pin(FlowId(*pair), 0, None) for pair in new), paths)
        self._known = {pair: known[pair] for pair in uncounted & known.keys()}
        self._known.update(zip(new, ({what: of} for what, of in found.items()), strict=True))
        return dict(chain.from_iterable(uses.items() for uses in self._known.values()))
