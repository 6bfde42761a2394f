"""Random small plans, whose guaranteed times and bounds the recomputer in ``independent`` tries to refute."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from itertools import product
from typing import NamedTuple

import numpy as np

from benchmarks.contention.independent import STEP_S, Floats, Job, Seen, integrated
from controller.planning.contention.circles import Circle, circles
from controller.planning.contention.exact import Exact, Option
from controller.planning.contention.fluid import (
    Case,
    Choice,
    Choices,
    Objective,
    Phase,
    TimedJob,
    guaranteed_s,
)
from signalbox.jobs.spec import JobId

RUNS = 16
TURNS = 8
"""Iterations of the longest job in each run."""
LINKS = 3
CIRCLES = 2
"""Number of circles of a case that are searched."""
MOST = 1_000.0
"""Largest iteration that the exact search may choose, as a multiple of the ideal one."""


class Tested(NamedTuple):
    """Plan with what it guarantees."""

    name: str
    choices: Choices
    period_s: float
    guaranteed_s: dict[int, float]


def refuted(seed: int) -> tuple[int, list[str]]:
    """Return the number of statements about a random case that were tested, and the refuted statements."""
    case, chance = random_case(seed), random.Random(seed)
    count, found = 0, []
    for plan in _plans(case, seed, chance):
        seen = _seen(case, plan, np.random.default_rng(seed))
        for number, most_s in plan.guaranteed_s.items():
            job = case.jobs[number]
            late_s = STEP_S * sum(len(each.phases) * (most_s / each.ideal_s + 1) for each in case.jobs)
            if most_s < math.inf:
                count += 1
                if seen.longest_s[number] > most_s + late_s:
                    found.append(f"case {seed}, {plan.name}, {job.id}: {seen.longest_s[number]:.4f} s > {most_s:.4f} s")
        most_per_s = seen.iterations / _until_s(case)
        for objective, prices in product(Objective, _prices(chance)):
            bound = price_bound(case, prices, objective)
            count += 1
            if (least := min(_cost(case, objective, run) for run in most_per_s)) < bound - 1e-9:
                found.append(f"case {seed}, {plan.name}, {objective}: {least:.4f} is below the bound {bound:.4f}")
    return count, found


def random_case(seed: int) -> Case:
    """Return two to four jobs with one or two phases and up to two ways. Times are multiples of half a second."""
    chance = random.Random(seed)
    jobs = []
    for number in range(chance.randint(2, 4)):
        phases = [
            Phase(chance.choice((0.5, 1.0, 2.0, 3.0)), chance.choice((0.5, 1.0, 2.0, 3.0)))
            for _ in range(chance.choice((1, 1, 2)))
        ]
        ways = []
        for _ in range(chance.randint(1, 2)):
            links = chance.sample(range(LINKS), chance.randint(1, 2))
            ways.append(tuple({link: chance.choice((0.5, 1.0, 1.0, 1.5)) for link in links} for _ in phases))
        jobs.append(TimedJob(JobId(f"job{number}"), tuple(phases), tuple(ways), chance.uniform(1, 10)))
    return Case((1.0,) * LINKS, tuple(jobs))


def _plans(case: Case, seed: int, chance: random.Random) -> Iterator[Tested]:
    free = {
        number: Choice(chance.randrange(len(job.ways)), chance.randrange(3)) for number, job in enumerate(case.jobs)
    }
    yield Tested("random ranks", free, 0.0, guaranteed_s(case, free))
    objective = Objective.WORK if seed % 2 else Objective.WORST
    kept = [None, *circles(case, 24)][: CIRCLES + 1]
    for ranks, circle in enumerate(kept):
        most_s = [MOST * job.ideal_s for job in case.jobs]
        found = Exact(case, objective, ranks or 2, [circle] if circle else [], most_s).solve(
            [Option()] * len(case.jobs)
        )
        choices = {number: _choice(number, option, circle) for number, option in enumerate(found.options)}
        period_s = circle.period_s if circle else 0.0
        yield Tested(f"circle {ranks}", choices, period_s, guaranteed_s(case, choices, period_s))


def _choice(number: int, option: Option, circle: Circle | None) -> Choice:
    if circle is None or option.circle is None:
        return Choice(option.way, option.rank)
    return Choice(option.way, option.rank, circle.start_s(option.place), circle.turns[number])


def price_bound(case: Case, prices: Mapping[int, float], objective: Objective) -> float:
    """Return a lower bound of the objective, for any ways, ranks, starts and sharing.

    In the long run, the bits of all iterations fit through the links: the sum over jobs of
    need x ideal time / iteration time is at most the sum of price x capacity. The need of a job is that of its cheapest
    way. ``prices``: any price from 0 up for each link."""
    room = sum(price * case.capacity_bps[link] for link, price in prices.items())

    def need(job: TimedJob, way: int) -> float:
        return sum(prices.get(link, 0.0) * bps for link, bps in job.average_bps(way).items())

    needs = [min(need(job, way) for way in range(len(job.ways))) for job in case.jobs]
    return objective.bound(case.jobs, needs, room)


def _cost(case: Case, objective: Objective, most_per_s: Floats) -> float:
    """Return the cost of a run with these iterations per second of each job."""
    costs = [
        objective.cost(job, max(job.ideal_s, 1 / rate if rate else math.inf))
        for job, rate in zip(case.jobs, most_per_s.tolist(), strict=True)
    ]
    return objective.total(costs)


def _prices(chance: random.Random) -> list[dict[int, float]]:
    return [*({link: 1.0} for link in range(LINKS)), {link: chance.random() for link in range(LINKS)}]


def _until_s(case: Case) -> float:
    return TURNS * max(job.ideal_s for job in case.jobs)


def _seen(case: Case, plan: Tested, chance: np.random.Generator) -> Seen:
    jobs = [
        Job(
            [phase.compute_s for phase in job.phases],
            [phase.ideal_s for phase in job.phases],
            job.ways[(choice := plan.choices[number]).way],
            choice.rank,
            choice.start_s,
            plan.period_s / choice.turns,
        )
        for number, job in enumerate(case.jobs)
    ]
    ideal_s = np.array([job.ideal_s for job in case.jobs])
    begins_s = chance.random((RUNS, len(jobs))) * ideal_s
    return integrated(case.capacity_bps, jobs, case.floor, begins_s, _until_s(case))
