"""Slots of many jobs on one circle, packed so that each member gets its bits through.

In: demands of jobs on links, a circle, and the load of jobs without slots. Out: the places of the jobs that get slots.
Time is divided into cells. A slot begins with a cell, and others see it in the whole of its last cell. The progress of
a job from all starts at once is one product of the turned slot and the speed in each cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from controller.planning.contention.exact import Circle
from controller.planning.contention.fluid import EPSILON, TimedJob
from controller.planning.problem import Bools, Floats, Ints

_ATTEMPTS = (False, True, False, True)
"""Attempts to pack the slots of a circle: whether slots begin early. After two, jobs without room come first."""


class Packing:
    """Slots of jobs on a circle.

    ``demands``: for each job its demand by phase and link, as fractions of the links' capacities. ``room``: fraction of
    each link that their class has. ``load``: load of each link by jobs of the class that have no slots."""

    def __init__(
        self, circle: Circle, jobs: Mapping[int, TimedJob], demands: Sequence[Floats], room: Floats, load: Floats
    ) -> None:
        self._circle, self._jobs, self._room, self._load = circle, jobs, room[:, None], load[:, None]
        self._demands = {job: demands[job] for job in jobs}
        cells = circle.slots
        turned: Ints = (np.arange(cells) - np.arange(cells)[:, None]) % cells
        self._own_at, self._seen_at = dict[int, Floats](), dict[int, Floats]()
        """Index: job; phase, place, cell. Seconds of the cell in the first slot of the phase at this place; and whether
        others see any slot of the phase there (1 or 0)."""
        self._windows, self._every = dict[int, slice](), dict[int, int]()
        uses: list[Bools] = []
        needs_s: list[float] = []
        for number, job in jobs.items():
            turns, of_job = circle.turns[number], demands[number] > 0
            own, seen = self._slots_of(job, turns)
            self._own_at[number], self._seen_at[number] = own[:, turned], seen[:, turned]
            self._windows[number] = slice(len(uses), len(uses) + turns * len(own))
            self._every[number] = cells // turns
            uses += [of for _ in range(turns) for of in of_job]
            needs_s += [phase.ideal_s * (1 - EPSILON) for _ in range(turns) for phase in job.phases]
        self._uses, self._needs_s = np.array(uses), np.array(needs_s)

    def _slots_of(self, job: TimedJob, turns: int) -> tuple[Floats, Floats]:
        """Return the seconds of each cell in the first slot of each phase, and whether others see any of its slots."""
        every_s = self._circle.period_s / turns
        stretch = 1 + max(0.0, every_s - job.ideal_s) / job.sending_s
        own, seen = [], []
        planned_s = earliest_s = 0.0
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

    def places(self) -> dict[int, int]:
        """Return the place of each job that gets slots. The others are as without a circle, and send at any time."""
        order = sorted(self._jobs, key=lambda job: -(self._own_at[job][:, 0].sum() * self._demands[job].sum()))
        best, without = dict[int, int](), list[int]()
        for early in _ATTEMPTS:
            placed, left = self._attempt(order, early)
            if left:
                placed = self._kept(placed, left)
            if len(placed) > len(best):
                best = placed
            if not left:
                break
            without += [job for job in left if job not in without]
            if early:
                order = [*without, *(job for job in order if job not in without)]
        return best

    def _attempt(self, order: Sequence[int], early: bool) -> tuple[dict[int, int], list[int]]:
        """Place one job after the other. Return the places, and the jobs without room.

        A job begins where this costs least progress, or as early as it can."""
        placed, left = dict[int, int](), list[int]()
        self._total = np.repeat(self._load, self._circle.slots, axis=1)
        """Load of each link in each cell."""
        self._slow = np.ones((len(self._uses), self._circle.slots))
        """Duration / ideal duration of what each slot sends in each cell."""
        self._own = np.zeros_like(self._slow)
        """Seconds of each cell in each slot, at the place of its job."""
        for job in order:
            place = self._best_place(job, early)
            if place is None:
                left.append(job)
                continue
            placed[job], windows, every = place, self._windows[job], self._every[job]
            at = np.arange(place, place + self._circle.slots, every) % self._circle.slots
            self._own[windows] = self._own_at[job][:, at].swapaxes(0, 1).reshape(-1, self._circle.slots)
            self._total += self._demands[job].T @ self._seen_at[job][:, place]
            links = np.flatnonzero(self._demands[job].any(axis=0))
            rows = self._rows(links)
            load = _largest(self._uses[np.ix_(rows, links)], self._total[links] / self._room[links])
            self._slow[rows] = np.maximum(self._slow[rows], load)
            self._slow[windows] = np.maximum(1.0, _largest(self._uses[windows], self._total / self._room))
        return placed, left

    def _rows(self, links: Ints) -> Ints:
        """Return the slots of placed jobs that use any of these links."""
        return np.flatnonzero(self._own.any(axis=1) & self._uses[:, links].any(axis=1))

    def _best_place(self, job: int, early: bool) -> int | None:
        demand, every = self._demands[job], self._every[job]
        links = np.flatnonzero(demand.any(axis=0))
        loads = [(self._total[links] + bps[links, None]) / self._room[links] for bps in demand]
        good, waste = np.ones(every, bool), np.zeros(every)
        needs_s = self._needs_s[self._windows[job]]
        for own_at, bps, load, need_s in zip(self._own_at[job], demand, loads, needs_s, strict=False):
            progress_s = own_at @ (1 / np.maximum(1.0, _largest((bps[links] > 0)[None], load)[0]))
            good &= (progress_s >= need_s).reshape(-1, every).all(axis=0)
            waste -= progress_s.reshape(-1, every).sum(axis=0)
        if not good.any():
            return None
        rows = self._rows(links)
        if len(rows):
            now = 1 / self._slow[rows]
            spare_s = (self._own[rows] * now).sum(axis=1) - self._needs_s[rows]
            lost_s = np.zeros((len(rows), every))
            for load, seen_at in zip(loads, self._seen_at[job], strict=True):
                then = np.minimum(now, 1 / np.maximum(1.0, _largest(self._uses[np.ix_(rows, links)], load)))
                lost_s += (self._own[rows] * (now - then)) @ seen_at[:every].T
            good &= (lost_s <= spare_s[:, None] + EPSILON * self._circle.period_s).all(axis=0)
            waste += lost_s.sum(axis=0)
        return int(np.where(good, 0.0 if early else waste, np.inf).round(9).argmin()) if good.any() else None

    def _kept(self, placed: dict[int, int], left: Sequence[int]) -> dict[int, int]:
        """Return the members that keep the circle while all others send at any time."""
        while left:
            for job in left:
                always = self._demands[job].max(axis=0)[:, None]
                if job in placed:
                    self._total -= self._demands[job].T @ self._seen_at[job][:, placed.pop(job)]
                self._total += always
            load, left = self._total / self._room, []
            for job in placed:
                windows = self._windows[job]
                slow = np.maximum(1.0, _largest(self._uses[windows], load))
                if ((self._own[windows] / slow).sum(axis=1) < self._needs_s[windows]).any():
                    left.append(job)
        return placed


def _largest(uses: Bools, load: Floats) -> Floats:
    """Return the largest load of the links that each row uses, in each cell; 0 for a row that uses none."""
    largest: Floats = np.where(uses[:, :, None], load[None], 0.0).max(axis=1, initial=0.0)
    return largest
