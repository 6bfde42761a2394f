"""Benchmark ``judgement``: false alarms about right announcements, and the time until wrong ones are found.

The controller's own check of announced traffic against counters runs in virtual time (``watch``). The counters are
those of nine kinds of jobs with iterations of 0.1 to 30 s, which ``windows`` generates. The result is a table by kind
of job and by kind of error, and ``out/bench/judgement.json``.

The targets are at most one false alarm per 1,000 hours of a kind, and nine of ten wrong announcements found within
``MOST_S`` or ``MOST_ITERATIONS``. The exit status is 1 when a target is missed.
"""

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

from benchmarks.judgement.windows import Kind, Polls, generated, kinds
from benchmarks.measures import report
from controller.demand.job_demand import Difference, JobDemand
from controller.demand.measured_demand import MeasuredDemand
from controller.demand.watched_job import FEWEST_BYTES
from controller.fabric.counter_samples import Counted, Floats
from controller.fabric.topology import Dpid
from controller.jobs.messages import RegisterJob
from controller.jobs.registry import JobRegistry
from signalbox.jobs.spec import JobId, JobSpec

MAX_RULES = 4032


@dataclass(frozen=True)
class Watched:
    """Course of the check of one job. ``first_counters_at``: time of the first poll that shows traffic of the job."""

    first_counters_at: float | None
    contradicted_at: tuple[tuple[float, Difference], ...]
    """Times at which counters began to contradict the announcement, each with the difference that was found."""
    last: JobDemand


def watch(polls: Polls, until_contradicted: bool = False) -> Watched:
    """Replay polls to the controller's check (``MeasuredDemand``).

    A rule that the check requests counts from the next poll on. ``until_contradicted``: whether to stop as soon as
    the announcement is contradicted."""
    demand = MeasuredDemand(polls.interval_s, MAX_RULES)
    registry = JobRegistry(1)
    registry.register(RegisterJob(polls.spec), 0.0)
    demand.follow(registry.jobs, 0.0)
    driver, job_id = _Driver(polls, demand), JobId(polls.spec.job_id)
    contradictions: list[tuple[float, Difference]] = []
    first, contradicted, report = None, False, 0
    for number, now in enumerate(polls.now.tolist()):
        while report < len(polls.reports) and polls.reports[report].at <= now:
            demand.reported(job_id, polls.reports[report].iterations, polls.reports[report].at)
            report += 1
        most = driver.poll(number, now)
        first = now if first is None and most > FEWEST_BYTES else first
        of_job = demand.demands[job_id]
        if of_job.contradicted and not contradicted and of_job.difference:
            contradictions.append((now, of_job.difference))
            if until_contradicted:
                break
        contradicted = of_job.contradicted
    return Watched(first, tuple(contradictions), demand.demands[job_id])


class _Driver:
    def __init__(self, polls: Polls, demand: MeasuredDemand) -> None:
        self._polls, self._demand = polls, demand
        self._place = {pair: number for number, pair in enumerate(polls.pairs)}
        self._base: dict[int, tuple[float, float]] = {}
        self._known: JobDemand | None = None
        self._asked: list[tuple[Dpid, int, tuple[Counted, ...], list[int], np.ndarray]] = []
        self._ask(0)

    def poll(self, number: int, now: float) -> float:
        """Pass the counters of poll ``number`` to the check.

        Returns the largest payload that any pair has sent, in bytes."""
        polls = self._polls
        counts = np.stack((polls.bytes[number], polls.packets[number]), axis=1)
        for dpid, first, what, places, base in self._asked:
            at = float(polls.at[number, first])
            if at == at:
                self._demand.counters.count(dpid, at, what, counts[places] - base)
        self._demand.update(frozenset(), now)
        self._ask(number)
        return float((counts[:, 0] - 66 * counts[:, 1]).max())

    def _ask(self, number: int) -> None:
        """Install the rules that the check requests now; new rules count from 0 at poll ``number``."""
        of_job = self._demand.demands[JobId(self._polls.spec.job_id)]
        if of_job is self._known or (
            self._known and of_job.counted == self._known.counted and of_job.pairs == self._known.pairs
        ):
            return
        self._known = of_job
        wanted = of_job.pairs | {(dst, src) for src, dst in of_job.pairs} | of_job.counted
        places = sorted(self._place[pair] for pair in wanted)
        at_first = not self._base
        for place in places:
            counted = self._polls.bytes[number, place], self._polls.packets[number, place]
            self._base.setdefault(place, (0.0, 0.0) if at_first else counted)
        self._base = {place: self._base[place] for place in places}
        self._asked = []
        for switch in np.unique(self._polls.switch).tolist():
            own = [place for place in places if self._polls.switch[place] == switch]
            what = tuple(Counted(*self._polls.pairs[place]) for place in own)
            base = np.array([self._base[place] for place in own]).reshape(-1, 2)
            self._asked.append((Dpid(switch + 1), own[0] if own else 0, what, own, base))


JOB_HOURS = 0.25
"""Hours for which a rightly announced job runs. The number is small, so that many jobs begin in the virtual time."""

WRONG_HOURS = 0.2
KINDS_APART = 100_000
"""Difference between the seeds of two kinds of jobs, so that no two kinds have the same durations of iterations."""

HOURS_PER_WRONG = 100.0
"""Hours of right announcements per repetition of all wrong ones."""

MOST_PER_1000_H = 1.0
SOON_S, SOON_ITERATIONS = 5.0, 2.0
"""Limits in seconds and in iterations: an error counts as found soon if it was found within the longer of the two."""

MOST_S = {"reversed": 6.0, "other collective": 8.0, "half": 12.0, "double": 12.0}
MOST_ITERATIONS = 3.0
"""Limit in iterations after the first one, for nine of ten errors. ``MOST_S`` applies instead if it is longer.

Wrong amounts cannot be found before the first iteration has ended, and the first iteration may take several times as
long as the others.
"""

UP_TO_S = (1.0, 2.0, 5.0, 10.0, float("inf"))
"""Upper ends of ranges of iteration durations, in seconds. The summary has a row for each range."""

QUANTILE = 0.9
RESULTS = Path("out/bench/judgement.json")


@dataclass(frozen=True)
class Right:
    kind: str
    hours: float
    jobs: int
    false_alarms: int
    seeds: tuple[int, ...] = ()
    """Seeds with which ``generated`` makes the jobs with false alarms again."""

    @property
    def per_1000_h(self) -> float:
        return 1000 * self.false_alarms / self.hours


@dataclass(frozen=True)
class Wrong:
    """Wrong announcement of one job, and when it was found."""

    way: str
    """Kind of error, such as "half"."""
    kind: str
    iteration_s: float
    first_s: float
    """Seconds from the first counters until the end of the first iteration."""
    found_s: float
    """Seconds from the first counters until they contradicted the announcement; infinite if they never did."""

    @property
    def after_first_s(self) -> float:
        return self.found_s - max(0.0, self.first_s)

    def within(self, seconds: float, iterations: float) -> bool:
        """Return whether the error was found within the longer of both limits, from the first iteration's end on."""
        return self.after_first_s <= max(seconds, iterations * self.iteration_s)


def right(hours: float, seed: int) -> Iterator[Right]:
    """Yield a row for each kind of job, with the false alarms in ``hours`` of right announcements."""
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
    """Yield the results of ``number`` wrong announcements for each kind of job and each kind of error."""
    for each in range(number):
        for place, kind in enumerate(kinds().values()):
            for way, sends, spec, matrix in ways(kind, seed + each):
                polls = generated(sends, spec, seed + each + place * KINDS_APART, WRONG_HOURS, matrix)
                if polls.reports:
                    yield _found(way, kind.name, polls)


def ways(kind: Kind, seed: int) -> Iterator[tuple[str, Kind, JobSpec, Floats | None]]:
    """Yield wrong announcements: kind of error, kind of job that really runs, announced spec, and real bytes.

    The bytes are None if the job sends the bytes of its kind. An error that would change nothing is left out."""
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
    """Return a row for each kind of error and each range of iteration durations."""
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
                        "iteration s": f"{longer_than_s:g}+"
                        if np.isinf(longest_s)
                        else f"{longer_than_s:g}-{longest_s:g}",
                        "jobs": len(of),
                        "median s until found": float(np.median(seconds)),
                        "90 % found after s": float(np.quantile(seconds, QUANTILE, method="higher")),
                        "share in 5 s": float(np.mean(seconds <= SOON_S)),
                        "median s after 1st iteration": float(np.median(after_s)),
                        "90 % s after it": float(np.quantile(after_s, QUANTILE, method="higher")),
                        "share in 5 s or 2 iterations": float(
                            np.mean([one.within(SOON_S, SOON_ITERATIONS) for one in of])
                        ),
                        "not found": int(np.isinf(seconds).sum()),
                    }
                )
    return rows


def missed(alarms: Sequence[Right], found: Sequence[Wrong]) -> list[str]:
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
    seed: Annotated[int, typer.Option(help="Index of the first generated job.")] = 0,
) -> None:
    """Judge right and wrong announcements by generated counters."""
    alarms = list(right(hours / len(kinds()), seed))
    found = list(wrong(max(1, round(hours / HOURS_PER_WRONG)), seed))
    data = {"right": [asdict(one) for one in alarms], "wrong": [asdict(one) for one in found]}
    rows = [{**one, "per 1,000 h": of.per_1000_h} for one, of in zip(data["right"], alarms, strict=True)]
    report(data, RESULTS, {"right announcements": rows, "wrong announcements": summary(found)})
    targets = missed(alarms, found)
    for target in targets:
        typer.echo(f"missed: {target}", err=True)
    if targets:
        sys.exit(1)
