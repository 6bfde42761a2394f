"""Jobs that share links under a plan get slots and classes; a plan without timings is as before."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace

import pytest

from controller.planning.answers import Answers
from controller.planning.contention.case import cases_of, sharing
from controller.planning.messages import SolvePlan
from controller.planning.plan import Planned, Sharing
from controller.planning.problem import PhaseTime, Problem, SharingRules, Timing
from signalbox.jobs.spec import JobId
from signalbox.words import SharingObjective
from tests.support.planning.fabrics import RATE, across, flow, leaf_spine, problem_of, two_leaves
from tests.support.planning.plans import EXACT, planned, snapshot_of

ONE_CLASS = SharingRules()
HALF = Timing((PhaseTime(0, 1.0, 1.0),), keeps_slots=True)


def timings(jobs: str, timing: Timing = HALF) -> dict[JobId, Timing]:
    return {JobId(job): timing for job in jobs}


def shared(problem: Problem, of: Mapping[JobId, Timing], rules: SharingRules = ONE_CLASS) -> Sharing:
    found = sharing(problem, planned(problem).routes, of, rules)
    assert found
    return found


def test_two_jobs_that_send_half_of_the_time_take_turns() -> None:
    found = shared(two_leaves(1, "ab"), timings("ab"))
    (circle,) = found.circles
    assert circle.period_s == pytest.approx(2.0)
    starts_s = sorted(slots[0].start_s for slots in circle.slots.values())
    assert starts_s == pytest.approx([0.0, 1.0])
    assert [slot.length_s for slots in circle.slots.values() for slot in slots] == pytest.approx([1.0, 1.0])
    assert found.guaranteed_s == pytest.approx(dict.fromkeys(timings("ab"), 2.0))
    assert found.promise_s == pytest.approx(dict.fromkeys(timings("ab"), 3.0))
    assert (found.value, found.bound, found.searched) == pytest.approx((1.0, 1.0, 1.0))
    assert found.class_of == {}
    assert found.without_slots_s == found.promise_s
    assert found.without_classes_s == found.guaranteed_s == pytest.approx(found.alone_s)
    (links,) = found.links
    assert (len(links.links), [*links.jobs]) == (2, ["a", "b"])
    assert links.average == pytest.approx(1.0)
    assert found.crowded == ()


def test_a_short_job_has_several_slots_in_the_period_of_a_long_one() -> None:
    long = Timing((PhaseTime(0, 1.25, 0.75),), keeps_slots=True)
    short = Timing((PhaseTime(0, 0.75, 0.25),), keeps_slots=True)
    found = shared(two_leaves(1, "ab"), {JobId("a"): long, JobId("b"): short})
    (circle,) = found.circles
    assert circle.turns == {"a": 1, "b": 2}
    assert (circle.every_s(JobId("a")), circle.every_s(JobId("b"))) == pytest.approx((2.0, 1.0))


def test_a_job_that_does_not_keep_slots_gets_none_and_nor_does_a_job_beside_it() -> None:
    found = shared(two_leaves(1, "ab"), {JobId("a"): HALF, JobId("b"): replace(HALF, keeps_slots=False)})
    assert found.circles == ()
    assert found.guaranteed_s == found.promise_s


def test_a_job_without_timing_may_send_at_any_time() -> None:
    found = shared(two_leaves(1, "ab"), timings("a"))
    assert found.circles == ()
    assert found.guaranteed_s == pytest.approx({"a": 3.0})


def test_a_timing_that_lacks_a_phase_of_the_job_counts_as_none() -> None:
    problem = problem_of(leaf_spine(2, 1), [*across("a", ((0, RATE), (1, RATE))), flow("b", (1, 2), (2, 2), RATE)])
    found = shared(problem, timings("ab"))
    assert found.guaranteed_s == pytest.approx({"b": 3.0})


def test_jobs_without_a_common_link_are_not_cases() -> None:
    problem = two_leaves(2, "ab")
    assert cases_of(problem, planned(problem).routes, timings("ab"), 0.1) == []
    assert sharing(problem, planned(problem).routes, timings("ab"), SharingRules()) is None


def test_jobs_on_separate_links_are_separate_cases_and_links_with_equal_loads_count_once() -> None:
    flows = [*across("ab"), *across("cd", src=3, dst=4)]
    problem = problem_of(leaf_spine(4, 1), flows)
    cases = cases_of(problem, planned(problem).routes, timings("abcd"), 0.1)
    assert sorted(sorted(job.id for job in case.jobs) for case in cases) == [["a", "b"], ["c", "d"]]
    assert [case.capacity_bps for case in cases] == [(1.0,), (1.0,)]
    assert len(shared(problem, timings("abcd")).circles) == 2


def test_an_irregular_job_goes_last_where_this_helps_the_regular_ones_and_keeps_its_promise() -> None:
    """The floor makes the iterations of the others longer than their slots allow without a stretch."""
    rules = SharingRules(classes=2, floor=0.1, objective=SharingObjective.GPU_SECONDS, max_stretch=0.3)
    small = Timing((PhaseTime(0, 1.0, 1.0),), work=0.01)
    found = shared(two_leaves(1, "abc"), {**timings("ab"), JobId("c"): small}, rules)
    assert found.class_of == {"a": 1, "b": 1, "c": 2}
    assert found.guaranteed_s[JobId("a")] < found.promise_s[JobId("a")]
    assert found.value >= found.searched >= found.bound


@pytest.mark.parametrize("objective", [*SharingObjective])
def test_the_value_of_jobs_whose_sharing_no_plan_can_avoid_meets_the_bound(objective: SharingObjective) -> None:
    busy = Timing((PhaseTime(0, 0.0, 1.0),), keeps_slots=True)
    found = shared(two_leaves(1, "ab"), timings("ab", busy), SharingRules(objective=objective))
    expected = {"worst": 2.0, "weighted": 2.0, "gpu-seconds": 1.0}[objective.value]
    assert (found.value, found.bound) == pytest.approx((expected, expected))


def test_links_with_the_same_jobs_are_listed_together_and_the_fullest_is_first() -> None:
    flows = [*across("aab"), *across("bc", src=3)]
    found = shared(problem_of(leaf_spine(3, 1), flows), timings("ab"))
    assert [("".join(links.jobs), len(links.links)) for links in found.links] == [
        *(("ab", 2), ("abc", 1), ("ac", 1), ("bc", 1))
    ]
    averages = [links.average for links in found.links]
    assert averages == pytest.approx([1.5, 2.0, 0.5, 0.5]), "jobs without a timing do not count"
    assert ["".join(leaf.jobs) for leaf in found.crowded] == ["ab", "ab"]
    assert [leaf.average for leaf in found.crowded] == pytest.approx([1.5, 2.0])
    assert found.alone_s == pytest.approx({"a": 3.0, "b": 3.0})


# ---- answers


def answered(of: Mapping[JobId, Timing], answers: Answers, problem: Problem) -> Planned:
    snapshot = replace(snapshot_of(problem, 1, {}), timings=of)
    request = SolvePlan(snapshot, replace(EXACT, ecmp_draws=0))
    return answers.plan(request, answers.repair(request)[1])


def test_only_a_plan_with_timings_has_slots_and_it_is_kept_when_timings_change() -> None:
    problem, answers = two_leaves(1, "ab"), Answers()
    before = answered({}, answers, problem)
    after = answered(timings("ab"), answers, problem)
    longer = answered(timings("ab", Timing((PhaseTime(0, 2.0, 2.0),), keeps_slots=True)), answers, problem)
    assert before.sharing is None
    assert after.sharing
    assert longer.sharing
    assert (after.sharing.circles[0].period_s, longer.sharing.circles[0].period_s) == pytest.approx((2.0, 4.0))
    assert before == replace(after, sharing=None) == replace(longer, sharing=None)
    assert answered({}, answers, problem) == before


def test_a_planner_without_timings_does_not_load_the_search() -> None:
    code = "import sys, controller.planning.process; print([m for m in sys.modules if 'contention' in m])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_failed_search_leaves_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("controller.planning.contention.case.sharing", fail)
    found = answered(timings("ab"), Answers(), two_leaves(1, "ab"))
    assert found.sharing is None
    assert found.plan.routes
