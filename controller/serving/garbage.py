"""When Python's garbage collector looks for cycles: how often, among which objects, and never while much is made.

Its parameters belong to the process. In: the moments at which nothing goes on, in monotonic seconds.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager

SETTLE_S = 2.0
"""Between quiet moments at which all objects that exist are declared old: later collections leave them out."""
ALL_EVERY_S = 3600.0
"""Between collections that look through old objects too."""
THRESHOLDS = (5_000, 60, 20)
"""Of the interpreter's own collections, per generation. The first looks through what is made in a moment, the second
is for hours without a quiet moment."""
MANY = 12
"""First collections, after which the objects that have stayed are too many to look through: 40 ms."""


@contextmanager
def loading() -> Iterator[None]:
    """While objects are made that stay: a third of the time would go into looking through them. They are old then."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class Garbage:
    """Garbage collections that look through everything, only at quiet moments, and seldom.

    A fabric of thousands of links is half a million objects. To look through all of them takes a fifth of a second, in
    which no switch is answered. What matters here is freed by reference counts; cycles among objects that are not old
    are collected as usual.
    """

    def __init__(self) -> None:
        gc.set_threshold(*THRESHOLDS)
        self._next_at = -math.inf
        self._all_at = math.inf

    def quiet(self, now: float) -> None:
        """Nothing is going on at ``now``: look through what is not old yet, if it is not too much, or through
        everything."""
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
