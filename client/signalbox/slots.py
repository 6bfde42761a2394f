"""Waits of a training program, so that the iterations of its job keep to the job's slot. Pure.

In: the slot from the stream of routes, and the wait in each answer to a report of iterations. Out: how long to wait
now. A program waits at *iteration boundaries*: one point of each iteration, before its first communication or at the
beginning. A wait is used at the first two boundaries after its report only, so a program whose controller has ended
does not wait.
"""

from __future__ import annotations

from typing import NamedTuple


class Slot(NamedTuple):
    """Slot of a job, whose iterations begin every ``period_s`` seconds."""

    period_s: float
    max_wait_s: float
    """Longest wait at one boundary."""
    number: int


class Waits:
    """Waits of one program. ``now``: monotonic seconds.

    At each boundary one thread calls ``ended``, ``arrive``, ``left_s`` until it is 0, and ``began``. Any thread may
    call ``take_slot`` and ``grant``."""

    def __init__(self) -> None:
        self._slot: Slot | None = None
        self._since = 0.0  # when the program got its first slot
        self._total_s = 0.0
        self._last = -1  # index of the latest iteration that has ended
        self._before_last_s = 0.0  # wait before that iteration
        self._arrived_at = 0.0
        self._granted = (-1, 0.0)

    def end(self) -> None:
        """Wait no longer, because the program has left its job."""
        self._slot = None

    @property
    def has_slot(self) -> bool:
        return self._slot is not None

    def take_slot(self, slot: Slot | None, now: float) -> None:
        """Keep this slot from now on; None for no slot."""
        if slot is None or self._slot is None or slot.number != self._slot.number:
            self._granted = (-1, 0.0)
        if slot is not None and not self._since:
            self._since = now
        self._slot = slot

    def grant(self, index: int, wait_s: float) -> None:
        """Take the answer to a report: how much later the iteration after ``index`` should have begun.

        ``index``: latest iteration in the report."""
        self._granted = (index, wait_s)

    def ended(self, index: int, waited_s: float) -> None:
        """Record the end of an iteration before which the program waited."""
        self._last, self._before_last_s = index, waited_s

    def arrive(self, now: float) -> None:
        """Record that the program is at an iteration boundary."""
        self._arrived_at = now

    def left_s(self, now: float) -> float:
        """Return how many seconds the program still has to wait at this boundary; at most 0 to go on."""
        slot, (index, wait_s) = self._slot, self._granted
        if slot is None or index < self._last - 1:
            return 0.0
        if index < self._last:  # the report was sent before the wait at the last boundary
            wait_s -= self._before_last_s
        part = slot.max_wait_s / slot.period_s
        allowed_s = part * (self._arrived_at - self._since) - self._total_s
        return min(wait_s, slot.max_wait_s, allowed_s) - (now - self._arrived_at)

    def began(self, waited_s: float) -> None:
        """Record the wait that has just ended."""
        self._total_s += waited_s
