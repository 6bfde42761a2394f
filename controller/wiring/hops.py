"""How many circuits a packet passes from server to server, on the shortest way.

In: a ``Wiring``, or the steps of a circulant one. Out: hops of each pair, or of each offset, and what follows of them.
Sets of servers are bits of Python's integers: a breadth-first search from all 1,024 servers at once takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from controller.wiring.circuits import Wiring

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
    found = [UNREACHED] * servers
    found[0], front, count = 0, [0], 0
    while front:
        count += 1
        ahead = dict.fromkeys((offset + step) % servers for offset in front for step in steps)
        front = [offset for offset in ahead if found[offset] == UNREACHED]
        for offset in front:
            found[offset] = count
    return tuple(found)


def total_and_most(servers: int, steps: Sequence[int]) -> tuple[int, int] | None:
    """The sum over all offsets of ``hops_by_offset``, and the largest; None where one is not reached. Quick: a finder
    asks for thousands of sets of steps."""
    full = (1 << servers) - 1
    reached, front, count, total, left = 1, 1, 0, 0, servers - 1
    while left:
        ahead = 0
        for step in steps:
            ahead |= front << step | front >> servers - step
        front = ahead & full & ~reached
        if not front:
            return None
        count += 1
        new = front.bit_count()
        total += count * new
        left -= new
        reached |= front
    return total, count


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


def least_mean_hops(weights: Floats, interfaces: int) -> float:
    """No wiring has less over these pairs: a server has at most d others at one hop, d² at two and so on (the bound of
    Moore), so those that it sends most to are the nearest. ``weights``: shape (servers, servers)."""
    servers = len(weights)
    near = np.zeros(servers, np.int64)
    at, count, level = 0, interfaces, 1
    while at < servers:
        near[at : at + count] = level
        at, count, level = at + count, count * interfaces if interfaces > 1 else 1, level + 1
    total = float(weights.sum())
    ordered = -np.sort(-weights, axis=1)
    return float((ordered * near).sum() / total) if total else 0.0


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
