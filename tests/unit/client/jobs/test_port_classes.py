"""Classes of source ports."""

from typing import Any

import numpy as np
import pytest

from signalbox.jobs.spec import MAX_SUBFLOWS, Striping
from signalbox.jobs.subflows import Dividing, Subflows, exactly, port_classes

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
    """Return the number of bits that distinguish ``count`` classes."""
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
