"""Ways in which switches of a fat-tree's upper tiers can fail, up to symmetry: their number and a list. Pure.

Each position of an aggregation switch in its pod has one group of cores. Exchanging positions changes nothing, so a way
to fail is a multiset: it has the failures of each position, in no order. At one position either some pods lose their
aggregation switch, or some cores of the group fail. The cores of a group are interchangeable, so only their number
matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import combinations
from math import comb

Members = tuple[int, ...]
"""Indices of the failed members of one position, ascending.

The members of a position are the cores of its group, or the aggregation switches that have this position in their
pods."""


def ways(positions: int, members: int, alike: bool, failed: int) -> Iterator[tuple[Members, ...]]:
    """Yield each distinct way to fail, as the failed members by position; positions without failures are last.

    - ``members``: number of members of each position.
    - ``alike``: members of a position are interchangeable.
    - ``failed``: number of failed members, over all positions."""

    def some(size: int) -> Iterator[Members]:
        return iter((tuple(range(size)),)) if alike else combinations(range(members), size)

    return _from(positions, failed, min(members, failed), None, some)


def _from(
    positions: int, failed: int, largest: int, last: Members | None, some: Callable[[int], Iterator[Members]]
) -> Iterator[tuple[Members, ...]]:
    """Yield the ways in which ``failed`` members of the remaining positions can fail.

    ``largest`` and ``last`` bound the failures at the next position by those at the previous position, so that each
    multiset appears once. Ways with few failures per position are first, since failures at many positions are most
    likely to cut off a pod."""
    if not failed:
        yield ((),) * positions
        return
    for size in range(-(-failed // positions) if positions else failed + 1, min(largest, failed) + 1):
        for gone in some(size):
            if last is None or len(last) > size or gone >= last:
                for rest in _from(positions - 1, failed - size, size, gone, some):
                    yield (gone, *rest)


@lru_cache(maxsize=256)  # a design needs it for each number of cores
def count_of_ways(positions: int, members: int, alike: bool, failed: int) -> int:
    """Return the number of ``ways``. m positions with c choices each have C(c + m - 1, m) multisets."""
    found = {(0, 0): 1}
    for size in range(1, min(failed, members) + 1):
        choices, before, found = 1 if alike else comb(members, size), found, {}
        for (used, gone), count in before.items():
            for more in range(min(positions - used, (failed - gone) // size) + 1):
                at = used + more, gone + more * size
                found[at] = found.get(at, 0) + count * comb(choices + more - 1, more)
    return sum(count for (_, gone), count in found.items() if gone == failed)
