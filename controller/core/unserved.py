"""How many flows of each job have no path: whatever is planned or hashed, their packets do not arrive.

And what of this, and of hosts that jobs miss, is to be told after a start: not what may only be found later.
"""

from __future__ import annotations

from collections.abc import Mapping

from controller.fabric.islands import Islands, connected
from controller.fabric.parts import PartKey, PartKind, host_key
from controller.fabric.topology import Host
from controller.jobs.job import Job
from controller.memo import ChangedKeys
from controller.shared_map import SharedMap, updated
from signalbox.jobs.spec import JobId


class WithoutPath:
    """Derives the number of virtual links without a path, of the jobs that have any; another mapping when one changes.
    Virtual links to hosts that are not found are not among them. Looks at jobs that have changed, and at all that have
    a host on an island when these change."""

    def __init__(self) -> None:
        self._changed = ChangedKeys[JobId]()
        self._islands: Islands = {}
        self._hosts: Mapping[str, Host] = {}
        self._counts: Mapping[JobId, int] = SharedMap()

    def __call__(self, jobs: Mapping[JobId, Job], hosts: Mapping[str, Host], islands: Islands) -> Mapping[JobId, int]:
        changed, gone = self._changed(jobs)
        looked_at = set(changed)
        if islands != self._islands or (islands and hosts.keys() != self._hosts.keys()):
            apart = islands.keys() | self._islands.keys()
            looked_at |= {job_id for job_id, job in jobs.items() if not apart.isdisjoint(job.addresses)}
        self._islands, self._hosts = islands, hosts
        counts: dict[JobId, int | None] = {job_id: _count(jobs[job_id], hosts, islands) or None for job_id in looked_at}
        counts.update(dict.fromkeys(gone))
        self._counts = updated(self._counts, {k: count for k, count in counts.items() if self._counts.get(k) != count})
        return self._counts


def _count(job: Job, hosts: Mapping[str, Host], islands: Islands) -> int:
    if not islands:
        return 0
    return sum(src in hosts and dst in hosts and not connected(islands, src, dst) for src, dst in job.pairs)


def not_awaited(
    missing: Mapping[JobId, tuple[str, ...]], awaited: frozenset[PartKey]
) -> Mapping[JobId, tuple[str, ...]]:
    """Of the addresses that jobs miss those that are not ``awaited`` (``KnownParts``)."""
    if not awaited:
        return missing
    left = {job_id: tuple(ip for ip in ips if host_key(ip) not in awaited) for job_id, ips in missing.items()}
    return {job_id: ips for job_id, ips in left.items() if ips}


def unless_awaited(without_path: Mapping[JobId, int], awaited: frozenset[PartKey]) -> Mapping[JobId, int]:
    """None while switches or cables are ``awaited``, which may be what is missing on the paths."""
    return {} if any(key.kind is not PartKind.HOST for key in awaited) else without_path
