"""The times of garbage collections."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from controller.serving.garbage import ALL_EVERY_S, MANY, SETTLE_S, THRESHOLDS, Garbage, loading


class Knot:
    """Object that refers to itself, so only a garbage collection frees it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """Restore the settings of the garbage collector, which belong to the process."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()
    gc.enable()


def knot() -> weakref.ref[Knot]:
    return weakref.ref(Knot())


def test_nothing_is_collected_while_a_state_is_loaded_and_what_was_loaded_is_old() -> None:
    with loading():
        assert not gc.isenabled()
        left = knot()
    assert gc.isenabled()
    gc.collect()
    assert left(), "it is not looked at again"


def test_a_state_that_cannot_be_loaded_does_not_stop_collections() -> None:
    with pytest.raises(ValueError, match="damaged"), loading():
        raise ValueError("damaged")
    assert gc.isenabled()


def test_a_quiet_moment_collects_what_is_new_and_later_everything() -> None:
    with loading():
        old = knot()
    garbage, new = Garbage(), knot()
    garbage.quiet(0.0)
    assert (old() is None, new() is None) == (False, True)
    garbage.quiet(SETTLE_S)
    assert old()
    garbage.quiet(ALL_EVERY_S)
    assert old() is None


def test_quiet_moments_soon_after_one_another_cost_nothing() -> None:
    garbage = Garbage()
    garbage.quiet(0.0)
    gc.disable()
    left = knot()
    garbage.quiet(SETTLE_S - 1)
    assert left()
    garbage.quiet(SETTLE_S)
    assert left() is None


def test_too_much_to_look_through_becomes_old_as_it_is() -> None:
    garbage = Garbage()
    garbage.quiet(0.0)
    kept = [[number] for number in range(2 * MANY * THRESHOLDS[0])]
    gc.disable()
    left = knot()
    garbage.quiet(SETTLE_S)
    assert left()
    garbage.quiet(ALL_EVERY_S + SETTLE_S)
    assert left() is None
    assert kept
