"""Goal plans, which need more moves than a cycle may make: no slowdown grows in any cycle, under any limit of moves.

The best plan is reached, or reported as blocked."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, count, permutations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from controller.fabric.topology import Dpid, LinkId, Path, PortNo
from controller.planning import answers, greedy
from controller.planning.analysis.job import analyse_job
from controller.planning.analysis.messages import AnalyseJob, FabricNames, Network
from controller.planning.answers import TRIES, Answers, outlook, plan_towards, same_inputs, solved
from controller.planning.bounds import slowdown_bounds
from controller.planning.efficiency import SLOWDOWN_TOLERANCE, job_slowdowns
from controller.planning.greedy import relieve
from controller.planning.messages import SolvePlan
from controller.planning.plan import (
    Draft,
    GoalPlan,
    NoPlan,
    Plan,
    Planned,
    answered,
    in_place,
    paths_used,
    relative_gain,
    slowdowns,
)
from controller.planning.plan_check import check
from controller.planning.planner import plan, repair
from controller.planning.problem import Flow, FlowId, PathShare, PlanLimits, Problem, Route, Routes, whole
from controller.planning.transition import Stuck, smallest_group, step
from controller.status import Status
from signalbox.jobs.spec import JobId
from tests.support.planning.fabrics import (
    RATE,
    across,
    better,
    demo_flows,
    fabric_of,
    flow,
    leaf_spine,
    on_paths,
    pinned,
    problem_of,
    three_tiers,
    two_leaves,
)
from tests.support.planning.plans import EXACT, planned, snapshot_of, vector
from tests.support.planning.random_problems import problems as whole_problems
from tests.support.planning.split_problems import any_fabric, leaf_spines, split
from tests.support.planning.split_problems import problems as split_problems

MOST_CYCLES = 30
random_problems = st.one_of(whole_problems(), split_problems(leaf_spines(), subflows=(1, 2, 3)))


def running(data: st.DataObject, problem: Problem) -> Problem:
    routes = greedy.assign(problem, keep_current=False)
    for f in problem.flows:
        if f.id in routes:
            routes[f.id] = whole(data.draw(st.sampled_from(problem.candidates(f))))
    return pinned(problem, routes)


@settings(max_examples=8, suppress_health_check=[HealthCheck.filter_too_much])
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
    """No single flow can move: two flows on one spine would be slower than any flow is now."""
    problem = in_turn()
    one_move = replace(EXACT, max_moves=1)
    first, goal = solved(problem, one_move, 0.02)
    assert goal
    assert (set(goal.blocked), goal.smallest) == ({f.id for f in problem.flows}, True)
    decision = first.decision
    assert decision
    assert (decision.adopt, decision.reason) == (
        False,
        "worst slowdown could fall from 1.25 to 1.00 (20.0%), but no moves within planning.max_moves were found "
        "that lower it: at least 3 of 3 flows would have to move together "
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
    monkeypatch.setattr(answers, "_S_PER_FLOW", math.inf)
    slowdown = 8.0
    while slowdown > 1.0:
        answer, left = towards(problem, 4)
        assert left is None
        assert answer.max_slowdown < slowdown
        slowdown = answer.max_slowdown
        problem = pinned(problem, answer.routes)


def on_one_of_eight(subflows: int = 1) -> Problem:
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
        "with a further 3 flows moved",
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


@settings(max_examples=20)
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


# ---- transitions


MOST_MOVES = 7
irregular_problems = st.one_of(whole_problems(), split_problems(any_fabric(), subflows=(1, 2, 3)))
quick = settings(max_examples=10)


def worse(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    """Return whether the first slowdown that differs between ``a`` and ``b``, beyond rounding, is larger in ``a``."""
    for x, y in zip(a, b, strict=True):
        if abs(x - y) > SLOWDOWN_TOLERANCE / 2 * max(x, y):
            return x > y
    return False


def changed(start: Routes, goal: Routes) -> set[FlowId]:
    return {flow for flow, route in goal.items() if start[flow] != route}


def subsets(start: Routes, goal: Routes, sizes: range) -> Iterator[Routes]:
    moves = sorted(changed(start, goal))
    for size in sizes:
        for chosen in combinations(moves, size):
            yield {**start, **{flow: goal[flow] for flow in chosen}}


def drawn(data: st.DataObject, problem: Problem) -> tuple[Routes, Routes]:
    """Return the best plan's routes twice: first with some flows moved to random whole paths, then unchanged."""
    best = planned(problem).routes
    routed = [f for f in problem.flows if problem.candidates(f)]
    assume(routed)
    elsewhere = data.draw(st.lists(st.sampled_from(routed), min_size=1, max_size=MOST_MOVES, unique_by=lambda f: f.id))
    others = {f.id: whole(data.draw(st.sampled_from(problem.candidates(f)))) for f in elsewhere}
    assume(any(best[flow] != route for flow, route in others.items()))
    return {**best, **others}, best


@quick
@given(irregular_problems, st.data())
def test_a_step_is_the_largest_that_makes_nothing_worse(problem: Problem, data: st.DataObject) -> None:
    start, goal = drawn(data, problem)
    moves = changed(start, goal)
    most = data.draw(st.integers(0, len(moves)))
    free = set(data.draw(st.lists(st.sampled_from(sorted(moves)), max_size=1)))
    before = vector(problem, start)
    after = step(problem, start, goal, most, free, EXACT)
    if isinstance(after, Stuck):
        assert after.final
        for routes in subsets(start, goal, range(1, most + 1)):
            assert better(before, vector(problem, routes))
        return
    made = changed(start, after)
    assert len(made - free) <= most
    assert all(after[flow] == goal[flow] for flow in made)
    assert not worse(vector(problem, after), before)
    if len(moves - free) <= most and not worse(vector(problem, goal), before):
        assert made == moves


@quick
@given(irregular_problems, st.data())
def test_no_smaller_group_of_moves_than_the_one_named_improves_anything(problem: Problem, data: st.DataObject) -> None:
    start, goal = drawn(data, problem)
    before = vector(problem, start)
    assume(better(vector(problem, goal), before))
    group = smallest_group(problem, start, goal, EXACT)
    assert group.smallest
    together = {**start, **{flow: goal[flow] for flow in group.flows}}
    assert better(vector(problem, together), before)
    for routes in subsets(start, goal, range(1, len(group.flows))):
        assert not better(vector(problem, routes), before)


def test_flows_that_take_each_others_places_move_together() -> None:
    """Three flows fill three spines, and each has to go to the place of the next one: none can go first."""
    problem = two_leaves(3, "aaa")
    paths = problem.candidates(problem.flows[0])
    start = {f.id: whole(path) for f, path in zip(problem.flows, paths, strict=True)}
    goal = {f.id: whole(path) for f, path in zip(problem.flows, [*paths[1:], paths[0]], strict=True)}
    assert step(problem, start, goal, 2, (), EXACT) == Stuck(final=True)
    assert step(problem, start, goal, 3, (), EXACT) == goal
    assert step(problem, start, goal, 2, {problem.flows[0].id}, EXACT) == goal


def test_loads_that_are_huge_fit_into_the_solver() -> None:
    """Demands are 10^12 times the capacity of a link, or the load would be 10^16 times as large after a move."""
    problem = problem_of(leaf_spine(2, 2), across("ab", 1e12 * RATE))
    first, second = problem.candidates(problem.flows[0])
    start = {f.id: whole(first) for f in problem.flows}
    goal = {**start, problem.flows[1].id: whole(second)}
    assert step(problem, start, goal, 1, frozenset(), EXACT) == goal
    slow = fabric_of([(1, 101, RATE), (2, 101, RATE), (1, 102, RATE / 1e16), (2, 102, RATE)])
    problem = problem_of(slow, across("a"))
    start, goal = ({problem.flows[0].id: whole(path)} for path in problem.candidates(problem.flows[0]))
    assert step(problem, start, goal, 1, (), EXACT) == Stuck(final=True)


@pytest.mark.parametrize(("fifth", "smallest"), [(1.5, False), (1.0, True)])
def test_a_group_is_the_smallest_only_if_all_slowdowns_were_looked_at(fifth: float, smallest: bool) -> None:
    """Jobs a, b and c are the slowest, and have to exchange their places; one move lowers the fifth slowdown."""
    rates = [(leaf, spine, rate) for leaf in (1, 2) for spine, rate in ((101, 6.0), (102, 5.0), (103, 4.0))]
    rates += [(leaf, 104, 1.0) for leaf in (3, 4)] + [(leaf, spine, 1.0) for leaf in (5, 6) for spine in (105, 106)]
    in_turn = [flow(job, (1, h), (2, h), bps) for job, h, bps in (("a", 1, 24.0), ("b", 2, 20.0), ("c", 3, 16.0))]
    others = [flow("d", (3, 1), (4, 1), 2.0), *(flow("e", (5, h), (6, h), fifth / 2) for h in (1, 2))]
    problem = problem_of(fabric_of(rates), [*in_turn, *others], nic_bps=24.0)
    paths = {f.id: sorted(problem.candidates(f), key=lambda p: -problem.capacity_bps[p[0]]) for f in problem.flows}
    goal = {f.id: whole(paths[f.id][place]) for f, place in zip(problem.flows, (0, 1, 2, 0, 0, 1), strict=True)}
    start = {f.id: whole(paths[f.id][place]) for f, place in zip(problem.flows, (1, 2, 0, 0, 0, 0), strict=True)}
    assert vector(problem, start) == pytest.approx((5.0, 4.8, 16 / 6, 2.0, fifth))
    group = smallest_group(problem, start, goal, EXACT)
    assert (set(group.flows), group.smallest) == ({f.id for f in in_turn}, smallest)


# ---- successive requests


LIMITS = PlanLimits()
PROBLEM = problem_of(leaf_spine(4, 4), demo_flows())


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the generations for which the planner was called."""
    generations: list[int] = []

    def noted(problem: Problem, limits: PlanLimits) -> Plan | NoPlan:
        generations.append(problem.generation)
        return plan(problem, limits)

    monkeypatch.setattr(answers, "plan", noted)
    return generations


def asked(answers: Answers, request: SolvePlan) -> Planned:
    _, problem = answers.repair(request)
    return answers.plan(request, problem)


def test_what_has_not_changed_is_not_planned_again(calls: list[int]) -> None:
    answers, request = Answers(), SolvePlan(snapshot_of(PROBLEM, 1), LIMITS)
    first = asked(answers, request)
    second = asked(answers, replace(request, snapshot=replace(request.snapshot, generation=2)))
    assert isinstance(first.answer, Plan)
    assert second.answer == replace(first.answer, generation=2)
    assert second.decision
    assert calls == [1]
    before = request.snapshot
    others = [
        replace(before, routes=first.answer.routes),
        replace(before, flows=dict([*before.flows.items()][1:])),
        snapshot_of(problem_of(leaf_spine(4, 3), demo_flows()), 0),
        replace(before, capacity_bps={link: bps / 2 for link, bps in before.capacity_bps.items()}),
    ]
    requests = [replace(request, min_gain=0.5), replace(request, limits=PlanLimits(max_moves=3))]
    for generation, other in enumerate([*requests, *(replace(request, snapshot=of) for of in others)], start=3):
        found = asked(answers, replace(other, snapshot=replace(other.snapshot, generation=generation)))
        assert found.answer.generation == generation
        assert calls[-1] == generation


def test_a_plan_that_was_cut_short_is_tried_a_few_times(calls: list[int]) -> None:
    """The plan is optimal, but there is no time to look for one with fewer moves."""
    answers, limits = Answers(), PlanLimits(time_limit_s=1e-9)
    snapshot = snapshot_of(on_paths(PROBLEM), 0)
    for generation in range(1, TRIES + 3):
        found = asked(answers, SolvePlan(replace(snapshot, generation=generation), limits)).answer
        assert isinstance(found, Plan)
        assert (found.generation, found.cut_short) == (generation, True)
    assert calls == [*range(1, TRIES + 1)]
    for generation in (7, 8):
        asked(answers, SolvePlan(replace(snapshot, generation=generation), limits, anew=True))
    assert calls[TRIES:] == [7, 8], "an operator asks"
    asked(answers, SolvePlan(replace(snapshot, generation=9), limits))
    assert calls[-1] == 8


# ---- unchanged subflows of a plan keep their classes of source ports


A, B, C = ((LinkId(Dpid(leaf), PortNo(1)),) for leaf in (1, 2, 3))


def route(*paths: Path) -> Route:
    return tuple(PathShare(path, 1 / len(paths)) for path in paths)


@pytest.mark.parametrize(
    ("new", "running", "placed"),
    [
        (route(B, A), route(A, B), route(A, B)),
        (route(B, C), route(A, B), route(C, B)),
        (route(C, B, A), route(A, B), route(A, B, C)),
        (route(C, A), route(B, A, C), route(C, A)),
        (whole(B), route(A, B), whole(B)),
        (route(A, B), whole(B), route(B, A)),
        (route(B, A), None, route(B, A)),
    ],
)
def test_as_many_subflows_as_possible_stay_in_their_class(new: Route, running: Route | None, placed: Route) -> None:
    assert in_place(new, running) == placed


def test_shares_are_those_of_the_plan_and_a_route_that_stays_is_the_one_that_runs() -> None:
    running = (PathShare(A, 0.5), PathShare(B, 0.5))
    assert in_place((PathShare(B, 0.25), PathShare(A, 0.75)), running) == (PathShare(A, 0.75), PathShare(B, 0.25))
    assert in_place(route(A, B), running) is running


# ---- present traffic patterns


DRAWN = replace(EXACT, ecmp_draws=20)
GAIN = 0.02

OTHER = [flow("b", (1, 1), (2, 1), RATE), flow("b", (3, 1), (4, 1), RATE)]
HELD_BACK = [
    flow("a", (1, 2), (4, 2), [(0, RATE)]),
    flow("a", (1, 3), (5, 1), [(1, RATE)]),
    flow("a", (3, 2), (5, 2), [(1, RATE)]),
]
"""Flows of job a that collide with flows of job b on two spines, whatever the routes.

Phase 0 needs the flows of b on one spine, phase 1 on two spines."""
FREE = [
    flow("a", (1, 2), (4, 2), [(0, RATE)]),
    flow("a", (4, 2), (1, 2), [(0, RATE)]),
    flow("a", (1, 3), (5, 1), [(1, RATE)]),
]


def sending(problem: Problem, phase: int | None) -> Problem:
    """Return the problem while job a sends only in this phase; None: it sends in both phases."""
    idle = frozenset() if phase is None else frozenset({1 - phase})
    return problem.with_flows(replace(f, idle_phases=idle if f.job_id == "a" else f.idle_phases) for f in problem.flows)


def of(flows: Sequence[Flow]) -> Problem:
    return problem_of(leaf_spine(5, 2), [*OTHER, *flows])


def cycle(problem: Problem, phase: int | None, limits: PlanLimits = DRAWN) -> tuple[Problem, Planned]:
    problem = sending(problem, phase)
    planned, _ = solved(problem, limits, GAIN)
    return pinned(problem, planned.plan.routes) if planned.adopted else problem, planned


def worst_now(problem: Problem) -> float:
    shown = slowdowns(problem, 1)
    assert shown
    return max(shown.of_job.values())


def test_routes_for_the_present_pattern_are_taken_where_routes_for_all_hold_it_back() -> None:
    problem, planned = cycle(of(HELD_BACK), None)
    assert planned.plan.max_slowdown == 2.0, "nothing is better for both"
    problem, planned = cycle(problem, None)
    assert not planned.adopted, "a pattern that may end soon moves nothing"
    for phase in (0, 1, 0, 1):
        problem, planned = cycle(problem, phase)
        assert worst_now(problem) == 1.0
        assert planned.slowdowns
        assert max(planned.slowdowns.of_job.values()) == 1.0
        assert problem.in_force == {f.id for f in problem.flows}, "also of the flows that send nothing now"
        assert planned.decision
        said = planned.decision.reason.startswith(
            "planned for what jobs send now: worst slowdown falls from 2.00 to 1.00 (50.0%)"
        )
        assert said == (phase == 1), "the plan for both is the best one for the other"
        again, planned = cycle(problem, phase)
        assert (again, planned.adopted) == (problem, False)


def test_where_routes_for_all_patterns_are_as_good_nothing_moves_at_a_change() -> None:
    problem, planned = cycle(of(FREE), 0)
    assert planned.plan.max_slowdown == 1.0
    for phase in (1, 0, 1):
        problem, planned = cycle(problem, phase)
        assert not planned.adopted
        assert worst_now(problem) == 1.0


@pytest.mark.parametrize("share", [0.01, 0.04])
def test_it_is_planned_for_the_present_pattern_if_that_gains_what_moves_must(share: float) -> None:
    """Phase 0 is so small that a collision costs no more than ``share``."""
    small = [flow("a", (1, 2), (4, 2), [(0, share * RATE)]), *HELD_BACK[1:]]
    problem, planned = cycle(of(small), None)
    assert planned.plan.max_slowdown == pytest.approx(1 + share)
    problem, planned = cycle(problem, 0)
    assert planned.adopted == (share / (1 + share) > GAIN)


def test_moves_keep_to_the_cap() -> None:
    problem, _ = cycle(of(HELD_BACK), 0)
    _, planned = cycle(problem, 1, replace(DRAWN, max_moves=1))
    assert planned.plan.moves <= 1


def test_explain_is_about_what_the_job_sends_now() -> None:
    problem, _ = cycle(of(HELD_BACK), 0)
    fabric = leaf_spine(5, 2)
    network = Network(problem, fabric, fabric, DRAWN, FabricNames(fabric))
    found = analyse_job(AnalyseJob(network, JobId("a"), efficiency_measured=None))
    assert (found.slowdown, found.flows) == (1.0, 1)


@settings(max_examples=12)
@given(st.one_of(whole_problems(), split_problems(leaf_spines(), subflows=(1, 2, 3))), st.data())
def test_it_is_never_worse_now_than_routes_for_all_patterns_and_stays(problem: Problem, data: st.DataObject) -> None:
    phases = defaultdict[JobId, set[int]](set)
    for f in problem.flows:
        phases[f.job_id] |= {phase for phase, _ in f.demand_bps}
    idle = {
        job: frozenset(data.draw(st.sets(st.sampled_from(sorted(own)), max_size=len(own) - 1)))
        for job, own in sorted(phases.items())
    }
    problem = problem.with_flows(replace(f, idle_phases=idle[f.job_id]) for f in problem.flows)
    union = planned(problem, DRAWN)
    found, _ = solved(problem, DRAWN, GAIN)
    assert found.plan.routes.keys() == union.routes.keys()
    assert check(problem.now if found.for_now else problem, found.plan, None) == ()
    assert relative_gain(vector(problem.now, union.routes), vector(problem.now, found.plan.routes)) >= 0
    again, _ = solved(pinned(problem, found.plan.routes), DRAWN, GAIN)
    assert not again.adopted
