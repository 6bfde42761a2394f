"""Fat-trees and other three-tier fabrics: whole flows coloured twice, split flows cut on both tiers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.topology import CandidatePaths, Dpid, Fabric
from controller.planning import planner
from controller.planning.plan import Drafts
from controller.planning.problem import Flow, Tiers, find_tiers
from controller.planning.three_tiers import Room, choose
from offline.scenarios import fabrics
from tests.support.planning.fabrics import (
    RATE,
    brute_force,
    fabric_of,
    flow,
    leaf_spine,
    pinned,
    problem_of,
    three_tier_cables,
    three_tiers,
)
from tests.support.planning.plans import planned
from tests.support.planning.split_problems import split

quick = settings(max_examples=30)
Ends = Sequence[tuple[int, int]]


@pytest.fixture(autouse=True)
def _closed_forms_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "_search", lambda *_: Drafts([]))


def flows_of(ends: Ends, max_subflows: int = 1, jobs: int = 1) -> list[Flow]:
    return split([flow(f"job{n % jobs}", (src, n), (dst, n), RATE) for n, (src, dst) in enumerate(ends)], max_subflows)


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
    return max(count for side in zip(*ends, strict=True) for count in Counter(side).values())


# ---- whole flows


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


@settings(max_examples=25)
@given(st.lists(between_pods, min_size=1, max_size=5), st.sampled_from([(2, 1), (3, 1), (3, 2), (2, 2, 1), (2, 1, 1)]))
def test_where_cores_have_failed_whole_flows_still_get_the_least_worst_slowdown(
    ends: Ends, cores: Sequence[int]
) -> None:
    problem = problem_of(three_tiers(2, 2, cores), flows_of(ends))
    vector, _ = brute_force(problem)
    assert planned(problem).max_slowdown == vector[0]


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
        ([8, 9, 10, 11, 12, 13, 14, 15], 16 / 8),
    ],
)
def test_three_subflows_reach_what_is_left_of_the_cores(dead: list[int], slowdown: float) -> None:
    ends = permutation(8, random.Random(len(dead)), between_pods=True)
    answer = planned(problem_of(fat_tree(8, dead), flows_of(ends, max_subflows=3, jobs=4)))
    assert answer.max_slowdown == pytest.approx(slowdown, rel=1e-9)
    assert answer.certificate == "optimal"


def test_two_subflows_share_what_a_core_takes_whole() -> None:
    """Four flows of a colour have three cores in one plane: subflows of 4/7 of two flows share one of these cores.

    Other planes carry the rest of these two flows, at a load of 8/7."""
    ends = permutation(8, random.Random(1), between_pods=True)
    answer = planned(problem_of(fat_tree(8, [15]), flows_of(ends, max_subflows=2)))
    assert answer.max_slowdown == pytest.approx(8 / 7)
    assert answer.bound == pytest.approx(16 / 15)
    assert max(map(len, answer.routes.values())) == 2


# ---- the choice among planes with unequal numbers of cores


LEAVES = (0, 0, 1, 1), (2, 2, 3, 3)
PODS = (0, 0, 0, 0), (1, 1, 1, 1)
UNKNOWN = [-1] * 4


def test_leaves_and_pods_have_room_in_every_group() -> None:
    chosen = choose(LEAVES, PODS, [Room(1, 2), Room(1, 2)], UNKNOWN)
    assert chosen
    assert {chosen[0], chosen[1]} == {chosen[2], chosen[3]} == {0, 1}
    assert choose(LEAVES, PODS, [Room(2, 3), Room(1, 1)], UNKNOWN)
    assert choose(LEAVES, ((0,) * 4, (0,) * 4), [Room(2, 0), Room(2, 0)], UNKNOWN), "flows within a pod"
    assert choose(LEAVES, PODS, [Room(1, 2), Room(1, 2)], [1, 0, 0, 1]) == [1, 0, 0, 1], "flows that run stay"
    for rooms in ([Room(1, 4), Room(0, 4)], [Room(2, 2), Room(2, 1)]):
        assert choose(LEAVES, PODS, rooms, UNKNOWN) is None, "there may be no choice"


# ---- detection of three tiers in the graph


def tiers_of(fabric: Fabric, leaves: int = 4) -> Tiers | None:
    return find_tiers(CandidatePaths(fabric, 64), [Dpid(leaf) for leaf in range(1, leaves + 1)])


@settings(max_examples=20)
@given(st.randoms(use_true_random=False))
def test_names_and_numbers_do_not_matter(rng: random.Random) -> None:
    cables = three_tier_cables(3, 2, [3, 2])
    number = dict(zip(range(300), rng.sample(range(1, 10**6), 300), strict=True))
    rng.shuffle(cables)
    fabric = fabric_of((number[a], number[b], RATE) for a, b in cables)
    tiers = find_tiers(CandidatePaths(fabric, 64), [Dpid(number[leaf]) for leaf in range(1, 7)])
    assert tiers
    assert tiers.core_links == [3, 2]
    assert sorted(tiers.pod.values()) == [0, 0, 1, 1, 2, 2]
    assert {tiers.pod[Dpid(number[1])], tiers.pod[Dpid(number[2])]} != {tiers.pod[Dpid(number[3])]}
    for leaf, pod in tiers.pod.items():
        for common_link, (up, down) in enumerate(zip(tiers.up[leaf], tiers.down[leaf], strict=True)):
            agg = fabric.links[up].dst.dpid
            assert fabric.links[down].src.dpid == agg
            plane = tiers.plane[common_link]
            for out, into in zip(tiers.core_up[plane][pod], tiers.core_down[plane][pod], strict=True):
                assert out.dpid == fabric.links[into].dst.dpid == agg
    for plane, pods in enumerate(tiers.core_up):
        cores = [[fabric.links[link].dst.dpid for link in common] for common in pods]
        assert cores == [[link.dpid for link in common] for common in tiers.core_down[plane]]
        assert all(of_pod == cores[0] for of_pod in cores)


def test_only_the_leaves_that_matter_count() -> None:
    """A third pod, and the other leaf of each pod, may be cabled in any way."""
    cables = three_tier_cables(3, 2, [2, 2])
    cables = [cable for cable in cables if cable not in ((2, 101), (106, 204))]
    tiers = find_tiers(CandidatePaths(fabric_of((a, b, RATE) for a, b in cables), 64), [Dpid(1), Dpid(3)])
    assert tiers
    assert tiers.core_links == [2, 2]


def test_parallel_cables_are_common_links_of_their_own_and_planes_without_cores_are_left_out() -> None:
    tiers = tiers_of(fabric_of((a, b, RATE) for a, b in 2 * three_tier_cables(2, 2, [0, 2, 1])))
    assert tiers
    assert tiers.plane == (0, 0, 1, 1)
    assert tiers.core_links == [4, 2]
    assert [len(common) for common in tiers.up.values()] == [4] * 4


CABLES = three_tier_cables(2, 2, [2, 2])


@pytest.mark.parametrize(
    "cables",
    [
        [cable for cable in CABLES if cable != (1, 101)],
        [*CABLES, (1, 101)],
        [*CABLES, (101, 202)],
        [*CABLES, (101, 203)],
        [*CABLES, (101, 104)],
        [*CABLES, (1, 3)],
        [*CABLES, (1, 103)],
        [(a, b) for a in (1, 2, 3, 4) for b in (101, 102)],
    ],
    ids=["no edge cable", "two", "two to a core", "core of two planes", "between pods", "of leaves", "pods", "spines"],
)
def test_other_fabrics_have_no_tiers(cables: list[tuple[int, int]]) -> None:
    assert tiers_of(fabric_of((a, b, RATE) for a, b in cables)) is None


def test_a_core_that_one_of_three_pods_has_lost_makes_them_unlike() -> None:
    cables = [cable for cable in three_tier_cables(3, 2, [2, 2]) if cable != (105, 201)]
    fabric = fabric_of((a, b, RATE) for a, b in cables)
    assert tiers_of(fabric, 6) is None
    assert tiers_of(fabric, 4)
    assert find_tiers(CandidatePaths(leaf_spine(3, 2), 64), [Dpid(1), Dpid(2)]) is None
