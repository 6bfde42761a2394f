"""Balanced edge colouring: no node has more of a colour than the average rounded up, nor fewer than rounded down."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from controller.planning.leaf_spine import balanced_coloring, proper_coloring

edge_lists = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=60)


@given(edge_lists, st.integers(1, 9))
def test_every_node_has_its_share_of_every_colour(edges: list[tuple[int, int]], colors: int) -> None:
    coloring = balanced_coloring(edges, colors)
    assert len(coloring) == len(edges)
    for side in (0, 1):
        degree = Counter(edge[side] for edge in edges)
        of_color = Counter((edge[side], color) for edge, color in zip(edges, coloring, strict=True))
        for node, edges_there in degree.items():
            counts = [of_color[node, color] for color in range(colors)]
            assert sum(counts) == edges_there
            assert max(counts) <= -(-edges_there // colors)
            assert min(counts) >= edges_there // colors


@given(edge_lists)
def test_a_proper_colouring_needs_as_many_colours_as_the_largest_degree(edges: list[tuple[int, int]]) -> None:
    coloring = proper_coloring(edges)
    degrees = [Counter(edge[side] for edge in edges) for side in (0, 1)]
    assert len(set(coloring)) <= max((n for degree in degrees for n in degree.values()), default=0)
    for side in (0, 1):
        at_node = Counter((edge[side], color) for edge, color in zip(edges, coloring, strict=True))
        assert max(at_node.values(), default=1) == 1


def test_nodes_may_have_the_numbers_of_real_switches() -> None:
    huge = 0xFFFF_FFFF_FFFF_FFF0
    assert sorted(balanced_coloring([(huge, 1), (huge, huge + 3)], 2)) == [0, 1]
