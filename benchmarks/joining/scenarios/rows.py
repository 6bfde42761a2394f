"""Rows of scenarios, ratios of their iteration times to the flat switch, and targets.

A row has the iterations of one job in one run, and is a line of JSON in a file. Tables and verdicts are made from the
file, so that a long run can be made in parts. All functions except ``read_rows`` are pure.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from benchmarks.joining.mixes import Mode


class Run(NamedTuple):
    """Run of a scenario in one mode. ``seconds``: length of the run."""

    scenario: str
    seed: int
    repeat: int
    seconds: float
    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    scenario: str
    seed: int
    repeat: int
    seconds: float
    mode: str
    job: str
    collective: str
    ranks: int
    iterations: Sequence[Sequence[float]]
    """Start of each iteration, in seconds after the run began, and its duration."""
    wrong: int
    load: float
    """Load average of the machine at the end of the run."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Records of the scenario about the job."""

    @property
    def run(self) -> Run:
        return Run(self.scenario, self.seed, self.repeat, self.seconds, self.mode)

    @property
    def settled(self) -> Sequence[Sequence[float]]:
        """Iterations except the first, in which libraries connect."""
        return self.iterations[1:]


class Target(NamedTuple):
    """Limit of a figure. A figure that was not measured (None) misses it."""

    name: str
    figure: float | None
    limit: float

    @property
    def met(self) -> bool:
        return self.figure is not None and self.figure <= self.limit


@dataclass(frozen=True, slots=True)
class Found:
    """Outcome of a scenario. ``tables``: lines of each table, by title."""

    tables: Mapping[str, Sequence[Mapping[str, Any]]]
    targets: Sequence[Target]


def read_rows(file: Path) -> list[Row]:
    return [Row(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []


def flat_s(rows: Iterable[Row]) -> dict[tuple[int, int, float, str], float]:
    """Return the median duration of an iteration on the flat switch, by seed, repetition, length and job."""
    return {
        (row.seed, row.repeat, row.seconds, row.job): median(duration for _, duration, *_ in row.settled)
        for row in rows
        if row.mode == Mode.FLAT and row.settled
    }


def with_flat_s(rows: Sequence[Row]) -> Iterator[tuple[Row, float]]:
    """Yield each row with the job's median iteration on the flat switch. Jobs without one have no row."""
    base = flat_s(rows)
    for row in rows:
        alone_s = base.get((row.seed, row.repeat, row.seconds, row.job))
        if alone_s:
            yield row, alone_s


def ratios(rows: Sequence[Row]) -> list[tuple[Row, list[float]]]:
    """Return each row with the durations of its settled iterations, relative to the flat switch."""
    return [
        (row, [duration / alone_s for _, duration, *_ in row.settled])
        for row, alone_s in with_flat_s(rows)
        if row.settled
    ]


def by_mode(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the ratios of each repetition and mode: mean over the jobs, mean of the worst job, worst iteration."""
    found: dict[tuple[int, int, str], list[list[float]]] = {}
    loads: dict[tuple[int, int, str], float] = {}
    for row, over in ratios(rows):
        found.setdefault(key := (row.seed, row.repeat, row.mode), []).append(over)
        loads[key] = row.load
    return [
        {
            "mode": mode,
            "seed": str(seed),
            "repeat": str(repeat),
            "jobs": len(jobs),
            "iterations": sum(map(len, jobs)),
            "mean": fmean(map(fmean, jobs)),
            "worst_job": max(map(fmean, jobs)),
            "worst_iteration": max(map(max, jobs)),
            "load": loads[seed, repeat, mode],
        }
        for (seed, repeat, mode), jobs in sorted(found.items())
    ]


def worst(lines: Iterable[Mapping[str, Any]], name: str) -> float | None:
    """Return the largest value of a column over all planned repetitions; None if nothing was measured."""
    return max((line[name] for line in lines if line["mode"] == Mode.PLANNED and line[name] is not None), default=None)
