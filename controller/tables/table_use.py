"""Use of the flow, group and meter tables of switches.

In: reports of switches about their tables, the groups and meters on the switches, and rules that were refused because a
table was full. Out: entries and limit of each table, where known, and the tables that are full or nearly full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from controller.fabric.topology import Dpid
from controller.shared_map import Memo, SharedMap, updated
from controller.tables.messages import TablesRead
from controller.tables.rules import AnyTable, FlowRule, GroupRule, OtherTable, Rule, RuleSet, Table
from controller.tables.switch_sync import Refusal

FULL = ("OFPFMFC_TABLE_FULL", "OFPGMFC_OUT_OF_GROUPS", "OFPMMFC_OUT_OF_METERS")
"""Names of the error codes of a switch that refuses a rule because a table is full (OpenFlow 1.3.5 section 7.4.4)."""


TABLES = (*Table, *OtherTable)


def is_full(reason: str) -> bool:
    """Return whether a switch that gives this reason refused a rule because a table is full."""
    return any(name in reason for name in FULL)


class TableUse(NamedTuple):
    """Entries in a table, foreign ones included, and its capacity; None where the switch has not reported it."""

    table: AnyTable
    entries: int | None
    max_entries: int | None

    @property
    def is_full(self) -> bool:
        return self.entries is not None and self.max_entries is not None and self.entries >= self.max_entries

    @property
    def name(self) -> str:
        """Number of a flow table, or name of another table."""
        return f"{self.table:d}" if isinstance(self.table, Table) else self.table.value


class FullTable(NamedTuple):
    """A table that is full or nearly full."""

    dpid: Dpid
    use: TableUse
    refused: int
    """Number of rules that the switch refused because the table is full."""


class TableUses:
    """Use of all tables that Signalbox uses."""

    def __init__(self, alarm_fraction: float) -> None:
        """Start without reports. ``alarm_fraction``: fraction of its limit from which a table is nearly full."""
        self.of: Mapping[Dpid, tuple[TableUse, ...]] = SharedMap()
        """Use of the tables of each connected switch that has reported any; a new mapping on each change."""
        self._alarm_fraction = alarm_fraction
        self._nearly_full = Memo(_nearly_full)

    def take(self, message: TablesRead, held: Collection[RuleSet]) -> bool:
        """Record a report and return whether a table that was full has room now.

        ``held``: rules on the switch (our rules, and foreign groups and meters); empty if they are not known."""
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
        """Yield each full or nearly full table once. ``refused``: refused rules of all switches."""
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
    """Return the number of groups and meters; empty if the rules on the switch are not known."""
    kinds = Counter(group.kind for rules in held for group in rules.groups.values())
    numbers: dict[AnyTable, int] = {
        OtherTable.SELECT_GROUPS: kinds["select"],
        OtherTable.FAST_FAILOVER_GROUPS: kinds["fast_failover"],
        OtherTable.METERS: sum(len(rules.meters) for rules in held),
    }
    return numbers if held else {}
