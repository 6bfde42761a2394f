"""Quotas: how much of the controller one tenant may use, and all jobs together.

In: limits, all jobs, and the one that is to be accepted. Out: nothing, or ``Exhausted`` with the limit and what is
used. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from controller.jobs.messages import NO_QUOTA, Quota
from controller.jobs.pairs_to_learn import learning_rules
from signalbox.errors import Exhausted
from signalbox.jobs.collectives import link_count
from signalbox.jobs.spec import MAX_VIRTUAL_LINKS, JobId, JobSpec

if TYPE_CHECKING:
    from controller.jobs.job import Job


NAMES_OF_LINK = 8
"""Addresses, ranks and names of groups that take as much memory as a virtual link, about."""


def refuse_over_quota(quota: Quota, jobs: Iterable[Job], job: Job, held: Job | None) -> None:
    """``held``: the job that this one replaces; it may always become smaller."""
    if quota == NO_QUOTA:
        return
    tenant, wanted = job.registration.tenant, links_of(job)
    others = [one for one in jobs if one.registration.tenant == tenant and one is not held]
    used = sum(map(links_of, others))
    if held is None and quota.max_jobs is not None and len(others) >= quota.max_jobs:
        raise _exhausted(tenant, f"{len(others)} jobs", "max_jobs", quota.max_jobs, len(others), 1)
    grows = held is None or wanted > links_of(held)
    if grows and quota.max_virtual_links is not None and used + wanted > quota.max_virtual_links:
        counted = " (reported connections count)" if wanted > len(job.virtual_links) else ""
        uses = f"{used} virtual links besides the {wanted} of job '{job.id}'{counted}"
        raise _exhausted(tenant, uses, "max_virtual_links", quota.max_virtual_links, used, wanted)
    if quota.max_learning_rules is not None:
        _refuse_learning(quota.max_learning_rules, others, job, held)


def _refuse_learning(limit: int, others: Iterable[Job], job: Job, held: Job | None) -> None:
    more = learning_rules(job)
    if more <= (learning_rules(held) if held else 0):
        return
    used = sum(map(learning_rules, others))
    if used + more > limit:
        uses = f"{used} pairs of hosts that are counted for observed jobs besides the {more} of job '{job.id}'"
        hint = ". Announce collectives or transfers, or fewer endpoints"
        raise _exhausted(job.registration.tenant, uses, "max_learning_rules", limit, used, more, hint)


def refuse_too_many_links(limit: int, have: int, spec: JobSpec, held: Job | None) -> None:
    """By their count alone: to make the links of one small request takes megabytes. ``have``: of all jobs, as ``size``
    counts. ``held``: as above."""
    links, had = link_count(spec), size(held.spec, links_of(held)) if held else 0
    more = size(spec, links)
    if links > MAX_VIRTUAL_LINKS or (held and more <= had):  # no spec may have more than the former
        return
    if have - had + more > limit:
        raise _too_large(JobId(spec.job_id), f"makes {links} virtual links", links, more, have - had, limit)


def refuse_too_large(limit: int, have: int, job: Job, held: Job) -> None:
    """``have``: of all jobs, as ``size`` counts. ``job``: the same as ``held``, with another spec or connections."""
    links, had = links_of(job), size(held.spec, links_of(held))
    more = size(job.spec, links)
    if more > had and have - had + more > limit:
        raise _too_large(
            job.id, f"has {links} connections (each counts as a virtual link)", links, more, have - had, limit
        )


def _too_large(job_id: JobId, has: str, links: int, more: int, others: int, limit: int) -> Exhausted:
    """``more``: with what its names take."""
    named = f" and names as much as {more - links} more take" if more > links else ""
    return Exhausted(
        f"job '{job_id}' {has}{named}; the other jobs have {others}, and at most {limit} are allowed "
        "(jobs.max_virtual_links)",
        about=limit_reached("jobs.max_virtual_links", limit, others, more),
    )


def links_of(job: Job) -> int:
    """Virtual links, or its connections where these are more: switches have rules for each."""
    return max(len(job.virtual_links), sum(map(len, job.dividing.connections.values())) // 2)


def size(spec: JobSpec, links: int) -> int:
    """What a job takes of the memory of all jobs, in virtual links: its own, and its spec, which may be large although
    it makes few: of its strategies only one makes them, so that groups, transfers and times of computing of all count
    as links."""
    addresses = len(spec.endpoints) + sum(len(rail.endpoints) for rail in spec.rails)
    for way in spec.strategies:
        links += len(way.groups) + len(way.collectives) + len(way.transfers) + len(way.compute)
    sending = [way for _, way in spec.ways()]
    names = sum(len(group.ranks) for way in sending for group in way.groups)
    names += sum(len(one.groups) for way in sending for one in way.collectives)
    return links + (addresses + names) // NAMES_OF_LINK


def limit_reached(name: str, limit: int, used: int, wanted: int) -> dict[str, object]:
    """What an error says of it to programs."""
    return {"limit": name, "limitValue": limit, "used": used, "wanted": wanted}


def _exhausted(tenant: str, uses: str, name: str, limit: int, used: int, wanted: int, hint: str = "") -> Exhausted:
    text = f"tenant '{tenant}' has {uses}; its quota {name} is {limit}{hint}"
    return Exhausted(text, f"tenant:{tenant}", about=limit_reached(f"tenant.{name}", limit, used, wanted))
