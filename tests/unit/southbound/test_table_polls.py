from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from controller.fabric.topology import Dpid
from controller.southbound.framework import ofp
from controller.southbound.multipart import Reply
from controller.southbound.pollers import LIMITS_APART_S, LIMITS_EVERY_S, TABLES_PATIENCE_S, TablePoller
from controller.tables.messages import TablesRead
from controller.tables.rules import AnyTable, OtherTable, Table
from tests.support.asked_switches import AskedSwitches
from tests.support.openflow_entries import group_room, meter_room, table_entry, table_limit

A = Dpid(1)
EVERY_S = 4.0
ENTRIES, LIMITS = ofp.OFPMP_TABLE, ofp.OFPMP_TABLE_FEATURES
GROUPS, METERS = ofp.OFPMP_GROUP_FEATURES, ofp.OFPMP_METER_FEATURES
ALL = (ENTRIES, LIMITS, GROUPS, METERS)


class Wire(AskedSwitches):
    STEP_S = 0.1

    def __init__(self, switches: int = 1) -> None:
        super().__init__()
        self.read: list[TablesRead] = []
        self.asks = self.poller = TablePoller(EVERY_S / 2, self.send, self.read.append)
        for dpid in range(1, switches + 1):
            self.poller.switch_connected(Dpid(dpid), 0.0)


def test_entries_and_limits_are_reported_together_when_both_are_complete() -> None:
    wire = Wire()
    wire.run(EVERY_S)
    assert wire.kinds() == [*ALL]
    assert wire.answer(LIMITS, table_limit(0, 50) + table_limit(1, 200), more=True)
    assert wire.answer(ENTRIES, table_entry(0, 7) + table_entry(1, 190) + table_entry(9, 1))
    assert wire.answer(METERS, meter_room(48))
    assert wire.answer(GROUPS, group_room(1024, 512))
    assert not wire.read
    assert wire.answer(LIMITS, table_limit(2, 1000))
    limits: dict[AnyTable, int] = {Table.CONTROL: 50, Table.PINNED: 200, Table.DEFAULT: 1000, OtherTable.METERS: 48}
    limits |= {OtherTable.SELECT_GROUPS: 1024, OtherTable.FAST_FAILOVER_GROUPS: 512}
    assert wire.read == [TablesRead(A, {Table.CONTROL: 7, Table.PINNED: 190}, limits)]


def test_limits_are_read_again_after_a_minute_and_entries_with_every_poll() -> None:
    wire = Wire()
    for _ in range(int(2 * LIMITS_EVERY_S / EVERY_S)):
        wire.run(EVERY_S)
        wire.answer_all({GROUPS: group_room(9, 9), METERS: meter_room(9)})
    assert (wire.kinds().count(ENTRIES), wire.kinds().count(LIMITS)) == (30, 2)
    assert [read.limits is None for read in wire.read].count(False) == 2


def test_limits_are_read_of_one_switch_after_the_other() -> None:
    wire = Wire(switches=10)
    wire.run(LIMITS_EVERY_S)
    asked = [(at, dpid) for at, dpid, kind in wire.asked if kind == LIMITS]
    assert sorted(dpid for _, dpid in asked) == list(range(1, 11)), "each once"
    times = [at for at, _ in asked]
    assert min(b - a for a, b in pairwise(times)) >= LIMITS_APART_S - 1e-9


@pytest.mark.parametrize("refused", [{ENTRIES}, {LIMITS}, {GROUPS}, {METERS}, {LIMITS, GROUPS, METERS}, {*ALL}])
def test_what_a_switch_refuses_is_not_asked_for_again_until_it_is_back(refused: set[int]) -> None:
    wire = Wire()
    wire.run(EVERY_S)
    bodies = [table_entry(1, 5), table_limit(1, 9), group_room(10, 11), meter_room(12)]
    for kind, body in zip(ALL, bodies, strict=True):
        assert wire.refuse(kind) if kind in refused else wire.answer(kind, body)
    entries = None if ENTRIES in refused else {1: 5}
    told: dict[int, dict[Any, int]] = {
        LIMITS: {1: 9},
        GROUPS: {"select_groups": 10, "fast_failover_groups": 11},
        METERS: {"meters": 12},
    }
    limits = {table: room for kind in told.keys() - refused for table, room in told[kind].items()} or None
    assert [(read.entries, read.limits) for read in wire.read] == [(entries, limits)] * (refused != {*ALL})
    wire.poller.table_full(A, wire.now)
    wire.run(2 * LIMITS_EVERY_S)
    assert {wire.kinds().count(kind) for kind in refused} == {1}
    wire.poller.switch_left(A)
    wire.poller.switch_connected(A, wire.now)
    wire.run(EVERY_S)
    assert {wire.kinds().count(kind) for kind in refused} == {2}


def test_a_switch_that_does_not_answer_is_asked_again_when_the_poll_is_given_up() -> None:
    wire = Wire()
    wire.run(TABLES_PATIENCE_S)
    assert wire.kinds() == [*ALL]
    wire.run(2 * EVERY_S)
    assert wire.kinds() == [*ALL, ENTRIES]
    assert wire.answer(ENTRIES, table_entry(1, 3))
    assert wire.read == [TablesRead(A, {Table.PINNED: 3}, None)]


def asked_for_limits(wire: Wire, seconds: float, entries: int, limit: int) -> list[float]:
    """Return the times of requests for limits, with ``entries`` rows in a table of this limit."""
    bodies = {ENTRIES: table_entry(1, entries), LIMITS: table_limit(1, limit)}
    bodies |= {GROUPS: group_room(9, 9), METERS: meter_room(9)}
    already = len(wire.asked)
    until = wire.now + seconds
    while wire.now < until:
        wire.run(0.1)
        for (dpid, kind), xid in wire.open.items():
            wire.poller.part(dpid, Reply(xid, kind, False, bodies[kind]), wire.now)
        wire.open.clear()
    return [round(at, 1) for at, dpid, kind in wire.asked[already:] if kind == LIMITS and dpid == A]


def test_polls_missed_during_a_stall_are_skipped() -> None:
    wire = Wire()
    asked_for_limits(wire, EVERY_S, entries=1, limit=10)
    wire.now += 10 * EVERY_S
    before = len(wire.asked)
    asked_for_limits(wire, 3 * EVERY_S, entries=1, limit=10)
    assert wire.kinds()[before:].count(ENTRIES) == 4, "the one that is late, and one in each interval"


def test_limits_are_read_sooner_while_a_table_has_little_room() -> None:
    wire = Wire()
    times = asked_for_limits(wire, 60, entries=5, limit=10)
    assert {b - a for a, b in pairwise(times)} == {2 * EVERY_S}
    asked_for_limits(wire, 2 * EVERY_S, entries=5, limit=11)
    assert asked_for_limits(wire, LIMITS_EVERY_S - 4 * EVERY_S, entries=5, limit=11) == []


def test_switches_with_little_room_do_not_keep_others_from_their_turn() -> None:
    wire = Wire(switches=40)
    asked_for_limits(wire, 3 * LIMITS_EVERY_S, entries=9, limit=10)
    limits = Counter(dpid for _, dpid, kind in wire.asked if kind == LIMITS)
    assert min(limits[Dpid(dpid)] for dpid in range(1, 41)) >= 3


def test_a_rule_that_a_full_table_refuses_has_the_limits_read_with_the_next_poll() -> None:
    wire = Wire()
    asked_for_limits(wire, EVERY_S, entries=1, limit=10)
    assert asked_for_limits(wire, EVERY_S, entries=1, limit=10) == []
    wire.poller.table_full(A, wire.now)
    assert len(asked_for_limits(wire, 2 * EVERY_S, entries=1, limit=10)) == 1
    wire.poller.table_full(Dpid(99), wire.now)


def test_replies_to_others_and_of_switches_that_left_belong_to_no_poll() -> None:
    wire = Wire()
    wire.run(EVERY_S)
    assert not wire.poller.part(A, Reply(999, ENTRIES, False, b""), wire.now)
    assert not wire.poller.error(A, 999)
    wire.poller.switch_left(A)
    assert not wire.answer(ENTRIES)
    wire.run(2 * EVERY_S)
    assert wire.kinds() == [*ALL], "it is not asked any more"
