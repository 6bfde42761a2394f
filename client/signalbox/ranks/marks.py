"""Record when iterations ended, so that calls can be assigned to whole iterations."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Window(NamedTuple):
    """Window of iterations to evaluate.

    ``start``: number of iterations before the window. ``provisional``: whether the traffic may change afterwards."""

    start: int
    iterations: int
    provisional: bool = False

    @property
    def end(self) -> int:
        """Number of iterations of the job that have ended when the window is complete."""
        return self.start + self.iterations


WINDOWS = (Window(0, 1, provisional=True), Window(2, 2), Window(10, 2), Window(50, 2))
"""Windows of iterations that are evaluated one after the other, until one yields the job's traffic.

The first iterations differ from later ones: gradient buckets are rebuilt, and optimizers allocate their state. The
traffic of the first iteration is good enough for routes until more is known. Later windows serve jobs whose earlier
windows could not be evaluated."""


class Marks:
    """Ends of iterations, in ns since 1970.

    ``on_window``: called when a window is complete, in the thread that marks. ``now_ns``: begin of the first
    iteration."""

    def __init__(self, on_window: Callable[[], object], now_ns: int) -> None:
        self._on_window = on_window
        self.count = 0
        """Number of iterations that have ended."""
        self._ends_ns = {0: now_ns}

    def mark(self, now_ns: int) -> None:
        """Record the end of an iteration."""
        self.count += 1
        if any(self.count in (window.start, window.end) for window in WINDOWS):
            self._ends_ns[self.count] = now_ns
        if any(self.count == window.end for window in WINDOWS):
            self._on_window()

    def window(self, number: int) -> tuple[int, int] | None:
        """Return begin and end of a window, in ns since 1970, or None while it is incomplete.

        A window has the same iterations on all ranks that have made the same number of iterations."""
        window = WINDOWS[number]
        return (self._ends_ns[window.start], self._ends_ns[window.end]) if self.count >= window.end else None
