"""When loads start a plan: background that has appeared on links that carry pinned flows, and jobs that have slowed
down. What ends or falls starts none: no job runs slower for it, and the periodic cycle follows it.

In: the background of links after each reading of counters, times of iterations. Out: whether a plan is due now. Pure;
``now`` is monotonic seconds.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from statistics import median

from controller.fabric.topology import LinkId
from controller.planning.problem import left_bps

RISE = 1.1
"""Factor by which a flow on a link must become slower, by what the link has left, to start a plan."""

SLOWER = 1.3
"""Factor by which the communication of an iteration must take longer than it did to be slow."""

LATEST = 3
"""Iterations of which all but one must be slow."""

FEWEST_BEFORE = 3
"""Iterations that say how long communication took before."""

FIRST_REST_S = 2.0
"""Seconds after a plan that loads have started until they may start another one. It doubles with each, up to the period
of plans, and is this again after a period without any: bursts that come and go do not keep the planner busy."""


class LoadEvents:
    """Compares what links carry with what the latest plan was made for."""

    def __init__(self) -> None:
        self._planned_bps: Mapping[LinkId, float] = {}
        self._has_slowed = False
        self._started_at = -math.inf
        self._rest_s = FIRST_REST_S

    def plan_begins(self, background_bps: Mapping[LinkId, float]) -> None:
        """Note what the plan that begins is made for."""
        self._planned_bps, self._has_slowed = background_bps, False

    def slowed(self) -> None:
        """Note that a job's communication takes longer: the next reading of counters may show why."""
        self._has_slowed = True

    def start_plan(
        self,
        background_bps: Mapping[LinkId, float],
        capacity_bps: Mapping[LinkId, float],
        carrying: Container[LinkId],
        period_s: float,
        now: float,
    ) -> bool:
        """Return whether a plan is due, once per reading of counters. ``carrying``: links that pinned flows use.
        ``period_s``: of plans without events."""
        risen = self._has_slowed or has_risen(self._planned_bps, background_bps, capacity_bps, carrying)
        if not risen or now < self._started_at + self._rest_s:
            return False
        self._rest_s = min(2 * self._rest_s, period_s) if now < self._started_at + period_s else FIRST_REST_S
        self._started_at = now
        return True


def has_risen(
    before_bps: Mapping[LinkId, float],
    now_bps: Mapping[LinkId, float],
    capacity_bps: Mapping[LinkId, float],
    carrying: Container[LinkId],
) -> bool:
    """Return whether the background leaves flows on some link so much less than before that they are slower by
    ``RISE``."""
    return any(
        left_bps(capacity_bps[link], before_bps.get(link, 0.0)) >= RISE * left_bps(capacity_bps[link], bps)
        for link, bps in now_bps.items()
        if link in carrying and link in capacity_bps
    )


def has_slowed(recent_s: Sequence[float], new: int) -> bool:
    """Return whether communication began to take longer with one of the ``new`` latest iterations. ``recent_s``: of the
    iterations on the same routes, with the same bytes, oldest first."""
    counts = range(max(len(recent_s) - new, 0) + 1, len(recent_s) + 1)
    return any(_is_slow(recent_s[:count]) and not _is_slow(recent_s[: count - 1]) for count in counts)


def _is_slow(times_s: Sequence[float]) -> bool:
    before, latest = times_s[:-LATEST], times_s[-LATEST:]
    if len(before) < FEWEST_BEFORE:
        return False
    usual_s = median(before)
    return sum(time_s >= SLOWER * usual_s for time_s in latest) >= LATEST - 1
