"""Slots of many jobs on one circle, packed so that each member gets its bits through.

In: demands of jobs on links, a circle, and the load of jobs without slots. Out: the places of the jobs that get slots.
Time is divided into cells. A slot begins with a cell, and other jobs see it in the whole of its last cell. The progress
of a job from all starts at once is one product of the turned slot and the speed in each cell.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np

from controller.planning.contention.circles import Circle
from controller.planning.contention.fluid import EPSILON, TimedJob
from controller.planning.problem import Floats, Ints

_STEPS_PER_JOB = 4
"""Number of steps of a search, per job of the circle; in each step one job gets another place."""
_SWEEPS = 2
"""Number of times that each job is moved away from others."""


class Packing:
    """Slots of jobs on a circle.

    ``demands``: for each job its demand by phase and link, as fractions of the links' capacities. ``room``: fraction of
    each link that their class has. ``load``: load of each link by jobs of the class that have no slots. ``full``:
    whether slots are as long as the circle allows; else they are as short as possible."""

    def __init__(
        self,
        circle: Circle,
        jobs: Mapping[int, TimedJob],
        demands: Sequence[Floats],
        room: Floats,
        load: Floats,
        full: bool = True,
    ) -> None:
        self._circle, self._jobs, self._load = circle, jobs, load
        self._room = np.append(room, 1.0)[:, None]
        self._demands = {job: demands[job] for job in jobs}
        cells = circle.slots
        turned: Ints = (np.arange(cells) - np.arange(cells)[:, None]) % cells
        self._own_at, self._seen_at = dict[int, Floats](), dict[int, Floats]()
        """Index: job; phase, place, cell. Seconds of the cell in the first slot of the phase at this place; and whether
        other jobs see any slot of the phase there (1 or 0)."""
        self._windows, self._every = dict[int, slice](), dict[int, int]()
        links: list[Ints] = []
        needs_s: list[float] = []
        self._job: list[int] = []
        """Job of each slot."""
        for number, job in jobs.items():
            turns = circle.turns[number]
            own, seen = self._slots_of(job, turns, full)
            self._own_at[number], self._seen_at[number] = own[:, turned], seen[:, turned]
            self._windows[number] = slice(len(links), len(links) + turns * len(own))
            self._every[number] = cells // turns
            links += [np.flatnonzero(of) for _ in range(turns) for of in demands[number]]
            needs_s += [phase.ideal_s * (1 - EPSILON) for _ in range(turns) for phase in job.phases]
            self._job += [number] * (turns * len(own))
        self._needs_s = np.array(needs_s)
        none, most = len(room), max(map(len, links))
        self._links: Ints = np.array([[*of, *[none] * (most - len(of))] for of in links])
        """Links that each slot uses, a row per slot. Short rows end with the number of an extra link without load."""
        self._uses = np.zeros((len(links), none + 1), bool)
        self._uses[np.arange(len(links))[:, None], self._links] = True

    def _slots_of(self, job: TimedJob, turns: int, full: bool) -> tuple[Floats, Floats]:
        """Return each cell's seconds in the first slot of each phase, and whether other jobs see any of its slots."""
        stretch = job.stretch(self._circle.period_s / turns) if full else 1.0
        own, seen, planned_s, earliest_s = [], [], 0.0, 0.0
        for phase, (compute_s, ideal_s) in enumerate(job.phases):
            planned_s, earliest_s = (at + compute_s if phase else at for at in (planned_s, earliest_s))
            own.append(self._covered_s(planned_s, ideal_s * stretch))
            covered_s = self._covered_s(earliest_s, planned_s + ideal_s * stretch - earliest_s)
            seen.append((covered_s.reshape(turns, -1) > EPSILON * job.ideal_s).any(axis=0).astype(np.float64))
            planned_s, earliest_s = planned_s + ideal_s * stretch, earliest_s + ideal_s
        return np.array(own), np.tile(np.array(seen), turns)

    def _covered_s(self, begin_s: float, length_s: float) -> Floats:
        """Return how many seconds of each cell are in a part of the circle."""
        cell_s = self._circle.period_s / self._circle.slots
        at_s = np.arange(2 * self._circle.slots) * cell_s
        overlap = np.minimum(at_s + cell_s, begin_s + length_s) - np.maximum(at_s, begin_s)
        covered_s: Floats = np.maximum(0.0, overlap).reshape(2, -1).sum(axis=0)
        return covered_s

    def places(self) -> tuple[dict[int, int], int]:
        """Return the place of each job, and how many times a job got a place. Some jobs may be late (``kept``).

        All jobs get places at first, also where they do not get their bits through. Then one late job after the other
        gets another place, so that fewer bits are late."""
        self._clear()
        placed, chance = dict[int, int](), random.Random(1)
        for job in sorted(self._jobs, key=lambda job: -(self._own_at[job][:, 0].sum() * self._demands[job].sum())):
            placed[job] = self._put(job, self._best_place(job))
        best, fewest = dict(placed), len(placed) + 1
        for step in range(_STEPS_PER_JOB * len(placed)):
            progress_s = (self._own / self._slow).sum(axis=1)
            late = sorted({self._job[slot] for slot in np.flatnonzero(progress_s < self._needs_s)})
            if len(late) < fewest:
                best, fewest = dict(placed), len(late)
            if not late:
                return best, len(placed) + step
            job = chance.choice(late)
            self._take(job, before := placed[job])
            placed[job] = self._put(job, self._best_place(job, before))
        return best, (1 + _STEPS_PER_JOB) * len(placed)

    def spread(self, places: Mapping[int, int]) -> dict[int, int]:
        """Return places that leave gaps between the slots, so that iterations may vary more in time.

        For each job in turn, the search finds the run of places around its present one where no job loses more time
        than now. The job moves to the middle of this run."""
        self._clear()
        placed = {job: self._put(job, place) for job, place in places.items()}
        for job in [*placed] * _SWEEPS:
            self._take(job, at := placed[job])
            late_s, lost_s = self._losses(job)
            worse = np.flatnonzero((late_s > late_s[at]) | (lost_s > lost_s[at] + EPSILON))
            if len(worse):
                after = (worse - at) % len(late_s)
                at += int(after.min() - (len(late_s) - after.max())) // 2
            placed[job] = self._put(job, at % len(late_s))
        return placed

    def _clear(self) -> None:
        self._total = np.repeat(np.append(self._load, 0.0)[:, None], self._circle.slots, axis=1)
        """Load of each link in each cell of the circle, as a fraction of the link's capacity. Shape: link, cell."""
        self._slow = np.ones((len(self._needs_s), self._circle.slots))
        """Duration / ideal duration of what each slot sends in each cell."""
        self._own = np.zeros_like(self._slow)
        """Seconds of each cell in each slot, at the place of its job."""

    def _put(self, job: int, place: int) -> int:
        self._own[self._windows[job]] = self._own_from(job, place)
        self._total[:-1] += self._demands[job].T @ self._seen_at[job][:, place]
        self._update(job)
        return place

    def _own_from(self, job: int, place: int) -> Floats:
        cells = self._circle.slots
        at = np.arange(place, place + cells, self._every[job]) % cells
        return self._own_at[job][:, at].swapaxes(0, 1).reshape(-1, cells)

    def _take(self, job: int, place: int) -> None:
        self._own[self._windows[job]] = 0.0
        self._total[:-1] -= self._demands[job].T @ self._seen_at[job][:, place]
        self._update(job)

    def _update(self, job: int) -> None:
        """Recompute the speeds of all slots that share a link with the job."""
        slots = np.flatnonzero(self._uses[:, :-1][:, self._demands[job].any(axis=0)].any(axis=1))
        load = self._total / self._room
        self._slow[slots] = np.maximum(1.0, load[self._links[slots]].max(axis=1))

    def _best_place(self, job: int, avoid: int | None = None) -> int:
        """Return the place where the fewest seconds are late, then where the least progress is lost."""
        late_s, lost_s = self._losses(job)
        if avoid is not None:
            late_s[avoid] = np.inf
        return int(np.lexsort((lost_s, late_s))[0])

    def _losses(self, job: int) -> tuple[Floats, Floats]:
        """Return how many seconds of all jobs are late, and how much progress they lose, by the place of this job."""
        demand, every = self._demands[job], self._every[job]
        links = np.flatnonzero(demand.any(axis=0))
        loads = [(self._total[links] + bps[links, None]) / self._room[links] for bps in demand]
        late_s, lost_s = np.zeros(every), np.zeros(every)
        needs_s = self._needs_s[self._windows[job]]
        for own_at, bps, load, need_s in zip(self._own_at[job], demand, loads, needs_s, strict=False):
            progress_s = own_at @ (1 / np.maximum(1.0, load[bps[links] > 0].max(axis=0, initial=1.0)))
            late_s += np.maximum(0.0, need_s - progress_s).reshape(-1, every).sum(axis=0)
            lost_s -= progress_s.reshape(-1, every).sum(axis=0)
        slots = np.flatnonzero(self._own.any(axis=1) & self._uses[:, links].any(axis=1))
        if len(slots):
            now = 1 / self._slow[slots]
            spare_s = ((self._own[slots] * now).sum(axis=1) - self._needs_s[slots])[:, None]
            less_s = np.zeros((len(slots), every))
            uses = self._uses[np.ix_(slots, links)]
            for load, seen_at in zip(loads, self._seen_at[job], strict=True):
                then = np.minimum(now, 1 / np.maximum(1.0, np.where(uses[:, :, None], load[None], 0.0).max(axis=1)))
                less_s += (self._own[slots] * (now - then)) @ seen_at[:every].T
            late_s += (np.maximum(0.0, less_s - spare_s) - np.maximum(0.0, -spare_s)).sum(axis=0)
            lost_s += less_s.sum(axis=0)
        return late_s.round(9), lost_s.round(9)

    def kept(self, places: Mapping[int, int]) -> dict[int, int]:
        """Return the members that keep the circle while all other jobs send at any time."""
        own, left = np.zeros((len(self._needs_s), self._circle.slots)), dict(places)
        for job, place in places.items():
            own[self._windows[job]] = self._own_from(job, place)
        while True:
            total = np.repeat(np.append(self._load, 0.0)[:, None], self._circle.slots, axis=1)
            for job, demand in self._demands.items():
                at = self._seen_at[job][:, left[job]] if job in left else None
                total[:-1] += demand.max(axis=0)[:, None] if at is None else demand.T @ at
            slow = np.maximum(1.0, (total / self._room)[self._links].max(axis=1))
            slots = np.flatnonzero((own / slow).sum(axis=1) < self._needs_s)
            late = left.keys() & {self._job[slot] for slot in slots}
            if not late:
                return left
            left = {job: place for job, place in left.items() if job not in late}
