"""The accepted jobs: their specs, virtual links, leases and reported times.

Owns which jobs there are. In: specs, heartbeats and reports, with ``now`` in monotonic seconds. Out: frozen ``Job``
snapshots, or an error from ``controller.errors`` and no change. Knows nothing of hosts or routes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from controller.errors import AlreadyExists, Conflict, Exhausted, FieldProblem, InvalidInput, NotFound
from controller.jobs.collectives import VirtualLink, link_count, virtual_links
from controller.jobs.messages import Connected, IterationTime
from controller.jobs.spec import MAX_VIRTUAL_LINKS, JobId, JobSpec, Transport
from controller.jobs.subflows import Connection, Connections, Dividing, Pair

MEASURED_WINDOW = 16
"""Reports that the mean communication time is taken over."""

MAX_CONNECTIONS = 65_536
"""Of one job; a connection that both of its ends report counts twice."""

MAX_NAMED = 4


@dataclass(frozen=True, slots=True)
class Job:
    """An accepted job. ``pairs``: (source, destination) addresses of the virtual links. ``dividing``: how its flows can
    be divided, with the connections that it has reported. ``counted``: pairs of its addresses that are counted besides
    (``demand``). ``silent``: the connections that it has reported carry nothing yet. ``per_iteration``: the bytes of
    the virtual links are of one iteration. ``phases_known``: their phases are those of the spec. ``iterations``: how
    many were reported in all. ``recent_communication_s``: the latest of them since the routes last changed, oldest
    first."""

    spec: JobSpec
    virtual_links: tuple[VirtualLink, ...]
    pairs: frozenset[Pair]
    lease_ends_at: float
    dividing: Dividing
    counted: frozenset[Pair] = frozenset()
    per_iteration: bool = True
    phases_known: bool = True
    silent: bool = False
    iterations: int = 0
    last_communication_s: float = 0.0
    recent_communication_s: tuple[float, ...] = ()

    @property
    def id(self) -> JobId:
        return JobId(self.spec.job_id)

    @property
    def addresses(self) -> frozenset[str]:
        """Of the hosts that it must have: those of its virtual links; of an observed job all."""
        return frozenset(ip for pair in self.pairs for ip in pair) or self.spec.addresses

    @property
    def transport(self) -> Transport:
        return self.spec.transport

    @property
    def mean_communication_s(self) -> float:
        """Over ``recent_communication_s``; 0 when there is none."""
        recent = self.recent_communication_s
        return sum(recent) / len(recent) if recent else 0.0


class Known(NamedTuple):
    """``reports``: connections, by the address that has reported them."""

    job: Job | None
    reports: Mapping[str, frozenset[Connected]]


class JobRegistry:
    """``jobs``: the accepted jobs, a snapshot that each change replaces."""

    def __init__(self, max_jobs: int, max_virtual_links: int = 200_000) -> None:
        self._max_jobs = max_jobs
        self._max_virtual_links = max_virtual_links
        self.jobs: Mapping[JobId, Job] = MappingProxyType({})
        self._announced_by: dict[Pair, JobId] = {}
        self._reports: dict[JobId, Mapping[str, frozenset[Connected]]] = {}
        self._reported_by: dict[Connected, JobId] = {}

    def register(self, spec: JobSpec, now: float) -> Job:
        """Accept a job, or renew the lease of the one that has this spec already.

        Raises ``InvalidInput`` (see ``collectives.check``), ``AlreadyExists`` when another spec has the id,
        ``Conflict`` when another job announces one of its pairs, ``Exhausted`` beyond ``max_jobs`` and
        ``max_virtual_links``.
        """
        job_id = JobId(spec.job_id)
        known = self.jobs.get(job_id)
        if known:
            if known.spec != spec:
                raise AlreadyExists(f"job '{job_id}' is registered with another spec; deregister it first")
            return self._put(replace(known, lease_ends_at=now + spec.lease_s))
        if len(self.jobs) >= self._max_jobs:
            raise Exhausted(f"{self._max_jobs} jobs are registered, which is the limit")
        self._refuse_too_many_links(spec)
        links = virtual_links(spec)
        pairs = frozenset((link.src_ip, link.dst_ip) for link in links)
        if not spec.reports_connections:
            self._refuse_conflict(job_id, pairs)
            self._announced_by.update(dict.fromkeys(pairs, job_id))
        return self._put(Job(spec, links, pairs, now + spec.lease_s, Dividing.of(spec)))

    def deregister(self, job_id: JobId) -> None:
        """Raises ``NotFound``."""
        self._remove([self._get(job_id)])

    def renew(self, job_id: JobId, now: float) -> float:
        """Returns the seconds left. Raises ``NotFound``."""
        job = self._get(job_id)
        self._put(replace(job, lease_ends_at=now + job.spec.lease_s))
        return job.spec.lease_s

    def report(self, job_id: JobId, iterations: Iterable[IterationTime]) -> None:
        """Take in how long iterations really took, in order. Raises ``NotFound``."""
        job = self._get(job_id)
        times = tuple(iteration.communication_s for iteration in iterations)
        if not times:
            return
        self._put(
            replace(
                job,
                iterations=job.iterations + len(times),
                last_communication_s=times[-1],
                recent_communication_s=(job.recent_communication_s + times)[-MEASURED_WINDOW:],
            )
        )

    def report_connections(self, job_id: JobId, address: str, reported: frozenset[Connected]) -> Job:
        """All connections that one address of the job has: (source address and port, destination address and port).
        They carry bytes both ways. Raises ``NotFound``; ``Conflict`` when the job did not announce that it reports
        them, and for a connection that another job has reported: all of them are refused then; ``InvalidInput`` for
        addresses that are not the job's, and for too many."""
        job = self._get(job_id)
        if not job.spec.reports_connections:
            raise Conflict(f"job '{job_id}' was registered without reports_connections")
        ours, reports = job.spec.addresses, {**self._reports.get(job_id, {}), address: reported}
        problems = (
            [FieldProblem("address", f"{address} is not an address of job '{job_id}'")] if address not in ours else []
        )
        problems += [
            FieldProblem("connections", f"{dst} is not an address of job '{job_id}'")
            for dst in sorted({dst for _, _, dst, _ in reports[address]} - ours)[:MAX_NAMED]
        ]
        total = sum(map(len, reports.values()))
        if total > MAX_CONNECTIONS:
            problems.append(
                FieldProblem("connections", f"job '{job_id}' has {total}; at most {MAX_CONNECTIONS} are allowed")
            )
        InvalidInput.refuse(problems)
        self._refuse_taken(job_id, reported)
        self._forget_reported(job_id)
        self._reports[job_id] = reports
        self._reported_by |= dict.fromkeys(map(_either_end, chain.from_iterable(reports.values())), job_id)
        return self._put(replace(job, dividing=replace(job.dividing, connections=_by_pair(reports.values()))))

    @property
    def connections(self) -> dict[JobId, frozenset[Connected]]:
        """Of the jobs that have reported any: what a restart has to know."""
        return {job_id: frozenset[Connected]().union(*reports.values()) for job_id, reports in self._reports.items()}

    def reset_measured(self, job_id: JobId) -> None:
        """Forget the recent times: they were measured on routes that have changed. Raises ``NotFound``."""
        self._put(replace(self._get(job_id), recent_communication_s=()))

    def expire(self, now: float) -> tuple[JobId, ...]:
        """Forget the jobs whose lease has ended; returns which, sorted."""
        ended = [job for job in self.jobs.values() if job.lease_ends_at <= now]
        if ended:
            self._remove(ended)
        return tuple(sorted(job.id for job in ended))

    def _get(self, job_id: JobId) -> Job:
        try:
            return self.jobs[job_id]
        except KeyError:
            raise NotFound(f"there is no job '{job_id}'") from None

    def _put(self, job: Job) -> Job:
        self.jobs = MappingProxyType({**self.jobs, job.id: job})
        return job

    def known(self, job_id: JobId) -> Known:
        """All that is known of a job, or that there is none."""
        return Known(self.jobs.get(job_id), self._reports.get(job_id, {}))

    def restore(self, job_id: JobId, known: Known) -> None:
        """Undo what was done to the job since then, and to no other job that this one excludes."""
        if job_id in self.jobs:
            self._remove([self.jobs[job_id]])
        if known.job is None:
            return
        if not known.job.dividing.owner:
            self._announced_by.update(dict.fromkeys(known.job.pairs, job_id))
        if known.reports:
            self._reports[job_id] = known.reports
            self._reported_by |= dict.fromkeys(map(_either_end, chain.from_iterable(known.reports.values())), job_id)
        self._put(known.job)

    def _remove(self, gone: Iterable[Job]) -> None:
        jobs = dict(self.jobs)
        for job in gone:
            del jobs[job.id]
            self._forget_reported(job.id)
            for pair in () if job.dividing.owner else job.pairs:
                del self._announced_by[pair]
        self.jobs = MappingProxyType(jobs)

    def _refuse_too_many_links(self, spec: JobSpec) -> None:
        """By the count alone: making the links of one small request takes megabytes."""
        more, have = link_count(spec), sum(len(job.virtual_links) for job in self.jobs.values())
        if more <= MAX_VIRTUAL_LINKS and have + more > self._max_virtual_links:  # else the spec itself is wrong
            raise Exhausted(
                f"job '{spec.job_id}' makes {more} virtual links; the other jobs have {have}, and at most "
                f"{self._max_virtual_links} are allowed (jobs.max_virtual_links)"
            )

    def _forget_reported(self, job_id: JobId) -> None:
        for connection in chain.from_iterable(self._reports.pop(job_id, {}).values()):
            self._reported_by.pop(_either_end(connection), None)

    def _refuse_taken(self, job_id: JobId, reported: frozenset[Connected]) -> None:
        taken = sorted(one for one in reported if self._reported_by.get(_either_end(one), job_id) != job_id)
        if not taken:
            return
        src, src_port, dst, dst_port = taken[0]
        more = f" (connections taken: {len(taken)})" if len(taken) > 1 else ""
        raise Conflict(
            f"job '{job_id}' cannot report {src}:{src_port} > {dst}:{dst_port}: job "
            f"'{self._reported_by[_either_end(taken[0])]}' has reported it{more}"
        )

    def _refuse_conflict(self, job_id: JobId, pairs: frozenset[Pair]) -> None:
        taken = sorted(pairs & self._announced_by.keys())
        if not taken:
            return
        src, dst = taken[0]
        more = f" (pairs taken: {len(taken)})" if len(taken) > 1 else ""
        raise Conflict(
            f"job '{job_id}' cannot announce {src} > {dst}: job '{self._announced_by[src, dst]}' announces it{more}; "
            "jobs that report their connections may share pairs"
        )


def _either_end(connection: Connected) -> Connected:
    """The same whichever end has reported the connection."""
    src, src_port, dst, dst_port = connection
    return min(connection, Connected(dst, dst_port, src, src_port))


def _by_pair(reports: Iterable[frozenset[Connected]]) -> Connections:
    """Both directions of every connection, whichever end has reported it."""
    found: defaultdict[Pair, set[Connection]] = defaultdict(set)
    for src, src_port, dst, dst_port in chain.from_iterable(reports):
        found[src, dst].add(Connection(src_port, dst_port))
        found[dst, src].add(Connection(dst_port, src_port))
    return {pair: tuple(sorted(connections)) for pair, connections in found.items()}
