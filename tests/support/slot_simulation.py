"""Jobs of two ranks that share uplinks, with the control loop, the planner and the waits of ``signalbox.slots``.

Leaves have one uplink each, in a fluid model: jobs that communicate over an uplink share it fairly. Time is a number,
and all runs with equal arguments are equal."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple

from controller.config import Config
from controller.core.messages import Tick
from controller.jobs.messages import RegisterJob, ReportIterations
from controller.status import JobTiming
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId
from signalbox.slots import Slot, Waits
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric
from tests.support.job_specs import job_spec, sends

TICK_S, ANSWER_S = 0.5, 0.01
FRAMED = 1.0795
"""Bytes on the wire / payload bytes of an all-reduce."""


class Shape(NamedTuple):
    """Times of an iteration without other jobs, and the leaves of the ranks."""

    leaves: tuple[int, int]
    compute_s: float
    sending_s: float


HALF = (Shape((1, 2), 0.6, 0.6),) * 2
LOOP = tuple(Shape(leaves, 0.8, 0.4) for leaves in ((1, 2), (2, 3), (3, 1)))


@dataclass
class Run:
    """Iterations of one job."""

    id: JobId
    shape: Shape
    chance: random.Random
    waits: Waits = field(default_factory=Waits)
    ends_at: list[float] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)
    """Wait before the communication of each iteration."""
    slots: set[int] = field(default_factory=set)
    """Numbers of the slots that the job has had."""
    timing: JobTiming | None = None
    """Timing that the controller published after the latest report."""
    began_at: float = 0.0
    until_s: float = 0.0
    left_s: float = 0.0

    def slowdown(self, since: int, until: int = -1) -> float:
        """Return the mean time of these iterations / their time without other jobs."""
        ends_at = self.ends_at[since:until]
        return (ends_at[-1] - ends_at[0]) / (len(ends_at) - 1) / (self.shape.compute_s + self.shape.sending_s)


def simulated(
    shapes: Sequence[Shape],
    jitter: float,
    seed: int,
    iterations: int = 150,
    answers: float = math.inf,
    **contention: object,
) -> list[Run]:
    """Let jobs begin at random, and return them when each has done so many iterations.

    ``jitter``: relative standard deviation of computing times. ``answers``: number of reports that the controller
    answers before it ends. ``contention``: settings of the controller."""
    fabric, chance = FakeFabric(max(max(shape.leaves) for shape in shapes), 1, 2), random.Random(seed)
    rates = {"link_bps": FABRIC_BPS, "host_link_bps": FABRIC_BPS}
    fabric.start(Config.model_validate({"contention": {"slots": True, **contention}, "fabric": rates}))
    fabric.run(3)
    runs, hosts = list[Run](), {leaf: iter((1, 2)) for shape in shapes for leaf in shape.leaves}
    for number, shape in enumerate(shapes):
        run = Run(JobId(f"j{number}"), shape, random.Random(f"{seed} {number}"))
        traffic = sends("ring_all_reduce", round(shape.sending_s * FABRIC_BPS / 8 / FRAMED))
        ips = [f"10.0.{leaf}.{next(hosts[leaf])}" for leaf in shape.leaves]
        compute = [{"seconds": shape.compute_s}]
        fabric.request(RegisterJob(job_spec(run.id, ips, traffic, compute=compute, keeps_slots=True, lease_s=86_400.0)))
        runs.append(run)
    numbers, queue = count(), list[tuple[float, int, str, Run, IterationTime | None]]()

    def at(time: float, what: str, run: Run, value: IterationTime | None = None) -> None:
        heapq.heappush(queue, (time, next(numbers), what, run, value))

    now, sending = fabric.now, list[Run]()
    at(now, "tick", runs[0])
    for run in runs:
        at(now + chance.uniform(0, run.shape.compute_s + run.shape.sending_s), "compute", run)
    while min(len(run.ends_at) for run in runs) < iterations:
        speeds = _speeds(sending)
        done = [(now + run.left_s / speeds[run.id], run) for run in sending]
        end_at, first = min(done, key=lambda each: each[0], default=(math.inf, runs[0]))
        until = min(end_at, queue[0][0])
        for run in sending:
            run.left_s -= (until - now) * speeds[run.id]
        now = fabric.now = until
        if end_at <= now:
            sending.remove(first)
            at(now + ANSWER_S / 2, "report", first, _ended(first, now))
            at(now, "compute", first)
            continue
        _, _, what, run, value = heapq.heappop(queue)
        match what:
            case "tick":
                fabric.send(Tick())
                at(now + TICK_S, "tick", run)
            case "compute":
                run.began_at, run.until_s = now, run.shape.compute_s * max(0.0, run.chance.gauss(1, jitter))
                at(now + run.until_s, "boundary", run)
            case "boundary":
                run.waits.arrive(now)
                at(now, "wait", run)
            case "wait":
                if (left_s := run.waits.left_s(now)) > 1e-9:
                    at(now + min(left_s, ANSWER_S / 4), "wait", run)
                    continue
                run.waits_s.append(now - run.began_at - run.until_s)
                run.waits.began(run.waits_s[-1])
                run.left_s = run.shape.sending_s
                sending.append(run)
            case "report" if value and answers > 0:
                answers -= 1
                _, wait_s = fabric.request(ReportIterations(run.id, (value,)))
                fabric.replies.clear()
                _take(run, fabric.loop.extension.status().timings[run.id])
                if wait_s is not None:
                    at(now + ANSWER_S / 2, "answer", run, replace(value, waited_s=wait_s))
            case "answer" if value:
                run.waits.grant(value.index, value.waited_s)
    return runs


def _ended(run: Run, now: float) -> IterationTime:
    index, waited_s = len(run.ends_at), run.waits_s[-1]
    duration_s = now - run.began_at - waited_s
    run.ends_at.append(now)
    run.waits.ended(index, now)
    return IterationTime(index, duration_s, duration_s - run.until_s, now, run.until_s, waited_s)


def _take(run: Run, timing: JobTiming) -> None:
    run.timing, slot = timing, timing.slot
    run.waits.take_slot(slot and Slot(slot.period_s, slot.max_wait_s, slot.number))
    run.slots |= {slot.number} if slot else set()


def _speeds(sending: Sequence[Run]) -> Mapping[JobId, float]:
    """Return the fraction of an uplink that each job gets: all grow alike, until one of their uplinks is full."""
    speeds, growing = dict.fromkeys((run.id for run in sending), 0.0), list(sending)
    room = {leaf: 1.0 for run in sending for leaf in run.shape.leaves}
    while growing:
        users = [leaf for run in growing for leaf in run.shape.leaves]
        by = min(room[leaf] / users.count(leaf) for leaf in users)
        for run in growing:
            speeds[run.id] += by
        for leaf in users:
            room[leaf] -= by
        growing = [run for run in growing if min(room[leaf] for leaf in run.shape.leaves) > 1e-12]
    return speeds
