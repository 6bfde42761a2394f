from __future__ import annotations

from itertools import count
from typing import Any

from controller.fabric.topology import Dpid
from controller.messages import Counters, PortCount
from controller.southbound.counter_poller import CounterPoller
from controller.southbound.framework import ofp_parser
from controller.tables.rules import FlowKey, Match, Table, cookie

A = Dpid(1)
INTERVAL = 2.0


class Wire:
    def __init__(self) -> None:
        self.sent: list[tuple[float, Dpid, int, Any]] = []
        self.counters: list[Counters] = []
        self.now = 0.0
        self._xids = count(1)
        self.poller = CounterPoller(INTERVAL, self._send, self.counters.append)

    def _send(self, dpid: Dpid, message: Any) -> int:
        xid = next(self._xids)
        self.sent.append((self.now, dpid, xid, message))
        return xid

    def run(self, until: float) -> None:
        while self.now < until:
            self.now += 0.05
            self.poller.tick(self.now)

    def answer_last(self, bodies: tuple[list[Any], list[Any]] = ([], [])) -> None:
        for (_, dpid, xid, _), body in zip(self.sent[-2:], bodies, strict=True):
            assert self.poller.part(dpid, xid, body, more=False, now=self.now)


def port_stats(number: int, tx: int, rx: int) -> Any:
    return ofp_parser.OFPPortStats(number, 0, 0, rx, tx, *[0] * 10)


def flow_stats(priority: int, byte_count: int, owner: int) -> Any:
    return ofp_parser.OFPFlowStats(
        1, 0, 0, priority, 0, 0, 0, owner, 0, byte_count, ofp_parser.OFPMatch(), instructions=[]
    )


def test_ports_and_pinned_flows_are_asked_for_together_and_reported_when_both_are_in() -> None:
    wire = Wire()
    wire.poller.switch_connected(A, 0.0)
    wire.run(INTERVAL)
    (_, _, ports, _), (_, _, flows, _) = wire.sent
    wire.poller.part(A, ports, [port_stats(1, 10, 20)], more=True, now=3.0)
    wire.poller.part(A, flows, [flow_stats(7, 99, cookie(Table.PINNED, 4)), flow_stats(8, 1, 0)], more=False, now=3.1)
    assert wire.counters == []
    wire.poller.part(A, ports, [port_stats(2, 30, 40)], more=False, now=3.2)
    key = FlowKey(Table.PINNED, 7, Match())
    assert wire.counters == [Counters(A, 3.2, {1: PortCount(10, 20), 2: PortCount(30, 40)}, {key: 99})]  # type: ignore[dict-item]


def test_a_switch_is_polled_once_per_interval_while_it_answers() -> None:
    wire = Wire()
    wire.poller.switch_connected(A, 0.0)
    for n in range(1, 6):
        wire.run(n * INTERVAL)
        wire.answer_last()
    assert len(wire.counters) == 5
    assert len(wire.sent) == 10


def test_a_switch_whose_poll_is_unanswered_is_not_asked_again() -> None:
    wire = Wire()
    wire.poller.switch_connected(A, 0.0)
    wire.run(5 * INTERVAL)
    assert len(wire.sent) == 2
    wire.answer_last()
    wire.run(6 * INTERVAL)
    assert len(wire.sent) == 4


def test_a_refused_poll_is_not_reported_and_the_next_one_comes() -> None:
    wire = Wire()
    wire.poller.switch_connected(A, 0.0)
    wire.run(INTERVAL)
    assert wire.poller.error(A, wire.sent[0][2])
    assert not wire.poller.error(A, wire.sent[0][2])
    wire.run(2 * INTERVAL)
    assert len(wire.sent) == 4
    assert wire.counters == []


def test_switches_that_connect_together_are_polled_at_different_moments() -> None:
    wire = Wire()
    for dpid in range(1, 41):
        wire.poller.switch_connected(Dpid(dpid), 0.0)
    wire.run(INTERVAL)
    moments = [now for now, *_ in wire.sent[::2]]
    assert len(moments) == 40
    assert max(moments.count(moment) for moment in moments) <= 3


def test_replies_of_a_switch_that_left_are_nobodys() -> None:
    wire = Wire()
    wire.poller.switch_connected(A, 0.0)
    wire.run(INTERVAL)
    wire.poller.switch_left(A)
    assert not wire.poller.part(A, wire.sent[0][2], [], more=False, now=1.0)
    wire.run(3 * INTERVAL)
    assert len(wire.sent) == 2


def test_after_a_stall_the_missed_polls_are_not_made_up_for() -> None:
    wire = Wire()
    wire.poller.switch_connected(A, 0.0)
    wire.run(INTERVAL)
    wire.answer_last()
    wire.now = 100.0
    wire.poller.tick(wire.now)
    wire.answer_last()
    wire.poller.tick(wire.now)
    assert len(wire.sent) == 4
