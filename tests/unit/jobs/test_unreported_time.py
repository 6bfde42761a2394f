"""Jobs that do not report all of their time: they read data between iterations, or report only some iterations."""

from __future__ import annotations

import numpy as np
import pytest

from controller.jobs.demand import DemandSource
from controller.jobs.iterations import Iterations
from signalbox.jobs.reports import IterationTime
from tests.support.training_cluster import FOUR, RIGHT, Cluster, Traffic, bytes_error, spec

READS_S = [0.2, 0.7, 1.4]


def reading(cluster: Cluster, iterations: int, traffic: Traffic, reads_s: float) -> None:
    """Train iterations of 1 s, each followed by reading data, which is not reported."""
    cluster.iteration_s = 1.0
    for _ in range(iterations):
        cluster.train(1.0, traffic)
        cluster.train(reads_s, {}, pause=True)


def reporting_each_fifth(cluster: Cluster, seconds: float, numbered: bool) -> None:
    """Train and report each fifth iteration.

    ``numbered``: whether reports count all iterations, or only the reported ones."""
    cluster.reports = False
    for _ in range(round(seconds / 0.1)):
        before = cluster.done
        cluster.train(0.1, RIGHT)
        if cluster.done > before and cluster.done % 5 == 0:
            number = cluster.done if numbered else cluster.done // 5
            one = IterationTime(number, cluster.iteration_s, cluster.iteration_s, cluster.now)
            cluster.demand.reported(cluster.job, [one], cluster.now)


@pytest.mark.parametrize("reads_s", READS_S)
@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_bytes_of_an_iteration_are_right_though_data_is_read_between_iterations(factor: float, reads_s: float) -> None:
    cluster = Cluster(spec(FOUR), lag_s=0.5)
    traffic = {pair: factor * size for pair, size in RIGHT.items()}
    reading(cluster, 60, traffic, reads_s)
    found = factor < 1 or (factor > 1 and reads_s < 0.5)
    assert cluster.of_job.contradicted == found, "surplus may be of iterations that were not reported"
    if found:
        held = {(link.src_ip, link.dst_ip): link.bytes for link in cluster.of_job.virtual_links}
        assert held == pytest.approx(traffic, rel=0.08)
    if found or factor == 1:
        assert bytes_error(cluster.of_job, traffic) < 0.08


def test_bytes_of_an_observed_job_are_right_though_it_evaluates_now_and_then() -> None:
    cluster = Cluster(spec(FOUR, []), lag_s=0.5)
    for _ in range(6):
        reading(cluster, 14, RIGHT, 0.3)
        cluster.train(9.0, {}, pause=True)
        held = {(link.src_ip, link.dst_ip): float(link.bytes) for link in cluster.of_job.virtual_links}
        assert held == pytest.approx(dict(RIGHT), rel=0.12)


@pytest.mark.parametrize("reads_s", READS_S)
def test_a_right_announcement_is_confirmed_though_data_is_read_between_iterations(reads_s: float) -> None:
    cluster = Cluster(spec(FOUR), lag_s=0.5)
    reading(cluster, 30, RIGHT, reads_s)
    assert cluster.of_job.source is DemandSource.CONFIRMED


@pytest.mark.parametrize("numbered", [True, False])
def test_a_right_announcement_of_which_some_iterations_are_reported_is_not_doubted(numbered: bool) -> None:
    """The announcement is also confirmed if the reports count all iterations."""
    cluster = Cluster(spec(FOUR), lag_s=0.5)
    for _ in range(20):
        reporting_each_fifth(cluster, 6.0, numbered)
        assert not cluster.of_job.contradicted
    assert (cluster.of_job.source is DemandSource.CONFIRMED) == numbered
    assert cluster.of_job.difference is None, "nor is it slower"
    assert bytes_error(cluster.of_job, RIGHT) < 0.08


def test_a_job_whose_reports_are_missing_is_not_said_to_be_slower() -> None:
    cluster = Cluster(spec(FOUR))
    cluster.train(30, RIGHT)
    cluster.reports = False
    for _ in range(20):
        assert cluster.train(2, RIGHT).difference is None


def of(ends: list[float], numbers: list[float]) -> Iterations:
    """Return iterations of 1 s with these ends and numbers."""
    iterations = Iterations()
    for end, number in zip(ends, numbers, strict=True):
        iterations.add(np.ones(1), np.array([end]), end, np.array([number]))
    return iterations


def done(iterations: Iterations, since: float, until: float) -> float:
    before, after = iterations.done(np.array([since, until])).tolist()
    return float(after - before)


@pytest.mark.parametrize(
    ("numbers", "between"),
    [
        ([0, 1, 4, 5], 2),
        ([0, 1, 2, 3], 0),
        ([0, 0, 0, 0], 0),
        ([0, 512, 1024, 1536], 0),
    ],
)
def test_numbers_tell_iterations_between_reported_ones_if_these_can_have_been_done(
    numbers: list[float], between: int
) -> None:
    assert done(of([1.0, 2.0, 5.0, 6.0], numbers), 0.0, 6.0) == 4 + between


def test_after_the_latest_iteration_as_many_are_done_as_lately_until_a_report_is_overdue() -> None:
    steady = of([1.0, 3.0, 5.0, 7.0], [0, 1, 2, 3])
    assert done(steady, 7.0, 9.0) == 1
    assert done(steady, 7.0, 30.0) == 0


def test_before_the_iterations_that_are_kept_the_job_went_on_as_lately() -> None:
    ends = [float(end) for end in range(1, 401)]
    many = of(ends, ends)
    assert done(many, 0.0, 400.0) == pytest.approx(400)
    assert done(many, -50.0, 0.0) == 0
