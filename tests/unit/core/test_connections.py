"""Jobs that report their connections: two on one pair of hosts, and split flows without chosen ports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.config import Config, FabricConfig
from controller.jobs.messages import DeregisterJob, RegisterJob, ReportConnections, UpdateJob
from controller.planning.problem import Route
from controller.tables.rules import IP_UDP
from signalbox.errors import Conflict, InvalidInput, NotFound
from signalbox.jobs.reports import Connected
from signalbox.jobs.spec import JobId, Transport
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric, ring_job
from tests.support.fake_switch import Packet

CONFIG = Config(fabric=FabricConfig(link_bps=FABRIC_BPS, host_link_bps=FABRIC_BPS))
A, B = "10.0.1.1", "10.0.2.1"
FIRST, SECOND = JobId("first"), JobId("second")
PORTS = [(40001, 50001), (40003, 50001), (40005, 50001), (40007, 50001)]


@pytest.fixture
def fabric() -> FakeFabric:
    fabric = FakeFabric(leaves=2, spines=4, hosts_per_leaf=1)
    fabric.start(CONFIG)
    fabric.run(3)
    return fabric


def connected(ports: list[tuple[int, int]], src: str = A, dst: str = B) -> frozenset[Connected]:
    return frozenset(Connected(src, here, dst, there) for here, there in ports)


def report(fabric: FakeFabric, job_id: str, ports: list[tuple[int, int]]) -> None:
    fabric.send(ReportConnections(JobId(job_id), A, connected(ports)))
    fabric.run(1)


def route(fabric: FakeFabric, job_id: str, pair: tuple[str, str] = (A, B)) -> Route | None:
    routes = fabric.status.jobs[JobId(job_id)].routes
    return next(route for flow, route in routes.items() if flow.pair == pair)


def spine(fabric: FakeFabric, ports: tuple[int, int], src: str = A, dst: str = B) -> str:
    """Return the spine that packets between these ports cross."""
    if src == B:
        ports = ports[1], ports[0]
    passed = fabric.follow(Packet(src, dst, src_port=ports[0], dst_port=ports[1]))
    assert passed
    return passed[1]


def planned_spine(fabric: FakeFabric, job_id: str, subflow: int = 0, pair: tuple[str, str] = (A, B)) -> str:
    found = route(fabric, job_id, pair)
    assert found
    return f"spine{found[subflow].path[0].port}"


def test_two_jobs_on_one_pair_of_hosts_travel_apart_both_ways(fabric: FakeFabric) -> None:
    fabric.send(RegisterJob(ring_job("first", [A, B], lease_s=600)))
    fabric.send(RegisterJob(ring_job("second", [A, B], lease_s=600, reports_connections=True)))
    fabric.run(1)
    assert fabric.status.jobs[SECOND].state == "ecmp", "nothing tells its packets apart yet"
    report(fabric, "second", PORTS[:1])
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}
    for pair in ((A, B), (B, A)):
        assert spine(fabric, PORTS[0], *pair) == planned_spine(fabric, "second", pair=pair)
        assert spine(fabric, PORTS[1], *pair) == planned_spine(fabric, "first", pair=pair)
        assert spine(fabric, PORTS[0], *pair) != spine(fabric, PORTS[1], *pair)


def test_a_job_whose_pairs_are_taken_is_refused_unless_it_reports_its_connections(fabric: FakeFabric) -> None:
    fabric.send(RegisterJob(ring_job("first", [A, B], lease_s=600)))
    fabric.send(RegisterJob(ring_job("second", [A, B], lease_s=600)))
    assert isinstance(fabric.replies[-1].value, Conflict)
    fabric.send(RegisterJob(ring_job("second", [A, B], lease_s=600, reports_connections=True)))
    assert SECOND in fabric.status.jobs


def test_the_last_job_of_a_pair_gets_all_of_its_packets(fabric: FakeFabric) -> None:
    fabric.send(RegisterJob(ring_job("first", [A, B], lease_s=600)))
    fabric.send(RegisterJob(ring_job("second", [A, B], lease_s=600, reports_connections=True)))
    report(fabric, "second", PORTS[:1])
    fabric.send(DeregisterJob(FIRST))
    fabric.run(1)
    assert fabric.status.jobs[SECOND].state == "pinned"
    assert spine(fabric, PORTS[0]) == spine(fabric, PORTS[3]) == planned_spine(fabric, "second")


@pytest.mark.parametrize("striping", ["even", "common_queue"])
def test_connections_with_the_same_bytes_are_planned_one_by_one(fabric: FakeFabric, striping: str) -> None:
    spec = ring_job("first", [A, B], 600, reports_connections=True, max_subflows=4, striping=striping)
    fabric.send(RegisterJob(spec))
    report(fabric, "first", PORTS)
    found = route(fabric, "first")
    assert found
    assert [share for _, share in found] == [0.25] * 4
    assert len({path for path, _ in found}) == 1, "a flow that need not be cut has all on one path"
    assert [spine(fabric, ports) for ports in PORTS] == [planned_spine(fabric, "first", i) for i in range(4)]


def test_more_connections_than_subflows_are_bundled(fabric: FakeFabric) -> None:
    spec = ring_job("first", [A, B], 600, reports_connections=True, max_subflows=3, striping="even")
    fabric.send(RegisterJob(spec))
    report(fabric, "first", PORTS)
    found = route(fabric, "first")
    assert found
    assert [share for _, share in found] == [0.5, 0.25, 0.25]
    assert spine(fabric, PORTS[0]) == spine(fabric, PORTS[3]) == planned_spine(fabric, "first")


def test_other_connections_replace_those_that_were_reported(fabric: FakeFabric) -> None:
    fabric.send(RegisterJob(ring_job("first", [A, B], 600)))
    fabric.send(RegisterJob(ring_job("second", [A, B], 600, reports_connections=True)))
    report(fabric, "second", PORTS[:1])
    report(fabric, "second", PORTS[2:3])
    assert spine(fabric, PORTS[2]) == planned_spine(fabric, "second")
    assert spine(fabric, PORTS[0]) == planned_spine(fabric, "first")
    fabric.forget_mods()
    report(fabric, "second", PORTS[2:3])
    assert not fabric.mods, "the same again changes nothing"


def test_a_restart_keeps_the_rules_of_connections(fabric: FakeFabric) -> None:
    fabric.send(RegisterJob(ring_job("first", [A, B], 600)))
    fabric.send(RegisterJob(ring_job("second", [A, B], 600, reports_connections=True, max_subflows=2, striping="even")))
    report(fabric, "second", PORTS[:2])
    before = {job_id: dict(job.routes) for job_id, job in fabric.status.jobs.items()}
    fabric.forget_mods()
    fabric.start(CONFIG)
    fabric.run(20)
    assert {job_id: dict(job.routes) for job_id, job in fabric.status.jobs.items()} == before
    assert not [mod for mod in fabric.mods if mod.op != "modify"]


def test_reports_that_cannot_be_are_refused_and_change_nothing(fabric: FakeFabric) -> None:
    fabric.send(RegisterJob(ring_job("first", [A, B], 600)))
    fabric.send(RegisterJob(ring_job("second", [A, B], 600, reports_connections=True)))
    report(fabric, "second", PORTS[:1])
    report(fabric, "first", PORTS)
    assert isinstance(fabric.replies[-1].value, Conflict)
    report(fabric, "none", PORTS)
    assert isinstance(fabric.replies[-1].value, NotFound)
    fabric.send(ReportConnections(SECOND, "10.9.9.9", frozenset()))
    assert isinstance(fabric.replies[-1].value, InvalidInput)
    fabric.send(ReportConnections(SECOND, A, connected(PORTS, dst="10.9.9.9")))
    assert isinstance(fabric.replies[-1].value, InvalidInput)
    assert spine(fabric, PORTS[0]) == planned_spine(fabric, "second")


def test_queue_pairs_of_roce_send_from_one_port_both_ways_and_to_one(fabric: FakeFabric) -> None:
    """A change of the transport removes the reported TCP connections."""
    spec = ring_job("first", [A, B], 600, reports_connections=True, max_subflows=2, striping="even")
    fabric.send(RegisterJob(spec))
    report(fabric, "first", PORTS)
    fabric.send(UpdateJob(spec.model_copy(update={"transport": Transport.ROCE_V2})))
    fabric.run(1)
    assert fabric.loop.state.jobs.connections == {}
    report(fabric, "first", PORTS[:1])
    refusal = fabric.replies[-1].value
    assert str(refusal) == "connections.dst_port: must be 4791, the RoCEv2 port, in both directions (given: 50001)"
    report(fabric, "first", [(40001, 4791), (40003, 4791)])
    fabric.run(3)
    crossed = {
        (src, port): fabric.follow(Packet(src, dst, protocol=IP_UDP, src_port=port, dst_port=4791))
        for src, dst in ((A, B), (B, A))
        for port in (40001, 40003)
    }
    spines = {ends: path[1] for ends, path in crossed.items() if path}
    assert spines[A, 40001] == spines[B, 40001] == planned_spine(fabric, "first", 0)
    assert spines[A, 40003] == spines[B, 40003] != spines[A, 40001]


def test_connections_that_take_the_place_of_others_are_a_change_of_the_routes(fabric: FakeFabric) -> None:
    """Watchers learn which connections take a path, also when the path stays the same."""
    fabric.send(RegisterJob(ring_job("first", [A, B], lease_s=600, reports_connections=True)))
    report(fabric, "first", PORTS[:1])
    before, way = fabric.status.jobs[FIRST], route(fabric, "first")
    report(fabric, "first", PORTS[1:3])
    after = fabric.status.jobs[FIRST]
    assert route(fabric, "first") == way
    assert after.routes_generation > before.routes_generation
    assert after.dividing.connections != before.dividing.connections


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_of_jobs_that_share_a_pair_the_one_registered_first_has_the_rule_for_all_packets_also_after_a_restart(
    fabric: FakeFabric, order: tuple[str, str]
) -> None:
    """Neither job gets rules before both jobs are registered, so the jobs may register in any order."""
    for number, name in enumerate(order):
        job = ring_job(name, [A, B], lease_s=600, reports_connections=True)
        fabric.send(RegisterJob(job, registered_at=1e9 + number))
    fabric.run(3)
    assert [job_id for job_id in order if route(fabric, job_id) is not None] == [order[0]]
    fabric.forget_mods()
    fabric.saved = replace(fabric.saved, jobs=dict(sorted(fabric.saved.jobs.items(), reverse=order[0] == "one")))
    fabric.start(CONFIG)
    fabric.run(10)
    assert fabric.mods == []
    assert [job_id for job_id in order if route(fabric, job_id) is not None] == [order[0]]
