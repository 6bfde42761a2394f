"""What the counters of one switch count: its links, and the flows that begin at it.

In: the fabric, polls as they come. Out: cumulative bytes per link and per rule of a flow into ``LinkLoad``, packets
over the ports' limits into ``PuntDrops``. Which counter counts what is worked out anew only when the switch, its hosts
or its rules change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from controller.fabric.link_load import Counted, LinkLoad
from controller.fabric.topology import Dpid, Fabric, Host, LinkId, PortNo, Switch
from controller.tables.messages import Counters
from controller.tables.pinned_table import counted
from controller.tables.punt_drops import PuntDrops
from controller.tables.rules import FlowKey


class _Links(NamedTuple):
    """Per port of a switch, as it was then: the link out of it, and the one into it that hosts send on."""

    switch: Switch
    hosts: Mapping[str, Host]
    out: Mapping[PortNo, LinkId]
    into: Mapping[PortNo, LinkId]


class _Flows(NamedTuple):
    """What each rule counts, in their order; None where another switch on the path counts the same bytes."""

    hosts: Mapping[str, Host]
    keys: tuple[FlowKey, ...]
    what: tuple[Counted | None, ...]


class CounterIntake:
    """``at``: monotonic seconds of each connected switch's latest counters. ``drops``: at the ports' limits."""

    def __init__(self, load: LinkLoad) -> None:
        self.at: dict[Dpid, float] = {}
        self.drops = PuntDrops()
        self._load = load
        self._links: dict[Dpid, _Links] = {}
        self._flows: dict[Dpid, _Flows] = {}
        self._edges: tuple[Mapping[str, Host], Mapping[Dpid, frozenset[PortNo]]] | None = None

    def take(self, fabric: Fabric, message: Counters) -> None:
        """Counters of a switch, or a port, that the fabric does not have count nothing."""
        switch = fabric.switches.get(message.dpid)
        if switch is None:
            return
        self.at[message.dpid] = message.at
        self._load.count_links(message.at, self.link_bytes(fabric, switch, message))
        self._load.count_flows(message.at, self.flow_bytes(fabric, message))
        self.drops.take(message)

    def switch_left(self, dpid: Dpid) -> None:
        self.at.pop(dpid, None)
        self._links.pop(dpid, None)
        self._flows.pop(dpid, None)
        self.drops.switch_left(dpid)

    def link_bytes(self, fabric: Fabric, switch: Switch, message: Counters) -> dict[LinkId, int]:
        """Of every link out of the switch, and of those into it that hosts send on."""
        known = self._links.get(switch.dpid)
        if known is None or known.switch is not switch or known.hosts is not fabric.hosts:
            edge = self._edge_ports(fabric).get(switch.dpid, frozenset())
            out = {port: LinkId(switch.dpid, port) for port in switch.ports}
            into = {port: LinkId(switch.dpid, port, "in") for port in switch.ports if port in edge}
            known = self._links[switch.dpid] = _Links(switch, fabric.hosts, out, into)
        totals = {}
        for port, count in message.ports.items():
            if count.tx_bytes is not None and port in known.out:
                totals[known.out[port]] = count.tx_bytes
            if count.rx_bytes is not None and port in known.into:
                totals[known.into[port]] = count.rx_bytes
        return totals

    def flow_bytes(self, fabric: Fabric, message: Counters) -> dict[Counted, int]:
        """Of the rules at the source's switch: the others on a path count the same bytes again."""
        keys = tuple(message.flows)
        known = self._flows.get(message.dpid)
        if known is None or known.hosts is not fabric.hosts or known.keys != keys:
            what = tuple(_counted_here(fabric, message.dpid, key) for key in keys)
            known = self._flows[message.dpid] = _Flows(fabric.hosts, keys, what)
        return {what: total for what, total in zip(known.what, message.flows.values(), strict=True) if what}

    def _edge_ports(self, fabric: Fabric) -> Mapping[Dpid, frozenset[PortNo]]:
        if self._edges is None or self._edges[0] is not fabric.hosts:
            ports: defaultdict[Dpid, set[PortNo]] = defaultdict(set)
            for host in fabric.hosts.values():
                ports[host.at.dpid].add(host.at.port)
            self._edges = fabric.hosts, {dpid: frozenset(of) for dpid, of in ports.items()}
        return self._edges[1]


def _counted_here(fabric: Fabric, dpid: Dpid, key: FlowKey) -> Counted | None:
    what = counted(key)
    source = fabric.hosts.get(what.src_ip) if what else None
    return what if source and source.at.dpid == dpid else None
