"""Time shifts as CASSINI chooses them, link by link.

Source: Rajasekaran et al., "CASSINI: network-aware job scheduling in machine learning clusters", NSDI 2024, sections 3
and 4. Time is a circle that is divided into angles. The score of a link is 1 - excess / (angles x capacity), summed
over all angles at which more is sent than the link can carry. Each link has its own best shifts. A traversal of the
bipartite graph of jobs and links makes one shift per job from the links' shifts, which is possible only without loops.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from controller.planning.contention.fluid import Case, TimedJob
from controller.planning.problem import Floats

Shifts = Mapping[int, int]
"""Shift of each job, in angles."""


def score(profiles: Sequence[Floats], capacity_bps: float) -> float:
    """Return the compatibility of jobs on a link; 1 if the jobs never send more than the link can carry.

    ``profiles``: demand of each shifted job at each angle in bit/s."""
    excess = np.maximum(0.0, np.sum(profiles, axis=0) - capacity_bps)
    return float(1 - excess.sum() / (len(excess) * capacity_bps))


def profile(job: TimedJob, way: int, link: int, period_s: float, turns: int, angles: int) -> Floats:
    """Return the demand of an undisturbed job on a link at each angle, from the begin of its first communication."""
    at_s = (np.arange(angles) + 0.5) * period_s / angles % (period_s / turns)
    demand, begin_s = np.zeros(angles), 0.0
    for number, (compute_s, ideal_s) in enumerate(job.phases):
        begin_s += compute_s if number else 0.0
        demand[(begin_s <= at_s) & (at_s < begin_s + ideal_s)] += job.ways[way][number].get(link, 0.0)
        begin_s += ideal_s
    return demand


def shifts(case: Case, ways: Sequence[int], period_s: float, turns: Sequence[int], angles: int) -> Shifts | None:
    """Return the shifts of the jobs that share a link; None if the graph of jobs and links has a loop.

    Of several links with the same jobs, only the link with the lowest score counts. On a link with more than two jobs,
    one job after the other gets the shift with the highest score."""
    of_link: dict[tuple[int, ...], tuple[float, list[int]]] = {}
    for link, bps in enumerate(case.capacity_bps):
        users = tuple(n for n, job in enumerate(case.jobs) if link in job.peaks[ways[n]])
        profiles = [profile(case.jobs[n], ways[n], link, period_s, turns[n], angles) for n in users]
        if len(users) > 1:
            found = _best_shifts(profiles, [angles // turns[n] for n in users], bps)
            shifted = [np.roll(each, by) for each, by in zip(profiles, found, strict=True)]
            of_link[users] = min(of_link.get(users, (2.0, found)), (score(shifted, bps), found))
    shift_of: dict[int, int] = {}
    for root in sorted({n for users in of_link for n in users}):
        due = deque[tuple[int, tuple[int, ...]]]([] if root in shift_of else [(root, ())])
        shift_of.setdefault(root, 0)
        while due:
            job, reached_by = due.popleft()
            for users, (_, found) in of_link.items():
                if job not in users or users == reached_by:
                    continue
                at = dict(zip(users, found, strict=True))
                for other in users:
                    if other in shift_of and other != job:
                        return None
                    if other != job:
                        shift_of[other] = (shift_of[job] - at[job] + at[other]) % (angles // turns[other])
                        due.append((other, users))
    return shift_of


def _best_shifts(profiles: Sequence[Floats], limits: Sequence[int], capacity_bps: float) -> list[int]:
    found = [0]
    total = profiles[0]
    for demand, limit in zip(profiles[1:], limits[1:], strict=True):
        shifted = demand[(np.arange(len(total)) - np.arange(limit)[:, None]) % len(total)]
        by = int(np.maximum(0.0, total + shifted - capacity_bps).sum(axis=1).round(9).argmin())
        found.append(by)
        total = total + np.roll(demand, by)
    return found
