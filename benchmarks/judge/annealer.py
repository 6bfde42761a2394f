"""Simulated annealing of routes, an independent judge of the planner's search that imports nothing of the controller.

It routes whole flows, or flows that are split into several equal pieces, so that the largest load is small. This is
the worst slowdown by the slowest phase. Over iterations, the slowdown of the same routes is smaller or equal.
"""

import math
import random
from collections import defaultdict
from fractions import Fraction
from itertools import count
from time import process_time

from benchmarks.judge.exact import Exact, Path, Routing

_COOLING = 60
"""Number of proposed moves per piece in one cycle, in which the temperature falls from highest to lowest."""
_HOTTEST, _COLDEST = 0.3, 0.003
"""Highest and lowest temperature, relative to the mean load that a piece adds to a link."""
_LESS = (0.02, 0.05, 0.1, 0.2)
"""Relative amounts by which the search tries to improve the best worst slowdown so far, one per cycle, in turn."""
_CHECKED = 256
"""Number of proposed moves between two searches for the pieces on overloaded links."""
_HOT = 0.7
"""Share of the proposed moves that move a piece away from an overloaded link."""


def annealed(exact: Exact, pieces: int, seconds: float, seed: int = 1) -> float:
    """Return the worst slowdown of the routes with the smallest load that ``seconds`` of CPU time find.

    Each flow has ``pieces`` equal pieces. ``exact`` says whether the slowdown is that over iterations."""
    return float(exact.vector(_Annealer(exact, pieces, seed).run(seconds))[0])


class _Annealer:
    def __init__(self, exact: Exact, pieces: int, seed: int) -> None:
        self._exact, self._count = exact, pieces
        self._random = random.Random(seed)
        self._least = float(max(exact.nic_slowdowns.values()))
        self._capacity = [float(capacity) for capacity in exact.capacity]
        self._load = [0.0] * len(exact.ends)
        phases: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for flow in exact.flows:
            for phase in flow.demand:
                phases[flow.job].setdefault(phase, len(phases[flow.job]))
        self._sums: dict[tuple[int, int], list[float]] = {}
        """Load that each phase of a job puts on a link, by (job, link)."""
        self._pieces: list[tuple[int, list[tuple[int, float]], tuple[Path, ...]]] = []
        """Job, demand in each phase as (number of the phase, rate), and possible paths of each piece."""
        for flow in exact.flows:
            paths = exact.paths(*flow.ends)
            demand = [(phases[flow.job][phase], bps / pieces) for phase, bps in flow.demand.items()]
            if len(paths) > 1 or paths[0]:
                self._pieces += [(flow.job, demand, paths)] * pieces
            for path in paths:
                for link in path:
                    self._sums.setdefault((flow.job, link), [0.0] * len(phases[flow.job]))
        self._at = [self._random.choice(paths) for _, _, paths in self._pieces]

    def run(self, seconds: float) -> Routing:
        end = process_time() + seconds
        for number, path in enumerate(self._at):
            self._put(number, path, 1)
        best, best_at = max(self._load, default=1.0), list(self._at)
        mean = sum(self._load) / max(1, sum(map(len, self._at)))
        steps = max(2_000, _COOLING * len(self._pieces))
        for step in count(0, _CHECKED):
            goal = max(self._least, best * (1 - _LESS[step // steps % len(_LESS)]))
            temperature = mean * _HOTTEST * (_COLDEST / _HOTTEST) ** (step % steps / steps)
            hot = [n for n, path in enumerate(self._at) if any(self._load[link] > goal for link in path)]
            if (now := max(self._load, default=1.0)) < best:
                best, best_at = now, list(self._at)
            if best <= self._least or not self._pieces or process_time() > end:
                return self._routing(best_at)
            for _ in range(_CHECKED):
                among = hot if hot and self._random.random() < _HOT else range(len(self._at))
                self._propose(self._random.choice(among), goal, temperature)
        raise AssertionError("unreachable")

    def _routing(self, at: list[Path]) -> Routing:
        moved, share = iter(at), Fraction(1, self._count)
        among = [self._exact.paths(*flow.ends) for flow in self._exact.flows]
        return [
            [(next(moved), share) for _ in range(self._count)] if len(paths) > 1 or paths[0] else [((), Fraction(1))]
            for paths in among
        ]

    def _propose(self, number: int, goal: float, temperature: float) -> None:
        old, new = self._at[number], self._random.choice(self._pieces[number][2])
        if old == new:
            return
        links = {*old, *new}
        before = sum(max(0.0, self._load[link] - goal) for link in links)
        self._put(number, old, -1)
        self._put(number, new, 1)
        worse = sum(max(0.0, self._load[link] - goal) for link in links) - before
        if worse <= 0 or self._random.random() < math.exp(-worse / temperature):
            self._at[number] = new
        else:
            self._put(number, new, -1)
            self._put(number, old, 1)

    def _put(self, number: int, path: Path, sign: int) -> None:
        job, demand, _ = self._pieces[number]
        for link in path:
            sums = self._sums[job, link]
            before = max(sums)
            for phase, bps in demand:
                sums[phase] += sign * bps
            self._load[link] += (max(sums) - before) / self._capacity[link]
