"""Colourings of flows that are even in nested sets: in every leaf and in every pod at once.

In: for each side of a bipartite multigraph (sources, destinations) and each level, from the innermost to the outermost,
the set of each edge. Each set lies in one set of the next level. Out: a colour per edge, such that no set has more than
ceil(edges / colours) edges of one colour. The colouring is proper when there are at least as many colours as the
largest innermost set has edges: the edges of an innermost set then have different colours.

- *Halving*: in every set the edges are paired; a left-over edge is paired with a left-over edge of another set in the
  same outer set. Pairs of both sides form paths and even cycles. The edges of a path or cycle go alternately into the
  two halves, so the halves of every set differ by at most one edge. This works like Euler splits (Gabow, "Using Euler
  partitions to edge color bipartite multigraphs", 1976).
- When no edge has a colour, the first colouring is even in the innermost sets. Otherwise edges without a colour get the
  rarest colour of their innermost sets.
- While a set has too many edges of one colour, all edges of this colour and of the set's rarest colour are halved. Each
  time the sum of squares of the numbers of edges per set and colour decreases. The loop therefore ends (de Werra,
  "Equitable colorations of graphs", 1971). A path or cycle keeps the colours of most of its edges where possible."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from controller.planning.closed_forms import balanced_coloring
from controller.planning.problem import Ints

Nest = Sequence[Sequence[int]]
"""Nested sets of one side: for each level the number of each edge's set."""


def nested_coloring(sides: tuple[Nest, Nest], colors: int, current: Sequence[int]) -> list[int]:
    """Return a colour in [0, ``colors``) for each edge.

    ``current``: colour of each edge that it should keep where possible; -1 for an edge without a colour."""
    coloring = list(current)
    if max(current, default=-1) < 0:
        coloring = balanced_coloring(list(zip(sides[0][0], sides[1][0], strict=True)), colors)
    else:
        _fill(coloring, sides, colors)
    levels = [np.array(level, np.int64) for side in sides for level in side]
    while pair := next(filter(None, (_uneven(np.array(coloring, np.int64), level, colors) for level in levels)), None):
        edges = [edge for edge, color in enumerate(coloring) if color in pair]
        second = {edge: coloring[edge] == pair[1] for edge in edges}
        kept = [edge for edge in edges if current[edge] == coloring[edge]]
        for edge, half in _halves(edges, sides, second, kept).items():
            coloring[edge] = pair[half]
    return coloring


def _fill(coloring: list[int], sides: tuple[Nest, Nest], colors: int) -> None:
    """Give each edge without a colour the rarest colour of its two innermost sets."""
    counts = [defaultdict[int, list[int]](lambda: [0] * colors) for _ in sides]
    for edge in sorted(range(len(coloring)), key=lambda edge: coloring[edge] < 0):
        left, right = (of_set[side[0][edge]] for of_set, side in zip(counts, sides, strict=True))
        if coloring[edge] < 0:
            coloring[edge] = min(range(colors), key=lambda color: left[color] + right[color])
        left[coloring[edge]] += 1
        right[coloring[edge]] += 1


def _uneven(coloring: Ints, level: Ints, colors: int) -> tuple[int, int] | None:
    """Return the most frequent and the rarest colour of a set that has too many edges of one colour; else None."""
    counts = np.bincount(level * colors + coloring, minlength=(int(level.max(initial=0)) + 1) * colors)
    counts = counts.reshape(-1, colors)
    over = counts.max(axis=1) > -(-counts.sum(axis=1) // colors)
    if not over.any():
        return None
    worst = counts[over.argmax()]
    return int(worst.argmax()), int(worst.argmin())


def _halves(
    edges: Sequence[int], sides: tuple[Nest, Nest], second: Mapping[int, bool], kept: Iterable[int]
) -> dict[int, bool]:
    """Divide the edges into two halves; return for each edge whether it is in the second half.

    ``second``: whether each edge is in the second half before the call. ``kept``: edges that should stay in their
    half."""
    left, right = (_pairs(edges, side, second) for side in sides)
    weight = dict.fromkeys(kept, 1)
    half: dict[int, bool] = {}
    for start in edges:
        if start in half:
            continue
        half[start] = second[start]
        waiting, component = [start], [start]
        while waiting:
            edge = waiting.pop()
            for pairs in (left, right):
                other = pairs.get(edge)
                if other is not None and other not in half:
                    half[other] = not half[edge]
                    waiting.append(other)
                    component.append(other)
        if weight and 2 * sum(weight.get(edge, 0) for edge in component if half[edge] != second[edge]) > sum(
            weight.get(edge, 0) for edge in component
        ):
            half.update((edge, not half[edge]) for edge in component)
    return half


def _pairs(edges: Sequence[int], side: Nest, second: Mapping[int, bool]) -> dict[int, int]:
    """Return the partner of each edge. Edges in different halves are paired first."""
    pairs: dict[int, int] = {}
    for level in side:
        waiting: defaultdict[int, list[int]] = defaultdict(list)
        for edge in edges:
            alone = waiting[level[edge]]
            if alone and second[alone[-1]] != second[edge]:
                pairs[edge] = alone[-1]
                pairs[alone.pop()] = edge
            else:
                alone.append(edge)
        edges = []
        for alone in waiting.values():
            for one, other in zip(alone[::2], alone[1::2], strict=False):
                pairs[one], pairs[other] = other, one
            edges += alone[len(alone) // 2 * 2 :]
    return pairs
