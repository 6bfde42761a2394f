"""Plans with split flows on irregular fabrics: at the bound, with few subflows and few moves."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from controller.fabric.topology import Dpid, Fabric, Path
from controller.planning import greedy
from controller.planning.bounds import slowdown_bounds
from controller.planning.closed_forms import common_links_between, parts
from controller.planning.efficiency import first_difference, job_slowdowns
from controller.planning.plan import Drafts, draft
from controller.planning.problem import Flow, PlanLimits, Problem, Routes, whole
from controller.planning.split_flows import exact, search
from controller.planning.split_flows import search as split_search
from controller.planning.split_flows.leaf_spine import aligned_cutting, peel
from controller.planning.split_flows.lp import FluidModel, fits
from controller.planning.whole_flows import tabu
from tests.support.planning.fabrics import (
    RATE,
    across,
    demo_flows,
    fabric_of,
    flow,
    leaf_spine,
    link_between,
    on_paths,
    pinned,
    problem_of,
    ring,
    three_tiers,
    two_leaves,
)
from tests.support.planning.plans import EXACT, planned, repaired, worst
from tests.support.planning.split_problems import any_fabric, leaf_spines, optimum, problems, rings, split

quick = settings(max_examples=12)


@pytest.fixture
def broken() -> Fabric:
    return leaf_spine(8, 8, without=[(3, 1), (3, 2), (6, 2)])


# ---- against the textbook linear programme


def searched(problem: Problem) -> float:
    """Return the worst slowdown by the search alone; the planner would hide a failure behind routes found otherwise."""
    solution = split_search.search_part(problem, EXACT, slowdown_bounds(problem))
    assert solution is not None
    (best,) = solution.drafts
    return worst(problem, best.routes)


def test_flows_that_need_too_many_paths_take_those_on_which_all_flows_fit() -> None:
    """Flows of 1.5, 1 and 0.5, each in two subflows, fit into links of 1, 0.7, 0.7 and 0.7.

    The subflows are 1 + 0.5 of the first flow, 0.7 + 0.3 of the second, and 0.4 + 0.1 of the third."""
    fabric = fabric_of([(leaf, 101 + n, RATE * of) for n, of in enumerate((1, 0.7, 0.7, 0.7)) for leaf in (1, 2)])
    flows = [flow("a", (1, host), (2, host), RATE * of) for host, of in enumerate((1.5, 1, 0.5))]
    answer = planned(problem_of(fabric, split(flows, 2), nic_bps=2 * RATE))
    assert answer.max_slowdown == pytest.approx(1.0, rel=1e-6)


@quick
@given(problems(any_fabric(), {8}))
def test_with_subflows_enough_the_worst_slowdown_is_that_of_the_fluid_optimum(problem: Problem) -> None:
    answer, least = planned(problem), optimum(problem)
    assert searched(problem) == pytest.approx(least, rel=1e-4)
    assert answer.max_slowdown == pytest.approx(least, rel=1e-4)
    assert answer.bound == pytest.approx(least, rel=1e-4)


@settings(max_examples=12)
@given(problems(leaf_spines(), {2, 3}) | problems(leaf_spines(), {1, 8}))
def test_with_few_subflows_or_beside_flows_that_stay_whole_the_bound_is_one(problem: Problem) -> None:
    answer, least = planned(problem), optimum(problem)
    assert answer.bound <= least * (1 + 1e-6)
    assert least * (1 - 1e-6) <= answer.max_slowdown <= searched(problem) * (1 + 1e-4)


@quick
@given(problems(any_fabric(), {1, 2, 8}))
def test_a_plan_at_its_bound_stays(problem: Problem) -> None:
    first = planned(problem)
    assume(first.certificate == "optimal")
    again = planned(pinned(problem, first.routes))
    assert (again.moves, dict(again.routes)) == (0, dict(first.routes))


@settings(max_examples=10)
@given(problems(leaf_spines(), {2, 8}), st.integers(0, 3))
def test_no_more_flows_move_than_may(problem: Problem, max_moves: int) -> None:
    running = on_paths(problem)
    answer = planned(running, replace(EXACT, max_moves=max_moves))
    assert answer.moves <= max_moves
    assert answer.max_slowdown <= worst(running, {f.id: f.current for f in running.flows if f.current}) * (1 + 1e-9)


# ---- on fabrics with failures


def test_faster_jobs_keep_off_links_that_a_slow_one_has_to_fill() -> None:
    """The slow job has two leaves with one common spine.

    The leaf that both jobs share has room for all flows of the fast job on its other links."""
    fabric = leaf_spine(4, 3, without=[(1, 2), (1, 3), (4, 2)])
    slow = across("ss")
    fast = [flow("f", (3, h), (2, 2 + h), RATE) for h in (1, 2)]
    answer = planned(problem_of(fabric, split([*slow, *fast])))
    assert answer.job_slowdown == pytest.approx({"s": 2.0, "f": 1.0}, rel=1e-5)
    assert answer.certificate == "optimal"


@pytest.mark.parametrize("subflows", [2, 3, 8])
def test_missing_cables_cost_no_more_than_the_worst_leaf_lacks(broken: Fabric, subflows: int) -> None:
    answer = planned(problem_of(broken, split(rings(8, 8), subflows)))
    assert answer.max_slowdown == pytest.approx(8 / 6, rel=1e-6)
    assert answer.certificate == "optimal"
    assert answer.subflows < 1.8 * len(answer.routes)
    fewer = planned(problem_of(broken, split(rings(8, 5), subflows)))
    assert (fewer.max_slowdown, fewer.subflows) == (1, len(fewer.routes)), "flows stay whole where that is as good"


def test_when_another_cable_fails_few_flows_move() -> None:
    before = planned(problem_of(leaf_spine(8, 8, without=[(3, 1), (3, 2)]), split(rings(8, 8))))
    after = pinned(problem_of(leaf_spine(8, 8, without=[(3, 1), (3, 2), (6, 2)]), split(rings(8, 8))), before.routes)
    cut_off = sum(not after.is_in_force(f) for f in after.flows)
    answer = planned(after)
    assert answer.max_slowdown == pytest.approx(8 / 6, rel=1e-6)
    assert cut_off > 0
    assert answer.moves <= 4


# ---- irregular in other ways, with results by hand


def test_a_core_that_no_cut_around_a_leaf_sees_is_found_and_proven() -> None:
    """Two pods of two leaves are cabled differently.

    Core links of total capacity 2 join the pods, and three flows of 1 need the core links."""
    cables = [(leaf, 11 + pod, 2.0) for pod in (0, 1) for leaf in (1 + 2 * pod, 2 + 2 * pod)]
    fabric = fabric_of([*cables, (11, 21, 1.0), (12, 21, 0.5), (12, 21, 0.5), (11, 22, 1.0), (12, 22, 1.0)])
    flows = [*(flow("a", (1, h), (3, h), 1.0) for h in (1, 2)), flow("b", (2, 1), (4, 1), 1.0)]
    problem = problem_of(fabric, split(flows), nic_bps=1.0)
    assert slowdown_bounds(problem).worst == 1
    answer = planned(problem)
    assert answer.max_slowdown == pytest.approx(1.5, rel=1e-5)
    assert answer.bound == pytest.approx(1.5, rel=1e-6)
    assert answer.slowdowns_proven == 2


def test_flows_that_may_be_split_make_room_for_those_that_may_not() -> None:
    """Three flows run on two links: a load of 1.5 is reached because each link has only one of the whole flows."""
    *rigid, last = across("aab")
    answer = planned(problem_of(leaf_spine(2, 2), [*rigid, *split([last])]))
    assert answer.max_slowdown == pytest.approx(1.5)
    assert [len(answer.routes[f.id]) for f in rigid] == [1, 1]


# ---- without enough time


def test_without_time_or_with_a_failing_search_there_is_another_planners_plan(
    broken: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("solver failed")

    problem = problem_of(broken, split(rings(8, 8)))
    assert planned(problem, PlanLimits(time_limit_s=1e-9, ecmp_draws=0)).solver != "lp"
    monkeypatch.setattr(split_search, "search_part", fails)
    assert planned(problem).solver != "lp"


def test_a_leaf_without_cables_leaves_its_flows_unrouted_and_the_others_split() -> None:
    fabric = leaf_spine(4, 3, without=[(4, 1), (4, 2), (4, 3), (1, 1)])
    answer = planned(problem_of(fabric, split(demo_flows())))
    assert len(answer.unrouted) == 6
    assert answer.max_slowdown == pytest.approx(1.5)


def test_the_slowdowns_of_an_aim_are_kept_with_fewer_moves() -> None:
    """The goal plan moves one flow more than needed; flows of the slow job s have to avoid the link of f."""
    problem = on_paths(two_leaves(3, "ssssf", subflows=2), (0, 0, 0, 2, 2))
    aim = {f.id: f.current for f in on_paths(problem, (1, 1, 0, 0, 2)).flows if f.current}
    routes = split_search.relieve(problem, EXACT, slowdown_bounds(problem), aim)
    assert routes is not None
    assert problem.moves(aim) == 3
    assert problem.moves(routes) == 2
    assert job_slowdowns(problem, routes) == pytest.approx(job_slowdowns(problem, aim))


def test_paths_over_three_tiers_are_found_as_far_as_time_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pair takes ten seconds. Paths found once are reused in the next call, which then has time for the search."""
    flows = [flow("a", (src, 1), (dst, 1), RATE) for src in (1, 2) for dst in (3, 4)]
    problem = problem_of(three_tiers(2, 2, (2, 2)), flows)
    now, paths = [0.0], problem.paths
    find = paths._find

    def slowly(src: Dpid, dst: Dpid) -> tuple[Path, ...]:
        now[0] += 10.0
        return find(src, dst)

    monkeypatch.setattr(paths, "_find", slowly)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    assert not fits(problem, PlanLimits(until=25.0), "lp")
    assert now == [30.0]
    assert fits(problem, PlanLimits(until=50.0), "lp")
    assert now == [40.0], "three of four pairs were known"
    assert not fits(problem, PlanLimits(until=40.0), "lp")


# ---- more subflows are never worse than fewer, and a single deadline covers everything that searches


@settings(max_examples=12)
@given(problems(any_fabric(), {4}))
def test_no_number_of_subflows_is_worse_than_a_smaller_one(problem: Problem) -> None:
    slowdowns = [planned(problem.with_subflows(subflows)).sorted_slowdowns for subflows in (1, 2, 3, 4)]
    for fewer, more in pairwise(slowdowns):
        index = first_difference(fewer, more)
        assert index is None or more[index] < fewer[index]


@pytest.fixture
def crowded() -> Problem:
    """Return a problem in which leaf 1 has two links for three unequal flows.

    Whole flows cannot reach the bound of split ones."""
    flows = [flow("a", (1, h), (2, h), RATE * part) for h, part in enumerate((1.0, 0.8, 0.7), start=1)]
    return problem_of(leaf_spine(2, 2), split(flows, 2))


def test_whole_flows_compete_where_split_ones_are_rounded_badly(
    crowded: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert planned(crowded).max_slowdown == pytest.approx(2.5 / 2)
    monkeypatch.setattr(FluidModel, "optimum", lambda *_, **__: None)
    monkeypatch.setattr(tabu, "improved", lambda *_: None)
    monkeypatch.setattr(split_search, "search_part", lambda *_: None)
    monkeypatch.setattr(exact, "solve", lambda *_: None)
    assert planned(crowded).max_slowdown == pytest.approx(2.5 / 2), "shares on few paths are as good here"
    monkeypatch.setattr(split_search, "shared", lambda *_: None)
    assert planned(crowded).max_slowdown == pytest.approx(1.5)


def test_the_best_routes_of_few_flows_are_found_where_the_fluid_optimum_is_rounded_badly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four links of capacity 1, 1, 2 and 3 can be equally full, although each flow has at most two subflows."""
    cables = [
        (1, 101, 1.0),
        (1, 102, 2.0),
        (1, 103, 3.0),
        (1, 104, 1.0),
        *((spine, 2, 9.0) for spine in range(101, 105)),
    ]
    flows = [
        flow("a", (1, host), (2, host), [(0, size), (1, size / 2)]) for host, size in enumerate((1.0, 1.0, 1.0, 5.0))
    ]
    problem = problem_of(fabric_of(cables), split(flows, 2), nic_bps=10.0)
    monkeypatch.setattr(split_search, "shared", lambda *_: None)
    answer = planned(problem)
    assert answer.max_slowdown == pytest.approx(8 / 7)
    assert answer.solver == "exact"
    monkeypatch.setattr(exact, "_MOST_COLUMNS", 15)
    assert planned(problem).max_slowdown == pytest.approx(5 / 4), "too many flows and paths"


def test_only_a_plan_that_is_cut_says_so_and_depends_on_the_time(
    crowded: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_clock = planned(crowded, replace(EXACT, deterministic=False, time_limit_s=600))
    assert not by_clock.cut_short
    assert by_clock.routes == planned(crowded, replace(EXACT, time_limit_s=600)).routes
    monkeypatch.setattr(split_search, "solve_by_part", lambda *_: None)
    assert planned(crowded, replace(EXACT, deterministic=False, time_limit_s=0)).cut_short
    assert not planned(crowded).cut_short
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    assert not planned(crowded, replace(EXACT, deterministic=False, until=0.5)).cut_short


def test_a_search_that_ends_at_its_own_earlier_limit_is_cut_short(
    crowded: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search has to stop before the time of the whole run is over, because the check of its plan takes time."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(split_search, "solve", lambda *_: now.__setitem__(0, 1 - 1e-9) or Drafts([]))
    assert planned(crowded, replace(EXACT, deterministic=False, until=1.0)).cut_short


@pytest.mark.parametrize(("ends_at", "cut_short"), [(0.5, False), (0.9, True)])
def test_a_stage_that_ends_at_the_end_of_its_share_is_cut_short(
    crowded: Problem, monkeypatch: pytest.MonkeyPatch, ends_at: float, cut_short: bool
) -> None:
    """Shares on few paths have 85 % of the time; without the other searches they decide."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(split_search, "shared", lambda *_: now.__setitem__(0, ends_at))
    monkeypatch.setattr(FluidModel, "optimum", lambda *_, **__: None)
    monkeypatch.setattr(tabu, "improved", lambda *_: None)
    monkeypatch.setattr(split_search, "search_part", lambda *_: None)
    monkeypatch.setattr(exact, "solve", lambda *_: None)
    answer = planned(crowded, replace(EXACT, deterministic=False, until=1.0))
    assert (answer.max_slowdown, answer.cut_short) == (1.5, cut_short)


def test_a_plan_that_is_proven_without_moves_is_not_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    crossing = problem_of(leaf_spine(2, 2), [flow("a", (1, h), (2, h), RATE) for h in (1, 2)])
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    assert not planned(crossing, replace(EXACT, deterministic=False, until=0.0)).cut_short


# ---- part by part


LEAVES, SPINES = 6, 8


def chain(gone: list[tuple[int, int]], subflows: int = 2, other_part: bool = False) -> Problem:
    """Return a problem of six leaves and eight spines in which leaves 1 to 3 send.

    Leaf n sends four flows to leaf n + 1 and four to leaf n + 2. With ``other_part`` leaf 5 sends as many to 6 and 1:
    another part, and another job."""
    ends = [(leaf, leaf + step) for leaf in (1, 2, 3) for step in (1, 2)]
    ends += [(5, 6), (5, 1)] if other_part else []
    flows = [
        flow("b" if src == 5 else "a", (src, 4 * n + h), (dst, 4 * n + h), RATE)
        for n, (src, dst) in enumerate(ends)
        for h in range(4)
    ]
    return problem_of(leaf_spine(LEAVES, SPINES, without=gone), split(flows, subflows))


gone_cables = st.lists(st.tuples(st.integers(1, LEAVES), st.integers(1, SPINES)), unique=True, max_size=5)


@settings(max_examples=12)
@given(gone_cables)
def test_two_subflows_are_near_the_fluid_optimum_where_leaves_have_two_pairs(gone: list[tuple[int, int]]) -> None:
    problem = chain(gone)
    assert planned(problem).max_slowdown == pytest.approx(optimum(problem), rel=1e-2)


def peeled(problem: Problem) -> Routes | None:
    common = common_links_between(problem, {f.src_leaf for f in problem.flows}, {f.dst_leaf for f in problem.flows})
    assert common
    return peel(problem, common, slowdown_bounds(problem).fluid)


@settings(max_examples=15)
@given(gone_cables, st.integers(0, 2**32))
def test_any_number_of_pairs_is_near_the_fluid_optimum(gone: list[tuple[int, int]], seed: int) -> None:
    """Sixteen flows leave each of three leaves and enter each of three others, in random pairs."""
    ends = [4, 5, 6] * 16
    random.Random(seed).shuffle(ends)
    flows = [flow("a", (1 + n % 3, n), (leaf, n), RATE) for n, leaf in enumerate(ends)]
    problem = problem_of(leaf_spine(LEAVES, SPINES, without=gone), split(flows, 4))
    routes = peeled(problem)
    assert routes
    assert max(map(len, routes.values())) <= 4
    assert worst(problem, routes) <= 1.25 * optimum(problem)


@pytest.mark.parametrize(
    ("straight", "crossed", "spines", "gone", "slowdown"),
    [
        (1, 1, 3, [(2, 3), (3, 2)], 1.0),
        (3, 1, 5, [(1, 1), (3, 2), (4, 3)], 4 / 3),
        (1, 3, 5, [(1, 1), (2, 2), (3, 3)], 5 / 4),
    ],
    ids=["all are peeled", "one colour is shortened by a third", "two colours are shortened by a quarter"],
)
def test_flows_are_peeled_and_the_colours_left_are_shortened(
    straight: int, crossed: int, spines: int, gone: list[tuple[int, int]], slowdown: float
) -> None:
    """Leaves 1 and 2 each send ``straight`` flows to one of leaves 3 and 4, and ``crossed`` flows to the other one.

    In the second and third case three flows are peeled off, and three colours are left for two common links."""
    ends = [(1, 3)] * straight + [(1, 4), (2, 3)] * crossed + [(2, 4)] * straight
    flows = [flow("a", (src, n), (dst, n), RATE) for n, (src, dst) in enumerate(ends)]
    problem = problem_of(leaf_spine(4, spines, without=gone), split(flows, 2))
    routes = peeled(problem)
    assert routes
    assert worst(problem, routes) <= slowdown * (1 + 1e-6)


def test_flows_that_stay_whole_or_differ_are_left_to_others() -> None:
    whole_ones, problem = chain([(1, 1)], subflows=1), chain([(1, 1)])
    one, *others = problem.flows
    unequal = replace(problem, flows=(replace(one, demand_bps=((0, RATE / 2),)), *others))
    assert peeled(whole_ones) is peeled(unequal) is None


def test_only_the_part_that_misses_its_aim_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = chain([(1, 1), (2, 2)], other_part=True)
    assert len(parts(problem.numbers, problem.numbers.crossing)) == 2
    searched: list[Problem] = []

    def recorded(part: Problem, *_: object) -> None:
        searched.append(part)

    monkeypatch.setattr(search, "search_part", recorded)
    monkeypatch.setattr(search, "peel", lambda *_: None)
    monkeypatch.setattr(search, "shared", lambda *_: None)
    planned(problem)
    assert [{f.job_id for f in part.flows} for part in searched] == [{"a"}]


def test_flows_whose_leaves_forward_for_other_flows_are_planned_together() -> None:
    """Four leaves in a cycle, each pair of opposite leaves two links apart: paths of both pairs share links.

    Planned apart, the flows met on these links, and the slowest job was twice as slow."""
    cables = [(1, 2), (1, 2), (1, 3), (1, 3), (1, 3), (3, 4), (3, 4), (2, 4), (2, 4)]
    flows = [
        flow("a", (2, 1), (3, 1), 4 * RATE),
        flow("a", (3, 1), (2, 2), [(0, 2.5 * RATE), (1, 4 * RATE)]),
        flow("b", (4, 1), (1, 1), 1.25 * RATE),
        flow("b", (4, 1), (1, 2), 0.75 * RATE),
    ]
    found = planned(problem_of(fabric_of((*ends, RATE) for ends in cables), split(flows, 3), nic_bps=4 * RATE))
    assert found.max_slowdown == pytest.approx(1.5, rel=1e-4)
    assert found.bound == pytest.approx(1.5)


def test_a_candidate_that_no_search_improves_is_not_returned_but_its_bounds_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "search_part", lambda *_: None)
    monkeypatch.setattr(search, "peel", lambda *_: None)
    problem = chain([(1, 1), (2, 2)])
    bounds = slowdown_bounds(problem)
    known = draft(problem, "known", {f.id: whole(problem.candidates(f)[0]) for f in problem.flows})
    assert search.solve_by_part(problem, EXACT, bounds, [known]) == Drafts([], bounds.vector)


def test_routes_stay_that_miss_their_aim_only_by_the_background_of_a_link() -> None:
    """The two spines have room for 1.99 flows together, so the target slowdown of two flows is 1.005.

    The slowdown of the running routes is half a percent above the target."""
    fabric = leaf_spine(2, 2)
    flows = split(across("aa"))
    problem = problem_of(fabric, flows, background={link_between(fabric, 1, 101): RATE / 100})
    routes = {f.id: whole(path) for f, path in zip(flows, problem.candidates(flows[0]), strict=True)}
    found = search.solve_by_part(problem, EXACT, slowdown_bounds(problem), [draft(problem, "running", routes)])
    assert found
    assert [of.routes for of in found.drafts] == [routes]


def test_running_routes_at_their_aim_stay_while_another_part_is_planned() -> None:
    problem = chain([(1, 1)], other_part=True)
    first = planned(problem)
    slow = next(path for path, _ in first.routes[problem.flows[0].id])
    of_a = {f.id: whole(slow) for f in problem.flows if (f.src_leaf, f.dst_leaf) == (1, 2)}
    routes = {**first.routes, **of_a}
    running = pinned(problem, routes)
    found = search.solve_by_part(running, EXACT, slowdown_bounds(running), [draft(running, "running", routes)])
    assert found
    (best,) = found.drafts
    assert all(best.routes[f.id] == first.routes[f.id] for f in problem.flows if f.job_id == "b")
    assert worst(running, best.routes) == pytest.approx(first.max_slowdown, rel=1e-3)


# ---- aligned cutting


def six_rings(hosts: int, subflows: int) -> list[Flow]:
    """Return the flows of one ring per host number; each ring crosses all leaves, in alternating directions."""
    order = list(range(1, LEAVES + 1))
    made = [f for h in range(hosts) for f in ring("a", [(leaf, h) for leaf in (order if h % 2 else order[::-1])])]
    return split(made, subflows)


def without_the_last_spine(spines: int, subflows: int) -> Problem:
    """Return the problem of a full fabric whose last spine has failed, with the repaired routes running."""
    flows = six_rings(spines, subflows)
    before = planned(problem_of(leaf_spine(LEAVES, spines), flows))
    left = problem_of(leaf_spine(LEAVES, spines, without=[(leaf, spines) for leaf in range(1, LEAVES + 1)]), flows)
    stopgap = repaired(pinned(left, before.routes))
    assert stopgap.max_slowdown == 2
    return pinned(left, stopgap.routes)


@pytest.mark.parametrize(("spines", "subflows"), [(4, 2), (4, 3), (8, 2), (8, 3), (8, 8)])
def test_a_lost_spine_costs_as_few_moves_as_a_tree_of_its_lanes_needs(spines: int, subflows: int) -> None:
    problem = without_the_last_spine(spines, subflows)
    routes = aligned_cutting(problem, None)
    assert routes
    common = spines - 1
    colors = 1 + math.ceil(max(0, common - subflows) / (subflows - 1))
    assert worst(problem, routes) == pytest.approx(spines / common)
    assert problem.moves(routes) <= colors * LEAVES
    assert max(map(len, routes.values())) <= subflows
    answer = planned(problem)
    assert answer.certificate == "optimal"
    assert answer.moves <= problem.moves(routes)


def test_fewer_moves_spread_the_load_over_fewer_common_links() -> None:
    problem = without_the_last_spine(8, 2)
    found = [(most, aligned_cutting(problem, most)) for most in range(0, 50, LEAVES)]
    assert [routes and worst(problem, routes) for _, routes in found] == [
        None,
        *(pytest.approx(1 + 1 / common) for common in (2, 3, 4, 5, 6, 7, 7, 7)),
    ]
    assert all(problem.moves(routes) <= most for most, routes in found if routes)


def test_a_spine_that_returns_makes_flows_whole_again() -> None:
    broken = without_the_last_spine(8, 4)
    cut = aligned_cutting(broken, None)
    assert cut
    problem = pinned(problem_of(leaf_spine(LEAVES, 8), broken.flows), cut)
    routes = aligned_cutting(problem, None)
    assert routes
    assert all(len(route) == 1 for route in routes.values())
    assert worst(problem, routes) == 1
    assert problem.moves(routes) == sum(len(route) > 1 for route in cut.values())
    assert aligned_cutting(problem, problem.moves(routes) - 1) is None


def test_only_equal_flows_that_may_be_split_are_cut() -> None:
    problem = without_the_last_spine(4, 2)
    one, *others = problem.flows
    for other in (replace(one, max_subflows=1), replace(one, demand_bps=((0, RATE / 2),))):
        assert aligned_cutting(replace(problem, flows=(other, *others)), None) is None


@settings(max_examples=60)
@given(st.data())
def test_whatever_runs_the_result_keeps_to_its_subflows_its_moves_and_its_slowdown(data: st.DataObject) -> None:
    leaves, spines = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 5))
    subflows = data.draw(st.integers(2, 4))
    ends = st.tuples(st.integers(1, leaves), st.integers(1, 6))
    pairs = data.draw(st.lists(st.tuples(ends, ends), min_size=1, max_size=14, unique=True))
    flows = split([flow("a", a, b, RATE) for a, b in pairs if a[0] != b[0]], subflows)
    problem = problem_of(leaf_spine(leaves, spines), flows, nic_bps=100 * RATE)
    running = greedy.assign(problem, keep_current=False)
    for f in flows:
        if data.draw(st.booleans()):
            running[f.id] = whole(data.draw(st.sampled_from(problem.candidates(f))))
    problem = pinned(problem, running)
    most = data.draw(st.none() | st.integers(0, len(flows)))
    routes = aligned_cutting(problem, most)
    degree = max(
        [*Counter(f.src_leaf for f in flows).values(), *Counter(f.dst_leaf for f in flows).values()], default=0
    )
    if routes is None:
        assert most is not None or not flows or degree > 2 * spines
        return
    assert routes.keys() == {f.id for f in flows}
    assert most is None or problem.moves(routes) <= most
    for f in flows:
        route = routes[f.id]
        assert len(route) <= subflows
        assert sum(share for _, share in route) == pytest.approx(1)
        assert {path for path, _ in route} <= set(problem.candidates(f))
    if most is None:
        further = max(0, degree - spines)
        assert worst(problem, routes) <= (1 + (1 / (spines // further) if further else 0)) * (1 + 1e-9)
