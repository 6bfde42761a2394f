from __future__ import annotations

import struct
from itertools import count

from controller.fabric.topology import Dpid
from controller.southbound.counter_poller import PATIENCE, TIMES, LearningPoller
from controller.southbound.framework import ofp
from controller.southbound.given_rules import GivenRules
from controller.southbound.multipart import Reply
from controller.tables.messages import LearningCounters, RuleCount
from controller.tables.rules import FlowKey, FlowRule, Match, Table, learning_cookie
from tests.support.openflow_entries import flow_entry

A, B = Dpid(1), Dpid(2)
INTERVAL = 2.0


class Wire:
    def __init__(self) -> None:
        self.asked: list[tuple[float, Dpid, int]] = []
        self.counters: list[LearningCounters] = []
        self.now = 0.0
        self._xids = count(1)
        self.poller = LearningPoller(INTERVAL, self._send, self.counters.append, GivenRules())
        for dpid in (A, B):
            self.poller.switch_connected(dpid)

    def _send(self, dpid: Dpid, /, *messages: bytes) -> list[int]:
        (message,) = messages
        assert struct.unpack_from("!H", message, 8) == (ofp.OFPMP_FLOW,)
        self.asked.append((self.now, dpid, next(self._xids)))
        return [self.asked[-1][2]]

    def run(self, intervals: float, answers: bool = True) -> None:
        until = self.now + intervals * INTERVAL
        while self.now < until:
            self.now += 0.125
            before = len(self.asked)
            self.poller.tick(self.now)
            for _, dpid, xid in self.asked[before:] if answers else ():
                assert self.poller.part(dpid, Reply(xid, ofp.OFPMP_FLOW, False, b""), self.now)


def test_only_the_switches_of_jobs_that_are_learnt_are_polled_several_times_per_interval() -> None:
    wire = Wire()
    wire.run(2)
    assert not wire.asked
    wire.poller.poll(frozenset({B, Dpid(3)}))
    wire.run(2)
    assert {dpid for _, dpid, _ in wire.asked} == {B}
    assert len(wire.asked) in (2 * TIMES, 2 * TIMES + 1)
    wire.poller.poll(frozenset())
    before = len(wire.asked)
    wire.run(2)
    assert len(wire.asked) == before


def test_switches_are_polled_together() -> None:
    wire = Wire()
    wire.poller.poll(frozenset({A, B}))
    wire.run(1)
    assert {at for at, dpid, _ in wire.asked if dpid == A} == {at for at, dpid, _ in wire.asked if dpid == B}


def test_counters_are_reported_when_all_parts_are_there() -> None:
    wire = Wire()
    wire.poller.poll(frozenset({A}))
    wire.run(1 / TIMES, answers=False)
    ((_, _, xid),) = wire.asked
    keys = [FlowKey(Table.PINNED, priority, Match()) for priority in (50, 51)]
    for key in keys:
        more = key == keys[0]
        body = flow_entry(FlowRule(key, learning_cookie(7)), 99)
        assert wire.poller.part(A, Reply(xid, ofp.OFPMP_FLOW, more, body), wire.now)
    assert wire.counters == [LearningCounters(A, wire.now, dict.fromkeys(keys, RuleCount(99, 3)))]
    assert not wire.poller.part(A, Reply(xid, ofp.OFPMP_FLOW, False, b""), wire.now)


def test_a_switch_that_does_not_answer_is_asked_again_late_and_one_that_refuses_soon() -> None:
    wire = Wire()
    wire.poller.poll(frozenset({A, B}))
    wire.run(1 / TIMES, answers=False)
    (_, _, of_b) = wire.asked[1]
    assert wire.poller.error(B, of_b)
    assert not wire.poller.error(B, of_b)
    wire.run(PATIENCE - 1, answers=False)
    assert [dpid for _, dpid, _ in wire.asked[2:]] == [B]
    wire.run(1 + 1 / TIMES, answers=False)
    assert [dpid for _, dpid, _ in wire.asked[3:]].count(A) == 1


def test_a_switch_that_has_left_is_not_polled() -> None:
    wire = Wire()
    wire.poller.poll(frozenset({A}))
    wire.poller.switch_left(A)
    wire.run(2)
    assert not wire.asked
    wire.poller.switch_connected(A)
    wire.run(1)
    assert wire.asked


def test_polls_missed_during_a_stall_are_skipped() -> None:
    wire = Wire()
    wire.poller.poll(frozenset({A}))
    wire.now = 10 * INTERVAL
    wire.run(1)
    assert len(wire.asked) in (TIMES, TIMES + 1)
