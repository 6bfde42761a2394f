"""Closed forms on leaf-spines whose leaves are all alike: common links, edge colourings, interval cutting."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.topology import Dpid
from controller.planning import closed_forms, edge_coloring
from controller.planning.bounds import slowdown_bounds
from controller.planning.closed_forms import (
    common_links_between,
    common_links_of,
    find_common_links,
    parts,
    segment_ends,
)
from controller.planning.edge_coloring import Nest, balanced_coloring, nested_coloring, proper_coloring
from controller.planning.efficiency import job_slowdowns
from controller.planning.plan import Plan, routes_of
from controller.planning.problem import NumberedRoutes, Problem
from tests.support.planning.fabrics import RATE, across, fabric_of, flow, leaf_spine, problem_of
from tests.support.planning.plans import planned, worst
from tests.support.planning.split_problems import split

quick = settings(max_examples=40)
LEAVES = 4


def split_plan(spines: int, ends: list[tuple[int, int]]) -> Plan:
    """Return the plan of one job's flows of two subflows between leaves, each flow between its own two hosts."""
    flows = [flow("a", (src, n), (dst, n), RATE) for n, (src, dst) in enumerate(ends)]
    return planned(problem_of(leaf_spine(LEAVES, spines), split(flows, 2)))


def degree(ends: list[tuple[int, int]]) -> int:
    return max(sum(end[side] == leaf for end in ends) for side in (0, 1) for leaf in range(1, LEAVES + 1))


crossing = st.tuples(st.integers(1, LEAVES), st.integers(1, LEAVES)).filter(lambda ends: ends[0] != ends[1])


@quick
@given(st.integers(1, 6), st.lists(crossing, min_size=1, max_size=40))
def test_two_subflows_reach_the_leaf_cut_for_any_flows(spines: int, ends: list[tuple[int, int]]) -> None:
    answer = split_plan(spines, ends)
    assert answer.max_slowdown == pytest.approx(max(1.0, degree(ends) / spines), rel=1e-9)
    assert answer.gap == pytest.approx(0, abs=1e-9)
    if degree(ends) <= spines:
        assert answer.subflows == len(ends)


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
    flows = [flow("ab"[src > 2], (src, n), (dst, n), RATE) for n, (src, dst) in enumerate(ends)]
    answer = planned(problem_of(fabric, split(flows, 2)))
    assert (answer.solver, answer.certificate) == ("interval-cutting", "optimal")
    assert answer.job_slowdown == pytest.approx({"a": 8 / 7, "b": 1.0})


def test_demands_and_links_that_differ_by_rounding_change_nothing() -> None:
    flows = split([flow("a", (1, n), (2, n), RATE * (1 - 1e-15 * (n % 3))) for n in range(8)], 2)
    fabric = fabric_of([(leaf, 100 + n, RATE * (1 + 1e-15 * (n % 2))) for leaf in (1, 2) for n in range(7)])
    answer = planned(problem_of(fabric, flows))
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


# ---- colourings that are even in leaves and in pods at once


nine_leaves = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=60)


def nests(edges: Sequence[tuple[int, int]]) -> tuple[Nest, Nest]:
    """Return the nests of both ends: the job of each edge at its leaf, its leaf, and its pod of three leaves."""
    left, right = (np.array([edge[side] for edge in edges], np.int64) for side in (0, 1))
    job = np.arange(len(edges)) % 2
    return (2 * left + job, left, left // 3), (2 * right + job, right, right // 3)


def is_even(sides: tuple[Nest, Nest], coloring: Sequence[int], colors: int) -> bool:
    for level in (level for side in sides for level in side):
        size = Counter(level.tolist())
        of_color = Counter(zip(level.tolist(), coloring, strict=True))
        if any(count > -(-size[place] // colors) for (place, _), count in of_color.items()):
            return False
    return True


@given(nine_leaves, st.integers(1, 7), st.data())
def test_no_leaf_no_job_of_it_and_no_pod_has_more_than_its_share_of_a_colour(
    edges: list[tuple[int, int]], colors: int, data: st.DataObject
) -> None:
    """The former colours are arbitrary."""
    current = data.draw(st.lists(st.integers(-1, colors - 1), min_size=len(edges), max_size=len(edges)))
    sides = nests(edges)
    coloring = nested_coloring(sides, colors, np.array(current, np.int64)).tolist()
    assert len(coloring) == len(edges)
    assert all(0 <= color < colors for color in coloring)
    assert is_even(sides, coloring, colors)
    if min(current, default=0) >= 0 and is_even(sides, current, colors):
        assert coloring == current


def test_small_jobs_fill_copies_so_that_no_large_job_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third job has three flows at each of 8 leaves; the others have one.

    The first colouring is even: no edges are halved to separate flows of a job."""
    job = np.tile(np.repeat(np.arange(12), [3, 1, 1] * 4), 8)
    left = np.repeat(np.arange(8), 20)
    right = (left + np.tile(np.arange(20), 8)) % 8
    sides: tuple[Nest, Nest] = (12 * left + job, left), (12 * right + job, right)
    monkeypatch.setattr(edge_coloring, "_second_half", None)
    assert is_even(sides, nested_coloring(sides, 4).tolist(), 4)


def test_a_new_edge_changes_few_colours() -> None:
    """Nine leaves send four flows each. When one flow is new, at most a third of all colours change."""
    edges = [(leaf, (leaf + 5 * flow + 1) % 9) for leaf in range(9) for flow in range(4)]
    sides = nests(edges)
    before = nested_coloring(sides, 4)
    after = nested_coloring(sides, 4, np.array([*before[:-1], -1]))
    assert sum(a != b for a, b in zip(before, after, strict=True)) <= len(edges) // 3


def test_an_edge_without_a_colour_gets_the_one_that_is_left_and_the_others_stay() -> None:
    at_one, ends = np.zeros(4, np.int64), np.array([1, 0, 1])
    assert nested_coloring(([at_one[:3]], [ends]), 2, np.array([-1, 0, 0])).tolist() == [1, 0, 0]
    assert nested_coloring(([at_one], [at_one]), 3, np.array([2, -1, 0, 2])).tolist() == [2, 1, 0, 2], (
        "also one after it"
    )


# ---- residual links: existing paths, and never fuller links than with the common links alone


SIX, SPINES = 6, 8
Gone = Sequence[tuple[int, int]]
gone_cables = st.lists(st.tuples(st.integers(1, SIX), st.integers(1, SPINES)), unique=True, max_size=4)


def routed(problem: Problem) -> tuple[str, NumberedRoutes]:
    found = closed_forms.route(problem, slowdown_bounds(problem))
    assert found
    return found


def full(gone: Gone, seed: int, subflows: int = 1, each: int = SPINES) -> Problem:
    """Return a problem in which every leaf sends and receives ``each`` flows, of two jobs, between random hosts."""
    hosts = [leaf for leaf in range(1, SIX + 1) for _ in range(each)]
    ends = list(hosts)
    random.Random(seed).shuffle(ends)
    flows = [
        flow(f"job{n % 2}", (src, n), (dst, n), RATE) for n, (src, dst) in enumerate(zip(hosts, ends, strict=True))
    ]
    return problem_of(leaf_spine(SIX, SPINES, without=gone), split(flows, subflows))


@settings(max_examples=40)
@given(gone_cables, st.integers(0, 2**32), st.sampled_from([1, 2, 3]), st.sampled_from([SPINES, 2 * SPINES + 3]))
def test_routes_go_where_cables_are_and_are_no_fuller_than_lanes_alone(
    gone: Gone, seed: int, subflows: int, each: int
) -> None:
    problem = full(gone, seed, subflows, each)
    _, numbered = routed(problem)
    common = common_links_of(problem, problem.numbers.crossing)
    assert common
    routes = routes_of(problem, numbered)
    assert routes.keys() == {flow.id for flow in problem.flows}
    for of in problem.flows:
        route = routes[of.id]
        assert len(route) <= subflows
        assert sum(share for _, share in route) == pytest.approx(1)
        assert all(path in problem.candidates(of) for path, _ in route)
    assert job_slowdowns(problem, numbered) == pytest.approx(job_slowdowns(problem, routes))
    alone = closed_forms.color_evenly(problem.numbers, problem.numbers.crossing, common)
    assert worst(problem, routes) <= worst(problem, alone) * (1 + 1e-9)


def shifted(each: int, gone: Gone, spines: int, subflows: int = 1) -> Problem:
    """Return a problem in which leaf n sends half of ``each`` flows to leaf n + 1 and half to leaf n + 2.

    Job 'a' has the flows that leave or enter leaf 1."""
    flows = [
        flow("a" if 1 in (src, dst) else "b", (src, n), (dst, n), RATE)
        for src in range(1, SIX + 1)
        for n in range(each)
        for dst in [(src + n % 2) % SIX + 1]
    ]
    return problem_of(leaf_spine(SIX, spines, without=gone), split(flows, subflows))


def test_with_one_cable_failed_only_jobs_at_its_leaf_are_slow() -> None:
    """Leaf 1 has seven links for eight flows out and eight flows in."""
    problem = shifted(SPINES, [(1, 1)], SPINES)
    common = common_links_of(problem, problem.numbers.crossing)
    _, routes = routed(problem)
    assert common
    assert worst(problem, routes) == 2.0
    slow = np.bincount(routes.links.ravel(), minlength=len(problem.capacity_bps)) > 1
    everywhere = closed_forms.color_evenly(problem.numbers, problem.numbers.crossing, common)
    crowded = np.bincount(everywhere.links.ravel(), minlength=len(problem.capacity_bps)) > 1
    assert slow.sum() <= 4 < crowded.sum()


def test_two_subflows_take_more_than_the_lanes_where_cables_failed() -> None:
    gone = [(leaf, leaf) for leaf in range(1, 5)]
    problem = shifted(32, gone, 32, subflows=2)
    solver, routes = routed(problem)
    assert solver == "interval-cutting"
    assert 32 / 31 <= worst(problem, routes) <= 31 / 28 + 1e-9 < 32 / 28


def test_spines_besides_take_one_flow_more_each_where_that_is_less_than_the_lanes_have() -> None:
    """Each leaf has eleven flows and eight spines, four of which have all cables.

    If each residual spine has one flow, seven flows are left for the four common links, and more at leaves without a
    cable: the slowdown is 2.5. If each has two flows, at least three are left: the slowdown is 2."""
    problem = shifted(11, [(leaf, leaf) for leaf in range(1, 5)], SPINES, subflows=2)
    assert worst(problem, routed(problem)[1]) == pytest.approx(2.0)


def test_residual_spines_are_assigned_to_colours_so_that_few_flows_miss_a_cable() -> None:
    """Three of eight spines lack a cable, and each has one of eight colours.

    Of three assignments only the second leaves no more than two flows of a leaf without a cable. Flows without a cable
    get two further colours, which are cut onto the five common links together with the other five colours."""
    problem = shifted(8, [(1, 1), (2, 3), (3, 2)], 8, subflows=2)
    assert worst(problem, routed(problem)[1]) == pytest.approx(7 / 5)


# ---- parts, and the common links that the leaves of a part share


def test_common_links_are_there_only_where_all_leaves_are_alike() -> None:
    flows = [flow("a", (1, 1), (2, 1), RATE), flow("a", (3, 1), (2, 2), RATE)]
    for without, count in (([], 4), ([(2, 1)], None), ([(leaf, 1) for leaf in (1, 2, 3)], 3)):
        common = find_common_links(problem_of(leaf_spine(3, 4, without=without), flows))
        assert (common and common.count) == count


def test_parallel_cables_are_lanes_of_their_own_and_unequal_ones_are_none() -> None:
    flows = across("a")
    double = [(leaf, spine, RATE) for leaf in (1, 2) for spine in (101, 102) for _ in range(2)]
    common = find_common_links(problem_of(fabric_of(double), flows))
    assert common
    assert common.count == 4
    assert len({*common.up[Dpid(1)], *common.down[Dpid(2)]}) == 8
    assert find_common_links(problem_of(fabric_of([*double[:-1], (2, 102, RATE / 2)]), flows)) is None
    assert find_common_links(problem_of(fabric_of(double[:-1]), flows)) is None


def test_a_part_has_the_lanes_that_all_its_leaves_share() -> None:
    fabric = fabric_of([(leaf, spine, RATE / (spine - 100)) for leaf in (1, 2, 3) for spine in (101, 102, 103)])
    problem = problem_of(fabric, across("a"))
    one, two, three = Dpid(1), Dpid(2), Dpid(3)
    common = common_links_between(problem, [one], [two, three])
    assert common
    assert common.bps == (RATE, RATE / 2, RATE / 3)
    assert [problem.paths.far_end[link] for link in common.up[one]] == [101, 102, 103]
    assert [link.dpid for link in common.down[three]] == [101, 102, 103]
    assert common_links_between(problem, [one], [Dpid(101)]) is None


def test_flows_are_apart_unless_they_share_a_side_of_a_leaf() -> None:
    flows = [flow("a", (src, n), (dst, n), RATE) for n, (src, dst) in enumerate([(1, 2), (2, 1), (3, 2), (3, 4)])]
    numbers = problem_of(leaf_spine(4, 2), flows).numbers
    assert [part.tolist() for part in parts(numbers, numbers.crossing)] == [[0, 2, 3], [1]]
