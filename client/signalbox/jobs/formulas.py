"""Transfers that each algorithm of a collective makes, with their sources, and the algorithms that libraries use.

n is the number of ranks of a group, M the size of the collective in bytes. A formula gives steps that follow each
other. Each step lists the simultaneous transfers, by the ranks' positions in the group. Bytes are rounded up, so an
announcement never has fewer bytes than the job sends. An algorithm whose pattern is the same in every step (ring,
chain) has a single step here, because a division into steps would change no load. For the same reason, two steps with
the same pattern are merged, such as a halving and the doubling that retraces it.

``formula`` returns the ``Formula`` for one call of an operation by a library. docs/reference/job-spec.md#libraries has
the table. Sources by library:

- ``generic``: rings in the order of the ranks, a pipelined chain for broadcasts.
- ``gloo``: measured with torch 2.13 (``tests/data/wire_matrices.json``).
- ``openmpi``: 4.1, measured with 4.1.4 and 2 to 8 ranks (same file). The algorithm follows from the tables of its
  component "tuned" for operations that commute (``ompi/mca/coll/tuned/coll_tuned_decision_fixed.c`` of release 4.1.4,
  functions ``*_intra_dec_fixed``).
- ``nccl``: from its source, not run. Rings in the order of the ranks, adjacent on each host. For small messages NCCL
  uses trees, which are not modelled here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from types import MappingProxyType
from typing import NamedTuple

from signalbox.jobs.spec import Algorithm, Library

Sent = tuple[int, int, int]
"""Transfer: position of the sender in the group, position of the receiver, bytes."""

Steps = tuple[Iterable[Sent], ...]


class Formula(NamedTuple):
    """Transfers of an algorithm among n ranks for a collective of M bytes.

    - ``steps``: function of n and M that returns the transfers
    - ``links``: function of n that returns the number of transfers without making them"""

    steps: Callable[[int, int], Steps]
    links: Callable[[int], int]


def _ring_all_reduce(n: int, size: int) -> Steps:
    """Return the transfers of a ring all-reduce: each rank sends 2(n-1)/n·M to the next rank.

    Both halves, the reduce-scatter and the all-gather, send M/n in each of n-1 rounds.

    Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009."""
    return (_shift(n, 1, _share(2 * (n - 1) * size, n)),)


def _backward_ring_all_reduce(n: int, size: int) -> Steps:
    """Return the transfers of a ring all-reduce in which each rank sends to the rank before it."""
    return (_shift(n, -1, _share(2 * (n - 1) * size, n)),)


def _ring_half(n: int, size: int) -> Steps:
    """Return the transfers of a ring reduce-scatter or ring all-gather: each rank sends (n-1)/n·M to the next rank."""
    return (_shift(n, 1, _share((n - 1) * size, n)),)


def _halving_doubling_all_reduce(n: int, size: int) -> Steps:
    """Return the transfers of a halving-doubling all-reduce: ranks i and i xor 2^k exchange data, k < log2 n.

    M/2^(k+1) travels each way in the reduce-scatter (vector halving, distance doubling), and again in the all-gather,
    which retraces the exchanges.

    When n is not a power of two, let p be the largest power of two below n, and r = n-p. Among the first 2r ranks, each
    even rank and the odd rank after it swap halves. The odd rank sends its reduced half, takes no part in the
    exchanges, and receives the result, M, at the end. The p ranks that take part are numbered anew for the exchanges.

    Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004, section 4."""
    active, aside = _folded(n, stays=0)
    half = _share(size, 2)
    before: Steps = ()
    after: Steps = ()
    if aside:
        swapped = [(i, j, half) for pair in aside for i, j in (pair, pair[::-1])]
        before = (swapped, [(out, stays, half) for stays, out in aside])
        after = ([(stays, out, size) for stays, out in aside],)
    distances = range(len(active).bit_length() - 1)
    return *before, *(_exchange(active, k, 2 * _share(size, 2 << k)) for k in distances), *after


def _recursive_doubling_all_reduce(n: int, size: int) -> Steps:
    """Return the transfers of a recursive-doubling all-reduce: in step k, ranks i and i xor 2^k exchange M, k < log2 n.

    When n is not a power of two, let p be the largest power of two below n. Each even rank of the first 2(n-p) ranks
    sends M to the odd rank after it before the exchanges, and receives M after them.

    Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 19(1),
    2005."""
    active, aside = _folded(n, stays=1)
    before: Steps = ([(out, stays, size) for stays, out in aside],) if aside else ()
    after: Steps = ([(stays, out, size) for stays, out in aside],) if aside else ()
    return *before, *(_exchange(active, k, size) for k in range(len(active).bit_length() - 1)), *after


def _recursive_halving_reduce_scatter(n: int, size: int) -> Steps:
    """Return the transfers of a recursive-halving reduce-scatter: ranks i and i xor d exchange data, d = p/2, p/4, … 1.

    p is the largest power of two up to n. In each step, a rank sends its partner the part of the data with which the
    partner goes on. As in ``_recursive_doubling_all_reduce``, whose article is the source, n-p ranks are inactive: they
    first send their M bytes to a partner, and receive M/n at the end."""
    active, aside = _folded(n, stays=1)
    kept = [1 + (i < len(aside)) for i in range(len(active))]
    """Number of shares of M/n that each active rank receives: its own, and that of an inactive partner if any."""

    def halving(distance: int) -> Iterator[Sent]:
        for i, rank in enumerate(active):
            first = (i ^ distance) & ~(distance - 1)
            yield rank, active[i ^ distance], _share(sum(kept[first : first + distance]) * size, n)

    before: Steps = ([(out, stays, size) for stays, out in aside],) if aside else ()
    after: Steps = ([(stays, out, _share(size, n)) for stays, out in aside],) if aside else ()
    distances = [1 << k for k in reversed(range(len(active).bit_length() - 1))]
    return *before, *map(halving, distances), *after


def _doubling_all_gather(n: int, size: int) -> Steps:
    """Return the transfers of an all-gather: if n is a power of two, ranks i and i xor 2^k exchange 2^k·M/n in step k.

    For any other n, the algorithm is Bruck's: in step k each rank sends min(2^k, n-2^k)·M/n to the rank 2^k before it.

    Thakur, Rabenseifner and Gropp as above; Bruck et al., "Efficient algorithms for all-to-all communications in
    multiport message-passing systems", IEEE TPDS 8(11), 1997."""
    distances = [1 << k for k in range((n - 1).bit_length())]
    if n.bit_count() == 1:
        return tuple(_exchange(range(n), k, _share(d * size, n)) for k, d in enumerate(distances))
    return tuple(_shift(n, -d, _share(min(d, n - d) * size, n)) for d in distances)


def _all_to_all(n: int, size: int) -> Steps:
    """Return transfers of M/n from each rank to every other rank; each rank keeps its own share of M.

    MPI_Alltoall, MPI 4.0 section 6.8.
    """
    sent = _share(size, n)
    return (((i, j, sent) for i, j in permutations(range(n), 2)),)


def _chain(n: int, size: int) -> Steps:
    """Return the transfers of a chain: each rank but the last sends M to the next rank.

    A broadcast is a pipelined chain from the group's first rank: each rank forwards a segment as soon as it arrives, as
    in NCCL's ring broadcast. In a pipeline send, each stage sends its activations to the next stage. Gradients return
    in a second collective, over a group of the reversed order."""
    return (((i, i + 1, size) for i in range(n - 1)),)


def _whole_message_chain(n: int, size: int) -> Steps:
    """Return the transfers of a chain of n-1 steps: each rank forwards the message after it has received all of it."""
    return tuple([(i, i + 1, size)] for i in range(n - 1))


def _star(n: int, size: int) -> Steps:
    """Return the transfers of a star: the first rank sends M to each other rank at the same time."""
    return ([(0, i, size) for i in range(1, n)],)


def _binomial_tree(n: int, size: int) -> Steps:
    """Return the transfers of a binomial tree: in step k the first 2^k ranks send M to the ranks 2^k further on."""
    return tuple(
        [(i, i + d, size) for i in range(min(d, n - d))] for d in (1 << k for k in range((n - 1).bit_length()))
    )


def _quaternary_tree(n: int, size: int) -> Steps:
    """Return the transfers of a k-nomial tree of radix 4.

    For each power of four d < n, largest first, each multiple of 4d sends M to the ranks d, 2d and 3d further on."""

    def sends(d: int) -> Iterator[Sent]:
        return ((i, j, size) for i in range(0, n, 4 * d) for j in range(i + d, min(i + 4 * d, n), d))

    return tuple(map(sends, reversed([4**k for k in range(((n - 1).bit_length() + 1) // 2)])))


def _shift(n: int, distance: int, sent: int) -> Iterator[Sent]:
    return ((i, (i + distance) % n, sent) for i in range(n))


def _exchange(ranks: Sequence[int], k: int, sent: int) -> Iterator[Sent]:
    return ((rank, ranks[i ^ 1 << k], sent) for i, rank in enumerate(ranks))


def _folded(n: int, stays: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Pair ranks so that the number of active ranks is a power of two: one rank of each pair is inactive.

    Returns the active ranks, which include all ranks without a partner, and the pairs (active rank, inactive rank).
    When n exceeds the largest power of two by r, the first 2r ranks form the pairs. ``stays``: position of the active
    rank in a pair, 0 or 1."""
    extra = n - (1 << n.bit_length() - 1)
    aside = [(2 * i + stays, 2 * i + 1 - stays) for i in range(extra)]
    return [stays for stays, _ in aside] + list(range(2 * extra, n)), aside


def _folded_links(n: int, per_extra: int) -> int:
    k = n.bit_length() - 1
    return (k << k) + per_extra * (n - (1 << k))


def _share(size: int, parts: int) -> int:
    return -(-size // parts)


RING_ALL_REDUCE = Formula(_ring_all_reduce, lambda n: n)
BACKWARD_RING_ALL_REDUCE = Formula(_backward_ring_all_reduce, lambda n: n)
RING_HALF = Formula(_ring_half, lambda n: n)
HALVING_DOUBLING_ALL_REDUCE = Formula(_halving_doubling_all_reduce, lambda n: _folded_links(n, 4))
RECURSIVE_DOUBLING_ALL_REDUCE = Formula(_recursive_doubling_all_reduce, lambda n: _folded_links(n, 2))
RECURSIVE_HALVING_REDUCE_SCATTER = Formula(_recursive_halving_reduce_scatter, lambda n: _folded_links(n, 2))
DOUBLING_ALL_GATHER = Formula(_doubling_all_gather, lambda n: n * (n - 1).bit_length())
ALL_TO_ALL = Formula(_all_to_all, lambda n: n * (n - 1))
CHAIN = Formula(_chain, lambda n: n - 1)
WHOLE_MESSAGE_CHAIN = Formula(_whole_message_chain, lambda n: n - 1)
STAR = Formula(_star, lambda n: n - 1)
BINOMIAL_TREE = Formula(_binomial_tree, lambda n: n - 1)
QUATERNARY_TREE = Formula(_quaternary_tree, lambda n: n - 1)


_BY_NAME: Mapping[Algorithm, Formula] = MappingProxyType(
    {
        Algorithm.RING_ALL_REDUCE: RING_ALL_REDUCE,
        Algorithm.RING_REDUCE_SCATTER: RING_HALF,
        Algorithm.RING_ALL_GATHER: RING_HALF,
        Algorithm.HALVING_DOUBLING_ALL_REDUCE: HALVING_DOUBLING_ALL_REDUCE,
        Algorithm.RECURSIVE_DOUBLING_ALL_REDUCE: RECURSIVE_DOUBLING_ALL_REDUCE,
        Algorithm.PIPELINE_SEND: CHAIN,
    }
)

_RINGS: Mapping[Algorithm, Formula] = {
    Algorithm.ALL_REDUCE: RING_ALL_REDUCE,
    Algorithm.REDUCE_SCATTER: RING_HALF,
    Algorithm.ALL_GATHER: RING_HALF,
    Algorithm.BROADCAST: CHAIN,
    Algorithm.ALL_TO_ALL: ALL_TO_ALL,
}

_GLOO: Mapping[Algorithm, Formula] = {
    Algorithm.ALL_REDUCE: BACKWARD_RING_ALL_REDUCE,
    Algorithm.REDUCE_SCATTER: BACKWARD_RING_ALL_REDUCE,
    Algorithm.ALL_GATHER: RING_HALF,
    Algorithm.BROADCAST: BINOMIAL_TREE,
    Algorithm.ALL_TO_ALL: ALL_TO_ALL,
}

_Row = tuple[tuple[float, Formula | None], ...]
"""Formulas by size: pairs of a bound in bytes, and the formula for sizes below this bound.

The bounds are exclusive and ascending. A formula is None if it is unknown."""

_RING, _DOUBLING, _HALVING = RING_ALL_REDUCE, RECURSIVE_DOUBLING_ALL_REDUCE, HALVING_DOUBLING_ALL_REDUCE
_TREE, _STAR, _HOPS, _HALF = QUATERNARY_TREE, STAR, WHOLE_MESSAGE_CHAIN, RING_HALF
_RECURSIVE, _GATHER = RECURSIVE_HALVING_REDUCE_SCATTER, DOUBLING_ALL_GATHER
_ANY = math.inf
_REST = 1 << 62

_OPENMPI: Mapping[Algorithm, Mapping[int, _Row]] = {
    # Rows by number of ranks: a row is valid below its key. Bounds in a row are of M. None, here and below, stands for
    # an algorithm without a formula: here a reduce followed by a broadcast.
    Algorithm.ALL_REDUCE: {
        4: ((8, _RING), (4096, _DOUBLING), (8192, _RING), (16384, _DOUBLING), (262144, _RING), (_ANY, _HALVING)),
        8: ((16, _RING), (8192, _DOUBLING), (_ANY, _HALVING)),
        16: ((8192, _DOUBLING), (_ANY, _HALVING)),
        32: ((64, _RING), (4096, _DOUBLING), (_ANY, _HALVING)),
        64: ((128, _RING), (_ANY, _HALVING)),
        128: ((262144, _DOUBLING), (_ANY, _HALVING)),
        256: ((131072, None), (262144, _DOUBLING), (_ANY, _HALVING)),
        512: ((4096, None), (_ANY, _HALVING)),
        2048: ((2048, None), (16384, _DOUBLING), (_ANY, _HALVING)),
        4096: ((2048, None), (4096, _RING), (16384, _DOUBLING), (_ANY, _HALVING)),
        _REST: ((2048, None), (16384, _RING), (32768, _DOUBLING), (_ANY, _HALVING)),
    },
    # MPI_Reduce_scatter, bounds of M. None: butterfly, and a reduce followed by a scatter.
    Algorithm.REDUCE_SCATTER: {
        3: ((_ANY, _HALF),),
        4: ((65536, _HALF), (131072, None), (_ANY, _HALF)),
        8: ((8, None), (262144, _RECURSIVE), (_ANY, _HALF)),
        32: ((262144, _RECURSIVE), (_ANY, _HALF)),
        64: ((64, None), (2048, _RECURSIVE), (524288, None), (_ANY, _HALF)),
    },
    # Bounds of M/n. None: neighbour exchange, and Bruck's algorithm for some small sizes.
    Algorithm.ALL_GATHER: {
        32: ((_ANY, _GATHER),),
        64: ((1024, _GATHER), (65536, None), (_ANY, _HALF)),
        128: ((512, _GATHER), (65536, None), (_ANY, _HALF)),
        256: ((512, _GATHER), (131072, None), (524288, _HALF), (1048576, None), (_ANY, _HALF)),
        512: ((131072, None), (524288, _HALF), (1048576, None), (_ANY, _HALF)),
    },
    # Bounds of M. Binary, binomial and k-nomial trees over 2 and 3 ranks are stars. None: binary trees, and scatter
    # with all-gather.
    Algorithm.BROADCAST: {
        4: ((32, _HOPS), (256, _STAR), (512, _HOPS), (131072, _STAR), (262144, _HOPS), (_ANY, _STAR)),
        8: ((2048, None), (8192, BINOMIAL_TREE), (1048576, _STAR), (_ANY, _HOPS)),
        16: ((64, None), (4096, _TREE), (16384, None), (32768, BINOMIAL_TREE), (_ANY, _STAR)),
        32: ((4096, _TREE), (1048576, BINOMIAL_TREE), (_ANY, None)),
        64: ((2048, BINOMIAL_TREE), (_ANY, _TREE)),
        128: ((_ANY, _TREE),),
        256: ((65536, None), (_ANY, _TREE)),
        1024: ((16384, _TREE), (32768, None), (_ANY, _TREE)),
        2048: ((524288, _TREE), (_ANY, None)),
        4096: ((262144, _TREE), (_ANY, None)),
        _REST: ((8192, _TREE), (16384, None), (262144, _TREE), (_ANY, None)),
    },
    # Bounds of M/n. None: Bruck's algorithm.
    Algorithm.ALL_TO_ALL: {
        16: ((_ANY, ALL_TO_ALL),),
        64: ((512, None), (_ANY, ALL_TO_ALL)),
        _REST: ((2048, None), (_ANY, ALL_TO_ALL)),
    },
}


def formula(library: Library, algorithm: Algorithm, ranks: int, size: int) -> Formula | None:
    """Return the formula for a call of ``size`` bytes (M, see ``spec.Collective``).

    Return None when the formula is unknown."""
    if algorithm in _BY_NAME:
        return _BY_NAME[algorithm]
    if library is Library.OPENMPI:
        return _of_openmpi(algorithm, ranks, size)
    return (_GLOO if library is Library.GLOO else _RINGS)[algorithm]


def _of_openmpi(algorithm: Algorithm, ranks: int, size: int) -> Formula | None:
    decides = size / ranks if algorithm in (Algorithm.ALL_GATHER, Algorithm.ALL_TO_ALL) else size
    row = next((row for below, row in _OPENMPI[algorithm].items() if ranks < below), ())
    return next((found for below, found in row if decides < below), None)
