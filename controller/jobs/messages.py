"""Requests of jobs, and what the controller saves of them."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from controller.config import Strategy
from controller.jobs.collectives import VirtualLink
from controller.jobs.spec import JobId, JobSpec


@dataclass(frozen=True, slots=True)
class Quota:
    """What a tenant may have at a time; None where only the controller's own limits count."""

    max_jobs: int | None = None
    max_virtual_links: int | None = None


NO_QUOTA = Quota()


@dataclass(frozen=True, slots=True)
class RegisterJob:
    """Replies with the ``JobId``."""

    spec: JobSpec
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class DeregisterJob:
    job_id: JobId
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class RenewLease:
    """Replies with the seconds left."""

    job_id: JobId
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class IterationTime:
    index: int
    duration_s: float
    communication_s: float


@dataclass(frozen=True, slots=True)
class ReportIterations:
    job_id: JobId
    iterations: tuple[IterationTime, ...]
    reply: Future[Any] = field(default_factory=Future, compare=False)


class Connected(NamedTuple):
    """One connection, from the host that reports it."""

    src_ip: str
    src_port: int
    dst_ip: str
    dst_port: int


@dataclass(frozen=True, slots=True)
class ReportConnections:
    """All that one address of the job has."""

    job_id: JobId
    address: str
    connections: frozenset[Connected]
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class SavedState:
    """What a restart should know: the accepted jobs, the strategy set last (None: the configured one), the shares of
    the subflows per split flow (source, destination), which no rule holds, what jobs are planned for that is not in
    their specs, and the connections that they have reported."""

    specs: tuple[JobSpec, ...] = ()
    strategy: Strategy | None = None
    shares: Mapping[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)
    measured: Mapping[JobId, tuple[VirtualLink, ...]] = field(default_factory=dict)
    connections: Mapping[JobId, frozenset[Connected]] = field(default_factory=dict)


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
