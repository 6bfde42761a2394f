"""The planner's own greedy assignment: the routes that it keeps, and the choice for the other flows."""

from __future__ import annotations

from dataclasses import replace

from controller.planning import greedy
from controller.planning.efficiency import job_slowdowns
from controller.planning.problem import Subflow, whole
from tests.support.planning.fabrics import RATE, flow, leaf_spine, link_between, pinned, problem_of


def test_running_routes_stay_and_the_rest_goes_where_they_leave_room() -> None:
    """The flow a has two subflows on spines 1 and 2; the flow b gets spine 3."""
    a, b = flow("a", (1, 1), (2, 1), RATE), flow("b", (1, 2), (2, 2), RATE)
    problem = problem_of(leaf_spine(2, 3), [a, b])
    first, second, third = problem.candidates(a)
    running = {a.id: (Subflow(first, 0.5), Subflow(second, 0.5))}
    assert greedy.assign(pinned(problem, running), keep_current=True) == {**running, b.id: whole(third)}


def test_a_route_over_a_cable_that_has_gone_is_assigned_anew() -> None:
    a = flow("a", (1, 1), (2, 1), RATE)
    problem = problem_of(leaf_spine(2, 2), [a])
    first, second = problem.candidates(a)
    gone = link_between(leaf_spine(2, 2), 101, 2)
    broken = replace(pinned(problem, {a.id: whole(first)}), paths=problem.paths.without({gone}))
    assert greedy.assign(broken, keep_current=True) == {a.id: whole(second)}


def test_a_tie_goes_to_the_current_path_and_nothing_else_remembers_it() -> None:
    a, b = flow("a", (1, 1), (2, 1), RATE), flow("b", (1, 2), (2, 2), RATE)
    problem = problem_of(leaf_spine(2, 2), [a, b])
    second = problem.candidates(a)[1]
    running = pinned(problem, {a.id: whole(second), b.id: whole(second)})
    routes = greedy.assign(running, keep_current=False)
    assert routes[a.id] == whole(second)
    assert routes[b.id] != whole(second)


def test_phases_of_one_job_share_a_path_for_free() -> None:
    """Phases of one job share a spine, and the other spine is left to the other job."""
    first, second = flow("a", (1, 1), (2, 1), ((0, 2.0),)), flow("a", (1, 2), (2, 2), ((1, 2.0),))
    third = flow("b", (1, 3), (2, 3), 2.0)
    problem = problem_of(leaf_spine(2, 2, capacity=2.0), [first, second, third])
    routes = greedy.assign(problem, keep_current=False)
    assert routes[first.id] == routes[second.id] != routes[third.id]
    assert job_slowdowns(problem, routes) == {"a": 1, "b": 1}
