"""Equal flows of one part of a leaf-spine, any number of pairs: whole flows on the cables besides its lanes, the rest
on the lanes, and some flows on both.

Cable by cable, as many whole flows as fit are *peeled* off: a subgraph in which no leaf has more than that many flows,
and those leaves have most that need it most. What remains is coloured with N colours, N its largest degree, and laid on
the line of the lanes, as in ``closed_forms``. If it is longer than the line, some colours are *shortened*: their flows
put a share on a cable besides that still has room for it. With p shortened colours the level is that at which N - p
shares are as long as the line. Flows in two pieces have shortened colours only where these lie in one lane.

The level is the fluid optimum where that many colours can be shortened as a leaf has cables besides. With two pieces
and hardly more flows than links it may be two; each one that is missing costs about the rest of a cable's room, divided
by the number of lanes.

In: a part, its lanes, a lower bound of the level. Out: routes; None where flows must stay whole or are unequal, or
where lanes are so slow that flows need more pieces than they may have.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from controller.fabric.topology import Dpid, Path
from controller.planning.closed_forms import nearly_equal, proper_coloring
from controller.planning.lanes import Cable, Lanes
from controller.planning.problem import Flow, FlowId, Problem, Route
from controller.planning.split_flows.programme import Programme
from controller.planning.split_flows.shares import exactly_one

_ROUNDING = 1e-9
_MISSED = 1e3
"""Cost of a flow that a leaf must get rid of and cannot, in flows on a cable."""

Pair = tuple[Dpid, Dpid]
Side = tuple[bool, Dpid]
"""Of a leaf: whether the links into it, or those out of it."""


def route(part: Problem, lanes: Lanes, bound: float) -> dict[FlowId, Route] | None:
    """``bound``: of the level; how many flows a cable takes follows from it."""
    demand_bps = nearly_equal(part.numbers.peak_bps)
    most = min(flow.max_subflows for flow in part.flows)
    if demand_bps is None or most == 1:
        return None
    besides = _Besides(part, lanes, demand_bps, bound)
    left = besides.peel(part.flows)
    of_color: defaultdict[int, list[Flow]] = defaultdict(list)
    for flow, color in zip(left, proper_coloring([(flow.src_leaf, flow.dst_leaf) for flow in left]), strict=True):
        of_color[color].append(flow)
    fit = [bps / demand_bps for bps in reversed(lanes.bps)]
    short = besides.shorten(list(of_color.values()), fit, bound, uncut=most == 2)
    ends = _ends(fit, short.level)
    rest = iter([color for color in of_color.values() if color not in short.colors])
    shortened = iter(short.colors)
    start = 0.0
    for is_short in short.order:
        length = 1 - short.share if is_short else 1.0
        pieces = list(over_lanes(ends, start, length))
        start += length
        for flow in next(shortened if is_short else rest):
            up, down = lanes.up[flow.src_leaf], lanes.down[flow.dst_leaf]
            besides.amounts[flow.id] |= {(up[-1 - lane], down[-1 - lane]): of for lane, of in pieces}
    routes = {flow.id: exactly_one(besides.amounts[flow.id]) for flow in part.flows}
    return routes if max(map(len, routes.values())) <= most else None


def _ends(fit: Sequence[float], level: float) -> list[float]:
    """Where each lane begins on the line, and the last one ends."""
    return list(itertools.accumulate((level * of for of in fit), initial=0.0))


def over_lanes(ends: Sequence[float], start: float, length: float) -> Iterator[tuple[int, float]]:
    """(lane, length on it) of an interval of a line; ``ends``: where each lane begins, and the last one ends."""
    for lane, (begin, end) in enumerate(itertools.pairwise(ends)):
        share = min(end, start + length) - max(begin, start)
        if share > _ROUNDING:
            yield lane, share


class _Short(NamedTuple):
    """``colors``: those of which a share of every flow is on a cable besides. ``level``: at which all fit on the line.
    ``order``: on the line, whether a colour is one of them."""

    colors: Sequence[Sequence[Flow]]
    share: float
    level: float
    order: Sequence[bool]


class _Besides:
    """The cables besides. ``_room``: per cable the flows that its links carry at level 1; ``_whole``: so many whole
    ones at the bound. ``_load``: per cable and side of a leaf the flows on it. ``amounts``: per flow what is on each
    path."""

    def __init__(self, part: Problem, lanes: Lanes, demand_bps: float, bound: float) -> None:
        self._lanes = lanes
        self._sides: defaultdict[Cable, set[Side]] = defaultdict(set)
        self._room: dict[Cable, float] = {}
        for inward, besides in ((False, lanes.up_besides), (True, lanes.down_besides)):
            for leaf, links in besides.items():
                for cable, link in links.items():
                    self._sides[cable].add((inward, leaf))
                    room = part.capacity_bps[link] / demand_bps
                    self._room[cable] = min(room, self._room.get(cable, room))
        self._whole = {cable: int(bound * room + _ROUNDING) for cable, room in self._room.items()}
        self._load: defaultdict[tuple[Cable, Side], float] = defaultdict(float)
        self.amounts: defaultdict[FlowId, dict[Path, float]] = defaultdict(dict)

    # ---- whole flows

    def peel(self, flows: Sequence[Flow]) -> list[Flow]:
        """Puts whole flows on the cables; the other flows."""
        of_pair: defaultdict[Pair, list[Flow]] = defaultdict(list)
        for flow in flows:
            of_pair[flow.src_leaf, flow.dst_leaf].append(flow)
        degree: Counter[Side] = Counter()
        for pair, those in of_pair.items():
            degree.update(dict.fromkeys(_sides(pair), len(those)))
        later: Counter[Side] = Counter()
        for cable, sides in self._sides.items():
            later.update(dict.fromkeys(sides, self._whole[cable]))
        most = max(degree[side] - later[side] for side in degree)
        for cable in sorted(self._sides):
            later.subtract(dict.fromkeys(self._sides[cable], self._whole[cable]))
            need = {side: degree[side] - most - later[side] for side in self._sides[cable]}
            pairs = [pair for pair in of_pair if self._sides[cable].issuperset(_sides(pair))]
            counts = {pair: len(of_pair[pair]) for pair in pairs}
            for pair, count in _subgraph(counts, need, degree, self._whole[cable]).items():
                chosen = [(of_pair[pair].pop(), cable) for _ in range(count)]
                self._add(chosen, 1.0)
                self.amounts |= {flow.id: {self._path(flow, cable): 1.0} for flow, _ in chosen}
                degree.subtract(dict.fromkeys(_sides(pair), count))
        return [flow for those in of_pair.values() for flow in those]

    # ---- shortened colours

    def shorten(self, colors: Sequence[Sequence[Flow]], fit: Sequence[float], bound: float, uncut: bool) -> _Short:
        """``fit``: per lane the flows that it carries at level 1. As many colours are shortened as lower the level.
        ``uncut``: these must lie in one lane each."""
        for count in range(self._useful(len(colors), sum(fit), bound), 0, -1):
            level = max(bound, self._level(len(colors), count, sum(fit)))
            share = (len(colors) - level * sum(fit)) / count
            order = _order(len(colors) - count, count, 1 - share, _ends(fit, level), uncut)
            found = order and (
                self._shortened(colors, count, share, level, in_turn=False)
                or self._shortened(colors, count, share, level, in_turn=True)
            )
            if order and found:
                return _Short(found, share, level, order)
        return _Short((), 0.0, max(bound, len(colors) / sum(fit)), [False] * len(colors))

    def _level(self, colors: int, count: int, line: float) -> float:
        """That at which the rest of every cable's room is what ``count`` colours have to be shortened by, which is not
        more than all of them."""
        rest = max((colors + count * self._whole[cable]) / (line + count * room) for cable, room in self._room.items())
        return max(rest, (colors - count) / line)

    def _useful(self, colors: int, line: float, bound: float) -> int:
        """How many colours to shorten at most: the least number with which the bound is reached."""
        if colors <= bound * line * (1 + _ROUNDING) or not self._room:
            return 0
        most = min(colors, len(self._room))
        return next((count for count in range(1, most) if self._level(colors, count, line) <= bound), most)

    def _shortened(
        self, colors: Sequence[Sequence[Flow]], count: int, share: float, level: float, in_turn: bool
    ) -> list[Sequence[Flow]] | None:
        """So many colours, of which each flow has this share on a cable; None when there are not so many. ``in_turn``:
        each colour begins with another cable."""
        found: list[Sequence[Flow]] = []
        placed: list[tuple[Flow, Cable]] = []
        for color in colors:
            if len(found) == count:
                break
            chosen = self._place(color, share, level, len(found) if in_turn else 0)
            if len(chosen) == len(color):
                found.append(color)
                placed += chosen
            else:
                self._add(chosen, -share)
        if len(found) < count:
            self._add(placed, -share)
            return None
        for flow, cable in placed:
            self.amounts[flow.id][self._path(flow, cable)] = share
        return found

    def _place(self, color: Sequence[Flow], share: float, level: float, first: int) -> list[tuple[Flow, Cable]]:
        """A cable with room for this share of each flow, if possible number ``first``; those of the first flows only
        when one finds none."""
        cables = [*self._sides][first:] + [*self._sides][:first]
        chosen: list[tuple[Flow, Cable]] = []
        for flow in color:
            sides = _sides((flow.src_leaf, flow.dst_leaf))
            for cable in cables:
                room = level * self._room[cable] * (1 + _ROUNDING) - share
                if self._sides[cable].issuperset(sides) and all(self._load[cable, side] <= room for side in sides):
                    chosen.append((flow, cable))
                    self._add(chosen[-1:], share)
                    break
            else:
                break
        return chosen

    def _add(self, placed: Iterable[tuple[Flow, Cable]], share: float) -> None:
        for flow, cable in placed:
            for side in _sides((flow.src_leaf, flow.dst_leaf)):
                self._load[cable, side] += share

    def _path(self, flow: Flow, cable: Cable) -> Path:
        return self._lanes.up_besides[flow.src_leaf][cable], self._lanes.down_besides[flow.dst_leaf][cable]


def _order(whole: int, short: int, length: float, ends: Sequence[float], uncut: bool) -> list[bool] | None:
    """Of so many colours of length 1 and of ``length``, on the line, whether each is a short one. None when short ones
    would have to be cut and must not be."""
    order: list[bool] = []
    start = 0.0
    while whole or short:
        end = next((end for end in ends if end > start + _ROUNDING), start)
        fits = start + length <= end + _ROUNDING
        if not whole and not fits and uncut:
            return None
        order.append(bool(short) and (fits or not whole))
        start += length if order[-1] else 1.0
        whole, short = (whole, short - 1) if order[-1] else (whole - 1, short)
    return order


def _sides(pair: Pair) -> tuple[Side, Side]:
    return (False, pair[0]), (True, pair[1])


def _subgraph(
    counts: Mapping[Pair, int], need: Mapping[Side, int], degree: Mapping[Side, int], most: int
) -> dict[Pair, int]:
    """How many flows of each pair: as many as can be, at most ``most`` at any side, those first that sides need to get
    rid of. The programme's matrix is that of a bipartite graph, so that its vertices are integers."""
    if not counts or not most:
        return {}
    programme = Programme()
    cost = [-1.0 - (degree[src] + degree[dst]) / _MISSED for src, dst in map(_sides, counts)]
    first = programme.variables(np.array(cost), np.array(list(counts.values()), np.float64))
    at: defaultdict[Side, list[int]] = defaultdict(list)
    for number, pair in enumerate(counts, start=first):
        for side in _sides(pair):
            at[side].append(number)
    for side, numbers in at.items():
        least = min(most, max(0, need[side]))
        row = programme.constraints(np.array([float(least)]), np.array([float(most)]))
        missed = programme.variables(np.array([_MISSED]), np.array([float(least)]))
        programme.add(np.full(len(numbers) + 1, row), np.array([*numbers, missed]), np.ones(len(numbers) + 1))
    solved = programme.solve(np.inf)
    if solved is None:
        return {}
    found = dict(zip(counts, solved[0][first:].round().astype(int).tolist(), strict=False))
    return {pair: count for pair, count in found.items() if count}
