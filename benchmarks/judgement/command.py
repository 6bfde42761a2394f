"""False alarms of the judgement on right announcements, and how soon it corrects wrong ones, in virtual time.

In: jobs of nine kinds with iterations of 0.1 to 30 s, generated (``windows``) or recorded. Out: a table per kind and
per way of being wrong, and ``out/bench/judgement.json``. The exit status is 1 when a target is missed: at most one
false alarm per 1,000 hours of a kind, and nine of ten wrong announcements corrected within ``MOST_WINDOWS`` windows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console, Group
from rich.progress import track

from benchmarks.judgement.kinds import Kind, kinds
from benchmarks.judgement.watching import watch
from benchmarks.judgement.windows import INTERVAL_S, Polls, generated
from benchmarks.measures import report, table_of
from controller.fabric.counter_samples import Floats
from controller.jobs.payload_windows import JUDGED_ITERATIONS
from signalbox.commands.output import AsJson
from signalbox.jobs.spec import JobSpec

JOB_HOURS = 0.25
"""Life of a job with a right announcement: some begin to train all the time."""

WRONG_HOURS = 0.2
HOURS_PER_WRONG = 100.0
"""So many hours of right announcements, so many wrong ones of each kind and way."""

MOST_PER_1000_H = 1.0
MOST_WINDOWS = {"reversed": 2.0, "other collective": 2.0, "half": 3.0, "double": 3.0}
"""Windows from the first counters on, two intervals or four iterations each. The bytes of half and double are known
only after the first iteration, which is reported late and may take longer."""

QUANTILE = 0.9
RESULTS = Path("out/bench/judgement.json")


@dataclass(frozen=True)
class Right:
    kind: str
    hours: float
    jobs: int
    false_alarms: int

    @property
    def per_1000_h(self) -> float:
        return 1000 * self.false_alarms / self.hours


@dataclass(frozen=True)
class Wrong:
    """``windows``: that it took until the announcement was contradicted, from the first counters on; infinite where it
    was not."""

    way: str
    kind: str
    iteration_s: float
    found_s: float
    windows: float


def right(hours: float, seed: int) -> Iterator[Right]:
    """Rows per kind, each of ``hours``."""
    for kind in kinds().values():
        jobs = max(1, round(hours / JOB_HOURS))
        alarms = sum(
            len(watch(generated(kind, kind.spec(), seed + number, JOB_HOURS)).contradicted_at)
            for number in track(range(jobs), kind.name, console=Console(stderr=True), transient=True)
        )
        yield Right(kind.name, jobs * JOB_HOURS, jobs, alarms)


def wrong(number: int, seed: int) -> Iterator[Wrong]:
    """``number`` jobs of every kind and way of being wrong."""
    for each in range(number):
        for kind in kinds().values():
            for way, sends, spec, matrix in ways(kind, seed + each):
                yield _found(
                    way,
                    kind.name,
                    generated(sends, spec, seed + each + 1000 * list(kinds()).index(kind.name), WRONG_HOURS, matrix),
                )


def ways(kind: Kind, seed: int) -> Iterator[tuple[str, Kind, JobSpec, Floats | None]]:
    """How what is sent differs from the announcement, if it does."""
    carries, back = (matrix > 0.01 * kind.matrix.max() for matrix in (kind.matrix, kind.matrix.T))
    if (carries != back).any():
        yield "reversed", kind, kind.spec(), kind.matrix.T
    yield "half", kind, kind.spec(0.5), None
    yield "double", kind, kind.spec(2.0), None
    names = [name for name in kinds() if name != kind.name]
    other = kinds()[names[seed % len(names)]]
    if ((other.matrix > 0.01 * other.matrix.max()) != carries).any():
        yield "other collective", other, kind.spec(), None


def _found(way: str, kind: str, polls: Polls) -> Wrong:
    watched = watch(polls, until_contradicted=True)
    iteration_s = float(np.median([duration_s for one in polls.reports for duration_s in one.durations_s]))
    window_s = max(2 * INTERVAL_S, JUDGED_ITERATIONS * iteration_s)
    found_s = float("inf")
    if watched.contradicted_at and watched.first_counters_at is not None:
        found_s = watched.contradicted_at[0][0] - watched.first_counters_at
    return Wrong(way, kind, iteration_s, found_s, found_s / window_s)


def summary(found: Sequence[Wrong]) -> list[dict[str, str | float]]:
    """A row per way of being wrong: all jobs, and those with short iterations."""
    rows: list[dict[str, str | float]] = []
    for way in MOST_WINDOWS:
        for name, longest_s in (("up to 1.5 s", 1.5), ("all", float("inf"))):
            of = [one for one in found if one.way == way and one.iteration_s <= longest_s]
            if of:
                seconds, windows = (np.array([getattr(one, value) for one in of]) for value in ("found_s", "windows"))
                rows.append(
                    {
                        "announced": way,
                        "iterations": name,
                        "jobs": len(of),
                        "median s": float(np.median(seconds)),
                        "90 % s": float(np.quantile(seconds, QUANTILE, method="higher")),
                        "median windows": float(np.median(windows)),
                        "90 % windows": float(np.quantile(windows, QUANTILE, method="higher")),
                        "not found": int(np.isinf(seconds).sum()),
                    }
                )
    return rows


def missed(alarms: Sequence[Right], found: Sequence[Wrong]) -> list[str]:
    """Targets that are missed, in words."""
    said = [
        f"{one.kind}: {one.per_1000_h:.1f} false alarms per 1,000 hours"
        for one in alarms
        if one.per_1000_h > MOST_PER_1000_H
    ]
    slow = (
        f"{row['announced']}: nine of ten take {row['90 % windows']:.1f} windows"
        for row in summary(found)
        if row["iterations"] == "all" and float(row["90 % windows"]) > MOST_WINDOWS[str(row["announced"])]
    )
    return [*said, *slow]


def main(
    hours: Annotated[float, typer.Option(min=1, help="Virtual hours of right announcements, over all kinds.")] = 3000,
    seed: Annotated[int, typer.Option(help="Number of the first generated job.")] = 0,
    recorded: Annotated[list[Path] | None, typer.Option(help="Recorded polls of a right announcement.")] = None,
    as_json: AsJson = False,
) -> None:
    """Judge right and wrong announcements by generated counters, or right ones by recorded ones."""
    if recorded:
        polls = [Polls.read(file) for file in recorded]
        alarms = [
            Right(str(file), one.hours, 1, len(watch(one).contradicted_at))
            for file, one in zip(recorded, polls, strict=True)
        ]
        found: list[Wrong] = []
    else:
        alarms = list(right(hours / len(kinds()), seed))
        found = list(wrong(max(1, round(hours / HOURS_PER_WRONG)), seed))
    data = {"right": [asdict(one) for one in alarms], "wrong": [asdict(one) for one in found]}
    rows: list[dict[str, str | float]] = [
        {
            "kind": one.kind,
            "hours": one.hours,
            "jobs": one.jobs,
            "false alarms": one.false_alarms,
            "per 1,000 h": one.per_1000_h,
        }
        for one in alarms
    ]

    def tables() -> Group:
        wrongs = [table_of("wrong announcements", summary(found))] if found else []
        return Group(table_of("right announcements", rows), *wrongs)

    report(data, RESULTS, tables, as_json)
    targets = missed(alarms, found)
    for target in targets:
        typer.echo(f"missed: {target}", err=True)
    if targets:
        sys.exit(1)
