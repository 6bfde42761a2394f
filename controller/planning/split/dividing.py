"""From the fluid optimum to routes: amounts are laid into the pieces of flows, and what would take too many pieces is
put on fewer paths, for which the fluid optimum of all others is found again.

In: a spread and the room it keeps to. Out: the best routes on the way to ones that keep to the room.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from controller.fabric.topology import Path
from controller.planning.efficiency import Floats, Valuation
from controller.planning.problem import FlowId, Route, Routes
from controller.planning.split.commodities import Commodities
from controller.planning.split.fewer_pieces import evenly_full, fewer_pieces, on_the_roomiest
from controller.planning.split.lp import Clock, FluidModel, Goal
from controller.planning.split.shares import exactly_one, lay, lay_nearest

_ROUNDS = 20
_ROUNDING = 1e-6


class Divider:
    """``before``: the routes that the spreads begin from; as many flows as possible keep theirs."""

    def __init__(self, valuation: Valuation, of: Commodities, before: Routes, clock: Clock) -> None:
        self._valuation = valuation
        self._of = of
        self._before = before
        self._clock = clock

    def divide(self, amounts: Floats, room: Floats) -> Routes:
        """``amounts``: per column; ``room``: per link. First, flows that need too many pieces keep the paths with their
        largest amounts, which disturbs others least; should that not do, they take the paths with the most room."""
        best = self._attempt(amounts, room, roomiest=False)
        if not best.within_room:
            best = min(best, self._attempt(amounts, room, roomiest=True), key=lambda outcome: outcome.levels)
        return best.routes

    def _attempt(self, amounts: Floats, room: Floats, roomiest: bool) -> _Outcome:
        of, model = self._of, FluidModel(self._of)
        laid, unfit = self._lay(of.padded(amounts))
        on_the_way = []
        for _ in range(_ROUNDS):
            if not unfit:
                break
            on_the_way.append((laid, unfit))
            amounts = self._restricted(model, of.padded(amounts), unfit, laid, roomiest, room)
            closer = model.improve(of.padded(amounts), Goal(room, of.capacity), self._clock)
            if closer is None:
                break
            amounts = closer.amounts
            laid, unfit = self._lay(amounts)
        best = self._outcome(laid, unfit, room)
        if not best.within_room:
            best = min([best, *(self._outcome(*others, room) for others in on_the_way)], key=lambda of: of.levels)
        return best

    def _outcome(self, laid: Routes, unfit: Sequence[int], room: Floats) -> _Outcome:
        of = self._of
        if unfit:
            laid = self._placed_evenly(laid, unfit, room)
        routes = fewer_pieces(of, {**self._before, **laid}, room)
        loads = of.link_loads(of.loads(of.amounts(routes)))
        levels = tuple(sorted(self._valuation.job_levels(routes).values(), reverse=True))
        return _Outcome(levels, routes, bool((loads <= room * (1 + _ROUNDING) + _ROUNDING).all()))

    def _placed_evenly(self, laid: Routes, unfit: Sequence[int], room: Floats) -> dict[FlowId, Route]:
        """The routes with those of the unfit classes where they overload links least, one flow after the other."""
        of = self._of
        routes = dict(laid)
        for number in unfit:
            for index in of.members[number]:
                del routes[of.flows[index].id]
        spare = room - of.link_loads(of.loads(of.amounts(routes)))
        for number in sorted(unfit, key=lambda number: -of.rate[number]):
            paths, rate = of.candidates(number), float(of.rate[number])
            links = of.numbered(paths)
            for index in of.members[number]:
                pieces = evenly_full(links, spare / rate, int(of.pieces[number]))
                for at, share in pieces:
                    spare[links[at]] -= share * rate
                routes[of.flows[index].id] = exactly_one({paths[at]: share for at, share in pieces})
        return routes

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

    def _restricted(
        self, model: FluidModel, amounts: Floats, unfit: Iterable[int], laid: Routes, roomiest: bool, room: Floats
    ) -> Floats:
        """The amounts without those of the unfit classes, which from now on have only as many paths as their flows may
        have pieces: those of ``laid``, or the ``roomiest``. Flows that stay whole are placed on them for good."""
        of = self._of
        unfit = sorted(unfit, key=lambda number: -of.rate[number])
        amounts = np.where(np.isin(of.column_class, unfit), 0.0, amounts)
        spare = room - of.link_loads(of.loads(amounts))
        for number in unfit:
            most = int(of.pieces[number])
            model.shut[number] = True
            model.offered -= set(np.flatnonzero(of.column_class == number).tolist())
            for column, share in self._pieces(number, laid, roomiest, spare):
                if most == 1:
                    amounts[column] += share
                else:
                    model.offered.add(column)
        return amounts

    def _pieces(self, number: int, laid: Routes, roomiest: bool, spare: Floats) -> Iterator[tuple[int, float]]:
        """(column, share) of the class's flows. Takes them off ``spare``."""
        of = self._of
        if not roomiest or (of.pieces[number] > 1 and of.count[number] > 1):
            for index in of.members[number]:
                yield from ((of.column(number, path), share) for path, share in laid[of.flows[index].id])
            return
        rate = float(of.rate[number])
        columns = np.flatnonzero(of.column_class == number).tolist()
        links = of.numbered([of.path[column] for column in columns])
        for _ in of.members[number]:
            for at, share in on_the_roomiest(links, spare / rate, int(of.pieces[number])):
                spare[links[at]] -= share * rate
                yield columns[at], share


class _Outcome(NamedTuple):
    """``levels``: of the jobs, from the worst. ``within_room``: whether every link keeps to its room."""

    levels: tuple[float, ...]
    routes: Routes
    within_room: bool
