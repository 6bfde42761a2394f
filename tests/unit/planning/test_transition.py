"""Moves towards other routes: within the limit, never to larger slowdowns, and as many as possible.

Small problems are compared with every subset of the moves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from controller.planning.efficiency import SLOWDOWN_TOLERANCE
from controller.planning.problem import FlowId, Problem, Routes, whole
from controller.planning.transition import Stuck, smallest_group, step
from tests.support.planning.fabrics import RATE, across, better, fabric_of, flow, leaf_spine, problem_of, two_leaves
from tests.support.planning.plans import EXACT, planned, vector
from tests.support.planning.random_problems import problems as whole_problems
from tests.support.planning.split_problems import any_fabric
from tests.support.planning.split_problems import problems as split_problems

MOST_MOVES = 7
random_problems = st.one_of(whole_problems(), split_problems(any_fabric(), subflows=(1, 2, 3)))
quick = settings(max_examples=20)


def worse(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    """Return whether the first slowdown that differs between ``a`` and ``b``, beyond rounding, is larger in ``a``."""
    for x, y in zip(a, b, strict=True):
        if abs(x - y) > SLOWDOWN_TOLERANCE / 2 * max(x, y):
            return x > y
    return False


def changed(start: Routes, goal: Routes) -> set[FlowId]:
    return {flow for flow, route in goal.items() if start[flow] != route}


def subsets(start: Routes, goal: Routes, sizes: range) -> Iterator[Routes]:
    moves = sorted(changed(start, goal))
    for size in sizes:
        for chosen in combinations(moves, size):
            yield {**start, **{flow: goal[flow] for flow in chosen}}


def drawn(data: st.DataObject, problem: Problem) -> tuple[Routes, Routes]:
    """Return the best plan's routes twice: first with some flows moved to random whole paths, then unchanged."""
    best = planned(problem).routes
    routed = [f for f in problem.flows if problem.candidates(f)]
    assume(routed)
    elsewhere = data.draw(st.lists(st.sampled_from(routed), min_size=1, max_size=MOST_MOVES, unique_by=lambda f: f.id))
    others = {f.id: whole(data.draw(st.sampled_from(problem.candidates(f)))) for f in elsewhere}
    assume(any(best[flow] != route for flow, route in others.items()))
    return {**best, **others}, best


@quick
@given(random_problems, st.data())
def test_a_step_is_the_largest_that_makes_nothing_worse(problem: Problem, data: st.DataObject) -> None:
    start, goal = drawn(data, problem)
    moves = changed(start, goal)
    most = data.draw(st.integers(0, len(moves)))
    free = set(data.draw(st.lists(st.sampled_from(sorted(moves)), max_size=1)))
    before = vector(problem, start)
    after = step(problem, start, goal, most, free, EXACT)
    if isinstance(after, Stuck):
        assert after.final
        for routes in subsets(start, goal, range(1, most + 1)):
            assert better(before, vector(problem, routes))
        return
    made = changed(start, after)
    assert len(made - free) <= most
    assert all(after[flow] == goal[flow] for flow in made)
    assert not worse(vector(problem, after), before)
    if len(moves - free) <= most and not worse(vector(problem, goal), before):
        assert made == moves


@quick
@given(random_problems, st.data())
def test_no_smaller_group_of_moves_than_the_one_named_improves_anything(problem: Problem, data: st.DataObject) -> None:
    start, goal = drawn(data, problem)
    before = vector(problem, start)
    assume(better(vector(problem, goal), before))
    group = smallest_group(problem, start, goal, EXACT)
    assert group.smallest
    together = {**start, **{flow: goal[flow] for flow in group.flows}}
    assert better(vector(problem, together), before)
    for routes in subsets(start, goal, range(1, len(group.flows))):
        assert not better(vector(problem, routes), before)


def test_flows_that_take_each_others_places_move_together() -> None:
    """Three flows fill three spines, and each has to go to the place of the next one: none can go first."""
    problem = two_leaves(3, "aaa")
    paths = problem.candidates(problem.flows[0])
    start = {f.id: whole(path) for f, path in zip(problem.flows, paths, strict=True)}
    goal = {f.id: whole(path) for f, path in zip(problem.flows, [*paths[1:], paths[0]], strict=True)}
    assert step(problem, start, goal, 2, (), EXACT) == Stuck(final=True)
    assert step(problem, start, goal, 3, (), EXACT) == goal
    assert step(problem, start, goal, 2, {problem.flows[0].id}, EXACT) == goal


def test_loads_that_are_huge_fit_into_the_solver() -> None:
    """Demands are 10^12 times the capacity of a link, or the load would be 10^16 times as large after a move."""
    problem = problem_of(leaf_spine(2, 2), across("ab", 1e12 * RATE))
    first, second = problem.candidates(problem.flows[0])
    start = {f.id: whole(first) for f in problem.flows}
    goal = {**start, problem.flows[1].id: whole(second)}
    assert step(problem, start, goal, 1, frozenset(), EXACT) == goal
    slow = fabric_of([(1, 101, RATE), (2, 101, RATE), (1, 102, RATE / 1e16), (2, 102, RATE)])
    problem = problem_of(slow, across("a"))
    start, goal = ({problem.flows[0].id: whole(path)} for path in problem.candidates(problem.flows[0]))
    assert step(problem, start, goal, 1, (), EXACT) == Stuck(final=True)


@pytest.mark.parametrize(("fifth", "smallest"), [(1.5, False), (1.0, True)])
def test_a_group_is_the_smallest_only_if_all_slowdowns_were_looked_at(fifth: float, smallest: bool) -> None:
    """Jobs a, b and c are the slowest, and have to exchange their places; one move lowers the fifth slowdown."""
    rates = [(leaf, spine, rate) for leaf in (1, 2) for spine, rate in ((101, 6.0), (102, 5.0), (103, 4.0))]
    rates += [(leaf, 104, 1.0) for leaf in (3, 4)] + [(leaf, spine, 1.0) for leaf in (5, 6) for spine in (105, 106)]
    in_turn = [flow(job, (1, h), (2, h), bps) for job, h, bps in (("a", 1, 24.0), ("b", 2, 20.0), ("c", 3, 16.0))]
    others = [flow("d", (3, 1), (4, 1), 2.0), *(flow("e", (5, h), (6, h), fifth / 2) for h in (1, 2))]
    problem = problem_of(fabric_of(rates), [*in_turn, *others], nic_bps=24.0)
    paths = {f.id: sorted(problem.candidates(f), key=lambda p: -problem.capacity_bps[p[0]]) for f in problem.flows}
    goal = {f.id: whole(paths[f.id][place]) for f, place in zip(problem.flows, (0, 1, 2, 0, 0, 1), strict=True)}
    start = {f.id: whole(paths[f.id][place]) for f, place in zip(problem.flows, (1, 2, 0, 0, 0, 0), strict=True)}
    assert vector(problem, start) == pytest.approx((5.0, 4.8, 16 / 6, 2.0, fifth))
    group = smallest_group(problem, start, goal, EXACT)
    assert (set(group.flows), group.smallest) == ({f.id for f in in_turn}, smallest)
