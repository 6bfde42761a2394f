"""The fullest links are relieved within a limit of moves, and no slowdown becomes greater."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.planning.bounds import slowdown_bounds
from controller.planning.efficiency import job_slowdowns
from controller.planning.greedy import assign
from controller.planning.plan import Draft, Plan, paths_used
from controller.planning.plan_check import check
from controller.planning.planner import plan
from controller.planning.problem import Flow, PlanLimits, Problem, whole
from controller.planning.relief import relieve
from tests.support.planning.fabrics import RATE, flow, leaf_spine, pinned, problem_of
from tests.support.planning.split_problems import split
from tests.unit.planning.test_goal_plan import random_problems, running
from tests.unit.planning.test_transition import vector, worse

LIMITS = PlanLimits(ecmp_draws=0, deterministic=True)


def on_one_spine(flows: Sequence[Flow], spines: int, leaves: int = 2) -> Problem:
    """Return a problem in which all flows run over the first spine."""
    problem = problem_of(leaf_spine(leaves, spines), flows)
    return pinned(problem, {of.id: whole(problem.candidates(of)[0]) for of in flows})


def alike(count: int, job: str = "a", src: int = 1, dst: int = 2) -> list[Flow]:
    return [flow(job, (src, host), (dst, host), RATE) for host in range(1, count + 1)]


def relieved(problem: Problem, cap: int) -> Draft | None:
    start = assign(problem, keep_current=True)
    return relieve(problem, slowdown_bounds(problem), start, replace(LIMITS, max_moves=cap))


@pytest.mark.parametrize(("cap", "slowdown", "moves"), [(1, 3.0, 1), (2, 2.0, 2), (3, 1.0, 3), (9, 1.0, 3)])
def test_as_many_flows_leave_a_full_link_as_help(cap: int, slowdown: float, moves: int) -> None:
    found = relieved(on_one_spine(alike(4), spines=4), cap)
    assert found is not None
    assert (found.vector, found.moves) == ((slowdown,), moves)


def test_a_flow_is_divided_where_no_path_has_room_for_all_of_it() -> None:
    found = relieved(on_one_spine(split(alike(3), 2), spines=2), 2)
    assert found is not None
    assert found.vector == pytest.approx((1.5,))
    assert sorted(len(route) for route in found.routes.values()) == [1, 1, 2]


def test_moves_that_do_not_help_are_not_made() -> None:
    assert relieved(on_one_spine([*alike(2), *alike(2, "a", 3, 4)], spines=2, leaves=4), 1) is None


def test_where_the_cap_is_too_small_for_all_jobs_it_helps_some() -> None:
    found = relieved(on_one_spine([*alike(2), *alike(2, "b", 3, 4)], spines=2, leaves=4), 1)
    assert found is not None
    assert (found.vector, found.moves) == ((2.0, 1.0), 1)


def test_the_phases_of_a_job_share_a_link() -> None:
    flows = [flow("a", (1, host), (2, host), [(host % 2, RATE)]) for host in range(1, 5)]
    found = relieved(on_one_spine(flows, spines=2), 4)
    assert found is not None
    assert (found.vector, found.moves) == ((1.0,), 2)


def test_without_time_links_are_relieved_all_the_same() -> None:
    problem = on_one_spine(split(alike(8), 2), spines=8)
    answer = plan(problem, PlanLimits(time_limit_s=1e-6, max_moves=3, ecmp_draws=0))
    assert isinstance(answer, Plan)
    assert (answer.moves, answer.sorted_slowdowns) == (3, (5.0,))


def test_paths_of_equal_subflows_are_counted() -> None:
    """Four flows of two subflows each run on one spine of four. Subflows of one flow on the same path count once."""
    subflows = [replace(of, id=of.id._replace(subflow=subflow)) for of in alike(4) for subflow in (0, 1)]
    found = relieved(on_one_spine(subflows, spines=4), 8)
    assert found is not None
    assert found.paths == paths_used(found.routes) >= 4


@settings(max_examples=60)
@given(random_problems, st.data())
def test_slowdowns_are_never_greater_and_are_what_the_routes_have(problem: Problem, data: st.DataObject) -> None:
    problem = running(data, problem)
    cap = data.draw(st.integers(1, 6))
    found = relieved(problem, cap)
    if found is None:
        return
    assert found.job_slowdown == pytest.approx(job_slowdowns(problem, found.routes))
    assert found.moves == problem.moves(found.routes) <= cap
    assert not worse(found.vector, vector(problem, assign(problem, keep_current=True)))
    answer = plan(problem, replace(LIMITS, max_moves=cap))
    assert isinstance(answer, Plan)
    assert check(problem, answer, cap) == ()
    assert not worse(answer.sorted_slowdowns, found.vector)
