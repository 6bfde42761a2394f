"""A job that may soon announce another spec is planned for, and its traffic raises no alarm."""

from __future__ import annotations

from controller.jobs.demand import DemandSource
from tests.support.training_cluster import FOUR, INTERVAL_S, REVERSED, RIGHT, Cluster, alike, collective, shares, spec


def test_a_provisional_announcement_holds_until_something_else_is_counted_and_raises_no_alarm() -> None:
    cluster = Cluster(spec(FOUR, provisional=True))
    assert cluster.of_job.source is DemandSource.PROVISIONAL
    assert cluster.of_job.pairs == RIGHT.keys()
    for _ in range(20):
        assert cluster.train(INTERVAL_S, REVERSED).difference is None
    learnt = cluster.of_job
    assert learnt.source is DemandSource.MEASURED
    assert alike(shares(learnt), REVERSED)
    cluster.update(provisional=False)
    assert cluster.of_job.difference is not None
    assert cluster.of_job.virtual_links is learnt.virtual_links


def test_a_provisional_announcement_that_is_right_stays_confirmed_when_it_is_made_final() -> None:
    cluster = Cluster(spec(FOUR, provisional=True))
    cluster.update(provisional=False)
    assert cluster.of_job.source is DemandSource.DECLARED
    cluster.update(provisional=True)
    demand = cluster.train(20, RIGHT)
    assert demand.source is DemandSource.CONFIRMED
    cluster.update(provisional=False)
    after = cluster.of_job
    assert after.source is DemandSource.CONFIRMED
    assert after.measurement is demand.measurement


def test_other_traffic_than_announced_provisionally_is_judged_anew() -> None:
    cluster = Cluster(spec(FOUR, provisional=True))
    cluster.train(20, REVERSED)
    groups = [{"name": "dp", "ranks": [3, 2, 1, 0]}]
    cluster.update(provisional=False, groups=groups, collectives=collective())
    assert cluster.of_job.source is DemandSource.DECLARED
    demand = cluster.train(20, REVERSED)
    assert (demand.source, demand.difference) == (DemandSource.CONFIRMED, None)
