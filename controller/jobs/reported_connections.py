"""Connections that jobs have reported; no connection belongs to two jobs.

In: the open connections of one address of a job. Out: both directions of every connection, by pair of addresses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from heapq import nsmallest
from itertools import chain
from typing import TYPE_CHECKING

from signalbox.errors import Conflict, FieldProblem
from signalbox.jobs.reports import Connected
from signalbox.jobs.spec import ROCE_PORT, JobId, Transport
from signalbox.jobs.subflows import Connection, Connections, Pair

if TYPE_CHECKING:
    from controller.jobs.job import Job

MAX_CONNECTIONS = 4_096
"""Largest number of connections of one job; a connection that both ends report counts twice.

All rules of a job are derived at once: with this many connections, that blocks the control loop for half a second."""

MAX_NAMED = 4
"""Largest number of problems that an error names."""

Reports = Mapping[str, frozenset[Connected]]
"""Connections by the address that reported them, which is their source."""

NO_REPORTS: Reports = {}

_Key = tuple[bool, str, int, str, int]
"""Identity of a connection: whether it is RoCEv2, and its two ends."""

Places = Mapping[Connected, int]
"""Index of each connection in the list of the request, from 0."""

NO_PLACES: Places = {}


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
        """All connections of each job that has reported any."""
        return {job_id: frozenset[Connected]().union(*reports.values()) for job_id, reports in self._of_job.items()}

    def put(self, job_id: JobId, transport: Transport, reports: Reports) -> None:
        """Replace the reports of a job. No connection in ``reports`` may belong to another job."""
        self.forget(job_id)
        if reports:
            self._of_job[job_id] = reports
            self._held[job_id] = frozenset(_key(one, transport) for one in chain.from_iterable(reports.values()))
            self._holder |= dict.fromkeys(self._held[job_id], job_id)

    def forget(self, job_id: JobId) -> None:
        """Forget the connections of a job."""
        self._of_job.pop(job_id, None)
        for key in self._held.pop(job_id, ()):
            del self._holder[key]

    def taken(self, job: Job, new: Reports, places: Places) -> list[tuple[Connected, JobId]]:
        """Return the connections in ``new`` that another job has reported, each with that job, in request order."""
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
    wrong = [one for one in chain.from_iterable(new.values()) if one.dst_ip not in ours]
    for one in nsmallest(MAX_NAMED, wrong, key=lambda one: (places.get(one, 0), one)):
        yield FieldProblem(f"{path_of(one, places)}.dst", f"{one.dst_ip} is not an address of job '{job.id}'")
    if job.transport is Transport.ROCE_V2:
        wrong = [one for one in chain.from_iterable(new.values()) if one.dst_port != ROCE_PORT]
        for one in nsmallest(MAX_NAMED, wrong, key=lambda one: (places.get(one, 0), one)):
            yield FieldProblem(
                f"{path_of(one, places)}.dst_port",
                f"must be {ROCE_PORT}, the RoCEv2 port, in both directions (given: {one.dst_port})",
            )
    if total > MAX_CONNECTIONS:
        yield FieldProblem("connections", f"job '{job.id}' has {total}; at most {MAX_CONNECTIONS} are allowed")


def refuse_connections_of_others(
    job: Job, taken: Sequence[tuple[Connected, JobId]], places: Places, jobs: Mapping[JobId, Job]
) -> None:
    """Raise ``Conflict`` if other jobs have reported connections that ``job`` reports now.

    ``taken``: these connections, each with the job that reported it first; the error names the first of them."""
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
    """Return the name of the other job for an error of ``job``, as words and as details for programs.

    A tenant does not learn the names of other tenants' jobs."""
    if job.registration.tenant in ("", other.registration.tenant):
        return f"job '{other.id}'", {"jobId": job.id, "otherJobId": other.id}
    return "a job of another tenant", {"jobId": job.id}


def path_of(connection: Connected, places: Places) -> str:
    """Return the path of a connection in the request; for a saved connection, the path of the list."""
    return f"connections[{places[connection]}]" if connection in places else "connections"


def by_source(connections: Iterable[Connected]) -> Reports:
    """Return the connections by source address."""
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
    """Return both directions of every connection, whichever end reported it, by pair of addresses.

    The two ends of a RoCEv2 queue pair send from the same port, which they derive from one flow label."""
    found: defaultdict[Pair, set[Connection]] = defaultdict(set)
    for src, src_port, dst, dst_port in chain.from_iterable(reports.values()):
        there = Connection(src_port, dst_port)
        found[src, dst].add(there)
        found[dst, src].add(there if transport is Transport.ROCE_V2 else Connection(dst_port, src_port))
    return {pair: tuple(sorted(connections)) for pair, connections in found.items()}


def count(connections: Connections) -> int:
    """Return the number of connections. Each connection is listed in both directions, and counts once."""
    return sum(map(len, connections.values())) // 2


def count_connections(reports: Reports, transport: Transport) -> int:
    """Return the number of different connections in the reports."""
    return count(by_pair(reports, transport))


def with_connections(job: Job, reports: Reports) -> Job:
    """Return the job with these connections instead of its own."""
    return replace(job, dividing=replace(job.dividing, connections=by_pair(reports, job.transport)))


def _key(connection: Connected, transport: Transport) -> _Key:
    """Return the identity of a connection, which is the same whichever end reported it."""
    src, src_port, dst, dst_port = connection
    if transport is Transport.ROCE_V2:  # both ends send from the same port
        return True, min(src, dst), src_port, max(src, dst), dst_port
    return False, *min(connection, Connected(dst, dst_port, src, src_port))
