"""How many flows of each job have no path: whatever is planned or hashed, their packets do not arrive."""

from __future__ import annotations

from collections.abc import Mapping

from controller.fabric.parts import Parts, connected
from controller.fabric.topology import Host
from controller.jobs.job import Job
from controller.jobs.spec import JobId
from controller.memo import Changed
from controller.shared_map import SharedMap, updated


class WithoutPath:
    """Derives the number of virtual links without a path, of the jobs that have any; another mapping when one changes.
    Virtual links to hosts that are not found are not among them. Looks at jobs that have changed, and at all that have
    a host in a part of the fabric when parts change."""

    def __init__(self) -> None:
        self._changed = Changed[JobId]()
        self._parts: Parts = {}
        self._hosts: Mapping[str, Host] = {}
        self._counts: Mapping[JobId, int] = SharedMap()

    def __call__(self, jobs: Mapping[JobId, Job], hosts: Mapping[str, Host], parts: Parts) -> Mapping[JobId, int]:
        changed, gone = self._changed(jobs)
        looked_at = set(changed)
        if parts != self._parts or (parts and hosts.keys() != self._hosts.keys()):
            apart = parts.keys() | self._parts.keys()
            looked_at |= {job_id for job_id, job in jobs.items() if not apart.isdisjoint(job.addresses)}
        self._parts, self._hosts = parts, hosts
        counts: dict[JobId, int | None] = {job_id: _count(jobs[job_id], hosts, parts) or None for job_id in looked_at}
        counts.update(dict.fromkeys(gone))
        self._counts = updated(self._counts, {k: count for k, count in counts.items() if self._counts.get(k) != count})
        return self._counts


def _count(job: Job, hosts: Mapping[str, Host], parts: Parts) -> int:
    if not parts:
        return 0
    return sum(src in hosts and dst in hosts and not connected(parts, src, dst) for src, dst in job.pairs)
