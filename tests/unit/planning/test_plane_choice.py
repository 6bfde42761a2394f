"""The choice among the planes of a three-tier fabric when planes have unequal numbers of cores."""

from __future__ import annotations

from controller.planning.three_tiers import Room, choose

LEAVES = (0, 0, 1, 1), (2, 2, 3, 3)
PODS = (0, 0, 0, 0), (1, 1, 1, 1)
UNKNOWN = [-1] * 4


def test_leaves_and_pods_have_room_in_every_group() -> None:
    chosen = choose(LEAVES, PODS, [Room(1, 2), Room(1, 2)], UNKNOWN)
    assert chosen
    assert {chosen[0], chosen[1]} == {chosen[2], chosen[3]} == {0, 1}
    assert choose(LEAVES, PODS, [Room(2, 3), Room(1, 1)], UNKNOWN)


def test_there_may_be_no_choice() -> None:
    assert choose(LEAVES, PODS, [Room(1, 4), Room(0, 4)], UNKNOWN) is None
    assert choose(LEAVES, PODS, [Room(2, 2), Room(2, 1)], UNKNOWN) is None


def test_flows_within_a_pod_need_no_cores() -> None:
    assert choose(LEAVES, ((0,) * 4, (0,) * 4), [Room(2, 0), Room(2, 0)], UNKNOWN)


def test_flows_that_run_stay_where_there_is_room() -> None:
    assert choose(LEAVES, PODS, [Room(1, 2), Room(1, 2)], [1, 0, 0, 1]) == [1, 0, 0, 1]
