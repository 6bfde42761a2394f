"""Table 0: packets for the controller, packets for the next table, and that a host sends only under its own address."""

from __future__ import annotations

import pytest

from controller.fabric.topology import Dpid, Host, Port, PortNo, PortRef, Switch
from controller.tables.flow_tables import PUNT_PRIORITY, adopting_rules, control_rules
from controller.tables.rules import (
    BROADCAST_MAC,
    CONTROLLER_MAC,
    ETH_ARP,
    ETH_IPV4,
    ETH_LLDP,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    MeterRule,
    RuleSet,
    Table,
    ToController,
    cookie,
)

HOST_PORT, EMPTY_PORT, UPLINK, SECOND_UPLINK = (PortNo(n) for n in (1, 2, 3, 4))
IP, OTHER_IP, NO_ADDRESS = "10.0.1.1", "10.0.2.2", "0.0.0.0"
NEIGHBOUR = "02:00:00:00:00:77"
RATE = 50
SWITCH = Switch(
    Dpid(1), "leaf1", {n: Port(n, f"eth{n}", "", True, 1e9) for n in (HOST_PORT, EMPTY_PORT, UPLINK, SECOND_UPLINK)}
)
HOSTS = [Host(ip, None, PortRef(Dpid(1), HOST_PORT), 1e9) for ip in (IP, "10.0.1.9")]
UP, ON = "up", "on"


def rules() -> RuleSet:
    return control_rules(SWITCH, {UPLINK, SECOND_UPLINK}, HOSTS, RATE)


def fate(held: RuleSet, in_port: PortNo, eth_type: int, eth_dst: str = NEIGHBOUR, sender: str = IP) -> set[str]:
    """Return the destinations of a packet: the controller (``UP``), the next table (``ON``), both or none."""
    seen = Match(in_port=in_port, eth_type=eth_type, eth_dst=eth_dst)

    def covers(match: Match) -> bool:
        plain = all(getattr(match, name) in (None, getattr(seen, name)) for name in ("in_port", "eth_type", "eth_dst"))
        return plain and (match.arp_spa is None or match.arp_spa.address == sender)

    hits = [rule for rule in held.flows.values() if covers(rule.key.match)]
    top = max(rule.key.priority for rule in hits)
    results = [
        {UP for action in rule.actions if isinstance(action, ToController)} | {ON for _ in [rule.goto] if rule.goto}
        for rule in hits
        if rule.key.priority == top
    ]
    assert len({frozenset(result) for result in results}) == 1, "two rules of one priority disagree"
    return results[0]


@pytest.mark.parametrize(
    ("port", "eth_dst", "sender", "expected"),
    [
        (HOST_PORT, BROADCAST_MAC, IP, {UP, ON}),
        (HOST_PORT, NEIGHBOUR, IP, {ON}),
        (HOST_PORT, NEIGHBOUR, "10.0.1.9", {ON}),
        (HOST_PORT, CONTROLLER_MAC, IP, {UP}),
        (HOST_PORT, CONTROLLER_MAC, OTHER_IP, {UP}),
        (HOST_PORT, BROADCAST_MAC, OTHER_IP, {UP}),
        (HOST_PORT, NEIGHBOUR, OTHER_IP, {UP}),
        (HOST_PORT, BROADCAST_MAC, NO_ADDRESS, {ON}),
        (HOST_PORT, NEIGHBOUR, NO_ADDRESS, {UP}),
        (EMPTY_PORT, BROADCAST_MAC, IP, {UP, ON}),
        (EMPTY_PORT, NEIGHBOUR, IP, {UP, ON}),
        (UPLINK, BROADCAST_MAC, OTHER_IP, {ON}),
        (UPLINK, NEIGHBOUR, OTHER_IP, {ON}),
    ],
)
def test_arp_passes_from_known_hosts_ports_without_a_known_host_and_other_switches(
    port: PortNo, eth_dst: str, sender: str, expected: set[str]
) -> None:
    assert fate(rules(), port, ETH_ARP, eth_dst, sender) == expected


@pytest.mark.parametrize("port", SWITCH.ports)
def test_lldp_goes_up_from_everywhere_and_ip_only_on(port: PortNo) -> None:
    assert fate(rules(), port, ETH_LLDP) == {UP}
    assert fate(rules(), port, ETH_IPV4) == {ON}


def test_everything_that_goes_up_is_metered_by_its_own_port() -> None:
    held = rules()
    for rule in held.flows.values():
        assert rule.meter == (rule.key.match.in_port if rule.actions else None)
    assert held.meters == {number: MeterRule(number, RATE, RATE) for number in SWITCH.ports}


def test_a_host_that_a_link_has_turned_out_to_be_has_no_rules() -> None:
    at_uplink = [Host(IP, None, PortRef(Dpid(1), UPLINK), 1e9)]
    assert control_rules(SWITCH, {UPLINK}, at_uplink, RATE) == control_rules(SWITCH, {UPLINK}, [], RATE)


def test_the_same_ports_and_hosts_give_the_same_object() -> None:
    assert rules() is control_rules(SWITCH, {SECOND_UPLINK, UPLINK}, reversed(HOSTS), RATE)


def test_adopting_leaves_ports_alone_that_hand_up_probes_and_equips_the_others() -> None:
    whole = rules()
    other = FlowRule(FlowKey(Table.DEFAULT, 7, Match(eth_type=ETH_IPV4)), cookie(Table.DEFAULT))
    group = GroupRule(9, "select", ())
    installed = RuleSet({**whole.flows, other.key: other}, {9: group}, whole.meters)
    assert adopting_rules(SWITCH, installed, RATE) == installed

    probes = FlowKey(Table.CONTROL, PUNT_PRIORITY, Match(in_port=EMPTY_PORT, eth_type=ETH_LLDP))
    for missing in ({probes}, {key for key in whole.flows if key.match.in_port == EMPTY_PORT}):
        partly = {key: rule for key, rule in whole.flows.items() if key not in missing}
        equipped = adopting_rules(SWITCH, RuleSet(partly, {9: group}, {}), RATE)
        assert (equipped.flows, equipped.meters) == (whole.flows, whole.meters)

    fresh = adopting_rules(SWITCH, RuleSet(), RATE)
    for port in SWITCH.ports:
        assert fate(fresh, port, ETH_LLDP) == {UP}
        assert fate(fresh, port, ETH_ARP) == {UP, ON}

    slower = MeterRule(HOST_PORT, 7, 7)
    assert adopting_rules(SWITCH, RuleSet(meters={HOST_PORT: slower}), RATE).meters[HOST_PORT] == slower
