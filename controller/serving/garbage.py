"""Garbage collections that look through everything only at quiet moments, and seldom.

A fabric of thousands of links is half a million objects, and to look through all of them takes the interpreter for a
fifth of a second, in which no switch is answered. What matters here is freed by reference counts; cycles among objects
that are not old are collected as ever.
"""

from __future__ import annotations

import gc
import math

SETTLE_S = 60.0
"""Between quiet moments at which what is there by now is declared old: collections pass it over."""
ALL_EVERY_S = 3600.0
THRESHOLDS = (5_000, 20, 20)


class OldGarbage:
    """``now`` is monotonic seconds."""

    def __init__(self) -> None:
        gc.set_threshold(*THRESHOLDS)
        self._next_at = -math.inf
        self._all_at = math.inf

    def quiet(self, now: float) -> None:
        """Nothing is going on: a good moment to look through what came lately, or through everything."""
        if now < self._next_at:
            return
        self._next_at = now + SETTLE_S
        if now >= self._all_at:
            gc.unfreeze()
            self._all_at = math.inf
        self._all_at = min(self._all_at, now + ALL_EVERY_S)
        gc.collect()
        gc.freeze()
