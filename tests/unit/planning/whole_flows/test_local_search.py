"""Local search finds routings where greedy assignment fails, with few moves, and never worse than the start."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings

from controller.fabric.topology import Dpid, Fabric
from controller.planning import greedy
from controller.planning.bounds import slowdown_bounds
from controller.planning.efficiency import job_slowdowns
from controller.planning.problem import Flow, FlowId, PlanLimits, Problem, Route, Routes, Subflow, whole
from controller.planning.slowdown_vector import slowdown_vector
from controller.planning.whole_flows import local_search
from tests.support.planning.fabrics import (
    better,
    brute_force,
    fabric_of,
    flow,
    leaf_spine,
    moves,
    pinned,
    problem_of,
    ring,
)
from tests.support.planning.random_problems import packings, problems

LIMITS = PlanLimits(time_limit_s=1)
quick = settings(max_examples=100)


def searched(problem: Problem, limits: PlanLimits = LIMITS, start: Routes | None = None) -> dict[FlowId, Route]:
    bounds = slowdown_bounds(problem)
    begin = greedy.assign(problem, keep_current=True) if start is None else start
    return local_search.search(problem, bounds, slowdown_vector(bounds, limits), begin, limits)


def bound(problem: Problem) -> list[float]:
    return list(slowdown_vector(slowdown_bounds(problem), PlanLimits()).slowdowns)


def slowdowns(problem: Problem, routes: Routes) -> list[float]:
    return sorted(job_slowdowns(problem, routes).values(), reverse=True)


def dealt(jobs: int, leaves: int, hosts: int, seed: int) -> list[Flow]:
    """Return a ring per job over all hosts of all leaves, in random order."""
    places = [(leaf, host) for leaf in range(1, leaves + 1) for host in range(1, hosts + 1)]
    random.Random(seed).shuffle(places)
    size = len(places) // jobs
    return [f for job in range(jobs) for f in ring(f"job{job}", places[job * size : (job + 1) * size], 1.0)]


@pytest.mark.parametrize("seed", range(8))
def test_full_leaves_with_jobs_dealt_at_random_share_no_link(seed: int) -> None:
    problem = problem_of(leaf_spine(8, 8, 1.0), dealt(4, 8, 8, seed), nic_bps=1.0)
    assert slowdowns(problem, searched(problem)) == [1, 1, 1, 1]


@pytest.mark.parametrize("seed", range(8))
def test_where_cables_are_missing_only_the_jobs_that_must_are_slow(seed: int) -> None:
    """The number of slow jobs equals the bound, which no routing undercuts."""
    rng = random.Random(seed)
    cut = [(leaf, rng.randint(1, 8)) for leaf in rng.sample(range(1, 9), 3)]
    problem = problem_of(leaf_spine(8, 8, 1.0, without=cut), dealt(2, 8, 8, seed), nic_bps=1.0)
    assert slowdowns(problem, searched(problem)) == bound(problem)


def test_mixed_sizes_are_packed() -> None:
    """Ten flows of a third of a link and two of a whole link almost fill six uplinks per leaf: 2 + 10/3 links."""
    sizes = [3.0] * 2 + [1.0] * 10
    flows = [flow("a", (leaf, h), (leaf % 4 + 1, h), bps) for leaf in (1, 2, 3, 4) for h, bps in enumerate(sizes)]
    problem = problem_of(leaf_spine(4, 6, 3.0), flows, nic_bps=3.0)
    assert slowdowns(problem, searched(problem)) == [1]


def three_tiers() -> Fabric:
    """Return a fat-tree of four pods: 16 edge and aggregation switches, four cores."""
    edges = [(100 * pod + edge, 100 * pod + 10 + agg, 1.0) for pod in range(1, 5) for edge in (1, 2) for agg in (1, 2)]
    cores = [(100 * pod + 10 + agg, 1000 + 2 * agg + n, 1.0) for pod in range(1, 5) for agg in (1, 2) for n in (0, 1)]
    return fabric_of([*edges, *cores])


@pytest.mark.parametrize("seed", range(4))
def test_a_permutation_over_three_tiers_is_routed_without_sharing(seed: int) -> None:
    leaves = [100 * pod + edge for pod in range(1, 5) for edge in (1, 2)]
    places = [(leaf, host) for leaf in leaves for host in (1, 2)]
    ends = random.Random(seed).sample(places, len(places))
    flows = [
        replace(flow("a", (n, 1), (n, 2), 1.0), src_leaf=Dpid(src[0]), dst_leaf=Dpid(dst[0]))
        for n, (src, dst) in enumerate(zip(places, ends, strict=True))
        if src[0] != dst[0]
    ]
    problem = problem_of(three_tiers(), flows, nic_bps=1.0)
    assert slowdowns(problem, searched(problem)) == [1]


def broken(problem: Problem, fabric: Fabric, routes: Routes) -> Problem:
    """Return the flows of the problem on another fabric, with these routes running."""
    return pinned(problem_of(fabric, problem.flows, nic_bps=1.0), routes)


@pytest.mark.parametrize("seed", range(8))
def test_a_cut_cable_moves_next_to_nothing(seed: int) -> None:
    flows = dealt(4, 8, 8, seed)
    problem = problem_of(leaf_spine(8, 8, 1.0), flows, nic_bps=1.0)
    after = broken(problem, leaf_spine(8, 8, 1.0, without=[(1 + seed, 3)]), searched(problem))
    routes = searched(after)
    assert slowdowns(after, routes) == bound(after)
    assert moves(after, routes) <= 6


@pytest.mark.parametrize("seed", range(4))
def test_a_job_that_joins_a_half_empty_network_moves_no_flow(seed: int) -> None:
    flows = dealt(4, 8, 4, seed)
    fabric = leaf_spine(8, 8, 1.0)
    before = problem_of(fabric, [f for f in flows if f.job_id != "job0"], nic_bps=1.0)
    after = broken(problem_of(fabric, flows, nic_bps=1.0), fabric, searched(before))
    routes = searched(after)
    assert (slowdowns(after, routes), moves(after, routes)) == ([1, 1, 1, 1], 0)


def test_no_more_flows_move_than_may() -> None:
    """All flows of a full leaf run over one spine: each move makes the job faster by one step."""
    problem = problem_of(leaf_spine(2, 4, 1.0), [flow("a", (1, h), (2, h), 1.0) for h in range(4)], nic_bps=1.0)
    problem = pinned(problem, {f.id: whole(problem.candidates(f)[0]) for f in problem.flows})
    for most, slowdown in ((0, 4), (1, 3), (2, 2), (3, 1), (None, 1)):
        routes = searched(problem, replace(LIMITS, max_moves=most))
        assert (slowdowns(problem, routes), moves(problem, routes)) == ([slowdown], 4 - slowdown)


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 6, 8, 9])
def test_two_moves_are_found_when_two_are_enough(seed: int) -> None:
    """A job is added to a full network, where its flows share links unless one or two others move."""
    fabric = leaf_spine(8, 8, 1.0)
    flows = dealt(4, 8, 8, seed)
    before = problem_of(fabric, [f for f in flows if f.job_id != "job0"], nic_bps=1.0)
    after = broken(problem_of(fabric, flows, nic_bps=1.0), fabric, searched(before))
    routes = searched(after, replace(LIMITS, max_moves=2))
    assert slowdowns(after, greedy.assign(after, keep_current=True)) > [1, 1, 1, 1]
    assert slowdowns(after, routes) == [1, 1, 1, 1]
    assert 1 <= moves(after, routes) <= 2


def test_without_moves_the_flows_that_are_new_arrange_themselves() -> None:
    """The first flow is in the way of the second, which has no other path."""
    fabric = leaf_spine(3, 2, 1.0, without=[(3, 2)])
    new = [flow("b", (1, 1), (2, 1), 1.0), flow("c", (1, 2), (3, 2), 1.0)]
    problem = problem_of(fabric, [flow("a", (2, 3), (1, 3), 1.0), *new], nic_bps=1.0)
    first, second = problem.candidates(problem.flows[1])
    running = pinned(problem, {problem.flows[0].id: whole(problem.candidates(problem.flows[0])[0])})
    start = greedy.assign(running, keep_current=True) | {new[0].id: whole(first)}
    routes = searched(running, replace(LIMITS, max_moves=0), start)
    assert (slowdowns(running, start), slowdowns(running, routes)) == ([2, 2, 1], [1, 1, 1])
    assert routes[new[0].id] == whole(second)


def test_the_same_seed_gives_the_same_routes_and_no_time_gives_the_start() -> None:
    problem = problem_of(leaf_spine(8, 8, 1.0), dealt(4, 8, 8, 1), nic_bps=1.0)
    assert searched(problem) == searched(problem)
    start = greedy.assign(problem, keep_current=False)
    assert searched(problem, PlanLimits(time_limit_s=0), start) == start


def test_no_moves_are_undone_when_time_is_over() -> None:
    """All flows could return to their running routes."""
    problem = problem_of(leaf_spine(2, 8, 1.0), [flow("a", (1, h), (2, h), 1.0) for h in range(4)], nic_bps=1.0)
    paths = problem.candidates(problem.flows[0])
    problem = pinned(problem, {f.id: whole(path) for f, path in zip(problem.flows, paths, strict=False)})
    start = {f.id: whole(path) for f, path in zip(problem.flows, paths[4:], strict=True)}
    assert moves(problem, searched(problem, start=start)) == 0
    assert searched(problem, replace(LIMITS, until=0.0), start) == start


def test_full_links_are_emptied_until_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time ends with the first of four links.

    The slowdowns of the three jobs are not tried one by one after that."""
    pairs = [(1, 2), (3, 4), (5, 6)]
    flows = [flow(f"job{src}", (src, h), (dst, h), 1.0) for src, dst in pairs for h in (1, 2)]
    problem = problem_of(leaf_spine(6, 2, 1.0), flows, nic_bps=1.0)
    start = {f.id: whole(problem.candidates(f)[0]) for f in flows}
    cleared: list[int] = []
    lowered: list[None] = []
    clear, lower = local_search._Search._clear, local_search._Search._lower

    def last_clear(self: local_search._Search, link: int, staying: int | None) -> bool:
        cleared.append(link)
        monkeypatch.setattr(PlanLimits, "left_s", property(lambda _: -1.0))
        return clear(self, link, staying)

    monkeypatch.setattr(local_search._Search, "_clear", last_clear)
    monkeypatch.setattr(local_search._Search, "_lower", lambda *at: lowered.append(lower(*at)))
    assert slowdowns(problem, searched(problem, start=start)) == [2, 2, 2]
    assert (len(cleared), len(lowered)) == (1, 1)


def test_without_flows_there_is_nothing_to_do() -> None:
    assert searched(problem_of(leaf_spine(2, 2, 1.0), [])) == {}


def test_flows_that_run_in_subflows_get_one_path() -> None:
    problem = problem_of(leaf_spine(2, 2, 1.0), [flow("a", (1, h), (2, h), 1.0) for h in (1, 2)], nic_bps=1.0)
    halves = {f.id: tuple(Subflow(path, 0.5) for path in problem.candidates(f)) for f in problem.flows}
    routes = searched(problem, start=halves)
    assert [len(route) for route in routes.values()] == [1, 1]
    assert slowdowns(problem, routes) == [1]


@quick
@given(problems() | packings())
def test_routes_are_whole_and_never_worse_than_the_start(problem: Problem) -> None:
    start = greedy.assign(problem, keep_current=True)
    routes = searched(problem, start=start)
    assert routes.keys() == start.keys()
    for f in problem.flows:
        assert f.id not in routes or routes[f.id][0].path in problem.candidates(f)
    assert not better(slowdowns(problem, start), slowdowns(problem, routes))


def test_on_small_problems_the_optimum_is_mostly_found() -> None:
    """Local search proves nothing, so it may miss the optimum."""
    found = 0
    for problem in (tight(seed) for seed in range(60)):
        best, _ = brute_force(problem)
        found += not better(best, slowdowns(problem, searched(problem)))
    assert found >= 57


def tight(seed: int) -> Problem:
    rng = random.Random(seed)
    flows = [
        flow(rng.choice("ab"), (leaf, h), (leaf % 3 + 1, h), rng.choice([1.0, 3.0]))
        for leaf in (1, 2, 3)
        for h in (1, 2)
    ]
    return problem_of(leaf_spine(3, 3, 3.0, without=[(rng.randint(1, 3), 1)]), flows, nic_bps=3.0)
