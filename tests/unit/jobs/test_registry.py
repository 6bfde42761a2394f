import pytest

from controller.jobs.ends import JobEnd
from controller.jobs.job import Job
from controller.jobs.messages import RegisterJob, UpdateJob
from controller.jobs.registry import JobRegistry
from signalbox.errors import AlreadyExists, Conflict, Exhausted, InvalidInput, NotFound
from signalbox.jobs.reports import Connected, IterationTime
from signalbox.jobs.spec import JobId, JobSpec


def ring(job_id: str = "a", hosts: tuple[int, ...] = (1, 2, 3), **changes: object) -> JobSpec:
    return JobSpec.parse(
        {
            "job_id": job_id,
            "endpoints": [f"10.0.0.{h}" for h in hosts],
            "groups": [{"name": "dp", "ranks": range(len(hosts))}],
            "collectives": [{"algorithm": "ring_all_reduce", "groups": ["dp"], "bytes_per_iteration": 900}],
            "lease_s": 60,
            **changes,
        }
    )


@pytest.fixture
def registry() -> JobRegistry:
    return JobRegistry(max_jobs=3)


A = JobId("a")
WALL = 1e9


# ---- calls of the job's owner


def register(registry: JobRegistry, spec: JobSpec, now: float) -> Job:
    return registry.register(RegisterJob(spec, owner(registry, JobId(spec.job_id))), now)


def renew(registry: JobRegistry, job_id: JobId, now: float) -> float:
    return registry.renew(job_id, owner(registry, job_id), now)


def report(registry: JobRegistry, job_id: JobId, iterations: tuple[IterationTime, ...]) -> tuple[IterationTime, ...]:
    return registry.report(job_id, owner(registry, job_id), iterations, now=0.0)


def update(registry: JobRegistry, spec: JobSpec) -> Job:
    (job,) = registry.update([UpdateJob(spec, owner=owner(registry, JobId(spec.job_id)))])
    return job


def report_connections(registry: JobRegistry, job_id: JobId, address: str, reported: frozenset[Connected]) -> Job:
    return registry.report_connections(job_id, address, reported, owner(registry, job_id))


def deregister(registry: JobRegistry, job_id: JobId) -> JobEnd | None:
    return registry.deregister(job_id, owner(registry, job_id), WALL)


def owner(registry: JobRegistry, job_id: JobId) -> str | None:
    job = registry.jobs.get(job_id)
    return job.uid if job else None


def times(*communication_s: float, first: int = 0) -> tuple[IterationTime, ...]:
    return tuple(IterationTime(i, 2 * s, s) for i, s in enumerate(communication_s, first))


def test_a_registered_job_has_its_virtual_links_and_lease(registry: JobRegistry) -> None:
    job = register(registry, ring(), now=100.0)
    assert registry.jobs == {A: job}
    assert {(v.src_ip, v.dst_ip): v.bytes for v in job.virtual_links} == {
        ("10.0.0.1", "10.0.0.2"): 1200,
        ("10.0.0.2", "10.0.0.3"): 1200,
        ("10.0.0.3", "10.0.0.1"): 1200,
    }
    assert job.vitals.lease_ends_at == 160.0


def test_registering_the_same_spec_again_renews_and_keeps_what_was_measured(registry: JobRegistry) -> None:
    register(registry, ring(), now=0.0)
    report(registry, A, times(1.0))
    again = register(registry, ring(), now=30.0)
    assert (again.vitals.lease_ends_at, again.vitals.reported.iterations, len(registry.jobs)) == (90.0, 1, 1)


def test_another_spec_under_a_taken_id_changes_nothing(registry: JobRegistry) -> None:
    job = register(registry, ring(), now=0.0)
    with pytest.raises(AlreadyExists, match="job 'a' is registered with another spec; update it, or take it over"):
        register(registry, ring(hosts=(4, 5)), now=1.0)
    assert registry.jobs == {A: job}


def test_a_taken_pair_is_a_conflict_that_names_both_jobs_and_the_pair(registry: JobRegistry) -> None:
    register(registry, ring("a", (1, 2, 3)), now=0.0)
    with pytest.raises(Conflict) as error:
        register(registry, ring("b", (2, 3, 4)), now=0.0)
    assert str(error.value) == (
        "job 'b' cannot announce 10.0.0.2 > 10.0.0.3: job 'a' announces it; "
        "jobs that report their connections may share pairs"
    )
    assert set(registry.jobs) == {A}


def test_jobs_may_share_hosts_when_they_share_no_pair(registry: JobRegistry) -> None:
    register(registry, ring("a", (1, 2, 3)), now=0.0)
    register(registry, ring("b", (3, 2, 1)), now=0.0)
    assert len(registry.jobs) == 2


def test_pairs_are_free_again_after_deregistration(registry: JobRegistry) -> None:
    register(registry, ring("a"), now=0.0)
    deregister(registry, A)
    register(registry, ring("b"), now=0.0)
    assert set(registry.jobs) == {"b"}


def test_the_limit_of_jobs_does_not_stop_renewals(registry: JobRegistry) -> None:
    for n, name in enumerate("abc"):
        register(registry, ring(name, (10 * n + 1, 10 * n + 2)), now=0.0)
    with pytest.raises(Exhausted, match="3 jobs"):
        register(registry, ring("d", (91, 92)), now=0.0)
    assert register(registry, ring("a", (1, 2)), now=5.0).vitals.lease_ends_at == 65.0


def test_a_spec_without_known_virtual_links_is_refused(registry: JobRegistry) -> None:
    collectives = [{"algorithm": "all_to_all", "groups": ["dp"] * 2, "bytes_per_iteration": 1}]
    with pytest.raises(InvalidInput, match="group 'dp' appears 2 times"):
        register(registry, ring(collectives=collectives), now=0.0)
    assert not registry.jobs


def test_a_lease_ends_exactly_when_it_says(registry: JobRegistry) -> None:
    register(registry, ring(), now=0.0)
    assert renew(registry, A, now=50.0) == 60.0
    assert registry.expire(109.9, WALL) == ()
    assert registry.expire(110.0, WALL) == (A,)
    assert not registry.jobs
    register(registry, ring("b"), now=111.0)


def test_heartbeats_and_reports_change_no_snapshot(registry: JobRegistry) -> None:
    job = register(registry, ring(), now=0.0)
    jobs = registry.jobs
    renew(registry, A, now=1.0)
    register(registry, ring(), now=2.0)
    report(registry, A, times(1.0))
    assert registry.jobs is jobs
    assert registry.jobs[A] is job
    assert job.vitals.lease_ends_at == 62.0


def test_a_lease_that_begins_again_is_looked_at_once(registry: JobRegistry) -> None:
    for now in range(5):
        register(registry, ring(), now=float(now))
        before = registry.known(A)
        deregister(registry, A)
        registry.restore({A: before})
        renew(registry, A, now=float(now))
        if now < 4:
            deregister(registry, A)
    assert registry.expire(63.9, WALL) == ()
    assert registry.expire(64.0, WALL) == (A,)
    assert registry.expire(1000.0, WALL) == ()


def test_a_lease_that_an_update_makes_shorter_ends_after_the_next_renewal_in_time(registry: JobRegistry) -> None:
    register(registry, ring(), now=0.0)
    update(registry, ring(lease_s=10.0))
    renew(registry, A, now=1.0)
    assert registry.expire(10.9, WALL) == ()
    assert registry.expire(11.0, WALL) == (A,)


def test_unknown_jobs_are_not_found(registry: JobRegistry) -> None:
    for call in (
        lambda: deregister(registry, A),
        lambda: renew(registry, A, 0.0),
        lambda: report(registry, A, ()),
    ):
        with pytest.raises(NotFound, match="there is no job 'a'"):
            call()


def test_a_snapshot_does_not_change_under_its_reader(registry: JobRegistry) -> None:
    register(registry, ring(), now=0.0)
    before = registry.jobs
    deregister(registry, A)
    assert set(before) == {A}


def test_virtual_links_of_all_jobs_are_limited_by_their_count_alone() -> None:
    registry = JobRegistry(max_jobs=10, max_virtual_links=8)
    register(registry, ring("a"), now=0.0)
    register(registry, ring("b", (4, 5, 6)), now=0.0)
    whole = "job 'c' makes 3 virtual links; the other jobs have 6, and at most 8 are allowed .*max_virtual_links"
    with pytest.raises(Exhausted, match=whole):
        register(registry, ring("c", (7, 8, 9)), now=0.0)
    with pytest.raises(Exhausted, match=r"makes 6 virtual links .*; the other jobs have 3"):
        update(registry, ring("a", (1, 2, 3, 7, 8, 9)))
    register(registry, ring("a"), now=1.0)  # renews the lease
    update(registry, ring("a", (1, 2)))
    register(registry, ring("c", (7, 8, 9)), now=2.0)


# ---- updates


def test_an_update_changes_the_spec_and_keeps_the_lease_and_the_count_of_iterations(registry: JobRegistry) -> None:
    register(registry, ring(), now=0.0)
    report(registry, A, times(1.0, 2.0))
    job = update(registry, ring(hosts=(1, 2, 4), lease_s=600))
    assert {pair for pair in job.pairs if "10.0.0.4" in pair} == {("10.0.0.2", "10.0.0.4"), ("10.0.0.4", "10.0.0.1")}
    assert registry.jobs == {A: job}
    assert registry.expire(59.0, WALL) == ()
    assert registry.expire(60.0, WALL) == (A,), "the next heartbeat would have taken the new lease"


def test_an_update_frees_pairs_and_takes_others(registry: JobRegistry) -> None:
    register(registry, ring("a", (1, 2, 3)), now=0.0)
    update(registry, ring("a", (1, 2, 4)))
    register(registry, ring("b", (2, 3)), now=0.0)
    with pytest.raises(Conflict, match="'b' announces it"):
        update(registry, ring("a", (1, 2, 3)))
    deregister(registry, A)
    register(registry, ring("c", (1, 2, 4)), now=0.0)


def test_an_update_that_is_refused_changes_nothing(registry: JobRegistry) -> None:
    register(registry, ring("a", (1, 2)), now=0.0)
    register(registry, ring("b", (3, 4)), now=0.0)
    before = dict(registry.jobs)
    with pytest.raises(Conflict, match=r"'a' cannot announce 10\.0\.0\.3 > 10\.0\.0\.4: job 'b' announces it"):
        update(registry, ring("a", (1, 3, 4)))
    with pytest.raises(NotFound):
        update(registry, ring("nobody"))
    assert registry.jobs == before
    register(registry, ring("c", (1, 3)), now=0.0)


def test_connections_between_addresses_that_stay_stay_reported(registry: JobRegistry) -> None:
    one, two, three = (f"10.0.0.{n}" for n in (1, 2, 3))
    kept, lost = Connected(one, 5000, two, 6000), Connected(one, 5001, three, 6000)
    register(registry, ring(reports_connections=True), now=0.0)
    report_connections(registry, A, one, frozenset({kept, lost}))
    report_connections(registry, A, three, frozenset({Connected(three, 6000, one, 5001)}))
    job = update(registry, ring(hosts=(1, 2), reports_connections=True))
    assert registry.connections == {A: {kept}}
    assert set(job.dividing.connections) == {(one, two), (two, one)}
    register(registry, ring("b", reports_connections=True), now=0.0)
    report_connections(registry, JobId("b"), one, frozenset({lost}))
    assert update(registry, ring(hosts=(1, 2))).dividing.connections == {}
    assert registry.connections == {"b": {lost}}


def test_an_update_is_taken_back_like_everything_else(registry: JobRegistry) -> None:
    register(registry, ring(hosts=(1, 2)), now=0.0)
    before, known = dict(registry.jobs), registry.known(A)
    update(registry, ring(hosts=(3, 4)))
    registry.restore({A: known})
    assert registry.jobs == before
    register(registry, ring("b", (3, 4)), now=0.0)
    with pytest.raises(Conflict):
        register(registry, ring("c", (1, 2)), now=0.0)


def test_of_several_parallelizations_the_first_one_counts_and_all_are_kept(registry: JobRegistry) -> None:
    plain, other = ring(), ring(hosts=(3, 2, 1))
    names = ("groups", "collectives", "transfers")
    ways = [
        {"name": name, **{field: getattr(spec, field) for field in names}}
        for name, spec in (("up", plain), ("down", other))
    ]

    def offer(*parallelizations: object) -> JobSpec:
        return ring(groups=(), collectives=(), parallelizations=parallelizations)

    up, down = offer(*ways), offer(*ways[::-1])
    job = register(registry, up, now=0.0)
    assert job.spec == up
    links = job.virtual_links
    assert links == register(JobRegistry(max_jobs=1), plain, now=0.0).virtual_links
    changed = update(registry, offer(ways[0]))
    assert (changed.virtual_links, len(changed.spec.parallelizations)) == (links, 1)
    assert update(registry, down).virtual_links == links, "with the ranks in another order it is the same ring"
