"""The least levels of all jobs, sorted from the worst, where the cuts do not show them: small problems on any fabric.

A job is only fast if it keeps off the links that others load beyond its level. So there is a boolean per job and link:
whether the job may be there. The worst level is minimised, then how many jobs have it, then the next level, and so on:
mixed-integer programmes over the fluid amounts. (``exclusive_links`` is for more jobs, and takes levels from cuts.)
What they find is divided into pieces like any other spread.

In: a problem, its bounds, the best routing so far. Out: routes that aim at smaller sorted levels; None where there was
nothing to improve, the problem is too large, or time was up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from controller.fabric.topology import LinkId
from controller.planning.bounds import Bounds
from controller.planning.efficiency import LEVEL_TOLERANCE, first_difference
from controller.planning.numbered import Numbers
from controller.planning.plan import Draft, levels_proven
from controller.planning.problem import Floats, PlanLimits, Problem, Routes
from controller.planning.split_flows.commodities import Commodities
from controller.planning.split_flows.dividing import Divider
from controller.planning.split_flows.programme import Programme
from controller.planning.split_flows.search import Fluid
from signalbox.jobs.spec import JobId

_MOST_COLUMNS = 1_000
_MOST_CHOICES = 400
_NEAR = 0.01
_ROUNDING = 1e-6


def improve(
    problem: Problem, limits: PlanLimits, bounds: Bounds, best: Draft, proven: Sequence[float]
) -> Routes | None:
    """``proven``: lower bounds of the sorted levels. Where ``best`` is at them, nothing is left to find; where its
    worst level is far from its bound, the number of pieces is in the way."""
    if len(best.vector) < 2 or levels_proven(best.vector, proven) == len(best.vector):
        return None
    if best.vector[0] > proven[0] * (1 + _NEAR) or _fewest_columns(problem.numbers) > _MOST_COLUMNS:
        return None
    of = Commodities(problem, apart=True)
    if of.size() > _MOST_COLUMNS:
        return None
    of.open()
    model = _Model(of, bounds, best.vector[0])
    if len(model.job) > _MOST_CHOICES:
        return None
    amounts = model.least(best.vector, proven, limits)
    if amounts is None:
        return None
    level, room = model.aims(amounts)
    fluid = Fluid(problem, best.routes, level, model.barred(level, room, tuple(problem.link_number)))
    room = room * (1 + _ROUNDING) * of.capacity
    spread = fluid.improve(room, limits)
    if spread is None:
        return None
    room = np.maximum(room, fluid.link_loads(spread.amounts))
    return Divider(problem, fluid.of, best.routes, limits).divide(spread.amounts, room)


def _fewest_columns(numbers: Numbers) -> int:
    """There is a class of flows for each job and pair of leaves at the least, and a column for each class."""
    flows, leaves = numbers.crossing, len(numbers.leaves)
    return len(np.unique((numbers.job[flows] * leaves + numbers.src[flows]) * leaves + numbers.dst[flows]))


class _Step(NamedTuple):
    """At most so many jobs are above the level."""

    level: float
    jobs: int


class _Model:
    """``job``, ``link``: by number, of each choice: the link may be loaded beyond the least level of the job, which
    may use it."""

    def __init__(self, of: Commodities, bounds: Bounds, worst: float) -> None:
        self._of, self._worst = of, worst * (1 + _ROUNDING)
        self._ids = sorted(bounds.job)
        self._floor = np.array([min(worst, bounds.job[job]) for job in self._ids])
        number = {job: index for index, job in enumerate(self._ids)}
        self._column, self._key, self._rate = of.terms(np.arange(of.columns))
        self._link = self._key % of.links
        class_job = np.array([number[of.first(at).job_id] for at in range(len(of.members))], np.int64)
        self._user = class_job[of.column_class[self._column]]
        most = of.link_loads(of.loads(of.count[of.column_class].astype(np.float64))) / of.capacity
        pairs, pair = np.unique(self._user * of.links + self._link, return_inverse=True)
        job, link = pairs // of.links, pairs % of.links
        open_to = most[link] > self._floor[job] * (1 + LEVEL_TOLERANCE)
        self.job, self.link = job[open_to], link[open_to]
        self._choice = np.where(open_to, np.cumsum(open_to) - 1, -1)[pair]
        """Of each term; -1 where there is none."""

    def least(self, vector: Sequence[float], proven: Sequence[float], limits: PlanLimits) -> Floats | None:
        """Amounts per column with the least sorted levels that were found; None when ``vector`` has the least."""
        found: Floats | None = None
        current, lowest = list(vector), sorted(self._floor.tolist(), reverse=True)
        steps: list[_Step] = []
        above = 0
        while above < len(current) and current[above] > lowest[-1] * (1 + LEVEL_TOLERANCE):
            known = lowest[above] if above else max(lowest[0], proven[0])
            if current[above] > known * (1 + LEVEL_TOLERANCE):
                solved = self._solve(steps, None, limits)
                found, current = self._better(solved, found, current)
            steps.append(_Step(current[above] * (1 + _ROUNDING), above))
            below = current[above] * (1 - 2 * LEVEL_TOLERANCE)
            if _above(current, below) > max(above + 1, _above(lowest, below)):
                solved = self._solve(steps, below, limits)
                found, current = self._better(solved, found, current)
            above = _above(current, below)
            steps.append(_Step(below, above))
        return found

    def _better(
        self, solved: Floats | None, found: Floats | None, current: list[float]
    ) -> tuple[Floats | None, list[float]]:
        """What is solved where its levels are smaller."""
        if solved is None:
            return found, current
        levels = sorted(self._levels(solved).tolist(), reverse=True)
        index = first_difference(levels, current)
        return (found, current) if index is None or levels[index] > current[index] else (solved, levels)

    def _levels(self, amounts: Floats) -> Floats:
        """Per job the largest load on a link that it uses, at least its least level."""
        of = self._of
        loads = of.link_loads(of.loads(amounts)) / of.capacity
        level, used = self._floor.copy(), amounts[self._column] > 0
        np.maximum.at(level, self._user[used], loads[self._link[used]])
        return level

    def aims(self, amounts: Floats) -> tuple[dict[JobId, float], Floats]:
        """The level of each job; per link the least level of the jobs there, the worst where there is none."""
        level, used = self._levels(amounts), amounts[self._column] > 0
        room = np.full(self._of.links, max(level))
        np.minimum.at(room, self._link[used], level[self._user[used]])
        return dict(zip(self._ids, level.tolist(), strict=True)), room

    def barred(
        self, level: Mapping[JobId, float], room: Floats, links: Sequence[LinkId]
    ) -> dict[JobId, frozenset[LinkId]]:
        """Per job the links with more room than its level. ``links``: by number."""
        beyond = np.array([level[job] for job in self._ids])[self.job] < room[self.link] * (1 - _ROUNDING)
        off = ((job, self.link[beyond & (self.job == number)].tolist()) for number, job in enumerate(self._ids))
        return {job: frozenset(links[at] for at in those) for job, those in off}

    def _solve(self, steps: Sequence[_Step], below: float | None, limits: PlanLimits) -> Floats | None:
        """Amounts with the least highest level, but for the jobs above the last step; with a level, with the fewest
        jobs above that."""
        if limits.left_s <= 0:
            return None
        of, programme, jobs = self._of, Programme(), len(self._ids)
        amounts = programme.variables(np.zeros(of.columns), np.full(of.columns, np.inf))
        raised = programme.variables(np.zeros(jobs), self._worst - self._floor)
        uses = programme.variables(np.zeros(len(self.job)), np.ones(len(self.job)), integer=True)
        count = of.count.astype(np.float64)
        placed = programme.constraints(count, count)
        programme.add(placed + of.column_class, amounts + np.arange(of.columns), np.ones(of.columns))
        self._limit_loads(programme, amounts, raised, uses)
        flags = [self._flags(programme, raised, step.level, step.jobs) for step in steps]
        if below is None:
            highest = programme.variables(np.ones(1), np.array([self._worst]))
            rows = programme.constraints(np.full(jobs, -np.inf), -self._floor) + np.arange(jobs)
            programme.add(rows, raised + np.arange(jobs), np.ones(jobs))
            programme.add(rows, np.full(jobs, highest), np.full(jobs, -1.0))
            if flags:
                programme.add(rows, flags[-1] + np.arange(jobs), np.full(jobs, -self._worst))
        else:
            self._flags(programme, raised, below, math.inf)
        solved = programme.solve(limits.left_s)
        return None if solved is None else np.where(solved[0][: of.columns] > _ROUNDING, solved[0][: of.columns], 0.0)

    def _limit_loads(self, programme: Programme, amounts: int, raised: int, uses: int) -> None:
        """A job is on a link only if it uses it, and then the load is at most the job's level."""
        of = self._of
        contested, place = np.unique(self.link, return_inverse=True)
        none = np.full(len(contested), -np.inf)
        load = programme.variables(np.zeros(len(contested)), np.full(len(contested), self._worst))
        rows = np.full(of.rows * of.links, -1, np.int64)
        rows[contested] = programme.constraints(none, np.zeros(len(contested))) + np.arange(len(contested))
        programme.add(rows[contested], load + np.arange(len(contested)), np.full(len(contested), -1.0))
        for group in range(1, len(of.first_rows)):
            peak = programme.variables(np.zeros(len(contested)), np.full(len(contested), np.inf))
            programme.add(rows[contested], peak + np.arange(len(contested)), np.ones(len(contested)))
            for phase in np.flatnonzero(of.row_group == group).tolist():
                keys = phase * of.links + contested
                rows[keys] = programme.constraints(none, np.zeros(len(contested))) + np.arange(len(contested))
                programme.add(rows[keys], peak + np.arange(len(contested)), np.full(len(contested), -1.0))
        counted = rows[self._key] >= 0
        parts = self._rate[counted] / of.capacity[self._link[counted]]
        programme.add(rows[self._key[counted]], amounts + self._column[counted], parts)

        choices, slack = np.arange(len(self.job)), self._worst - self._floor[self.job]
        within = programme.constraints(np.full(len(choices), -np.inf), np.full(len(choices), self._worst)) + choices
        programme.add(within, load + place, np.ones(len(choices)))
        programme.add(within, raised + self.job, np.full(len(choices), -1.0))
        programme.add(within, uses + choices, slack)
        used = self._choice >= 0
        column, choice = np.unique(np.stack([self._column, self._choice])[:, used], axis=1)
        of_class = of.column_class[column]
        pairs, row = np.unique(of_class * len(choices) + choice, return_inverse=True)
        first = programme.constraints(np.full(len(pairs), -np.inf), np.zeros(len(pairs)))
        programme.add(first + row, amounts + column, np.ones(len(column)))
        most = -of.count[pairs // len(choices)].astype(np.float64)
        programme.add(first + np.arange(len(pairs)), uses + pairs % len(choices), most)

    def _flags(self, programme: Programme, raised: int, level: float, most: float) -> int:
        """A boolean per job: it may be above the level. At most so many may; infinite: as few as there can be."""
        jobs = np.arange(len(self._ids))
        fewest = math.isinf(most)
        flags = programme.variables(np.full(len(jobs), float(fewest)), np.ones(len(jobs)), integer=True)
        rows = programme.constraints(np.full(len(jobs), -np.inf), level - self._floor) + jobs
        programme.add(rows, raised + jobs, np.ones(len(jobs)))
        programme.add(rows, flags + jobs, np.full(len(jobs), -max(self._worst - level, 0.0)))
        if not fewest:
            row = programme.constraints(np.array([-np.inf]), np.array([most]))
            programme.add(np.full(len(jobs), row), flags + jobs, np.ones(len(jobs)))
        return flags


def _above(levels: Sequence[float], level: float) -> int:
    """How many are above it, and not only by rounding."""
    return sum(of > level * (1 + LEVEL_TOLERANCE / 2) for of in levels)
