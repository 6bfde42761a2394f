"""The least number of pieces is never more than what some routing has; at a single leaf it is exactly that."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.linear_solver import pywraplp

from benchmarks.plan.piece_bound import least_cuts, least_pieces
from controller.fabric.topology import LinkId
from controller.planning.plan import Plan
from controller.planning.planner import plan
from controller.planning.problem import Flow, PlanLimits, Problem
from tests.support.planning.fabrics import RATE, flow, leaf_spine, problem_of, ring

quick = settings(max_examples=60)


def fits(edges: Sequence[tuple[int, int]], flows: int, fit: float) -> bool:
    """Hall's condition: any flows find room on the links that they have an edge to."""
    for count in range(1, flows + 1):
        for chosen in combinations(range(flows), count):
            links = {link for of, link in edges if of in chosen}
            if count > len(links) * fit * (1 + 1e-9):
                return False
    return True


def fewest_cuts(flows: int, links: int, fit: float) -> int | None:
    """By trying every way to have pieces somewhere."""
    everywhere = list(product(range(flows), range(links)))
    for pieces in range(flows, len(everywhere) + 1):
        if any(fits(edges, flows, fit) for edges in combinations(everywhere, pieces)):
            return pieces - flows
    return None


@pytest.mark.parametrize(("flows", "links"), [(f, s) for f in range(1, 6) for s in range(1, 6) if f * s <= 12])
@pytest.mark.parametrize("level", [1.0, 1.1, 1.5])
def test_a_leaf_needs_exactly_as_many_cuts_as_trying_everything_finds(flows: int, links: int, level: float) -> None:
    fit = level * flows / links
    assert least_cuts(flows, links, fit) == fewest_cuts(flows, links, fit)


@pytest.mark.parametrize(
    ("flows", "links", "cuts"), [(32, 32, 0), (32, 31, 30), (32, 28, 24), (32, 24, 16), (32, 16, 0), (5, 128, 0)]
)
def test_a_full_leaf_that_lost_spines(flows: int, links: int, cuts: int) -> None:
    """The gcd of flows and links is into how many parts they fall when the load is to be the least."""
    assert least_cuts(flows, links, max(1, flows / links)) == cuts


def test_flows_larger_than_links_are_cut_to_fit() -> None:
    assert least_cuts(2, 4, 0.5) == 2


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="3 flows do not fit on 2 links"):
        least_cuts(3, 2, 1.2)


def supports(choices: Sequence[int], flows: int, pieces: int) -> Iterable[tuple[tuple[int, ...], ...]]:
    """Every way to give the flows ``pieces`` pieces on different spines."""
    each = [spines for count in choices for spines in combinations(choices, count + 1)]
    return (of for of in product(each, repeat=flows) if sum(map(len, of)) == pieces)


def routable(problem: Problem, of: Sequence[Sequence[int]], level: float) -> bool:
    """Whether pieces at these spines (candidate paths by index) can keep every link at or below ``level``."""
    solver = pywraplp.Solver.CreateSolver("GLOP")
    load: dict[LinkId, list[Any]] = {}
    for one, spines in zip(problem.flows, of, strict=True):
        paths = problem.candidates(one)
        shares = [solver.NumVar(0, 1, "") for _ in spines]
        solver.Add(sum(shares) == 1)
        for spine, share in zip(spines, shares, strict=True):
            for link in paths[spine]:
                load.setdefault(link, []).append(share * (one.demand_bps[0][1] / problem.capacity_bps[link]))
    for terms in load.values():
        solver.Add(sum(terms) <= level * (1 + 1e-7))
    return bool(solver.Solve() == pywraplp.Solver.OPTIMAL)


@st.composite
def small(draw: st.DrawFn) -> list[Flow]:
    ends = st.tuples(st.integers(1, 3), st.integers(1, 3))
    pairs = draw(
        st.lists(st.tuples(ends, ends).filter(lambda p: p[0][0] != p[1][0]), min_size=2, max_size=4, unique=True)
    )
    sizes = draw(st.sampled_from([(1.0,), (1.0, 3.0)]))
    return [flow("a", src, dst, RATE * draw(st.sampled_from(sizes))) for src, dst in pairs]


@quick
@given(small(), st.integers(2, 3), st.sampled_from([1.0, 1.2]))
def test_no_routing_has_fewer(flows: list[Flow], spines: int, slack: float) -> None:
    problem = problem_of(leaf_spine(3, spines), flows)
    loads = [
        sum(f.demand_bps[0][1] for f in flows if getattr(f, end) == leaf) / RATE / spines
        for leaf in (1, 2, 3)
        for end in ("src_leaf", "dst_leaf")
    ]
    level = slack * max(1.0, *loads)
    least = least_pieces(problem, level)
    for pieces in range(len(flows), least):
        for of in supports(range(spines), len(flows), pieces):
            assert not routable(problem, of, level)


@pytest.mark.parametrize("spines", [3, 4, 5, 7])
def test_the_plan_of_a_full_fabric_has_the_fewest(spines: int) -> None:
    """Every leaf sends 8 flows, so what each leaf needs adds up."""
    flows = [f for host in range(8) for f in ring("a", [(leaf, host) for leaf in (1, 2, 3)])]
    problem = problem_of(leaf_spine(3, spines), [replace(f, max_subflows=8) for f in flows])
    answer = plan(problem, PlanLimits(ecmp_draws=0))
    assert isinstance(answer, Plan)
    assert answer.max_level == pytest.approx(8 / spines)
    assert answer.subflows == least_pieces(problem, answer.max_level) == 3 * (8 + spines - math.gcd(8, spines))


def test_ends_that_need_cuts_and_share_no_flow_count_both() -> None:
    """Leaf 1 sends three flows and leaf 2 receives three, one of which is the same: one cut each is enough for either,
    and the shared flow could be cut for both. Without a shared flow both cuts are needed."""
    apart = [flow("a", (1, n), (3 + n, 1), RATE) for n in range(3)] + [
        flow("a", (6 + n, 1), (2, n), RATE) for n in range(3)
    ]
    assert least_pieces(problem_of(leaf_spine(9, 2), apart), 1.5) == 6 + 2
    shared = [*apart[:2], *apart[3:5], flow("a", (1, 9), (2, 9), RATE)]
    assert least_pieces(problem_of(leaf_spine(9, 2), shared), 1.5) == 5 + 1


def test_flows_inside_a_leaf_and_without_a_path() -> None:
    inside = flow("a", (1, 1), (1, 2), RATE)
    lost = flow("a", (1, 3), (2, 1), RATE)
    problem = problem_of(leaf_spine(2, 1, without=[(2, 1)]), [inside, lost])
    assert least_pieces(problem, 1.0) == 1


def test_phases_of_a_job_do_not_add_up() -> None:
    flows = [flow("a", (1, n), (2, n), [(n % 2, RATE)]) for n in range(4)]
    assert least_pieces(problem_of(leaf_spine(2, 2), flows), 1.0) == 4
    alike = [flow("a", (1, n), (2, n), RATE) for n in range(3)]
    assert least_pieces(problem_of(leaf_spine(2, 2), alike), 1.5) == 4
