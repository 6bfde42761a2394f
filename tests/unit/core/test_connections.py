"""Jobs that report their connections: two on one pair of hosts, split flows without chosen ports, and false reports."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from controller.jobs.messages import DeregisterJob, RegisterJob, ReportConnections, UpdateJob
from controller.planning.problem import Route
from controller.tables.messages import Counters, RuleCount
from controller.tables.rules import IP_UDP, FlowKey, Table
from signalbox.errors import Conflict
from signalbox.jobs.reports import Connected
from signalbox.jobs.spec import JobId, Transport
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric, ring_job
from tests.support.fake_switch import Packet, matches
from tests.support.three_rings import CONFIG, started

A, B = "10.0.1.1", "10.0.2.1"
FIRST = JobId("first")
PORTS = [(40001, 50001), (40003, 50001), (40005, 50001), (40007, 50001)]


@pytest.fixture
def fabric() -> FakeFabric:
    return started(FakeFabric(leaves=2, spines=4, hosts_per_leaf=1))


def connected(ports: list[tuple[int, int]], src: str = A, dst: str = B) -> frozenset[Connected]:
    return frozenset(Connected(src, here, dst, there) for here, there in ports)


def report(fabric: FakeFabric, job_id: str, ports: list[tuple[int, int]]) -> None:
    fabric.send(ReportConnections(JobId(job_id), A, connected(ports)))
    fabric.run(1)


def route(fabric: FakeFabric, job_id: str, pair: tuple[str, str] = (A, B)) -> Route | None:
    routes = fabric.job(job_id).routes
    return next(route for flow, route in routes.items() if flow.pair == pair)


def spine(fabric: FakeFabric, ports: tuple[int, int], src: str = A, dst: str = B) -> str:
    if src == B:
        ports = ports[1], ports[0]
    passed = fabric.follow(Packet(src, dst, src_port=ports[0], dst_port=ports[1]))
    assert passed
    return passed[1]


def planned_spine(fabric: FakeFabric, job_id: str, subflow: int = 0, pair: tuple[str, str] = (A, B)) -> str:
    found = route(fabric, job_id, pair)
    assert found
    return f"spine{found[subflow].path[0].port}"


def test_two_jobs_on_one_pair_of_hosts_travel_apart_both_ways_until_one_has_all_packets(fabric: FakeFabric) -> None:
    fabric.send(RegisterJob(ring_job("first", [A, B], lease_s=600)))
    fabric.send(RegisterJob(ring_job("second", [A, B], lease_s=600, reports_connections=True)))
    fabric.run(1)
    assert fabric.job("second").state == "ecmp", "nothing tells its packets apart yet"
    report(fabric, "second", PORTS[:1])
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}
    for pair in ((A, B), (B, A)):
        assert spine(fabric, PORTS[0], *pair) == planned_spine(fabric, "second", pair=pair)
        assert spine(fabric, PORTS[1], *pair) == planned_spine(fabric, "first", pair=pair)
        assert spine(fabric, PORTS[0], *pair) != spine(fabric, PORTS[1], *pair)
    fabric.send(DeregisterJob(FIRST))
    fabric.run(1)
    assert fabric.job("second").state == "pinned"
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
    """Watchers learn which connections take a path, even when the path stays the same."""
    fabric.send(RegisterJob(ring_job("first", [A, B], lease_s=600, reports_connections=True)))
    report(fabric, "first", PORTS[:1])
    before, way = fabric.job("first"), route(fabric, "first")
    report(fabric, "first", PORTS[1:3])
    after = fabric.job("first")
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


# ---- a job reports wrong connections, or announces traffic that it does not send: the effects on other jobs
#
# The controller does not check yet who reports (docs/explanation/security.md). A client that reports in the name of
# another job is not covered here.


VICTIM, LIAR = JobId("victim"), JobId("liar")
VICTIMS = Connected(A, 40001, B, 50001)
LIARS = Connected(A, 41001, B, 51001)
ABSENT = frozenset(Connected(A, port, B, 52001) for port in range(42001, 42009))
STEP_S = 0.5
WINDOW_S = 10.0
"""Seconds; longer than a window of judgement (two intervals of 2 s) plus the time until the next plan."""


class Sending(FakeFabric):
    """Fabric whose connections send at a quarter of a link's rate, in both directions.

    The leaf of the source counts the packets of each connection at the rule that they match."""

    def __init__(self) -> None:
        super().__init__(leaves=2, spines=2, hosts_per_leaf=2)
        self.counted: Counter[FlowKey] = Counter()

    def carry(self, seconds: float, *connections: Connected) -> None:
        both = [*connections, *(Connected(*one[2:], *one[:2]) for one in connections)]
        for step in range(round(seconds / STEP_S)):
            self.run(STEP_S)
            for src, src_port, dst, dst_port in both:
                packet = Packet(src, dst, src_port=src_port, dst_port=dst_port)
                self.counted[self.hit(packet)] += int(0.25 * FABRIC_BPS * STEP_S / 8 / 1514)
            if step % 4 == 0:
                self._poll()

    def hit(self, packet: Packet) -> FlowKey:
        at = self.hosts[packet.src]
        pinned = (key for key in self.switches[at.dpid].flows if key.table == Table.PINNED)
        return max((key for key in pinned if matches(key.match, at.port, packet)), key=lambda key: key.priority)

    def _poll(self) -> None:
        for switch in self.switches.values():
            keys = [key for key in switch.flows if key.table == Table.PINNED and key.match.ip_src]
            counts = {key: RuleCount(self.counted[key] * 1514, self.counted[key]) for key in keys}
            self.send(Counters(switch.dpid, self.now, {}, counts))

    def slowdown(self, job_id: JobId) -> float:
        assert self.status.plan
        return self.status.plan.job_slowdown[job_id]

    def passes(self, connection: Connected) -> list[str] | None:
        src, src_port, dst, dst_port = connection
        return self.follow(Packet(src, dst, src_port=src_port, dst_port=dst_port))


def attacked(**liar: object) -> Sending:
    """Return a fabric where the victim trains, and the liar registers afterwards."""
    fabric = started(Sending())
    fabric.send(RegisterJob(ring_job("victim", [A, B], 600, reports_connections=True)))
    fabric.send(ReportConnections(VICTIM, A, frozenset({VICTIMS})))
    fabric.carry(WINDOW_S, VICTIMS)
    assert fabric.slowdown(VICTIM) == 1
    fabric.send(RegisterJob(ring_job("liar", [A, B], 600, reports_connections=True, **liar)))
    return fabric


def test_connections_that_do_not_exist_take_no_room_after_one_window() -> None:
    fabric = attacked(max_subflows=8, striping="even")
    path = fabric.passes(VICTIMS)
    fabric.send(ReportConnections(LIAR, A, ABSENT))
    fabric.carry(1, VICTIMS)
    assert fabric.slowdown(VICTIM) == 2, "nothing is known of it yet"
    fabric.carry(WINDOW_S, VICTIMS)
    assert fabric.slowdown(VICTIM) == pytest.approx(1, abs=0.02)
    assert fabric.passes(VICTIMS) == path


def test_a_job_that_begins_to_send_late_is_planned_in_full_again() -> None:
    fabric = attacked()
    fabric.send(ReportConnections(LIAR, A, frozenset({LIARS})))
    fabric.carry(WINDOW_S, VICTIMS)
    assert fabric.slowdown(VICTIM) == pytest.approx(1, abs=0.02)
    assert fabric.status.demands[LIAR].silent
    fabric.carry(WINDOW_S, VICTIMS, LIARS)
    assert fabric.slowdown(VICTIM) == fabric.slowdown(LIAR) == 2, "they share a NIC"
    assert fabric.passes(VICTIMS) != fabric.passes(LIARS)
    fabric.carry(3 * WINDOW_S, VICTIMS)
    assert fabric.slowdown(VICTIM) == 2, "a job that has sent may pause"


def test_a_thousand_times_the_bytes_change_nothing() -> None:
    """A plan uses the share of the NIC's time that a flow takes, not the number of its bytes."""
    seen = []
    for factor in (1, 1000):
        collective = {"algorithm": "ring_all_reduce", "groups": ["dp"], "bytes_per_iteration": factor * 1_000_000}
        fabric = attacked(collectives=[collective])
        fabric.send(ReportConnections(LIAR, A, frozenset({LIARS})))
        fabric.carry(WINDOW_S, VICTIMS, LIARS)
        seen.append((fabric.slowdown(VICTIM), fabric.passes(VICTIMS), fabric.passes(LIARS)))
    assert seen[0] == seen[1]


def test_connections_that_another_job_has_reported_are_refused_from_either_end() -> None:
    fabric = attacked(max_subflows=2, striping="even")
    path = fabric.passes(VICTIMS)
    fabric.send(ReportConnections(LIAR, A, frozenset({LIARS})))
    there, back = VICTIMS, Connected(*VICTIMS[2:], *VICTIMS[:2])
    for address, stolen in ((A, there), (B, back)):
        fabric.send(ReportConnections(LIAR, address, frozenset({stolen, *ABSENT} if address == A else {stolen})))
        refusal = fabric.replies[-1].value
        assert isinstance(refusal, Conflict)
        assert "job 'victim' has reported it" in str(refusal)
    fabric.carry(WINDOW_S, VICTIMS, LIARS)
    assert fabric.passes(VICTIMS) == path
    assert fabric.passes(LIARS) != path, "what it had reported before still holds"


def test_connections_of_a_job_that_reports_none_can_be_taken_and_follow_the_liars_route() -> None:
    """Reports do not say who owns a connection, so this attack is possible. The bytes then count as the liar's."""
    fabric = started(Sending())
    fabric.send(RegisterJob(ring_job("victim", [A, B], 600)))
    fabric.carry(WINDOW_S, VICTIMS)
    path = fabric.passes(VICTIMS)
    fabric.send(RegisterJob(ring_job("liar", [A, B], 600, reports_connections=True)))
    fabric.send(ReportConnections(LIAR, A, frozenset({VICTIMS})))
    fabric.carry(WINDOW_S, VICTIMS)
    assert fabric.passes(VICTIMS) != path
    assert fabric.slowdown(VICTIM) == 2
    assert not fabric.status.demands[LIAR].silent
