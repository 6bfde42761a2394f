"""Table 0: packets that the controller must see, limited per port; all other packets continue to the pinned table.

ARP is also forwarded by target address, like IP, broadcast requests included. Known hosts thus find each other with or
without a controller, and nothing is flooded. At ports with known hosts, ARP with another sender address goes to the
controller only, so that no host there can poison neighbour tables.
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
"""Sender address of an ARP probe (RFC 5227), which changes no neighbour table."""

_OURS = cookie(Table.CONTROL)
_UP = (ToController(),)


def control_rules(
    switch: Switch, fabric_ports: Set[PortNo], hosts: Iterable[Host], punt_rate_pps: int, turns_back: bool = False
) -> RuleSet:
    """Return the rules of table 0 of one switch; the same object while its ports and hosts stay the same.

    ``fabric_ports``: ports with links to other switches. ``hosts``: hosts of this switch. ``turns_back``: whether
    packets may leave by the port where they arrived, as needed where links lead one way."""
    known = tuple(sorted((host.at.port, host.ip) for host in hosts if host.at.port not in fabric_ports))
    return _control_rules(tuple(switch.ports), frozenset(fabric_ports), known, punt_rate_pps, turns_back)


def adopting_rules(switch: Switch, installed: RuleSet, punt_rate_pps: int, turns_back: bool = False) -> RuleSet:
    """Return the installed rules plus rules that discovery needs at ports that send nothing to the controller yet.

    The controller does not know yet which ports lead to other switches. Ports with rules of an earlier process
    therefore keep these rules."""
    wanted = _control_rules(tuple(switch.ports), frozenset(), (), punt_rate_pps, turns_back)
    ready = {key.match.in_port for key in installed.flows if key.match.eth_type == ETH_LLDP}
    flows = {key: rule for key, rule in wanted.flows.items() if key.match.in_port not in ready}
    return RuleSet({**installed.flows, **flows}, installed.groups, {**wanted.meters, **installed.meters})


@lru_cache(maxsize=1 << 5)  # shared by switches with equal ports; an old entry takes 100 kB in a fabric of 64 x 32
def _control_rules(
    ports: tuple[PortNo, ...],
    fabric_ports: frozenset[PortNo],
    known: tuple[tuple[PortNo, str], ...],
    punt_rate_pps: int,
    turns_back: bool,
) -> RuleSet:
    """Return the rules, with one meter per port, so that a flooding host uses up only its own limit.

    A meter has the number of its port. ARP packets that arrive at fabric ports are only forwarded, because the switch
    of the sending host has already sent them to the controller."""
    probes = Match(eth_type=ETH_ARP, eth_dst=BROADCAST_MAC, arp_spa=NO_ADDRESS)
    onward = (AnyPort(),) if turns_back else ()
    flows = [_pass(0, Match(), onward), _pass(PUNT_PRIORITY, probes, onward)]
    with_hosts = {port for port, _ in known}
    for port in ports:
        flows += _port_rules(port, port in fabric_ports, port in with_hosts, onward)
    for port, ip in known:
        own = Match(in_port=port, eth_type=ETH_ARP, arp_spa=host_prefix(ip))
        flows.append(_punt(PUNT_PRIORITY, own._replace(eth_dst=BROADCAST_MAC), Table.PINNED, onward))
        flows.append(_pass(KNOWN_HOST_PRIORITY, own, onward))
    return RuleSet.of(flows, meters=[_meter(port, punt_rate_pps) for port in ports])


@lru_cache(maxsize=1 << 13)  # shared by all switches, which mostly have the same port numbers
def _port_rules(
    port: PortNo, leads_to_switch: bool, has_hosts: bool, onward: tuple[Action, ...]
) -> tuple[FlowRule, ...]:
    """Return the rules of a port that do not depend on the addresses of its hosts."""
    arp = Match(in_port=port, eth_type=ETH_ARP)
    rules = (
        _punt(PUNT_PRIORITY, Match(in_port=port, eth_type=ETH_LLDP)),
        _punt(PUNT_PRIORITY, arp._replace(eth_dst=CONTROLLER_MAC)),
        _punt(OTHER_ARP_PRIORITY, arp, None if has_hosts else Table.PINNED, onward),
    )
    return (*rules, _pass(TRANSIT_PRIORITY, arp, onward)) if leads_to_switch else rules


@lru_cache(maxsize=1 << 13)
def _meter(port: PortNo, rate_pps: int) -> MeterRule:
    return MeterRule(int(port), rate_pps, rate_pps)


def _pass(priority: int, match: Match, onward: tuple[Action, ...]) -> FlowRule:
    return FlowRule(FlowKey(Table.CONTROL, priority, match), _OURS, onward, goto=Table.PINNED)


def _punt(priority: int, match: Match, goto: Table | None = None, onward: tuple[Action, ...] = ()) -> FlowRule:
    """Return a rule that sends packets to the controller, limited by the meter of the port.

    ``onward``: actions for packets that also continue to ``goto``."""
    assert match.in_port is not None
    actions = (*_UP, *onward) if goto is not None else _UP
    return FlowRule(FlowKey(Table.CONTROL, priority, match), _OURS, actions, goto, meter=int(match.in_port))
