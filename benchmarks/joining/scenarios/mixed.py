"""Scenarios mixes and mixes-mpi: random mixes of jobs of Gloo or of Open MPI, as many as fit on the hosts.

Under ECMP the jobs begin and end ``DRAWS`` times. Each time they open new connections, which is one draw of the hash.
When planned, the jobs are announced once with the collectives that they request from their library, and once only with
their hosts. A mean iteration is divided by the same job's median on the flat switch and by the reported slowdown; the
result is 1 if the slowdown is exact.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Any

from benchmarks.joining.mixes import Announced, Mode, mix, spec_of
from benchmarks.joining.scenarios.rows import Found, Row, Target
from benchmarks.joining.scenarios.stage import HOSTS, Stage
from mininet_topos.joining.jobs import Library, LibraryJob
from mininet_topos.joining.launch import missing
from signalbox.errors import SignalboxError

SECONDS = 20.0
"""Seconds of a draw, or of another batch of jobs."""
WARM_S = 30.0
"""Seconds for which planned jobs train before their iterations count; three planning cycles pass in this time."""
REST_S = 7.0
"""Seconds between planned batches; after them, no average of counters contains the previous batch any more."""
DRAWS = 20
MEAN = 1.07

Batch = tuple[str, Announced]
BATCHES: Mapping[Mode, Sequence[Batch]] = {
    Mode.FLAT: [("flat", Announced.RIGHT)],
    Mode.ECMP: [(f"draw{number}", Announced.RIGHT) for number in range(DRAWS)],
    Mode.PLANNED: [(announced.value, announced) for announced in (Announced.RIGHT, Announced.OBSERVED)],
}


def play(stage: Stage, seed: int, seconds: float, library: Library) -> Iterator[tuple[LibraryJob, Mapping[str, Any]]]:
    if library in missing():
        raise SignalboxError(missing()[library])
    placed = [job.on(stage.lab.hosts) for job in mix(seed, library, HOSTS)]
    for batch, announced in BATCHES[stage.mode]:
        jobs = [replace(job, job_id=f"{job.job_id}-{batch}") for job in placed]
        for job in jobs:
            stage.begin(job, spec_of(job, announced))
        stage.wait_for_training()  # a busy machine starts ranks of MPI, which poll with low priority, in a minute
        stage.wait(stage.now_s + WARM_S * stage.planned)
        from_s = stage.now_s
        stage.wait(from_s + seconds)
        shown = stage.looks[-1].jobs if stage.looks else {}
        stage.end_all()
        for job, of in zip(jobs, placed, strict=True):
            slowdown = shown[job.job_id].slowdown if job.job_id in shown else None
            yield job, {"of": of.job_id, "announced": announced, "from_s": from_s, "slowdown": slowdown}
        stage.wait(stage.now_s + REST_S * stage.planned)


# ---- verdict


def times(row: Row) -> list[float]:
    """Return the durations of the iterations that began after the warm-up, without the first."""
    return [took for begin, took in row.settled if begin >= row.more["from_s"]]


def lines_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a line for each job, mode and announcement, over all draws; times are relative to the flat switch."""
    flat = {
        (row.seed, row.repeat, row.more["of"]): median(took)
        for row in rows
        if row.mode == Mode.FLAT and (took := times(row))
    }
    found: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for row in rows:
        alone_s = flat.get((row.seed, row.repeat, row.more["of"]))
        if alone_s and (took := times(row)):
            key = row.mode, row.more["announced"], row.seed, row.repeat, row.more["of"]
            found.setdefault(key, []).append((fmean(took) / alone_s, row.more["slowdown"] or 1.0))
    return [
        {
            "mode": mode,
            "announced": announced,
            "seed": str(seed),
            "repeat": str(repeat),
            "job": job,
            "draws": len(draws),
            "mean": fmean(ratio for ratio, _ in draws),
            "worst": max(ratio for ratio, _ in draws),
            "slowdown": draws[-1][1],
            "mean / slowdown": fmean(ratio / slowdown for ratio, slowdown in draws),
        }
        for (mode, announced, seed, repeat, job), draws in sorted(found.items())
    ]


def totals(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for line in lines:
        found.setdefault((line["mode"], line["announced"]), []).append(line)
    return [
        {
            "mode": mode,
            "announced": announced,
            "jobs": len(of),
            "mean": fmean(line["mean"] for line in of),
            "worst": max(line["worst"] for line in of),
            "mean / slowdown": fmean(line["mean / slowdown"] for line in of),
            "worst job / slowdown": max(line["mean / slowdown"] for line in of),
        }
        for (mode, announced), of in found.items()
    ]


def judge(rows: Sequence[Row]) -> Found:
    lines = lines_of(rows)
    over_all = totals(lines)
    planned = [line["mean / slowdown"] for line in over_all if line["mode"] == Mode.PLANNED]
    return Found(
        {"Iteration times / those on the flat switch": lines, "All jobs": over_all},
        [Target("planned jobs, mean / slowdown", max(planned, default=None), MEAN)],
    )
