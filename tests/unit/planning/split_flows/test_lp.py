"""The fluid optimum against the textbook linear programme: as good, proven, and with no more moves than needed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings

from controller.planning.bounds import slowdown_bounds
from controller.planning.greedy import assign
from controller.planning.problem import Floats, PlanLimits, Problem, Routes, whole
from controller.planning.split_flows.commodities import Commodities
from controller.planning.split_flows.lp import _LARGEST_PRICE, FluidModel, Goal, Spread, dual_prices
from tests.support.planning.fabrics import RATE, across, flow, leaf_spine, pinned, problem_of, two_leaves
from tests.support.planning.plans import worst
from tests.support.planning.split_problems import any_fabric, optimum, problems

NO_LIMIT = PlanLimits()
quick = settings(max_examples=60)


def improved(problem: Problem, routes: Routes, slowdown: float, moves_count: bool = True) -> tuple[Commodities, Spread]:
    """Return the spread from these routes to routes that load links above ``slowdown`` as little as possible."""
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
    """Two flows are on one of two links, which has room for one and a half, or for the one that runs."""
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
