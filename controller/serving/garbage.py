"""Schedule of Python's garbage collector, so that it runs rarely, over few objects, and never during a burst of work.

The settings of the collector apply to the whole process. Times of quiet moments, without work, are monotonic seconds.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager

SETTLE_S = 2.0
"""Seconds between two quiet moments at which all objects are declared old, so that later collections skip them."""
ALL_EVERY_S = 3600.0
"""Seconds between collections that include old objects."""
THRESHOLDS = (5_000, 60, 20)
"""Thresholds of the interpreter's own collections, per generation (``gc.set_threshold``).

The first threshold is more than the number of objects that exist only for a moment. The second threshold takes effect
only if there is no quiet moment for hours."""
MANY = 12
"""Number of collections by the interpreter (``gc.get_count()[1]``) up to which ``Garbage.quiet`` collects new objects.

Up to this number there are so few new objects that collecting them takes at most 40 ms."""


@contextmanager
def loading() -> Iterator[None]:
    """Turn collection off while the block creates lasting objects, and then declare these objects old.

    If collection stayed on, it would take a third of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class Garbage:
    """Garbage collections at quiet moments; full ones only rarely.

    A fabric of thousands of links has half a million objects. A collection over all objects takes a fifth of a second,
    during which no switch gets a reply. Only cycles of references need collections, since reference counting frees all
    other objects."""

    def __init__(self) -> None:
        gc.set_threshold(*THRESHOLDS)
        self._next_at = -math.inf
        self._all_at = math.inf

    def quiet(self, now: float) -> None:
        """Collect new objects, unless there are too many of them. Called at the quiet moment ``now``.

        Every ``ALL_EVERY_S`` seconds, collect all objects instead."""
        if now < self._next_at:
            return
        self._next_at = now + SETTLE_S
        everything = now >= self._all_at
        if everything:
            gc.unfreeze()
            self._all_at = math.inf
        self._all_at = min(self._all_at, now + ALL_EVERY_S)
        if everything or gc.get_count()[1] <= MANY:
            gc.collect()
        gc.freeze()
