"""Rules of the three flow tables: packets for the controller, entries of pins, next hops by destination, drops."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from controller.fabric.topology import Dpid, Fabric, Host, LinkId, Path, Port, PortNo, PortRef, Switch
from controller.planning.problem import FlowId, PathShare, whole
from controller.tables.flow_tables import (
    DROP_RULES,
    MAX_SPREAD_BUCKETS,
    MISS_RULE,
    PUNT_PRIORITY,
    Announcement,
    FlowPart,
    Pin,
    Routed,
    adopting_rules,
    both_directions,
    control_rules,
    counting_rule,
    destination_prefixes,
    ecmp_group,
    on_ecmp,
    pin_key,
    pin_rule,
    read_pin,
)
from controller.tables.pipeline import Pipeline, PipelineSettings
from controller.tables.rules import (
    BROADCAST_MAC,
    CONTROLLER_MAC,
    COUNTED_BIT,
    ETH_ARP,
    ETH_IPV4,
    ETH_LLDP,
    NARROW,
    AnyPort,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    MeterRule,
    Output,
    Prefix,
    RuleSet,
    Table,
    ToController,
    ToGroup,
    cookie,
    host_prefix,
    is_ours,
    stages_between,
)
from offline.scenarios.fabrics import leaf_spine
from signalbox.jobs.spec import Transport
from signalbox.jobs.subflows import port_classes

HOST_PORT, EMPTY_PORT, UPLINK, SECOND_UPLINK = (PortNo(n) for n in (1, 2, 3, 4))
IP, OTHER_IP, NO_ADDRESS = "10.0.1.1", "10.0.2.2", "0.0.0.0"
NEIGHBOUR = "02:00:00:00:00:77"
RATE = 50
SWITCH = Switch(
    Dpid(1), "leaf1", {n: Port(n, f"eth{n}", "", True, 1e9) for n in (HOST_PORT, EMPTY_PORT, UPLINK, SECOND_UPLINK)}
)
HOSTS = [Host(ip, None, PortRef(Dpid(1), HOST_PORT), 1e9) for ip in (IP, "10.0.1.9")]
PUNT, PASS = "punt", "pass"


def rules() -> RuleSet:
    return control_rules(SWITCH, {UPLINK, SECOND_UPLINK}, HOSTS, RATE)


def fate(held: RuleSet, in_port: PortNo, eth_type: int, eth_dst: str = NEIGHBOUR, sender: str = IP) -> set[str]:
    """Return the destinations of a packet: the controller (``PUNT``), the next table (``PASS``), both or none."""
    seen = Match(in_port=in_port, eth_type=eth_type, eth_dst=eth_dst)

    def covers(match: Match) -> bool:
        plain = all(getattr(match, name) in (None, getattr(seen, name)) for name in ("in_port", "eth_type", "eth_dst"))
        return plain and (match.arp_spa is None or match.arp_spa.address == sender)

    hits = [rule for rule in held.flows.values() if covers(rule.key.match)]
    top = max(rule.key.priority for rule in hits)
    results = [
        {PUNT for action in rule.actions if isinstance(action, ToController)} | {PASS for _ in [rule.goto] if rule.goto}
        for rule in hits
        if rule.key.priority == top
    ]
    assert len({frozenset(result) for result in results}) == 1, "two rules of one priority disagree"
    return results[0]


@pytest.mark.parametrize(
    ("port", "eth_dst", "sender", "expected"),
    [
        (HOST_PORT, BROADCAST_MAC, IP, {PUNT, PASS}),
        (HOST_PORT, NEIGHBOUR, IP, {PASS}),
        (HOST_PORT, NEIGHBOUR, "10.0.1.9", {PASS}),
        (HOST_PORT, CONTROLLER_MAC, IP, {PUNT}),
        (HOST_PORT, CONTROLLER_MAC, OTHER_IP, {PUNT}),
        (HOST_PORT, BROADCAST_MAC, OTHER_IP, {PUNT}),
        (HOST_PORT, NEIGHBOUR, OTHER_IP, {PUNT}),
        (HOST_PORT, BROADCAST_MAC, NO_ADDRESS, {PASS}),
        (HOST_PORT, NEIGHBOUR, NO_ADDRESS, {PUNT}),
        (EMPTY_PORT, BROADCAST_MAC, IP, {PUNT, PASS}),
        (EMPTY_PORT, NEIGHBOUR, IP, {PUNT, PASS}),
        (UPLINK, BROADCAST_MAC, OTHER_IP, {PASS}),
        (UPLINK, NEIGHBOUR, OTHER_IP, {PASS}),
    ],
)
def test_arp_passes_from_known_hosts_ports_without_a_known_host_and_other_switches(
    port: PortNo, eth_dst: str, sender: str, expected: set[str]
) -> None:
    assert fate(rules(), port, ETH_ARP, eth_dst, sender) == expected


@pytest.mark.parametrize("port", SWITCH.ports)
def test_lldp_goes_up_from_everywhere_and_ip_only_on(port: PortNo) -> None:
    assert fate(rules(), port, ETH_LLDP) == {PUNT}
    assert fate(rules(), port, ETH_IPV4) == {PASS}


def test_everything_that_goes_up_is_metered_by_its_own_port() -> None:
    held = rules()
    for rule in held.flows.values():
        assert rule.meter == (rule.key.match.in_port if rule.actions else None)
    assert held.meters == {number: MeterRule(number, RATE, RATE) for number in SWITCH.ports}


def test_packets_that_go_on_may_leave_by_the_port_they_came_from_where_links_lead_one_way() -> None:
    held = control_rules(SWITCH, {UPLINK, SECOND_UPLINK}, HOSTS, RATE, turns_back=True)
    assert held.flows.keys() == rules().flows.keys()
    assert all((AnyPort() in rule.actions) == (rule.goto is not None) for rule in held.flows.values())
    assert not any(AnyPort() in rule.actions for rule in rules().flows.values())


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
        assert fate(fresh, port, ETH_LLDP) == {PUNT}
        assert fate(fresh, port, ETH_ARP) == {PUNT, PASS}

    slower = MeterRule(HOST_PORT, 7, 7)
    assert adopting_rules(SWITCH, RuleSet(meters={HOST_PORT: slower}), RATE).meters[HOST_PORT] == slower


# ---- table 1


FLOW, BACK = FlowId("10.0.1.1", "10.0.2.1"), FlowId("10.0.2.1", "10.0.1.1")
OWNER = 7
UP, DOWN = LinkId(Dpid(1), PortNo(2)), LinkId(Dpid(9), PortNo(3))
PATH = (UP, DOWN)
CLASSES = port_classes(4)
PARTS = [
    *(FlowPart(Transport.TCP, ports) for ports in CLASSES),
    *(FlowPart(Transport.TCP, ports, answers=True) for ports in CLASSES),
    *(FlowPart(Transport.ROCE_V2, ports) for ports in CLASSES),
]


@pytest.mark.parametrize("part", [None, *PARTS])
def test_an_entry_says_what_it_was_made_for(part: FlowPart | None) -> None:
    pin = Pin(FLOW, OWNER, None, part)
    assert read_pin(counting_rule(pin, 0)) == pin


def test_every_part_has_an_entry_of_its_own_with_a_priority_of_its_own_that_wins_over_the_whole_flow() -> None:
    keys = [pin_key(FLOW, part) for part in PARTS]
    assert len(set(keys)) == len(keys)
    assert min(key.priority for key in keys) > pin_key(FLOW).priority
    both = PARTS[0]._replace(dst_ports=CLASSES[1])
    assert pin_key(FLOW, both).priority > pin_key(FLOW, PARTS[0]).priority, "more bits are more specific"
    rule = counting_rule(Pin(FLOW, OWNER, None, PARTS[0]), 0)
    assert read_pin(structs.replace(rule, key=rule.key._replace(priority=rule.key.priority + 1))) is None


def test_packets_of_no_flow_go_on_by_the_entry_for_a_miss() -> None:
    """Section 5.4 of OpenFlow 1.3.5: the row has priority 0 and only wildcards. It is installed before all others."""
    assert (MISS_RULE.key, MISS_RULE.goto) == (FlowKey(Table.PINNED, 0, Match()), Table.DEFAULT)


def test_only_pins_to_groups_that_are_missing_are_left_to_the_default_table() -> None:
    refused, fine = (FlowRule(pin_key(flow), OWNER, (ToGroup(to),)) for flow, to in ((FLOW, 1), (BACK, 2)))
    default = FlowRule(FlowKey(Table.DEFAULT, 10, Match()), OWNER, (ToGroup(1),))
    changed = on_ecmp(RuleSet.of([refused, fine, default]), {1})
    assert list(changed.flows.values()) == [FlowRule(refused.key, OWNER, goto=Table.DEFAULT), fine, default]


def port_of(dpid: int, next_hops: tuple[LinkId, ...]) -> PortNo | None:
    """Return the port that the pin uses at a switch; None where it has no table row."""
    rule = pin_rule(Pin(FLOW, OWNER, PATH), Dpid(dpid), next_hops, lambda port: port)
    if rule is None:
        return None
    (action,) = rule.actions
    assert isinstance(action, ToGroup)
    return PortNo(action.group_id)


def test_a_pin_stands_at_its_source_and_where_the_default_table_may_choose_another_way() -> None:
    other = LinkId(Dpid(9), PortNo(4))
    assert port_of(1, (UP,)) == UP.port, "the source's switch counts the flow"
    assert port_of(9, (DOWN,)) is None
    assert port_of(9, (DOWN, other)) == DOWN.port
    assert port_of(9, (other,)) == DOWN.port
    assert port_of(5, ()) is None
    at_source, behind = (pin_rule(Pin(FLOW, OWNER, PATH), Dpid(dpid), (DOWN, other), int) for dpid in (1, 9))
    assert at_source
    assert behind
    assert (at_source.distance, behind.distance) == (2, 1), "it is installed at the end of its path first"


def test_acknowledgements_ride_on_a_flow_unless_the_other_direction_is_announced() -> None:
    announced = Announcement(OWNER, ())
    back = (LinkId(Dpid(2), PortNo(1)),)
    pins = both_directions([Routed(FLOW, whole(PATH), (back,))], announced, answered=False)
    assert pins == (Pin(FLOW, OWNER, PATH), Pin(BACK, OWNER, back))
    assert both_directions([Routed(FLOW, whole(PATH), (back,))], announced, answered=True) == pins[:1]


def test_a_split_flow_has_a_pin_per_subflow_and_one_that_counts_the_rest() -> None:
    parts = PARTS[:4]
    announced = Announcement(OWNER, tuple((part,) for part in parts))
    other = (LinkId(Dpid(1), PortNo(3)),)
    route = (PathShare(PATH, 0.5), PathShare(other, 0.5))
    pins = both_directions([Routed(FLOW, route, (None, None))], announced, answered=True)
    assert pins == (Pin(FLOW, OWNER, None), Pin(FLOW, OWNER, PATH, parts[0]), Pin(FLOW, OWNER, other, parts[1]))


def test_equal_subflows_on_one_path_share_the_pin_of_all_packets_and_others_have_their_own() -> None:
    announced = Announcement(OWNER, tuple((part,) for part in PARTS[:3]))
    flows, other = [FLOW._replace(subflow=number) for number in range(3)], (LinkId(Dpid(1), PortNo(3)),)

    def pins(*paths: Path) -> tuple[Pin, ...]:
        ways = [Routed(flow, whole(path), (None,)) for flow, path in zip(flows, paths, strict=False)]
        return both_directions(ways, announced, answered=True)

    shared = Pin(flows[0], OWNER, PATH, subflows=(flows[0], flows[2]))
    assert pins(PATH, other, PATH) == (shared, Pin(flows[1], OWNER, other, PARTS[1]))
    assert pins(PATH, PATH) == (replace(shared, subflows=(flows[0], flows[1])),)
    each = tuple(Pin(flows[n], OWNER, path, PARTS[n]) for n, path in enumerate((PATH, other)))
    assert pins(PATH, other) == (Pin(flows[0], OWNER, None), *each), "no two share a path"


# ---- table 2


def bucket_of(group: GroupRule, value: int) -> PortNo:
    """Return the port to which Open vSwitch sends a hash value.

    A select group of equal weights has a table of at least 16 hash values, to which the buckets are assigned in turn
    (ofproto-dpif.c)."""
    values = max(16, 1 << (len(group.buckets) - 1).bit_length())
    action = group.buckets[value % values % len(group.buckets)].action
    assert isinstance(action, Output)
    return action.port


def spread(edges: int, cores: int, first: list[int], second: list[int]) -> Counter[tuple[PortNo, PortNo]]:
    """Count the hash values, of 64, per pair of output ports of an edge switch and the aggregation switch behind it."""
    edge = ecmp_group(77, tuple(LinkId(Dpid(edges), PortNo(port)) for port in first), 4)
    behind = ecmp_group(77, tuple(LinkId(Dpid(cores), PortNo(port)) for port in second), 3)
    return Counter((bucket_of(edge, value), bucket_of(behind, value)) for value in range(64))


@pytest.mark.parametrize(("first", "second"), list(product([2, 4, 8], repeat=2)))
@settings(max_examples=30)
@given(dpids=st.tuples(st.integers(1, 500), st.integers(1, 500)))
def test_what_leaves_by_one_port_of_the_edge_leaves_by_all_ports_of_the_next_switch(
    first: int, second: int, dpids: tuple[int, int]
) -> None:
    """The 64 hash values are spread evenly if the ports have consecutive numbers, as in a fat-tree."""
    ups = [list(range(n + 1, 2 * n + 1)) for n in (first, second)]
    assert set(spread(*dpids, *ups).values()) == {64 // (first * second)}


@given(
    st.lists(st.integers(1, 40), min_size=2, max_size=2, unique=True),
    st.lists(st.integers(1, 40), min_size=2, max_size=8, unique=True),
)
def test_the_second_choice_stays_a_choice_whatever_the_ports(first: list[int], second: list[int]) -> None:
    seen = spread(1, 2, first, second)
    for port in first:
        assert len({behind for ahead, behind in seen if ahead == port}) > 1


@given(st.lists(st.integers(1, 60), min_size=2, max_size=8, unique=True), st.integers(1, 6), st.data())
def test_losing_a_next_hop_only_takes_buckets_away(ports: list[int], distance: int, data: st.DataObject) -> None:
    hops = tuple(LinkId(Dpid(9), PortNo(port)) for port in ports)
    lost = data.draw(st.sampled_from(hops))
    whole = ecmp_group(5, hops, distance)
    assert len(whole.buckets) <= MAX_SPREAD_BUCKETS
    without_it = ecmp_group(5, tuple(hop for hop in hops if hop != lost), distance)
    assert without_it.buckets == tuple(b for b in whole.buckets if b.watch_port != lost.port)


def test_repeated_buckets_are_narrowed_like_others() -> None:
    hops = tuple(LinkId(Dpid(9), PortNo(port)) for port in (3, 4, 5))
    whole, fewer = (RuleSet.of(groups=[ecmp_group(5, some, 3)]) for some in (hops, hops[:2]))
    assert [stage.name for stage in stages_between({Dpid(9): fewer}, {Dpid(9): whole})] == [NARROW]
    assert [stage.name for stage in stages_between({Dpid(9): whole}, {Dpid(9): fewer})] == ["install 3"]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40, unique=True), st.integers(0, 2))
def test_where_there_is_one_choice_a_hop_has_one_bucket_in_port_order(ports: list[int], distance: int) -> None:
    group = ecmp_group(5, tuple(LinkId(Dpid(9), PortNo(port)) for port in ports), distance)
    assert [bucket.watch_port for bucket in group.buckets] == sorted(ports)


def test_switches_assign_the_hops_to_hash_values_in_different_orders() -> None:
    """The unevenness of one switch in three tiers then differs from the unevenness of the next switch."""
    orders = {
        tuple(
            bucket.watch_port
            for bucket in ecmp_group(5, tuple(LinkId(Dpid(dpid), PortNo(p)) for p in (1, 2, 3)), 3).buckets
        )
        for dpid in range(1, 20)
    }
    assert len(orders) > 1


# ---- prefixes


LEAF, OTHER_LEAF, THIRD_LEAF = Dpid(1), Dpid(2), Dpid(3)
PREFIX = Prefix("10.0.1.0", 24)


def owners(*leaves: Dpid, present: Dpid | None = None) -> dict[Prefix, Dpid]:
    """Return the owners of prefixes.

    ``leaves``: leaves of the hosts of one prefix. ``present``: the leaf to which the prefix leads now."""
    hosts = {
        f"10.0.1.{n}": Host(f"10.0.1.{n}", None, PortRef(dpid, PortNo(n)), 1e9) for n, dpid in enumerate(leaves, 1)
    }
    return destination_prefixes(Fabric(hosts=hosts), 24, {PREFIX: present} if present else {})


def test_a_prefix_leads_to_the_switch_with_most_of_its_hosts_or_stays_and_other_hosts_have_rules_of_their_own() -> None:
    assert owners(OTHER_LEAF, LEAF, OTHER_LEAF) == {PREFIX: OTHER_LEAF, host_prefix("10.0.1.2"): LEAF}
    assert owners(OTHER_LEAF, LEAF)[PREFIX] == owners(LEAF, OTHER_LEAF)[PREFIX] == LEAF, "the first of two with as many"
    assert owners(LEAF, OTHER_LEAF, OTHER_LEAF, present=LEAF)[PREFIX] == LEAF
    assert owners(OTHER_LEAF, OTHER_LEAF, THIRD_LEAF, present=LEAF)[PREFIX] == OTHER_LEAF


def test_the_rule_of_a_host_is_installed_before_any_rule_that_leads_to_its_switch() -> None:
    """Stages are ordered by distance, and the distance of a neighbour is 1."""
    rules = [rule for of_switch in RULES.values() for rule in of_switch.flows.values()]
    to_hosts = [rule for rule in rules if any(isinstance(action, Output) for action in rule.actions)]
    assert to_hosts
    assert {rule.distance for rule in to_hosts} == {0}


# ---- dropped packets: a rule for each kind


FABRIC = leaf_spine(2, 2, 2, 1e9, 1e9)
SOME_PINS = (
    Pin(FlowId("10.0.0.1", "10.0.1.1"), 7, None),
    Pin(FlowId("10.0.0.2", "10.0.1.1"), 8, None, learning=True),
)
RULES = Pipeline(PipelineSettings(punt_rate_pps=50, leaf_prefix_length=24)).desired(FABRIC, SOME_PINS, {})
KEYS = {rule.key for rule in DROP_RULES}


def test_every_switch_drops_by_kind_below_all_that_forwards() -> None:
    for rules in RULES.values():
        forwarding = {key.priority for key in rules.flows if key.table == Table.DEFAULT} - {k.priority for k in KEYS}
        assert rules.flows.keys() >= KEYS
        assert all(not rules.flows[key].actions and rules.flows[key].goto is None for key in KEYS)
        assert min(key.priority for key in KEYS) > 0
        assert max(key.priority for key in KEYS) < min(forwarding)
    assert len({(key.priority, key.match.eth_type) for key in KEYS}) == len(KEYS), "no packet meets two of one priority"
    assert min(KEYS, key=lambda key: key.priority).match == Match(), "the last one takes everything"


def test_the_counters_of_pinned_and_dropping_rules_are_read_and_no_others() -> None:
    for rules in RULES.values():
        for key, rule in rules.flows.items():
            assert is_ours(rule.cookie)
            assert bool(rule.cookie & COUNTED_BIT) == (key.table == Table.PINNED or key in KEYS)


def test_learning_rules_are_installed_in_the_first_stage() -> None:
    assert RULES[Dpid(1)].flows[SOME_PINS[1].key].distance == 0
