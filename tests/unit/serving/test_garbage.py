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
    """Restore the settings of the garbage collector, which belong to the process.

    Imported modules stay exempt from collections, which would otherwise take half a second each."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
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
    with pytest.raises(ValueError, match="damaged"), loading():
        raise ValueError("damaged")
    assert gc.isenabled(), "also when the state cannot be loaded"


def test_quiet_moments_collect_what_is_new_if_that_is_not_much_and_later_everything() -> None:
    """Quiet moments soon after one another cost nothing."""
    with loading():
        old = knot()
    garbage, new = Garbage(), knot()
    garbage.quiet(0.0)
    assert (old() is None, new() is None) == (False, True)
    gc.disable()
    left = knot()
    garbage.quiet(SETTLE_S - 1)
    assert left()
    garbage.quiet(SETTLE_S)
    assert left() is None
    gc.enable()
    much = [[number] for number in range(2 * MANY * THRESHOLDS[0])]
    gc.disable()
    left = knot()
    garbage.quiet(2 * SETTLE_S)
    assert left(), "too much to look through becomes old as it is"
    assert old()
    garbage.quiet(ALL_EVERY_S)
    assert old() is left() is None
    assert much
