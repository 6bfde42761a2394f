"""Leads of jobs on a circle, and the closed loop of rhythms, plans and waits."""

from dataclasses import replace
from functools import cache
from statistics import fmean

import pytest

from controller.contention.keeping import PATIENCE, Member, leads_s, same_circle
from controller.contention.rhythm import KEPT, USUAL, WINDOW, Mean, Rhythm
from controller.planning.plan import Circle, Slot
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId
from tests.support.slot_simulation import HALF, LOOP, Run, Shape, simulated

A, B, C = map(JobId, ("a", "b", "c"))
TWO = Circle(1.0, {A: (Slot(0.0, 0.5),), B: (Slot(0.5, 0.5),)}, {A: 1, B: 1})
THREE = Circle(3.0, {A: (Slot(0.0, 1.0),), B: (Slot(1.0, 1.0),), C: (Slot(2.0, 1.0),)}, {A: 1, B: 1, C: 1})
MAX_WAIT = 0.02
SEEDS = range(3)
COUNTED = 40
"""Number of first iterations in which the controller measures and plans, and jobs align."""


def rhythm(period_s: float, count: int) -> Rhythm:
    times = ((n, 100.0 + period_s * n) for n in range(count))
    return Rhythm().and_now(IterationTime(n, period_s, period_s / 2, end, period_s / 2) for n, end in times)


@pytest.mark.parametrize(
    ("at", "leads"),
    [
        ((100.0, 100.5), (0.0, 0.0)),
        ((100.0, 100.6), (0.1, 0.0)),
        ((100.0, 101.6), (0.1, 0.0)),  # the report of one of them is older
        ((100.0, 100.4), (0.0, 0.1)),
        ((100.0, 100.1), (0.0, 0.4)),
    ],
)
def test_the_job_that_is_ahead_has_a_lead_and_the_latest_one_has_none(
    at: tuple[float, float], leads: tuple[float, float]
) -> None:
    found = leads_s(TWO, {A: at[0], B: at[1]})
    assert (found[A], found[B]) == pytest.approx(leads, abs=1e-6)


def test_three_jobs_agree_who_is_the_latest() -> None:
    found = leads_s(THREE, dict.fromkeys((A, B, C), 100.0))
    assert sorted(found.values()) == pytest.approx([0.0, 1.0, 2.0])
    assert leads_s(THREE, {A: 100.0, B: 101.0, C: 102.1}) == pytest.approx({A: 0.1, B: 0.1, C: 0.0})


def test_a_job_with_two_iterations_per_turn_has_two_places() -> None:
    circle = Circle(2.0, {A: (Slot(0.0, 0.5),), B: (Slot(0.5, 0.5),)}, {A: 2, B: 1})
    for shift_s in (0.0, 1.0, 2.0):
        assert leads_s(circle, {A: 100.0 + shift_s, B: 100.5}) == pytest.approx({A: 0.0, B: 0.0}, abs=1e-6)
    assert leads_s(circle, {}) == {}


def test_a_member_that_communicates_ends_later_by_half_of_the_time_of_overlap() -> None:
    """Job a has communicated from 100.0 to 100.8, and job b from 100.2 on; a sends again at 101.3."""
    found = leads_s(TWO, {A: 101.3, B: 100.2}, now=100.8, sent_s=0.8)
    assert found == pytest.approx({A: 0.0, B: 0.3})
    assert leads_s(TWO, {A: 101.3, B: 98.2}, now=100.8, sent_s=0.8)[B] == pytest.approx(0.2), "not longer than a sent"


def test_circles_are_the_same_when_only_their_rotation_or_period_differs() -> None:
    turned = replace(TWO, slots={A: (Slot(0.5, 0.5),), B: (Slot(0.0, 0.5),)})
    assert same_circle(TWO, turned)
    assert same_circle(TWO, replace(TWO, period_s=1.2, slots={A: (Slot(0.0, 0.5),), B: (Slot(0.6, 0.5),)}))
    assert not same_circle(TWO, replace(TWO, slots={**TWO.slots, B: (Slot(0.4, 0.5),)}))
    assert not same_circle(TWO, replace(TWO, turns={A: 1, B: 2}))
    assert not same_circle(TWO, Circle(1.0, {A: (Slot(0.0, 0.5),)}, {A: 1}))


def followed(leads: list[float], waited_s: float, period_s: float = 1.0) -> Member:
    """Return the state of job a after reports at which it has these leads over job b."""
    member, beats = Member(TWO, 1, None), Rhythm()
    for n, lead_s in enumerate(leads):
        beats = beats.and_now([IterationTime(n, period_s, 0.5, 100.0 + n, 0.5, waited_s)])
        member = member.and_now(beats, 1, {A: lead_s, B: 0.0}, A, 0.02, near_s=0.05)
    return member


def test_a_job_waits_once_for_its_whole_lead_if_that_pays_and_later_for_its_drift() -> None:
    assert followed([0.4], 0.0, period_s=1.5).wait_s == pytest.approx(0.4)
    assert followed([0.4], 0.0, period_s=1.01).wait_s == pytest.approx(0.02), "it would not pay in 16 iterations"
    done = followed([0.4, 0.4], 0.4, period_s=1.5)
    assert not done.aligns
    assert done.wait_s == pytest.approx(0.2)
    late = followed([0.4] * (USUAL + 1), 0.0, period_s=1.5)
    assert not late.aligns
    assert late.wait_s == pytest.approx(0.2)
    behind = done.and_now(rhythm(1.0, 20), 1, {A: 0.0, B: 0.2}, A, 0.02, 0.05)
    assert behind.wait_s == pytest.approx(-0.1)


def test_a_job_ignores_its_slot_if_it_does_not_wait_and_is_never_near() -> None:
    away = [0.3] * WINDOW
    assert followed(away, 0.0).ignores(0.05)
    assert not followed(away, 0.02).ignores(0.05), "it is on its way"
    assert not followed(away[1:], 0.0).ignores(0.05), "too few reports"
    assert not followed([0.01, *away[1:]], 0.0).ignores(0.05), "it was near once"


def test_a_job_keeps_its_slot_from_the_first_time_that_it_usually_is_near() -> None:
    member = followed([0.3, 0.2, 0.15, 0.12, *[0.02] * 4], 0.02)
    assert (member.is_near, member.kept) == (True, 1)
    assert member.drift_s == pytest.approx(0.035)
    away = {A: 0.4, B: 0.0}
    beats = rhythm(1.0, 20)
    left = member
    for _ in range(USUAL):
        left = left.and_now(beats, 1, away, A, 0.02, 0.05)
    assert (left.is_near, left.kept) == (False, 1 + USUAL)
    assert left.left(member)
    assert not member.left(None)


def test_iterations_count_as_kept_when_all_members_are_near_or_have_had_their_time() -> None:
    near, leads, beats = followed([0.01], 0.0), {A: 0.01, B: 0.0}, rhythm(1.0, 20)
    alone = replace(near, kept=0).and_now(beats, 1, leads, A, 0.02, 0.05, others_near=False)
    assert (alone.is_near, alone.age, alone.kept) == (True, 2, 0)
    assert alone.and_now(beats, 1, leads, A, 0.02, 0.05).kept == 1
    late = replace(alone, age=PATIENCE + 1)
    assert late.and_now(beats, 1, leads, A, 0.02, 0.05, others_near=False).kept == 1


@pytest.mark.parametrize(("after_s", "loses"), [(1.0, False), (1.009, False), (1.02, True)])
def test_a_slot_that_makes_iterations_longer_is_a_loss(after_s: float, loses: bool) -> None:
    beats = rhythm(after_s, KEPT + 1)
    member = Member(TWO, 1, Mean(1.0, 0.0), kept=KEPT)
    assert member.loses(beats, 1) == loses
    assert not replace(member, before=None).loses(beats, 1)
    assert not replace(member, kept=KEPT + 1).loses(beats, 1), "it was judged at the report before"
    noisy = replace(member, before=Mean(1.0, 0.01**2))
    assert not noisy.loses(beats, 1), "the difference may be chance"


# ---- the closed loop


Runs = tuple[list[Run], ...]


@cache
def runs(shapes: tuple[Shape, ...], jitter: float = 0.05, iterations: int = 100, max_wait: float = MAX_WAIT) -> Runs:
    return tuple(simulated(shapes, jitter, seed, iterations, max_wait=max_wait) for seed in SEEDS)


def slowest(found: Runs) -> float:
    return fmean(max(run.slowdown(COUNTED) for run in of) for of in found)


LOOSE = tuple(Shape(shape.leaves, 0.9, 0.3) for shape in LOOP)
"""Loop of jobs that send a quarter of the time."""


@pytest.mark.parametrize(
    ("shapes", "max_wait", "most"),
    [
        (HALF, MAX_WAIT, 1.05),
        ((Shape((1, 2), 0.72, 0.48),) * 2, MAX_WAIT, 1.03),
        (LOOSE, MAX_WAIT, 1.05),
        (LOOP, MAX_WAIT, 1.12),  # slots without gaps: short waits cannot make up for 5 % of jitter
        (LOOP, 0.1, 1.06),
    ],
    ids=["half", "gaps", "loose", "loop", "longer waits"],
)
def test_jobs_with_slots_are_nearly_as_fast_as_alone(shapes: tuple[Shape, ...], max_wait: float, most: float) -> None:
    found = runs(shapes, max_wait=max_wait)
    assert slowest(found) <= most
    for run in (run for of in found for run in of):
        period_s = run.shape.compute_s + run.shape.sending_s
        assert sum(run.waits_s[COUNTED:]) <= MAX_WAIT * (run.ends_at[-1] - run.ends_at[COUNTED])
        assert max(run.waits_s[COUNTED:]) <= 1.05 * max_wait * period_s


@pytest.mark.parametrize(("shapes", "jitter"), [(HALF, 0.05), (LOOP, 0.05), (LOOSE, 0.05), (HALF, 0.1), (LOOP, 0.1)])
def test_measuring_errors_do_not_replace_slots(shapes: tuple[Shape, ...], jitter: float) -> None:
    assert [run.slots for of in runs(shapes, jitter) for run in of] == [{1}] * len(SEEDS) * len(shapes)


@pytest.mark.parametrize("shapes", [HALF, LOOP], ids=["two", "loop"])
def test_one_long_wait_aligns_jobs_within_few_iterations(shapes: tuple[Shape, ...]) -> None:
    for of in runs(shapes):
        long = [sum(wait_s > 0.05 for wait_s in run.waits_s) for run in of]
        assert max(long) <= 1
        assert fmean(run.slowdown(15, 30) for run in of) <= 1.12


@pytest.mark.parametrize(("shapes", "most"), [(HALF, 1.0), (LOOP, 1 + MAX_WAIT)], ids=["two", "loop"])
def test_with_jitter_of_a_tenth_slots_cost_no_job_more_than_the_waits(shapes: tuple[Shape, ...], most: float) -> None:
    without = tuple(simulated(shapes, 0.1, seed, 100, max_jitter=1e-3) for seed in SEEDS)
    assert not any(run.slots for of in without for run in of)
    assert slowest(runs(shapes, 0.1)) <= most * slowest(without)


def test_jobs_whose_controller_has_ended_do_not_wait() -> None:
    found = simulated(HALF, 0.05, 1, 60, answers=60)
    assert any(any(run.waits_s[:30]) for run in found)
    assert [max(run.waits_s[35:]) for run in found] == pytest.approx([0.0, 0.0], abs=1e-9)
