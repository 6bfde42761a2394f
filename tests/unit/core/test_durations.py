"""Published totals of the durations of plans, repairs, stages and iterations."""

from __future__ import annotations

import pytest

from controller.histogram import Histogram
from controller.jobs.messages import ReportIterations
from controller.tables.messages import StageDone, SwitchResult
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId
from tests.support.fake_fabric import FakeFabric
from tests.support.late_answers import LateAnswers
from tests.support.three_rings import CONFIG, started


def count(histogram: Histogram) -> int:
    return dict(histogram.buckets)["+Inf"]


def test_plans_are_timed_and_the_latest_has_an_age() -> None:
    fabric = started(FakeFabric(), 0)
    status = fabric.status
    assert count(status.plan_times) == status.plans_total >= 1
    assert status.plan
    assert status.plan_times.total >= status.plan.times.total_ms / 1000
    assert status.plan_at is not None
    assert fabric.now - 3 < status.plan_at <= fabric.now


def test_repairs_are_timed_until_the_switches_have_confirmed_them() -> None:
    fabric = started(LateAnswers(), 0)
    used = next(iter(fabric.loop.state.routes.routes.values()))[0].path[0]
    assert count(fabric.status.repair_times) == 0
    fabric.is_late = lambda answer: isinstance(answer, StageDone)
    fabric.cut(used.dpid, used.port)
    for _ in range(20):
        fabric.run(0.05, step=0.05)
        fabric.deliver()
    times = fabric.status.repair_times
    assert count(times) == 1
    assert times.total == pytest.approx(fabric.status.repair_s)
    assert times.total > 0


def test_a_stage_is_timed_from_its_sending_until_all_of_its_switches_have_confirmed_it() -> None:
    fabric = LateAnswers()
    fabric.is_late = lambda answer: isinstance(answer, StageDone)
    fabric.start(CONFIG)
    assert count(fabric.status.install_times) == 0
    fabric.run(0.5)
    fabric.deliver()
    times = fabric.status.install_times
    assert count(times) == 1
    assert times.total == pytest.approx(0.5)


def test_a_stage_that_a_switch_does_not_answer_is_not_timed() -> None:
    fabric = LateAnswers()
    fabric.is_late = lambda answer: isinstance(answer, StageDone)
    fabric.start(CONFIG)
    ((done,), fabric.late) = fabric.late, []
    assert isinstance(done, StageDone)
    silent = next(iter(done.results))
    fabric.send(StageDone(done.change_id, {**done.results, silent: SwitchResult(timed_out=True)}))
    assert count(fabric.status.install_times) == 0


def test_every_reported_iteration_counts_once() -> None:
    fabric = started(FakeFabric(), 0)
    for _ in range(2):
        iterations = (IterationTime(0, 2.0, 0.5), IterationTime(1, 2.0, 0.25))
        fabric.send(ReportIterations(JobId("job0"), iterations))
    fabric.run(1)
    times = fabric.status.communication_times
    assert (count(times), times.total) == (2, 0.75)
