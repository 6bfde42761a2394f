"""Benchmark ``contention-lab``: jobs that share the uplinks of an emulated fabric, with real collectives over TCP.

    sudo scripts/openvswitch.sh run .venv/bin/python -m benchmarks contention-lab [--iterations N] [--repetitions N]

Each scenario has jobs of two ranks on oversubscribed leaves (2:1): every leaf has two hosts and one uplink. It runs in
several ways (``Way``), with the same computing times in each: alone, in the worst alignment, as today, and shared by
the configured slots and classes. Alone means on a fabric with a spine for each job.

The result is a table, and ``contention.json``: the mean time of an iteration relative to alone, with the 95 % interval
of the repetitions. A run whose figures are in ``--out`` is not repeated, so the benchmark continues where it was
interrupted. The exit status is 1 when a target in ``broken`` is missed.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any, NamedTuple

import typer

from benchmarks.measures import Row, report
from mininet_topos.controller_process import Settings
from mininet_topos.demo.parts import Training, TrainingJob
from mininet_topos.demo.report import ideal_ring_iteration_s
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import wait_for
from mininet_topos.lab.running_fabric import running_fabric
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.probe.queues import FLOOR, large_socket_buffers, lengthen_queues, sort_by_class
from mininet_topos.trainer.log import read_rank_logs
from signalbox.client import Client
from signalbox.mapping import seconds, word_in

MBPS = 2.5
RANKS = 2
DSCP = (10, 18, 26)
START_S = 25.0
"""Seconds for the ranks to start and for the jobs to be pinned, before the first iteration."""
POLL_S = 0.5
QUEUE_S = 0.15
"""Length of the queues in seconds of a link's rate: the windows of both jobs fit, so sharing drops no packets.

A retransmission time-out would take as long as several waits for a slot."""
FIGURES = "figures.json"
ALIGNED = 60
"""Number of iterations in the worst alignment. Its iterations differ little from each other."""
PAUSE = 1.15
"""Time from one start to the next in the worst alignment, relative to an iteration with half of the uplink."""
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""97.5 % point of Student's t for each number of repetitions."""
MOST_SHARED, LEAST_GAIN, MOST_FIRST = 1.05, 1.4, 1.03


class Way(StrEnum):
    """Way in which the jobs of a scenario run.

    ``WORST``: steady jobs on today's routes, whose iterations always begin together. ``TODAY``: begun at random times,
    without slots and classes. ``SHARED``: with the controller's slots and classes."""

    ALONE = "alone"
    WORST = "worst"
    TODAY = "today"
    SHARED = "shared"


SETTLING = {Way.ALONE: 20, Way.WORST: 1, Way.TODAY: 20, Way.SHARED: 30}
"""First iterations that are left out: the controller measures the jobs, plans them, and aligns them."""


class LabJob(NamedTuple):
    """Job of two ranks. ``leaves``: leaf of each rank. ``communication_s``: ideal time of its all-reduce."""

    name: str
    leaves: tuple[int, int]
    compute_s: float
    communication_s: float

    @property
    def iteration_s(self) -> float:
        return self.compute_s + self.communication_s

    @property
    def elements(self) -> int:
        return round(self.communication_s / ideal_ring_iteration_s(RANKS, 1, MBPS * 1e6))


@dataclass(frozen=True)
class Scenario:
    """Jobs on a fabric with one spine. ``classes``: number of classes, or 0. ``max_wait``: as in the configuration."""

    name: str
    jobs: tuple[LabJob, ...]
    jitter: float
    classes: int = 0
    ways: tuple[Way, ...] = tuple(Way)
    max_wait: float = 0.02

    @property
    def leaves(self) -> int:
        return max(leaf for job in self.jobs for leaf in job.leaves)

    @property
    def contention(self) -> Settings:
        slots = {"slots": True, "max_wait": self.max_wait}
        return {"contention": {**slots, "classes": self.classes, "floor": FLOOR, "dscp": list(DSCP)}}


def half_duty(jitter: float, *ways: Way) -> Scenario:
    jobs = tuple(LabJob(name, (1, 2), 1.2, 1.2) for name in ("first", "second"))
    return Scenario(f"two jobs, jitter {jitter:.0%}", jobs, jitter, ways=ways or tuple(Way))


def loop_of_three(part: str, compute_s: float, communication_s: float) -> Scenario:
    """Return three jobs that share three uplinks in pairs. If each sends a third of the time, their slots have no gaps.

    CASSINI excludes such loops."""
    leaves = enumerate([(1, 2), (2, 3), (3, 1)], 1)
    jobs = tuple(LabJob(f"job{n}", of, compute_s, communication_s) for n, of in leaves)
    return Scenario(f"loop of three, which send {part} of the time", jobs, 0.05)


SCENARIOS = {
    "two": half_duty(0.05),
    "loop": loop_of_three("a third", 1.6, 0.8),
    "loose": loop_of_three("a quarter", 1.8, 0.6),
    "classes": Scenario(
        "two classes",
        (LabJob("high", (1, 2), 0.9, 0.3), LabJob("low", (1, 2), 0.2, 0.8)),
        0.05,
        2,
        (Way.ALONE, Way.TODAY, Way.SHARED),
    ),
    "jitter": half_duty(0.10, Way.ALONE, Way.TODAY, Way.SHARED),
}


# ---- one run


def run(scenario: Scenario, way: Way, iterations: int, seed: int, folder: Path) -> dict[str, Any]:
    """Return the mean times of a run, by job. The run ends when every job has done its iterations.

    Raises ``LabError`` when a job is not pinned or ends too late, and ``DemoError`` when a rank fails."""
    spines = len(scenario.jobs) if way is Way.ALONE else 1
    settings = scenario.contention if way is Way.SHARED else {}
    count = (ALIGNED if way is Way.WORST else iterations) + SETTLING[way]
    topo = LeafSpine(scenario.leaves, spines, 2, MBPS, MBPS, prefix="ct")
    with ExitStack() as stack:
        lab, controller, client = stack.enter_context(running_fabric(topo, folder, MBPS, settings))
        if way is Way.SHARED and scenario.classes:
            sort_by_class(lab, DSCP[: scenario.classes], queue_s=QUEUE_S)
        else:
            lengthen_queues(lab, QUEUE_S)
        raw = folder / "raw"
        raw.mkdir()
        jobs = training_jobs(lab, scenario, way, seed)
        training = Training(lab, jobs, 1, controller.address, folder / "ports", raw)
        training.launch()
        wait_for(lambda: _are_pinned(client, jobs), "every job to be pinned", START_S, POLL_S)
        longest_s = 4 * count * max(job.iteration_s for job in scenario.jobs)
        wait_for(lambda: have_done(training, count), f"{count} iterations", START_S + longest_s, POLL_S)
        timings = {job.spec.job_id: job.timing for job in client.list_jobs() if job.HasField("timing")}
        training.stop()
        return {job: {**of, **slot_figures(timings.get(job))} for job, of in figures(raw, way).items()}


def training_jobs(lab: Lab, scenario: Scenario, way: Way, seed: int, start_s: float = START_S) -> list[TrainingJob]:
    """Return the jobs of a run, which begin ``start_s`` seconds from now or up to one iteration later.

    Seeds differ in the computing times, and in the times when jobs begin."""
    free = {f"leaf{leaf}": iter([host for host in lab.hosts if host.leaf == f"leaf{leaf}"]) for leaf in range(1, 4)}
    chance, begin_at = random.Random(seed), time.monotonic() + start_s
    found = []
    for job in scenario.jobs:
        late_s = 0.0 if way is Way.WORST else chance.uniform(0.0, job.iteration_s)
        options = {
            "--elements": job.elements,
            "--compute-s": job.compute_s,
            "--jitter": 0.0 if way is Way.WORST else scenario.jitter,
            "--seed": seed,
            "--begin-at": begin_at + late_s,
            "--every-s": PAUSE * max(_halved_s(each) for each in scenario.jobs) if way is Way.WORST else 0.0,
        }
        hosts = tuple(next(free[f"leaf{leaf}"]) for leaf in job.leaves)
        found.append(TrainingJob(job.name, hosts, options=options))
    return found


def _halved_s(job: LabJob) -> float:
    return job.compute_s + 2 * job.communication_s


def _are_pinned(client: Client, jobs: Sequence[TrainingJob]) -> bool:
    states = {job.spec.job_id: word_in(job, "state") for job in client.list_jobs()}
    return states == {job.job_id: "pinned" for job in jobs}


def have_done(training: Training, count: int) -> bool:
    training.read_new_lines()
    return all(done >= count for done, _ in training.latest().values())


def figures(raw: Path, way: Way) -> dict[str, Any]:
    """Return the means over the iterations of each job that ended while all jobs were training."""
    logs = [log for log in read_rank_logs(raw) if log.rank == 0]
    until = min(log.iterations[-1].end for log in logs)
    found = {}
    for log in logs:
        counted = [each for each in log.iterations[SETTLING[way] :] if each.end <= until]
        found[log.job_id] = {
            "iterations": len(counted),
            "iteration_s": fmean(each.duration_s for each in counted),
            "communication_s": fmean(each.communication_s for each in counted),
            "right": all(each.ok for each in log.iterations),
        }
    return found


def slot_figures(timing: Any) -> dict[str, Any]:
    """Return what the controller says about the slot of a job at the end; empty without slots."""
    if timing is None:
        return {}
    return {
        "state": word_in(timing, "state"),
        "reason": timing.reason,
        "waited_s": seconds(timing.waited),
        "drift_s": seconds(timing.drift),
        "jitter": round(timing.jitter, 3),
    }


def run_and_keep(scenario: Scenario, way: Way, iterations: int, seed: int, out: Path) -> dict[str, Any]:
    """Return the figures of a run, and write them and its logs to ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="signalbox-ct-") as name:
        folder = Path(name)
        try:
            found = run(scenario, way, iterations, seed, folder)
        finally:
            for file in [*folder.glob("raw/*"), *folder.glob("*.log")]:
                shutil.copy(file, out)
    (out / FIGURES).write_text(json.dumps(found))
    return found


def done_before(out: Path) -> dict[str, Any] | None:
    """Return the figures of an earlier run that ``out`` has."""
    file = out / FIGURES
    return dict(json.loads(file.read_text())) if file.exists() else None


# ---- the result


def rows_of(runs: Mapping[str, Mapping[Way, Sequence[Mapping[str, Any]]]]) -> Iterator[Row]:
    """Yield a row for each job and way: seconds, and the ratio to alone with its interval."""
    for name, of_ways in runs.items():
        for way, repetitions in of_ways.items():
            for job in SCENARIOS[name].jobs:
                times = [each[job.name]["iteration_s"] for each in repetitions]
                ratio, half = interval(_ratios(of_ways, way, job.name))
                yield {
                    "scenario": SCENARIOS[name].name,
                    "way": way.value,
                    "job": job.name,
                    "iterations": sum(each[job.name]["iterations"] for each in repetitions),
                    "iteration s": round(fmean(times), 3),
                    "communication s": round(fmean(each[job.name]["communication_s"] for each in repetitions), 3),
                    "/ alone": round(ratio, 3),
                    "±": round(half, 3),
                }


def _ratios(of_ways: Mapping[Way, Sequence[Mapping[str, Any]]], way: Way, job: str) -> list[float]:
    both = zip(of_ways[way], of_ways[Way.ALONE], strict=True)
    return [each[job]["iteration_s"] / alone[job]["iteration_s"] for each, alone in both]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half of its 95 % interval, which is infinite for a single value."""
    many = len(values) > 1
    return fmean(values), STUDENT[len(values)] * stdev(values) / math.sqrt(len(values)) if many else math.inf


def broken(runs: Mapping[str, Mapping[Way, Sequence[Mapping[str, Any]]]]) -> Iterator[str]:
    """Yield a line for each target that is missed."""
    for name, of_ways in runs.items():
        jobs = SCENARIOS[name].jobs
        if Way.SHARED not in of_ways:
            continue
        ratio = {way: {job.name: fmean(_ratios(of_ways, way, job.name)) for job in jobs} for way in of_ways}
        shared, worst = ratio[Way.SHARED], ratio.get(Way.WORST)
        if not all(job["right"] for repetitions in of_ways.values() for each in repetitions for job in each.values()):
            yield f"{name}: a result of a collective is wrong"
        if worst and max(shared.values()) > MOST_SHARED:
            yield f"{name}: {max(shared.values()):.3f} times as long as alone, more than {MOST_SHARED}"
        if name == "two" and worst and (gain := max(worst.values()) / max(shared.values())) < LEAST_GAIN:
            yield f"{name}: {gain:.3f} times better than the worst alignment, less than {LEAST_GAIN}"
        if name == "jitter" and max(shared.values()) > max(ratio[Way.TODAY].values()):
            yield f"{name}: slower than without slots"
        if name == "classes":
            low = SCENARIOS[name].jobs[1]
            took_s = max(each[low.name]["communication_s"] for each in of_ways[Way.SHARED])
            if shared["high"] > MOST_FIRST:
                yield f"{name}: high takes {shared['high']:.3f} times as long as alone, more than {MOST_FIRST}"
            if took_s > low.communication_s / FLOOR:
                yield f"{name}: low takes {took_s:.2f} s for its communication, which is below its floor"


def main(
    iterations: Annotated[int, typer.Option(min=2, help="Iterations of each job in each run.")] = 300,
    repetitions: Annotated[int, typer.Option(min=1, max=5, help="Number of runs of each way.")] = 3,
    only: Annotated[str, typer.Option(help=f"Scenarios, from {', '.join(SCENARIOS)}.")] = ",".join(SCENARIOS),
    ways: Annotated[str, typer.Option(help="Ways to run besides alone.")] = ",".join(Way),
    max_wait: Annotated[float, typer.Option(help="Longest wait / iteration, after the first one with a slot.")] = 0.02,
    out: Annotated[Path, typer.Option(help="Directory for the results.")] = Path("out/bench/contention-lab"),
) -> None:
    """Run jobs that share uplinks alone, as today, and with slots and classes."""
    runs: dict[str, dict[Way, list[dict[str, Any]]]] = {}
    with large_socket_buffers():
        for repetition in range(1, repetitions + 1):
            for name in only.split(","):
                for way in (way for way in SCENARIOS[name].ways if way in {Way.ALONE, *ways.split(",")}):
                    kept = out / f"{name}-{way}-{repetition}"
                    found = done_before(kept) or run_and_keep(
                        replace(SCENARIOS[name], max_wait=max_wait), way, iterations, repetition, kept
                    )
                    typer.echo(f"{name}, {way}, run {repetition}: {found}", err=True)
                    runs.setdefault(name, {}).setdefault(way, []).append(found)
    report(runs, out / "contention.json", {"Iterations of jobs that share uplinks": list(rows_of(runs))})
    if lines := list(broken(runs)):
        sys.exit("\n".join(f"error: {line}" for line in lines))
