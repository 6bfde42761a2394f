"""Quotas: limits on the resources of the controller that one tenant, or all jobs together, may use.

In: limits, all jobs, and the jobs that are to be accepted together. Out: nothing, or ``Exhausted`` with the limit and
the present use. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from controller.jobs.announcements import learning_rules
from controller.jobs.messages import NO_QUOTA, Quota
from controller.jobs.reported_connections import count, count_connections
from signalbox.errors import Exhausted, in_entry
from signalbox.jobs.collectives import link_count
from signalbox.jobs.spec import MAX_VIRTUAL_LINKS, JobSpec

if TYPE_CHECKING:
    from controller.jobs.job import Job, JobReplacement
    from controller.jobs.replacements import Wanted


NAMES_OF_LINK = 8
"""Number of addresses, ranks and group names that take about as much memory as one virtual link."""


def refuse_over_quota(quota: Quota, others: Iterable[Job], changes: Sequence[JobReplacement]) -> None:
    """Raise ``Exhausted`` when the jobs of a tenant would exceed its quota after the changes.

    ``others``: jobs that do not change. ``changes``: jobs of one tenant. Changes that in total need no more of a
    resource than the replaced jobs are always allowed."""
    if quota == NO_QUOTA or not changes:
        return
    tenant = changes[0].job.registration.tenant
    others = [one for one in others if one.registration.tenant == tenant]
    is_new = any(change.held is None for change in changes)
    if is_new and quota.max_jobs is not None and len(others) >= quota.max_jobs:
        has = f"{len(others)} {'job' if len(others) == 1 else 'jobs'}"
        raise _exhausted(tenant, has, "max_jobs", quota.max_jobs, len(others), 1)
    for name, limit, measure, things in (
        ("max_virtual_links", quota.max_virtual_links, links_of, "virtual links"),
        ("max_learning_rules", quota.max_learning_rules, learning_rules, _LEARNT),
    ):
        before = [measure(change.held) if change.held else 0 for change in changes]
        after = [measure(change.job) for change in changes]
        if limit is None or sum(after) <= sum(before):
            continue
        needed = sum(map(measure, others)) + sum(after)
        if needed <= limit:
            continue
        first = next(n for n, wanted in enumerate(after) if wanted > before[n])
        job, used = changes[first].job, needed - after[first]
        uses = f"{used} {things}, not counting job '{job.id}', which needs {after[first]}"
        hint = ". Announce collectives or transfers, or fewer endpoints" if measure is learning_rules else ""
        if measure is links_of and after[first] > len(job.virtual_links):
            uses += " (reported connections count)"
        with in_entry(changes[first].entry):
            raise _exhausted(tenant, uses, name, limit, used, after[first], hint)


_LEARNT = "pairs of hosts that are counted for observed jobs"


class _Size(NamedTuple):
    """Memory that a requested job needs (``size``), and the facts about it for an error message."""

    wanted: Wanted
    has: str
    """Phrase of an error message that states the number of virtual links or connections of the job."""
    links: int
    """Number of the job's virtual links, or of its connections if it has more connections than links."""
    needs: int
    """Size of the requested job, as returned by the function ``size``."""
    had: int
    """Size of the job that the requested job replaces; 0 for a new job."""


def refuse_too_large(limit: int, have: int, wanted: Sequence[Wanted]) -> None:
    """Raise ``Exhausted`` when all jobs together would exceed the limit. ``have``: present ``size`` of all jobs.

    Virtual links are counted without making them, because the links of one small request can take megabytes."""
    sizes = []
    for one in wanted:
        held, registration = one.held, one.registration
        sends_alike = held is not None and registration.runs == held.registration.runs
        links = len(held.virtual_links) if held and sends_alike else link_count(registration.spec)
        if links > MAX_VIRTUAL_LINKS:  # no spec may have more; making the links raises the error
            return
        has, connections = f"makes {links} virtual links", count_connections(one.reports, registration.spec.transport)
        if connections > links:
            has, links = f"has {connections} connections (each counts as a virtual link)", connections
        had = size(held.spec, links_of(held)) if held else 0
        sizes.append(_Size(one, has, links, size(registration.spec, links), had))
    had, needs = sum(one.had for one in sizes), sum(one.needs for one in sizes)
    if needs <= had or have - had + needs <= limit:
        return
    first = next(one for one in sizes if one.needs > one.had)
    others = have - had + needs - first.needs
    named = (
        f" and names that take as much memory as {first.needs - first.links} more" if first.needs > first.links else ""
    )
    with in_entry(first.wanted.entry):
        raise Exhausted(
            f"job '{first.wanted.registration.job_id}' {first.has}{named}; the other jobs have {others}, and at most "
            f"{limit} are allowed (jobs.max_virtual_links)",
            about=limit_reached("jobs.max_virtual_links", limit, others, first.needs),
        )


def links_of(job: Job) -> int:
    """Return the larger of the job's number of virtual links and its number of reported connections.

    Each link, and each connection, has rules on switches."""
    return max(len(job.virtual_links), count(job.dividing.connections))


def size(spec: JobSpec, links: int) -> int:
    """Return the memory that a job takes, as a number of virtual links. ``links``: number of its virtual links.

    A spec may be large although it makes few links. Therefore its addresses and names count too, and the groups,
    collectives, transfers and computing times of all its parallelizations."""
    addresses = len(spec.endpoints) + sum(len(rail.endpoints) for rail in spec.rails)
    for way in spec.parallelizations:
        links += len(way.groups) + len(way.collectives) + len(way.transfers) + len(way.compute)
    sending = [way for _, way in spec.ways()]
    names = sum(len(group.ranks) for way in sending for group in way.groups)
    names += sum(len(one.groups) for way in sending for one in way.collectives)
    return links + (addresses + names) // NAMES_OF_LINK


def limit_reached(name: str, limit: int, used: int, wanted: int) -> dict[str, object]:
    """Return the details of an error about a limit, for programs."""
    return {"limit": name, "limitValue": limit, "used": used, "wanted": wanted}


def _exhausted(tenant: str, uses: str, name: str, limit: int, used: int, wanted: int, hint: str = "") -> Exhausted:
    text = f"tenant '{tenant}' has {uses}; its quota {name} is {limit}{hint}"
    return Exhausted(text, f"tenant:{tenant}", about=limit_reached(f"tenant.{name}", limit, used, wanted))
