"""What the counters of one switch count: its links, and the flows that begin at it.

In: the fabric, one poll. Out: cumulative bytes per link, and per rule of a flow.
"""

from __future__ import annotations

from controller.fabric.link_load import Counted
from controller.fabric.topology import Fabric, LinkId, PortRef
from controller.messages import Counters
from controller.tables.pinned_table import counted


def link_bytes(fabric: Fabric, message: Counters) -> dict[LinkId, int]:
    """Of every link out of the switch, and of those into it that hosts send on."""
    edge = {host.at for host in fabric.hosts.values() if host.at.dpid == message.dpid}
    totals = {}
    for port, count in message.ports.items():
        if count.tx_bytes is not None:
            totals[LinkId(message.dpid, port)] = count.tx_bytes
        if count.rx_bytes is not None and PortRef(message.dpid, port) in edge:
            totals[LinkId(message.dpid, port, "in")] = count.rx_bytes
    return totals


def flow_bytes(fabric: Fabric, message: Counters) -> dict[Counted, int]:
    """Of the rules at the source's switch: the others on a path count the same bytes again."""
    totals = {}
    for key, total in message.flows.items():
        what = counted(key)
        source = fabric.hosts.get(what.src_ip) if what else None
        if what and source and source.at.dpid == message.dpid:
            totals[what] = total
    return totals
