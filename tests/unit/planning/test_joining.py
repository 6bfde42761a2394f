"""Flows in equal subflows: only the flows that have to be split are split, whatever the number of subflows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.topology import Fabric, Path
from controller.planning.bounds import slowdown_bounds
from controller.planning.closed_forms import color_whole_first, route
from controller.planning.efficiency import first_difference
from controller.planning.plan import Plan, draft
from controller.planning.planner import joined, of_subflows
from controller.planning.problem import FlowId, Problem, whole
from offline.scenarios.fabrics import fat_tree, spine_links, without, without_random_links
from offline.scenarios.scenario import problem_of
from offline.scenarios.workloads import WorkloadJob
from signalbox.jobs.spec import Striping
from tests.support.planning.plans import planned, repaired
from tests.support.simulator_scenes import LINK_BPS, Host, fabric_of, job

LEAVES = SPINES = HOSTS = 4
INTACT = fabric_of(LEAVES, SPINES, HOSTS)
DEAD_SPINE = without(INTACT, spine_links(INTACT, [0]))


def even(fabric: Fabric, name: str, hosts: list[Host], subflows: int) -> WorkloadJob:
    return replace(job(fabric, name, [hosts]), max_subflows=subflows, striping=Striping.EVEN)


def ring(hosts: int, first: int = 0) -> list[Host]:
    return [(leaf, host) for host in range(first, first + hosts) for leaf in range(LEAVES)]


def paths_of(found: Plan) -> dict[FlowId, set[Path]]:
    paths = defaultdict[FlowId, set[Path]](set)
    for flow, subflows in found.routes.items():
        paths[flow.joined].update(path for path, _ in subflows)
    return paths


def cut_flows(found: Plan) -> int:
    return sum(len(paths) > 1 for paths in paths_of(found).values())


FAT_TREE = fat_tree(4, LINK_BPS, LINK_BPS)
OVER_FAT_TREE = even(FAT_TREE, "a", [(leaf, host) for host in range(2) for leaf in range(8)], 4)


@pytest.mark.parametrize(
    ("fabric", "jobs"),
    [
        *((INTACT, [even(INTACT, "a", ring(HOSTS), subflows)]) for subflows in (2, 8)),
        *((DEAD_SPINE, [even(INTACT, "a", ring(3), subflows)]) for subflows in (2, 8)),
        (INTACT, [even(INTACT, "a", ring(2), 4), even(INTACT, "b", ring(2, first=2), 8)]),
        (FAT_TREE, [OVER_FAT_TREE]),
    ],
    ids=["2 subflows", "8", "a dead spine and 2", "and 8", "jobs in other numbers of subflows", "a fat-tree"],
)
def test_where_every_flow_can_have_a_path_none_is_cut(fabric: Fabric, jobs: list[WorkloadJob]) -> None:
    found = planned(problem_of(fabric, jobs))
    assert found.max_slowdown == pytest.approx(1.0)
    assert cut_flows(found) == 0


@pytest.mark.parametrize("subflows", [2, 4, 8])
def test_of_four_flows_over_three_spines_one_is_cut(subflows: int) -> None:
    """The plan has the smallest slowdown of equal subflows; each leaf has three whole flows, each on its own spine."""
    found = planned(problem_of(DEAD_SPINE, [even(INTACT, "a", ring(HOSTS), subflows)]))
    assert found.max_slowdown == pytest.approx(ceil(HOSTS * subflows / (SPINES - 1)) / subflows)
    assert found.certificate == "optimal"
    assert cut_flows(found) == LEAVES


def test_subflows_that_run_apart_are_not_moved_to_be_joined() -> None:
    """Every subflow has a spine of its own, so the slowdown is 1 already."""
    problem = problem_of(INTACT, [even(INTACT, "a", ring(HOSTS), 4)])
    apart = {flow.id: whole(problem.candidates(flow)[flow.id.subflow]) for flow in problem.flows}
    found = planned(problem.with_routes(apart))
    assert (found.moves, found.routes) == (0, apart)


def test_a_job_that_comes_and_a_repair_cut_no_flow_and_move_no_other_where_there_is_room() -> None:
    first, second = even(INTACT, "a", ring(2), 8), even(INTACT, "b", ring(2, first=2), 8)
    running = planned(problem_of(INTACT, [first])).routes
    broken = problem_of(DEAD_SPINE, [first], running)
    assert broken.broken
    for found in (planned(problem_of(INTACT, [first, second], running)), repaired(broken)):
        assert (found.moves, cut_flows(found)) == (0, 0)
        assert found.max_slowdown == pytest.approx(1.0)


def test_a_joined_problem_has_the_same_demands_and_its_routes_are_those_of_the_subflows() -> None:
    problem = problem_of(INTACT, [even(INTACT, "a", ring(1), 4)])
    apart = problem.flows[0].id
    running = {
        flow.id: whole(problem.candidates(flow)[flow.id.subflow if flow.id.joined == apart else 1])
        for flow in problem.flows
    }
    problem = problem.with_routes(running)
    smaller = joined(problem)
    assert smaller is not None
    assert len(smaller.flows) == 4 + (LEAVES - 1), "one runs in subflows"
    total = [sum(bps for flow in of.flows for _, bps in flow.demand_bps) for of in (problem, smaller)]
    assert total[0] == pytest.approx(total[1])
    assert of_subflows(problem, {flow.id: flow.current for flow in smaller.flows if flow.current}) == running
    assert joined(problem_of(INTACT, [job(INTACT, "a", [ring(2)])])) is None, "flows without subflows"


def test_only_equal_flows_in_equal_numbers_of_subflows_have_a_closed_form() -> None:
    problem = problem_of(INTACT, [even(INTACT, "a", ring(1), 2)])
    assert color_whole_first(problem, slowdown_bounds(problem))
    first, *others = problem.flows
    for other in (
        problem_of(INTACT, [job(INTACT, "a", [ring(1)])]),
        problem.with_flows(others),
        problem.with_flows([replace(first, demand_bps=((0, 1.0),)), *others]),
    ):
        assert color_whole_first(other, slowdown_bounds(other)) is None


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    fabric = fabric_of(draw(st.integers(2, 4)), draw(st.integers(2, 4)), hosts=4)
    hosts = draw(st.permutations([(leaf, host) for leaf in range(2) for host in range(4)]))
    subflows, size = draw(st.sampled_from([2, 3, 4, 8])), draw(st.sampled_from([2, 4]))
    jobs = [even(fabric, name, hosts[size * n : size * (n + 1)], subflows) for n, name in enumerate("ab")]
    return problem_of(without_random_links(fabric, draw(st.integers(0, 2)), draw(st.integers(0, 9))), jobs)


@given(problems())
@settings(max_examples=40)
def test_no_slowdown_is_above_that_of_subflows_that_are_not_joined(problem: Problem) -> None:
    """Neither the plan nor ``color_whole_first`` has a larger worst slowdown than subflows that are not joined."""
    bounds = slowdown_bounds(problem)
    exact = route(problem, bounds)
    if exact is None:
        return
    apart = draft(problem, *exact)
    found = planned(problem)
    index = first_difference(found.sorted_slowdowns, apart.vector)
    assert index is None or found.sorted_slowdowns[index] < apart.vector[index]
    assert sum(map(len, paths_of(found).values())) <= apart.paths or index is not None
    if laid := color_whole_first(problem, bounds):
        assert draft(problem, "", laid).vector[0] <= max(apart.vector[0], bounds.worst) * (1 + 1e-9)
