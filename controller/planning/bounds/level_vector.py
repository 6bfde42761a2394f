"""Lower bounds of all levels, sorted from the worst: what the cuts ask of the jobs *together*.

A leaf with more flows than uplinks says: one of these jobs must be slow. Two such leaves say that one job may be enough
for both, or that it is not. CP-SAT finds the lexicographically least levels within all the inequalities of
``cut_needs``. The model has jobs and levels but no flows: it is small however many flows there are.

In: a problem's ``Bounds``. Out: a ``LevelVector``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from controller.jobs.spec import JobId
from controller.planning.bounds.cut_needs import Need, contested, least_worst
from controller.planning.bounds.level_bounds import Bounds
from controller.planning.cp_sat import cp_model
from controller.planning.efficiency import Ints, first_difference

_SCALE = 1_000_000
"""Integer units per cut. What jobs need of it is rounded down, so that the bound stays one."""
_ROUNDING = 1e-9
_MOST_LEVELS = 64
"""Levels that are told apart, the highest of all that are possible."""
_SECONDS = 0.2
"""Deterministic time per stage, a hundred times what it takes."""


@dataclass(frozen=True, slots=True)
class LevelVector:
    """``levels``: sorted from the worst, one per job; no routing's sorted levels are lexicographically smaller.
    ``ceiling``: per job a level, all together the least that the cuts allow: what a routing may aim at."""

    levels: tuple[float, ...]
    ceiling: Mapping[JobId, float]


def level_vector(bounds: Bounds) -> LevelVector:
    """At least as strong as ``bounds.vector``."""
    needs = contested(bounds)
    worst = least_worst(needs, bounds.worst)
    levels = _levels(bounds, needs, worst)
    if len(bounds.job) > 1 and len(levels) > 1:
        found = _Model(bounds, needs, levels).solve()
        if found:
            return found
    own = bounds.vector if worst <= bounds.worst else (worst, *sorted(bounds.job.values(), reverse=True)[1:])
    return LevelVector(own, dict.fromkeys(bounds.job, worst))


def stronger(one: Sequence[float], other: Sequence[float]) -> tuple[float, ...]:
    """Of two lower bounds of sorted levels the lexicographically larger one; what is missing at the end is 1. Entry by
    entry the larger would be wrong: an entry holds for routings that reach those before it."""
    pairs = list(zip_longest(one, other, fillvalue=1.0))
    left, right = zip(*pairs, strict=True) if pairs else ((), ())
    index = first_difference(left, right)
    return right if index is not None and left[index] < right[index] else left


def _levels(bounds: Bounds, needs: Iterable[Need], worst: float) -> list[float]:
    """The jobs' own bounds, and above them all levels at which a job's need changes; ascending up to ``worst``."""
    lowest = min(bounds.job.values(), default=1.0)
    levels = {*bounds.job.values(), worst, *(level for need in needs for level in need.changes(worst))}
    ascending = sorted(level for level in levels if lowest <= level <= worst)
    apart = [b for a, b in zip([0.0, *ascending], ascending, strict=False) if b > a * (1 + _ROUNDING)]
    return [lowest, *apart[1:][-_MOST_LEVELS:]]


class _Model:
    """``_above``: per job and level whether the job's level is at least that one; below the next level it may be
    anywhere."""

    def __init__(self, bounds: Bounds, needs: Sequence[Need], levels: Sequence[float]) -> None:
        self._bounds = bounds
        self._levels = levels
        self._cp = cp_model.CpModel()
        self._above = [
            [self._cp.new_int_var(level <= floor * (1 + _ROUNDING), 1, f"{job} >= {level}") for level in levels]
            for job, floor in bounds.job.items()
        ]
        for above, job in zip(self._above, bounds.job, strict=True):
            for higher, lower in zip(above[1:], above, strict=False):
                self._cp.add_implication(higher, lower)
            if job in bounds.tight and levels[-1] <= bounds.fluid * (1 + _ROUNDING):
                self._cp.add(above[-1] == 1)
        self._cp.add_bool_or(above[-1] for above in self._above)
        below_next = [level * (1 - 2 * _ROUNDING) for level in levels[1:]] + [levels[-1]]
        for need in needs:
            shares = np.array([need.of(level) for level in below_next])
            self._fits(np.floor(shares * _SCALE).astype(np.int64))

    def _fits(self, shares: Ints) -> None:
        """``shares``: of a cut at each level, shape (levels, jobs)."""
        saved = -np.diff(shares, axis=0)
        terms = [
            int(less) * higher
            for above, column in zip(self._above, saved.T, strict=True)
            for higher, less in zip(above[1:], column, strict=True)
            if less
        ]
        self._cp.add(sum(terms) >= int(shares[0].sum()) - _SCALE)

    def solve(self) -> LevelVector | None:
        """None when time runs out, which it should not."""
        jobs = len(self._above)
        height = [sum(above[1:]) for above in self._above]
        found: list[float] = []
        level = len(self._levels) - 1
        while len(found) < jobs:
            at_least = [above[level] for above in self._above]
            solver = self._minimise(sum(at_least))
            if solver is None:
                return None
            count = round(solver.objective_value)
            self._cp.add(sum(at_least) <= count)
            found += [self._levels[level]] * (count - len(found))
            if count == jobs:
                break
            following = self._cp.new_int_var(0, level - 1, "following")
            for of_job, slower in zip(height, at_least, strict=True):
                self._cp.add(following >= of_job).only_enforce_if(~slower)
            solver = self._minimise(following)
            if solver is None:
                return None
            level = solver.value(following)
            self._cp.add(following <= level)
        return self._largest_first(found, height)

    def _largest_first(self, found: list[float], height: Sequence[Any]) -> LevelVector | None:
        """Among the jobs that may be the slow ones, those with the most flows leave the most ways of being so."""
        cuts = self._bounds.cuts
        flows = dict(zip(cuts.job_ids, np.bincount(cuts.job, minlength=len(cuts.job_ids)).tolist(), strict=True))
        weights = [flows[job] for job in self._bounds.job]
        solver = self._minimise(-sum(weight * of_job for weight, of_job in zip(weights, height, strict=True)))
        if solver is None:
            return None
        ceiling = {
            job: self._levels[sum(solver.boolean_value(above) for above in of_job) - 1]
            for job, of_job in zip(self._bounds.job, self._above, strict=True)
        }
        return LevelVector(tuple(found), ceiling)

    def _minimise(self, objective: Any) -> cp_model.CpSolver | None:
        self._cp.minimize(objective)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_deterministic_time = _SECONDS
        solver.parameters.catch_sigint_signal = False
        return solver if solver.solve(self._cp) == cp_model.OPTIMAL else None
