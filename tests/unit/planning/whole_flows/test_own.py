"""The search for smaller own slowdowns keeps slowdowns, and ends at own slowdowns that exist."""

import pytest
from hypothesis import given, settings

from controller.planning.bounds import slowdown_bounds
from controller.planning.efficiency import SLOWDOWN_TOLERANCE, is_less, sorted_slowdowns
from controller.planning.plan import Draft, draft
from controller.planning.problem import PlanLimits, Problem
from controller.planning.whole_flows.own import searches, untangled
from tests.support.planning.fabrics import RATE, flow, leaf_spine, on_paths, pinned, problem_of, two_leaves
from tests.support.planning.plans import planned
from tests.support.planning.random_problems import problems
from tests.support.planning.split_problems import split

LIMITS = PlanLimits(time_limit_s=10, deterministic=True)


def of_running(problem: Problem, limits: PlanLimits = LIMITS) -> tuple[Draft, Draft | None]:
    """Return the running routes as a candidate, and what the search makes of it."""
    running = draft(problem, "running", {f.id: f.current for f in problem.flows if f.current})
    return running, untangled(problem, slowdown_bounds(problem), running, limits)


@pytest.mark.parametrize("jobs", ["aabb", "aaabbb", "aabbcc"])
def test_jobs_that_collide_with_themselves_are_spread_over_all_links(jobs: str) -> None:
    half = len(jobs) // 2
    _, found = of_running(on_paths(two_leaves(2, jobs), [0] * half + [1] * half))
    assert found
    assert sorted_slowdowns(found.own_slowdown)[0] == -(-jobs.count("a") // 2)
    assert found.vector == (float(half),) * len(set(jobs))


def test_phases_of_a_job_do_not_collide() -> None:
    """The flows of each phase of a share a spine in the beginning, and so do the flows of b."""
    ends = [("a", 0), ("a", 1), ("a", 0), ("a", 1), ("b", 0), ("b", 0)]
    flows = [flow(job, (1, n), (2, n), [(phase, RATE)]) for n, (job, phase) in enumerate(ends)]
    _, found = of_running(on_paths(problem_of(leaf_spine(2, 2), flows), [0, 1, 0, 1, 1, 1]))
    assert found
    assert found.own_slowdown == {"a": 1.0, "b": 1.0}


def test_no_more_flows_move_than_the_limits_allow() -> None:
    running, found = of_running(
        on_paths(two_leaves(2, "aabb"), [0, 0, 1, 1]), PlanLimits(deterministic=True, max_moves=1)
    )
    assert found
    assert (found.moves, found.own_slowdown) == (0, running.own_slowdown)


def test_there_is_no_search_where_nothing_collides_and_none_for_split_flows() -> None:
    problem = on_paths(two_leaves(2, "aabb"), [0, 1, 0, 1])
    assert of_running(problem)[1] is None
    assert searches(problem)
    assert not searches(problem.with_flows(split(problem.flows, 2)))


@settings(max_examples=40)
@given(problems())
def test_slowdowns_stay_and_own_slowdowns_never_grow(problem: Problem) -> None:
    problem = pinned(problem, planned(problem).routes)
    running, found = of_running(problem)
    after = found or running
    assert not is_less(running.vector, after.vector)
    assert not is_less(sorted_slowdowns(running.own_slowdown), sorted_slowdowns(after.own_slowdown))
    for job, slowdown in running.job_slowdown.items():
        assert after.job_slowdown[job] <= slowdown * (1 + SLOWDOWN_TOLERANCE)
