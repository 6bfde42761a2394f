"""What may be told of jobs: what is on disk.

A request changes a job at once, and is taken back when its commit fails. Rules and plans follow from it meanwhile,
which is safe: ECMP lies under every pin, and what is taken back is planned anew. What is told (to callers and watchers,
to the log, as metrics and alarms) is not taken back, so it waits. Only lease ends do not: they happen whatever the
disk does. What the network does is told as it is: of a job whose change is not on disk, with the spec of before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from controller.fabric.topology import Host
from controller.jobs.ends import EndReason, Ends
from controller.jobs.job import Job
from controller.jobs.messages import Registration
from controller.planning.problem import missing_hosts
from controller.shared_map import differing, updated
from signalbox.jobs.spec import JobId

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


def told(
    now: Mapping[JobId, Value], saved: Mapping[JobId, Value], unsaved: Mapping[JobId, bool]
) -> Mapping[JobId, Value]:
    """``now``: of all jobs. ``saved``: when what is on disk was given to the store. ``unsaved``: see ``Unsaved``."""
    kept = {job_id: saved.get(job_id) if holds else None for job_id, holds in unsaved.items()}
    return updated(now, {job_id: value for job_id, value in kept.items() if now.get(job_id) is not value})


def told_missing(
    now: Mapping[JobId, tuple[str, ...]],
    jobs: Mapping[JobId, Job],
    unsaved: Mapping[JobId, bool],
    hosts: Mapping[str, Host],
) -> Mapping[JobId, tuple[str, ...]]:
    """Addresses of hosts that are not known, of the ``jobs`` as they are told. ``now``: of those that there are."""
    of_told = {job_id: missing_hosts(hosts, jobs[job_id].addresses) if job_id in jobs else () for job_id in unsaved}
    return updated(now, {job_id: ips or None for job_id, ips in of_told.items() if now.get(job_id, ()) != ips})
