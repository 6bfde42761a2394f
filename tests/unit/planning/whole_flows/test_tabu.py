from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.planning import greedy
from controller.planning.bounds import slowdown_bounds
from controller.planning.efficiency import job_slowdowns
from controller.planning.greedy import PathChoices
from controller.planning.next_hops import NextHops
from controller.planning.problem import FlowId, PlanLimits, Problem, Route, Routes, whole
from controller.planning.whole_flows.tabu import TabuSearch, improved
from tests.support.planning.fabrics import better, brute_force, flow, leaf_spine, problem_of, two_leaves
from tests.support.planning.plans import vector
from tests.support.planning.random_problems import packings, problems, tight

LIMITS = PlanLimits(time_limit_s=1, deterministic=True)
quick = settings(max_examples=40)


def searched(
    problem: Problem, start: Routes, limits: PlanLimits = LIMITS, steps: float = math.inf
) -> dict[FlowId, Route] | None:
    bounds = slowdown_bounds(problem)
    return improved(problem, bounds, bounds.vector, start, limits, steps)


@quick
@given(problems() | packings())
def test_routes_are_whole_and_better_than_the_start(problem: Problem) -> None:
    start = greedy.assign(problem, keep_current=False)
    routes = searched(problem, start)
    if routes is None:
        return
    assert routes.keys() == start.keys()
    assert better(vector(problem, routes), vector(problem, start))
    for f in problem.flows:
        if f.id in routes:
            assert routes[f.id] in [whole(path) for path in problem.candidates(f)]


@quick
@given(problems() | packings())
def test_more_steps_are_never_worse(problem: Problem) -> None:
    start = greedy.assign(problem, keep_current=False)
    before = vector(problem, start)
    for steps in (1, 20, 80, 320):
        now = vector(problem, searched(problem, start, steps=steps) or start)
        assert not better(before, now)
        before = now


@quick
@given(problems(), st.data())
def test_a_move_changes_the_excess_as_predicted(problem: Problem, data: st.DataObject) -> None:
    start = greedy.assign(problem, keep_current=False)
    crossing = [number for number in problem.numbers.crossing.tolist() if problem.flows[number].id in start]
    if not crossing:
        return
    choices = PathChoices(problem, NextHops(problem, crossing))
    search = TabuSearch(problem, slowdown_bounds(problem), start, LIMITS, choices)
    jobs = len(problem.numbers.job_ids)
    limit = np.array(data.draw(st.lists(st.sampled_from([0.5, 1.0, 1.5]), min_size=jobs, max_size=jobs)))
    search.aim(limit)
    for _ in range(8):
        changes = search.changes(np.arange(len(crossing)))
        moves = np.argwhere(np.isfinite(changes)).tolist()
        if not moves:
            return
        subflow, path = data.draw(st.sampled_from(moves))
        before = search.excess.sum()
        search.move(subflow, path)
        assert search.excess.sum() - before == pytest.approx(changes[subflow, path], abs=1e-9)
        routes = search.routes()
        expected = job_slowdowns(problem, routes)
        for job, slowdown in zip(problem.numbers.job_ids, search.slowdowns().tolist(), strict=True):
            assert slowdown == pytest.approx(expected.get(job, 1.0))
    search.lay()
    after = search.excess.copy()
    search.aim(limit)
    assert search.excess == pytest.approx(after)


def test_phases_that_do_not_overlap_share_a_link() -> None:
    """Each spine carries one job only, whose two flows are never sent at the same time."""
    flows = [
        flow("a", (1, 1), (2, 1), [(0, 2.0)]),
        flow("a", (1, 2), (2, 2), [(1, 2.0)]),
        flow("b", (1, 3), (2, 3), [(0, 2.0)]),
        flow("b", (1, 4), (2, 4), [(1, 2.0)]),
    ]
    problem = problem_of(leaf_spine(2, 2, 2.0), flows, nic_bps=2.0)
    start = {f.id: whole(problem.candidates(f)[0]) for f in flows}
    routes = searched(problem, start)
    assert routes is not None
    assert (vector(problem, start), vector(problem, routes)) == ((2, 2), (1, 1))


def test_the_optimum_of_small_problems_is_found() -> None:
    for problem in (tight(seed, [((0, 1.0), (1, 3.0)), ((0, 3.0),)]) for seed in range(20)):
        best, _ = brute_force(problem)
        start = greedy.assign(problem, keep_current=False)
        assert not better(best, vector(problem, searched(problem, start) or start))


def test_without_time_nothing_changes() -> None:
    problem = two_leaves(2, "aaa")
    start = greedy.assign(problem, keep_current=False)
    assert searched(problem, start, replace(LIMITS, deterministic=False, until=0.0)) is None
