"""Requested jobs and reported connections, and their checks against all accepted jobs.

In: all jobs that one request registers, changes or takes over, or the open connections of one address of a job. Out:
the new jobs, and both directions of every connection by pair of addresses; or an error, such as ``Exhausted`` with the
limit and the use.

All jobs of a request are checked in the state after the request, so two jobs may exchange pairs of hosts. Only jobs
that report their connections share pairs of hosts. A connection belongs to one job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from heapq import nsmallest
from itertools import chain
from typing import NamedTuple

from controller.jobs.job import Job, Vitals, learning_rules
from controller.jobs.messages import NO_QUOTA, HostPrefixes, Quota, Registration, UpdateJob
from signalbox.errors import ConcurrentUpdate, Conflict, Exhausted, FieldProblem, HostNotAllowed, in_entry
from signalbox.jobs.collectives import VirtualLinks, link_count, virtual_links
from signalbox.jobs.reports import Connected
from signalbox.jobs.spec import MAX_VIRTUAL_LINKS, ROCE_PORT, JobId, JobSpec, Transport
from signalbox.jobs.subflows import Connection, Connections, Dividing, Pair

MAX_CONNECTIONS = 4_096
"""Largest number of connections of one job. A connection that both of its ends report counts twice.

Deriving the rules of so many connections, all at once, blocks the control loop for half a second."""

MAX_NAMED = 4
"""Largest number of problems that an error names."""

Reports = Mapping[str, frozenset[Connected]]
"""Connections by the address that reported them; this address is their source."""

NO_REPORTS: Reports = {}

_Key = tuple[bool, str, int, str, int]
"""Identity of a connection: whether its transport is RoCEv2, and the address and port of each end."""

Places = Mapping[Connected, int]
"""Index of each connection in the list of the request, counted from 0."""

NO_PLACES: Places = {}

NAMES_OF_LINK = 8
"""Number of addresses, ranks and group names that together take about as much memory as one virtual link."""

_LEARNT = "pairs of hosts that are counted for observed jobs"


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
    """Path of the job in the request; see ``UpdateJob``."""

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


class JobReplacement(NamedTuple):
    """A job, and the job with the same id that it replaces.

    ``held``: the replaced job; None for a new job. ``entry``: see ``UpdateJob``."""

    held: Job | None
    job: Job
    entry: str = ""


def refuse_stale(update: UpdateJob, job: Job) -> None:
    """Raise ``ConcurrentUpdate`` unless the job has the revisions that the update requires."""
    now = job.registration.revision
    if stale := update.revisions - {now}:
        raise ConcurrentUpdate(
            f"job '{job.id}' was updated meanwhile: it has revision {now}, and this update is made from "
            f"revision {min(stale)}. Nothing was changed: read the job, and update it again",
            {"jobId": job.id, "revision": now},
        )


def refuse_foreign_hosts(hosts: HostPrefixes | None, wanted: Sequence[Wanted]) -> None:
    """Raise ``HostNotAllowed`` for the first job that names a host outside of ``hosts``; None allows all hosts.

    A registration may keep hosts that were accepted before the prefixes of the tenant changed."""
    if hosts is None:
        return
    for one in wanted:
        if foreign := _hosts_outside(one, hosts):
            more = f" and {len(foreign) - 1} more" if foreign[1:] else ""
            job_id, tenant = one.registration.job_id, one.registration.tenant
            with in_entry(one.entry):
                raise HostNotAllowed(
                    f"job '{job_id}' names {foreign[0]}{more}, which tenant '{tenant}' may not use: its hosts are "
                    f"{hosts}; an operator can add to its host_prefixes, in the file that api.tokens names",
                    {"jobId": job_id, "host": foreign[0]},
                )


def _hosts_outside(wanted: Wanted, hosts: HostPrefixes) -> list[str]:
    held, registration = wanted.held, wanted.registration
    named = held.spec.addresses if held and held.uid == registration.uid else frozenset[str]()
    rails = (rail.endpoints for rail in registration.spec.rails)
    addresses = dict.fromkeys(chain(registration.spec.endpoints, *rails))
    return [host for host in addresses if host not in named and host not in hosts]


def refuse_too_large(limit: int, have: int, wanted: Sequence[Wanted]) -> None:
    """Raise ``Exhausted`` if all jobs together would be larger than ``limit``.

    The unit of ``limit`` and ``have`` is that of ``size``; ``have`` is the present size of all jobs. Virtual links are
    counted without computing them, because a small request may result in megabytes of links."""
    grown = 0
    # first job that needs more than it had: its links or connections in words, their number, and its size
    larger: tuple[Wanted, str, int, int] | None = None
    for one in wanted:
        held, registration = one.held, one.registration
        sends_alike = held is not None and registration.runs == held.registration.runs
        links = len(held.virtual_links) if held and sends_alike else link_count(registration.spec)
        if links > MAX_VIRTUAL_LINKS:  # no spec may have more; making the links raises the error
            return
        has, connections = f"makes {links} virtual links", count_connections(one.reports, registration.spec.transport)
        if connections > links:
            has, links = f"has {connections} connections (each counts as a virtual link)", connections
        before, after = size(held.spec, links_of(held)) if held else 0, size(registration.spec, links)
        grown += after - before
        if larger is None and after > before:
            larger = one, has, links, after
    if larger is None or grown <= 0 or have + grown <= limit:
        return
    first, has, links, after = larger
    others = have + grown - after
    named = f", and its names take the memory of {after - links} more" if after > links else ""
    with in_entry(first.entry):
        raise Exhausted(
            f"job '{first.registration.job_id}' {has}{named}; the other jobs have {others}, and at most "
            f"{limit} are allowed (jobs.max_virtual_links)",
            about=limit_reached("jobs.max_virtual_links", limit, others, after),
        )


def new_job(wanted: Wanted) -> Job:
    """Return the ``Job`` for a requested job. Virtual links that equal the present ones stay the same object.

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


def refuse_over_quota(quota: Quota, others: Iterable[Job], changes: Sequence[JobReplacement]) -> None:
    """Raise ``Exhausted`` when the jobs of a tenant would exceed its quota after the changes.

    ``others``: jobs that do not change. ``changes``: jobs of one tenant. A change that does not increase the use of a
    resource is allowed even if the use is above the quota."""
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


def refuse_pairs_of_others(
    changes: Sequence[JobReplacement], announced_by: Mapping[Pair, JobId], jobs: Mapping[JobId, Job]
) -> None:
    """Raise ``Conflict`` for the first changed job that announces a pair which another job announces too.

    The other job is an unchanged job, or a job that comes earlier in ``changes``. ``announced_by``: job that announces
    each pair at present. Changed jobs that may share pairs (``Dividing.owner``) are not checked."""
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
                raise _pairs_taken(job, taken, is_update=held is not None)
        announced.update(dict.fromkeys(job.pairs, job))


def _pairs_taken(job: Job, holders: Mapping[Pair, Job], is_update: bool) -> Conflict:
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


def links_of(job: Job) -> int:
    """Return the larger of the job's number of virtual links and its number of reported connections.

    Each link, and each connection, has rules on switches."""
    return max(len(job.virtual_links), count(job.dividing.connections))


def size(spec: JobSpec, links: int) -> int:
    """Return the memory that a job takes, in units of a virtual link. ``links``: number of its virtual links.

    A large spec may have few links. The size therefore includes its addresses and names, and the groups, collectives,
    transfers and computing times of all its parallelizations."""
    addresses = len(spec.endpoints) + sum(len(rail.endpoints) for rail in spec.rails)
    for way in spec.parallelizations:
        links += len(way.groups) + len(way.collectives) + len(way.transfers) + len(way.compute)
    sending = [way for _, way in spec.ways()]
    names = sum(len(group.ranks) for way in sending for group in way.groups)
    names += sum(len(one.groups) for way in sending for one in way.collectives)
    return links + (addresses + names) // NAMES_OF_LINK


def limit_reached(name: str, limit: int, used: int, wanted: int) -> dict[str, object]:
    """Return machine-readable details for an error about a limit."""
    return {"limit": name, "limitValue": limit, "used": used, "wanted": wanted}


def _exhausted(tenant: str, uses: str, name: str, limit: int, used: int, wanted: int, hint: str = "") -> Exhausted:
    text = f"tenant '{tenant}' has {uses}; its quota {name} is {limit}{hint}"
    return Exhausted(text, f"tenant:{tenant}", about=limit_reached(f"tenant.{name}", limit, used, wanted))


# ---- reported connections


class ReportedConnections:
    """Reported connections of all jobs."""

    def __init__(self) -> None:
        self._of_job: dict[JobId, Reports] = {}
        self._held: dict[JobId, frozenset[_Key]] = {}
        self._holder: dict[_Key, JobId] = {}

    def of(self, job_id: JobId) -> Reports:
        """Return the connections of the job, by reporting address; empty if it has reported none."""
        return self._of_job.get(job_id, {})

    @property
    def all(self) -> dict[JobId, frozenset[Connected]]:
        """Reported connections by job, for each job that has reported any."""
        return {job_id: frozenset[Connected]().union(*reports.values()) for job_id, reports in self._of_job.items()}

    def put(self, job_id: JobId, transport: Transport, reports: Reports) -> None:
        """Replace the reports of a job. No connection in ``reports`` may belong to another job."""
        self.forget(job_id)
        if reports:
            self._of_job[job_id] = reports
            self._held[job_id] = frozenset(_key(one, transport) for one in chain.from_iterable(reports.values()))
            self._holder |= dict.fromkeys(self._held[job_id], job_id)

    def forget(self, job_id: JobId) -> None:
        self._of_job.pop(job_id, None)
        for key in self._held.pop(job_id, ()):
            del self._holder[key]

    def taken(self, job: Job, new: Reports, places: Places) -> list[tuple[Connected, JobId]]:
        """Return the connections in ``new`` that other jobs have reported, each with that job, in request order."""
        reported = chain.from_iterable(new.values())
        holders = ((one, self._holder.get(_key(one, job.transport), job.id)) for one in reported)
        taken = [(one, holder) for one, holder in holders if holder != job.id]
        return sorted(taken, key=lambda found: (places.get(found[0], 0), found))


def misfits(job: Job, new: Reports, total: int, places: Places) -> Iterator[FieldProblem]:
    """Yield the problems of the ``new`` reports of a job.

    ``total``: number of connections that the job has reported, including the new ones."""
    ours = job.spec.addresses
    for address in sorted(new.keys() - ours)[:MAX_NAMED]:
        yield FieldProblem("address", f"{address} is not an address of job '{job.id}'")

    def first(wrong: Callable[[Connected], bool]) -> list[Connected]:
        found = filter(wrong, chain.from_iterable(new.values()))
        return nsmallest(MAX_NAMED, found, key=lambda one: (places.get(one, 0), one))

    for one in first(lambda one: one.dst_ip not in ours):
        yield FieldProblem(f"{path_of(one, places)}.dst", f"{one.dst_ip} is not an address of job '{job.id}'")
    for one in first(lambda one: one.dst_port != ROCE_PORT) if job.transport is Transport.ROCE_V2 else ():
        why = f"must be {ROCE_PORT}, the RoCEv2 port, in both directions (given: {one.dst_port})"
        yield FieldProblem(f"{path_of(one, places)}.dst_port", why)
    if total > MAX_CONNECTIONS:
        yield FieldProblem("connections", f"job '{job.id}' has {total}; at most {MAX_CONNECTIONS} are allowed")


def refuse_connections_of_others(
    job: Job, taken: Sequence[tuple[Connected, JobId]], places: Places, jobs: Mapping[JobId, Job]
) -> None:
    """Raise ``Conflict`` if other jobs have already reported connections that ``job`` now reports.

    ``taken``: these connections, each with the other job. The error names the first connection."""
    if not taken:
        return
    one, holder = taken[0]
    more = f" (connections taken: {len(taken)})" if len(taken) > 1 else ""
    field, (other, about) = path_of(one, places), named(job, jobs[holder])
    raise Conflict(
        f"{field}: job '{job.id}' cannot report {one.src_ip}:{one.src_port} > {one.dst_ip}:{one.dst_port}: "
        f"{other} has reported it{more}",
        {**about, "field": field},
    )


def named(job: Job, other: Job) -> tuple[str, dict[str, object]]:
    """Return the name of the other job, for an error about ``job``: in words, and as machine-readable details.

    A tenant does not learn the names of other tenants' jobs."""
    if job.registration.tenant in ("", other.registration.tenant):
        return f"job '{other.id}'", {"jobId": job.id, "otherJobId": other.id}
    return "a job of another tenant", {"jobId": job.id}


def path_of(connection: Connected, places: Places) -> str:
    """Return the path of a connection in the request, for errors; for a saved connection, the path of the list."""
    return f"connections[{places[connection]}]" if connection in places else "connections"


def by_source(connections: Iterable[Connected]) -> Reports:
    found: defaultdict[str, set[Connected]] = defaultdict(set)
    for connection in connections:
        found[connection.src_ip].add(connection)
    return {address: frozenset(own) for address, own in found.items()}


def among(addresses: Set[str], reports: Reports) -> Reports:
    """Return the connections that these addresses reported to each other."""
    return {
        address: frozenset(one for one in reported if one.dst_ip in addresses)
        for address, reported in reports.items()
        if address in addresses
    }


def by_pair(reports: Reports, transport: Transport) -> Connections:
    """Return both directions of every connection, by pair of addresses, even if only one end has reported it.

    Both ends of a RoCEv2 queue pair send from the same source port, which they derive from one flow label."""
    found: defaultdict[Pair, set[Connection]] = defaultdict(set)
    for src, src_port, dst, dst_port in chain.from_iterable(reports.values()):
        there = Connection(src_port, dst_port)
        found[src, dst].add(there)
        found[dst, src].add(there if transport is Transport.ROCE_V2 else Connection(dst_port, src_port))
    return {pair: tuple(sorted(connections)) for pair, connections in found.items()}


def count(connections: Connections) -> int:
    """Return the number of connections. A connection is listed in both directions, but counts once."""
    return sum(map(len, connections.values())) // 2


def count_connections(reports: Reports, transport: Transport) -> int:
    """Return the number of different connections in the reports."""
    return count(by_pair(reports, transport))


def with_connections(job: Job, reports: Reports) -> Job:
    return replace(job, dividing=replace(job.dividing, connections=by_pair(reports, job.transport)))


def _key(connection: Connected, transport: Transport) -> _Key:
    """Return the identity of a connection, which is the same for reports of either end."""
    src, src_port, dst, dst_port = connection
    if transport is Transport.ROCE_V2:  # both ends send from the same port
        return True, min(src, dst), src_port, max(src, dst), dst_port
    return False, *min(connection, Connected(dst, dst_port, src, src_port))
