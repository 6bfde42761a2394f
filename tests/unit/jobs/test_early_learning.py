"""All pairs of a small new job are counted until its announcement is confirmed; right announcements are not harmed."""

from __future__ import annotations

from typing import Any

import pytest

from controller.jobs.demand import DemandSource
from controller.jobs.early_learning import JobsByAddress
from controller.jobs.measured_demand import MeasuredDemand
from controller.jobs.messages import RegisterJob
from controller.jobs.watched_job import WatchedJob
from signalbox.jobs.spec import JobId, JobSpec
from tests.support.training_cluster import (
    ADDRESSES,
    BROADCAST,
    FOUR,
    INTERVAL_S,
    RIGHT,
    Cluster,
    M,
    Traffic,
    ring,
    spec,
)

ALL_TO_ALL = {"algorithm": "all_to_all", "groups": ["dp"], "bytes_per_iteration": M}


def announced(number: int, hosts: int = 4, **more: Any) -> JobSpec:
    """Return the spec of job ``number``; no two numbers share a host."""
    return spec(
        [f"10.{number // 200}.{number % 200}.{host}" for host in range(1, hosts + 1)], job_id=f"job{number}", **more
    )


def begin(cluster: Cluster, one: JobSpec, tenant: str = "") -> JobId:
    cluster.registry.register(RegisterJob(one, tenant=tenant), cluster.now)
    cluster.demand.follow(cluster.registry.jobs, cluster.now)
    return JobId(one.job_id)


def learnt(cluster: Cluster) -> set[str]:
    return {job_id for job_id, demand in cluster.demand.demands.items() if demand.counted}


def test_another_collective_of_a_small_job_is_planned_for_at_its_first_counters() -> None:
    cluster = Cluster(spec(FOUR))
    cluster.train(2 * INTERVAL_S, {}, pause=True)
    assert cluster.of_job.source is DemandSource.DECLARED
    cluster.until(lambda demand: demand.pairs >= BROADCAST.keys(), BROADCAST, 2 * INTERVAL_S)


@pytest.mark.parametrize(("reports", "within_s"), [(True, 14), (False, 24)])
def test_a_small_job_is_learnt_until_it_is_confirmed(reports: bool, within_s: float) -> None:
    cluster = Cluster(spec(FOUR), reports=reports)
    cluster.until(lambda demand: len(demand.counted) != 4, RIGHT, within_s)
    assert cluster.of_job.source is DemandSource.CONFIRMED
    assert not cluster.of_job.counted


def test_nothing_is_learnt_of_a_job_that_announced_all_its_pairs() -> None:
    assert not learnt(Cluster(spec(FOUR[:2]), announced(1, collectives=[ALL_TO_ALL])))


@pytest.mark.parametrize("size", [30_000, M])
def test_a_copy_before_training_has_a_route_for_some_seconds_only(size: float) -> None:
    cluster = Cluster(spec(FOUR))
    cluster.train(2 * INTERVAL_S, {}, pause=True)
    cluster.train(1.0, {(FOUR[0], FOUR[2]): size})
    assert cluster.train(INTERVAL_S, {}, pause=True).pairs == {*RIGHT, (FOUR[0], FOUR[2])}
    assert cluster.train(7 * INTERVAL_S, {}, pause=True).pairs == RIGHT.keys()
    assert not cluster.of_job.contradicted
    assert cluster.of_job.counted, "it has not begun"


@pytest.mark.parametrize("reports", [True, False])
@pytest.mark.parametrize("seconds", [1, 4, 9])
def test_parameters_that_are_sent_first_contradict_nothing(seconds: float, reports: bool) -> None:
    cluster = Cluster(spec(FOUR), reports=False, lag_s=0.5, apart_s=0.1)
    cluster.train(3, {}, pause=True)
    cluster.train(seconds, {(FOUR[0], ip): 1.5 * M for ip in FOUR[1:]})
    cluster.reports, cluster.progress = reports, 0.0
    while cluster.of_job.source is not DemandSource.CONFIRMED:
        assert cluster.train(INTERVAL_S, RIGHT).difference is None
    assert cluster.of_job.pairs == RIGHT.keys()


@pytest.mark.parametrize("before", [RIGHT, BROADCAST])
def test_what_the_previous_job_sent_last_is_not_the_new_ones(before: Traffic) -> None:
    other = [FOUR[place] for place in (0, 2, 3, 1)]
    for tenths in range(0, 20, 3):
        cluster = Cluster(spec(FOUR), lag_s=0.5, apart_s=0.1)
        cluster.train(5 + tenths / 10, before)
        cluster.update(endpoints=other)
        for _ in range(10):
            cluster.train(INTERVAL_S, ring(other))
            assert cluster.of_job.pairs == ring(other).keys()
            assert cluster.of_job.difference is None


@pytest.mark.parametrize("observed_first", [True, False])
def test_traffic_of_another_job_on_the_same_hosts_is_not_held_against_a_job(observed_first: bool) -> None:
    cluster = Cluster(lag_s=0.5)
    observed = JobSpec.parse({"job_id": "observed", "endpoints": FOUR})
    for one in (observed, spec(FOUR)) if observed_first else (spec(FOUR), observed):
        begin(cluster, one)
    for _ in range(15):
        cluster.train(INTERVAL_S, {**RIGHT, (FOUR[0], FOUR[2]): M, (FOUR[1], FOUR[3]): M})
        assert cluster.of_job.pairs == RIGHT.keys()
        assert cluster.of_job.difference is None
    assert cluster.of_job.source is DemandSource.CONFIRMED


def test_a_job_that_shares_one_host_is_learnt() -> None:
    cluster = Cluster(spec(FOUR), spec(ADDRESSES[3:7], job_id="other"))
    assert learnt(cluster) == {"job", "other"}


def test_an_unconfirmed_job_leaves_its_rules_to_an_observed_one() -> None:
    cluster = Cluster(spec(FOUR), max_rules=12)
    assert cluster.of_job.counted
    observed = begin(cluster, spec(ADDRESSES[4:], [], job_id="observed"))
    assert cluster.demand.demands[observed].learning
    assert not cluster.of_job.counted
    cluster.train(30, RIGHT)
    assert cluster.of_job.source is DemandSource.CONFIRMED


def test_the_tenant_with_the_most_rules_gives_way_and_its_oldest_job_first() -> None:
    cluster = Cluster(max_rules=36)
    for number in range(3):
        begin(cluster, announced(number), "red")
    begin(cluster, announced(3), "blue")
    assert learnt(cluster) == {"job1", "job2", "job3"}
    begin(cluster, announced(4), "red")
    assert learnt(cluster) == {"job2", "job3", "job4"}
    begin(cluster, announced(5), "blue")
    assert len(learnt(cluster) & {"job3", "job5"}) == 2


def test_no_job_gives_way_to_one_that_does_not_fit_anyway() -> None:
    cluster = Cluster(announced(0), announced(1), max_rules=29)
    large = begin(cluster, announced(2, hosts=6))
    assert learnt(cluster) == {"job0", "job1"}
    assert not cluster.demand.demands[large].counted


@pytest.mark.parametrize("reports", [True, False])
def test_traffic_slower_than_the_parameters_before_it_contradicts_an_announcement(reports: bool) -> None:
    cluster = Cluster(spec(FOUR), reports=False)
    other = FOUR[0], FOUR[2]
    cluster.train(4 * INTERVAL_S, {}, pause=True)
    cluster.train(INTERVAL_S, {other: 20 * M})
    cluster.reports, cluster.progress = reports, 0.0
    cluster.until(lambda demand: demand.contradicted, {**RIGHT, other: M}, 24)
    difference = cluster.of_job.difference
    assert difference
    assert [pair for pair, _ in difference.undeclared] == [other]


def test_a_registration_causes_no_work_for_other_jobs_that_are_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(*(announced(number) for number in range(40)), max_rules=12 * 30)
    looked_at = list[JobId]()
    allow = WatchedJob.allow_learning

    def recorded(watched: WatchedJob, allowed: bool) -> bool:
        looked_at.append(watched.job.id)
        return allow(watched, allowed)

    monkeypatch.setattr(WatchedJob, "allow_learning", recorded)
    begin(cluster, announced(40))
    assert len(learnt(cluster)) == 30
    assert len(looked_at) == 2, "the new one and the one that gives way"


def test_a_restart_compares_no_hosts_of_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparing the hosts of 2,000 jobs, each on 64 of 128 hosts, would take four seconds."""
    cluster = Cluster(*(announced(number) for number in range(3)))
    monkeypatch.setattr(JobsByAddress, "sharing", lambda *_: pytest.fail("hosts are compared"))
    demand = MeasuredDemand(INTERVAL_S, 4032)
    demand.follow(cluster.registry.jobs, cluster.now, {})
    assert not any(of_job.counted for of_job in demand.demands.values())
