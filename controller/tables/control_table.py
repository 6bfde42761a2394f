"""Table 0: what the controller itself must see, limited per port; everything else goes on to the pinned table.

LLDP, broadcast ARP and the answers to the controller's own questions come up. ARP is forwarded by target address like
IP all the same, broadcast requests too: hosts that are known find each other, and refresh their neighbour entries,
whether there is a controller or not. Nothing is flooded by that: a request goes to the one port its target is at.
"""

from __future__ import annotations

from collections.abc import Set
from functools import lru_cache

from controller.fabric.topology import PortNo, Switch
from controller.tables.rules import (
    BROADCAST_MAC,
    CONTROLLER_MAC,
    ETH_ARP,
    ETH_LLDP,
    FlowKey,
    FlowRule,
    Match,
    MeterRule,
    RuleSet,
    Table,
    ToController,
    cookie,
)

PUNT_PRIORITY = 100
TRANSIT_PRIORITY = 101


def control_rules(switch: Switch, fabric_ports: Set[PortNo], punt_rate_pps: int) -> RuleSet:
    """The rules of one switch; the same object for the same ports. ``fabric_ports``: those with a link to another
    switch."""
    return _control_rules(tuple(switch.ports), frozenset(fabric_ports), punt_rate_pps)


@lru_cache(maxsize=1 << 12)
def _control_rules(ports: tuple[PortNo, ...], fabric_ports: frozenset[PortNo], punt_rate_pps: int) -> RuleSet:
    """One meter per port, numbered like the port, so that a host that floods silences only itself. At fabric ports
    requests only pass: their first switch has handed them up."""
    ours = cookie(Table.CONTROL)
    flows = [FlowRule(FlowKey(Table.CONTROL, 0, Match()), ours, goto=Table.PINNED)]
    meters = []
    for port in ports:
        meters.append(MeterRule(int(port), punt_rate_pps, punt_rate_pps))
        lldp = Match(in_port=port, eth_type=ETH_LLDP)
        answer = Match(in_port=port, eth_type=ETH_ARP, eth_dst=CONTROLLER_MAC)
        request = Match(in_port=port, eth_type=ETH_ARP, eth_dst=BROADCAST_MAC)
        for match, goto in ((lldp, None), (answer, None), (request, Table.PINNED)):
            key = FlowKey(Table.CONTROL, PUNT_PRIORITY, match)
            flows.append(FlowRule(key, ours, (ToController(),), goto, meter=int(port)))
        if port in fabric_ports:
            flows.append(FlowRule(FlowKey(Table.CONTROL, TRANSIT_PRIORITY, request), ours, goto=Table.PINNED))
    return RuleSet.of(flows, meters=meters)
