"""Counters of jobs that the controller recently began to learn are polled more often."""

from __future__ import annotations

import pytest

from controller.jobs import measured_demand
from controller.jobs.measured_demand import SOON_RULES, SOON_S
from controller.jobs.messages import RegisterJob
from signalbox.jobs.spec import JobId
from tests.support.training_cluster import ADDRESSES, FOUR, INTERVAL_S, RIGHT, Cluster, spec


def begin(cluster: Cluster, job_id: str, addresses: list[str], announced: bool = False) -> None:
    job = spec(addresses, None if announced else [], job_id=job_id)
    cluster.registry.register(RegisterJob(job), cluster.now)
    cluster.demand.follow(cluster.registry.jobs, cluster.now)


def test_only_while_a_job_is_learnt() -> None:
    announced = spec(ADDRESSES[4:], job_id="announced")
    cluster = Cluster(spec(FOUR, []), announced, max_rules=12)
    assert cluster.demand.soon == set(FOUR)
    cluster.train(30, RIGHT)
    assert not cluster.of_job.learning
    assert cluster.demand.soon == frozenset()


def test_a_job_that_sends_nothing_is_asked_for_no_longer_than_a_minute() -> None:
    cluster = Cluster(spec(FOUR, []))
    cluster.train(SOON_S - 2 * INTERVAL_S, {}, pause=True)
    assert cluster.demand.soon == set(FOUR)
    cluster.train(3 * INTERVAL_S, {}, pause=True)
    assert cluster.of_job.learning
    assert cluster.demand.soon == frozenset()


def test_a_job_without_rules_for_learning_is_not_asked_for() -> None:
    cluster = Cluster(spec(FOUR, []), max_rules=12)
    begin(cluster, "waits", ADDRESSES[4:])
    assert not cluster.demand.demands[JobId("waits")].learning
    assert cluster.demand.soon == set(FOUR)


def test_of_many_rules_those_of_the_jobs_that_began_last_are_asked_for() -> None:
    cluster = Cluster(max_rules=4 * SOON_RULES)
    hosts = next(n for n in range(2, 100) if n * (n - 1) > SOON_RULES / 2)
    many = [[f"10.{job}.0.{host}" for host in range(1, hosts + 1)] for job in range(2)]
    for number, addresses in enumerate(many):
        begin(cluster, f"job{number}", addresses)
        cluster.now += 1
    begin(cluster, "job", FOUR)
    assert all(demand.learning for demand in cluster.demand.demands.values())
    assert cluster.demand.soon == {*many[1], *FOUR}


def test_observed_jobs_have_precedence_over_jobs_that_are_learnt_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_demand, "SOON_RULES", 12)
    cluster = Cluster(spec(FOUR, []))
    cluster.now += 1
    begin(cluster, "later", ADDRESSES[4:], announced=True)
    assert cluster.demand.demands[JobId("later")].counted
    assert cluster.demand.soon == set(FOUR)
