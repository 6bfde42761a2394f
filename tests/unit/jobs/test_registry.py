import pytest

from controller.errors import AlreadyExists, Conflict, Exhausted, InvalidInput, NotFound
from controller.jobs.messages import IterationTime
from controller.jobs.registry import MEASURED_WINDOW, JobRegistry
from controller.jobs.spec import JobId, JobSpec


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


def times(*communication_s: float) -> tuple[IterationTime, ...]:
    return tuple(IterationTime(i, 2 * s, s) for i, s in enumerate(communication_s))


def test_a_registered_job_has_its_virtual_links_and_lease(registry: JobRegistry) -> None:
    job = registry.register(ring(), now=100.0)
    assert registry.jobs == {A: job}
    assert {(v.src_ip, v.dst_ip): v.bytes for v in job.virtual_links} == {
        ("10.0.0.1", "10.0.0.2"): 1200,
        ("10.0.0.2", "10.0.0.3"): 1200,
        ("10.0.0.3", "10.0.0.1"): 1200,
    }
    assert job.lease_ends_at == 160.0


def test_registering_the_same_spec_again_renews_and_keeps_what_was_measured(registry: JobRegistry) -> None:
    registry.register(ring(), now=0.0)
    registry.report(A, times(1.0))
    again = registry.register(ring(), now=30.0)
    assert (again.lease_ends_at, again.iterations, len(registry.jobs)) == (90.0, 1, 1)


def test_another_spec_under_a_taken_id_changes_nothing(registry: JobRegistry) -> None:
    job = registry.register(ring(), now=0.0)
    with pytest.raises(AlreadyExists, match="job 'a' is registered with another spec"):
        registry.register(ring(hosts=(4, 5)), now=1.0)
    assert registry.jobs == {A: job}


def test_a_taken_pair_is_a_conflict_that_names_both_jobs_and_the_pair(registry: JobRegistry) -> None:
    registry.register(ring("a", (1, 2, 3)), now=0.0)
    with pytest.raises(Conflict) as error:
        registry.register(ring("b", (2, 3, 4)), now=0.0)
    assert str(error.value) == (
        "job 'b' cannot announce 10.0.0.2 > 10.0.0.3: job 'a' announces it; "
        "jobs that report their connections may share pairs"
    )
    assert set(registry.jobs) == {A}


def test_jobs_may_share_hosts_when_they_share_no_pair(registry: JobRegistry) -> None:
    registry.register(ring("a", (1, 2, 3)), now=0.0)
    registry.register(ring("b", (3, 2, 1)), now=0.0)
    assert len(registry.jobs) == 2


def test_pairs_are_free_again_after_deregistration(registry: JobRegistry) -> None:
    registry.register(ring("a"), now=0.0)
    registry.deregister(A)
    registry.register(ring("b"), now=0.0)
    assert set(registry.jobs) == {"b"}


def test_the_limit_of_jobs_does_not_stop_renewals(registry: JobRegistry) -> None:
    for n, name in enumerate("abc"):
        registry.register(ring(name, (10 * n + 1, 10 * n + 2)), now=0.0)
    with pytest.raises(Exhausted, match="3 jobs"):
        registry.register(ring("d", (91, 92)), now=0.0)
    assert registry.register(ring("a", (1, 2)), now=5.0).lease_ends_at == 65.0


def test_a_spec_without_known_virtual_links_is_refused(registry: JobRegistry) -> None:
    collectives = [{"algorithm": "all_to_all", "groups": ["dp"] * 2, "bytes_per_iteration": 1}]
    with pytest.raises(InvalidInput, match="group 'dp' appears 2 times"):
        registry.register(ring(collectives=collectives), now=0.0)
    assert not registry.jobs


def test_a_lease_ends_exactly_when_it_says(registry: JobRegistry) -> None:
    registry.register(ring(), now=0.0)
    assert registry.renew(A, now=50.0) == 60.0
    assert registry.expire(109.9) == ()
    assert registry.expire(110.0) == (A,)
    assert not registry.jobs
    registry.register(ring("b"), now=111.0)


def test_the_mean_is_over_the_latest_reports_and_the_count_over_all(registry: JobRegistry) -> None:
    registry.register(ring(), now=0.0)
    registry.report(A, times(*[9.0] * 4))
    registry.report(A, times(*[1.0] * (MEASURED_WINDOW - 1), 3.0))
    job = registry.jobs[A]
    assert job.iterations == MEASURED_WINDOW + 4
    assert job.last_communication_s == 3.0
    assert job.mean_communication_s == pytest.approx((MEASURED_WINDOW - 1 + 3) / MEASURED_WINDOW)


def test_changed_routes_start_the_measurement_again(registry: JobRegistry) -> None:
    registry.register(ring(), now=0.0)
    registry.report(A, times(5.0))
    registry.reset_measured(A)
    assert registry.jobs[A].mean_communication_s == 0.0
    assert registry.jobs[A].iterations == 1
    registry.report(A, times(2.0))
    assert registry.jobs[A].mean_communication_s == 2.0


def test_unknown_jobs_are_not_found(registry: JobRegistry) -> None:
    for call in (
        lambda: registry.deregister(A),
        lambda: registry.renew(A, 0.0),
        lambda: registry.report(A, ()),
        lambda: registry.reset_measured(A),
    ):
        with pytest.raises(NotFound, match="there is no job 'a'"):
            call()


def test_a_snapshot_does_not_change_under_its_reader(registry: JobRegistry) -> None:
    registry.register(ring(), now=0.0)
    before = registry.jobs
    registry.deregister(A)
    assert set(before) == {A}


def test_virtual_links_of_all_jobs_are_limited_by_their_count_alone() -> None:
    registry = JobRegistry(max_jobs=10, max_virtual_links=8)
    registry.register(ring("a"), now=0.0)
    registry.register(ring("b", (4, 5, 6)), now=0.0)
    whole = "job 'c' makes 3 virtual links; the other jobs have 6, and at most 8 are allowed .*max_virtual_links"
    with pytest.raises(Exhausted, match=whole):
        registry.register(ring("c", (7, 8, 9)), now=0.0)
    registry.register(ring("a"), now=1.0)  # renews
    registry.deregister(A)
    registry.register(ring("c", (7, 8, 9)), now=2.0)
