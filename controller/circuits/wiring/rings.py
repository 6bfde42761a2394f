"""Circulant wirings: steps of ring permutations, and routes that consist of these steps.

In: servers, steps, bytes or rates. Out: the steps of rings; a way for each offset and for each flow; paths of flows.

In a ring over n servers, each server sends to the server whose number is higher by ``step`` (modulo n). The ring visits
all servers if and only if the step is coprime to n. Every such ring takes the same time for an all-reduce, so the steps
can be chosen so that other traffic on the same circuits has short paths. The choice of steps follows Wang et al.,
"TopoOpt: Co-optimizing Network Topology and Parallelization Strategy for Distributed Training Jobs", NSDI 2023
(TotientPerms and SelectPermutations). Near-geometric steps keep the diameter of d rings within d n^(1/d).

A path from server i to server (i + offset) mod n corresponds to a *way* to pay the amount ``offset``, modulo n, with
steps as coins. The shortest paths use the fewest coins (CoinChangeMod in the same paper).

First, all servers use the same way for the same offset. If all servers send alike, this choice gives all circuits of
one interface the same load. The ways are chosen so that different interfaces have nearly equal loads. Then single flows
change to less loaded paths: to other ways, or to the same steps in another order.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from controller.circuits.wiring.circuits import (
    UNREACHED,
    Floats,
    Wiring,
    hops_by_offset,
    total_and_most,
    weighed_and_most,
)
from controller.fabric.topology import Dpid, LinkId, PortNo
from controller.planning.problem import Problem, Routes, whole

MOST_TRIED = 20_000
"""Default of the largest number of sets of steps that a search considers."""


def totient_steps(servers: int) -> tuple[int, ...]:
    """Return the steps of rings over all servers: the numbers below n that are coprime to n, ascending."""
    return tuple(step for step in range(1, servers) if math.gcd(step, servers) == 1)


def geometric_steps(servers: int, rings: int) -> tuple[int, ...]:
    """Return near-geometric steps of rings, starting with 1.

    Each further step is the unused step closest to n^(1/rings) times the previous step; of two equally close steps, the
    smaller one. If there are fewer steps than rings, steps are repeated, which gives parallel rings."""
    allowed = totient_steps(servers)
    chosen: list[int] = []
    ratio = servers ** (1 / rings) if rings else 1.0
    while allowed and len(chosen) < rings:
        left = [step for step in allowed if step not in chosen[len(chosen) - len(chosen) % len(allowed) :]]
        aim = chosen[-1] * ratio if len(chosen) % len(allowed) else 1.0
        chosen.append(min(left, key=lambda step: (abs(step - aim), step)))
    return tuple(chosen)


class Steps(NamedTuple):
    """Steps of a circulant wiring."""

    rings: tuple[int, ...]
    """Steps of rings, coprime to the number of servers."""
    others: tuple[int, ...]
    """Steps of circuits that no ring uses."""
    mean: float
    """Mean number of hops over all offsets, with the weights of the search."""
    most: int
    """Largest number of hops of any offset."""

    @property
    def all(self) -> tuple[int, ...]:
        return self.rings + self.others


def chosen_steps(
    servers: int, rings: int, others: int = 0, weights: Sequence[float] | None = None, tried: int = MOST_TRIED
) -> Steps | None:
    """Return near-geometric steps, changed one by one as long as the mean number of hops decreases.

    ``rings``: number of steps that must form rings over all servers. ``others``: number of steps of circuits that no
    ring uses. ``weights``: weight of each offset; None for equal weights. ``tried``: largest number of sets of steps to
    consider.

    Returns None if the steps do not connect all servers."""
    if servers < 2 or rings + others < 1:
        return None
    start = [*geometric_steps(servers, rings)]
    start += [step for step in _geometric(servers, rings + others) if step not in start][:others]
    start += [1] * (rings + others - len(start))
    cost = _cost(servers, weights)
    best, now = cost(start), list(start)
    # Multiplying all steps by a number coprime to n permutes the hops. With equal weights, one ring can have step 1.
    left, fixed = tried, rings > 0 and weights is None
    kinds = [totient_steps(servers)] * rings + [tuple(range(1, servers))] * others
    better = True
    while better and left > 0:
        better = False
        for place in range(int(fixed), len(now)):
            for step in kinds[place]:
                left -= 1
                other = [*now[:place], step, *now[place + 1 :]]
                if left > 0 and step not in now and (found := cost(other)) < best:
                    best, now, better = found, other, True
    return None if math.isinf(best[0]) else Steps(tuple(now[:rings]), tuple(now[rings:]), best[0], int(best[1]))


def ring_order(members: Sequence[int], step: int) -> tuple[int, ...]:
    """Return the members in ring order: each member is ``step`` positions after the previous one, modulo their number.

    Example: ``ring_order((0, 1, 2, 3, 4), 2)`` is ``(0, 2, 4, 1, 3)``. Raises ``ValueError`` if the step is not coprime
    to the number of members: such a step gives several rings."""
    size = len(members)
    if math.gcd(step, size) != 1:
        raise ValueError(f"step {step} divides {size} servers into several rings")
    return tuple(members[place * step % size] for place in range(size))


Cost = tuple[float, float]
"""Mean and largest number of hops, compared in this order."""


def _cost(servers: int, weights: Sequence[float] | None) -> Callable[[Sequence[int]], Cost]:
    if weights is None:

        def alike(steps: Sequence[int]) -> Cost:
            found = total_and_most(servers, steps)
            return (found[0] / (servers - 1), found[1]) if found else (math.inf, math.inf)

        return alike
    weighed: Floats = np.array(weights, float)
    total = float(weighed[1:].sum()) or 1.0

    def by_weight(steps: Sequence[int]) -> Cost:
        found = weighed_and_most(servers, steps, weighed)
        return (found[0] / total, found[1]) if found else (math.inf, math.inf)

    return by_weight


def _geometric(servers: int, steps: int) -> Iterable[int]:
    """Return the integers near 1, n^(1/steps), n^(2/steps) and so on, then all other steps in ascending order."""
    ratio = servers ** (1 / steps)
    near = (round(ratio**place) for place in range(steps))
    return (step for step in dict.fromkeys([*near, *range(1, servers)]) if 0 < step < servers)


# ---- routes on circulant wirings


MOST_WAYS = 64
"""Largest number of ways per offset that are considered."""
_ROUNDS = 8
_ROUNDING = 1e-9

MOST_EVENED = 20_000
"""Largest number of flows for which ways are chosen flow by flow; above it, all flows of an offset use the same way."""
_WAYS_OF_ONE = 16
"""Number of ways of an offset that are considered for a single flow. A flow may begin a way with any of its steps."""

InterfacePath = tuple[int, ...]
"""Path of a packet: the interface by which it leaves each server, in order."""
Sends = Mapping[tuple[int, int], float]
"""Amount that a server sends to the server at an offset, in any unit, by (server, offset)."""


def ways_by_offset(servers: int, steps: Sequence[int], sent: Sequence[float]) -> tuple[InterfacePath | None, ...]:
    """Return a shortest way for each offset; None for an offset that is not reached.

    The interfaces of a way are in ascending order. Ways are chosen for one offset after the other, so that the largest
    load of an interface stays small. The offset that loads circuits most comes first. ``sent``: amount by offset, in
    any unit."""
    hops = hops_by_offset(servers, steps)
    carried = np.zeros(len(steps))
    chosen: list[InterfacePath | None] = [() if offset == 0 else None for offset in range(servers)]
    uses: dict[int, list[tuple[InterfacePath, Floats]]] = {}
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
            best, use = min(uses[offset], key=lambda each: _unevenness(carried + each[1]))
            carried += use
            moved |= best != now
            chosen[offset] = best
        if not moved:
            break
    return tuple(chosen)


def ways_of_flows(servers: int, steps: Sequence[int], sent: Sends) -> dict[tuple[int, int], InterfacePath]:
    """Return a shortest way for each (server, offset) of ``sent``. Offsets that are not reached are left out."""
    by_offset = defaultdict[int, float](float)
    for (_, offset), amount in sent.items():
        by_offset[offset] += amount
    ways = ways_by_offset(servers, steps, [by_offset[offset] for offset in range(servers)])
    alike = {(src, offset): way for src, offset in sent if (way := ways[offset]) is not None}
    if len(alike) > MOST_EVENED:
        return alike
    even = _with_even_loads(servers, steps, sent, alike)
    most = [max(_load_of_circuits(servers, steps, sent, found).values(), default=0.0) for found in (alike, even)]
    return even if most[1] < most[0] else alike


def _with_even_loads(
    servers: int, steps: Sequence[int], sent: Sends, ways: Mapping[tuple[int, int], InterfacePath]
) -> dict[tuple[int, int], InterfacePath]:
    """Return the ways after flows have changed, one by one, to ways with less loaded circuits.

    The changes end when no flow improves, or after ``_ROUNDS`` rounds. Each change decreases the sum of squares of all
    loads."""
    hops = hops_by_offset(servers, steps)
    others = {
        offset: _rotations(islice(_ways(offset, 0, servers, steps, hops), _WAYS_OF_ONE))
        for offset in {offset for _, offset in ways}
    }
    chosen, carried = dict(ways), _load_of_circuits(servers, steps, sent, ways)
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


def _circuits(server: int, way: InterfacePath, steps: Sequence[int], servers: int) -> Iterator[tuple[int, int]]:
    for interface in way:
        yield server, interface
        server = (server + steps[interface]) % servers


def _load_of_circuits(
    servers: int, steps: Sequence[int], sent: Sends, ways: Mapping[tuple[int, int], InterfacePath]
) -> defaultdict[tuple[int, int], float]:
    found = defaultdict[tuple[int, int], float](float)
    for (src, offset), way in ways.items():
        for circuit in _circuits(src, way, steps, servers):
            found[circuit] += sent[src, offset]
    return found


def _rotations(ways: Iterable[InterfacePath]) -> list[InterfacePath]:
    return list(dict.fromkeys(way[first:] + way[:first] for way in ways for first in range(len(way))))


def _ways(offset: int, first: int, servers: int, steps: Sequence[int], hops: Sequence[int]) -> Iterator[InterfacePath]:
    """Yield the shortest ways for the offset that use no interface below ``first``.

    The interfaces of a way are in ascending order, so that ways with the same steps occur only once."""
    if offset == 0:
        yield ()
        return
    for interface in range(first, len(steps)):
        left = (offset - steps[interface]) % servers
        if hops[left] == hops[offset] - 1:
            yield from ((interface, *rest) for rest in _ways(left, interface, servers, steps, hops))


def _unevenness(carried: Floats) -> tuple[float, float]:
    """Return the largest load of an interface, and the sum of squares, which measures how uneven the loads are."""
    return float(carried.max()), float((carried**2).sum())
