"""Kinds: nine kinds of jobs announced rightly, and rings announced wrongly in four ways.

Three jobs of one host per leaf at a time: of three kinds, or rings that are all announced wrongly in one way. Right
ones: is there ever an alarm? Wrong ones: when do they run as on the flat switch, when does ``explain`` name what is
wrong? The counters of all are recorded (``polls``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.joining.mixes import FACTORS, spec_of
from benchmarks.joining.results import Announced, Mode
from benchmarks.joining.scenarios.churn import RECORDED
from benchmarks.joining.scenarios.elephants import layout
from benchmarks.joining.scenarios.patterns import alarm_times
from benchmarks.joining.scenarios.polls import Recorder
from benchmarks.joining.scenarios.rows import Found, Row, Target, by_mode, flat_s, worst
from benchmarks.joining.scenarios.stage import Look, Stage, moves
from controller.scenarios.topologies import Host
from mininet_topos.joining.jobs import Library, LibraryJob
from signalbox.jobs.spec import Algorithm, JobSpec

SECONDS = 300.0
WRONG_S = 40.0
BASE_S = 20.0
"""On the flat switch and under ECMP, where only iterations count."""
REST_S = 7.0
"""Or this batch's traffic, still in the counters' mean, would be the next one's background."""
WRONG = (Announced.REVERSED, Announced.HALF, Announced.DOUBLE, Announced.OTHER)

SLOW, SETTLED_S, NAMED_S = 1.10, 5.0, 5.0
FACTOR_OFF = 0.15
"""Of the factor that ``explain`` names."""


class Kind(NamedTuple):
    """``library``: None is the trainer, which sends what the spec says. ``joins``: finds out itself what it sends."""

    name: str
    library: Library | None
    collective: str = ""
    elements: int = 0
    spec: Callable[[str, Sequence[Host]], JobSpec] | None = None
    joins: bool = False


def _tree(job_id: str, hosts: Sequence[Host]) -> JobSpec:
    """An all-reduce of 240 kB up and down a binomial tree of four ranks."""
    up = [(3, 2, 0), (1, 0, 0), (2, 0, 1)]
    steps = [*up, *((dst, src, 3 - step) for src, dst, step in up)]
    transfers = [{"src": s, "dst": d, "bytes_per_iteration": 240_000, "step": step} for s, d, step in steps]
    return JobSpec.parse({"job_id": job_id, "endpoints": [host.ip for host in hosts], "transfers": transfers})


def _pipeline(job_id: str, hosts: Sequence[Host]) -> JobSpec:
    collective = {"algorithm": Algorithm.PIPELINE_SEND, "groups": ["all"], "bytes_per_iteration": 640_000}
    groups = [{"name": "all", "ranks": tuple(range(len(hosts)))}]
    endpoints = [host.ip for host in hosts]
    return JobSpec.parse({"job_id": job_id, "endpoints": endpoints, "groups": groups, "collectives": [collective]})


KINDS = (
    Kind("ring", "gloo", "all_reduce", 120_120),
    Kind("tree", None, spec=_tree),
    Kind("halving-doubling", "open-mpi", "all_reduce", 96_000),
    Kind("all-to-all", "gloo", "all_to_all", 240_240),
    Kind("pipeline", None, spec=_pipeline),
    Kind("broadcast", "gloo", "broadcast", 80_080),
    Kind("ddp", "gloo", "ddp", 120_408),
    Kind("fsdp", "gloo", "fsdp", 60_024, joins=True),
    Kind("reduce-scatter-all-gather", "gloo", "reduce_scatter+all_gather", 60_060),
)
RING = KINDS[0]


class Batch(NamedTuple):
    """``announced``: of all three jobs."""

    kinds: Sequence[Kind]
    announced: Announced


BATCHES = (
    *(Batch(KINDS[at : at + 3], Announced.RIGHT) for at in range(0, len(KINDS), 3)),
    *(Batch((RING, RING, RING), announced) for announced in WRONG),
)


def play(stage: Stage, seed: int, seconds: float) -> Iterator[tuple[LibraryJob, Mapping[str, Any]]]:
    rings, _ = layout(stage.lab.hosts, seed)
    for batch in BATCHES:
        length = seconds if batch.announced is Announced.RIGHT else min(seconds, WRONG_S)
        began_s, seen = stage.now_s, len(stage.looks)
        jobs = [_begin(stage, batch, number, hosts) for number, hosts in enumerate(rings)]
        stage.explain = {job.job_id for job in jobs}
        stage.recorder = Recorder(stage.lab) if stage.planned else None
        stage.wait(stage.now_s + (length if stage.planned else min(length, BASE_S)))
        if stage.recorder:
            for job in jobs:
                stage.write_polls(job.job_id, stage.folder / "polls" / f"{job.job_id}.json")
        stage.explain = set()  # some leave by themselves
        stage.end_all()
        looks = stage.looks[seen:]
        for job in jobs:
            yield (
                job,
                {"announced": batch.announced, "moves": moves(looks), **said(job, batch.announced, looks, began_s)},
            )
        stage.wait(stage.now_s + (REST_S if stage.planned else 0.0))


def _begin(stage: Stage, batch: Batch, number: int, hosts: tuple[Host, ...]) -> LibraryJob:
    kind = batch.kinds[number]
    right = batch.announced is Announced.RIGHT
    job_id = f"k-{kind.name}" if right else f"k-{batch.announced}-{number}"
    if kind.spec:
        stage.begin_whole(kind.spec(job_id, hosts))
        return LibraryJob(job_id, "gloo", kind.name, hosts, 0)
    assert kind.library
    job = LibraryJob(job_id, kind.library, kind.collective, hosts, kind.elements)
    if kind.joins:
        stage.begin(job, join=RECORDED)
    else:
        stage.begin(job, spec_of(job, batch.announced))
    return job


# ---- what was said


def said(job: LibraryJob, announced: Announced, looks: Sequence[Look], began_s: float) -> dict[str, Any]:
    """When, in seconds after the job began: its counters are there, its difference, ``explain`` names it; and how many
    looks had an alarm, with the first text."""
    of_job = [look for look in looks if job.job_id in look.jobs]

    def first(holds: Callable[[Look], bool]) -> float | None:
        return next((round(look.after_s - began_s, 1) for look in of_job if holds(look)), None)

    alarms = alarm_times(job.job_id, looks)
    texts = [look.alarms["demand_differs", job.job_id] for look in looks if look.after_s in alarms[:1]]
    return {
        "counted_s": first(lambda look: look.jobs[job.job_id].counted),
        "differs_s": first(lambda look: bool(look.jobs[job.job_id].difference)),
        "named_s": first(lambda look: names(announced, look.explained.get(job.job_id, ""))),
        "alarms": len(alarms),
        "alarm_text": texts[0] if texts else "",
    }


def names(announced: Announced, answer: str) -> bool:
    """Whether the answer of ``explain`` says that the announcement is wrong; of reversed ranks also that the direction
    is, of half or double the bytes by what factor."""
    if not re.search(r"announcement of \S+ is wrong", answer):
        return False
    if announced is Announced.REVERSED:
        return "other direction" in answer
    if announced in FACTORS:
        said = re.search(r"([\d.]+) times what was announced", answer)
        return said is not None and abs(float(said[1]) * FACTORS[announced] - 1) <= FACTOR_OFF
    return True


# ---- verdict


def lines_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """``settled_s``: the end of the last iteration above 1.10 of the flat switch, after the first began."""
    base = flat_s(rows)
    lines = []
    for row in rows:
        alone_s = base.get((row.seed, row.repeat, row.seconds, row.job))
        if row.mode != Mode.PLANNED or not alone_s:
            continue
        first = row.iterations[0][0]
        slow = [begin + took - first for begin, took in row.settled if took > SLOW * alone_s]
        counted, named = row.more["counted_s"], row.more["named_s"]
        lines.append(
            {
                "mode": row.mode,
                "announced": row.more["announced"],
                "repeat": str(row.repeat),
                "job": row.job,
                "minutes": row.seconds / 60,
                "alarms": row.more["alarms"],
                "settled_s": max(slow, default=0.0),
                "differs_s": row.more["differs_s"],
                "named_s": named,
                "named_after": named - counted if named is not None and counted is not None else None,
            }
        )
    return lines


def judge(rows: Sequence[Row]) -> Found:
    lines = lines_of(rows)
    right = [line for line in lines if line["announced"] == Announced.RIGHT]
    wrong = [line for line in lines if line["announced"] != Announced.RIGHT]
    unnamed = any(line["named_after"] is None for line in wrong)
    named = None if unnamed else worst(wrong, "named_after")
    texts = [{"job": row.job, "alarm": row.more["alarm_text"]} for row in rows if row.more["alarm_text"]]
    of_right = [row for row in rows if row.more["announced"] == Announced.RIGHT]
    return Found(
        {"Right: over the flat switch": by_mode(of_right), "Announcements": lines, "Alarms": texts},
        [
            Target("looks with an alarm about a right announcement", worst(right, "alarms"), 0),
            Target("wrong announcement: seconds until it no longer hurts", worst(wrong, "settled_s"), SETTLED_S),
            Target("wrong announcement: seconds from its counters until explain names it", named, NAMED_S),
        ],
    )
