"""Wiring of a direct-connect fabric, the hops over its circuits, and the load of each circuit.

Every server has interfaces 0 to d-1. Interface k of all servers is connected to optical switch k, which passes the
light of one server on to another server: a *circuit*. Circuits have one direction, so an optical switch is a partial
permutation of the servers. Any directed graph with at most d circuits out of and into each server consists of d such
permutations (König). Servers are numbered from 0, and forward packets for each other. The *hops* from one server to
another are the number of circuits on a shortest path. A set of servers is a Python integer with one bit per server, so
that a breadth-first search from all of 1,024 servers takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Peers = tuple[int | None, ...]
"""Receiving server by sending server, for one interface; None for a dark interface."""


class Port(NamedTuple):
    """Interface of a server, which sends over one circuit, and receives over another circuit."""

    server: int
    interface: int


class Circuit(NamedTuple):
    """Connection from a port ``src`` of one server to a port ``dst`` of another server.

    Both ports have the same interface number, which is also the number of the optical switch between them."""

    src: Port
    dst: Port

    @property
    def switch(self) -> int:
        """Number of the optical switch that the circuit passes."""
        return self.src.interface


@dataclass(frozen=True)
class Wiring:
    """Circuits of a fabric. Raises ``ValueError`` for circuits that optical switches cannot make."""

    servers: int
    peers: tuple[Peers, ...]
    """Receiving servers: ``peers[k][i]`` is the server to which server i sends through interface k, or None."""

    def __post_init__(self) -> None:
        if self.servers < 1:
            raise ValueError(f"a fabric has at least one server (given: {self.servers})")
        for interface, peers in enumerate(self.peers):
            active = [peer for peer in peers if peer is not None]
            if len(peers) != self.servers or not all(0 <= peer < self.servers for peer in active):
                raise ValueError(
                    f"interface {interface} needs a receiving server from 0 to {self.servers - 1}, or None, "
                    f"for each of {self.servers} sending servers"
                )
            if len(set(active)) < len(active):
                raise ValueError(f"two servers send to the same server through interface {interface}")
            if any(peer == server for server, peer in enumerate(peers)):
                raise ValueError(f"a server sends to itself through interface {interface}")

    @property
    def interfaces(self) -> int:
        """Number d of interfaces of each server."""
        return len(self.peers)

    @cached_property
    def circuits(self) -> tuple[Circuit, ...]:
        """Circuits, ordered by optical switch, then by sending server."""
        return tuple(
            Circuit(Port(server, interface), Port(peer, interface))
            for interface, peers in enumerate(self.peers)
            for server, peer in enumerate(peers)
            if peer is not None
        )

    @cached_property
    def steps(self) -> tuple[int, ...] | None:
        """Offset, modulo the number of servers, from each server to its peer, for each interface.

        None if the offset of an interface differs from server to server, so that the wiring is not a circulant
        graph."""
        found = [_step(peers, self.servers) for peers in self.peers]
        steps = tuple(step for step in found if step is not None)
        return steps if len(steps) == len(found) else None

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """Receiving servers of each server's circuits, ordered by interface: one tuple per sending server."""
        return tuple(tuple(peer for peer in of if peer is not None) for of in zip(*self.peers, strict=True))

    def placed(self, at: Sequence[int], servers: int) -> Wiring:
        """Return the wiring on a fabric of ``servers`` servers, in which server i gets the number ``at[i]``.

        The other servers have no circuits. Raises ``ValueError`` if numbers in ``at`` repeat or are out of range."""
        if len(set(at)) < len(at) or len(at) != self.servers or not all(0 <= place < servers for place in at):
            raise ValueError(f"{self.servers} different server numbers from 0 to {servers - 1} are needed")
        where = dict(zip(at, range(self.servers), strict=True))

        def peer(peers: Peers, place: int) -> int | None:
            there = peers[where[place]] if place in where else None
            return None if there is None else at[there]

        return Wiring(servers, tuple(tuple(peer(peers, place) for place in range(servers)) for peers in self.peers))

    def beside(self, other: Wiring) -> Wiring:
        """Return both wirings on one fabric. Raises ``ValueError`` if they share a port or differ in size."""
        if (self.servers, self.interfaces) != (other.servers, other.interfaces):
            raise ValueError("the wirings are of fabrics of different sizes")
        pairs = [zip(mine, theirs, strict=True) for mine, theirs in zip(self.peers, other.peers, strict=True)]
        both = [[(mine, theirs) for mine, theirs in of] for of in pairs]
        if any(mine is not None and theirs is not None for of in both for mine, theirs in of):
            raise ValueError("both wirings send through the same port")
        return Wiring(self.servers, tuple(tuple(a if b is None else b for a, b in of) for of in both))


def circulant(servers: int, steps: Sequence[int]) -> Wiring:
    """Return the wiring in which interface k of server i sends to server (i + ``steps[k]``) mod n.

    Raises ``ValueError`` for a step that leads to the server itself."""
    return Wiring(servers, tuple(tuple((server + step) % servers for server in range(servers)) for step in steps))


def _step(peers: Peers, servers: int) -> int | None:
    steps = {None if peer is None else (peer - server) % servers for server, peer in enumerate(peers)}
    return steps.pop() if len(steps) == 1 else None


# ---- hops, and loads of circuits


Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

UNREACHED = -1
"""Value in place of the number of hops, for a pair that circuits do not connect."""


def hops_between(wiring: Wiring) -> Ints:
    """Return the hops from the row's server to the column's server, shape (servers, servers).

    The diagonal is 0. Entries of pairs that circuits do not connect are ``UNREACHED``."""
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
        missing += ~_as_booleans(reached, servers)
        if further == reached:
            break
        reached = further
    return np.where(_as_booleans(reached, servers), missing, UNREACHED)


def hops_by_offset(servers: int, steps: Sequence[int]) -> tuple[int, ...]:
    """Return, for each offset, the hops from a server i to server (i + offset) mod n over circuits of these steps.

    The hops are the smallest number of steps that add up to the offset modulo n, like the smallest number of coins that
    add up to an amount. The entry of an offset that no steps add up to is ``UNREACHED``."""
    hops: Ints = np.full(servers, UNREACHED)
    for count, reached in enumerate(_as_booleans([1, *_first_reached(servers, steps)], servers)):
        hops[reached] = count
    return tuple(hops.tolist())


def total_and_most(servers: int, steps: Sequence[int]) -> tuple[int, int] | None:
    """Return the sum and the largest of ``hops_by_offset`` over all offsets; None if an offset is not reached.

    The function must be fast, because a search calls it for thousands of sets of steps."""
    counts = [reached.bit_count() for reached in _first_reached(servers, steps)]
    if sum(counts) < servers - 1:
        return None
    return sum(hops * count for hops, count in enumerate(counts, start=1)), len(counts)


def weighed_and_most(servers: int, steps: Sequence[int], weights: Floats) -> tuple[float, int] | None:
    """Return the sum of ``hops_by_offset`` times ``weights``, and the largest number of hops over all offsets.

    Returns None if an offset is not reached."""
    reached = _as_booleans([*_first_reached(servers, steps)], servers)
    if reached.sum() < servers - 1:
        return None
    return float(np.arange(1, len(reached) + 1) @ (reached @ weights)), len(reached)


def _first_reached(servers: int, steps: Sequence[int]) -> Iterator[int]:
    """Yield the set of offsets at one hop, the set at two hops, and so on, while the sets are not empty."""
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

    ``weights``: weight of each pair, such as its bytes; shape (servers, servers). The mean is ``inf`` if a pair with a
    positive weight is not connected, and 0 if no pair has a positive weight."""
    counted = ~np.eye(len(hops), dtype=bool) if weights is None else weights > 0
    if (hops[counted] == UNREACHED).any():
        return float("inf")
    weight = np.ones(int(counted.sum())) if weights is None else weights[counted]
    return float((hops[counted] * weight).sum() / weight.sum()) if len(weight) else 0.0


def diameter(hops: Ints) -> int | None:
    """Return the largest number of hops of a pair; None if a pair is not connected."""
    return None if (hops == UNREACHED).any() else int(hops.max())


def _union(reached: Sequence[int], to: Sequence[int], mine: int) -> int:
    for server in to:
        mine |= reached[server]
    return mine


def _as_booleans(sets: Sequence[int], servers: int) -> NDArray[np.bool_]:
    size = (servers + 7) // 8
    raw = np.frombuffer(b"".join(each.to_bytes(size, "little") for each in sets), np.uint8)
    bits = np.unpackbits(raw.reshape(len(sets), size), axis=1, bitorder="little")
    return bits[:, :servers].astype(bool)


def spread(wiring: Wiring, hops: Ints, sent: Floats) -> Floats:
    """Return the bytes that each interface sends into its circuit; shape (interfaces, servers).

    Every server divides its traffic evenly over all shortest paths, as hashing does on average. The best routing, with
    subflows of any size, has at most the same largest load.

    ``hops``, ``sent``: hops and bytes from the row's server to the column's server; both arrays may have only the
    columns of some destinations. Pairs that are not connected are left out."""
    waiting = np.where(hops > 0, sent, 0.0)
    loads = np.zeros((wiring.interfaces, wiring.servers))
    active = [np.array([peer is not None for peer in peers]) for peers in wiring.peers]
    to = [np.array([0 if peer is None else peer for peer in peers]) for peers in wiring.peers]
    for left in range(int(hops.max()), 0, -1):
        here = np.where(hops == left, waiting, 0.0)
        nearer = [(hops[peers] == left - 1) & on[:, None] for peers, on in zip(to, active, strict=True)]
        share = here / np.maximum(1, sum(each.astype(int) for each in nearer))
        for interface, (peers, on, near) in enumerate(zip(to, active, nearer, strict=True)):
            passed = np.where(near, share, 0.0)
            loads[interface] += passed.sum(axis=1)
            waiting[peers[on]] += passed[on]
    return loads
