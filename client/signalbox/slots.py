"""Waits of a training program, so that the iterations of its job keep to the job's slot. Pure.

In: the slot from the stream of routes, and the wait in each answer to a report of iterations. Out: how long to wait
now. A program waits at *iteration boundaries*: one point of each iteration, before its first communication or at the
beginning. A wait is used at the first two boundaries after its report only, so a program whose controller has ended
does not wait.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import NamedTuple

USUAL = 8
"""Number of latest iterations whose times up to the boundary show what is usual."""
LEAST = 4
"""Number of iterations from which it is known."""
LONG = 1.5
"""Wait / longest usual wait above which it was the long one: timers overshoot."""


class Slot(NamedTuple):
    """Slot of a job, whose iterations begin every ``period_s`` seconds."""

    period_s: float
    max_wait_s: float
    """Longest wait at one boundary. One of the first eight waits, for the first alignment, may last ``period_s``."""
    number: int


class Waits:
    """Waits of one program. ``now``: monotonic seconds.

    At each boundary one thread calls ``ended``, ``arrive``, ``left_s`` until it is 0, and ``began``. Any thread may
    call ``take_slot`` and ``grant``.

    The controller does not know yet how long this iteration has computed. So a program that is earlier at the boundary
    than usual waits longer than granted, and one that is later waits less."""

    def __init__(self) -> None:
        self._slot: Slot | None = None
        self._may_align = 0  # number of boundaries at which the long wait is still allowed
        self._last, self._ended_at = -1, 0.0  # latest iteration that has ended
        self._late_s = 0.0  # how much later than usual the latest boundary was passed
        self._before_s = 0.0  # the same for the boundary before
        self._arrived_at = 0.0
        self._until_s: deque[float] = deque(maxlen=USUAL)  # times from the end of an iteration to the next boundary
        self._granted = (-1, 0.0)

    def end(self) -> None:
        """Wait no longer, because the program has left its job."""
        self._slot = None

    @property
    def has_slot(self) -> bool:
        return self._slot is not None

    def take_slot(self, slot: Slot | None) -> None:
        """Keep this slot from now on; None for no slot."""
        if slot is None or self._slot is None or slot.number != self._slot.number:
            self._granted, self._may_align = (-1, 0.0), USUAL
        self._slot = slot

    def grant(self, index: int, wait_s: float) -> None:
        """Take the answer to a report: how much later the iteration after ``index`` should begin than usual.

        ``index``: latest iteration in the report. A negative wait shortens the wait of an early iteration."""
        self._granted = (index, wait_s)

    def ended(self, index: int, now: float) -> None:
        """Record the end of an iteration."""
        self._last, self._ended_at = index, now

    def arrive(self, now: float) -> None:
        """Record that the program is at an iteration boundary."""
        self._arrived_at, self._before_s = now, self._late_s
        if self._last >= 0:
            self._until_s.append(now - self._ended_at)

    def left_s(self, now: float) -> float:
        """Return how many seconds the program still has to wait at this boundary; at most 0 to go on."""
        slot, (index, wait_s) = self._slot, self._granted
        if slot is None or index < self._last - 1:
            return 0.0
        if index < self._last:  # the report was sent before the wait at the last boundary
            wait_s -= self._before_s
        longest_s = slot.period_s if self._may_align else slot.max_wait_s
        return min(wait_s + self._early_s, longest_s) - (now - self._arrived_at)

    def began(self, waited_s: float) -> None:
        """Record the wait that has just ended."""
        self._late_s = waited_s - self._early_s
        was_long = self._slot is None or waited_s > LONG * self._slot.max_wait_s
        self._may_align = 0 if was_long else max(0, self._may_align - 1)

    @property
    def _early_s(self) -> float:
        """Time by which the program came to this boundary earlier than usual, in seconds."""
        return median(self._until_s) - self._until_s[-1] if len(self._until_s) >= LEAST else 0.0
