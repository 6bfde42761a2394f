"""Updates of several jobs at once: all or none are made, and the checks apply to the result."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.jobs.job import Job
from controller.jobs.messages import NO_QUOTA, Quota, RegisterJob, UpdateJob
from controller.jobs.registry import JobRegistry, Known
from signalbox.errors import Conflict, Exhausted, InvalidInput, NotFound, SignalboxError
from signalbox.errors import WrongLeaseToken as WrongToken
from signalbox.jobs.spec import JobId, JobSpec

WALL = 1e9


def spec(job_id: str, *pairs: tuple[int, int], **more: Any) -> JobSpec:
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
    """Return the whole state of the registry, as values."""
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


A, B, C = ("a", (1, 2), (2, 1)), ("b", (3, 4), (4, 3)), ("c", (5, 6))


def test_two_jobs_exchange_their_pairs_and_keep_their_leases() -> None:
    registry = with_jobs(spec(*A), spec(*B))
    uids = [job.uid for job in registry.jobs.values()]
    jobs = registry.update(updates(registry, spec("b", *A[1:]), spec("a", *B[1:])))
    assert [job.id for job in jobs] == ["b", "a"], "in the order of the request"
    assert [registry.jobs[JobId(name)].uid for name in "ab"] == uids
    assert registry.jobs[JobId("a")].pairs == {("10.0.0.3", "10.0.0.4"), ("10.0.0.4", "10.0.0.3")}
    with pytest.raises(Conflict, match="job 'b' announces it"):
        registry.register(RegisterJob(spec("new", (1, 2))), 0.0)
    registry.deregister(JobId("b"), uids[1], WALL)
    registry.register(RegisterJob(spec("new", (1, 2))), 0.0)
    assert registry.expire(60.0, WALL) == ("a", "new")


def test_a_single_update_that_needs_another_jobs_hosts_names_the_way_to_exchange_them() -> None:
    registry = with_jobs(spec(*A), spec(*B))
    with pytest.raises(Conflict, match="jobs may exchange hosts in one UpdateJobs") as error:
        registry.update(updates(registry, spec("a", *B[1:])))
    assert "job 'b' announces it" in str(error.value)
    of_red = registry.register(RegisterJob(spec(*C), tenant="red"), 0.0)
    with pytest.raises(Conflict) as error:
        registry.update([UpdateJob(spec("c", *B[1:]), owner=of_red.uid)])
    assert "exchange" not in str(error.value), "a tenant may update only its own jobs"


# ---- refused


Refusal = tuple[type[SignalboxError], str, list[JobSpec], dict[str, str]]
TAKEN = "cannot announce 10.0.0.5 > 10.0.0.6: job 'c' announces it"
REFUSED: dict[str, Refusal] = {
    "one takes what neither has": (
        Conflict,
        rf"^jobs\[1\]: job 'b' {TAKEN}",
        [spec("a", *B[1:]), spec("b", (5, 6))],
        {},
    ),
    "two take the same": (
        Conflict,
        r"^jobs\[1\]: job 'b' cannot announce 10.0.0.7 > 10.0.0.8: job 'a' announces it",
        [spec("a", (7, 8)), spec("b", (7, 8))],
        {},
    ),
    "one caller's token is not valid": (
        WrongToken,
        r"^jobs\[1\]: the lease token is not that of job 'b'",
        [spec("a", *B[1:]), spec("b", *A[1:])],
        {"b": "another"},
    ),
    "one is not there": (NotFound, r"^jobs\[2\]: there is no job 'x'", [spec(*A), spec(*B), spec("x", (7, 8))], {}),
    "a job is named twice": (
        InvalidInput,
        r"^jobs\[2\].spec.job_id: 'a' is also in jobs\[0\]",
        [spec("a", (7, 8)), spec("b", *A[1:]), spec("a", *B[1:])],
        {},
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_refused_set_names_the_entry_and_changes_nothing(why: str) -> None:
    kind, text, wanted, owners = REFUSED[why]
    registry = with_jobs(spec(*A), spec(*B), spec(*C))
    before, jobs = state(registry), registry.jobs
    with pytest.raises(kind, match=text) as error:
        registry.update(updates(registry, *wanted, owners=owners))
    assert registry.jobs is jobs
    assert state(registry) == before
    if kind is not InvalidInput:
        assert error.value.about["field"] == text[1:].partition(r"\]")[0].replace("\\", "") + "]"


def test_limits_are_judged_by_what_results() -> None:
    for limits, quota in (({"max_virtual_links": 7}, NO_QUOTA), ({}, Quota(max_virtual_links=6))):
        registry = with_jobs(spec("a", *[(1, dst) for dst in range(2, 6)]), spec("b", (11, 12), (12, 13)), **limits)
        assert sum(len(job.virtual_links) for job in registry.jobs.values()) == 6
        grown = spec("b", *[(11, dst) for dst in range(12, 16)])
        with pytest.raises(Exhausted, match=r"^jobs\[1\]: .*job 'b'"):
            registry.update(updates(registry, spec("a", *[(1, dst) for dst in range(3, 7)]), grown), quota)
        registry.update(updates(registry, grown, spec("a", (1, 2), (2, 3))), quota)
        registry.update(updates(registry, spec("a", *[(1, dst) for dst in range(2, 6)]), spec("b", (11, 12), (12, 13))))


# ---- undone, also at random below


def test_a_job_of_the_set_whose_lease_has_run_out_meanwhile_stays_gone() -> None:
    registry = with_jobs(spec(*A), spec(*B))
    known = {JobId(name): registry.known(JobId(name)) for name in "ab"}
    registry.update(updates(registry, spec("a", *B[1:]), spec("b", *A[1:])))
    registry.renew(JobId("b"), registry.jobs[JobId("b")].uid, 30.0)
    assert registry.expire(60.0, WALL) == ("a",)
    registry.restore(known, 61.0)
    assert {job_id: job.spec for job_id, job in registry.jobs.items()} == {"b": spec(*B)}
    registry.register(RegisterJob(spec("new", *A[1:])), 61.0)


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
        with_jobs(*(spec(name, (10 * n, 10 * n + 1)) for n, name in enumerate(NAMES, 1))) for _ in "12"
    )
    for one in sets:
        specs = [spec(name, *sorted(pairs), reports_connections=shares) for name, pairs, shares in one]
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
