"""Steps of rings, the hops over them and the paths on circulant wirings, against published figures and the checker."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.circuits.wiring.circuits import (
    UNREACHED,
    Wiring,
    circulant,
    diameter,
    hops_between,
    hops_by_offset,
    mean_hops,
    total_and_most,
)
from controller.circuits.wiring.rings import (
    InterfacePath,
    chosen_steps,
    coin_change_routes,
    geometric_steps,
    ring_order,
    totient_steps,
    ways_by_offset,
    ways_of_flows,
)
from controller.fabric.topology import PortNo
from controller.planning.plan import Plan
from controller.planning.planner import repair
from controller.planning.problem import Problem
from offline.scenarios.fabrics import fabric_of
from offline.scenarios.scenario import problem_of
from offline.scenarios.topologies import OFFLINE, direct_connect
from offline.scenarios.workloads import WorkloadJob
from signalbox.jobs.collectives import VirtualLink
from signalbox.jobs.spec import JobId
from tests.unit.circuits.wiring.test_circuits import wirings


def graph_of(wiring: Wiring) -> nx.MultiDiGraph[int]:
    graph: nx.MultiDiGraph[int] = nx.MultiDiGraph()
    graph.add_nodes_from(range(wiring.servers))
    graph.add_edges_from((circuit.src.server, circuit.dst.server) for circuit in wiring.circuits)
    return graph


@pytest.mark.parametrize(
    ("servers", "steps", "most", "mean"),
    [
        (12, (1, 5), 5, 2.73),
        (12, (1, 5, 7), 4, 2.18),
        (12, (1, 5, 7, 11), 3, 1.82),
        (16, (1, 3, 7), 4, 2.27),
        (128, (1, 5, 25), 12, 6.05),
        (128, (1, 3, 11, 37), 8, 4.52),
    ],
)
def test_published_steps_have_their_published_hops(
    servers: int, steps: tuple[int, ...], most: int, mean: float
) -> None:
    hops = hops_between(circulant(servers, steps))
    assert (diameter(hops), round(mean_hops(hops), 2)) == (most, mean)
    found = total_and_most(servers, steps)
    assert found == (sum(hops_by_offset(servers, steps)), most)


def test_near_geometric_steps_are_the_published_ones_and_come_again_where_there_are_fewer_than_rings() -> None:
    for servers, steps in ((12, (1, 5)), (16, (1, 3, 7)), (128, (1, 5, 25)), (128, (1, 3, 11, 37)), (7, (1,))):
        assert geometric_steps(servers, len(steps)) == steps
    assert totient_steps(6) == (1, 5)
    assert sorted(geometric_steps(6, 5)) == [1, 1, 1, 5, 5]
    assert geometric_steps(2, 3) == (1, 1, 1)


@given(wirings())
def test_hops_are_those_of_a_breadth_first_search(wiring: Wiring) -> None:
    expected = dict(nx.all_pairs_shortest_path_length(graph_of(wiring)))
    found = hops_between(wiring)
    for a in range(wiring.servers):
        assert found[a].tolist() == [expected[a].get(b, UNREACHED) for b in range(wiring.servers)]


@given(st.integers(2, 40), st.lists(st.integers(1, 39), min_size=1, max_size=4))
def test_hops_of_a_circulant_wiring_too(servers: int, numbers: list[int]) -> None:
    steps = [1 + number % (servers - 1) for number in numbers]
    expected = nx.single_source_shortest_path_length(graph_of(circulant(servers, steps)), 0)
    by_offset = hops_by_offset(servers, steps)
    assert by_offset == tuple(expected.get(offset, UNREACHED) for offset in range(servers))
    every = total_and_most(servers, steps)
    assert every == (None if UNREACHED in by_offset else (sum(by_offset), max(by_offset)))


@given(st.integers(2, 40), st.integers(1, 5))
def test_every_chosen_ring_visits_all_servers(servers: int, rings: int) -> None:
    found = chosen_steps(servers, rings)
    assert found is not None
    assert len(found.all) == rings
    for step in found.rings:
        assert sorted(ring_order(range(servers), step)) == list(range(servers))
    hops = hops_between(circulant(servers, found.all))
    assert diameter(hops) == found.most
    assert mean_hops(hops) == pytest.approx(found.mean)
    published = total_and_most(servers, geometric_steps(servers, rings))
    assert published is not None
    assert found.mean <= published[0] / (servers - 1) + 1e-9


def test_a_step_that_divides_a_group_is_no_ring() -> None:
    assert ring_order((10, 20, 30, 40, 50), 2) == (10, 30, 50, 20, 40)
    with pytest.raises(ValueError, match="several rings"):
        ring_order(range(6), 2)


@settings(max_examples=20)
@given(st.integers(4, 16), st.integers(1, 3), st.integers(0, 9))
def test_steps_follow_the_weights(servers: int, others: int, seed: int) -> None:
    weights: Any = np.random.default_rng(seed).integers(0, 9, servers).astype(float)
    weights[0], weights[-1] = 0.0, 100.0
    found = chosen_steps(servers, 1, others, weights.tolist())
    alike = chosen_steps(servers, 1, others)
    assert found is not None
    assert alike is not None
    hops = np.array(hops_by_offset(servers, alike.all))
    assert found.mean <= hops @ weights / weights.sum() + 1e-9
    assert found.mean == pytest.approx(np.array(hops_by_offset(servers, found.all)) @ weights / weights.sum())


GBPS = 1e9


def all_to_all(wiring: Wiring) -> Problem:
    fabric = fabric_of(direct_connect(wiring.peers, GBPS, OFFLINE))
    links = [VirtualLink(a, b, 0, 1000) for a in fabric.hosts for b in fabric.hosts if a != b]
    return problem_of(fabric, [WorkloadJob(JobId("all"), tuple(links), (), 0.0, 0.0, 1.0)])


@given(st.integers(2, 30), st.lists(st.integers(1, 29), min_size=1, max_size=4))
def test_a_way_makes_up_its_offset_with_the_fewest_steps(servers: int, numbers: list[int]) -> None:
    steps = [1 + number % (servers - 1) for number in numbers]
    hops = hops_by_offset(servers, steps)
    for offset, way in enumerate(ways_by_offset(servers, steps, [1.0] * servers)):
        assert (way is None) == (hops[offset] == UNREACHED)
        if way is not None:
            assert len(way) == hops[offset]
            assert sum(steps[interface] for interface in way) % servers == offset


@pytest.mark.parametrize(
    ("servers", "steps", "alike", "even"),
    [(12, (1, 5), 15, 15), (12, (1, 5, 7, 11), 6, 5), (16, (1, 3, 7), 13, 12), (9, (2, 3), 9, 9)],
)
def test_single_flows_go_other_ways_until_circuits_carry_alike(
    servers: int, steps: tuple[int, ...], alike: int, even: int
) -> None:
    """Every server sends to every other one; the values are the hops over the busiest interface.

    ``alike``: when all servers take the same one of several shortest paths. ``even``: when servers take different ones.
    In the second case a server needs 20 hops, which is five for each of its four interfaces."""

    def most(ways: Mapping[tuple[int, int], InterfacePath]) -> int:
        carried = Counter[tuple[int, int]]()
        for (server, _), way in ways.items():
            for interface in way:
                carried[server, interface] += 1
                server = (server + steps[interface]) % servers
        return max(carried.values())

    pairs = [(server, offset) for server in range(servers) for offset in range(1, servers)]
    of_offset = ways_by_offset(servers, steps, [0.0] + [1.0] * (servers - 1))
    assert most({pair: of_offset[pair[1]] or () for pair in pairs}) == alike
    found = ways_of_flows(servers, steps, dict.fromkeys(pairs, 1.0))
    assert found.keys() == set(pairs)
    assert most(found) == even


@given(st.integers(3, 14), st.lists(st.integers(1, 13), min_size=1, max_size=3), st.integers(0, 99))
def test_every_flow_has_a_shortest_way_to_where_it_goes(servers: int, numbers: list[int], seed: int) -> None:
    steps = [1 + number % (servers - 1) for number in numbers]
    rng = random.Random(seed)
    sent = {(rng.randrange(servers), rng.randrange(1, servers)): rng.random() + 0.1 for _ in range(3 * servers)}
    hops = hops_by_offset(servers, steps)
    found = ways_of_flows(servers, steps, sent)
    assert found.keys() == {pair for pair in sent if hops[pair[1]] != UNREACHED}
    for (_, offset), way in found.items():
        assert len(way) == hops[offset]
        assert sum(steps[interface] for interface in way) % servers == offset


@pytest.mark.parametrize(("servers", "steps"), [(12, (1, 5, 7, 11)), (9, (2, 3)), (16, (1, 3, 7))])
def test_the_planner_accepts_the_routes_and_has_none_left_to_find(servers: int, steps: tuple[int, ...]) -> None:
    wiring = circulant(servers, steps)
    problem = all_to_all(wiring)
    ports = [PortNo(1 + interface) for interface in range(len(steps))]
    routes = coin_change_routes(problem, wiring, [flow.src_leaf for flow in problem.flows[:: servers - 1]], ports)
    assert len(routes) == servers * (servers - 1)
    plan = repair(problem.with_routes(routes))
    assert isinstance(plan, Plan)
    assert plan.routes == routes
    assert plan.solver == "no-search"
    hops = hops_by_offset(servers, steps)
    assert plan.max_slowdown >= sum(hops) / (servers - 1) - 1e-9


def test_another_wiring_has_no_such_routes() -> None:
    wiring = Wiring(3, ((1, 2, 0), (2, None, None)))
    with pytest.raises(ValueError, match="not circulant"):
        coin_change_routes(all_to_all(wiring), wiring, [], [])
