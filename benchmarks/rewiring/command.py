"""Benchmark ``rewiring``: iteration times on emulated optical switches, against a packet switch.

    sudo scripts/openvswitch.sh run .venv/bin/python -m benchmarks rewiring

Each job trains on the wiring that the controller chooses for it, and on one packet switch of the same cost. The results
are measured and modelled iteration times, and the cost of cut fibres (``cuts``). The exit status is 1 when a target is
missed.
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
from benchmarks.rewiring.cuts import Cut, failures
from benchmarks.rewiring.jobs import JOBS, SERVERS
from controller.circuits.wiring.evaluation import Answer, Way
from mininet_topos.demo.report import Target
from mininet_topos.lab.lab import Lab
from mininet_topos.rewiring.fabrics import Circuits, Trained, circuits, one_switch, one_way, train_alone
from mininet_topos.rewiring.model import (
    Job,
    Size,
    evaluated,
    planned_s,
    scaled,
    ways_of,
)
from mininet_topos.rewiring.report import CHOSEN, SWITCH, Row, as_modelled
from signalbox.errors import InvalidInput

FACTOR = 2.0
"""Target: time on the switch / time on the chosen wiring, at least, for the best job."""


@dataclass(frozen=True, slots=True)
class OfJob:
    name: str
    refused: bool
    """Whether the controller would refuse to wire switches for the job."""
    chosen: Row
    switch: Row

    @property
    def rows(self) -> list[Row]:
        return [self.chosen, self.switch]

    def data(self) -> dict[str, Any]:
        return {"job": self.name, "refused": self.refused, "rows": [row.data() for row in self.rows]}


def targets(jobs: Sequence[OfJob]) -> list[Target]:
    found = [as_modelled(row, f"{job.name}, ") for job in jobs for row in job.rows]
    factors = {job.name: job.switch.measured_s / job.chosen.measured_s for job in jobs}
    best = max(factors.values())
    found.append(Target(f"{SWITCH} / {CHOSEN}, best job", f"{best:.2f}", f">= {FACTOR:g}", best >= FACTOR))
    for job in jobs:
        met = None if job.refused else factors[job.name] >= 1
        figure = f"{factors[job.name]:.2f}" + (" (refused)" if job.refused else "")
        found.append(Target(f"{job.name}, {SWITCH} / {CHOSEN}", figure, ">= 1", met))
    return found


def missed(judged: Sequence[Target]) -> list[str]:
    return [
        f"missed: {each.name} is {each.figure}; the target is {each.target}" for each in judged if each.met is False
    ]


def change_times(ms: Sequence[float]) -> dict[str, Any]:
    """Return the number, median and maximum of ``ms``, the durations of circuit changes. There must be at least one."""
    return {"count": len(ms), "median_ms": median(ms), "max_ms": max(ms)}


RESULTS = Path("out/bench/rewiring.json")
SIZE = Size(SERVERS, 4, 2.0)
DIVISOR = 150.0
"""Divisor of the jobs' bytes."""
ITERATIONS = 3
"""Number of iterations to measure, after a first one that is left out."""

say = Console(stderr=True, highlight=False).print


@dataclass(frozen=True)
class Measuring:
    """Job to measure, with its bytes scaled down.

    ``ways``: parallelizations by name. ``answer``: best wiring for each, and the best time on a switch."""

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

    def on_switch(self, lab: Lab, folder: Path) -> Row:
        """Train the job in the parallelization that is best on a switch, and return the row."""
        other = self.answer.other
        found = train_alone(lab, one_way(self.job, other.name), f"{self.name}-switch", folder, ITERATIONS)
        return self._row(SWITCH, other.name, 1, other.other_s, found)

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
    cuts: Annotated[int, typer.Option(min=0, help="Number of fibre pairs of a job to cut; 0: none.")] = 6,
    only: Annotated[list[str] | None, typer.Option("--job", help="Job to measure.", show_default="all")] = None,
) -> None:
    """Emulate optical switches that are wired for jobs, and compare with a packet switch."""
    load, began = os.getloadavg()[0], time.time()
    asked = [*map(measuring, only or JOBS)]
    with tempfile.TemporaryDirectory(prefix="signalbox-rewiring-") as scratch:
        of_jobs, ms, cut = _run(asked, cuts, Path(scratch))
    judged = targets(of_jobs)
    found: dict[str, Any] = {
        **asdict(SIZE),
        "divisor": DIVISOR,
        "load_before": load,
        "seconds": time.time() - began,
        "jobs": [job.data() for job in of_jobs],
        "circuit_changes": change_times(ms),
        "cuts": [each._asdict() for each in cut],
        "targets": [target._asdict() for target in judged],
    }
    tables = {each["job"] + " (refused)" * each["refused"]: each["rows"] for each in found["jobs"]}
    tables |= {"changes of circuits": [found["circuit_changes"]], "cuts": found["cuts"], "targets": found["targets"]}
    report(found, RESULTS, tables, *missed(judged) or ["all targets are met"])
    if missed(judged):
        raise typer.Exit(1)


def _run(asked: Sequence[Measuring], cuts: int, scratch: Path) -> tuple[list[OfJob], list[float], list[Cut]]:
    """Measure everything.

    Returns the rows of each job, the milliseconds of the circuit changes for these jobs, and the cuts."""
    began = time.time()
    with circuits(SIZE, scratch) as fabric:
        say(f"{SERVERS} servers at {SIZE.interfaces} optical switches, {SIZE.mbps:g} Mbit/s")
        chosen = [each.chosen(fabric) for each in asked]
        ms = [each.ms for each in fabric.changes(began)]
        cut = failures(fabric, cuts) if cuts else []
    with one_switch(SIZE) as lab:
        switch = [each.on_switch(lab, scratch) for each in asked]
    rows = [OfJob(each.name, each.answer.refused, *of) for each, *of in zip(asked, chosen, switch, strict=True)]
    return rows, ms, cut
