"""Functions that several benchmarks share: percentiles, memory and CPU time of processes, and output of results."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table

from signalbox.commands.output import show

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles by nearest rank, so that each is a measured value."""

    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Collection[float]) -> Spread | None:
        """Return the percentiles of the values, or None without values."""
        ordered = sorted(values)
        if not ordered:
            return None
        return cls(*(ordered[max(0, math.ceil(part * len(ordered)) - 1)] for part in (0.5, 0.99, 1.0)))


# ---- processes


class Usage(NamedTuple):
    """Resources of processes.

    ``rss_bytes``: resident memory now. ``peak_bytes``: sum of the peak of each process. ``cpu_s``: CPU time so far."""

    rss_bytes: int = 0
    peak_bytes: int = 0
    cpu_s: float = 0.0
    processes: int = 0


def usage(process: subprocess.Popen[bytes] | subprocess.Popen[str] | None) -> Usage:
    """Return the resources of a process and its descendants (proc(5)); zero without a process."""
    found = [_usage(pid) for pid in _tree(process.pid)] if process else []
    return Usage(*(sum(column) for column in zip(*found, strict=True))) if found else Usage()


def _usage(pid: int) -> Usage:
    try:
        fields = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return Usage()
    if "VmRSS" not in fields:
        return Usage()
    rss, peak = (int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
    return Usage(rss, peak, (int(times[11]) + int(times[12])) / TICKS_PER_S, 1)


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found = [int(child) for child in tasks.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in found:
            yield from _tree(child)


# ---- results


def report(data: object, file: Path, table: Callable[[], RenderableType], as_json: bool) -> None:
    """Write ``data`` to ``file`` and print it as JSON or as a table. Raises ``OSError``."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(data, indent=2) + "\n")
    show(data, lambda: Group(table(), f"written to {file}"), as_json)


def table_of(title: str, rows: Sequence[Mapping[str, str | float]]) -> Table:
    """Return a table with a column for each key of the rows; floats have two digits after the point."""
    table = Table(title=title, title_justify="left")
    for column, value in rows[0].items():
        table.add_column(column.replace("_", " "), justify="left" if isinstance(value, str) else "right")
    for row in rows:
        table.add_row(*(f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values()))
    return table
