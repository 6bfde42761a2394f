"""Polls of counters, and more frequent polls of the rules of jobs that are being learnt."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.fabric.topology import Dpid, PortNo
from controller.southbound.framework import ofp
from controller.southbound.given_rules import GivenRules
from controller.southbound.multipart import Reply
from controller.southbound.openflow_decode import UNSUPPORTED
from controller.southbound.pollers import METERS_EVERY, PATIENCE, TIMES, CounterPoller, LearningPoller
from controller.tables.messages import Counters, LearningCounters, PortCount, RuleCount
from controller.tables.rules import FlowKey, FlowRule, Match, Table, cookie, learning_cookie
from tests.support.asked_switches import AskedSwitches
from tests.support.openflow_entries import flow_entry, meter_count, port_entry

A, B = Dpid(1), Dpid(2)
INTERVAL = 2.0
PORTS, FLOWS, METERS = ofp.OFPMP_PORT_STATS, ofp.OFPMP_FLOW, ofp.OFPMP_METER


class Wire(AskedSwitches):
    def __init__(self, switches: int = 1) -> None:
        super().__init__()
        self.counters: list[Counters] = []
        self.asks = self.poller = CounterPoller(INTERVAL, self.send, self.counters.append, GivenRules())
        for dpid in range(1, switches + 1):
            self.poller.switch_connected(Dpid(dpid), 0.0)


@pytest.fixture
def wire() -> Wire:
    wire = Wire()
    wire.run(INTERVAL)
    return wire


def key(priority: int) -> FlowKey:
    return FlowKey(Table.PINNED, priority, Match())


def flow(priority: int, byte_count: int, owner: int = cookie(Table.PINNED, 4)) -> bytes:
    return flow_entry(FlowRule(key(priority), owner), byte_count)


PORT_1, PORT_2 = port_entry(1, 10, 20), port_entry(2, 30, 40)


def test_ports_and_pinned_flows_are_read_together_and_reported_when_all_replies_are_complete(wire: Wire) -> None:
    assert wire.kinds() == [PORTS, FLOWS, METERS]
    wire.answer(PORTS, PORT_1, more=True)
    wire.answer(FLOWS, flow(7, 99) + flow(8, 1, owner=0))
    wire.answer(METERS, meter_count(1, 5))
    assert wire.counters == []
    wire.now = 3.2
    wire.answer(PORTS, PORT_2)
    ports = {PortNo(1): PortCount(10, 20), PortNo(2): PortCount(30, 40)}
    assert wire.counters == [Counters(A, 3.2, ports, {key(7): RuleCount(99, 3)}, {PortNo(1): 5}, due=2.0)]


def test_a_switch_is_polled_once_per_interval_and_its_meters_every_few_polls(wire: Wire) -> None:
    for _ in range(METERS_EVERY):
        wire.answer_all({})
        wire.run(INTERVAL)
    assert [wire.kinds().count(kind) for kind in (PORTS, FLOWS, METERS)] == [METERS_EVERY + 1, METERS_EVERY + 1, 2]
    wire.answer_all({})
    wire.now = 100.0
    wire.poller.tick(wire.now)
    wire.answer_all({})
    wire.poller.tick(wire.now)
    assert wire.kinds().count(PORTS) == METERS_EVERY + 2, "polls missed during a stall are skipped"


def test_a_switch_with_an_unanswered_poll_is_polled_again_when_that_is_given_up(wire: Wire) -> None:
    wire.run((PATIENCE - 1) * INTERVAL)
    assert wire.kinds() == [PORTS, FLOWS, METERS]
    wire.run(9 * PATIENCE * INTERVAL)
    assert wire.kinds().count(PORTS) >= 8
    assert wire.counters == []
    before = len(wire.asked)
    wire.answer_all({})
    wire.run(INTERVAL)
    assert len(wire.asked) > before


def test_a_poll_with_missing_replies_reports_the_others_and_later_replies_are_ignored(wire: Wire) -> None:
    wire.answer(PORTS, PORT_1)
    wire.answer(FLOWS, flow(7, 99), more=True)
    late = wire.open[A, FLOWS]
    wire.run((PATIENCE + 0.5) * INTERVAL)
    (reported,) = wire.counters
    assert reported.ports == {PortNo(1): PortCount(10, 20)}
    assert reported.flows is None, "an incomplete reply is not reported"
    assert reported.at == pytest.approx(INTERVAL, abs=0.06), "when the ports were read, not when the poll was given up"
    assert not wire.poller.part(A, Reply(late, FLOWS, False, flow(8, 1)), wire.now)
    wire.answer_all({PORTS: PORT_2})
    assert wire.counters[-1].ports == {PortNo(2): PortCount(30, 40)}


@pytest.mark.parametrize(("refused", "answered", "body"), [(PORTS, FLOWS, flow(7, 99)), (FLOWS, PORTS, PORT_1)])
@pytest.mark.parametrize("last", [False, True])
def test_a_refused_request_leaves_the_replies_to_the_others(
    wire: Wire, refused: int, answered: int, body: bytes, last: bool
) -> None:
    """A refusal that comes last completes the poll."""
    wire.answer(METERS)
    steps: list[Callable[[], bool]] = [lambda: wire.refuse(refused), lambda: wire.answer(answered, body)]
    for step in reversed(steps) if last else steps:
        assert wire.counters == []
        assert step()
    assert not wire.refuse(refused)
    (reported,) = wire.counters
    assert (reported.ports is None, reported.flows is None) == (refused == PORTS, refused == FLOWS)


def test_a_switch_without_meters_is_not_asked_for_them_again_until_it_is_back(wire: Wire) -> None:
    assert wire.refuse(METERS)
    for _ in range(2 * METERS_EVERY):
        wire.answer_all({})
        wire.run(INTERVAL)
    assert wire.kinds().count(METERS) == 1
    wire.poller.switch_left(A)
    assert not wire.answer(PORTS, PORT_1)
    before = len(wire.asked)
    wire.run(3 * INTERVAL)
    assert len(wire.asked) == before
    wire.poller.switch_connected(A, wire.now)
    wire.run(INTERVAL)
    assert wire.kinds().count(METERS) == 2


def test_counters_that_a_switch_does_not_have_are_not_reported(wire: Wire) -> None:
    flows = flow(7, UNSUPPORTED) + flow(8, 6)
    meters = meter_count(1, UNSUPPORTED) + meter_count(2)
    wire.answer_all({PORTS: port_entry(1, UNSUPPORTED, 5), FLOWS: flows, METERS: meters})
    ports = {PortNo(1): PortCount(None, 5)}
    assert wire.counters == [Counters(A, wire.now, ports, {key(8): RuleCount(6, 3)}, {}, due=2.0)]


def test_switches_are_polled_at_one_moment_whenever_they_connected() -> None:
    wire = Wire(switches=40)
    wire.now = 0.7
    wire.poller.switch_connected(Dpid(41), wire.now)
    wire.run(INTERVAL)
    moments = [now for now, _, kind in wire.asked if kind == PORTS]
    assert len(moments) == 41
    assert len(set(moments)) == 1


def test_a_poll_halfway_comes_once_unless_one_is_open_and_the_regular_ones_stay_where_they_are() -> None:
    wire = Wire()
    wire.run(1.1 * INTERVAL)
    wire.answer_all({})
    wire.poller.poll_halfway()
    wire.run(0.5 * INTERVAL)
    wire.answer_all({})
    wire.run(1.6 * INTERVAL)
    wire.poller.poll_halfway()
    wire.run(0.6 * INTERVAL)
    assert [round(at, 1) for at, _, kind in wire.asked if kind == PORTS] == [2.0, 3.0, 4.0]
    wire.answer_all({})
    assert [counters.due for counters in wire.counters] == [2.0, 3.0, 4.0], "whenever the tick comes"


# ---- jobs that are being learnt


class LearningWire(AskedSwitches):
    STEP_S = 0.125

    def __init__(self, *learning: Dpid) -> None:
        super().__init__()
        self.counters: list[LearningCounters] = []
        self.asks = self.poller = LearningPoller(INTERVAL, self.send, self.counters.append, GivenRules())
        for dpid in (A, B):
            self.poller.switch_connected(dpid)
        self.poller.poll(frozenset(learning))

    def polled(self, intervals: float) -> list[tuple[float, Dpid]]:
        """Answer all polls during this number of intervals, and return time and switch of each poll."""
        before = len(self.asked)
        for _ in range(round(intervals * INTERVAL / self.STEP_S)):
            already = len(self.asked)
            self.run(self.STEP_S)
            for _, dpid, kind in self.asked[already:]:
                assert self.answer(kind, dpid=dpid)
        return [(at, dpid) for at, dpid, _ in self.asked[before:]]


def test_only_the_connected_switches_of_jobs_that_are_learnt_are_polled_together_several_times_per_interval() -> None:
    wire = LearningWire()
    assert wire.polled(2) == []
    wire.poller.poll(frozenset({B, Dpid(3)}))
    found = wire.polled(2)
    assert {dpid for _, dpid in found} == {B}
    assert len(found) in (2 * TIMES, 2 * TIMES + 1)
    wire.poller.poll(frozenset({A, B}))
    both = wire.polled(1)
    assert {at for at, dpid in both if dpid == A} == {at for at, dpid in both if dpid == B}
    wire.poller.switch_left(A)
    assert {dpid for _, dpid in wire.polled(2)} == {B}
    wire.poller.switch_connected(A)
    assert {dpid for _, dpid in wire.polled(1)} == {A, B}
    wire.now += 10 * INTERVAL
    assert len(wire.polled(1)) in (2 * TIMES, 2 * TIMES + 2), "polls missed during a stall are skipped"
    wire.poller.poll(frozenset())
    assert wire.polled(2) == []


def test_learning_counters_are_reported_when_all_parts_are_there() -> None:
    wire = LearningWire(A)
    wire.run(INTERVAL / TIMES)
    keys = [key(50), key(51)]
    for each in keys:
        assert wire.answer(FLOWS, flow_entry(FlowRule(each, learning_cookie(7)), 99), more=each == keys[0])
    assert wire.counters == [LearningCounters(A, wire.now, dict.fromkeys(keys, RuleCount(99, 3)))]
    assert not wire.answer(FLOWS)


def test_a_switch_that_does_not_answer_is_asked_again_late_and_one_that_refuses_soon() -> None:
    wire = LearningWire(A, B)
    wire.run(INTERVAL / TIMES)
    assert wire.refuse(FLOWS, B)
    assert not wire.refuse(FLOWS, B)
    wire.run((PATIENCE - 1) * INTERVAL)
    assert [dpid for _, dpid, _ in wire.asked[2:]] == [B]
    wire.run((1 + 1 / TIMES) * INTERVAL)
    assert [dpid for _, dpid, _ in wire.asked[3:]].count(A) == 1
