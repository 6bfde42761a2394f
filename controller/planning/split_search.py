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
_BISECTIONS = 8


def solve(problem: Problem, limits: PlanLimits, valuation: Valuation, bounds: Bounds) -> Solution | None:
    """With a cap on moves: routes with at most as many, as good as they were found; None when there were none."""
    search = _Search(problem, limits, valuation, bounds)
    routes = search.routes()
    return Solution(routes, search.proven) if routes else None


class _Search:
    """``proven``: lower bounds of the levels sorted from the worst."""

    def __init__(self, problem: Problem, limits: PlanLimits, valuation: Valuation, bounds: Bounds) -> None:
        self._problem = problem
        self._valuation = valuation
        self._bounds = bounds
        self._max_moves = limits.max_moves
        self._slack = 1 + limits.split_tolerance
        self._deadline = math.inf if limits.deterministic else time.perf_counter() + limits.time_limit_s
        self._of = Commodities(problem, valuation)
        self._move_cost = np.where(self._of.running, 1.0, _STAYS)
        self.proven = bounds.vector

    def routes(self) -> Routes | None:
        self._before = start_routes(self._problem)
        self._start = self._of.amounts(self._before)
        self._model = FluidModel(self._of)
        room, spread = self._spread(self._aim())
        if spread is None:
            return None
        routes = self._divided(room, spread)
        if self._max_moves is not None and self._moves(routes) > self._max_moves:
            return self._within_cap(room)
        return routes

    def _within_cap(self, room: Floats) -> Routes | None:
        """The more room there is on links, the fewer flows need to move: bisects between ``room`` and what the routes
        before take."""
        of = self._of
        found = None
        loads = of.link_loads(of.loads(of.padded(self._start)))
        enough = float((loads / np.maximum(room, _REACHED)).max(initial=1.0))
        least = 1.0
        for _ in range(_BISECTIONS):
            middle = math.sqrt(least * enough)
            self._model = FluidModel(of)
            spread = self._model.improve(of.padded(self._start), self._goal(room * middle), self._deadline)
            if spread is None:
                break
            routes = self._divided(room * middle, spread)
            if self._moves(routes) <= (self._max_moves or 0):
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

    def _goal(self, room: Floats, stretch: Floats | None = None) -> Goal:
        return Goal(room, self._of.capacity if stretch is None else stretch, _EXCESS_COST, self._move_cost)

    def _spread(self, room: Floats) -> tuple[Floats, Spread | None]:
        """The amounts, and the room of the links that they keep to."""
        of, model = self._of, self._model
        spread = model.improve(of.padded(self._start), self._goal(room * self._slack), self._deadline)
        if spread is None or spread.excess <= _REACHED:
            return room * self._slack, spread
        capacity, worst = of.capacity, self._bounds.worst
        looser = room >= worst * capacity * (1 - _REACHED)
        if not looser.all():
            uniform = model.improve(of.padded(self._start), self._goal(worst * capacity), self._deadline)
            spread = uniform or spread
        if spread.excess > _REACHED:
            worst = self._least_worst(worst)
        room = np.where(looser, worst * (1 + _REACHED) * capacity, room) * self._slack
        goal = self._goal(room, np.where(looser, 0.0, capacity))
        spread = model.improve(of.padded(self._start), goal, self._deadline) or spread
        return np.maximum(room, of.link_loads(of.loads(spread.amounts))), spread

    def _least_worst(self, worst: float) -> float:
        """The least worst level of any routing, and what proves it."""
        of = self._of
        goal = Goal(worst * of.capacity, of.capacity, 1.0, np.zeros(len(of.members)))
        spread = self._model.improve(of.padded(self._start), goal, self._deadline)
        if spread is None:
            return worst
        bound, bound_classes = self._model.lower_bound(spread)
        if bound > self.proven[0]:
            tight = {of.first(number).job_id for number in bound_classes}
            own = sorted((bound if job in tight else level for job, level in self._bounds.job.items()), reverse=True)
            self.proven = (bound, *own[1:])
        return worst + spread.excess

    # ---- pieces

    def _divided(self, room: Floats, spread: Spread) -> Routes:
        """The best of the routes on the way to ones that keep to the room."""
        amounts = spread.amounts
        best: Routes = self._before
        least: tuple[float, ...] = ()
        for _ in range(_ATTEMPTS):
            laid, unfit = self._lay(amounts)
            routes = fewer_pieces(self._problem, self._of, {**self._before, **laid}, room)
            levels = tuple(sorted(self._valuation.job_levels(routes).values(), reverse=True))
            if not least or levels < least:
                best, least = routes, levels
            if not unfit:
                break
            amounts = amounts.copy()
            for number in unfit:
                self._restrict(number, laid, amounts)
            closer = self._model.improve(self._of.padded(amounts), self._goal(room), self._deadline)
            if closer is None:
                break
            amounts = closer.amounts
        return best

    def _lay(self, amounts: Floats) -> tuple[dict[FlowId, Route], list[int]]:
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
            laid = lay(on_paths[number], [self._before.get(flow) for flow in ids], most)
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
