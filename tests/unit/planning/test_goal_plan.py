"""Goal plans, which need more moves than a cycle may make: no slowdown grows in any cycle, under any limit of moves.

The best plan is reached, or reported as blocked."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, count, permutations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from controller.planning import answers, greedy
from controller.planning.answers import outlook, plan_towards, same_inputs, solved
from controller.planning.bounds import slowdown_bounds
from controller.planning.efficiency import job_slowdowns
from controller.planning.greedy import relieve
from controller.planning.plan import Draft, GoalPlan, NoPlan, Plan, answered, paths_used
from controller.planning.plan_check import check
from controller.planning.planner import plan, repair
from controller.planning.problem import Flow, PlanLimits, Problem, whole
from controller.planning.transition import Stuck
from controller.status import Status
from tests.support.planning.fabrics import (
    RATE,
    across,
    better,
    fabric_of,
    flow,
    leaf_spine,
    on_paths,
    pinned,
    problem_of,
    three_tiers,
    two_leaves,
)
from tests.support.planning.plans import EXACT, planned, vector
from tests.support.planning.random_problems import problems as whole_problems
from tests.support.planning.split_problems import leaf_spines, split
from tests.support.planning.split_problems import problems as split_problems
from tests.unit.planning.test_transition import worse

MOST_CYCLES = 30
random_problems = st.one_of(whole_problems(), split_problems(leaf_spines(), subflows=(1, 2, 3)))


def running(data: st.DataObject, problem: Problem) -> Problem:
    """Return the problem with all flows pinned, to any of their paths."""
    routes = greedy.assign(problem, keep_current=False)
    for f in problem.flows:
        if f.id in routes:
            routes[f.id] = whole(data.draw(st.sampled_from(problem.candidates(f))))
    return pinned(problem, routes)


@settings(max_examples=15, suppress_health_check=[HealthCheck.filter_too_much])
@given(random_problems, st.data())
def test_cycles_lead_to_the_best_plan_or_a_group_is_named(problem: Problem, data: st.DataObject) -> None:
    problem = running(data, problem)
    best = planned(problem)
    assume(best.moves > 1)
    cap = data.draw(st.integers(1, best.moves - 1))
    goal: GoalPlan | None = None
    for _ in range(MOST_CYCLES):
        routes = {f.id: f.current for f in problem.flows if f.current}
        answer, goal = towards(problem, cap, goal)
        assert not worse(answer.sorted_slowdowns, vector(problem, routes))
        if goal and goal.blocked:
            assert answer.moves == 0
            capped = planned(problem, replace(EXACT, max_moves=cap))
            assert not better(capped.sorted_slowdowns, answer.sorted_slowdowns)
            together = {**routes, **{f: r for f, r in goal.plan.routes.items() if f in goal.blocked}}
            assert better(vector(problem, together), vector(problem, routes))
            moving = [f for f, r in goal.plan.routes.items() if routes[f] != r]
            for size in range(1, cap + 1):
                for chosen in combinations(moving, size):
                    some = {**routes, **{f: goal.plan.routes[f] for f in chosen}}
                    assert better(vector(problem, routes), vector(problem, some))
            return
        if not answer.moves:
            break
        problem = pinned(problem, answer.routes)
    assert not better(best.sorted_slowdowns, vector(problem, {f.id: f.current for f in problem.flows if f.current}))


@pytest.mark.parametrize(("spines", "expected"), [(4, [3 / 2, 5 / 4]), (5, [4 / 3, 4 / 3, 6 / 5])])
def test_a_jump_costs_at_most_one_cycle_and_none_where_a_smaller_jump_saves_it(
    spines: int, expected: list[float]
) -> None:
    """Every spine has one flow, and the last has two; each flow may have two subflows, and a cycle may make two moves.

    The goal plans need 3 and 4 moves. A jump (the best routes within the cap) of two moves reaches 4/3, but leaves as
    many moves to make as before. With four spines a jump of one move saves a cycle, because the cycle's other move
    belongs to the goal plan."""
    problem = on_paths(two_leaves(spines, (spines + 1) * "a", subflows=2), [*range(spines), spines - 1])
    slowdowns, goal = [], None
    while True:
        answer, goal = towards(problem, 2, goal)
        if not answer.moves:
            break
        slowdowns.append(answer.max_slowdown)
        problem = pinned(problem, answer.routes)
    assert slowdowns == pytest.approx(expected)


def in_turn() -> Problem:
    """Return a problem of one flow per job on spines of three rates: each flow runs where the next smaller one fits."""
    fabric = fabric_of([(leaf, 100 + n, rate) for leaf in (1, 2) for n, rate in ((1, 6.0), (2, 5.0), (3, 4.0))])
    flows = [flow(job, (1, h), (2, h), bps) for job, h, bps in (("a", 1, 6.0), ("b", 2, 5.0), ("c", 3, 4.0))]
    problem = problem_of(fabric, flows, nic_bps=6.0)
    by_rate = sorted(problem.candidates(flows[0]), key=lambda path: -problem.capacity_bps[path[0]])
    return pinned(problem, {f.id: whole(by_rate[n]) for f, n in zip(flows, (1, 2, 0), strict=True)})


def test_a_blocked_goal_names_who_has_to_move_and_is_not_searched_for_again() -> None:
    """Two flows on one spine would be slower than any flow on the running routes."""
    problem = in_turn()
    one_move = replace(EXACT, max_moves=1)
    first, goal = solved(problem, one_move, 0.02)
    assert goal
    assert (set(goal.blocked), goal.smallest) == ({f.id for f in problem.flows}, True)
    decision = first.decision
    assert decision
    assert (decision.adopt, decision.reason) == (
        False,
        "worst slowdown could fall from 1.25 to 1.00 (20.0%), but no moves that lead there were found within "
        "planning.max_moves: of 3 flows to move at least 3 would have to move together "
        "(10.0.1.1 > 10.0.2.1, 10.0.1.2 > 10.0.2.2, 10.0.1.3 > 10.0.2.3)",
    )
    assert Status(goal=first.goal).blocked_flows == 3
    assert solved(problem, one_move, 0.02, goal)[1] is goal
    again = solved(problem, one_move, 0.02, replace(goal, searched=0))[1]
    assert again is not goal, "time was over when it was searched for"
    larger, _ = solved(problem, replace(EXACT, max_moves=3), 0.02, goal)
    assert (larger.adopted, larger.plan.max_slowdown) == (True, 1.0), "a cap that allows it"
    together, _ = solved(problem, replace(EXACT, max_moves=3), 0.02)
    assert (together.adopted, together.plan.max_slowdown, together.goal) == (True, 1.0, None)


@pytest.mark.parametrize(("cap", "first", "cycles"), [(3, 1.0, 1), (1, 1.25, None), (0, 1.0, None)])
def test_what_cycles_would_do_is_known_before_they_begin(cap: int, first: float, cycles: int | None) -> None:
    reached, begun, most = outlook(in_turn(), replace(EXACT, max_moves=cap))
    assert (reached.max_slowdown, begun.max_slowdown, most) == (1.0, first, cycles)


def test_a_goal_is_for_one_problem() -> None:
    problem = in_turn()
    assert same_inputs(problem, on_paths(problem))
    assert not same_inputs(problem, replace(problem, flows=problem.flows[:1]))
    assert not same_inputs(problem, replace(problem, flows=problem.flows[::-1]))
    slower = {link: bps / 2 for link, bps in problem.capacity_bps.items()}
    assert not same_inputs(problem, replace(problem, capacity_bps=slower))
    link = next(iter(problem.paths.far_end))
    assert not same_inputs(problem, replace(problem, paths=problem.paths.without(frozenset([link]))))


@pytest.mark.parametrize("cap", [1, 2])
def test_flows_that_may_be_split_are_relieved_on_three_tiers(cap: int) -> None:
    """The search adds an LP column for every candidate path while it checks what a link may carry."""
    pairs = permutations(range(1, 5), 2)
    flows = [flow(f"job{(src + dst) % 3}", (src, dst), (dst, 100 + src), RATE) for src, dst in pairs]
    problem = on_paths(problem_of(three_tiers(2, 2, (2, 2)), split(flows, 2)))
    before = vector(problem, {of.id: of.current for of in problem.flows if of.current})
    answer, _ = towards(problem, cap)
    assert not worse(answer.sorted_slowdowns, before)


def test_without_time_for_a_goal_cycles_move_what_helps_within_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = on_one_of_eight()
    monkeypatch.setattr(answers, "_WAY_S", math.inf)
    slowdown = 8.0
    while slowdown > 1.0:
        answer, left = towards(problem, 4)
        assert left is None
        assert answer.max_slowdown < slowdown
        slowdown = answer.max_slowdown
        problem = pinned(problem, answer.routes)


def on_one_of_eight(subflows: int = 1) -> Problem:
    """Return a problem of eight flows that all run over one of eight spines."""
    return on_paths(two_leaves(8, 8 * "a", subflows))


def towards(problem: Problem, cap: int, goal: GoalPlan | None = None) -> tuple[Plan, GoalPlan | None]:
    """Return the plan of the next cycle, which the checker accepts, and the goal plan that is left."""
    answer, left = plan_towards(problem, replace(EXACT, max_moves=cap, left_out=[]), goal)
    assert check(problem, answered(answer), cap) == ()
    return answered(answer), left


def time_is_over_with_the_targets_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a processor that is busy after the goal plan: a second passes between two readings of the clock."""

    def late(problem: Problem, limits: PlanLimits) -> Plan | NoPlan:
        found = plan(problem, limits)
        seconds = count(int(time.perf_counter()) + 1_000)
        monkeypatch.setattr(time, "perf_counter", lambda: float(next(seconds)))
        return found

    monkeypatch.setattr(answers, "plan", late)


@pytest.mark.parametrize("subflows", [1, 2])
def test_a_plan_that_uses_up_the_time_leaves_the_moves_that_were_found_before(
    monkeypatch: pytest.MonkeyPatch, subflows: int
) -> None:
    time_is_over_with_the_targets_plan(monkeypatch)
    found, left = plan_towards(on_one_of_eight(subflows), PlanLimits(10, 3, 0), None)
    answer = answered(found)
    assert (answer.moves, answer.max_slowdown, answer.cut_short) == (3, 5.0, True)
    assert left
    assert not left.blocked


def test_it_is_not_said_that_there_are_no_moves_when_there_was_no_time_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, limits = in_turn(), PlanLimits(10, 1, 0)
    with monkeypatch.context() as patched:
        time_is_over_with_the_targets_plan(patched)
        first, left = solved(problem, limits, 0.02)
    assert left
    assert (left.moves, left.blocked) == (3, ())
    assert first.decision
    assert (first.plan.moves, first.decision.reason) == (
        0,
        "no slowdown changes with 0 flows moved, and then worst slowdown falls from 1.25 to 1.00 (20.0%) "
        "when 3 flows more are moved",
    )
    _, then = plan_towards(problem, limits, left)
    assert then
    assert (len(then.blocked), then.smallest) == (3, True)


@pytest.mark.parametrize("subflows", [1, 2])
def test_where_neither_steps_nor_leaps_help_the_best_plan_within_the_cap_is_made(
    monkeypatch: pytest.MonkeyPatch, subflows: int
) -> None:
    monkeypatch.setattr(answers, "step", lambda *_: Stuck(final=True))
    monkeypatch.setattr(answers, "relieved", lambda problem, _: repair(problem))
    monkeypatch.setattr("controller.planning.split_flows.search.relieve", lambda *_: None)
    answer, left = towards(on_one_of_eight(subflows), 3)
    assert (answer.moves, answer.max_slowdown) == (3, 5.0)
    assert left
    assert not left.blocked


def test_a_group_within_the_cap_is_moved_when_a_step_was_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_other(problem: Problem, limits: PlanLimits) -> Plan | NoPlan:
        return plan(problem, limits) if limits.max_moves is None else NoPlan(problem.generation, "time is over")

    monkeypatch.setattr(answers, "step", lambda *_: Stuck(final=False))
    monkeypatch.setattr(answers, "relieved", lambda problem, _: repair(problem))
    monkeypatch.setattr(answers, "plan", no_other)
    answer, left = towards(on_one_of_eight(), 3)
    assert (answer.moves, answer.max_slowdown) == (1, 7.0)
    assert left
    assert (left.moves, left.blocked) == (6, ())


# ---- the fullest links are relieved within a limit of moves, and no slowdown becomes greater


def relieved(problem: Problem, cap: int) -> Draft | None:
    start = greedy.assign(problem, keep_current=True)
    return relieve(problem, slowdown_bounds(problem), start, replace(EXACT, max_moves=cap))


FOUR = across("aaaa")
PHASES = [flow("a", (1, host), (2, host), [(host % 2, RATE)]) for host in range(1, 5)]


@pytest.mark.parametrize(
    ("flows", "spines", "cap", "expected"),
    [
        *((FOUR, 4, cap, ([slowdown], moves)) for cap, slowdown, moves in ((1, 3.0, 1), (2, 2.0, 2), (9, 1.0, 3))),
        pytest.param([*across("aa"), *across("aa", RATE, 3, 4)], 2, 1, None, id="one move does not help"),
        pytest.param([*across("aa"), *across("bb", RATE, 3, 4)], 2, 1, ([2.0, 1.0], 1), id="it helps one of two jobs"),
        pytest.param(PHASES, 2, 4, ([1.0], 2), id="phases of a job share a link"),
    ],
)
def test_as_many_flows_leave_a_full_link_as_help(
    flows: Sequence[Flow], spines: int, cap: int, expected: tuple[list[float], int] | None
) -> None:
    """All flows run over the first spine."""
    found = relieved(on_paths(problem_of(leaf_spine(4, spines), flows)), cap)
    assert (found and ([*found.vector], found.moves)) == expected


def test_a_flow_is_divided_where_no_path_has_room_for_all_of_it() -> None:
    found = relieved(on_paths(two_leaves(2, "aaa", subflows=2)), 2)
    assert found is not None
    assert found.vector == pytest.approx((1.5,))
    assert sorted(len(route) for route in found.routes.values()) == [1, 1, 2]


def test_without_time_links_are_relieved_all_the_same() -> None:
    answer = planned(on_one_of_eight(subflows=2), PlanLimits(time_limit_s=1e-6, max_moves=3, ecmp_draws=0))
    assert (answer.moves, answer.sorted_slowdowns) == (3, (5.0,))


def test_paths_of_equal_subflows_are_counted() -> None:
    """Four flows of two subflows each run on one spine of four. Subflows of one flow on the same path count once."""
    subflows = [replace(of, id=of.id._replace(subflow=subflow)) for of in across("aaaa") for subflow in (0, 1)]
    found = relieved(on_paths(problem_of(leaf_spine(2, 4), subflows)), 8)
    assert found is not None
    assert found.paths == paths_used(found.routes) >= 4


@settings(max_examples=40)
@given(random_problems, st.data())
def test_slowdowns_are_never_greater_and_are_what_the_routes_have(problem: Problem, data: st.DataObject) -> None:
    problem = running(data, problem)
    cap = data.draw(st.integers(1, 6))
    found = relieved(problem, cap)
    if found is None:
        return
    assert found.job_slowdown == pytest.approx(job_slowdowns(problem, found.routes))
    assert found.moves == problem.moves(found.routes) <= cap
    assert not worse(found.vector, vector(problem, greedy.assign(problem, keep_current=True)))
    answer = planned(problem, replace(EXACT, max_moves=cap))
    assert not worse(answer.sorted_slowdowns, found.vector)
