"""Edge colourings of bipartite multigraphs, whose edges are flows and whose colours are links.

Edges that share a node on one side get different colours in a *proper* colouring; as many colours as the largest degree
are enough (König's theorem). For an *even* colouring with S colours, each node is first cut into copies with at most S
edges each. The resulting graph then gets a proper colouring.

A *nested* colouring is even in sets of edges, such as the edges of a leaf, of a pod, or of a job on a leaf. Each side
(sources, destinations) has sets on several levels: a set lies within one set of the next outer level. No set has more
than ceil(edges / colours) edges of one colour.

First, every edge gets a colour. While a set then has too many edges of one colour, the edges of this colour and of the
set's rarest colour are *halved*. Each half gets one of the two colours, and the halves of every set differ by at most
one edge. The halving ends, because each one lowers the sum of squares of the numbers of edges per set and colour (de
Werra, "Equitable colorations of graphs", 1971).

To halve edges, the edges of every set are paired on each side. The pairs of both sides form cycles of even length,
whose edges go alternately into the two halves. Euler splits work alike (Gabow, "Using Euler partitions to edge color
bipartite multigraphs", 1976).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import rustworkx as rx

from controller.planning.problem import Bools, Ints, distinct, run_ranks, run_starts

Nest = Sequence[Ints]
"""Sets of the edges at one side, such as the edges of each leaf, and then the edges of each pod.

Entry [level][edge] is the number of the edge's set. A set of one level lies in a single set of the next level."""


def even_coloring(left: Ints, right: Ints, colors: int) -> Ints:
    """Return a colour in [0, ``colors``) for each edge.

    Each end has at most ceil(degree / ``colors``) and at least floor(degree / ``colors``) edges of each colour.

    ``left``, ``right``: nodes of each edge. A left and a right node with the same number are different nodes."""
    return _proper(_copies([left], colors), _copies([right], colors))


def balanced_coloring(edges: Sequence[tuple[int, int]], colors: int) -> list[int]:
    """Return ``even_coloring`` of (left, right) edges, whose nodes may have any numbers."""
    left, right = (_numbered([edge[side] for edge in edges]) for side in (0, 1))
    coloring: list[int] = even_coloring(left, right, colors).tolist()
    return coloring


def proper_coloring(edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return a colour for each (left, right) edge; edges with a common node differ in colour.

    There are as many colours as the largest degree."""
    return balanced_coloring(edges, max(1, len(edges)))


def _numbered(nodes: Sequence[int]) -> Ints:
    """Return consecutive numbers from 0 for the nodes; the nodes themselves may be too large for an ``np.int64``."""
    number = {node: place for place, node in enumerate(sorted(set(nodes)))}
    return np.array([number[node] for node in nodes], np.int64)


def _copies(nest: Nest, size: int) -> Ints:
    """Divide each outermost set into copies of at most ``size`` edges, and return the number of each edge's copy.

    In each outermost set, all copies but one are full. Where possible, all edges of a copy belong to one inner set, and
    all edges of a smaller inner set to one copy."""
    copies = np.full(len(nest[0]), -1)
    left, count = np.arange(len(nest[0])), 0
    for level, sets in enumerate(nest, 1):
        left = left[np.argsort(sets[left], kind="stable")]
        rank = run_ranks(sets[left])
        _, cell = distinct(sets[left] * (int(rank.max(initial=0)) // size + 1) + rank // size)
        if level > 1:
            left = left[_undivided(nest[level - 2][left], cell)]
        full = np.bincount(sets[left])[sets[left]] // size * size if level < len(nest) else len(left)
        inside = rank < full
        used, copy = distinct(cell[inside])
        copies[left[inside]] = count + copy
        left, count = left[~inside], count + len(used)
    return copies


def _undivided(inner: Ints, cell: Ints) -> Ints:
    """Return an order of the edges in which fewer inner sets are divided among cells.

    An inner set of several edges goes to the cell of its first edge; inner sets of one edge fill the rest. The edges of
    an inner set, and of a cell, are consecutive."""
    first = run_starts(inner)
    edges = np.diff(first, append=len(inner))
    new, single = cell[np.repeat(first, edges)], np.repeat(edges == 1, edges)
    room = np.bincount(cell) - np.bincount(new[~single], minlength=int(cell.max(initial=-1)) + 1)
    filled = np.maximum.accumulate(np.cumsum(room))
    new[single] = np.searchsorted(filled, np.arange(np.count_nonzero(single)), "right")
    order: Ints = np.argsort(new, kind="stable")
    return order


def _proper(left: Ints, right: Ints) -> Ints:
    """Return a proper colouring.

    ``left``, ``right``: ends of each edge, numbered from 0 without gaps on each side."""
    graph: rx.PyGraph[None, None] = rx.PyGraph()
    right = right + int(left.max(initial=-1)) + 1
    graph.extend_from_edge_list(list(zip(left.tolist(), right.tolist(), strict=True)))
    found = rx.graph_bipartite_edge_color(graph)
    colors = np.zeros(len(left), np.int64)
    colors[np.fromiter(found.keys(), np.int64, len(left))] = np.fromiter(found.values(), np.int64, len(left))
    return colors


# ---- nested colourings


def nested_coloring(sides: tuple[Nest, Nest], colors: int, current: Ints | None = None) -> Ints:
    """Return a colour in [0, ``colors``) for each edge, so that the edges of every set are divided evenly by colour.

    ``current``: colour of each edge that it should keep where possible; -1 for an edge without a colour."""
    if current is None or current.max(initial=-1) < 0:
        coloring = _proper(_copies(sides[0], colors), _copies(sides[1], colors))
        current = np.full(len(coloring), -1)
    else:
        coloring = _filled(current, sides, colors)
    while pairs := _uneven(coloring, sides, colors):
        of_color = np.full(colors, -1)
        of_color[np.array(pairs)] = np.arange(len(pairs))[:, None]
        edges = np.flatnonzero(of_color[coloring] >= 0)
        pair, old = of_color[coloring[edges]], coloring[edges]
        nests = [[level[edges] for level in side] for side in sides]
        second = _second_half(nests, pair, old == np.array(pairs)[pair, 1], old == current[edges])
        coloring[edges] = np.array(pairs)[pair, second.astype(np.int64)]
    return coloring


def _filled(current: Ints, sides: tuple[Nest, Nest], colors: int) -> Ints:
    """Return ``current`` completed: each edge without a colour gets the colour that is rarest in its sets."""
    coloring, levels = current.copy(), [level for side in sides for level in side]
    there = current >= 0
    counts = [_counts(coloring[there], level[there], int(level.max()) + 1, colors) for level in levels]
    for edge in np.flatnonzero(~there).tolist():
        own = [of_set[level[edge]] for of_set, level in zip(counts, levels, strict=True)]
        coloring[edge] = color = int(np.sum(own, axis=0).argmin())
        for of_color in own:
            of_color[color] += 1
    return coloring


def _counts(coloring: Ints, level: Ints, sets: int, colors: int) -> Ints:
    """Return the number of edges of each colour in each set; shape (sets, colours)."""
    return np.bincount(level * colors + coloring, minlength=sets * colors).reshape(-1, colors)


def _uneven(coloring: Ints, sides: tuple[Nest, Nest], colors: int) -> list[tuple[int, int]]:
    """Return pairs of colours whose edges are to be halved: the most frequent and the rarest colour of an uneven set.

    No colour occurs in two pairs. Pairs that are found in the most sets are chosen first."""
    found: Counter[tuple[int, int]] = Counter()
    for level in (level for side in sides for level in side):
        cells, at = distinct(level * colors + coloring)
        of = cells // colors
        uneven = distinct(of[np.bincount(at) > -(-np.bincount(level) // colors)[of]])[0]
        place = np.full(int(level.max(initial=-1)) + 1, -1)
        place[uneven] = np.arange(len(uneven))
        there = place[level] >= 0
        counts = _counts(coloring[there], place[level[there]], len(uneven), colors)
        found.update(zip(counts.argmax(axis=1).tolist(), counts.argmin(axis=1).tolist(), strict=True))
    pairs, used = [], set[int]()
    for pair, _ in found.most_common():
        if used.isdisjoint(pair):
            used.update(pair)
            pairs.append(pair)
    return pairs


def _second_half(sides: Sequence[Nest], group: Ints, second: Bools, kept: Bools) -> Bools:
    """Divide the edges of each group into two halves; return for each edge whether it is in the second half.

    ``second``: whether each edge is in the second half before the call. ``kept``: whether an edge should stay in its
    half."""
    partners = []
    for side in sides:
        partner = _partners(side, group, second)
        # In a group with an odd number of edges one edge has no partner. A further edge becomes its partner.
        alone = np.flatnonzero(partner < 0)
        alone = alone[np.argsort(group[alone])]
        partner[alone] = len(group) + np.arange(len(alone))
        partners.append(np.concatenate([partner, alone]))
    left, right = partners
    # Every second edge of a cycle gets the same label: the smallest number of these edges.
    label, after = np.arange(len(left)), right[left]
    while (label[after] != label).any():
        label, after = np.minimum(label, label[after]), after[after]
    cycle = np.minimum(label, label[left])[: len(group)]
    found: Bools = (label != np.minimum(label, label[left]))[: len(group)]
    changed = kept & (found != second)
    least = np.bincount(cycle, changed) * 2 > np.bincount(cycle, kept)
    stays: Bools = found ^ least[cycle]
    return stays


def _partners(nest: Nest, group: Ints, second: Bools) -> Ints:
    """Return for each edge the other edge of its pair, or -1 for an edge without a partner.

    Pairs lie within a group. Edges of the same inner set are paired first, then edges in different halves."""
    partners, left = np.full(len(group), -1), np.arange(len(group))
    for level in (*nest, np.zeros(len(group), np.int64)):
        key = 2 * (group[left] * (int(level.max(initial=0)) + 1) + level[left]) + second[left]
        order = np.argsort(key, kind="stable")
        left, key = left[order], key[order]
        order = np.lexsort((key, run_ranks(key), key // 2))
        left, key = left[order], key[order]
        last = np.flatnonzero(run_ranks(key // 2) % 2)
        partners[left[last]], partners[left[last - 1]] = left[last - 1], left[last]
        left = left[partners[left] < 0]
    return partners
