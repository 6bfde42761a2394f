"""When loads start a plan: background that has appeared on links that carry pinned flows, and jobs that have slowed
down. What ends or falls starts none: no job runs slower for it, and the periodic cycle follows it. But the levels of
jobs are worked out again.

In: the background of links after each reading of counters, times of iterations. Out: whether a plan, or levels, are due
now. Pure; ``now`` is monotonic seconds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from statistics import median

from controller.fabric.topology import Host, LinkId
from controller.jobs.job import Job
from controller.planning.problem import left_bps
from signalbox.jobs.spec import JobId

RISE = 1.1
"""Factor by which a flow on a link must become slower, by what the link has left, to start a plan."""

SHOWN = 1.03
"""Factor by which it must become slower or faster for levels to be worked out again."""

SLOWER = 1.3
"""Factor by which the communication of an iteration must take longer than it did to be slow."""

LATEST = 3
"""Iterations of which all but one must be slow."""

FEWEST_BEFORE = 3
"""Iterations that say how long communication took before."""

FIRST_REST_S = 1.5
"""Seconds after a plan that loads have started until they may start another one. It doubles with each, up to the period
of plans, and is this again after a period without any: bursts that come and go do not keep the planner busy."""


class LoadEvents:
    """Compares what links carry with what the latest plan was made for."""

    def __init__(self) -> None:
        self._planned_bps: Mapping[LinkId, float] = {}
        self._shown_bps: Mapping[LinkId, float] = {}
        self._has_slowed = False
        self._senders: frozenset[LinkId] = frozenset()
        self._started_at = -math.inf
        self._rest_s = FIRST_REST_S

    def plan_begins(self, background_bps: Mapping[LinkId, float]) -> None:
        """Note what the plan that begins is made for."""
        self._planned_bps = self._shown_bps = background_bps
        self._has_slowed = False

    def look_again(self, senders: frozenset[LinkId]) -> bool:
        """Return whether counters should be read again soon, once per reading at regular polls. ``senders``: links on
        which hosts send more than is counted. What has just begun there fills only a part of the time between the
        latest two readings: on links that carry pinned flows it may be too little yet to be certain."""
        before, self._senders = self._senders, senders
        return not senders <= before

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
        rises = _rises(self._planned_bps, background_bps, capacity_bps, carrying)
        risen = self._has_slowed or any(rise >= RISE for rise in rises)
        if not risen or now < self._started_at + self._rest_s:
            return False
        self._rest_s = min(2 * self._rest_s, period_s) if now < self._started_at + period_s else FIRST_REST_S
        self._started_at = now
        return True

    def show(
        self,
        background_bps: Mapping[LinkId, float],
        capacity_bps: Mapping[LinkId, float],
        routed: Container[LinkId],
        jobs: Mapping[JobId, Job],
        hosts: Mapping[str, Host],
    ) -> bool:
        """Return whether the levels that are shown are of another background. Then they are to be worked out for this
        one. ``routed``: links that pinned flows of the ``jobs`` use."""
        carrying = _links_of_flows({**self._shown_bps, **background_bps}, routed, jobs, hosts)
        rises = _rises(self._shown_bps, background_bps, capacity_bps, carrying)
        if all(1 / SHOWN < rise < SHOWN for rise in rises):
            return False
        self._shown_bps = background_bps
        return True


def _rises(
    before_bps: Mapping[LinkId, float],
    now_bps: Mapping[LinkId, float],
    capacity_bps: Mapping[LinkId, float],
    carrying: Container[LinkId],
) -> Iterator[float]:
    """Yield by which factor flows on each link are slower than before, for what the background leaves them."""
    for link in {**before_bps, **now_bps}:
        if link in carrying and link in capacity_bps:
            before, now = (left_bps(capacity_bps[link], bps.get(link, 0.0)) for bps in (before_bps, now_bps))
            yield before / now


def _links_of_flows(
    links: Collection[LinkId],
    routed: Container[LinkId],
    jobs: Mapping[JobId, Job],
    hosts: Mapping[str, Host],
) -> frozenset[LinkId]:
    """Return those of the links that flows of jobs use: by their routes, or at their hosts."""
    others = {link for link in links if link not in routed}
    at = {ip: host.at for ip, host in hosts.items() if {host.uplink, host.downlink} & others} if others else {}
    used = {ip for job in jobs.values() for ip in at.keys() & job.virtual_links.addresses} if at else set[str]()
    ports = {at[ip] for ip in used}
    return frozenset(link for link in links if link in routed or link.at in ports)


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
