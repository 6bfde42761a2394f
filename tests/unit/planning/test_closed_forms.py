"""Closed forms on leaf-spines whose leaves are all alike: lanes, edge colourings, interval cutting."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.topology import Dpid
from controller.planning.closed_forms import balanced_coloring, find_lanes, lane_ends, proper_coloring
from controller.planning.plan import Plan
from controller.planning.planner import plan
from controller.planning.problem import Flow, PlanLimits
from tests.support.planning.fabrics import RATE, fabric_of, flow, leaf_spine, problem_of

quick = settings(max_examples=60)
LEAVES = 4


def split_plan(spines: int, ends: list[tuple[int, int]], max_subflows: int) -> Plan:
    """Flows of one job between leaves, each between its own two hosts."""
    flows = [
        Flow(f.id, f.job_id, f.src_leaf, f.dst_leaf, f.nic_links, f.demand_bps, max_subflows=max_subflows)
        for f in (flow("a", (src, n), (dst, n), RATE) for n, (src, dst) in enumerate(ends))
    ]
    answer = plan(problem_of(leaf_spine(LEAVES, spines), flows), PlanLimits(ecmp_draws=0))
    assert isinstance(answer, Plan)
    return answer


def degree(ends: list[tuple[int, int]]) -> int:
    return max(sum(end[side] == leaf for end in ends) for side in (0, 1) for leaf in range(1, LEAVES + 1))


crossing = st.tuples(st.integers(1, LEAVES), st.integers(1, LEAVES)).filter(lambda ends: ends[0] != ends[1])


@quick
@given(st.integers(1, 6), st.lists(crossing, min_size=1, max_size=40))
def test_two_pieces_reach_the_leaf_cut_for_any_flows(spines: int, ends: list[tuple[int, int]]) -> None:
    answer = split_plan(spines, ends, 2)
    assert answer.max_level == pytest.approx(max(1.0, degree(ends) / spines), rel=1e-9)
    assert answer.gap == pytest.approx(0, abs=1e-9)
    assert max(map(len, answer.routes.values())) <= 2
    if degree(ends) <= spines:
        assert answer.subflows == len(ends)


def test_thirty_one_of_thirty_two_spines_cost_a_thirty_first() -> None:
    ends = [(src, dst) for src, dst in ((1, 2), (2, 3), (3, 4), (4, 1)) for _ in range(32)]
    answer = split_plan(31, ends, 2)
    assert answer.max_level == pytest.approx(32 / 31)
    assert answer.integer_bound == 2
    assert answer.subflows / len(ends) == pytest.approx(1.9375)


@given(st.integers(1, 60), st.integers(1, 40), st.integers(2, 8))
def test_lanes_share_the_line(colors: int, lanes: int, max_subflows: int) -> None:
    ends = [0.0, *lane_ends(colors, lanes, max_subflows)]
    lengths = [b - a for a, b in pairwise(ends)]
    assert ends[-1] == pytest.approx(colors)
    assert len(lengths) <= lanes
    assert min(lengths) >= 0
    if colors > lanes:
        assert max(lengths) <= colors / lanes + 1e-6
    else:
        assert max(lengths) <= 1
    for color in range(colors):
        assert sum(a < color + 1 - 1e-9 and b > color + 1e-9 for a, b in pairwise(ends)) <= max_subflows


def test_lanes_are_there_only_where_all_leaves_are_alike() -> None:
    flows = [flow("a", (1, 1), (2, 1), RATE), flow("a", (3, 1), (2, 2), RATE)]
    lanes = find_lanes(problem_of(leaf_spine(3, 4), flows))
    assert lanes
    assert lanes.count == 4
    assert find_lanes(problem_of(leaf_spine(3, 4, without=[(2, 1)]), flows)) is None
    spine_gone = find_lanes(problem_of(leaf_spine(3, 4, without=[(leaf, 1) for leaf in (1, 2, 3)]), flows))
    assert spine_gone
    assert spine_gone.count == 3


def test_parallel_cables_are_lanes_of_their_own_and_unequal_ones_are_none() -> None:
    flows = [flow("a", (1, 1), (2, 1), RATE)]
    double = [(leaf, spine, RATE) for leaf in (1, 2) for spine in (101, 102) for _ in range(2)]
    lanes = find_lanes(problem_of(fabric_of(double), flows))
    assert lanes
    assert lanes.count == 4
    assert len({*lanes.up[Dpid(1)], *lanes.down[Dpid(2)]}) == 8
    assert find_lanes(problem_of(fabric_of([*double[:-1], (2, 102, RATE / 2)]), flows)) is None
    assert find_lanes(problem_of(fabric_of(double[:-1]), flows)) is None


# ---- colourings


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
