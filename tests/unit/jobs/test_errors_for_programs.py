"""Details of the errors of the registry for programs: the metadata of ``google.rpc.ErrorInfo``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from controller.jobs.messages import NO_QUOTA, Quota, RegisterJob, UpdateJob
from controller.jobs.registry import JobRegistry
from signalbox.errors import SignalboxError
from signalbox.jobs.reports import Connected
from signalbox.jobs.spec import JobId, JobSpec

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"
MAX_JOBS = 4


def spec(job_id: str, endpoints: tuple[str, ...] = (A, B), **more: Any) -> JobSpec:
    transfers = [{"src": 0, "dst": dst, "bytes_per_iteration": 1000} for dst in range(1, len(endpoints))]
    return JobSpec.parse({"job_id": job_id, "endpoints": endpoints, "transfers": transfers, **more})


def register(registry: JobRegistry, wanted: JobSpec, tenant: str = "red", quota: Quota = NO_QUOTA) -> str:
    return registry.register(RegisterJob(wanted, tenant=tenant, quota=quota, request_id=f"{tenant}'s"), 0.0).uid


@pytest.fixture
def registry() -> JobRegistry:
    """Return a registry with red's job on hosts A and B, and a job on A and C that has reported a connection."""
    registry = JobRegistry(MAX_JOBS, max_virtual_links=10)
    register(registry, spec("taken"))
    owner = register(registry, spec("reporter", (A, C), reports_connections=True))
    registry.report_connections(JobId("reporter"), A, frozenset({Connected(A, 1, C, 2)}), owner)
    return registry


def another_spec(registry: JobRegistry) -> None:
    register(registry, spec("taken", max_subflows=2))


def another_owner(registry: JobRegistry) -> None:
    registry.register(RegisterJob(spec("taken")), 0.0)


def another_tenant(registry: JobRegistry) -> None:
    register(registry, spec("taken"), "blue")


def a_taken_pair(registry: JobRegistry) -> None:
    register(registry, spec("new"))


def a_pair_of_another_tenant(registry: JobRegistry) -> None:
    register(registry, spec("new"), "blue")


def a_taken_connection(registry: JobRegistry) -> None:
    owner = register(registry, spec("new", (A, C), reports_connections=True))
    places = {Connected(A, 7, C, 7): 0, Connected(A, 1, C, 2): 1}
    registry.report_connections(JobId("new"), A, frozenset(places), owner, places=places)


def connections_of_a_job_without(registry: JobRegistry) -> None:
    registry.report_connections(JobId("taken"), A, frozenset(), registry.jobs[JobId("taken")].uid)


def too_many_jobs(registry: JobRegistry) -> None:
    for n in range(MAX_JOBS):
        register(registry, spec(f"job{n}", (f"10.1.{n}.1", f"10.1.{n}.2")))


def too_many_links(registry: JobRegistry) -> None:
    register(registry, spec("new", tuple(f"10.2.0.{n}" for n in range(1, 11))))


def beyond_a_quota(registry: JobRegistry) -> None:
    register(registry, spec("new", ("10.2.0.1", "10.2.0.2")), quota=Quota(max_jobs=2))


def an_old_spec(registry: JobRegistry) -> None:
    owner = registry.jobs[JobId("taken")].uid
    registry.update([UpdateJob(spec("taken", max_subflows=2), frozenset({7}), owner)])


def no_token(registry: JobRegistry) -> None:
    registry.renew(JobId("taken"), None, 0.0)


def no_job(registry: JobRegistry) -> None:
    registry.renew(JobId("none"), None, 0.0)


def an_ended_job(registry: JobRegistry) -> None:
    registry.deregister(JobId("taken"), registry.jobs[JobId("taken")].uid, 0.0)
    registry.renew(JobId("taken"), None, 0.0)


PAIR = {"src": A, "dst": B}
CASES: list[tuple[Callable[[JobRegistry], None], dict[str, str]]] = [
    (another_spec, {"jobId": "taken", "heldBy": "caller"}),
    (another_owner, {"jobId": "taken", "heldBy": "other"}),
    (another_tenant, {"jobId": "taken", "heldBy": "other_tenant"}),
    (a_taken_pair, {"jobId": "new", "otherJobId": "taken", **PAIR}),
    (a_pair_of_another_tenant, {"jobId": "new", **PAIR}),
    (a_taken_connection, {"jobId": "new", "otherJobId": "reporter", "field": "connections[1]"}),
    (connections_of_a_job_without, {"jobId": "taken"}),
    (too_many_jobs, {"limit": "jobs.max_jobs", "limitValue": "4", "used": "4", "wanted": "1"}),
    (too_many_links, {"limit": "jobs.max_virtual_links", "limitValue": "10", "used": "2", "wanted": "10"}),
    (beyond_a_quota, {"limit": "tenant.max_jobs", "limitValue": "2", "used": "2", "wanted": "1"}),
    (an_old_spec, {"jobId": "taken", "revision": "1"}),
    (no_token, {"jobId": "taken"}),
    (no_job, {"jobId": "none"}),
    (an_ended_job, {"jobId": "taken"}),
]


@pytest.mark.parametrize(("refused", "about"), CASES, ids=[refused.__name__ for refused, _ in CASES])
def test_programs_are_told_what_the_words_are_about(
    registry: JobRegistry, refused: Callable[[JobRegistry], None], about: dict[str, str]
) -> None:
    with pytest.raises(SignalboxError) as error:
        refused(registry)
    assert error.value.about == about
