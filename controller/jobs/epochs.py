"""The epochs over which a job's communication is measured (``Reported`` in ``job``): the bytes' half.

In: the jobs, with what they are planned for, whenever that may have changed. Out: a new epoch of each that is planned
for other bytes. A change of its confirmed routes begins one too (``core.sending``).
"""

from __future__ import annotations

from collections.abc import Mapping

from controller.jobs.job import Job
from controller.shared_map import differing
from signalbox.jobs.spec import JobId, same_traffic


class Epochs:
    """Remembers what every job was planned for last."""

    def __init__(self) -> None:
        self._jobs: Mapping[JobId, Job] = {}

    def follow(self, jobs: Mapping[JobId, Job], now: float) -> None:
        """Begin an epoch of each job that is new or planned for other traffic than at the last call: its ideal time is
        not that of iterations before."""
        before, self._jobs = self._jobs, jobs
        for _, was, job in differing(before, jobs):
            if job and not (was and _same(was, job)):
                job.vitals.begin_epoch(now, job.sending, job.of_pattern is not None)


def _same(was: Job, job: Job) -> bool:
    return (
        was.uid == job.uid
        and was.sending is job.sending
        and (was.of_pattern is None) == (job.of_pattern is None)
        and was.per_iteration == job.per_iteration
        and was.registration.arrangement == job.registration.arrangement
        and (was.spec is job.spec or same_traffic(was.spec, job.spec))
    )
