"""Formulas of each algorithm: by hand for few ranks, and properties for any number of ranks."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from signalbox.jobs import formulas as f
from signalbox.jobs.formulas import Formula

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
