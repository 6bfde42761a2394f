"""Shares on few paths lower the worst slowdown, within the number of subflows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.planning import greedy
from controller.planning.bounds import slowdown_bounds
from controller.planning.plan import Plan
from controller.planning.problem import FlowId, PlanLimits, Problem, Route, Routes
from controller.planning.split_flows.sharing import shared
from tests.support.planning.fabrics import flow, leaf_spine, problem_of, two_leaves
from tests.support.planning.plans import EXACT, planned, worst
from tests.support.planning.random_problems import packings, problems

LIMITS = PlanLimits(deterministic=True)


def divisible(problem: Problem, most: int) -> Problem:
    return problem.with_flows(replace(f, max_subflows=most, current=None) for f in problem.flows)


def searched(problem: Problem, start: Routes, limits: PlanLimits = LIMITS) -> dict[FlowId, Route] | None:
    return shared(problem, start, slowdown_bounds(problem).worst, limits, 8)


@settings(max_examples=40)
@given(problems() | packings(), st.integers(1, 3))
def test_routes_are_better_than_the_start_and_within_the_number_of_subflows(problem: Problem, most: int) -> None:
    problem = divisible(problem, most)
    start = greedy.assign(problem, keep_current=False)
    routes = searched(problem, start)
    if routes is None:
        return
    assert routes.keys() == start.keys()
    assert worst(problem, routes) < worst(problem, start)
    for f in problem.flows:
        if f.id in routes:
            assert len(routes[f.id]) <= most
            assert {path for path, _ in routes[f.id]} <= set(problem.candidates(f))
            assert sum(share for _, share in routes[f.id]) == pytest.approx(1)
            assert all(share > 0 for _, share in routes[f.id])


def test_three_flows_fill_two_links_evenly() -> None:
    problem = two_leaves(2, "aaa", 2)
    routes = searched(problem, greedy.assign(problem, keep_current=False))
    assert routes is not None
    assert worst(problem, routes) == pytest.approx(1.5)


def test_phases_that_do_not_overlap_share_the_links() -> None:
    """Three flows fill two links in each phase; the other phase fills the same links."""
    flows = [flow("a", (1, 3 * phase + h), (2, 3 * phase + h), [(phase, 2.0)]) for phase in (0, 1) for h in (1, 2, 3)]
    problem = divisible(problem_of(leaf_spine(2, 2, 2.0), flows, nic_bps=2.0), 2)
    routes = searched(problem, greedy.assign(problem, keep_current=False))
    assert routes is not None
    assert worst(problem, routes) == pytest.approx(1.5)


def test_without_time_nothing_changes() -> None:
    problem = two_leaves(2, "aaa", 2)
    start = greedy.assign(problem, keep_current=False)
    assert searched(problem, start, replace(LIMITS, deterministic=False, until=0.0)) is None


def test_shares_that_the_fluid_optimum_does_not_reach_are_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.planning.split_flows.search.search_part", lambda *_: None)
    found: Plan = planned(two_leaves(4, "aaaaaa", 2), EXACT)
    assert found.max_slowdown == pytest.approx(1.5)
