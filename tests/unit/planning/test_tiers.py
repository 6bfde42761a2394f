"""Detection of three tiers in the graph."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.fabric.shortest_paths import CandidatePaths
from controller.fabric.topology import Dpid, Fabric
from controller.planning.tiers import Tiers, find_tiers
from tests.support.planning.fabrics import RATE, fabric_of, leaf_spine, three_tier_cables, three_tiers

LEAVES = 4
"""Number of leaves: two pods of two leaves each."""


def tiers_of(fabric: Fabric, leaves: int = LEAVES) -> Tiers | None:
    return find_tiers(CandidatePaths(fabric, 64), [Dpid(leaf) for leaf in range(1, leaves + 1)])


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


def test_planes_without_cores_are_left_out() -> None:
    tiers = tiers_of(three_tiers(2, 2, [0, 1, 2]))
    assert tiers
    assert tiers.core_links == [2, 1]
    assert [len(common) for common in tiers.up.values()] == [2] * LEAVES


def test_parallel_cables_are_lanes_of_their_own() -> None:
    fabric = fabric_of((a, b, RATE) for a, b in 2 * three_tier_cables(2, 2, [2, 1]))
    tiers = tiers_of(fabric)
    assert tiers
    assert tiers.plane == (0, 0, 1, 1)
    assert tiers.core_links == [4, 2]


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
