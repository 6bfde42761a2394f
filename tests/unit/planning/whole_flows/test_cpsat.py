"""CP-SAT alone: from a poor start, and from the result of local search."""

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
from controller.planning.plan import Draft, draft, slowdowns_proven
from controller.planning.problem import PlanLimits, Problem, Routes, whole
from controller.planning.slowdown_vector import slowdown_vector
from controller.planning.whole_flows import cpsat, search
from controller.planning.whole_flows.cpsat import StagedSearch
from tests.support.planning.fabrics import (
    better,
    brute_force,
    flow,
    leaf_spine,
    moves,
    on_paths,
    pinned,
    problem_of,
    two_leaves,
)
from tests.support.planning.plans import EXACT, vector
from tests.support.planning.random_problems import packings, problems

quick = settings(max_examples=40)


def solved(
    problem: Problem,
    limits: PlanLimits = EXACT,
    max_moves: int | None = None,
    known: Sequence[float] = (),
    start: Routes | None = None,
) -> tuple[Routes, tuple[float, ...]]:
    begin = greedy.assign(problem, keep_current=False) if start is None else start
    drafts = cpsat.solve(problem, limits, slowdown_bounds(problem), begin, max_moves, known)
    assert drafts is not None
    (best,) = drafts.drafts
    return best.routes, drafts.proven


def mixed() -> Problem:
    """Return a problem of flows of 4, 4, 3, 3, 3, 1 and 1 on two links of capacity 7, best as 3+3+3+1 and 4+4+1."""
    sizes = [4.0, 4.0, 3.0, 3.0, 3.0, 1.0, 1.0]
    return problem_of(leaf_spine(2, 2, 7.0), [flow("a", (1, h), (2, h), s) for h, s in enumerate(sizes)], nic_bps=7.0)


@quick
@given(problems() | packings(), st.booleans())
def test_slowdowns_are_optimal_then_moves_with_and_without_known_bounds(problem: Problem, bounded: bool) -> None:
    best, fewest = brute_force(problem)
    known = slowdown_vector(slowdown_bounds(problem), PlanLimits()).slowdowns if bounded else ()
    routes, proven = solved(problem, known=known)
    slowdowns = vector(problem, routes)
    assert not better(best, slowdowns)
    assert not better(best, proven)
    assert slowdowns_proven(slowdowns, proven) == len(slowdowns)
    assert moves(problem, routes) == fewest


@quick
@given(problems(), st.integers(0, 2), st.booleans())
def test_a_cap_on_moves_holds_wherever_the_search_begins(problem: Problem, cap: int, keep: bool) -> None:
    best, fewest = brute_force(problem, cap)
    routes, _ = solved(problem, max_moves=cap, start=greedy.assign(problem, keep_current=keep))
    assert moves(problem, routes) <= min(cap, fewest)
    assert not better(best, vector(problem, routes))


def test_what_is_known_is_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = mixed()
    start, proven = solved(problem)
    assert proven == pytest.approx((10 / 7,), rel=1e-12), "sevenths have no finite decimal fraction"

    def never(*_: Any) -> None:
        raise AssertionError("searched")

    monkeypatch.setattr(StagedSearch, "minimise", never)
    assert solved(problem, known=(10 / 7,), start=start) == (start, (10 / 7,))


def test_without_time_the_start_comes_back_with_what_was_known() -> None:
    problem, no_time = mixed(), replace(EXACT, time_limit_s=0)
    start = {f.id: whole(problem.candidates(f)[0]) for f in problem.flows}
    assert solved(problem, no_time, known=(1.2,), start=start) == (start, (1.2,))
    assert cpsat.solve(problem, no_time, slowdown_bounds(problem), {}, None) is None, "nothing to begin with"


@pytest.mark.parametrize("time_limit_s", [1e-4, 1e-2])
def test_a_search_that_is_cut_short_claims_no_more_than_is_true(time_limit_s: float) -> None:
    problem = mixed()
    best, _ = brute_force(problem)
    _, proven = solved(problem, replace(EXACT, time_limit_s=time_limit_s))
    assert 1 <= proven[0] <= best[0] * (1 + 1e-9)


def test_what_a_search_that_is_cut_short_has_proven_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    minimise = StagedSearch.minimise
    monkeypatch.setattr(StagedSearch, "minimise", lambda *args: minimise(*args) and None)
    assert solved(mixed(), known=(1.2,))[1] == pytest.approx((10 / 7,))


def test_the_model_builder_comes_without_pandas_and_leaves_it_to_others() -> None:
    check = """
import sys
from controller.planning.whole_flows.cpsat import cp_model
assert cp_model.CpModel() and "pandas" not in sys.modules
import pandas
assert pandas.Series([1, 2]).sum() == 3
"""
    subprocess.run([sys.executable, "-c", check], check=True)


# ---- local search runs first; CP-SAT then works on slowdowns that are not proven, and saves moves


@pytest.fixture
def crowded() -> Problem:
    return on_paths(two_leaves(3, "aaa"), (0, 0, 1))


def all_moved(problem: Problem, *_: object) -> Routes:
    return {f.id: f.current for f in on_paths(problem, (1, 2, 0)).flows if f.current}


def found(problem: Problem, limits: PlanLimits = EXACT) -> list[Draft]:
    running = draft(problem, "running", greedy.assign(problem, keep_current=True))
    return search.solve(problem, limits, slowdown_bounds(problem), running, running).drafts


def fails(*_: object) -> None:
    raise RuntimeError


def test_moves_that_local_search_does_not_save_are_saved_by_cpsat(
    crowded: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All slowdowns are proven, so CP-SAT only saves moves. It also replaces a routing with too many moves."""
    monkeypatch.setattr(search, "local_search", all_moved)
    exact, searched = found(crowded)
    assert (searched.solver, searched.moves, searched.vector) == ("local-search", 3, (1.0,))
    assert (exact.solver, exact.moves, exact.vector) == ("cpsat", 1, (1.0,))
    exact, _ = found(crowded, replace(EXACT, max_moves=1))
    assert (exact.moves, exact.vector) == (1, (1.0,))


def test_when_nothing_can_be_better_cpsat_is_not_asked(crowded: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(cpsat, "solve", lambda *at: asked.append(at))
    assert found(pinned(crowded, all_moved(crowded))) == asked == []


def test_a_search_that_fails_leaves_the_other(crowded: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "local_search", fails)
    (exact,) = found(crowded)
    assert (exact.solver, exact.moves) == ("cpsat", 1)
    monkeypatch.setattr(cpsat, "solve", fails)
    assert found(crowded) == []
