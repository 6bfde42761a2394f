"""Closed forms for split flows of equal demand on a leaf-spine: *aligned cutting* and *peeling*.

docs/explanation/planning.md defines parts, common links and residual links.

**Aligned cutting** makes few moves, on a leaf-spine whose leaves are all alike. The *home* of a flow is the common link
that carries more than half of it. At most one flow out of a leaf has a given home, and at most one flow into a leaf. So
the flows of one home are a matching, like the flows of one colour of an edge colouring. Flows without a home get
colours too.

There are D colours, where D is the largest number of flows out of or into one leaf, and S common links. So D - S
*further* colours have no common link of their own. Each further colour is spread over a group of n common links, which
then carry 1 + 1/n flows each. A flow of the further colour is cut into subflows for the first links of the group. The
flows whose home is one of these links pass the excess on to other links of the group, and so on. In this tree of links,
a flow of k subflows connects k links. So about n / (k - 1) of the n + 1 colours are cut, and the flows of all other
colours stay.

**Peeling** routes the flows of one part over common links and residual links, for any number of pairs of leaves.

1. Whole flows are *peeled* off onto one residual cable after the other. Flows of leaves that must lose flows come
   first.
2. The other flows get N colours, where N is the largest number of these flows out of or into one leaf. The colours are
   laid on the line of the common links, as in ``closed_forms``.
3. If the colours are longer than the line, some are *shortened*. Each flow of such a colour puts a share on a residual
   cable that still has room. With p shortened colours, all colours together have the length N - p * share.

The line grows with the slowdown; the result has the slowdown at which the line has this length. When flows may have
only two subflows, each shortened colour must lie on a single common link. The result is the fluid optimum when as many
colours can be shortened as a leaf has residual cables. Each colour that cannot be shortened costs about the unused room
of a cable, divided by the number of common links.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from controller.fabric.topology import Dpid, Path
from controller.planning.closed_forms import (
    Cable,
    CommonLinks,
    crossing,
    find_common_links,
    nearly_equal,
)
from controller.planning.edge_coloring import proper_coloring
from controller.planning.problem import Flow, FlowId, PathShare, Problem, Route, whole
from controller.planning.programme import Programme
from controller.planning.split_flows.dividing import exactly_one

_ROUNDING = 1e-9
_MOST = 0.5
"""Share of a flow on one common link above which this link can be the flow's home."""
_MISSED = 1e3
"""Cost of each flow that should be peeled off at a side of a leaf but is not.

It is much larger than the gain of peeling off any flow, which is about 1."""
Pair = tuple[Dpid, Dpid]
Side = tuple[bool, Dpid]
"""Side of a leaf, as (inward, leaf): True for the links into the leaf, False for the links out of it."""
Shares = Sequence[tuple[int, float]]
"""Common links of a flow, each as (number, share)."""


# ---- aligned cutting


def aligned_cutting(problem: Problem, most: int | None) -> dict[FlowId, Route] | None:
    """Return routes of flows that may all be split, with few moves; None where the closed form does not apply.

    Return None also when ``most`` moves are too few. ``most``: number of flows that may move, None for any number."""
    flows, numbers = crossing(problem), problem.numbers
    max_subflows = min((flow.max_subflows for flow in flows), default=1)
    applies = max_subflows > 1 and nearly_equal(numbers.peak_bps[numbers.crossing])
    common = find_common_links(problem) if applies else None
    if common is None:
        return None
    degrees = Counter(end for flow in flows for end in _sides(flow))
    further = max(0, max(degrees.values(), default=0) - common.count)
    if further > common.count:
        return None
    coloring = _Coloring(_homes(problem, common, flows), flows, common.count + further)
    up, down = common.up, common.down

    def route(flow: Flow, shares: Shares) -> Route:
        paths = [(up[flow.src_leaf][common_link], down[flow.dst_leaf][common_link]) for common_link, _ in shares]
        return tuple(PathShare(path, share) for path, (_, share) in zip(paths, shares, strict=True))

    color = coloring.color
    inside = {flow.id: whole(()) for flow in problem.flows if flow.src_leaf == flow.dst_leaf}
    routes = {flow.id: route(flow, [(color[flow.id], 1.0)]) for flow in flows if color[flow.id] < common.count}
    left = math.inf if most is None else most - problem.moves(routes)
    cut = _widest(Counter(color.values()), common.count, further, max_subflows, left)
    if cut is None:
        return None
    return {
        flow.id: route(flow, cut[color[flow.id]]) if color[flow.id] in cut else routes[flow.id] for flow in flows
    } | inside


def _widest(
    sizes: Mapping[int, int], common: int, further: int, max_subflows: int, most: float
) -> Mapping[int, Shares] | None:
    """Return the shares of the flows of each colour that is cut; None when ``most`` moves are too few.

    The further colours, which have no common link of their own, are spread over as many common links as ``most`` moves
    allow. ``sizes``: number of flows per colour."""
    if not further:
        return {} if most >= 0 else None
    order = sorted(range(common), key=lambda common_link: (sizes[common_link], common_link))
    extra = sum(sizes[common + number] for number in range(further))
    for width in range(common // further, 0, -1):
        groups = [[order[number + further * n] for n in range(width)] for number in range(further)]
        cut = {
            color: shares
            for number, group in enumerate(groups)
            for color, shares in _tree(common + number, group, max_subflows).items()
        }
        if extra + sum(sizes[color] for color in cut if color < common) <= most:
            return cut
    return None


def _tree(root: int, common: Sequence[int], max_subflows: int) -> dict[int, Shares]:
    """Return the shares on common links of the flows of each colour that is cut.

    The flows of colour ``root`` take the first links of ``common``, whose flows pass a part on to further links, and so
    on. In the end each of the n links carries 1/n flow more than before."""
    width = len(common)

    def children(number: int) -> range:
        begin = max_subflows + number * (max_subflows - 1)
        return range(min(begin, width), min(begin + max_subflows - 1, width))

    below = [1] * width
    for number in reversed(range(width)):
        below[number] += sum(below[child] for child in children(number))
    cut: dict[int, Shares] = {
        root: [(common[child], below[child] / width) for child in range(min(max_subflows, width))]
    }
    for number in range(math.ceil(max(0, width - max_subflows) / (max_subflows - 1))):
        passed = [(common[child], below[child] / width) for child in children(number)]
        cut[common[number]] = [(common[number], 1 - (below[number] - 1) / width), *passed]
    return cut


class _Coloring:
    """Edge colouring that keeps the flows' homes where possible.

    A flow keeps its ``home`` as its colour unless another flow needs this colour. Two colours are then exchanged along
    a path (König's theorem)."""

    def __init__(self, home: Mapping[FlowId, int], flows: Sequence[Flow], count: int) -> None:
        self.color = dict(home)
        """Colour of each flow, below ``count``; flows that leave, or enter, the same leaf have different colours.

        A colour below the number of common links stands for that link."""
        self._count = count
        self._at = {(end, home[flow.id]): flow for flow in flows if flow.id in home for end in _sides(flow)}
        for flow in flows:
            if flow.id not in self.color:
                self._put(flow)

    def _put(self, flow: Flow) -> None:
        here, there = ([n for n in range(self._count) if (end, n) not in self._at] for end in _sides(flow))
        both = next((color for color in here if color in set(there)), None)
        if both is None:
            both = here[-1]
            self._exchange(_sides(flow)[1], both, there[-1])
        self._set_color(flow, both)

    def _exchange(self, end: Side, taken: int, free: int) -> None:
        """Exchange two colours along the path that begins at ``end``, which then has no flow of colour ``taken``."""
        path = []
        color, other = taken, free
        while (flow := self._at.get((end, color))) is not None:
            path.append((flow, other))
            end = next(far for far in _sides(flow) if far != end)
            color, other = other, color
        for flow, _ in path:
            for of_flow in _sides(flow):
                del self._at[of_flow, self.color[flow.id]]
        for flow, given in path:
            self._set_color(flow, given)

    def _set_color(self, flow: Flow, color: int) -> None:
        self.color[flow.id] = color
        self._at.update(((end, color), flow) for end in _sides(flow))


def _homes(problem: Problem, common: CommonLinks, flows: Sequence[Flow]) -> dict[FlowId, int]:
    up = {link: common_link for links in common.up.values() for common_link, link in enumerate(links)}
    down = {link: common_link for links in common.down.values() for common_link, link in enumerate(links)}
    on_common_link: defaultdict[int, list[Flow]] = defaultdict(list)
    for flow in flows:
        for path, share in flow.current or ():
            if share > _MOST and problem.is_in_force(flow) and up[path[0]] == down[path[-1]]:
                on_common_link[up[path[0]]].append(flow)
    evicted: Counter[Side] = Counter()
    return {
        flow.id: common_link
        for common_link, those in sorted(on_common_link.items())
        for flow in _matching(those, evicted)
    }


def _matching(flows: Iterable[Flow], evicted: Counter[Side]) -> list[Flow]:
    """Return the flows that stay when conflicting flows are removed, until no two share an end.

    Flows that share ends with the most flows are removed first. The fewest losses at the ends (``evicted``) break ties.
    """
    at: defaultdict[Side, int] = defaultdict(int)
    stay = list(flows)
    for flow in stay:
        for end in _sides(flow):
            at[end] += 1
    while True:
        crowded = [flow for flow in stay if any(at[end] > 1 for end in _sides(flow))]
        if not crowded:
            return stay

        def order(flow: Flow) -> tuple[int, int]:
            return sum(at[end] for end in _sides(flow)), -sum(evicted[end] for end in _sides(flow))

        gone = max(crowded, key=order)
        stay.remove(gone)
        for end in _sides(gone):
            at[end] -= 1
            evicted[end] += 1


# ---- peeling


def peel(part: Problem, common: CommonLinks, bound: float) -> dict[FlowId, Route] | None:
    """Return routes of the flows of one part, made by peeling; None when flows must stay whole or are unequal.

    Return None also when slow common links would need more subflows than flows may have.

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
    ends = _segment_ends(fit, short.slowdown)
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


def _segment_ends(fit: Sequence[float], slowdown: float) -> list[float]:
    """Return where the segments of the common links end on the line, ascending and with 0 as the first entry."""
    return list(itertools.accumulate((slowdown * of for of in fit), initial=0.0))


def over_common_links(ends: Sequence[float], start: float, length: float) -> Iterator[tuple[int, float]]:
    """Yield (common link, length) of each piece of an interval of the line; ``ends``: see ``_segment_ends``."""
    for common_link, (begin, end) in enumerate(itertools.pairwise(ends)):
        share = min(end, start + length) - max(begin, start)
        if share > _ROUNDING:
            yield common_link, share


class _Short(NamedTuple):
    colors: Sequence[Sequence[Flow]]
    """Colours whose flows each have a share on a residual cable."""
    share: float
    slowdown: float
    """Slowdown at which all colours fit on the line."""
    order: Sequence[bool]
    """Colours in their order on the line: True for a shortened colour."""


class _Residual:
    def __init__(self, part: Problem, common: CommonLinks, demand_bps: float, bound: float) -> None:
        self._common = common
        self._sides: defaultdict[Cable, set[Side]] = defaultdict(set)
        self._room: dict[Cable, float] = {}
        """Number of flows that the links of each cable carry at slowdown 1."""
        for inward, residual in zip((False, True), common.residual, strict=True):
            for leaf, links in residual.items():
                for cable, link in links.items():
                    self._sides[cable].add((inward, leaf))
                    room = part.capacity_bps[link] / demand_bps
                    self._room[cable] = min(room, self._room.get(cable, room))
        self._whole = {cable: int(bound * room + _ROUNDING) for cable, room in self._room.items()}
        """Number of whole flows that each cable carries without exceeding the lower bound of the slowdown."""
        self._load: defaultdict[tuple[Cable, Side], float] = defaultdict(float)
        """Sum of the shares of flows on each cable, by (cable, side of a leaf)."""
        self.amounts: defaultdict[FlowId, dict[Path, float]] = defaultdict(dict)
        """Share of each flow on each path."""

    # ---- whole flows

    def peel(self, flows: Sequence[Flow]) -> list[Flow]:
        """Put whole flows on the residual cables, and return the remaining flows."""
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
            for pair, count in _flows_to_peel(counts, need, degree, self._whole[cable]).items():
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
        for count in range(self._useful_count(len(colors), sum(fit), bound), 0, -1):
            slowdown = max(bound, self._slowdown(len(colors), count, sum(fit)))
            share = (len(colors) - slowdown * sum(fit)) / count
            order = _order_on_line(len(colors) - count, count, 1 - share, _segment_ends(fit, slowdown), uncut)
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

    def _useful_count(self, colors: int, line: float, bound: float) -> int:
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
        """Choose a cable with room for each flow, from cable ``first`` on; stop at a flow that fits nowhere."""
        cables = [*self._sides][first:] + [*self._sides][:first]
        chosen: list[tuple[Flow, Cable]] = []
        for flow in color:
            sides = _sides(flow)
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
            for side in _sides(flow):
                self._load[cable, side] += share

    def _path(self, flow: Flow, cable: Cable) -> Path:
        up, down = self._common.residual
        return up[flow.src_leaf][cable], down[flow.dst_leaf][cable]


def _order_on_line(whole: int, short: int, length: float, ends: Sequence[float], uncut: bool) -> list[bool] | None:
    """Return for each colour on the line, in order, whether it is short (of length ``length``, else of length 1).

    Return None when a short colour would have to be cut and ``uncut`` is set."""
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


def _flows_to_peel(
    counts: Mapping[Pair, int], need: Mapping[Side, int], degree: Mapping[Side, int], most: int
) -> dict[Pair, int]:
    """Return for each pair of leaves the number of flows to peel off: in total as many as possible.

    At most ``most`` flows are peeled off at each side of a leaf. Flows at sides that need to lose flows (``need``) are
    preferred. The constraint matrix is the incidence matrix of a bipartite graph, so the solution is integral."""
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


def _sides(ends: Flow | Pair) -> tuple[Side, Side]:
    src, dst = (ends.src_leaf, ends.dst_leaf) if isinstance(ends, Flow) else ends
    return (False, src), (True, dst)
