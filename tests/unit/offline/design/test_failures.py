"""Distinct failures: each occurs once, compared to all choices of switches."""

from itertools import chain, combinations

import pytest

from offline.design.spines import count_of_ways, ways


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("failed", range(5))
@pytest.mark.parametrize(("positions", "members"), [(1, 2), (2, 4), (3, 3), (3, 6)])
def test_each_way_is_there_once(positions: int, members: int, failed: int, alike: bool) -> None:
    """The reference is the set of all choices of ``failed`` switches, without those that differ only by names."""

    def one_of(gone: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        return tuple(sorted(tuple(range(len(at))) if alike else at for at in gone))

    switches = [(at, member) for at in range(positions) for member in range(members)]
    every = {
        one_of(tuple(tuple(member for place, member in gone if place == at) for at in range(positions)))
        for gone in combinations(switches, failed)
    }
    found = [*ways(positions, members, alike, failed)]
    assert {one_of(way) for way in found} == every
    assert len(found) == len(every) == count_of_ways(positions, members, alike, failed)
    assert all(len([*chain(*way)]) == failed for way in found)


def test_ways_of_a_large_fabric_are_counted_without_listing_them() -> None:
    """Two of the 512 aggregation switches of a fat-tree of k = 32 fail.

    They are at one position in 32 * 31 / 2 pairs of pods, or at two positions in 32 * 33 / 2."""
    assert count_of_ways(16, 32, False, 2) == 496 + 528
    assert count_of_ways(16, 32, False, 20) > 10**15
