"""When the lease of each job is looked at: only when it would have ended without a heartbeat.

In: jobs that have begun, all jobs that there are, ``now`` in monotonic seconds. Out: the jobs whose lease has ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from itertools import count

from controller.jobs.job import Job, Vitals
from signalbox.jobs.spec import JobId

MOST_ENDED = 1000
"""Leases of registrations that are over are forgotten together, when there are so many more of them than jobs."""


class Leases:
    """Of the present registrations, and of some that are over."""

    def __init__(self) -> None:
        self._leases: list[tuple[float, int, JobId, Vitals]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._leases)

    def look_at(self, job: Job, jobs: Mapping[JobId, Job]) -> None:
        """When it ends as it is now; heartbeats put it off then. ``jobs``: all that there are, perhaps without it."""
        if len(self._leases) > 2 * len(jobs) + MOST_ENDED:
            self._forget_ended(jobs)
        vitals = job.vitals
        if vitals.lease_ends_at < vitals.looked_at:
            vitals.looked_at = vitals.lease_ends_at
            heappush(self._leases, (vitals.looked_at, next(self._order), job.id, vitals))

    def over(self, jobs: Mapping[JobId, Job], now: float) -> list[Job]:
        """The jobs whose lease has ended. Looks only at leases that would have ended by now without a heartbeat."""
        ended = []
        while self._leases and self._leases[0][0] <= now:
            looked_at, _, job_id, vitals = heappop(self._leases)
            job = jobs.get(job_id)
            if looked_at != vitals.looked_at:
                continue  # it was looked at before
            vitals.looked_at = math.inf
            if job is None or job.vitals is not vitals:
                continue
            if vitals.lease_ends_at <= now:
                ended.append(job)
            else:
                self.look_at(job, jobs)
        return ended

    def _forget_ended(self, jobs: Mapping[JobId, Job]) -> None:
        """They could have gone on for a day."""
        left = []
        for lease in self._leases:
            looked_at, _, job_id, vitals = lease
            job = jobs.get(job_id)
            if looked_at != vitals.looked_at:
                continue
            if job is not None and job.vitals is vitals:
                left.append(lease)
            else:
                vitals.looked_at = math.inf  # should the registration be restored, it is looked at again
        heapify(left)
        self._leases = left
