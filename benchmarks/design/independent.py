"""Search for good bandwidths by trial and error, to reveal errors of ``offline.design``; the two share no code.

The search evaluates a grid of points, and then moves from the best point by random steps of decreasing size.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_GRID = {1: 1, 2: 400, 3: 40, 4: 16}
"""Number of intervals into which the grid divides the total bandwidth, by number of dimensions."""
_TRIED = 64
"""Number of random directions that are tried before the step becomes smaller."""
_FIRST_STEP, _LAST_STEP, _SHRINK = 0.5, 1e-8, 0.6
_SLACK, _RELATED_SLACK = 1e-9, 1e-8
"""Relative tolerances for rounding errors, of the limits and of the relations."""
_TINY = 1e-300


@dataclass(frozen=True)
class Case:
    """Optimization problem with one unknown bandwidth b[d] per dimension d.

    Minimize the time: the sum over terms k of weight[k] * max(floor[k], max over d of gigabits[k, d] / b[d]). With
    ``by_cost``, minimize this time multiplied by the cost, cost @ b. The bandwidths must satisfy

    - least <= b <= most;
    - sum of b <= ``total``, or with ``by_cost`` sum of b == ``total``;
    - cost @ b <= ``budget``;
    - relations @ b >= 0 in each entry.

    Either ``total`` or ``budget`` may be inf."""

    weight: Floats
    floor: Floats
    gigabits: Floats
    least: Floats
    most: Floats
    cost: Floats
    total: float
    budget: float
    by_cost: bool
    relations: Floats

    def values(self, points: Floats) -> Floats:
        """Return the objective at each row of ``points``, inf where a row is outside the limits."""
        times = (
            np.maximum(self.floor, (self.gigabits / np.maximum(points, _TINY)[:, None, :]).max(axis=2)) @ self.weight
        )
        spent, sums = points @ self.cost, points.sum(axis=1)
        inside = (points >= self.least * (1 - _SLACK)).all(axis=1) & (points <= self.most * (1 + _SLACK)).all(axis=1)
        inside &= (spent <= self.budget * (1 + _SLACK)) & (sums <= self.total * (1 + _SLACK))
        inside &= (points @ self.relations.T >= -_RELATED_SLACK * (points @ np.abs(self.relations.T))).all(axis=1)
        if self.by_cost:
            inside &= sums >= self.total * (1 - _SLACK)
        return np.where(inside, times * spent if self.by_cost else times, np.inf)

    def stretched(self, points: Floats) -> Floats:
        """Return the rows scaled so that they use up the total or the budget.

        Only the part of a bandwidth above ``least`` is scaled, and no bandwidth becomes larger than ``most``."""
        most, left = self.most - self.least, self.total - self.least.sum()
        budget_left = self.budget - self.cost @ self.least
        for _ in self.least:
            above = np.clip(points - self.least, 0, most)
            loose = np.where(above < most, above, 0)
            fixed = above - loose
            room = (left - fixed.sum(axis=1)) / np.maximum(loose.sum(axis=1), _TINY)
            if not self.by_cost:
                room = np.minimum(room, (budget_left - fixed @ self.cost) / np.maximum(loose @ self.cost, _TINY))
            points = self.least + fixed + loose * np.maximum(room, 0)[:, None]
        return points


def searched(case: Case, seed: int) -> tuple[Floats, float]:
    """Return the best bandwidths that were found, and their objective; inf if no point was within the limits."""
    rng = np.random.default_rng(seed)
    dimensions = len(case.least)
    largest = case.total if np.isfinite(case.total) else case.budget
    points = case.stretched(case.least + _grid(dimensions) * largest)
    values = case.values(points)
    best, value = points[values.argmin()], float(values.min())
    step = _FIRST_STEP
    while step > _LAST_STEP and np.isfinite(value):
        # Half of the directions change a single dimension.
        ways = rng.standard_normal((_TRIED, dimensions))
        ways[::2] *= np.eye(dimensions)[rng.integers(0, dimensions, len(ways[::2]))]
        tried = case.stretched(best * np.exp(step * ways))
        values = case.values(tried)
        if values.min() < value:
            best, value = tried[values.argmin()], float(values.min())
        else:
            step *= _SHRINK
    return best, value


def _grid(dimensions: int) -> Floats:
    """Return all ways to divide 1 into positive shares that are multiples of a step (``_GRID``)."""
    steps = _GRID[dimensions] + dimensions - 1
    borders = np.array(list(combinations(range(1, steps), dimensions - 1))).reshape(-1, dimensions - 1)
    ends = np.hstack((np.zeros((len(borders), 1)), borders, np.full((len(borders), 1), steps)))
    return np.diff(ends, axis=1) / steps
