"""Split flows planned part by part, and over common links and residual links."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.planning.bounds import slowdown_bounds
from controller.planning.closed_forms import common_links_between, parts
from controller.planning.plan import Drafts, draft
from controller.planning.problem import Problem, Routes, whole
from controller.planning.split_flows import search
from controller.planning.split_flows.leaf_spine import peel
from tests.support.planning.fabrics import RATE, across, flow, leaf_spine, link_between, pinned, problem_of
from tests.support.planning.plans import EXACT, planned, worst
from tests.support.planning.split_problems import optimum, split

LEAVES, SPINES = 6, 8


def chain(gone: list[tuple[int, int]], subflows: int = 2, other_part: bool = False) -> Problem:
    """Return a problem of six leaves and eight spines in which leaves 1 to 3 send.

    Leaf n sends four flows to leaf n + 1 and four to leaf n + 2. With ``other_part`` leaf 5 sends as many to 6 and 1:
    another part, and another job."""
    ends = [(leaf, leaf + step) for leaf in (1, 2, 3) for step in (1, 2)]
    ends += [(5, 6), (5, 1)] if other_part else []
    flows = [
        flow("b" if src == 5 else "a", (src, 4 * n + h), (dst, 4 * n + h), RATE)
        for n, (src, dst) in enumerate(ends)
        for h in range(4)
    ]
    return problem_of(leaf_spine(LEAVES, SPINES, without=gone), split(flows, subflows))


gone_cables = st.lists(st.tuples(st.integers(1, LEAVES), st.integers(1, SPINES)), unique=True, max_size=5)


@settings(max_examples=12)
@given(gone_cables)
def test_two_subflows_are_near_the_fluid_optimum_where_leaves_have_two_pairs(gone: list[tuple[int, int]]) -> None:
    problem = chain(gone)
    assert planned(problem).max_slowdown == pytest.approx(optimum(problem), rel=1e-2)


def peeled(problem: Problem) -> Routes | None:
    """Return the routes by peeling over the common links of all leaves."""
    common = common_links_between(problem, {f.src_leaf for f in problem.flows}, {f.dst_leaf for f in problem.flows})
    assert common
    return peel(problem, common, slowdown_bounds(problem).fluid)


@settings(max_examples=25)
@given(gone_cables, st.integers(0, 2**32))
def test_any_number_of_pairs_is_near_the_fluid_optimum(gone: list[tuple[int, int]], seed: int) -> None:
    """Sixteen flows leave each of three leaves and enter each of three others, in random pairs."""
    ends = [4, 5, 6] * 16
    random.Random(seed).shuffle(ends)
    flows = [flow("a", (1 + n % 3, n), (leaf, n), RATE) for n, leaf in enumerate(ends)]
    problem = problem_of(leaf_spine(LEAVES, SPINES, without=gone), split(flows, 4))
    routes = peeled(problem)
    assert routes
    assert max(map(len, routes.values())) <= 4
    assert worst(problem, routes) <= 1.25 * optimum(problem)


@pytest.mark.parametrize(
    ("straight", "crossed", "spines", "gone", "slowdown"),
    [
        (1, 1, 3, [(2, 3), (3, 2)], 1.0),
        (3, 1, 5, [(1, 1), (3, 2), (4, 3)], 4 / 3),
        (1, 3, 5, [(1, 1), (2, 2), (3, 3)], 5 / 4),
    ],
    ids=["all are peeled", "one colour is shortened by a third", "two colours are shortened by a quarter"],
)
def test_flows_are_peeled_and_the_colours_left_are_shortened(
    straight: int, crossed: int, spines: int, gone: list[tuple[int, int]], slowdown: float
) -> None:
    """Leaves 1 and 2 each send ``straight`` flows to one of leaves 3 and 4, and ``crossed`` flows to the other one.

    In the second and third case three flows are peeled off, and three colours are left for two common links."""
    ends = [(1, 3)] * straight + [(1, 4), (2, 3)] * crossed + [(2, 4)] * straight
    flows = [flow("a", (src, n), (dst, n), RATE) for n, (src, dst) in enumerate(ends)]
    problem = problem_of(leaf_spine(4, spines, without=gone), split(flows, 2))
    routes = peeled(problem)
    assert routes
    assert worst(problem, routes) <= slowdown * (1 + 1e-6)


def test_flows_that_stay_whole_or_differ_are_left_to_others() -> None:
    whole_ones, problem = chain([(1, 1)], subflows=1), chain([(1, 1)])
    one, *others = problem.flows
    unequal = replace(problem, flows=(replace(one, demand_bps=((0, RATE / 2),)), *others))
    assert peeled(whole_ones) is peeled(unequal) is None


def test_only_the_part_that_misses_its_aim_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = chain([(1, 1), (2, 2)], other_part=True)
    assert len(parts(problem.numbers, problem.numbers.crossing)) == 2
    searched: list[Problem] = []

    def recorded(part: Problem, *_: object) -> None:
        searched.append(part)

    monkeypatch.setattr(search, "search_part", recorded)
    monkeypatch.setattr(search, "peel", lambda *_: None)
    planned(problem)
    assert [{f.job_id for f in part.flows} for part in searched] == [{"a"}]


def test_a_candidate_that_no_search_improves_is_not_returned_but_its_bounds_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "search_part", lambda *_: None)
    monkeypatch.setattr(search, "peel", lambda *_: None)
    problem = chain([(1, 1), (2, 2)])
    bounds = slowdown_bounds(problem)
    known = draft(problem, "known", {f.id: whole(problem.candidates(f)[0]) for f in problem.flows})
    assert search.solve_by_part(problem, EXACT, bounds, [known]) == Drafts([], bounds.vector)


def test_routes_stay_that_miss_their_aim_only_by_the_background_of_a_link() -> None:
    """The two spines have room for 1.99 flows together, so the target slowdown of two flows is 1.005.

    The slowdown of the running routes is half a percent above the target."""
    fabric = leaf_spine(2, 2)
    flows = split(across("aa"))
    problem = problem_of(fabric, flows, background={link_between(fabric, 1, 101): RATE / 100})
    routes = {f.id: whole(path) for f, path in zip(flows, problem.candidates(flows[0]), strict=True)}
    found = search.solve_by_part(problem, EXACT, slowdown_bounds(problem), [draft(problem, "running", routes)])
    assert found
    assert [of.routes for of in found.drafts] == [routes]


def test_running_routes_at_their_aim_stay_while_another_part_is_planned() -> None:
    problem = chain([(1, 1)], other_part=True)
    first = planned(problem)
    slow = next(path for path, _ in first.routes[problem.flows[0].id])
    of_a = {f.id: whole(slow) for f in problem.flows if (f.src_leaf, f.dst_leaf) == (1, 2)}
    routes = {**first.routes, **of_a}
    running = pinned(problem, routes)
    found = search.solve_by_part(running, EXACT, slowdown_bounds(running), [draft(running, "running", routes)])
    assert found
    (best,) = found.drafts
    assert all(best.routes[f.id] == first.routes[f.id] for f in problem.flows if f.job_id == "b")
    assert worst(running, best.routes) == pytest.approx(first.max_slowdown, rel=1e-3)
