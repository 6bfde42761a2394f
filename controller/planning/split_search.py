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

from controller.fabric.topology import Path
from controller.planning.bounds import Bounds
from controller.planning.commodities import Commodities
from controller.planning.cpsat import Solution
from controller.planning.efficiency import Floats, Valuation
from controller.planning.fewer_pieces import fewer_pieces
from controller.planning.lp import FluidModel, Goal, Spread
from controller.planning.problem import FlowId, PlanLimits, Problem, Route, Routes
from controller.planning.shares import lay, lay_nearest
from controller.planning.split_start import start_routes

_REACHED = 1e-6
"""An excess (in levels) that counts as none."""
_EXCESS_COST = 1e6
"""Of a level, in moved flows: more than any number of them is worth."""
_STAYS = 0.1
"""Cost of a move for a flow that does not run yet, where it is 1 for one that does: only pieces are saved by it."""
_ATTEMPTS = 20


def solve(problem: Problem, limits: PlanLimits, valuation: Valuation, bounds: Bounds) -> Solution | None:
    search = _Search(problem, limits, valuation, bounds)
    return search.run()


class _Search:
    def __init__(self, problem: Problem, limits: PlanLimits, valuation: Valuation, bounds: Bounds) -> None:
        self._problem = problem
        self._bounds = bounds
        self._deadline = math.inf if limits.deterministic else time.perf_counter() + limits.time_limit_s
        self._of = Commodities(problem, valuation)
        self._model = FluidModel(self._of)
        self._move_cost = np.where(self._of.running, 1.0, _STAYS)
        self._proven = bounds.vector
        self._room: Floats = self._aim(valuation)

    def run(self) -> Solution | None:
        before = start_routes(self._problem)
        spread = self._spread(self._of.amounts(before))
        if spread is None:
            return None
        routes = {**before, **self._divided(before, spread)}
        return Solution(fewer_pieces(self._problem, self._of, routes, self._room), self._proven)

    # ---- levels

    def _aim(self, valuation: Valuation) -> Floats:
        """Room per link: of the jobs that can use it, the least level aimed at."""
        cuts, of = self._bounds.cuts, self._of
        even = np.ones(len(valuation.job_ids))
        np.maximum.at(even, cuts.job, cuts.fluid()[cuts.cut])
        level = {job: max(own, even[valuation.job_ids.index(job)]) for job, own in self._bounds.job.items()}
        of_class = [min(level[of.flows[index].job_id] for index in members) for members in of.members]
        room: Floats = np.minimum(of.least_of_users(np.array(of_class)), self._bounds.worst) * of.capacity
        return room

    def _goal(self, room: Floats, stretch: Floats | None = None) -> Goal:
        return Goal(room, self._of.capacity if stretch is None else stretch, _EXCESS_COST, self._move_cost)

    def _spread(self, start: Floats) -> Spread | None:
        spread = self._model.improve(start, self._goal(self._room), self._deadline)
        if spread is None or spread.excess <= _REACHED:
            return spread
        capacity, worst = self._of.capacity, self._bounds.worst
        open_to = self._room < worst * capacity * (1 - _REACHED)
        if open_to.any():
            uniform = self._model.improve(self._of.padded(start), self._goal(worst * capacity), self._deadline)
            spread = uniform or spread
        if spread.excess > _REACHED:
            worst = self._least_worst(self._of.padded(start), worst)
        room = np.where(open_to, self._room, worst * (1 + _REACHED) * capacity)
        closer = self._model.improve(
            self._of.padded(start), self._goal(room, np.where(open_to, capacity, 0.0)), self._deadline
        )
        self._room = np.maximum(room, self._of.link_loads(self._of.loads((closer or spread).amounts)))
        return closer or spread

    def _least_worst(self, start: Floats, worst: float) -> float:
        """The least worst level of any routing, and what proves it."""
        of = self._of
        goal = Goal(worst * of.capacity, of.capacity, 1.0, np.zeros(len(of.members)))
        spread = self._model.improve(start, goal, self._deadline)
        if spread is None:
            return worst
        bound, bound_classes = self._model.lower_bound(spread)
        if bound > self._proven[0]:
            tight = {of.first(number).job_id for number in bound_classes}
            own = sorted((bound if job in tight else level for job, level in self._bounds.job.items()), reverse=True)
            self._proven = (bound, *own[1:])
        return worst + spread.excess

    # ---- pieces

    def _divided(self, before: Routes, spread: Spread) -> dict[FlowId, Route]:
        amounts = spread.amounts
        for _ in range(_ATTEMPTS):
            routes, unfit = self._lay(before, amounts)
            if not unfit:
                break
            amounts = amounts.copy()
            for number in unfit:
                self._restrict(number, routes, amounts)
            closer = self._model.improve(self._of.padded(amounts), self._goal(self._room), self._deadline)
            if closer is None:
                break
            amounts = closer.amounts
        return routes

    def _lay(self, before: Routes, amounts: Floats) -> tuple[dict[FlowId, Route], list[int]]:
        """Routes, and the classes that would need more pieces than they may have: these have the nearest routes that
        are allowed."""
        of = self._of
        on_paths: list[dict[Path, float]] = [{} for _ in of.members]
        for column in np.flatnonzero(amounts > 0).tolist():
            on_paths[of.column_class[column]][of.path[column]] = float(amounts[column])
        routes: dict[FlowId, Route] = {}
        unfit = []
        for number, members in enumerate(of.members):
            ids = [of.flows[index].id for index in members]
            most = int(of.pieces[number])
            laid = lay(on_paths[number], [before.get(flow) for flow in ids], most)
            if laid is None:
                unfit.append(number)
                laid = lay_nearest(on_paths[number], len(ids), most)
            routes.update(zip(ids, laid, strict=True))
        return routes, unfit

    def _restrict(self, number: int, routes: Routes, amounts: Floats) -> None:
        """From now on the class has the paths of these routes only; whole flows have them for good, amounts of others
        are to be found."""
        of, model = self._of, self._model
        mine = np.flatnonzero(of.column_class == number)
        amounts[mine] = 0.0
        model.shut[number] = True
        model.offered -= set(mine.tolist())
        for index in of.members[number]:
            for path, share in routes[of.flows[index].id]:
                column = of.column(number, path)
                if of.pieces[number] == 1:
                    amounts[column] += share
                else:
                    model.offered.add(column)
