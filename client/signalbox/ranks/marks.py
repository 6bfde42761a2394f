"""When iterations ended: between which times the calls of whole iterations are."""

from __future__ import annotations

from collections.abc import Callable

WINDOW_STARTS = (2, 10, 50)
"""A window begins after so many iterations. The first ones are not like the others: buckets of gradients are formed
anew, optimizers make their state. A later window is for jobs whose earlier one could not be understood."""
WINDOW = 2
"""Iterations."""


class Marks:
    """``on_window``: called when a window is complete, in the thread that marks."""

    def __init__(self, on_window: Callable[[], object]) -> None:
        self._on_window = on_window
        self._count = 0
        self._ends_ns: dict[int, int] = {}

    def mark(self, now_ns: int) -> None:
        """An iteration has ended. ``now_ns``: since 1970."""
        self._count += 1
        if self._count in WINDOW_STARTS:
            self._ends_ns[self._count] = now_ns
        elif self._count - WINDOW in WINDOW_STARTS:
            self._ends_ns[self._count] = now_ns
            self._on_window()

    def window(self, number: int) -> tuple[int, int] | None:
        """Its begin and end in ns since 1970; None while it is not complete. Ranks that have made as many iterations
        have the same ones in it."""
        start = WINDOW_STARTS[number]
        if start not in self._ends_ns or start + WINDOW not in self._ends_ns:
            return None
        return self._ends_ns[start], self._ends_ns[start + WINDOW]
