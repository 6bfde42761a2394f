from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from msgspec import structs

from controller.fabric.topology import Dpid, Fabric, PortNo
from controller.southbound import multipart
from controller.southbound.framework import ofp
from controller.southbound.given_rules import MORE_BYTES, GivenRules, RuleReader
from controller.southbound.multipart import Reply
from controller.southbound.openflow_encode import mod_message
from controller.southbound.openflow_framing import Malformed
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
from tests.support.asked_switches import AskedSwitches
from tests.support.openflow_entries import flow_entry, meter_entry

A = Dpid(1)
TIMEOUT = 10.0
FLOWS, COUNT, GROUPS, METERS = ofp.OFPMP_FLOW, ofp.OFPMP_AGGREGATE, ofp.OFPMP_GROUP_DESC, ofp.OFPMP_METER_CONFIG


class Wire(AskedSwitches):
    def __init__(self) -> None:
        super().__init__()
        self.reported: list[SwitchRules] = []
        self.given = GivenRules(ports=lambda _: 0)
        self.asks = self.reader = RuleReader(TIMEOUT, self.send, self.reported.append, self.given)
        self.reader.read(A, 0.0)

    def answer_the_rest(self, flows: int = 0) -> None:
        self.answer_all({COUNT: counted(flows)})


@pytest.fixture
def wire() -> Wire:
    return Wire()


def rule(priority: int) -> FlowRule:
    return FlowRule(FlowKey(Table.DEFAULT, priority, Match()), cookie(Table.DEFAULT))


def flow(priority: int) -> bytes:
    return flow_entry(rule(priority))


def counted(number: int) -> bytes:
    return struct.pack("!QQI4x", 0, 0, number)


def test_rules_are_reported_with_the_last_part_of_the_last_reply(wire: Wire) -> None:
    wire.answer(METERS)
    wire.answer(FLOWS, flow(1), more=True)
    wire.answer(COUNT, counted(5))
    wire.answer(GROUPS)
    wire.answer(FLOWS, flow(2))
    assert wire.reported == [], "the keys of three foreign flows are missing"
    theirs = [structs.replace(rule(priority), cookie=0x77) for priority in (7, 8)]
    wire.answer(FLOWS, flow(1) + flow_entry(theirs[0]), more=True)
    wire.answer(FLOWS, flow_entry(theirs[1]) + flow(2))
    (read,) = wire.reported
    assert replace(read, foreign_keys=frozenset()) == SwitchRules(A, RuleSet.of([rule(1), rule(2)]), foreign=3)
    assert [p for p in range(10) if rule(p).key in read.foreign_keys] == [7, 8]


def test_a_part_that_arrives_twice_changes_nothing(wire: Wire) -> None:
    for _ in range(2):
        wire.answer(FLOWS, flow(1), more=True)
    wire.answer(FLOWS)
    assert not wire.answer(FLOWS, flow(9))
    wire.answer_the_rest(flows=1)
    assert wire.reported == [SwitchRules(A, RuleSet.of([rule(1)]), foreign=0)]


@pytest.mark.parametrize("before", [(), (FLOWS, GROUPS)])
def test_a_switch_without_meters_has_none(wire: Wire, before: tuple[int, ...]) -> None:
    """The switch may refuse the request for meters before or after its other answers."""
    wire.answer(COUNT, counted(0))
    for kind in before:
        wire.answer(kind)
    assert wire.refuse(METERS)
    wire.answer_the_rest()
    assert wire.reported == [SwitchRules(A, RuleSet(), 0)]


@pytest.mark.parametrize("answered", [[], [COUNT, GROUPS, METERS]])
def test_a_refused_flow_request_fails_the_read(wire: Wire, answered: list[int]) -> None:
    assert wire.refuse(FLOWS)
    for kind in answered:
        wire.answer(kind, counted(0) if kind == COUNT else b"")
    assert wire.reported == []
    assert wire.reader.failed(0.0) == [A]
    assert wire.reader.failed(0.0) == []


def test_an_overdue_read_fails_and_one_of_a_switch_that_left_does_not(wire: Wire) -> None:
    assert wire.reader.failed(TIMEOUT - 0.1) == []
    wire.reader.switch_left(A)
    assert wire.reader.failed(TIMEOUT) == []


def test_meters_come_back(wire: Wire) -> None:
    flags = ofp.OFPMF_PKTPS | ofp.OFPMF_BURST | ofp.OFPMF_STATS
    wire.answer(METERS, meter_entry(MeterRule(3, 50, 60), flags))
    wire.answer_the_rest()
    assert wire.reported[0].rules.meters == {3: MeterRule(3, 50, 60)}


def test_what_others_made_of_a_group_and_a_meter_is_counted_and_put_right(wire: Wire) -> None:
    """The ids belong to rules of the controller, so the group and the meter have to be modified."""
    kbps = ofp.OFPMF_KBPS | ofp.OFPMF_BURST
    wire.answer(GROUPS, b"".join(struct.pack("!HBxI", 8, ofp.OFPGT_ALL, number) for number in (1, 2)))
    wire.answer(METERS, meter_entry(MeterRule(1, 50, 50), kbps) + meter_entry(MeterRule(2, 50, 50), kbps))
    wire.answer_the_rest()
    (read,) = wire.reported
    wanted = RuleSet.of((), [GroupRule(1, "select", (Bucket(Output(PortNo(1))),))], [MeterRule(1, 50, 50)])
    sync = SwitchSync()
    sync.switch_connected(A)
    sync.rules_read(read, Fabric(), 0.0)
    assert sync.foreign == {A: 4}
    stage = sync.next_stage({A: wanted})
    assert stage is not None
    assert sorted(mod.op for mod in stage.stage.mods[A]) == ["modify", "modify"]
    assert sync.foreign == {A: 2}
    theirs: list[GroupRule | MeterRule] = [*read.rules.groups.values(), *read.rules.meters.values()]
    assert all(mod_message(RuleMod("delete", one)) for one in theirs)


@pytest.mark.parametrize("kind", [GROUPS, METERS])
def test_groups_and_meters_beyond_the_known_ones_are_not_read(wire: Wire, kind: int) -> None:
    first, second = b"".join(entry(kind, number) for number in range(8000)), entry(kind, 8000)
    parts = -(-MORE_BYTES // len(first))
    for _ in range(parts):
        wire.answer(kind, first, more=True)
    assert wire.given.take_invented(A)
    wire.answer(kind, second)
    wire.answer_the_rest()
    (read,) = wire.reported
    assert len(read.rules) == 8000
    assert read.is_partial


def entry(kind: int, number: int) -> bytes:
    return struct.pack("!HBxI", 8, ofp.OFPGT_ALL, number) if kind == GROUPS else struct.pack("!HHI", 8, 1, number)


def test_a_reply_of_another_kind_than_the_request_is_malformed(wire: Wire) -> None:
    with pytest.raises(Malformed, match="kind"):
        wire.reader.part(A, Reply(wire.open[A, FLOWS], GROUPS, False, b""), 0.0)


@pytest.mark.parametrize(("part", "counts_as"), [(flow(1), len(flow(1))), (b"", multipart.PART_BYTES)])
def test_a_reply_without_end_is_malformed(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, part: bytes, counts_as: int
) -> None:
    """An empty part costs time and memory, too."""
    monkeypatch.setattr(multipart, "MAX_BYTES", 100 * counts_as)
    monkeypatch.setattr(multipart, "PART_BYTES", min(counts_as, multipart.PART_BYTES))
    for _ in range(100):
        wire.answer(FLOWS, part, more=True)
    with pytest.raises(Malformed, match="does not end"):
        wire.answer(FLOWS, part, more=True)
