"""Network of fluid connections: how fast each connection sends, and when it is done.

In: links with a capacity, and connections with a weight, the links they use and bits to send. Out: the times at which
connections are done. Between two events every connection has its weighted max-min fair rate
(docs/explanation/simulator.md#the-model).

A connection may be spread: each link carries only a fraction of the connection's bits, and all parts of the connection
progress together. Several connections may take from a common queue: each then sends at its own rate until the queue is
empty.

A connection has a rank, by default 0. Where several ranks send over a link, every rank can have ``floor`` of the link;
what is left goes to the lowest rank first. Within a rank, rates are weighted max-min fair.

An event recomputes only the connections that it can reach over shared links, not the whole network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SHARE_TOLERANCE = 1e-12
"""Relative difference up to which two fair shares count as equal, so that rounding does not order them."""
SAME_MOMENT = 1e-12
"""Difference of two ends, relative to the time on the clock, up to which connections end together.

Without this tolerance, rounding would turn one event into thousands."""
FEW = 24
"""Largest number of connections for which plain Python finds the rates faster than numpy."""
REACH = 160
"""Largest number of connections affected by an event for which only their rates are recomputed.

If an event affects more connections, the rates of all connections are recomputed: with numpy this is faster than the
search for further affected connections."""


Uses = Mapping[int, float]
"""Fraction of a connection's bits on each link that it uses, by index of the link; 1 on a single path."""


def _fill(capacity_bps: Floats, links: Ints, parts: Floats, weights: Floats) -> Floats:
    """Return weighted max-min fair rates in bit/s, one per connection, by progressive filling.

    The algorithm is that of Bertsekas and Gallager, "Data Networks", section 6.5.2. ``links``, ``parts``: shape
    (connections, hops). The last link has infinite capacity and fills up short rows.

    A round fixes the rates of all connections of each link that is the bottleneck of all its connections: none of these
    connections has a smaller share on another link. Rates that are fixed later can only raise the shares of other
    links, so a round need not be limited to the one link with the smallest share."""
    rates = np.zeros(len(links))
    left = np.array(capacity_bps)
    waiting = np.arange(len(links))
    while waiting.size:
        hops, weight, part = links[waiting], weights[waiting], parts[waiting]
        load = np.bincount(hops.ravel(), (part * weight[:, None]).ravel(), len(left))
        share = np.divide(left, load, out=np.full(len(left), np.inf), where=load > 0)
        found = share[hops]
        smallest = found.min(axis=1)
        elsewhere = found > smallest[:, None] * (1 + SHARE_TOLERANCE)
        blocked = np.bincount(hops.ravel(), elsewhere.ravel(), len(left)) > 0
        frozen = (~blocked[hops] & ~elsewhere).any(axis=1)
        rates[waiting[frozen]] = bps = weight[frozen] * smallest[frozen]
        left -= np.bincount(hops[frozen].ravel(), (part[frozen] * bps[:, None]).ravel(), len(left))
        np.maximum(left, 0.0, out=left)
        waiting = waiting[~frozen]
    return rates


def _fill_few(capacity_bps: Sequence[float], uses: Sequence[Uses], weights: Sequence[float]) -> list[float]:
    """Return the same rates as ``_fill``, without numpy: fix the link with the smallest share first."""
    left: dict[int, float] = {}
    load: dict[int, float] = {}
    users: dict[int, list[int]] = {}
    for connection, used in enumerate(uses):
        for link, part in used.items():
            left[link] = capacity_bps[link]
            load[link] = load.get(link, 0.0) + part * weights[connection]
            users.setdefault(link, []).append(connection)
    rates = [0.0] * len(uses)
    while load:
        tight = min(load, key=lambda link: left[link] / load[link])
        share = max(0.0, left[tight] / load[tight])
        for connection in tuple(users[tight]):
            bps = rates[connection] = weights[connection] * share
            for link, part in uses[connection].items():
                left[link] -= part * bps
                load[link] -= part * weights[connection]
                users[link].remove(connection)
                if not users[link]:
                    del load[link]
    return rates


def _fill_ranks(capacity_bps: Floats, links: Ints, parts: Floats, weights: Floats, ranks: Ints, floor: float) -> Floats:
    """Return rates like ``_fill``, by strict priority of lower ranks over all but the floors of the others.

    First, each rank fills its floors, and whole links where no other rank sends. Then one rank after the other fills
    what earlier ranks and the floors of later ranks leave."""

    def used(of: NDArray[np.bool_], rates: Floats) -> Floats:
        bits = (parts[of] * rates[of, None]).ravel()
        return np.asarray(np.bincount(links[of].ravel(), bits, len(capacity_bps)), np.float64)

    least, rates = np.zeros(len(links)), np.zeros(len(links))
    least_bps = np.append(floor * capacity_bps[:-1], np.inf)
    order = np.unique(ranks)
    for rank in order:
        of = ranks == rank
        shared = np.bincount(links[~of].ravel(), minlength=len(capacity_bps)) > 0
        least[of] = _fill(np.where(shared, least_bps, capacity_bps), links[of], parts[of], weights[of])
    for rank in order:
        of = ranks == rank
        left = capacity_bps - used(ranks < rank, rates) - used(ranks > rank, least)
        rates[of] = _fill(np.maximum(left, 0.0), links[of], parts[of], weights[of])
    return rates


class Fluid:
    """Connections of one network, and its clock.

    Each connection has a number, by which the methods refer to it. A connection is idle until ``start``, and again when
    all its bits are sent; at this time ``advance`` returns the connection's number. The first of several connections
    with a common queue represents all of them. ``now_s``: the time on the clock in seconds. ``floor``: fraction of each
    link that every rank keeps."""

    def __init__(self, capacity_bps: Sequence[float] | Floats, floor: float = 0.0) -> None:
        self.now_s = 0.0
        self._floor = floor
        self._filler = len(capacity_bps)
        self._capacity = np.append(np.asarray(capacity_bps, np.float64), np.inf)
        self._capacity_list: list[float] = self._capacity.tolist()
        self._on_link: list[set[int]] = [set() for _ in capacity_bps]
        self._uses: list[Uses] = []
        self._links: Ints = np.zeros((0, 1), np.int64)
        self._parts: Floats = np.zeros((0, 1))
        self._weight, self._left_bits, self._rate_bps, self._since_s, self._ends_s = (np.zeros(0) for _ in range(5))
        self._rank: Ints = np.zeros(0, np.int64)
        self._active: set[int] = set()
        self._dirty: set[int] = set()
        self._queue: dict[int, tuple[int, ...]] = {}
        self._first: Ints = np.zeros(0, np.int64)

    def connect(self, uses: Uses, weight: float = 1.0, rank: int = 0) -> int:
        """Add an idle connection and return its number. Raises ``ValueError`` without links."""
        connection = len(self._uses)
        if connection == len(self._weight):
            self._grow(max(64, 2 * connection), self._links.shape[1])
        self._uses.append(uses)
        self.route(connection, uses, weight, rank)
        return connection

    def route(self, connection: int, uses: Uses, weight: float = 1.0, rank: int = 0) -> None:
        """Set the links, the weight and the rank of an idle connection.

        Raises ``ValueError`` when the connection is sending, or when there are no links."""
        if connection in self._active:
            raise ValueError(f"connection {connection} is sending")
        if not uses:
            raise ValueError("a connection needs at least one link")
        if len(uses) > self._links.shape[1]:
            self._grow(len(self._weight), len(uses))
        self._uses[connection] = uses
        self._weight[connection] = weight
        self._rank[connection] = rank
        self._links[connection] = self._filler
        self._parts[connection] = 0.0
        self._links[connection, : len(uses)] = list(uses)
        self._parts[connection, : len(uses)] = list(uses.values())

    def weigh(self, connection: int, weight: float) -> None:
        """Set the weight of an idle connection."""
        self._weight[connection] = weight

    def start(self, connection: int, bits: float, helpers: Sequence[int] = ()) -> None:
        """Let an idle connection send ``bits`` from now on.

        ``helpers``: idle connections that take from the same queue until it is empty; ``advance`` does not return
        them."""
        self._left_bits[connection] = bits
        self._rate_bps[connection] = 0.0
        self._since_s[connection] = self.now_s
        together = (connection, *helpers)
        if helpers:
            self._queue |= dict.fromkeys(together, together)
        self._active.update(together)
        self._first[list(together)] = connection
        for one in together:
            uses = self._uses[one]
            for link in uses:
                self._on_link[link].add(one)
            self._dirty.update(uses)

    def stop(self, connection: int, sent_until_s: float = math.inf) -> float:
        """End a connection before it is done, and return the number of bits that were not sent; 0 when it is idle.

        ``sent_until_s``: count only bits sent until this time, which is in the past, but after the last change of the
        rate."""
        if connection not in self._active:
            return 0.0
        sent_s = max(0.0, min(self.now_s, sent_until_s) - float(self._since_s[connection]))
        sent_bits = float(self._rate_bps[connection]) * sent_s
        self._end(connection)
        return max(0.0, float(self._left_bits[connection]) - sent_bits)

    def advance(self, until_s: float) -> list[int]:
        """Advance to the next time at which connections are done, and return them.

        When none is done by ``until_s``, advance to ``until_s``. Raises ``ValueError`` when ``until_s`` is infinite and
        no connection will ever be done."""
        self._settle()
        ends_s = float(self._ends_s.min(initial=math.inf))
        if ends_s > until_s:
            self.now_s = until_s
            return []
        if ends_s == math.inf:
            raise ValueError("nothing is sending")
        self.now_s = ends_s
        done: list[int] = np.flatnonzero(self._ends_s <= ends_s * (1 + SAME_MOMENT)).tolist()
        for connection in done:
            self._end(connection)
        return done

    def rates_bps(self) -> dict[int, float]:
        """Return the rate of every connection that is sending; the rates of helpers are added."""
        self._settle()
        return {one: float(self._rate_bps[one]) for one in sorted(self._active) if self._first[one] == one}

    def _end(self, connection: int) -> None:
        self._ends_s[connection] = math.inf
        for one in self._queue.get(connection, (connection,)):
            self._queue.pop(one, None)
            self._active.remove(one)
            uses = self._uses[one]
            for link in uses:
                self._on_link[link].remove(one)
            self._dirty.update(uses)

    def _settle(self) -> None:
        """Recompute the rates of all connections that may be affected by changes since the last call."""
        touched = self._reached()
        self._dirty.clear()
        if not touched:
            return
        index = np.fromiter(touched, np.int64, len(touched))
        weights, ranks = self._weight[index], self._rank[index]
        one_rank = ranks.min() == ranks.max()
        if one_rank and len(touched) <= FEW:
            few = [self._uses[connection] for connection in touched]
            rates = np.array(_fill_few(self._capacity_list, few, weights.tolist()))
        elif one_rank:
            rates = _fill(self._capacity, self._links[index], self._parts[index], weights)
        else:
            rates = _fill_ranks(self._capacity, self._links[index], self._parts[index], weights, ranks, self._floor)
        if self._queue:
            index, queue = np.unique(self._first[index], return_inverse=True)
            rates = np.bincount(queue, rates, len(index))
        left = self._left_bits[index] - self._rate_bps[index] * (self.now_s - self._since_s[index])
        self._left_bits[index] = left = np.maximum(left, 0.0)
        self._rate_bps[index] = rates
        self._since_s[index] = self.now_s
        ends = np.divide(left, rates, out=np.full(len(left), np.inf), where=rates > 0)
        self._ends_s[index] = self.now_s + ends

    def _reached(self) -> list[int]:
        """Return the sending connections that share links with changed connections, directly or through others.

        All connections of one queue are included together."""
        seen_links = set(self._dirty)
        to_do = list(seen_links)
        seen: set[int] = set()
        while to_do:
            for connection in self._on_link[to_do.pop()] - seen:
                for one in self._queue.get(connection, (connection,)):
                    seen.add(one)
                    fresh = [link for link in self._uses[one] if link not in seen_links]
                    seen_links.update(fresh)
                    to_do += fresh
            if len(seen) > REACH:
                return sorted(self._active)
        return sorted(seen)

    def _grow(self, rows: int, width: int) -> None:
        links, parts = np.full((rows, width), self._filler), np.zeros((rows, width))
        links[: len(self._links), : self._links.shape[1]] = self._links
        parts[: len(self._parts), : self._parts.shape[1]] = self._parts
        self._links, self._parts = links, parts
        self._first = np.concatenate([self._first, np.zeros(rows - len(self._first), np.int64)])
        self._weight = _longer(self._weight, rows, 1.0)
        self._rank = np.concatenate([self._rank, np.zeros(rows - len(self._rank), np.int64)])
        self._left_bits = _longer(self._left_bits, rows, 0.0)
        self._rate_bps = _longer(self._rate_bps, rows, 0.0)
        self._since_s = _longer(self._since_s, rows, 0.0)
        self._ends_s = _longer(self._ends_s, rows, math.inf)


def _longer(values: Floats, size: int, filler: float) -> Floats:
    return np.concatenate([values, np.full(size - len(values), filler)])
