"""The algorithm that each library selects, by ranks and bytes."""

import json
from collections import Counter
from itertools import chain, permutations, product
from typing import Any

import pytest

from signalbox.jobs import formulas as f
from signalbox.jobs.formulas import Formula
from signalbox.jobs.library_profiles import formula
from signalbox.jobs.spec import Algorithm, Library
from tests.support.doc_pages import ROOT

A = Algorithm
LARGE = 1 << 30
BY_NAME = [a for a in A if a.name.startswith(("RING_", "HALVING_", "RECURSIVE_", "PIPELINE_"))]


@pytest.mark.parametrize("library", Library)
def test_what_does_not_depend_on_the_size_is_the_same_for_all_sizes_and_by_name_with_every_library(
    library: Library,
) -> None:
    for algorithm, (n, size) in product(BY_NAME, [(2, 1), (4096, 1 << 50)]):
        assert formula(library, algorithm, n, size) is formula(Library.GENERIC, algorithm, 8, LARGE) is not None
    for algorithm in A if library is not Library.OPENMPI else ():
        assert formula(library, algorithm, 4096, 1 << 50) is formula(library, algorithm, 2, 1) is not None


@pytest.mark.parametrize(
    ("algorithm", "n", "size", "expected"),
    [
        (A.ALL_REDUCE, 2, LARGE, f.HALVING_DOUBLING_ALL_REDUCE),
        (A.ALL_REDUCE, 3, 262_144, f.HALVING_DOUBLING_ALL_REDUCE),
        (A.ALL_REDUCE, 3, 262_143, f.RING_ALL_REDUCE),
        (A.ALL_REDUCE, 4, 262_143, f.HALVING_DOUBLING_ALL_REDUCE),
        (A.ALL_REDUCE, 8, 8191, f.RECURSIVE_DOUBLING_ALL_REDUCE),
        (A.ALL_REDUCE, 200, 1000, None),
        (A.ALL_REDUCE, 4096, LARGE, f.HALVING_DOUBLING_ALL_REDUCE),
        (A.REDUCE_SCATTER, 2, 100_000, f.RING_HALF),
        (A.REDUCE_SCATTER, 3, 100_000, None),
        (A.REDUCE_SCATTER, 6, 262_143, f.RECURSIVE_HALVING_REDUCE_SCATTER),
        (A.REDUCE_SCATTER, 6, 262_144, f.RING_HALF),
        (A.REDUCE_SCATTER, 64, LARGE, None),
        (A.ALL_GATHER, 31, 1, f.DOUBLING_ALL_GATHER),
        (A.ALL_GATHER, 32, 32 * 1023, f.DOUBLING_ALL_GATHER),
        (A.ALL_GATHER, 32, 32 * 65_536, f.RING_HALF),
        (A.ALL_GATHER, 512, LARGE, None),
        (A.BROADCAST, 4, (1 << 20) - 1, f.STAR),
        (A.BROADCAST, 4, 1 << 20, f.WHOLE_MESSAGE_CHAIN),
        (A.BROADCAST, 16, 1 << 20, None),
        (A.BROADCAST, 100, 1, f.QUATERNARY_TREE),
        (A.ALL_TO_ALL, 64, 64 * 2047, None),
        (A.ALL_TO_ALL, 64, 64 * 2048, f.ALL_TO_ALL),
    ],
)
def test_open_mpi_decides_by_ranks_and_bytes(algorithm: A, n: int, size: int, expected: Formula | None) -> None:
    assert formula(Library.OPENMPI, algorithm, n, size) is expected


MEASURED = [
    case
    for case in json.loads((ROOT / "tests" / "data" / "wire_matrices.json").read_text())
    if case["collective"] not in ("barrier", "reduce", "reduce_scatter_block") and case["variant"] != "bruck"
]
"""Measured cases that a job can announce; ``tests/data/README.md`` describes the measurement."""

FORCED = dict.fromkeys(("ring", "segmented_ring"), A.RING_ALL_REDUCE)
FORCED |= {"rabenseifner": A.HALVING_DOUBLING_ALL_REDUCE, "recursive_doubling": A.RECURSIVE_DOUBLING_ALL_REDUCE}
FORCED |= dict.fromkeys(("linear", "pairwise"), A.ALL_TO_ALL)
LIBRARIES = {"gloo": Library.GLOO, "open-mpi": Library.OPENMPI}

HEADER_FRACTION, HEADER_BYTES_PER_RANK = 0.004, 512
"""Limits of the bytes of the libraries' own messages.

The first is a share of a pair's bytes. The second is a number of bytes, on any pair, per call and rank of the group."""


@pytest.mark.parametrize("kind", sorted({(c["library"], c["variant"], c["collective"]) for c in MEASURED}), ids=str)
def test_a_library_sends_what_was_measured(kind: tuple[str, str, str]) -> None:
    cases = [c for c in MEASURED if (c["library"], c["variant"], c["collective"]) == kind]
    assert {case["ranks"] for case in cases} == set(range(2, 9))
    assert [case for case in cases if not as_measured(case)] == []


def as_measured(case: dict[str, Any]) -> bool:
    n, size, collective = case["ranks"], case["bytes"], case["collective"]
    calls = -(-size // 100_000) if collective == "ddp" else 1
    algorithm = FORCED.get(case["variant"]) or A("all_reduce" if collective == "ddp" else collective)
    known = formula(LIBRARIES[case["library"]], algorithm, n, size)
    assert known, case
    sent = Counter[tuple[int, int]]()
    for src, dst, amount in chain.from_iterable(known.steps(n, size)):
        sent[src, dst] += amount
    return all(
        -n <= case["matrix"][i][j] - sent[i, j] <= HEADER_FRACTION * sent[i, j] + HEADER_BYTES_PER_RANK * n * calls
        for i, j in permutations(range(n), 2)
    )
