"""How full the tables of the switches are, flow, group and meter tables.

In: what switches say of their tables, groups and meters that they hold, rules that they refused because a table was
full. Out: per switch and table the
entries and the limit, as far as they are known; the tables that are full or nearly so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from controller.fabric.topology import Dpid
from controller.memo import Memo
from controller.shared_map import SharedMap, updated
from controller.tables.messages import TablesRead
from controller.tables.rules import AnyTable, FlowRule, GroupRule, OtherTable, Rule, RuleSet, Table
from controller.tables.switch_sync import Refusal

FULL = ("OFPFMFC_TABLE_FULL", "OFPGMFC_OUT_OF_GROUPS", "OFPMMFC_OUT_OF_METERS")
"""In the reason of a switch that refuses a rule (OpenFlow 1.3.5 section 7.4.4)."""


TABLES = (*Table, *OtherTable)


def is_full(reason: str) -> bool:
    """Whether this is why a switch refuses a rule."""
    return any(name in reason for name in FULL)


class TableUse(NamedTuple):
    """Entries in one table, foreign ones too, and how many fit in; None where the switch has not said it."""

    table: AnyTable
    entries: int | None
    max_entries: int | None

    @property
    def is_full(self) -> bool:
        return self.entries is not None and self.max_entries is not None and self.entries >= self.max_entries

    @property
    def name(self) -> str:
        """The number of a flow table."""
        return f"{self.table:d}" if isinstance(self.table, Table) else self.table.value


class FullTable(NamedTuple):
    """``refused``: rules for which there was no room."""

    dpid: Dpid
    use: TableUse
    refused: int


class TableUses:
    """``of``: the tables that Signalbox uses, of each connected switch that has told any; another mapping when that
    changes."""

    def __init__(self, alarm_fraction: float) -> None:
        """``alarm_fraction``: of the limit, from which on a table is nearly full."""
        self.of: Mapping[Dpid, tuple[TableUse, ...]] = SharedMap()
        self._alarm_fraction = alarm_fraction
        self._nearly_full = Memo(_nearly_full)

    def take(self, message: TablesRead, held: Collection[RuleSet]) -> bool:
        """Whether a table that was full has room now. ``held``: rules there, among them all groups and meters; empty
        when they are not known."""
        known = self.of.get(message.dpid, ())
        entries: dict[AnyTable, int | None]
        entries = {use.table: use.entries for use in known} if message.entries is None else {**message.entries}
        entries |= _groups_and_meters(held)
        limits = {use.table: use.max_entries for use in known} if message.limits is None else message.limits
        now = (TableUse(table, entries.get(table), limits.get(table) or None) for table in TABLES)
        uses = tuple(use for use in now if use != _unknown(use.table))
        if uses != known:
            self.of = updated(self.of, {message.dpid: uses})
        return not {use.table for use in known if use.is_full} <= {use.table for use in uses if use.is_full}

    def switch_left(self, dpid: Dpid) -> None:
        self.of = updated(self.of, {dpid: None} if dpid in self.of else {})

    def take_alarm_fraction(self, alarm_fraction: float) -> None:
        self._alarm_fraction = alarm_fraction

    def nearly_full(self, refused: Iterable[tuple[Dpid, Refusal]]) -> Iterator[FullTable]:
        """Each table once. ``refused``: by switches, so far."""
        without_room = Counter(
            (dpid, _table_of(refusal.mod.rule))
            for dpid, refusal in refused
            if is_full(refusal.reason) and refusal.mod.op != "delete"
        )
        for dpid, use in self._nearly_full(self.of, self._alarm_fraction):
            yield FullTable(dpid, use, without_room.pop((dpid, use.table), 0))
        for (dpid, table), number in without_room.items():
            known = (use for use in self.of.get(dpid, ()) if use.table == table)
            yield FullTable(dpid, next(known, _unknown(table)), number)


def _nearly_full(of: Mapping[Dpid, tuple[TableUse, ...]], alarm_fraction: float) -> list[tuple[Dpid, TableUse]]:
    return [
        (dpid, use)
        for dpid, uses in of.items()
        for use in uses
        if use.entries is not None and use.max_entries is not None and use.entries >= alarm_fraction * use.max_entries
    ]


def _unknown(table: AnyTable) -> TableUse:
    return TableUse(table, None, None)


def _table_of(rule: Rule) -> AnyTable:
    match rule:
        case FlowRule():
            return rule.key.table
        case GroupRule():
            return OtherTable(f"{rule.kind}_groups")
        case _:
            return OtherTable.METERS


def _groups_and_meters(held: Collection[RuleSet]) -> dict[AnyTable, int]:
    """Their numbers; empty when it is not known what is held."""
    kinds = Counter(group.kind for rules in held for group in rules.groups.values())
    numbers: dict[AnyTable, int] = {
        OtherTable.SELECT_GROUPS: kinds["select"],
        OtherTable.FAST_FAILOVER_GROUPS: kinds["fast_failover"],
        OtherTable.METERS: sum(len(rules.meters) for rules in held),
    }
    return numbers if held else {}
