"""Several jobs updated at once, by the whole control loop on fake switches."""

from __future__ import annotations

from typing import Any

import pytest

from controller.jobs.messages import (
    RegisterJob,
    ReportConnections,
    UpdateJob,
    UpdateJobs,
)
from controller.tables.rules import FlowRule, Table
from signalbox.jobs.reports import Connected
from signalbox.jobs.spec import JobId, JobSpec
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.late_answers import LateAnswers
from tests.support.optical_fabric import all_reduce, reach, wired
from tests.support.optical_fabric import started as started_circuits
from tests.support.three_rings import RINGS, assert_no_collision, spines_used, started

J0, J1 = JobId("job0"), JobId("job1")


@pytest.fixture
def fabric() -> LateAnswers:
    fabric = started(LateAnswers(), 0, 1, 2, lease_s=600)
    fabric.new_replies()
    return fabric


def rings(*numbers: int, **more: Any) -> UpdateJobs:
    """Return an update that gives job k the ring with the number ``numbers[k]``."""
    specs = [ring_job(f"job{job}", RINGS[ring], lease_s=600, **more) for job, ring in enumerate(numbers)]
    return update(*specs)


def update(*specs: JobSpec) -> UpdateJobs:
    return UpdateJobs(tuple(UpdateJob(spec, entry=f"jobs[{number}]") for number, spec in enumerate(specs)))


@pytest.mark.parametrize("numbers", [(1, 0), (1, 2, 0)], ids=["two", "three in turn"])
def test_jobs_exchange_hosts_without_a_packet_lost_and_by_one_plan(
    fabric: LateAnswers, numbers: tuple[int, ...]
) -> None:
    before = spines_used(fabric)
    moved = []

    def check() -> None:
        moved.append(spines_used(fabric) != before)

    fabric.after_each_mod = check
    fabric.asked.clear()
    fabric.send(rings(*numbers))
    fabric.run(0.2)
    assert fabric.new_replies() == [tuple(fabric.job(f"job{n}").uid for n in range(len(numbers)))]
    assert moved
    assert not any(moved), "each pair keeps its route, whichever job has it"
    fabric.run(3)
    assert_no_collision(fabric)
    after = {JobId(f"job{job}"): pairs_of(RINGS[ring]) for job, ring in enumerate(numbers)}
    assert fabric.asked
    for flows in (command.snapshot.flows for command in fabric.asked):
        planned = {job_id: frozenset(flow.id.pair for flow in flows[job_id]) for job_id in after}
        assert planned == after, "no plan of a half"
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}
    owners = {fabric.saved.jobs[job_id].spec.endpoints for job_id in after}
    assert owners == {tuple(RINGS[ring]) for ring in numbers}


def pairs_of(ring: list[str]) -> frozenset[tuple[str, str]]:
    return frozenset((ring[i], ring[(i + 1) % len(ring)]) for i in range(len(ring)))


def all_to_all(job_id: str, hosts: range) -> JobSpec:
    ips = [f"10.0.{leaf}.{host}" for leaf in (1, 2, 3, 4) for host in hosts]
    collectives = [{"algorithm": "all_to_all", "groups": ["dp"], "bytes_per_iteration": 10_000_000}]
    return ring_job(job_id, ips, lease_s=600, collectives=collectives)


def test_rules_of_large_jobs_change_hands_together() -> None:
    """Pins are normally derived for some dozens of flows at a time. During this change every pair must keep a rule."""
    fabric = started(LateAnswers(hosts_per_leaf=6))
    first, second = range(1, 4), range(4, 7)
    for number, hosts in enumerate((first, second)):
        fabric.send(RegisterJob(all_to_all(f"job{number}", hosts)))
    fabric.run(12)
    pinned = pins(fabric)
    assert len(pinned) > 200
    lost = []

    def check() -> None:
        lost.append(pins(fabric).keys() != pinned.keys())

    fabric.after_each_mod = check
    fabric.send(update(all_to_all("job0", second), all_to_all("job1", first)))
    fabric.run(0.5)
    assert lost
    assert not any(lost), "no pair is without its rule meanwhile"
    assert {rule.cookie for rule in pins(fabric).values()} == {rule.cookie for rule in pinned.values()}
    assert all(rule.cookie != pinned[key].cookie for key, rule in pins(fabric).items())


def pins(fabric: FakeFabric) -> dict[Any, FlowRule]:
    flows = ((switch.dpid, key, rule) for switch in fabric.switches.values() for key, rule in switch.flows.items())
    return {(dpid, key): rule for dpid, key, rule in flows if key.table is Table.PINNED and key.match.ip_src}


# ---- circuits


def test_jobs_with_circuits_exchange_servers() -> None:
    fabric = started_circuits(7, 2)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3], lease_s=600)))
    fabric.send(RegisterJob(all_reduce("two", [4, 5, 6, 7], lease_s=600)))
    fabric.run(3)
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}
    fabric.send(update(all_reduce("one", [4, 5, 6, 7], lease_s=600), all_reduce("two", [1, 2, 3], lease_s=600)))
    fabric.run(6)
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}
    assert reach(fabric, [1, 2, 3])
    assert reach(fabric, [4, 5, 6, 7])
    circuits = {job_id: wired(job).circuits for job_id, job in fabric.status.jobs.items()}
    servers = {job_id: {at.dpid for ends in found for at in ends} for job_id, found in circuits.items()}
    assert servers == {"one": {4, 5, 6, 7}, "two": {1, 2, 3}}
    assert not fabric.status.alarms


# ---- connections


def test_jobs_that_report_connections_exchange_hosts(fabric: LateAnswers) -> None:
    """The reported connections of addresses that leave are forgotten, and no packet of a pair is lost."""
    shares = {"reports_connections": True}
    fabric.send(rings(0, 1, **shares))
    fabric.run(1)
    ports = iter(range(5000, 6000))

    def connect(job_id: JobId, ring: list[str]) -> set[Connected]:
        found = {Connected(src, next(ports), dst, 7000) for src, dst in sorted(pairs_of(ring))}
        for one in found:
            fabric.send(ReportConnections(job_id, one.src_ip, frozenset({one})))
        fabric.run(3)
        return found

    for turn in range(2):
        reported = {job_id: connect(job_id, RINGS[(n + turn) % 2]) for n, job_id in enumerate((J0, J1))}
        assert fabric.loop.state.jobs.connections == reported
        fabric.after_each_mod = lambda: spines_used(fabric)
        fabric.send(rings(1 - turn, turn, **shares))
        fabric.run(3)
        fabric.after_each_mod = lambda: None
        assert not any(fabric.loop.state.jobs.connections.values())
    assert_no_collision(fabric)
