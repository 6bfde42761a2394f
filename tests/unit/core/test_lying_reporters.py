"""A job reports wrong connections, or announces traffic that it does not send: the effects on other jobs.

The controller does not check yet who reports (docs/explanation/security.md); a client that reports in the name of
another job is not covered here."""

from __future__ import annotations

from collections import Counter

import pytest

from controller.config import Config, FabricConfig
from controller.jobs.messages import DeregisterJob, RegisterJob, ReportConnections
from controller.tables.messages import Counters, RuleCount
from controller.tables.rules import FlowKey, Match, Table
from signalbox.errors import Conflict
from signalbox.jobs.reports import Connected
from signalbox.jobs.spec import JobId
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric, ring_job
from tests.support.fake_switch import Packet

CONFIG = Config(fabric=FabricConfig(link_bps=FABRIC_BPS, host_link_bps=FABRIC_BPS))
A, B = "10.0.1.1", "10.0.2.1"
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
        flows = [key for key in self.switches[self.hosts[packet.src].dpid].flows if key.table == Table.PINNED]
        return max((key for key in flows if matches(key.match, packet)), key=lambda key: key.priority)

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


def matches(match: Match, packet: Packet) -> bool:
    pair = match.ip_src and match.ip_src.address, match.ip_dst and match.ip_dst.address
    if pair not in ((None, None), (packet.src, packet.dst)):
        return False
    ports = ((match.src_port, packet.src_port), (match.dst_port, packet.dst_port))
    return all(wanted is None or wanted.holds(port) for wanted, port in ports)


def started(**liar: object) -> Sending:
    """Return a fabric where the victim trains, and the liar registers afterwards."""
    fabric = Sending()
    fabric.start(CONFIG)
    fabric.run(3)
    fabric.send(RegisterJob(ring_job("victim", [A, B], 600, reports_connections=True)))
    fabric.send(ReportConnections(VICTIM, A, frozenset({VICTIMS})))
    fabric.carry(WINDOW_S, VICTIMS)
    assert fabric.slowdown(VICTIM) == 1
    fabric.send(RegisterJob(ring_job("liar", [A, B], 600, reports_connections=True, **liar)))
    return fabric


def test_connections_that_do_not_exist_take_no_room_after_one_window() -> None:
    fabric = started(max_subflows=8, striping="even")
    path = fabric.passes(VICTIMS)
    fabric.send(ReportConnections(LIAR, A, ABSENT))
    fabric.carry(1, VICTIMS)
    assert fabric.slowdown(VICTIM) == 2, "nothing is known of it yet"
    fabric.carry(WINDOW_S, VICTIMS)
    assert fabric.slowdown(VICTIM) == pytest.approx(1, abs=0.02)
    assert fabric.passes(VICTIMS) == path


def test_a_job_that_begins_to_send_late_is_planned_in_full_again() -> None:
    fabric = started()
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
        fabric = started(collectives=[collective])
        fabric.send(ReportConnections(LIAR, A, frozenset({LIARS})))
        fabric.carry(WINDOW_S, VICTIMS, LIARS)
        seen.append((fabric.slowdown(VICTIM), fabric.passes(VICTIMS), fabric.passes(LIARS)))
    assert seen[0] == seen[1]


def test_connections_that_another_job_has_reported_are_refused_from_either_end() -> None:
    fabric = started(max_subflows=2, striping="even")
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


def test_a_connection_can_be_reported_anew_once_its_job_has_gone_or_closed_it() -> None:
    fabric = started()
    fabric.send(ReportConnections(VICTIM, A, frozenset()))
    fabric.send(ReportConnections(LIAR, A, frozenset({VICTIMS})))
    assert fabric.replies[-1].value is None
    fabric.send(DeregisterJob(LIAR))
    fabric.send(ReportConnections(VICTIM, A, frozenset({VICTIMS})))
    assert fabric.replies[-1].value is None


def test_a_restart_knows_whose_connections_they_are() -> None:
    fabric = started()
    fabric.start(CONFIG)
    fabric.run(3)
    fabric.send(ReportConnections(LIAR, A, frozenset({VICTIMS})))
    assert isinstance(fabric.replies[-1].value, Conflict)


def test_connections_of_a_job_that_reports_none_can_be_taken_and_follow_the_liars_route() -> None:
    """Reports do not say who owns a connection, so this attack is possible. The bytes then count as the liar's."""
    fabric = Sending()
    fabric.start(CONFIG)
    fabric.run(3)
    fabric.send(RegisterJob(ring_job("victim", [A, B], 600)))
    fabric.carry(WINDOW_S, VICTIMS)
    path = fabric.passes(VICTIMS)
    fabric.send(RegisterJob(ring_job("liar", [A, B], 600, reports_connections=True)))
    fabric.send(ReportConnections(LIAR, A, frozenset({VICTIMS})))
    fabric.carry(WINDOW_S, VICTIMS)
    assert fabric.passes(VICTIMS) != path
    assert fabric.slowdown(VICTIM) == 2
    assert not fabric.status.demands[LIAR].silent
