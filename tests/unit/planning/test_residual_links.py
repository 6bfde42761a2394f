"""Closed forms over common links and residual links (all other cables of the leaves), on existing paths.

The fullest link is never fuller than with the common links alone."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.planning import closed_forms
from controller.planning.bounds import slowdown_bounds
from controller.planning.common_links import common_links_of
from controller.planning.efficiency import job_slowdowns
from controller.planning.plan import routes_of
from controller.planning.problem import Problem
from tests.support.planning.fabrics import RATE, flow, leaf_spine, problem_of
from tests.support.planning.split_problems import split

LEAVES, SPINES = 6, 8
Gone = Sequence[tuple[int, int]]
gone_cables = st.lists(st.tuples(st.integers(1, LEAVES), st.integers(1, SPINES)), unique=True, max_size=4)


def full(gone: Gone, seed: int, subflows: int = 1, each: int = SPINES) -> Problem:
    """Return a problem in which every leaf sends and receives ``each`` flows, of two jobs, between random hosts."""
    hosts = [leaf for leaf in range(1, LEAVES + 1) for _ in range(each)]
    ends = list(hosts)
    random.Random(seed).shuffle(ends)
    flows = [
        flow(f"job{n % 2}", (src, n), (dst, n), RATE) for n, (src, dst) in enumerate(zip(hosts, ends, strict=True))
    ]
    return problem_of(leaf_spine(LEAVES, SPINES, without=gone), split(flows, subflows))


@settings(max_examples=60)
@given(gone_cables, st.integers(0, 2**32), st.sampled_from([1, 2, 3]), st.sampled_from([SPINES, 2 * SPINES + 3]))
def test_routes_go_where_cables_are_and_are_no_fuller_than_lanes_alone(
    gone: Gone, seed: int, subflows: int, each: int
) -> None:
    problem = full(gone, seed, subflows, each)
    found = closed_forms.route(problem, slowdown_bounds(problem))
    common = common_links_of(problem, problem.numbers.crossing)
    assert common
    assert found
    routes = routes_of(problem, found[1])
    assert routes.keys() == {flow.id for flow in problem.flows}
    for of in problem.flows:
        route = routes[of.id]
        assert len(route) <= subflows
        assert sum(share for _, share in route) == pytest.approx(1)
        assert all(path in problem.candidates(of) for path, _ in route)
    slowdown = max(job_slowdowns(problem, routes).values())
    assert job_slowdowns(problem, found[1]) == pytest.approx(job_slowdowns(problem, routes))
    alone = closed_forms.color_evenly(problem.numbers, problem.numbers.crossing, common)
    assert slowdown <= max(job_slowdowns(problem, alone).values()) * (1 + 1e-9)


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
    found = closed_forms.route(problem, slowdown_bounds(problem))
    assert common
    assert found
    assert max(job_slowdowns(problem, found[1]).values()) == 2.0
    slow = np.bincount(found[1].links.ravel(), minlength=len(problem.capacity_bps)) > 1
    everywhere = closed_forms.color_evenly(problem.numbers, problem.numbers.crossing, common)
    crowded = np.bincount(everywhere.links.ravel(), minlength=len(problem.capacity_bps)) > 1
    assert slow.sum() <= 4 < crowded.sum()


def test_two_subflows_take_more_than_the_lanes_where_cables_failed() -> None:
    gone = [(leaf, leaf) for leaf in range(1, 5)]
    problem = shifted(32, gone, 32, subflows=2)
    found = closed_forms.route(problem, slowdown_bounds(problem))
    assert found
    assert found[0] == "interval-cutting"
    slowdown = max(job_slowdowns(problem, found[1]).values())
    assert 32 / 31 <= slowdown <= 31 / 28 + 1e-9 < 32 / 28


def test_spines_besides_take_one_flow_more_each_where_that_is_less_than_the_lanes_have() -> None:
    """Each leaf has eleven flows and eight spines, four of which have all cables.

    If each residual spine has one flow, seven flows are left for the four common links, and more at leaves without a
    cable: the slowdown is 2.5. If each has two flows, at least three are left: the slowdown is 2."""
    problem = shifted(11, [(leaf, leaf) for leaf in range(1, 5)], SPINES, subflows=2)
    found = closed_forms.route(problem, slowdown_bounds(problem))
    assert found
    assert max(job_slowdowns(problem, found[1]).values()) == pytest.approx(2.0)


def test_residual_spines_are_assigned_to_colours_so_that_few_flows_miss_a_cable() -> None:
    """Three of eight spines lack a cable, and each has one of eight colours.

    Of three assignments only the second leaves no more than two flows of a leaf without a cable. Flows without a cable
    get two further colours, which are cut onto the five common links together with the other five colours."""
    problem = shifted(8, [(1, 1), (2, 3), (3, 2)], 8, subflows=2)
    found = closed_forms.route(problem, slowdown_bounds(problem))
    assert found
    assert max(job_slowdowns(problem, found[1]).values()) == pytest.approx(7 / 5)
