"""Random jobs in time on a few links, and a fluid simulation of them that shares no code with the model."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from itertools import pairwise

from controller.planning.contention.fluid import Case, Choice, Choices, Phase, TimedJob
from signalbox.jobs.spec import JobId

DEMANDS = (0.25, 0.5, 0.5, 1.0, 1.0, 1.5)
"""Demands of random jobs. A job may overfill a link by itself."""


def random_case(seed: int, most_jobs: int = 4, links: int = 3, floor: float = 0.0, most_ways: int = 2) -> Case:
    """Return up to ``most_jobs`` jobs with short periods on links of capacity 1."""
    chance = random.Random(seed)
    jobs = []
    for number in range(chance.randint(2, most_jobs)):
        phases = tuple(
            Phase(chance.choice((0.0, 1.0, 2.0, 3.0)) + (not phase), chance.choice((0.5, 1.0, 2.0, 3.0)))
            for phase in range(chance.choice((1, 1, 1, 2)))
        )
        ways = []
        for _ in range(chance.randint(1, most_ways)):
            used = chance.sample(range(links), chance.randint(1, links))
            ways.append(tuple({link: chance.choice(DEMANDS) for link in used if chance.random() < 0.9} for _ in phases))
        jobs.append(TimedJob(JobId(f"j{number}"), phases, tuple(ways), chance.choice((1.0, 2.0, 5.0, 10.0))))
    return Case((1.0,) * links, tuple(jobs), floor)


def rates(case: Case, choices: Choices, sending: Mapping[int, Mapping[int, float]]) -> dict[int, float]:
    """Return the progress per second of each sending job: strict ranks, shares by demand, and a floor for low ranks.

    ``sending``: demand of each job on each link. At first, each rank fills its floor, or the whole link where no other
    rank sends. Then one rank after the other takes what is left over."""
    ranks = sorted({choices[job].rank for job in sending})
    least: dict[int, float] = {}
    for rank in ranks:
        of = {job: sending[job] for job in sending if choices[job].rank == rank}
        shared = {link for job in sending if job not in of for link in sending[job]}
        least |= _filled(
            of, [bps * (case.floor if link in shared else 1.0) for link, bps in enumerate(case.capacity_bps)]
        )
    speed: dict[int, float] = {}
    for place, rank in enumerate(ranks):
        of = {job: sending[job] for job in sending if choices[job].rank == rank}
        taken = {**speed, **{job: least[job] for job in sending if choices[job].rank in ranks[place + 1 :]}}
        left = [
            bps - sum(part * sending[job].get(link, 0.0) for job, part in taken.items())
            for link, bps in enumerate(case.capacity_bps)
        ]
        speed |= _filled(of, left)
    return speed


def _filled(sending: Mapping[int, Mapping[int, float]], room: list[float]) -> dict[int, float]:
    """Return max-min fair progress, at most 1 per second."""
    room, speed, waiting = list(room), dict[int, float](), dict(sending)
    while waiting:
        load: dict[int, float] = {}
        for demand in waiting.values():
            for link, bps in demand.items():
                load[link] = load.get(link, 0.0) + bps
        share, tight = min([(1.0, -1), *((max(0.0, room[link]) / bps, link) for link, bps in load.items())])
        for job in [each for each, demand in waiting.items() if tight < 0 or tight in demand]:
            speed[job] = share
            for link, bps in waiting.pop(job).items():
                room[link] -= share * bps
    return speed


def simulated_s(
    case: Case, choices: Choices, begins_s: Mapping[int, float], until_s: float, period_s: float = 0.0
) -> dict[int, list[float]]:
    """Return the times between begins of iterations of each job.

    An iteration begins with its first communication, as slots do. Members wait for their slots."""
    phase = dict.fromkeys(choices, 0)
    due_s = {job: _slot_from(choice, begins_s[job], period_s) for job, choice in choices.items()}
    begun: dict[int, list[float]] = {job: [] for job in choices}
    left: dict[int, float] = {}
    now = 0.0
    while now < until_s:
        sending = {job: case.jobs[job].ways[choices[job].way][phase[job]] for job in left}
        speed = rates(case, choices, sending) if left else {}
        ends = {job: now + left[job] / speed[job] if speed[job] > 1e-12 else math.inf for job in left}
        then = min([*due_s.values(), *ends.values()])
        for job in left:
            left[job] -= speed[job] * (then - now)
        now = then
        for job in [each for each, at in due_s.items() if at <= now + 1e-12]:
            del due_s[job]
            left[job] = case.jobs[job].phases[phase[job]].ideal_s
            if not phase[job]:
                begun[job].append(now)
        for job in [each for each, at in ends.items() if at <= now + 1e-12]:
            del left[job]
            phase[job] = (phase[job] + 1) % len(case.jobs[job].phases)
            due_s[job] = now + case.jobs[job].phases[phase[job]].compute_s
            if not phase[job]:
                due_s[job] = _slot_from(choices[job], due_s[job], period_s)
    return {job: [then - now for now, then in pairwise(at)] for job, at in begun.items()}


def _slot_from(choice: Choice, at_s: float, period_s: float) -> float:
    if choice.start_s is None:
        return at_s
    every_s = period_s / choice.turns
    return choice.start_s + max(0, math.ceil((at_s - choice.start_s) / every_s - 1e-9)) * every_s
