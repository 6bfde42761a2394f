"""Division of the fluid optimum into routes.

In: a *spread* (the amount of each class of flows on each path), and the *room* of each link (the load that it may
have). Out: the best routes found, if possible within the room.

The amounts of each class are divided into subflows of its flows. Classes whose flows would need too many subflows are
restricted to fewer paths, and the fluid optimum of all other classes is found again.

The flows of a class are bins of size 1. The amounts of its paths fill one bin after the other, and are cut where a bin
is full: McNaughton's wrap-around rule ("Scheduling with deadlines and loss functions", 1959). In any order, n flows on
m paths need at most n + m - 1 subflows; the order decides how many subflows a single flow gets. Here each bin first
takes a few of the smallest amounts, so that these are shared out evenly, and the largest amount fills the rest.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from controller.fabric.topology import Path
from controller.planning.efficiency import peak_slowdowns, sorted_slowdowns
from controller.planning.problem import Floats, FlowId, Ints, PathShare, PlanLimits, Problem, Route, Routes, whole
from controller.planning.split_flows.commodities import Commodities
from controller.planning.split_flows.lp import FluidModel, Goal

_ROUNDS = 20
_PASSES = 3
_EXCEEDED = 1e-6
"""Load beyond a link's room that still counts as within the room."""
_ROUNDING = 1e-9
SMALLEST_SHARE = 1e-5
"""Smallest share of a flow that becomes a subflow; the bytes of a smaller share are added to another subflow."""
_ROUNDED = 1e-7


class Divider:
    """Division of the spreads of one problem into routes.

    ``before``: routes from which the spreads start; as many flows as possible keep their routes."""

    def __init__(self, problem: Problem, of: Commodities, before: Routes, limits: PlanLimits) -> None:
        self._problem = problem
        self._of = of
        self._before = before
        self._limits = limits

    def divide(self, amounts: Floats, room: Floats) -> Routes:
        """Return routes for ``amounts`` (per column), if possible within ``room`` (per link).

        Flows that need too many subflows keep the paths with their largest amounts, which affects other flows least."""
        of, model = self._of, FluidModel(self._of)
        laid, unfit = self._lay(of.padded(amounts))
        earlier = []
        for _ in range(_ROUNDS):
            if not unfit:
                break
            earlier.append((laid, unfit))
            amounts = self._restricted(model, of.padded(amounts), unfit, laid)
            closer = model.improve(Goal(room, of.capacity), self._limits, amounts)
            if closer is None:
                break
            amounts = closer.amounts
            laid, unfit = self._lay(amounts)
        best = self._outcome(laid, unfit, room)
        if not best.within_room:
            best = min([best, *(self._outcome(*others, room) for others in earlier)], key=lambda of: of.slowdowns)
        return best.routes

    def _outcome(self, laid: Routes, unfit: Sequence[int], room: Floats) -> _Outcome:
        of = self._of
        if unfit:
            laid = self._placed_evenly(laid, unfit, room)
        routes = fewer_subflows(of, {**self._before, **laid}, room)
        loads = of.link_loads(of.loads(of.amounts(routes)))
        slowdowns = sorted_slowdowns(peak_slowdowns(self._problem, routes))
        return _Outcome(slowdowns, routes, bool((loads <= room * (1 + _EXCEEDED) + _EXCEEDED).all()))

    def _placed_evenly(self, laid: Routes, unfit: Sequence[int], room: Floats) -> dict[FlowId, Route]:
        """Place flows of unfit classes (see ``_lay``) where they overload links least, and return all routes."""
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
                subflows = evenly_full(links, spare / rate, int(of.max_subflows[number]))
                for at, share in subflows:
                    spare[links[at]] -= share * rate
                routes[of.flows[index].id] = exactly_one({paths[at]: share for at, share in subflows})
        return routes

    def _lay(self, amounts: Floats) -> tuple[dict[FlowId, Route], list[int]]:
        """Return routes, and the unfit classes, which would need too many subflows and get the nearest routes."""
        of = self._of
        on_paths: list[dict[Path, float]] = [{} for _ in of.members]
        for column in np.flatnonzero(amounts > 0).tolist():
            on_paths[of.column_class[column]][of.path[column]] = float(amounts[column])
        routes: dict[FlowId, Route] = {}
        unfit = []
        for number, members in enumerate(of.members):
            ids = [of.flows[index].id for index in members]
            most = int(of.max_subflows[number])
            laid = lay(on_paths[number], [self._before.get(flow) for flow in ids], most)
            if laid is None:
                unfit.append(number)
                laid = lay_nearest(on_paths[number], len(ids), most)
            routes.update(zip(ids, laid, strict=True))
        return routes, unfit

    def _restricted(self, model: FluidModel, amounts: Floats, unfit: Sequence[int], laid: Routes) -> Floats:
        """Restrict unfit classes to their paths in ``laid``; return the amounts of other classes and of whole flows."""
        of = self._of
        amounts = np.where(np.isin(of.column_class, unfit), 0.0, amounts)
        for number in unfit:
            model.shut[number] = True
            model.offered -= set(np.flatnonzero(of.column_class == number).tolist())
            for index in of.members[number]:
                for path, share in laid[of.flows[index].id]:
                    column = of.column(number, path)
                    if of.max_subflows[number] == 1:
                        amounts[column] += share
                    else:
                        model.offered.add(column)
        return amounts


class _Outcome(NamedTuple):
    slowdowns: tuple[float, ...]
    routes: Routes
    within_room: bool


# ---- fewer subflows


def fewer_subflows(of: Commodities, routes: Routes, room: Floats) -> dict[FlowId, Route]:
    """Return ``routes`` with fewer subflows where possible; no link's load grows beyond its room.

    This is the last step after the division of a fluid optimum. Each flow in turn is moved to fewer paths if some have
    room for it. A flow whose route is its current route is not changed. ``room``: load that each link may have, in the
    units of ``of``."""
    return _Search(of, routes, room).run()


class _Search:
    def __init__(self, of: Commodities, routes: Routes, room: Floats) -> None:
        self._of = of
        self._routes = dict(routes)
        loads = of.link_loads(of.loads(of.amounts(routes)))
        self._spare: Floats = np.maximum(room - loads, 0.0)
        self._links_of: dict[int, Ints] = {}

    def run(self) -> dict[FlowId, Route]:
        of = self._of
        subflows = [(number, index) for number, members in enumerate(of.members) for index in members]
        split = [(number, index) for number, index in subflows if self._may_change(index)]
        for _ in range(_PASSES):
            split.sort(key=lambda at: -len(self._routes[of.flows[at[1]].id]))
            changed = [self._reduce_subflows(number, index) for number, index in split]
            if not any(changed):
                break
            split = [(number, index) for number, index in split if self._may_change(index)]
        return self._routes

    def _may_change(self, index: int) -> bool:
        flow = self._of.flows[index]
        route = self._routes[flow.id]
        return len(route) > 1 and route != flow.current

    def _reduce_subflows(self, number: int, index: int) -> bool:
        of, spare = self._of, self._spare
        flow, rate = of.flows[index], float(of.rate[number])
        route = self._routes[flow.id]
        paths = of.candidates(number)
        links = self._links(number)
        freed = [(of.numbered([path])[0], rate * share) for path, share in route] if of.adds_up(number) else []
        for own, part in freed:
            spare[own] += part
        chosen = that_fit(links, spare / rate, len(route) - 1)
        if chosen is not None:
            route = exactly_one({paths[at]: share for at, share in chosen})
            for at, share in chosen:
                spare[links[at]] -= share * rate
        else:
            for own, part in freed:
                spare[own] -= part
        self._routes[flow.id] = route
        return chosen is not None

    def _links(self, number: int) -> Ints:
        """Return the links of each of the class's paths; shape (paths, links of a path)."""
        if number not in self._links_of:
            self._links_of[number] = self._of.numbered(self._of.candidates(number))
        return self._links_of[number]


def that_fit(links: Ints, spare: Floats, most: int) -> list[tuple[int, float]] | None:
    """Return (path, share) of at most ``most`` subflows that fit, the largest first; None when the flow does not fit.

    The last subflow takes the path on which it leaves the least room. ``links``: links of each path; shape (paths,
    hops). ``spare``: unused room of each link, in flows; the call changes this array."""
    chosen: list[tuple[int, float]] = []
    rest = 1.0
    while len(chosen) < most:
        room = spare[links].min(axis=1)
        fits = np.flatnonzero(room >= rest - _ROUNDING)
        if len(fits):
            chosen.append((int(fits[np.argmin(room[fits])]), rest))
            return chosen
        at = int(np.argmax(room))
        share = float(room[at])
        if share <= SMALLEST_SHARE:
            return None
        chosen.append((at, share))
        spare[links[at]] -= share
        rest -= share
    return None


def evenly_full(links: Ints, spare: Floats, most: int) -> list[tuple[int, float]]:
    """Return the subflows of ``that_fit``; if there are none, subflows on the ``most`` paths with the most room.

    Each of these paths then exceeds its room by the same amount."""
    chosen = that_fit(links, spare.copy(), most)
    if chosen is not None:
        return chosen
    room = spare[links].min(axis=1)
    left = spare.copy()
    paths: list[int] = []
    while len(paths) < min(most, len(links)):
        free = left[links].min(axis=1)
        free[paths] = -np.inf
        paths.append(int(np.argmax(free)))
        left[links[paths[-1]]] -= 1 / most
    paths.sort(key=lambda at: -room[at])
    thresholds = (np.cumsum(room[paths]) - 1) / np.arange(1, len(paths) + 1)
    used = int(np.flatnonzero(room[paths] > thresholds + SMALLEST_SHARE)[-1]) + 1
    return [(at, float(room[at] - thresholds[used - 1])) for at in paths[:used]]


# ---- amounts per path to subflows


def divided(of: Commodities, amounts: Floats, smallest: float) -> dict[FlowId, Route]:
    """Return routes with these amounts (per column), without shares below ``smallest``.

    The flows of a class that would need too many subflows each use all paths of the class."""
    on_paths: list[dict[Path, float]] = [{} for _ in of.members]
    for column in np.flatnonzero(amounts > smallest * of.count[of.column_class]).tolist():
        on_paths[of.column_class[column]][of.path[column]] = float(amounts[column])
    routes: dict[FlowId, Route] = {}
    for shares, members, most in zip(on_paths, of.members, of.max_subflows.tolist(), strict=True):
        total = sum(shares.values()) / len(members)
        laid = lay({path: amount / total for path, amount in shares.items()}, [None] * len(members), most)
        routes.update(
            zip([of.flows[index].id for index in members], laid or [exactly_one(shares)] * len(members), strict=True)
        )
    return routes


def lay(amounts: Mapping[Path, float], before: Sequence[Route | None], most: int) -> list[Route] | None:
    """Return routes of ``len(before)`` flows with at most ``most`` subflows each; None when no such routes are found.

    ``amounts``: total share of the flows that each path gets. ``before``: previous route of each flow; as many routes
    as possible stay unchanged."""
    kept = _unchanged(amounts, before)
    while True:
        rest = dict(amounts)
        for index in kept:
            for path, share in before[index] or ():
                rest[path] -= share
        packed = _pack(rest, len(before) - len(kept), most)
        if packed is not None:
            routes = iter(packed)
            return [(before[i] or ()) if i in kept else next(routes) for i in range(len(before))]
        if not kept:
            return None
        kept.remove(_one_to_change(kept, before, rest))


def lay_nearest(amounts: Mapping[Path, float], flows: int, most: int) -> list[Route]:
    """Return routes with at most ``most`` subflows each that are near ``amounts``, for which ``lay`` finds no routes.

    The routes use the paths with the largest amounts."""
    if most == 1:
        return [whole(path) for path in _nearest_whole(amounts, flows)]
    largest = sorted(amounts.items(), key=lambda item: -item[1])
    paths = min(len(largest) - 1, flows * (most - 1) + 1)
    while True:
        some = dict(largest[:paths])
        scale = flows / sum(some.values())
        routes = lay({path: amount * scale for path, amount in some.items()}, [None] * flows, most)
        if routes is not None:
            return routes
        paths -= 1


def _nearest_whole(amounts: Mapping[Path, float], flows: int) -> list[Path]:
    """Return a path per flow: the amounts are rounded to whole flows, the largest remainders upwards."""
    counts = {path: int(amount + _ROUNDED) for path, amount in amounts.items()}
    up = sorted(amounts, key=lambda path: counts[path] - amounts[path])
    for path in up[: flows - sum(counts.values())]:
        counts[path] += 1
    return [path for path, count in counts.items() for _ in range(count)]


def _unchanged(amounts: Mapping[Path, float], before: Sequence[Route | None]) -> set[int]:
    """Return the flows (indices) that keep their routes in ``before``, within the amounts of all paths."""
    kept = {index for index, route in enumerate(before) if route}
    over: defaultdict[Path, float] = defaultdict(float)
    users: defaultdict[Path, list[tuple[float, int]]] = defaultdict(list)
    for index in sorted(kept):
        for path, share in before[index] or ():
            over[path] += share
            users[path].append((share, index))
    for path in over:
        over[path] -= amounts.get(path, 0.0)
    for path, those in users.items():
        for _, index in sorted(those, reverse=True):
            if over[path] <= _ROUNDED:
                break
            if index in kept:
                kept.remove(index)
                for other, share in before[index] or ():
                    over[other] -= share
    return kept


def _one_to_change(kept: set[int], before: Sequence[Route | None], rest: Mapping[Path, float]) -> int:
    """Return the flow (index) in ``kept`` whose rerouting adds the fewest paths without an amount to ``rest``."""

    def new_paths(index: int) -> int:
        return sum(rest.get(path, 0.0) <= _ROUNDED for path, _ in before[index] or ())

    return min(sorted(kept), key=new_paths)


def _pack(amounts: Mapping[Path, float], bins: int, most: int) -> list[Route] | None:
    items = sorted((amount, path) for path, amount in amounts.items() if amount > SMALLEST_SHARE)
    routes = []
    for left in range(bins, 0, -1):
        route = _fill(items, left, most)
        if route is None:
            return None
        routes.append(route)
        items.sort()
    return routes


def _fill(items: list[tuple[float, Path]], bins: int, most: int) -> Route | None:
    """Remove the subflows of one flow from ``items`` and return the flow's route.

    Return None when the flow would need more than ``most`` subflows, or when the last flow does not use up ``items``.
    ``items``: remaining amount of each path, ascending. ``bins``: number of remaining flows, including this one."""
    shares: defaultdict[Path, float] = defaultdict(float)
    room = 1.0
    whole = next((i for i, (amount, _) in enumerate(items) if _is_whole(amount)), None)
    if whole is not None:
        amount, path = items.pop(whole)
        if amount > 1.5:
            items.append((amount - 1, path))
        return (PathShare(path, 1.0),)
    small = len(items) if bins == 1 else math.ceil((len(items) - 1) / bins)
    for _ in range(min(small, most - 1)):
        if not items or items[0][0] > room:
            break
        amount, path = items.pop(0)
        shares[path] += amount
        room -= amount
    while room > SMALLEST_SHARE and items and len(shares) < most:
        amount, path = items.pop()
        taken = min(room, amount)
        shares[path] += taken
        room -= taken
        if amount - taken > SMALLEST_SHARE:
            items.append((amount - taken, path))
    if room > SMALLEST_SHARE or (bins == 1 and items):
        return None
    return exactly_one(shares)


def _is_whole(amount: float) -> bool:
    return amount > 0.5 and abs(amount - round(amount)) <= _ROUNDED


def exactly_one(shares: Mapping[Path, float]) -> Route:
    """Return a route with these shares, the largest first, corrected for rounding so that they add up to 1."""
    total = sum(shares.values())
    subflows = sorted(((share / total, path) for path, share in shares.items()), key=lambda subflow: -subflow[0])
    first = 1.0 - sum(share for share, _ in subflows[1:])
    return (PathShare(subflows[0][1], first), *(PathShare(path, share) for share, path in subflows[1:]))
