"""Local search for smaller own slowdowns of jobs, at equal slowdowns.

In: a problem of whole flows, and a candidate. Out: its routes with smaller own slowdowns. Closed forms on fabrics whose
leaves are alike need no search (``edge_coloring``).

A job's own slowdown is its slowdown while no other job sends. The search keeps every job within its slowdown, and
lowers the own slowdowns one after the other, the largest first. The method is the local search of ``search`` with one
more limit: on each link the load of a job alone is at most the job's *own limit*.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from controller.planning.bounds import Bounds
from controller.planning.efficiency import SLOWDOWN_TOLERANCE, of_iterations
from controller.planning.plan import Draft, draft
from controller.planning.problem import Floats, Ints, PlanLimits, Problem
from controller.planning.whole_flows.search import CappedLoads, Links, LocalSearch

_MOST_FLOWS = 4_000
"""Number of flows above which there is no search."""
_MOST_LOADS = 5_000_000
"""Largest number of loads (job, link); a larger problem is not searched."""
_STEPS = 300
"""Number of steps of all attempts together; each flow adds one step."""
_PATIENCE = 100
"""Number of steps without progress after which an attempt is given up."""
_PARTS = 2
"""Number of goals that are tried for a job's own slowdown: its bound, then values between bound and slowdown."""
_ROUNDING = 1e-7


def searches(problem: Problem) -> bool:
    """Return whether the problem is one of whole flows, and small enough for the search."""
    numbers = problem.numbers
    small = len(problem.flows) <= _MOST_FLOWS and len(numbers.job_ids) * len(problem.capacity_bps) <= _MOST_LOADS
    return small and not (problem.paths.stretch or problem.has_equal_subflows or (numbers.most > 1).any())


def untangled(problem: Problem, bounds: Bounds, best: Draft, limits: PlanLimits) -> Draft | None:
    """Return a candidate with the slowdowns of ``best`` and smaller own slowdowns; None when none is found."""
    if max(best.own_slowdown.values(), default=1.0) <= 1 + SLOWDOWN_TOLERANCE or limits.left_s <= 0:
        return None
    share, cuts = problem.phase_share, bounds.cuts
    alone = np.maximum(1.0, cuts.job_slowdowns).tolist()
    least = alone if share is None else of_iterations(problem, cuts.cell_slowdowns(cuts.most), share).tolist()
    floors = dict(zip(problem.numbers.job_ids, least, strict=True))
    if all(own <= floors[job] * (1 + SLOWDOWN_TOLERANCE) for job, own in best.own_slowdown.items()):
        return None
    search = _OwnSearch(problem, best, limits)
    search.lower(alone, _STEPS + len(problem.flows))
    return draft(problem, best.solver, search.routes())


class _OwnSearch(LocalSearch):
    def __init__(self, problem: Problem, best: Draft, limits: PlanLimits) -> None:
        self._own = _OwnLoads(problem)
        super().__init__(problem, best.routes, limits, self._own)
        self._vector = [best.peak_slowdown.get(job, 1.0) for job in problem.numbers.job_ids]

    def lower(self, floors: Sequence[float], steps: int) -> None:
        """Lower the own slowdowns towards ``floors`` in at most ``steps`` steps."""
        end = self._step + steps
        if self._keeps(floors, end):
            return
        now = self._own.own_slowdowns()
        for job in np.argsort(-now, kind="stable").tolist():
            for part in range(_PARTS):
                now = self._own.own_slowdowns()
                goal = floors[job] + (now[job] - floors[job]) * part / _PARTS
                if now[job] <= floors[job] * (1 + SLOWDOWN_TOLERANCE) or self._step >= end:
                    break
                now[job] = goal
                if self._keeps(np.maximum(now, floors).tolist(), end):
                    break

    def _keeps(self, own_limits: Sequence[float], end: int) -> bool:
        before = self._own.own_limits
        self._own.own_limits = np.array(own_limits)
        found = self.reach(self._vector, end - self._step, _PATIENCE)
        if not found:
            self._own.own_limits = before
        return found


class _OwnLoads(CappedLoads):
    """Loads, with the load of each job alone (``own``; shape (jobs, links))."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        jobs = len(problem.numbers.job_ids)
        self.own: Floats = np.zeros((jobs, len(problem.capacity_bps)))
        self.own_limits: Floats = np.full(jobs, np.inf)

    def own_slowdowns(self) -> Floats:
        slowdowns: Floats = np.maximum(1.0, self.own.max(axis=1))
        return slowdowns

    def put(self, flow: int, path: Links) -> None:
        super().put(flow, path)
        for link in path:
            self.own[self.job[flow], link] += self.weight(flow, link)

    def remove(self, flow: int) -> None:
        for link in self.at[flow] or ():
            self.own[self.job[flow], link] -= self.weight(flow, link)
        super().remove(flow)

    def excess(self, flow: int, paths: Ints) -> Floats:
        job = self.job[flow]
        own = self.own[job, paths] + self._increments.added(flow, paths) - self.own_limits[job]
        beyond: Floats = np.maximum(super().excess(flow, paths), np.where(own < _ROUNDING, 0.0, own))
        return beyond

    def full(self, link: int) -> bool:
        return super().full(link) or self._exceeds(self.own[:, link])

    def all_full(self) -> list[int]:
        own = (self.own > self.own_limits[:, None] + _ROUNDING).any(axis=0)
        return sorted({*super().all_full(), *np.flatnonzero(own).tolist()})

    def relieves(self, flow: int, link: int) -> bool:
        after = self.own[:, link].copy()
        after[self.job[flow]] -= self.weight(flow, link)
        return super().relieves(flow, link) and not self._exceeds(after)

    def _exceeds(self, own: Floats) -> bool:
        return bool((own > self.own_limits + _ROUNDING).any())
