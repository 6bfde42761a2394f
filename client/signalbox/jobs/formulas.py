"""Formulas of the transfers that each algorithm of a collective makes, with their sources.

n is the number of ranks of a group, M the size of the collective in bytes. A formula gives steps that follow each
other. Each step lists the simultaneous transfers, by the ranks' positions in the group. Bytes are rounded up, so an
announcement never has fewer bytes than the job sends.

An algorithm whose pattern is the same in every step (ring, chain) is one step here, because dividing it would change no
load. Two steps of another algorithm with the same pattern, such as a halving and the doubling that retraces it, are
merged for the same reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import permutations
from typing import NamedTuple

Sent = tuple[int, int, int]
"""Position of the sender, position of the receiver, bytes."""

Steps = tuple[Iterable[Sent], ...]


class Formula(NamedTuple):
    """Transfers of an algorithm.

    ``steps``: function of n and M. ``links``: function of n that returns the number of transfers without making
    them."""

    steps: Callable[[int, int], Steps]
    links: Callable[[int], int]


def _ring_all_reduce(n: int, size: int) -> Steps:
    """Return the transfers of a ring all-reduce: each rank sends 2(n-1)/n·M to the next rank.

    The reduce-scatter sends M/n in each of its n-1 rounds; then the all-gather does the same.

    Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009."""
    return (_shift(n, 1, _share(2 * (n - 1) * size, n)),)


def _backward_ring_all_reduce(n: int, size: int) -> Steps:
    """Return the transfers of a ring all-reduce in which each rank sends to the rank before it."""
    return (_shift(n, -1, _share(2 * (n - 1) * size, n)),)


def _ring_half(n: int, size: int) -> Steps:
    """Return the transfers of one half of a ring all-reduce, the reduce-scatter or the all-gather: (n-1)/n·M each."""
    return (_shift(n, 1, _share((n - 1) * size, n)),)


def _halving_doubling_all_reduce(n: int, size: int) -> Steps:
    """Return exchanges between ranks at distance 2^k (exclusive or), k < log2 n.

    M/2^(k+1) travels each way in the reduce-scatter (vector halving, distance doubling), and again in the all-gather,
    which retraces the exchanges.

    When n is not a power of two, let p be the largest power of two below n, and r = n-p. Among the first 2r ranks, each
    even rank and the odd rank after it swap halves. The odd rank sends its reduced half, takes no part in the
    exchanges, and receives the result, M, at the end. The other ranks are numbered anew.

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
    """Return exchanges of M each way between ranks at distance 2^k (exclusive or), k < log2 n.

    When n is not a power of two, let p be the largest power of two below n. Each even rank of the first 2(n-p) ranks
    first sends M to the odd rank after it, and receives M at the end.

    Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 19(1),
    2005."""
    active, aside = _folded(n, stays=1)
    before: Steps = ([(out, stays, size) for stays, out in aside],) if aside else ()
    after: Steps = ([(stays, out, size) for stays, out in aside],) if aside else ()
    return *before, *(_exchange(active, k, size) for k in range(len(active).bit_length() - 1)), *after


def _recursive_halving_reduce_scatter(n: int, size: int) -> Steps:
    """Return exchanges between ranks at distance p/2, p/4, ... 1 (exclusive or).

    Each rank sends the part that the other rank's half keeps. Ranks beyond a power of two are folded in as in
    ``_recursive_doubling_all_reduce``, from the same article; they receive M/n at the end."""
    active, aside = _folded(n, stays=1)
    kept = [1 + (i < len(aside)) for i in range(len(active))]
    """Number of shares of M/n that each active rank, together with a rank folded into it, ends with."""

    def halving(distance: int) -> Iterator[Sent]:
        for i, rank in enumerate(active):
            first = (i ^ distance) & ~(distance - 1)
            yield rank, active[i ^ distance], _share(sum(kept[first : first + distance]) * size, n)

    before: Steps = ([(out, stays, size) for stays, out in aside],) if aside else ()
    after: Steps = ([(stays, out, _share(size, n)) for stays, out in aside],) if aside else ()
    distances = [1 << k for k in reversed(range(len(active).bit_length() - 1))]
    return *before, *map(halving, distances), *after


def _doubling_all_gather(n: int, size: int) -> Steps:
    """Return exchanges of 2^k·M/n each way between ranks at distance 2^k (exclusive or), for n a power of two.

    For other n it is Bruck's algorithm: each rank sends min(2^k, n-2^k)·M/n to the rank 2^k before it.

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
    """Return transfers of M from each rank to the next, from the first to the last.

    A broadcast is a pipelined chain from the group's first rank, which forwards each segment as it arrives (the order
    of NCCL's ring broadcast). In a pipeline send each stage sends its activations to the next. Gradients return in a
    second collective over a group of the reversed order."""
    return (((i, i + 1, size) for i in range(n - 1)),)


def _whole_message_chain(n: int, size: int) -> Steps:
    """Return a chain of n-1 steps, in which each rank forwards the message after it has received all of it."""
    return tuple([(i, i + 1, size)] for i in range(n - 1))


def _star(n: int, size: int) -> Steps:
    """Return simultaneous transfers of M from the first rank to each of the other ranks."""
    return ([(0, i, size) for i in range(1, n)],)


def _binomial_tree(n: int, size: int) -> Steps:
    """Return transfers of M from each of the first 2^k ranks to the rank 2^k further on, for k < log2 n."""
    return tuple(
        [(i, i + d, size) for i in range(min(d, n - d))] for d in (1 << k for k in range((n - 1).bit_length()))
    )


def _quaternary_tree(n: int, size: int) -> Steps:
    """Return the k-nomial tree of radix 4.

    M goes from each multiple of 4d to the ranks d, 2d and 3d further on, for all powers of four d < n, largest first.
    """

    def sends(d: int) -> Iterator[Sent]:
        return ((i, j, size) for i in range(0, n, 4 * d) for j in range(i + d, min(i + 4 * d, n), d))

    return tuple(map(sends, reversed([4**k for k in range(((n - 1).bit_length() + 1) // 2)])))


def _shift(n: int, distance: int, sent: int) -> Iterator[Sent]:
    return ((i, (i + distance) % n, sent) for i in range(n))


def _exchange(ranks: Sequence[int], k: int, sent: int) -> Iterator[Sent]:
    return ((rank, ranks[i ^ 1 << k], sent) for i, rank in enumerate(ranks))


def _folded(n: int, stays: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Return as many ranks as the largest power of two up to n, and the pairs (active rank, folded rank).

    When n exceeds that power of two by r, the first 2r ranks form the pairs. ``stays``: which rank of a pair, 0 or 1,
    is active."""
    extra = n - (1 << n.bit_length() - 1)
    aside = [(2 * i + stays, 2 * i + 1 - stays) for i in range(extra)]
    return [stays for stays, _ in aside] + list(range(2 * extra, n)), aside


def _folded_links(n: int, per_extra: int) -> int:
    k = n.bit_length() - 1
    return (k << k) + per_extra * (n - (1 << k))


def _share(size: int, parts: int) -> int:
    """Return ``size / parts``, rounded up."""
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
