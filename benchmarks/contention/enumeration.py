"""Best ways and classes of the small cases by Crux's recipe, by enumeration of every plan.

The code shares nothing with the planner. Jobs have one phase, a demand of 1 on links of capacity 1, strict classes
without a floor, and no slots. So the time of a job depends only on which sets of other jobs use one of its links with
it. Such a family of sets is a bitmap: bit m says whether some link has all jobs of the set m, which is a bitmap too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product, repeat

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

Way = frozenset[int]
"""Links of a way."""


class Enumeration:
    """Every plan of a few jobs. ``compute_s``, ``ideal_s``: times of each job. ``ways``: ways of each job."""

    def __init__(self, compute_s: Sequence[float], ideal_s: Sequence[float], ways: Sequence[Sequence[Way]]) -> None:
        self._compute_s, self._ideal_s, self._numbers = compute_s, ideal_s, range(len(ways))
        links = sorted(frozenset().union(*(way for of in ways for way in of)))
        chosen = np.indices([len(of) for of in ways]).reshape(len(ways), -1)
        self.ways = chosen.shape[1]
        """Number of combinations of ways."""
        uses = [np.array([[link in way for link in links] for way in of], bool) for of in ways]
        used = np.array([of[at] for of, at in zip(uses, chosen, strict=True)])
        on_link = (used * (1 << np.arange(len(ways)))[:, None, None]).sum(axis=0)
        subsets = np.array([self._subsets(jobs) for jobs in range(1 << len(ways))])
        sharing = [np.where(of, subsets[on_link & ~(1 << number)], 1) for number, of in enumerate(used)]
        families: Ints = np.bitwise_or.reduce(np.array(sharing), axis=2, initial=1)
        self._families: Ints = np.unique(families, axis=1)
        """Family of each job (row), for all combinations of ways that differ in a family (column)."""
        self._known = cache(self._time_s)

    def _subsets(self, jobs: int) -> int:
        """Return the family of all sets of these jobs."""
        return sum(1 << each for each in range(1 << len(self._numbers)) if not each & ~jobs)

    def least(self, classes: int, cost: Callable[[int, float], float]) -> tuple[float, int]:
        """Return the least total cost of all plans, and the number of the plans.

        ``cost``: cost of a job whose iterations take these seconds."""
        least, orders = math.inf, [*self._orders(classes)]
        of_job = [np.unique(row, return_inverse=True) for row in self._families]
        for order in orders:
            total = np.zeros(self._families.shape[1])
            for number, (families, at) in enumerate(of_job):
                equal = self._subsets(sum(1 << n for n in self._numbers if n != number and order[n] == order[number]))
                before = [n for n in self._numbers if order[n] < order[number]]
                higher = [tuple(n for n in before if family >> (1 << n) & 1) for family in families.tolist()]
                took_s = map(self._known, repeat(number), (families & equal).tolist(), higher)
                total += np.array([cost(number, each) for each in took_s])[at]
            least = min(least, float(total.min()))
        return least, len(orders) * self.ways

    def _orders(self, classes: int) -> Iterator[tuple[int, ...]]:
        """Yield the class of each job, for all ways to divide jobs into classes; no class before another is empty."""
        for order in product(range(classes), repeat=len(self._numbers)):
            if len({*order}) > max(order):
                yield order

    def _time_s(self, number: int, family: int, higher: tuple[int, ...]) -> float:
        """Return the longest time of an iteration, by response-time analysis.

        Each job of a higher class delays the job by all that it sends meanwhile. On each link, a job of the same class
        delays it by what this job sends meanwhile, at most by the job's own communication. Delays by the same class are
        at most as long as on the most crowded link, if all of its jobs send all the time."""
        own_s = self._ideal_s[number]
        sets = [each for each in range(1 << len(self._numbers)) if family >> each & 1]
        largest = [each for each in sets if not any(each != more and each & more == each for more in sets)]
        most = 1 + max(each.bit_count() for each in largest)
        took_s, grown_s = 0.0, own_s
        while took_s < grown_s - 1e-9 * own_s:
            took_s = grown_s
            if took_s > 1000 * (own_s + self._compute_s[number]):
                return math.inf
            sent_s = [self._sent_s(other, took_s) for other in self._numbers]
            same_s = sum(min(own_s, sent_s[n]) for each in largest for n in self._numbers if each >> n & 1)
            grown_s = min(own_s + same_s, most * own_s) + sum(sent_s[n] for n in higher)
        return self._compute_s[number] + grown_s

    def _sent_s(self, number: int, within_s: float) -> float:
        """Return the longest communication of a job within these seconds."""
        own_s = self._ideal_s[number]
        turns, rest_s = divmod(within_s, own_s + self._compute_s[number])
        return turns * own_s + min(rest_s, own_s)
