"""Replacement of jobs by registrations, updates and take-overs, checked as one set.

In: the requested jobs, and all accepted jobs. Out: the new jobs, or an error and no change. Only the result is checked,
so a job may take a pair that another job of the set gives up. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from controller.jobs.host_prefixes import HostPrefixes
from controller.jobs.job import Job, JobReplacement, Vitals
from controller.jobs.messages import Quota, Registration, UpdateJob
from controller.jobs.quotas import refuse_over_quota, refuse_too_large
from controller.jobs.reported_connections import NO_REPORTS, Reports, among, named, with_connections
from signalbox.errors import ConcurrentUpdate, Conflict, HostNotAllowed, in_entry
from signalbox.jobs.collectives import VirtualLinks, virtual_links
from signalbox.jobs.spec import JobId
from signalbox.jobs.subflows import Dividing, Pair


class Wanted(NamedTuple):
    """A requested job, before it is checked."""

    held: Job | None
    """The present job with the same id; None for a new job."""
    registration: Registration
    vitals: Vitals
    links: VirtualLinks | None = None
    """Virtual links of the spec; see ``RegisterJob``."""
    reports: Reports = NO_REPORTS
    """Reported connections that the job keeps, by reporting address."""
    entry: str = ""
    """Path in the request; see ``UpdateJob``."""

    @classmethod
    def of_update(cls, update: UpdateJob, held: Job, reports: Reports) -> Wanted:
        """Return the job after an update. ``reports``: connections that the job has reported."""
        spec, arrangement, links = update.spec, held.registration.arrangement, update.links
        kept = spec.reports_connections and spec.transport is held.transport
        reports = among(spec.addresses, reports) if kept else {}
        if arrangement:
            arrangement, links = arrangement.with_spec(held.spec, spec), None
        revision = held.registration.revision + 1
        registration = replace(held.registration, spec=spec, arrangement=arrangement, revision=revision)
        return cls(held, registration, held.vitals, links, reports, update.entry)


class Accepted(NamedTuple):
    """Accepted jobs, with their pairs and their total size."""

    jobs: Mapping[JobId, Job]
    announced_by: Mapping[Pair, JobId]
    """Job that announces each pair, without pairs that several jobs may announce."""
    size: int
    """Size of all jobs; see ``quotas.size``."""
    max_virtual_links: int
    """Largest size that all jobs may have together."""


def refuse_stale(update: UpdateJob, job: Job) -> None:
    """Raise ``ConcurrentUpdate`` when the job has another revision than the update was made from."""
    now = job.registration.revision
    if stale := update.revisions - {now}:
        raise ConcurrentUpdate(
            f"job '{job.id}' was updated meanwhile: it has revision {now}, and this update is made from "
            f"revision {min(stale)}. Nothing of it was applied; read the job, and update it again",
            {"jobId": job.id, "revision": now},
        )


def replacements(wanted: Sequence[Wanted], accepted: Accepted, quota: Quota) -> list[JobReplacement]:
    """Return each requested job with the job that it replaces. No two requested jobs may have the same id.

    Raises ``InvalidInput``; ``HostNotAllowed`` for a host that the tenant may not use; ``Exhausted`` beyond
    ``max_virtual_links`` or the quota; and ``Conflict`` when two jobs would announce the same pair."""
    _refuse_foreign_hosts(quota.hosts, wanted)
    refuse_too_large(accepted.max_virtual_links, accepted.size, wanted)
    changes = [JobReplacement(one.held, _job(one), one.entry) for one in wanted]
    changed = {change.job.id for change in changes}
    refuse_over_quota(quota, (job for job in accepted.jobs.values() if job.id not in changed), changes)
    _refuse_pairs_of_others(changes, accepted.announced_by, accepted.jobs)
    return changes


def _job(wanted: Wanted) -> Job:
    """Return the ``Job`` for a requested job; virtual links that are equal to the present ones stay the same object.

    Raises ``InvalidInput``."""
    held, spec, links = wanted.held, wanted.registration.runs, wanted.links
    if held and spec == held.registration.runs:
        return with_connections(replace(held, registration=wanted.registration, vitals=wanted.vitals), wanted.reports)
    with in_entry(wanted.entry, "spec"):
        links = virtual_links(spec) if links is None else links
    if held and links == held.virtual_links:
        links = held.virtual_links
    job = Job(wanted.registration, links, wanted.vitals, Dividing.of(spec), links.addresses or spec.addresses)
    return with_connections(job, wanted.reports) if wanted.reports else job


def _refuse_pairs_of_others(
    changes: Sequence[JobReplacement], announced_by: Mapping[Pair, JobId], jobs: Mapping[JobId, Job]
) -> None:
    """Raise ``Conflict`` for the first change that takes a pair of an unchanged job or of an earlier change.

    ``announced_by``: job that announces each pair now. Jobs that may share pairs (``Dividing.owner`` is set) are not in
    it."""
    changed = {change.job.id for change in changes}
    announced: dict[Pair, Job] = {}
    for held, job, entry in changes:
        if job.dividing.owner:
            continue
        holders = {pair: announced_by[pair] for pair in announced_by.keys() & job.pairs}
        taken = {pair: jobs[holder] for pair, holder in holders.items() if holder not in changed}
        taken |= {pair: announced[pair] for pair in announced.keys() & job.pairs}
        if taken:
            with in_entry(entry):
                raise _taken(job, taken, is_update=held is not None)
        announced.update(dict.fromkeys(job.pairs, job))


def _taken(job: Job, holders: Mapping[Pair, Job], is_update: bool) -> Conflict:
    """Return the error for a job with pairs that other jobs announce. ``holders``: the other job, by pair."""
    src, dst = min(holders)
    more = f" (pairs taken: {len(holders)})" if len(holders) > 1 else ""
    holder, about = named(job, holders[src, dst])
    may_exchange = is_update and job.registration.tenant == holders[src, dst].registration.tenant
    return Conflict(
        f"job '{job.id}' cannot announce {src} > {dst}: {holder} announces it{more}; "
        "jobs that report their connections may share pairs"
        + (", and jobs may exchange hosts in one UpdateJobs (signalbox jobs update FILE FILE)" if may_exchange else ""),
        {**about, "src": src, "dst": dst},
    )


def _refuse_foreign_hosts(hosts: HostPrefixes | None, wanted: Sequence[Wanted]) -> None:
    """Raise ``HostNotAllowed`` for the first job that names a host outside ``hosts``; None allows every host.

    A registration may keep hosts that it names already, because they were accepted before the prefixes changed."""
    if hosts is None:
        return
    for one in wanted:
        if foreign := _foreign(one, hosts):
            more = f" and {len(foreign) - 1} more" if foreign[1:] else ""
            job_id, tenant = one.registration.job_id, one.registration.tenant
            with in_entry(one.entry):
                raise HostNotAllowed(
                    f"job '{job_id}' names {foreign[0]}{more}, which tenant '{tenant}' may not use: its hosts are "
                    f"{hosts}; an operator can add to its host_prefixes, in the file that api.tokens names",
                    {"jobId": job_id, "host": foreign[0]},
                )


def _foreign(wanted: Wanted, hosts: HostPrefixes) -> list[str]:
    """Return the hosts that the job would newly name and that are not in ``hosts``, in the order of the spec."""
    held, registration = wanted.held, wanted.registration
    named = held.spec.addresses if held and held.uid == registration.uid else frozenset[str]()
    rails = (rail.endpoints for rail in registration.spec.rails)
    addresses = dict.fromkeys(chain(registration.spec.endpoints, *rails))
    return [host for host in addresses if host not in named and host not in hosts]
