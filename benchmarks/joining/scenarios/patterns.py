"""Scenario patterns: jobs that turn from one pattern of traffic to another, and announce only the first.

Three jobs, each with one host per leaf, run 40 iterations of DDP, 40 of an all-to-all, and so on. They announce DDP
only, as a program does that joins with its DDP model. The scenario measures how fast each pattern is compared with the
flat switch, whether the alarm ends, and how often flows move.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Any

from benchmarks.joining.mixes import Announced, Mode, spec_of
from benchmarks.joining.scenarios.elephants import layout
from benchmarks.joining.scenarios.rows import Found, Row, Target, worst
from benchmarks.joining.scenarios.stage import Look, Stage, moves
from mininet_topos.joining.jobs import LibraryJob
from mininet_topos.joining.rank import collectives_at

SECONDS = 270.0
TURN = 40
"""Iterations of a pattern before the other pattern begins; fewer in runs that are shorter than ``SECONDS``.

Both patterns together take about 75 s.
"""
FIRST, SECOND = "ddp", "all_to_all"
ELEMENTS = 120_408
ALARM = "demand_differs"

DDP = 1.05


def turn_of(seconds: float) -> int:
    return max(4, round(TURN * seconds / SECONDS))


def pattern(turn: int) -> str:
    return f"{FIRST}*{turn},{SECOND}*{turn}"


def play(stage: Stage, seed: int, seconds: float) -> Iterator[tuple[LibraryJob, Mapping[str, Any]]]:
    turn = turn_of(seconds)
    rings, _ = layout(stage.lab.hosts, seed)
    jobs = [LibraryJob(f"p{seed}-{n}", "gloo", pattern(turn), hosts, ELEMENTS) for n, hosts in enumerate(rings)]
    for job in jobs:
        stage.begin(job, spec_of(replace(job, collective=FIRST), Announced.RIGHT))
    stage.wait(stage.now_s + seconds)
    stage.end_all()
    for job in jobs:
        iterations = stage.iterations_of(job.job_id)
        third_s = iterations[4 * turn][0] if len(iterations) > 4 * turn else None
        yield job, {"alarms_s": alarm_times(job.job_id, stage.looks), "third_s": third_s, "moves": moves(stage.looks)}


def alarm_times(job_id: str, looks: Sequence[Look]) -> list[float]:
    return [look.after_s for look in looks if (ALARM, job_id) in look.alarms]


# ---- verdict


def by_collective(row: Row) -> dict[str, list[float]]:
    """Return the durations of the iterations by pattern, without the very first iteration."""
    found: dict[str, list[float]] = {FIRST: [], SECOND: []}
    for index, (_, took) in enumerate(row.iterations):
        if index:
            found[collectives_at(row.collective, index)[0]].append(took)
    return found


def lines_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a line for each repetition, mode and pattern.

    A line has the iteration times relative to the flat switch: the mean over the jobs, and the worst job. It also
    has the number of alarms that the ``Look``s show from the third period (of 40 + 40 iterations) on."""
    base = {
        (row.seed, row.repeat, row.job, name): median(times)
        for row in rows
        if row.mode == Mode.FLAT
        for name, times in by_collective(row).items()
        if times
    }
    found: dict[tuple[int, int, str, str], list[float]] = {}
    more: dict[tuple[int, int, str], dict[str, Any]] = {}
    for row in rows:
        third_s = row.more["third_s"]
        late = [at_s for at_s in row.more["alarms_s"] if third_s is not None and at_s >= third_s]
        of_run = more.setdefault((row.seed, row.repeat, row.mode), {"moves": row.more["moves"], "alarms": 0})
        of_run["alarms"] = of_run["alarms"] + len(late) if third_s is not None else None
        for name, times in by_collective(row).items():
            if times and (alone_s := base.get((row.seed, row.repeat, row.job, name))):
                found.setdefault((row.seed, row.repeat, row.mode, name), []).append(fmean(times) / alone_s)
    return [
        {
            "mode": mode,
            "seed": str(seed),
            "repeat": str(repeat),
            "pattern": name,
            "mean": fmean(of_jobs),
            "worst_job": max(of_jobs),
            **more[seed, repeat, mode],
        }
        for (seed, repeat, mode, name), of_jobs in sorted(found.items())
    ]


def judge(rows: Sequence[Row]) -> Found:
    lines = lines_of(rows)
    ddp = [line for line in lines if line["pattern"] == FIRST]
    other = [line for line in lines if line["pattern"] == SECOND]
    hashed = [line["mean"] for line in other if line["mode"] == Mode.ECMP]
    targets = [Target("DDP, mean of the jobs", worst(ddp, "mean"), DDP)]
    if hashed:
        targets.append(
            Target("all-to-all, mean of the jobs: at most that under ECMP", worst(other, "mean"), fmean(hashed))
        )
    targets.append(Target("readings of the API with an alarm after the second period", worst(ddp, "alarms"), 0))
    return Found({"Iteration times / those on the flat switch": lines}, targets)
