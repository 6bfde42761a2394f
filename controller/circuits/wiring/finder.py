"""Which circuits to make for what a job sends: interfaces divided between rings and pairs, steps, matchings.

In: ``Traffic``, interfaces per server and their rate. Out: ``Found``: a wiring, the rings that run on it, the time that
no routing on it can beat, and the time to expect. Candidates come from TopoOpt (Wang et al., NSDI 2023, algorithm 1):
so many interfaces for rings, in proportion to what the all-reduces send, near-geometric steps, and for the pairs one
matching of maximum weight per interface that is left, with what it serves halved for the next one. Every division is
tried, and circulant wirings besides, whose steps are chosen for the pairs; the expected time decides.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from controller.circuits.wiring.assignment import completed, heaviest_matching
from controller.circuits.wiring.circuits import Peers, Wiring, circulant
from controller.circuits.wiring.hops import UNREACHED, Floats, Ints, diameter, hops_between, mean_hops
from controller.circuits.wiring.rings import MOST_TRIED, chosen_steps, geometric_steps, ring_order
from controller.circuits.wiring.spreading import spread
from controller.circuits.wiring.traffic import Order, Rings, Traffic

BITS = 8
"""Of a byte."""
MOST_SPREAD = 1 << 22
_SERVERS_TRIED = 256 * 16
"""Servers times interfaces up to which circulant wirings are tried for every division."""
_DIVISIONS_TRIED = 1 << 14
"""Divisions between several ``Rings``, times servers, up to which all are tried."""

Orders = tuple[tuple[Order, ...], ...]
"""Of ``Rings``: per interface that has them one ring for each group."""


@dataclass(frozen=True)
class Found:
    """``orders``: of each of the traffic's ``rings``, none where these run as the job says. ``interface_bps``: of each
    circuit."""

    traffic: Traffic
    wiring: Wiring
    orders: tuple[Orders, ...]
    interface_bps: float

    @cached_property
    def hops(self) -> Ints:
        """Shape (servers, servers), see ``hops_between``."""
        return hops_between(self.wiring)

    @property
    def diameter(self) -> int | None:
        return diameter(self.hops)

    @property
    def mean_hops(self) -> float:
        """Over all pairs of servers."""
        return mean_hops(self.hops)

    @cached_property
    def pair_hops(self) -> float:
        """h: mean over what pairs send; ``inf`` where a pair is not connected."""
        return mean_hops(self.hops, self.pairs_and_free_rings)

    @property
    def bandwidth_tax(self) -> float:
        """What circuits carry / what servers send to others: 1 when nobody forwards."""
        sent = self.traffic.in_rings + float(self.traffic.of_pairs.sum())
        pairs = float(self.pairs_and_free_rings.sum())
        return (sent - pairs + pairs * self.pair_hops) / sent if sent else 1.0

    @cached_property
    def least_s(self) -> dict[int, float]:
        """By phase the seconds that no routing over shortest ways of this wiring can beat while the rings run as they
        do: those of all circuits together with all that is forwarded, of the circuits between two neighbours, of the
        largest piece from one server to another, and of the busiest server."""
        return {phase: self._least_s(phase) for phase in self.traffic.phases}

    @cached_property
    def expected_s(self) -> dict[int, float]:
        """By phase the seconds when all that is sent is divided over all shortest ways (``spread``); at least
        ``least_s``, which takes its place where pairs of servers times interfaces times the diameter are more than
        ``MOST_SPREAD``."""
        return {phase: max(least_s, self._expected_s(phase)) for phase, least_s in self.least_s.items()}

    @property
    def expected_time_s(self) -> float:
        return math.fsum(self.expected_s.values())

    @property
    def cost(self) -> tuple[float, float, float]:
        """What is made small, one after the other: the expected time, what is forwarded, the mean of hops."""
        return self.expected_time_s, self.bandwidth_tax, self.mean_hops

    def _expected_s(self, phase: int) -> float:
        """0 where it is not worked out."""
        if math.isinf(self.least_s[phase]):
            return 0.0
        if self.wiring.steps is not None and self.traffic.even and all(self.orders):
            # What passes one circuit to all servers is what passes all circuits of its interface to one server.
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
            lit = [(server, peer) for server, peer in enumerate(peers) if peer is not None]
            beside[tuple(np.array(lit, int).reshape(-1, 2).T)] += 1
        direct = self.hops == 1
        most = max(
            float((sent * self.hops).sum()) / max(1.0, float(beside.sum())),
            float((sent[direct] / beside[direct]).max(initial=0.0)),
            float(sent.max()) / self.traffic.pieces,
            float(max(sent.sum(axis=1).max(), sent.sum(axis=0).max())) / max(1, self.wiring.interfaces),
        )
        return BITS * most / self.interface_bps

    def _sent_in(self, phase: int) -> Floats:
        """By every server to every other, in bytes."""
        sent = self._pairs_of(phase)
        for rings, orders in zip(self.traffic.rings, self.orders, strict=True):
            for order in orders:
                for group, of_group in zip(order, rings.sent, strict=True):
                    sent[list(group), [*group[1:], group[0]]] += of_group.get(phase, 0.0) / len(orders)
        return sent

    def _pairs_of(self, phase: int) -> Floats:
        """With the rings that have no interface, in the order that the job gives them."""
        pairs = self.traffic.pairs.get(phase, np.zeros((self.traffic.servers, self.traffic.servers))).copy()
        for rings, orders in zip(self.traffic.rings, self.orders, strict=True):
            for group, of_group in () if orders else zip(rings.groups, rings.sent, strict=True):
                pairs[list(group), [*group[1:], group[0]]] += of_group.get(phase, 0.0)
        return pairs

    @cached_property
    def pairs_and_free_rings(self) -> Floats:
        """What is not sent in rings that have interfaces, shape (servers, servers), in all phases."""
        total: Floats = sum(map(self._pairs_of, self.traffic.phases), np.zeros_like(self.traffic.of_pairs))
        return total


def find(traffic: Traffic, interfaces: int, interface_bps: float) -> Found:
    """The candidate with the least ``cost``; of several the first. Raises as ``ranked``."""
    return ranked(traffic, interfaces, interface_bps, 1)[0]


def ranked(traffic: Traffic, interfaces: int, interface_bps: float, most: int) -> list[Found]:
    """The ``most`` candidates with the least ``cost``, in its order; of several equal ones the first. Raises
    ``ValueError`` without servers or interfaces to connect."""
    if traffic.servers < 2 or interfaces < 1:
        raise ValueError("at least two servers and one interface are needed")
    distinct = dict.fromkeys(_candidates(traffic, interfaces))
    every = (Found(traffic, wiring, orders, interface_bps) for wiring, orders in distinct)
    return heapq.nsmallest(most, every, key=lambda found: tuple(map(_rounded, found.cost)))


def published(traffic: Traffic, interfaces: int, interface_bps: float) -> Found:
    """What the paper's division gives alone: ceil(d x what rings send / all that is sent) interfaces for rings."""
    in_rings, of_pairs = traffic.in_rings, float(traffic.of_pairs.sum())
    share = math.ceil(interfaces * in_rings / (in_rings + of_pairs) - 1e-9) if in_rings else 0
    shares = _shares(traffic, max(min(1, len(traffic.rings)), share))
    wiring, orders = _divided(traffic, interfaces, shares, True, _matchings(traffic.of_pairs, interfaces))
    return Found(traffic, wiring, orders, interface_bps)


def _candidates(traffic: Traffic, interfaces: int) -> Iterator[tuple[Wiring, tuple[Orders, ...]]]:
    """Connected or not: what is not takes endless time."""
    spans = _spans(traffic)
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
    """Of each ``Rings`` how many interfaces; some have one if there are any. All divisions where these are few, else
    those in proportion to what is sent."""
    kinds = len(traffic.rings)
    if not kinds:
        return [()]
    if math.comb(interfaces + kinds, kinds) * traffic.servers <= _DIVISIONS_TRIED:
        every = product(range(interfaces + 1), repeat=kinds)
        return [shares for shares in every if 0 < sum(shares) <= interfaces]
    return [_shares(traffic, of_rings) for of_rings in range(1, interfaces + 1)]


def _spans(traffic: Traffic) -> bool:
    """Whether an all-reduce is over all servers, so that its rings connect them."""
    return any(len(group) == traffic.servers for rings in traffic.rings for group in rings.groups)


def _circulant(traffic: Traffic, interfaces: int, of_rings: int) -> Iterator[tuple[Wiring, tuple[Orders, ...]]]:
    """Steps for all interfaces together. All-reduces of other groups than all servers run as the job says."""
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
    """``shares``: of each ``Rings`` how many interfaces; the others are for ``matchings``. ``connected``: where no ring
    is over all servers, one of the latter is, so that any server reaches any other."""
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
    """One after the other; what one serves counts half for the next."""
    found, weights = [], weights.copy()
    for _ in range(count):
        found.append(heaviest_matching(weights))
        for server, peer in enumerate(found[-1]):
            if peer is not None:
                weights[server, peer] /= 2
    return found


def _shares(traffic: Traffic, interfaces: int, whole: bool = False) -> list[int]:
    """Of each ``Rings`` how many of the interfaces, in proportion to what a server sends in them, rounded up, those
    that send most first. ``whole``: only those over all servers get any."""
    weight = [0.0 if whole and len(rings.groups[0]) < traffic.servers else rings.bytes for rings in traffic.rings]
    left, total, shares = interfaces, math.fsum(weight), [0] * len(weight)
    for number in sorted(range(len(weight)), key=lambda number: -weight[number]):
        if weight[number]:
            shares[number] = min(left, math.ceil(interfaces * weight[number] / total - 1e-9))
            left -= shares[number]
    return shares


def _orders(rings: Rings, count: int) -> Orders:
    """Groups of one size have the same steps."""
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


def _rounded(value: float) -> float:
    return float(f"{value:.9g}")
