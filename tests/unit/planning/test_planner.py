"""Plans on typical fabrics: the demo's fabric, with failures, with background traffic, and when solvers fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.fabric.topology import Fabric, LinkId, Path
from controller.planning import greedy
from controller.planning.efficiency import job_slowdowns
from controller.planning.plan import Draft, Drafts, NoPlan, Plan, draft
from controller.planning.plan_check import check
from controller.planning.planner import judged, plan, repair_first
from controller.planning.problem import FlowId, PlanLimits, Problem, whole
from controller.planning.whole_flows import cpsat, local_search
from tests.support.planning.fabrics import (
    RATE,
    demo_flows,
    fabric_of,
    flow,
    leaf_spine,
    link_between,
    pinned,
    problem_of,
    ring,
)

LIMITS = PlanLimits(time_limit_s=10, deterministic=True)


def planned(problem: Problem, limits: PlanLimits = LIMITS) -> Plan:
    answer = plan(problem, limits)
    assert isinstance(answer, Plan), answer
    assert check(problem, answer, limits.max_moves) == ()
    return answer


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


def test_three_rings_on_four_leaves_and_spines_each_get_the_whole_wire(running: Plan) -> None:
    assert running.sorted_slowdowns == (1, 1, 1)
    assert running.certificate == "optimal"
    assert running.bound == 1
    assert running.ecmp
    assert running.ecmp.mean > 1.5


def test_a_running_optimum_is_left_alone(fabric: Fabric, running: Plan) -> None:
    again = planned(pinned(problem_of(fabric, demo_flows()), running.routes))
    assert (again.moves, again.solver) == (0, "running")
    assert again.routes == running.routes


@pytest.mark.parametrize(("leaf", "spine"), [(1, 101), (2, 103), (4, 104)])
def test_a_cut_cable_costs_no_speed_and_moves_only_what_it_must(
    fabric: Fabric, running: Plan, leaf: int, spine: int
) -> None:
    broken = without_cable(fabric, leaf, spine)
    answer = planned(pinned(problem_of(broken, demo_flows()), running.routes))
    gone = set(fabric.links) - set(broken.links)
    untouched = [f for f, ((path, _),) in running.routes.items() if not gone & set(path)]
    assert answer.sorted_slowdowns == (1, 1, 1)
    assert answer.moves == sum(answer.routes[f] != running.routes[f] for f in untouched)
    assert answer.moves <= 2


def test_strangers_on_one_uplink_of_every_leaf_are_avoided(fabric: Fabric, running: Plan) -> None:
    background = {link_between(fabric, leaf, 100 + leaf): 0.95 * RATE for leaf in (1, 2, 3, 4)}
    answer = planned(pinned(problem_of(fabric, demo_flows(), background=background), running.routes))
    assert answer.sorted_slowdowns == (1, 1, 1)
    assert not background.keys() & {link for path in answer.routes.values() for link in path}


def test_capped_moves_improve_step_by_step(fabric: Fabric, running: Plan) -> None:
    background = {link_between(fabric, leaf, 100 + leaf): 0.95 * RATE for leaf in (1, 2, 3, 4)}
    problem = pinned(problem_of(fabric, demo_flows(), background=background), running.routes)
    one_by_one = replace(LIMITS, max_moves=1)
    vectors = []
    for _ in range(8):
        answer = planned(problem, one_by_one)
        assert answer.moves <= 1
        vectors.append(answer.sorted_slowdowns)
        problem = pinned(problem, answer.routes)
    assert vectors == sorted(vectors, reverse=True)
    assert vectors[-1] == (1, 1, 1)


def test_flows_whose_path_has_gone_do_not_count_as_moves(fabric: Fabric, running: Plan) -> None:
    broken = without_cable(fabric, 1, 101)
    problem = pinned(problem_of(broken, demo_flows()), running.routes)
    answer = planned(problem, replace(LIMITS, max_moves=0))
    assert answer.moves == 0
    assert not answer.unrouted


def test_only_the_jobs_that_must_share_are_slowed_down() -> None:
    """Leaf 1 has one uplink for a and b; c keeps its speed, although the worst slowdown alone does not require it."""
    fabric = leaf_spine(3, 2, without=[(1, 1)])
    flows = [flow("a", (1, 1), (2, 1), RATE), flow("b", (1, 2), (3, 1), RATE), flow("c", (2, 2), (3, 2), RATE)]
    answer = planned(problem_of(fabric, flows))
    assert answer.job_slowdown == {"a": 2, "b": 2, "c": 1}
    assert (answer.bound, answer.slowdowns_proven) == (2, 3)


def test_phases_of_one_job_share_a_link_for_free_and_those_of_two_jobs_do_not() -> None:
    fabric = leaf_spine(2, 1)
    first, second = ((0, RATE),), ((1, RATE),)
    alone = planned(problem_of(fabric, [flow("a", (1, 1), (2, 1), first), flow("a", (1, 2), (2, 2), second)]))
    shared = planned(problem_of(fabric, [flow("a", (1, 1), (2, 1), first), flow("b", (1, 2), (2, 2), second)]))
    assert alone.job_slowdown == {"a": 1}
    assert shared.job_slowdown == {"a": 2, "b": 2}


def test_every_one_of_several_parallel_cables_is_used() -> None:
    fabric = fabric_of([(1, 101, RATE)] * 3 + [(2, 101, RATE)] * 3)
    answer = planned(problem_of(fabric, [flow("a", (1, h), (2, h), RATE) for h in (1, 2, 3)]))
    assert answer.max_slowdown == 1


def test_mixed_demands_fill_unequal_links() -> None:
    fabric = fabric_of([(1, 101, 3e6), (1, 102, 2e6), (2, 101, 3e6), (2, 102, 2e6)])
    flows = [flow("a", (1, h), (2, h), bps) for h, bps in enumerate([1e6, 1e6, 1e6, 2e6], start=1)]
    assert planned(problem_of(fabric, flows)).max_slowdown == 1


def test_the_lighter_routing_wins_among_equals() -> None:
    """Either spine carries b's small flow without harm, the fast one with less load."""
    fabric = fabric_of([(1, 101, 4e6), (1, 102, 8e6), (2, 101, 4e6), (2, 102, 8e6)])
    crowd = [flow("a", (1, h), (2, h), 4e6) for h in (1, 2, 3)]
    answer = planned(problem_of(fabric, [*crowd, flow("b", (2, 4), (1, 4), 1e6)], nic_bps=1e9))
    assert answer.routes[FlowId("10.0.2.4", "10.0.1.4")][0].path[0] == link_between(fabric, 2, 102)


def test_what_cannot_be_routed_is_named_and_the_rest_is_planned() -> None:
    fabric = fabric_of([(1, 101, RATE), (2, 101, RATE), (3, 103, RATE)])
    answer = planned(problem_of(fabric, [flow("a", (1, 1), (2, 1), RATE), flow("b", (1, 2), (3, 1), RATE)]))
    assert answer.unrouted == (FlowId("10.0.1.2", "10.0.3.1"),)
    assert answer.job_slowdown == {"a": 1}


def test_nothing_to_plan_is_a_plan() -> None:
    answer = planned(problem_of(leaf_spine(2, 2), []))
    assert (answer.routes, answer.bound, answer.max_slowdown, answer.certificate) == ({}, 1, 1, "optimal")


def test_a_link_with_almost_no_capacity_left_is_used_only_when_there_is_no_other() -> None:
    fabric = leaf_spine(2, 2)
    uplink = link_between(fabric, 1, 101)
    flows = [flow("a", (1, 1), (2, 1), RATE)]
    nearly_full = problem_of(fabric, flows, background={uplink: RATE - 1e-3})
    assert planned(nearly_full).max_slowdown == 1
    only = problem_of(without_cable(fabric, 1, 102), flows, background={uplink: RATE - 1e-3})
    assert planned(only).max_slowdown == pytest.approx(RATE / 1e-3, rel=1e-5)


def test_the_same_input_gives_the_same_plan(fabric: Fabric, running: Plan) -> None:
    background = {link_between(fabric, leaf, 100 + leaf): 0.95 * RATE for leaf in (1, 2, 3, 4)}
    problem = pinned(problem_of(fabric, demo_flows(), background=background), running.routes)
    assert planned(problem).routes == planned(problem).routes


def test_failing_searches_leave_a_cheap_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(cpsat, "solve", broken)
    monkeypatch.setattr(local_search, "search", broken)
    fabric = fabric_of([(1, 101, 3e6), (1, 102, 2e6), (2, 101, 3e6), (2, 102, 2e6)])
    flows = [flow("a", (1, h), (2, h), bps) for h, bps in enumerate([2e6, 2e6, 1e6, 2e6], start=1)]
    answer = planned(problem_of(fabric, flows))
    assert answer.solver in ("greedy", "edge-coloring")
    assert not answer.unrouted


def test_failing_searches_leave_a_cheap_plan_where_the_running_routes_are_worse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(cpsat, "solve", broken)
    monkeypatch.setattr(local_search, "search", broken)
    fabric = fabric_of([(1, 101, 3e6), (1, 102, 2e6), (2, 101, 3e6), (2, 102, 2e6)])
    problem = problem_of(fabric, [flow("a", (1, h), (2, h), 2e6) for h in (1, 2)])
    slow = whole((link_between(fabric, 1, 102), link_between(fabric, 102, 2)))
    answer = planned(pinned(problem, {f.id: slow for f in problem.flows}))
    assert answer.solver in ("greedy", "edge-coloring")
    assert answer.max_slowdown == 1


def test_broken_routes_of_a_problem_that_contradicts_itself_have_no_repair(fabric: Fabric, running: Plan) -> None:
    problem = pinned(problem_of(without_cable(fabric, 1, 101), demo_flows()), running.routes)
    assert problem.broken
    twice = replace(problem, flows=problem.flows * 2)
    assert repair_first(twice, {}) == (None, twice)


def test_a_running_plan_survives_a_solver_without_time(fabric: Fabric, running: Plan) -> None:
    background = {link_between(fabric, leaf, 100 + leaf): 0.95 * RATE for leaf in (1, 2, 3, 4)}
    problem = pinned(problem_of(fabric, demo_flows(), background=background), running.routes)
    answer = planned(problem, PlanLimits(time_limit_s=1e-9, max_moves=0))
    assert (answer.solver, answer.moves) == ("running", 0)
    assert answer.certificate == "heuristic"
    assert answer.gap > 0


def test_a_fragmented_placement_that_the_greedy_spoils_is_solved() -> None:
    """Two rings of eight run on hosts in random order, where the greedy reaches only slowdown 2."""
    places = ["14", "44", "23", "43", "32", "21", "24", "22", "11", "31", "42", "33", "41", "12", "34", "13"]
    hosts = [(int(place[0]), int(place[1])) for place in places]
    problem = problem_of(leaf_spine(4, 4), [*ring("a", hosts[:8]), *ring("b", hosts[8:])])
    assert max(job_slowdowns(problem, greedy.assign(problem, keep_current=False)).values()) == 2
    assert planned(problem).job_slowdown == {"a": 1, "b": 1}


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
    answer = plan(spoil(problem_of(fabric, demo_flows())), LIMITS)
    assert isinstance(answer, NoPlan)
    assert words in answer.reason


def test_a_current_path_that_makes_no_sense_is_ignored(fabric: Fabric) -> None:
    problem = problem_of(fabric, demo_flows())
    nonsense: Path = (LinkId(problem.flows[0].src_leaf, problem.flows[0].nic_links[0].port),)
    answer = planned(pinned(problem, {f.id: whole(nonsense) for f in problem.flows}), replace(LIMITS, max_moves=0))
    assert (answer.moves, answer.max_slowdown) == (0, 1)


def test_a_routing_that_the_checker_refuses_is_not_the_plan_however_good_it_claims_to_be(fabric: Fabric) -> None:
    problem = problem_of(fabric, [flow("a", (1, h), (2, h), RATE) for h in (1, 2)])
    first, second, *_ = problem.candidates(problem.flows[0])
    one, other = (f.id for f in problem.flows)
    right = draft(problem, "right", {one: whole(first), other: whole(second)})
    crowded = draft(problem, "crowded", {one: whole(first), other: whole(first)})
    wrong = replace(right, solver="wrong", routes={one: whole(first[:1]), other: whole(second)})

    def chosen(*drafts: Draft) -> Plan | NoPlan:
        return judged(problem, LIMITS, lambda _: Drafts([*drafts]))

    for drafts, solver in (([wrong, right], "right"), ([crowded, right], "right"), ([wrong, crowded], "crowded")):
        answer = chosen(*drafts)
        assert isinstance(answer, Plan)
        assert answer.solver == solver
    refused = chosen(wrong)
    assert isinstance(refused, NoPlan)
    assert "not among the candidates" in refused.reason
