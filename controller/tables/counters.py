"""Intake of the counters that switches report: bytes of links, and of the flows that begin at each switch.

``LinkLoad`` gets the bytes of links and of flow rules, and ``PairCounters`` the bytes and packets of pairs of
addresses. This module itself counts dropped packets: packets to the controller beyond a port's limit, and packets that
match drop rules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import compress
from typing import Literal, NamedTuple

import numpy as np

from controller.demand.pair_counters import PairCounters
from controller.fabric.counter_samples import Counted
from controller.fabric.link_load import LATE_INTERVALS, LinkLoad, PollRounds
from controller.fabric.topology import Dpid, Fabric, Host, LinkId, PortNo, PortRef, Switch, ports_by_switch
from controller.shared_map import Memo
from controller.tables.flow_tables import Dropped, counted, dropped_packets
from controller.tables.messages import Counters, LearningCounters, PortCount, RuleCount
from controller.tables.rules import FlowKey

_Links = tuple[Mapping[PortNo, LinkId], Mapping[PortNo, LinkId]]
"""Links out of a switch, and links of hosts into it, by port."""


class _Flows(NamedTuple):
    here: tuple[bool, ...]
    """Flags of the rules in a poll: True if the rule's flow begins at the switch that was polled."""
    what: tuple[Counted, ...]
    """Traffic that the rules with True in ``here`` count, one entry per such rule."""


class PuntDrops(NamedTuple):
    """Packets to the controller that the meter of a port has dropped, because the port exceeded its limit."""

    total: int
    """Number of packets dropped since the meter was created."""
    packets: int | None
    """Number of packets dropped between the latest two readings of the meters; None after the first reading."""
    seconds: float
    """Seconds between the latest two readings."""


STALE_INTERVALS = 10
"""Age of counters, in intervals, above which they are stale. An unanswered poll takes three intervals
(``southbound.pollers``)."""

CountersKind = Literal["ports", "flows"]


class CountersRead(NamedTuple):
    """Monotonic time of the latest reading of each kind of counters.

    Before the first reading, the time is that of the switch's connection."""

    ports: float
    flows: float

    @property
    def oldest(self) -> CountersKind:
        return "flows" if self.flows < self.ports else "ports"


class CounterIntake:
    """State of the counters of all switches."""

    def __init__(self, load: LinkLoad, pairs: PairCounters, interval_s: float) -> None:
        self.late_after_s = LATE_INTERVALS * interval_s
        """Age in seconds above which counters do not show the present load."""
        self.stale_after_s = STALE_INTERVALS * interval_s
        """Age in seconds above which counters are stale, and the switch counts as not answering."""
        self.read: Mapping[Dpid, CountersRead] = {}
        """Times of the latest readings of each connected switch; a new mapping on each change."""
        self.drops: dict[PortRef, PuntDrops] = {}
        """Packets that meters have dropped, by port of a connected switch. Ports without dropped packets have no
        entry."""
        self.dropped: dict[Dpid, Mapping[Dropped, int]] = {}
        """Number of packets that drop rules have dropped, by kind, for each connected switch that has reported it."""
        self._drops_at: dict[Dpid, float] = {}
        self.rounds = PollRounds(interval_s)
        self._load = load
        self._pairs = pairs
        self._edges = Memo(lambda hosts: ports_by_switch(host.at for host in hosts.values()))
        self._links = defaultdict[Dpid, Memo[Switch, Mapping[Dpid, frozenset[PortNo]], _Links]](lambda: Memo(_links))
        self._flows = defaultdict[tuple[Dpid, bool], Memo[Dpid, Mapping[str, Host], tuple[FlowKey, ...], _Flows]](
            lambda: Memo(_counted_here)
        )

    def switch_connected(self, dpid: Dpid, now: float) -> None:
        self.read = {**self.read, dpid: CountersRead(now, now)}

    def add(self, fabric: Fabric, message: Counters) -> None:
        """Record the counters of one poll.

        Counters of ports that the fabric does not have are ignored. Messages of unknown or disconnected switches are
        ignored too, so that the controller does not wait for their next counters."""
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
        self.rounds.answered(message.dpid, message.at if message.due is None else message.due, message.at, self.read)
        if message.punt_drops:
            self._count_drops(switch, message.at, message.punt_drops)

    def add_learning(self, fabric: Fabric, message: LearningCounters) -> None:
        """Record counters of pairs that are being learnt; the message has no counters of links."""
        if message.dpid in fabric.switches and message.dpid in self.read:
            self._count_pairs(fabric, message.dpid, message.at, message.flows, all_rules=False)

    def switch_left(self, dpid: Dpid) -> None:
        self.read = {known: read for known, read in self.read.items() if known != dpid}
        self.rounds.switch_left(dpid)
        self.dropped.pop(dpid, None)
        self._drops_at.pop(dpid, None)
        self._links.pop(dpid, None)
        for all_rules in (True, False):
            self._flows.pop((dpid, all_rules), None)
        self._pairs.switch_left(dpid)
        self.drops = {at: drops for at, drops in self.drops.items() if at.dpid != dpid}

    def port_removed(self, at: PortRef) -> None:
        self.drops.pop(at, None)

    def _link_bytes(self, fabric: Fabric, switch: Switch, ports: Mapping[PortNo, PortCount]) -> dict[LinkId, int]:
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
        """Count the rules whose flow begins at this switch.

        Other switches on the path have rules for the same flow, which would count the same bytes again. Returns the
        traffic that each counted rule stands for, and the rule's counts."""
        flows = self._flows[dpid, all_rules](dpid, fabric.hosts, tuple(counts))
        here = list(compress(counts.values(), flows.here))
        if all(packets is not None for _, packets in here):
            self._pairs.count(dpid, at, flows.what, np.array(here, np.float64).reshape(-1, 2), all_rules)
        return flows.what, here

    def _count_drops(self, switch: Switch, read_at: float, totals: Mapping[PortNo, int]) -> None:
        """Record the packets that meters have dropped.

        Unknown ports are left out, because a switch may report meters for any number of ports."""
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
    return out, {port: LinkId(switch.dpid, port, "in") for port in switch.ports if port in edge}


def _counted_here(dpid: Dpid, hosts: Mapping[str, Host], keys: tuple[FlowKey, ...]) -> _Flows:
    flows = [counted(key) for key in keys]
    here = tuple(bool(flow and flow.src_ip in hosts and hosts[flow.src_ip].at.dpid == dpid) for flow in flows)
    return _Flows(here, tuple(flow for flow, is_here in zip(flows, here, strict=True) if flow and is_here))
