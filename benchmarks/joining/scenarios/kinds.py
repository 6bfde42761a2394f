"""Scenario kinds: false alarms about nine kinds of jobs, and the time until wrong announcements stop doing harm.

Three jobs run at a time, each with one host per leaf: first three batches of three different kinds, announced rightly;
then four batches of rings, all announced wrongly in the same way. For right announcements the scenario counts alarms.
For wrong announcements it measures the time until the jobs run as fast as on the flat switch, and the time until
``explain`` names the error of the first job.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from benchmarks.joining.mixes import FACTORS, LEASE_S, Announced, Mode, spec_of
from benchmarks.joining.scenarios.churn import RECORDED
from benchmarks.joining.scenarios.elephants import layout
from benchmarks.joining.scenarios.patterns import alarm_times
from benchmarks.joining.scenarios.rows import Found, Row, Target, by_mode, with_flat_s, worst
from benchmarks.joining.scenarios.stage import Look, Stage, moves
from mininet_topos.joining.jobs import Library, LibraryJob
from mininet_topos.trainer.training import announcement
from offline.scenarios.topologies import Host
from signalbox.jobs.spec import Algorithm, JobSpec

SECONDS = 300.0
WRONG_S = 40.0
BASE_S = 20.0
"""Seconds of a batch on the flat switch and under ECMP; there, only iteration times are measured."""
REST_S = 7.0
"""Seconds between batches; after them, no average of counters contains the previous batch any more."""
WRONG = (Announced.REVERSED, Announced.HALF, Announced.DOUBLE, Announced.OTHER)

SLOW, SETTLED_S, NAMED_S = 1.10, 5.0, 5.0
IN_A_ROW = 3
FACTOR_OFF = 0.15
"""Largest relative error of the factor, between counted and announced bytes, that ``explain`` may name."""


class Kind(NamedTuple):
    name: str
    library: Library | None
    """Library of the job; None for a job of the trainer, which sends what its spec says."""
    collective: str = ""
    elements: int = 0
    spec: Callable[[str, Sequence[Host]], JobSpec] | None = None
    joins: bool = False
    """Whether the job joins by itself, and records its own traffic."""


def _tree(job_id: str, hosts: Sequence[Host]) -> JobSpec:
    """Return an all-reduce over a binomial tree of four ranks; each transfer has 240 kB."""
    up = [(3, 2, 0), (1, 0, 0), (2, 0, 1)]
    steps = [*up, *((dst, src, 3 - step) for src, dst, step in up)]
    transfers = [{"src": s, "dst": d, "bytes_per_iteration": 240_000, "step": step} for s, d, step in steps]
    endpoints = [host.ip for host in hosts]
    return JobSpec.parse({"job_id": job_id, "endpoints": endpoints, "lease_s": LEASE_S, "transfers": transfers})


def _pipeline(job_id: str, hosts: Sequence[Host]) -> JobSpec:
    return announcement(job_id, [host.ip for host in hosts], Algorithm.PIPELINE_SEND, 640_000, LEASE_S)


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
    """Three jobs that run together, all announced in the same way."""

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
        with ExitStack() as stack:
            asked = stage.planned and batch.announced is not Announced.RIGHT
            answers = stack.enter_context(stage.explained(jobs[0].job_id)) if asked else []
            stage.wait(stage.now_s + (length if stage.planned else min(length, BASE_S)))
        looks = stage.looks[seen:]
        stage.end_all()
        named = (round(came_s - began_s, 1) for came_s, answer in answers if names(batch.announced, answer))
        for job in jobs:
            of_first = {"asked": asked, "named_s": next(named, None)} if job is jobs[0] else {"asked": False}
            yield (
                job,
                {"announced": batch.announced, "moves": moves(looks), **figures_of(job, looks, began_s), **of_first},
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


# ---- what the controller reported


def figures_of(job: LibraryJob, looks: Sequence[Look], began_s: float) -> dict[str, Any]:
    """Return what the controller reported about a job; times are seconds after the job began.

    The figures are the time of the first counters, the time of the first difference, the number of ``Look``s with an
    alarm, and the text of the first alarm."""
    of_job = [look for look in looks if job.job_id in look.jobs]

    def first(holds: Callable[[Look], bool]) -> float | None:
        return next((round(look.after_s - began_s, 1) for look in of_job if holds(look)), None)

    alarms = alarm_times(job.job_id, looks)
    texts = [look.alarms["demand_differs", job.job_id] for look in looks if look.after_s in alarms[:1]]
    return {
        "counted_s": first(lambda look: look.jobs[job.job_id].counted),
        "differs_s": first(lambda look: bool(look.jobs[job.job_id].difference)),
        "alarms": len(alarms),
        "alarm_text": texts[0] if texts else "",
    }


def names(announced: Announced, answer: str) -> bool:
    """Return whether an answer of ``explain`` names the error of the announcement.

    Reversed ranks must be named by the direction, half or double bytes by their factor."""
    if not re.search(r"announcement of job '\S+' is wrong", answer):
        return False
    if announced is Announced.REVERSED:
        return "other direction" in answer
    if announced in FACTORS:
        said = re.search(r"([\d.]+) times what was announced", answer)
        return said is not None and abs(float(said[1]) * FACTORS[announced] - 1) <= FACTOR_OFF
    return True


# ---- verdict


def lines_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a line for each planned job. ``slow_until_s``: see ``settled_after``."""
    lines = []
    for row, alone_s in with_flat_s(rows):
        if row.mode != Mode.PLANNED:
            continue
        counted, named = row.more["counted_s"], row.more.get("named_s")
        lines.append(
            {
                "mode": row.mode,
                "announced": row.more["announced"],
                "repeat": str(row.repeat),
                "job": row.job,
                "minutes": row.seconds / 60,
                "alarms": row.more["alarms"],
                "slow_until_s": settled_after(row.iterations, SLOW * alone_s),
                "difference_s": row.more["differs_s"],
                "named_s": named,
                "s_from_counters_until_named": named - counted if named is not None and counted is not None else None,
                "explain_asked": "yes" if row.more["asked"] else "",
            }
        )
    return lines


def settled_after(iterations: Sequence[Sequence[float]], slow_s: float) -> float | None:
    """Return the seconds from the first byte until ``IN_A_ROW`` iterations began that took at most ``slow_s`` each.

    Return None if there was no such time. The first iteration, in which libraries connect, does not count."""
    after = iterations[1:]
    for at in range(len(after) - IN_A_ROW + 1):
        if all(took <= slow_s for _, took in after[at : at + IN_A_ROW]):
            return after[at][0] - iterations[0][0]
    return None


def judge(rows: Sequence[Row]) -> Found:
    lines = lines_of(rows)
    right = [line for line in lines if line["announced"] == Announced.RIGHT]
    wrong = [line for line in lines if line["announced"] != Announced.RIGHT]
    settled = None if any(line["slow_until_s"] is None for line in wrong) else worst(wrong, "slow_until_s")
    asked = [line for line in wrong if line["explain_asked"]]
    unnamed = any(line["s_from_counters_until_named"] is None for line in asked)
    named = None if unnamed else worst(asked, "s_from_counters_until_named")
    texts = [{"job": row.job, "alarm": row.more["alarm_text"]} for row in rows if row.more["alarm_text"]]
    of_right = [row for row in rows if row.more["announced"] == Announced.RIGHT]
    return Found(
        {
            "Right: iteration times / those on the flat switch": by_mode(of_right),
            "Announcements": lines,
            "Alarms": texts,
        },
        [
            Target("readings of the API with an alarm about a right announcement", worst(right, "alarms"), 0),
            Target("wrong announcement: seconds until it no longer slows jobs", settled, SETTLED_S),
            Target("wrong announcement: seconds from its counters until explain names it", named, NAMED_S),
        ],
    )
