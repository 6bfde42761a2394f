"""When a plan is worth its moves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.fabric.topology import PortNo
from controller.planning.decision import decide
from controller.planning.plan import Plan
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits, Problem, whole
from tests.support.planning.fabrics import RATE, fabric_of, flow, leaf_spine, link_between, pinned, problem_of


def planned(problem: Problem) -> Plan:
    answer = plan(problem, PlanLimits())
    assert isinstance(answer, Plan)
    return answer


@pytest.fixture
def problem() -> Problem:
    return problem_of(leaf_spine(2, 2), [flow("a", (1, h), (2, h), RATE) for h in (1, 2)])


def test_flows_that_were_never_pinned_are_a_reason(problem: Problem) -> None:
    decision = decide(problem, planned(problem), min_gain=0.02)
    assert decision.adopt
    assert decision.reason == "pins 2 flows: 2 not pinned yet; 0 flows moved besides"


def test_flows_that_do_not_leave_their_switch_are_never_pinned_and_no_reason(problem: Problem) -> None:
    local = problem_of(leaf_spine(2, 2), [*problem.flows, flow("b", (1, 8), (1, 9), RATE / 2)])
    good = planned(local)
    running = pinned(local, {f: route for f, route in good.routes.items() if route[0].path})
    assert decide(running, planned(running), min_gain=0.02).reason == "the running routes are as good"


def test_a_path_that_has_gone_is_a_reason(problem: Problem) -> None:
    running = pinned(problem, planned(problem).routes)
    lost = whole(
        tuple(link._replace(port=PortNo(99)) for piece in running.flows[0].current or () for link in piece.path)
    )
    broken = replace(running, flows=(replace(running.flows[0], current=lost), running.flows[1]))
    decision = decide(broken, planned(broken), min_gain=0.02)
    assert decision.adopt
    assert "1 whose path has gone" in decision.reason


def test_equal_routes_are_kept(problem: Problem) -> None:
    running = pinned(problem, planned(problem).routes)
    decision = decide(running, planned(running), min_gain=0.02)
    assert (decision.adopt, decision.reason) == (False, "the running routes are as good")


def test_a_gain_at_the_worst_level_is_adopted_and_put_in_numbers(problem: Problem) -> None:
    crowded = pinned(problem, {f.id: whole(problem.candidates(f)[0]) for f in problem.flows})
    decision = decide(crowded, planned(crowded), min_gain=0.02)
    assert decision.adopt
    assert decision.reason == "worst level falls from 2.00 to 1.00 (50.0%) with 1 flow moved"


@pytest.mark.parametrize(("background", "adopt"), [(0.015, False), (0.03, True)])
def test_small_gains_are_not_worth_a_move(background: float, adopt: bool) -> None:
    fabric = leaf_spine(2, 2)
    only = flow("a", (1, 1), (2, 1), RATE)
    calm = problem_of(fabric, [only])
    slow = problem_of(fabric, [only], background={link_between(fabric, 1, 101): background * RATE})
    through_101 = next(path for path in calm.candidates(only) if path[0] == link_between(fabric, 1, 101))
    decision = decide(
        pinned(slow, {only.id: whole(through_101)}), planned(pinned(slow, {only.id: whole(through_101)})), 0.02
    )
    assert decision.adopt is adopt
    assert adopt or decision.reason.startswith("not worth it: worst level falls from 1.02 to 1.00 (1.5%)")


def test_a_gain_of_another_job_counts_when_the_worst_level_stays() -> None:
    """Job a cannot be helped: its only cable carries two flows. Job b can."""
    fabric = fabric_of([(1, 101, RATE), (2, 101, RATE), (3, 101, RATE), (3, 102, RATE), (4, 101, RATE), (4, 102, RATE)])
    flows = [flow("a", (1, h), (2, h), RATE) for h in (1, 2)] + [
        flow("b", (3, 1), (4, 1), 0.75 * RATE),
        flow("b", (3, 2), (4, 2), 0.75 * RATE),
    ]
    problem = problem_of(fabric, flows)
    running = pinned(problem, {f.id: whole(problem.candidates(f)[0]) for f in flows})
    decision = decide(running, planned(running), min_gain=0.02)
    assert decision.adopt
    assert decision.reason.startswith("level number 2 from the worst falls from 1.50 to 1.00")


def test_a_worse_plan_is_refused(problem: Problem) -> None:
    good = planned(problem)
    running = pinned(problem, good.routes)
    worse = replace(good, job_level=dict.fromkeys(good.job_level, 2.0))
    decision = decide(running, worse, min_gain=0.02)
    assert (decision.adopt, decision.reason) == (
        False,
        "the running routes are better: worst level 1.00 instead of 2.00",
    )
