"""Parts of the search for split routes: the first routes, the reduction of subflows, and the shares of paths."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.fabric.topology import Dpid, LinkId, Path, PortNo
from controller.planning.efficiency import job_slowdowns
from controller.planning.problem import PlanLimits, Route, Subflow, whole
from controller.planning.split_flows.commodities import Commodities
from controller.planning.split_flows.dividing import (
    SMALLEST_SHARE,
    evenly_full,
    fewer_subflows,
    lay,
    lay_nearest,
    on_the_roomiest,
    that_fit,
)
from controller.planning.split_flows.search import start_routes
from tests.support.planning.fabrics import leaf_spine, pinned, problem_of, two_leaves
from tests.support.planning.loads import link_loads
from tests.support.planning.split_problems import rings, split

LIMITS = PlanLimits()


# ---- first routes


def test_equal_flows_begin_evenly_spread_although_cables_are_missing() -> None:
    problem = problem_of(leaf_spine(8, 8, without=[(3, 1)]), split(rings(8, 8)))
    loads = link_loads(problem, start_routes(problem, LIMITS))
    assert sum(load > 1 for load in loads.values()) <= 4
    assert max(loads.values()) == 2


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
    halves = (Subflow(paths[0], 0.5), Subflow(paths[1], 0.5))
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
    forced = [place(links, np.array(room), most) for place in (on_the_roomiest, evenly_full)]
    assert chosen is None or forced == [chosen, chosen]
    for subflows in filter(None, (chosen, *forced)):
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
    """Draw amounts on up to twelve paths that add up to a number of flows."""
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
    fits = [whole(path(0)), (Subflow(path(1), 0.5), Subflow(path(2), 0.5)), whole(path(1))]
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
