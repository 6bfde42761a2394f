"""The published status of each job follows from the changes of that job alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from controller.core.job_statuses import JobStatuses
from controller.fabric.topology import Host
from controller.jobs.job import Job
from controller.jobs.messages import RegisterJob
from controller.jobs.registry import JobRegistry
from controller.planning.plan import Slowdowns
from controller.status import JobStatus
from offline.scenarios.fabrics import leaf_spine
from signalbox.jobs.spec import JobId
from tests.support.by_id import by_id
from tests.support.fake_fabric import ring_job

HOSTS = leaf_spine(3, 2, 2, 1e9, 2e9).hosts
A, B = JobId("a"), JobId("b")


def job_of(job_id: str, ips: list[str], **more: Any) -> Job:
    return JobRegistry(10).register(RegisterJob(ring_job(job_id, ips, **more)), 0.0)


def told(
    statuses: JobStatuses,
    *jobs: Job,
    hosts: Mapping[str, Host] = HOSTS,
    phase_slowdowns: Mapping[JobId, Mapping[int, float]] | None = None,
) -> Mapping[JobId, JobStatus]:
    return statuses(by_id(*jobs), {}, {}, hosts, {}, {}, Slowdowns(1, {A: 2.0, B: 2.0}, phase_slowdowns or {}))


def test_a_phase_without_a_slowdown_takes_as_long_as_on_an_idle_fabric() -> None:
    ring = {"algorithm": "ring_all_reduce", "groups": ["dp"], "bytes_per_iteration": 1_000_000}
    job = job_of("a", ["10.0.0.1", "10.0.1.1"], collectives=[{**ring, "phase": phase} for phase in (0, 1)])
    assert told(JobStatuses(), job)[A].efficiency_allowed == 1 / 2
    assert told(JobStatuses(), job, phase_slowdowns={A: {0: 3.0}})[A].efficiency_allowed == 2 / 4


def test_a_job_that_changes_is_told_beside_one_whose_hosts_do() -> None:
    statuses, a, b = JobStatuses(), job_of("a", ["10.0.0.1", "10.0.1.1"]), job_of("b", ["10.0.0.2", "10.0.1.2"])
    before = told(statuses, a, b)
    assert (before[A].routes_generation, before[A].routes_known) == (0, False)
    other = job_of("a", ["10.0.0.1", "10.0.1.1"], max_subflows=2)
    slower = {ip: replace(host, nic_bps=host.nic_bps / 2) if ip in b.addresses else host for ip, host in HOSTS.items()}
    after = told(statuses, other, b, hosts=slower)
    assert after[A].dividing.max_subflows == 2
    assert after[B].ideal_communication_s == 2 * before[B].ideal_communication_s
