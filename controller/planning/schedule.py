"""When to plan: shortly after a change, once it is quiet, and every period from counters. Pure."""

from __future__ import annotations

import math

MAX_DEBOUNCES = 10
"""A change is planned for after this many quiet times at the latest, however restless the network is."""


class ReplanSchedule:
    """``debounce_s``: quiet time after a change. ``interval_s``: the slow period."""

    def __init__(self, debounce_s: float, interval_s: float) -> None:
        self._debounce_s = debounce_s
        self._interval_s = interval_s
        self._quiet_at = math.inf
        self._latest_at = math.inf
        self._periodic_at = math.inf

    def changed(self, now: float) -> None:
        """Something the plan depends on changed."""
        self._quiet_at = now + self._debounce_s
        self._latest_at = min(self._latest_at, now + MAX_DEBOUNCES * self._debounce_s)

    def at_once(self, now: float) -> None:
        self._latest_at = now

    def due(self, now: float) -> bool:
        return now >= min(self._quiet_at, self._latest_at, self._periodic_at)

    def started(self, now: float) -> None:
        """A planning cycle begins with everything known at ``now``."""
        self._quiet_at = self._latest_at = math.inf
        self._periodic_at = now + self._interval_s
