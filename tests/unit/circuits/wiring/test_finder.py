"""Wirings found for given traffic: divisions of interfaces, matchings, and times known by hand."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.circuits.wiring.circuits import Wiring, circulant, hops_between, spread
from controller.circuits.wiring.evaluation import BreakEven
from controller.circuits.wiring.finder import Found, completed, find, heaviest_matching, published
from controller.circuits.wiring.traffic import Traffic, in_rings, traffic_of
from offline.design.exact import least_mean_hops
from signalbox.jobs.collectives import virtual_links
from signalbox.jobs.spec import JobSpec
from tests.unit.circuits.wiring.test_circuits import wirings

GBPS = 1e9
M = 12_000_000
"""Bytes of an all-reduce; all numbers of servers and rings here divide it."""


def job(servers: int, ranks_per_server: int = 1, **fields: Any) -> JobSpec:
    """Return a job with the group ``all`` and the groups ``a``, ``b`` and so on, of four ranks each."""
    endpoints = [f"10.0.0.{1 + rank // ranks_per_server}" for rank in range(servers * ranks_per_server)]
    groups = [{"name": "all", "ranks": range(len(endpoints))}]
    groups += [
        {"name": name, "ranks": range(4 * n, 4 * n + 4)}
        for n, name in zip(range(len(endpoints) // 4), "abcdef", strict=False)
    ]
    return JobSpec.parse({"job_id": "job", "endpoints": endpoints, "groups": groups, **fields})


def collective(algorithm: str, *groups: str, size: int = M, phase: int = 0) -> dict[str, Any]:
    return {"algorithm": algorithm, "groups": groups or ("all",), "bytes_per_iteration": size, "phase": phase}


def found_for(interfaces: int, servers: int, **fields: Any) -> Found:
    return find(traffic_of(job(servers, **fields)), interfaces, GBPS)


def matrices(servers: int, seed: int) -> Any:
    weights = np.random.default_rng(seed).integers(0, 6, (servers, servers)).astype(float)
    np.fill_diagonal(weights, 0.0)
    return weights


# ---- traffic


def test_an_all_reduce_is_free_in_its_order_and_an_all_to_all_is_not() -> None:
    traffic = traffic_of(job(4, collectives=[collective("all_reduce"), collective("all_to_all", size=400, phase=1)]))
    (rings,) = traffic.rings
    assert rings.groups == ((0, 1, 2, 3),)
    assert rings.sent == ({0: 2 * 3 / 4 * M},)
    assert traffic.pairs[1].tolist() == (100 * (1 - np.eye(4))).tolist()
    assert traffic.phases == (0, 1)
    assert traffic.even


def test_halves_of_an_all_reduce_share_rings_and_disjoint_groups_share_interfaces() -> None:
    halves_of_one = collective("ring_reduce_scatter", "a", "b"), collective("ring_all_gather", "a", "b", phase=2)
    halves, whole = traffic_of(job(8, collectives=[*halves_of_one, collective("all_reduce", "all", size=8)])).rings
    assert halves.groups == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert halves.sent == ({0: 3 / 4 * M, 2: 3 / 4 * M},) * 2
    assert [len(parts) for parts in halves.parts] == [2, 2]
    assert whole.groups == (tuple(range(8)),)
    assert whole.bytes == 14


def test_ranks_of_one_server_are_one_place_of_a_ring() -> None:
    spec = job(3, ranks_per_server=2, collectives=[collective("ring_all_reduce")])
    traffic = traffic_of(spec)
    assert traffic.servers == 3
    assert traffic.rings[0].sent == ({0: 2 * 5 / 6 * M},)
    wired = in_rings(spec, [(traffic.rings[0], (((0, 2, 1),),))])
    links = {(link.src_ip, link.dst_ip): link.bytes for link in virtual_links(wired)}
    assert links == {(f"10.0.0.{a}", f"10.0.0.{b}"): 2 * 5 / 6 * M for a, b in ((1, 3), (3, 2), (2, 1))}


def test_a_job_in_several_rings_sends_as_much_as_before() -> None:
    spec = job(12, collectives=[collective("all_reduce"), collective("all_to_all", size=1200, phase=1)])
    found = find(traffic_of(spec), 4, GBPS)
    wired = in_rings(spec, zip(found.traffic.rings, found.orders, strict=True))
    JobSpec.parse(wired.model_dump())
    before, after = (sum(link.bytes for link in virtual_links(each)) for each in (spec, wired))
    assert before == after
    circuits = {(a.server, b.server) for a, b in found.wiring.circuits}
    rings = [link for link in virtual_links(wired) if link.phase == 0]
    assert len(rings) == 48
    assert {(int(link.src_ip[7:]) - 1, int(link.dst_ip[7:]) - 1) for link in rings} == circuits


def test_groups_that_share_no_server_send_what_each_of_them_sends() -> None:
    traffic = traffic_of(job(8, collectives=[collective("all_reduce", "a"), collective("all_reduce", "b", size=4000)]))
    (rings,) = traffic.rings
    assert rings.sent == ({0: 3 / 2 * M}, {0: 6000.0})
    assert (rings.bytes, traffic.in_rings) == (3 / 2 * M, 4 * (3 / 2 * M + 6000))


def test_what_runs_in_rings_is_a_spec_as_any_other() -> None:
    """Cases: a group already has the name of a ring, 256 collectives share one ring, and a collective is repeated."""
    spec = job(8, collectives=[collective("all_reduce", "a", "b"), collective("all_reduce", "b", phase=1)])
    groups = [*spec.model_dump()["groups"], {"name": "ring 4", "ranks": [0, 1]}]
    spec = JobSpec.parse(spec.model_dump() | {"groups": groups})
    found = find(traffic_of(spec), 2, GBPS)
    wired = in_rings(spec, zip(found.traffic.rings, found.orders, strict=True))
    assert JobSpec.parse(wired.model_dump()) == wired
    many = job(8, collectives=[collective("all_reduce", size=100_000 + n, phase=n) for n in range(256)])
    found = find(traffic_of(many), 2, GBPS)
    wired = in_rings(many, [(found.traffic.rings[0], found.orders[0][:1])])
    assert len(wired.groups) == len(many.groups) + 1
    twice = job(8, collectives=[collective("all_reduce"), collective("all_reduce")])
    wired = in_rings(twice, [(traffic_of(twice).rings[0], ())])
    assert sum(link.bytes for link in virtual_links(wired)) == 2 * 8 * 2 * 7 / 8 * M


def test_pairs_that_are_even_only_in_all_phases_together_are_not_even() -> None:
    ring = [{"src": n, "dst": (n + 1) % 4, "bytes_per_iteration": 1000, "phase": n % 2} for n in range(4)]
    assert not traffic_of(job(4, transfers=ring)).even


# ---- matchings


@pytest.mark.parametrize("servers", [2, 3, 4, 5, 6, 12, 150])
def test_a_matching_is_as_heavy_as_that_of_networkx(servers: int) -> None:
    weights = matrices(servers, 1) * (np.random.default_rng(2).random((servers, servers)) < 6 / servers)
    graph: nx.Graph[Any] = nx.Graph()
    for a, b in np.argwhere(weights > 0).tolist():
        graph.add_edge(("sends", a), ("receives", b), weight=int(weights[a, b]))
    expected = sum(graph.edges[pair]["weight"] for pair in nx.max_weight_matching(graph))
    found = {server: peer for server, peer in enumerate(heaviest_matching(weights)) if peer is not None}
    assert len({*found.values()}) == len(found)
    assert sum(weights[pair] for pair in found.items()) == expected


def test_dark_interfaces_are_joined_where_that_saves_hops() -> None:
    hops = hops_between(circulant(6, [1]))
    assert completed((1, None, None, None, None, None), hops)[1:] != (None,) * 5
    assert completed((1, 0), hops_between(circulant(2, [1]))) == (1, 0)
    assert completed((2, 0, None), hops_between(circulant(3, [1]))) == (2, 0, 1)


# ---- expected loads


def test_what_is_passed_on_is_divided_over_all_shortest_ways() -> None:
    """Two paths lead from 0 to 3, over 1 or over 2. The only path from 1 to 2 leads over 3 and then 0."""
    wiring = Wiring(4, ((1, 3, 0, None), (2, None, 3, 0)))
    sent = np.zeros((4, 4))
    sent[0, 3], sent[1, 2] = 8.0, 1.0
    loads = spread(wiring, hops_between(wiring), sent)
    assert loads.tolist() == [[4.0, 5.0, 0.0, 0.0], [5.0, 0.0, 4.0, 1.0]]


@given(wirings(), st.integers(0, 99))
def test_all_circuits_together_carry_every_byte_once_per_hop(wiring: Wiring, seed: int) -> None:
    hops, sent = hops_between(wiring), matrices(wiring.servers, seed)
    assert spread(wiring, hops, sent).sum() == pytest.approx((np.maximum(hops, 0) * sent).sum())


def test_on_a_circulant_wiring_one_destination_tells_all() -> None:
    found = found_for(3, 12, collectives=[collective("all_reduce"), collective("all_to_all", phase=1)])
    sent = found.traffic.pairs[1]
    loads = spread(found.wiring, found.hops, sent)
    assert found.expected_s[1] == pytest.approx(8 * loads.max() / GBPS)


# ---- wirings


def test_an_all_reduce_alone_gets_a_ring_on_every_interface() -> None:
    found = found_for(4, 12, collectives=[collective("all_reduce")])
    assert found.wiring.steps is not None
    assert sorted(found.wiring.steps) == [1, 5, 7, 11]
    assert (found.diameter, round(found.mean_hops, 2), found.bandwidth_tax) == (3, 1.82, 1.0)
    assert found.least_s == {0: pytest.approx(8 * 2 * 11 / 12 * M / (4 * GBPS))}


def test_pairs_that_send_much_get_circuits_of_their_own() -> None:
    to = [6, 3, 8, 9, 0, 10, 1, 11, 2, 4, 7, 5]
    transfers = [{"src": n, "dst": to[n], "bytes_per_iteration": 10 * M, "phase": 1} for n in range(12)]
    found = found_for(3, 12, collectives=[collective("all_reduce")], transfers=transfers)
    assert found.pair_hops == 1.0
    assert found.wiring.peers[2] == tuple(to)
    assert len(found.orders[0]) == 2


def test_idle_circuits_may_forward_for_few_pairs() -> None:
    """Dedicated circuits would be no faster for the two pairs, and would leave the all-reduce one ring less."""
    transfers = [{"src": a, "dst": b, "bytes_per_iteration": 10 * M, "phase": 1} for a, b in ((0, 6), (6, 0))]
    found = found_for(3, 12, collectives=[collective("all_reduce")], transfers=transfers)
    assert len(found.orders[0]) == 3
    assert found.least_s[1] == pytest.approx(8 * 10 * M / GBPS)


def test_groups_of_replicas_share_an_interface_and_the_rest_is_for_what_crosses_them() -> None:
    transfers = [{"src": n, "dst": (n + 4) % 12, "bytes_per_iteration": M, "phase": 1} for n in range(12)]
    found = found_for(3, 12, collectives=[collective("all_reduce", "a", "b", "c")], transfers=transfers)
    (orders,) = found.orders
    assert len(orders) == 2
    assert [sorted(group) for group in orders[0]] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert found.wiring.peers[2] == tuple((n + 4) % 12 for n in range(12))
    assert found.least_s == {0: pytest.approx(8 * 1.5 * M / (2 * GBPS)), 1: pytest.approx(8 * M / GBPS)}


def test_all_reduces_over_different_groups_have_interfaces_of_their_own() -> None:
    """Replicas send a hundredth of the bytes of tensor ranks; a proportional division would give them no interface.

    The rings of three servers would then have three hops from server to server."""
    replicas = [{"name": f"r{n}", "ranks": [n, n + 4, n + 8]} for n in range(4)]
    spec = job(12, collectives=[collective("all_reduce", "a", "b", "c")])
    fields = spec.model_dump() | {"groups": [*(group.model_dump() for group in spec.groups), *replicas]}
    fields["collectives"] += (collective("all_reduce", "r0", "r1", "r2", "r3", size=M // 100, phase=1),)
    found = find(traffic_of(JobSpec.parse(fields)), 3, GBPS)
    assert len(found.orders[0]) == 2
    assert found.bandwidth_tax == 1.0
    assert found.expected_s == {0: pytest.approx(8 * 0.75 * M / GBPS), 1: pytest.approx(8 * 4 / 3 * M / 100 / GBPS)}


def test_even_pairs_get_circulant_steps_for_their_offsets() -> None:
    """Nearly all bytes have offsets 3 and 6; no ring over nine servers has steps of 3 or 6."""
    transfers = [{"src": n, "dst": (n + k) % 9, "bytes_per_iteration": M, "phase": 1} for n in range(9) for k in (3, 6)]
    found = found_for(3, 9, collectives=[collective("all_reduce", size=9)], transfers=transfers)
    assert found.wiring.steps is not None
    assert {3, 6} < set(found.wiring.steps)
    assert found.pair_hops == 1.0


def test_the_published_division_is_in_proportion_to_what_is_sent() -> None:
    """Rings send 22 ``M`` and pairs 4 x 12 ``M``, so rings get 31 % of five interfaces, rounded up."""
    transfers = [
        {"src": n, "dst": (n + k) % 12, "bytes_per_iteration": M, "phase": 1} for n in range(12) for k in (2, 3, 4, 6)
    ]
    spec = job(12, collectives=[collective("all_reduce")], transfers=transfers)
    found = published(traffic_of(spec), 5, GBPS)
    assert len(found.orders[0]) == 2
    assert found.wiring.peers[0] == tuple((n + 1) % 12 for n in range(12))


def test_a_job_without_rings_is_connected_all_the_same() -> None:
    found = found_for(2, 8, collectives=[collective("all_to_all", size=800)])
    assert found.diameter is not None
    assert found.orders == ()


@settings(max_examples=30, deadline=None)
@given(st.integers(3, 9), st.integers(1, 3), st.integers(0, 999), st.booleans())
def test_the_answer_is_no_worse_than_the_published_division_and_not_below_the_bound(
    servers: int, interfaces: int, seed: int, reduces: bool
) -> None:
    spec = job(servers, collectives=[collective("all_reduce", size=100 * servers)] if reduces else [])
    sent = 100 * matrices(servers, seed)
    traffic = Traffic(servers, traffic_of(spec).rings, {3: sent} if sent.any() else {})
    if not traffic.phases:
        return
    found, theirs = find(traffic, interfaces, GBPS), published(traffic, interfaces, GBPS)
    assert sum(found.least_s.values()) <= found.expected_time_s * (1 + 1e-8)
    assert found.expected_time_s <= theirs.expected_time_s * (1 + 1e-8)
    assert found.expected_time_s < float("inf")
    assert found.wiring.interfaces == interfaces
    if sent.any():
        hops = least_mean_hops(sent, interfaces)
        assert found.least_s[3] >= 8 * sent.sum() * hops / servers / interfaces / GBPS - 1e-9


@pytest.mark.parametrize(("servers", "interfaces"), [(1, 2), (3, 0)])
def test_a_fabric_of_nothing_is_refused(servers: int, interfaces: int) -> None:
    with pytest.raises(ValueError, match="at least two servers and one interface"):
        find(Traffic(servers, (), {}), interfaces, GBPS)


def test_it_loses_from_the_ratio_on_at_which_both_are_equal() -> None:
    """The times are equal at r = 2.75: (1 + 4 r) / 40 = (1 + r) / 12.5."""
    known = BreakEven(0.5, 4.0, 40e9, 12.5e9)
    assert known.most_ratio == pytest.approx(2.75)
    assert not BreakEven(2.74, 4.0, 40e9, 12.5e9).loses
    assert BreakEven(2.76, 4.0, 40e9, 12.5e9).loses
    assert BreakEven(2.75, 4.0, 40e9, 12.5e9).time_ratio == pytest.approx(1)


def test_without_pairs_only_rates_count_and_pairs_alone_lose_when_they_are_forwarded_too_often() -> None:
    assert BreakEven(0.0, 4.0, 40e9, 12.5e9).time_ratio == pytest.approx(12.5 / 40)
    assert BreakEven(math.inf, 3.0, 40e9, 12.5e9).time_ratio == pytest.approx(3 * 12.5 / 40)
    assert BreakEven(math.inf, 4.0, 40e9, 12.5e9).loses


@pytest.mark.parametrize(
    ("hops", "direct", "ratio"), [(3.0, 40e9, math.inf), (2.0, 10e9, 0.0), (1.0, 12.5e9, math.inf), (2.0, 12.5e9, 0.0)]
)
def test_there_may_be_no_such_ratio(hops: float, direct: float, ratio: float) -> None:
    assert BreakEven(1.0, hops, direct, 12.5e9).most_ratio == ratio
