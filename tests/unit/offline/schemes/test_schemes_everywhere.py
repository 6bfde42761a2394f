"""Every baseline gives a valid plan on any fabric, with the properties that its publication proves."""

from itertools import accumulate
from math import ceil
from operator import mul

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.planning import greedy
from controller.planning.baselines import baseline_slowdowns
from controller.planning.efficiency import NextHops
from controller.planning.greedy import PathChoices
from controller.planning.plan import Plan
from controller.planning.plan_check import check
from controller.planning.problem import PlanLimits, Problem, whole
from offline.schemes import SCHEMES
from tests.support.planning.baseline_problems import any_problems, quick, regular_problems
from tests.support.planning.fabrics import brute_force

LIMITS = PlanLimits(time_limit_s=10, ecmp_draws=0, deterministic=True)
BASELINES = [name for name in SCHEMES if name != "planned"]


def planned(name: str, problem: Problem) -> Plan:
    answer = SCHEMES[name](problem, LIMITS)
    assert isinstance(answer, Plan), answer
    return answer


@pytest.mark.parametrize("name", BASELINES)
@settings(max_examples=20)
@given(problem=any_problems())
def test_every_flow_with_a_path_is_routed_whole_and_the_checker_agrees(name: str, problem: Problem) -> None:
    plan = planned(name, problem)
    assert check(problem, plan) == ()
    assert plan.unrouted == tuple(f.id for f in problem.flows if not problem.candidates(f))
    assert all(len(route) == 1 for route in plan.routes.values())
    assert all(plan.routes[f.id] == whole(()) for f in problem.flows if f.src_leaf == f.dst_leaf)


@quick
@given(regular_problems())
def test_the_greedy_is_at_most_twice_the_optimum(regular: tuple[Problem, int, int]) -> None:
    problem, degree, spines = regular
    assert planned("greedy", problem).max_slowdown <= 2 * max(1, ceil(degree / spines))


@quick
@given(st.integers(1, 3).flatmap(regular_problems))
def test_folded_colouring_is_optimal_where_leaves_are_alike(regular: tuple[Problem, int, int]) -> None:
    problem, degree, common_links = regular
    plan = planned("edge-coloring", problem)
    assert plan.max_slowdown == max(1, ceil(degree / common_links))
    assert plan.slowdowns_proven >= min(1, len(plan.job_slowdown))


@settings(max_examples=20)
@given(any_problems(most=7))
def test_the_ilp_finds_the_smallest_worst_slowdown_and_proves_it(problem: Problem) -> None:
    routings = [*accumulate((max(1, len(problem.candidates(f))) for f in problem.flows), mul)]
    flows = tuple(f for f, number in zip(problem.flows, routings, strict=True) if number <= 500)
    small = Problem(problem.generation, problem.capacity_bps, problem.paths, flows)
    plan = planned("ilp", small)
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
    slowdowns = baseline_slowdowns(problem, LIMITS)
    assert slowdowns == pytest.approx({name: planned(name, problem).max_slowdown for name in slowdowns})
    assert set(slowdowns) == {"greedy", "edge-coloring", "first-fit"}
