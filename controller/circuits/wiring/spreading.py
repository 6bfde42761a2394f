"""Expected load of circuits when every server divides its traffic evenly over all shortest paths.

In: a ``Wiring``, the hops between its servers, the bytes of pairs. Out: bytes of each circuit. These loads are the
average result of hashing. Their maximum is an upper bound for the best routing with subflows of any size."""

from __future__ import annotations

import numpy as np

from controller.circuits.wiring.circuits import Wiring
from controller.circuits.wiring.hops import Floats, Ints


def spread(wiring: Wiring, hops: Ints, sent: Floats) -> Floats:
    """Return the bytes that each interface sends into its circuit; shape (interfaces, servers).

    ``hops``, ``sent``: hops and bytes from the row's server to the column's server; the columns may be only some of the
    servers. Pairs that are not connected are left out."""
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
