"""Cases of the benchmark ``mixes``: jobs with several phases and unequal bytes, on irregular fabrics.

``CASES`` has every combination of ``FABRICS``, ``MIXES`` and ``FAILURES``. A case's name is the random seed of its
instance (``instance_for``). This module imports nothing of the controller.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from benchmarks.judge.instances import Cable, Host, Instance, Send, number_of_paths

_BPS = 100 * 10**9
_SIZE = 840 * 10**6
"""Bytes that a rank sends in the largest phase. They can be divided by 8 and by small numbers without a remainder."""
_MOST_HOSTS = 640
"""Number of hosts that jobs use at most; the largest cases then have about 6,000 flows."""
_UNEQUAL = (1, 3, 7)
_BLOCK = 8

Part = tuple[int, int, int, int]
"""Traffic of a job: (sending rank, receiving rank, phase, bytes)."""


class Case(NamedTuple):
    fabric: str
    mix: str
    failure: str

    def __str__(self) -> str:
        return f"{self.fabric}, {self.mix}, {self.failure}"


class _Fabric(NamedTuple):
    cables: list[Cable]
    hosts: tuple[Host, ...]
    spines: tuple[int, ...]
    """Switches of which one fails in the failure "1 spine"."""


# ---- fabrics


def _leaf_spine(leaves: int, spines: int, ratio: int, slow: int = 1) -> _Fabric:
    """Return a leaf-spine in which the NICs of a leaf have ``ratio`` times the rate of its uplinks.

    ``slow``: factor by which the cables to every second spine are slower."""
    hosts = max(4, spines)
    bps = hosts * _BPS // (ratio * spines)
    cables = [
        Cable(leaf, leaves + spine, bps // (slow if spine % 2 else 1))
        for leaf, spine in product(range(leaves), range(spines))
    ]
    on = tuple(Host(leaf, _BPS) for leaf in range(leaves) for _ in range(hosts))
    return _Fabric(cables, on, tuple(range(leaves, leaves + spines)))


def _fat_tree(k: int) -> _Fabric:
    """Return a fat-tree in which one of the cores of each aggregation switch has cables of half the rate."""
    half = k // 2
    edges, aggregations = k * half, 2 * k * half
    cables = [
        Cable(pod * half + edge, edges + pod * half + aggregation, _BPS)
        for pod, edge, aggregation in product(range(k), range(half), range(half))
    ]
    cables += [
        Cable(edges + pod * half + aggregation, aggregations + half * aggregation + core, _BPS // (1 + (core == 0)))
        for pod, aggregation, core in product(range(k), range(half), range(half))
    ]
    hosts = tuple(Host(edge, _BPS) for edge in range(edges) for _ in range(half))
    return _Fabric(cables, hosts, tuple(range(aggregations, aggregations + half * half)))


def _dragonfly(groups: int, routers: int) -> _Fabric:
    """Return groups of routers. Two cables join each two routers of a group, and two cables join each two groups."""
    cables = [
        Cable(group * routers + a, group * routers + b, _BPS)
        for group in range(groups)
        for a in range(routers)
        for b in range(a + 1, routers)
        for _ in range(2)
    ]
    for a in range(groups):
        for b in range(a + 1, groups):
            ends = a * routers + (b - 1) % routers, b * routers + a % routers
            cables += [Cable(*ends, _BPS)] * 2
    hosts = tuple(Host(router, _BPS) for router in range(groups * routers) for _ in range(2))
    return _Fabric(cables, hosts, ())


FABRICS: Mapping[str, Callable[[], _Fabric]] = {
    "4x2 2:1": lambda: _leaf_spine(4, 2, 2),
    "8x4 2:1": lambda: _leaf_spine(8, 4, 2),
    "8x4 4:1": lambda: _leaf_spine(8, 4, 4),
    "16x8 2:1": lambda: _leaf_spine(16, 8, 2),
    "16x8 4:1": lambda: _leaf_spine(16, 8, 4),
    "16x8 unequal spines": lambda: _leaf_spine(16, 8, 1, slow=2),
    "32x16 2:1": lambda: _leaf_spine(32, 16, 2),
    "64x32 2:1": lambda: _leaf_spine(64, 32, 2),
    "64x32 4:1": lambda: _leaf_spine(64, 32, 4),
    "fat-tree 8": lambda: _fat_tree(8),
    "dragonfly": lambda: _dragonfly(9, 4),
}


# ---- traffic of a job with ``ranks`` ranks, a power of two and at least 4


def _ring(ranks: Sequence[int], phase: int, size: int) -> Iterator[Part]:
    yield from ((a, b, phase, size) for a, b in zip(ranks, [*ranks[1:], *ranks[:1]], strict=True))


def _experts(ranks: int) -> Iterator[Part]:
    """Mixture of experts: all-to-alls in groups of eight ranks in two phases, then a ring over all ranks."""
    for first in range(0, ranks, _BLOCK):
        group = range(first, min(ranks, first + _BLOCK))
        for phase in (0, 1):
            yield from ((a, b, phase, _SIZE // 8) for a in group for b in group if a != b)
    yield from _ring(range(ranks), 2, _SIZE // 2)


def _pipeline(ranks: int) -> Iterator[Part]:
    """Pipeline of four stages: forward, backward, then a ring of gradients over the ranks of each stage."""
    width = ranks // 4
    for rank in range(ranks - width):
        yield rank, rank + width, 0, _SIZE
        yield rank + width, rank, 1, _SIZE
    for stage in range(0, ranks if width > 1 else 0, width):
        yield from _ring(range(stage, stage + width), 2, _SIZE)


def _tensor(ranks: int) -> Iterator[Part]:
    """Tensor parallelism in rings of four ranks, then data parallelism in rings of one rank per tensor ring."""
    for first in range(0, ranks, 4):
        yield from _ring(range(first, first + 4), 0, _SIZE)
    for first in range(4 if ranks > 4 else 0):
        yield from _ring(range(first, ranks, 4), 1, _SIZE)


def _halving(ranks: int) -> Iterator[Part]:
    """Halving-doubling: in each phase a rank exchanges half as many bytes as before, with a rank twice as far away."""
    for phase in range(ranks.bit_length() - 1):
        yield from ((rank, rank ^ 1 << phase, phase, _SIZE >> phase) for rank in range(ranks))


def _sharded(ranks: int) -> Iterator[Part]:
    """Fully sharded data parallelism: a ring in one direction that gathers, then a ring in the other that scatters."""
    yield from _ring(range(ranks), 0, _SIZE)
    yield from _ring(range(ranks)[::-1], 1, _SIZE)


def _rings(ranks: int) -> Iterator[Part]:
    for first in range(0, ranks, 4):
        yield from _ring(range(first, first + 4), 0, _SIZE)


MIXES: Mapping[str, tuple[Callable[[int], Iterable[Part]], ...]] = {
    "experts": (_experts,),
    "pipeline": (_pipeline,),
    "tensor": (_tensor,),
    "halving and sharded": (_halving, _sharded),
    "experts, pipeline and rings": (_experts, _pipeline, _rings),
    "all kinds": (_experts, _pipeline, _tensor, _halving, _sharded, _rings),
}
FAILURES = ("intact", "1 cable", "5 cables", "20 cables", "1 spine")
CASES = {str(case): case for case in map(Case._make, product(FABRICS, MIXES, FAILURES))}


def instance_for(case: Case) -> Instance:
    """Return the instance of a case, always the same one.

    Jobs have disjoint sets of hosts, either in order or at random. Either all ranks send equal bytes, or blocks of
    eight ranks send one, three or seven times as many bytes, in turn."""
    rng = random.Random(str(case))
    fabric = FABRICS[case.fabric]()
    fragmented, unequal = rng.random() < 0.6, rng.random() < 0.5
    hosts = list(range(len(fabric.hosts)))[:_MOST_HOSTS]
    if fragmented:
        rng.shuffle(hosts)
    kinds, sends, job = MIXES[case.mix], list[Send](), 0
    while len(hosts) >= 4:
        ranks = 1 << rng.randint(2, min(6, len(hosts).bit_length() - 1))
        own, hosts = hosts[:ranks], hosts[ranks:]
        for src, dst, phase, size in kinds[job % len(kinds)](ranks):
            part = _UNEQUAL[src // _BLOCK % 3] if unequal else 1
            sends.append(Send(job, own[src], own[dst], phase, part * size))
        job += 1
    switches = 1 + max(max(cable.a, cable.b) for cable in fabric.cables)
    return Instance(str(case), switches, _failed(rng, fabric, switches, case.failure), fabric.hosts, tuple(sends))


def _failed(rng: random.Random, fabric: _Fabric, switches: int, failure: str) -> tuple[Cable, ...]:
    """Return the cables without the failed ones. At most an eighth of the cables fails, and no host is cut off."""
    cables = fabric.cables
    if failure == "1 spine" and fabric.spines:
        gone = rng.choice(fabric.spines)
        return tuple(cable for cable in cables if gone not in cable[:2])
    if failure == "intact":
        return tuple(cables)
    count = min(int(failure.split()[0]), len(cables) // 8)
    used = {host.switch for host in fabric.hosts}
    while True:
        failed = set(rng.sample(range(len(cables)), count))
        left = tuple(cable for number, cable in enumerate(cables) if number not in failed)
        paths = number_of_paths(switches, left, min(used))
        if all(paths[switch] for switch in used):
            return left
