from __future__ import annotations

from itertools import count
from typing import Any

from controller.fabric.topology import Dpid
from controller.messages import SwitchRules
from controller.southbound.framework import ofp, ofp_parser
from controller.southbound.rule_reader import RuleReader
from controller.tables.rules import FlowKey, FlowRule, Match, MeterRule, RuleSet, Table, cookie

A = Dpid(1)
TIMEOUT = 10.0


class Wire:
    def __init__(self) -> None:
        self.xids: dict[str, int] = {}
        self.told: list[SwitchRules] = []
        self._numbers = count(1)
        self.reader = RuleReader(TIMEOUT, self._send, self.told.append)

    def _send(self, _: Dpid, message: Any) -> int:
        xid = self.xids[type(message).__name__.removeprefix("OFP").removesuffix("StatsRequest")] = next(self._numbers)
        return xid

    def answer(self, name: str, body: Any = None, more: bool = False) -> None:
        assert self.reader.part(A, self.xids[name], [] if body is None else body, more)


def flow(priority: int, owner: int = cookie(Table.DEFAULT)) -> Any:
    return ofp_parser.OFPFlowStats(2, 0, 0, priority, 0, 0, 0, owner, 0, 0, ofp_parser.OFPMatch(), instructions=[])


def rule(priority: int) -> FlowRule:
    return FlowRule(FlowKey(Table.DEFAULT, priority, Match()), cookie(Table.DEFAULT))


def flows_counted(number: int) -> Any:
    return ofp_parser.OFPAggregateStats(0, 0, number)


def test_rules_are_told_when_the_last_part_of_the_last_reply_is_in() -> None:
    wire = Wire()
    wire.reader.read(A, 0.0)
    wire.answer("MeterConfig")
    wire.answer("Flow", [flow(1)], more=True)
    wire.answer("Aggregate", flows_counted(5))
    wire.answer("GroupDesc")
    assert wire.told == []
    wire.answer("Flow", [flow(2)])
    assert wire.told == [SwitchRules(A, RuleSet.of([rule(1), rule(2)]), foreign=3)]


def test_a_part_that_comes_twice_changes_nothing() -> None:
    wire = Wire()
    wire.reader.read(A, 0.0)
    for _ in range(2):
        wire.answer("Flow", [flow(1)], more=True)
    wire.answer("Flow")
    assert not wire.reader.part(A, wire.xids["Flow"], [flow(9)], more=False)
    for name, body in {"Aggregate": flows_counted(1), "GroupDesc": [], "MeterConfig": []}.items():
        wire.answer(name, body)
    assert wire.told == [SwitchRules(A, RuleSet.of([rule(1)]), foreign=0)]


def test_a_switch_without_meters_has_none() -> None:
    wire = Wire()
    wire.reader.read(A, 0.0)
    assert wire.reader.error(A, wire.xids["MeterConfig"])
    for name, body in {"Flow": [], "Aggregate": flows_counted(0), "GroupDesc": []}.items():
        wire.answer(name, body)
    assert wire.told == [SwitchRules(A, RuleSet(), 0)]


def test_a_refused_flow_request_fails_the_read() -> None:
    wire = Wire()
    wire.reader.read(A, 0.0)
    assert wire.reader.error(A, wire.xids["Flow"])
    assert wire.reader.failed(0.0) == [A]
    assert wire.reader.failed(0.0) == []


def test_an_overdue_read_fails_and_one_of_a_switch_that_left_does_not() -> None:
    wire = Wire()
    wire.reader.read(A, 0.0)
    assert wire.reader.failed(TIMEOUT - 0.1) == []
    wire.reader.switch_left(A)
    assert wire.reader.failed(TIMEOUT) == []


def test_meters_come_back() -> None:
    wire = Wire()
    wire.reader.read(A, 0.0)
    flags = ofp.OFPMF_PKTPS | ofp.OFPMF_BURST | ofp.OFPMF_STATS
    wire.answer("MeterConfig", [ofp_parser.OFPMeterConfigStats(flags, 3, [ofp_parser.OFPMeterBandDrop(50, 60)])])
    for name, body in {"Flow": [], "Aggregate": flows_counted(0), "GroupDesc": []}.items():
        wire.answer(name, body)
    assert wire.told[0].rules.meters == {3: MeterRule(3, 50, 60)}
