"""Check of announced traffic against counters: false alarms, and the time until wrong announcements are found.

The controller's own check runs in virtual time (``watching``). The input is jobs of nine kinds with iterations of 0.1
to 30 s, generated (``windows``) or recorded. The result is a table by kind and by kind of error, and
``out/bench/judgement.json``. The targets are at most one false alarm per 1,000 hours of a kind, and nine of ten wrong
announcements found within ``MOST_S``. The exit status is 1 when a target is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import track

from benchmarks.judgement.kinds import Kind, kinds
from benchmarks.judgement.watching import watch
from benchmarks.judgement.windows import Polls, generated
from benchmarks.measures import report
from controller.fabric.counter_samples import Floats
from signalbox.commands.output import AsJson
from signalbox.jobs.spec import JobSpec

JOB_HOURS = 0.25
"""Life in hours of a job with a right announcement; short, so that some jobs begin to train at any time."""

WRONG_HOURS = 0.2
KINDS_APART = 100_000
"""Difference between the first seeds of two kinds, so that no two kinds share the durations of iterations."""

HOURS_PER_WRONG = 100.0
"""Hours of right announcements for each wrong announcement of each kind and kind of error."""

MOST_PER_1000_H = 1.0
SOON_S, SOON_ITERATIONS = 5.0, 2.0
"""Time in seconds and in iterations; an error that is found within the longer one is found soon."""

MOST_S = {"reversed": 6.0, "other collective": 8.0, "half": 12.0, "double": 12.0}
MOST_ITERATIONS = 3.0
"""Iterations within which nine of ten errors must be found after the first iteration, or ``MOST_S`` if that is longer.

Until the first iteration has ended, counted bytes show no error of the amounts. The first iteration may take several
times as long as others."""

UP_TO_S = (1.0, 2.0, 5.0, 10.0, float("inf"))
"""Upper ends of the ranges of iteration durations, in seconds; each range has a row in the summary."""

QUANTILE = 0.9
RESULTS = Path("out/bench/judgement.json")


@dataclass(frozen=True)
class Right:
    kind: str
    hours: float
    jobs: int
    false_alarms: int
    seeds: tuple[int, ...] = ()
    """Seeds of the jobs with false alarms; ``generated`` makes such a job again."""

    @property
    def per_1000_h(self) -> float:
        return 1000 * self.false_alarms / self.hours


@dataclass(frozen=True)
class Wrong:
    """Wrong announcement of a job, and the time until it was found."""

    way: str
    """Kind of error."""
    kind: str
    iteration_s: float
    first_s: float
    """Seconds from the first counters until the first iteration ended."""
    found_s: float
    """Seconds from the first counters until the announcement was contradicted; infinite if it was not."""

    @property
    def after_first_s(self) -> float:
        return self.found_s - max(0.0, self.first_s)

    def within(self, seconds: float, iterations: float) -> bool:
        """Return whether the error was found within the longer of both times after the first iteration."""
        return self.after_first_s <= max(seconds, iterations * self.iteration_s)


def right(hours: float, seed: int) -> Iterator[Right]:
    """Yield a row for each kind, each with ``hours`` of right announcements."""
    jobs = max(1, round(hours / JOB_HOURS))
    with ProcessPoolExecutor() as processes:
        for place, name in enumerate(kinds()):
            first = seed + place * KINDS_APART
            found = processes.map(partial(_false_alarms, name), range(first, first + jobs), chunksize=8)
            alarms = list(track(found, name, jobs, console=Console(stderr=True), transient=True))
            seeds = tuple(first + number for number in np.flatnonzero(alarms).tolist())
            yield Right(name, jobs * JOB_HOURS, jobs, sum(alarms), seeds)


def _false_alarms(name: str, seed: int) -> int:
    kind = kinds()[name]
    return len(watch(generated(kind, kind.spec(), seed, JOB_HOURS)).contradicted_at)


def wrong(number: int, seed: int) -> Iterator[Wrong]:
    """Yield the findings on ``number`` wrong announcements of every kind of job and kind of error."""
    for each in range(number):
        for place, kind in enumerate(kinds().values()):
            for way, sends, spec, matrix in ways(kind, seed + each):
                polls = generated(sends, spec, seed + each + place * KINDS_APART, WRONG_HOURS, matrix)
                if polls.reports:
                    yield _found(way, kind.name, polls)


def ways(kind: Kind, seed: int) -> Iterator[tuple[str, Kind, JobSpec, Floats | None]]:
    """Yield wrong announcements: name of the error, kind of job that sends, announced spec, and the bytes sent.

    An error that would change nothing is left out."""
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
    first = polls.reports[0]
    first_end = first.ended_at[0] if first.ended_at else first.at - sum(first.durations_s[1:])
    first_counters_at = watched.first_counters_at or first_end
    found_s = watched.contradicted_at[0][0] - first_counters_at if watched.contradicted_at else float("inf")
    return Wrong(way, kind, iteration_s, first_end - first_counters_at, found_s)


def summary(found: Sequence[Wrong]) -> list[dict[str, str | float]]:
    """Return a row for each kind of error and range of iteration durations."""
    rows: list[dict[str, str | float]] = []
    for way in MOST_S:
        for longer_than_s, longest_s in pairwise((0.0, *UP_TO_S)):
            of = [one for one in found if one.way == way and longer_than_s < one.iteration_s <= longest_s]
            if of:
                seconds, after_s = (
                    np.array([getattr(one, value) for one in of]) for value in ("found_s", "after_first_s")
                )
                rows.append(
                    {
                        "announced": way,
                        "iterations s": f"{longer_than_s:g}+"
                        if np.isinf(longest_s)
                        else f"{longer_than_s:g}-{longest_s:g}",
                        "jobs": len(of),
                        "median s": float(np.median(seconds)),
                        "90 % s": float(np.quantile(seconds, QUANTILE, method="higher")),
                        "in 5 s": float(np.mean(seconds <= SOON_S)),
                        "after first: median s": float(np.median(after_s)),
                        "90 % s after": float(np.quantile(after_s, QUANTILE, method="higher")),
                        "in 5 s or 2 iterations": float(np.mean([one.within(SOON_S, SOON_ITERATIONS) for one in of])),
                        "not found": int(np.isinf(seconds).sum()),
                    }
                )
    return rows


def missed(alarms: Sequence[Right], found: Sequence[Wrong]) -> list[str]:
    """Return sentences about the targets that are missed."""
    said = [
        f"{one.kind}: {one.per_1000_h:.1f} false alarms per 1,000 hours"
        for one in alarms
        if one.per_1000_h > MOST_PER_1000_H
    ]
    for way, most_s in MOST_S.items():
        soon = [one.within(most_s, MOST_ITERATIONS) for one in found if one.way == way]
        if soon and np.mean(soon) < QUANTILE:
            said.append(f"{way}: {np.mean(soon):.0%} are found within {most_s:g} s or {MOST_ITERATIONS:g} iterations")
    return said


def main(
    hours: Annotated[float, typer.Option(min=1, help="Virtual hours of right announcements, over all kinds.")] = 3000,
    seed: Annotated[int, typer.Option(help="Number of the first generated job.")] = 0,
    recorded: Annotated[list[Path] | None, typer.Option(help="File of recorded polls of a right announcement.")] = None,
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
    rows = [{**one, "per 1,000 h": of.per_1000_h} for one, of in zip(data["right"], alarms, strict=True)]
    report(data, RESULTS, as_json, {"right announcements": rows, "wrong announcements": summary(found)})
    targets = missed(alarms, found)
    for target in targets:
        typer.echo(f"missed: {target}", err=True)
    if targets:
        sys.exit(1)
