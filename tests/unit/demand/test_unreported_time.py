"""Jobs that do not report all of their time: they read data between iterations, or report only some iterations.

The factor by which an announcement is reported to be wrong is right all the same, from the first report on."""

from __future__ import annotations

import numpy as np
import pytest

from controller.demand.job_demand import DemandSource, JobDemand
from controller.demand.payload_windows import Iterations
from signalbox.jobs.reports import IterationTime
from tests.support.training_cluster import FOUR, RIGHT, Cluster, Traffic, bytes_error, spec


def reading(cluster: Cluster, iterations: int, traffic: Traffic, reads_s: float) -> list[JobDemand]:
    """Train iterations of 1 s, each followed by reading data, which is not reported; return the measured demands."""
    cluster.iteration_s = 1.0
    return [
        demand
        for _ in range(iterations)
        for demand in (cluster.train(1.0, traffic), cluster.train(reads_s, {}, pause=True))
    ]


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


@pytest.mark.parametrize(("begins_s", "reads_s"), [(0.1, 0.0), (9.0, 0.2), (0.1, 0.7), (9.0, 1.4)])
@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_bytes_and_the_factor_are_right_whenever_a_job_begins_and_though_it_reads_data_between_iterations(
    factor: float, begins_s: float, reads_s: float
) -> None:
    cluster = Cluster(spec(FOUR), lag_s=0.5)
    cluster.train(begins_s, {}, pause=True)
    traffic = {pair: factor * size for pair, size in RIGHT.items()}
    reported = list[float | None]()
    for _ in range(60):
        for demand in reading(cluster, 1, traffic, reads_s):
            reported += [demand.difference.factor] if demand.contradicted and demand.difference else []
    found = factor < 1 or (factor > 1 and reads_s < 0.5)
    assert cluster.of_job.contradicted == found, "surplus may be of iterations that were not reported"
    assert (cluster.of_job.source is DemandSource.CONFIRMED) == (factor == 1)
    assert bool(reported) == found
    assert all(named == pytest.approx(factor, rel=0.3) for named in reported)
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


@pytest.mark.parametrize(("begins_s", "iteration_s", "seconds"), [(0.0, 1.3, 30.0), (1.7, 5.05, 10.3)])
def test_a_job_whose_reports_are_missing_is_not_said_to_be_slower(
    begins_s: float, iteration_s: float, seconds: float
) -> None:
    """The second job has sent hardly more than two iterations when its next report is overdue."""
    cluster = Cluster(spec(FOUR))
    cluster.iteration_s = iteration_s
    cluster.train(begins_s, {}, pause=True)
    cluster.train(seconds, RIGHT)
    cluster.reports = False
    for _ in range(20):
        assert cluster.train(2, RIGHT).difference is None


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_pause_does_not_retract_the_factor(factor: float) -> None:
    """The bounds of the windows at either end of a pause exclude the announced amount of some pairs only."""
    traffic = {pair: factor * size for pair, size in RIGHT.items()}
    for tenths in range(0, 40, 9):
        cluster = Cluster(spec(FOUR), lag_s=0.5, apart_s=0.3, bursts=0.3)
        cluster.until(lambda demand: bool(demand.difference and demand.difference.factor), traffic, 60)
        for seconds in (tenths / 10, 3.0, 8.0):
            cluster.train(12 + tenths / 10, traffic)
            cluster.train(seconds, {}, pause=True)
            for _ in range(4):
                difference = cluster.train(1.0, {}, pause=True).difference
                assert difference
                assert difference.factor == pytest.approx(factor, rel=0.3), tenths


def test_the_factor_is_retracted_once_other_pairs_carry_the_announced_bytes() -> None:
    cluster = Cluster(spec(FOUR))
    cluster.until(lambda demand: demand.contradicted, {pair: 0.5 * size for pair, size in RIGHT.items()}, 20)
    one = FOUR[0], FOUR[1]
    difference = cluster.train(24, {**RIGHT, one: 0.5 * RIGHT[one]}).difference
    assert difference
    assert difference.factor is None
    assert [pair for pair, _ in difference.off] == [one]


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


def test_after_the_latest_iteration_and_before_those_that_are_kept_as_many_are_done_as_lately() -> None:
    steady = of([1.0, 3.0, 5.0, 7.0], [0, 1, 2, 3])
    assert done(steady, 7.0, 9.0) == 1
    assert done(steady, 7.0, 30.0) == 0
    ends = [float(end) for end in range(1, 401)]
    many = of(ends, ends)
    assert done(many, 0.0, 400.0) == pytest.approx(400)
    assert done(many, -50.0, 0.0) == 0
