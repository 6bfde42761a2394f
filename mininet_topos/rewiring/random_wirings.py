"""Random wirings for comparison with a chosen one.

The wirings are connected, and have d circuits out of and into each server. No two circuits connect the same servers in
the same direction. The input is sizes and a seed, the result a ``Wiring``. Pure.
"""

from __future__ import annotations

import random

from controller.circuits.wiring.circuits import UNREACHED, Wiring, hops_between

_EXCHANGES = 20
"""Number of attempts per circuit to exchange the destinations of two circuits of one interface."""
_MOST_DRAWN = 1000


def random_wiring(servers: int, interfaces: int, seed: int) -> Wiring:
    """Return a random wiring, the same for the same seed.

    Raises ``ValueError`` when there are not more servers than interfaces, or when no connected wiring was found."""
    if not 1 <= interfaces < servers:
        raise ValueError(f"{servers} servers may have 1 to {servers - 1} interfaces each (given: {interfaces})")
    rng = random.Random(seed)
    for _ in range(_MOST_DRAWN):
        wiring = _drawn(servers, interfaces, rng)
        if not (hops_between(wiring) == UNREACHED).any():
            return wiring
    raise ValueError(f"of {_MOST_DRAWN} random wirings none was connected")


def _drawn(servers: int, interfaces: int, rng: random.Random) -> Wiring:
    """Return a circulant wiring of the servers in random order, changed by random exchanges.

    An exchange swaps the destinations of two circuits of one interface. Each interface therefore remains a permutation
    of the servers."""
    order = rng.sample(range(servers), servers)
    peers = [[0] * servers for _ in range(interfaces)]
    for of, step in zip(peers, rng.sample(range(1, servers), interfaces), strict=True):
        for place, server in enumerate(order):
            of[server] = order[(place + step) % servers]
    to = [{of[server] for of in peers} for server in range(servers)]
    for _ in range(_EXCHANGES * servers * interfaces):
        of = rng.choice(peers)
        a, b = rng.sample(range(servers), 2)
        to_a, to_b = of[a], of[b]
        if to_b == a or to_a == b or to_b in to[a] or to_a in to[b]:
            continue
        of[a], of[b] = to_b, to_a
        to[a] = to[a] - {to_a} | {to_b}
        to[b] = to[b] - {to_b} | {to_a}
    return Wiring(servers, tuple(map(tuple, peers)))
