"""Loads that start a plan: background that appeared on links with pinned flows, and jobs that became slower.

The end of background traffic starts no plan, because it makes no job slower. The periodic cycle takes the end into
account, and the slowdowns of jobs are computed again.

In: the background of links after each reading of counters, and the times of iterations. Out: whether a plan, or new
slowdowns, are due now. The module is pure; ``now`` is monotonic seconds.
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
"""Factor by which the background of a link must make flows on this link slower to start a plan."""

SHOWN = 1.03
"""Factor by which a change of background must make flows slower or faster for slowdowns to be computed again."""

SLOWER = 1.3
"""Factor by which the communication of an iteration must exceed the usual time for the iteration to count as slow."""

LATEST = 3
"""Number of latest iterations that are examined; all but one of them must be slow."""

FEWEST_BEFORE = 3
"""Smallest number of earlier iterations from which the usual communication time is computed."""

FIRST_REST_S = 1.5
"""Seconds from a plan that loads started until loads may start the next one.

The rest doubles with each such plan, up to the period of plans, and is reset after a period without such a plan.
Recurring bursts thus do not keep the planner busy."""


class LoadEvents:
    """Comparison of the load of links with the load that the latest plan was made for."""

    def __init__(self) -> None:
        self._planned_bps: Mapping[LinkId, float] = {}
        self._shown_bps: Mapping[LinkId, float] = {}
        self._has_slowed = False
        self._senders: frozenset[LinkId] = frozenset()
        self._started_at = -math.inf
        self._rest_s = FIRST_REST_S

    def plan_begins(self, background_bps: Mapping[LinkId, float]) -> None:
        """Record the background that the new plan is made for."""
        self._planned_bps = self._shown_bps = background_bps
        self._has_slowed = False

    def look_again(self, senders: frozenset[LinkId]) -> bool:
        """Return whether counters should be read again soon. Called once per regular reading.

        ``senders``: links on which hosts send more than the rules count. Traffic that began on such a link between the
        latest two readings fills only a part of that time, so its measured rate may be too low to be certain."""
        before, self._senders = self._senders, senders
        return not senders <= before

    def slowed(self) -> None:
        """Record that a job's communication takes longer: the next reading of counters may show why."""
        self._has_slowed = True

    def start_plan(
        self,
        background_bps: Mapping[LinkId, float],
        capacity_bps: Mapping[LinkId, float],
        carrying: Container[LinkId],
        period_s: float,
        now: float,
    ) -> bool:
        """Return whether a plan is due. Called once per reading of counters.

        ``carrying``: links that pinned flows use. ``period_s``: seconds between two plans without events."""
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
        """Return whether the published slowdowns were computed for another background and must be computed again.

        ``routed``: links that pinned flows of the ``jobs`` use."""
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
    """Yield the factor by which the changed background makes flows slower, for each link in ``carrying``."""
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
    """Return the links that flows of jobs use: links of their routes, and links of their hosts."""
    others = {link for link in links if link not in routed}
    at = {ip: host.at for ip, host in hosts.items() if {host.uplink, host.downlink} & others} if others else {}
    used = {ip for job in jobs.values() for ip in at.keys() & job.virtual_links.addresses} if at else set[str]()
    ports = {at[ip] for ip in used}
    return frozenset(link for link in links if link in routed or link.at in ports)


def has_slowed(recent_s: Sequence[float], new: int) -> bool:
    """Return whether communication became slow with one of the ``new`` latest iterations.

    ``recent_s``: communication times, oldest first, of iterations on the same routes with the same bytes."""
    counts = range(max(len(recent_s) - new, 0) + 1, len(recent_s) + 1)
    return any(_is_slow(recent_s[:count]) and not _is_slow(recent_s[: count - 1]) for count in counts)


def _is_slow(times_s: Sequence[float]) -> bool:
    before, latest = times_s[:-LATEST], times_s[-LATEST:]
    if len(before) < FEWEST_BEFORE:
        return False
    usual_s = median(before)
    return sum(time_s >= SLOWER * usual_s for time_s in latest) >= LATEST - 1
