"""Split flows in closed form, with few moves from the running routes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.planning import greedy
from controller.planning.problem import Flow, Problem, whole
from controller.planning.split_flows.leaf_spine import aligned_cutting
from tests.support.planning.fabrics import RATE, flow, leaf_spine, pinned, problem_of, ring
from tests.support.planning.plans import planned, repaired, worst
from tests.support.planning.split_problems import split

LEAVES = 6


def rings(hosts: int, subflows: int) -> list[Flow]:
    """Return the flows of one ring per host number; each ring crosses all leaves, in alternating directions."""
    order = list(range(1, LEAVES + 1))
    made = [f for h in range(hosts) for f in ring("a", [(leaf, h) for leaf in (order if h % 2 else order[::-1])])]
    return split(made, subflows)


def without_the_last_spine(spines: int, subflows: int) -> Problem:
    """Return the problem of a full fabric whose last spine has failed, with the repaired routes running."""
    flows = rings(spines, subflows)
    before = planned(problem_of(leaf_spine(LEAVES, spines), flows))
    left = problem_of(leaf_spine(LEAVES, spines, without=[(leaf, spines) for leaf in range(1, LEAVES + 1)]), flows)
    stopgap = repaired(pinned(left, before.routes))
    assert stopgap.max_slowdown == 2
    return pinned(left, stopgap.routes)


@pytest.mark.parametrize(("spines", "subflows"), [(4, 2), (4, 3), (8, 2), (8, 3), (8, 8)])
def test_a_lost_spine_costs_as_few_moves_as_a_tree_of_its_lanes_needs(spines: int, subflows: int) -> None:
    problem = without_the_last_spine(spines, subflows)
    routes = aligned_cutting(problem, None)
    assert routes
    common = spines - 1
    colors = 1 + math.ceil(max(0, common - subflows) / (subflows - 1))
    assert worst(problem, routes) == pytest.approx(spines / common)
    assert problem.moves(routes) <= colors * LEAVES
    assert max(map(len, routes.values())) <= subflows
    answer = planned(problem)
    assert answer.certificate == "optimal"
    assert answer.moves <= problem.moves(routes)


def test_fewer_moves_spread_the_load_over_fewer_common_links() -> None:
    problem = without_the_last_spine(8, 2)
    found = [(most, aligned_cutting(problem, most)) for most in range(0, 50, LEAVES)]
    assert [routes and worst(problem, routes) for _, routes in found] == [
        None,
        *(pytest.approx(1 + 1 / common) for common in (2, 3, 4, 5, 6, 7, 7, 7)),
    ]
    assert all(problem.moves(routes) <= most for most, routes in found if routes)


def test_a_spine_that_returns_makes_flows_whole_again() -> None:
    broken = without_the_last_spine(8, 4)
    cut = aligned_cutting(broken, None)
    assert cut
    problem = pinned(problem_of(leaf_spine(LEAVES, 8), broken.flows), cut)
    routes = aligned_cutting(problem, None)
    assert routes
    assert all(len(route) == 1 for route in routes.values())
    assert worst(problem, routes) == 1
    assert problem.moves(routes) == sum(len(route) > 1 for route in cut.values())
    assert aligned_cutting(problem, problem.moves(routes) - 1) is None


def test_only_equal_flows_that_may_be_split_are_cut() -> None:
    problem = without_the_last_spine(4, 2)
    one, *others = problem.flows
    for other in (replace(one, max_subflows=1), replace(one, demand_bps=((0, RATE / 2),))):
        assert aligned_cutting(replace(problem, flows=(other, *others)), None) is None


@settings(max_examples=100)
@given(st.data())
def test_whatever_runs_the_result_keeps_to_its_subflows_its_moves_and_its_slowdown(data: st.DataObject) -> None:
    leaves, spines = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 5))
    subflows = data.draw(st.integers(2, 4))
    ends = st.tuples(st.integers(1, leaves), st.integers(1, 6))
    pairs = data.draw(st.lists(st.tuples(ends, ends), min_size=1, max_size=14, unique=True))
    flows = split([flow("a", a, b, RATE) for a, b in pairs if a[0] != b[0]], subflows)
    problem = problem_of(leaf_spine(leaves, spines), flows, nic_bps=100 * RATE)
    running = greedy.assign(problem, keep_current=False)
    for f in flows:
        if data.draw(st.booleans()):
            running[f.id] = whole(data.draw(st.sampled_from(problem.candidates(f))))
    problem = pinned(problem, running)
    most = data.draw(st.none() | st.integers(0, len(flows)))
    routes = aligned_cutting(problem, most)
    degree = max(
        [*Counter(f.src_leaf for f in flows).values(), *Counter(f.dst_leaf for f in flows).values()], default=0
    )
    if routes is None:
        assert most is not None or not flows or degree > 2 * spines
        return
    assert routes.keys() == {f.id for f in flows}
    assert most is None or problem.moves(routes) <= most
    for f in flows:
        route = routes[f.id]
        assert len(route) <= subflows
        assert sum(share for _, share in route) == pytest.approx(1)
        assert {path for path, _ in route} <= set(problem.candidates(f))
    if most is None:
        further = max(0, degree - spines)
        assert worst(problem, routes) <= (1 + (1 / (spines // further) if further else 0)) * (1 + 1e-9)
