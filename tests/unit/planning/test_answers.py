"""Successive requests to plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.planning import goal_plan
from controller.planning.answers import TRIES, Answers
from controller.planning.messages import Planned, SolvePlan
from controller.planning.plan import NoPlan, Plan
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits, Problem
from tests.support.planning.fabrics import demo_flows, leaf_spine, problem_of
from tests.support.planning.snapshots import snapshot_of

LIMITS = PlanLimits()
PROBLEM = problem_of(leaf_spine(4, 4), demo_flows())


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the generations for which the planner was called."""
    generations: list[int] = []

    def noted(problem: Problem, limits: PlanLimits) -> Plan | NoPlan:
        generations.append(problem.generation)
        return plan(problem, limits)

    monkeypatch.setattr(goal_plan, "plan", noted)
    return generations


def asked(answers: Answers, request: SolvePlan) -> Planned:
    _, problem = answers.repair(request)
    return answers.plan(request, problem)


def test_what_has_not_changed_is_not_planned_again(planned: list[int]) -> None:
    answers, request = Answers(), SolvePlan(snapshot_of(PROBLEM, 1), LIMITS)
    first = asked(answers, request)
    second = asked(answers, replace(request, snapshot=replace(request.snapshot, generation=2)))
    assert isinstance(first.answer, Plan)
    assert second.answer == replace(first.answer, generation=2)
    assert second.decision
    assert planned == [1]
    for generation, other in enumerate(
        (
            replace(request, min_gain=0.5),
            replace(request, limits=PlanLimits(max_moves=3)),
            replace(request, snapshot=replace(request.snapshot, routes=first.answer.routes)),
            replace(request, snapshot=replace(request.snapshot, flows=dict([*request.snapshot.flows.items()][1:]))),
            replace(request, snapshot=snapshot_of(problem_of(leaf_spine(4, 3), demo_flows()), 0)),
            replace(
                request,
                snapshot=replace(
                    request.snapshot,
                    capacity_bps={link: bps / 2 for link, bps in request.snapshot.capacity_bps.items()},
                ),
            ),
        ),
        start=3,
    ):
        found = asked(answers, replace(other, snapshot=replace(other.snapshot, generation=generation)))
        assert found.answer.generation == generation
        assert planned[-1] == generation


def test_a_plan_that_was_cut_short_is_tried_a_few_times(planned: list[int]) -> None:
    answers, limits = Answers(), PlanLimits(time_limit_s=1e-9)
    snapshot = snapshot_of(PROBLEM, 0)
    for generation in range(1, TRIES + 3):
        found = asked(answers, SolvePlan(replace(snapshot, generation=generation), limits)).answer
        assert isinstance(found, Plan)
        assert (found.generation, found.cut_short) == (generation, True)
    assert planned == [*range(1, TRIES + 1)]
    for generation in (7, 8):
        asked(answers, SolvePlan(replace(snapshot, generation=generation), limits, anew=True))
    assert planned[TRIES:] == [7, 8], "an operator asks"
    asked(answers, SolvePlan(replace(snapshot, generation=9), limits))
    assert planned[-1] == 8
