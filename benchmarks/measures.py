"""Functions for several benchmarks: percentiles, resources of processes, threads, options, and output."""

from __future__ import annotations

import json
import math
import os
import subprocess
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import typer
from rich.console import Group
from rich.markup import escape
from rich.table import Table

from signalbox.commands.output import console

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MOST_COLUMNS = 14
NOTHING = "–"

Row = Mapping[str, Any]
"""Row of a table: values by name of the column."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of measured values. Each is one of the values (nearest rank)."""

    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Collection[float]) -> Spread | None:
        """Return the percentiles of the values; None if there are no values."""
        ordered = sorted(values)
        if not ordered:
            return None
        return cls(*(ordered[max(0, math.ceil(part * len(ordered)) - 1)] for part in (0.5, 0.99, 1.0)))


# ---- processes


class Usage(NamedTuple):
    """Resources that processes use.

    ``rss_bytes``: resident memory now. ``peak_bytes``: sum of the processes' peaks. ``cpu_s``: CPU seconds so far."""

    rss_bytes: int = 0
    peak_bytes: int = 0
    cpu_s: float = 0.0


def usage(process: subprocess.Popen[bytes] | subprocess.Popen[str] | None) -> Usage:
    """Return the resources of a process and its descendants (proc(5)); all 0 without a process."""
    found = [_usage(pid) for pid in _tree(process.pid)] if process else []
    return Usage(*(sum(column) for column in zip(*found, strict=True))) if found else Usage()


def usage_by_part(main: int) -> dict[str, Usage]:
    """Return the resources of a controller by part: ``loop`` (with the API), ``southbound`` and ``workers``.

    ``main``: process id of the controller, which runs the loop. Its children with a higher niceness are the workers
    (``controller.child``)."""
    found = {"loop": _usage(main), "southbound": Usage(), "workers": Usage()}
    for pid in list(_tree(main))[1:]:
        with suppress(OSError):
            if "resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_text():
                is_worker = os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, main)
                part = "workers" if is_worker else "southbound"
                both = [found[part], _usage(pid)]
                found[part] = Usage(*(sum(column) for column in zip(*both, strict=True)))
    return found


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
    return Usage(rss, peak, (int(times[11]) + int(times[12])) / TICKS_PER_S)


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found = [int(child) for child in tasks.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in found:
            yield from _tree(child)


# ---- commands


@contextmanager
def background(*bodies: Callable[[threading.Event], object]) -> Iterator[None]:
    """Run each body in a thread of its own while the block runs. A body gets an event that is set when it must end."""
    stopping = threading.Event()
    threads = [threading.Thread(target=body, args=(stopping,)) for body in bodies]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def chosen(option: str, text: str, known: Collection[str]) -> list[str]:
    """Return the comma-separated names in ``text``. Raises ``typer.BadParameter`` for a name that is not ``known``."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"there is no '{name}'; choose from {', '.join(known)}", param_hint=option)
    return list(dict.fromkeys(names))


# ---- results


def report(data: object, file: Path, tables: Mapping[str, Sequence[Row]], *lines: str) -> None:
    """Write ``data`` to the file as JSON, and print the tables and the lines. Raises ``OSError``.

    ``tables``: rows by title."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(data, indent=2) + "\n")
    parts = [table_of(title, rows) for title, rows in tables.items() if rows]
    console().print(Group(*parts, *map(escape, (f"written to {file}", *lines))))


def table_of(title: str, rows: Sequence[Row]) -> Table:
    """Return a table with a line for each row. If it had many columns, rows and columns are exchanged."""
    lines = [flat(row) for row in rows]
    names = list(dict.fromkeys(name for line in lines for name in line))
    texts = [[name.replace("_", " ") for name in names]]
    texts += [[text_of(line.get(name)) for name in names] for line in lines]
    if len(names) > max(MOST_COLUMNS, len(lines)):
        texts = list(map(list, zip(*texts, strict=True)))
    table = Table(title=title, title_justify="left")
    for column in zip(*texts, strict=True):
        numbers = all(text[:1].isdigit() or text in ("", NOTHING) for text in column[1:])
        table.add_column(column[0], justify="right" if numbers else "left")
    for line in texts[1:]:
        table.add_row(*line)
    return table


def figures_of(row: Row) -> list[Row]:
    """Return a row for each value in a row of figures, with the columns "figure" and "measured"."""
    return [{"figure": name, "measured": value} for name, value in flat(row).items()]


def flat(row: Row) -> dict[str, Any]:
    """Return the row with nested mappings replaced by their entries, as "NAME PART". Lists of mappings are left out."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found |= {f"{name} {part}": each for part, each in flat(value).items()}
        elif not (isinstance(value, list | tuple) and value and isinstance(value[0], Mapping)):
            found[name] = value
    return found


def text_of(value: object) -> str:
    """Return a value as text for a table; floats get four significant digits."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: NOTHING}[value]
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < math.inf else f"{value:.4g}"
    if isinstance(value, list | tuple | set):
        return ", ".join(map(text_of, value))
    return f"{value:,}" if isinstance(value, int) else escape(str(value))
