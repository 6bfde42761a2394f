"""The comparison of routings, the claims of a plan, and whether a plan is worth its moves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.planning.answers import solved
from controller.planning.bounds import slowdown_bounds
from controller.planning.efficiency import EcmpSlowdown
from controller.planning.plan import (
    Draft,
    Drafts,
    GoalPlan,
    NoPlan,
    PlanTimes,
    answered,
    certified,
    compare,
    decide,
    slowdowns_proven,
)
from controller.planning.problem import PlanLimits, Problem, whole
from signalbox.errors import SignalboxError
from signalbox.jobs.spec import JobId
from tests.support.planning.fabrics import (
    RATE,
    across,
    fabric_of,
    flow,
    leaf_spine,
    link_between,
    on_paths,
    pinned,
    problem_of,
    two_leaves,
)
from tests.support.planning.plans import planned, repaired


@pytest.fixture
def problem() -> Problem:
    return two_leaves(2, "aa")


def a_draft(*slowdowns: float, moves: int = 0, solver: str = "greedy", own: float = 1.0) -> Draft:
    of_job = {JobId(f"job{n}"): slowdown for n, slowdown in enumerate(slowdowns)}
    return Draft(solver, {}, of_job, dict.fromkeys(of_job, own), of_job, moves)


@pytest.mark.parametrize("slowdown", [2.0, 2.0 * (1 + 1e-6)], ids=["equal", "equal but for rounding"])
def test_the_better_routing_has_smaller_slowdowns_from_the_worst_on_then_own_ones_then_fewer_moves(
    slowdown: float,
) -> None:
    assert compare(a_draft(1.0, slowdown, moves=9), a_draft(2.5, 1.0)) < 0
    assert compare(a_draft(slowdown, 1.5), a_draft(1.4, 2.0)) > 0
    assert compare(a_draft(slowdown, 1.0, moves=9, own=1.0), a_draft(1.0, 2.0, own=1.5)) < 0
    for moves, other in ((1, 2), (2, 1), (1, 1)):
        found = compare(a_draft(slowdown, 1.0, moves=moves), a_draft(1.0, 2.0, moves=other))
        assert (found > 0) - (found < 0) == moves - other


def test_an_answer_is_its_plan_and_the_reason_why_there_is_none_an_error(problem: Problem) -> None:
    answer = planned(problem)
    assert answered(answer) is answer
    with pytest.raises(SignalboxError, match="no plan for the demo: a flow is in the problem twice"):
        answered(NoPlan(1, "a flow is in the problem twice"), " for the demo")


def test_the_total_time_is_that_of_all_stages() -> None:
    assert PlanTimes(build_ms=1.0, solve_ms=2.0, check_ms=4.0).total_ms == 7.0


@pytest.mark.parametrize(
    ("slowdowns", "proven", "count"),
    [
        ((2.0, 1.5), (2.0, 1.5), 2),
        ((2.0, 1.5), (2.0, 1.0), 1),
        ((2.0, 1.0), (1.9, 1.0), 0),
        ((2.0 * (1 + 1e-6),), (2.0,), 1),
        ((), (), 0),
    ],
)
def test_slowdowns_are_proven_up_to_the_first_that_misses_its_bound(
    slowdowns: tuple[float, ...], proven: tuple[float, ...], count: int
) -> None:
    assert slowdowns_proven(slowdowns, proven) == count


@pytest.mark.parametrize(
    ("solver", "proven", "certificate"),
    [
        ("greedy", (2.0, 1.0), "optimal"),
        ("greedy", (2.0, 0.9), "gap"),
        ("cpsat", (1.9, 1.0), "gap"),
        ("greedy", (1.9, 1.0), "heuristic"),
        ("greedy", (2.0 * (1 + 1e-7), 1.0), "optimal"),
    ],
)
def test_a_plan_claims_what_is_proven(
    problem: Problem, solver: str, proven: tuple[float, ...], certificate: str
) -> None:
    """Solvers round, so a solver's bound may be slightly above the slowdown; the bound of a plan never is."""
    found, bound = a_draft(1.0, 2.0, solver=solver), min(proven[0], 2.0)
    certain = certified(problem, found, slowdown_bounds(problem), Drafts([found], proven), PlanTimes(0, 0, 0))
    assert (certain.certificate, certain.bound) == (certificate, bound)
    assert certain.gap == pytest.approx(2.0 / bound - 1)
    assert certain.unrouted == tuple(f.id for f in problem.flows)


# ---- whether a plan is worth its moves


@pytest.mark.parametrize(
    ("mean", "p95", "says"), [(1.0, 1.0, True), (1.01, 1.02, True), (1.01, 1.2, False), (1.5, 2.0, False)]
)
def test_pins_that_gain_nothing_are_called_that(problem: Problem, mean: float, p95: float, says: bool) -> None:
    found = replace(planned(problem), ecmp=EcmpSlowdown(mean, p95))
    decision = decide(problem, found, min_gain=0.02)
    nothing = ", though pinning gains nothing now: hashing is as good" if says else ""
    assert (decision.adopt, decision.reason) == (True, f"pins 2 flows: 2 not pinned yet{nothing}; no other flows moved")
    slow = replace(found, job_slowdown={**found.job_slowdown, JobId("slow"): 2.0}, ecmp=EcmpSlowdown(2.0, 2.0))
    assert "gains nothing" not in decide(problem, slow, min_gain=0.02).reason, "others gain"


def test_equal_and_better_routes_are_kept(problem: Problem) -> None:
    """A flow that does not leave its switch is never pinned, and no reason to adopt a plan."""
    local = problem_of(leaf_spine(2, 2), [*problem.flows, flow("b", (1, 8), (1, 9), RATE / 2)])
    good = planned(local)
    running = pinned(local, {f: route for f, route in good.routes.items() if route[0].path})
    decision = decide(running, planned(running), min_gain=0.02)
    assert (decision.adopt, decision.reason) == (False, "the running routes are as good as the plan")
    worse = replace(good, job_slowdown=dict.fromkeys(good.job_slowdown, 2.0))
    decision = decide(running, worse, min_gain=0.02)
    better = "the running routes are better: worst slowdown 1.00 instead of 2.00"
    assert (decision.adopt, decision.reason) == (False, better)


def test_a_lost_path_and_a_drained_one_are_reasons_that_have_their_names(problem: Problem) -> None:
    running = pinned(problem, planned(problem).routes)
    (path, *_), _ = (flow.current for flow in running.flows if flow.current)
    links = frozenset(path.path)
    lost = replace(running, paths=running.paths.without(links))
    for broken, why in ((lost, "1 whose path is lost"), (replace(lost, drained=links), "1 on drained links")):
        decision = decide(broken, planned(broken), min_gain=0.02)
        assert (decision.adopt, decision.reason) == (True, f"pins 1 flow: {why}; no other flows moved")


def test_a_gain_at_the_worst_slowdown_is_adopted_and_put_in_numbers(problem: Problem) -> None:
    crowded = on_paths(problem)
    decision = decide(crowded, planned(crowded), min_gain=0.02)
    assert decision.adopt
    assert decision.reason == "worst slowdown falls from 2.00 to 1.00 (50.0%) with 1 flow moved"


def test_a_gain_of_another_job_counts_when_the_worst_slowdown_stays() -> None:
    """No routes make job a faster, because its only cable carries two flows. Other routes make job b faster."""
    fabric = fabric_of([(1, 101, RATE), (2, 101, RATE), (3, 101, RATE), (3, 102, RATE), (4, 101, RATE), (4, 102, RATE)])
    running = on_paths(problem_of(fabric, [*across("aa"), *across("bb", 0.75 * RATE, 3, 4)]))
    decision = decide(running, planned(running), min_gain=0.02)
    assert decision.adopt
    assert decision.reason.startswith("slowdown number 2 from the worst falls from 1.50 to 1.00")


@pytest.mark.parametrize(("background", "moving"), [(0.015, False), (0.03, True)])
def test_a_job_that_comes_makes_no_other_flow_move_that_would_not_have_been_moved(
    background: float, moving: bool
) -> None:
    """A pinned flow runs over a link that loses a share to background. A gain of 1.5 % is not worth a move."""
    fabric = leaf_spine(4, 2)
    link = link_between(fabric, 1, 101)
    flows = [*across("a"), *across("b", RATE, 3, 4)]
    problem = problem_of(fabric, flows, background={link: background * RATE})
    through = next(path for path in problem.candidates(flows[0]) if path[0] == link)
    problem = pinned(problem, {flows[0].id: whole(through)})
    alone = problem.with_flows(problem.flows[:1])
    decision = decide(alone, planned(alone), 0.02)
    assert decision.adopt is moving
    assert moving or decision.reason.startswith("not worth it: worst slowdown falls from 1.02 to 1.00 (1.5%)")
    decision = decide(problem, planned(problem), 0.02, repaired(problem))
    assert (decision.adopt, decision.moving) == (True, moving)
    assert decision.reason.startswith("pins 1 flow: 1 not pinned yet")
    assert "; other flows: " in decision.reason
    assert ("not worth it" in decision.reason) is not moving
    adopted, _ = solved(problem, PlanLimits(max_moves=8), 0.02)
    assert (adopted.plan.moves, adopted.adopted) == (int(moving), True)


def test_a_plan_that_leads_to_a_goal_is_judged_by_the_goal(problem: Problem) -> None:
    crowded = on_paths(problem)
    aim = planned(crowded)
    step = replace(aim, job_slowdown={JobId("a"): 1.99})
    goal = GoalPlan(aim, crowded, moves=3, held=False)
    assert not decide(crowded, step, 0.02).adopt
    decision = decide(crowded, step, 0.02, goal=goal)
    assert decision.adopt
    assert decision.reason == (
        "worst slowdown falls from 2.00 to 1.99 (0.5%) with 1 flow moved, and then worst slowdown falls from 1.99 to "
        "1.00 (49.7%) with a further 3 flows moved"
    )
    slowdowns = {JobId("a"): 2.0, JobId("b"): 1.4}
    blocked = GoalPlan(replace(aim, job_slowdown=slowdowns), crowded, 8, False, tuple(aim.routes)[:2])
    low = replace(aim, job_slowdown=slowdowns | {JobId("b"): 1.5}, moves=0)
    assert decide(crowded, low, 0.02, stay=low, goal=blocked).reason.startswith(
        "slowdown number 2 from the worst could fall from 1.50 to 1.40 (6.7%), but no moves within planning.max_moves "
        "were found that lower it: as far as known, 2 of 8 flows would have to move together ("
    )
    nearly = pinned(problem, aim.routes)
    assert not decide(nearly, aim, 0.02, goal=replace(goal, moves=0)).adopt
    assert decide(nearly, aim, 0.02, goal=replace(goal, moves=0, held=True)).adopt, "what was begun is finished"
