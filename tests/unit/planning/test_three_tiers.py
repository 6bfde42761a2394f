"""Fat-trees and other three-tier fabrics: whole flows coloured twice, split flows cut on both tiers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.topology import Fabric
from controller.planning import planner
from controller.planning.plan import Drafts, Plan
from controller.planning.planner import plan
from controller.planning.problem import Flow, PlanLimits, Problem
from offline.scenarios import fabrics
from tests.support.planning.fabrics import (
    RATE,
    brute_force,
    fabric_of,
    flow,
    pinned,
    problem_of,
    three_tier_cables,
    three_tiers,
)

quick = settings(max_examples=50, deadline=None)
Ends = Sequence[tuple[int, int]]


@pytest.fixture(autouse=True)
def _closed_forms_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the planner use the closed form alone."""
    monkeypatch.setattr(planner, "_solved", lambda *_: Drafts([]))


def flows_of(ends: Ends, max_subflows: int = 1, jobs: int = 1) -> list[Flow]:
    """Return flows between these leaves, each between its own two hosts."""
    return [
        replace(flow(f"job{n % jobs}", (src, n), (dst, n), RATE), max_subflows=max_subflows)
        for n, (src, dst) in enumerate(ends)
    ]


def planned(problem: Problem) -> Plan:
    answer = plan(problem, PlanLimits(ecmp_draws=0))
    assert isinstance(answer, Plan)
    return answer


def fat_tree(k: int, dead: Iterable[int] = ()) -> Fabric:
    fabric = fabrics.fat_tree(k, RATE, RATE)
    return fabrics.without(fabric, fabrics.spine_links(fabric, dead)) if dead else fabric


def permutation(k: int, rng: random.Random, between_pods: bool) -> Ends:
    """Return a permutation of the hosts of a fat-tree, as pairs of leaves, which are switches 1, 2, ...."""
    hosts = list(range(k**3 // 4))
    per_leaf, per_pod = k // 2, k * k // 4
    to = rng.sample(hosts, len(hosts))
    if between_pods:
        while same := [host for host in hosts if to[host] // per_pod == host // per_pod]:
            other = rng.choice(hosts)
            to[same[0]], to[other] = to[other], to[same[0]]
    return [(1 + host // per_leaf, 1 + to[host] // per_leaf) for host in hosts]


def fullest(ends: Ends) -> int:
    """Return the largest number of flows out of one place or into it."""
    return max(count for side in zip(*ends, strict=True) for count in Counter(side).values())


# ---- whole flows


@pytest.mark.parametrize("k", [4, 6, 8])
def test_any_permutation_gets_links_of_its_own(k: int) -> None:
    """The theorem of Slepian and Duguid applies twice."""
    ends = permutation(k, random.Random(k), between_pods=False)
    answer = planned(problem_of(fat_tree(k), flows_of(ends, jobs=5)))
    assert answer.max_slowdown == 1
    assert answer.certificate == "optimal"
    assert answer.solver == "edge-coloring"
    used = Counter(link for route in answer.routes.values() for subflow in route for link in subflow.path)
    assert max(used.values()) == 1


three_tier_flows = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=60)


@quick
@given(three_tier_flows, st.integers(1, 3), st.integers(2, 4))
def test_with_as_many_cores_as_leaves_only_leaves_bound_the_slowdown(ends: Ends, planes: int, cores: int) -> None:
    """Three pods have two leaves each, and some flows stay within a pod."""
    answer = planned(problem_of(three_tiers(3, 2, [cores] * planes), flows_of(ends)))
    crossing = [(src, dst) for src, dst in ends if src != dst] or [(1, 2)]
    assert answer.max_slowdown == -(-fullest(crossing) // planes)
    assert answer.certificate == "optimal"


@quick
@given(three_tier_flows, st.integers(1, 3), st.integers(1, 3), st.integers(1, 2))
def test_pods_that_are_narrower_than_their_leaves_are_filled_evenly(
    ends: Ends, planes: int, cores: int, cables: int
) -> None:
    ends = [(src, dst) for src, dst in ends if (src - 1) // 2 != (dst - 1) // 2] or [(1, 3)]
    fabric = fabric_of((a, b, RATE) for a, b in cables * three_tier_cables(3, 2, [cores] * planes))
    answer = planned(problem_of(fabric, flows_of(ends)))
    of_pod = fullest([((src - 1) // 2, (dst - 1) // 2) for src, dst in ends])
    expected = max(-(-fullest(ends) // (cables * planes)), -(-of_pod // (cables * planes * cores)))
    assert answer.max_slowdown == expected
    assert answer.bound == expected


def test_a_plane_with_few_cores_is_left_out_where_that_is_better() -> None:
    ends = permutation(8, random.Random(1), between_pods=True)
    answer = planned(problem_of(fat_tree(8, [13, 14, 15]), flows_of(ends)))
    assert answer.max_slowdown == answer.bound == 2


between_pods = st.tuples(st.integers(1, 4), st.integers(1, 4)).filter(lambda ends: (ends[0] > 2) != (ends[1] > 2))


@settings(max_examples=40, deadline=None)
@given(st.lists(between_pods, min_size=1, max_size=5), st.sampled_from([(2, 1), (3, 1), (3, 2), (2, 2, 1), (2, 1, 1)]))
def test_where_cores_have_failed_whole_flows_still_get_the_least_worst_slowdown(
    ends: Ends, cores: Sequence[int]
) -> None:
    problem = problem_of(three_tiers(2, 2, cores), flows_of(ends))
    vector, _ = brute_force(problem)
    assert planned(problem).max_slowdown == vector[0]


def test_one_core_less_costs_nothing_where_every_pod_has_a_flow_less_than_cores() -> None:
    """The missing flow of every pod has to be in the plane with three cores, for all pods at once."""
    ends = permutation(8, random.Random(1), between_pods=True)
    out, into = Counter[int](), Counter[int]()
    kept = []
    for src, dst in ends:
        pods = (src - 1) // 4, (dst - 1) // 4
        if out[pods[0]] < 15 and into[pods[1]] < 15:
            kept.append((src, dst))
            out[pods[0]] += 1
            into[pods[1]] += 1
    answer = planned(problem_of(fat_tree(8, [15]), flows_of(kept)))
    assert answer.max_slowdown == 1
    assert answer.certificate == "optimal"


# ---- running routes


def test_a_permutation_that_runs_stays() -> None:
    ends = permutation(8, random.Random(1), between_pods=False)
    problem = problem_of(fat_tree(8), flows_of(ends))
    before = planned(problem)
    lost = random.Random(2).sample(problem.flows, 6)
    gone = pinned(problem, {of: route for of, route in before.routes.items() if of not in {flow.id for flow in lost}})
    answer = planned(gone)
    assert answer.max_slowdown == 1
    assert answer.moves < len(ends) // 3


# ---- split flows


@pytest.mark.parametrize(
    ("dead", "slowdown"),
    [
        ([15], 16 / 15),
        ([3, 15], 16 / 14),
        ([12, 13, 14, 15], 16 / 12),
        ([3, 7, 11, 15], 16 / 12),
        ([10, 11, 14, 15], 16 / 12),
        ([11, 13, 14, 15], 16 / 12),
        ([8, 9, 10, 11, 12, 13, 14, 15], 16 / 8),
    ],
)
def test_three_subflows_reach_what_is_left_of_the_cores(dead: list[int], slowdown: float) -> None:
    ends = permutation(8, random.Random(len(dead)), between_pods=True)
    answer = planned(problem_of(fat_tree(8, dead), flows_of(ends, max_subflows=3, jobs=4)))
    assert answer.max_slowdown == pytest.approx(slowdown, rel=1e-9)
    assert answer.certificate == "optimal"
    assert max(map(len, answer.routes.values())) <= 3
    for route in answer.routes.values():
        assert sum(subflow.share for subflow in route) == pytest.approx(1, abs=1e-12)


def test_two_subflows_share_what_a_core_takes_whole() -> None:
    """Four flows of a colour use three cores: two subflows of 4/7 share one core, and the other planes carry 8/7."""
    ends = permutation(8, random.Random(1), between_pods=True)
    answer = planned(problem_of(fat_tree(8, [15]), flows_of(ends, max_subflows=2)))
    assert answer.max_slowdown == pytest.approx(8 / 7)
    assert answer.bound == pytest.approx(16 / 15)
    assert max(map(len, answer.routes.values())) == 2


@quick
@given(
    three_tier_flows,
    st.lists(st.integers(0, 3), min_size=1, max_size=4).filter(any),
    st.integers(2, 8),
)
def test_whatever_is_cut_adds_up(ends: Ends, cores: list[int], max_subflows: int) -> None:
    """The checker accepts the plan, which has no more subflows than allowed."""
    answer = planned(problem_of(three_tiers(3, 2, cores), flows_of(ends, max_subflows)))
    assert max(map(len, answer.routes.values())) <= max_subflows
    assert answer.max_slowdown >= answer.bound * (1 - 1e-9)
