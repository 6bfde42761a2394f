"""Links that are reserved for the slower jobs, so that these do not slow down the others.

Where jobs of different levels share a leaf, a faster one reaches its level only on links whose load does not exceed
that level: some links are reserved for the slower jobs. Which ones, is a boolean per link and level: a mixed-integer
programme over the fluid amounts, which SCIP solves for up to some thousand columns.

In: the commodities, classes by level. Out: the barred links of each level, the room of every link, and by how much all
levels below the worst have to be raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from controller.planning.problem import Floats, Ints
from controller.planning.split_flows.commodities import Commodities
from controller.planning.split_flows.programme import Programme

_MOST_COLUMNS = 4_000
_MOST_CHOICES = 1_000
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Exclusive:
    """``barred``: per level the links (by number) that flows of that level may not use. ``room``: per link. ``raised``:
    by how much every level below the worst is."""

    barred: Mapping[float, Ints]
    room: Floats
    raised: float


def exclusive_links(of: Commodities, worst: float, seconds: float) -> Exclusive | None:
    """``worst``: the level that none may exceed. None when the problem is too large, when jobs have several phases that
    count, when there was not enough time, or when there is nothing to choose."""
    if of.rows > 1 or of.size() > _MOST_COLUMNS:
        return None
    of.open()
    model = _Model(of, worst)
    return model.solve(seconds) if 0 < len(model.choices) <= _MOST_CHOICES else None


class _Model:
    """``choices``: the (level, link) where a faster level may or may not be on a link that a slower one can use."""

    def __init__(self, of: Commodities, worst: float) -> None:
        self._of = of
        self._worst = worst
        self._levels, group = np.unique(of.level, return_inverse=True)
        self._index, self._link, self._rate = of.terms(np.arange(of.columns))
        pairs, self._pair = np.unique(group[of.column_class[self._index]] * of.links + self._link, return_inverse=True)
        self._level, self._at = self._levels[pairs // of.links], pairs % of.links
        self._top = np.zeros(of.links)
        np.maximum.at(self._top, self._at, self._level)
        self.choices: Ints = np.flatnonzero(self._level < self._top[self._at] * (1 - _ROUNDING))

    def solve(self, seconds: float) -> Exclusive | None:
        of, programme = self._of, Programme()
        raised = programme.variables(np.ones(1), np.full(1, np.inf))
        amounts = programme.variables(np.zeros(of.columns), np.full(of.columns, np.inf))
        uses = programme.variables(np.zeros(len(self.choices)), np.ones(len(self.choices)), integer=True)
        count = of.count.astype(np.float64)
        placed = programme.constraints(count, count) + of.column_class
        programme.add(placed, amounts + np.arange(of.columns), np.ones(of.columns))
        self._limit_links(programme, raised, amounts)
        self._limit_choices(programme, raised, amounts, uses)
        solved = programme.solve(seconds)
        if solved is None:
            return None
        values, _ = solved
        used = np.ones(len(self._level), bool)
        used[self.choices] = values[uses : uses + len(self.choices)] > 0.5
        allowed = np.minimum(self._worst, self._level + values[raised])
        room = np.full(of.links, self._worst)
        np.minimum.at(room, self._at[used], allowed[used])
        barred = {float(level): self._at[~used & (self._level == level)] for level in self._levels}
        return Exclusive(barred, room * of.capacity, float(values[raised]))

    def _limit_links(self, programme: Programme, raised: int, amounts: int) -> None:
        """No link is loaded beyond the slowest level on it, raised unless it is the worst."""
        of = self._of
        links = np.unique(self._link)
        row = np.full(of.links, -1, np.int64)
        first = programme.constraints(np.full(len(links), -np.inf), (self._top * of.capacity)[links])
        row[links] = first + np.arange(len(links))
        programme.add(row[self._link], amounts + self._index, self._rate)
        below = links[self._top[links] < self._worst * (1 - _ROUNDING)]
        programme.add(row[below], np.full(len(below), raised), -of.capacity[below])

    def _limit_choices(self, programme: Programme, raised: int, amounts: int, uses: int) -> None:
        """Where a faster level is on a link: the load is at most that level, raised. Where it is not: no flow of it."""
        choices = self.choices
        at, numbers = self._at[choices], np.arange(len(choices))
        capacity, top = self._of.capacity[at], self._top[at]
        lower = np.full(len(choices), -np.inf)
        load = programme.constraints(lower, top * capacity) + numbers
        own = programme.constraints(lower, np.zeros(len(choices))) + numbers
        programme.add(load, uses + numbers, (top - self._level[choices]) * capacity)
        programme.add(load, np.full(len(choices), raised), -capacity)
        programme.add(own, uses + numbers, -self._worst * capacity)
        for row, choice in zip(load.tolist(), choices.tolist(), strict=True):
            there = np.flatnonzero(self._link == self._at[choice])
            programme.add(np.full(len(there), row), amounts + self._index[there], self._rate[there])
        row_of = np.full(len(self._level), -1, np.int64)
        row_of[choices] = own
        mine = np.flatnonzero(row_of[self._pair] >= 0)
        programme.add(row_of[self._pair[mine]], amounts + self._index[mine], self._rate[mine])
