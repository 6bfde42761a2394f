"""What ``bench plan`` shows to people: a table of plans, one of changes, one of growth, and one of targets."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from controller.offline.bench_growth import GrowthRow
from controller.offline.bench_results import ChangeLine, Line, Results, change_lines, lines
from controller.offline.bench_targets import Target, targets

_PLANS = ("workloads", "proven", "level", "worst", "mean of jobs", "bound", "pieces", "least", "most", "ms", "longest")
_CHANGES = (
    "workloads",
    "displaced",
    "repair",
    "ms",
    "level",
    "bound",
    "proven",
    "moves",
    "most",
    "fewest proven",
    "ms",
)
_GROWTH = ("level", "bound", "pieces", "snapshot ms", "build ms", "solve ms", "check ms", "total ms", "peak MiB")


def report(results: Results, written: str) -> RenderableType:
    """``written``: where everything is."""
    tables: list[RenderableType] = []
    if results.rows:
        tables.append(_plans(lines(results.rows, results.missing)))
    if results.changes:
        tables.append(_changes(change_lines(results.changes)))
    if results.growth:
        tables.append(_growth(results.growth))
    tables.append(_targets(targets(results.rows, results.changes, results.growth)))
    return Group(*tables, f"written: {escape(written)}")


def _plans(found: Iterable[Line]) -> Table:
    table = _table("worst levels, means over workloads", ("group", "failed", "scheme"), _PLANS)
    before = None
    for line in found:
        if before not in (None, (line.group, line.failure)):
            table.add_section()
        before = (line.group, line.failure)
        count = f"{line.workloads}, {line.missing} without" if line.missing else str(line.workloads)
        levels = (line.level, line.worst_level, line.mean_level, line.bound, line.pieces, line.least)
        times = (f"{line.total_ms:.1f}", f"{line.worst_ms:.0f}")
        where = (line.group, line.failure, line.scheme)
        table.add_row(*where, count, str(line.proven), *map(_level, levels), str(line.most_pieces), *times)
    return table


def _changes(found: Iterable[ChangeLine]) -> Table:
    table = _table("changes of a running network", ("group", "change", "flows"), (*_CHANGES, "moves from scratch"))
    for line in found:
        table.add_row(
            line.group,
            line.change,
            f"up to {line.pieces} pieces" if line.pieces > 1 else "whole",
            str(line.workloads),
            f"{line.displaced:.1f}",
            _level(line.repair_level),
            f"{line.repair_ms:.1f}",
            _level(line.level),
            _level(line.bound),
            str(line.proven),
            f"{line.moves:.1f}",
            str(line.most_moves),
            str(line.fewest),
            f"{line.total_ms:.1f}",
            f"{line.scratch_moves:.1f}",
        )
    return table


def _growth(rows: Iterable[GrowthRow]) -> Table:
    table = _table("growth, 512 leaves and 128 spines", ("flows", "up to", "certificate"), _GROWTH)
    for row in rows:
        levels = (row.level, row.bound, row.subflows)
        times = (row.snapshot_ms, row.build_ms, row.solve_ms, row.check_ms, row.total_ms, row.peak_mib)
        pieces = f"{row.pieces} piece{'s' * (row.pieces > 1)}"
        table.add_row(f"{row.flows:,}", pieces, row.certificate, *map(_level, levels), *(f"{of:.0f}" for of in times))
    return table


def _targets(found: Iterable[Target]) -> Table:
    table = _table("targets", ("target",), ("cases", "met", "worst"))
    for target in found:
        table.add_row(escape(target.name), str(target.cases), str(target.met), target.worst)
    return table


def _table(title: str, texts: Iterable[str], numbers: Iterable[str]) -> Table:
    table = Table(*texts, title=title, title_justify="left")
    for column in numbers:
        table.add_column(column, justify="right")
    return table


def _level(number: float) -> str:
    return f"{number:.3f}"
