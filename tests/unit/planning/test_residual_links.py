"""Closed forms over common links and residual links (all other cables of the leaves), on existing paths.

The fullest link is never fuller than with the common links alone."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.topology import Dpid
from controller.planning import closed_forms
from controller.planning.bounds import slowdown_bounds
from controller.planning.closed_forms import common_links_between, common_links_of, find_common_links, parts
from controller.planning.efficiency import job_slowdowns
from controller.planning.plan import routes_of
from controller.planning.problem import NumberedRoutes, Problem
from tests.support.planning.fabrics import RATE, across, fabric_of, flow, leaf_spine, problem_of
from tests.support.planning.plans import worst
from tests.support.planning.split_problems import split

LEAVES, SPINES = 6, 8
Gone = Sequence[tuple[int, int]]
gone_cables = st.lists(st.tuples(st.integers(1, LEAVES), st.integers(1, SPINES)), unique=True, max_size=4)


def routed(problem: Problem) -> tuple[str, NumberedRoutes]:
    """Return the name of the closed form, and its routes."""
    found = closed_forms.route(problem, slowdown_bounds(problem))
    assert found
    return found


def full(gone: Gone, seed: int, subflows: int = 1, each: int = SPINES) -> Problem:
    """Return a problem in which every leaf sends and receives ``each`` flows, of two jobs, between random hosts."""
    hosts = [leaf for leaf in range(1, LEAVES + 1) for _ in range(each)]
    ends = list(hosts)
    random.Random(seed).shuffle(ends)
    flows = [
        flow(f"job{n % 2}", (src, n), (dst, n), RATE) for n, (src, dst) in enumerate(zip(hosts, ends, strict=True))
    ]
    return problem_of(leaf_spine(LEAVES, SPINES, without=gone), split(flows, subflows))


@settings(max_examples=40)
@given(gone_cables, st.integers(0, 2**32), st.sampled_from([1, 2, 3]), st.sampled_from([SPINES, 2 * SPINES + 3]))
def test_routes_go_where_cables_are_and_are_no_fuller_than_lanes_alone(
    gone: Gone, seed: int, subflows: int, each: int
) -> None:
    problem = full(gone, seed, subflows, each)
    _, numbered = routed(problem)
    common = common_links_of(problem, problem.numbers.crossing)
    assert common
    routes = routes_of(problem, numbered)
    assert routes.keys() == {flow.id for flow in problem.flows}
    for of in problem.flows:
        route = routes[of.id]
        assert len(route) <= subflows
        assert sum(share for _, share in route) == pytest.approx(1)
        assert all(path in problem.candidates(of) for path, _ in route)
    assert job_slowdowns(problem, numbered) == pytest.approx(job_slowdowns(problem, routes))
    alone = closed_forms.color_evenly(problem.numbers, problem.numbers.crossing, common)
    assert worst(problem, routes) <= worst(problem, alone) * (1 + 1e-9)


def shifted(each: int, gone: Gone, spines: int, subflows: int = 1) -> Problem:
    """Return a problem in which leaf n sends half of ``each`` flows to leaf n + 1 and half to leaf n + 2.

    Job 'a' has the flows that leave or enter leaf 1."""
    flows = [
        flow("a" if 1 in (src, dst) else "b", (src, n), (dst, n), RATE)
        for src in range(1, LEAVES + 1)
        for n in range(each)
        for dst in [(src + n % 2) % LEAVES + 1]
    ]
    return problem_of(leaf_spine(LEAVES, spines, without=gone), split(flows, subflows))


def test_with_one_cable_failed_only_jobs_at_its_leaf_are_slow() -> None:
    """Leaf 1 has seven links for eight flows out and eight flows in."""
    problem = shifted(SPINES, [(1, 1)], SPINES)
    common = common_links_of(problem, problem.numbers.crossing)
    _, routes = routed(problem)
    assert common
    assert worst(problem, routes) == 2.0
    slow = np.bincount(routes.links.ravel(), minlength=len(problem.capacity_bps)) > 1
    everywhere = closed_forms.color_evenly(problem.numbers, problem.numbers.crossing, common)
    crowded = np.bincount(everywhere.links.ravel(), minlength=len(problem.capacity_bps)) > 1
    assert slow.sum() <= 4 < crowded.sum()


def test_two_subflows_take_more_than_the_lanes_where_cables_failed() -> None:
    gone = [(leaf, leaf) for leaf in range(1, 5)]
    problem = shifted(32, gone, 32, subflows=2)
    solver, routes = routed(problem)
    assert solver == "interval-cutting"
    assert 32 / 31 <= worst(problem, routes) <= 31 / 28 + 1e-9 < 32 / 28


def test_spines_besides_take_one_flow_more_each_where_that_is_less_than_the_lanes_have() -> None:
    """Each leaf has eleven flows and eight spines, four of which have all cables.

    If each residual spine has one flow, seven flows are left for the four common links, and more at leaves without a
    cable: the slowdown is 2.5. If each has two flows, at least three are left: the slowdown is 2."""
    problem = shifted(11, [(leaf, leaf) for leaf in range(1, 5)], SPINES, subflows=2)
    assert worst(problem, routed(problem)[1]) == pytest.approx(2.0)


def test_residual_spines_are_assigned_to_colours_so_that_few_flows_miss_a_cable() -> None:
    """Three of eight spines lack a cable, and each has one of eight colours.

    Of three assignments only the second leaves no more than two flows of a leaf without a cable. Flows without a cable
    get two further colours, which are cut onto the five common links together with the other five colours."""
    problem = shifted(8, [(1, 1), (2, 3), (3, 2)], 8, subflows=2)
    assert worst(problem, routed(problem)[1]) == pytest.approx(7 / 5)


# ---- parts, and the common links that the leaves of a part share


def test_common_links_are_there_only_where_all_leaves_are_alike() -> None:
    flows = [flow("a", (1, 1), (2, 1), RATE), flow("a", (3, 1), (2, 2), RATE)]
    for without, count in (([], 4), ([(2, 1)], None), ([(leaf, 1) for leaf in (1, 2, 3)], 3)):
        common = find_common_links(problem_of(leaf_spine(3, 4, without=without), flows))
        assert (common and common.count) == count


def test_parallel_cables_are_lanes_of_their_own_and_unequal_ones_are_none() -> None:
    flows = across("a")
    double = [(leaf, spine, RATE) for leaf in (1, 2) for spine in (101, 102) for _ in range(2)]
    common = find_common_links(problem_of(fabric_of(double), flows))
    assert common
    assert common.count == 4
    assert len({*common.up[Dpid(1)], *common.down[Dpid(2)]}) == 8
    assert find_common_links(problem_of(fabric_of([*double[:-1], (2, 102, RATE / 2)]), flows)) is None
    assert find_common_links(problem_of(fabric_of(double[:-1]), flows)) is None


def test_a_part_has_the_lanes_that_all_its_leaves_share() -> None:
    fabric = fabric_of([(leaf, spine, RATE / (spine - 100)) for leaf in (1, 2, 3) for spine in (101, 102, 103)])
    problem = problem_of(fabric, across("a"))
    one, two, three = Dpid(1), Dpid(2), Dpid(3)
    common = common_links_between(problem, [one], [two, three])
    assert common
    assert common.bps == (RATE, RATE / 2, RATE / 3)
    assert [problem.paths.far_end[link] for link in common.up[one]] == [101, 102, 103]
    assert [link.dpid for link in common.down[three]] == [101, 102, 103]
    assert common_links_between(problem, [one], [Dpid(101)]) is None


def test_flows_are_apart_unless_they_share_a_side_of_a_leaf() -> None:
    flows = [flow("a", (src, n), (dst, n), RATE) for n, (src, dst) in enumerate([(1, 2), (2, 1), (3, 2), (3, 4)])]
    numbers = problem_of(leaf_spine(4, 2), flows).numbers
    assert [part.tolist() for part in parts(numbers, numbers.crossing)] == [[0, 2, 3], [1]]
