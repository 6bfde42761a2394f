"""Recomputation of what plans guarantee, with code of its own: the fluid is integrated in small steps.

In: jobs as plain numbers, and what a plan chooses for them. Out: the longest iteration of each job that was seen, and
how many iterations it did. A guaranteed time is refuted if a job took longer; a bound is refuted if jobs did better.

All runs of a plan, which differ in the first starts of free jobs, are integrated at once. The rates of jobs depend only
on who sends which phase, so a table has these rates. A phase ends with a step, so a phase occupies its links for up to
a step longer than it has to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

STEP_S = 1 / 256


@dataclass(frozen=True)
class Job:
    """Job as plain numbers."""

    compute_s: Sequence[float]
    """Computing before each phase."""
    ideal_s: Sequence[float]
    """Communication of each phase on an idle fabric."""
    demand_bps: Sequence[Mapping[int, float]]
    """Demand on each link in each phase."""
    rank: int = 0
    start_s: float | None = None
    """First slot of a member; None for a free job."""
    every_s: float = 0.0
    """Time between slots of a member."""


@dataclass(frozen=True)
class Seen:
    """Result of the runs of a plan."""

    longest_s: Floats
    """Longest time between begins of two iterations of each job, in any run."""
    iterations: NDArray[np.int64]
    """Iterations of each job whose communication ended, of shape (runs, jobs)."""


def integrated(
    capacity_bps: Sequence[float], jobs: Sequence[Job], floor: float, begins_s: Floats, until_s: float
) -> Seen:
    """Return what happens until ``until_s``.

    ``begins_s``: first begin of each free job in each run, of shape (runs, jobs)."""
    runs, count = begins_s.shape
    phases = np.array([len(job.ideal_s) for job in jobs])
    width = phases + 1  # a job sends one of its phases, or none
    place = np.cumprod([1, *width[:-1]])
    table = np.array([_rates(capacity_bps, jobs, floor, state[::-1]) for state in product(*map(range, width[::-1]))])
    most = int(phases.max())
    compute_s, ideal_s = np.zeros((count, most)), np.zeros((count, most))
    for number, job in enumerate(jobs):
        compute_s[number, : phases[number]], ideal_s[number, : phases[number]] = job.compute_s, job.ideal_s
    each = np.arange(count)
    starts_s = np.array([np.nan if job.start_s is None else job.start_s for job in jobs])
    every_s = np.array([job.every_s for job in jobs])
    due_s = np.where(np.isnan(starts_s), begins_s, starts_s)
    sends, phase = np.zeros((runs, count), bool), np.zeros((runs, count), int)
    left_s, begun_s = np.zeros((runs, count)), np.full((runs, count), np.nan)
    done, longest_s = np.zeros((runs, count), int), np.zeros((runs, count))
    for step in range(int(until_s / STEP_S)):
        now_s = step * STEP_S
        begin = ~sends & (due_s <= now_s + STEP_S / 1e3)
        if begin.any():
            first = begin & (phase == 0)
            longest_s = np.where(first, np.fmax(longest_s, now_s - begun_s), longest_s)
            begun_s = np.where(first, now_s, begun_s)
            left_s = np.where(begin, ideal_s[each, phase], left_s)
            sends |= begin
        rates = table[(np.where(sends, phase + 1, 0) * place).sum(axis=1)]
        left_s -= rates * STEP_S
        end = sends & (left_s <= 1e-9)
        if end.any():
            sends &= ~end
            phase = np.where(end, (phase + 1) % phases, phase)
            over = end & (phase == 0)
            done += over
            ready_s = now_s + STEP_S + compute_s[each, phase]
            slot_s = np.where(over, np.nan_to_num(starts_s + done * every_s), 0.0)
            due_s = np.where(end, np.maximum(ready_s, slot_s), due_s)
    return Seen(longest_s.max(axis=0), done)


def _rates(capacity_bps: Sequence[float], jobs: Sequence[Job], floor: float, state: Sequence[int]) -> list[float]:
    """Return the progress per second of each job. ``state``: 0 for a job that does not send, else its phase from 1.

    Progress is raised for all jobs of a rank at once until a link is full, then for the jobs that do not use this link.
    The room of a rank on a link is what higher ranks leave. They leave at least the rank's floor."""
    demand = {job: jobs[job].demand_bps[phase - 1] for job, phase in enumerate(state) if phase}
    ranks = sorted({jobs[job].rank for job in demand})
    of_rank = {rank: [job for job in demand if jobs[job].rank == rank] for rank in ranks}

    def raised(group: Sequence[int], room: dict[int, float]) -> dict[int, float]:
        progress, growing = dict.fromkeys(group, 0.0), set(group)
        while growing:
            load = {
                link: sum(demand[job].get(link, 0.0) for job in growing)
                for link in {k for j in growing for k in demand[j]}
            }
            steps = {link: max(0.0, room[link]) / bps for link, bps in load.items() if bps > 0}
            by = min([1.0 - max(progress[job] for job in growing), *steps.values()])
            for job in growing:
                progress[job] += by
            for link, bps in load.items():
                room[link] -= by * bps
            full = {link for link, least in steps.items() if least <= by + 1e-12}
            growing = {job for job in growing if progress[job] < 1 - 1e-12 and not full & demand[job].keys()}
        return progress

    everything = dict(enumerate(capacity_bps))
    on_floor: dict[int, float] = {}
    for rank, group in of_rank.items():
        shared = {link for other in ranks if other != rank for job in of_rank[other] for link in demand[job]}
        on_floor |= raised(group, {link: bps * (floor if link in shared else 1) for link, bps in everything.items()})
    progress = dict.fromkeys(range(len(jobs)), 0.0)
    for rank, group in of_rank.items():
        room = dict(everything)
        for job, of in demand.items():
            taken = progress[job] if jobs[job].rank < rank else on_floor[job] if jobs[job].rank > rank else 0.0
            for link, bps in of.items():
                room[link] -= taken * bps
        progress |= raised(group, room)
    return [progress[job] for job in range(len(jobs))]
