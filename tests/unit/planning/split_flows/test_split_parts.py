"""Parts of the search for split routes: the first routes, and the reduction of subflows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.planning.efficiency import job_slowdowns
from controller.planning.problem import PlanLimits, Subflow, whole
from controller.planning.split_flows.commodities import Commodities
from controller.planning.split_flows.dividing import evenly_full, fewer_subflows, on_the_roomiest, that_fit
from controller.planning.split_flows.search import start_routes
from tests.support.planning.fabrics import RATE, flow, leaf_spine, pinned, problem_of
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
    problem = problem_of(leaf_spine(2, 2), split(flow("a", (1, h), (2, h), RATE) for h in (1, 2)))
    paths = problem.candidates(problem.flows[0])
    running = pinned(problem, {problem.flows[0].id: whole(paths[1])})
    assert start_routes(running, LIMITS) == {problem.flows[0].id: whole(paths[1]), problem.flows[1].id: whole(paths[0])}


def test_flows_that_stay_whole_are_placed_without_regard_to_the_others() -> None:
    flows = [*split(f for f in rings(8, 8) if f.job_id == "job0"), *(f for f in rings(8, 8) if f.job_id == "job1")]
    problem = problem_of(leaf_spine(8, 8, without=[(3, 1), (6, 2)]), flows)
    routes = start_routes(problem, LIMITS)
    assert job_slowdowns(problem, {f.id: routes[f.id] for f in flows if f.max_subflows == 1}) == {"job1": 1.0}


# ---- reduction of subflows


def test_a_flow_is_whole_again_where_there_is_room() -> None:
    problem = problem_of(leaf_spine(2, 3), split(flow("a", (1, h), (2, h), RATE) for h in (1, 2)))
    of = Commodities(problem)
    paths = problem.candidates(problem.flows[0])
    halves = (Subflow(paths[0], 0.5), Subflow(paths[1], 0.5))
    routes = fewer_subflows(of, {f.id: halves for f in problem.flows}, 1.0 * of.capacity)
    assert sorted(map(len, routes.values())) == [1, 1]
    assert job_slowdowns(problem, routes) == {"a": 1.0}


def test_a_split_route_that_runs_is_left_alone() -> None:
    problem = problem_of(leaf_spine(2, 3), split([flow("a", (1, 1), (2, 1), RATE)]))
    paths = problem.candidates(problem.flows[0])
    running = pinned(problem, {problem.flows[0].id: (Subflow(paths[0], 0.5), Subflow(paths[1], 0.5))})
    of = Commodities(running)
    routes = {f.id: f.current for f in running.flows if f.current}
    assert fewer_subflows(of, routes, 1.0 * of.capacity) == routes


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
