"""Table 0: what the controller itself must see, limited per port; everything else goes on to the pinned table.

ARP is also forwarded by target address like IP, broadcast requests too: known hosts find each other with or without a
controller, and nothing is flooded. Where hosts are known, ARP with another sender address than theirs goes to the
controller and is not forwarded: no neighbour table can be poisoned from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from functools import lru_cache

from controller.fabric.topology import Host, PortNo, Switch
from controller.tables.rules import (
    BROADCAST_MAC,
    CONTROLLER_MAC,
    ETH_ARP,
    ETH_LLDP,
    Action,
    AnyPort,
    FlowKey,
    FlowRule,
    Match,
    MeterRule,
    RuleSet,
    Table,
    ToController,
    cookie,
    host_prefix,
)

OTHER_ARP_PRIORITY = 80
KNOWN_HOST_PRIORITY = 90
PUNT_PRIORITY = 100
TRANSIT_PRIORITY = 101
NO_ADDRESS = host_prefix("0.0.0.0")
"""The sender of an ARP probe (RFC 5227), which changes no neighbour table."""

_OURS = cookie(Table.CONTROL)
_UP = (ToController(),)


def control_rules(
    switch: Switch, fabric_ports: Set[PortNo], hosts: Iterable[Host], punt_rate_pps: int, turns_back: bool = False
) -> RuleSet:
    """The rules of one switch; the same object for the same ports. ``fabric_ports``: those with a link to another
    switch. ``hosts``: those of this switch. ``turns_back``: packets may leave by the port that they came in by, as
    where links lead one way."""
    known = tuple(sorted((host.at.port, host.ip) for host in hosts if host.at.port not in fabric_ports))
    return _control_rules(tuple(switch.ports), frozenset(fabric_ports), known, punt_rate_pps, turns_back)


def adopting_rules(switch: Switch, installed: RuleSet, punt_rate_pps: int, turns_back: bool = False) -> RuleSet:
    """What the switch has, and what discovery needs at ports that hand up nothing yet: which of them lead where is not
    known, so nothing that another process decided about the others is touched."""
    wanted = _control_rules(tuple(switch.ports), frozenset(), (), punt_rate_pps, turns_back)
    ready = {key.match.in_port for key in installed.flows if key.match.eth_type == ETH_LLDP}
    flows = {key: rule for key, rule in wanted.flows.items() if key.match.in_port not in ready}
    return RuleSet({**installed.flows, **flows}, installed.groups, {**wanted.meters, **installed.meters})


@lru_cache(maxsize=1 << 5)  # for switches with equal ports; old variants of 64 x 32 switches would take 100 kB each
def _control_rules(
    ports: tuple[PortNo, ...],
    fabric_ports: frozenset[PortNo],
    known: tuple[tuple[PortNo, str], ...],
    punt_rate_pps: int,
    turns_back: bool,
) -> RuleSet:
    """One meter per port, numbered like the port, so that a host that floods silences only itself. At fabric ports ARP
    only passes: its first switch has handed it up."""
    probes = Match(eth_type=ETH_ARP, eth_dst=BROADCAST_MAC, arp_spa=NO_ADDRESS)
    onward = (AnyPort(),) if turns_back else ()
    flows = [_pass(0, Match(), onward), _pass(PUNT_PRIORITY, probes, onward)]
    with_hosts = {port for port, _ in known}
    for port in ports:
        arp = Match(in_port=port, eth_type=ETH_ARP)
        flows.append(_punt(PUNT_PRIORITY, Match(in_port=port, eth_type=ETH_LLDP)))
        flows.append(_punt(PUNT_PRIORITY, arp._replace(eth_dst=CONTROLLER_MAC)))
        flows.append(_punt(OTHER_ARP_PRIORITY, arp, None if port in with_hosts else Table.PINNED, onward))
        if port in fabric_ports:
            flows.append(_pass(TRANSIT_PRIORITY, arp, onward))
    for port, ip in known:
        own = Match(in_port=port, eth_type=ETH_ARP, arp_spa=host_prefix(ip))
        flows.append(_punt(PUNT_PRIORITY, own._replace(eth_dst=BROADCAST_MAC), Table.PINNED, onward))
        flows.append(_pass(KNOWN_HOST_PRIORITY, own, onward))
    return RuleSet.of(flows, meters=[MeterRule(int(port), punt_rate_pps, punt_rate_pps) for port in ports])


def _pass(priority: int, match: Match, onward: tuple[Action, ...]) -> FlowRule:
    return FlowRule(FlowKey(Table.CONTROL, priority, match), _OURS, onward, goto=Table.PINNED)


def _punt(priority: int, match: Match, goto: Table | None = None, onward: tuple[Action, ...] = ()) -> FlowRule:
    """Up to the controller, as much as the port's meter lets through. ``onward``: for packets that go on."""
    assert match.in_port is not None
    actions = (*_UP, *onward) if goto is not None else _UP
    return FlowRule(FlowKey(Table.CONTROL, priority, match), _OURS, actions, goto, meter=int(match.in_port))
