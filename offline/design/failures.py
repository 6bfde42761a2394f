"""The ways in which some switches of a fat-tree's upper tiers can fail, up to exchanging positions: how many there are,
and each of them. Pure.

A position of an aggregation switch in its pod has a group of cores, and all positions are alike. So a way is a multiset
of what fails at each position: some of the pods whose switch it is, or how many of the cores, which are alike too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import combinations
from math import comb

Members = tuple[int, ...]
"""What fails at a position, by number."""


def ways(positions: int, members: int, alike: bool, failed: int) -> Iterator[tuple[Members, ...]]:
    """By position, each way once; those positions where nothing fails are last. ``members``: of a position, of which
    ``failed`` fail in all. ``alike``: exchanging members differs in nothing."""

    def some(size: int) -> Iterator[Members]:
        return iter((tuple(range(size)),)) if alike else combinations(range(members), size)

    return _from(positions, failed, min(members, failed), None, some)


def _from(
    positions: int, failed: int, largest: int, last: Members | None, some: Callable[[int], Iterator[Members]]
) -> Iterator[tuple[Members, ...]]:
    """Larger ones first, of one size in the order of ``some``. ``last``: of the position before. What is spread over
    most positions comes first: it is what cuts a pod off."""
    if not failed:
        yield ((),) * positions
        return
    for size in range(-(-failed // positions) if positions else failed + 1, min(largest, failed) + 1):
        for gone in some(size):
            if last is None or len(last) > size or gone >= last:
                for rest in _from(positions - 1, failed - size, size, gone, some):
                    yield (gone, *rest)


@lru_cache(maxsize=256)  # a question asks for each number of cores
def count_of_ways(positions: int, members: int, alike: bool, failed: int) -> int:
    """How many ``ways`` there are. Of c choices with s members m positions have C(c + m - 1, m) multisets."""
    found = {(0, 0): 1}
    for size in range(1, min(failed, members) + 1):
        choices, before, found = 1 if alike else comb(members, size), found, {}
        for (used, gone), count in before.items():
            for more in range(min(positions - used, (failed - gone) // size) + 1):
                at = used + more, gone + more * size
                found[at] = found.get(at, 0) + count * comb(choices + more - 1, more)
    return sum(count for (_, gone), count in found.items() if gone == failed)
