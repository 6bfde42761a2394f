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
from collections import Counter
from collections.abc import Sequence

import numpy as np
import rustworkx as rx

from controller.planning.bounds import Bounds
from controller.planning.efficiency import LEVEL_TOLERANCE
from controller.planning.lanes import Lanes, crossing, find_lanes, lanes_of, parts
from controller.planning.problem import Flow, FlowId, Ints, Problem, Route, Subflow, whole

_ROUNDING = 1e-9
_NEARLY = 0.05
"""Demands that differ relatively by no more than this are cut as if they were equal."""


def route(problem: Problem, bounds: Bounds) -> tuple[str, dict[FlowId, Route]] | None:
    """(name, routes): in every part whole flows, unless splitting gains."""
    routes: dict[FlowId, Route] = {}
    name = "edge-coloring"
    alike, between = find_lanes(problem), crossing(problem)
    never_cut = alike is not None and bounds.integer <= bounds.fluid * (1 + LEVEL_TOLERANCE)
    for flows in [between] if never_cut else parts(between):
        lanes = alike or lanes_of(problem, flows)
        if lanes is None:
            return None
        floor = min(bounds.job.get(flow.job_id, 1.0) for flow in flows)
        cut = _cut_where_it_gains(flows, lanes, floor)
        name = name if cut is None else "interval-cutting"
        routes |= color_evenly(flows, lanes) if cut is None else cut
    if not routes:
        return None
    return name, routes | {flow.id: whole(()) for flow in problem.flows if flow.src_leaf == flow.dst_leaf}


def _cut_where_it_gains(flows: Sequence[Flow], lanes: Lanes, floor: float) -> dict[FlowId, Route] | None:
    """None where whole flows do as well, or the flows cannot be cut. ``floor``: all jobs have at least this level."""
    pieces, demand_bps = min([flow.max_subflows for flow in flows]), nearly_equal(flows)
    if pieces == 1 or demand_bps is None:
        return None
    degree = max(max(Counter(ends).values()) for ends in zip(*[(f.src_leaf, f.dst_leaf) for f in flows], strict=True))
    fit = [bps / demand_bps for bps in lanes.bps]
    in_turns = -(-degree // lanes.count) / fit[min(degree, lanes.count) - 1]
    if in_turns <= floor * (1 + LEVEL_TOLERANCE):
        return None
    ends = lane_ends(degree, fit, pieces)
    longest = max((end - start) / of for start, end, of in zip([0.0, *ends], ends, reversed(fit), strict=False))
    return split_evenly(flows, lanes, ends) if longest < in_turns * (1 - LEVEL_TOLERANCE) else None


def nearly_equal(flows: Sequence[Flow]) -> float | None:
    """The largest demand (bit/s) of any of the flows, if no other differs much; None if one does."""
    demands = [max([bps for _, bps in flow.demand_bps], default=0.0) for flow in flows]
    return max(demands) if min(demands) >= (1 - _NEARLY) * max(demands) > 0 else None


# ---- whole flows


def color_evenly(flows: Sequence[Flow], lanes: Lanes) -> dict[FlowId, Route]:
    """Routes of whole flows between leaves: no link has more than ceil(flows of its leaf / lanes)."""
    colors = balanced_coloring([(flow.src_leaf, flow.dst_leaf) for flow in flows], lanes.count)
    up, down = lanes.up, lanes.down
    return {
        flow.id: (Subflow((up[flow.src_leaf][lane], down[flow.dst_leaf][lane]), 1.0),)
        for flow, lane in zip(flows, colors, strict=True)
    }


def balanced_coloring(edges: Sequence[tuple[int, int]], colors: int) -> list[int]:
    """A colour in [0, ``colors``) per (left, right) edge, such that each end has at most ceil(degree / ``colors``)
    edges of a colour, and at least floor(degree / ``colors``)."""
    ends = np.array(edges, object).reshape(-1, 2)
    left, right = (_copies(np.unique(ends[:, side], return_inverse=True)[1], colors) for side in (0, 1))
    return _proper(left, right)


def proper_coloring(edges: Sequence[tuple[int, int]]) -> list[int]:
    """A colour per (left, right) edge of a bipartite multigraph, no two alike at a node, with as many colours as the
    largest degree. Left and right nodes are apart even when they have the same number."""
    return balanced_coloring(edges, max(1, len(edges)))


def _copies(node: Ints, size: int) -> Ints:
    """Numbers of copies of the nodes: each copy of a node takes ``size`` of its edges, in their order."""
    order = np.argsort(node, kind="stable")
    starts = np.searchsorted(node[order], node)
    rank = np.empty(len(node), np.int64)
    rank[order] = np.arange(len(node))
    copy = (rank - starts) // size
    return np.unique(node * (int(copy.max(initial=0)) + 1) + copy, return_inverse=True)[1]


def _proper(left: Ints, right: Ints) -> list[int]:
    """``left``, ``right``: the ends of each edge, numbered from 0 without gaps on each side."""
    graph: rx.PyGraph[None, None] = rx.PyGraph()
    right = right + int(left.max(initial=-1)) + 1
    graph.extend_from_edge_list(list(zip(left.tolist(), right.tolist(), strict=True)))
    found = rx.graph_bipartite_edge_color(graph)
    return [found[index] for index in range(len(left))]


# ---- split flows


def split_evenly(flows: Sequence[Flow], lanes: Lanes, ends: Sequence[float]) -> dict[FlowId, Route]:
    """Routes of flows of one demand. ``ends``: see ``lane_ends``."""
    colors = proper_coloring([(flow.src_leaf, flow.dst_leaf) for flow in flows])
    pieces = _pieces(max(colors) + 1, ends)
    routes = {}
    for flow, color in zip(flows, colors, strict=True):
        up, down = lanes.up[flow.src_leaf], lanes.down[flow.dst_leaf]
        routes[flow.id] = tuple([Subflow((up[-1 - lane], down[-1 - lane]), share) for lane, share in pieces[color]])
    return routes


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
