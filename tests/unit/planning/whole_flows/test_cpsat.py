"""CP-SAT alone, from a poor start; in the planner local search leaves it little to improve."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.planning import greedy
from controller.planning.bounds import slowdown_bounds
from controller.planning.efficiency import job_slowdowns
from controller.planning.plan import slowdowns_proven
from controller.planning.problem import PlanLimits, Problem, Routes, whole
from controller.planning.slowdown_vector import slowdown_vector
from controller.planning.solver import StagedSearch
from controller.planning.whole_flows import cpsat
from tests.support.planning.fabrics import better, brute_force, flow, leaf_spine, moves, pinned, problem_of
from tests.support.planning.random_problems import packings, problems

LIMITS = PlanLimits(time_limit_s=10, deterministic=True)
quick = settings(max_examples=60)


def solved(
    problem: Problem,
    limits: PlanLimits = LIMITS,
    max_moves: int | None = None,
    known: Sequence[float] = (),
    start: Routes | None = None,
) -> tuple[Routes, tuple[float, ...]]:
    """Return the routes, and the slowdowns that are proven."""
    begin = greedy.assign(problem, keep_current=False) if start is None else start
    found = cpsat.solve(problem, limits, slowdown_bounds(problem), begin, max_moves, known)
    assert found is not None
    (best,) = found.drafts
    return best.routes, found.proven


def slowdowns(problem: Problem, routes: Routes) -> list[float]:
    return sorted(job_slowdowns(problem, routes).values(), reverse=True)


def mixed() -> Problem:
    """Return a problem of nineteen sevenths on two links, best as 3 + 3 + 3 + 1 and 4 + 4 + 1."""
    sizes = [4.0, 4.0, 3.0, 3.0, 3.0, 1.0, 1.0]
    return problem_of(leaf_spine(2, 2, 7.0), [flow("a", (1, h), (2, h), s) for h, s in enumerate(sizes)], nic_bps=7.0)


@quick
@given(problems() | packings(), st.booleans())
def test_slowdowns_are_optimal_then_moves_with_and_without_known_bounds(problem: Problem, bounded: bool) -> None:
    best, fewest = brute_force(problem)
    known = slowdown_vector(slowdown_bounds(problem), PlanLimits()).slowdowns if bounded else ()
    routes, proven = solved(problem, known=known)
    found = slowdowns(problem, routes)
    assert not better(best, found)
    assert not better(best, proven)
    assert slowdowns_proven(found, proven) == len(found)
    assert moves(problem, routes) == fewest


@quick
@given(problems(), st.integers(0, 2), st.booleans())
def test_a_cap_on_moves_holds_wherever_the_search_begins(problem: Problem, cap: int, keep: bool) -> None:
    best, fewest = brute_force(problem, cap)
    routes, _ = solved(problem, max_moves=cap, start=greedy.assign(problem, keep_current=keep))
    assert moves(problem, routes) <= min(cap, fewest)
    assert not better(best, slowdowns(problem, routes))


def test_what_is_known_is_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = mixed()
    start, _ = solved(problem)

    def never(*_: Any) -> None:
        raise AssertionError("searched")

    monkeypatch.setattr(StagedSearch, "minimise", never)
    assert solved(problem, known=(10 / 7,), start=start) == (start, (10 / 7,))


def test_slowdowns_of_mixed_sizes_are_exact() -> None:
    """Sevenths have no finite decimal fraction."""
    assert solved(mixed())[1] == pytest.approx((10 / 7,), rel=1e-12)


def test_without_time_the_start_comes_back_with_what_was_known() -> None:
    problem = mixed()
    start = {f.id: whole(problem.candidates(f)[0]) for f in problem.flows}
    assert solved(problem, replace(LIMITS, time_limit_s=0), known=(1.2,), start=start) == (start, (1.2,))


def test_without_time_and_without_a_start_there_is_nothing() -> None:
    problem = mixed()
    bounds = slowdown_bounds(problem)
    assert cpsat.solve(problem, replace(LIMITS, time_limit_s=0), bounds, {}, None) is None


@pytest.mark.parametrize("time_limit_s", [1e-4, 1e-3, 1e-2])
def test_a_search_that_is_cut_short_claims_no_more_than_is_true(time_limit_s: float) -> None:
    problem = mixed()
    best, _ = brute_force(problem)
    _, proven = solved(problem, replace(LIMITS, time_limit_s=time_limit_s))
    assert 1 <= proven[0] <= best[0] * (1 + 1e-9)


def test_flows_stay_where_they_are_among_equally_good_routings() -> None:
    fabric = leaf_spine(2, 3, 1.0)
    problem = problem_of(fabric, [flow("a", (1, h), (2, h), 1.0) for h in (1, 2, 3)], nic_bps=1.0)
    third, first, second = problem.candidates(problem.flows[0])
    running = {f.id: whole(path) for f, path in zip(problem.flows, (first, first, second), strict=True)}
    routes, _ = solved(pinned(problem, running))
    assert sorted(route == running[f] for f, route in routes.items()) == [False, True, True]
    assert {route[0].path for route in routes.values()} == {first, second, third}


def test_the_model_builder_comes_without_pandas_and_leaves_it_to_others() -> None:
    check = """
import sys
from controller.planning.solver import cp_model
assert cp_model.CpModel() and "pandas" not in sys.modules
import pandas
assert pandas.Series([1, 2]).sum() == 3
"""
    subprocess.run([sys.executable, "-c", check], check=True)
