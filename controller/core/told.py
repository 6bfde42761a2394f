"""What may be told of jobs: what is on disk.

A request changes a job at once, and is taken back when its commit fails. Rules and plans follow from it meanwhile,
which is safe: ECMP lies under every pin, and what is taken back is planned anew. What is told (to callers and watchers,
to the log, as metrics and alarms) is not taken back, so it waits. Only lease ends do not: they happen whatever the
disk does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from controller.jobs.ends import EndReason, Ends
from controller.jobs.messages import Registration
from controller.jobs.spec import JobId
from controller.shared_map import SharedMap, differing, updated

Value = TypeVar("Value")


class Unsaved:
    """Finds the jobs whose registration is another one than on disk. Looks again only when either has changed."""

    def __init__(self, ends: Ends) -> None:
        self._ends = ends

    def __call__(
        self, on_disk: Mapping[JobId, Registration], registrations: Mapping[JobId, Registration]
    ) -> Mapping[JobId, bool]:
        """By job, whether what was told of it before still holds."""
        return {
            job_id: saved is not None and not self._ran_out(saved)
            for job_id, saved, now in differing(on_disk, registrations)
            if saved != now
        }

    def _ran_out(self, saved: Registration) -> bool:
        end = self._ends.of(saved.job_id, saved.uid)
        return end is not None and end.reason is EndReason.LEASE_RAN_OUT


class Told(Generic[Value]):
    """Keeps what was told of each job while its latest change is not on disk."""

    def __init__(self) -> None:
        self._told: Mapping[JobId, Value] = SharedMap()

    def __call__(self, now: Mapping[JobId, Value], unsaved: Mapping[JobId, bool]) -> Mapping[JobId, Value]:
        """``now``: of all jobs. ``unsaved``: see ``Unsaved``."""
        kept = {job_id: self._told.get(job_id) if holds else None for job_id, holds in unsaved.items()}
        self._told = updated(now, {job_id: value for job_id, value in kept.items() if now.get(job_id) is not value})
        return self._told
