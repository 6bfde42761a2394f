"""Searched routes keep jobs apart that send much, and Crux's routes are as published."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence

import pytest

from controller.planning.contention.fluid import Objective, Phase, TimedJob
from controller.planning.contention.routing import least_congested, searched_routes
from controller.planning.problem import Problem, Routes
from signalbox.jobs.spec import JobId
from tests.support.planning.fabrics import across, every_routing, flow, leaf_spine, pinned, problem_of, three_tiers


def timed(duty: Mapping[str, float], work: float = 1.0) -> list[TimedJob]:
    return [TimedJob(JobId(job), (Phase(1 - part, part),), (), work) for job, part in duty.items()]


def jobs_on_links(problem: Problem, routes: Routes) -> Sequence[str]:
    """Return for each link between leaves the jobs of its flows, one letter for each flow."""
    found: defaultdict[object, str] = defaultdict(str)
    for each in problem.flows:
        for path, _ in routes[each.id]:
            for link in path:
                found[link] += each.job_id
    return [*found.values()]


def most_delay(problem: Problem, jobs: Sequence[TimedJob], routes: Routes) -> float:
    """Return the largest duty x delay of a job. Each flow fills a link alone."""
    duty = {job.id: job.sending_s / job.ideal_s for job in jobs}
    on_links = jobs_on_links(problem, routes)
    return max(
        duty[job] * (on.count(job) - 1 + sum(duty[JobId(other)] for other in on if other != job))
        for job in duty
        for on in on_links
        if job in on
    )


def test_jobs_that_send_much_share_no_links() -> None:
    problem = problem_of(leaf_spine(2, 4), across("aabbccdd"))
    routes = searched_routes(problem, timed({"a": 0.1, "b": 0.1, "c": 0.6, "d": 0.6}), Objective.WORST, 1)
    assert routes
    on_links = jobs_on_links(problem, routes)
    assert all(len({*on}) == 2 for on in on_links), "two flows of different jobs on each link"
    assert not any({*on} == {"c", "d"} for on in on_links)


@pytest.mark.parametrize("seed", range(8))
def test_no_routes_of_a_small_problem_have_a_smaller_largest_delay(seed: int) -> None:
    chance = random.Random(seed)
    ends = [chance.sample((1, 2, 3), 2) for _ in range(6)]
    flows = [flow("abc"[n % 3], (src, n), (dst, n), 1e9) for n, (src, dst) in enumerate(ends)]
    problem = problem_of(leaf_spine(3, 2, 1e9), flows)
    jobs = timed({name: chance.uniform(0.1, 0.9) for name in "abc"})
    routes = searched_routes(problem, jobs, Objective.WORST, 1)
    assert routes
    least = min(most_delay(problem, jobs, each) for each in every_routing(problem))
    assert most_delay(problem, jobs, routes) <= least * 1.2 + 1e-9


def test_flows_whose_paths_have_common_links_are_placed_one_by_one() -> None:
    problem = problem_of(three_tiers(2, 2, (2, 2)), across("aabb", src=1, dst=3))
    routes = searched_routes(problem, timed({"a": 0.5, "b": 0.5}), Objective.WORK, 2)
    assert routes
    assert max(map(len, jobs_on_links(problem, routes))) == 2, "a leaf has two cables for four flows"
    assert not any(on in ("aa", "bb") for on in jobs_on_links(problem, routes))


def test_flows_keep_their_current_routes_where_equal_flows_have_them() -> None:
    problem = problem_of(leaf_spine(2, 4), across("aabb"))
    jobs = timed({"a": 0.5, "b": 0.5})
    routes = least_congested(problem, jobs)
    a, b = problem.flows[:2]
    exchanged = {**routes, a.id: routes[b.id], b.id: routes[a.id]}
    assert least_congested(pinned(problem, exchanged), jobs) == exchanged


def test_too_many_groups_of_flows_are_not_searched() -> None:
    problem = problem_of(
        leaf_spine(9, 2), [flow("a", (n, n), (m, 10 * n + m), 1.0) for n in range(9) for m in range(9)]
    )
    assert searched_routes(problem, timed({"a": 0.5}), Objective.WORST, 1) is None


def test_jobs_of_higher_intensity_choose_the_least_congested_path_first() -> None:
    problem = problem_of(leaf_spine(2, 2), across("abc"))
    low, high, middle = timed({"a": 0.5}, 1.0) + timed({"b": 0.5}, 9.0) + timed({"c": 0.2}, 1.0)
    on_links = jobs_on_links(problem, least_congested(problem, [low, high, middle]))
    assert sorted(map("".join, map(sorted, on_links))) == ["ac", "ac", "b", "b"]
