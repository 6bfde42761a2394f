"""Colourings that are even in leaves and in pods at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from controller.planning.nested_coloring import Nest, nested_coloring

LEAVES_PER_POD = 3

edge_lists = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=60)


def nests(edges: Sequence[tuple[int, int]]) -> tuple[Nest, Nest]:
    """Return the nests of both ends: the leaf of each edge, and its pod of three leaves."""
    left, right = ([edge[side] for edge in edges] for side in (0, 1))
    return (left, [leaf // LEAVES_PER_POD for leaf in left]), (right, [leaf // LEAVES_PER_POD for leaf in right])


def is_even(sides: tuple[Nest, Nest], coloring: Sequence[int], colors: int) -> bool:
    for level in (level for side in sides for level in side):
        size = Counter(level)
        of_color = Counter(zip(level, coloring, strict=True))
        if any(count > -(-size[place] // colors) for (place, _), count in of_color.items()):
            return False
    return True


@given(edge_lists, st.integers(1, 7), st.data())
def test_no_leaf_and_no_pod_has_more_than_its_share_of_a_colour(
    edges: list[tuple[int, int]], colors: int, data: st.DataObject
) -> None:
    """The former colours are arbitrary."""
    current = data.draw(st.lists(st.integers(-1, colors - 1), min_size=len(edges), max_size=len(edges)))
    sides = nests(edges)
    coloring = nested_coloring(sides, colors, current)
    assert len(coloring) == len(edges)
    assert all(0 <= color < colors for color in coloring)
    assert is_even(sides, coloring, colors)
    if min(current, default=0) >= 0 and is_even(sides, current, colors):
        assert coloring == current


def test_a_new_edge_changes_few_colours() -> None:
    """Nine leaves send four flows each. When one flow is new, at most a third of all colours change."""
    edges = [(leaf, (leaf + 5 * flow + 1) % 9) for leaf in range(9) for flow in range(4)]
    sides = nests(edges)
    before = nested_coloring(sides, 4, [-1] * len(edges))
    after = nested_coloring(sides, 4, [*before[:-1], -1])
    assert sum(a != b for a, b in zip(before, after, strict=True)) <= len(edges) // 3


def test_an_edge_without_a_colour_gets_the_one_that_is_left_and_the_others_stay() -> None:
    assert nested_coloring(([[0, 0, 0]], [[1, 0, 1]]), 2, [-1, 0, 0]) == [1, 0, 0]
    assert nested_coloring(([[0] * 4], [[0] * 4]), 3, [2, -1, 0, 2]) == [2, 1, 0, 2], "also one after it"
