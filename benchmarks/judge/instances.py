"""Random planning problems as plain data, and their form in JSON.

``generate`` makes an ``Instance`` from a seed: cables between switches, hosts, and the traffic of jobs. This module
imports nothing of the controller.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

MOST_FLOWS = 24
MOST_PATHS = 128
"""Largest number of shortest paths between two switches with hosts; the exact solver can handle this number."""
_GBPS = 10**9
_RATES = (10 * _GBPS, 25 * _GBPS, 40 * _GBPS, 100 * _GBPS)
_UNIT = 1_000_000
_MOST_BYTES = 10**10


class Cable(NamedTuple):
    """Cable between two switches.

    Its capacity is ``bps`` each way, of which other traffic uses ``taken_ab`` and ``taken_ba``."""

    a: int
    b: int
    bps: int
    taken_ab: int = 0
    taken_ba: int = 0


class Host(NamedTuple):
    """Host on a switch. Other traffic uses ``taken_out`` bit/s of its NIC outwards and ``taken_in`` bit/s inwards."""

    switch: int
    bps: int
    taken_out: int = 0
    taken_in: int = 0


class Send(NamedTuple):
    """Bytes that a job sends from host number ``src`` to ``dst`` in one phase of each iteration."""

    job: int
    src: int
    dst: int
    phase: int
    size: int


class Instance(NamedTuple):
    """Planning problem. Switches are numbered from 0.

    All sends of a job between the same two hosts make one flow. No two jobs send between the same two hosts."""

    name: str
    switches: int
    cables: tuple[Cable, ...]
    hosts: tuple[Host, ...]
    sends: tuple[Send, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "switches": self.switches,
            **{part: [list(row) for row in getattr(self, part)] for part in ("cables", "hosts", "sends")},
        }


def from_json(data: Mapping[str, Any]) -> Instance:
    return Instance(
        data["name"],
        data["switches"],
        tuple(Cable(*row) for row in data["cables"]),
        tuple(Host(*row) for row in data["hosts"]),
        tuple(Send(*row) for row in data["sends"]),
    )


MIXED = 0
"""Value of ``max_subflows`` that allows 1, 2 or 3 subflows per flow, depending on the number of the job."""


def limit_of(max_subflows: int, job: int) -> int:
    """Return how many subflows a flow of the job may have."""
    return 1 + job % 3 if max_subflows == MIXED else max_subflows


def generate(seed: int) -> Instance:
    """Return the instance of a seed. The kinds of fabric (``KINDS``) take turns from seed to seed."""
    rng = random.Random(seed)
    kind = tuple(KINDS)[seed % len(KINDS)]
    while True:
        fabric = _without_some(rng, KINDS[kind](rng))
        if fabric is not None:
            switches, cables, hosts = fabric
            sends = _sends(rng, hosts)
            if sends:
                return Instance(f"{kind} {seed}", switches, _with_background(rng, cables), hosts, sends)


# ---- fabrics


_Fabric = tuple[int, list[Cable], tuple[Host, ...]]


def _leaf_spine(rng: random.Random) -> _Fabric:
    leaves, spines, parallel = rng.randint(2, 5), rng.randint(2, 5), rng.choice((1, 1, 1, 2))
    nic, uplink = _two_rates(rng)
    cables = [
        Cable(leaf, leaves + spine, uplink)
        for leaf in range(leaves)
        for spine in range(spines)
        for _ in range(parallel)
    ]
    return leaves + spines, _unequal(rng, cables), _hosts(rng, range(leaves), nic)


def _three_tiers(rng: random.Random) -> _Fabric:
    """Return a fabric of pods and cores: aggregation switch n of each pod is connected to the cores of group n."""
    pods, edges, planes, cores = rng.randint(2, 3), rng.randint(1, 2), 2, rng.choice((1, 2, 2))
    nic, uplink = _two_rates(rng)
    first_plane = pods * edges
    first_core = first_plane + pods * planes
    cables = []
    for pod in range(pods):
        for plane in range(planes):
            middle = first_plane + pod * planes + plane
            cables += [Cable(pod * edges + edge, middle, uplink) for edge in range(edges)]
            cables += [Cable(middle, first_core + plane * cores + core, uplink) for core in range(cores)]
    return first_core + planes * cores, _unequal(rng, cables), _hosts(rng, range(pods * edges), nic)


def _graph(rng: random.Random) -> _Fabric:
    """Return a random tree with additional edges and parallel cables, or switches in a line."""
    switches = rng.randint(3, 7)
    line = rng.random() < 0.2
    if line:
        switches = min(switches, 5)
    edges = [(here - 1 if line else rng.randrange(here), here) for here in range(1, switches)]
    if not line:
        others = [(a, b) for b in range(switches) for a in range(b) if (a, b) not in edges]
        edges += rng.sample(others, min(len(others), rng.randint(1, switches)))
    rates = rng.sample(_RATES, rng.choice((1, 1, 2)))
    cables = [Cable(a, b, rng.choice(rates)) for a, b in edges for _ in range(rng.randint(2 if line else 1, 3))]
    with_hosts = rng.sample(range(switches), rng.randint(2, switches))
    return switches, cables, _hosts(rng, with_hosts, rng.choice(_RATES))


KINDS = {"leaf-spine": _leaf_spine, "three tiers": _three_tiers, "graph": _graph}


def _two_rates(rng: random.Random) -> tuple[int, int]:
    nic = rng.choice(_RATES)
    return nic, rng.choice((nic, nic, nic // 2, nic // 2, 2 * nic))


def _unequal(rng: random.Random, cables: list[Cable]) -> list[Cable]:
    if rng.random() < 0.75:
        return cables
    return [cable._replace(bps=rng.choice((1, 1, 2, 4)) * cable.bps) for cable in cables]


def _hosts(rng: random.Random, switches: Sequence[int], nic: int) -> tuple[Host, ...]:
    most = rng.randint(1, 6)
    return tuple(Host(switch, nic) for switch in switches for _ in range(rng.choice((most, most, rng.randint(1, 6)))))


def _without_some(rng: random.Random, fabric: _Fabric) -> _Fabric | None:
    """Return the fabric without up to three cables; None if hosts are cut off or there are too many paths."""
    switches, cables, hosts = fabric
    gone = set(rng.sample(range(len(cables)), min(len(cables) - 1, rng.choice((0, 0, 1, 2, 3)))))
    cables = [cable for number, cable in enumerate(cables) if number not in gone]
    used = {host.switch for host in hosts}
    counts = [number_of_paths(switches, cables, src) for src in used]
    if len(used) < 2 or not all(1 <= count[dst] <= MOST_PATHS for count in counts for dst in used):
        return None
    return switches, cables, hosts


def number_of_paths(switches: int, cables: Sequence[Cable], src: int) -> list[int]:
    """Return the number of shortest paths from ``src`` to each switch; 0 for a switch that it does not reach."""
    count, distance, frontier = [0] * switches, {src: 0}, [src]
    count[src] = 1
    while frontier:
        following: dict[int, int] = {}
        for cable in cables:
            for here, there in ((cable.a, cable.b), (cable.b, cable.a)):
                if here in frontier and there not in distance:
                    following[there] = following.get(there, 0) + count[here]
        for there, paths in following.items():
            count[there] = paths
            distance[there] = distance[frontier[0]] + 1
        frontier = list(following)
    return count


def _with_background(rng: random.Random, cables: Sequence[Cable]) -> tuple[Cable, ...]:
    """Return the cables with other traffic: none, up to 2 %, up to 30 %, or multiples of 10 % of the capacity."""
    kind = rng.choice(("none", "none", "none", "little", "much", "steps"))
    if kind == "none":
        return tuple(cables)

    def taken(bps: int) -> int:
        if kind == "steps":
            return bps // 10 * rng.choice((0, 0, 1, 2, 3))
        return rng.randrange(bps * (2 if kind == "little" else 30) // 100)

    return tuple(cable._replace(taken_ab=taken(cable.bps), taken_ba=taken(cable.bps)) for cable in cables)


# ---- traffic


def _sends(rng: random.Random, hosts: Sequence[Host]) -> tuple[Send, ...]:
    """Return the traffic of one to four random jobs, on disjoint hosts or on the same hosts."""
    size = _sizes(rng)
    most, jobs = max(rng.randint(2, MOST_FLOWS), rng.randint(2, MOST_FLOWS)), rng.randint(1, 4)
    order, apart = rng.sample(range(len(hosts)), len(hosts)), rng.random() < 0.6
    taken: set[tuple[int, int]] = set()
    sends: list[Send] = []
    for job in range(jobs):
        own = order[len(order) * job // jobs : len(order) * (job + 1) // jobs] if apart else order
        flows: set[tuple[int, int]] = set()
        room = most * (job + 1) // jobs - len(taken)
        for phase in range(rng.choice((1, 1, 1, 2, 3))):
            for pair in dict.fromkeys(_pattern(rng, own, most)):
                if pair not in taken and (pair in flows or len(flows) < room):
                    flows.add(pair)
                    sends.append(Send(job, *pair, phase, next(size)))
        taken |= flows
    return tuple(sends)


def _pattern(rng: random.Random, hosts: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Yield the (source, destination) of rings, of random pairs, or of all pairs among four hosts."""
    kind = rng.choice(("rings", "rings", "pairs", "everyone"))
    order = rng.sample(hosts, len(hosts))
    if len(order) < 2:
        return
    if kind == "rings":
        length = rng.choice((2, 3, 4, len(order)))
        for first in range(0, len(order), length):
            ring = order[first : first + length]
            if len(ring) > 1:
                yield from pairwise((*ring, ring[0]))
    elif kind == "pairs":
        for _ in range(most):
            src, dst = rng.sample(order, 2)
            yield src, dst
    else:
        some = order[:4]
        yield from ((src, dst) for src in some for dst in some if src != dst)


def _sizes(rng: random.Random) -> Iterator[int]:
    """Yield numbers of bytes without end: all equal, small multiples of a unit, or arbitrary."""
    kind, base = rng.choice(("equal", "equal", "multiples", "any")), rng.randrange(1, _MOST_BYTES)
    while True:
        if kind == "equal":
            yield base
        elif kind == "multiples":
            yield _UNIT * rng.randint(1, 4)
        else:
            yield rng.randrange(1, _MOST_BYTES)
