"""What two jobs cannot both have: a pair of hosts that neither tells apart by connections, or a connection.

In: a job, what it announces or reports, and who has that. Out: nothing, or ``Conflict``. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from controller.jobs.reported_connections import Places, path_of
from signalbox.errors import Conflict
from signalbox.jobs.reports import Connected
from signalbox.jobs.spec import JobId
from signalbox.jobs.subflows import Pair

if TYPE_CHECKING:
    from controller.jobs.job import Job


def refuse_connections_of_others(
    job: Job, taken: Sequence[tuple[Connected, JobId]], places: Places, jobs: Mapping[JobId, Job]
) -> None:
    """``taken``: those that another job has reported, each with that job."""
    if not taken:
        return
    one, holder = taken[0]
    more = f" (connections taken: {len(taken)})" if len(taken) > 1 else ""
    field, (named, about) = path_of(one, places), _named(job, jobs[holder])
    raise Conflict(
        f"{field}: job '{job.id}' cannot report {one.src_ip}:{one.src_port} > {one.dst_ip}:{one.dst_port}: "
        f"{named} has reported it{more}",
        {**about, "field": field},
    )


def refuse_pairs_of_others(job: Job, announced_by: Mapping[Pair, JobId], jobs: Mapping[JobId, Job]) -> None:
    """``announced_by``: the job without an owner of its pairs (``Dividing``) that announces each."""
    if job.dividing.owner:
        return
    taken = sorted(pair for pair in announced_by.keys() & job.pairs if announced_by[pair] != job.id)
    if not taken:
        return
    src, dst = taken[0]
    more = f" (pairs taken: {len(taken)})" if len(taken) > 1 else ""
    named, about = _named(job, jobs[announced_by[src, dst]])
    raise Conflict(
        f"job '{job.id}' cannot announce {src} > {dst}: {named} announces it{more}; "
        "jobs that report their connections may share pairs",
        {**about, "src": src, "dst": dst},
    )


def _named(job: Job, other: Job) -> tuple[str, dict[str, object]]:
    """How an error of ``job`` calls the other one, in words and for programs: a tenant does not learn the names of
    others' jobs."""
    if job.registration.tenant in ("", other.registration.tenant):
        return f"job '{other.id}'", {"jobId": job.id, "otherJobId": other.id}
    return "a job of another tenant", {"jobId": job.id}
