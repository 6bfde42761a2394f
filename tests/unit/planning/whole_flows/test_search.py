"""Local search runs first; CP-SAT then works on slowdowns that are not proven, and saves moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from controller.planning import greedy
from controller.planning.bounds import slowdown_bounds
from controller.planning.plan import Draft, draft
from controller.planning.problem import FlowId, PlanLimits, Problem, Route, Routes, whole
from controller.planning.whole_flows import cpsat, local_search, search
from tests.support.planning.fabrics import RATE, flow, leaf_spine, pinned, problem_of

LIMITS = PlanLimits(time_limit_s=10, deterministic=True)


@pytest.fixture
def crowded() -> Problem:
    """Return a problem of three flows between two leaves; two of them run over the same one of three spines."""
    problem = problem_of(leaf_spine(2, 3), [flow("a", (1, h), (2, h), RATE) for h in (1, 2, 3)])
    first, second, _ = problem.candidates(problem.flows[0])
    paths = (first, first, second)
    return pinned(problem, {f.id: whole(path) for f, path in zip(problem.flows, paths, strict=True)})


def found_by(routes_of: Callable[[Problem], Mapping[FlowId, Route]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make local search find the routes that ``routes_of`` returns."""

    def searched(problem: Problem, *_: object) -> dict[FlowId, Route]:
        return dict(routes_of(problem))

    monkeypatch.setattr(local_search, "search", searched)


def all_moved(problem: Problem) -> Routes:
    """Return routes with each flow on a spine of its own; no flow keeps its running route."""
    first, second, third = problem.candidates(problem.flows[0])
    return {f.id: whole(path) for f, path in zip(problem.flows, (second, third, first), strict=True)}


def solved(problem: Problem, limits: PlanLimits = LIMITS) -> list[Draft]:
    running = draft(problem, "running", greedy.assign(problem, keep_current=True))
    return search.solve(problem, limits, slowdown_bounds(problem), running, running).drafts


def test_moves_that_local_search_does_not_save_are_saved_by_cpsat(
    crowded: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All slowdowns are proven: only moves are left to save."""
    found_by(all_moved, monkeypatch)
    exact, searched = solved(crowded)
    assert (searched.solver, searched.moves, searched.vector) == ("local-search", 3, (1.0,))
    assert (exact.solver, exact.moves, exact.vector) == ("cpsat", 1, (1.0,))


def test_a_routing_with_too_many_moves_is_not_the_last_word(crowded: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    found_by(all_moved, monkeypatch)
    exact, _ = solved(crowded, replace(LIMITS, max_moves=1))
    assert (exact.moves, exact.vector) == (1, (1.0,))


def test_when_nothing_can_be_better_cpsat_is_not_asked(crowded: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("asked")

    good = pinned(crowded, all_moved(crowded))
    monkeypatch.setattr(cpsat, "solve", asked)
    assert solved(good) == []


def test_a_search_that_fails_leaves_the_other(crowded: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(local_search, "search", fails)
    (exact,) = solved(crowded)
    assert (exact.solver, exact.moves) == ("cpsat", 1)
    monkeypatch.setattr(cpsat, "solve", fails)
    assert solved(crowded) == []
