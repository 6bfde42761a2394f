"""Quotas: how much of the controller one tenant may use, and all jobs together.

In: limits, all jobs, and those that are to be accepted together. Out: nothing, or ``Exhausted`` with the limit and what
is used. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from controller.jobs.messages import NO_QUOTA, Quota
from controller.jobs.pairs_to_learn import learning_rules
from signalbox.errors import Exhausted, in_entry
from signalbox.jobs.collectives import link_count
from signalbox.jobs.spec import MAX_VIRTUAL_LINKS, JobId, JobSpec

if TYPE_CHECKING:
    from controller.jobs.job import Job, JobReplacement
    from controller.jobs.replacements import Wanted


NAMES_OF_LINK = 8
"""Addresses, ranks and names of groups that take as much memory as a virtual link, about."""


def refuse_over_quota(quota: Quota, others: Iterable[Job], changes: Sequence[JobReplacement]) -> None:
    """Judge the jobs as they are after all changes, which are of one tenant. ``others``: the jobs that do not change.
    What all changes need together may always become less."""
    if quota == NO_QUOTA or not changes:
        return
    tenant = changes[0].job.registration.tenant
    others = [one for one in others if one.registration.tenant == tenant]
    is_new = any(change.held is None for change in changes)
    if is_new and quota.max_jobs is not None and len(others) >= quota.max_jobs:
        raise _exhausted(tenant, f"{len(others)} jobs", "max_jobs", quota.max_jobs, len(others), 1)
    if excess := _excess(quota.max_virtual_links, links_of, others, changes):
        job, wanted = excess.change.job, excess.wanted
        counted = " (reported connections count)" if wanted > len(job.virtual_links) else ""
        uses = f"{excess.used} virtual links besides the {wanted} of job '{job.id}'{counted}"
        with in_entry(excess.change.entry):
            raise _exhausted(tenant, uses, "max_virtual_links", excess.limit, excess.used, wanted)
    if excess := _excess(quota.max_learning_rules, learning_rules, others, changes):
        job, wanted = excess.change.job, excess.wanted
        uses = f"{excess.used} pairs of hosts that are counted for observed jobs besides the {wanted} of job '{job.id}'"
        hint = ". Announce collectives or transfers, or fewer endpoints"
        with in_entry(excess.change.entry):
            raise _exhausted(tenant, uses, "max_learning_rules", excess.limit, excess.used, wanted, hint)


class _Excess(NamedTuple):
    """``change``: the first one that needs more than before. ``wanted``: what it needs; ``used``: by all others."""

    change: JobReplacement
    limit: int
    wanted: int
    used: int


def _excess(
    limit: int | None, measure: Callable[[Job], int], others: Iterable[Job], changes: Sequence[JobReplacement]
) -> _Excess | None:
    """Return what exceeds the limit; None when nothing does, or the changes need no more than before."""
    if limit is None:
        return None
    before = [measure(change.held) if change.held else 0 for change in changes]
    after = [measure(change.job) for change in changes]
    if sum(after) <= sum(before):
        return None
    used = sum(map(measure, others)) + sum(after)
    if used <= limit:
        return None
    first = next(n for n, wanted in enumerate(after) if wanted > before[n])
    return _Excess(changes[first], limit, after[first], used - after[first])


def refuse_too_many_links(limit: int, have: int, wanted: Sequence[Wanted]) -> None:
    """Judge the jobs by the count of their links alone: to make those of one small request takes megabytes. ``have``:
    of all jobs, as ``size`` counts."""
    sizes = []
    for one in wanted:
        held, registration = one.held, one.registration
        spec, sends_alike = registration.spec, held is not None and registration.runs == held.registration.runs
        links = links_of(held) if held and sends_alike else link_count(spec)
        if links > MAX_VIRTUAL_LINKS:  # no spec may have more, and making them says so
            return
        had = size(held.spec, links_of(held)) if held else 0
        sizes.append(
            _Size(registration.job_id, f"makes {links} virtual links", links, size(spec, links), had, one.entry)
        )
    _refuse_sizes(limit, have, sizes)


def refuse_too_large(limit: int, have: int, changes: Sequence[JobReplacement]) -> None:
    """Judge the jobs as they are after all changes. ``have``: of all jobs, as ``size`` counts."""
    sizes = []
    for held, job, entry in changes:
        links, had = links_of(job), size(held.spec, links_of(held)) if held else 0
        has = f"has {links} connections (each counts as a virtual link)"
        sizes.append(_Size(job.id, has, links, size(job.spec, links), had, entry))
    _refuse_sizes(limit, have, sizes)


class _Size(NamedTuple):
    """``needs``: with what its names take; ``had``: so far."""

    job_id: JobId
    has: str
    links: int
    needs: int
    had: int
    entry: str


def _refuse_sizes(limit: int, have: int, sizes: Sequence[_Size]) -> None:
    had, needs = sum(one.had for one in sizes), sum(one.needs for one in sizes)
    if needs <= had or have - had + needs <= limit:
        return
    first = next(one for one in sizes if one.needs > one.had)
    others = have - had + needs - first.needs
    named = f" and names as much as {first.needs - first.links} more take" if first.needs > first.links else ""
    with in_entry(first.entry):
        raise Exhausted(
            f"job '{first.job_id}' {first.has}{named}; the other jobs have {others}, and at most {limit} are allowed "
            "(jobs.max_virtual_links)",
            about=limit_reached("jobs.max_virtual_links", limit, others, first.needs),
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
