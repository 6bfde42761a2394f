"""Waits of a program at iteration boundaries."""

import pytest

from signalbox.slots import Slot, Waits

SLOT = Slot(1.0, 0.02, 1)


def waits(since: float = 0.5, at: float = 100.0) -> Waits:
    """Return the waits of a program that has had a slot for long, and is at the boundary after iteration 7."""
    found = Waits()
    found.take_slot(SLOT, since)
    found.ended(7, 0.0)
    found.arrive(at)
    return found


def test_a_program_waits_as_long_as_the_answer_to_its_report_says() -> None:
    found = waits()
    assert found.left_s(100.0) == 0.0
    found.grant(7, 0.015)
    assert found.left_s(100.0) == pytest.approx(0.015)
    assert found.left_s(100.01) == pytest.approx(0.005)
    assert found.left_s(100.02) <= 0.0


def test_one_wait_is_never_longer_than_the_slot_allows() -> None:
    found = waits()
    found.grant(7, 0.4)
    assert found.left_s(100.0) == pytest.approx(0.02)


def test_an_answer_that_comes_too_late_counts_at_the_next_boundary_without_what_was_waited() -> None:
    found = waits()
    found.began(0.005)
    found.grant(7, 0.015)
    found.ended(8, 0.005)
    found.arrive(101.0)
    assert found.left_s(101.0) == pytest.approx(0.01)


def test_no_wait_is_older_than_one_report() -> None:
    found = waits()
    found.grant(7, 0.015)
    found.ended(9, 0.0)
    found.arrive(102.0)
    assert found.left_s(102.0) == 0.0


def test_all_waits_together_are_at_most_the_same_part_of_the_time() -> None:
    found = waits(since=99.0)
    found.grant(7, 0.4)
    found.began(0.012)
    assert found.left_s(100.0) == pytest.approx(0.008)
    assert waits(since=100.0).left_s(100.0) == 0.0


def test_another_slot_replaces_the_waits_of_the_one_before() -> None:
    found = waits()
    assert found.has_slot
    found.grant(7, 0.015)
    found.take_slot(Slot(1.1, 0.022, 1), 100.0)
    assert found.left_s(100.0) == pytest.approx(0.015), "the same slot, with another period"
    found.take_slot(SLOT._replace(number=2), 100.0)
    assert found.left_s(100.0) == 0.0
    found.grant(7, 0.015)
    found.take_slot(None, 100.0)
    assert not found.has_slot
    assert found.left_s(100.0) == 0.0
