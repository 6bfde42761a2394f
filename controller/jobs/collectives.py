"""Virtual links: what the collectives of a job send from host to host, and how the subflows of one are distinguished.

Owns the formulas. In: a ``JobSpec``. Out: one ``VirtualLink`` per (source, destination, phase), with the bytes of one
iteration. Every number of bytes is rounded up, per collective and pair, so that what is announced is never less than
what is sent. M is the collective's ``bytes_per_iteration`` and n the number of ranks in a group.

A job that may split its flows opens one connection per subflow, each from a source port of that subflow's class. The
classes follow from the job's ``max_subflows`` alone, so they stay while its routes change: class i of K has the value i
in the bits above bit 0, as many of them as K needs. Bit 0 cannot be used: Linux gives connect() even ports and bind(0)
odd ones (measured, 200 of 200). When K is no power of two, some ports belong to no class: their packets are hashed by
ECMP, like those of classes without a subflow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import NamedTuple, assert_never

from controller.errors import FieldProblem, InvalidInput
from controller.jobs.spec import Algorithm, JobSpec

MAX_VIRTUAL_LINKS = 65_536
"""Per job, before merging: an all-to-all over 256 ranks fits."""

Transfer = tuple[int, int, int]
"""Sending rank, receiving rank, bytes per iteration."""


@dataclass(frozen=True, slots=True)
class VirtualLink:
    """An elephant flow: all ``bytes`` that a job sends from ``src_ip`` to ``dst_ip`` in ``phase`` of one iteration."""

    src_ip: str
    dst_ip: str
    phase: int
    bytes: int


def ring_all_reduce(ranks: Sequence[int], size: int) -> Iterator[Transfer]:
    """n links of 2(n-1)/n·M, each rank to the next: a reduce-scatter and then an all-gather, each of n-1 steps of M/n.

    Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009.
    """
    return _ring(ranks, _share(2 * (len(ranks) - 1) * size, len(ranks)))


def ring_half(ranks: Sequence[int], size: int) -> Iterator[Transfer]:
    """n links of (n-1)/n·M: the reduce-scatter or the all-gather of ``ring_all_reduce`` alone (n-1 steps of M/n)."""
    return _ring(ranks, _share((len(ranks) - 1) * size, len(ranks)))


def halving_doubling_all_reduce(ranks: Sequence[int], size: int) -> Iterator[Transfer]:
    """Each rank exchanges 2·M/2^(k+1) with the rank at distance 2^k (exclusive or), for k < log2 n: M/2^(k+1) in the
    reduce-scatter (vector halving, distance doubling) and as much in the all-gather that retraces it. Each rank sends
    2(n-1)/n·M in all. n is a power of two.

    Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004, section 4.
    """
    n = len(ranks)
    for k in range(n.bit_length() - 1):
        sent = 2 * _share(size, 2 << k)
        for i, rank in enumerate(ranks):
            yield rank, ranks[i ^ 1 << k], sent


def all_to_all(ranks: Sequence[int], size: int) -> Iterator[Transfer]:
    """n(n-1) links of M/n: each rank keeps its own share of M and sends every other rank one (MPI_Alltoall,
    MPI 4.0 section 6.8)."""
    sent = _share(size, len(ranks))
    return ((src, dst, sent) for src, dst in permutations(ranks, 2))


def chain(ranks: Sequence[int], size: int) -> Iterator[Transfer]:
    """n-1 links of M, each rank to the next, from the first to the last.

    As a broadcast: the pipelined chain from the group's first rank, which hands on each segment as it comes in (the
    order of NCCL's ring broadcast). As a pipeline send: each stage's activations to the next; gradients go back in
    a second collective over a group of the reversed order.
    """
    return ((src, dst, size) for src, dst in pairwise(ranks))


_TRANSFERS: Mapping[Algorithm, Callable[[Sequence[int], int], Iterator[Transfer]]] = {
    Algorithm.RING_ALL_REDUCE: ring_all_reduce,
    Algorithm.RING_REDUCE_SCATTER: ring_half,
    Algorithm.RING_ALL_GATHER: ring_half,
    Algorithm.HALVING_DOUBLING_ALL_REDUCE: halving_doubling_all_reduce,
    Algorithm.ALL_TO_ALL: all_to_all,
    Algorithm.BROADCAST: chain,
    Algorithm.PIPELINE_SEND: chain,
}


def virtual_links(spec: JobSpec) -> tuple[VirtualLink, ...]:
    """The job's virtual links, merged per (source, destination, phase) and sorted by it. Raises ``InvalidInput`` with
    what ``check`` finds."""
    problems = check(spec)
    if problems:
        raise InvalidInput(tuple(problems))
    ranks = {group.name: group.ranks for group in spec.groups}
    total: Counter[tuple[str, str, int]] = Counter()
    for collective in spec.collectives:
        for name in collective.groups:
            for src, dst, sent in _TRANSFERS[collective.algorithm](ranks[name], collective.bytes_per_iteration):
                total[spec.endpoints[src], spec.endpoints[dst], collective.phase] += sent
    return tuple(VirtualLink(*key, sent) for key, sent in sorted(total.items()))


def check(spec: JobSpec) -> list[FieldProblem]:
    """What is wrong with a spec that ``JobSpec.parse`` accepts but no algorithm can run. Costs no more than reading the
    spec."""
    problems: list[FieldProblem] = []
    sizes = {group.name: len(group.ranks) for group in spec.groups}
    links = 0
    for c, collective in enumerate(spec.collectives):
        where = f"collectives[{c}].groups"
        if len(set(collective.groups)) < len(collective.groups):
            problems.append(FieldProblem(where, "a group appears twice"))
        for g, name in enumerate(collective.groups):
            n = sizes[name]
            links += _link_count(collective.algorithm, n)
            if collective.algorithm is Algorithm.HALVING_DOUBLING_ALL_REDUCE and n.bit_count() != 1:
                message = f"halving-doubling needs a power of two of ranks; group '{name}' has {n}"
                problems.append(FieldProblem(f"{where}[{g}]", message))
    if links > MAX_VIRTUAL_LINKS:
        message = f"the collectives make {links} virtual links; at most {MAX_VIRTUAL_LINKS} are allowed"
        problems.append(FieldProblem("collectives", message))
    return problems


def _link_count(algorithm: Algorithm, n: int) -> int:
    match algorithm:
        case Algorithm.ALL_TO_ALL:
            return n * (n - 1)
        case Algorithm.HALVING_DOUBLING_ALL_REDUCE:
            return n * (n.bit_length() - 1)
        case Algorithm.BROADCAST | Algorithm.PIPELINE_SEND:
            return n - 1
        case Algorithm.RING_ALL_REDUCE | Algorithm.RING_REDUCE_SCATTER | Algorithm.RING_ALL_GATHER:
            return n
        case _:
            assert_never(algorithm)


def _ring(ranks: Sequence[int], sent: int) -> Iterator[Transfer]:
    return ((rank, ranks[(i + 1) % len(ranks)], sent) for i, rank in enumerate(ranks))


def _share(size: int, parts: int) -> int:
    """``size / parts``, rounded up."""
    return -(-size // parts)


# ---- source-port classes


class PortClass(NamedTuple):
    """The transport ports p with ``p & mask == value``."""

    value: int
    mask: int

    def holds(self, port: int) -> bool:
        return port & self.mask == self.value


def exactly(port: int) -> PortClass:
    """The class of one port."""
    return PortClass(port, 0xFFFF)


def port_classes(max_subflows: int) -> tuple[PortClass, ...]:
    """One class per subflow, disjoint, in the order of the subflows; none for flows that stay whole."""
    if max_subflows == 1:
        return ()
    mask = ((1 << (max_subflows - 1).bit_length()) - 1) << 1
    return tuple(PortClass(number << 1, mask) for number in range(max_subflows))
