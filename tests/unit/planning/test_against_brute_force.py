"""The claims of plans, verified on fabrics small enough to try every routing."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.topology import Dpid, LinkId
from controller.planning.plan import Plan
from controller.planning.problem import Problem
from tests.support.planning.fabrics import better, brute_force, pinned
from tests.support.planning.plans import EXACT, planned, repaired, vector
from tests.support.planning.random_problems import packings, problems

quick = settings(max_examples=40)
few = settings(max_examples=30)
idle_problems = (problems() | packings()).map(lambda problem: pinned(problem, {}))


def best_with_fewest_moves(problem: Problem) -> Plan:
    """Return the plan, which has the best slowdowns, proven, with the fewest moves."""
    answer = planned(problem)
    slowdowns, fewest = brute_force(problem)
    assert not better(slowdowns, answer.sorted_slowdowns)
    assert (answer.moves, answer.certificate) == (fewest, "optimal")
    return answer


@quick
@given(problems())
def test_the_plan_is_optimal_in_slowdowns_and_then_in_moves_and_stays(problem: Problem) -> None:
    answer = best_with_fewest_moves(problem)
    again = planned(pinned(problem, answer.routes))
    assert (again.moves, dict(again.routes)) == (0, dict(answer.routes))


@quick
@given(problems(), st.integers(0, 2))
def test_a_capped_plan_is_the_best_within_the_cap_and_claims_no_more_than_is_true(
    problem: Problem, max_moves: int
) -> None:
    """A repair moves no flow."""
    answer = planned(problem, replace(EXACT, max_moves=max_moves))
    slowdowns, fewest = brute_force(problem, max_moves)
    free, _ = brute_force(problem)
    assert not better(slowdowns, answer.sorted_slowdowns)
    assert answer.moves <= fewest <= max_moves
    proven = answer.slowdowns_proven
    assert not better(free[:proven], answer.sorted_slowdowns[:proven])
    assert not free or answer.bound <= free[0] * (1 + 1e-9)
    assert repaired(problem).moves == 0


@quick
@given(problems())
def test_without_time_the_plan_is_still_valid_and_never_worse_than_staying(problem: Problem) -> None:
    answer = planned(problem, replace(EXACT, time_limit_s=1e-9))
    best, _ = brute_force(problem)
    assert answer.solver != "cpsat"
    assert not best or answer.bound <= best[0] * (1 + 1e-9)
    if all(problem.is_in_force(f) for f in problem.flows):
        running = vector(problem, {f.id: f.current for f in problem.flows if f.current})
        assert not better(running, answer.sorted_slowdowns)


# ---- a cable fails, or a job is added or removed: a repair, then the best slowdowns with the fewest moves


def cut(problem: Problem, link: LinkId) -> Problem:
    """Return the problem without the cable that has this link as one direction."""
    there = problem.paths.far_end[link]
    back = problem.paths.links_between(there, Dpid(link.dpid))
    number = list(problem.paths.links_between(link.dpid, there)).index(link)
    return replace(problem, paths=problem.paths.without([link, back[number]]))


def used(plan: Plan) -> list[LinkId]:
    return sorted({link for route in plan.routes.values() for subflow in route for link in subflow.path})


@few
@given(idle_problems, st.data())
def test_a_cable_fails(problem: Problem, data: st.DataObject) -> None:
    first = planned(problem)
    if not used(first):
        return
    after = pinned(cut(problem, data.draw(st.sampled_from(used(first)))), first.routes)
    assert set(repaired(after).unrouted) == {f.id for f in after.flows if not after.candidates(f)}
    assert best_with_fewest_moves(after)


@few
@given(idle_problems, st.sampled_from("abc"), st.booleans())
def test_a_job_comes_or_goes(problem: Problem, job: str, comes: bool) -> None:
    others = replace(problem, flows=tuple(f for f in problem.flows if f.job_id != job))
    before, after = (others, problem) if comes else (problem, others)
    after = pinned(after, planned(before).routes)
    assert repaired(after).moves == 0
    assert best_with_fewest_moves(after)
