"""``python -m benchmarks design-lab``: a designed network is emulated, and its jobs run on it and on an equal split.

    sudo .venv/bin/python -m benchmarks design-lab examples/design/network.yaml examples/design/jobs.yaml

In: the files of ``signalbox design bandwidth``. Bandwidths, sizes and times of computing are scaled down, so that all
times of the model are longer by the same factor. Out: measured times beside the model's. The exit status is 1 when
these differ by more than ``TOLERANCE``, the factor between both by more than ``FACTOR_TOLERANCE``, or when a sum was
wrong.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.progress import track

from benchmarks.measures import report, table_of
from mininet_topos.demo.report import ideal_goodput_bps
from mininet_topos.dimensions.cabling import LabStep, lab_steps
from mininet_topos.dimensions.fabric import dimensions
from mininet_topos.dimensions.training import Timing, training
from offline.design.bandwidth import fastest
from offline.design.jobs import designed_jobs, question_of
from offline.design.question import Rates, Term, term_s
from offline.design.shape import Shape, shape_in
from signalbox.commands.output import AsJson
from signalbox.errors import InvalidInput
from signalbox.spec_files import placed

RESULTS = Path("out/bench/design_lab.json")
TOLERANCE = 0.05
FACTOR_TOLERANCE = 0.10
DESIGNED, EQUAL = "designed", "equal split"
MOST_NPUS = 256
"""Each is a network namespace and a process."""

LEAST_MBPS = 0.1
"""A packet takes 0.12 s then."""

PATIENCE = 5.0
"""Times the equal split's iteration, until ranks that do not answer are given up."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """``steps``: as they are asked. A Gbit/s becomes ``mbps``, a byte ``bytes``, a second ``seconds``; ``mbps`` with
    all headers, as ``tc`` counts it."""

    shape: Shape
    gbps: Mapping[str, Rates]
    steps: tuple[LabStep, ...]
    mbps: float
    bytes: float
    seconds: float

    def rates(self, name: str) -> Rates:
        """Mbit/s of an NPU by dimension."""
        return tuple(self.mbps * rate for rate in self.gbps[name])

    def model_s(self, name: str) -> tuple[float, ...]:
        """Of each step."""
        terms = (Term(1.0, each.step.gigabits, each.step.floor_s) for each in self.steps)
        return tuple(self.seconds * term_s(term, self.gbps[name]) for term in terms)

    def total_s(self, steps_s: Sequence[float]) -> float:
        """The time that is made small: the sum over jobs with their weights."""
        return sum(step.weight * time_s for step, time_s in zip(self.steps, steps_s, strict=True))

    def to_run(self) -> list[LabStep]:
        """The steps with sizes and computing as they are emulated."""
        return [
            each._replace(
                size=each.size * self.bytes, step=each.step._replace(floor_s=each.step.floor_s * self.seconds)
            )
            for each in self.steps
        ]


def scaled(network: Path, jobs: Sequence[Path], total_mbps: float, iteration_s: float) -> Scaled:
    """``iteration_s``: of all jobs, one after the other, by the design. Raises ``InvalidInput``."""
    shape, place_of = shape_in(network)
    with placed(place_of):
        if shape.total_gbps is None:
            raise InvalidInput.of("total_gbps", "is missing: what is split")
        if shape.npus > MOST_NPUS:
            raise InvalidInput.of("dimensions", f"make {shape.npus:,} NPUs; at most {MOST_NPUS} are emulated")
    found = [job for (job,) in designed_jobs(jobs, shape)]
    steps = tuple(lab_steps(found, shape))
    best = fastest(question_of(shape, found)).gbps
    equal = (shape.total_gbps / len(best),) * len(best)
    slowest = min(rate for rate in best if rate)
    if slowest * total_mbps / shape.total_gbps < LEAST_MBPS:
        needed = LEAST_MBPS * shape.total_gbps / slowest
        message = f"must be at least {needed:.3g}: a dimension has {slowest:.3g} of {shape.total_gbps:g} Gbit/s"
        raise InvalidInput.of("--total-mbps", f"{message} (given: {total_mbps:g})")
    asked_s = sum(time_s for job in found for time_s in job.step_times_s(best))
    seconds, mbps = iteration_s / asked_s, total_mbps / shape.total_gbps
    carried = ideal_goodput_bps(mbps / 1000)  # of payload, per bit/s asked
    return Scaled(shape, {DESIGNED: best, EQUAL: equal}, steps, mbps, seconds * carried, seconds)


@dataclass(frozen=True, slots=True)
class Measured:
    """``model_s`` and ``measured_s`` are of an iteration, the latter the median; ``steps`` of each step."""

    bandwidths: str
    mbps: Rates
    model_s: float
    measured_s: float
    least_s: float
    most_s: float
    steps: tuple[tuple[float, float], ...]

    @property
    def ratio(self) -> float:
        return self.measured_s / self.model_s


def measured(what: Scaled, name: str, timings: Sequence[Timing]) -> Measured:
    model_s = what.model_s(name)
    totals = [what.total_s(timing.steps_s) for timing in timings]
    steps_s = map(median, zip(*(timing.steps_s for timing in timings), strict=True))
    return Measured(
        name,
        what.rates(name),
        what.total_s(model_s),
        median(totals),
        min(totals),
        max(totals),
        tuple(zip(model_s, steps_s, strict=True)),
    )


def run(what: Scaled, rounds: int, chunks: int) -> dict[str, list[Timing]]:
    """Alternately, so that what else the machine does is shared. Raises ``LabError``."""
    found: dict[str, list[Timing]] = {name: [] for name in what.gbps}
    patience_s = 10 + PATIENCE * sum(what.model_s(EQUAL))
    with dimensions(what.shape) as network, training(network, what.to_run(), chunks, patience_s) as ranks:
        for _ in track(range(rounds), "training", console=Console(stderr=True), transient=True):
            for name, timings in found.items():
                network.set_rates(what.rates(name))
                timings.append(ranks.iterate())
    return found


def misses(rows: Sequence[Measured], timings: Mapping[str, Sequence[Timing]]) -> list[str]:
    """What is outside of the tolerances."""
    found = [f"{row.bandwidths}: measured / model is {row.ratio:.3f}" for row in rows if abs(row.ratio - 1) > TOLERANCE]
    by_name = {row.bandwidths: row for row in rows}
    if abs(by_name[EQUAL].ratio / by_name[DESIGNED].ratio - 1) > FACTOR_TOLERANCE:
        found.append("the factor between both is not the predicted one")
    wrong = sum(not timing.ok for each in timings.values() for timing in each)
    return [*found, f"{wrong} iterations had wrong sums"] if wrong else found


def summary(what: Scaled, rows: Sequence[Measured], missed: Sequence[str]) -> Group:
    names = what.shape.names
    iterations: list[dict[str, str | float]] = [
        {
            "bandwidths": row.bandwidths,
            "Mbit/s of " + " / ".join(names): " / ".join(f"{rate:.2f}" for rate in row.mbps),
            "model (s)": row.model_s,
            "measured (s)": row.measured_s,
            "least to most": f"{row.least_s:.2f} to {row.most_s:.2f}",
            "measured / model": f"{row.ratio:.3f}",
        }
        for row in rows
    ]
    steps = [
        {"job": step.job_id, "all-reduce in": ", ".join(names[d] for d in step.dimensions) or "-"}
        | {f"{row.bandwidths}: model, measured": "{:.2f}, {:.2f}".format(*row.steps[number]) for row in rows}
        for number, step in enumerate(what.steps)
    ]
    factors = [
        f"equal split / designed: {getattr(rows[1], name) / getattr(rows[0], name):.3f} {how}"
        for name, how in (("model_s", "by the model"), ("measured_s", "measured"))
    ]
    return Group(table_of("iterations", iterations), table_of("their steps", steps), *factors, *missed)


def main(
    network: Annotated[Path, typer.Argument(help="The file of a network, with total_gbps.")] = Path(
        "examples/design/network.yaml"
    ),
    jobs: Annotated[list[Path] | None, typer.Argument(help="Files of jobs.", show_default="the example's")] = None,
    total_mbps: Annotated[
        float, typer.Option(min=0.1, max=1e5, help="Mbit/s of an NPU in all dimensions, as emulated.")
    ] = 12.0,
    iteration_s: Annotated[
        float, typer.Option(min=0.1, max=1e4, help="Seconds of all jobs together, as designed.")
    ] = 20.0,
    rounds: Annotated[int, typer.Option(min=1, help="Iterations on each network, alternately.")] = 3,
    chunks: Annotated[int, typer.Option(min=1, max=65535, help="Chunks of an all-reduce, which overlap.")] = 128,
    as_json: AsJson = False,
) -> None:
    """Emulate a designed network and an equal split of the same total, and compare their jobs with the model."""
    what = scaled(network, jobs or [Path("examples/design/jobs.yaml")], total_mbps, iteration_s)
    load = os.getloadavg()[0]
    timings = run(what, rounds, chunks)
    rows = [measured(what, name, each) for name, each in timings.items()]
    missed = misses(rows, timings)
    found = {
        "load_before": load,
        "predicted_factor": rows[1].model_s / rows[0].model_s,
        "measured_factor": rows[1].measured_s / rows[0].measured_s,
        "networks": [asdict(row) for row in rows],
        "iterations_s": {name: [timing.steps_s for timing in each] for name, each in timings.items()},
        "missed": missed,
    }
    report(found, RESULTS, lambda: summary(what, rows, missed), as_json)
    if missed:
        raise typer.Exit(1)
