"""Lower bounds of the worst slowdown of jobs with several phases that meet at cuts.

In: cuts (``bounds``), and the rate of each cell across each cut. Out: a bound, and what proves it. A *meeting* is a cut
with a cell (a phase of a job, ``efficiency``) of each of some jobs.

- Let the cells of a meeting have the rates D_p across a cut of capacity C, the sum A, and the slowdowns y_p. On a link
  of capacity c, let x_p be the rate of cell p, and X the sum over all cells of the meeting. Cell p sees at least the
  load X / c there, because each other job counts with its largest phase. So D_p * y_p is at least the sum over the
  links of x_p * X / c. The sum of D_p * y_p over all cells is thus at least the sum of X^2 / c, which is at least
  A^2 / C.

- The slowdown of a job is at most S: the sum of share * slowdown over its phases. No slowdown is below the bound of the
  phase's own flows. The smallest S with which all meetings agree is a lower bound of the worst slowdown. A linear
  programme finds it. There are very many meetings, so only those are added that its solution violates.

- Proof: give each meeting a weight. Let g_p be the sum of weight * D_p over the meetings of cell p, s_p its share, b_p
  the bound of its slowdown, B_j the sum of s_p * b_p of job j, and m_j its largest g_p / s_p. The sum of g_p * y_p over
  the cells of job j is at most the sum of g_p * b_p, plus (S - B_j) * m_j. So S is at least (sum of weight * A^2 / C -
  sum of g_p * b_p + sum of m_j * B_j) / sum of m_j. The duals of the programme are the best weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from controller.planning.problem import Floats, Ints, run_starts

_ROUNDS = 12
"""Largest number of programmes, each with more meetings."""
_TRIES = 8
"""Largest number of attempts to find the cells of a meeting that the slowdowns violate most."""
_GAIN = 1e-3
"""Relative gain of the bound by a programme below which no further one follows, if there were meetings before."""
_VIOLATED = 1e-6
"""Smallest relative violation for which a meeting is added."""
_DELAY_COST = 1e-6
"""Cost of a slowdown above its bound, compared with the worst slowdown; it keeps all slowdowns small."""
_SECONDS = 0.5
"""Time limit of each programme, in seconds."""


class Meeting(NamedTuple):
    cut: int
    cells: Ints
    """Cells of the meeting, at most one per job."""
    rates: Floats
    """Rate of each of these cells across the cut."""


class Meetings:
    """Meetings at the same cuts, found so far.

    ``job``, ``share``: job and share of each cell. ``cut``, ``cell``, ``rate``: one row for each cell with flows across
    a cut, in ascending order of cuts and cells. ``capacity``: capacity of each cut."""

    def __init__(self, job: Ints, share: Floats, cut: Ints, cell: Ints, rate: Floats, capacity: Floats) -> None:
        kept = share[cell] > 0
        self._job, self._share, self._capacity = job, share, capacity
        self._cut, self._cell, self._rate = cut[kept], cell[kept], rate[kept]
        self._starts = run_starts(self._cut * (1 + int(job.max(initial=0))) + job[self._cell])
        self._group = np.repeat(np.arange(len(self._starts)), np.diff(self._starts, append=len(self._cell)))
        self._known: dict[tuple[int, bytes], Meeting] = {}
        self._found: dict[bytes, tuple[float, list[tuple[Meeting, float]]]] = {}

    def bound(self, least: Floats) -> tuple[float, list[tuple[Meeting, float]]]:
        """Return a lower bound of the worst slowdown, and the meetings that prove it, with their weights.

        ``least``: lower bound (>= 1) of the slowdown of each cell."""
        key = least.tobytes()
        if key not in self._found:
            self._found[key] = self._bound(least)
        return self._found[key]

    def _bound(self, least: Floats) -> tuple[float, list[tuple[Meeting, float]]]:
        begun = bool(self._known)  # the bound of the first programmes may be the same for many rounds
        slowdowns, found = least, (self._proven(least, []), list[tuple[Meeting, float]]())
        for _ in range(_ROUNDS):
            before = len(self._known)
            for meeting in self._violated(slowdowns):
                self._known.setdefault((meeting.cut, meeting.cells.tobytes()), meeting)
            solved = self._solved(least) if len(self._known) > before or (slowdowns is least and before) else None
            if solved is None:
                break
            slowdowns, weights = solved
            weighted = [(of, weight) for of, weight in zip(self._known.values(), weights, strict=True) if weight > 0]
            so_far, found = found[0], max(found, (self._proven(least, weighted), weighted), key=lambda of: of[0])
            if begun and found[0] <= so_far * (1 + _GAIN):
                break
        return found

    def _violated(self, slowdowns: Floats) -> Iterator[Meeting]:
        """Yield for each cut the meeting that these slowdowns of cells violate most.

        For a given sum A, the best cell of a job has the largest D_p * (2 * A / C - y_p), if this is positive."""
        if not len(self._starts):
            return
        total = np.bincount(self._cut[self._starts], np.maximum.reduceat(self._rate, self._starts), len(self._capacity))
        for _ in range(_TRIES):
            worth = self._rate * (2 * (total / self._capacity)[self._cut] - slowdowns[self._cell])
            most = np.maximum.reduceat(worth, self._starts)
            rows = np.flatnonzero((worth >= most[self._group]) & (worth > 0))
            rows = rows[run_starts(self._group[rows])]
            before, total = total, np.bincount(self._cut[rows], self._rate[rows], len(self._capacity))
            if np.array_equal(before, total):
                break
        met = np.bincount(self._cut[rows], self._rate[rows] * slowdowns[self._cell[rows]], len(self._capacity))
        ends = np.searchsorted(self._cut[rows], np.arange(len(self._capacity) + 1))
        for cut in np.flatnonzero(total**2 / self._capacity > met + _VIOLATED * total).tolist():
            of_cut = rows[ends[cut] : ends[cut + 1]]
            yield Meeting(cut, self._cell[of_cut], self._rate[of_cut])

    def _solved(self, least: Floats) -> tuple[Floats, list[float]] | None:
        """Return the slowdown of each cell with the smallest worst slowdown, and the weight of each known meeting."""
        from controller.planning.programme import Programme  # loads a solver, which only the planner needs

        programme = Programme()
        own: Floats = np.bincount(self._job, self._share * least).astype(np.float64, copy=False)
        worst = programme.variables(np.ones(1), np.array([math.inf]))
        delay = programme.variables(_DELAY_COST * self._share, np.full(len(least), math.inf))
        jobs = programme.constraints(np.full(len(own), -math.inf), -own)
        programme.add(jobs + self._job, delay + np.arange(len(least)), self._share)
        programme.add(jobs + np.arange(len(own)), np.full(len(own), worst), -np.ones(len(own)))
        known = self._known.values()
        needed: Floats = np.array([self._load(of) - float(of.rates @ least[of.cells]) / of.rates.sum() for of in known])
        meetings = programme.constraints(needed, np.full(len(needed), math.inf))
        for row, of in enumerate(known, start=meetings):
            programme.add(np.full(len(of.cells), row), delay + of.cells, of.rates / of.rates.sum())
        solved = programme.solve(_SECONDS)
        if solved is None:
            return None
        weights = np.maximum(0.0, solved[1][meetings:]) / np.array([of.rates.sum() for of in known])
        return least + solved[0][delay:], weights.tolist()

    def _proven(self, least: Floats, weighted: list[tuple[Meeting, float]]) -> float:
        """Return the lower bound that meetings with these weights prove."""
        own = np.bincount(self._job, self._share * least)
        sums, total = np.zeros(len(least)), 0.0
        for of, weight in weighted:
            sums[of.cells] += weight * of.rates
            total += weight * of.rates.sum() * self._load(of)
        most = np.zeros(len(own))
        np.maximum.at(most, self._job, sums / np.where(self._share > 0, self._share, 1.0))
        proven = (total - sums @ least + most @ own) / most.sum() if most.any() else 1.0
        return float(max(proven, own.max(initial=1.0)))

    def _load(self, meeting: Meeting) -> float:
        return float(meeting.rates.sum() / self._capacity[meeting.cut])
