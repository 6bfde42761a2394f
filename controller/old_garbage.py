"""Full garbage collections at quiet moments only.

A fabric of thousands of links is half a million objects, and to look through all of them takes the interpreter for a
fifth of a second, in which no switch is answered. What matters here is freed by reference counts; cycles among young
objects are collected as ever.
"""

from __future__ import annotations

import gc
import math

EVERY_S = 300.0
YOUNG = (5_000, 20)
_NEVER = 1 << 30


class OldGarbage:
    """``now`` is monotonic seconds."""

    def __init__(self) -> None:
        gc.set_threshold(*YOUNG, _NEVER)
        self._next_at = -math.inf

    def quiet(self, now: float) -> None:
        """Nothing is going on: look through everything, if that was long ago, and pass over what is left until then."""
        if now >= self._next_at:
            self._next_at = now + EVERY_S
            gc.unfreeze()
            gc.collect()
            gc.freeze()
