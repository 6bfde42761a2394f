"""Plans for jobs with several phases: iterations get as short as the best routes allow, and all claims hold."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations, product
from statistics import mean

import pytest

from controller.fabric.topology import PortNo
from controller.planning import planner
from controller.planning.analysis.messages import FabricNames
from controller.planning.bounds import peak_bounds, slowdown_bounds
from controller.planning.certificate import WHOLE, certificate, with_own_bound
from controller.planning.efficiency import all_slowdowns, ecmp_slowdown, hashed_job_slowdowns, is_less, sorted_slowdowns
from controller.planning.plan import Plan, decide, draft
from controller.planning.plan_check import check
from controller.planning.problem import Flow, FlowId, Problem, Routes, whole
from controller.planning.split_flows.dividing import exactly_one
from controller.planning.transition import Stuck, smallest_group, step
from controller.planning.verify import least_of, peaks_of, verify
from controller.planning.whole_flows import iterations
from signalbox.jobs.spec import JobId
from tests.support.planning.fabrics import across, fabric_of, flow, leaf_spine, problem_of
from tests.support.planning.plans import EXACT, planned

FABRIC = leaf_spine(2, 2, capacity=1.0)
SHARES = ((0, 0.9), (1, 0.1))


def problem_with(flows: Sequence[Flow], shares: Sequence[tuple[int, float]] = SHARES) -> Problem:
    return problem_of(FABRIC, [replace(f, phase_share=tuple(shares)) for f in flows], nic_bps=1.0)


def traded(shares: Sequence[tuple[int, float]]) -> Problem:
    """Return a problem of one job, whose worst phase is fastest when both phases have slowdown 1.5.

    If flow 0 and flow 1 take different spines, the phases have slowdowns 1 and 1.75."""
    demands = (((0, 1.0), (1, 0.75)), ((0, 0.5), (1, 0.75)), ((1, 1.0),))
    return problem_with([flow("a", (1, n), (2, n), demand) for n, demand in enumerate(demands)], shares)


def test_the_slowdown_of_an_iteration_is_that_of_its_phases_by_their_times() -> None:
    problem = traded(SHARES)
    apart = {f.id: whole(problem.candidates(f)[spine]) for f, spine in zip(problem.flows, (0, 1, 1), strict=True)}
    found = all_slowdowns(problem, apart)
    assert found.slowdown == found.own == {"a": pytest.approx(0.9 * 1 + 0.1 * 1.75)}
    assert found.peak == {"a": pytest.approx(1.75)}


def test_a_short_phase_is_slowed_for_a_long_one_unless_the_worst_phase_counts() -> None:
    by_iteration, by_phase = planned(traded(SHARES)), planned(traded(()))
    assert by_iteration.job_slowdown == by_iteration.own_slowdown == {"a": pytest.approx(1.075)}
    assert by_phase.job_slowdown == by_phase.own_slowdown == {"a": pytest.approx(1.5)}


def test_running_routes_move_for_a_shorter_iteration() -> None:
    problem = traded(SHARES)
    running = problem.with_routes(planned(traded(())).routes)
    found = planned(running)
    assert found.job_slowdown == {"a": pytest.approx(1.075)}
    decision = decide(running, found, min_gain=0.02)
    assert (decision.adopt, decision.reason.split(" with")[0]) == (
        True,
        "worst slowdown falls from 1.50 to 1.07 (28.3%)",
    )


def test_iterations_get_shorter_although_a_flow_has_lost_its_path() -> None:
    problem = traded(SHARES)
    (path, *_) = problem.candidates(problem.flows[0])
    lost = whole(tuple(link._replace(port=PortNo(99)) for link in path))
    problem = problem.with_flows([replace(problem.flows[0], current=lost), *problem.flows[1:]])
    by_peaks = draft(problem, "greedy", planned(traded(())).routes)
    found = iterations.shortened(problem, peak_bounds(problem), by_peaks, EXACT)
    assert found
    assert found.job_slowdown == {"a": pytest.approx(1.075)}


def test_the_slowdown_of_a_job_with_one_phase_is_its_peak() -> None:
    problem = problem_with(across("aab", 1.0), shares=())
    assert problem.phase_share is None
    found = all_slowdowns(problem, planned(problem).routes)
    assert found.slowdown is found.peak


def test_shares_of_phases_that_are_idle_or_unknown() -> None:
    """Phases that are left have shares of their own time; phases without known shares have equal ones."""
    flows = [replace(f, phase_share=((0, 0.6), (1, 0.2), (2, 0.2))) for f in across("a", [(0, 1.0), (1, 1.0)])]
    others = [flow("b", (1, 2), (2, 2), [(0, 1.0), (3, 1.0)])]
    share = problem_of(FABRIC, [*flows, *others], nic_bps=1.0).phase_share
    assert share is not None
    assert share.tolist() == pytest.approx([0.75, 0.25, 0.5, 0.5])


def test_the_checker_recomputes_slowdowns_over_phases() -> None:
    problem = traded(SHARES)
    plan = planned(problem)
    wrong = replace(plan, job_slowdown={JobId("a"): 1.75}, own_slowdown={JobId("a"): 1.75})
    assert check(problem, wrong) == (
        "job a has slowdown 1.075, but the plan claims 1.75",
        "job a has own slowdown 1.075, but the plan claims 1.75",
    )
    assert "is not between 1 and the worst slowdown" in check(problem, replace(plan, bound=1.2))[0]


def test_a_file_with_proofs_has_slowdowns_over_phases_that_verify_recomputes() -> None:
    problem = traded(SHARES)
    plan = planned(problem)
    form = certificate(problem, plan, FabricNames(FABRIC))
    assert verify(form) == (
        "worst slowdown 1.075, at least 1.05 with any routes; by the slowest phase of each job: worst slowdown 1.75, "
        "at least 1.5 with any routes; 0 of 1 slowdowns proven",
        0,
    )
    assert with_own_bound(replace(plan, bound=1.0), form).bound == pytest.approx(1.05) == plan.bound
    wrong = [form["jobs"][0] | change for change in ({"slowdown": 10**12}, {"shares": [[0, 10**12], [1, 1]]})]
    for job, fault in zip(wrong, ("but the plan claims 1", "do not add up to 1"), strict=True):
        with pytest.raises(ValueError, match=fault):
            verify(form | {"jobs": [job]})


def test_jobs_that_meet_in_all_phases_are_slow_in_all_of_them() -> None:
    """Each job needs half of the links in each phase, so no job can be fast in one of them."""
    jobs = [replace(of, max_subflows=2) for of in across("aabb", [(0, 1.0), (1, 1.0)])]
    problem = problem_with(jobs)
    plan = planned(problem)
    assert plan.job_slowdown == pytest.approx({"a": 2.0, "b": 2.0})
    assert (plan.bound, slowdown_bounds(problem).fluid) == pytest.approx((2.0, 2.0))
    said, _ = verify(certificate(problem, plan, FabricNames(FABRIC)))
    assert said.startswith("worst slowdown 2, at least 2 with any routes; by the slowest phase")


def test_jobs_that_meet_at_one_link_see_the_largest_phases_of_the_others() -> None:
    """All flows cross the middle of a chain of switches. There phase 1 of job a meets the largest phase of job b."""
    fabric = fabric_of([(1, 101, 4.0), (101, 102, 1.0), (102, 2, 4.0)])
    flows = [*across("a", [(0, 1.0), (1, 0.5)]), flow("b", (1, 2), (2, 2), [(0, 0.5), (1, 0.75)])]
    problem = problem_of(fabric, [replace(of, phase_share=((0, 0.5), (1, 0.5))) for of in flows], nic_bps=4.0)
    plan = planned(problem)
    assert plan.job_slowdown == pytest.approx({"a": (1.75 + 1.25) / 2, "b": (1.5 + 1.75) / 2})
    assert (plan.bound, plan.certificate) == (plan.max_slowdown, "optimal")
    assert least_of(certificate(problem, plan, FabricNames(fabric))) == pytest.approx(1.625e12)


@pytest.mark.parametrize("seed", range(0, 40, 3))
def test_the_meetings_of_a_file_prove_the_bound_of_split_flows(seed: int) -> None:
    problem = a_problem(seed)
    problem = problem.with_flows([replace(of, max_subflows=3) for of in problem.flows])
    fluid = slowdown_bounds(problem).fluid
    form = certificate(problem, planned(problem), FabricNames(FABRIC))
    if problem.phase_share is None or min(peaks_of(form)) == max(peaks_of(form)) == WHOLE:
        return
    assert least_of(form) == pytest.approx(fluid * WHOLE, rel=1e-6)
    for meeting in form.get("meetings", ()):
        (job, phase), others = meeting["phases"][0], [*meeting["phases"][1:]]
        assert least_of(form | {"meetings": [meeting | {"phases": others}]}) <= least_of(form)
        for wrong in ({"weight": 0}, {"cut": -1}, {"phases": [(job, phase), (job, phase)]}, {"phases": [(-1, phase)]}):
            with pytest.raises(ValueError, match="a meeting needs"):
                verify(form | {"meetings": [meeting | wrong]})


@pytest.mark.parametrize("seed", range(40))
def test_no_shares_of_flows_beat_the_bound_of_split_flows(seed: int) -> None:
    problem, random_of = a_problem(seed), random.Random(seed)
    for number in range(20):
        routes = {}
        for of in problem.flows:
            weights = [random_of.random() ** number for _ in problem.candidates(of)]
            routes[of.id] = exactly_one(dict(zip(problem.candidates(of), weights, strict=True)))
        worst = sorted_slowdowns(all_slowdowns(problem, routes).slowdown)[0]
        assert slowdown_bounds(problem).fluid <= worst * (1 + 1e-9)


def test_running_routes_that_reach_their_bounds_are_not_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job must wait 1.5 times as long in its short phase, whatever the routes; only its own NIC is full."""
    flows = [flow("a", (1, 1), (2, 1), ((0, 1.0),)), flow("a", (1, 1), (2, 2), ((1, 1.5),))]
    problem = problem_with(flows)
    found = planned(problem)
    assert (found.certificate, found.gap) == ("optimal", 0)
    assert found.job_slowdown == {"a": pytest.approx(0.9 + 0.1 * 1.5)}
    running = problem.with_routes(found.routes)
    monkeypatch.setattr(planner, "_in_closed_form", None)
    assert planned(running).routes == found.routes


def test_a_step_may_slow_a_short_phase_for_a_long_one() -> None:
    problem, start = traded(SHARES), planned(traded(())).routes
    goal = planned(problem).routes
    after = step(problem, start, goal, 1, (), EXACT)
    assert after == goal
    assert smallest_group(problem, start, goal, EXACT).smallest
    assert isinstance(step(problem, goal, start, 2, (), EXACT), Stuck)


# ---- against all routings of small problems


def a_problem(seed: int) -> Problem:
    """Return a problem of one to three jobs with up to three phases, and of at most 5 flows between leaves."""
    random_of = random.Random(seed)
    flows: list[Flow] = []
    for job in "abc"[: random_of.randint(1, 3)]:
        parts = [random_of.choice((1, 1, 2, 6)) for _ in range(random_of.randint(1, 3))]
        share = tuple((phase, part / sum(parts)) for phase, part in enumerate(parts)) if len(parts) > 1 else ()
        for _ in range(random_of.randint(2, 3)):
            phases = sorted(random_of.sample(range(len(parts)), random_of.randint(1, len(parts))))
            demand = [(phase, random_of.choice((1.0, 1.0, 0.5, 0.25))) for phase in phases]
            host = len(flows)
            of = flow(job, (1, host), (2, host), demand)
            flows.append(replace(of, phase_share=share))
    return problem_of(leaf_spine(2, random_of.choice((2, 3)), capacity=1.0), flows[:5], nic_bps=1.0)


@cache
def plan_of(seed: int) -> Plan:
    return planned(a_problem(seed))


def iterations_by_hand(problem: Problem, routes: Routes) -> list[float]:
    """Return the sorted iteration slowdowns, computed link by link."""
    rates: dict[tuple[str, int], dict[object, float]] = {}
    for of in problem.flows:
        for phase, bps in of.demand_bps:
            on = rates.setdefault((of.job_id, phase), {})
            for link in (*routes[of.id][0].path, *of.nic_links):
                on[link] = on.get(link, 0.0) + bps / problem.capacity_bps[link]
    jobs = sorted({job for job, _ in rates})
    found = []
    for job in jobs:
        known = dict(next(of.phase_share for of in problem.flows if of.job_id == job))
        mine = {phase: known.get(phase, 1.0) for of, phase in rates if of == job}
        total = 0.0
        for phase, share in mine.items():
            others = [other for other in jobs if other != job]
            seen = [
                load + sum(max(rates[of].get(link, 0.0) for of in rates if of[0] == other) for other in others)
                for link, load in rates[job, phase].items()
            ]
            total += share / sum(mine.values()) * max(1.0, *seen)
        found.append(total)
    return sorted(found, reverse=True)


@pytest.mark.parametrize("seed", [12, 40, 41])
def test_flows_that_may_be_split_are_no_slower_than_whole_ones(seed: int) -> None:
    problem = a_problem(seed)
    split = planned(problem.with_flows([replace(of, max_subflows=2) for of in problem.flows]))
    assert not is_less(*(sorted_slowdowns(plan.job_slowdown) for plan in (plan_of(seed), split)))


@pytest.mark.parametrize("seed", range(24))
def test_iterations_of_small_problems_are_the_shortest_of_all_routings(seed: int) -> None:
    problem = a_problem(seed)
    if problem.phase_share is None:
        return
    best: list[float] = [math.inf]
    for paths in product(*map(problem.candidates, problem.flows)):
        routes = {of.id: whole(path) for of, path in zip(problem.flows, paths, strict=True)}
        best = min(best, [round(slowdown, 9) for slowdown in iterations_by_hand(problem, routes)])
    plan = plan_of(seed)
    assert iterations_by_hand(problem, plan.routes) == pytest.approx(plan.sorted_slowdowns)
    assert plan.sorted_slowdowns[0] == pytest.approx(best[0])
    bounds = slowdown_bounds(problem)
    assert bounds.fluid <= bounds.worst <= plan.bound * (1 + 1e-9)
    assert plan.bound <= best[0] * (1 + 1e-9)
    assert plan.integer_bound == pytest.approx(plan.bound)
    proven = plan.slowdowns_proven
    assert plan.sorted_slowdowns[:proven] == pytest.approx(best[:proven])
    assert (plan.certificate == "optimal") == (proven == len(best))


@pytest.mark.parametrize("seed", range(8))
def test_slowdowns_under_hashing_are_means_over_all_routings(seed: int) -> None:
    """Every routing is equally likely. For the second mean, the first flow keeps its path."""
    problem = a_problem(seed)
    paths = [*map(problem.candidates, problem.flows)]
    fixed = problem.flows[0]
    worst, of_first = [], []
    for chosen in product(*paths):
        routes = {of.id: whole(path) for of, path in zip(problem.flows, chosen, strict=True)}
        worst.append(iterations_by_hand(problem, routes)[0])
        if chosen[0] == paths[0][0]:
            of_first.append(all_slowdowns(problem, routes).slowdown[fixed.job_id])
    assert ecmp_slowdown(problem, 4_000, seed=1).mean == pytest.approx(mean(worst), rel=0.03)
    pinned = {fixed.id: whole(paths[0][0])}
    hashed = hashed_job_slowdowns(problem, pinned, 4_000, seed=1)[fixed.job_id]
    assert hashed.mean == pytest.approx(mean(of_first), rel=0.03)


@pytest.mark.parametrize("seed", range(24))
def test_steps_lower_the_slowdowns_whenever_few_moves_do(seed: int) -> None:
    problem, random_of, cap = a_problem(seed), random.Random(seed), 2
    start = {of.id: whole(random_of.choice(problem.candidates(of))) for of in problem.flows}
    goal = plan_of(seed).routes
    changing = [flow_id for flow_id, route in goal.items() if start[flow_id] != route]

    def vector(moved: Iterable[FlowId]) -> list[float]:
        return iterations_by_hand(problem, {**start, **{flow_id: goal[flow_id] for flow_id in moved}})

    within = [vector(moved) for count in range(cap + 1) for moved in combinations(changing, count)]
    better = any(is_less(of, within[0]) for of in within)
    found = step(problem, start, goal, cap, (), EXACT)
    if isinstance(found, Stuck):
        assert (found.final, better) == (True, False)
        return
    moved = [flow_id for flow_id in changing if found[flow_id] != start[flow_id]]
    assert 0 < len(moved) <= cap
    assert is_less(vector(moved), within[0]) == better
    assert not is_less(within[0], vector(moved))
