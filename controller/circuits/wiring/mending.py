"""Replacement of lost interfaces or circuits in a job's wiring, with few new circuits.

In: the bytes between the job's servers, including bytes of rings; the job's wiring; the circuits that cannot be made.
Out: another wiring.

First, free ports are connected: if a server's interface has failed, the server's predecessor is connected to its
successor. Then circuits are exchanged as long as an exchange lowers the cost. For example, for a lost circuit of a
ring, a circuit of other traffic is given up (as in TopoOpt, NSDI 2023, section 5.6).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import permutations, product

import numpy as np

from controller.circuits.wiring.circuits import UNREACHED, Circuit, Floats, Peers, Port, Wiring, hops_between, spread

Cost = tuple[float, float, float, float]
"""Cost of a wiring, compared entry by entry.

The entries are:

1. the bytes of pairs that are not connected;
2. the sum over phases of the largest load of a circuit;
3. the sum over pairs of bytes times hops;
4. the negated number of circuits."""

MOST_JOINED = 5
"""Largest number of free ports of an optical switch for which all connections are tried.

More ports are connected in one ring."""


def mended(
    sent: Mapping[int, Floats],
    wiring: Wiring,
    lost: Collection[Circuit],
    dead: Collection[Port],
    fixed: Collection[int] = (),
) -> Wiring:
    """Return the wiring with replacements for lost circuits and for circuits at dead interfaces.

    ``sent``: bytes from the row's server to the column's server, by phase; shape (servers, servers). ``lost``: circuits
    of the wiring that do not work. ``dead``: interfaces that do not work. ``fixed``: optical switches that keep their
    working circuits and cannot make new circuits."""
    free = [interface for interface in range(wiring.interfaces) if interface not in fixed]
    gone = {*lost, *(each for each in wiring.circuits if each.src in dead or each.dst in dead)}
    found = Wiring(wiring.servers, tuple(_without(peers, k, gone) for k, peers in enumerate(wiring.peers)))
    found = _with_free_ports_connected(sent, found, free, lost, dead)
    cost = _cost(sent, found)
    while True:
        tried = [(_cost(sent, other), other) for other in _with_exchanges(found, free, gone, lost, dead)]
        best = min(tried, key=lambda each: each[0], default=(cost, found))
        if not _is_less(best[0], cost):
            return found
        cost, found = best


def _without(peers: Peers, interface: int, gone: Collection[Circuit]) -> Peers:
    lost = {each.src.server for each in gone if each.src.interface == interface}
    return tuple(None if server in lost else peer for server, peer in enumerate(peers))


def _with_free_ports_connected(
    sent: Mapping[int, Floats],
    wiring: Wiring,
    interfaces: Collection[int],
    lost: Collection[Circuit],
    dead: Collection[Port],
) -> Wiring:
    """Return the wiring with its free ports connected.

    For one optical switch after the other, the cheapest set of new circuits is chosen (``_cost``)."""
    for interface in interfaces:
        ways = [_with(wiring, interface, made) for made in _ways(wiring.peers[interface], interface, lost, dead)]
        wiring = min(ways, key=lambda each: _cost(sent, each))
    return wiring


def _ways(
    peers: Peers, interface: int, lost: Collection[Circuit], dead: Collection[Port]
) -> Iterator[tuple[tuple[int, int], ...]]:
    alive = [server for server in range(len(peers)) if Port(server, interface) not in dead]
    sending = [server for server in alive if peers[server] is None]
    receiving = [server for server in alive if server not in peers]
    yield ()
    yield _in_one_ring(peers, interface, receiving, lost)
    if max(len(sending), len(receiving)) > MOST_JOINED:
        return
    for order in permutations(receiving, min(len(sending), len(receiving))):
        made = tuple(
            (src, dst)
            for src, dst in zip(sending, order, strict=False)
            if src != dst and _circuit(src, dst, interface) not in lost
        )
        yield made


def _in_one_ring(
    peers: Peers, interface: int, receiving: Sequence[int], lost: Collection[Circuit]
) -> tuple[tuple[int, int], ...]:
    """Return circuits that connect all paths at one optical switch into one ring.

    At an optical switch with free ports, circuits form paths from server to server. Each path begins at a server that
    receives nothing. ``receiving``: servers at which a path begins, without servers whose interface has failed. The
    result leaves out the circuits in ``lost``."""
    ends = []
    for server in receiving:
        while (after := peers[server]) is not None:
            server = after
        ends.append(server)
    joined = zip(ends, [*receiving[1:], *receiving[:1]], strict=True)
    return tuple((src, dst) for src, dst in joined if src != dst and _circuit(src, dst, interface) not in lost)


def _with_exchanges(
    wiring: Wiring,
    interfaces: Collection[int],
    gone: Collection[Circuit],
    lost: Collection[Circuit],
    dead: Collection[Port],
) -> Iterator[Wiring]:
    """Yield wirings in which one lost pair of servers is connected again through another interface.

    A new circuit from server a to server b replaces the present circuits from a to c and from d to b. If possible, d
    is then connected to c."""
    pairs = dict.fromkeys((each.src.server, each.dst.server) for each in gone)
    for interface, (src, dst) in product(interfaces, pairs):
        peers = wiring.peers[interface]
        ends = {Port(src, interface), Port(dst, interface)}
        if not ends.isdisjoint(dead) or peers[src] == dst or _circuit(src, dst, interface) in lost:
            continue
        after, before = peers[src], peers.index(dst) if dst in peers else None
        made = [(src, dst)]
        if before is not None:
            joins = after is not None and after != before and _circuit(before, after, interface) not in lost
            made.append((before, after if joins and after is not None else -1))
        yield _with(wiring, interface, made)


def _with(wiring: Wiring, interface: int, made: Sequence[tuple[int, int]]) -> Wiring:
    """Return the wiring with new circuits (src, dst); -1 as dst disconnects src."""
    peers = list(wiring.peers[interface])
    for src, dst in made:
        peers[src] = None if dst < 0 else dst
    every = list(wiring.peers)
    every[interface] = tuple(peers)
    return Wiring(wiring.servers, tuple(every))


def _circuit(src: int, dst: int, interface: int) -> Circuit:
    return Circuit(Port(src, interface), Port(dst, interface))


def _cost(sent: Mapping[int, Floats], wiring: Wiring) -> Cost:
    hops = hops_between(wiring)
    every = sum(sent.values(), np.zeros(hops.shape))
    reached = hops != UNREACHED
    fullest = math.fsum(float(spread(wiring, hops, each).max()) for each in sent.values())
    forwarded = float((every * np.where(reached, hops, 0)).sum())
    return float(every[~reached].sum()), fullest, forwarded, -float(len(wiring.circuits))


def _is_less(cost: Cost, than: Cost) -> bool:
    """Return whether ``cost`` is less than ``than`` by more than rounding errors."""
    for new, old in zip(cost, than, strict=True):
        if not math.isclose(new, old, rel_tol=1e-9, abs_tol=1e-6):
            return new < old
    return False
