"""How long things took, added up: frozen counts that one thread replaces and others read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
FEW_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0)
"""Where there are many histograms."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """``bounds``: ascending. ``counts``: how many values were in each interval that ends with a bound, which belongs to
    it; the last ones were above all bounds. ``total``: of the values."""

    bounds: tuple[float, ...] = SECONDS
    counts: tuple[int, ...] = ()
    total: float = 0.0

    def observed(self, *values: float) -> Histogram:
        """With these values besides."""
        counts = list(self.counts) or [0] * (len(self.bounds) + 1)
        for value in values:
            counts[bisect_left(self.bounds, value)] += 1
        return Histogram(self.bounds, tuple(counts), self.total + sum(values))

    @property
    def buckets(self) -> Iterator[tuple[str, int]]:
        """How many values were not above each bound, and above none, as Prometheus writes them."""
        counts = self.counts or (0,) * (len(self.bounds) + 1)
        return zip((*map(str, self.bounds), "+Inf"), accumulate(counts), strict=True)
