"""Search for circuits for the traffic of a job: divides interfaces among rings and pairs, chooses steps and matchings.

In: ``Traffic``, the number of interfaces per server and their rate. Out: ``Found``: a wiring, the rings that run on it,
a lower bound of the time over all routings, and the expected time.

Candidates follow TopoOpt (Wang et al., NSDI 2023, algorithm 1): the rings get a number of interfaces in proportion to
the bytes of all-reduces, with near-geometric steps. Each remaining interface gets a matching of maximum weight for the
pairs. Further candidates have other divisions of the interfaces, or are circulant wirings with steps chosen for the
pairs. The candidate with the least expected time is chosen. An optical switch connects the sending side of each server
to the receiving side of another server. So a matching pairs senders with receivers (a bipartite graph), not servers
with each other. OR-Tools finds the matching as a flow of minimum cost.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from ortools.graph.python import min_cost_flow

from controller.circuits.wiring.circuits import (
    UNREACHED,
    Floats,
    Ints,
    Peers,
    Wiring,
    circulant,
    diameter,
    hops_between,
    mean_hops,
    spread,
)
from controller.circuits.wiring.rings import MOST_TRIED, chosen_steps, geometric_steps, ring_order
from controller.circuits.wiring.traffic import Order, Rings, Traffic

BITS = 8
"""Bits per byte."""
MOST_SPREAD = 1 << 22
"""Largest product (pairs x interfaces x diameter) for which the expected time is computed."""
_SERVERS_TRIED = 256 * 16
"""Largest product (servers x interfaces) for which circulant wirings with any number of interfaces for rings are tried.

For larger products, all interfaces of a circulant wiring are for rings."""
_DIVISIONS_TRIED = 1 << 14
"""Largest product (servers x possible divisions) for which ``_divisions`` returns all possible divisions."""

Orders = tuple[tuple[Order, ...], ...]
"""Orders of the servers in the rings of one ``Rings``.

``orders[k][g]``: order of the servers of group g in the ring on interface k of the ``Rings``."""


@dataclass(frozen=True)
class Found:
    """Wiring for the traffic of a job."""

    traffic: Traffic
    wiring: Wiring
    orders: tuple[Orders, ...]
    """Orders for each of the traffic's ``rings``. The orders are empty for rings that run as the job specifies."""
    interface_bps: float
    """Rate of each circuit in bit/s."""

    @cached_property
    def hops(self) -> Ints:
        """Hops between servers, shape (servers, servers); see ``hops_between``."""
        return hops_between(self.wiring)

    @property
    def diameter(self) -> int | None:
        return diameter(self.hops)

    @property
    def mean_hops(self) -> float:
        """Mean number of hops over all pairs of servers."""
        return mean_hops(self.hops)

    @cached_property
    def pair_hops(self) -> float:
        """Mean number of hops h, weighted by the bytes of pairs; ``inf`` if a pair is not connected."""
        return mean_hops(self.hops, self.pairs_and_free_rings)

    @property
    def bandwidth_tax(self) -> float:
        """Bytes that all circuits carry / bytes that servers send to other servers; 1 if no server forwards."""
        sent = self.traffic.in_rings + float(self.traffic.of_pairs.sum())
        pairs = float(self.pairs_and_free_rings.sum())
        return (sent - pairs + pairs * self.pair_hops) / sent if sent else 1.0

    @cached_property
    def least_s(self) -> dict[int, float]:
        """Lower bounds, in seconds by phase, over all routings on shortest paths of this wiring, with its rings.

        The bound is the largest of four times:

        - the time that all circuits together need for all bytes, including forwarded bytes;
        - the time that the circuits from one server to a neighbour need for the bytes between the two;
        - the time that one circuit needs for the largest subflow from one server to another;
        - the time that the interfaces of the busiest server need to send or to receive."""
        return {phase: self._least_s(phase) for phase in self.traffic.phases}

    @cached_property
    def expected_s(self) -> dict[int, float]:
        """Expected seconds by phase, if traffic is divided over all shortest paths (``spread``); at least ``least_s``.

        The value is ``least_s`` if the product of pairs, interfaces and diameter exceeds ``MOST_SPREAD``."""
        return {phase: max(least_s, self._expected_s(phase)) for phase, least_s in self.least_s.items()}

    @property
    def expected_time_s(self) -> float:
        return math.fsum(self.expected_s.values())

    @property
    def cost(self) -> tuple[float, float, float]:
        """Cost to be minimised, compared entry by entry: expected time, forwarded bytes, mean number of hops."""
        return self.expected_time_s, self.bandwidth_tax, self.mean_hops

    def _expected_s(self, phase: int) -> float:
        """Return the expected time in seconds; 0 if it is not computed."""
        if math.isinf(self.least_s[phase]):
            return 0.0
        if self.wiring.steps is not None and self.traffic.even and all(self.orders):
            # By symmetry, traffic to all servers loads one circuit of an interface as much as traffic to one server
            # loads all circuits of this interface together.
            loads = spread(self.wiring, self.hops[:, :1], self._sent_in(phase)[:, :1]).sum(axis=1)
        elif self.hops.size * self.wiring.interfaces * int(self.hops.max()) <= MOST_SPREAD:
            loads = spread(self.wiring, self.hops, self._sent_in(phase))
        else:
            return 0.0
        return BITS * float(loads.max()) / self.interface_bps

    def _least_s(self, phase: int) -> float:
        sent = self._sent_in(phase)
        if (self.hops[sent > 0] == UNREACHED).any():
            return math.inf
        beside = np.zeros(self.hops.shape)
        for peers in self.wiring.peers:
            active = [(server, peer) for server, peer in enumerate(peers) if peer is not None]
            beside[tuple(np.array(active, int).reshape(-1, 2).T)] += 1
        direct = self.hops == 1
        most = max(
            float((sent * self.hops).sum()) / max(1.0, float(beside.sum())),
            float((sent[direct] / beside[direct]).max(initial=0.0)),
            float(sent.max()) / self.traffic.max_subflows,
            float(max(sent.sum(axis=1).max(), sent.sum(axis=0).max())) / max(1, self.wiring.interfaces),
        )
        return BITS * most / self.interface_bps

    def _sent_in(self, phase: int) -> Floats:
        """Return the bytes from the row's server to the column's server in a phase; shape (servers, servers)."""
        sent = self._pairs_of(phase)
        for rings, orders in zip(self.traffic.rings, self.orders, strict=True):
            for order in orders:
                for group, of_group in zip(order, rings.sent, strict=True):
                    sent[list(group), [*group[1:], group[0]]] += of_group.get(phase, 0.0) / len(orders)
        return sent

    def _pairs_of(self, phase: int) -> Floats:
        """Return the bytes of pairs in a phase, including the bytes of rings that have no interface.

        Rings without an interface run in the order that the job specifies."""
        pairs = self.traffic.pairs.get(phase, np.zeros((self.traffic.servers, self.traffic.servers))).copy()
        for rings, orders in zip(self.traffic.rings, self.orders, strict=True):
            for group, of_group in () if orders else zip(rings.groups, rings.sent, strict=True):
                pairs[list(group), [*group[1:], group[0]]] += of_group.get(phase, 0.0)
        return pairs

    @cached_property
    def pairs_and_free_rings(self) -> Floats:
        """Bytes from the row's server to the column's, over all phases, except rings with interfaces of their own."""
        total: Floats = sum(map(self._pairs_of, self.traffic.phases), np.zeros_like(self.traffic.of_pairs))
        return total


def find(traffic: Traffic, interfaces: int, interface_bps: float) -> Found:
    """Return the candidate with the least ``cost``; of equal candidates, the first.

    Raises ``ValueError`` without servers or interfaces to connect."""
    return ranked(traffic, interfaces, interface_bps, 1)[0]


def ranked(traffic: Traffic, interfaces: int, interface_bps: float, most: int) -> list[Found]:
    """Return the ``most`` candidates with the least ``cost``, least first. Equal candidates keep their order.

    Raises ``ValueError`` without servers or interfaces to connect."""
    if traffic.servers < 2 or interfaces < 1:
        raise ValueError("at least two servers and one interface are needed")
    distinct = dict.fromkeys(_candidates(traffic, interfaces))
    every = (Found(traffic, wiring, orders, interface_bps) for wiring, orders in distinct)
    return heapq.nsmallest(most, every, key=lambda found: tuple(map(rounded, found.cost)))


def published(traffic: Traffic, interfaces: int, interface_bps: float) -> Found:
    """Return the wiring as published (TopoOpt), with ceil(d x bytes of rings / all bytes) interfaces for rings."""
    in_rings, of_pairs = traffic.in_rings, float(traffic.of_pairs.sum())
    share = math.ceil(interfaces * in_rings / (in_rings + of_pairs) - 1e-9) if in_rings else 0
    shares = _shares(traffic, max(min(1, len(traffic.rings)), share))
    wiring, orders = _divided(traffic, interfaces, shares, True, _matchings(traffic.of_pairs, interfaces))
    return Found(traffic, wiring, orders, interface_bps)


def _candidates(traffic: Traffic, interfaces: int) -> Iterator[tuple[Wiring, tuple[Orders, ...]]]:
    """Yield candidates; some do not connect all servers, and have an infinite expected time."""
    spans = _has_all_reduce_of_all_servers(traffic)
    if not (traffic.even and spans and len(traffic.rings) == 1):
        matchings = _matchings(traffic.of_pairs, interfaces)
        for shares in _divisions(traffic, interfaces):
            yield _divided(traffic, interfaces, shares, True, matchings)
            if not spans:
                yield _divided(traffic, interfaces, shares, False, matchings)
    few = traffic.servers * interfaces <= _SERVERS_TRIED
    for of_rings in range(1, interfaces + 1) if spans and few else [interfaces if spans else 0]:
        yield from _circulant(traffic, interfaces, of_rings)


def _divisions(traffic: Traffic, interfaces: int) -> Sequence[Sequence[int]]:
    """Return the divisions of the interfaces that are to be tried.

    A division is a tuple with the number of interfaces of each ``Rings``. Interfaces that are left over are for pairs.
    If there are rings, they get at least one interface. Up to the limit ``_DIVISIONS_TRIED``, all divisions are
    returned. Above it, one division is returned for each number of interfaces of all rings together, in proportion to
    the bytes."""
    kinds = len(traffic.rings)
    if not kinds:
        return [()]
    if math.comb(interfaces + kinds, kinds) * traffic.servers <= _DIVISIONS_TRIED:
        every = product(range(interfaces + 1), repeat=kinds)
        return [shares for shares in every if 0 < sum(shares) <= interfaces]
    return [_shares(traffic, of_rings) for of_rings in range(1, interfaces + 1)]


def _has_all_reduce_of_all_servers(traffic: Traffic) -> bool:
    return any(len(group) == traffic.servers for rings in traffic.rings for group in rings.groups)


def _circulant(traffic: Traffic, interfaces: int, of_rings: int) -> Iterator[tuple[Wiring, tuple[Orders, ...]]]:
    """Yield a circulant wiring, or nothing if no steps connect all servers.

    ``of_rings``: number of interfaces for rings over all servers. All-reduces among a part of the servers run as the
    job specifies."""
    weights = traffic.by_offset.tolist() if traffic.pairs else None
    uneven = weights if weights and not np.allclose(weights[1:], weights[1]) else None
    tried = MOST_TRIED if uneven is None else MOST_TRIED * 8 // max(8, traffic.servers)
    steps = chosen_steps(traffic.servers, of_rings, interfaces - of_rings, uneven, tried)
    if steps is None:
        return
    places = iter(steps.rings)
    orders: list[Orders] = []
    for count in _shares(traffic, of_rings, whole=True):
        mine = [next(places) for _ in range(count)]
        orders.append(tuple((ring_order(range(traffic.servers), step),) for step in mine))
    yield circulant(traffic.servers, steps.all), tuple(orders)


def _divided(
    traffic: Traffic, interfaces: int, shares: Sequence[int], connected: bool, matchings: Sequence[Peers]
) -> tuple[Wiring, tuple[Orders, ...]]:
    """Return a wiring with ``shares`` interfaces for each ``Rings``; ``matchings`` get the other interfaces.

    ``connected``: whether every server must reach every other server. If so, and no ring includes all servers, one of
    the other interfaces gets a ring over all servers."""
    orders = tuple(_orders(rings, count) for rings, count in zip(traffic.rings, shares, strict=True))
    layers = [_layer(traffic.servers, layer) for of in orders for layer in of]
    over_all = any(len(order) == traffic.servers for of in orders for layer in of for order in layer)
    if connected and not over_all and len(layers) < interfaces:
        layers += circulant(traffic.servers, [1]).peers
    added = matchings[: interfaces - len(layers)]
    if any(None in matching for matching in added):
        hops = hops_between(Wiring(traffic.servers, (*layers, *added)))
        added = [completed(matching, hops) for matching in added]
    return Wiring(traffic.servers, (*layers, *added)), orders


def _matchings(weights: Floats, count: int) -> list[Peers]:
    """Return ``count`` matchings; bytes of a pair that a matching connects count half for the next matching."""
    found, weights = [], weights.copy()
    for _ in range(count):
        found.append(heaviest_matching(weights))
        for server, peer in enumerate(found[-1]):
            if peer is not None:
                weights[server, peer] /= 2
    return found


def _shares(traffic: Traffic, interfaces: int, whole: bool = False) -> list[int]:
    """Return the number of interfaces for each ``Rings``, in proportion to ``Rings.bytes``.

    Numbers are rounded up, starting with the rings that send most. ``whole``: only rings over all servers get
    interfaces."""
    weight = [0.0 if whole and len(rings.groups[0]) < traffic.servers else rings.bytes for rings in traffic.rings]
    left, total, shares = interfaces, math.fsum(weight), [0] * len(weight)
    for number in sorted(range(len(weight)), key=lambda number: -weight[number]):
        if weight[number]:
            shares[number] = min(left, math.ceil(interfaces * weight[number] / total - 1e-9))
            left -= shares[number]
    return shares


def _orders(rings: Rings, count: int) -> Orders:
    steps = {size: geometric_steps(size, count) for size in map(len, rings.groups)}
    return tuple(
        tuple(ring_order(group, steps[len(group)][number]) for group in rings.groups) for number in range(count)
    )


def _layer(servers: int, orders: Sequence[Order]) -> Peers:
    peers: list[int | None] = [None] * servers
    for order in orders:
        for server, after in zip(order, [*order[1:], order[0]], strict=True):
            peers[server] = after
    return tuple(peers)


def rounded(value: float) -> float:
    """Return the value with nine significant digits, so that rounding errors do not decide between equal wirings."""
    return float(f"{value:.9g}")


DENSE = 128
"""Largest number of servers for which every pair is considered.

With more servers, only the ``KEPT`` heaviest pairs of each sender and of each receiver are considered."""
KEPT = 16
"""Number of heaviest pairs of each sender, and of each receiver, that are considered above ``DENSE`` servers."""
_LARGEST = 1 << 40
"""Integer that stands for the largest weight."""


def heaviest_matching(weights: Floats) -> Peers:
    """Return the matching of senders and receivers with the largest total weight.

    ``weights``: weight of a circuit from the row's server to the column's server; shape (servers, servers). The
    diagonal is ignored."""
    servers = len(weights)
    src, dst = _considered_pairs(weights)
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
    """Return the matching with circuits added at its dark interfaces, as far as possible.

    Free senders and free receivers are connected in the order of their numbers, with the receivers rotated so that most
    hops are saved. ``hops``: shape (servers, servers), negative for pairs that circuits do not connect."""
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


def _considered_pairs(weights: Floats) -> tuple[Ints, Ints]:
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
