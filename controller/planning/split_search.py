"""Flows that may be split, on any fabric: the least levels with few pieces.

1. Aim: every job at the level that the cuts it crosses have when their links are equally loaded (``bounds``).
2. Begin with whole routes, or with those that run; the fluid optimum from there that moves least (``lp``).
3. Where the aim cannot be reached, the least worst level, with the proof; then as close to the aim as that allows.
4. Lay the amounts into pieces (``shares``); classes that would need too many pieces keep their largest paths, and the
   others make room for them; flows that could do with fewer pieces get them.

In: a problem, its bounds. Out: routes, and the lower bounds that are proven; None when time was up too early.
"""

from __future__ import annotations

import math
import time

import numpy as np

from controller.planning.bounds import Bounds
from controller.planning.commodities import Commodities
from controller.planning.cpsat import Solution
from controller.planning.dividing import Divider
from controller.planning.efficiency import Floats, Valuation
from controller.planning.lp import FluidModel, Goal, Spread
from controller.planning.problem import PlanLimits, Problem, Routes
from controller.planning.split_start import start_routes

_REACHED = 1e-6
"""An excess (in levels) that counts as none."""
_BISECTIONS = 8


def solve(problem: Problem, limits: PlanLimits, valuation: Valuation, bounds: Bounds) -> Solution | None:
    """With a cap on moves: routes with at most as many, as good as they were found; None when there were none."""
    search = _Search(problem, limits, valuation, bounds)
    routes = search.routes()
    return Solution(routes, search.proven) if routes else None


class _Search:
    """``proven``: lower bounds of the levels sorted from the worst."""

    def __init__(self, problem: Problem, limits: PlanLimits, valuation: Valuation, bounds: Bounds) -> None:
        self._valuation = valuation
        self._bounds = bounds
        self._max_moves = limits.max_moves
        self._slack = 1 + limits.split_tolerance
        self._deadline = math.inf if limits.deterministic else time.perf_counter() + limits.time_limit_s
        self._of = Commodities(problem, valuation)
        self._model = FluidModel(self._of)
        before = start_routes(problem, limits)
        self._start = self._of.amounts(before)
        self._divider = Divider(problem, valuation, self._of, before, self._deadline)
        self.proven = bounds.vector

    def routes(self) -> Routes | None:
        room, amounts = self._spread(self._aim())
        if amounts is None:
            return None
        routes = self._divider.divide(amounts, room)
        if self._max_moves is not None and self._moves(routes) > self._max_moves:
            return self._within_cap(room, self._max_moves)
        return routes

    def _within_cap(self, room: Floats, max_moves: int) -> Routes | None:
        """The more room there is on links, the fewer flows need to move: bisects between ``room`` and what the routes
        before take."""
        of = self._of
        found = None
        loads = of.link_loads(of.loads(of.padded(self._start)))
        least, enough = 1.0, float((loads / np.maximum(room, _REACHED)).max(initial=1.0))
        for _ in range(_BISECTIONS):
            middle = math.sqrt(least * enough)
            spread = self._improve(room * middle, of.capacity)
            if spread is None:
                break
            routes = self._divider.divide(spread.amounts, room * middle)
            if self._moves(routes) <= max_moves:
                found, enough = routes, middle
            else:
                least = middle
        return found

    def _moves(self, routes: Routes) -> int:
        of = self._of
        return sum(
            routes[of.flows[index].id] != of.flows[index].current
            for number in np.flatnonzero(of.running).tolist()
            for index in of.members[number]
        )

    # ---- levels

    def _aim(self) -> Floats:
        """Room per link: of the jobs that can use it, the least level aimed at."""
        cuts, of, jobs = self._bounds.cuts, self._of, self._valuation.job_ids
        even = np.ones(len(jobs))
        np.maximum.at(even, cuts.job, cuts.fluid()[cuts.cut])
        level = {job: max(self._bounds.job.get(job, 1.0), even[at]) for at, job in enumerate(jobs)}
        of_class = [min(level[of.flows[index].job_id] for index in members) for members in of.members]
        room: Floats = np.minimum(of.least_of_users(np.array(of_class)), self._bounds.worst) * of.capacity
        return room

    def _improve(self, room: Floats, stretch: Floats, moves_count: bool = True) -> Spread | None:
        goal = Goal(room, stretch, moves_count)
        return self._model.improve(self._of.padded(self._start), goal, self._deadline)

    def _spread(self, room: Floats) -> tuple[Floats, Floats | None]:
        """The room of the links, and amounts that keep to it; None when time was up."""
        of, capacity, worst = self._of, self._of.capacity, self._bounds.worst
        spread = self._improve(room * self._slack, capacity)
        if spread is None or spread.excess <= _REACHED:
            return room * self._slack, None if spread is None else spread.amounts
        looser = room >= worst * capacity * (1 - _REACHED)
        if not looser.all():
            spread = self._improve(worst * capacity, capacity) or spread
        if spread.excess > _REACHED:
            worst = self._least_worst(worst)
        room = np.where(looser, worst * (1 + _REACHED) * capacity, room) * self._slack
        spread = self._improve(room, np.where(looser, 0.0, capacity)) or spread
        return np.maximum(room, of.link_loads(of.loads(spread.amounts))), spread.amounts

    def _least_worst(self, worst: float) -> float:
        """The least worst level of any routing, and what proves it."""
        of = self._of
        spread = self._improve(worst * of.capacity, of.capacity, moves_count=False)
        if spread is None:
            return worst
        bound, bound_classes = self._model.lower_bound(spread)
        if bound > self.proven[0]:
            tight = {of.first(number).job_id for number in bound_classes}
            own = sorted((bound if job in tight else level for job, level in self._bounds.job.items()), reverse=True)
            self.proven = (bound, *own[1:])
        return worst + spread.excess
