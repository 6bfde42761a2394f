"""Plans on typical fabrics: the demo's fabric, with failures, with background traffic, and when solvers fail."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest

from controller.fabric.topology import Fabric
from controller.planning import greedy, transition
from controller.planning.efficiency import job_slowdowns
from controller.planning.plan import Draft, Drafts, NoPlan, Plan, answered, draft
from controller.planning.planner import judged, plan, repair, repair_first
from controller.planning.problem import FlowId, PathShare, PlanLimits, Problem, whole
from controller.planning.whole_flows import cpsat, search
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
    two_leaves,
)
from tests.support.planning.plans import EXACT, planned


def without_cable(fabric: Fabric, a: int, b: int) -> Fabric:
    gone = {link_between(fabric, a, b), link_between(fabric, b, a)}
    left = {link_id: link for link_id, link in fabric.links.items() if link_id not in gone}
    return replace(fabric, generation=fabric.generation + 1, links=left)


@pytest.fixture
def fabric() -> Fabric:
    return leaf_spine(4, 4)


@pytest.fixture
def running(fabric: Fabric) -> Plan:
    return planned(problem_of(fabric, demo_flows()))


def test_the_lighter_routing_wins_among_equals() -> None:
    """Either spine carries b's small flow without harm, the fast one with less load."""
    fabric = fabric_of([(1, 101, 4e6), (1, 102, 8e6), (2, 101, 4e6), (2, 102, 8e6)])
    crowd = [flow("a", (1, h), (2, h), 4e6) for h in (1, 2, 3)]
    answer = planned(problem_of(fabric, [*crowd, flow("b", (2, 4), (1, 4), 1e6)], nic_bps=1e9))
    assert answer.routes[FlowId("10.0.2.4", "10.0.1.4")][0].path[0] == link_between(fabric, 2, 102)


@pytest.mark.parametrize("jobs", ["aabb", "abab", "abba"])
def test_two_jobs_on_a_fabric_of_two_to_one_collide_with_each_other_and_not_with_themselves(jobs: str) -> None:
    answer = planned(two_leaves(2, jobs))
    assert answer.sorted_slowdowns == (2.0, 2.0)
    assert answer.own_slowdown == {"a": 1.0, "b": 1.0}


def test_what_cannot_be_routed_is_named_and_the_rest_is_planned() -> None:
    fabric = fabric_of([(1, 101, RATE), (2, 101, RATE), (3, 103, RATE)])
    answer = planned(problem_of(fabric, [flow("a", (1, 1), (2, 1), RATE), flow("b", (1, 2), (3, 1), RATE)]))
    nothing = planned(problem_of(fabric, []))
    assert (nothing.routes, nothing.bound, nothing.max_slowdown, nothing.certificate) == ({}, 1, 1, "optimal")
    assert answer.unrouted == (FlowId("10.0.1.2", "10.0.3.1"),)
    assert answer.job_slowdown == {"a": 1}


def test_a_link_with_almost_no_capacity_left_is_used_only_when_there_is_no_other() -> None:
    fabric = leaf_spine(2, 2)
    uplink = link_between(fabric, 1, 101)
    flows = [flow("a", (1, 1), (2, 1), RATE)]
    nearly_full = problem_of(fabric, flows, background={uplink: RATE - 1e-3})
    assert planned(nearly_full).max_slowdown == 1
    only = problem_of(without_cable(fabric, 1, 102), flows, background={uplink: RATE - 1e-3})
    assert planned(only).max_slowdown == pytest.approx(RATE / 1e-3, rel=1e-5)


@pytest.mark.parametrize(("sizes", "runs"), [((2e6, 2e6, 1e6, 2e6), False), ((2e6, 2e6), True)])
def test_failing_searches_leave_a_cheap_plan(
    monkeypatch: pytest.MonkeyPatch, sizes: Sequence[float], runs: bool
) -> None:
    """The planner returns the plan of a cheap stage, even if the running routes are worse."""

    def broken(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(cpsat, "solve", broken)
    monkeypatch.setattr(search, "local_search", broken)
    fabric = fabric_of([(1, 101, 3e6), (1, 102, 2e6), (2, 101, 3e6), (2, 102, 2e6)])
    problem = problem_of(fabric, [flow("a", (1, h), (2, h), bps) for h, bps in enumerate(sizes)])
    slow = whole((link_between(fabric, 1, 102), link_between(fabric, 102, 2)))
    answer = planned(pinned(problem, {f.id: slow for f in problem.flows if runs}))
    assert answer.solver in ("greedy", "edge-coloring")
    assert not answer.unrouted
    assert answer.max_slowdown < 2


def test_broken_routes_of_a_problem_that_contradicts_itself_have_no_repair(fabric: Fabric, running: Plan) -> None:
    problem = pinned(problem_of(without_cable(fabric, 1, 101), demo_flows()), running.routes)
    assert problem.broken
    twice = replace(problem, flows=problem.flows * 2)
    assert isinstance(repair(twice), NoPlan)
    assert repair_first(twice, {}) == (None, twice)


def test_a_running_plan_survives_a_solver_without_time(fabric: Fabric, running: Plan) -> None:
    """Strangers fill one uplink of every leaf; with time, the plan avoids them."""
    full = {link_between(fabric, leaf, 100 + leaf): 0.95 * RATE for leaf in (1, 2, 3, 4)}
    problem = pinned(problem_of(fabric, demo_flows(), background=full), running.routes)
    answer = planned(problem, PlanLimits(time_limit_s=1e-9, max_moves=0))
    assert (answer.solver, answer.moves) == ("no-search", 0)
    assert answer.certificate == "heuristic"
    assert answer.gap > 0
    answer = planned(problem)
    assert answer.sorted_slowdowns == (1, 1, 1)
    assert not full.keys() & {link for route in answer.routes.values() for subflow in route for link in subflow.path}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda p: replace(p, flows=p.flows + p.flows[:1]), "twice"),
        (lambda p: replace(p, capacity_bps={}), "no capacity"),
        (lambda p: replace(p, flows=(replace(p.flows[0], demand_bps=((0, float("nan")),)),)), "demand"),
    ],
)
def test_a_problem_that_contradicts_itself_gets_a_reason(fabric: Fabric, spoil: object, words: str) -> None:
    assert callable(spoil)
    answer = plan(spoil(problem_of(fabric, demo_flows())), EXACT)
    assert isinstance(answer, NoPlan)
    assert words in answer.reason


def test_a_routing_that_the_checker_refuses_is_not_the_plan_however_good_it_claims_to_be(fabric: Fabric) -> None:
    problem = problem_of(fabric, across("aa"))
    first, second, *_ = problem.candidates(problem.flows[0])
    one, other = (f.id for f in problem.flows)
    right = draft(problem, "right", {one: whole(first), other: whole(second)})
    crowded = draft(problem, "crowded", {one: whole(first), other: whole(first)})
    wrong = replace(right, solver="wrong", routes={one: whole(first[:1]), other: whole(second)})

    def chosen(*drafts: Draft) -> Plan | NoPlan:
        return judged(problem, EXACT, lambda _: Drafts([*drafts]))

    for drafts, solver in (([wrong, right], "right"), ([crowded, right], "right"), ([wrong, crowded], "crowded")):
        assert answered(chosen(*drafts)).solver == solver
    refused = chosen(wrong)
    assert isinstance(refused, NoPlan)
    assert "not among the candidates" in refused.reason


# ---- the planner's own greedy assignment: the routes that it keeps, and the choice for the other flows


def test_the_fluid_optimum_bounds_whole_flows_where_no_leaf_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fabric is a line of switches with a narrow cable in the middle; CP-SAT does not run."""
    monkeypatch.setattr(search, "_VARIABLES_PER_S", 0)
    line = fabric_of([(1, 3, 4 * RATE), (3, 4, RATE), (4, 2, 4 * RATE)])
    answer = planned(problem_of(line, across("abb")))
    assert answer.bound == pytest.approx(3)
    assert (answer.slowdowns_proven, answer.certificate) == (2, "optimal")


def test_running_routes_stay_and_the_rest_goes_where_they_leave_room() -> None:
    """The flow a has two subflows on spines 1 and 2; the flow b gets spine 3."""
    problem = two_leaves(3, "ab")
    a, b = problem.flows
    first, second, third = problem.candidates(a)
    running = {a.id: (PathShare(first, 0.5), PathShare(second, 0.5))}
    running_problem = pinned(problem, running)
    assert greedy.assign(running_problem, keep_current=True) == {**running, b.id: whole(third)}
    broken = replace(running_problem, paths=problem.paths.without({first[1]}))
    assert greedy.assign(broken, keep_current=True) == {a.id: whole(second), b.id: whole(third)}, "a cable is lost"


def test_a_tie_goes_to_the_current_path_and_nothing_else_remembers_it() -> None:
    problem = two_leaves(2, "ab")
    a, b = problem.flows
    second = problem.candidates(a)[1]
    running = on_paths(problem, [1, 1])
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


# ---- determinism


LIMITS = PlanLimits(time_limit_s=1, deterministic=True, ecmp_draws=8)


def dealt(without: list[tuple[int, int]]) -> Problem:
    """Return a problem for local search: four rings over all hosts of six leaves, in random order."""
    places = [(leaf, host) for leaf in range(1, 7) for host in range(1, 7)]
    random.Random(1).shuffle(places)
    flows = [f for job in range(4) for f in ring(f"job{job}", places[job::4], 1.0)]
    return problem_of(leaf_spine(6, 6, 1.0, without=without), flows, nic_bps=1.0)


def packed() -> Problem:
    """Return a problem for CP-SAT: sizes and links of all kinds, where no closed form meets a bound."""
    rng = random.Random(9)
    fabric = fabric_of((leaf, spine, rng.choice([5.0, 7.0, 8.0])) for leaf in (1, 2, 3) for spine in (101, 102, 103))
    flows = [flow(rng.choice("ab"), (1 + h % 2, h), (3, h), rng.choice([2.0, 3.0, 4.0, 5.0])) for h in range(9)]
    return problem_of(fabric, flows, nic_bps=40.0)


def digest() -> str:
    """Return a digest of three plans without their times, and of the link order in the model that chooses moves.

    The second plan begins from the first, which loses a cable. The order matters because routes follow from it when the
    budget ends the search."""
    problem = dealt([])
    first = planned(problem, LIMITS)
    answers = [first, planned(pinned(dealt([(2, 3)]), first.routes), LIMITS), planned(packed(), LIMITS)]
    assert [answer.solver for answer in answers] == ["edge-coloring", "local-search", "cpsat"]
    described = [
        (sorted(answer.routes.items()), sorted(answer.job_slowdown.items()), answer.bound, answer.moves, answer.solver)
        for answer in answers
    ]
    crowded = {f.id: whole(problem.candidates(f)[0]) for f in problem.flows}
    links = list(transition._Model(problem, crowded, first.routes, LIMITS)._links)
    return hashlib.sha256(repr((described, links)).encode()).hexdigest()


def test_plans_do_not_depend_on_the_hash_seed() -> None:
    found = set()
    for seed in ("0", "1"):
        command = [sys.executable, "-c", f"from {__name__} import digest; print(digest())"]
        result = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True)
        found.add(result.stdout.decode().strip())
    assert found == {digest()}
