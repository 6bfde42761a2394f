"""Two or more jobs on one link that share it fairly, with the waits of ``signalbox.slots``.

The controller's part is that of ``controller.contention``: rhythms from reports, and leads on a circle."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from statistics import fmean

from controller.contention.keeping import leads_s
from controller.contention.rhythm import Rhythm
from controller.planning.plan import Circle, Slot
from signalbox import slots
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId

MAX_WAIT = 0.02


@dataclass
class _Job:
    id: JobId
    compute_s: float
    sending_s: float
    waits: slots.Waits = field(default_factory=slots.Waits)
    rhythm: Rhythm = field(default_factory=Rhythm)
    index: int = 0
    began_at: float = 0.0
    until_s: float = 0.0
    waited_s: float = 0.0
    left_s: float = 0.0
    ends_at: list[float] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Result:
    slowdowns: tuple[float, ...]
    """Mean time of an iteration / its time alone, by job, without the first iterations."""
    waited: tuple[float, ...]
    """Part of the time that each job waited."""
    waits: tuple[tuple[float, ...], ...]
    """Wait at each boundary / time of an iteration alone, by job."""


def simulated(
    jobs: Sequence[tuple[float, float]],
    jitter: float,
    seed: int,
    circle: Circle | None,
    iterations: int = 300,
    answer_s: float = 0.005,
    aligned: bool = False,
    answers: float = math.inf,
) -> Result:
    """Simulate jobs of (compute, communication) seconds until each has done so many iterations.

    - ``jitter``: relative standard deviation of compute times
    - ``circle``: slots of the jobs ``j0``, ``j1`` …; None for no slots
    - ``answer_s``: seconds from the end of an iteration to the answer to its report
    - ``aligned``: whether the jobs begin in their slots; otherwise at random
    - ``answers``: number of reports that the controller answers before it ends"""
    draw = random.Random(seed)
    run = [_Job(JobId(f"j{number}"), *times) for number, times in enumerate(jobs)]
    queue: list[tuple[float, int, str, _Job, object]] = []
    numbers, now, answered = count(), 0.0, 0

    def at(time: float, what: str, job: _Job, value: object = None) -> None:
        heapq.heappush(queue, (time, next(numbers), what, job, value))

    def begin(job: _Job) -> None:
        job.began_at = now
        job.until_s = job.compute_s * max(0.0, draw.gauss(1.0, jitter))
        at(now + job.until_s, "send", job)

    for job in run:
        start_s = (
            circle.slots[job.id][0].start_s if circle and aligned else draw.uniform(0, job.compute_s + job.sending_s)
        )
        if circle:
            job.waits.take_slot(slots.Slot(circle.every_s(job.id), MAX_WAIT * circle.every_s(job.id), 1), 1e-9)
        at(start_s, "begin", job)
    sending: list[_Job] = []
    while min(job.index for job in run) < iterations:
        first = min(sending, key=lambda job: job.left_s, default=None)
        done_at = now + first.left_s * len(sending) if first else float("inf")
        until = min(done_at, queue[0][0] if queue else float("inf"))
        for job in sending:
            job.left_s -= (until - now) / len(sending)
        now = until
        if first and done_at <= now:
            sending.remove(first)
            _end(first, now)
            report = (first.index, first.rhythm)
            at(now + answer_s / 2, "report", first, report)
            first.waits.ended(first.index, first.waited_s)
            first.waits.arrive(now)
            first.index += 1
            at(now, "wait", first)
            continue
        _, _, what, job, value = heapq.heappop(queue)
        match what:
            case "begin":
                begin(job)
            case "send":
                job.left_s = job.sending_s
                sending.append(job)
            case "report":
                assert isinstance(value, tuple)
                index, job.rhythm = value
                rhythms = {each.id: each.rhythm for each in run if each.rhythm.beats}
                if circle and answered < answers:
                    answered += 1
                    at(now + answer_s / 2, "answer", job, (index, leads_s(circle, rhythms).get(job.id, 0.0)))
            case "answer":
                assert isinstance(value, tuple)
                job.waits.grant(*value)
            case "wait":
                left_s = job.waits.left_s(now)
                if left_s > 1e-12:
                    at(now + min(left_s, 1e-3), "wait", job)
                else:
                    job.waited_s = now - job.ends_at[-1]
                    job.waits_s.append(job.waited_s)
                    job.waits.began(job.waited_s)
                    begin(job)
    skipped = iterations // 10
    alone_s = [job.compute_s + job.sending_s for job in run]
    slowdowns = (
        fmean(b - a for a, b in pairwise(job.ends_at[skipped:])) / s for job, s in zip(run, alone_s, strict=True)
    )
    waited = (math.fsum(job.waits_s) / job.ends_at[-1] for job in run)
    waits = (tuple(wait_s / s for wait_s in job.waits_s) for job, s in zip(run, alone_s, strict=True))
    return Result(tuple(slowdowns), tuple(waited), tuple(waits))


def _end(job: _Job, now: float) -> None:
    time = IterationTime(
        job.index, now - job.began_at, now - job.began_at - job.until_s, now, job.until_s, job.waited_s
    )
    job.ends_at.append(now)
    job.rhythm = job.rhythm.and_now([time])


def even_circle(jobs: Sequence[tuple[float, float]], period_s: float | None = None) -> Circle:
    """Return a circle on which the jobs send one after the other."""
    period_s = period_s or sum(jobs[0])
    slots_of, at_s = {}, 0.0
    for number, (_, sending_s) in enumerate(jobs):
        slots_of[JobId(f"j{number}")] = (Slot(at_s % period_s, sending_s),)
        at_s += sending_s
    return Circle(period_s, slots_of, dict.fromkeys(slots_of, 1))
