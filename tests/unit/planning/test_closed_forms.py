"""Closed forms on leaf-spines whose leaves are all alike: common links, edge colourings, interval cutting."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.planning.closed_forms import balanced_coloring, proper_coloring, segment_ends
from controller.planning.plan import Plan
from controller.planning.planner import plan
from controller.planning.problem import Flow, PlanLimits
from tests.support.planning.fabrics import RATE, fabric_of, flow, leaf_spine, problem_of

quick = settings(max_examples=60)
LEAVES = 4


def split_plan(spines: int, ends: list[tuple[int, int]], max_subflows: int) -> Plan:
    """Return the plan of one job's flows between leaves, each flow between its own two hosts."""
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
def test_two_subflows_reach_the_leaf_cut_for_any_flows(spines: int, ends: list[tuple[int, int]]) -> None:
    answer = split_plan(spines, ends, 2)
    assert answer.max_slowdown == pytest.approx(max(1.0, degree(ends) / spines), rel=1e-9)
    assert answer.gap == pytest.approx(0, abs=1e-9)
    assert max(map(len, answer.routes.values())) <= 2
    if degree(ends) <= spines:
        assert answer.subflows == len(ends)


def test_thirty_one_of_thirty_two_spines_cost_a_thirty_first() -> None:
    ends = [(src, dst) for src, dst in ((1, 2), (2, 3), (3, 4), (4, 1)) for _ in range(32)]
    answer = split_plan(31, ends, 2)
    assert answer.max_slowdown == pytest.approx(32 / 31)
    assert answer.integer_bound == 2
    assert answer.subflows / len(ends) == pytest.approx(1.9375)


@given(st.integers(1, 60), st.integers(1, 40), st.integers(2, 8))
def test_common_links_share_the_line(colors: int, common: int, max_subflows: int) -> None:
    ends = [0.0, *segment_ends(colors, [1.0] * common, max_subflows)]
    lengths = [b - a for a, b in pairwise(ends)]
    assert ends[-1] == pytest.approx(colors)
    assert len(lengths) <= common
    assert min(lengths) >= 0
    if colors > common:
        assert max(lengths) <= colors / common + 1e-6
    else:
        assert max(lengths) <= 1
    for color in range(colors):
        assert sum(a < color + 1 - 1e-9 and b > color + 1e-9 for a, b in pairwise(ends)) <= max_subflows


@given(st.lists(st.floats(0.97, 1.0), min_size=1, max_size=40), st.integers(0, 40))
def test_common_links_that_differ_a_little_are_equally_full(capacities: list[float], more: int) -> None:
    fit = sorted(capacities, reverse=True)
    colors = len(fit) + more
    ends = [0.0, *segment_ends(colors, fit, 2)]
    fullness = [(b - a) / of for (a, b), of in zip(pairwise(ends), reversed(fit), strict=True)]
    assert max(fullness) == pytest.approx(colors / sum(fit))
    for color in range(colors):
        assert sum(a < color + 1 - 1e-9 and b > color + 1e-9 for a, b in pairwise(ends)) <= 2


def test_common_links_that_differ_much_get_subflows_of_one_length_where_their_own_were_too_many() -> None:
    assert segment_ends(3, [8.0, 8.0, 4.0, 2.0, 1.0], 3) == pytest.approx([0.6, 1.2, 1.8, 2.4, 3.0])


def test_a_cable_that_failed_costs_only_the_leaves_that_it_joined() -> None:
    """Rings of two run over leaves 1 and 2, and over 3 and 4; leaf 1 has lost a cable of eight."""
    ends = [(src, dst) for src, dst in ((1, 2), (2, 1), (3, 4), (4, 3)) for _ in range(8)]
    fabric = leaf_spine(4, 8, without=[(1, 1)])
    flows = [
        replace(flow("ab"[src > 2], (src, n), (dst, n), RATE), max_subflows=2) for n, (src, dst) in enumerate(ends)
    ]
    answer = plan(problem_of(fabric, flows), PlanLimits(ecmp_draws=0))
    assert isinstance(answer, Plan)
    assert (answer.solver, answer.certificate) == ("interval-cutting", "optimal")
    assert answer.job_slowdown == pytest.approx({"a": 8 / 7, "b": 1.0})


def test_demands_and_links_that_differ_by_rounding_change_nothing() -> None:
    flows = [flow("a", (1, n), (2, n), RATE * (1 - 1e-15 * (n % 3))) for n in range(8)]
    flows = [replace(f, max_subflows=2) for f in flows]
    fabric = fabric_of([(leaf, 100 + n, RATE * (1 + 1e-15 * (n % 2))) for leaf in (1, 2) for n in range(7)])
    answer = plan(problem_of(fabric, flows), PlanLimits(ecmp_draws=0))
    assert isinstance(answer, Plan)
    assert (answer.solver, answer.certificate) == ("interval-cutting", "optimal")
    assert answer.max_slowdown == pytest.approx(8 / 7)


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
