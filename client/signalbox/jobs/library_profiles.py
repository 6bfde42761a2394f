"""Algorithms that communication libraries use for collectives such as an all-reduce.

``formula`` returns the ``Formula`` for a library, an operation, and the ranks and bytes of one call, or None when the
formula is unknown. An algorithm given by its own name is the same with every library.

- ``generic``: rings in the order of the ranks, a pipelined chain for broadcasts.
- ``gloo``: measured with torch 2.13 (``tests/data/wire_matrices.json``). Its all-reduce is a ring that runs backwards.
  Its reduce-scatter is a whole all-reduce of which each rank keeps its part.
- ``openmpi``: 4.1, measured with 4.1.4 and 2 to 8 ranks (same file). The algorithm depends on size and ranks, by the
  tables of its component "tuned" for operations that commute (``ompi/mca/coll/tuned/coll_tuned_decision_fixed.c`` of
  release 4.1.4, functions ``*_intra_dec_fixed``).
- ``nccl``: from its source, not run. Rings in the order of the ranks, adjacent on each host. For small messages NCCL
  uses trees, which are not modelled here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from signalbox.jobs import formulas as f
from signalbox.jobs.formulas import Formula
from signalbox.jobs.spec import Algorithm, Library

_BY_NAME: Mapping[Algorithm, Formula] = MappingProxyType(
    {
        Algorithm.RING_ALL_REDUCE: f.RING_ALL_REDUCE,
        Algorithm.RING_REDUCE_SCATTER: f.RING_HALF,
        Algorithm.RING_ALL_GATHER: f.RING_HALF,
        Algorithm.HALVING_DOUBLING_ALL_REDUCE: f.HALVING_DOUBLING_ALL_REDUCE,
        Algorithm.RECURSIVE_DOUBLING_ALL_REDUCE: f.RECURSIVE_DOUBLING_ALL_REDUCE,
        Algorithm.PIPELINE_SEND: f.CHAIN,
    }
)

_RINGS: Mapping[Algorithm, Formula] = {
    Algorithm.ALL_REDUCE: f.RING_ALL_REDUCE,
    Algorithm.REDUCE_SCATTER: f.RING_HALF,
    Algorithm.ALL_GATHER: f.RING_HALF,
    Algorithm.BROADCAST: f.CHAIN,
    Algorithm.ALL_TO_ALL: f.ALL_TO_ALL,
}

_GLOO: Mapping[Algorithm, Formula] = {
    Algorithm.ALL_REDUCE: f.BACKWARD_RING_ALL_REDUCE,
    Algorithm.REDUCE_SCATTER: f.BACKWARD_RING_ALL_REDUCE,
    Algorithm.ALL_GATHER: f.RING_HALF,
    Algorithm.BROADCAST: f.BINOMIAL_TREE,
    Algorithm.ALL_TO_ALL: f.ALL_TO_ALL,
}

_Row = tuple[tuple[float, Formula | None], ...]
"""Pairs of an exclusive upper bound in bytes, ascending, and the formula below it; None for an unknown formula."""

_RING, _DOUBLING, _HALVING = f.RING_ALL_REDUCE, f.RECURSIVE_DOUBLING_ALL_REDUCE, f.HALVING_DOUBLING_ALL_REDUCE
_TREE, _STAR, _HOPS, _HALF = f.QUATERNARY_TREE, f.STAR, f.WHOLE_MESSAGE_CHAIN, f.RING_HALF
_RECURSIVE, _GATHER = f.RECURSIVE_HALVING_REDUCE_SCATTER, f.DOUBLING_ALL_GATHER
_ANY = math.inf
_REST = 1 << 62

_OPENMPI: Mapping[Algorithm, Mapping[int, _Row]] = {
    # Rows by number of ranks: a row is valid below its key. Bounds in a row are of M. None: a reduce followed by a
    # broadcast.
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
        8: ((2048, None), (8192, f.BINOMIAL_TREE), (1048576, _STAR), (_ANY, _HOPS)),
        16: ((64, None), (4096, _TREE), (16384, None), (32768, f.BINOMIAL_TREE), (_ANY, _STAR)),
        32: ((4096, _TREE), (1048576, f.BINOMIAL_TREE), (_ANY, None)),
        64: ((2048, f.BINOMIAL_TREE), (_ANY, _TREE)),
        128: ((_ANY, _TREE),),
        256: ((65536, None), (_ANY, _TREE)),
        1024: ((16384, _TREE), (32768, None), (_ANY, _TREE)),
        2048: ((524288, _TREE), (_ANY, None)),
        4096: ((262144, _TREE), (_ANY, None)),
        _REST: ((8192, _TREE), (16384, None), (262144, _TREE), (_ANY, None)),
    },
    # Bounds of M/n. None: Bruck's algorithm.
    Algorithm.ALL_TO_ALL: {
        16: ((_ANY, f.ALL_TO_ALL),),
        64: ((512, None), (_ANY, f.ALL_TO_ALL)),
        _REST: ((2048, None), (_ANY, f.ALL_TO_ALL)),
    },
}


def formula(library: Library, algorithm: Algorithm, ranks: int, size: int) -> Formula | None:
    """Return the formula for a call of ``size`` bytes (M, see ``spec.Collective``), or None when it is unknown."""
    if algorithm in _BY_NAME:
        return _BY_NAME[algorithm]
    if library is Library.OPENMPI:
        return _of_openmpi(algorithm, ranks, size)
    return (_GLOO if library is Library.GLOO else _RINGS)[algorithm]


def _of_openmpi(algorithm: Algorithm, ranks: int, size: int) -> Formula | None:
    decides = size / ranks if algorithm in (Algorithm.ALL_GATHER, Algorithm.ALL_TO_ALL) else size
    row = next((row for below, row in _OPENMPI[algorithm].items() if ranks < below), ())
    return next((found for below, found in row if decides < below), None)
