"""Paths on circulant wirings are shortest paths, load the circuits evenly, and pass the planner's checker."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.circuits.wiring.circuits import UNREACHED, Wiring, circulant, hops_by_offset
from controller.circuits.wiring.rings import Way, coin_change_routes, ways_by_offset, ways_of_flows
from controller.fabric.topology import PortNo
from controller.planning.plan import Plan
from controller.planning.planner import repair
from controller.planning.problem import Problem
from offline.scenarios.fabrics import fabric_of
from offline.scenarios.scenario import problem_of
from offline.scenarios.topologies import OFFLINE, direct_connect
from offline.scenarios.workload_job import WorkloadJob
from signalbox.jobs.collectives import VirtualLink
from signalbox.jobs.spec import JobId

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
    """Each of 12 servers needs 20 hops in the second case: five on average for each of its four interfaces.

    In the first case it needs 30 hops, and several offsets have two shortest paths.

    With the same paths for all servers (``alike``), one interface would have six hops."""

    def most(ways: Mapping[tuple[int, int], Way]) -> int:
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
    assert plan.solver == "running"
    hops = hops_by_offset(servers, steps)
    assert plan.max_slowdown >= sum(hops) / (servers - 1) - 1e-9


def test_another_wiring_has_no_such_routes() -> None:
    wiring = Wiring(3, ((1, 2, 0), (2, None, None)))
    with pytest.raises(ValueError, match="not circulant"):
        coin_change_routes(all_to_all(wiring), wiring, [], [])
