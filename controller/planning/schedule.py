"""When to act on changes: once it is quiet, and with plans, every period from counters. Pure."""

from __future__ import annotations

import math

MAX_DEBOUNCES = 10
"""A change is acted on after this many quiet times at the latest, however restless the network is."""


class Debounce:
    """``debounce_s``: quiet time after a change."""

    def __init__(self, debounce_s: float) -> None:
        self._debounce_s = debounce_s
        self._quiet_at = math.inf
        self._latest_at = math.inf

    def changed(self, now: float) -> None:
        """Something changed."""
        self._quiet_at = now + self._debounce_s
        self._latest_at = min(self._latest_at, now + MAX_DEBOUNCES * self._debounce_s)

    def at_once(self, now: float) -> None:
        self._latest_at = now

    def due(self, now: float) -> bool:
        return now >= min(self._quiet_at, self._latest_at)

    def begun(self) -> None:
        """Everything that is known is being acted on."""
        self._quiet_at = self._latest_at = math.inf


class ReplanSchedule(Debounce):
    """Of planning cycles. ``interval_s``: the slow period."""

    def __init__(self, debounce_s: float, interval_s: float) -> None:
        super().__init__(debounce_s)
        self._interval_s = interval_s
        self._periodic_at = math.inf

    def due(self, now: float) -> bool:
        return now >= self._periodic_at or super().due(now)

    def started(self, now: float) -> None:
        """A cycle begins with everything known at ``now``."""
        self.begun()
        self._periodic_at = now + self._interval_s
