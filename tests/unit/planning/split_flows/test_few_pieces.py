"""The paths of few flows, chosen together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from controller.planning.efficiency import job_levels
from controller.planning.greedy import assign
from controller.planning.plan import draft
from controller.planning.problem import Flow, PlanLimits, Problem, whole
from controller.planning.split_flows.few_pieces import improve
from tests.support.planning.fabrics import RATE, flow, leaf_spine, pinned, problem_of
from tests.support.planning.split_problems import split

LIMITS = PlanLimits(deterministic=True)
BOUND = (1.0,)


def least(flows: Sequence[Flow], spines: int = 2) -> tuple[float, Problem]:
    """The worst level found, of routes that are all there and have no more pieces than they may."""
    problem = problem_of(leaf_spine(2, spines), flows)
    first = draft(problem, "greedy", assign(problem, keep_current=False))
    routes = improve(problem, LIMITS, first, BOUND) or first.routes
    assert routes.keys() == {of.id for of in flows}
    for of in flows:
        assert len(routes[of.id]) <= of.max_subflows
        assert sum(piece.share for piece in routes[of.id]) == pytest.approx(1.0)
    return max(job_levels(problem, routes).values()), problem


def alike(count: int) -> list[Flow]:
    return [flow("a", (1, host), (2, host), RATE) for host in range(1, count + 1)]


def test_one_flow_is_divided_and_the_others_are_not() -> None:
    assert least(split(alike(3), 2))[0] == pytest.approx(1.5)


def test_no_flow_has_more_pieces_than_it_may() -> None:
    assert least(alike(3))[0] == pytest.approx(2.0)
    assert least(split(alike(4), 2), spines=3)[0] == pytest.approx(4 / 3)


def test_of_the_phases_of_a_job_only_the_largest_counts() -> None:
    phases = [((0, RATE),), ((1, RATE),)]
    flows = [flow("a", (1, host), (2, host), phase) for host, phase in enumerate(phases, 1)]
    assert least([*split(flows, 2), *split([flow("b", (1, 3), (2, 3), RATE)], 2)])[0] == pytest.approx(1.0)


def test_a_flow_inside_its_leaf_keeps_its_route() -> None:
    _, problem = least([*split(alike(3), 2), flow("b", (1, 7), (1, 8), RATE)])
    assert any(of.src_leaf == of.dst_leaf for of in problem.flows)


def test_many_flows_are_left_to_others() -> None:
    problem = problem_of(leaf_spine(2, 8), split(alike(51), 2))
    assert improve(problem, LIMITS, draft(problem, "greedy", assign(problem, keep_current=False)), BOUND) is None


def test_without_time_there_is_no_answer() -> None:
    problem = problem_of(leaf_spine(2, 2), split(alike(3), 2))
    first = draft(problem, "greedy", assign(problem, keep_current=False))
    assert improve(problem, replace(LIMITS, until=-math.inf), first, BOUND) is None


@pytest.mark.parametrize(("cap", "level"), [(0, 3.0), (1, 2.0), (2, 1.5), (3, 1.5)])
def test_no_more_flows_move_than_may(cap: int, level: float) -> None:
    flows = split(alike(3), 2)
    problem = problem_of(leaf_spine(2, 2), flows)
    problem = pinned(problem, {of.id: whole(problem.candidates(of)[0]) for of in flows})
    start = draft(problem, "running", assign(problem, keep_current=True))
    routes = improve(problem, replace(LIMITS, max_moves=cap), start, BOUND) or start.routes
    assert problem.moves(routes) <= cap
    assert max(job_levels(problem, routes).values()) == pytest.approx(level)
