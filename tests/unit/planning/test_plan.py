"""How routings compare, and what a plan claims."""

from __future__ import annotations

import pytest

from controller.errors import SignalboxError
from controller.fabric.topology import PortNo
from controller.jobs.spec import JobId
from controller.planning.bounds import level_bounds
from controller.planning.plan import (
    Draft,
    NoPlan,
    Plan,
    PlanTimes,
    answered,
    certified,
    compare,
    draft,
    levels_proven,
)
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits, Problem, Route, whole
from tests.support.planning.fabrics import RATE, flow, leaf_spine, pinned, problem_of


def planned(problem: Problem) -> Plan:
    answer = plan(problem, PlanLimits())
    assert isinstance(answer, Plan)
    return answer


@pytest.fixture
def problem() -> Problem:
    return problem_of(leaf_spine(2, 2), [flow("a", (1, h), (2, h), RATE) for h in (1, 2)])


def a_draft(*levels: float, moves: int = 0, solver: str = "greedy") -> Draft:
    return Draft(solver, {}, {JobId(f"job{n}"): level for n, level in enumerate(levels)}, moves)


def test_the_better_routing_has_smaller_levels_from_the_worst_on() -> None:
    assert compare(a_draft(1.0, 2.0, moves=9), a_draft(2.5, 1.0)) < 0
    assert compare(a_draft(2.0, 1.5), a_draft(1.4, 2.0)) > 0


@pytest.mark.parametrize("level", [2.0, 2.0 * (1 + 1e-6)], ids=["equal", "equal but for rounding"])
def test_of_routings_with_equal_levels_the_one_with_fewer_moves_is_better(level: float) -> None:
    assert compare(a_draft(level, 1.0, moves=1), a_draft(1.0, 2.0, moves=2)) < 0
    assert compare(a_draft(level, 1.0, moves=2), a_draft(1.0, 2.0, moves=1)) > 0
    assert compare(a_draft(level, 1.0, moves=1), a_draft(1.0, 2.0, moves=1)) == 0


def test_flows_are_moved_whose_route_stands_and_is_another_one(problem: Problem) -> None:
    first, second = problem.candidates(problem.flows[0])
    gone = whole(tuple(link._replace(port=PortNo(99)) for link in first))
    ids = [f.id for f in problem.flows]

    def moves(*before: Route | None) -> int:
        running = pinned(problem, {f: route for f, route in zip(ids, before, strict=True) if route})
        return draft(running, "greedy", dict.fromkeys(ids, whole(second))).moves

    assert moves(whole(first), whole(second)) == 1
    assert moves(whole(first), gone) == 1
    assert moves(None, None) == 0
    assert draft(pinned(problem, dict.fromkeys(ids, whole(first))), "greedy", {}).moves == 0, "unrouted"


def test_an_answer_is_its_plan_and_the_reason_why_there_is_none_an_error(problem: Problem) -> None:
    answer = planned(problem)
    assert answered(answer) is answer
    with pytest.raises(SignalboxError, match="no plan for the demo: a flow is in the problem twice"):
        answered(NoPlan(1, "a flow is in the problem twice"), " for the demo")


def test_the_total_time_is_that_of_all_stages_but_the_comparison_with_ecmp() -> None:
    assert PlanTimes(build_ms=1.0, solve_ms=2.0, check_ms=4.0, ecmp_ms=8.0).total_ms == 7.0


def test_limits_go_by_the_clock_unless_they_say_otherwise() -> None:
    assert not PlanLimits(time_limit_s=1.0).deterministic


ROUNDED = (2.0 * (1 + 1e-6),)


@pytest.mark.parametrize(
    ("levels", "proven", "count"),
    [
        ((2.0, 1.5), (2.0, 1.5), 2),
        ((2.0, 1.5), (2.0, 1.0), 1),
        ((2.0, 1.0), (1.9, 1.0), 0),
        ((2.0 * (1 + 1e-6),), (2.0,), 1),
        ((), (), 0),
    ],
)
def test_levels_are_proven_up_to_the_first_that_misses_its_bound(
    levels: tuple[float, ...], proven: tuple[float, ...], count: int
) -> None:
    assert levels_proven(levels, proven) == count


@pytest.mark.parametrize(
    ("solver", "proven", "certificate"),
    [
        ("greedy", (2.0, 1.0), "optimal"),
        ("greedy", (2.0, 0.9), "gap"),
        ("cpsat", (1.9, 1.0), "gap"),
        ("greedy", (1.9, 1.0), "heuristic"),
    ],
)
def test_a_plan_claims_what_is_proven(
    problem: Problem, solver: str, proven: tuple[float, ...], certificate: str
) -> None:
    certain = certified(problem, a_draft(1.0, 2.0, solver=solver), level_bounds(problem), proven, PlanTimes(0, 0, 0))
    assert (certain.certificate, certain.bound) == (certificate, proven[0])
    assert certain.gap == pytest.approx(2.0 / proven[0] - 1)
    assert certain.unrouted == tuple(f.id for f in problem.flows)


def test_a_bound_is_never_above_the_level_that_it_bounds(problem: Problem) -> None:
    """Solvers round."""
    bound = certified(problem, a_draft(2.0), level_bounds(problem), (2.0 * (1 + 1e-7),), PlanTimes(0, 0, 0)).bound
    assert bound == 2.0
