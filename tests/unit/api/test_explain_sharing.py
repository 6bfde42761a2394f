"""Sentences of ``explain`` about a job that shares links: what path, slot and class change, and for whom."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from controller.api.convert_explain import explain_message
from controller.api.explain_sharing import sharing_sentences
from controller.planning.analysis.messages import JobAnalysis
from controller.planning.contention.case import sharing
from controller.planning.problem import PhaseTime, Problem, SharingRules, Timing
from controller.status import ExtensionStatus, JobTiming
from signalbox.jobs.spec import JobId
from signalbox.words import SharingObjective
from tests.support.planning.analyses import FINE
from tests.support.planning.fabrics import RATE, across, leaf_spine, on_paths, problem_of, two_leaves
from tests.support.planning.plans import planned

A, B, C = map(JobId, "abc")
HALF = Timing((PhaseTime(0, 1.0, 1.0),), keeps_slots=True)
BUSY = Timing((PhaseTime(0, 0.5, 1.5),), keeps_slots=True)
BATCH = Timing((PhaseTime(0, 1.0, 1.0),), work=0.01)
ONE_CLASS = SharingRules()
TWO_CLASSES = SharingRules(classes=2, objective=SharingObjective.GPU_SECONDS, max_stretch=0.3)
FREE = JobTiming(
    state="free", reason="it does not announce keeps_slots", traffic_class=1, period_s=None, until_communication_s=None,
    jitter=None, drift_s=None, waited_s=0.0, guaranteed_s=None, promised_s=None, slots=(),
)  # fmt: skip
NO_CHOICE = "No flow of the job has a choice of paths."


def said(
    job: JobId,
    problem: Problem,
    timings: Mapping[JobId, Timing],
    rules: SharingRules = ONE_CLASS,
    found: JobAnalysis = FINE,
    spines: int = 1,
) -> list[str]:
    shared = sharing(problem, {flow.id: flow.current for flow in problem.flows if flow.current}, timings, rules)
    extension = ExtensionStatus(timings={C: FREE}, sharing=shared)
    return [*sharing_sentences(replace(found, job_id=job), extension, leaf_spine(2, spines))]


def routed(problem: Problem) -> Problem:
    routes = planned(problem).routes
    return replace(problem, flows=tuple(replace(flow, current=routes[flow.id]) for flow in problem.flows))


def test_a_slot_helps_its_job_and_the_other_one() -> None:
    assert said(A, routed(two_leaves(1, "ab")), {A: HALF, B: HALF}) == [
        "On its paths, an iteration of job 'a' takes at most 2 s, 1.00 times as long as on an idle fabric, and at most "
        "3 s without slots and classes.",
        NO_CHOICE,
        "Its slot helps it: without slots, an iteration takes at most 3 s.",
        "Slots help job 'b' (2 s instead of 3 s).",
    ]


def test_classes_cost_the_job_that_goes_last() -> None:
    problem, timings = routed(two_leaves(1, "abc")), {A: HALF, B: HALF, C: BATCH}
    first, last = (said(job, problem, timings, TWO_CLASSES) for job in (A, C))
    assert "Class 1 helps it: without classes, an iteration takes at most 4 s." in first
    assert "Classes slow job 'c' (11 s instead of 4 s)." in first
    assert "Class 2 slows it: without classes, an iteration takes at most 4 s." in last
    assert "It has no slot: it does not announce keeps_slots." in last
    assert [each for each in last if each.startswith("Classes help job 'a' (")]


def test_jobs_that_send_more_than_a_leaf_carries_are_only_helped_by_other_ranks() -> None:
    *_, crowded = said(A, routed(two_leaves(2, "aabb")), {A: BUSY, B: BUSY}, spines=2)
    assert crowded == (
        "On any paths, jobs 'a' and 'b' send 1.50 times what the 2 links out of s1 can carry, even if they take turns. "
        "Slots and classes only decide which of these jobs waits. Only moving ranks to other leaves would help them "
        "all."
    )


def test_jobs_that_meet_on_one_of_two_links_are_helped_by_other_paths() -> None:
    *_, crowded = said(A, on_paths(two_leaves(2, "ab"), [0, 0]), {A: BUSY, B: BUSY}, spines=2)
    assert crowded.startswith("Jobs 'a' and 'b' send 1.50 times what s1:1>s101 can carry, even if they take turns.")
    assert crowded.endswith("Other paths, or ranks on other leaves, would help them all.")


@pytest.mark.parametrize(
    ("least", "expected"),
    [
        (1.0, "Slots and classes cannot help there, but other paths could."),
        (2.0, "No paths, slots or classes avoid this: only moving its ranks to other hosts would help."),
    ],
)
def test_a_job_that_overfills_a_link_by_itself_is_not_helped_by_slots(least: float, expected: str) -> None:
    problem = on_paths(two_leaves(2, "aab"), [0, 0, 0])
    found = said(A, problem, {A: HALF, B: HALF}, found=replace(FINE, least_slowdown=least), spines=2)
    assert f"Even if no other job sent, an iteration would take 3 s: its own flows overfill a link. {expected}" in found


def test_only_the_jobs_that_change_most_are_named() -> None:
    jobs, short = "abcdef", Timing((PhaseTime(0, 5.0, 0.9),), keeps_slots=True)
    *_, last = said(A, routed(two_leaves(1, jobs)), dict.fromkeys(map(JobId, jobs), short))
    assert last.startswith("Slots help job 'b' (")
    assert last.endswith(") and 1 more job.")


def test_paths_help_where_hashed_ones_are_worse() -> None:
    problem, timings = routed(two_leaves(1, "ab")), {A: HALF, B: HALF}
    better = said(A, problem, timings, found=replace(FINE, slowdown=1.5, hashed_slowdown=1.75))
    assert "Its paths help: if all jobs send at once, its slowdown is 1.50, and 1.75 if hashed." in better
    equal = said(A, problem, timings, found=replace(FINE, slowdown=1.5, hashed_slowdown=1.5))
    assert "Its paths are no better than hashed ones." in equal


def test_a_job_without_known_times_may_send_at_any_time() -> None:
    problem = problem_of(leaf_spine(2, 1), across("ac", RATE))
    expected = "The plan of slots and classes assumes that job 'c' sends at any time: it does not announce keeps_slots."
    assert said(C, routed(problem), {A: HALF}) == [expected]


def test_nothing_is_said_of_a_job_that_shares_no_full_link() -> None:
    assert said(A, routed(two_leaves(2, "ab")), {A: HALF, B: HALF}) == []
    assert said(C, routed(two_leaves(1, "ab")), {A: HALF, B: HALF}) == []


def test_the_sentences_follow_all_others() -> None:
    assert [*explain_message(FINE, ("Last.",)).answer] == [*explain_message(FINE).answer, "Last."]
