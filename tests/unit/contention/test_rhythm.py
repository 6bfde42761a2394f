"""Times of iterations, and what is usual."""

import random

import pytest

from controller.contention.rhythm import KEPT, USUAL, WINDOW, Rhythm
from signalbox.jobs.reports import IterationTime


def rhythm(count: int, *, period_s: float = 1.0, communication_s: float = 0.4, waited_s: float = 0.0) -> Rhythm:
    every_s = period_s + waited_s
    times = (
        IterationTime(n, period_s, communication_s, 100 + every_s * n, period_s - communication_s, waited_s)
        for n in range(count)
    )
    return Rhythm().and_now(times)


def test_usual_times_are_known_after_eight_iterations_beyond_the_first_two() -> None:
    assert not rhythm(USUAL + 1).is_known
    found = rhythm(USUAL + 2, waited_s=0.1)
    assert found.is_known
    assert (found.period_s, found.computed_s, found.until_s) == pytest.approx((1.0, 0.6, 0.6))
    assert found.recent_s == pytest.approx(1.1)
    assert found.waited_s == pytest.approx(0.1 * (USUAL + 2))
    assert found.jitter == pytest.approx(0, abs=1e-9)
    assert found.next_at(0.2) == pytest.approx(100 + 1.1 * (USUAL + 1) + 0.6 + 0.2)


def test_computing_is_the_median_of_many_iterations_unless_it_has_clearly_changed() -> None:
    chance = random.Random(1)
    found, seen = Rhythm(), []
    for n in range(200):
        compute_s = chance.gauss(0.6, 0.03) * (1.3 if n >= 150 else 1.0)
        ended_at = found.beats[-1].ended_at + compute_s + 0.4 if n else 100.0
        found = found.and_now([IterationTime(n, compute_s + 0.4, 0.4, ended_at, compute_s)])
        seen.append(found.computed_s or 0.0)
    assert all(each == pytest.approx(0.6, rel=0.02) for each in seen[50:150])
    assert all(each == pytest.approx(0.78, rel=0.08) for each in seen[160:])


def test_work_between_iterations_counts_as_computing() -> None:
    times = (IterationTime(n, 0.8, 0.4, 100.0 + n) for n in range(20))
    found = Rhythm().and_now(times)
    assert (found.period_s, found.computed_s) == pytest.approx((1.0, 0.6))
    assert found.until_s == pytest.approx(0.4)


def test_an_iteration_that_is_all_communication_was_not_measured() -> None:
    found = Rhythm().and_now(IterationTime(n, 1.0, 1.0, 100.0 + n) for n in range(20))
    assert found.computed_s is None
    known = Rhythm().and_now(IterationTime(n, 1.0, 1.0, 100.0 + n, 0.7) for n in range(20))
    assert known.computed_s == pytest.approx(0.7)


def test_gaps_and_iterations_without_an_end_have_no_interval() -> None:
    times = [IterationTime(n, 1.0, 0.5, 100.0 + n) for n in range(20) if n != 10]
    found = Rhythm().and_now([*times, IterationTime(20, 1.0, 0.5)])
    assert len(found.beats) == 19
    assert [beat.number for beat in found.beats if beat.interval_s is None] == [0, 11]
    assert found.mean(WINDOW) is None
    assert found.mean(8) == pytest.approx((1.0, 0.0))


def test_only_the_latest_iterations_are_kept_until_the_traffic_changes() -> None:
    found = rhythm(100, waited_s=0.01)
    assert (len(found.beats), found.beats[0].number) == (KEPT, 100 - KEPT)
    assert found.anew() == Rhythm(waited_s=found.waited_s)


def test_jitter_is_the_relative_spread_of_compute_times() -> None:
    computed_s = [0.5, 0.55, 0.45] * 14
    ends = [100 + sum(computed_s[: n + 1]) + 0.5 * n for n in range(42)]
    times = zip(computed_s, ends, strict=True)
    found = Rhythm().and_now(IterationTime(n, c + 0.5, 0.5, end, c) for n, (c, end) in enumerate(times))
    assert found.jitter == pytest.approx(1.4826 * 0.05 / 0.5)


def test_a_job_cannot_have_waited_or_computed_for_longer_than_its_iterations_took() -> None:
    times = (IterationTime(n, 1.0, 0.4, 100.0 + n, until_communication_s=1.0, waited_s=1e5) for n in range(20))
    found = Rhythm().and_now(times)
    assert (found.period_s, found.until_s) == pytest.approx((1.0, 0.6))
    assert found.waited_s == pytest.approx(1e5 + 19)
