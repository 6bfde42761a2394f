"""Bounds by cuts of pods whose cores are few or have failed, against brute force."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.planning.bounds import slowdown_bounds
from tests.support.planning.fabrics import RATE, brute_force, flow, problem_of, three_tiers

LEAVES = 4
"""Number of leaves: two pods of two leaves each."""


@pytest.mark.parametrize(
    ("cores", "fluid", "whole"),
    [([2, 2], 1, 1), ([2, 1], 4 / 3, 2), ([1, 1], 2, 2), ([2, 0], 2, 2), ([3, 1], 4 / 3, 2), ([1, 0], 4, 4)],
)
def test_a_full_pod_is_bounded_by_its_cores(cores: list[int], fluid: float, whole: float) -> None:
    """Two leaves have two flows each; every case but the first is above the bound of a leaf alone."""
    crossing = [flow("a", (leaf, host), (leaf + 2, host), RATE) for leaf in (1, 2) for host in (1, 2)]
    bounds = slowdown_bounds(problem_of(three_tiers(2, 2, cores), crossing))
    assert bounds.fluid == pytest.approx(fluid)
    assert bounds.worst == pytest.approx(whole)


def test_some_leaves_of_a_pod_may_be_narrower_than_all_of_them() -> None:
    """Leaf 1 sends four flows out of its pod: they are bound by its two uplinks to planes with cores."""
    crossing = [flow("a", (1, host), (3, host), RATE) for host in range(4)]
    crossing += [flow("a", (2, host), (1, host), RATE) for host in range(2)]
    assert slowdown_bounds(problem_of(three_tiers(2, 2, [2, 2, 0]), crossing)).fluid == pytest.approx(2)


ends = st.tuples(st.integers(1, LEAVES), st.integers(1, LEAVES))


@settings(max_examples=60)
@given(
    st.lists(ends, min_size=1, max_size=5),
    st.lists(st.integers(0, 2), min_size=1, max_size=3).filter(any),
    st.booleans(),
)
def test_no_routing_beats_the_bounds(pairs: list[tuple[int, int]], cores: list[int], two_jobs: bool) -> None:
    crossing = [
        flow("ab"[two_jobs and number % 2], (src, number), (dst, number), RATE)
        for number, (src, dst) in enumerate(pairs)
    ]
    problem = problem_of(three_tiers(2, 2, cores), crossing)
    vector, _ = brute_force(problem)
    assert slowdown_bounds(problem).vector <= tuple(slowdown * (1 + 1e-9) for slowdown in vector)
