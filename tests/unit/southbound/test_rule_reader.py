from __future__ import annotations

import struct
from dataclasses import replace
from itertools import count

import pytest

from controller.fabric.topology import Dpid, Fabric, PortNo
from controller.southbound import multipart
from controller.southbound.framework import ofp
from controller.southbound.given_rules import GivenRules
from controller.southbound.multipart import Reply
from controller.southbound.openflow_encode import mod_message
from controller.southbound.openflow_framing import Malformed
from controller.southbound.rule_reader import RuleReader
from controller.tables.messages import SwitchRules
from controller.tables.rules import (
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    MeterRule,
    Output,
    RuleMod,
    RuleSet,
    Table,
    cookie,
)
from controller.tables.switch_sync import SwitchSync
from tests.support.openflow_entries import flow_entry, meter_entry

A = Dpid(1)
TIMEOUT = 10.0
FLOWS, COUNT, GROUPS, METERS = ofp.OFPMP_FLOW, ofp.OFPMP_AGGREGATE, ofp.OFPMP_GROUP_DESC, ofp.OFPMP_METER_CONFIG


class Wire:
    def __init__(self) -> None:
        self.xids: dict[int, int] = {}
        self.reported: list[SwitchRules] = []
        self._numbers = count(1)
        self.reader = RuleReader(TIMEOUT, self._send, self.reported.append, GivenRules())

    def _send(self, _: Dpid, /, *messages: bytes) -> list[int]:
        kinds = [struct.unpack_from("!H", message, 8)[0] for message in messages]
        self.xids |= dict(zip(kinds, self._numbers, strict=False))
        return [self.xids[kind] for kind in kinds]

    def answer(self, kind: int, body: bytes = b"", more: bool = False) -> None:
        assert self.reader.part(A, Reply(self.xids[kind], kind, more, body), 0.0)

    def answer_the_rest(self, flows: int = 0) -> None:
        self.answer(COUNT, counted(flows))
        self.answer(GROUPS)
        self.answer(METERS)


def rule(priority: int) -> FlowRule:
    return FlowRule(FlowKey(Table.DEFAULT, priority, Match()), cookie(Table.DEFAULT))


def flow(priority: int) -> bytes:
    return flow_entry(rule(priority))


def counted(number: int) -> bytes:
    return struct.pack("!QQI4x", 0, 0, number)


def test_rules_are_reported_with_the_last_part_of_the_last_reply() -> None:
    wire = Wire()
    wire.reader.read(A, 0.0)
    wire.answer(METERS)
    wire.answer(FLOWS, flow(1), more=True)
    wire.answer(COUNT, counted(5))
    wire.answer(GROUPS)
    wire.answer(FLOWS, flow(2))
    assert wire.reported == [], "the keys of three foreign flows are missing"
    theirs = [replace(rule(priority), cookie=0x77) for priority in (7, 8)]
    wire.answer(FLOWS, flow(1) + flow_entry(theirs[0]), more=True)
    wire.answer(FLOWS, flow_entry(theirs[1]) + flow(2))
    keys = frozenset(one.key for one in theirs)
    assert wire.reported == [SwitchRules(A, RuleSet.of([rule(1), rule(2)]), foreign=3, foreign_keys=keys)]


def test_a_part_that_arrives_twice_changes_nothing() -> None:
    wire = Wire()
    wire.reader.read(A, 0.0)
    for _ in range(2):
        wire.answer(FLOWS, flow(1), more=True)
    wire.answer(FLOWS)
    assert not wire.reader.part(A, Reply(wire.xids[FLOWS], FLOWS, False, flow(9)), 0.0)
    wire.answer_the_rest(flows=1)
    assert wire.reported == [SwitchRules(A, RuleSet.of([rule(1)]), foreign=0)]


@pytest.mark.parametrize("first", [True, False])
def test_a_switch_without_meters_has_none(first: bool) -> None:
    """The switch may refuse the request for meters before or after its other answers."""
    wire = Wire()
    wire.reader.read(A, 0.0)
    if first:
        assert wire.reader.error(A, wire.xids[METERS])
    wire.answer(FLOWS)
    wire.answer(COUNT, counted(0))
    wire.answer(GROUPS)
    if not first:
        assert wire.reader.error(A, wire.xids[METERS])
    assert wire.reported == [SwitchRules(A, RuleSet(), 0)]


@pytest.mark.parametrize("answered", [False, True])
def test_a_refused_flow_request_fails_the_read(answered: bool) -> None:
    wire = Wire()
    wire.reader.read(A, 0.0)
    assert wire.reader.error(A, wire.xids[FLOWS])
    if answered:
        wire.answer_the_rest()
    assert wire.reported == []
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
    wire.answer(METERS, meter_entry(MeterRule(3, 50, 60), flags))
    wire.answer(FLOWS)
    wire.answer(COUNT, counted(0))
    wire.answer(GROUPS)
    assert wire.reported[0].rules.meters == {3: MeterRule(3, 50, 60)}


def test_what_others_made_of_a_group_and_a_meter_is_counted_and_put_right() -> None:
    """The ids belong to rules of the controller, so the group and the meter have to be modified."""
    wire = Wire()
    wire.reader.read(A, 0.0)
    kbps = ofp.OFPMF_KBPS | ofp.OFPMF_BURST
    wire.answer(GROUPS, b"".join(struct.pack("!HBxI", 8, ofp.OFPGT_ALL, number) for number in (1, 2)))
    wire.answer(METERS, meter_entry(MeterRule(1, 50, 50), kbps) + meter_entry(MeterRule(2, 50, 50), kbps))
    wire.answer(FLOWS)
    wire.answer(COUNT, counted(0))
    (read,) = wire.reported
    wanted = RuleSet.of((), [GroupRule(1, "select", (Bucket(Output(PortNo(1))),))], [MeterRule(1, 50, 50)])
    sync = SwitchSync()
    sync.connected(A)
    sync.rules_read(read, Fabric(), 0.0)
    assert sync.foreign == {A: 4}
    stage = sync.next_stage({A: wanted})
    assert stage is not None
    assert sorted(mod.op for mod in stage.stage.mods[A]) == ["modify", "modify"]
    assert sync.foreign == {A: 2}
    for group in read.rules.groups.values():
        mod_message(RuleMod("delete", group))
    for meter in read.rules.meters.values():
        mod_message(RuleMod("delete", meter))


def test_a_reply_of_another_kind_than_the_request_is_malformed() -> None:
    wire = Wire()
    wire.reader.read(A, 0.0)
    with pytest.raises(Malformed, match="kind"):
        wire.reader.part(A, Reply(wire.xids[FLOWS], GROUPS, False, b""), 0.0)


def test_a_reply_without_end_is_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multipart, "MAX_BYTES", 1000)
    monkeypatch.setattr(multipart, "PART_BYTES", 1)
    wire = Wire()
    wire.reader.read(A, 0.0)
    for priority in range(1000 // len(flow(1))):
        wire.answer(FLOWS, flow(priority), more=True)
    with pytest.raises(Malformed, match="does not end"):
        wire.answer(FLOWS, flow(1), more=True)


def test_empty_parts_without_end_are_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part costs time and memory, though it has no content."""
    monkeypatch.setattr(multipart, "MAX_BYTES", 100 * multipart.PART_BYTES)
    wire = Wire()
    wire.reader.read(A, 0.0)
    for _ in range(100):
        wire.answer(FLOWS, b"", more=True)
    with pytest.raises(Malformed, match="does not end"):
        wire.answer(FLOWS, b"", more=True)
