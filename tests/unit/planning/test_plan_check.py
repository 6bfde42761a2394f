"""The checker accepts right plans and names what is wrong with every other plan."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.topology import Dpid, LinkId, PortNo
from controller.planning.efficiency import EcmpSlowdown, all_slowdowns, is_less, sorted_slowdowns
from controller.planning.plan import Plan, answered
from controller.planning.plan_check import check
from controller.planning.planner import plan
from controller.planning.problem import FlowId, PathShare, PlanLimits, Problem, Routes, whole
from signalbox.jobs.spec import JobId
from tests.support.planning.fabrics import (
    RATE,
    better,
    brute_force,
    demo_flows,
    every_routing,
    flow,
    leaf_spine,
    moves,
    pinned,
    problem_of,
    two_leaves,
)
from tests.support.planning.plans import EXACT, planned, repaired, vector
from tests.support.planning.random_problems import packings, problems


@pytest.fixture(scope="module")
def problem() -> Problem:
    local = flow("local", (1, 8), (1, 9), RATE)
    lost = flow("lost", (1, 7), (9, 7), RATE)
    base = problem_of(leaf_spine(4, 4), [*demo_flows(), local, lost])
    return pinned(base, answered(plan(base, LIMITS)).routes)


@pytest.fixture(scope="module")
def good(problem: Problem) -> Plan:
    return answered(plan(problem, LIMITS))


def test_a_right_plan_has_no_violations(problem: Problem, good: Plan) -> None:
    assert check(problem, good, max_moves=0) == ()
    assert good.unrouted == (FlowId("10.0.1.7", "10.0.9.7"),)


LIMITS = PlanLimits()
FIRST = FlowId("10.0.1.1", "10.0.2.1")
LOCAL = FlowId("10.0.1.8", "10.0.1.9")
OF_NO_JOB = FlowId("10.0.1.1", "10.0.9.9")
MISSING = LinkId(Dpid(1), PortNo(77))


def without_first(plan: Plan) -> Routes:
    return {flow: route for flow, route in plan.routes.items() if flow != FIRST}


MUTATIONS: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "another generation": (lambda p: replace(p, generation=9), "generation 9"),
    "a flow left out": (lambda p: replace(p, routes=without_first(p)), "neither routed"),
    "a flow given up": (
        lambda p: replace(p, routes=without_first(p), unrouted=(*p.unrouted, FIRST)),
        "unrouted although",
    ),
    "routed and unrouted": (lambda p: replace(p, unrouted=(*p.unrouted, FIRST)), "both routed and"),
    "unrouted twice": (lambda p: replace(p, unrouted=p.unrouted * 2), "twice"),
    "a flow of no job": (
        lambda p: replace(p, routes={**p.routes, OF_NO_JOB: whole(())}),
        "is not a flow of the problem",
    ),
    "a path that is no candidate": (lambda p: replace(p, routes={**p.routes, FIRST: whole((MISSING,))}), "not among"),
    "a path with no link": (lambda p: replace(p, routes={**p.routes, FIRST: whole(())}), "not among"),
    "a detour for a local flow": (
        lambda p: replace(p, routes={**p.routes, LOCAL: whole((MISSING,))}),
        "at one switch",
    ),
    "a slowdown too good": (
        lambda p: replace(p, job_slowdown={**p.job_slowdown, JobId("job1"): 0.5}),
        "job1 has slowdown",
    ),
    "a slowdown too bad": (
        lambda p: replace(p, job_slowdown={**p.job_slowdown, JobId("job1"): 1.5}),
        "job1 has slowdown",
    ),
    "an own slowdown too good": (
        lambda p: replace(p, own_slowdown={**p.own_slowdown, JobId("job1"): 0.5}),
        "job1 has own slowdown",
    ),
    "a job without own slowdown": (lambda p: replace(p, own_slowdown={}), "the plan has slowdowns for"),
    "a job without slowdown": (lambda p: replace(p, job_slowdown={JobId("job1"): 1.0}), "the plan has slowdowns for"),
    "a move too many": (lambda p: replace(p, moves=1), "moves 0 flows"),
    "a bound above the slowdown": (lambda p: replace(p, bound=1.1), "bound"),
    "a bound below one": (lambda p: replace(p, bound=0.9), "bound"),
    "more proven than there is": (lambda p: replace(p, slowdowns_proven=9), "claims 9 proven slowdowns"),
    "a fluid bound below one": (lambda p: replace(p, fluid_bound=0.9), "fluid bound"),
    "a fluid bound above the bound": (lambda p: replace(p, fluid_bound=1.1), "fluid bound"),
    "a bound of whole flows below the bound": (lambda p: replace(p, integer_bound=0.9), "bound of whole flows"),
    "a certificate that claims too little": (lambda p: replace(p, certificate="gap"), "certificate"),
    "an optimum that is not proven": (lambda p: replace(p, slowdowns_proven=1), "certificate"),
    "an ECMP better than possible": (lambda p: replace(p, ecmp=EcmpSlowdown(0.5, 1.0)), "ECMP"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_wrong_plan_is_named(problem: Problem, good: Plan, name: str) -> None:
    mutate, words = MUTATIONS[name]
    violations = check(problem, mutate(good))
    assert any(words in violation for violation in violations), violations


def test_a_plan_is_refused_where_a_link_has_no_capacity(problem: Problem, good: Plan) -> None:
    for bps in (0.0, -1.0):
        without = replace(problem, capacity_bps={**problem.capacity_bps, next(iter(problem.capacity_bps)): bps})
        assert check(without, good) == ("a link has no capacity",)


def split_plan(*subflows: tuple[int, float]) -> tuple[str, ...]:
    """Return the faults of a plan of one flow, which may have at most two subflows.

    ``subflows``: candidate path and share of each subflow; path 3 does not exist."""
    problem = two_leaves(3, "a", subflows=2)
    (alone,) = problem.flows
    paths = [*problem.candidates(alone), (MISSING,)]
    route = tuple(PathShare(paths[number], share) for number, share in subflows)
    return check(problem, replace(answered(plan(problem, LIMITS)), routes={alone.id: route}))


def test_subflows_are_at_most_as_many_as_allowed_on_paths_of_their_own_with_shares_that_add_up() -> None:
    assert split_plan((0, 0.25), (2, 0.75)) == ()
    assert split_plan((1, 1.0)) == ()
    for subflows, words in (
        ([(0, 0.25), (1, 0.25), (2, 0.5)], "has 3 subflows, but its job allows 1 to 2"),
        ([], "has 0 subflows"),
        ([(0, 0.5), (1, 0.4)], "do not add up"),
        ([(0, 0.5)], "do not add up"),
        ([(0, 0.5), (0, 0.5)], "share a path"),
        ([(0, 1.0), (1, 0.0)], "has no share above 0"),
        ([(0, 1.5), (1, -0.5)], "has no share above 0"),
        ([(0, math.nan)], "has no share above 0"),
        ([(0, math.nan), (1, 1.0)], "has no share above 0"),
        ([(0, 0.5), (3, 0.5)], "not among"),
    ):
        assert words in split_plan(*subflows)[0]


def test_any_flow_put_on_another_path_is_noticed(problem: Problem, good: Plan) -> None:
    routes = [(f.id, whole(path)) for f in problem.flows for path in problem.candidates(f)]
    others = [(flow_id, route) for flow_id, route in routes if route != good.routes[flow_id]]
    assert others
    for flow_id, route in others:
        assert check(problem, replace(good, routes={**good.routes, flow_id: route}))


def test_a_plan_over_the_cap_is_refused_even_when_it_counts_right(problem: Problem, good: Plan) -> None:
    other = next(path for path in problem.paths.between(Dpid(1), Dpid(2)) if whole(path) != good.routes[FIRST])
    base = problem.with_routes({**{f.id: f.current for f in problem.flows if f.current}, FIRST: whole(other)})
    assert check(base, replace(good, moves=1), max_moves=1) == ()
    assert check(base, replace(good, moves=1), max_moves=0) == ("the plan moves 1 flows, at most 0 may be moved",)


def test_a_worst_slowdown_said_to_be_proven_must_meet_its_bound() -> None:
    crowded = two_leaves(1, "aa")
    answer = answered(plan(crowded, LIMITS))
    assert check(crowded, answer) == ()
    assert "is proven, but the bound is 1" in check(crowded, replace(answer, bound=1.0, fluid_bound=1.0))[0]


# ---- claims of plans, verified on fabrics small enough to try every routing


quick = settings(max_examples=40)
few = settings(max_examples=30)
idle_problems = (problems() | packings()).map(lambda problem: pinned(problem, {}))


def best_with_fewest_moves(problem: Problem) -> Plan:
    """Return the plan, which has more moves than needed only for smaller own slowdowns."""
    answer = planned(problem)
    slowdowns, fewest = brute_force(problem)
    assert not better(slowdowns, answer.sorted_slowdowns)
    assert answer.certificate == "optimal"
    if fewest == 0 or answer.moves < fewest:
        assert answer.moves == fewest
    elif answer.moves > fewest:
        own = sorted_slowdowns(answer.own_slowdown)
        as_good = (of for of in every_routing(problem) if not better(slowdowns, vector(problem, of)))
        with_fewest = [of for of in as_good if moves(problem, of) == fewest]
        assert any(is_less(own, sorted_slowdowns(all_slowdowns(problem, of).own)) for of in with_fewest)
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
    there = problem.paths.far_end[link]

    def between(src: Dpid, dst: Dpid) -> list[LinkId]:
        return [each for each in problem.paths.links_from(src) if problem.paths.far_end[each] == dst]

    back = between(there, Dpid(link.dpid))[between(link.dpid, there).index(link)]
    return replace(problem, paths=problem.paths.without([link, back]))


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
