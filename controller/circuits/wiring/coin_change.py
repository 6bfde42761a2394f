"""Routes on a circulant wiring: the steps from server i to server (i + offset) mod n (CoinChangeMod).

Think of steps as values of coins. The shortest paths for an offset are the ways to pay this amount, modulo the number
of servers, with the fewest coins (Wang et al., TopoOpt, NSDI 2023). First, all servers take the same steps for the same
offset. When all servers send alike, all circuits of one interface then have the same load; the steps are chosen so that
the loads of different interfaces are as equal as possible. Then single flows take other steps, or the same steps in
another order, where loads are lower.

In: servers, steps, bytes or rates. Out: steps of each offset, and of each flow; paths of flows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from controller.circuits.wiring.circuits import Wiring
from controller.circuits.wiring.hops import UNREACHED, Floats, hops_by_offset
from controller.fabric.topology import Dpid, LinkId, PortNo
from controller.planning.problem import Problem, Routes, whole

MOST_WAYS = 64
"""Number of ways per offset that are considered."""
_ROUNDS = 8
_ROUNDING = 1e-9

MOST_EVENED = 20_000
"""Largest number of flows for which single flows may leave the common way of their offset."""
_WAYS_OF_ONE = 16
"""Number of ways that single flows of an offset may take, each in as many orders as the way has hops."""

Way = tuple[int, ...]
"""Way of a packet: the interface by which it leaves each server, in order."""
Sends = Mapping[tuple[int, int], float]
"""Amount that each server sends to the server at each offset, in any unit; the keys are (server, offset)."""


def ways_by_offset(servers: int, steps: Sequence[int], sent: Sequence[float]) -> tuple[Way | None, ...]:
    """Return a shortest way for each offset, with ascending interfaces; None for an offset that no circuits reach.

    Ways are chosen so that the largest load of any interface is small, starting with the offset that loads circuits
    most. ``sent``: amount by offset, in any unit."""
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


def ways_of_flows(servers: int, steps: Sequence[int], sent: Sends) -> dict[tuple[int, int], Way]:
    """Return a shortest way for each (server, offset) of ``sent``; offsets that no circuits reach are left out."""
    by_offset = defaultdict[int, float](float)
    for (_, offset), amount in sent.items():
        by_offset[offset] += amount
    ways = ways_by_offset(servers, steps, [by_offset[offset] for offset in range(servers)])
    alike = {(src, offset): way for src, offset in sent if (way := ways[offset]) is not None}
    if len(alike) > MOST_EVENED:
        return alike
    even = _evened(servers, steps, sent, alike)
    most = [max(_carried(servers, steps, sent, found).values(), default=0.0) for found in (alike, even)]
    return even if most[1] < most[0] else alike


def _evened(
    servers: int, steps: Sequence[int], sent: Sends, ways: Mapping[tuple[int, int], Way]
) -> dict[tuple[int, int], Way]:
    """Return the ways after flows have changed, one by one, to the way with the least loaded circuits.

    This ends when no flow improves, or after ``_ROUNDS`` rounds. The sum of squares of all loads decreases with each
    change."""
    hops = hops_by_offset(servers, steps)
    others = {
        offset: _in_other_orders(islice(_ways(offset, 0, servers, steps, hops), _WAYS_OF_ONE))
        for offset in {offset for _, offset in ways}
    }
    chosen, carried = dict(ways), _carried(servers, steps, sent, ways)
    for _ in range(_ROUNDS):
        moved = False
        for (src, offset), way in chosen.items():
            amount = sent[src, offset]
            for circuit in _circuits(src, way, steps, servers):
                carried[circuit] -= amount
            loads = [sum(carried[each] for each in _circuits(src, to, steps, servers)) for to in (way, *others[offset])]
            if min(loads) < loads[0] * (1 - _ROUNDING):
                way = chosen[src, offset] = others[offset][loads.index(min(loads)) - 1]
                moved = True
            for circuit in _circuits(src, way, steps, servers):
                carried[circuit] += amount
        if not moved:
            break
    return chosen


def coin_change_routes(problem: Problem, wiring: Wiring, dpids: Sequence[Dpid], ports: Sequence[PortNo]) -> Routes:
    """Return a route for every flow between servers that circuits connect.

    ``dpids``: switch inside each server. ``ports``: port of each interface, the same on all switches. Raises
    ``ValueError`` for a wiring that is not circulant."""
    steps = wiring.steps
    if steps is None:
        raise ValueError("the wiring is not circulant")
    servers, number = wiring.servers, {dpid: server for server, dpid in enumerate(dpids)}
    sent = defaultdict[tuple[int, int], float](float)
    for flow in problem.flows:
        src = number[flow.src_leaf]
        sent[src, (number[flow.dst_leaf] - src) % servers] += sum(bps for _, bps in flow.demand_bps)
    ways = ways_of_flows(servers, steps, sent)
    routes = {}
    for flow in problem.flows:
        src = number[flow.src_leaf]
        way = ways.get((src, (number[flow.dst_leaf] - src) % servers))
        if way is not None:
            circuits = _circuits(src, way, steps, servers)
            routes[flow.id] = whole(tuple(LinkId(dpids[at], ports[interface]) for at, interface in circuits))
    return routes


def _circuits(server: int, way: Way, steps: Sequence[int], servers: int) -> Iterator[tuple[int, int]]:
    """Yield the server and interface of each circuit on the way."""
    for interface in way:
        yield server, interface
        server = (server + steps[interface]) % servers


def _carried(
    servers: int, steps: Sequence[int], sent: Sends, ways: Mapping[tuple[int, int], Way]
) -> defaultdict[tuple[int, int], float]:
    """Return the load of each circuit, by sending server and interface, in the unit of ``sent``."""
    found = defaultdict[tuple[int, int], float](float)
    for (src, offset), way in ways.items():
        for circuit in _circuits(src, way, steps, servers):
            found[circuit] += sent[src, offset]
    return found


def _in_other_orders(ways: Iterable[Way]) -> list[Way]:
    """Return each way in all cyclic orders of its hops."""
    return list(dict.fromkeys(way[first:] + way[:first] for way in ways for first in range(len(way))))


def _ways(offset: int, first: int, servers: int, steps: Sequence[int], hops: Sequence[int]) -> Iterator[Way]:
    """Yield the shortest ways for the offset, with ascending interfaces from ``first`` on."""
    if offset == 0:
        yield ()
        return
    for interface in range(first, len(steps)):
        left = (offset - steps[interface]) % servers
        if hops[left] == hops[offset] - 1:
            yield from ((interface, *rest) for rest in _ways(left, interface, servers, steps, hops))


def _height(carried: Floats) -> tuple[float, float]:
    """Return the largest load of any interface, then the sum of squares, which measures how uneven the loads are."""
    return float(carried.max()), float((carried**2).sum())
