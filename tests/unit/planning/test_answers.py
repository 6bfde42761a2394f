"""Successive requests to plan, and routes that go on as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.fabric.topology import Dpid, LinkId, Path, PortNo
from controller.planning import answers
from controller.planning.answers import TRIES, Answers
from controller.planning.messages import SolvePlan
from controller.planning.plan import NoPlan, Plan, Planned, in_place
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits, Problem, Route, Subflow, whole
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

    monkeypatch.setattr(answers, "plan", noted)
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


# ---- unchanged subflows of a plan keep their classes of source ports


A, B, C = ((LinkId(Dpid(leaf), PortNo(1)),) for leaf in (1, 2, 3))


def route(*paths: Path) -> Route:
    return tuple(Subflow(path, 1 / len(paths)) for path in paths)


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
    running = (Subflow(A, 0.5), Subflow(B, 0.5))
    assert in_place((Subflow(B, 0.25), Subflow(A, 0.75)), running) == (Subflow(A, 0.75), Subflow(B, 0.25))
    assert in_place(route(A, B), running) is running
