from __future__ import annotations

import struct
from itertools import count

import pytest

from controller.fabric.topology import Dpid, PortNo
from controller.southbound.counter_poller import METERS_EVERY, PATIENCE, CounterPoller
from controller.southbound.framework import ofp
from controller.southbound.given_rules import GivenRules
from controller.southbound.multipart import Reply
from controller.southbound.openflow_decode import UNSUPPORTED
from controller.southbound.openflow_framing import Malformed
from controller.tables.messages import Counters, PortCount, RuleCount
from controller.tables.rules import FlowKey, FlowRule, Match, Table, cookie
from tests.support.openflow_entries import flow_entry, meter_count, port_entry

A = Dpid(1)
INTERVAL = 2.0
PORTS, FLOWS, METERS = ofp.OFPMP_PORT_STATS, ofp.OFPMP_FLOW, ofp.OFPMP_METER


class Wire:
    """Connection to switches.

    ``open``: the unanswered requests, per switch by kind.
    ``asked``: time, switch and kind of each request."""

    def __init__(self, switches: int = 1) -> None:
        self.asked: list[tuple[float, Dpid, int]] = []
        self.open: dict[Dpid, dict[int, int]] = {}
        self.counters: list[Counters] = []
        self.now = 0.0
        self._xids = count(1)
        self.poller = CounterPoller(INTERVAL, self._send, self.counters.append, GivenRules())
        for dpid in range(1, switches + 1):
            self.poller.switch_connected(Dpid(dpid), 0.0)

    def _send(self, dpid: Dpid, /, *messages: bytes) -> list[int]:
        kinds = [struct.unpack_from("!H", message, 8)[0] for message in messages]
        self.asked += [(self.now, dpid, kind) for kind in kinds]
        self.open[dpid] = dict(zip(kinds, self._xids, strict=False))
        return list(self.open[dpid].values())

    def run(self, intervals: float) -> None:
        until = self.now + intervals * INTERVAL
        while self.now < until:
            self.now += 0.05
            self.poller.tick(self.now)

    def answer(self, kind: int, body: bytes = b"", more: bool = False) -> bool:
        return self.poller.part(A, Reply(self.open[A][kind], kind, more, body), self.now)

    def refuse(self, kind: int) -> bool:
        return self.poller.error(A, self.open[A][kind])

    def answer_all(self, ports: bytes = b"", flows: bytes = b"", meters: bytes = b"") -> None:
        for kind, body in ((PORTS, ports), (FLOWS, flows), (METERS, meters)):
            if kind in self.open[A]:
                assert self.answer(kind, body)
                del self.open[A][kind]


def key(priority: int) -> FlowKey:
    return FlowKey(Table.PINNED, priority, Match())


def flow(priority: int, byte_count: int, owner: int = cookie(Table.PINNED, 4)) -> bytes:
    return flow_entry(FlowRule(key(priority), owner), byte_count)


PORT_1, PORT_2 = port_entry(1, 10, 20), port_entry(2, 30, 40)


def test_ports_and_pinned_flows_are_read_together_and_reported_when_all_replies_are_complete() -> None:
    wire = Wire()
    wire.run(1)
    assert [kind for _, _, kind in wire.asked] == [PORTS, FLOWS, METERS]
    wire.answer(PORTS, PORT_1, more=True)
    wire.answer(FLOWS, flow(7, 99) + flow(8, 1, owner=0))
    wire.answer(METERS, meter_count(1, 5))
    assert wire.counters == []
    wire.now = 3.2
    wire.answer(PORTS, PORT_2)
    ports = {PortNo(1): PortCount(10, 20), PortNo(2): PortCount(30, 40)}
    assert wire.counters == [Counters(A, 3.2, ports, {key(7): RuleCount(99, 3)}, {PortNo(1): 5}, due=2.0)]


def test_a_switch_is_polled_once_per_interval_and_its_meters_every_few_polls() -> None:
    wire = Wire()
    for _ in range(METERS_EVERY + 1):
        wire.run(1)
        wire.answer_all(PORT_1)
    assert len(wire.counters) == METERS_EVERY + 1
    kinds = [kind for _, _, kind in wire.asked]
    assert (kinds.count(PORTS), kinds.count(FLOWS), kinds.count(METERS)) == (METERS_EVERY + 1, METERS_EVERY + 1, 2)


def test_a_switch_with_an_unanswered_poll_is_polled_again_when_that_is_given_up() -> None:
    wire = Wire()
    wire.run(PATIENCE)
    assert len(wire.asked) == 3
    wire.answer_all(PORT_1)
    wire.run(1)
    assert len(wire.asked) == 5


def test_a_poll_with_missing_replies_reports_the_others_and_later_replies_are_ignored() -> None:
    wire = Wire()
    wire.run(1)
    wire.answer(PORTS, PORT_1)
    wire.answer(FLOWS, flow(7, 99), more=True)
    late = dict(wire.open[A])
    wire.run(PATIENCE + 0.5)
    (reported,) = wire.counters
    assert reported.ports == {PortNo(1): PortCount(10, 20)}
    assert reported.flows is None, "an incomplete reply is not reported"
    assert reported.at == pytest.approx(INTERVAL, abs=0.06), "when the ports were read, not when the poll was given up"
    assert not wire.poller.part(A, Reply(late[FLOWS], FLOWS, False, flow(8, 1)), wire.now)
    wire.answer_all(PORT_2)
    assert wire.counters[-1].ports == {PortNo(2): PortCount(30, 40)}


def test_a_switch_that_never_answers_is_polled_again_and_again() -> None:
    wire = Wire()
    wire.run(10 * PATIENCE)
    assert [kind for _, _, kind in wire.asked].count(PORTS) >= 8
    assert wire.counters == []


@pytest.mark.parametrize("refused", [PORTS, FLOWS])
def test_a_refused_request_leaves_the_replies_to_the_others(refused: int) -> None:
    wire = Wire()
    wire.run(1)
    wire.answer(METERS)
    assert wire.refuse(refused)
    assert not wire.refuse(refused)
    assert wire.counters == []
    wire.answer(FLOWS if refused == PORTS else PORTS, flow(7, 99) if refused == PORTS else PORT_1)
    (reported,) = wire.counters
    assert (reported.ports is None) == (refused == PORTS)
    assert (reported.flows is None) == (refused == FLOWS)


def test_a_refusal_that_comes_last_completes_the_poll() -> None:
    wire = Wire()
    wire.run(1)
    wire.answer(METERS)
    wire.answer(PORTS, PORT_1)
    assert wire.refuse(FLOWS)
    assert len(wire.counters) == 1


def test_a_switch_without_meters_is_not_asked_for_them_again_until_it_is_back() -> None:
    wire = Wire()
    wire.run(1)
    assert wire.refuse(METERS)
    del wire.open[A][METERS]
    wire.answer_all(PORT_1)
    for _ in range(2 * METERS_EVERY):
        wire.run(1)
        wire.answer_all(PORT_1)
    assert [kind for _, _, kind in wire.asked].count(METERS) == 1
    wire.poller.switch_left(A)
    wire.poller.switch_connected(A, wire.now)
    wire.run(1)
    assert [kind for _, _, kind in wire.asked].count(METERS) == 2


def test_counters_that_a_switch_does_not_have_are_not_reported() -> None:
    wire = Wire()
    wire.run(1)
    wire.answer_all(
        port_entry(1, UNSUPPORTED, 5), flow(7, UNSUPPORTED) + flow(8, 6), meter_count(1, UNSUPPORTED) + meter_count(2)
    )
    assert wire.counters == [
        Counters(A, wire.now, {PortNo(1): PortCount(None, 5)}, {key(8): RuleCount(6, 3)}, {}, due=2.0)
    ]


def test_a_part_that_arrives_twice_changes_nothing() -> None:
    wire = Wire()
    wire.run(1)
    for _ in range(2):
        wire.answer(PORTS, PORT_1, more=True)
    wire.answer_all(PORT_2, flow(7, 99))
    assert len(wire.counters) == 1
    assert (wire.counters[0].ports or {}).keys() == {1, 2}


def test_a_malformed_reply_raises_malformed() -> None:
    wire = Wire()
    wire.run(1)
    with pytest.raises(Malformed):
        wire.answer(PORTS, PORT_1[:-1])


def test_switches_are_polled_at_one_moment_whenever_they_connected() -> None:
    wire = Wire(switches=40)
    wire.now = 0.7
    wire.poller.switch_connected(Dpid(41), wire.now)
    wire.run(1)
    moments = [now for now, _, kind in wire.asked if kind == PORTS]
    assert len(moments) == 41
    assert len(set(moments)) == 1


def test_replies_of_a_switch_that_left_are_ignored() -> None:
    wire = Wire()
    wire.run(1)
    wire.poller.switch_left(A)
    assert not wire.answer(PORTS, PORT_1)
    wire.run(3)
    assert len(wire.asked) == 3


def test_polls_missed_during_a_stall_are_skipped() -> None:
    wire = Wire()
    wire.run(1)
    wire.answer_all(PORT_1)
    wire.now = 100.0
    wire.poller.tick(wire.now)
    wire.answer_all(PORT_1)
    wire.poller.tick(wire.now)
    assert len(wire.asked) == 5


def test_a_poll_halfway_comes_once_and_the_regular_ones_stay_where_they_are() -> None:
    wire = Wire()
    wire.run(1.1)
    wire.answer_all()
    wire.poller.poll_halfway()
    wire.run(0.5)
    wire.answer_all()
    wire.run(1.6)
    assert [round(at, 1) for at, _, kind in wire.asked if kind == PORTS] == [2.0, 3.0, 4.0]
    wire.answer_all()
    assert [counters.due for counters in wire.counters] == [2.0, 3.0, 4.0], "whenever the tick comes"


def test_a_switch_that_has_not_answered_is_not_polled_halfway() -> None:
    wire = Wire()
    wire.run(1.1)
    wire.poller.poll_halfway()
    wire.run(0.6)
    assert [round(at, 1) for at, _, kind in wire.asked if kind == PORTS] == [2.0]
