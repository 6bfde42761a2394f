"""Revisions of a job's spec: updates that are made, and updates refused because another one came first."""

from __future__ import annotations

from typing import Any

import pytest

from controller.jobs.job import Job
from controller.jobs.messages import RegisterJob, SavedState, UpdateJob
from controller.jobs.registry import JobRegistry
from signalbox.errors import ConcurrentUpdate
from signalbox.jobs.spec import JobId, JobSpec

A = JobId("a")


def spec(job_id: str = "a", size: int = 1000, **more: Any) -> JobSpec:
    transfers = [{"src": 0, "dst": 1, "bytes_per_iteration": size}]
    return JobSpec.parse({"job_id": job_id, "endpoints": ["10.0.0.1", "10.0.0.2"], "transfers": transfers, **more})


def update(registry: JobRegistry, wanted: JobSpec, *revisions: int) -> Job:
    owner = registry.jobs[JobId(wanted.job_id)].uid
    (job,) = registry.update([UpdateJob(wanted, frozenset(revisions), owner)])
    return job


def revision(registry: JobRegistry) -> int:
    return registry.jobs[A].registration.revision


@pytest.fixture
def registry() -> JobRegistry:
    registry = JobRegistry(max_jobs=5)
    registry.register(RegisterJob(spec()), 0.0)
    return registry


def test_each_update_that_changes_the_spec_adds_one(registry: JobRegistry) -> None:
    assert revision(registry) == 1
    for size, expected in ((2000, 2), (2000, 2), (1000, 3), (3000, 4)):
        assert update(registry, spec(size=size)).registration.revision == expected


def test_a_new_registration_begins_at_one_and_a_renewal_changes_nothing(registry: JobRegistry) -> None:
    job = update(registry, spec(size=2000))
    registry.register(RegisterJob(spec(size=2000), owner=job.uid), 0.0)
    assert revision(registry) == 2
    registry.register(RegisterJob(spec(size=2000), take_over=True), 0.0)
    assert revision(registry) == 1


def test_an_update_is_made_only_from_the_revision_that_the_job_has(registry: JobRegistry) -> None:
    update(registry, spec(size=2000), 1)
    for stale in ({1}, {3}, {1, 2}):
        expected = rf"^job 'a' was updated meanwhile: it has revision 2, .* made from revision {min(stale - {2})}"
        with pytest.raises(ConcurrentUpdate, match=expected) as error:
            update(registry, spec(size=3000), *stale)
        assert error.value.about == {"jobId": "a", "revision": "2"}
        assert registry.jobs[A].spec == spec(size=2000)
    assert update(registry, spec(size=3000), 2).registration.revision == 3


def test_a_repetition_of_an_update_that_was_made_is_no_error(registry: JobRegistry) -> None:
    """The client repeats a call whose answer was lost."""
    for _ in range(3):
        assert update(registry, spec(size=2000), 1).registration.revision == 2
    update(registry, spec(size=3000))
    with pytest.raises(ConcurrentUpdate):
        update(registry, spec(size=2000), 1)


def test_of_a_set_one_stale_revision_refuses_all(registry: JobRegistry) -> None:
    other = spec("b", endpoints=["10.0.0.3", "10.0.0.4"])
    of_b = registry.register(RegisterJob(other), 0.0).uid
    changed = other.model_copy(update={"max_subflows": 2})

    def both(revision_of_b: int) -> None:
        first = UpdateJob(spec(size=2000), frozenset({1}), registry.jobs[A].uid, entry="jobs[0]")
        registry.update([first, UpdateJob(changed, frozenset({revision_of_b}), of_b, entry="jobs[1]")])

    with pytest.raises(ConcurrentUpdate, match=r"^jobs\[1\]: job 'b' was updated") as error:
        both(7)
    assert error.value.about == {"jobId": "b", "revision": "1", "field": "jobs[1]"}
    assert [job.registration.revision for job in registry.jobs.values()] == [1, 1]
    both(1)
    assert [job.registration.revision for job in registry.jobs.values()] == [2, 2]


def test_what_is_taken_back_takes_its_revision_back(registry: JobRegistry) -> None:
    before = {A: registry.known(A)}
    update(registry, spec(size=2000))
    registry.restore(before)
    assert revision(registry) == 1
    update(registry, spec(size=3000), 1)


def test_a_restart_goes_on_with_the_revision_that_was_saved(registry: JobRegistry) -> None:
    job = update(registry, spec(size=2000))
    after = JobRegistry(max_jobs=5)
    assert not after.take_saved(SavedState({A: job.registration}), 0.0)
    with pytest.raises(ConcurrentUpdate):
        update(after, spec(size=3000), 1)
    assert update(after, spec(size=3000), 2).registration.revision == 3
