"""Circles that jobs can keep: periods into which the iterations of several jobs fit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from controller.planning.contention.fluid import EPSILON, Case

TOLERANCE = 0.02
"""Largest difference between a member's ideal iteration and its part of the period, relative to the former."""
MOST_TURNS = 6
STRETCHES = (1.02, 1.05, 1.1, 1.2, 1.35, 1.5)
"""Periods of circles, as multiples of a period that members can keep without sharing."""


class Circle(NamedTuple):
    """Circle on which jobs can have slots."""

    period_s: float = 0.0
    turns: tuple[int, ...] = ()
    """Number of iterations of each job per turn; 0 for a job that stays free. Empty: all jobs stay free."""
    slots: int = 1
    """Number of places where a slot can begin; a multiple of all turns."""
    max_wait: float = TOLERANCE
    """Largest wait of a member in an iteration, as a fraction of its ideal iteration."""

    def start_s(self, place: int) -> float:
        return place * self.period_s / self.slots

    def part_s(self, number: int) -> float:
        return self.period_s / self.turns[number]

    def places(self, number: int) -> range:
        """Return the places where the first slot of a job can begin."""
        turns = self.turns[number] if self.turns else 0
        return range(self.slots // turns if turns else 0)


NO_CIRCLE = Circle()


def circles(case: Case, slots: int, stretches: Sequence[float] = (1.0, *STRETCHES)) -> Iterator[Circle]:
    """Yield circles that at least two jobs can keep with short waits, if they do not disturb each other.

    Longer ones follow, for jobs that disturb each other. There, members wait that are disturbed less than others."""
    found = set()
    for ideal_s, turns in product({job.ideal_s for job in case.jobs if job.regular}, range(1, MOST_TURNS + 1)):
        for stretch in stretches:
            period_s = ideal_s * turns * stretch
            counts = [int(period_s / each.ideal_s * (1 + EPSILON)) for each in case.jobs]
            counts = [
                count
                if each.regular
                and count <= MOST_TURNS
                and period_s / max(1, count) <= each.ideal_s * (stretch + TOLERANCE)
                else 0
                for each, count in zip(case.jobs, counts, strict=True)
            ]
            if sum(map(bool, counts)) > 1 and math.gcd(*counts) == 1:
                unit = math.lcm(*filter(None, counts))
                max_wait = stretch - 1 + TOLERANCE
                found.add((stretch, Circle(period_s, tuple(counts), unit * math.ceil(slots / unit), max_wait)))
    yield from (circle for _, circle in sorted(found))
