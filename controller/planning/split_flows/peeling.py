"""Routes of equal flows of one part of a leaf-spine, over its common links and residual links.

Some flows are whole on residual links, some take only common links, and some take both. ``common_links`` defines parts
and both kinds of links. A part may have any number of pairs of leaves.

Whole flows are *peeled* off onto one residual cable after the other. The peeled flows of a cable form a subgraph in
which no leaf has more flows than the cable has room for. Flows of leaves that must lose flows are peeled off first. The
remaining flows are coloured with N colours, where N is their largest degree, and laid on the line of the common links,
as in ``closed_forms``. If the colours are longer than the line, some of them are *shortened*: the flows of a shortened
colour put a share on a residual cable that still has room for it. With p shortened colours the total length is N - p *
share; the slowdown is the one at which the line has this length. When flows may have only two subflows, each shortened
colour must lie on a single common link.

The result is the fluid optimum when as many colours can be shortened as a leaf has residual cables. With two subflows
and hardly more flows than links, perhaps only two colours can be shortened. Each colour that cannot be shortened costs
about the unused room of a cable, divided by the number of common links.

In: a part, its common links, a lower bound of the slowdown. Out: routes. None when flows must stay whole or are
unequal, or when slow common links would need more subflows than flows may have."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from controller.fabric.topology import Dpid, Path
from controller.planning.closed_forms import nearly_equal, proper_coloring
from controller.planning.common_links import Cable, CommonLinks
from controller.planning.problem import Flow, FlowId, Problem, Route
from controller.planning.split_flows.programme import Programme
from controller.planning.split_flows.shares import exactly_one

_ROUNDING = 1e-9
_MISSED = 1e3
"""Cost, in peeled flows, of each flow by which a side of a leaf has fewer peeled flows than it needs."""

Pair = tuple[Dpid, Dpid]
Side = tuple[bool, Dpid]
"""Side of a leaf, as (inward, leaf): True for the links into the leaf, False for the links out of it."""


def route(part: Problem, common: CommonLinks, bound: float) -> dict[FlowId, Route] | None:
    """Return the routes of the part; None as in the module's docstring.

    ``bound``: lower bound of the slowdown; a residual cable carries as many whole flows as this slowdown allows."""
    demand_bps = nearly_equal(part.numbers.peak_bps)
    most = min(flow.max_subflows for flow in part.flows)
    if demand_bps is None or most == 1:
        return None
    residual = _Residual(part, common, demand_bps, bound)
    left = residual.peel(part.flows)
    of_color: defaultdict[int, list[Flow]] = defaultdict(list)
    for flow, color in zip(left, proper_coloring([(flow.src_leaf, flow.dst_leaf) for flow in left]), strict=True):
        of_color[color].append(flow)
    fit = [bps / demand_bps for bps in reversed(common.bps)]
    short = residual.shorten(list(of_color.values()), fit, bound, uncut=most == 2)
    ends = _ends(fit, short.slowdown)
    rest = iter([color for color in of_color.values() if color not in short.colors])
    shortened = iter(short.colors)
    start = 0.0
    for is_short in short.order:
        length = 1 - short.share if is_short else 1.0
        subflows = list(over_common_links(ends, start, length))
        start += length
        for flow in next(shortened if is_short else rest):
            up, down = common.up[flow.src_leaf], common.down[flow.dst_leaf]
            residual.amounts[flow.id] |= {
                (up[-1 - common_link], down[-1 - common_link]): of for common_link, of in subflows
            }
    routes = {flow.id: exactly_one(residual.amounts[flow.id]) for flow in part.flows}
    return routes if max(map(len, routes.values())) <= most else None


def _ends(fit: Sequence[float], slowdown: float) -> list[float]:
    """Return the ends of the common links' segments on the line, ascending from 0, at this slowdown."""
    return list(itertools.accumulate((slowdown * of for of in fit), initial=0.0))


def over_common_links(ends: Sequence[float], start: float, length: float) -> Iterator[tuple[int, float]]:
    """Yield (common link, length) of each piece of an interval of the line. ``ends`` is the result of ``_ends``."""
    for common_link, (begin, end) in enumerate(itertools.pairwise(ends)):
        share = min(end, start + length) - max(begin, start)
        if share > _ROUNDING:
            yield common_link, share


class _Short(NamedTuple):
    """Shortened colours."""

    colors: Sequence[Sequence[Flow]]
    """Colours whose flows each have a share on a residual cable."""
    share: float
    slowdown: float
    """Slowdown at which all colours fit on the line."""
    order: Sequence[bool]
    """Colours in their order on the line: True for a shortened colour."""


class _Residual:
    """Residual cables and the flows on them."""

    def __init__(self, part: Problem, common: CommonLinks, demand_bps: float, bound: float) -> None:
        self._common = common
        self._sides: defaultdict[Cable, set[Side]] = defaultdict(set)
        self._room: dict[Cable, float] = {}
        """Number of flows that the links of each cable carry at slowdown 1."""
        for inward, residual in ((False, common.up_residual), (True, common.down_residual)):
            for leaf, links in residual.items():
                for cable, link in links.items():
                    self._sides[cable].add((inward, leaf))
                    room = part.capacity_bps[link] / demand_bps
                    self._room[cable] = min(room, self._room.get(cable, room))
        self._whole = {cable: int(bound * room + _ROUNDING) for cable, room in self._room.items()}
        """Number of whole flows that each cable carries at the bound."""
        self._load: defaultdict[tuple[Cable, Side], float] = defaultdict(float)
        """Sum of the shares of flows on each cable, by (cable, side of a leaf)."""
        self.amounts: defaultdict[FlowId, dict[Path, float]] = defaultdict(dict)
        """Share of each flow on each path."""

    # ---- whole flows

    def peel(self, flows: Sequence[Flow]) -> list[Flow]:
        """Put whole flows on the residual cables, and return the flows that are left."""
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
        """Shorten as many colours as are useful and possible.

        ``fit``: number of flows that each common link carries at slowdown 1. ``uncut``: whether each shortened colour
        must lie on one common link."""
        for count in range(self._useful(len(colors), sum(fit), bound), 0, -1):
            slowdown = max(bound, self._slowdown(len(colors), count, sum(fit)))
            share = (len(colors) - slowdown * sum(fit)) / count
            order = _order(len(colors) - count, count, 1 - share, _ends(fit, slowdown), uncut)
            found = order and (
                self._shortened(colors, count, share, slowdown, in_turn=False)
                or self._shortened(colors, count, share, slowdown, in_turn=True)
            )
            if order and found:
                return _Short(found, share, slowdown, order)
        return _Short((), 0.0, max(bound, len(colors) / sum(fit)), [False] * len(colors))

    def _slowdown(self, colors: int, count: int, line: float) -> float:
        """Return the slowdown with ``count`` shortened colours.

        At this slowdown, ``count`` times the unused room of each cable is at least the length by which the colours
        exceed the line. The line always carries the colours that are not shortened."""
        rest = max((colors + count * self._whole[cable]) / (line + count * room) for cable, room in self._room.items())
        return max(rest, (colors - count) / line)

    def _useful(self, colors: int, line: float, bound: float) -> int:
        """Return the smallest number of shortened colours that reaches the bound, or else the largest number."""
        if colors <= bound * line * (1 + _ROUNDING) or not self._room:
            return 0
        most = min(colors, len(self._room))
        return next((count for count in range(1, most) if self._slowdown(colors, count, line) <= bound), most)

    def _shortened(
        self, colors: Sequence[Sequence[Flow]], count: int, share: float, slowdown: float, in_turn: bool
    ) -> list[Sequence[Flow]] | None:
        """Return ``count`` colours all of whose flows get this share on a cable; None when fewer colours are found.

        ``in_turn``: whether the search for cables starts with another cable for each colour."""
        found: list[Sequence[Flow]] = []
        placed: list[tuple[Flow, Cable]] = []
        for color in colors:
            if len(found) == count:
                break
            chosen = self._place(color, share, slowdown, len(found) if in_turn else 0)
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

    def _place(self, color: Sequence[Flow], share: float, slowdown: float, first: int) -> list[tuple[Flow, Cable]]:
        """Choose a cable with room for this share of each flow, starting with cable ``first``.

        Return only the choices before the first flow that finds no cable."""
        cables = [*self._sides][first:] + [*self._sides][:first]
        chosen: list[tuple[Flow, Cable]] = []
        for flow in color:
            sides = _sides((flow.src_leaf, flow.dst_leaf))
            for cable in cables:
                room = slowdown * self._room[cable] * (1 + _ROUNDING) - share
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
        return self._common.up_residual[flow.src_leaf][cable], self._common.down_residual[flow.dst_leaf][cable]


def _order(whole: int, short: int, length: float, ends: Sequence[float], uncut: bool) -> list[bool] | None:
    """Return for each colour on the line, in order, whether it is short.

    There are ``whole`` long colours of length 1, and ``short`` short colours of length ``length``. None when a short
    colour would have to be cut and ``uncut`` is set."""
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
    """Return the number of flows of each pair to peel off: as many as possible, at most ``most`` at each side.

    Flows at sides that need to lose flows (``need``) are preferred. The matrix of the programme is that of a bipartite
    graph, so its vertices are integers."""
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
