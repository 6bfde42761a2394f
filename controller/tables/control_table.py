"""Table 0: what the controller itself must see, limited per port; everything else goes on to the pinned table.

LLDP, broadcast ARP and the answers to the controller's own questions come up. Other unicast ARP does not: hosts refresh
their neighbour entries with it, and it is forwarded by target address like IP, so that neighbours stay alive when the
controller is not (DESIGN section 4).
"""

from __future__ import annotations

from controller.fabric.topology import Switch
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


def control_rules(switch: Switch, punt_rate_pps: int) -> RuleSet:
    """One meter per port, numbered like the port, so that a host that floods silences only itself."""
    ours = cookie(Table.CONTROL)
    flows = [FlowRule(FlowKey(Table.CONTROL, 0, Match()), ours, goto=Table.PINNED)]
    meters = []
    for port in switch.ports:
        meters.append(MeterRule(int(port), punt_rate_pps, punt_rate_pps))
        for match in (
            Match(in_port=port, eth_type=ETH_LLDP),
            Match(in_port=port, eth_type=ETH_ARP, eth_dst=BROADCAST_MAC),
            Match(in_port=port, eth_type=ETH_ARP, eth_dst=CONTROLLER_MAC),
        ):
            key = FlowKey(Table.CONTROL, PUNT_PRIORITY, match)
            flows.append(FlowRule(key, ours, (ToController(),), meter=int(port)))
    return RuleSet.of(flows, meters=meters)
