"""Accepted jobs of a registry: their pairs, limits, leases, snapshots and updates, even of several at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.jobs.job import Job
from controller.jobs.messages import NO_QUOTA, Quota, RegisterJob, UpdateJob
from controller.jobs.registry import JobRegistry, Known
from signalbox.errors import ConcurrentUpdate, Conflict, Exhausted, InvalidInput, NotFound, SignalboxError
from signalbox.errors import WrongLeaseToken as WrongToken
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
    held = registry.jobs.get(JobId(spec.job_id))
    return registry.register(RegisterJob(spec, held.uid if held else None), now)


def update(registry: JobRegistry, spec: JobSpec, *revisions: int) -> Job:
    owner = registry.jobs[JobId(spec.job_id)].uid
    (job,) = registry.update([UpdateJob(spec, frozenset(revisions), owner)])
    return job


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
    with pytest.raises(
        Exhausted, match=r"makes 6 virtual links, and its names take the memory of 1 more; the other jobs have 3"
    ):
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


def test_each_update_that_changes_the_spec_adds_one_until_another_registration_begins(registry: JobRegistry) -> None:
    assert register(registry, ring()).registration.revision == 1
    for number, expected in ((2, 2), (2, 2), (1, 3), (3, 4)):
        assert update(registry, ring(max_subflows=number)).registration.revision == expected
    assert register(registry, ring(max_subflows=3)).registration.revision == 4, "a renewal"
    before = {A: registry.known(A)}
    update(registry, ring(), 4)
    registry.restore(before)
    assert registry.jobs[A].registration.revision == 4, "the update was taken back"
    assert registry.register(RegisterJob(ring(), take_over=True), 0.0).registration.revision == 1


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


# ---- updates of several jobs at once: all or none are made, and the checks apply to the result


def sends(job_id: str, *pairs: tuple[int, int], **more: Any) -> JobSpec:
    hosts = sorted({host for pair in pairs for host in pair})
    transfers = [
        {"src": hosts.index(src), "dst": hosts.index(dst), "bytes_per_iteration": 1000 + len(pairs)}
        for src, dst in pairs
    ]
    endpoints = [f"10.0.0.{host}" for host in hosts]
    return JobSpec.parse({"job_id": job_id, "endpoints": endpoints, "transfers": transfers, "lease_s": 60, **more})


def with_jobs(*specs: JobSpec, **limits: Any) -> JobRegistry:
    registry = JobRegistry(**{"max_jobs": 10, **limits})
    for one in specs:
        registry.register(RegisterJob(one, tenant="blue"), 0.0)
    return registry


def updates(registry: JobRegistry, *specs: JobSpec, owners: dict[str, str] | None = None) -> list[UpdateJob]:
    """Return the updates of a caller who has the tokens of all jobs; ``owners`` replaces tokens, by job id."""
    jobs = registry.jobs
    own = {job_id: job.uid for job_id, job in jobs.items()} | (owners or {})
    return [UpdateJob(one, owner=own.get(one.job_id), entry=f"jobs[{n}]") for n, one in enumerate(specs)]


def state(registry: JobRegistry) -> tuple[Any, ...]:
    known: dict[JobId, Known] = {job_id: registry.known(job_id) for job_id in registry.jobs}
    return (
        {job_id: (job.registration, job.virtual_links, job.dividing) for job_id, (job, _) in known.items() if job},
        {job_id: reports for job_id, (_, reports) in known.items()},
        dict(registry._announced_by),
        registry._size,
        dict(registry._connections._holder),
        {job.uid: job.vitals.lease_ends_at for job, _ in known.values() if job},
        registry.ends.saved,
    )


ONE, TWO, THREE = ("a", (1, 2), (2, 1)), ("b", (3, 4), (4, 3)), ("c", (5, 6))


def test_two_jobs_exchange_their_pairs_and_keep_their_leases() -> None:
    registry = with_jobs(sends(*ONE), sends(*TWO))
    uids = [job.uid for job in registry.jobs.values()]
    jobs = registry.update(updates(registry, sends("b", *ONE[1:]), sends("a", *TWO[1:])))
    assert [job.id for job in jobs] == ["b", "a"], "in the order of the request"
    assert [registry.jobs[JobId(name)].uid for name in "ab"] == uids
    assert registry.jobs[JobId("a")].pairs == {("10.0.0.3", "10.0.0.4"), ("10.0.0.4", "10.0.0.3")}
    with pytest.raises(Conflict, match="job 'b' announces it"):
        registry.register(RegisterJob(sends("new", (1, 2))), 0.0)
    registry.deregister(JobId("b"), uids[1], WALL)
    registry.register(RegisterJob(sends("new", (1, 2))), 0.0)
    assert registry.expire(60.0, WALL) == ("a", "new")


def test_a_single_update_that_needs_another_jobs_hosts_names_the_way_to_exchange_them() -> None:
    registry = with_jobs(sends(*ONE), sends(*TWO))
    with pytest.raises(Conflict, match="jobs may exchange hosts in one UpdateJobs") as error:
        registry.update(updates(registry, sends("a", *TWO[1:])))
    assert "job 'b' announces it" in str(error.value)
    of_red = registry.register(RegisterJob(sends(*THREE), tenant="red"), 0.0)
    with pytest.raises(Conflict) as error:
        registry.update([UpdateJob(sends("c", *TWO[1:]), owner=of_red.uid)])
    assert "exchange" not in str(error.value), "a tenant may update only its own jobs"


# ---- refused


Refusal = tuple[type[SignalboxError], str, list[JobSpec], dict[str, str]]
TAKEN = "cannot announce 10.0.0.5 > 10.0.0.6: job 'c' announces it"
REFUSED: dict[str, Refusal] = {
    "one takes what neither has": (
        Conflict,
        rf"^jobs\[1\]: job 'b' {TAKEN}",
        [sends("a", *TWO[1:]), sends("b", (5, 6))],
        {},
    ),
    "two take the same": (
        Conflict,
        r"^jobs\[1\]: job 'b' cannot announce 10.0.0.7 > 10.0.0.8: job 'a' announces it",
        [sends("a", (7, 8)), sends("b", (7, 8))],
        {},
    ),
    "one caller's token is not valid": (
        WrongToken,
        r"^jobs\[1\]: the lease token is not that of job 'b'",
        [sends("a", *TWO[1:]), sends("b", *ONE[1:])],
        {"b": "another"},
    ),
    "one is not there": (
        NotFound,
        r"^jobs\[2\]: there is no job 'x'",
        [sends(*ONE), sends(*TWO), sends("x", (7, 8))],
        {},
    ),
    "a job is named twice": (
        InvalidInput,
        r"^jobs\[2\].spec.job_id: 'a' is also in jobs\[0\]",
        [sends("a", (7, 8)), sends("b", *ONE[1:]), sends("a", *TWO[1:])],
        {},
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_refused_set_names_the_entry_and_changes_nothing(why: str) -> None:
    kind, text, wanted, owners = REFUSED[why]
    registry = with_jobs(sends(*ONE), sends(*TWO), sends(*THREE))
    before, jobs = state(registry), registry.jobs
    with pytest.raises(kind, match=text) as error:
        registry.update(updates(registry, *wanted, owners=owners))
    assert registry.jobs is jobs
    assert state(registry) == before
    if kind is not InvalidInput:
        assert error.value.about["field"] == text[1:].partition(r"\]")[0].replace("\\", "") + "]"


def test_limits_are_judged_by_what_results() -> None:
    for limits, quota in (({"max_virtual_links": 7}, NO_QUOTA), ({}, Quota(max_virtual_links=6))):
        registry = with_jobs(sends("a", *[(1, dst) for dst in range(2, 6)]), sends("b", (11, 12), (12, 13)), **limits)
        assert sum(len(job.virtual_links) for job in registry.jobs.values()) == 6
        grown = sends("b", *[(11, dst) for dst in range(12, 16)])
        with pytest.raises(Exhausted, match=r"^jobs\[1\]: .*job 'b'"):
            registry.update(updates(registry, sends("a", *[(1, dst) for dst in range(3, 7)]), grown), quota)
        registry.update(updates(registry, grown, sends("a", (1, 2), (2, 3))), quota)
        registry.update(
            updates(registry, sends("a", *[(1, dst) for dst in range(2, 6)]), sends("b", (11, 12), (12, 13)))
        )


# ---- undone, also at random below


def test_a_job_of_the_set_whose_lease_has_run_out_meanwhile_stays_gone() -> None:
    registry = with_jobs(sends(*ONE), sends(*TWO))
    known = {JobId(name): registry.known(JobId(name)) for name in "ab"}
    registry.update(updates(registry, sends("a", *TWO[1:]), sends("b", *ONE[1:])))
    registry.renew(JobId("b"), registry.jobs[JobId("b")].uid, 30.0)
    assert registry.expire(60.0, WALL) == ("a",)
    registry.restore(known, 61.0)
    assert {job_id: job.spec for job_id, job in registry.jobs.items()} == {"b": sends(*TWO)}
    registry.register(RegisterJob(sends("new", *ONE[1:])), 61.0)


# ---- at random

NAMES = "abcd"
PAIRS = st.frozensets(
    st.tuples(st.integers(1, 4), st.integers(1, 4)).filter(lambda pair: pair[0] != pair[1]), min_size=1
)
SETS = st.lists(
    st.lists(
        st.tuples(st.sampled_from(NAMES), PAIRS, st.booleans()), min_size=1, max_size=4, unique_by=lambda one: one[0]
    ),
    min_size=1,
    max_size=4,
)


def one_after_the_other(registry: JobRegistry, changes: list[UpdateJob]) -> bool:
    """Make the changes one after the other, in any possible order; return whether such an order exists."""
    left = list(changes)
    while left:
        for update in left:
            try:
                registry.update([update])
            except Conflict:
                continue
            left.remove(update)
            break
        else:
            return False
    return True


@given(SETS)
@settings(max_examples=40)
def test_a_set_gives_what_its_updates_give_in_an_order_and_a_refused_one_changes_nothing(
    sets: list[list[tuple[str, frozenset[tuple[int, int]], bool]]],
) -> None:
    at_once, in_order = (
        with_jobs(*(sends(name, (10 * n, 10 * n + 1)) for n, name in enumerate(NAMES, 1))) for _ in "12"
    )
    for one in sets:
        specs = [sends(name, *sorted(pairs), reports_connections=shares) for name, pairs, shares in one]
        before, known = state(at_once), {job_id: at_once.known(job_id) for job_id in at_once.jobs}
        try:
            at_once.update(updates(at_once, *specs))
        except Conflict:
            assert state(at_once) == before
            assert not one_after_the_other(in_order, updates(in_order, *specs)), (
                "a set is refused where an order is not"
            )
        else:
            alone = [job for job in at_once.jobs.values() if not job.dividing.owner]
            assert len({pair for job in alone for pair in job.pairs}) == sum(len(job.pairs) for job in alone)
            if one_after_the_other(in_order, updates(in_order, *specs)):
                assert specs_of(at_once) == specs_of(in_order)
                assert at_once._size == in_order._size
                assert at_once._announced_by == in_order._announced_by
            after = state(at_once)
            at_once.restore(known)
            assert state(at_once) == before
            at_once.update(updates(at_once, *specs))
            assert state(at_once) == after
        in_order = with_jobs(*specs_of(at_once).values())


def specs_of(registry: JobRegistry) -> dict[JobId, JobSpec]:
    jobs: list[Job] = list(registry.jobs.values())
    return {job.id: job.spec for job in jobs}
