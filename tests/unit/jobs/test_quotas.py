"""Quotas and hosts of tenants, and the permissions of one tenant on the jobs of another."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_network
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.jobs.job import Job
from controller.jobs.messages import NO_QUOTA, HostPrefixes, Quota, RegisterJob, SavedState, UpdateJob
from controller.jobs.registry import JobRegistry
from signalbox.errors import AlreadyExists, Conflict, Exhausted, HostNotAllowed, InvalidInput, NotFound
from signalbox.jobs.reports import Connected
from signalbox.jobs.spec import JobId, JobSpec

TWO_JOBS = Quota(max_jobs=2)
TEN_LINKS = Quota(max_virtual_links=10)
TWENTY_RULES = Quota(max_learning_rules=20)


def spec(number: int, links: int = 1, size: int = 1000) -> JobSpec:
    """Return the spec of job ``number`` with ``links`` virtual links between hosts that no other job has."""
    endpoints = [f"10.{number}.0.{host + 1}" for host in range(links + 1)]
    transfers = [{"src": 0, "dst": dst, "bytes_per_iteration": size} for dst in range(1, links + 1)]
    return JobSpec.parse({"job_id": f"job{number}", "endpoints": endpoints, "transfers": transfers})


def register(registry: JobRegistry, wanted: JobSpec, tenant: str, quota: Quota = NO_QUOTA, **more: Any) -> Job:
    return registry.register(RegisterJob(wanted, tenant=tenant, quota=quota, **more), 0.0)


@pytest.fixture
def registry() -> JobRegistry:
    return JobRegistry(max_jobs=100)


def test_a_tenant_has_as_many_jobs_as_its_quota_and_others_do_not_count(registry: JobRegistry) -> None:
    for number in (10, 11, 12):
        register(registry, spec(number), "red")
    for number in (1, 2):
        register(registry, spec(number), "blue", TWO_JOBS)
    with pytest.raises(Exhausted, match="tenant 'blue' has 2 jobs; its quota max_jobs is 2") as error:
        register(registry, spec(3), "blue", TWO_JOBS)
    assert error.value.subject == "tenant:blue"
    assert error.value.about == {"limit": "tenant.max_jobs", "limitValue": "2", "used": "2", "wanted": "1"}
    assert JobId("job3") not in registry.jobs
    with pytest.raises(Exhausted, match="has 0 jobs; its quota max_jobs is 0"):
        register(registry, spec(3), "green", Quota(max_jobs=0))


def test_a_job_that_ends_makes_room_and_one_that_is_renewed_needs_none(registry: JobRegistry) -> None:
    jobs = [register(registry, spec(number), "blue", TWO_JOBS) for number in (1, 2)]
    register(registry, spec(2), "blue", TWO_JOBS, owner=jobs[1].uid)
    registry.deregister(jobs[0].id, jobs[0].uid, 0.0)
    register(registry, spec(3), "blue", TWO_JOBS)


def test_virtual_links_of_all_jobs_of_a_tenant_count_together(registry: JobRegistry) -> None:
    register(registry, spec(1, links=6), "blue", TEN_LINKS)
    register(registry, spec(2, links=4), "blue", TEN_LINKS)
    expected = "has 10 virtual links, not counting job 'job3', which needs 1; its quota max_virtual_links is 10"
    with pytest.raises(Exhausted, match=expected):
        register(registry, spec(3), "blue", TEN_LINKS)


def test_an_update_and_a_take_over_count_what_they_replace(registry: JobRegistry) -> None:
    job = register(registry, spec(1, links=6), "blue", TEN_LINKS)
    registry.update([UpdateJob(spec(1, links=10), owner=job.uid)], TEN_LINKS)
    with pytest.raises(Exhausted, match="has 0 virtual links, not counting job 'job1', which needs 11"):
        registry.update([UpdateJob(spec(1, links=11), owner=job.uid)], TEN_LINKS)
    with pytest.raises(Exhausted):
        register(registry, spec(1, links=11), "blue", TEN_LINKS, take_over=True)
    assert len(registry.jobs[job.id].virtual_links) == 10
    register(registry, spec(1, links=9), "blue", TEN_LINKS, take_over=True)


def test_a_job_above_a_quota_that_was_lowered_may_stay_as_it_is_or_become_smaller(registry: JobRegistry) -> None:
    job = register(registry, spec(1, links=20), "blue")
    registry.update([UpdateJob(spec(1, links=20, size=2000), owner=job.uid)], TEN_LINKS)
    registry.update([UpdateJob(spec(1, links=15), owner=job.uid)], TEN_LINKS)
    with pytest.raises(Exhausted):
        registry.update([UpdateJob(spec(1, links=16), owner=job.uid)], TEN_LINKS)


def test_a_large_spec_counts_though_it_makes_one_virtual_link() -> None:
    """Groups that no collective names, and rails, count because they take memory."""
    registry = JobRegistry(max_jobs=100, max_virtual_links=100)
    groups = [{"name": f"g{number}", "ranks": [0, 1]} for number in range(196)]
    large = JobSpec.parse(spec(1).model_dump() | {"groups": groups})
    job = register(registry, large, "blue")  # 1 link, 2 addresses and 392 ranks count as 50 links
    register(registry, spec(2, links=44), "blue")  # 44 links and 45 addresses count as 49 links
    with pytest.raises(Exhausted, match="job 'job3' makes 2 virtual links; the other jobs have 99, and at most 100"):
        register(registry, spec(3, links=2), "blue")
    with pytest.raises(Exhausted, match="job 'job3' makes 1 virtual links, and its names take the memory of 49 more"):
        register(registry, JobSpec.parse(large.model_dump() | {"job_id": "job3"}), "blue")
    registry.deregister(job.id, job.uid, 0.0)
    register(registry, spec(3, links=2), "blue")


def test_what_parallelizations_say_counts_though_one_of_them_makes_virtual_links() -> None:
    registry = JobRegistry(max_jobs=100, max_virtual_links=100)
    plain = spec(1)
    sends = {"transfers": plain.transfers * 20, "compute": [{"seconds": 1}] * 4}
    ways = [{"name": name, **sends} for name in "abcd"]
    large = JobSpec.parse(plain.model_dump() | {"transfers": (), "parallelizations": ways})
    with pytest.raises(
        Exhausted, match="makes 20 virtual links, and its names take the memory of 96 more; the other jobs ha"
    ):
        register(registry, large, "blue")
    job = register(
        registry, large.model_copy(update={"parallelizations": large.parallelizations[:3]}), "blue"
    )  # 1 virtual link, and names that take the memory of 72 more
    with pytest.raises(Exhausted):
        register(registry, spec(2, links=27), "blue")
    registry.deregister(job.id, job.uid, 0.0)
    register(registry, spec(2, links=27), "blue")


def observed(number: int, hosts: int, **more: Any) -> JobSpec:
    endpoints = [f"10.{number}.0.{host + 1}" for host in range(hosts)]
    return JobSpec.parse({"job_id": f"job{number}", "endpoints": endpoints, **more})


def test_pairs_that_are_counted_for_all_observed_jobs_of_a_tenant_count_together(registry: JobRegistry) -> None:
    register(registry, observed(1, 4), "blue", TWENTY_RULES)
    register(registry, spec(2, links=30), "blue", TWENTY_RULES)
    register(registry, observed(3, 5), "red", TWENTY_RULES)
    expected = (
        "tenant 'blue' has 12 pairs of hosts that are counted for observed jobs, not counting job 'job4', which needs "
        "12; its quota max_learning_rules is 20. Announce collectives or transfers, or fewer endpoints"
    )
    with pytest.raises(Exhausted, match=expected) as error:
        register(registry, observed(4, 4), "blue", TWENTY_RULES)
    assert error.value.subject == "tenant:blue"
    register(registry, observed(4, 3), "blue", TWENTY_RULES)


def test_an_update_to_an_observed_job_counts_and_one_above_a_lowered_quota_may_become_smaller(
    registry: JobRegistry,
) -> None:
    job = register(registry, spec(1, links=5), "blue", TWENTY_RULES)
    with pytest.raises(Exhausted, match="not counting job 'job1', which needs 30"):
        registry.update([UpdateJob(observed(1, 6), owner=job.uid)], TWENTY_RULES)
    registry.update([UpdateJob(observed(1, 7), owner=job.uid)])
    registry.update([UpdateJob(observed(1, 6), owner=job.uid)], TWENTY_RULES)


def test_an_observed_job_that_reports_its_connections_counts_their_pairs(registry: JobRegistry) -> None:
    job = register(registry, observed(1, 30, reports_connections=True), "blue", TWENTY_RULES)
    source, *others = job.spec.endpoints

    def report(number: int, quota: Quota = TWENTY_RULES) -> None:
        reported = frozenset(Connected(source, 1000, one, port) for one in others[:number] for port in (1, 2))
        registry.report_connections(job.id, source, reported, job.uid, quota)

    report(10)
    with pytest.raises(Exhausted, match="not counting job 'job1', which needs 22"):
        report(11)
    assert len(registry.connections[job.id]) == 20, "nothing of it was taken"
    report(12, NO_QUOTA)
    report(11)


# ---- other tenants


def test_nothing_makes_the_job_of_one_tenant_the_job_of_another(registry: JobRegistry) -> None:
    job = register(registry, spec(1), "blue", request_id="r")
    ways: list[dict[str, Any]] = [{}, {"take_over": True}, {"owner": job.uid}, {"request_id": "r"}]
    for way in ways:
        with pytest.raises(AlreadyExists, match="another tenant: choose another") as error:
            register(registry, spec(1), "red", **way)
        assert error.value.about == {"jobId": "job1", "heldBy": "other_tenant"}
    with pytest.raises(NotFound, match="there is no job 'job1'"):
        registry.deregister(job.id, None, 0.0, force=True, tenant="red")
    assert registry.jobs[job.id].uid == job.uid


def test_an_operator_and_the_jobs_own_tenant_do_without_the_lease_token(registry: JobRegistry) -> None:
    job = register(registry, spec(1), "blue")
    again = register(registry, spec(1), "blue", take_over=True)
    assert again.uid != job.uid
    registry.deregister(again.id, None, 0.0, force=True, tenant="blue")
    forced = register(registry, spec(1), "blue")
    registry.deregister(forced.id, None, 0.0, force=True)
    register(registry, spec(1), "blue")
    assert register(registry, spec(1), "", take_over=True).registration.tenant == ""
    registry.deregister(job.id, None, 0.0, force=True)


def test_a_tenant_does_not_learn_the_names_of_others_jobs(registry: JobRegistry) -> None:
    register(registry, spec(1), "blue")
    same_pairs = spec(1).model_copy(update={"job_id": "other"})
    pair = {"jobId": "other", "src": "10.1.0.1", "dst": "10.1.0.2"}
    named = {"otherJobId": "job1", **pair}
    theirs, ours = "a job of another tenant announces it", "job 'job1' announces it"
    for tenant, said, about in (("red", theirs, pair), ("blue", ours, named), ("", ours, named)):
        with pytest.raises(Conflict, match=said) as error:
            register(registry, same_pairs, tenant)
        assert error.value.about == about


# ---- hosts of tenants: the addresses that a job may name, and the effect of a changed list on existing jobs


def of(*prefixes: str) -> Quota:
    return Quota(hosts=HostPrefixes(tuple(map(ip_network, prefixes))))


BLUE = of("10.0.1.0/24", "10.0.2.7/32")
OURS, OURS_TOO, ONE_HOST = "10.0.1.1", "10.0.1.200", "10.0.2.7"
FOREIGN, FOREIGN_TOO = "10.0.2.8", "10.1.1.1"


def on_hosts(*endpoints: str, job_id: str = "a", **more: Any) -> JobSpec:
    transfers = [{"src": 0, "dst": 1, "bytes_per_iteration": 1000}]
    return JobSpec.parse({"job_id": job_id, "endpoints": endpoints, "transfers": transfers, **more})


def register_blue(registry: JobRegistry, wanted: JobSpec, quota: Quota = BLUE, **more: Any) -> Job:
    return registry.register(RegisterJob(wanted, tenant="blue", quota=quota, **more), 0.0)


NETWORKS = st.builds(
    lambda number, length: IPv4Network((number, length), strict=False),
    st.integers(0, 2**32 - 1),
    st.integers(0, 32),
)


@given(st.lists(NETWORKS, min_size=1, max_size=6), st.data())
@settings(max_examples=50)
def test_a_host_is_among_them_that_is_in_one_of_the_prefixes(networks: list[IPv4Network], data: st.DataObject) -> None:
    near = [int(edge) + step for one in networks for edge in (one[0], one[-1]) for step in (-1, 0, 1)]
    number = data.draw(st.one_of(st.sampled_from(near), st.integers(0, 2**32 - 1))) % 2**32
    address = IPv4Address(number)
    assert (str(address) in HostPrefixes(tuple(networks))) == any(address in one for one in networks)


def test_prefixes_of_either_version_hold_addresses_of_that_version() -> None:
    hosts = HostPrefixes((IPv6Network("2001:db8::/32"), IPv4Network("10.0.1.0/24")))
    assert [host in hosts for host in ("2001:db8::1", "2001:db9::1", "10.0.1.1", "10.0.2.1")] == [True, False] * 2
    assert "::1" not in HostPrefixes((IPv4Network("0.0.0.0/0"),))


def test_a_job_on_hosts_of_its_tenant_is_accepted(registry: JobRegistry) -> None:
    job = register_blue(registry, on_hosts(OURS, ONE_HOST, rails=[{"endpoints": [OURS_TOO, "10.0.1.201"]}]))
    registry.update([UpdateJob(on_hosts(OURS, OURS_TOO), owner=job.uid)], BLUE)


def test_a_refusal_names_the_host_and_the_prefixes(registry: JobRegistry) -> None:
    with pytest.raises(HostNotAllowed) as error:
        register_blue(registry, on_hosts(OURS, FOREIGN))
    assert str(error.value) == (
        "job 'a' names 10.0.2.8, which tenant 'blue' may not use: its hosts are 10.0.1.0/24, 10.0.2.7/32; an operator "
        "can add to its host_prefixes, in the file that api.tokens names"
    )
    assert error.value.about == {"jobId": "a", "host": FOREIGN}
    assert not registry.jobs
    with pytest.raises(HostNotAllowed, match=rf"names {FOREIGN_TOO} and 1 more, which"):
        register_blue(registry, on_hosts(FOREIGN_TOO, OURS, FOREIGN))
    many = of(*(f"10.9.{n}.0/24" for n in range(20)))
    with pytest.raises(HostNotAllowed, match=r"its hosts are 10\.9\.0\.0/24, .*, 10\.9\.7\.0/24, and 12 more; an"):
        register_blue(registry, on_hosts(OURS, OURS_TOO), many)


def test_each_address_of_a_rail_and_hosts_that_send_nothing_count(registry: JobRegistry) -> None:
    """A job may report connections of these hosts, and would learn whether they exist if they did not count."""
    for one in (
        on_hosts(OURS, ONE_HOST, rails=[{"endpoints": [OURS_TOO, FOREIGN]}]),
        on_hosts(OURS, OURS_TOO, FOREIGN),
        JobSpec.parse({"job_id": "observed", "endpoints": [OURS, FOREIGN]}),
    ):
        with pytest.raises(HostNotAllowed, match=f"names {FOREIGN},"):
            register_blue(registry, one)


def test_an_update_of_a_set_names_its_entry_and_changes_nothing(registry: JobRegistry) -> None:
    jobs = [
        register_blue(registry, on_hosts(OURS, OURS_TOO)),
        register_blue(registry, on_hosts(ONE_HOST, OURS, job_id="b")),
    ]
    before = dict(registry.jobs)
    wanted = [on_hosts(OURS_TOO, OURS), on_hosts(ONE_HOST, FOREIGN, job_id="b")]
    updates = [
        UpdateJob(one, owner=job.uid, entry=f"jobs[{n}]") for n, (one, job) in enumerate(zip(wanted, jobs, strict=True))
    ]
    with pytest.raises(HostNotAllowed, match=rf"^jobs\[1\]: job 'b' names {FOREIGN},") as error:
        registry.update(updates, BLUE)
    assert error.value.about == {"jobId": "b", "host": FOREIGN, "field": "jobs[1]"}
    assert registry.jobs == before


def test_reported_connections_are_between_hosts_of_the_job(registry: JobRegistry) -> None:
    job = register_blue(registry, on_hosts(OURS, OURS_TOO, reports_connections=True))
    for address, peer in ((OURS, FOREIGN), (FOREIGN, OURS)):
        with pytest.raises(InvalidInput, match=f"{FOREIGN} is not an address of job 'a'"):
            registry.report_connections(job.id, address, frozenset({Connected(address, 1, peer, 2)}), job.uid, BLUE)


# ---- a list that has changed


@pytest.fixture
def held(registry: JobRegistry) -> Job:
    """Return a job with a foreign host, registered before its tenant had a list of host prefixes."""
    return register_blue(registry, on_hosts(OURS, FOREIGN, reports_connections=True), NO_QUOTA, request_id="once")


def test_a_job_from_before_the_list_keeps_running(registry: JobRegistry, held: Job) -> None:
    registry.renew(held.id, held.uid, 0.0)
    ways: list[dict[str, Any]] = [{"owner": held.uid}, {"request_id": "once"}]
    for known_by in ways:
        assert register_blue(registry, held.spec, **known_by).uid == held.uid
    reported = frozenset({Connected(FOREIGN, 1, OURS, 2)})
    registry.report_connections(held.id, FOREIGN, reported, held.uid, BLUE)
    after = JobRegistry(max_jobs=10)
    assert not after.take_saved(SavedState({held.id: held.registration}), 0.0)


def test_its_updates_may_keep_its_hosts_and_add_none(registry: JobRegistry, held: Job) -> None:
    def update(wanted: JobSpec) -> None:
        registry.update([UpdateJob(wanted, owner=held.uid)], BLUE)

    update(on_hosts(FOREIGN, OURS_TOO, max_subflows=2))
    with pytest.raises(HostNotAllowed, match=f"names {FOREIGN_TOO},"):
        update(on_hosts(FOREIGN, OURS_TOO, FOREIGN_TOO))
    update(on_hosts(OURS, OURS_TOO))
    with pytest.raises(HostNotAllowed, match=f"names {FOREIGN},"):
        update(held.spec)


def test_another_registration_of_it_may_not_name_them(registry: JobRegistry, held: Job) -> None:
    with pytest.raises(HostNotAllowed):
        register_blue(registry, held.spec, take_over=True)
    assert registry.jobs[held.id].uid == held.uid
    registry.deregister(held.id, held.uid, 0.0)
    with pytest.raises(HostNotAllowed):
        register_blue(registry, held.spec, owner=held.uid)
    assert JobId("a") not in registry.jobs
