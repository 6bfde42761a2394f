"""Running routes that have pins: the routes in force."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.fabric.shortest_paths import CandidatePaths
from controller.fabric.topology import Dpid, Fabric, Path, PortNo, PortRef
from controller.jobs.job import Job
from controller.jobs.messages import RegisterJob
from controller.jobs.registry import JobRegistry
from controller.planning.problem import FlowId, Routes, Subflow, whole
from controller.tables.pins import Pins, PinSet
from offline.scenarios.fabrics import leaf_spine, without
from tests.support.by_id import by_id
from tests.support.fake_fabric import ring_job

FABRIC = leaf_spine(3, 2, 2, 1e9, 1e9)
FLOW, OTHER = FlowId("10.0.0.1", "10.0.1.1"), FlowId("10.0.0.2", "10.0.2.2")
LEAF1, LEAF2, LEAF3 = (FABRIC.hosts[ip].at.dpid for ip in ("10.0.0.1", "10.0.1.1", "10.0.2.1"))
REGISTRY = JobRegistry(10)


def job_of(name: str, flow: FlowId) -> Job:
    return REGISTRY.register(RegisterJob(ring_job(name, [*flow.pair], max_subflows=2)), 0.0)


JOBS = by_id(job_of("one", FLOW), job_of("two", OTHER))


def between(fabric: Fabric, src: Dpid, dst: Dpid) -> tuple[Path, ...]:
    return CandidatePaths(fabric, 64).between(src, dst)


FIRST, SECOND = between(FABRIC, LEAF1, LEAF2)
ELSEWHERE = between(FABRIC, LEAF1, LEAF3)[1]


def pinned(pins: PinSet, flow: FlowId) -> list[Path]:
    return [pin.path for of_job in pins.of.values() for pin in of_job if pin.flow == flow and pin.path]


@pytest.fixture
def pins() -> Pins:
    return Pins()


def test_a_detour_is_pinned_until_a_short_way_is_back(pins: Pins) -> None:
    cut = without(FABRIC, {FIRST[0], SECOND[1]})
    detour = between(cut, LEAF1, LEAF2)[0]
    assert len(detour) == 4
    routes: Routes = {FLOW: whole(detour), OTHER: whole(ELSEWHERE)}
    found = pins(cut, JOBS, routes, ())
    assert (pinned(found, FLOW), pinned(found, OTHER), found.invalid) == ([detour], [ELSEWHERE], frozenset())
    some = without(FABRIC, {FIRST[0]})
    found = pins(some, JOBS, routes, ())
    assert not pinned(found, FLOW) + pinned(found, FLOW.back)
    assert found.invalid == {"one"}
    assert pinned(found, OTHER) == [ELSEWHERE]
    assert pinned(pins(cut, JOBS, routes, ()), FLOW) == [detour], "the short way has gone again"
    found = pins(some, JOBS, {**routes, FLOW: whole(SECOND)}, ())
    assert (pinned(found, FLOW), found.invalid) == ([SECOND], frozenset()), "the next plan"


def test_a_route_falls_with_any_of_its_subflows(pins: Pins) -> None:
    routes: Routes = {FLOW: (Subflow(FIRST, 0.5), Subflow(SECOND, 0.5)), OTHER: whole(ELSEWHERE)}
    assert set(pinned(pins(FABRIC, JOBS, routes, ()), FLOW)) == {FIRST, SECOND}
    found = pins(without(FABRIC, {FIRST[1]}), JOBS, routes, ())
    assert not pinned(found, FLOW)
    assert found.invalid == {"one"}


def test_a_route_falls_when_its_host_is_elsewhere_and_is_not_judged_while_that_is_not_known(pins: Pins) -> None:
    routes: Routes = {FLOW: whole(FIRST)}
    host = FABRIC.hosts[FLOW.dst_ip]
    moved = replace(FABRIC, hosts={**FABRIC.hosts, FLOW.dst_ip: replace(host, at=PortRef(LEAF3, PortNo(77)))})
    gone = replace(FABRIC, hosts={ip: one for ip, one in FABRIC.hosts.items() if ip != FLOW.dst_ip})
    for fabric, paths, invalid in (
        (FABRIC, [FIRST], set()),
        (moved, [], {"one"}),
        (gone, [], set()),
        (FABRIC, [FIRST], set()),
    ):
        found = pins(fabric, JOBS, routes, ())
        assert pinned(found, FLOW) == paths
        assert found.invalid == invalid


def test_a_job_that_is_gone_has_no_fallen_routes(pins: Pins) -> None:
    cut = without(FABRIC, {FIRST[0]})
    assert pins(cut, JOBS, {FLOW: whole(FIRST)}, ()).invalid == {"one"}
    left = by_id(*(job for job in JOBS.values() if job.id == "two"))
    assert pins(cut, left, {}, ()).invalid == frozenset()
