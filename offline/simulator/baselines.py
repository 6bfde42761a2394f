"""Published ways to share links: what each of them chooses for jobs in time.

In: a ``Case``, in which the first way of a job has the routes in force. Out: a ``SharedPlan`` for the simulation. Where
a system needs a common period of several jobs, circles are those of our own planner without longer iterations.

- ``cassini``: time shifts (CASSINI, NSDI 2024). Jobs in a loop of jobs and links get none.
- ``crux``: ways and ranks (Crux, SIGCOMM 2024).
- ``foresight``: greedy over jobs, ways and starts in one pass, after the idea of FORESIGHT (IFIP Networking 2025).
- ``mltcp``: routes in force, with weights that grow with the bytes sent (MLTCP, HotNets 2024).
- ``today``: routes in force. ``ecmp``: hashed ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from controller.public.contention import (
    Case,
    Choice,
    Choices,
    Circle,
    Objective,
    Search,
    TimedJob,
    best_routes,
    cassini_shifts,
    circles,
    crux_choices,
)
from offline.simulator.contention import SharedPlan, components, full_links
from offline.simulator.fluid import Floats

SLOTS = 48
"""Number of places of a circle."""
RANKS = 3
MAX_STRETCH = 0.1
"""Default of ``contention.max_stretch``."""
TURNS = 4
"""Iterations of the longest job over which ``foresight`` looks ahead."""


BASELINES = ("today", "ecmp", "mltcp", "crux", "cassini", "foresight")
"""Names of the systems with which our plans are compared."""


def baselines(case: Case, hashed: Sequence[int]) -> dict[str, SharedPlan]:
    """Return the plan of each system. ``hashed``: way of each job that ECMP takes."""
    first = today(case)
    return {
        "today": first,
        "ecmp": SharedPlan({number: Choice(way) for number, way in enumerate(hashed)}),
        "mltcp": first._replace(mltcp=True),
        "crux": SharedPlan(crux_choices(case, RANKS)),
        "cassini": cassini(case),
        "foresight": foresight(case),
    }


def today(case: Case) -> SharedPlan:
    return SharedPlan(dict.fromkeys(range(len(case.jobs)), Choice()))


def alone(case: Case) -> Case:
    """Return the case without sharing: links of any rate."""
    return replace(case, capacity_bps=(np.inf,) * len(case.capacity_bps))


def ours(case: Case, objective: Objective, ranks: int, ways: Sequence[int] = (0,)) -> SharedPlan:
    """Return the routes, slots and classes of our planner.

    ``ranks``: number of classes, at least 1. ``ways``: ways of all jobs, the one with the routes in force first."""
    choices_of = [dict.fromkeys(range(len(case.jobs)), Choice(way)) for way in ways]
    parts = [[*_parts(case, choices)] for choices in choices_of]
    searches = [[Search(part, objective, ranks, MAX_STRETCH) for part, _ in of] for of in parts]
    best, plans = best_routes(objective, searches)
    choices, period_s = choices_of[best], dict[int, float]()
    for (_, numbers), plan in zip(parts[best], plans, strict=True):
        choices |= {number: Choice(ways[best], rank) for number, rank in zip(numbers, plan.ranks, strict=True)}
        for circle, places in plan.slots:
            for job, place in places.items():
                number, turns = numbers[job], circle.turns[job]
                choices[number] = choices[number]._replace(start_s=circle.start_s(place), turns=turns)
                period_s[number] = circle.period_s
    return SharedPlan(choices, period_s)


def cassini(case: Case) -> SharedPlan:
    """Return the shifts of CASSINI on the first way of each job.

    Jobs that share links get the circle with the most members whose shifts agree on all links."""
    choices = dict.fromkeys(range(len(case.jobs)), Choice())
    period_s: dict[int, float] = {}
    for part, numbers in _parts(case, choices):
        for circle, members in _circles(part):
            found = cassini_shifts(members.of(part), [0] * len(members.jobs), *members.turned(circle), circle.slots)
            if found is not None:
                for at, job in enumerate(members.jobs):
                    start_s = circle.start_s(found.get(at, 0))
                    choices[numbers[job]] = Choice(0, 0, start_s, circle.turns[job])
                    period_s[numbers[job]] = circle.period_s
                break
    return SharedPlan(choices, period_s)


def foresight(case: Case) -> SharedPlan:
    """Return for one job after the other the way and the start with which its iterations end first.

    Jobs with the largest part of communication come first. A job sends what jobs before it leave of its links, over
    some iterations of the longest job."""
    step_s = min(job.ideal_s for job in case.jobs) / SLOTS
    count = int(TURNS * max(job.ideal_s for job in case.jobs) / step_s)
    free = np.ones((len(case.capacity_bps), count))
    choices: dict[int, Choice] = {}
    for number in sorted(range(len(case.jobs)), key=lambda each: -case.jobs[each].sending_s / case.jobs[each].ideal_s):
        job = case.jobs[number]
        best = min((_earliest(case, job, way, free, step_s) for way in range(len(job.ways))), key=lambda each: each.end)
        for link, bps in job.peaks[best.way].items():
            free[link] = np.maximum(0.0, free[link] - best.sends * bps / case.capacity_bps[link])
        choices[number] = Choice(best.way, 0, best.start * step_s if job.regular else None)
    period_s = {}
    for part, numbers in _parts(case, choices):
        for circle, members in _circles(part):
            for member in members.jobs:
                number, turns = numbers[member], circle.turns[member]
                choices[number] = choices[number]._replace(turns=turns)
                period_s[number] = circle.period_s
            break
    return SharedPlan(choices, period_s)


class _Placed(NamedTuple):
    """Job with a way and a start, in steps of time."""

    end: float
    way: int
    start: int
    sends: Floats
    """Part of each step in which the job sends."""


def _earliest(case: Case, job: TimedJob, way: int, free: Floats, step_s: float) -> _Placed:
    """Return the start within the first iteration with which the last of the job's iterations ends first.

    All phases of an iteration count as one, so that every start is tried at once."""
    links = [(link, bps / case.capacity_bps[link]) for link, bps in job.peaks[way].items()]
    speed = np.min([np.ones(free.shape[1]), *(free[link] / load for link, load in links)], axis=0)
    done = np.append(np.cumsum(speed), np.inf)
    compute, sending = job.compute_s / step_s, job.sending_s / step_s
    starts = np.arange(max(1, int(job.ideal_s / step_s)))
    begins, ends = [starts.astype(float)], []
    turns = max(1, int(free.shape[1] / (compute + sending)) - 1)
    for _ in range(turns):
        at = np.minimum(begins[-1].astype(int), free.shape[1] - 1)
        ends.append(np.searchsorted(done, done[at] - speed[at] + sending * (1 - 1e-9)) + 1.0)
        begins.append(ends[-1] + compute)
    start = int(np.argmin(ends[-1] - 1e-6 * starts))  # the latest of equal ones waits least
    sends = np.zeros(free.shape[1])
    for begin, end in zip(begins, ends, strict=False):
        sends[int(begin[start]) : int(end[start])] = 1.0
    return _Placed(float(ends[-1][start]), way, start, sends * np.minimum(1.0, speed))


class _Members(NamedTuple):
    """Jobs of a case that are on a circle."""

    jobs: Sequence[int]

    def of(self, case: Case) -> Case:
        return replace(case, jobs=tuple(case.jobs[job] for job in self.jobs))

    def turned(self, circle: Circle) -> tuple[float, list[int]]:
        return circle.period_s, [circle.turns[job] for job in self.jobs]


def _circles(case: Case) -> Iterator[tuple[Circle, _Members]]:
    """Yield circles on which jobs keep their periods, those with the most members first."""
    found = [
        (circle, _Members([job for job, turns in enumerate(circle.turns) if turns]))
        for circle in circles(case, SLOTS, (1.0,))
    ]
    yield from sorted(found, key=lambda each: -len(each[1].jobs))


def _parts(case: Case, choices: Choices) -> Iterator[tuple[Case, Sequence[int]]]:
    """Yield jobs that share full links, each with its chosen way only, and their numbers."""
    links = full_links(case, choices)
    number_of: Mapping[int, int] = {link: number for number, link in enumerate(links)}
    capacity_bps = tuple(case.capacity_bps[link] for link in links)
    for numbers in components(case, choices, links):
        jobs = []
        for number in numbers if len(numbers) > 1 else ():
            way = case.jobs[number].ways[choices[number].way]
            on_full = tuple({number_of[link]: bps for link, bps in of.items() if link in number_of} for of in way)
            jobs.append(replace(case.jobs[number], ways=(on_full,)))
        if jobs:
            yield Case(capacity_bps, tuple(jobs), case.floor), numbers
