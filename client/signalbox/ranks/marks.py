"""When iterations ended: between which times the calls of whole iterations are."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Window(NamedTuple):
    """``start``: iterations before it. ``provisional``: what is seen in it may not be what the job sends from then
    on."""

    start: int
    iterations: int
    provisional: bool = False

    @property
    def end(self) -> int:
        """Iterations until it ends."""
        return self.start + self.iterations


WINDOWS = (Window(0, 1, provisional=True), Window(2, 2), Window(10, 2), Window(50, 2))
"""The first iterations are not like the others: buckets of gradients are formed anew, optimizers make their state. What
the first one sends is good enough for routes until more is known. A later window is for jobs whose earlier one could
not be understood."""


class Marks:
    """``on_window``: called when a window is complete, in the thread that marks. ``now_ns``: since 1970, as of all
    times here; the first iteration begins."""

    def __init__(self, on_window: Callable[[], object], now_ns: int) -> None:
        self._on_window = on_window
        self.count = 0
        """Iterations that have ended."""
        self._ends_ns = {0: now_ns}

    def mark(self, now_ns: int) -> None:
        """An iteration has ended."""
        self.count += 1
        if any(self.count in (window.start, window.end) for window in WINDOWS):
            self._ends_ns[self.count] = now_ns
        if any(self.count == window.end for window in WINDOWS):
            self._on_window()

    def window(self, number: int) -> tuple[int, int] | None:
        """Its begin and end; None while it is not complete. Ranks that have made as many iterations have the same ones
        in it."""
        window = WINDOWS[number]
        return (self._ends_ns[window.start], self._ends_ns[window.end]) if self.count >= window.end else None
