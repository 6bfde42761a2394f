"""Flows in pieces that could do with fewer: the last step after the fluid optimum was cut up.

In: routes and the room of every link. Out: routes with at most as many pieces and no link fuller than its room (or than
it was). One flow at a time looks for the fewest paths with room for it; flows that run and kept their routes stay.
"""

from __future__ import annotations

import numpy as np

from controller.planning.efficiency import Floats, Ints
from controller.planning.problem import FlowId, Route, Routes
from controller.planning.split.commodities import Commodities
from controller.planning.split.shares import SMALLEST_SHARE, exactly_one

_PASSES = 3
_ROUNDING = 1e-9


def fewer_pieces(of: Commodities, routes: Routes, room: Floats) -> dict[FlowId, Route]:
    """``room``: per link, in the units of ``of``."""
    search = _Search(of, routes, room)
    return search.run()


class _Search:
    """``_spare``: what is left of each link's room."""

    def __init__(self, of: Commodities, routes: Routes, room: Floats) -> None:
        self._of = of
        self._routes = dict(routes)
        loads = of.link_loads(of.loads(of.amounts(routes)))
        self._spare: Floats = np.maximum(room - loads, 0.0)
        self._links_of: dict[int, Ints] = {}

    def run(self) -> dict[FlowId, Route]:
        of = self._of
        pieces = [(number, index) for number, members in enumerate(of.members) for index in members]
        split = [(number, index) for number, index in pieces if self._may_change(index)]
        for _ in range(_PASSES):
            split.sort(key=lambda at: -len(self._routes[of.flows[at[1]].id]))
            changed = [self._improve(number, index) for number, index in split]
            if not any(changed):
                break
            split = [(number, index) for number, index in split if self._may_change(index)]
        return self._routes

    def _may_change(self, index: int) -> bool:
        flow = self._of.flows[index]
        route = self._routes[flow.id]
        return len(route) > 1 and route != flow.current

    def _improve(self, number: int, index: int) -> bool:
        """Whether the flow has fewer pieces now."""
        of, spare = self._of, self._spare
        flow, rate = of.flows[index], float(of.rate[number])
        route = self._routes[flow.id]
        paths = of.candidates(number)
        links = self._links(number)
        freed = of.numbered([path for path, _ in route]) if of.adds_up(number) else None
        if freed is not None:
            np.add.at(spare, freed, rate * np.array([[share] for _, share in route]))
        chosen = that_fit(links, spare / rate, len(route) - 1)
        if chosen is not None:
            route = exactly_one({paths[at]: share for at, share in chosen})
            for at, share in chosen:
                spare[links[at]] -= share * rate
        elif freed is not None:
            np.subtract.at(spare, freed, rate * np.array([[share] for _, share in route]))
        self._routes[flow.id] = route
        return chosen is not None

    def _links(self, number: int) -> Ints:
        """Of each of the class's paths; shape (paths, links of a path)."""
        if number not in self._links_of:
            self._links_of[number] = self._of.numbered(self._of.candidates(number))
        return self._links_of[number]


def that_fit(links: Ints, spare: Floats, most: int) -> list[tuple[int, float]] | None:
    """(path, share) of at most ``most`` pieces that fit, the largest first; None when there are none. ``spare``: per
    link, in flows. The last piece goes where it leaves least."""
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


def on_the_roomiest(links: Ints, spare: Floats, most: int) -> list[tuple[int, float]]:
    """``that_fit`` if there are such; else pieces on the paths with the most room, whether or not they fit."""
    chosen = that_fit(links, spare.copy(), most)
    if chosen is not None:
        return chosen
    chosen = []
    taken = np.zeros(len(links), bool)
    rest = 1.0
    for left in range(min(most, len(links)), 0, -1):
        room = np.where(taken, -np.inf, spare[links].min(axis=1))
        at = int(np.argmax(room))
        share = rest if left == 1 else min(rest, max(float(room[at]), rest / left))
        taken[at] = True
        chosen.append((at, share))
        spare[links[at]] -= share
        rest -= share
    return chosen


def evenly_full(links: Ints, spare: Floats, most: int) -> list[tuple[int, float]]:
    """``that_fit`` if there are such; else pieces on the ``most`` paths with the most room, as large as makes the same
    amount missing on each."""
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
    levels = (np.cumsum(room[paths]) - 1) / np.arange(1, len(paths) + 1)
    used = int(np.flatnonzero(room[paths] > levels + SMALLEST_SHARE)[-1]) + 1
    return [(at, float(room[at] - levels[used - 1])) for at in paths[:used]]
