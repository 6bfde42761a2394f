"""What two jobs cannot both have: a pair of hosts that neither tells apart by connections, or a connection.

In: a job, what it announces or reports, and who has that. Out: nothing, or ``Conflict``. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from controller.jobs.reported_connections import Places, path_of
from signalbox.errors import Conflict, in_entry
from signalbox.jobs.reports import Connected
from signalbox.jobs.spec import JobId
from signalbox.jobs.subflows import Pair

if TYPE_CHECKING:
    from controller.jobs.job import Job, JobReplacement


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


def refuse_pairs_of_others(
    changes: Sequence[JobReplacement], announced_by: Mapping[Pair, JobId], jobs: Mapping[JobId, Job]
) -> None:
    """Judge the jobs as they are after all changes. ``announced_by``: the job without an owner of its pairs
    (``Dividing``) that announces each now. Raises ``Conflict`` for the first change that takes a pair of a job which
    stays as it is, or of a change before it."""
    changed = {change.job.id for change in changes}
    announced: dict[Pair, Job] = {}
    for _, job, entry in changes:
        if job.dividing.owner:
            continue
        holders = {pair: announced_by[pair] for pair in announced_by.keys() & job.pairs}
        taken = {pair: jobs[holder] for pair, holder in holders.items() if holder not in changed}
        taken |= {pair: announced[pair] for pair in announced.keys() & job.pairs}
        if taken:
            with in_entry(entry):
                raise _taken(job, taken)
        announced.update(dict.fromkeys(job.pairs, job))


def _taken(job: Job, holders: Mapping[Pair, Job]) -> Conflict:
    """Return the error for a job with pairs that other jobs announce. ``holders``: the job that announces each."""
    src, dst = min(holders)
    more = f" (pairs taken: {len(holders)})" if len(holders) > 1 else ""
    named, about = _named(job, holders[src, dst])
    return Conflict(
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
