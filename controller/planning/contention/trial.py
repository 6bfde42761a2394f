"""Short fluid run of a plan: mean iteration times of jobs, beside the guaranteed ones of ``fluid``.

Guaranteed times assume the worst alignment of free jobs at every moment. Plans whose ranks pay on average can therefore
look worse than plans without ranks. Jobs have equal progress on a full link; lower ranks keep their floor.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from controller.planning.contention.fluid import Case, Choices
from controller.planning.problem import Bools, Floats, Ints

_GOLDEN = 0.618034
"""Start of each free job after the start of the job before, in its own iterations, modulo 1."""
_SKIPPED = 1
"""Number of first iterations of each job that are not counted."""
_DONE = 1e-12
_MOST_EVENTS = 20_000
"""Number of begins and ends after which a run is cut off, because a job is much slower than others."""


class Trial:
    """Runs of plans for a case. ``demands``: for each job its demand by phase and link, as parts of the links."""

    def __init__(self, case: Case, demands: Sequence[Floats]) -> None:
        self._case, self._demands = case, demands
        self._ideal_s = np.array([job.ideal_s for job in case.jobs])

    def mean_s(self, choices: Choices, period_s: Sequence[float], iterations: int) -> Floats:
        """Return the mean duration of the iterations of each job, until every job has done ``iterations``.

        It is infinite for a job that has done none when the run is cut off. ``period_s``: period of the circle of each
        member. A member begins an iteration in its slot, or at once if it is late."""
        case, count = self._case, len(self._case.jobs)
        ranks = np.array([choices[job].rank for job in range(count)])
        speeds: dict[bytes, Floats] = {}
        phase, done = np.zeros(count, int), np.zeros(count, int)
        left_s, first_s = np.zeros(count), np.zeros(count)
        due_s = self._ideal_s * (np.arange(count) * _GOLDEN % 1)
        due_s = np.array([due_s[job] if (at := choices[job].start_s) is None else at for job in range(count)])
        latest_s = first_s.copy()
        now_s = 0.0
        for _ in range(_MOST_EVENTS):
            if (done > iterations + _SKIPPED).all():
                break
            sends = left_s > 0
            key = np.where(sends, phase + 1, 0).tobytes()
            if key not in speeds:
                demand = np.array([self._demands[job][at] for job, at in enumerate(phase.tolist())])
                speeds[key] = self._speeds(demand, ranks, sends)
            speed = speeds[key]
            ends_s = np.divide(left_s, speed, out=np.full(count, np.inf), where=speed > _DONE)
            step_s = min(float(ends_s[sends].min(initial=np.inf)), float(due_s.min()) - now_s)
            now_s += step_s
            left_s[sends] -= speed[sends] * step_s
            for job in np.flatnonzero(sends & (left_s <= _DONE * self._ideal_s)).tolist():
                left_s[job] = 0.0
                phases = case.jobs[job].phases
                phase[job] = (phase[job] + 1) % len(phases)
                due_s[job] = now_s + phases[phase[job]].compute_s
                start_s, turns = choices[job][2:]
                if not phase[job] and start_s is not None:
                    due_s[job] = max(due_s[job], start_s + (done[job] + 1) * period_s[job] / turns)
            for job in np.flatnonzero(due_s <= now_s + _DONE).tolist():
                left_s[job], due_s[job] = case.jobs[job].phases[phase[job]].ideal_s, np.inf
                if not phase[job]:
                    latest_s[job] = now_s
                    first_s[job] = now_s if done[job] == _SKIPPED else first_s[job]
                    done[job] += 1
        counted = done - _SKIPPED - 1
        means: Floats = np.divide(latest_s - first_s, counted, out=np.full(count, np.inf), where=counted > 0)
        return means

    def _speeds(self, demand: Floats, ranks: Ints, sends: Bools) -> Floats:
        """Return the progress per second of each job that sends."""
        speed, least = np.zeros(len(ranks)), np.zeros(len(ranks))
        present = sorted({*ranks[sends].tolist()})
        groups = [sends & (ranks == rank) for rank in present]
        for group in groups if len(groups) > 1 else ():
            shared = (demand[sends & ~group] > 0).any(axis=0)
            least[group] = _filled(demand[group], np.where(shared, self._case.floor, 1.0))
        for rank, group in zip(present, groups, strict=True):
            later = sends & (ranks > rank)
            room = 1.0 - speed @ demand - least[later] @ demand[later]
            speed[group] = _filled(demand[group], np.maximum(0.0, room))
        return speed


def _filled(demand: Floats, room: Floats) -> Floats:
    """Return equal progress of all jobs, until a link is full for those that use it, at most 1."""
    speed, growing, left, level = np.zeros(len(demand)), np.ones(len(demand)), room.copy(), 0.0
    while growing.any():
        load = growing @ demand
        share = np.full(len(left), np.inf)
        np.divide(left, load, out=share, where=load > 0)
        by = float(share.min(initial=np.inf))
        if level + by >= 1 - _DONE:
            speed[growing > 0] = 1.0
            break
        level += by
        left -= by * load
        stopped = (growing > 0) & demand[:, share <= by + _DONE].any(axis=1)
        speed[stopped] = level
        growing[stopped] = 0.0
    return speed
