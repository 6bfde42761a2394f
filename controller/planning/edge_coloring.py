"""Balanced edge colouring: the best routing of whole, equal flows on a leaf-spine whose leaves are all alike.

Flows are edges between their source's leaf (on the left) and their destination's (on the right), spines are colours.
König's theorem gives a bipartite multigraph of largest degree S a proper colouring with S colours. Cutting a leaf of
degree d into copies of at most S flows each first makes the colouring *equitable* for any S (de Werra, "Equitable
colorations of graphs", 1971): each leaf has floor(d/S) or ceil(d/S) flows of each colour, which no routing of whole
flows can beat.

In: edges. Out: a colour for each.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import rustworkx as rx


def balanced_coloring(edges: Sequence[tuple[int, int]], colors: int) -> list[int]:
    """A colour in [0, ``colors``) per (left, right) edge, such that each end has at most ceil(degree / ``colors``)
    edges of a colour, and at least floor(degree / ``colors``)."""
    split = zip(
        _copies([left for left, _ in edges], colors), _copies([right for _, right in edges], colors), strict=True
    )
    return proper_coloring(list(split))


def proper_coloring(edges: Sequence[tuple[Hashable, Hashable]]) -> list[int]:
    """A colour per (left, right) edge of a bipartite multigraph, no two alike at a node, with as many colours as the
    largest degree. Left and right nodes are apart even when they have the same name."""
    number: dict[tuple[bool, Hashable], int] = {}
    graph: rx.PyGraph[None, None] = rx.PyGraph()
    graph.extend_from_edge_list(
        [
            (number.setdefault((False, left), len(number)), number.setdefault((True, right), len(number)))
            for left, right in edges
        ]
    )
    found = rx.graph_bipartite_edge_color(graph)
    return [found[index] for index in range(len(edges))]


def _copies(nodes: Sequence[int], size: int) -> list[tuple[int, int]]:
    """(node, copy) per edge: each copy of a node takes ``size`` of its edges, in their order."""
    degree: dict[int, int] = {}
    copies = []
    for node in nodes:
        taken = degree.get(node, 0)
        degree[node] = taken + 1
        copies.append((node, taken // size))
    return copies
