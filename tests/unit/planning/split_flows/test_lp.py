"""The fluid optimum against the textbook linear programme: as good, proven, and with no more moves than needed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.topology import Dpid, LinkId, Path, PortNo
from controller.planning.bounds import slowdown_bounds
from controller.planning.efficiency import job_slowdowns
from controller.planning.greedy import assign
from controller.planning.problem import Floats, PathShare, PlanLimits, Problem, Route, Routes, whole
from controller.planning.split_flows.commodities import Commodities
from controller.planning.split_flows.dividing import (
    SMALLEST_SHARE,
    evenly_full,
    fewer_subflows,
    lay,
    lay_nearest,
    that_fit,
)
from controller.planning.split_flows.lp import _LARGEST_PRICE, FluidModel, Goal, Spread, dual_prices
from controller.planning.split_flows.search import start_routes
from tests.support.planning.fabrics import RATE, across, flow, leaf_spine, pinned, problem_of, two_leaves
from tests.support.planning.plans import worst
from tests.support.planning.split_problems import any_fabric, optimum, problems, rings, split

NO_LIMIT = PlanLimits()
quick = settings(max_examples=60)


def improved(problem: Problem, routes: Routes, slowdown: float, moves_count: bool = True) -> tuple[Commodities, Spread]:
    """Return the smallest change of these routes after which links exceed ``slowdown`` as little as possible."""
    of = Commodities(problem)
    start = of.amounts(routes)
    goal = Goal(slowdown * of.capacity, of.capacity, moves_count)
    spread = FluidModel(of).improve(goal, NO_LIMIT, start)
    assert spread is not None
    assert np.bincount(of.column_class, spread.amounts, len(of.members)) == pytest.approx(of.count)
    return of, spread


def largest_load(of: Commodities, amounts: Floats) -> float:
    return float((of.link_loads(of.loads(amounts)) / of.capacity).max(initial=0.0))


@quick
@given(problems(any_fabric(), {8}))
def test_the_excess_is_the_least_there_is_and_the_prices_prove_it(problem: Problem) -> None:
    least = optimum(problem)
    floor = slowdown_bounds(problem).worst
    of, spread = improved(problem, assign(problem, keep_current=False), floor, moves_count=False)
    assert floor + spread.excess == pytest.approx(least, rel=1e-6)
    assert largest_load(of, spread.amounts) <= least * (1 + 1e-6)
    bound, _ = FluidModel(of).lower_bound(spread)
    assert bound <= least * (1 + 1e-6)
    if least > floor * (1 + 1e-6):
        assert bound == pytest.approx(least, rel=1e-6)


@quick
@given(problems(any_fabric(), {8}))
def test_what_keeps_to_its_room_does_not_move(problem: Problem) -> None:
    routes = assign(problem, keep_current=False)
    of, spread = improved(problem, routes, worst(problem, routes))
    assert spread.excess == pytest.approx(0, abs=1e-7)
    assert spread.amounts == pytest.approx(of.amounts(routes))


def test_only_what_is_too_much_moves_and_new_flows_before_those_that_run() -> None:
    """Two flows are on the same one of two links, and this link has room for one and a half flows."""
    problem = two_leaves(2, "aa")
    flows = problem.flows
    path = problem.candidates(flows[0])[0]
    routes = {f.id: whole(path) for f in flows}
    _, spread = improved(problem, routes, 1.5)
    assert sorted(spread.amounts[spread.amounts > 0]) == pytest.approx([0.5, 1.5])
    assert spread.excess == 0
    of, spread = improved(pinned(problem, {flows[0].id: whole(path)}), routes, 1.0)
    stays = [column for column in range(of.columns) if spread.amounts[column] > 0 and of.path[column] == path]
    assert [of.running[of.column_class[column]] for column in stays] == [True]


def test_phases_of_one_job_do_not_add_up() -> None:
    """A link has a flow per phase: the peak of the job is one flow, not two; the flow of a second job is added."""
    fabric = leaf_spine(2, 1)
    flows = [flow("a", (1, 1), (2, 1), [(0, RATE)]), flow("a", (1, 2), (2, 2), [(1, RATE)])]
    problem = problem_of(fabric, flows)
    of, spread = improved(problem, assign(problem, keep_current=False), 1.0)
    assert (spread.excess, largest_load(of, spread.amounts)) == (0.0, 1.0)
    crowded = problem_of(fabric, [*flows, flow("b", (1, 3), (2, 3), RATE)])
    _, spread = improved(crowded, assign(crowded, keep_current=False), 1.0)
    assert spread.excess == pytest.approx(1.0)


def test_classes_are_shut_to_all_but_the_columns_they_are_offered() -> None:
    of = Commodities(two_leaves(3, "aaa"))
    start = of.amounts({})
    of.open()
    model = FluidModel(of)
    model.shut[0] = True
    model.offered |= {0, 2}
    spread = model.improve(Goal(of.capacity, of.capacity), NO_LIMIT, start)
    assert spread is not None
    assert spread.amounts == pytest.approx([1.5, 0.0, 1.5])
    assert spread.excess == pytest.approx(0.5)
    no_time = PlanLimits(until=-math.inf)
    assert model.improve(Goal(of.capacity, of.capacity), no_time, start) is None


def test_classes_of_many_flows_are_found_by_all_that_tells_them_apart() -> None:
    same = across("aab")
    others = [flow("a", (1, 4), (3, 1), RATE), flow("a", (1, 5), (2, 5), RATE / 2), flow("a", (1, 6), (1, 7), RATE)]
    of = Commodities(problem_of(leaf_spine(3, 2), [*same, *others]))
    assert sorted(map(len, of.members)) == [1, 1, 3]
    shadowed = across("aa", [(0, RATE), (1, RATE / 2)])
    assert Commodities(problem_of(leaf_spine(2, 2), shadowed)).rows == 1, "a phase that is never the peak adds no row"


@quick
@given(problems(any_fabric(), {8}))
def test_the_least_slowdown_of_a_link_is_that_of_the_classes_with_a_path_over_it(problem: Problem) -> None:
    aims = {job: 1.0 + number for number, job in enumerate(problem.numbers.job_ids)}
    of = Commodities(problem, aims)
    of.amounts(assign(problem, keep_current=False))
    expected = np.full(of.links, np.inf)
    for each in of.flows:
        for at in {problem.link_number[link] for path in problem.candidates(each) for link in path}:
            expected[at] = min(expected[at], aims[each.job_id])
    assert of.least_slowdown().tolist() == expected.tolist()


def test_the_largest_price_of_a_proof_has_all_its_digits() -> None:
    """Three flows share two uplinks, so each link has half of the price of one unit of load."""
    problem = two_leaves(2, "aaa")
    found = dual_prices(problem, assign(problem, keep_current=False), NO_LIMIT)
    assert found
    assert max(price for _, price in found.prices) == pytest.approx(_LARGEST_PRICE)


# ---- division into subflows


LIMITS = PlanLimits()


# ---- first routes


def test_routes_that_run_stay_and_the_others_avoid_them() -> None:
    problem = two_leaves(2, "aa", subflows=8)
    paths = problem.candidates(problem.flows[0])
    running = pinned(problem, {problem.flows[0].id: whole(paths[1])})
    assert start_routes(running, LIMITS) == {problem.flows[0].id: whole(paths[1]), problem.flows[1].id: whole(paths[0])}


def test_flows_that_stay_whole_are_placed_without_regard_to_the_others() -> None:
    flows = [*split(f for f in rings(8, 8) if f.job_id == "job0"), *(f for f in rings(8, 8) if f.job_id == "job1")]
    problem = problem_of(leaf_spine(8, 8, without=[(3, 1), (6, 2)]), flows)
    routes = start_routes(problem, LIMITS)
    assert job_slowdowns(problem, {f.id: routes[f.id] for f in flows if f.max_subflows == 1}) == {"job1": 1.0}


# ---- reduction of subflows


def test_a_flow_is_whole_again_where_there_is_room_unless_its_split_route_runs() -> None:
    problem = two_leaves(3, "aa", subflows=8)
    of = Commodities(problem)
    paths = problem.candidates(problem.flows[0])
    halves = (PathShare(paths[0], 0.5), PathShare(paths[1], 0.5))
    routes = fewer_subflows(of, {f.id: halves for f in problem.flows}, 1.0 * of.capacity)
    assert sorted(map(len, routes.values())) == [1, 1]
    assert job_slowdowns(problem, routes) == {"a": 1.0}
    first = problem.flows[0].id
    running = Commodities(pinned(problem.with_flows(problem.flows[:1]), {first: halves}))
    assert fewer_subflows(running, {first: halves}, 1.0 * running.capacity) == {first: halves}


@given(st.lists(st.floats(0.0, 1.5), min_size=1, max_size=8), st.integers(1, 8))
def test_subflows_that_fit_take_no_more_than_there_is(room: list[float], most: int) -> None:
    links = np.arange(len(room)).reshape(-1, 1)
    chosen = that_fit(links, np.array(room), most)
    enough = sum(sorted(room, reverse=True)[:most]) >= 1 + 1e-3
    assert chosen is not None or not enough
    forced = evenly_full(links, np.array(room), most)
    assert chosen is None or forced == chosen
    for subflows in filter(None, (chosen, forced)):
        assert sum(share for _, share in subflows) == pytest.approx(1.0)
        assert len({at for at, _ in subflows}) == len(subflows) <= most
    assert all(share <= room[at] + 1e-8 for at, share in chosen or ())


def test_what_does_not_fit_is_missing_alike_on_all_links() -> None:
    room = np.array([0.1, 0.3, 0.2, -2.0])
    subflows = evenly_full(np.arange(4).reshape(-1, 1), room, 4)
    assert [room[at] - share for at, share in subflows] == pytest.approx([-0.4 / 3] * 3)


# ---- amounts on paths become few subflows that add up exactly, and as many flows as possible stay unchanged


def path(number: int) -> Path:
    return (LinkId(Dpid(1), PortNo(number)), LinkId(Dpid(100 + number), PortNo(1)))


def on_paths(*amounts: float) -> dict[Path, float]:
    return {path(number): amount for number, amount in enumerate(amounts)}


def laid_out(routes: Sequence[Route]) -> Mapping[Path, float]:
    total: defaultdict[Path, float] = defaultdict(float)
    for route in routes:
        for at, share in route:
            total[at] += share
    return total


@st.composite
def amounts(draw: st.DrawFn) -> tuple[dict[Path, float], int]:
    flows = draw(st.integers(1, 8))
    weights = draw(st.lists(st.floats(1e-3, 1.0), min_size=1, max_size=12))
    return on_paths(*(flows * weight / sum(weights) for weight in weights)), flows


def assert_valid(routes: Sequence[Route], most: int) -> None:
    for route in routes:
        assert 1 <= len(route) <= most
        assert len({at for at, _ in route}) == len(route)
        assert sum(share for _, share in route) == pytest.approx(1.0, abs=1e-12)
        assert min(share for _, share in route) >= SMALLEST_SHARE / 2


@given(amounts(), st.integers(1, 12))
def test_what_is_laid_is_what_was_there_in_as_few_subflows_as_the_wrap_around_rule_needs(
    given_amounts: tuple[dict[Path, float], int], most: int
) -> None:
    on, flows = given_amounts
    routes = lay(on, [None] * flows, most)
    if len(on) <= most:
        assert routes is not None
    if routes is None:
        return
    assert len(routes) == flows
    assert_valid(routes, most)
    assert laid_out(routes) == pytest.approx(on, abs=len(on) * SMALLEST_SHARE)
    assert sum(map(len, routes)) <= flows + len(on) - 1


@given(amounts(), st.integers(1, 12))
def test_the_nearest_routes_are_always_allowed_ones(given_amounts: tuple[dict[Path, float], int], most: int) -> None:
    on, flows = given_amounts
    routes = lay(on, [None] * flows, most) or lay_nearest(on, flows, most)
    assert len(routes) == flows
    assert_valid(routes, most)
    assert laid_out(routes).keys() <= on.keys()


def test_whole_amounts_are_whole_flows() -> None:
    routes = lay(on_paths(2.0, 1.0, 1.0), [None] * 4, 8)
    assert routes is not None
    assert sorted(routes) == sorted([whole(path(0)), whole(path(0)), whole(path(1)), whole(path(2))])
    crumbs = on_paths(1.0 - SMALLEST_SHARE / 2, SMALLEST_SHARE / 2)
    assert lay(crumbs, [None], 8) == [whole(path(0))]


@pytest.mark.parametrize("amounts", [[1.125] * 8, [9 / 17, 6 / 17, 18 / 17, 18 / 17]], ids=["small", "a rest is left"])
def test_amounts_are_shared_out_when_a_flow_may_have_few_subflows(amounts: list[float]) -> None:
    routes = lay(on_paths(*amounts), [None] * round(sum(amounts)), 2)
    assert routes is not None
    assert_valid(routes, 2)


def test_routes_that_fit_stay_unless_others_would_have_too_many_subflows() -> None:
    fits = [whole(path(0)), (PathShare(path(1), 0.5), PathShare(path(2), 0.5)), whole(path(1))]
    assert lay(laid_out(fits), fits, 2) == fits
    before: list[Route | None] = [whole(path(0)), whole(path(1)), None]
    amounts = on_paths(1.25, 1.25, 0.5)
    routes = lay(amounts, before, 3)
    assert routes is not None
    assert routes[:2] == before[:2]
    assert dict(routes[2]) == pytest.approx(on_paths(0.25, 0.25, 0.5))
    routes = lay(amounts, before, 2)
    assert routes is not None
    assert_valid(routes, 2)
    assert laid_out(routes) == pytest.approx(amounts)
