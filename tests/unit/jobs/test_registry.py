"""Accepted jobs of a registry: their pairs, limits, leases, snapshots and updates."""

from typing import Any

import pytest

from controller.jobs.job import Job
from controller.jobs.messages import RegisterJob, SavedState, UpdateJob
from controller.jobs.registry import JobRegistry
from signalbox.errors import ConcurrentUpdate, Conflict, Exhausted
from signalbox.jobs.reports import Connected, IterationTime
from signalbox.jobs.spec import JobId, JobSpec
from tests.support.fake_fabric import ring_job

A = JobId("a")
WALL = 1e9


def ring(job_id: str = "a", hosts: tuple[int, ...] = (1, 2, 3), **changes: Any) -> JobSpec:
    return ring_job(job_id, [f"10.0.0.{h}" for h in hosts], **changes)


@pytest.fixture
def registry() -> JobRegistry:
    return JobRegistry(max_jobs=3)


def register(registry: JobRegistry, spec: JobSpec, now: float = 0.0) -> Job:
    """Register a job, or renew its lease as its owner."""
    held = registry.jobs.get(JobId(spec.job_id))
    return registry.register(RegisterJob(spec, held.uid if held else None), now)


def update(registry: JobRegistry, spec: JobSpec, *revisions: int) -> Job:
    """Update a job as its owner; ``revisions``: those from which the update was made."""
    owner = registry.jobs[JobId(spec.job_id)].uid
    (job,) = registry.update([UpdateJob(spec, frozenset(revisions), owner)])
    return job


def test_a_registered_job_has_its_virtual_links_and_lease(registry: JobRegistry) -> None:
    job = register(registry, ring(), now=100.0)
    assert registry.jobs == {A: job}
    one, two, three = job.spec.endpoints
    pairs = (one, two), (two, three), (three, one)
    assert {(v.src_ip, v.dst_ip): v.bytes for v in job.virtual_links} == dict.fromkeys(pairs, 1_333_334)
    assert job.vitals.lease_ends_at == 160.0


def test_the_limit_of_jobs_does_not_stop_renewals(registry: JobRegistry) -> None:
    for n, name in enumerate("abc"):
        register(registry, ring(name, (10 * n + 1, 10 * n + 2)))
    with pytest.raises(Exhausted, match="3 jobs") as error:
        register(registry, ring("d", (91, 92)))
    assert error.value.about == {"limit": "jobs.max_jobs", "limitValue": "3", "used": "3", "wanted": "1"}
    assert register(registry, ring("a", (1, 2)), now=5.0).vitals.lease_ends_at == 65.0


def test_virtual_links_of_all_jobs_are_limited_by_their_count_alone() -> None:
    registry = JobRegistry(max_jobs=10, max_virtual_links=8)
    register(registry, ring("a"))
    register(registry, ring("b", (4, 5, 6)))
    whole = "job 'c' makes 3 virtual links; the other jobs have 6, and at most 8 are allowed .*max_virtual_links"
    with pytest.raises(Exhausted, match=whole) as error:
        register(registry, ring("c", (7, 8, 9)))
    assert error.value.about == {"limit": "jobs.max_virtual_links", "limitValue": "8", "used": "6", "wanted": "3"}
    with pytest.raises(Exhausted, match=r"makes 6 virtual links .*; the other jobs have 3"):
        update(registry, ring("a", (1, 2, 3, 7, 8, 9)))
    register(registry, ring("a"), now=1.0)  # renews the lease
    update(registry, ring("a", (1, 2)))
    register(registry, ring("c", (7, 8, 9)), now=2.0)


# ---- leases


def test_a_lease_ends_exactly_when_it_says(registry: JobRegistry) -> None:
    job = register(registry, ring())
    assert registry.renew(A, job.uid, 50.0) == 60.0
    assert registry.expire(109.9, WALL) == ()
    assert registry.expire(110.0, WALL) == (A,)
    assert not registry.jobs
    register(registry, ring("b"), now=111.0)


def test_heartbeats_and_reports_change_no_snapshot_nor_does_the_end_of_a_job(registry: JobRegistry) -> None:
    job = register(registry, ring())
    jobs = registry.jobs
    registry.renew(A, job.uid, 1.0)
    register(registry, ring(), now=2.0)
    registry.report(A, job.uid, (IterationTime(0, 2.0, 1.0),), 0.0)
    assert registry.jobs is jobs
    assert registry.jobs[A] is job
    assert job.vitals.lease_ends_at == 62.0
    registry.deregister(A, job.uid, WALL)
    assert set(jobs) == {A}


def test_a_lease_that_begins_again_is_looked_at_once(registry: JobRegistry) -> None:
    for now in range(5):
        job = register(registry, ring(), now=float(now))
        before = registry.known(A)
        registry.deregister(A, job.uid, WALL)
        registry.restore({A: before})
        registry.renew(A, job.uid, float(now))
        if now < 4:
            registry.deregister(A, job.uid, WALL)
    assert registry.expire(63.9, WALL) == ()
    assert registry.expire(64.0, WALL) == (A,)
    assert registry.expire(1000.0, WALL) == ()


def test_a_lease_that_an_update_makes_shorter_ends_after_the_next_renewal_in_time(registry: JobRegistry) -> None:
    job = register(registry, ring())
    update(registry, ring(lease_s=10.0))
    registry.renew(A, job.uid, 1.0)
    assert registry.expire(10.9, WALL) == ()
    assert registry.expire(11.0, WALL) == (A,)


# ---- updates


def test_an_update_changes_the_spec_and_keeps_the_lease_and_the_count_of_iterations(registry: JobRegistry) -> None:
    before = register(registry, ring())
    registry.report(A, before.uid, (IterationTime(0, 2.0, 1.0), IterationTime(1, 4.0, 2.0)), 0.0)
    job = update(registry, ring(hosts=(1, 2, 4), lease_s=600))
    assert {pair for pair in job.pairs if "10.0.0.4" in pair} == {("10.0.0.2", "10.0.0.4"), ("10.0.0.4", "10.0.0.1")}
    assert job.vitals.reported.iterations == 2
    assert registry.jobs == {A: job}
    assert registry.expire(59.0, WALL) == ()
    assert registry.expire(60.0, WALL) == (A,), "the next heartbeat would have taken the new lease"


def test_an_update_frees_pairs_and_takes_others(registry: JobRegistry) -> None:
    job = register(registry, ring("a", (1, 2, 3)))
    update(registry, ring("a", (1, 2, 4)))
    register(registry, ring("b", (2, 3)))
    with pytest.raises(Conflict, match=r"'a' cannot announce 10\.0\.0\.2 > 10\.0\.0\.3: job 'b' announces it"):
        update(registry, ring("a", (1, 2, 3)))
    registry.deregister(A, job.uid, WALL)
    register(registry, ring("c", (1, 2, 4)))


def test_connections_between_addresses_that_stay_stay_reported(registry: JobRegistry) -> None:
    one, two, three = (f"10.0.0.{n}" for n in (1, 2, 3))
    kept, lost = Connected(one, 5000, two, 6000), Connected(one, 5001, three, 6000)
    job = register(registry, ring(reports_connections=True))
    registry.report_connections(A, one, frozenset({kept, lost}), job.uid)
    registry.report_connections(A, three, frozenset({Connected(three, 6000, one, 5001)}), job.uid)
    job = update(registry, ring(hosts=(1, 2), reports_connections=True))
    assert registry.connections == {A: {kept}}
    assert set(job.dividing.connections) == {(one, two), (two, one)}
    other = register(registry, ring("b", reports_connections=True))
    registry.report_connections(other.id, one, frozenset({lost}), other.uid)
    assert update(registry, ring(hosts=(1, 2))).dividing.connections == {}
    assert registry.connections == {"b": {lost}}


def test_of_several_parallelizations_the_first_one_counts_and_all_are_kept(registry: JobRegistry) -> None:
    plain, other = ring(), ring(hosts=(3, 2, 1))
    ways = [
        {"name": name, "groups": spec.groups, "collectives": spec.collectives}
        for name, spec in (("up", plain), ("down", other))
    ]

    def offer(*parallelizations: object) -> JobSpec:
        return ring(groups=(), collectives=(), parallelizations=parallelizations)

    up, down = offer(*ways), offer(*ways[::-1])
    job = register(registry, up)
    assert job.spec == up
    links = job.virtual_links
    assert links == register(JobRegistry(max_jobs=1), plain).virtual_links
    changed = update(registry, offer(ways[0]))
    assert (changed.virtual_links, len(changed.spec.parallelizations)) == (links, 1)
    assert update(registry, down).virtual_links == links, "with the ranks in another order it is the same ring"


# ---- revisions


def revision(registry: JobRegistry) -> int:
    return registry.jobs[A].registration.revision


def test_each_update_that_changes_the_spec_adds_one(registry: JobRegistry) -> None:
    register(registry, ring())
    assert revision(registry) == 1
    for number, expected in ((2, 2), (2, 2), (1, 3), (3, 4)):
        assert update(registry, ring(max_subflows=number)).registration.revision == expected


def test_a_new_registration_begins_at_one_and_a_renewal_changes_nothing(registry: JobRegistry) -> None:
    register(registry, ring())
    job = update(registry, ring(max_subflows=2))
    registry.register(RegisterJob(ring(max_subflows=2), owner=job.uid), 0.0)
    assert revision(registry) == 2
    registry.register(RegisterJob(ring(max_subflows=2), take_over=True), 0.0)
    assert revision(registry) == 1


def test_an_update_is_made_only_from_the_revision_that_the_job_has(registry: JobRegistry) -> None:
    register(registry, ring())
    update(registry, ring(max_subflows=2), 1)
    for stale in ({1}, {3}, {1, 2}):
        expected = rf"^job 'a' was updated meanwhile: it has revision 2, .* made from revision {min(stale - {2})}"
        with pytest.raises(ConcurrentUpdate, match=expected) as error:
            update(registry, ring(max_subflows=3), *stale)
        assert error.value.about == {"jobId": "a", "revision": "2"}
        assert registry.jobs[A].spec == ring(max_subflows=2)
    assert update(registry, ring(max_subflows=3), 2).registration.revision == 3


def test_a_repetition_of_an_update_that_was_made_is_no_error(registry: JobRegistry) -> None:
    register(registry, ring())
    """The client repeats a call whose answer was lost."""
    for _ in range(3):
        assert update(registry, ring(max_subflows=2), 1).registration.revision == 2
    update(registry, ring(max_subflows=3))
    with pytest.raises(ConcurrentUpdate):
        update(registry, ring(max_subflows=2), 1)


def test_of_a_set_one_stale_revision_refuses_all(registry: JobRegistry) -> None:
    register(registry, ring())
    other = ring("b", (3, 4))
    of_b = registry.register(RegisterJob(other), 0.0).uid
    changed = other.model_copy(update={"max_subflows": 2})

    def both(revision_of_b: int) -> None:
        first = UpdateJob(ring(max_subflows=2), frozenset({1}), registry.jobs[A].uid, entry="jobs[0]")
        registry.update([first, UpdateJob(changed, frozenset({revision_of_b}), of_b, entry="jobs[1]")])

    with pytest.raises(ConcurrentUpdate, match=r"^jobs\[1\]: job 'b' was updated") as error:
        both(7)
    assert error.value.about == {"jobId": "b", "revision": "1", "field": "jobs[1]"}
    assert [job.registration.revision for job in registry.jobs.values()] == [1, 1]
    both(1)
    assert [job.registration.revision for job in registry.jobs.values()] == [2, 2]


def test_what_is_taken_back_takes_its_revision_back(registry: JobRegistry) -> None:
    register(registry, ring())
    before = {A: registry.known(A)}
    update(registry, ring(max_subflows=2))
    registry.restore(before)
    assert revision(registry) == 1
    update(registry, ring(max_subflows=3), 1)


def test_a_restart_goes_on_with_the_revision_that_was_saved(registry: JobRegistry) -> None:
    register(registry, ring())
    job = update(registry, ring(max_subflows=2))
    after = JobRegistry(max_jobs=5)
    assert not after.take_saved(SavedState({A: job.registration}), 0.0)
    with pytest.raises(ConcurrentUpdate):
        update(after, ring(max_subflows=3), 1)
    assert update(after, ring(max_subflows=3), 2).registration.revision == 3
