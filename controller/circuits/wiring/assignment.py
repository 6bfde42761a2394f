"""Exact choice of the circuits of one optical switch, so that as much traffic as possible needs only one circuit.

An optical switch connects the sending side of each server to the receiving side of another server. Therefore the choice
is a matching of maximum weight in a bipartite graph, not in a graph of servers as for duplex links. OR-Tools finds the
matching as a flow of minimum cost."""

from __future__ import annotations

import numpy as np
from ortools.graph.python import min_cost_flow

from controller.circuits.wiring.circuits import Peers
from controller.circuits.wiring.hops import Floats, Ints

DENSE = 128
"""Number of servers up to which every pair is considered.

With more servers, a pair is considered only if it is among the ``KEPT`` heaviest of one of its ends."""
KEPT = 16
"""Number of heaviest pairs of each server that are considered when there are more than ``DENSE`` servers."""
_LARGEST = 1 << 40
"""Integer that stands for the largest weight."""


def heaviest_matching(weights: Floats) -> Peers:
    """Return the matching of senders and receivers with the largest total weight.

    ``weights``: weight of a circuit from the row's server to the column's server, shape (servers, servers); the
    diagonal is ignored."""
    servers = len(weights)
    src, dst = _candidates(weights)
    found: list[int | None] = [None] * servers
    if not len(src):
        return tuple(found)
    cost = -np.maximum(1, np.rint(weights[src, dst] / weights[src, dst].max() * _LARGEST)).astype(np.int64)
    source, sink, numbers = 2 * servers, 2 * servers + 1, np.arange(servers)
    ones, nothing = np.ones(servers, np.int64), np.zeros(servers, np.int64)
    flow = min_cost_flow.SimpleMinCostFlow()
    flow.add_arcs_with_capacity_and_unit_cost(np.full(servers, source), numbers, ones, nothing)
    arcs = flow.add_arcs_with_capacity_and_unit_cost(src, servers + dst, np.ones(len(src), np.int64), cost)
    flow.add_arcs_with_capacity_and_unit_cost(servers + numbers, np.full(servers, sink), ones, nothing)
    flow.add_arc_with_capacity_and_unit_cost(source, sink, servers, 0)
    flow.set_node_supply(source, servers)
    flow.set_node_supply(sink, -servers)
    status = flow.solve()
    assert status == flow.OPTIMAL, f"the solver found no flow, although there always is one: {status}"
    for a, b in zip(src[used := flow.flows(arcs) > 0].tolist(), dst[used].tolist(), strict=True):
        found[a] = b
    return tuple(found)


def completed(peers: Peers, hops: Ints) -> Peers:
    """Return the matching with its dark interfaces connected too, as far as possible.

    All rotations of the free receivers against the free senders are tried; the result saves the most hops between the
    newly connected servers. ``hops``: shape (servers, servers), negative for pairs that no circuits connect."""
    senders = [server for server, peer in enumerate(peers) if peer is None]
    receivers = sorted(set(range(len(peers))) - set(peers))
    saved = np.where(hops < 0, len(peers), hops)[np.ix_(senders, receivers)]
    numbers = np.arange(len(senders))
    best, gain = list(peers), -1
    for turn in range(len(senders)):
        turned = (numbers + turn) % max(1, len(senders))
        pairs = [(senders[a], receivers[b]) for a, b in enumerate(turned.tolist()) if senders[a] != receivers[b]]
        if (now := len(pairs) + int(saved[numbers, turned].sum())) > gain:
            best, gain = list(peers), now
            for a, b in pairs:
                best[a] = b
    return tuple(best)


def _candidates(weights: Floats) -> tuple[Ints, Ints]:
    """Return the senders and receivers of the pairs that are considered."""
    some = weights > 0
    np.fill_diagonal(some, False)
    if len(weights) > DENSE:
        by_row, by_column = (np.argpartition(-weights, KEPT, axis=axis) for axis in (1, 0))
        heavy = np.zeros_like(some)
        np.put_along_axis(heavy, by_row[:, :KEPT], True, axis=1)
        np.put_along_axis(heavy, by_column[:KEPT], True, axis=0)
        some &= heavy
    src, dst = np.nonzero(some)
    return src, dst
