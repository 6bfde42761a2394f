"""A cable fails, or a job is added or removed: an immediate repair, then the best slowdowns with the fewest moves.

The results are proven on fabrics small enough to try every routing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.topology import Dpid, LinkId
from controller.planning.plan import NoPlan, Plan
from controller.planning.planner import plan, repair
from controller.planning.problem import PlanLimits, Problem
from tests.support.planning.fabrics import better, brute_force, flow, leaf_spine, moves, pinned, problem_of
from tests.support.planning.random_problems import packings, problems

LIMITS = PlanLimits(time_limit_s=10, ecmp_draws=0, deterministic=True)
quick = settings(max_examples=60)


def planned(problem: Problem, limits: PlanLimits = LIMITS) -> Plan:
    answer = plan(problem, limits)
    assert isinstance(answer, Plan), answer
    return answer


def repaired(problem: Problem) -> Plan:
    answer = repair(problem)
    assert isinstance(answer, Plan), answer
    return answer


def cut(problem: Problem, link: LinkId) -> Problem:
    """Return the problem without the cable that has this link as one direction."""
    there = problem.paths.far_end[link]
    back = problem.paths.links_between(there, Dpid(link.dpid))
    number = list(problem.paths.links_between(link.dpid, there)).index(link)
    return replace(problem, paths=problem.paths.without([link, back[number]]))


def used(plan: Plan) -> list[LinkId]:
    return sorted({link for route in plan.routes.values() for subflow in route for link in subflow.path})


def assert_best_with_fewest_moves(problem: Problem) -> None:
    answer = planned(problem)
    slowdowns, fewest = brute_force(problem)
    assert not better(slowdowns, answer.sorted_slowdowns)
    assert (answer.moves, answer.certificate) == (fewest, "optimal")


def without_currents(problem: Problem) -> Problem:
    return pinned(problem, {})


@quick
@given((problems() | packings()).map(without_currents), st.data())
def test_a_cable_fails(problem: Problem, data: st.DataObject) -> None:
    first = planned(problem)
    if not used(first):
        return
    after = pinned(cut(problem, data.draw(st.sampled_from(used(first)))), first.routes)
    stopgap = repaired(after)
    assert stopgap.moves == 0
    assert set(stopgap.unrouted) == {f.id for f in after.flows if not after.candidates(f)}
    assert_best_with_fewest_moves(after)


@quick
@given((problems() | packings()).map(without_currents), st.sampled_from("abc"), st.booleans())
def test_a_job_comes_or_goes(problem: Problem, job: str, comes: bool) -> None:
    others = replace(problem, flows=tuple(f for f in problem.flows if f.job_id != job))
    before, after = (others, problem) if comes else (problem, others)
    after = pinned(after, planned(before).routes)
    assert repaired(after).moves == 0
    assert_best_with_fewest_moves(after)


@quick
@given(problems(), st.integers(0, 3))
def test_the_cap_on_moves_is_kept_and_the_repair_needs_none(problem: Problem, cap: int) -> None:
    assert repaired(problem).moves == 0
    answer = planned(problem, replace(LIMITS, max_moves=cap))
    assert answer.moves == moves(problem, answer.routes) <= cap


def test_the_running_plan_stays_when_a_job_leaves_and_no_other_gains() -> None:
    flows = [flow(job, (1, h), (2, h), 1.0) for h, job in enumerate("aabb")]
    problem = problem_of(leaf_spine(2, 4, 1.0), flows, nic_bps=1.0)
    first = planned(problem)
    left = pinned(replace(problem, flows=problem.flows[:2]), first.routes)
    answer = planned(left)
    assert (answer.moves, answer.solver) == (0, "running")


@pytest.mark.parametrize(("jobs", "most"), [("aaaa", 0), ("aabb", 1)])
def test_one_flow_makes_room_for_another_job(jobs: Collection[str], most: int) -> None:
    """Two uplinks of six are lost, so two flows must share a link with others.

    If there is one job, no running flow has to move. If there are two, one flow may have to move, so that only one job
    is slow."""
    flows = [flow(job, (1, h), (2, h), 1.0) for h, job in enumerate(jobs)]
    whole = problem_of(leaf_spine(2, 4, 1.0), flows, nic_bps=1.0)
    first = planned(whole)
    after = pinned(cut(whole, used(first)[0]), first.routes)
    answer = planned(after)
    assert answer.moves <= most
    assert answer.sorted_slowdowns[:1] == (2,)
    assert set(answer.sorted_slowdowns[1:]) <= {1}


def test_a_problem_without_sense_has_no_repair() -> None:
    problem = problem_of(leaf_spine(2, 2, 1.0), [flow("a", (1, 1), (2, 1), 1.0)], nic_bps=1.0)
    assert isinstance(repair(replace(problem, capacity_bps={})), NoPlan)
