"""Wiring of a direct-connect fabric: the receiving server of each interface of each server.

Every server has interfaces 0 to d-1. Interface k of all servers is connected to optical switch k, which passes the
light of a server on to one other server: a *circuit*. Circuits are simplex, so an optical switch is a partial
permutation of the servers. Any directed graph with at most d circuits out of and into each server consists of d such
permutations (König). Servers forward for each other. Servers and interfaces are numbered from 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

Peers = tuple[int | None, ...]
"""Receiving server of each server through one interface; None for a dark interface."""


class Port(NamedTuple):
    """Interface of a server. It sends through one circuit, and receives through another one."""

    server: int
    interface: int


class Circuit(NamedTuple):
    """Connection from ``src`` to ``dst``. Both ends have the same interface number, that of the optical switch."""

    src: Port
    dst: Port

    @property
    def switch(self) -> int:
        """Number of the optical switch that the circuit passes."""
        return self.src.interface


@dataclass(frozen=True)
class Wiring:
    """Circuits of a fabric. Raises ``ValueError`` for circuits that no optical switch can make."""

    servers: int
    peers: tuple[Peers, ...]
    """Receiving servers: ``peers[k][i]`` is the server to which server i sends through interface k, or None."""

    def __post_init__(self) -> None:
        if self.servers < 1:
            raise ValueError(f"a fabric has at least one server (given: {self.servers})")
        for interface, peers in enumerate(self.peers):
            active = [peer for peer in peers if peer is not None]
            if len(peers) != self.servers or not all(0 <= peer < self.servers for peer in active):
                raise ValueError(f"interface {interface} needs one of {self.servers} servers, or None, per server")
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

        None when an interface's offset differs between servers, so that the wiring is not a circulant graph."""
        found = [_step(peers, self.servers) for peers in self.peers]
        steps = tuple(step for step in found if step is not None)
        return steps if len(steps) == len(found) else None

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """Receiving server of each circuit of a server, ordered by interface; one tuple per sending server."""
        return tuple(tuple(peer for peer in of if peer is not None) for of in zip(*self.peers, strict=True))

    def placed(self, at: Sequence[int], servers: int) -> Wiring:
        """Return the wiring as a part of a fabric with ``servers`` servers: server i gets the number ``at[i]`` there.

        The other servers have no circuits. Raises ``ValueError`` when numbers in ``at`` repeat or are out of range."""
        if len(set(at)) < len(at) or len(at) != self.servers or not all(0 <= place < servers for place in at):
            raise ValueError(f"{self.servers} different server numbers from 0 to {servers - 1} are needed")
        where = dict(zip(at, range(self.servers), strict=True))

        def peer(peers: Peers, place: int) -> int | None:
            there = peers[where[place]] if place in where else None
            return None if there is None else at[there]

        return Wiring(servers, tuple(tuple(peer(peers, place) for place in range(servers)) for peers in self.peers))

    def beside(self, other: Wiring) -> Wiring:
        """Return both wirings on one fabric. Raises ``ValueError`` when they share a port, or differ in size."""
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
