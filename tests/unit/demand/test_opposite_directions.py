"""Jobs on the same hosts with opposite directions: the attribution of the counted bytes."""

from __future__ import annotations

import pytest

from controller.demand.job_demand import DemandSource
from controller.jobs.messages import RegisterJob
from signalbox.jobs.spec import JobId
from tests.support.training_cluster import FOUR, INTERVAL_S, REVERSED, RIGHT, Cluster, collective, spec

BOTH = {**RIGHT, **REVERSED}
OTHER = JobId("other")
OPPOSITE = spec(FOUR[::-1], job_id="other")
"""A ring over ``FOUR``, in the direction opposite to the ring of ``spec(FOUR)``."""


def agreed(cluster: Cluster, seconds: float) -> None:
    """Train in both directions, and assert that neither job is doubted."""
    for _ in range(round(seconds / INTERVAL_S)):
        cluster.train(INTERVAL_S, BOTH)
        assert not any(one.difference for one in cluster.demand.demands.values())
    assert cluster.demand.demands[OTHER].source is DemandSource.CONFIRMED


def test_jobs_on_the_same_hosts_whose_rings_are_opposite_are_not_taken_for_each_other() -> None:
    cluster = Cluster(spec(FOUR), OPPOSITE)
    agreed(cluster, 30)
    assert cluster.of_job.source is DemandSource.CONFIRMED


def test_traffic_in_the_other_direction_is_the_jobs_until_another_one_announces_it_and_when_that_has_left() -> None:
    cluster = Cluster(spec(FOUR))
    cluster.train(20, RIGHT)
    cluster.begin(OPPOSITE)
    for _ in range(15):
        assert cluster.train(INTERVAL_S, BOTH).difference is None
    cluster.end("other")
    for _ in range(10):
        assert cluster.train(INTERVAL_S, RIGHT).difference is None, "what was counted for the other one is not its own"
    assert cluster.of_job.source is DemandSource.CONFIRMED
    cluster.until(lambda demand: demand.difference is not None, BOTH, 15)
    cluster.begin(OPPOSITE)
    assert cluster.train(30, BOTH).difference is None, "announced late"


@pytest.mark.parametrize("seconds", [4, 6])
@pytest.mark.parametrize("provisional", [False, True])
def test_what_an_observed_job_was_found_to_send_stays_its_own_when_the_opposite_is_announced(
    seconds: float, provisional: bool
) -> None:
    cluster = Cluster(spec(FOUR, []))
    cluster.train(seconds, RIGHT)
    assert cluster.of_job.pairs == RIGHT.keys()
    cluster.begin(spec(FOUR[::-1], job_id="other", provisional=provisional))
    agreed(cluster, 30)
    assert cluster.of_job.source is DemandSource.MEASURED
    assert cluster.of_job.pairs == RIGHT.keys()


def test_what_an_observed_job_was_found_to_send_is_its_own_after_a_restart() -> None:
    before = Cluster(spec(FOUR, []))
    held = before.train(20, RIGHT).held
    assert held is not None
    cluster = Cluster()
    for one in (spec(FOUR, []), OPPOSITE):
        cluster.registry.register(RegisterJob(one), cluster.now)
    cluster.demand.follow(cluster.registry.jobs, cluster.now, {cluster.job: held})
    agreed(cluster, 30)
    assert cluster.of_job.pairs == RIGHT.keys()


def test_what_an_observed_job_was_found_to_send_is_anybodys_when_it_has_left() -> None:
    cluster = Cluster(spec(FOUR, []))
    cluster.train(20, RIGHT)
    cluster.begin(OPPOSITE)
    agreed(cluster, 20)
    cluster.end("job")
    cluster.job = OTHER
    cluster.train(10, REVERSED)
    assert cluster.of_job.source is DemandSource.CONFIRMED, "what was counted for the first job is not its own"
    cluster.until(lambda demand: demand.difference is not None, BOTH, 15)


def test_an_observed_job_finds_the_opposite_direction_when_the_job_that_announced_it_has_left() -> None:
    cluster = Cluster(spec(FOUR, []))
    cluster.train(20, RIGHT)
    cluster.begin(OPPOSITE)
    agreed(cluster, 20)
    cluster.end("other")
    for _ in range(5):
        assert cluster.train(INTERVAL_S, RIGHT).pairs == RIGHT.keys()
    cluster.until(lambda demand: demand.pairs == BOTH.keys(), BOTH, 15)


def test_pairs_that_an_observed_job_sends_on_are_another_jobs_as_long_as_that_announces_the_same() -> None:
    cluster = Cluster(spec(FOUR, []))
    cluster.train(20, RIGHT)
    cluster.begin(spec(FOUR, job_id="other"))
    assert cluster.train(20, RIGHT).measurement is None
    assert cluster.demand.demands[OTHER].source is DemandSource.CONFIRMED
    cluster.end("other")
    demand = cluster.train(10, RIGHT)
    assert demand.pairs == RIGHT.keys()
    assert demand.measurement is not None


def test_an_update_to_the_opposite_direction_is_counted_for_the_job_that_announced_it() -> None:
    cluster = Cluster(spec(FOUR, []))
    cluster.train(20, RIGHT)
    cluster.begin(OPPOSITE)
    agreed(cluster, 20)
    cluster.job = OTHER
    cluster.update(collectives=collective("broadcast"))
    cluster.update(collectives=collective())
    agreed(cluster, 30)
    cluster.job = JobId("job")
    assert cluster.of_job.pairs == RIGHT.keys()
