"""Optimal routing in closed form on a leaf-spine whose leaves are all alike.

In: a ``Problem``. Out: *lanes*, or None where the fabric is not like that; routes of the flows between leaves. A lane
is one cable from every leaf to one spine and one cable back to every leaf; all have one capacity. With several cables
between each leaf and spine a spine has several lanes. Spines that failed for every leaf have no lanes.

Flows are edges of a bipartite multigraph from their source's leaf to their destination's. Edges that share a leaf, at
the same side, get different colours; as many colours as the largest degree are enough (König's theorem).

- *Balanced edge colouring* routes whole flows: lanes are the colours. A leaf of degree d is first cut into copies of at
  most S flows each, S the number of lanes. The colouring is then *equitable* (de Werra, "Equitable colorations of
  graphs", 1971): each leaf has floor(d/S) or ceil(d/S) flows of each colour, which no routing of whole flows can beat.
- *Interval cutting* splits flows of one demand. Colour with D colours, D the largest degree. Colour c owns the interval
  [c, c+1) of a line of length D. Cut the line into pieces, one per lane: a flow puts on a lane the share of its
  interval that lies in the lane's piece. A leaf has at most one flow of a colour, so pieces of length D/S load every
  link with at most D/S flows, the leaf cut's bound. A flow touches at most two pieces when they are not shorter than 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import rustworkx as rx

from controller.fabric.topology import Dpid, LinkId
from controller.planning.problem import Flow, FlowId, Ints, Problem, Route, Subflow

_EQUAL = 1e-9
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Lanes:
    """``up``, ``down``: per leaf its links out and in, by lane; the path from a leaf to another by lane l is its up
    link l and the other's down link l."""

    up: Mapping[Dpid, tuple[LinkId, ...]]
    down: Mapping[Dpid, tuple[LinkId, ...]]
    count: int


def find_lanes(problem: Problem) -> Lanes | None:
    """The lanes between the leaves that the problem's flows begin and end at."""
    paths, capacity_bps = problem.paths, problem.capacity_bps
    leaves = {
        leaf for flow in problem.flows if flow.src_leaf != flow.dst_leaf for leaf in (flow.src_leaf, flow.dst_leaf)
    }
    up, down = {}, {}
    spines: list[Dpid] | None = None
    for leaf in sorted(leaves):
        outward = sorted((paths.far_end[link], link) for link in paths.links_from(leaf))
        inward = sorted((link.dpid, link) for link in paths.links_into(leaf))
        if spines is None:
            spines = [spine for spine, _ in outward]
        if [spine for spine, _ in outward] != spines or [spine for spine, _ in inward] != spines:
            return None
        up[leaf] = tuple(link for _, link in outward)
        down[leaf] = tuple(link for _, link in inward)
    if not spines or not leaves.isdisjoint(spines) or len(set(Counter(spines).values())) > 1:
        return None
    rates = {capacity_bps[link] for links in (*up.values(), *down.values()) for link in links}
    if max(rates) - min(rates) > _EQUAL * max(rates):
        return None
    return Lanes(up, down, len(spines))


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


def split_evenly(flows: Sequence[Flow], lanes: Lanes, max_subflows: int) -> dict[FlowId, Route]:
    """Routes of flows of one demand. ``max_subflows`` >= 2: pieces per flow."""
    colors = proper_coloring([(flow.src_leaf, flow.dst_leaf) for flow in flows])
    count = max(colors) + 1
    ends = lane_ends(count, lanes.count, max_subflows)
    pieces = _pieces(count, ends)
    routes = {}
    for flow, color in zip(flows, colors, strict=True):
        up, down = lanes.up[flow.src_leaf], lanes.down[flow.dst_leaf]
        routes[flow.id] = tuple([Subflow((up[lane], down[lane]), share) for lane, share in pieces[color]])
    return routes


def lane_ends(colors: int, lanes: int, max_subflows: int) -> list[float]:
    """Where each lane's piece of the line [0, ``colors``) ends, ascending; there may be fewer than ``lanes``. The
    longest piece is as short as possible."""
    if colors > lanes:
        return [(lane + 1) * colors / lanes for lane in range(lanes)]
    length = colors / lanes
    if length < 1 / (max_subflows - 1):
        # Cuts in the middle of a colour would make one piece too many: cut every colour alike.
        length = 1 / min(max_subflows, int(1 / length + _ROUNDING))
    return [min(colors, (lane + 1) * length) for lane in range(math.ceil(colors / length - _ROUNDING))]


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
