"""Demand, load and slowdown, against numbers worked out by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest

from controller.fabric.topology import PortNo
from controller.planning.baselines import Numbered, baseline_slowdowns, first_fit, fold_coloring
from controller.planning.efficiency import (
    ecmp_job_slowdowns,
    ecmp_slowdown,
    first_difference,
    hashed_links,
    job_slowdowns,
    network_efficiency,
    outweighed,
    phase_slowdowns,
)
from controller.planning.next_hops import NextHops
from controller.planning.problem import Flow, Ints, PathShare, PlanLimits, Problem, whole
from controller.planning.snapshot import demands, ideal_communication_s, ideal_time_s
from signalbox.jobs.collectives import VirtualLink
from signalbox.jobs.spec import JobId
from tests.support.planning.fabrics import (
    RATE,
    across,
    demo_flows,
    every_routing,
    fabric_of,
    flow,
    leaf_spine,
    link_between,
    pinned,
    problem_of,
    two_leaves,
)
from tests.support.planning.plans import link_loads, planned

NICS = {"a": 8e6, "b": 8e6, "c": 4e6}
SHARED = leaf_spine(2, 1, capacity=4.0)


def test_demands_fill_the_slowest_nic_and_are_divided_by_bytes() -> None:
    """A ring sends at the rate of its slowest NIC. Receiving counts as sending does, and phases follow each other."""
    ring = [VirtualLink("a", "b", 0, 10**6), VirtualLink("b", "c", 0, 10**6), VirtualLink("c", "a", 0, 10**6)]
    assert ideal_time_s(ring, NICS) == {0: 2.0}
    assert demands(ring, NICS) == dict.fromkeys([("a", "b"), ("b", "c"), ("c", "a")], ((0, 4000000.0),))
    to_two = [VirtualLink("a", "b", 0, 3 * 10**6), VirtualLink("a", "c", 0, 10**6)]
    assert demands(to_two, NICS) == {("a", "b"): ((0, 6e6),), ("a", "c"): ((0, 2e6),)}
    assert ideal_time_s([VirtualLink("a", "c", 0, 10**6), VirtualLink("b", "c", 0, 10**6)], NICS) == {0: 4.0}
    phases = [VirtualLink("a", "b", 5, 10**6), VirtualLink("a", "b", 0, 2 * 10**6)]
    assert demands(phases, NICS) == {("a", "b"): ((0, 8e6), (5, 8e6))}
    assert ideal_communication_s(phases, NICS) == 3.0


def test_a_link_counts_each_jobs_worst_phase_and_a_slowdown_each_jobs_worst_link() -> None:
    """The two phases of job a demand 3 and 1 + 4 on a link of capacity 4, and job b demands 2.

    Job c uses the other direction. A phase has its own load and the worst phase of every other job, because two phases
    of one job never send at the same time."""
    flows = [
        flow("a", (1, 1), (2, 1), ((0, 3.0), (1, 1.0))),
        flow("a", (1, 2), (2, 2), ((1, 4.0),)),
        flow("b", (1, 3), (2, 3), ((0, 2.0),)),
        flow("c", (2, 4), (1, 4), ((0, 2.0),)),
    ]
    problem = problem_of(SHARED, flows, nic_bps=4.0)
    routes = {f.id: whole(problem.candidates(f)[0]) for f in flows}
    assert link_loads(problem, routes)[link_between(SHARED, 1, 101)] == pytest.approx((5 + 2) / 4)
    slowdowns = job_slowdowns(problem, routes)
    assert slowdowns == {"a": 1.75, "b": 1.75, "c": 1.0}
    assert network_efficiency(slowdowns.values()) == pytest.approx(1 / 1.75)
    assert phase_slowdowns(problem, routes) == {
        "a": {0: pytest.approx((3 + 2) / 4), 1: pytest.approx((5 + 2) / 4)},
        "b": {0: pytest.approx((2 + 5) / 4)},
        "c": {0: 1.0},
    }


def test_a_flow_without_route_loads_nothing_and_a_job_without_any_has_no_slowdown() -> None:
    flows = [flow("a", (1, 1), (2, 1), 1.0), flow("b", (1, 2), (2, 2), 1.0)]
    problem = problem_of(leaf_spine(2, 1, capacity=1.0), flows, nic_bps=1.0)
    assert job_slowdowns(problem, {flows[0].id: whole(problem.candidates(flows[0])[0])}) == {"a": 1.0}
    assert network_efficiency([]) is None


def test_slowdowns_differ_only_beyond_the_tolerance() -> None:
    assert first_difference((2.0, 1.0), (2.0000001, 1.0)) is None
    assert first_difference((2.0, 1.5), (2.0000001, 1.0)) == 1


# ---- connections of other jobs


def with_subflows(of: Flow, count: int) -> list[Flow]:
    demand_bps = tuple((phase, bps / count) for phase, bps in of.demand_bps)
    return [replace(of, id=of.id._replace(subflow=subflow), demand_bps=demand_bps) for subflow in range(count)]


@pytest.mark.parametrize(
    ("subflows", "capacity", "slower"),
    [
        ((1, 1), 1.0, set()),
        ((4, 4), 1.0, set()),
        ((1, 4), 1.0, {"a"}),
        ((4, 2), 1.0, {"b"}),
        ((1, 4), 4.9, {"a"}),
        ((1, 4), 5.0, set()),
    ],
)
def test_a_job_with_fewer_connections_is_outweighed_where_a_link_is_too_full_for_all(
    subflows: tuple[int, int], capacity: float, slower: set[str]
) -> None:
    """Each of 5 connections on a link has a fifth of it.

    A fifth is enough for a flow of one connection when the link has five times its demand."""
    fabric = leaf_spine(2, 1, capacity)
    flows = [
        subflow
        for host, (job, count) in enumerate(zip("ab", subflows, strict=True), 1)
        for subflow in with_subflows(flow(job, (1, host), (2, host), 1.0), count)
    ]
    problem = problem_of(fabric, flows, nic_bps=10.0)
    routes = {of.id: whole(problem.candidates(of)[0]) for of in flows}
    assert outweighed(problem, routes) == slower


@pytest.mark.parametrize("paced", [True, False])
def test_subflows_that_are_not_paced_are_a_connection_each(paced: bool) -> None:
    """A whole flow shares a link with a subflow that has 10 % of another flow."""
    fabric = leaf_spine(2, 2, capacity=1.0)
    flows = [flow("a", (1, 1), (2, 1), 1.0), replace(flow("b", (1, 2), (2, 2), 1.0), max_subflows=2, paced=paced)]
    problem = problem_of(fabric, flows, nic_bps=10.0)
    left, right = problem.candidates(flows[0])
    routes = {flows[0].id: whole(left), flows[1].id: (PathShare(left, 0.1), PathShare(right, 0.9))}
    assert ("a" in outweighed(problem, routes)) == (not paced)


# ---- slowdowns under hashing


def test_the_mean_over_draws_is_the_mean_over_all_routings() -> None:
    """All 16 routings of four flows over two spines are equally likely on a leaf-spine."""
    flows = [flow(job, (1, h), (2, h), ((h % 2, RATE),)) for h, job in enumerate("aabb")]
    problem = problem_of(leaf_spine(2, 2), flows)
    slowdowns = [job_slowdowns(problem, paths) for paths in every_routing(problem)]
    exact = sum(max(of.values()) for of in slowdowns) / len(slowdowns)
    assert ecmp_slowdown(problem, 20_000, seed=3).mean == pytest.approx(exact, rel=0.02)
    mean_a = sum(of[JobId("a")] for of in slowdowns) / len(slowdowns)
    assert ecmp_job_slowdowns(problem, {}, 20_000, seed=3)[JobId("a")] == pytest.approx(mean_a, rel=0.02)


def test_a_switch_hashes_over_its_own_next_hops_not_over_paths() -> None:
    """Each first hop is taken half of the time.

    1 -> 2 -> 9 is one path, 1 -> 3 -> (two cables) -> 9 are two. The slow cable out of 2 is four times too slow."""
    fabric = fabric_of([(1, 2, RATE), (1, 3, RATE), (2, 9, RATE / 4), (3, 9, RATE), (3, 9, RATE)])
    problem = problem_of(fabric, [flow("a", (1, 1), (9, 1), RATE)])
    assert ecmp_slowdown(problem, 20_000, seed=1).mean == pytest.approx(0.5 * 4 + 0.5 * 1, rel=0.03)


def test_pinned_flows_are_where_they_are_and_only_the_others_are_hashed() -> None:
    base = problem_of(leaf_spine(4, 4), demo_flows())
    answer = planned(base)
    problem = pinned(base, answer.routes)
    assert ecmp_job_slowdowns(problem, answer.routes, 10, seed=1) == dict(answer.job_slowdown)
    partly = {f.id: answer.routes[f.id] for f in base.flows if f.job_id != "job1"}
    slowdowns = ecmp_job_slowdowns(problem, partly, 200, seed=1)
    everything = ecmp_job_slowdowns(problem, {}, 200, seed=1)
    assert all(1 < slowdowns[job] < everything[job] for job in slowdowns)
    assert everything == ecmp_job_slowdowns(problem, {}, 200, seed=1) != ecmp_job_slowdowns(problem, {}, 200, seed=2)


def test_a_pinned_flow_in_subflows_loads_each_path_with_its_share() -> None:
    """The flow b shares its link with half of a, whichever spine b is hashed to. A pin over a lost link is hashed."""
    problem = two_leaves(2, "ab")
    a, b = problem.flows
    halves = tuple(PathShare(path, 0.5) for path in problem.candidates(a))
    gone = tuple(link._replace(port=PortNo(99)) for link in halves[0].path)
    assert ecmp_job_slowdowns(problem, {a.id: halves, b.id: whole(gone)}, 10, seed=1) == {"a": 1.5, "b": 1.5}


def test_hashing_ignores_the_cap_on_candidate_paths() -> None:
    """A switch hashes over all of its next hops, however few paths the planner considers.

    One of the four cables from the pods to the cores is four times too slow: one draw in four meets it."""
    pods = [(pod, core, RATE) for pod in (11, 12) for core in (101, 102)]
    cores = [(core, pod, RATE) for core in (101, 102) for pod in (13, 14)]
    fabric = fabric_of([(1, 11, RATE), (1, 12, RATE), *pods, *cores, (13, 2, RATE), (14, 2, RATE)])
    slow = link_between(fabric, 11, 101)
    problem = problem_of(fabric, across("a"), background={slow: RATE * 0.75}, max_paths=1)
    assert len(problem.candidates(problem.flows[0])) == 1
    assert ecmp_slowdown(problem, 20_000, seed=1).mean == pytest.approx(0.25 * 4 + 0.75 * 1, rel=0.03)


def test_flows_without_a_path_are_not_hashed() -> None:
    """Leaf 3 has no cable."""
    fabric = leaf_spine(3, 2, without=[(3, 1), (3, 2)])
    lost = flow("b", (1, 2), (3, 1), RATE)
    assert ecmp_job_slowdowns(problem_of(fabric, [*across("a"), lost]), {}, 10, seed=1) == {"a": 1}
    for nothing in (problem_of(fabric, [lost]), problem_of(fabric_of([]), [lost])):
        assert ecmp_slowdown(nothing, 10, seed=1).mean == 1
        assert ecmp_job_slowdowns(nothing, {}, 10, seed=1) == {}


def test_hashing_spreads_flows_evenly_at_every_hop() -> None:
    """The 1,500 flows cross three tiers with two choices at the leaf and two above: a quarter each."""
    cables = [(1, 11), (1, 12), (11, 101), (11, 102), (12, 101), (12, 102), (2, 13), (13, 101), (13, 102)]
    fabric = fabric_of((a, b, RATE) for a, b in cables)
    problem = problem_of(fabric, [flow("a", (1, host), (2, host), 1.0) for host in range(1500)])
    taken = hashed_links(problem, NextHops(problem), seed=1)
    counts = Counter(map(tuple, taken[:2].T.tolist()))
    assert len(counts) == 4
    assert all(abs(count - 375) < 5 * 375**0.5 for count in counts.values())


# ---- whether pinning an all-to-all gains anything (docs/explanation/planning.md)


@pytest.mark.parametrize(
    ("jobs", "hosts_of_each", "mean"),
    [(1, 1, 1.0), (2, 1, 1.28), (3, 1, 1.72), (4, 1, 2.1), (1, 2, 1.02), (1, 4, 1.23)],
)
def test_an_all_to_all_is_hashed_without_loss_only_where_no_collision_can_fill_a_link(
    jobs: int, hosts_of_each: int, mean: float
) -> None:
    """The fabric has 4 leaves and 4 spines, and all flows of a job send at once; pins always reach slowdown 1."""
    flows = []
    for job in range(jobs):
        hosts = [(leaf, job * hosts_of_each + host) for leaf in (1, 2, 3, 4) for host in range(hosts_of_each)]
        flows += [flow(f"job{job}", src, dst, RATE / (len(hosts) - 1)) for src, dst in permutations(hosts, 2)]
    problem = problem_of(leaf_spine(4, 4), flows)
    found = planned(problem, PlanLimits(ecmp_draws=2000))
    assert found.ecmp
    assert found.max_slowdown == pytest.approx(1.0)
    assert found.ecmp.mean == pytest.approx(mean, rel=0.03)
    assert found.ecmp.is_as_good_as(found.max_slowdown, 0.02) == (jobs == hosts_of_each == 1)


# ---- published schemes


LIMITS = PlanLimits(ecmp_draws=20)


def spines(numbered: Numbered, links: Ints) -> list[int]:
    far_end = numbered.problem.paths.far_end
    return [far_end[numbered.next_hops.links[link]] for link in links[0].tolist()]


def test_a_flow_that_cannot_take_the_spine_of_its_colour_takes_the_path_of_that_number() -> None:
    """Leaf 1 has no cable to 102. Its flows have the colours 0 to 3, and those of colour 1 take path 1, over 103."""
    flows = [*across("aaaa"), flow("a", (3, 1), (4, 1), RATE)]
    numbered = Numbered(problem_of(leaf_spine(4, 3, without=[(1, 2)]), flows))
    taken = spines(numbered, fold_coloring(numbered.problem, numbered.choices))
    assert sorted(taken[:4]) == [101, 101, 103, 103]


def test_first_fit_looks_for_room_on_every_link_of_a_path() -> None:
    """The flows leave different leaves and fill the link from the first spine down to the leaf that they share."""
    flows = [flow("a", (src, 1), (3, src), RATE) for src in (1, 2)]
    numbered = Numbered(problem_of(leaf_spine(3, 2), flows))
    assert spines(numbered, first_fit(numbered.choices, numbered.hashed(1))) == [101, 102]


def test_the_quick_schemes_include_ecmp_unless_its_draws_take_too_long() -> None:
    problem = problem_of(leaf_spine(4, 3), demo_flows())
    assert baseline_slowdowns(problem, LIMITS)["ecmp"] == ecmp_slowdown(problem, 20, LIMITS.seed).mean
    assert "ecmp" not in baseline_slowdowns(problem, replace(LIMITS, ecmp_draws=1_000_000))


@pytest.mark.parametrize(
    "problem",
    [two_leaves(2, 8000 * "a"), replace(two_leaves(2, "a"), capacity_bps={})],
    ids=["large", "contradictory"],
)
def test_problems_without_quick_schemes(problem: Problem) -> None:
    assert baseline_slowdowns(problem, LIMITS) == {}
