"""Benchmark ``rewiring``: iteration times on emulated optical switches, against other wirings and packet switches.

    sudo scripts/openvswitch.sh run .venv/bin/python -m benchmarks rewiring

Each job trains on the wiring that the controller chooses for it, on random wirings, on one packet switch of the same
cost, and on leaves and spines. The results are measured and modelled iteration times, and the cost of changing circuits
(``changes``). The exit status is 1 when a target is missed.
"""

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.measures import report
from benchmarks.rewiring.changes import Changed, Cut, changes, failures
from benchmarks.rewiring.jobs import JOBS, SERVERS
from controller.circuits.wiring.evaluation import Answer, Way
from mininet_topos.demo.report import Target
from mininet_topos.rewiring.fabrics import Circuits, Trained, circuits, leaves, one_switch, one_way, train_alone
from mininet_topos.rewiring.model import (
    Job,
    Size,
    evaluated,
    on_leaf_spine,
    on_wiring,
    planned_s,
    random_wiring,
    scaled,
    ways_of,
)
from mininet_topos.rewiring.report import CHOSEN, SWITCH, Row, as_modelled
from signalbox.errors import InvalidInput
from signalbox.words import Mode

MEDIAN, WORST = "random wiring, median", "random wiring, worst"
ECMP, PLANNED = "3 leaves x 2 spines, ECMP", "3 leaves x 2 spines, planned"
FACTOR = 2.0
"""Target: time on the switch / time on the chosen wiring, at least, for the best job."""


@dataclass(frozen=True, slots=True)
class OfJob:
    name: str
    refused: bool
    """Whether the controller would refuse to wire switches for the job."""
    chosen: Row
    random: tuple[Row, ...]
    """Rows on random wirings."""
    others: tuple[Row, ...]
    """Rows on the switch, and on leaves and spines."""

    @property
    def rows(self) -> list[Row]:
        return [self.chosen, *middle_and_worst(self.random), *self.others]

    @property
    def switch(self) -> Row:
        return next(row for row in self.others if row.fabric == SWITCH)

    def data(self) -> dict[str, Any]:
        return {
            "job": self.name,
            "refused": self.refused,
            "rows": [row.data() for row in self.rows],
            "random": [row.data() for row in self.random],
        }


def middle_and_worst(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the median and with the largest measured time; none without rows.

    If the number of rows is even, the median is the faster of the two in the middle."""
    if not rows:
        return []
    ordered = sorted(rows, key=lambda row: row.measured_s)
    return [_named(ordered[(len(ordered) - 1) // 2], MEDIAN), _named(ordered[-1], WORST)]


def targets(jobs: Sequence[OfJob], changed: Changed | None) -> list[Target]:
    found = [as_modelled(row, f"{job.name}, ") for job in jobs for row in job.rows if row.modelled_s is not None]
    found = [target for target in found if ECMP not in target.name]
    factors = {job.name: job.switch.measured_s / job.chosen.measured_s for job in jobs}
    best = max(factors.values())
    found.append(Target(f"{SWITCH} / {CHOSEN}, best job", f"{best:.2f}", f">= {FACTOR:g}", best >= FACTOR))
    for job in jobs:
        met = None if job.refused else factors[job.name] >= 1
        figure = f"{factors[job.name]:.2f}" + (" (refused)" if job.refused else "")
        found.append(Target(f"{job.name}, {SWITCH} / {CHOSEN}", figure, ">= 1", met))
    if changed:
        found.append(
            Target("packets of the other job lost", f"{changed.lost} of {changed.probes}", "0", not changed.lost)
        )
    return found


def missed(judged: Sequence[Target]) -> list[str]:
    return [
        f"missed: {each.name} is {each.figure}; the target is {each.target}" for each in judged if each.met is False
    ]


def change_times(ms: Sequence[float]) -> dict[str, Any]:
    """Return the number, median and maximum of ``ms``, the durations of circuit changes. There must be at least one."""
    return {"count": len(ms), "median_ms": median(ms), "max_ms": max(ms)}


def _named(row: Row, name: str) -> Row:
    return Row(**{**asdict(row), "fabric": name})


RESULTS = Path("out/bench/rewiring.json")
SIZE = Size(SERVERS, 4, 2.0)
DIVISOR = 150.0
"""Divisor of the jobs' bytes."""
ITERATIONS = 3
"""Number of iterations to measure, after a first one that is left out."""
LEAVES, SPINES = 3, 2

say = Console(stderr=True, highlight=False).print


@dataclass(frozen=True)
class Measuring:
    """Job to measure, with its bytes scaled down.

    ``ways``: parallelizations by name. ``answer``: best wiring for each of them, and the best time on a switch."""

    name: str
    job: Job
    ways: dict[str, Way]
    answer: Answer

    def chosen(self, fabric: Circuits) -> Row:
        found = fabric.train(self.job, f"{self.name}-chosen", ITERATIONS)
        assert found.runs
        assert found.wiring
        modelled_s = planned_s(self.ways[found.parallelization], found.runs, found.wiring, SIZE)
        orders = self.answer.best.found.orders
        return self._row(CHOSEN, found.parallelization, max(map(len, orders), default=0), modelled_s, found)

    def random(self, fabric: Circuits, number: int) -> Row:
        """Train the job on the random wiring with the seed ``number``, and return the row."""
        best = self.answer.best
        wiring = random_wiring(SERVERS, SIZE.interfaces, number)
        runs = on_wiring(self.ways[best.name], best.found.orders, wiring, SIZE)
        found = fabric.train(self.job, f"{self.name}-random-{number}", ITERATIONS, (wiring, runs))
        return self._row(f"random wiring {number}", runs.parallelization, runs.rings, runs.planned_s, found)

    @property
    def elsewhere(self) -> Job:
        """Job in the parallelization that is best on a switch."""
        return one_way(self.job, self.answer.other.name)

    def other(self, fabric: str, modelled_s: float, found: Trained) -> Row:
        return self._row(fabric, self.answer.other.name, 1, modelled_s, found)

    def _row(self, fabric: str, parallelization: str, rings: int, modelled_s: float, found: Trained) -> Row:
        row = Row(fabric, parallelization, rings, modelled_s, found.mean_s, found.iterations_s)
        say(f"  {self.name}, {fabric}: measured {row.measured_s:.2f} s, modelled {modelled_s:.2f} s")
        return row


def measuring(name: str) -> Measuring:
    """Return the job ``name``, ready to be measured. Raises ``InvalidInput`` for an unknown name."""
    if name not in JOBS:
        raise InvalidInput.of("--job", f"must be one of {', '.join(JOBS)} (given: {name})")
    job = scaled(JOBS[name](), DIVISOR)
    ways = ways_of(job, [f"10.0.{number}.1" for number in range(1, SERVERS + 1)])
    return Measuring(name, job, {way.name: way for way in ways}, evaluated(ways, SIZE))


def main(
    wirings: Annotated[int, typer.Option(min=0, help="Number of random wirings of each job.")] = 20,
    change: Annotated[
        int, typer.Option(min=0, help="Number of changes of 18 circuits while a job trains; 0: none.")
    ] = 10,
    cuts: Annotated[int, typer.Option(min=0, help="Number of fibre pairs of a job to cut; 0: none.")] = 6,
    only: Annotated[list[str] | None, typer.Option("--job", help="Job to measure.", show_default="all")] = None,
) -> None:
    """Emulate optical switches that are wired for jobs, and compare with other wirings and with packet switches."""
    load, began = os.getloadavg()[0], time.time()
    asked = [*map(measuring, only or JOBS)]
    with tempfile.TemporaryDirectory(prefix="signalbox-rewiring-") as scratch:
        of_jobs, ms, changed, cut = _run(asked, wirings, change, cuts, Path(scratch))
    judged = targets(of_jobs, changed)
    times = change_times(ms)
    found: dict[str, Any] = {
        **asdict(SIZE),
        "divisor": DIVISOR,
        "load_before": load,
        "seconds": time.time() - began,
        "jobs": [job.data() for job in of_jobs],
        "circuit_changes": times,
        "change": asdict(changed) if changed else None,
        "cuts": [each._asdict() for each in cut],
        "targets": [target._asdict() for target in judged],
    }
    tables = {each["job"] + " (refused)" * each["refused"]: each["rows"] for each in found["jobs"]}
    changes_found = [found["circuit_changes"], *([found["change"]] if changed else [])]
    tables |= {"changes of circuits": changes_found, "cuts": found["cuts"], "targets": found["targets"]}
    report(found, RESULTS, tables, *missed(judged) or ["all targets are met"])
    if missed(judged):
        raise typer.Exit(1)


def _run(
    asked: Sequence[Measuring], wirings: int, change: int, cuts: int, scratch: Path
) -> tuple[list[OfJob], list[float], Changed | None, list[Cut]]:
    """Measure everything.

    Returns the rows of each job, the milliseconds of the circuit changes for these jobs, the changes beside a
    training job, and the cuts."""
    began = time.time()
    chosen: dict[str, Row] = {}
    random: dict[str, list[Row]] = {}
    others: dict[str, list[Row]] = {each.name: [] for each in asked}
    with circuits(SIZE, scratch) as fabric:
        say(f"{SERVERS} servers at {SIZE.interfaces} optical switches, {SIZE.mbps:g} Mbit/s")
        for each in asked:
            chosen[each.name] = each.chosen(fabric)
            random[each.name] = [each.random(fabric, number) for number in range(1, wirings + 1)]
        ms = [each.ms for each in fabric.changes(began)]
        changed = changes(fabric, change) if change else None
        cut = failures(fabric, cuts) if cuts else []
    with one_switch(SIZE) as lab:
        for each in asked:
            found = train_alone(lab, each.elsewhere, f"{each.name}-switch", scratch, ITERATIONS)
            others[each.name].append(each.other(SWITCH, each.answer.other.other_s, found))
    with leaves(SIZE, LEAVES, SPINES, scratch / "leaves") as fabric_of_leaves:
        for each in asked:
            modelled_s = on_leaf_spine(each.ways[each.answer.other.name], LEAVES, SPINES, SIZE)
            kinds = ((ECMP, Mode.ECMP), (PLANNED, Mode.PLANNED))
            for (name, mode), time_s in zip(kinds, modelled_s, strict=True):
                trained = fabric_of_leaves.train(each.elsewhere, f"{each.name}-{mode}", ITERATIONS, mode)
                others[each.name].append(each.other(name, time_s, trained))
    rows = [
        OfJob(each.name, each.answer.refused, chosen[each.name], tuple(random[each.name]), tuple(others[each.name]))
        for each in asked
    ]
    return rows, ms, changed, cut
