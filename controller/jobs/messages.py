"""Requests of jobs, registrations and their ends, and the state that the controller saves.

``Ends`` owns the latest ends of registrations. An end is *final* when it cannot be undone any more: a deregistration is
final when it is on disk. In: each end when it happens, and again when it is final; after a restart, the saved ends.
Out: the end of a registration, for its owner and for a client that repeats the request; final ends, for all callers.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network
from itertools import takewhile
from socket import AF_INET, AF_INET6, inet_pton
from typing import Any

from controller.fabric.drains import Drain
from controller.fabric.parts import Part, PartKey
from controller.shared_map import SharedMap, updated
from controller.silence import Silence, SilenceKey
from signalbox.errors import Gone, NotFound, cut, no_such_job
from signalbox.jobs.collectives import VirtualLinks
from signalbox.jobs.reports import Connected, IterationTime
from signalbox.jobs.spec import NOT_TRAFFIC, JobId, JobSpec, same_traffic
from signalbox.words import Mode

MOST_NAMED = 8
"""Largest number of prefixes that an error message names."""


@dataclass(frozen=True)
class HostPrefixes:
    """Hosts of a tenant: the addresses within at least one of these prefixes.

    The time to check an address grows with the number of different prefix lengths, not with the number of prefixes."""

    prefixes: tuple[IPv4Network | IPv6Network, ...]

    @cached_property
    def _networks(self) -> Mapping[tuple[int, int], set[int]]:
        found: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        for prefix in self.prefixes:
            host_bits = prefix.max_prefixlen - prefix.prefixlen
            found[prefix.version, host_bits].add(int(prefix.network_address) >> host_bits)
        return found

    def __contains__(self, host: str) -> bool:
        version, family = (6, AF_INET6) if ":" in host else (4, AF_INET)
        number = int.from_bytes(inet_pton(family, host))  # ipaddress is slower, and a job may have 32,768 addresses
        networks = self._networks.items()
        return any(version == of_version and number >> bits in found for (of_version, bits), found in networks)

    def __str__(self) -> str:
        more = len(self.prefixes) - MOST_NAMED
        return ", ".join([*map(str, self.prefixes[:MOST_NAMED]), *([f"and {more} more"] if more > 0 else [])])


MAX_ENDS = 10_000
"""Largest number of ends in memory."""
MAX_SAVED = 1000
"""Largest number of ends on disk."""


class EndReason(StrEnum):
    """Reason why a registration ended. ``taken_over``: a new registration of the same job has replaced it."""

    DEREGISTERED = "deregistered"
    LEASE_RAN_OUT = "lease_ran_out"
    TAKEN_OVER = "taken_over"


@dataclass(frozen=True, slots=True)
class JobEnd:
    """End of a registration."""

    job_id: JobId
    uid: str
    tenant: str
    reason: EndReason
    ended_at: float
    """Time of the end in seconds since 1970."""
    request_id: str = field(default="", repr=False)
    """Id of the request that made the registration; empty for a request without an id."""

    def error(self, id_in_use: bool = False) -> NotFound:
        """Return the error for a call that names this registration.

        ``id_in_use``: whether another registration has the job id."""
        text, reason = _WORDS[self.reason]
        more = "; another registration has the id now" if id_in_use and self.reason is not EndReason.TAKEN_OVER else ""
        return NotFound(text.format(job=self.job_id) + more, reason, {"jobId": self.job_id})


_WORDS = {
    EndReason.DEREGISTERED: ("job '{job}' was deregistered", Gone.JOB_DEREGISTERED),
    EndReason.LEASE_RAN_OUT: (
        "the lease of job '{job}' ran out; register the job again (in the API: with a new request_id)",
        Gone.LEASE_RAN_OUT,
    ),
    EndReason.TAKEN_OVER: ("job '{job}' was taken over by another registration", Gone.JOB_TAKEN_OVER),
}


class Ends:
    """Latest ends of registrations."""

    def __init__(self) -> None:
        self.certain: tuple[JobEnd, ...] = ()
        """Latest ends that cannot be undone any more, oldest first; the same tuple until another end is final."""
        self.totals: Mapping[EndReason, int] = dict.fromkeys(EndReason, 0)
        """Number of registrations that have finally ended since the controller's start, by reason.

        Each change makes a new mapping."""
        self._of_uid: dict[str, JobEnd] = {}
        self._latest: dict[JobId, str] = {}
        self._of_request: dict[tuple[JobId, str, str], JobEnd] = {}
        self.saved: Mapping[str, JobEnd] = SharedMap()
        """Ends to save for a restart, by uid, including ends that are not final yet."""
        self._to_save = dict[str, None]()

    def add(self, end: JobEnd) -> None:
        """Record that a registration has ended; until the end is final, the registration may be restored."""
        self._of_uid[end.uid] = end
        if end.request_id:
            self._of_request[_request(end)] = end
        self._latest[end.job_id] = end.uid
        self.saved, self._to_save[end.uid] = updated(self.saved, {end.uid: end}), None
        if len(self._to_save) > MAX_SAVED:
            self._save_no_more(next(iter(self._to_save)))
        if len(self._of_uid) > MAX_ENDS:
            self._forget(next(iter(self._of_uid)))

    def take_back(self, uid: str) -> None:
        """Forget an end, because the registration was restored."""
        if uid in self._of_uid:
            self._forget(uid)

    def confirm(self, *ends: JobEnd) -> None:
        """Mark these ends as final."""
        self.certain = (*self.certain, *ends)[-MAX_ENDS:]
        reasons = [end.reason for end in ends]
        self.totals = {reason: number + reasons.count(reason) for reason, number in self.totals.items()}

    def take_saved(self, ends: Iterable[JobEnd]) -> None:
        """Record the saved ends after a restart, oldest first."""
        self.certain = tuple(ends)[-MAX_ENDS:]
        for end in self.certain:
            self.add(end)

    def of(self, job_id: JobId, uid: str | None) -> JobEnd | None:
        """Return how the registration ``uid`` of this job ended; None if no such end is in memory."""
        end = self._of_uid.get(uid) if uid else None
        return end if end and end.job_id == job_id else None

    def of_request(self, job_id: JobId, tenant: str, request_id: str) -> JobEnd | None:
        """Return the end of the registration that the tenant made with this request."""
        return self._of_request.get((job_id, tenant, request_id))

    def latest(self, job_id: JobId) -> JobEnd | None:
        return self.of(job_id, self._latest.get(job_id))

    def _save_no_more(self, uid: str) -> None:
        if uid in self._to_save:
            del self._to_save[uid]
            self.saved = updated(self.saved, {uid: None})

    def _forget(self, uid: str) -> None:
        self._save_no_more(uid)
        end = self._of_uid.pop(uid)
        self._of_request.pop(_request(end), None)
        if self._latest.get(end.job_id) == uid:
            del self._latest[end.job_id]


def _request(end: JobEnd) -> tuple[JobId, str, str]:
    return end.job_id, end.tenant, end.request_id


def not_found(ends: tuple[JobEnd, ...], job_id: JobId, uid: str | None, id_in_use: bool) -> NotFound:
    """Return the error for a call that names a missing registration. ``uid``: None for any registration of the job.

    The error says how this registration, or the latest one of the job, ended. ``ends``: oldest first. ``id_in_use``:
    whether another registration has the job id."""
    of_job = (end for end in reversed(ends) if end.job_id == job_id and uid in (None, end.uid))
    end = next(of_job, None)
    if end:
        return end.error(id_in_use)
    if uid and id_in_use:
        text = f"this registration of job '{cut(job_id)}' is not known; another registration has the id now"
        return NotFound(text, about={"jobId": job_id})
    return no_such_job(job_id)


def ends_since(before: tuple[JobEnd, ...], now: tuple[JobEnd, ...]) -> tuple[JobEnd, ...]:
    """Return the ends in ``now`` that follow the last end of ``before``; all of ``now`` if that end is missing."""
    last = before[-1] if before else None
    new = list(takewhile(lambda end: end is not last, reversed(now)))
    return tuple(reversed(new))


def new_uid() -> str:
    """Return a new uid for a registration. The core does not call this function, but gets uids in messages."""
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits of a tenant; where a limit is None, only the limits of the controller apply."""

    max_jobs: int | None = None
    max_virtual_links: int | None = None
    max_learning_rules: int | None = None
    """Largest number of pairs of hosts that are counted to learn the tenant's observed jobs."""
    hosts: HostPrefixes | None = None
    """Hosts that the tenant's jobs may name; None for all."""


NO_QUOTA = Quota()


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Decision of an extension (``core.messages``) about a job, such as its parallelization and circuits."""

    runs: JobSpec
    """Spec of the traffic that the job sends with this arrangement."""
    details: Mapping[str, Any]
    """Further decisions of the extension, as JSON; only the extension reads them."""

    def with_spec(self, before: JobSpec, after: JobSpec) -> Arrangement | None:
        """Return the arrangement for another spec of the job; None if that spec describes other traffic."""
        if not same_traffic(before, after):
            return None
        changed = {name: getattr(after, name) for name in NOT_TRAFFIC}
        return replace(self, runs=self.runs.model_copy(update=changed))


@dataclass(frozen=True, slots=True)
class Registration:
    """Registration of a job, from its request to its end."""

    spec: JobSpec
    uid: str = field(default_factory=new_uid)
    """Unique id of the registration; a later registration of the same job has another one."""
    tenant: str = ""
    """Tenant that owns the registration; empty without identities."""
    registered_at: float = field(default_factory=time.time)
    """Time of the registration in seconds since 1970."""
    request_id: str = field(default="", repr=False)
    """Id that the caller chose for its request, or empty. A caller that repeats this id counts as the owner."""
    arrangement: Arrangement | None = None
    """Arrangement that the extension has chosen for the job; None if there is none, or none yet."""
    revision: int = 1
    """Number of the spec in this registration, from 1; each update that changes the spec adds one."""

    @property
    def job_id(self) -> JobId:
        return JobId(self.spec.job_id)

    @property
    def runs(self) -> JobSpec:
        """Spec of the traffic that the job sends: that of its ``arrangement``, or ``spec`` without an arrangement."""
        return self.arrangement.runs if self.arrangement else self.spec.plain

    def repeats(self, held: Registration) -> bool:
        """Return whether both registrations come from the same request of a caller."""
        return bool(self.request_id) and (self.request_id, self.tenant) == (held.request_id, held.tenant)

    def end(self, reason: EndReason, ended_at: float) -> JobEnd:
        """Return the end of this registration. ``ended_at``: seconds since 1970."""
        return JobEnd(self.job_id, self.uid, self.tenant, reason, ended_at, self.request_id)


@dataclass(frozen=True, slots=True)
class RegisterJob:
    """Register a job. The reply is the uid of the new registration, or of the renewed registration.

    Fields without a description are described at ``Registration``."""

    spec: JobSpec
    owner: str | None = None
    """Uid of the registration whose lease token the caller has."""
    take_over: bool = False
    uid: str = field(default_factory=new_uid)
    tenant: str = ""
    """Tenant of the caller; empty for a caller that may act for all tenants."""
    registered_at: float = field(default_factory=time.time)
    request_id: str = field(default="", repr=False)
    quota: Quota = NO_QUOTA
    """Quota of the tenant."""
    links: VirtualLinks | None = field(default=None, compare=False)
    """Virtual links of the spec; None if the control loop must compute them when it accepts the job.

    Computing the links of the largest specs blocks the control loop for several tenths of a second."""
    reply: Future[Any] = field(default_factory=Future, compare=False)

    @property
    def registration(self) -> Registration:
        return Registration(self.spec, self.uid, self.tenant, self.registered_at, self.request_id)


@dataclass(frozen=True, slots=True)
class UpdateJob:
    """Replace the spec of one job."""

    spec: JobSpec
    """The complete new spec."""
    revisions: frozenset[int] = frozenset()
    """Revisions that must be equal to the job's present revision; otherwise the update fails.

    At most two: the revision that the request requires, and the revision from which unchanged fields were copied."""
    owner: str | None = None
    """Uid of the registration whose lease token the caller has."""
    links: VirtualLinks | None = field(default=None, compare=False)
    """Virtual links of the spec, as in ``RegisterJob``."""
    entry: str = ""
    """Path of the update in errors, such as ``jobs[1]``; empty if the request has only one update."""

    @property
    def job_id(self) -> JobId:
        return JobId(self.spec.job_id)


@dataclass(frozen=True, slots=True)
class UpdateJobs:
    """Update several jobs, all or none. The reply is the uids of the registrations, in the same order."""

    updates: tuple[UpdateJob, ...]
    quota: Quota = NO_QUOTA
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class DeregisterJob:
    """End the registration of a job."""

    job_id: JobId
    owner: str | None = None
    """Uid of the registration whose lease token the caller has."""
    force: bool = False
    """Whether to end the job without its lease token, if it belongs to ``tenant`` or ``tenant`` is empty."""
    tenant: str = ""
    ended_at: float = field(default_factory=time.time)
    """Time of the request in seconds since 1970."""
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class RenewLease:
    """Renew the lease of a job. The reply is the number of seconds left."""

    job_id: JobId
    owner: str | None = None
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class ReportIterations:
    """Report times of iterations.

    The reply is the number of iterations that were not reported before, and ``Extension.wait_s`` of the job."""

    job_id: JobId
    iterations: tuple[IterationTime, ...]
    owner: str | None = None
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class ReportConnections:
    """Report all connections that one address of the job has."""

    job_id: JobId
    address: str
    connections: frozenset[Connected]
    owner: str | None = None
    quota: Quota = NO_QUOTA
    places: Mapping[Connected, int] = field(default_factory=dict, compare=False)
    """Index of each connection in the request, from 0."""
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class SavedState:
    """State that is saved for a restart."""

    jobs: Mapping[JobId, Registration] = field(default_factory=dict)
    """Accepted jobs."""
    mode: Mode | None = None
    """Mode that an operator has set last; None if the configured mode is used."""
    shares: Mapping[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)
    """Fraction of a flow that each of its subflows carries, for each split flow (source, destination).

    The shares are saved because the rules on switches do not contain them."""
    measured: Mapping[JobId, VirtualLinks] = field(default_factory=dict)
    """Virtual links of jobs that are planned for measured traffic, and not for the virtual links of their specs."""
    connections: Mapping[JobId, frozenset[Connected]] = field(default_factory=dict)
    """Connections that jobs have reported."""
    ends: Mapping[str, JobEnd] = field(default_factory=dict)
    """Ends of registrations by uid, oldest first."""
    drains: Mapping[str, Drain] = field(default_factory=dict)
    """Drained parts by name."""
    silences: Mapping[SilenceKey, Silence] = field(default_factory=dict)
    """Silences of alarms."""
    parts: Mapping[PartKey, Part] = field(default_factory=dict)
    """Parts of the fabric."""
    revision: int = field(default=0, compare=False)
    """Revision at which the state was read."""


@dataclass(frozen=True, slots=True)
class SaveState:
    """Command to write changed records to the store."""

    state: SavedState
    """Complete state after the changes."""
    changes: Mapping[Any, object]
    """Changed records; see ``store.records.ChangedRecords``."""


@dataclass(frozen=True, slots=True)
class StateSaved:
    """The requested changes are on disk."""

    revision: int


@dataclass(frozen=True, slots=True)
class StateNotSaved:
    """The commit failed; none of its changes is on disk."""

    why: str
