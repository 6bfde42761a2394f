"""Accepted jobs: their specs, owners, virtual links, leases and reported times. Times are monotonic seconds.

A job belongs to one registration, identified by its uid (``owner``). A caller may change only the registration whose
lease token it has. A renewal or a report changes only the job's ``Vitals``; the ``Job`` and the mapping of all jobs
stay the same objects.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import structlog

from controller.jobs.job import Job, Vitals
from controller.jobs.messages import (
    NO_QUOTA,
    Arrangement,
    EndReason,
    Ends,
    JobEnd,
    Quota,
    RegisterJob,
    Registration,
    SavedState,
    UpdateJob,
)
from controller.jobs.requested import (
    NO_PLACES,
    JobReplacement,
    Places,
    ReportedConnections,
    Reports,
    Wanted,
    by_source,
    limit_reached,
    links_of,
    misfits,
    new_job,
    refuse_connections_of_others,
    refuse_foreign_hosts,
    refuse_over_quota,
    refuse_pairs_of_others,
    refuse_stale,
    refuse_too_large,
    size,
    with_connections,
)
from controller.shared_map import Histogram, SharedMap, updated
from signalbox.errors import (
    Exhausted,
    InvalidInput,
    NotAnnounced,
    SignalboxError,
    WrongLeaseToken,
    id_taken,
    in_entry,
    no_such_job,
)
from signalbox.jobs.collectives import VirtualLinks
from signalbox.jobs.reports import Connected, IterationTime
from signalbox.jobs.spec import JobId
from signalbox.jobs.subflows import Pair

log = structlog.get_logger(__name__)


class Known(NamedTuple):
    """A job (None if it does not exist), and the connections that it has reported."""

    job: Job | None
    reports: Reports


class JobRegistry:
    """Registry of the accepted jobs. ``max_jobs`` and ``max_virtual_links`` limit all jobs together."""

    def __init__(self, max_jobs: int, max_virtual_links: int = 200_000) -> None:
        self.max_jobs = max_jobs
        self.max_virtual_links = max_virtual_links
        self._look_at = math.inf
        """Time in monotonic seconds before which no lease ends."""
        self.jobs: Mapping[JobId, Job] = SharedMap()
        """Accepted jobs; a new mapping on each change."""
        self.ends = Ends()
        """Ends of registrations."""
        self.communication_times = Histogram()
        """Distribution of the communication times of all reported iterations, in seconds."""
        self._announced_by: dict[Pair, JobId] = {}
        self._size = 0
        self._connections = ReportedConnections()

    def take_limits(self, max_jobs: int, max_virtual_links: int) -> None:
        """Set the limits for new and changed jobs. Jobs that are registered already stay."""
        self.max_jobs, self.max_virtual_links = max_jobs, max_virtual_links

    def register(self, request: RegisterJob, now: float) -> Job:
        """Accept a job and return it.

        A caller that owns a job with the same id and spec, or repeats the request for it, renews the lease. If the
        caller takes the job over, the existing registration ends. The new registration has no reported connections,
        because a restarted program has other ports.

        Errors:
        - ``NotFound`` when the request is a repetition, and its registration has ended.
        - ``InvalidInput``; see ``collectives.check``.
        - ``AlreadyExists`` when another registration has the id.
        - ``Conflict`` when another job announces one of the pairs of this job.
        - ``HostNotAllowed`` for a host that the tenant may not use.
        - ``Exhausted`` when ``max_jobs``, ``max_virtual_links`` or the quota would be exceeded."""
        new, held = request.registration, self.jobs.get(request.registration.job_id)
        if end := self.ends.of_request(new.job_id, new.tenant, new.request_id):
            raise end.error(id_in_use=held is not None)
        if held is None:
            (change,) = self._replace([self._new(new, now, request.links)], request.quota)
            return change.job
        ours = new.tenant in ("", held.registration.tenant)
        repeated = new.repeats(held.registration)
        mine = ours and (request.owner == held.uid or repeated)
        if mine and held.spec == new.spec:
            self._begin_lease(held, now)
            return held
        if not request.take_over or not ours or repeated:
            raise id_taken(held.id, ours, mine)
        if held.spec == new.spec:
            new = replace(new, arrangement=held.registration.arrangement)
        wanted = Wanted(held, new, Vitals(now + new.spec.lease_s), request.links)
        (change,) = self._replace([wanted], request.quota)
        self.ends.add(held.registration.end(EndReason.TAKEN_OVER, new.registered_at))
        return change.job

    def take_saved(self, saved: SavedState, now: float) -> list[str]:
        """Accept the saved jobs after a restart, with full leases, record the saved ends, and return the problems.

        Each problem names its job. After a problem, the registry must not be used. Saved connections that cannot be
        accepted any more are forgotten with a warning in the log; they are no problem."""
        problems = []
        self.ends.take_saved(saved.ends.values())
        self.jobs = jobs = dict[JobId, Job]()  # changed in place: a copy for each job would take seconds
        for registration in saved.jobs.values():
            try:
                (change,) = self._checked([self._new(registration, now)], NO_QUOTA)
                jobs[registration.job_id] = self._record(change.job, {})
            except SignalboxError as error:
                problems.append(f"job '{registration.job_id}': {error}")
        for job in [job for job in jobs.values() if saved.connections.get(job.id)]:
            try:
                jobs[job.id] = self._with_reports(job, by_source(saved.connections[job.id]))
            except SignalboxError as error:
                log.warning("forgot saved connections that are no longer acceptable", job_id=job.id, why=str(error))
        self.jobs = SharedMap(jobs)
        return problems

    def update(self, updates: Sequence[UpdateJob], quota: Quota = NO_QUOTA) -> tuple[Job, ...]:
        """Replace the specs of jobs, all or none, and return the jobs.

        All updates are checked together, so two jobs may exchange pairs of hosts in one call. Leases continue. Reported
        connections between remaining addresses are kept. A job that sends the same traffic as before keeps its
        arrangement.

        Errors, which name the entry:
        - ``InvalidInput`` as in ``collectives.check``, and for a job that is named twice.
        - ``NotFound`` and ``WrongLeaseToken``.
        - ``Conflict``, ``HostNotAllowed`` and ``Exhausted``, as ``register``.
        - ``ConcurrentUpdate`` when a job does not have the required revision any more."""
        wanted: dict[JobId, Wanted] = {}
        named: dict[JobId, str] = {}
        for update in updates:
            job_id = update.job_id
            with in_entry(update.entry, "spec"):
                if job_id in named:
                    raise InvalidInput.of("job_id", f"'{job_id}' is also in {named[job_id]}; name each job once")
                named[job_id] = update.entry
                job = self.owned(job_id, update.owner)
                if update.spec != job.spec:  # a repeated update is no error, whatever its revision
                    refuse_stale(update, job)
                    wanted[job_id] = Wanted.of_update(update, job, self._connections.of(job_id))
        self._replace([*wanted.values()], quota)
        return tuple(self.jobs[job_id] for job_id in named)

    def arrange(self, job: Job, arrangement: Arrangement) -> None:
        """Set the arrangement of the job, and make its traffic that of the arrangement.

        Raises the errors of ``update``."""
        reports = self._connections.of(job.id)
        self._replace([Wanted(job, replace(job.registration, arrangement=arrangement), job.vitals, reports=reports)])

    def deregister(
        self, job_id: JobId, owner: str | None, ended_at: float, force: bool = False, tenant: str = ""
    ) -> JobEnd | None:
        """End a job, and return the end, which is not final yet; None if the caller has already ended the job.

        ``ended_at``: seconds since 1970. ``force``: whether to end the job even if the caller is not its owner. The
        job must then belong to ``tenant``; an empty ``tenant`` allows any job. Raises ``NotFound`` and
        ``WrongLeaseToken``."""
        job = self.jobs.get(job_id) if force else None
        if job and tenant not in ("", job.registration.tenant):
            raise no_such_job(job_id)
        if job is None:
            before = self.ends.of(job_id, owner)
            if before and before.reason is EndReason.DEREGISTERED:
                return None
            job = self.owned(job_id, owner)
        self._remove([job])
        end = job.registration.end(EndReason.DEREGISTERED, ended_at)
        self.ends.add(end)
        return end

    def renew(self, job_id: JobId, owner: str | None, now: float) -> float:
        """Renew the lease and return the number of seconds left. Raises ``NotFound`` and ``WrongLeaseToken``."""
        job = self.owned(job_id, owner)
        self._begin_lease(job, now)
        return job.spec.lease_s

    def begin_lease(self, job_id: JobId, uid: str, now: float) -> None:
        """Restart the lease of a registration, if the registration still exists.

        Called when the registration is on disk, because writing it may take longer than the lease lasts."""
        job = self.jobs.get(job_id)
        if job and job.uid == uid:
            self._begin_lease(job, now)

    def report(
        self, job_id: JobId, owner: str | None, iterations: Iterable[IterationTime], now: float
    ) -> tuple[IterationTime, ...]:
        """Record the times of iterations, ordered by index, and return the new ones.

        An iteration is new if its index is higher than all indices reported before. Raises ``NotFound`` and
        ``WrongLeaseToken``."""
        vitals = self.owned(job_id, owner).vitals
        before = vitals.reported
        new = tuple(iteration for iteration in iterations if iteration.index > before.last_index)
        if new:
            self.communication_times = self.communication_times.observed(*(each.communication_s for each in new))
            vitals.reported = before.and_now(new, now)
        return new

    def report_connections(
        self,
        job_id: JobId,
        address: str,
        reported: frozenset[Connected],
        owner: str | None,
        quota: Quota = NO_QUOTA,
        places: Places = NO_PLACES,
    ) -> Job:
        """Record all connections of one address of the job, in place of earlier ones, and return the job.

        A connection is (source address and port, destination address and port) and carries bytes both ways. ``places``:
        index of each connection in the request, for errors.

        Errors:
        - ``NotFound`` and ``WrongLeaseToken``.
        - ``NotAnnounced`` when the spec does not announce that connections are reported.
        - ``Conflict`` when another job has reported one of the connections.
        - ``InvalidInput`` for addresses that are not the job's, and for too many connections.
        - ``Exhausted`` when more pairs would be counted than the quota allows. All pairs on which an observed job has
          connections are counted."""
        job = self.owned(job_id, owner)
        if self._connections.of(job_id).get(address) == reported:
            return job
        job = self._with_reports(job, {address: reported}, quota, places)
        self.jobs = updated(self.jobs, {job_id: job})
        return job

    @property
    def connections(self) -> dict[JobId, frozenset[Connected]]:
        """Reported connections by job, to be saved for a restart."""
        return self._connections.all

    def _begin_lease(self, job: Job, now: float) -> None:
        job.vitals.lease_ends_at = now + job.spec.lease_s
        self._look_at = min(self._look_at, job.vitals.lease_ends_at)

    def begin_leases(self, now: float) -> None:
        """Restart the leases of all jobs, after a time in which the controller could not receive renewals."""
        for job in self.jobs.values():
            job.vitals.lease_ends_at = max(job.vitals.lease_ends_at, now + job.spec.lease_s)

    def expire(self, now: float, ended_at: float, unsaved: Container[JobId] = ()) -> tuple[JobId, ...]:
        """Remove the jobs whose lease has ended, and return their ids, sorted.

        ``ended_at``: the present time in seconds since 1970. ``unsaved``: jobs with a change that may still be undone;
        their leases are restarted instead."""
        if now < self._look_at:
            return ()
        over = [job for job in self.jobs.values() if job.vitals.lease_ends_at <= now]
        for job in over:
            if job.id in unsaved:
                self._begin_lease(job, now)
        ended = [job for job in over if job.id not in unsaved]
        if ended:
            self._remove(ended)
            ends = [job.registration.end(EndReason.LEASE_RAN_OUT, ended_at) for job in ended]
            for end in ends:
                self.ends.add(end)
            self.ends.confirm(*ends)
        self._look_at = min((job.vitals.lease_ends_at for job in self.jobs.values()), default=math.inf)
        return tuple(sorted(job.id for job in ended))

    def owned(self, job_id: JobId, owner: str | None) -> Job:
        """Return the job if ``owner`` is the uid of its registration.

        Raises ``WrongLeaseToken`` and ``NotFound``. The text of ``NotFound`` says how the caller's registration, or
        else the latest one of the job, ended."""
        job = self.jobs.get(job_id)
        if job and job.uid == owner:
            return job
        if end := self.ends.of(job_id, owner):
            raise end.error(id_in_use=job is not None)
        if job:
            what = "is not that of" if owner else "is missing; it is needed to change"
            raise WrongLeaseToken(f"the lease token {what} job '{job_id}'", {"jobId": job_id})
        if latest := self.ends.latest(job_id):
            raise latest.error()
        raise no_such_job(job_id)

    def _new(self, registration: Registration, now: float, links: VirtualLinks | None = None) -> Wanted:
        """Return the requested job of a registration; no accepted job may have its id.

        Raises ``Exhausted`` if ``max_jobs`` jobs are already registered."""
        if len(self.jobs) >= self.max_jobs:
            about = limit_reached("jobs.max_jobs", self.max_jobs, len(self.jobs), 1)
            jobs = "1 job is" if self.max_jobs == 1 else f"{self.max_jobs} jobs are"
            raise Exhausted(f"{jobs} registered, which is the limit (jobs.max_jobs)", about=about)
        return Wanted(None, registration, Vitals(now + registration.spec.lease_s), links)

    def _checked(self, wanted: Sequence[Wanted], quota: Quota) -> list[JobReplacement]:
        """Check the requested jobs, and return each with the job that it replaces; their ids must differ.

        Raises ``InvalidInput``; ``HostNotAllowed`` for a host that the tenant may not use; ``Exhausted`` beyond
        ``max_virtual_links`` or the quota; ``Conflict`` if two jobs would announce the same pair."""
        refuse_foreign_hosts(quota.hosts, wanted)
        refuse_too_large(self.max_virtual_links, self._size, wanted)
        changes = [JobReplacement(one.held, new_job(one), one.entry) for one in wanted]
        changed = {change.job.id for change in changes}
        refuse_over_quota(quota, (job for job in self.jobs.values() if job.id not in changed), changes)
        refuse_pairs_of_others(changes, self._announced_by, self.jobs)
        return changes

    def known(self, job_id: JobId) -> Known:
        """Return the job, or None if there is no such job, with its reported connections."""
        return Known(self.jobs.get(job_id), self._connections.of(job_id))

    def restore(self, before: Mapping[JobId, Known], now: float = 0.0) -> None:
        """Restore these jobs to a former state.

        Until now, no other job may have announced a pair of these jobs. A job whose lease has ended meanwhile stays
        removed. The leases of the restored jobs restart, because renewals may have been refused."""
        self._remove([self.jobs[job_id] for job_id in before if job_id in self.jobs])
        back = dict[JobId, Job | None]()
        for job_id, (job, reports) in before.items():
            if job is None:
                continue
            end = self.ends.of(job_id, job.uid)
            if end and end.reason is EndReason.LEASE_RAN_OUT:
                continue
            self.ends.take_back(job.uid)
            job.vitals.lease_ends_at = max(job.vitals.lease_ends_at, now + job.spec.lease_s)
            back[job_id] = self._record(job, reports)
        self.jobs = updated(self.jobs, back)

    def _replace(self, wanted: Sequence[Wanted], quota: Quota = NO_QUOTA) -> list[JobReplacement]:
        """Accept the requested jobs in place of the present ones, all or none.

        Raises the errors of ``_checked``."""
        changes = self._checked(wanted, quota)
        for change in changes:  # release all first: one job may take a pair that another gives up
            if change.held:
                self._release(change.held)
        for change, one in zip(changes, wanted, strict=True):
            self._record(change.job, one.reports)
        self.jobs = updated(self.jobs, {change.job.id: change.job for change in changes})
        return changes

    def _remove(self, gone: Collection[Job]) -> None:
        self.jobs = updated(self.jobs, {job.id: None for job in gone})
        for job in gone:
            self._release(job)

    def _record(self, job: Job, reports: Reports) -> Job:
        if not job.dividing.owner:
            self._announced_by.update(dict.fromkeys(job.pairs, job.id))
        self._size += size(job.spec, links_of(job))
        self._connections.put(job.id, job.transport, reports)
        self._look_at = min(self._look_at, job.vitals.lease_ends_at)
        return job

    def _release(self, job: Job) -> None:
        self._size -= size(job.spec, links_of(job))
        self._connections.forget(job.id)
        for pair in () if job.dividing.owner else job.pairs:
            del self._announced_by[pair]

    def _with_reports(self, job: Job, new: Reports, quota: Quota = NO_QUOTA, places: Places = NO_PLACES) -> Job:
        """Return the job with these connections, and record them.

        Raises the errors of ``report_connections``."""
        if not job.spec.reports_connections:
            raise NotAnnounced(
                f"job '{job.id}' was registered without reports_connections: set it in the spec", {"jobId": job.id}
            )
        reports = {**self._connections.of(job.id), **new}
        InvalidInput.refuse(misfits(job, new, sum(map(len, reports.values())), places))
        refuse_connections_of_others(job, self._connections.taken(job, new, places), places, self.jobs)
        with_reports = with_connections(job, reports)
        others = (one for one in self.jobs.values() if one.id != job.id)
        refuse_over_quota(quota, others, [JobReplacement(job, with_reports)])
        wanted = Wanted(job, job.registration, job.vitals, reports=reports)
        refuse_too_large(self.max_virtual_links, self._size, [wanted])
        self._size += size(job.spec, links_of(with_reports)) - size(job.spec, links_of(job))
        self._connections.put(job.id, job.transport, reports)
        return with_reports
