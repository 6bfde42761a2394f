"""Slots and classes with their proof: the checker recomputes what is guaranteed, and refuses what does not follow."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from controller.planning import verify
from controller.planning.analysis.job import prove_routes
from controller.planning.analysis.messages import FabricNames, Network, ProveRoutes
from controller.planning.certificate import certificate
from controller.planning.contention.case import sharing
from controller.planning.contention.circles import NO_CIRCLE, circles
from controller.planning.contention.fluid import Choice, guaranteed_s
from controller.planning.contention.proof import with_sharing
from controller.planning.plan import Sharing
from controller.planning.problem import PhaseTime, PlanLimits, Problem, SharingRules, Timing
from controller.planning.verify import Guarantees, TimedJob
from signalbox.errors import NotKnownYet
from signalbox.jobs.spec import JobId
from signalbox.words import SharingObjective
from tests.support.planning.fabrics import RATE, across, flow, leaf_spine, pinned, problem_of
from tests.support.planning.plans import planned
from tests.support.planning.timed_jobs import random_case

FABRIC = leaf_spine(2, 1)
HALF = Timing((PhaseTime(0, 1.0, 1.0),), keeps_slots=True)
BATCH = Timing((PhaseTime(0, 1.0, 1.0),), work=0.01)
A, B, C = map(JobId, "abc")
ONLY_SLOTS = SharingRules()
BOTH = SharingRules(classes=2, objective=SharingObjective.GPU_SECONDS, max_stretch=0.3)


def test_the_checker_agrees_with_the_planner_about_random_slots_and_classes() -> None:
    kept = 0
    for seed in range(120):
        chance = random.Random(seed)
        case = random_case(seed, floor=chance.choice((0.0, 0.1, 0.2)))
        possible = [*circles(case, 24), NO_CIRCLE]
        for circle in chance.choices(possible, k=5):
            choices = {}
            for number, job in enumerate(case.jobs):
                way, rank = chance.randrange(len(job.ways)), chance.choice((0, 0, 0, 1, 2))
                choices[number] = Choice(way, rank)
                if places := circle.places(number):
                    choices[number] = Choice(way, rank, circle.start_s(chance.choice(places)), circle.turns[number])
            jobs = [
                TimedJob(
                    [phase.compute_s for phase in job.phases],
                    [phase.ideal_s for phase in job.phases],
                    [dict(demand) for demand in job.ways[choices[number].way]],
                    choices[number].rank,
                    -1 if choices[number].start_s is None else 0,
                    circle.period_s,
                    choices[number].start_s or 0.0,
                    choices[number].turns,
                )
                for number, job in enumerate(case.jobs)
            ]
            checker = Guarantees(jobs, case.floor)
            for number, most_s in guaranteed_s(case, choices, circle.period_s).items():
                assert checker.iteration(number) == pytest.approx(most_s, rel=1e-6), (seed, number)
                kept += choices[number].start_s is not None and most_s < math.inf
    assert kept > 100


def proof(problem: Problem, found: Sharing | None) -> Any:
    network = Network(problem, FABRIC, FABRIC, PlanLimits(deterministic=True), FabricNames(FABRIC), sharing=found)
    return json.loads(prove_routes(ProveRoutes(network)).document)


def routed(jobs: str) -> Problem:
    problem = problem_of(FABRIC, across(jobs))
    return pinned(problem, planned(problem).routes)


def shared(problem: Problem, timings: dict[JobId, Timing], rules: SharingRules) -> Sharing:
    found = sharing(problem, planned(problem).routes, timings, rules)
    assert found
    return found


@pytest.fixture
def slots() -> Any:
    problem = routed("ab")
    return proof(problem, shared(problem, {A: HALF, B: HALF}, ONLY_SLOTS))


@pytest.fixture
def classes() -> Any:
    problem = routed("abc")
    return proof(problem, shared(problem, {A: HALF, B: HALF, C: BATCH}, BOTH))


def refusal(plan: Any) -> str:
    with pytest.raises(ValueError) as refused:
        verify.verify(plan)
    return str(refused.value)


def test_slots_are_proven_from_the_file_alone(slots: Any) -> None:
    said, unchecked = verify.verify(slots)
    assert said.endswith("worst slowdown of an iteration 1, at least 1 on these routes and 1 on any routes")
    assert unchecked == 0


def test_a_bound_for_any_routes_has_its_cut_in_the_file() -> None:
    problem, busy = routed("ab"), Timing((PhaseTime(0, 0.5, 1.0),), keeps_slots=True)
    form = proof(problem, shared(problem, {A: busy, B: busy}, ONLY_SLOTS))
    assert form["sharing"]["bound"] / form["denominator"] == pytest.approx(4 / 3)
    verify.verify(form)
    form["cuts"] = []
    form["proofs"] = []
    form["proven"] = 0
    assert "the cuts show only that the value is at least 1," in refusal(form)


def test_a_value_in_gpu_seconds_is_a_part_of_all_of_them(classes: Any) -> None:
    said, _ = verify.verify(classes)
    assert "part of the GPU-seconds that sharing costs" in said
    assert [job["class"] for job in classes["sharing"]["jobs"]] == [1, 1, 2]


def test_jobs_without_known_times_may_always_send() -> None:
    problem = routed("ab")
    form = proof(problem, shared(problem, {A: HALF}, ONLY_SLOTS))
    assert [job["phases"] for job in form["sharing"]["jobs"]] == [[[0, 10**12, 10**12]], []]
    form["sharing"]["jobs"][0]["guaranteed"] -= 10**9
    assert refusal(form) == "an iteration of job a may take 3 s, but the plan claims at most 2.999 s"


def change(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def to(job: dict[str, Any]) -> None:
        job[key] = value

    return to


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        (change("slot", [0, 10**11, 1]), "job a cannot keep its slots"),
        (change("guaranteed", 19 * 10**11), "an iteration of job a may take 2 s, but the plan claims at most 1.9 s"),
        (change("guaranteed", 4 * 10**12), "an iteration of job a takes up to 4 s, but its promise is 3 s"),
        (change("phases", [[1, 10**12, 10**12]]), "the times of job a lack a phase"),
        (change("phases", [[0, -1, 10**12]]), "a time of job a is negative"),
        (change("slot", [0, 0, 0]), "the weight or slot of job a is not valid"),
        (change("phases", [[0, 10**12, 15 * 10**11]]), "job a cannot keep its slots"),
    ],
)
def test_a_file_whose_jobs_say_something_else_is_refused(
    slots: Any, to: Callable[[dict[str, Any]], None], expected: str
) -> None:
    to(slots["sharing"]["jobs"][0])
    assert expected in refusal(slots)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("value", 2 * 10**12, "the guaranteed iterations have the value 1, but the plan claims 2"),
        ("bound", 11 * 10**11, "the cuts show only that the value is at least 1, but the plan claims 1.1"),
        ("objective", "best", "the objective of the sharing is not known"),
        ("floor", 10**12, "the floor of the sharing is not from 0 to 1"),
        ("periods", [19 * 10**11], "job a cannot keep its slots"),
        ("jobs", [], "the sharing does not have the jobs of the plan"),
    ],
)
def test_a_file_that_claims_something_else_is_refused(slots: Any, key: str, value: Any, expected: str) -> None:
    slots["sharing"][key] = value
    assert expected in refusal(slots)


def test_a_class_too_high_is_refused(classes: Any) -> None:
    classes["sharing"]["jobs"][2]["class"] = 1
    assert "job a cannot keep its slots" in refusal(classes)


def test_slots_for_other_traffic_are_not_proven_until_the_next_plan() -> None:
    problem = routed("ab")
    found = shared(problem, {A: HALF, B: HALF}, ONLY_SLOTS)
    more = routed("abc")
    with pytest.raises(NotKnownYet, match="not planned for the present traffic yet"):
        proof(more, found)
    assert "sharing" not in proof(more, None)


@pytest.mark.parametrize("objective", [*SharingObjective])
def test_random_plans_are_proven_with_at_least_the_bound_of_the_planner(objective: SharingObjective) -> None:
    bounds = []
    for seed in range(8):
        chance = random.Random(seed)
        fabric, flows, timings = leaf_spine(3, chance.randint(1, 2)), [], dict[JobId, Timing]()
        for number, job in enumerate("abcd"):
            phases = range(chance.choice((1, 2)))
            src, dst = chance.sample((1, 2, 3), 2)
            demand = [(phase, RATE * chance.choice((0.5, 1.0))) for phase in phases]
            flows.append(flow(job, (src, number), (dst, number), demand))
            times = [PhaseTime(phase, chance.choice((0.5, 1.0, 2.0)), chance.choice((0.5, 1.0))) for phase in phases]
            if chance.random() < 0.8:
                work, weight = chance.uniform(1, 10), chance.choice((0.5, 1.0))
                timings[JobId(job)] = Timing(tuple(times), 1, work, weight, chance.random() < 0.8)
        problem = problem_of(fabric, flows)
        plan = planned(problem)
        found = sharing(problem, plan.routes, timings, SharingRules(chance.choice((0, 2)), 0.1, objective, 0.3))
        if found is None:  # no jobs share a link that they can overfill
            continue
        form = with_sharing(certificate(problem, plan, FabricNames(fabric)), found)
        verify.verify(json.loads(json.dumps(form)))
        work = sum(each.work / sum(part[1] + part[2] for part in each.phases) for each in timings.values())
        unit = work if objective is SharingObjective.GPU_SECONDS else 1.0
        bounds.append((form["sharing"]["bound"] / form["denominator"] * unit, found.bound))
    assert len(bounds) > 4
    assert all(proven >= planner * (1 - 1e-6) for proven, planner in bounds)
