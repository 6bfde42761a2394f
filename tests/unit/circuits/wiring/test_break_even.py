"""The traffic ratio from which direct connection takes longer than the alternative, compared with values by hand."""

from __future__ import annotations

import math

import pytest

from controller.circuits.wiring.evaluation import BreakEven


def test_it_loses_from_the_ratio_on_at_which_both_are_equal() -> None:
    """The times are equal at r = 2.75: (1 + 4 r) / 40 = (1 + r) / 12.5."""
    known = BreakEven(0.5, 4.0, 40e9, 12.5e9)
    assert known.most_ratio == pytest.approx(2.75)
    assert not BreakEven(2.74, 4.0, 40e9, 12.5e9).loses
    assert BreakEven(2.76, 4.0, 40e9, 12.5e9).loses
    assert BreakEven(2.75, 4.0, 40e9, 12.5e9).time_ratio == pytest.approx(1)


def test_without_pairs_only_rates_count_and_pairs_alone_lose_when_they_are_forwarded_too_often() -> None:
    assert BreakEven(0.0, 4.0, 40e9, 12.5e9).time_ratio == pytest.approx(12.5 / 40)
    assert BreakEven(math.inf, 3.0, 40e9, 12.5e9).time_ratio == pytest.approx(3 * 12.5 / 40)
    assert BreakEven(math.inf, 4.0, 40e9, 12.5e9).loses


@pytest.mark.parametrize(
    ("hops", "direct", "ratio"), [(3.0, 40e9, math.inf), (2.0, 10e9, 0.0), (1.0, 12.5e9, math.inf), (2.0, 12.5e9, 0.0)]
)
def test_there_may_be_no_such_ratio(hops: float, direct: float, ratio: float) -> None:
    assert BreakEven(1.0, hops, direct, 12.5e9).most_ratio == ratio
