"""Everything that ``bench plan`` has measured so far, as a file that is never half written, and summed up.

In: rows as they come. Out: ``plan.json``, and ``Line``s for people: one per group, failure and scheme.
"""

from __future__ import annotations

import json
import os
import platform
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

from controller.offline.bench_changes import ChangeRow
from controller.offline.bench_growth import GrowthRow
from controller.offline.bench_measure import Missing, Row
from controller.offline.bench_targets import targets


@dataclass(slots=True)
class Results:
    """``asked``: the options of the run. ``finished``: nothing is missing any more."""

    asked: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    changes: list[ChangeRow] = field(default_factory=list)
    growth: list[GrowthRow] = field(default_factory=list)
    finished: bool = False

    def add(self, found: Row | Missing) -> None:
        if isinstance(found, Row):
            self.rows.append(found)
        else:
            self.missing.append(found)

    def data(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "asked": self.asked,
            "machine": {"cpus": os.cpu_count(), "python": platform.python_version()},
            "finished": self.finished,
            "targets": [asdict(target) for target in targets(self.rows, self.changes, self.growth)],
            "plans": [asdict(row) for row in self.rows],
            "missing": [asdict(row) for row in self.missing],
            "changes": [asdict(row) for row in self.changes],
            "growth": [asdict(row) for row in self.growth],
        }

    def save(self, file: Path) -> None:
        """Replaces the file. Raises ``OSError``."""
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_suffix(".part")
        fresh.write_text(json.dumps(self.data(), indent=1) + "\n", encoding="utf-8")
        fresh.replace(file)


@dataclass(frozen=True, slots=True)
class Line:
    """Over the workloads of a group. ``level``: mean of the worst levels, and the worst of them; ``mean_level``: mean
    over jobs, then workloads. ``pieces``, ``least``: per flow, means. ``total_ms``: median, and the longest.
    ``missing``: workloads without a plan."""

    group: str
    failure: str
    scheme: str
    workloads: int
    proven: int
    level: float
    worst_level: float
    mean_level: float
    bound: float
    pieces: float
    least: float
    most_pieces: int
    total_ms: float
    worst_ms: float
    missing: int


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """Over the workloads of a group. Levels: means; ``moves``, ``scratch_moves``: means, and the most; ``repair_ms``,
    ``total_ms``: medians. ``fewest``: workloads for which the moves are proven to be the fewest."""

    group: str
    change: str
    pieces: int
    workloads: int
    displaced: float
    repair_level: float
    repair_ms: float
    level: float
    bound: float
    proven: int
    moves: float
    most_moves: int
    fewest: int
    scratch_moves: float
    total_ms: float


def scheme(row: Row | Missing) -> str:
    return f"{row.strategy}, split" if row.pieces > 1 else row.strategy


def lines(rows: Iterable[Row], missing: Iterable[Missing]) -> list[Line]:
    """In the order in which their first rows came; nothing for what has no row at all."""
    grouped: defaultdict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row.group, row.failure, scheme(row)].append(row)
    lost: defaultdict[tuple[str, str, str], int] = defaultdict(int)
    for gone in missing:
        lost[gone.group, gone.failure, scheme(gone)] += 1
    return [_line(key, of, lost[key]) for key, of in grouped.items()]


def _line(key: tuple[str, str, str], rows: Sequence[Row], missing: int) -> Line:
    group, failure, name = key
    times_ms = [row.total_ms for row in rows]
    return Line(
        group=group,
        failure=failure,
        scheme=name,
        workloads=len(rows),
        proven=sum(row.proven for row in rows),
        level=fmean(row.level for row in rows),
        worst_level=max(row.level for row in rows),
        mean_level=fmean(row.mean_level for row in rows),
        bound=fmean(row.bound for row in rows),
        pieces=fmean(row.subflows for row in rows),
        least=fmean(row.least_subflows for row in rows),
        most_pieces=max(row.most_subflows for row in rows),
        total_ms=median(times_ms),
        worst_ms=max(times_ms),
        missing=missing,
    )


def change_lines(rows: Iterable[ChangeRow]) -> list[ChangeLine]:
    """In the order in which their first rows came."""
    grouped: defaultdict[tuple[str, str, int], list[ChangeRow]] = defaultdict(list)
    for row in rows:
        grouped[row.group, row.change, row.pieces].append(row)
    return [
        ChangeLine(
            group=group,
            change=change,
            pieces=pieces,
            workloads=len(of),
            displaced=fmean(row.displaced for row in of),
            repair_level=fmean(row.repair_level for row in of),
            repair_ms=median(row.repair_ms for row in of),
            level=fmean(row.level for row in of),
            bound=fmean(row.bound for row in of),
            proven=sum(row.certificate == "optimal" for row in of),
            moves=fmean(row.moves for row in of),
            most_moves=max(row.moves for row in of),
            fewest=sum(row.fewest for row in of),
            scratch_moves=fmean(row.scratch_moves for row in of),
            total_ms=median(row.total_ms for row in of),
        )
        for (group, change, pieces), of in grouped.items()
    ]
