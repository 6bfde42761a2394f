"""Scenario churn: how much a new job slows down itself and other jobs, until the controller knows its traffic.

Three real jobs (Gloo) run at a time. Each joins by itself with one line of code. Jobs with even numbers join with
``signalbox.torch.join``, which records their traffic; all other jobs announce only their hosts. The seed decides when
jobs begin and end, and on which hosts, equally in all modes.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from benchmarks.joining.mixes import KINDS, MixedJob, Mode
from benchmarks.joining.scenarios.rows import Found, Row, Target, by_mode, ratios, worst
from benchmarks.joining.scenarios.stage import HOSTS, Look, Stage
from mininet_topos.joining.jobs import LibraryJob

SECONDS = 240.0
AT_ONCE = 3
LIFE_S = (15.0, 30.0)
GAP_S = 0.5
SIZES = (3, 4)
REST_S = 8.0
"""Seconds for which a host rests after a job, because jobs end late under ECMP."""
EARLY_S = 3.0
"""Seconds after a new job's first byte in which iterations of other jobs count as "early" (``state_of``)."""
BEING_LEARNT = ("", "learning", "provisional")
RECORDED, OBSERVED = ("--recorded",), ()

MEAN, WORST, KNOWN = 1.12, 1.4, 1.10


class Arrival(NamedTuple):
    at_s: float
    life_s: float
    job: MixedJob
    recorded: bool


def schedule(seed: int, total_s: float) -> list[Arrival]:
    """Return the jobs in the order in which they begin: three at a time until ``total_s``, on disjoint hosts.

    A job takes hosts that have not rested for ``REST_S`` only if too few other hosts are free."""
    chosen = random.Random(seed)
    lives = []
    for slot in range(AT_ONCE):
        at_s = slot * LIFE_S[0] / AT_ONCE
        while at_s < total_s - LIFE_S[0]:
            life_s = min(chosen.uniform(*LIFE_S), total_s - at_s)
            lives.append((at_s, life_s))
            at_s += life_s + GAP_S
    free_at = dict.fromkeys(range(HOSTS), -REST_S)
    found: list[Arrival] = []
    for number, (at_s, life_s) in enumerate(sorted(lives)):
        size = chosen.choice(SIZES)
        order = sorted(free_at, key=lambda host: (max(0.0, free_at[host] + REST_S - at_s), chosen.random()))
        collective, variant, elements = chosen.choice(KINDS["gloo"])
        job_id = f"c{seed}-{number}-{collective.replace('_', '-')}-{size}"
        job = MixedJob(job_id, "gloo", collective, variant, elements, tuple(order[:size]))
        free_at |= dict.fromkeys(job.hosts, at_s + life_s)
        found.append(Arrival(at_s, life_s, job, number % 2 == 0))
    return found


def play(stage: Stage, seed: int, seconds: float) -> Iterator[tuple[LibraryJob, Mapping[str, Any]]]:
    arrivals = schedule(seed, seconds)
    placed = [arrival.job.on(stage.lab.hosts) for arrival in arrivals]
    offset_s = stage.now_s
    coming = list(zip(arrivals, placed, strict=True))
    ends = {job.job_id: offset_s + arrival.at_s + arrival.life_s for arrival, job in coming}
    for now in stage.until(offset_s + seconds):
        while coming and coming[0][0].at_s + offset_s <= now:
            arrival, job = coming.pop(0)
            stage.begin(job, join=RECORDED if arrival.recorded else OBSERVED)
        for live in stage.jobs.values():
            if not live.asked_to_end and ends[live.job_id] <= now:
                stage.ask_to_end(live.job_id)
    stage.end_all()
    lives = {job.job_id: life_of(job.job_id, stage) for job in placed}
    for job in placed:
        others = [life for other, life in lives.items() if other != job.job_id]
        iterations = stage.iterations_of(job.job_id)
        states = [state_of(begin, begin + took, lives[job.job_id], others) for begin, took, _ in iterations]
        yield job, {"states": states if stage.planned else [], **lives[job.job_id]._asdict()}


# ---- states


class Life(NamedTuple):
    """Times of one job. ``known_s``: time at which the controller knew its traffic; None if it never did."""

    first_byte_s: float
    known_s: float | None
    end_s: float

    @property
    def learnt_until_s(self) -> float:
        return self.end_s if self.known_s is None else self.known_s


def life_of(job_id: str, stage: Stage) -> Life:
    iterations = stage.iterations_of(job_id)
    if not iterations:
        return Life(stage.now_s, None, stage.now_s)
    last = iterations[-1]
    return Life(iterations[0][0], known_s(job_id, stage.looks), last[0] + last[1])


def known_s(job_id: str, looks: Sequence[Look]) -> float | None:
    """Return the time of the first ``Look`` in which the job is planned with announced or counted bytes."""
    of_job = ((look.after_s, look.jobs[job_id].source) for look in looks if job_id in look.jobs)
    return next((after_s for after_s, source in of_job if source not in BEING_LEARNT), None)


def state_of(begin: float, end: float, own: Life, others: Sequence[Life]) -> str:
    """Return how much of the traffic the controller knows during an iteration; the first match counts.

    - ``itself``: the controller still learns the traffic of the iteration's own job.
    - ``early``: another job sent its first byte less than ``EARLY_S`` before the iteration, or during it.
    - ``late``: another job sent its first byte earlier, and the controller still learns the traffic of this job.
    - ``quiet``: the controller knows the traffic of all jobs."""
    if own.known_s is None or begin < own.known_s:
        return "itself"
    if any(other.first_byte_s < end and begin < other.first_byte_s + EARLY_S for other in others):
        return "early"
    if any(other.first_byte_s + EARLY_S <= begin < other.learnt_until_s for other in others):
        return "late"
    return "quiet"


# ---- verdict


def by_state(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a line for each repetition and state.

    ``worst_job``: mean ratio of the worst job. ``above``: share of iterations with a ratio above ``KNOWN``."""
    found: dict[tuple[int, int, str], dict[str, list[float]]] = {}
    for row, over in ratios(rows):
        if row.mode == Mode.PLANNED:
            for state, ratio in zip(row.more["states"][1:], over, strict=True):
                found.setdefault((row.seed, row.repeat, state), {}).setdefault(row.job, []).append(ratio)
    lines = []
    for (seed, repeat, state), jobs in sorted(found.items()):
        every = [ratio for of_job in jobs.values() for ratio in of_job]
        lines.append(
            {
                "state": state,
                "seed": str(seed),
                "repeat": str(repeat),
                "jobs": len(jobs),
                "iterations": len(every),
                "mean": fmean(every),
                "worst_job": max(map(fmean, jobs.values())),
                "worst_iteration": max(every),
                "above": sum(ratio > KNOWN for ratio in every) / len(every),
            }
        )
    return lines


def known_after(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return, for each way of joining, the seconds from a job's first byte until the controller knew its traffic."""
    lines = []
    planned = [row for row in rows if row.mode == Mode.PLANNED]
    for name, rest in (("recorded", 0), ("observed", 1)):
        mine = [row for row in planned if int(row.job.split("-")[1]) % 2 == rest]
        took = [row.more["known_s"] - row.more["first_byte_s"] for row in mine if row.more["known_s"] is not None]
        if took:
            lines.append(
                {"joined": name, "jobs": len(mine), "known": len(took), "mean_s": fmean(took), "max_s": max(took)}
            )
    return lines


def judge(rows: Sequence[Row]) -> Found:
    modes, states = by_mode(rows), by_state(rows)
    known = [line["worst_job"] for line in states if line["state"] in ("late", "quiet")]
    return Found(
        {
            "Iteration times / those on the flat switch": modes,
            "By what the controller knows": states,
            "Seconds until a job is known": known_after(rows),
        },
        [
            Target("mean of all jobs", worst(modes, "mean"), MEAN),
            Target("worst job", worst(modes, "worst_job"), WORST),
            Target("worst known job, from 3 s after a new job's first byte on", max(known, default=None), KNOWN),
        ],
    )
