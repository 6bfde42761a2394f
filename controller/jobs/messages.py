"""Requests of jobs, and what the controller saves of them."""

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
from signalbox.words import Strategy


def new_uid() -> str:
    """Of a registration. The core makes none: they come with the messages."""
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True)
class Quota:
    """What a tenant may have at a time; None where only the controller's own limits count. ``max_learning_rules``:
    pairs of hosts that are counted to learn what its observed jobs send. ``hosts``: the hosts that its jobs may name;
    None: any."""

    max_jobs: int | None = None
    max_virtual_links: int | None = None
    max_learning_rules: int | None = None
    hosts: HostPrefixes | None = None


NO_QUOTA = Quota()


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How an extension makes a job run (``core.extension``). ``runs``: the spec of what the job sends. ``details``:
    what the extension has decided besides, as JSON; nothing else reads it."""

    runs: JobSpec
    details: Mapping[str, Any]

    def with_spec(self, before: JobSpec, after: JobSpec) -> Arrangement | None:
        """The arrangement of the job when its spec is another one; None when it sends something else."""
        if not same_traffic(before, after):
            return None
        changed = {name: getattr(after, name) for name in NOT_TRAFFIC}
        return replace(self, runs=self.runs.model_copy(update=changed))


@dataclass(frozen=True, slots=True)
class Registration:
    """One life of a job, from its registration to its end. ``uid``: no other registration has it, also not a later one
    of the same job. ``tenant``: whose it is, empty without identities. ``registered_at``: seconds since 1970.
    ``request_id``: the caller's own name for the registration, empty without one; whoever knows it is the owner.
    ``arrangement``: by the extension, once it is known. ``revision``: number of the spec in this
    registration, from 1; each update that changes the spec adds one."""

    spec: JobSpec
    uid: str = field(default_factory=new_uid)
    tenant: str = ""
    registered_at: float = field(default_factory=time.time)
    request_id: str = field(default="", repr=False)
    arrangement: Arrangement | None = None
    revision: int = 1

    @property
    def job_id(self) -> JobId:
        return JobId(self.spec.job_id)

    @property
    def runs(self) -> JobSpec:
        """What the job sends."""
        return self.arrangement.runs if self.arrangement else self.spec.plain

    def repeats(self, held: Registration) -> bool:
        """It is from the same request of a caller."""
        return bool(self.request_id) and (self.request_id, self.tenant) == (held.request_id, held.tenant)

    def end(self, reason: EndReason, ended_at: float) -> JobEnd:
        """``ended_at``: seconds since 1970."""
        return JobEnd(self.job_id, self.uid, self.tenant, reason, ended_at, self.request_id)


@dataclass(frozen=True, slots=True)
class RegisterJob:
    """Replies with the uid of the registration: a new one, or the one that is renewed. ``owner``: the uid that the
    caller has the lease token of. ``tenant``: the caller's; empty for one that may act for all. ``quota``: of the
    tenant. ``links``: of the spec; None: they are made when it is accepted, which for the largest takes the control
    loop a good part of a second. The others are those of ``Registration``, for a new one."""

    spec: JobSpec
    owner: str | None = None
    take_over: bool = False
    uid: str = field(default_factory=new_uid)
    tenant: str = ""
    registered_at: float = field(default_factory=time.time)
    request_id: str = field(default="", repr=False)
    quota: Quota = NO_QUOTA
    links: VirtualLinks | None = field(default=None, compare=False)
    reply: Future[Any] = field(default_factory=Future, compare=False)

    @property
    def registration(self) -> Registration:
        return Registration(self.spec, self.uid, self.tenant, self.registered_at, self.request_id)


@dataclass(frozen=True, slots=True)
class UpdateJob:
    """Another spec for one job. ``spec``: the new one, whole. ``revisions``: the job must still have each of these: the
    one that the caller has read, and the one that fields come from which stay. ``owner``: as below. ``links``: as
    above. ``entry``: the place of the update in a request with several (``jobs[1]``), for errors; empty in others."""

    spec: JobSpec
    revisions: frozenset[int] = frozenset()
    owner: str | None = None
    links: VirtualLinks | None = field(default=None, compare=False)
    entry: str = ""

    @property
    def job_id(self) -> JobId:
        return JobId(self.spec.job_id)


@dataclass(frozen=True, slots=True)
class UpdateJobs:
    """Update a set of jobs: all of them or none. Replies with the uids of the registrations, in the same order."""

    updates: tuple[UpdateJob, ...]
    quota: Quota = NO_QUOTA
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class DeregisterJob:
    """``owner``, here and below: the uid that the caller has the lease token of. ``force``: without it, if the job is
    of ``tenant`` or that is empty. ``ended_at``: seconds since 1970."""

    job_id: JobId
    owner: str | None = None
    force: bool = False
    tenant: str = ""
    ended_at: float = field(default_factory=time.time)
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class RenewLease:
    """Replies with the seconds left."""

    job_id: JobId
    owner: str | None = None
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class ReportIterations:
    """Replies with how many of them are new."""

    job_id: JobId
    iterations: tuple[IterationTime, ...]
    owner: str | None = None
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class ReportConnections:
    """All that one address of the job has. ``places``: where each is in the request, counted from 0."""

    job_id: JobId
    address: str
    connections: frozenset[Connected]
    owner: str | None = None
    quota: Quota = NO_QUOTA
    places: Mapping[Connected, int] = field(default_factory=dict, compare=False)
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class SavedState:
    """What a restart should know: the accepted jobs, the strategy set last (None: the configured one), the shares of
    the subflows per split flow (source, destination), which no rule holds, what jobs are planned for that is not in
    their specs, the connections that they have reported, how registrations ended, by uid, oldest first, what is
    drained, by name, the silences of alarms, and the parts of the fabric. ``revision``: that it was read at."""

    jobs: Mapping[JobId, Registration] = field(default_factory=dict)
    strategy: Strategy | None = None
    shares: Mapping[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)
    measured: Mapping[JobId, VirtualLinks] = field(default_factory=dict)
    connections: Mapping[JobId, frozenset[Connected]] = field(default_factory=dict)
    ends: Mapping[str, JobEnd] = field(default_factory=dict)
    drains: Mapping[str, Drain] = field(default_factory=dict)
    silences: Mapping[SilenceKey, Silence] = field(default_factory=dict)
    parts: Mapping[PartKey, Part] = field(default_factory=dict)
    revision: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class SaveState:
    """Write the changes, by record, to the state directory; ``state`` is the whole then."""

    state: SavedState
    changes: Mapping[Any, object]


@dataclass(frozen=True, slots=True)
class StateSaved:
    """The changes that were to be written are on disk."""

    revision: int


@dataclass(frozen=True, slots=True)
class StateNotSaved:
    """None of them is."""

    why: str
