"""Routing schemes behind one signature, on each kind of fabric."""

from collections import Counter
from dataclasses import replace
from itertools import accumulate
from math import ceil
from operator import mul
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.topology import Fabric, Path
from controller.planning import baselines, greedy
from controller.planning.baselines import baseline_slowdowns
from controller.planning.efficiency import ecmp_slowdown
from controller.planning.greedy import PathChoices
from controller.planning.next_hops import NextHops
from controller.planning.plan import NoPlan, Plan
from controller.planning.plan_check import check
from controller.planning.problem import Flow, PlanLimits, Problem, whole
from offline.schemes import SCHEMES
from tests.support.planning.baseline_problems import any_problems, quick, regular_problems, with_subflows
from tests.support.planning.fabrics import (
    RATE,
    brute_force,
    demo_flows,
    fabric_of,
    flow,
    leaf_spine,
    pinned,
    problem_of,
)

LIMITS = PlanLimits(time_limit_s=10, ecmp_draws=20, deterministic=True)
BASELINES = [name for name in SCHEMES if name != "planned"]


def planned(name: str, problem: Problem, limits: PlanLimits = LIMITS) -> Plan:
    answer = SCHEMES[name](problem, limits)
    assert isinstance(answer, Plan), answer
    assert check(problem, answer, limits.max_moves) == ()
    assert answer.solver == name
    return answer


def path_of(plan: Plan, of: Flow) -> Path:
    (subflow,) = plan.routes[of.id]
    return subflow.path


def spines_of(fabric: Fabric, plan: Plan, flows: list[Flow]) -> list[int]:
    return [fabric.links[path_of(plan, of)[0]].dst.dpid for of in flows]


# ---- greedy


def test_the_greedy_takes_the_largest_set_first_and_the_lowest_spine_on_ties() -> None:
    """The example is worked out by hand: four flows between three leaves, over two spines.

    A set has all flows out of a leaf, or all flows into a leaf. Sets of two are: out of 1, into 2, into 3, in this
    order; sets of one: out of 2, out of 3. So 1>2 uses the first spine. 1>3 uses the second spine, because leaf 1's
    link to the first is taken. 3>2 uses the second spine, because the first spine's link to leaf 2 is taken. Then 2>3
    finds the first spine free in both directions. In the order of announcement, 2>3 and 3>2 would both be on the first
    spine."""
    fabric = leaf_spine(3, 2)
    flows = [flow("a", src, dst, RATE) for src, dst in (((2, 1), (3, 1)), ((3, 2), (2, 2)), ((1, 1), (2, 3)))]
    flows.append(flow("a", (1, 2), (3, 3), RATE))
    plan = planned("greedy", problem_of(fabric, flows))
    assert spines_of(fabric, plan, flows) == [101, 102, 101, 102]


def test_the_greedy_misses_an_optimum_that_edge_colouring_finds() -> None:
    """The example is worked out by hand.

    Out of 3, 3>4 uses the first spine, and 3>2 the second. Out of 4, 4>1 uses the first. For 4>2 each spine has one
    link taken: the first spine the link from leaf 4, the second spine the link to leaf 2. The tie is decided for the
    first spine."""
    fabric = leaf_spine(4, 2)
    pairs = ((4, 1), (3, 4), (4, 2), (3, 2))
    flows = [flow("a", (src, host), (dst, host), RATE) for host, (src, dst) in enumerate(pairs)]
    problem = problem_of(fabric, flows)
    greedy = planned("greedy", problem)
    assert spines_of(fabric, greedy, flows) == [101, 101, 101, 102]
    assert (greedy.max_slowdown, greedy.certificate) == (2, "heuristic")
    colored = planned("edge-coloring", problem)
    assert (colored.max_slowdown, colored.certificate) == (1, "optimal")


# ---- edge colouring


def test_a_spine_missing_at_one_leaf_moves_only_that_leafs_flows() -> None:
    flows = [flow("a", (leaf, host), (leaf % 4 + 1, host), RATE) for leaf in (1, 2, 3, 4) for host in (1, 2)]
    whole_fabric, broken = leaf_spine(4, 3), leaf_spine(4, 3, without=[(1, 2)])
    before = planned("edge-coloring", problem_of(whole_fabric, flows))
    after = planned("edge-coloring", problem_of(broken, flows))
    spines = zip(spines_of(whole_fabric, before, flows), spines_of(broken, after, flows), flows, strict=True)
    assert all(new == old for old, new, of in spines if old != 102 or 1 not in (of.src_leaf, of.dst_leaf))


# ---- first fit


def test_first_fit_reserves_in_order_and_leaves_what_fits_nowhere_to_hashing() -> None:
    """The first spine takes 0.6, and only the second has room for the next 0.6; 0.4 fills the first exactly.

    Then 0.5 fits nowhere, and reserves nothing: 0.4 still fits on the second."""
    fabric = leaf_spine(2, 2)
    flows = [flow("a", (1, host), (2, host), share * RATE) for host, share in enumerate((0.6, 0.6, 0.4, 0.5, 0.4))]
    problem = problem_of(fabric, flows)
    plan = planned("first-fit", problem)
    first, second, third, fourth, fifth = spines_of(fabric, plan, flows)
    assert (first, second, third, fifth) == (101, 102, 101, 102)
    assert fourth == spines_of(fabric, planned("ecmp", problem), flows)[3]
    assert plan.max_slowdown == pytest.approx(1.5)


# ---- annealing


def test_annealing_keeps_one_spine_per_destination_and_only_swaps() -> None:
    """The four hosts of each of four leaves first have the four spines in order.

    After any swap each spine still occurs four times."""
    fabric = leaf_spine(4, 4)
    into = [(leaf, host) for leaf in (1, 2, 3, 4) for host in (1, 2, 3, 4)]
    flows = [flow("a", (src, 10 * dst + host), (dst, host), RATE) for dst, host in into for src in (1, 2, 3, 4)]
    across = [of for of in flows if of.src_leaf != of.dst_leaf]
    plan = planned("annealing", problem_of(fabric, across, nic_bps=3 * RATE))
    spine_of: dict[str, set[int]] = {}
    for of in across:
        spine_of.setdefault(of.id.dst_ip, set()).update(spines_of(fabric, plan, [of]))
    assert all(len(spines) == 1 for spines in spine_of.values())
    assert Counter(spine for spines in spine_of.values() for spine in spines) == dict.fromkeys((101, 102, 103, 104), 4)


@pytest.mark.parametrize("seed", range(2))
def test_annealings_energy_prefers_a_few_crowded_links_to_many_half_empty_ones(seed: int) -> None:
    """Two leaves send each other four flows over two spines.

    The start is the optimum of two flows on each of eight links, with energy 16. Three flows on four of the links have
    energy 12, where annealing ends."""
    flows = [flow("a", (src, host), (3 - src, host), RATE) for src in (1, 2) for host in (1, 2, 3, 4)]
    plan = planned("annealing", problem_of(leaf_spine(2, 2), flows), replace(LIMITS, seed=seed))
    assert (plan.max_slowdown, plan.bound) == (3, 2)


# ---- hashing


def test_hashing_is_a_function_of_the_flow_and_the_seed_alone() -> None:
    problem = problem_of(leaf_spine(4, 4), demo_flows())
    plan = planned("ecmp", problem)
    fewer = planned("ecmp", replace(problem, flows=problem.flows[::-2]))
    assert all(plan.routes[flow_id] == route for flow_id, route in fewer.routes.items())
    assert plan.routes == planned("ecmp", problem).routes
    assert plan.routes != planned("ecmp", problem, replace(LIMITS, seed=2)).routes


# ---- the integer program


def test_the_ilps_bound_says_nothing_of_flows_that_may_be_split() -> None:
    problem = problem_of(leaf_spine(2, 2), [flow("a", (1, host), (2, host), RATE) for host in (1, 2, 3)])
    plan = planned("ilp", with_subflows(problem, 2))
    assert (plan.max_slowdown, plan.bound, plan.integer_bound) == (2, 1.5, 2)
    assert plan.certificate == "gap"


def test_the_ilp_without_time_is_no_plan() -> None:
    answer = SCHEMES["ilp"](problem_of(leaf_spine(4, 4), demo_flows()), replace(LIMITS, time_limit_s=0.0))
    assert isinstance(answer, NoPlan)
    assert answer.reason == "ilp found no routing within 0 s; --time-limit gives it more time"


# ---- properties of all baselines


@pytest.mark.parametrize("name", BASELINES)
def test_the_running_routes_are_ignored_and_a_cap_on_moves_and_contradictions_are_not(name: str) -> None:
    base = problem_of(leaf_spine(4, 4), demo_flows())
    running = pinned(base, {f.id: whole(base.candidates(f)[-1]) for f in base.flows})
    plan = planned(name, running)
    assert plan.routes == planned(name, base).routes
    assert plan.ecmp == ecmp_slowdown(base, LIMITS.ecmp_draws, LIMITS.seed)
    assert plan.moves > 2
    capped = SCHEMES[name](running, replace(LIMITS, max_moves=2))
    assert isinstance(capped, NoPlan)
    why = f"the plan moves {plan.moves} flows, at most 2 may be moved"
    assert capped.reason == f"no candidate passed the checker; the last one failed with: {why}"
    twice = SCHEMES[name](replace(base, flows=base.flows + base.flows[:1]), LIMITS)
    assert isinstance(twice, NoPlan)
    assert twice.reason == "a flow is in the problem twice"


@pytest.mark.parametrize("name", BASELINES)
def test_without_any_cable_only_what_stays_inside_a_leaf_is_routed(name: str) -> None:
    inside, across = flow("a", (1, 1), (1, 2), RATE), flow("b", (1, 3), (2, 1), RATE)
    plan = planned(name, problem_of(fabric_of([]), [inside, across]))
    assert plan.routes == {inside.id: whole(())}
    assert plan.unrouted == (across.id,)
    assert plan.job_slowdown == {"a": 1}


QUICK_LIMITS = PlanLimits(time_limit_s=10, ecmp_draws=0, deterministic=True)
BASELINES = [name for name in SCHEMES if name != "planned_quickly"]


def planned_quickly(name: str, problem: Problem) -> Plan:
    answer = SCHEMES[name](problem, QUICK_LIMITS)
    assert isinstance(answer, Plan), answer
    return answer


@pytest.mark.parametrize("name", BASELINES)
@settings(max_examples=10)
@given(problem=any_problems())
def test_every_flow_with_a_path_is_routed_whole_and_the_checker_agrees(name: str, problem: Problem) -> None:
    plan = planned_quickly(name, problem)
    assert check(problem, plan) == ()
    assert plan.unrouted == tuple(f.id for f in problem.flows if not problem.candidates(f))
    assert all(len(route) == 1 for route in plan.routes.values())
    assert all(plan.routes[f.id] == whole(()) for f in problem.flows if f.src_leaf == f.dst_leaf)


@quick
@given(regular_problems())
def test_the_greedy_is_at_most_twice_the_optimum(regular: tuple[Problem, int, int]) -> None:
    problem, degree, spines = regular
    assert planned_quickly("greedy", problem).max_slowdown <= 2 * max(1, ceil(degree / spines))


@quick
@given(st.integers(1, 3).flatmap(regular_problems))
def test_folded_colouring_is_optimal_where_leaves_are_alike(regular: tuple[Problem, int, int]) -> None:
    problem, degree, common_links = regular
    plan = planned_quickly("edge-coloring", problem)
    assert plan.max_slowdown == max(1, ceil(degree / common_links))
    assert plan.slowdowns_proven >= min(1, len(plan.job_slowdown))


@settings(max_examples=10)
@given(any_problems(most=7))
def test_the_ilp_finds_the_smallest_worst_slowdown_and_proves_it(problem: Problem) -> None:
    routings = [*accumulate((max(1, len(problem.candidates(f))) for f in problem.flows), mul)]
    flows = tuple(f for f, number in zip(problem.flows, routings, strict=True) if number <= 500)
    small = Problem(problem.generation, problem.capacity_bps, problem.paths, flows)
    plan = planned_quickly("ilp", small)
    slowdowns, _ = brute_force(small)
    assert plan.max_slowdown == pytest.approx(slowdowns[0] if slowdowns else 1, rel=1e-6)
    assert plan.bound == pytest.approx(plan.max_slowdown, rel=1e-6)


@quick
@given(any_problems())
def test_the_choices_of_a_flow_are_its_candidates_and_go_round_its_next_hops(problem: Problem) -> None:
    next_hops = NextHops(problem)
    choices = PathChoices(problem, next_hops)
    assert [f.id for f in choices.flows] == [f.id for f in problem.flows if set(problem.candidates(f)) - {()}]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(greedy, "_MOST_PATHS", 1)
        capped = PathChoices(problem, next_hops)
    for f, options in zip(capped.flows, capped.options, strict=True):
        assert {next_hops.path(links) for links in options.T} == set(problem.candidates(f))
    for f, options in zip(choices.flows, choices.options, strict=True):
        paths = [next_hops.path(links) for links in options.T]
        assert sorted(paths) == sorted(problem.candidates(f))
        firsts = {path[0] for path in paths}
        assert {path[0] for path in paths[: len(firsts)]} == firsts


@quick
@given(any_problems())
def test_the_cheap_baselines_are_valued_like_plans(problem: Problem) -> None:
    with patch.object(baselines, "_BUDGET_S", 3600.0):
        slowdowns = baseline_slowdowns(problem, QUICK_LIMITS)
    assert slowdowns == pytest.approx({name: planned_quickly(name, problem).max_slowdown for name in slowdowns})
    assert set(slowdowns) == {"greedy", "edge-coloring", "first-fit"}
