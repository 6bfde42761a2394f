"""Exact splitting of equal flows on a leaf-spine whose leaves are all alike, with the fewest cuts of a line.

Colour the flows so that no leaf has two of a colour, out or in; D colours do (König), D the largest number of flows
at a leaf. Colour c owns the interval [c, c+1) of a line of length D. Cut the line into pieces, one per lane: a flow
puts on a lane the share of its interval that lies in the lane's piece. A leaf has one flow of a colour at most, so
pieces of length D/S load every link with at most D/S flows, which is the leaf cut's bound; a flow touches two pieces
when they are not shorter than 1 (docs/planning.md).

In: lanes, the flows. Out: routes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from controller.planning.leaf_spine import Lanes
from controller.planning.problem import Flow, FlowId, Route, Subflow
from controller.planning.whole.edge_coloring import proper_coloring

_ROUNDING = 1e-9


def split_evenly(flows: Sequence[Flow], lanes: Lanes, max_subflows: int, tolerance: float) -> dict[FlowId, Route]:
    """Routes of flows of one demand. ``max_subflows`` >= 2: pieces per flow. ``tolerance``: by how much (relative) the
    largest load may exceed the least one, to save subflows."""
    colors = proper_coloring([(flow.src_leaf, flow.dst_leaf) for flow in flows])
    count = max(colors) + 1
    ends = lane_ends(count, lanes.count, max_subflows, tolerance)
    pieces = _pieces(count, ends)
    routes = {}
    for flow, color in zip(flows, colors, strict=True):
        up, down = lanes.up[flow.src_leaf], lanes.down[flow.dst_leaf]
        routes[flow.id] = tuple([Subflow((up[lane], down[lane]), share) for lane, share in pieces[color]])
    return routes


def lane_ends(colors: int, lanes: int, max_subflows: int, tolerance: float) -> list[float]:
    """Where each lane's piece of the line [0, ``colors``) ends, ascending; there may be fewer than ``lanes``.

    Some lanes take whole colours, the others share the rest evenly: the fewest cuts through colours whose pieces are
    within ``tolerance`` of the shortest possible ones.
    """
    if colors <= lanes:
        length = colors / lanes
        if length < 1 / (max_subflows - 1):
            # Cuts in the middle of a colour would make one piece too many: cut every colour alike.
            length = 1 / min(max_subflows, int(1 / length + _ROUNDING))
        return [min(colors, (lane + 1) * length) for lane in range(math.ceil(colors / length - _ROUNDING))]
    longest = colors / lanes * (1 + tolerance) + _ROUNDING
    fewest, best = math.inf, (lanes, colors)
    for sharing in range(lanes + 1):
        rest = max(0, colors - int(longest) * (lanes - sharing))
        cuts = sharing - math.gcd(sharing, rest)
        if rest <= longest * sharing and cuts < fewest:
            fewest, best = cuts, (sharing, rest)
    sharing, rest = best
    first = (colors - rest) / max(1, lanes - sharing)
    taken = colors - rest
    ends = [min(taken, (lane + 1) * math.ceil(first)) for lane in range(lanes - sharing)]
    return [*ends, *(taken + (lane + 1) * rest / sharing for lane in range(sharing))]


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
