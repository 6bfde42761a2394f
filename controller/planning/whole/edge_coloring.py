"""Balanced edge colouring: the best routing of whole, equal flows on a leaf-spine whose leaves are all alike.

Flows are edges between their source's leaf (on the left) and their destination's (on the right), spines are colours.
König's theorem gives a bipartite multigraph of largest degree S a proper colouring with S colours. Cutting a leaf of
degree d into copies of at most S flows each first makes the colouring *equitable* for any S (de Werra, "Equitable
colorations of graphs", 1971): each leaf has floor(d/S) or ceil(d/S) flows of each colour, which no routing of whole
flows can beat.

In: flows and lanes, or edges and a number of colours. Out: routes, or a colour for each edge.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import rustworkx as rx
from numpy.typing import NDArray

from controller.planning.leaf_spine import Lanes
from controller.planning.problem import Flow, FlowId, Route, Subflow

Ints = NDArray[np.int64]


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
