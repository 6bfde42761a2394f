"""Hosts of tenants: the addresses that a job may name, and the effect of a changed list on existing jobs."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_network
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.jobs.job import Job
from controller.jobs.messages import NO_QUOTA, HostPrefixes, Quota, RegisterJob, SavedState, UpdateJob
from controller.jobs.registry import JobRegistry
from signalbox.errors import HostNotAllowed, InvalidInput
from signalbox.jobs.reports import Connected
from signalbox.jobs.spec import JobId, JobSpec


def of(*prefixes: str) -> Quota:
    return Quota(hosts=HostPrefixes(tuple(map(ip_network, prefixes))))


BLUE = of("10.0.1.0/24", "10.0.2.7/32")
OURS, OURS_TOO, ONE_HOST = "10.0.1.1", "10.0.1.200", "10.0.2.7"
FOREIGN, FOREIGN_TOO = "10.0.2.8", "10.1.1.1"


def spec(*endpoints: str, job_id: str = "a", **more: Any) -> JobSpec:
    transfers = [{"src": 0, "dst": 1, "bytes_per_iteration": 1000}]
    return JobSpec.parse({"job_id": job_id, "endpoints": endpoints, "transfers": transfers, **more})


def register(registry: JobRegistry, wanted: JobSpec, quota: Quota = BLUE, **more: Any) -> Job:
    return registry.register(RegisterJob(wanted, tenant="blue", quota=quota, **more), 0.0)


@pytest.fixture
def registry() -> JobRegistry:
    return JobRegistry(max_jobs=10)


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
    job = register(registry, spec(OURS, ONE_HOST, rails=[{"endpoints": [OURS_TOO, "10.0.1.201"]}]))
    registry.update([UpdateJob(spec(OURS, OURS_TOO), owner=job.uid)], BLUE)


def test_a_refusal_names_the_host_and_the_prefixes(registry: JobRegistry) -> None:
    with pytest.raises(HostNotAllowed) as error:
        register(registry, spec(OURS, FOREIGN))
    assert str(error.value) == (
        "job 'a' names 10.0.2.8, which tenant 'blue' may not use: its hosts are 10.0.1.0/24, 10.0.2.7/32; an operator "
        "can add to its host_prefixes, in the file that api.tokens names"
    )
    assert error.value.about == {"jobId": "a", "host": FOREIGN}
    assert not registry.jobs
    with pytest.raises(HostNotAllowed, match=rf"names {FOREIGN_TOO} and 1 more, which"):
        register(registry, spec(FOREIGN_TOO, OURS, FOREIGN))
    many = of(*(f"10.9.{n}.0/24" for n in range(20)))
    with pytest.raises(HostNotAllowed, match=r"its hosts are 10\.9\.0\.0/24, .*, 10\.9\.7\.0/24, and 12 more; an"):
        register(registry, spec(OURS, OURS_TOO), many)


def test_each_address_of_a_rail_and_hosts_that_send_nothing_count(registry: JobRegistry) -> None:
    """Otherwise a job could report connections of hosts that send nothing, and learn whether the hosts exist."""
    for one in (
        spec(OURS, ONE_HOST, rails=[{"endpoints": [OURS_TOO, FOREIGN]}]),
        spec(OURS, OURS_TOO, FOREIGN),
        JobSpec.parse({"job_id": "observed", "endpoints": [OURS, FOREIGN]}),
    ):
        with pytest.raises(HostNotAllowed, match=f"names {FOREIGN},"):
            register(registry, one)


def test_an_update_of_a_set_names_its_entry_and_changes_nothing(registry: JobRegistry) -> None:
    jobs = [register(registry, spec(OURS, OURS_TOO)), register(registry, spec(ONE_HOST, OURS, job_id="b"))]
    before = dict(registry.jobs)
    wanted = [spec(OURS_TOO, OURS), spec(ONE_HOST, FOREIGN, job_id="b")]
    updates = [
        UpdateJob(one, owner=job.uid, entry=f"jobs[{n}]") for n, (one, job) in enumerate(zip(wanted, jobs, strict=True))
    ]
    with pytest.raises(HostNotAllowed, match=rf"^jobs\[1\]: job 'b' names {FOREIGN},") as error:
        registry.update(updates, BLUE)
    assert error.value.about == {"jobId": "b", "host": FOREIGN, "field": "jobs[1]"}
    assert registry.jobs == before


def test_reported_connections_are_between_hosts_of_the_job(registry: JobRegistry) -> None:
    job = register(registry, spec(OURS, OURS_TOO, reports_connections=True))
    for address, peer in ((OURS, FOREIGN), (FOREIGN, OURS)):
        with pytest.raises(InvalidInput, match=f"{FOREIGN} is not an address of job 'a'"):
            registry.report_connections(job.id, address, frozenset({Connected(address, 1, peer, 2)}), job.uid, BLUE)


# ---- a list that has changed


@pytest.fixture
def held(registry: JobRegistry) -> Job:
    """Return a job with a foreign host, registered before its tenant had a list of host prefixes."""
    return register(registry, spec(OURS, FOREIGN, reports_connections=True), NO_QUOTA, request_id="once")


def test_a_job_from_before_the_list_keeps_running(registry: JobRegistry, held: Job) -> None:
    registry.renew(held.id, held.uid, 0.0)
    ways: list[dict[str, Any]] = [{"owner": held.uid}, {"request_id": "once"}]
    for known_by in ways:
        assert register(registry, held.spec, **known_by).uid == held.uid
    reported = frozenset({Connected(FOREIGN, 1, OURS, 2)})
    registry.report_connections(held.id, FOREIGN, reported, held.uid, BLUE)
    after = JobRegistry(max_jobs=10)
    assert not after.take_saved(SavedState({held.id: held.registration}), 0.0)


def test_its_updates_may_keep_its_hosts_and_add_none(registry: JobRegistry, held: Job) -> None:
    def update(wanted: JobSpec) -> None:
        registry.update([UpdateJob(wanted, owner=held.uid)], BLUE)

    update(spec(FOREIGN, OURS_TOO, max_subflows=2))
    with pytest.raises(HostNotAllowed, match=f"names {FOREIGN_TOO},"):
        update(spec(FOREIGN, OURS_TOO, FOREIGN_TOO))
    update(spec(OURS, OURS_TOO))
    with pytest.raises(HostNotAllowed, match=f"names {FOREIGN},"):
        update(held.spec)


def test_another_registration_of_it_may_not_name_them(registry: JobRegistry, held: Job) -> None:
    with pytest.raises(HostNotAllowed):
        register(registry, held.spec, take_over=True)
    assert registry.jobs[held.id].uid == held.uid
    registry.deregister(held.id, held.uid, 0.0)
    with pytest.raises(HostNotAllowed):
        register(registry, held.spec, owner=held.uid)
    assert JobId("a") not in registry.jobs
