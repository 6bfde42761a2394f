"""The claims of plans, verified on fabrics small enough to try every routing."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.planning.efficiency import job_slowdowns
from controller.planning.plan import Plan
from controller.planning.plan_check import check
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits, Problem
from tests.support.planning.fabrics import better, brute_force, pinned
from tests.support.planning.random_problems import problems

LIMITS = PlanLimits(time_limit_s=10, ecmp_draws=8, deterministic=True)
quick = settings(max_examples=100)


def planned(problem: Problem, limits: PlanLimits = LIMITS) -> Plan:
    answer = plan(problem, limits)
    assert isinstance(answer, Plan), answer
    return answer


@quick
@given(problems())
def test_the_plan_is_optimal_in_slowdowns_and_then_in_moves(problem: Problem) -> None:
    answer = planned(problem)
    slowdowns, fewest = brute_force(problem)
    assert answer.certificate == "optimal"
    assert not better(slowdowns, answer.sorted_slowdowns)
    assert answer.moves <= fewest
    assert check(problem, answer) == ()


@quick
@given(problems(), st.integers(0, 2))
def test_a_capped_plan_is_the_best_within_the_cap_and_claims_no_more_than_is_true(
    problem: Problem, max_moves: int
) -> None:
    answer = planned(problem, replace(LIMITS, max_moves=max_moves))
    slowdowns, fewest = brute_force(problem, max_moves)
    free, _ = brute_force(problem)
    assert answer.moves <= max_moves
    assert not better(slowdowns, answer.sorted_slowdowns)
    assert answer.moves <= fewest
    proven = answer.slowdowns_proven
    assert not better(free[:proven], answer.sorted_slowdowns[:proven])
    assert not free or answer.bound <= free[0] * (1 + 1e-9)


@quick
@given(problems())
def test_an_adopted_plan_stays(problem: Problem) -> None:
    first = planned(problem)
    again = planned(pinned(problem, first.routes))
    assert again.moves == 0
    assert dict(again.routes) == dict(first.routes)


@quick
@given(problems())
def test_without_time_the_plan_is_still_valid_and_never_worse_than_staying(problem: Problem) -> None:
    answer = planned(problem, replace(LIMITS, time_limit_s=1e-9))
    assert answer.solver != "cpsat"
    assert check(problem, answer) == ()
    assert not brute_force(problem)[0] or answer.bound <= brute_force(problem)[0][0] * (1 + 1e-9)
    if all(problem.is_in_force(f) for f in problem.flows):
        running = job_slowdowns(problem, {f.id: f.current for f in problem.flows if f.current})
        assert not better(sorted(running.values(), reverse=True), answer.sorted_slowdowns)
