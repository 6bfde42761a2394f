from __future__ import annotations

from collections.abc import Mapping

from controller.alarms import Alarm, text
from controller.fabric.topology import Dpid
from controller.tables.messages import TablesRead
from controller.tables.rules import (
    AnyTable,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    MeterRule,
    OtherTable,
    RuleMod,
    RuleSet,
    Table,
    cookie,
)
from controller.tables.switch_sync import FullTable, Refusal, TableUse, TableUses
from signalbox.words import AlarmKind

A, B = Dpid(1), Dpid(2)
FULL = "OFPET_FLOW_MOD_FAILED(5): OFPFMFC_TABLE_FULL(1)"


def told(
    uses: TableUses, entries: Mapping[int, int] | None, limits: Mapping[int, int] | None = None, dpid: Dpid = A
) -> None:
    parts: list[dict[AnyTable, int] | None]
    parts = [None if part is None else {Table(t): n for t, n in part.items()} for part in (entries, limits)]
    uses.record(TablesRead(dpid, *parts), ())


def holding(select: int, fast_failover: int = 0, meters: int = 0) -> RuleSet:
    groups = [GroupRule(number, "select", ()) for number in range(select)]
    groups += [GroupRule(1000 + number, "fast_failover", ()) for number in range(fast_failover)]
    return RuleSet.of([], groups, [MeterRule(number, 9, 9) for number in range(meters)])


def found(uses: TableUses) -> list[tuple[int, int]]:
    return [(full.dpid, int(full.use.table)) for full in uses.nearly_full(())]


def refusal(reason: str, number: int = 1, table: Table = Table.PINNED) -> list[tuple[Dpid, Refusal]]:
    rules = (FlowRule(FlowKey(table, priority, Match()), cookie(table)) for priority in range(1, number + 1))
    return [(A, Refusal(RuleMod("add", rule), reason)) for rule in rules]


def test_a_table_is_nearly_full_from_a_fraction_of_its_limit_on_until_it_is_below() -> None:
    uses = TableUses(0.9)
    told(uses, {0: 7, 1: 179, 2: 40}, {0: 1_000_000, 1: 200, 2: 1_000_000})
    assert not found(uses)
    told(uses, {0: 7, 1: 180, 2: 40})
    assert found(uses) == [(A, 1)]
    told(uses, None, {1: 400})
    assert not found(uses), "its limit was raised"
    uses.take_alarm_fraction(180 / 400)
    assert found(uses) == [(A, 1)]
    uses.take_alarm_fraction(0.46)
    assert not found(uses)


def test_what_a_switch_does_not_say_is_unknown_and_raises_nothing() -> None:
    uses = TableUses(0.9)
    told(uses, {1: 190}, {1: 0})
    told(uses, None, {1: 5}, dpid=B)
    assert uses.of[A] == (TableUse(Table.PINNED, 190, None),), "no switch has room for nothing"
    assert uses.of[B] == (TableUse(Table.PINNED, None, 5),)
    assert not found(uses)


def test_a_switch_that_leaves_is_forgotten() -> None:
    uses = TableUses(0.9)
    told(uses, {1: 190}, {1: 200})
    before = uses.of
    told(uses, {1: 190})
    assert uses.of is before, "the same again"
    uses.switch_left(A)
    assert (found(uses), A in uses.of) == ([], False)
    told(uses, {1: 190})
    assert uses.of[A] == (TableUse(Table.PINNED, 190, None),), "another limit may be set meanwhile"


def test_a_table_that_refuses_rules_for_lack_of_room_is_full_whatever_the_switch_says() -> None:
    uses = TableUses(0.9)
    told(uses, {1: 5}, {1: 200})
    refused = [*refusal(FULL, 2), *refusal(FULL, 1, Table.DEFAULT), *refusal("OFPET_BAD_MATCH(4): OFPBMC_BAD_FIELD(6)")]
    assert list(uses.nearly_full(refused)) == [
        FullTable(A, TableUse(Table.PINNED, 5, 200), 2),
        FullTable(A, TableUse(Table.DEFAULT, None, None), 1),
    ]


def test_a_switch_that_has_no_room_for_a_group_or_meter_names_its_kind() -> None:
    refused = [
        (A, Refusal(RuleMod("add", GroupRule(1, "select", ())), "OFPET_GROUP_MOD_FAILED(6): OFPGMFC_OUT_OF_GROUPS(3)")),
        (A, Refusal(RuleMod("add", MeterRule(1, 9, 9)), "OFPET_METER_MOD_FAILED(12): OFPMMFC_OUT_OF_METERS(10)")),
        (B, Refusal(RuleMod("add", GroupRule(1, "select", ())), "OFPET_GROUP_MOD_FAILED(6): OFPGMFC_BAD_WATCH(5)")),
    ]
    assert list(TableUses(0.9).nearly_full(refused)) == [
        FullTable(A, TableUse(OtherTable.SELECT_GROUPS, None, None), 1),
        FullTable(A, TableUse(OtherTable.METERS, None, None), 1),
    ]


def test_groups_of_each_kind_and_meters_are_those_that_the_switch_holds_its_own_and_those_of_others() -> None:
    uses = TableUses(0.9)
    limits: dict[AnyTable, int] = {
        OtherTable.SELECT_GROUPS: 10,
        OtherTable.FAST_FAILOVER_GROUPS: 100,
        OtherTable.METERS: 4,
    }
    uses.record(TablesRead(A, None, limits), (holding(5, 9, 3), holding(4)))
    assert uses.of[A] == (
        TableUse(OtherTable.SELECT_GROUPS, 9, 10),
        TableUse(OtherTable.FAST_FAILOVER_GROUPS, 9, 100),
        TableUse(OtherTable.METERS, 3, 4),
    )
    assert [full.use.name for full in uses.nearly_full(())] == ["select_groups"]
    uses.record(TablesRead(A, {Table.PINNED: 3}, None), (holding(5, 9, 3),))
    assert not found(uses)
    uses.record(TablesRead(A, {Table.PINNED: 3}, None), ())
    assert uses.of[A][1] == TableUse(OtherTable.SELECT_GROUPS, None, 10), "its rules are not known"


def test_the_alarm_names_switch_and_table_with_what_is_known() -> None:
    def said(entries: int | None, limit: int | None, refused: int, table: AnyTable = Table.PINNED) -> str:
        facts = {"switch": "leaf1", "use": TableUse(table, entries, limit), "refused": refused}
        return text(Alarm(AlarmKind.TABLE_NEARLY_FULL, "leaf1:table1", facts))

    assert said(190, 200, 0) == "table 1 of leaf1 is nearly full: 190 of 200 entries"
    assert said(200, 200, 1) == "table 1 of leaf1 is full: 200 of 200 entries, 1 rule refused"
    nearly = said(47, 50, 0, OtherTable.SELECT_GROUPS)
    assert nearly == "the table of select groups of leaf1 is nearly full: 47 of 50 entries"
    assert said(None, None, 3) == "table 1 of leaf1 is full: 3 rules refused"


def test_it_is_said_when_a_table_that_was_full_has_room() -> None:
    uses = TableUses(0.9)
    reads = [(200, 200), (200, 200), (199, 200), (200, 200), (200, 300), (250, 300)]
    said = [uses.record(TablesRead(A, {Table.PINNED: entries}, {Table.PINNED: limit}), ()) for entries, limit in reads]
    assert said == [False, False, True, False, True, False]
