"""Transfers of algorithms, the algorithms that libraries use, and classes of source ports."""

import json
from collections import Counter
from itertools import chain, permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from signalbox.jobs import formulas as f
from signalbox.jobs.formulas import Formula, formula
from signalbox.jobs.spec import MAX_SUBFLOWS, Algorithm, Library, Striping
from signalbox.jobs.subflows import Dividing, Subflows, exactly, port_classes
from tests.support.doc_pages import ROOT

FORMULAS = [formula for formula in vars(f).values() if isinstance(formula, Formula)]
SIZE = 720_720
"""Bytes; divisible by every n up to 15, and by the powers of two that the formulas need for each n."""

ALL_REDUCES = [f.RING_ALL_REDUCE, f.BACKWARD_RING_ALL_REDUCE, f.HALVING_DOUBLING_ALL_REDUCE]
SPREAD = [f.CHAIN, f.WHOLE_MESSAGE_CHAIN, f.STAR, f.BINOMIAL_TREE, f.QUATERNARY_TREE]


def steps(formula: Formula, n: int, size: int) -> list[dict[tuple[int, int], int]]:
    """Return the bytes by (sender, receiver) of each step, and assert that no pair occurs twice in a step."""
    found = [list(step) for step in formula.steps(n, size)]
    by_pair = [{(src, dst): sent for src, dst, sent in step} for step in found]
    assert list(map(len, by_pair)) == list(map(len, found))
    return by_pair


def both_ways(size: int, *pairs: tuple[int, int]) -> dict[tuple[int, int], int]:
    return {way: size for a, b in pairs for way in ((a, b), (b, a))}


@pytest.mark.parametrize(("formula", "n", "size", "expected"), [
    (f.BACKWARD_RING_ALL_REDUCE, 3, 6, [{(0, 2): 8, (1, 0): 8, (2, 1): 8}]),
    (f.RECURSIVE_DOUBLING_ALL_REDUCE, 4, 6, [both_ways(6, (0, 1), (2, 3)), both_ways(6, (0, 2), (1, 3))]),
    (f.RECURSIVE_DOUBLING_ALL_REDUCE, 6, 6, [{(0, 1): 6, (2, 3): 6}, both_ways(6, (1, 3), (4, 5)),
     both_ways(6, (1, 4), (3, 5)), {(1, 0): 6, (3, 2): 6}]),
    (f.HALVING_DOUBLING_ALL_REDUCE, 4, 8, [both_ways(8, (0, 1), (2, 3)), both_ways(4, (0, 2), (1, 3))]),
    (f.HALVING_DOUBLING_ALL_REDUCE, 5, 8, [both_ways(4, (0, 1)), {(1, 0): 4}, both_ways(8, (0, 2), (3, 4)),
     both_ways(4, (0, 3), (2, 4)), {(0, 1): 8}]),
    (f.RECURSIVE_HALVING_REDUCE_SCATTER, 4, 8, [both_ways(4, (0, 2), (1, 3)), both_ways(2, (0, 1), (2, 3))]),
    (f.RECURSIVE_HALVING_REDUCE_SCATTER, 3, 9, [{(0, 1): 9}, {(1, 2): 3, (2, 1): 6}, {(1, 0): 3}]),
    (f.DOUBLING_ALL_GATHER, 4, 8, [both_ways(2, (0, 1), (2, 3)), both_ways(4, (0, 2), (1, 3))]),
    (f.DOUBLING_ALL_GATHER, 3, 9, [{(0, 2): 3, (1, 0): 3, (2, 1): 3}, {(0, 1): 3, (1, 2): 3, (2, 0): 3}]),
    (f.WHOLE_MESSAGE_CHAIN, 3, 5, [{(0, 1): 5}, {(1, 2): 5}]),
    (f.STAR, 3, 5, [{(0, 1): 5, (0, 2): 5}]),
    (f.BINOMIAL_TREE, 4, 5, [{(0, 1): 5}, {(0, 2): 5, (1, 3): 5}]),
    (f.QUATERNARY_TREE, 7, 5, [{(0, 4): 5}, {(0, 1): 5, (0, 2): 5, (0, 3): 5, (4, 5): 5, (4, 6): 5}]),
])  # fmt: skip
def test_steps_of_few_ranks(formula: Formula, n: int, size: int, expected: list[dict[tuple[int, int], int]]) -> None:
    assert steps(formula, n, size) == expected


@pytest.mark.parametrize("formula", FORMULAS)
def test_links_are_counted_without_making_them(formula: Formula) -> None:
    for n in (*range(2, 20), 64, 65):
        assert formula.links(n) == sum(map(len, steps(formula, n, 1000)))


@pytest.mark.parametrize("formula", FORMULAS)
@settings(max_examples=30)
@given(n=st.integers(2, 40), size=st.integers(1, 1 << 50))
def test_every_step_sends_something_between_different_ranks(formula: Formula, n: int, size: int) -> None:
    for step in steps(formula, n, size):
        assert step
        assert all(src != dst and {src, dst} <= set(range(n)) for src, dst in step)
        assert min(step.values()) > 0


@pytest.mark.parametrize("formula", ALL_REDUCES)
@given(k=st.integers(1, 6), size=st.integers(1, 1 << 40))
def test_these_all_reduces_send_as_little_as_possible(formula: Formula, k: int, size: int) -> None:
    """Each rank sends and receives 2(n-1)/n·M, up to rounding (Patarasuk and Yuan, theorem 1)."""
    n = 1 << k
    for sent in volumes(formula, n, size * n):
        assert sent == dict.fromkeys(range(n), 2 * (n - 1) * size)


@given(n=st.integers(2, 15))
def test_reduce_scatters_and_all_gathers_bring_every_rank_what_it_lacks(n: int) -> None:
    """Each rank must receive (n-1)/n·M in an all-gather, and send (n-1)/n·M in a reduce-scatter."""
    lacks = dict.fromkeys(range(n), (n - 1) * SIZE // n)
    _, received = volumes(f.DOUBLING_ALL_GATHER, n, SIZE)
    assert received == lacks
    assert volumes(f.RING_HALF, n, SIZE) == (lacks, lacks)
    if n.bit_count() == 1:
        assert volumes(f.RECURSIVE_HALVING_REDUCE_SCATTER, n, SIZE) == (lacks, lacks)


@pytest.mark.parametrize("formula", SPREAD)
@settings(max_examples=30)
@given(n=st.integers(2, 300))
def test_broadcasts_reach_every_rank_once_from_ranks_that_have_the_message(formula: Formula, n: int) -> None:
    have = {0}
    for step in steps(formula, n, 7):
        for src, dst in step:
            assert dst not in have
            assert src in have or formula is f.CHAIN
            assert step[src, dst] == 7
            if formula is f.CHAIN:
                have.add(dst)
        have |= {dst for _, dst in step}
    assert have == set(range(n))


def volumes(formula: Formula, n: int, size: int) -> tuple[Counter[int], Counter[int]]:
    """Return the bytes that each rank sends, and the bytes that each rank receives."""
    out: Counter[int] = Counter()
    into: Counter[int] = Counter()
    for step in formula.steps(n, size):
        for src, dst, sent in step:
            out[src] += sent
            into[dst] += sent
    return out, into


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


EVERY_PORT: Any = np.arange(1 << 16)


def test_whole_flows_have_no_class_and_one_port_is_one() -> None:
    assert port_classes(1) == ()
    assert EVERY_PORT[exactly(4791).holds(EVERY_PORT)] == [4791]


@pytest.mark.parametrize("count", range(2, MAX_SUBFLOWS + 1))
def test_classes_are_disjoint_equally_large_and_blind_to_bit_0(count: int) -> None:
    classes = port_classes(count)
    assert len(classes) == count
    held = np.array([each.holds(EVERY_PORT) for each in classes])
    assert held.sum(axis=0).max() == 1
    assert {*held.sum(axis=1)} == {len(EVERY_PORT) >> bits(count)}
    assert (held == held[:, EVERY_PORT ^ 1]).all()
    # The bits have more values than there are classes; only ports with such a surplus value are in no class.
    assert (~held.any(axis=0)).sum() == ((1 << bits(count)) - count) * (len(EVERY_PORT) >> bits(count))


def bits(count: int) -> int:
    return next(number for number in range(17) if 1 << number >= count)


@pytest.mark.parametrize(
    ("count", "striping", "subflows"),
    [
        (3, Striping.PACED, Subflows((1.0,), 3)),
        (3, Striping.BY_SHARE, Subflows((1.0,), 3)),
        (3, Striping.EVEN, Subflows((1 / 3,) * 3, 1)),
        (4, Striping.COMMON_QUEUE, Subflows((1 / 4,) * 4, 1)),
        (1, Striping.EVEN, Subflows((1.0,), 1)),
    ],
)
def test_a_sender_that_cannot_follow_shares_has_an_equal_subflow_per_class(
    count: int, striping: Striping, subflows: Subflows
) -> None:
    dividing = Dividing(count, striping)
    assert dividing.subflows(("10.0.1.1", "10.0.2.1")) == subflows
    assert len(dividing.bundles(("10.0.1.1", "10.0.2.1"))) == (count if count > 1 else 0)
