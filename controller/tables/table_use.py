"""How full the flow tables of the switches are.

In: what switches say of their tables, rules that they refused because a table was full. Out: per switch and table the
entries and the limit, as far as they are known; the tables that are full or nearly so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from controller.fabric.topology import Dpid
from controller.shared_map import SharedMap, updated
from controller.tables.messages import TablesRead
from controller.tables.rules import FlowRule, Table
from controller.tables.switch_sync import Refusal

FULL = "OFPFMFC_TABLE_FULL"
"""In the reason of a switch that refuses a rule (OpenFlow 1.3.5 section 7.4.4)."""


class TableUse(NamedTuple):
    """Flow entries in one table, foreign ones too, and how many fit in; None where the switch has not said it."""

    table: Table
    entries: int | None
    max_entries: int | None


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
        self._nearly_full: dict[Dpid, tuple[TableUse, ...]] = {}

    def take(self, message: TablesRead) -> None:
        known = self.of.get(message.dpid, ())
        entries = {use.table: use.entries for use in known} if message.entries is None else message.entries
        limits = {use.table: use.max_entries for use in known} if message.limits is None else message.limits
        now = (TableUse(table, entries.get(table), limits.get(table) or None) for table in Table)
        uses = tuple(use for use in now if use != _unknown(use.table))
        if uses != known:
            self.of = updated(self.of, {message.dpid: uses})
            self._judge(message.dpid)

    def switch_left(self, dpid: Dpid) -> None:
        self.of = updated(self.of, {dpid: None} if dpid in self.of else {})
        self._nearly_full.pop(dpid, None)

    def take_alarm_fraction(self, alarm_fraction: float) -> None:
        self._alarm_fraction = alarm_fraction
        for dpid in self.of:
            self._judge(dpid)

    def nearly_full(self, refused: Iterable[tuple[Dpid, Refusal]]) -> Iterator[FullTable]:
        """Each table once. ``refused``: by switches, so far."""
        without_room = Counter(
            (dpid, refusal.mod.rule.key.table)
            for dpid, refusal in refused
            if FULL in refusal.reason and isinstance(refusal.mod.rule, FlowRule)
        )
        for dpid, uses in self._nearly_full.items():
            for use in uses:
                yield FullTable(dpid, use, without_room.pop((dpid, use.table), 0))
        for (dpid, table), number in without_room.items():
            known = (use for use in self.of.get(dpid, ()) if use.table == table)
            yield FullTable(dpid, next(known, _unknown(table)), number)

    def _judge(self, dpid: Dpid) -> None:
        found = tuple(filter(self._is_nearly_full, self.of[dpid]))
        if found:
            self._nearly_full[dpid] = found
        else:
            self._nearly_full.pop(dpid, None)

    def _is_nearly_full(self, use: TableUse) -> bool:
        _, entries, limit = use
        return entries is not None and limit is not None and entries >= self._alarm_fraction * limit


def _unknown(table: Table) -> TableUse:
    return TableUse(table, None, None)
