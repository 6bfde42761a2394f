"""Every baseline gives a valid plan on any fabric, with the properties that its publication proves."""

from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.planning import greedy
from controller.planning.baselines import baseline_slowdowns
from controller.planning.ecmp import NextHops
from controller.planning.efficiency import FabricLoads, Fixed, job_slowdowns, nic_slowdowns
from controller.planning.greedy import PathChoices
from controller.planning.plan import Plan
from controller.planning.plan_check import check
from controller.planning.problem import FlowId, PlanLimits, Problem, Route, Subflow, whole
from offline.schemes import SCHEMES
from tests.support.planning.baseline_problems import any_problems, quick, regular_problems
from tests.support.planning.fabrics import brute_force
from tests.support.planning.loads import link_loads

LIMITS = PlanLimits(time_limit_s=10, ecmp_draws=0, deterministic=True)
BASELINES = [name for name in SCHEMES if name != "planned"]
MAX_ROUTINGS = 500


def planned(name: str, problem: Problem) -> Plan:
    answer = SCHEMES[name](problem, LIMITS)
    assert isinstance(answer, Plan), answer
    return answer


@pytest.mark.parametrize("name", BASELINES)
@quick
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


@quick
@given(any_problems(most=7))
def test_the_ilp_finds_the_smallest_worst_slowdown_and_proves_it(problem: Problem) -> None:
    routings = 1
    flows = []
    for f in problem.flows:
        routings *= max(1, len(problem.candidates(f)))
        if routings <= MAX_ROUTINGS:
            flows.append(f)
    small = Problem(problem.generation, problem.capacity_bps, problem.paths, tuple(flows))
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
    for f, options in zip(choices.flows, choices.options, strict=True):
        paths = [next_hops.path(links) for links in options.T]
        assert sorted(paths) == sorted(problem.candidates(f))
        firsts = {path[0] for path in paths}
        assert {path[0] for path in paths[: len(firsts)]} == firsts


@quick
@given(any_problems())
def test_too_many_paths_are_left_with_the_capped_candidates(problem: Problem) -> None:
    next_hops = NextHops(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(greedy, "_MOST_PATHS", 1)
        choices = PathChoices(problem, next_hops)
    for f, options in zip(choices.flows, choices.options, strict=True):
        assert {next_hops.path(links) for links in options.T} == set(problem.candidates(f))


@quick
@given(any_problems(), st.integers(0, 999))
def test_loads_of_many_draws_are_those_of_each(problem: Problem, seed: int) -> None:
    """The reference is the definition of load, draw by draw."""
    next_hops = NextHops(problem)
    choices = PathChoices(problem, next_hops)
    random = np.random.default_rng(seed)
    links = np.full((next_hops.longest, 3, len(choices.flows)), next_hops.nothing)
    for column, options in enumerate(choices.options):
        links[:, :, column] = options[:, random.integers(options.shape[1], size=3)]
    loads = FabricLoads(problem, next_hops.capacity_bps, next_hops.flows)
    found = loads.of(links)
    of_jobs = loads.of_jobs(links, found)
    for draw in range(3):
        routes = {f.id: whole(next_hops.path(links[:, draw, column])) for column, f in enumerate(choices.flows)}
        exact = link_loads(problem, routes)
        assert found[draw, :-1] == pytest.approx([exact.get(link, 0.0) for link in next_hops.links])
        slowdowns = job_slowdowns(problem, routes)
        nics = nic_slowdowns(problem, next_hops.flows)
        for number, job in enumerate(problem.numbers.job_ids):
            if job in slowdowns:
                assert max(nics[job], of_jobs[draw, number]) == pytest.approx(slowdowns[job])


@quick
@given(any_problems(), st.integers(0, 999))
def test_what_is_fixed_loads_every_draw_alike(problem: Problem, seed: int) -> None:
    """Every other flow has two subflows on its first and last path; the rest are drawn."""
    next_hops = NextHops(problem)
    choices = PathChoices(problem, next_hops)
    random = np.random.default_rng(seed)
    fixed = np.arange(len(choices.flows)) % 2 == 0
    routes: dict[FlowId, Route] = {}
    rows = []
    links = np.full((next_hops.longest, 1, int((~fixed).sum())), next_hops.nothing)
    for number, (f, options) in enumerate(zip(choices.flows, choices.options, strict=True)):
        if fixed[number]:
            subflows = ((options[:, 0], 0.25), (options[:, -1], 0.75))
            routes[f.id] = tuple(Subflow(next_hops.path(path), share) for path, share in subflows)
            flow = next_hops.flows[number]
            rows += [(flow, link, share) for path, share in subflows for link in path if link != next_hops.nothing]
        else:
            path = options[:, random.integers(options.shape[1])]
            routes[f.id] = whole(next_hops.path(path))
            links[:, 0, number // 2] = path
    flow_of, link_of, share_of = zip(*rows, strict=True) if rows else ((), (), ())
    pinned = Fixed(np.array(flow_of, np.int64), np.array(link_of, np.int64), np.array(share_of, np.float64))
    loads = FabricLoads(problem, next_hops.capacity_bps, next_hops.flows[~fixed], pinned)
    found = loads.of(links)
    exact = link_loads(problem, routes)
    assert found[0, :-1] == pytest.approx([exact.get(link, 0.0) for link in next_hops.links])
    slowdowns, nics = job_slowdowns(problem, routes), nic_slowdowns(problem, next_hops.flows)
    of_jobs = dict(zip(problem.numbers.job_ids, loads.of_jobs(links, found)[0], strict=True))
    assert {job: max(nics[job], of_jobs[job]) for job in slowdowns} == pytest.approx(slowdowns)


@quick
@given(any_problems())
def test_the_cheap_baselines_are_valued_like_plans(problem: Problem) -> None:
    slowdowns = baseline_slowdowns(problem, LIMITS)
    assert slowdowns == pytest.approx({name: planned(name, problem).max_slowdown for name in slowdowns})
    assert set(slowdowns) == {"greedy", "edge-coloring", "first-fit"}
