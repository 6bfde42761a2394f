"""How many circuits a packet passes from server to server, on the shortest way.

In: a ``Wiring``, or the steps of a circulant one. Out: hops of each pair, or of each offset, and what follows of them.
Sets of servers are bits of Python's integers: a breadth-first search from all 1,024 servers at once takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from controller.circuits.wiring.circuits import Wiring

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

UNREACHED = -1


def hops_between(wiring: Wiring) -> Ints:
    """Shape (servers, servers): from the row's server to the column's; 0 to itself, ``UNREACHED`` where no circuits
    lead."""
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
    """From any server to the one so much higher, modulo their number, over circuits of these steps: the least number of
    coins of these values that make up the offset modulo the number of servers. ``UNREACHED`` where none do."""
    hops: Ints = np.full(servers, UNREACHED)
    for count, reached in enumerate(_unpacked([1, *_first_reached(servers, steps)], servers)):
        hops[reached] = count
    return tuple(hops.tolist())


def total_and_most(servers: int, steps: Sequence[int]) -> tuple[int, int] | None:
    """The sum over all offsets of ``hops_by_offset``, and the largest; None where one is not reached. Quick: a finder
    asks for thousands of sets of steps."""
    counts = [reached.bit_count() for reached in _first_reached(servers, steps)]
    if sum(counts) < servers - 1:
        return None
    return sum(hops * count for hops, count in enumerate(counts, start=1)), len(counts)


def weighed_and_most(servers: int, steps: Sequence[int], weights: Floats) -> tuple[float, int] | None:
    """The same with a weight for each offset."""
    reached = _unpacked([*_first_reached(servers, steps)], servers)
    if reached.sum() < servers - 1:
        return None
    return float(np.arange(1, len(reached) + 1) @ (reached @ weights)), len(reached)


def _first_reached(servers: int, steps: Sequence[int]) -> Iterator[int]:
    """The offsets that are one hop away, two, and so on, as long as there are any."""
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
    """Over all pairs of different servers; or over the pairs by ``weights``, shape (servers, servers), such as what
    they send. ``inf`` where a pair that counts is not connected, 0 without any."""
    counted = ~np.eye(len(hops), dtype=bool) if weights is None else weights > 0
    if (hops[counted] == UNREACHED).any():
        return float("inf")
    weight = np.ones(int(counted.sum())) if weights is None else weights[counted]
    return float((hops[counted] * weight).sum() / weight.sum()) if len(weight) else 0.0


def diameter(hops: Ints) -> int | None:
    """The most hops of any pair; None where one is not connected."""
    return None if (hops == UNREACHED).any() else int(hops.max())


def _union(reached: Sequence[int], to: Sequence[int], mine: int) -> int:
    for server in to:
        mine |= reached[server]
    return mine


def _unpacked(sets: Sequence[int], servers: int) -> NDArray[np.bool_]:
    """Shape (sets, servers)."""
    size = (servers + 7) // 8
    raw = np.frombuffer(b"".join(each.to_bytes(size, "little") for each in sets), np.uint8)
    bits = np.unpackbits(raw.reshape(len(sets), size), axis=1, bitorder="little")
    return bits[:, :servers].astype(bool)
