"""Candidate paths longer than the shortest, and plans that use them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.topology import CandidatePaths, Dpid, Fabric, Path, next_hops
from controller.planning.efficiency import SLOWDOWN_TOLERANCE
from controller.planning.plan import Plan
from controller.planning.plan_check import check
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits, Problem, whole
from offline.scenarios.scenario import StretchedPaths
from tests.support.planning.fabrics import better, brute_force, fabric_of, flow, leaf_spine, link_between, problem_of
from tests.support.planning.split_problems import optimum

TRIANGLE = [(1, 2, 1.0), (1, 3, 10.0), (3, 2, 10.0)]


def visited(fabric: Fabric, path: Path) -> list[int]:
    return [int(link.dpid) for link in path] + [int(fabric.links[path[-1]].dst.dpid)]


def between(fabric: Fabric, src: int, dst: int, stretch: int, max_paths: int = 64) -> list[list[int]]:
    found = StretchedPaths(fabric, max_paths, stretch).between(Dpid(src), Dpid(dst))
    return [visited(fabric, path) for path in found]


def packet_ways(fabric: Fabric, dst: int, paths: Iterable[Path]) -> networkx.DiGraph[int]:
    """Return the hops of packets: by ECMP towards the destination, or by a pin of any of these paths."""
    ways: networkx.DiGraph[int] = networkx.DiGraph()
    hops = next_hops(fabric, [Dpid(dst)])[Dpid(dst)]
    for link in (*(link for links in hops.values() for link in links), *(link for path in paths for link in path)):
        ways.add_edge(int(link.dpid), int(fabric.links[link].dst.dpid))
    return ways


def test_a_detour_beside_a_direct_cable() -> None:
    fabric = fabric_of(TRIANGLE)
    assert between(fabric, 1, 2, 0) == [[1, 2]]
    assert between(fabric, 1, 2, 1) == [[1, 2], [1, 3, 2]]


def test_no_detour_to_a_switch_from_which_ecmp_leads_back() -> None:
    """The shortest path from 3 to 2 is over 1."""
    fabric = fabric_of([(1, 2, 1.0), (1, 3, 1.0), (3, 4, 1.0), (4, 5, 1.0), (5, 2, 1.0)])
    assert between(fabric, 1, 2, 4) == [[1, 2]]
    assert between(fabric, 3, 2, 1) == [[3, 1, 2], [3, 4, 5, 2]]


def test_leaf_spines_have_no_detours_of_one_link() -> None:
    fabric = leaf_spine(3, 3)
    assert between(fabric, 1, 2, 1) == between(fabric, 1, 2, 0)
    assert between(fabric, 1, 2, 2) == between(fabric, 1, 2, 0), "ECMP of a third leaf leads back over the spine"


def test_as_many_detours_as_shortest_paths_are_listed() -> None:
    fabric = fabric_of(
        [(1, 2, 1.0), *((1, middle, 1.0) for middle in range(3, 9)), *((m, 2, 1.0) for m in range(3, 9))]
    )
    for most, count in ((4, 5), (6, 7), (8, 7)):
        paths = StretchedPaths(fabric, most, 1)
        assert len(paths.between(Dpid(1), Dpid(2))) == count
        assert paths.cut(Dpid(1), Dpid(2)) == (most < 6)


def test_which_paths_are_allowed() -> None:
    fabric = fabric_of(TRIANGLE)
    detour = (link_between(fabric, 1, 3), link_between(fabric, 3, 2))
    assert StretchedPaths(fabric, 64, 1).leads(detour, Dpid(1), Dpid(2))
    assert not CandidatePaths(fabric, 64).leads(detour, Dpid(1), Dpid(2))
    assert not StretchedPaths(fabric, 64, 1).without(detour[:1]).leads(detour, Dpid(1), Dpid(2))


@st.composite
def graphs(draw: st.DrawFn) -> Fabric:
    switches = draw(st.integers(3, 7))
    tree = [(draw(st.integers(1, here - 1)), here) for here in range(2, switches + 1)]
    others = [(a, b) for b in range(1, switches + 1) for a in range(1, b)]
    return fabric_of((a, b, 1.0) for a, b in (*tree, *draw(st.lists(st.sampled_from(others), max_size=8))))


@given(graphs(), st.integers(1, 3))
def test_packets_arrive_with_any_of_the_pins_of_a_path(fabric: Fabric, stretch: int) -> None:
    paths, shortest = StretchedPaths(fabric, 64, stretch), CandidatePaths(fabric, 64)
    for dst in (1, 2):
        for src in set(fabric.switches) - {dst}:
            found = paths.between(src, Dpid(dst))
            assert found[: len(shortest.between(src, Dpid(dst)))] == shortest.between(src, Dpid(dst))
            assert len(set(found)) == len(found)
            for path in found:
                assert len(path) <= (shortest.distance(src, Dpid(dst)) or 0) + stretch
                assert networkx.is_directed_acyclic_graph(packet_ways(fabric, dst, [path]))


LIMITS = PlanLimits(ecmp_draws=20, deterministic=True)
quick = settings(max_examples=10)


def planned(problem: Problem) -> Plan:
    answer = plan(problem, LIMITS)
    assert isinstance(answer, Plan), answer
    assert check(problem, answer) == ()
    return answer


def stretched(problem: Problem, stretch: int, max_paths: int = 64) -> Problem:
    return replace(problem, paths=StretchedPaths(Fabric(links=problem.paths.links), max_paths, stretch))


def test_the_checker_accepts_only_detours_that_are_candidates() -> None:
    """The direct cable has rate 10, the path over 3 rate 100."""
    fabric, f = fabric_of([(1, 2, 10.0), (1, 3, 100.0), (3, 2, 100.0)]), flow("a", (1, 1), (2, 1), 50.0)
    problem = problem_of(fabric, [f], nic_bps=50.0)
    answer = planned(problem)
    detour = link_between(fabric, 1, 3), link_between(fabric, 3, 2)
    taken = replace(
        answer, routes={f.id: whole(detour)}, job_slowdown={f.job_id: 1.0}, own_slowdown={f.job_id: 1.0}, bound=1.0,
        fluid_bound=1.0,
    )  # fmt: skip
    assert check(problem, taken) == ("10.0.1.1 > 10.0.2.1: its path is not among the candidates",)
    assert check(stretched(problem, 1), taken) == ()


@st.composite
def problems(draw: st.DrawFn, subflows: int) -> Problem:
    """Draw up to four flows of two jobs on up to six switches, with paths up to two links above the shortest."""
    switches, rates = draw(st.integers(3, 6)), st.sampled_from([1.0, 2.0, 5.0])
    tree = [(draw(st.integers(1, here - 1)), here) for here in range(2, switches + 1)]
    others = [(a, b) for b in range(1, switches + 1) for a in range(1, b)]
    cables = [*tree, *draw(st.lists(st.sampled_from(others), max_size=6))]
    pairs = draw(st.lists(st.permutations(range(1, switches + 1)), min_size=1, max_size=4))
    flows = [
        replace(flow(draw(st.sampled_from("ab")), (src, n), (dst, n), draw(rates)), max_subflows=subflows)
        for n, (src, dst, *_) in enumerate(pairs)
    ]
    fabric = fabric_of((a, b, draw(rates)) for a, b in cables)
    return stretched(problem_of(fabric, flows, nic_bps=9.0), draw(st.integers(1, 2)))


@quick
@given(problems(8))
def test_split_flows_reach_the_fluid_optimum_over_longer_paths(problem: Problem) -> None:
    answer, least = planned(problem), optimum(problem)
    assert answer.max_slowdown == pytest.approx(least, rel=1e-4)
    assert answer.bound == pytest.approx(least, rel=1e-4)


@settings(max_examples=5)
@given(problems(1))
def test_whole_flows_are_optimal_over_longer_paths(problem: Problem) -> None:
    answer, (best, _) = planned(problem), brute_force(problem)
    assert answer.certificate == "optimal"
    assert not better(best, answer.sorted_slowdowns)
    assert not better(answer.sorted_slowdowns, best)


@quick
@given(problems(1), st.sampled_from([1, 8]), st.integers(1, 2))
def test_with_fewer_candidates_nothing_is_claimed_that_is_wrong(problem: Problem, subflows: int, most: int) -> None:
    problem = replace(problem, flows=tuple(replace(f, max_subflows=subflows) for f in problem.flows))
    few, every = planned(stretched(problem, problem.paths.stretch, most)), planned(problem)
    assert few.bound <= every.max_slowdown * (1 + SLOWDOWN_TOLERANCE)
    assert not better(every.sorted_slowdowns[: few.slowdowns_proven], few.sorted_slowdowns[: few.slowdowns_proven])
