"""Requests of jobs, and the state that the controller saves."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from controller.fabric.drains import Drain
from controller.fabric.parts import Part, PartKey
from controller.jobs.ends import EndReason, JobEnd
from controller.jobs.host_prefixes import HostPrefixes
from controller.silence import Silence, SilenceKey
from signalbox.jobs.collectives import VirtualLinks
from signalbox.jobs.reports import Connected, IterationTime
from signalbox.jobs.spec import NOT_TRAFFIC, JobId, JobSpec, same_traffic
from signalbox.words import Mode


def new_uid() -> str:
    """Return a new uid of a registration. The core never calls this function: uids arrive with the messages."""
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits of a tenant; None where only the limits of the controller apply."""

    max_jobs: int | None = None
    max_virtual_links: int | None = None
    max_learning_rules: int | None = None
    """Largest number of pairs of hosts that are counted to learn the tenant's observed jobs."""
    hosts: HostPrefixes | None = None
    """Hosts that the tenant's jobs may name; None for any."""


NO_QUOTA = Quota()


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Decision of an extension (``core.messages``) on how a job runs, such as on its parallelization and circuits."""

    runs: JobSpec
    """Spec of the traffic that the job sends when it runs with this arrangement."""
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
    """Unique id; a later registration of the same job has another id."""
    tenant: str = ""
    """Tenant that owns the registration; empty without identities."""
    registered_at: float = field(default_factory=time.time)
    """Time of the registration in seconds since 1970."""
    request_id: str = field(default="", repr=False)
    """Id that the caller chose for its request; empty if it chose none. A caller that knows it counts as the owner."""
    arrangement: Arrangement | None = None
    """Arrangement that the extension has chosen for the job; None if there is none, or none yet."""
    revision: int = 1
    """Number of the spec in this registration, from 1; each update that changes the spec adds one."""

    @property
    def job_id(self) -> JobId:
        return JobId(self.spec.job_id)

    @property
    def runs(self) -> JobSpec:
        """Spec of the traffic that the job sends: that of the arrangement, else the registered spec."""
        return self.arrangement.runs if self.arrangement else self.spec.plain

    def repeats(self, held: Registration) -> bool:
        """Return whether both registrations come from the same request of a caller."""
        return bool(self.request_id) and (self.request_id, self.tenant) == (held.request_id, held.tenant)

    def end(self, reason: EndReason, ended_at: float) -> JobEnd:
        """Return the end of this registration. ``ended_at``: seconds since 1970."""
        return JobEnd(self.job_id, self.uid, self.tenant, reason, ended_at, self.request_id)


@dataclass(frozen=True, slots=True)
class RegisterJob:
    """Register a job; the reply is the uid of the new registration, or of the one that is renewed.

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
    """Virtual links of the spec; None if they are to be made when the job is accepted.

    Making the largest ones blocks the control loop for a good part of a second."""
    reply: Future[Any] = field(default_factory=Future, compare=False)

    @property
    def registration(self) -> Registration:
        return Registration(self.spec, self.uid, self.tenant, self.registered_at, self.request_id)


@dataclass(frozen=True, slots=True)
class UpdateJob:
    """Replace the spec of one job."""

    spec: JobSpec
    """New spec, complete."""
    revisions: frozenset[int] = frozenset()
    """Revisions that the job must still have: the revision in the request, and the revision whose fields are kept."""
    owner: str | None = None
    """Uid of the registration whose lease token the caller has."""
    links: VirtualLinks | None = field(default=None, compare=False)
    """Virtual links of the spec, as in ``RegisterJob``."""
    entry: str = ""
    """Path of the update in a request with several (``jobs[1]``), for errors; empty in other requests."""

    @property
    def job_id(self) -> JobId:
        return JobId(self.spec.job_id)


@dataclass(frozen=True, slots=True)
class UpdateJobs:
    """Update several jobs, all or none. The reply has the uids of the registrations, in the same order."""

    updates: tuple[UpdateJob, ...]
    quota: Quota = NO_QUOTA
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class DeregisterJob:
    """End a job."""

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
    """Report times of iterations. The reply is the number of new iterations."""

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
    """Mode that was set last; None if the configured mode is used."""
    shares: Mapping[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)
    """Shares of the subflows, by split flow (source, destination); rules on switches do not contain the shares."""
    measured: Mapping[JobId, VirtualLinks] = field(default_factory=dict)
    """Virtual links of jobs that are planned with other virtual links than their specs have."""
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
    """Write changed records to the state directory."""

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
