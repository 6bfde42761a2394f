"""Waits of a program at iteration boundaries."""

import pytest

from signalbox.slots import USUAL, Slot, Waits

SLOT = Slot(1.0, 0.02, 1)


def waits(at: float = 100.0, computes_s: float = 0.5, slot: Slot = SLOT) -> Waits:
    """Return the waits of a program that has long had a slot, and is at the boundary after iteration 7.

    ``computes_s``: time before this boundary; before earlier ones it was 0.5 s."""
    found = Waits()
    found.take_slot(slot)
    for index in range(-1, 7):
        if index >= 0:
            found.ended(index, at - 8.0 + index)
        found.arrive(at - 7.5 + index)
        found.began(0.0)
    found.ended(7, at - computes_s)
    found.arrive(at)
    return found


def test_a_program_waits_as_long_as_the_answer_to_its_report_says() -> None:
    found = waits()
    assert found.left_s(100.0) == 0.0
    found.grant(7, 0.015)
    assert found.left_s(100.0) == pytest.approx(0.015)
    assert found.left_s(100.01) == pytest.approx(0.005)
    assert found.left_s(100.02) <= 0.0


@pytest.mark.parametrize(
    ("computes_s", "granted_s", "wait_s"), [(0.49, 0.005, 0.015), (0.49, -0.003, 0.007), (0.51, 0.005, -0.005)]
)
def test_a_program_that_is_early_waits_longer_and_one_that_is_late_waits_less(
    computes_s: float, granted_s: float, wait_s: float
) -> None:
    found = waits(computes_s=computes_s)
    found.grant(7, granted_s)
    assert found.left_s(100.0) == pytest.approx(wait_s)


def test_one_wait_is_never_longer_than_the_slot_allows() -> None:
    found = waits()
    found.grant(7, 0.4)
    assert found.left_s(100.0) == pytest.approx(0.02)
    found = waits(computes_s=0.6)
    found.grant(7, 0.4)
    assert found.left_s(100.0) == pytest.approx(0.02), "late, but far ahead all the same"


def test_one_of_the_first_waits_with_a_slot_may_be_long() -> None:
    found = waits()
    found.take_slot(SLOT._replace(number=2))
    found.grant(7, 0.4)
    assert found.left_s(100.0) == pytest.approx(0.4)
    found.grant(7, 1.4)
    assert found.left_s(100.0) == pytest.approx(1.0), "at most an iteration"
    found.began(0.4)
    found.ended(8, 101.4)
    found.arrive(101.9)
    found.grant(8, 0.4)
    assert found.left_s(101.9) == pytest.approx(0.02), "it has waited"
    found.take_slot(SLOT._replace(number=3))
    for _ in range(USUAL):
        found.began(0.021)
    found.grant(8, 0.4)
    assert found.left_s(101.9) == pytest.approx(0.02), "it has had its time"


def test_an_answer_that_comes_too_late_counts_at_the_next_boundary_without_what_was_waited() -> None:
    found = waits()
    found.began(0.005)
    found.grant(7, 0.015)
    found.ended(8, 100.505)
    found.arrive(101.005)
    assert found.left_s(101.005) == pytest.approx(0.01)


def test_no_wait_is_older_than_one_report() -> None:
    found = waits()
    found.grant(7, 0.015)
    found.ended(9, 101.5)
    found.arrive(102.0)
    assert found.left_s(102.0) == 0.0


def test_another_slot_replaces_the_waits_of_the_one_before() -> None:
    found = waits()
    assert found.has_slot
    found.grant(7, 0.015)
    found.take_slot(Slot(1.1, 0.022, 1))
    assert found.left_s(100.0) == pytest.approx(0.015), "the same slot, with another period"
    found.take_slot(SLOT._replace(number=2))
    assert found.left_s(100.0) == 0.0
    found.grant(7, 0.015)
    found.take_slot(None)
    assert not found.has_slot
    assert found.left_s(100.0) == 0.0
