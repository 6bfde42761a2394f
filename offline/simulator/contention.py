"""Simulation of plans with slots and ranks, for jobs that share links and whose compute times vary.

In: a ``Case`` and what a plan chooses for each job. Out: the time of each iteration, and its time without other jobs.
The network is ``fluid``. All flows of a job progress together, at most at the rate of the idle fabric; jobs of one rank
have equal progress on a full link, so a job's share grows with its demand.

A member of a circle begins its first iteration in its slot. Before later iterations it waits as ``slots`` computes.
"""

from __future__ import annotations

import heapq
import math
import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from statistics import fmean
from typing import NamedTuple

import numpy as np

from controller.public.contention import Case, Choices
from offline.scenarios.variation import STEADY, Variation
from offline.scenarios.workloads import Slot
from offline.simulator.fluid import Fluid
from offline.simulator.options import GAINED_WEIGHT, LEAST_WEIGHT, PARTS
from offline.simulator.slots import MAX_WAIT, Waits

WARM_UP = 5
"""Number of first iterations of each job that are not counted."""


class SharedPlan(NamedTuple):
    """Choices of a plan, and how connections share links."""

    choices: Choices
    period_s: Mapping[int, float] = {}
    """Period of the circle of each member, by number of the job.

    A job with a start but without a period begins its first iteration at this start, and never waits for a slot."""
    mltcp: bool = False
    """Whether weights of jobs grow with the bytes that they have sent in an iteration."""


class Iterations(NamedTuple):
    """Iterations of one job."""

    took_s: tuple[float, ...]
    """Time of each iteration, from the start of its communication to that of the next iteration."""
    alone_s: tuple[float, ...]
    """Time of each iteration if no other job sent."""
    waited_s: float = 0.0
    """Time that the job waited for its slots in all of these iterations."""

    @property
    def slowdowns(self) -> list[float]:
        return [took_s / alone_s for took_s, alone_s in zip(self.took_s, self.alone_s, strict=True)]

    @property
    def mean(self) -> float:
        """Time of all iterations / their time without other jobs."""
        return sum(self.took_s) / sum(self.alone_s)


class Figures(NamedTuple):
    """Figures of a plan. Slowdown of an iteration: its time / its time without other jobs; 1 is ideal."""

    worst: float
    """Mean slowdown of the slowest job."""
    mean: float
    """Mean over the jobs of their mean slowdowns."""
    tail: float
    """99th percentile of the slowdown over all iterations of all jobs, each job with equal weight."""
    gpu_seconds: float
    """Work per second of all jobs / work per second without sharing, at most 1."""
    waited: float
    """Time that a job waited for its slots / time of its iterations; the largest over all jobs."""

    @classmethod
    def of(cls, case: Case, found: Mapping[int, Iterations]) -> Figures:
        means = [of.mean for of in found.values()]
        every = sorted((slowdown, 1 / len(of.took_s)) for of in found.values() for slowdown in of.slowdowns)
        part = list(accumulate(weight for _, weight in every))
        tail = every[bisect_left(part, 0.99 * part[-1])][0]
        rates = [(case.jobs[job].work * len(of.took_s), of) for job, of in found.items()]
        used = sum(work / sum(of.took_s) for work, of in rates) / sum(work / sum(of.alone_s) for work, of in rates)
        waited = max(of.waited_s / sum(of.took_s) for of in found.values())
        return cls(max(means), fmean(means), tail, used, waited)


def simulated(
    case: Case,
    plan: SharedPlan,
    iterations: int,
    variations: Sequence[Variation] = (),
    seed: int = 1,
    max_wait: float = MAX_WAIT,
) -> dict[int, Iterations]:
    """Return at least ``iterations`` iterations of each job, after a warm-up.

    Equal seeds give equal compute times and starts of free jobs, whatever the plan.

    ``variations``: how the compute times of each job vary; by default they do not."""
    return _Run(case, plan, variations or [STEADY] * len(case.jobs), seed, max_wait).run(iterations)


@dataclass(slots=True)
class _State:
    """State of a job during the simulation."""

    connections: list[int]
    """Connection of each phase."""
    chance: random.Random
    phase: int = 0
    left_s: float = 0.0
    """Part of the phase's communication that has not been started, in seconds on an idle fabric."""
    sent_s: float = 0.0
    """Part of the iteration's communication that has been started, in the same unit."""
    begun_s: list[float] = field(default_factory=list)
    alone_s: list[float] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)


class _Run:
    def __init__(
        self, case: Case, plan: SharedPlan, variations: Sequence[Variation], seed: int, max_wait: float
    ) -> None:
        self._case, self._plan, self._variations = case, plan, variations
        links = full_links(case, plan.choices)
        self._fluid = Fluid([*(case.capacity_bps[link] for link in links), *(1.0 for _ in case.jobs)], case.floor)
        number_of = {link: number for number, link in enumerate(links)}
        self._job_of: list[int] = []
        self._states: dict[int, _State] = {}
        self._agenda: list[tuple[float, int]] = []
        for job, choice in plan.choices.items():
            chance = random.Random(f"{seed} {job}")
            state = self._states[job] = _State([], chance)
            for demand in case.jobs[job].ways[choice.way]:
                uses = {number_of[link]: bps for link, bps in demand.items() if link in number_of}
                state.connections.append(self._fluid.connect({**uses, len(links) + job: 1.0}, 1.0, choice.rank))
                self._job_of.append(job)
            start_s = chance.uniform(0, case.jobs[job].ideal_s)
            heapq.heappush(self._agenda, (start_s if choice.start_s is None else choice.start_s, job))
        self._waits = Waits(_slots(case, plan, links), max_wait)

    def run(self, iterations: int) -> dict[int, Iterations]:
        least = iterations + WARM_UP + 1
        waiting = set(self._states)
        while waiting:
            for connection in self._fluid.advance(self._agenda[0][0] if self._agenda else math.inf):
                self._sent(self._job_of[connection])
            while self._agenda and self._agenda[0][0] <= self._fluid.now_s:
                job = heapq.heappop(self._agenda)[1]
                self._begin_phase(job)
                if len(self._states[job].begun_s) >= least:
                    waiting.discard(job)
        return {job: self._iterations(state) for job, state in self._states.items()}

    def _iterations(self, state: _State) -> Iterations:
        begun_s = state.begun_s[WARM_UP:]
        took_s = tuple(then - now for now, then in pairwise(begun_s))
        until = WARM_UP + len(took_s)
        return Iterations(took_s, tuple(state.alone_s[WARM_UP:until]), sum(state.waits_s[WARM_UP:until]))

    def _begin_phase(self, job: int) -> None:
        state = self._states[job]
        if not state.phase:
            state.begun_s.append(self._fluid.now_s)
            self._waits.begun_s[job] = self._fluid.now_s
            state.alone_s.append(0.0)
            state.sent_s = 0.0
        state.left_s = self._case.jobs[job].phases[state.phase].ideal_s
        state.alone_s[-1] += state.left_s
        self._send(job, state)

    def _send(self, job: int, state: _State) -> None:
        """Start the rest of the phase's communication; with MLTCP only the next of ``PARTS`` parts of the iteration.

        MLTCP sets the connection's weight by the share of the iteration that was started before."""
        part_s, connection = state.left_s, state.connections[state.phase]
        if self._plan.mltcp:
            whole_s = self._case.jobs[job].sending_s
            part_s = min(part_s, whole_s / PARTS)
            self._fluid.weigh(connection, LEAST_WEIGHT + GAINED_WEIGHT * state.sent_s / whole_s)
        state.left_s = state.left_s - part_s if part_s < state.left_s * (1 - 1e-9) else 0.0
        state.sent_s += part_s
        self._fluid.start(connection, part_s)

    def _sent(self, job: int) -> None:
        state, phases = self._states[job], self._case.jobs[job].phases
        if state.left_s:
            self._send(job, state)
            return
        state.phase = (state.phase + 1) % len(phases)
        compute_s = phases[state.phase].compute_s
        compute_s *= self._variations[job].factor(len(state.begun_s), state.chance)
        state.alone_s[-1] += compute_s
        wait_s = 0.0
        if not state.phase:
            wait_s = self._waits.of(job)
            state.waits_s.append(wait_s)
        heapq.heappush(self._agenda, (self._fluid.now_s + compute_s + wait_s, job))


def _slots(case: Case, plan: SharedPlan, links: Sequence[int]) -> dict[int, Slot]:
    """Return the slots of all members.

    Members are on the same circle if they have equal periods and share full links, directly or through other jobs."""
    found = {}
    for number, component in enumerate(components(case, plan.choices, links)):
        for job in component:
            _, _, start_s, turns = plan.choices[job]
            if start_s is not None and job in plan.period_s:
                found[job] = Slot((number, plan.period_s[job]), start_s, plan.period_s[job], turns)
    return found


def full_links(case: Case, choices: Choices) -> list[int]:
    """Return the links that are overfull when all of their jobs send, without those that never limit a job.

    A link never limits if each job, in each phase, demands at least as large a fraction of some one other link."""
    demand: defaultdict[int, dict[tuple[int, int], float]] = defaultdict(dict)
    for job, choice in choices.items():
        for phase, of in enumerate(case.jobs[job].ways[choice.way]):
            for link, bps in of.items():
                demand[link][job, phase] = bps / case.capacity_bps[link]
    full = [link for link, of in demand.items() if _largest(of) > 1 + 1e-9]
    full.sort(key=lambda link: (-sum(demand[link].values()), link))
    column = {each: number for number, each in enumerate({each for link in full for each in demand[link]})}
    rows = np.zeros((len(full), len(column)))
    kept: list[int] = []
    for number, link in enumerate(full):
        rows[number, [column[each] for each in demand[link]]] = [*demand[link].values()]
        if not (rows[kept] >= rows[number] - 1e-9).all(axis=1).any():
            kept.append(number)
    return sorted(full[number] for number in kept)


def _largest(demand: Mapping[tuple[int, int], float]) -> float:
    peak: dict[int, float] = {}
    for (job, _), part in demand.items():
        peak[job] = max(peak.get(job, 0.0), part)
    return sum(peak.values())


def components(case: Case, choices: Choices, links: Sequence[int]) -> Iterator[list[int]]:
    """Yield groups of jobs: two jobs are in one group if they share some of ``links``, directly or through others."""
    left = {job: set(case.jobs[job].peaks[choice.way]).intersection(links) for job, choice in choices.items()}
    while left:
        job, reached = left.popitem()
        found = [job]
        while near := [other for other, used in left.items() if used & reached]:
            for other in near:
                found.append(other)
                reached |= left.pop(other)
        yield sorted(found)
