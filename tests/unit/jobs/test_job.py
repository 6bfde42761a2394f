"""Iterations that count as measured, and the job that announces a pair of hosts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.job import (
    MEASURED_WINDOW,
    NOTICED_ITERATIONS,
    NOTICED_S,
    Announcements,
    Job,
    MeasuringPeriods,
    Reported,
    Vitals,
)
from controller.jobs.messages import RegisterJob, Registration, UpdateJob
from controller.jobs.registry import JobRegistry
from signalbox.jobs.collectives import VirtualLink, VirtualLinks
from signalbox.jobs.reports import REPORT_S, IterationTime
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.jobs.subflows import Dividing, Pair
from tests.support.fake_fabric import ring_job

A = JobId("a")
LATE = 1000.0
"""Time in seconds, long after a measuring period began: the iterations that are reported then began in it."""


def spec(**fields: Any) -> JobSpec:
    return ring_job("a", ["10.0.0.1", "10.0.0.2"], **fields)


def times(*communication_s: float, first: int = 0) -> tuple[IterationTime, ...]:
    return tuple(IterationTime(i, 2 * s, s) for i, s in enumerate(communication_s, first))


class Followed:
    """Job whose measuring periods ``follow`` updates, as the control loop does after every batch of messages."""

    def __init__(self) -> None:
        self.registry = JobRegistry(max_jobs=3)
        self.measuring_periods = MeasuringPeriods()
        self.registry.register(RegisterJob(spec()), 0.0)
        self.follow(0.0)

    @property
    def job(self) -> Job:
        return self.registry.jobs[A]

    @property
    def measured_s(self) -> list[float]:
        return list(self.job.vitals.reported.recent_communication_s)

    def follow(self, now: float) -> None:
        self.measuring_periods.follow(self.registry.jobs, now)

    def report(self, now: float, *iterations: IterationTime) -> None:
        self.registry.report(A, self.job.uid, iterations, now)


@pytest.fixture
def followed() -> Followed:
    return Followed()


def test_the_mean_is_over_the_latest_reports_and_the_count_over_all(followed: Followed) -> None:
    followed.report(LATE, *times(*[9.0] * 4))
    followed.report(LATE, *times(*[1.0] * (MEASURED_WINDOW - 1), 3.0, first=4))
    reported = followed.job.vitals.reported
    assert reported.iterations == MEASURED_WINDOW + 4
    assert reported.last_communication_s == 3.0
    assert reported.mean_communication_s == pytest.approx((MEASURED_WINDOW - 1 + 3) / MEASURED_WINDOW)


def test_an_iteration_that_may_have_begun_before_the_period_is_counted_but_not_measured(followed: Followed) -> None:
    """The iteration takes 2 s, and may have ended ``REPORT_S`` before its report."""
    followed.job.vitals.begin_measuring(100.0)
    followed.report(101.9 + REPORT_S, *times(1.0))
    assert followed.measured_s == []
    followed.report(104.1 + REPORT_S, *times(1.0, 1.5, first=1))
    assert followed.measured_s == [1.5], "the one before began 0.9 s before the measuring period"
    assert followed.job.vitals.reported.iterations == 3
    assert followed.job.vitals.reported.last_communication_s == 1.5


def test_an_iteration_of_a_late_report_counts_from_when_it_ended(followed: Followed) -> None:
    """The controller was unreachable for 7 s."""
    followed.job.vitals.begin_measuring(100.0)
    followed.report(107.0, IterationTime(0, 3.0, 1.0, ended_at=102.0))
    assert followed.measured_s == []
    followed.report(120.0, IterationTime(1, 3.0, 1.0, ended_at=105.0), IterationTime(2, 3.0, 2.0, ended_at=119.9))
    assert followed.measured_s == [1.0, 2.0]


@given(
    st.lists(st.floats(0.05, 20), min_size=1, max_size=60),
    st.floats(0, 0.99),
    st.floats(-0.5, 0.99),
    st.lists(st.floats(0.1, REPORT_S), min_size=1, max_size=8),
)
def test_no_measured_iteration_began_before_the_measuring_period(
    durations_s: list[float], share: float, change: float, rounds_s: list[float]
) -> None:
    """A program reports ended iterations in rounds; the routes change once. Communication times identify iterations.

    ``change``: time of the change, as a share of the program's duration; negative before the program begins."""
    followed = Followed()
    changed_at = 10.0 + change * sum(durations_s)
    began_at, ends_at, at = {}, [], 10.0
    for index, duration_s in enumerate(durations_s):
        communication_s = duration_s * (1 - share) * (1 - 1e-6 * index)
        began_at[communication_s] = at
        at += duration_s
        ends_at.append((at, IterationTime(index, duration_s, communication_s)))
    now, round_number, changed = 10.0, 0, False
    while ends_at:
        now += rounds_s[round_number % len(rounds_s)]
        round_number += 1
        if now >= changed_at and not changed:
            changed = True
            followed.job.vitals.begin_measuring(changed_at)
        over = [iteration for end, iteration in ends_at if end <= now]
        ends_at = ends_at[len(over) :]
        followed.report(now, *over)
        earliest = changed_at if changed else 0.0
        assert all(began_at[seconds] >= earliest for seconds in followed.measured_s)
    assert changed


@pytest.mark.parametrize("other", [{"endpoints": ["10.0.0.1", "10.0.0.3"]}, {"transport": "roce_v2"}])
def test_other_traffic_begins_a_period_and_other_settings_do_not(followed: Followed, other: dict[str, Any]) -> None:
    followed.report(LATE, *times(0.5))
    for kept in ({}, {"lease_s": 99.0}, {"max_subflows": 2}, {"striping": "even"}):
        followed.registry.update([UpdateJob(spec(**kept), owner=followed.job.uid)])
        followed.follow(LATE)
        assert followed.measured_s == [0.5], kept
    followed.registry.update([UpdateJob(spec(**other), owner=followed.job.uid)])
    followed.follow(LATE)
    assert followed.measured_s == []
    followed.report(LATE + 1, *times(0.5, first=1))
    assert followed.measured_s == [], "it began before"


def test_bytes_that_counters_show_begin_a_measuring_period_and_silence_does_not(followed: Followed) -> None:
    followed.report(LATE, *times(0.5))
    (link, *_) = followed.job.virtual_links
    measured = replace(followed.job, virtual_links=VirtualLinks([replace(link, bytes=link.bytes // 2)]))
    followed.measuring_periods.follow({A: measured}, LATE)
    assert followed.measured_s == []
    assert followed.job.vitals.reported.planned is measured.virtual_links
    followed.report(2 * LATE, *times(0.5, first=1))
    followed.measuring_periods.follow({A: replace(measured, silent=True)}, 2 * LATE)
    assert followed.measured_s == [0.5]


def test_an_iteration_of_a_job_that_alternates_counts_when_a_change_before_it_would_be_known(
    followed: Followed,
) -> None:
    """Iterations take 1.25 s in a ring, then 0.5 s in another pattern; the change is noticed 7 s later."""
    vitals = followed.job.vitals
    (link, *_) = followed.job.virtual_links
    other = VirtualLinks([replace(link, bytes=link.bytes // 4)])
    followed.measuring_periods.follow({A: replace(followed.job, of_pattern=followed.job.virtual_links)}, 0.0)
    vitals.begin_measuring(0.0)
    measured = []
    for index in range(40):
        followed.report(1.25 * (index + 1), IterationTime(index, 1.25, 1.0))
        measured.append(vitals.reported.mean_communication_s)
    first_s = REPORT_S + 1.25 + max(NOTICED_S, NOTICED_ITERATIONS * 1.25)
    assert [mean > 0 for mean in measured] == [1.25 * (index + 1) >= first_s for index in range(40)]
    for index in range(14):
        followed.report(50.0 + 0.5 * (index + 1), IterationTime(40 + index, 0.5, 0.25))
        assert vitals.reported.mean_communication_s == 1.0
    vitals.begin_measuring(57.0, other, alternates=True)
    assert vitals.reported.mean_communication_s == 0
    assert not vitals.reported.waiting
    for index in range(40):
        followed.report(57.0 + 0.5 * (index + 1), IterationTime(54 + index, 0.5, 0.25))
    assert vitals.reported.mean_communication_s == 0.25
    assert len(vitals.reported.certain_s) == MEASURED_WINDOW


def test_a_long_iteration_of_a_job_that_alternates_counts_after_several_more() -> None:
    """Iterations take five seconds: a change is noticed after four of them, later than with short iterations."""
    reported = Reported(alternates=True).and_now([IterationTime(0, 5.0, 1.0)], LATE)
    reported = reported.and_now([IterationTime(1, 5.0, 1.0)], LATE + 5.0 * NOTICED_ITERATIONS - 0.1)
    assert reported.certain_s == ()
    reported = reported.and_now([IterationTime(2, 5.0, 1.0)], LATE + 5.0 * NOTICED_ITERATIONS)
    assert reported.certain_s == (1.0,)


def test_changed_routes_leave_the_traffic_of_the_period_and_a_new_registration_begins_one(
    followed: Followed,
) -> None:
    planned = followed.job.vitals.reported.planned
    followed.job.vitals.begin_measuring(LATE)
    assert followed.job.vitals.reported.planned is planned is followed.job.virtual_links
    nothing = VirtualLinks()
    followed.job.vitals.begin_measuring(LATE, nothing)
    assert followed.job.vitals.reported.planned is nothing
    followed.registry.register(RegisterJob(spec(), take_over=True), LATE)
    followed.follow(LATE)
    assert followed.job.vitals.reported == Reported(since=LATE, planned=followed.job.virtual_links)


# ---- the job that announces a pair of hosts, while jobs are added, change and are removed


AB, BC, CD = ("a", "b"), ("b", "c"), ("c", "d")


def announced(job: str, *pairs: Pair, at: float = 0.0, shares: bool = False) -> Job:
    """Return a job that announces these pairs; ``shares``: whether the job reports its connections."""
    links = VirtualLinks(VirtualLink(src, dst, 0, 1) for src, dst in pairs)
    registration = Registration(ring_job(job, ["10.0.0.1", "10.0.0.2"]), registered_at=at)
    return Job(registration, links, Vitals(0.0), Dividing(owner=job if shares else ""), links.addresses)


def test_a_job_that_changes_has_its_new_pairs_and_no_others() -> None:
    for shares in (False, True):
        announcements = Announcements()
        before = announced("job", AB, BC, shares=shares)
        announcements.add(before)
        announcements.change(before, announced("job", BC, CD, shares=shares))
        assert [announcements.first(pair) for pair in (AB, BC, CD)] == [None, "job", "job"]


def test_of_jobs_that_share_a_pair_the_first_that_was_registered_holds_it() -> None:
    announcements = Announcements()
    late, early = announced("late", AB, at=2.0, shares=True), announced("early", AB, at=1.0, shares=True)
    for job in (late, early):
        announcements.add(job)
    assert (announcements.first(AB), announcements.owner(AB)) == ("early", None)
    announcements.change(early, announced("early", AB, at=3.0, shares=True))
    assert announcements.first(AB) == "late"
    announcements.remove(late)
    assert announcements.first(AB) == "early"


def test_a_job_that_begins_to_report_its_connections_shares_its_pairs() -> None:
    announcements = Announcements()
    before = announced("job", AB)
    announcements.add(before)
    assert (announcements.owner(AB), announcements.holder(("b", "a"))) == ("job", "job")
    announcements.change(before, announced("job", AB, shares=True))
    assert (announcements.owner(AB), announcements.first(AB)) == (None, "job")
    assert list(announcements.near([("b", "a")])) == [("job", AB)]


def test_a_job_that_is_found_on_a_reverse_pair_owns_it_until_that_is_forgotten() -> None:
    announcements = Announcements()
    other = announced("other", CD)
    for job in (announced("job", AB), other):
        announcements.add(job)
    added = announcements.version
    announcements.found(other, [("b", "a"), CD])
    found = announcements.version
    assert found > added
    assert announcements.owner(("b", "a")) == "other"
    assert announcements.forget_found(other.id) == {("b", "a")}
    assert announcements.version > found
    assert announcements.owner(("b", "a")) == "job"
