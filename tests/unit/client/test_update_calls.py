"""Updates that the client repeats: it keeps concurrent changes by other programs, and finally gives up."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from controller.api import convert
from controller.jobs.messages import RegisterJob, UpdateJob
from controller.jobs.registry import JobRegistry
from signalbox import client as client_calls
from signalbox.client import UPDATE_TRIES, Client
from signalbox.errors import ConcurrentUpdate, NotFound
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.mapping import spec_message
from signalbox.v1 import signalbox_pb2 as pb


def spec(job_id: str = "a", first: int = 1, second: int = 1, **more: Any) -> JobSpec:
    ways = ((0, 1, first), (1, 0, second))
    transfers = [{"src": src, "dst": dst, "bytes_per_iteration": size} for src, dst, size in ways]
    hosts = [f"10.0.0.{ord(job_id)}", f"10.0.1.{ord(job_id)}"]
    return JobSpec.parse({"job_id": job_id, "endpoints": hosts, "transfers": transfers, **more})


class OfRegistry(Client):
    """Client whose calls a registry answers as the controller does.

    ``others``: for each call, what happens between the read of the job and its update."""

    def __init__(self, registry: JobRegistry) -> None:
        self.registry = registry
        self.others: list[Callable[[], object]] = []
        self.calls = 0
        self._jobs: Any = SimpleNamespace(GetJob="GetJob", UpdateJob="UpdateJob", UpdateJobs="UpdateJobs")

    def _token(self, _job_id: str, given: str | None) -> str:
        return given or ""

    def _job(self, job_id: str) -> pb.Job:
        job = self.registry.jobs[JobId(job_id)]
        return pb.Job(spec=spec_message(job.spec), revision=job.registration.revision)

    def _call(self, method: Any, request: Any, *_: Any) -> Any:
        if method == "GetJob":
            return SimpleNamespace(job=self._job(request.job_id))
        self.calls += 1
        entries = request.jobs if method == "UpdateJobs" else [request]
        current = [self.registry.jobs[JobId(one.spec.job_id)].registration for one in entries]
        if self.others:
            self.others.pop(0)()
        updates = []
        for one, job in zip(entries, current, strict=True):
            required = convert.required_revisions(one, job.revision)
            updates.append(UpdateJob(convert.updated_spec(one, job.spec), required, owner=job.uid))
        self.registry.update(updates)
        jobs = [self._job(one.spec.job_id) for one in entries]
        return SimpleNamespace(job=jobs[0], jobs=jobs)

    def by_another(self, wanted: JobSpec) -> Callable[[], object]:
        owner = self.registry.jobs[JobId(wanted.job_id)].uid
        return lambda: self.registry.update([UpdateJob(wanted, owner=owner)])


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []
    monkeypatch.setattr(client_calls, "time", SimpleNamespace(sleep=waited.append))
    return waited


@pytest.fixture
def client(pauses: list[float]) -> OfRegistry:  # noqa: ARG001
    registry = JobRegistry(max_jobs=5)
    for name in "ab":
        registry.register(RegisterJob(spec(name)), 0.0)
    return OfRegistry(registry)


def test_an_update_of_some_fields_and_a_set_of_updates_are_repeated_until_they_are_made(
    client: OfRegistry, pauses: list[float]
) -> None:
    client.others = [client.by_another(spec(first=n, max_subflows=n)) for n in (2, 3, 4)]
    job = client.update_job(spec(lease_s=33), ["lease_s"])
    assert (job.spec.lease.seconds, job.spec.max_subflows, job.spec.transfers[0].bytes_per_iteration) == (33, 4, 4)
    assert (client.calls, job.revision, len(pauses)) == (4, 5, 3)
    client.others = [client.by_another(spec("b", first=7))]
    jobs = client.update_jobs([spec("a", lease_s=33), spec("b", lease_s=44)], ["lease_s"])
    assert [job.spec.lease.seconds for job in jobs] == [33, 44]
    assert jobs[1].spec.transfers[0].bytes_per_iteration == 7
    assert client.calls == 4 + 2


def test_it_gives_up_at_last(client: OfRegistry, pauses: list[float]) -> None:
    client.others = [client.by_another(spec(first=n)) for n in range(2, 100)]
    with pytest.raises(ConcurrentUpdate):
        client.update_job(spec(lease_s=33), ["lease_s"])
    assert (client.calls, len(pauses)) == (UPDATE_TRIES, UPDATE_TRIES - 1)
    client.calls = 0

    def gone() -> None:
        raise NotFound("there is no job 'a'")

    client.others = [gone]
    with pytest.raises(NotFound):
        client.update_job(spec(lease_s=33), ["lease_s"])
    assert client.calls == 1, "other errors are not repeated"


@pytest.mark.parametrize("fields", [(), ("lease_s",)])
def test_an_update_from_a_stale_revision_is_not_repeated(client: OfRegistry, fields: tuple[str, ...]) -> None:
    client.by_another(spec(first=2))()
    with pytest.raises(ConcurrentUpdate, match="has revision 2, and this update is made from revision 1"):
        client.update_job(spec(lease_s=33), fields, revision=1)
    with pytest.raises(ConcurrentUpdate):
        client.update_jobs([spec("b", lease_s=33), spec("a", lease_s=33)], fields, revisions={"a": 1})
    assert client.calls == 2
    assert client.update_job(spec(lease_s=33), fields, revision=2).spec.lease.seconds == 33


def test_a_job_is_read_and_changed_again_until_no_other_update_comes_between(client: OfRegistry) -> None:
    def grown(before: JobSpec) -> JobSpec:
        return spec(first=before.transfers[0].bytes_per_iteration, second=before.transfers[1].bytes_per_iteration + 1)

    client.others = [client.by_another(spec(first=n)) for n in (10, 20)]
    job = client.change_job("a", grown)
    assert [transfer.bytes_per_iteration for transfer in job.spec.transfers] == [20, 2]
    client.others = [client.by_another(spec(first=n)) for n in range(30, 100)]
    with pytest.raises(ConcurrentUpdate):
        client.change_job("a", grown)
