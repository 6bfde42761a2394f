"""Routes on a circulant wiring: which steps a packet takes to a server so much higher (CoinChangeMod).

Of each offset the shortest ways are the ways to pay it, modulo the number of servers, with the fewest coins of the
values of the steps (Wang et al., TopoOpt, NSDI 2023). All servers take the same way to the same offset. So circuits of
one interface are loaded alike when all servers send alike, and the ways are chosen such that interfaces are, too.

In: servers, steps, what is sent by offset. Out: steps of each offset; paths of flows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from controller.fabric.topology import Dpid, LinkId, PortNo
from controller.planning.problem import Problem, Routes, whole
from controller.wiring.circuits import Wiring
from controller.wiring.hops import UNREACHED, Floats, hops_by_offset

MOST_WAYS = 64
"""Of one offset that are looked at."""
_ROUNDS = 8

Way = tuple[int, ...]
"""Interfaces in the order in which a packet leaves by them."""


def ways_by_offset(servers: int, steps: Sequence[int], sent: Sequence[float]) -> tuple[Way | None, ...]:
    """Of each offset a shortest way, interfaces ascending; None where there is none. ``sent``: by offset, in any unit;
    the most that an interface carries is made small, from the offset that sends most on."""
    hops = hops_by_offset(servers, steps)
    carried = np.zeros(len(steps))
    chosen: list[Way | None] = [() if offset == 0 else None for offset in range(servers)]
    uses: dict[int, list[tuple[Way, Floats]]] = {}
    order = sorted((o for o in range(1, servers) if hops[o] != UNREACHED), key=lambda o: (-sent[o] * hops[o], o))
    for offset in order:
        ways = list(islice(_ways(offset, 0, servers, steps, hops), MOST_WAYS))
        uses[offset] = [(way, sent[offset] * np.bincount(way, minlength=len(steps)).astype(float)) for way in ways]
    for round_ in range(_ROUNDS):
        moved = False
        for offset in order:
            now = chosen[offset]
            if now is not None and round_:
                carried -= next(use for way, use in uses[offset] if way == now)
            best, use = min(uses[offset], key=lambda each: _height(carried + each[1]))
            carried += use
            moved |= best != now
            chosen[offset] = best
        if not moved:
            break
    return tuple(chosen)


def coin_change_routes(problem: Problem, wiring: Wiring, dpids: Sequence[Dpid], ports: Sequence[PortNo]) -> Routes:
    """Of every flow between servers that circuits connect. ``dpids``: of the switch inside each server; ``ports``: of
    each interface, on all of them. Raises ``ValueError`` for a wiring that is not circulant."""
    steps = wiring.steps
    if steps is None:
        raise ValueError("the wiring is not circulant")
    servers, number = wiring.servers, {dpid: server for server, dpid in enumerate(dpids)}
    sent = defaultdict[int, float](float)
    for flow in problem.flows:
        sent[(number[flow.dst_leaf] - number[flow.src_leaf]) % servers] += sum(bps for _, bps in flow.demand_bps)
    ways = ways_by_offset(servers, steps, [sent[offset] for offset in range(servers)])
    routes = {}
    for flow in problem.flows:
        src = number[flow.src_leaf]
        way = ways[(number[flow.dst_leaf] - src) % servers]
        if way is not None:
            routes[flow.id] = whole(tuple(_links(src, way, steps, dpids, ports)))
    return routes


def _links(
    server: int, way: Way, steps: Sequence[int], dpids: Sequence[Dpid], ports: Sequence[PortNo]
) -> Iterator[LinkId]:
    for interface in way:
        yield LinkId(dpids[server], ports[interface])
        server = (server + steps[interface]) % len(dpids)


def _ways(offset: int, first: int, servers: int, steps: Sequence[int], hops: Sequence[int]) -> Iterator[Way]:
    """The shortest, with interfaces ascending from ``first``."""
    if offset == 0:
        yield ()
        return
    for interface in range(first, len(steps)):
        left = (offset - steps[interface]) % servers
        if hops[left] == hops[offset] - 1:
            yield from ((interface, *rest) for rest in _ways(left, interface, servers, steps, hops))


def _height(carried: Floats) -> tuple[float, float]:
    """The most of any interface, and then how uneven they are."""
    return float(carried.max()), float((carried**2).sum())
