"""Routing in closed form on a leaf-spine, part by part (``lanes``): optimal where the leaves of each part are alike.

In: a ``Problem``. Out: routes of the flows between leaves; None where paths have not two links, or where leaves of one
part have no lane in common.

Flows are edges of a bipartite multigraph from their source's leaf to their destination's. Edges that share a leaf, at
the same side, get different colours; as many colours as the largest degree are enough (König's theorem).

- *Balanced edge colouring* routes whole flows: lanes are the colours. A leaf of degree d is first cut into copies of at
  most S flows each, S the number of lanes. The colouring is then *equitable* (de Werra, "Equitable colorations of
  graphs", 1971): each leaf has floor(d/S) or ceil(d/S) flows of each colour, which no routing of whole flows can beat.
- *Interval cutting* splits flows of one demand. Colour with D colours, D the largest degree. Colour c owns the interval
  [c, c+1) of a line of length D. Cut the line into pieces, one per lane: a flow puts on a lane the share of its
  interval that lies in the lane's piece. A leaf has at most one flow of a colour, so it loads a lane with at most the
  length of its piece. Pieces are as long as their lanes' capacities are large: all lanes are then equally full. Where
  these are alike and all links of the leaves belong to lanes, that is the leaf cut's bound. A flow touches at most two
  pieces when they are not shorter than 1, or, where the slowest lanes come first, hardly shorter.

Demands that differ a little (``_NEARLY``) are cut as if they were the largest. Lanes have the least capacity of their
links. What that costs, levels show, which are computed from the routes; bounds know nothing of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import rustworkx as rx

from controller.planning import cables_besides
from controller.planning.bounds import Bounds
from controller.planning.efficiency import LEVEL_TOLERANCE
from controller.planning.lanes import Lanes, find_lanes, lanes_of, parts
from controller.planning.numbered import Floats, Ints, NumberedRoutes, Numbers, distinct
from controller.planning.problem import Problem

_ROUNDING = 1e-9
_NEARLY = 0.05
"""Demands that differ relatively by no more than this are cut as if they were equal."""


def route(problem: Problem, bounds: Bounds) -> tuple[str, NumberedRoutes] | None:
    """(name, routes): in every part whole flows, unless splitting gains."""
    numbers = problem.numbers
    if not len(numbers.crossing):
        return None
    routed = []
    name = "edge-coloring"
    alike = find_lanes(problem)
    whole = (numbers.most == 1).all() or bounds.integer <= bounds.fluid * (1 + LEVEL_TOLERANCE)
    floors = np.array([bounds.job.get(job, 1.0) for job in numbers.job_ids])
    for flows in [numbers.crossing] if alike and whole else parts(numbers, numbers.crossing):
        lanes = alike or lanes_of(problem, flows)
        if lanes is None:
            return None
        cut = _cut_where_it_gains(numbers, flows, lanes, float(floors[numbers.job[flows]].min()))
        name = name if cut is None else "interval-cutting"
        routed.append(cut or _colored(numbers, flows, lanes))
    return name, NumberedRoutes.joined(routed)


def _colored(numbers: Numbers, flows: Ints, lanes: Lanes) -> NumberedRoutes:
    """Whole flows, also on cables besides the lanes where that leaves fewer on a link."""
    besides = lanes.has_others and nearly_equal(numbers.peak_bps[flows])
    over_all = cables_besides.whole(numbers, flows, lanes, _even) if besides else None
    return over_all or color_evenly(numbers, flows, lanes)


def _cut_where_it_gains(numbers: Numbers, flows: Ints, lanes: Lanes, floor: float) -> NumberedRoutes | None:
    """None where whole flows do as well, or the flows cannot be cut. ``floor``: all jobs have at least this level."""
    pieces, demand_bps = int(numbers.most[flows].min()), nearly_equal(numbers.peak_bps[flows])
    if pieces == 1 or demand_bps is None:
        return None
    degree = max(int(np.bincount(of[flows]).max()) for of in (numbers.src, numbers.dst))
    fit = tuple([bps / demand_bps for bps in lanes.bps])
    in_turns = -(-degree // lanes.count) / fit[min(degree, lanes.count) - 1]
    if in_turns <= floor * (1 + LEVEL_TOLERANCE):
        return None
    level = _cut(degree, fit, pieces).level
    if lanes.has_others and level > floor * (1 + LEVEL_TOLERANCE):
        ways = [
            (divided, _cut(int(divided.colors.max(initial=0)) + 1, fit, pieces))
            for divided in cables_besides.split(numbers, flows, lanes, demand_bps, _even)
        ]
        least, way = min(((max(one.level for one in way), n) for n, way in enumerate(ways)), default=(math.inf, 0))
        if least < min(level, in_turns) * (1 - LEVEL_TOLERANCE):
            divided, cut = ways[way]
            return NumberedRoutes.joined(
                [divided.over, split_evenly(numbers, divided.rest, lanes, cut, divided.colors)]
            )
    if level >= in_turns * (1 - LEVEL_TOLERANCE):
        return None
    colors = _even(numbers.src[flows], numbers.dst[flows], len(flows))
    return split_evenly(numbers, flows, lanes, _cut(degree, fit, pieces), colors)


def nearly_equal(peak_bps: Floats) -> float | None:
    """The largest of the demands of flows (bit/s), if no other differs much; None if one does."""
    largest = float(peak_bps.max(initial=0.0))
    return largest if float(peak_bps.min(initial=largest)) >= (1 - _NEARLY) * largest > 0 else None


# ---- whole flows


def color_evenly(numbers: Numbers, flows: Ints, lanes: Lanes) -> NumberedRoutes:
    """Routes of whole flows between leaves: no link has more than ceil(flows of its leaf / lanes)."""
    colors = _even(numbers.src[flows], numbers.dst[flows], lanes.count)
    return NumberedRoutes(flows, lanes.paths(numbers, flows, colors), np.ones(len(flows)))


def balanced_coloring(edges: Sequence[tuple[int, int]], colors: int) -> list[int]:
    """A colour in [0, ``colors``) per (left, right) edge, such that each end has at most ceil(degree / ``colors``)
    edges of a colour, and at least floor(degree / ``colors``)."""
    left, right = (_numbered([edge[side] for edge in edges]) for side in (0, 1))
    coloring: list[int] = _even(left, right, colors).tolist()
    return coloring


def _numbered(nodes: Sequence[int]) -> Ints:
    """Numbers from 0; nodes may be larger than an ``np.int64``."""
    number = {node: place for place, node in enumerate(sorted(set(nodes)))}
    return np.array([number[node] for node in nodes], np.int64)


def _even(left: Ints, right: Ints, colors: int) -> Ints:
    return _proper(_copies(left, colors), _copies(right, colors))


def proper_coloring(edges: Sequence[tuple[int, int]]) -> list[int]:
    """A colour per (left, right) edge of a bipartite multigraph, no two alike at a node, with as many colours as the
    largest degree. Left and right nodes are apart even when they have the same number."""
    return balanced_coloring(edges, max(1, len(edges)))


def _copies(node: Ints, size: int) -> Ints:
    """Numbers of copies of the nodes: each copy of a node takes ``size`` of its edges, in their order."""
    order = np.argsort(node, kind="stable")
    degree = np.bincount(node)
    rank = np.empty(len(node), np.int64)
    rank[order] = np.arange(len(node)) - np.repeat(np.cumsum(degree) - degree, degree)
    copy = rank // size
    return distinct(node * (int(copy.max(initial=0)) + 1) + copy)[1]


def _proper(left: Ints, right: Ints) -> Ints:
    """``left``, ``right``: the ends of each edge, numbered from 0 without gaps on each side."""
    graph: rx.PyGraph[None, None] = rx.PyGraph()
    right = right + int(left.max(initial=-1)) + 1
    graph.extend_from_edge_list(list(zip(left.tolist(), right.tolist(), strict=True)))
    found = rx.graph_bipartite_edge_color(graph)
    colors = np.zeros(len(left), np.int64)
    colors[np.fromiter(found.keys(), np.int64, len(left))] = np.fromiter(found.values(), np.int64, len(left))
    return colors


# ---- split flows


class Cut(NamedTuple):
    """A line of colours cut into lanes. ``level``: of the fullest lane. ``pieces``: how many each colour has; ``lane``,
    ``share``: of all pieces, colour by colour."""

    level: float
    pieces: Ints
    lane: Ints
    share: Floats


@lru_cache(maxsize=64)
def _cut(colors: int, fit: tuple[float, ...], max_subflows: int) -> Cut:
    """See ``lane_ends``. Parts of one fabric often need the same."""
    ends = lane_ends(colors, fit, max_subflows)
    level = max((end - start) / of for start, end, of in zip([0.0, *ends], ends, reversed(fit), strict=False))
    pieces = _pieces(colors, ends)
    lane = np.array([len(fit) - 1 - lane for of in pieces for lane, _ in of], np.int64)
    share = np.array([share for of in pieces for _, share in of], np.float64)
    return Cut(level, np.array([len(of) for of in pieces], np.int64), lane, share)


def split_evenly(numbers: Numbers, flows: Ints, lanes: Lanes, cut: Cut, colors: Ints) -> NumberedRoutes:
    """Routes of flows of one demand, of which those of a leaf have different colours."""
    times = cut.pieces[colors]
    at = np.repeat(flows, times)
    first = (np.cumsum(cut.pieces) - cut.pieces)[colors]
    piece = np.arange(len(at)) + np.repeat(first - np.cumsum(times) + times, times)
    return NumberedRoutes(at, lanes.paths(numbers, at, cut.lane[piece]), cut.share[piece])


def lane_ends(colors: int, fit: Sequence[float], max_subflows: int) -> list[float]:
    """Where each lane's piece of the line [0, ``colors``) ends, ascending, from the last lane on. No colour lies in
    more than ``max_subflows`` >= 2 pieces. ``fit``: per lane what it can carry, descending. The fullest lane is as
    little full as possible; where that would need too many pieces, the longest piece is as short as possible."""
    total = math.fsum(fit)
    ends = [colors * of / total for of in itertools.accumulate(reversed(fit))]
    if max(map(len, _pieces(colors, ends))) <= max_subflows:
        return ends
    lanes = len(fit)
    length = colors / lanes
    if length < 1 / (max_subflows - 1):
        # Cuts in the middle of a colour would make one piece too many: cut every colour alike.
        length = 1 / min(max_subflows, int(1 / length + _ROUNDING))
    used = min(lanes, math.ceil(colors / length - _ROUNDING))
    return [0.0] * (lanes - used) + [min(colors, (lane + 1) * length) for lane in range(used)]


def _pieces(colors: int, ends: Sequence[float]) -> list[list[tuple[int, float]]]:
    """Per colour the lanes its interval lies in, with the share in each."""
    pieces: list[list[tuple[int, float]]] = [[] for _ in range(colors)]
    start = 0.0
    for lane, end in enumerate(ends):
        for color in range(int(start + _ROUNDING), math.ceil(end - _ROUNDING)):
            share = min(end, color + 1) - max(start, color)
            pieces[color].append((lane, share))
        start = end
    return pieces
