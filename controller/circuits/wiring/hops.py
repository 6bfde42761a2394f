"""Numbers of circuits on shortest paths from server to server.

In: a ``Wiring``, or the steps of a circulant one. Out: hops of each pair, or of each offset, and figures derived from
them. A set of servers is a Python integer with one bit per server. A breadth-first search from all 1,024 servers at
once then takes milliseconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from controller.circuits.wiring.circuits import Wiring

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

UNREACHED = -1
"""Value in place of the number of hops for a pair that no circuits connect."""


def hops_between(wiring: Wiring) -> Ints:
    """Return the hops from the row's server to the column's server, shape (servers, servers).

    The diagonal is 0; entries of pairs that no circuits connect are ``UNREACHED``."""
    servers = wiring.servers
    if wiring.steps is not None:
        by_offset = np.array(hops_by_offset(servers, wiring.steps))
        numbers = np.arange(servers)
        found: Ints = by_offset[(numbers[None, :] - numbers[:, None]) % servers]
        return found
    reached = [1 << server for server in range(servers)]
    missing = np.zeros((servers, servers), np.int64)
    while True:
        further = [_union(reached, to, mine) for mine, to in zip(reached, wiring.successors, strict=True)]
        missing += ~_unpacked(reached, servers)
        if further == reached:
            break
        reached = further
    return np.where(_unpacked(reached, servers), missing, UNREACHED)


def hops_by_offset(servers: int, steps: Sequence[int]) -> tuple[int, ...]:
    """Return for each offset the hops from any server i to server (i + offset) mod n, over circuits of these steps.

    If steps are values of coins, the hops are the least number of coins that add up to the offset modulo the number of
    servers. An offset that no coins add up to is ``UNREACHED``."""
    hops: Ints = np.full(servers, UNREACHED)
    for count, reached in enumerate(_unpacked([1, *_first_reached(servers, steps)], servers)):
        hops[reached] = count
    return tuple(hops.tolist())


def total_and_most(servers: int, steps: Sequence[int]) -> tuple[int, int] | None:
    """Return the sum and the largest of ``hops_by_offset`` over all offsets; None when an offset is not reached.

    This must be fast, because a search calls it for thousands of sets of steps."""
    counts = [reached.bit_count() for reached in _first_reached(servers, steps)]
    if sum(counts) < servers - 1:
        return None
    return sum(hops * count for hops, count in enumerate(counts, start=1)), len(counts)


def weighed_and_most(servers: int, steps: Sequence[int], weights: Floats) -> tuple[float, int] | None:
    """Return the sum of ``hops_by_offset`` times ``weights``, and the largest number of hops over all offsets.

    None when an offset is not reached."""
    reached = _unpacked([*_first_reached(servers, steps)], servers)
    if reached.sum() < servers - 1:
        return None
    return float(np.arange(1, len(reached) + 1) @ (reached @ weights)), len(reached)


def _first_reached(servers: int, steps: Sequence[int]) -> Iterator[int]:
    """Yield the set of offsets at one hop, then the set at two hops, and so on, until the next set is empty."""
    full = (1 << servers) - 1
    reached = front = 1
    while True:
        ahead = 0
        for step in steps:
            ahead |= front << step | front >> servers - step
        front = ahead & full & ~reached
        if not front:
            return
        yield front
        reached |= front


def mean_hops(hops: Ints, weights: Floats | None = None) -> float:
    """Return the mean of the hops over all pairs of different servers.

    ``weights``: weight of each pair, such as its bytes; shape (servers, servers). The mean is ``inf`` when a pair with
    a positive weight is not connected, and 0 without such pairs."""
    counted = ~np.eye(len(hops), dtype=bool) if weights is None else weights > 0
    if (hops[counted] == UNREACHED).any():
        return float("inf")
    weight = np.ones(int(counted.sum())) if weights is None else weights[counted]
    return float((hops[counted] * weight).sum() / weight.sum()) if len(weight) else 0.0


def diameter(hops: Ints) -> int | None:
    """Return the largest number of hops of any pair; None when a pair is not connected."""
    return None if (hops == UNREACHED).any() else int(hops.max())


def _union(reached: Sequence[int], to: Sequence[int], mine: int) -> int:
    for server in to:
        mine |= reached[server]
    return mine


def _unpacked(sets: Sequence[int], servers: int) -> NDArray[np.bool_]:
    """Return sets of servers as booleans; shape (sets, servers)."""
    size = (servers + 7) // 8
    raw = np.frombuffer(b"".join(each.to_bytes(size, "little") for each in sets), np.uint8)
    bits = np.unpackbits(raw.reshape(len(sets), size), axis=1, bitorder="little")
    return bits[:, :servers].astype(bool)
