"""Next hops of prefixes, and ECMP groups: two choices on the path of a packet are independent."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.topology import Dpid, Fabric, Host, LinkId, PortNo, PortRef
from controller.planning.problem import FlowId
from controller.tables import flow_tables
from controller.tables.flow_tables import MAX_SPREAD_BUCKETS, Pin, destination_prefixes, ecmp_group, host_rules
from controller.tables.pipeline import Pipeline, PipelineSettings
from controller.tables.rules import (
    COUNTED_BIT,
    NARROW,
    GroupRule,
    Match,
    Output,
    Prefix,
    RuleSet,
    Table,
    host_prefix,
    is_ours,
    stages_between,
)
from offline.scenarios.fabrics import leaf_spine


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
    host = Host("10.0.1.1", None, PortRef(Dpid(1), PortNo(5)), 1e9)
    assert {rule.distance for rule in host_rules([host])} == {0}


# ---- dropped packets: a rule for each kind


FABRIC = leaf_spine(2, 2, 2, 1e9, 1e9)
PINS = (
    Pin(FlowId("10.0.0.1", "10.0.1.1"), 7, None),
    Pin(FlowId("10.0.0.2", "10.0.1.1"), 8, None, learning=True),
)
RULES = Pipeline(PipelineSettings(punt_rate_pps=50, leaf_prefix_length=24)).desired(FABRIC, PINS, {})
KEYS = {rule.key for rule in flow_tables.DROP_RULES}


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
