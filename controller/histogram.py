"""Histograms of durations: frozen counts that one thread replaces and others read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate


def _each_decade(*steps: float) -> tuple[float, ...]:
    """Return bounds from 1 ms to less than 100 s. ``steps``: bounds of one decade, from 1 to less than 10."""
    return tuple(round(step * decade, 6) for decade in (0.001, 0.01, 0.1, 1.0, 10.0) for step in steps)


SECONDS = _each_decade(1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.3, 8.0)
"""Bounds in seconds, ten per decade (ISO 3, R 10).

A percentile that is estimated from the counts is wrong by at most a quarter."""
FEW_SECONDS = _each_decade(1.0, 2.5, 5.0)
"""Bounds in seconds, three per decade, for metrics with many histograms."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Frozen histogram: number of values in each interval."""

    bounds: tuple[float, ...] = SECONDS
    """Upper bounds of the intervals, ascending; an interval includes its upper bound."""
    counts: tuple[int, ...] = ()
    """Number of values in each interval, and finally of values above all bounds. Empty if there are no values."""
    total: float = 0.0
    """Sum of the values."""

    def observed(self, *values: float) -> Histogram:
        """Return the histogram with these values added."""
        counts = list(self.counts) or [0] * (len(self.bounds) + 1)
        for value in values:
            counts[bisect_left(self.bounds, value)] += 1
        return Histogram(self.bounds, tuple(counts), self.total + sum(values))

    @property
    def buckets(self) -> Iterator[tuple[str, int]]:
        """Buckets as in Prometheus: number of values up to each bound, and the total number."""
        counts = self.counts or (0,) * (len(self.bounds) + 1)
        return zip((*map(str, self.bounds), "+Inf"), accumulate(counts), strict=True)
