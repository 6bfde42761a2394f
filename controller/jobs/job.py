"""An accepted job, as a frozen snapshot, and what it changes all the time, beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from controller.jobs.messages import Registration
from controller.shared_map import differing
from signalbox.jobs.collectives import VirtualLinks
from signalbox.jobs.reports import REPORT_S, IterationTime
from signalbox.jobs.spec import JobId, JobSpec, Transport, same_traffic
from signalbox.jobs.subflows import Dividing, Pair

MEASURED_WINDOW = 16
"""Iterations that the mean communication time is taken over."""

NOTICED_S = 10.0
"""Seconds after which counters have shown that a job sends another traffic pattern than before."""

NOTICED_ITERATIONS = 4
"""Iterations after which they have, where these take longer."""

MOST_WAITING = 1000
"""Iterations that wait for this; further ones are not measured."""


class Reported(NamedTuple):
    """Iterations that the job has reported. An *epoch* lasts while neither the confirmed routes of the job change nor
    the bytes that it is planned for.

    ``iterations``: how many were reported in all. ``recent_communication_s``: of the latest that began in the present
    epoch, oldest first. ``last_index``: the highest, -1 before the first. ``since``: monotonic seconds at which the
    epoch began. ``planned``: the virtual links that the job is planned for in this epoch. ``alternates``: the job
    changes between traffic patterns, so its latest iterations may be of another one. Those are ``waiting``, with the
    time at which they ended at the latest, and ``certain_s`` are of the present one."""

    iterations: int = 0
    last_communication_s: float = 0.0
    recent_communication_s: tuple[float, ...] = ()
    last_index: int = -1
    since: float = -math.inf
    planned: VirtualLinks | None = None
    alternates: bool = False
    waiting: tuple[tuple[float, float], ...] = ()
    certain_s: tuple[float, ...] = ()

    def and_now(self, new: Sequence[IterationTime], now: float) -> Reported:
        """Return what is known after a report of ``new`` iterations, oldest first, that arrived ``now``. The latest of
        them ended at most ``REPORT_S`` ago, or when it says. One that may have begun before the epoch is not
        measured."""
        recent = list[tuple[float, float]]()
        began_at = now - REPORT_S
        for iteration in reversed(new[-MEASURED_WINDOW:]):
            least = began_at if iteration.ended_at is None else min(began_at, iteration.ended_at)
            ended_at, began_at = least + REPORT_S, least - iteration.duration_s
            if began_at < self.since:
                break
            recent.insert(0, (ended_at, iteration.communication_s))
        recent_s = [seconds for _, seconds in recent]
        noticed_at = now - max(NOTICED_S, NOTICED_ITERATIONS * new[-1].duration_s)
        waiting = (*self.waiting, *recent)[:MOST_WAITING] if self.alternates else ()
        certain_s = [seconds for _, seconds in takewhile(lambda each: each[0] <= noticed_at, waiting)]
        return self._replace(
            iterations=self.iterations + len(new),
            last_communication_s=new[-1].communication_s,
            recent_communication_s=(*self.recent_communication_s, *recent_s)[-MEASURED_WINDOW:],
            last_index=new[-1].index,
            waiting=waiting[len(certain_s) :],
            certain_s=(*self.certain_s, *certain_s)[-MEASURED_WINDOW:],
        )

    @property
    def mean_communication_s(self) -> float:
        """Over ``recent_communication_s``, of a job that alternates over ``certain_s``; 0 when there is none."""
        recent = self.certain_s if self.alternates else self.recent_communication_s
        return sum(recent) / len(recent) if recent else 0.0


@dataclass(slots=True, eq=False)
class Vitals:
    """What a running job changes all the time. Either value is replaced as a whole; whoever has the job, in any thread,
    reads what holds at that moment. ``lease_ends_at``: monotonic seconds."""

    lease_ends_at: float
    reported: Reported = field(default_factory=Reported)

    def begin_epoch(self, now: float, planned: VirtualLinks | None = None, alternates: bool | None = None) -> None:
        """Forget the recent times: they were measured on other routes, or of other bytes than ``planned``. None: this
        has not changed, nor whether the job ``alternates``."""
        before = self.reported
        self.reported = Reported(
            before.iterations,
            before.last_communication_s,
            last_index=before.last_index,
            since=now,
            planned=before.planned if planned is None else planned,
            alternates=before.alternates if alternates is None else alternates,
        )


@dataclass(frozen=True)
class Job:
    """An accepted job. ``dividing``: how its flows can
    be divided, with the connections that it has reported. ``counted``: pairs of its addresses that are counted besides
    (``demand``). ``silent``: the connections that it has reported carry nothing yet. ``per_iteration``: the bytes of
    the virtual links are of one iteration. ``phases_known``: their phases are those of the spec. ``vitals``: of this
    registration, shared by all snapshots of the job."""

    registration: Registration
    virtual_links: VirtualLinks
    vitals: Vitals = field(compare=False)
    dividing: Dividing
    addresses: frozenset[str]
    """Of the hosts that it must have: those of its announced virtual links; of an observed job all. What was measured
    of the job changes nothing about them."""
    counted: frozenset[Pair] = frozenset()
    per_iteration: bool = True
    phases_known: bool = True
    silent: bool = False
    of_pattern: VirtualLinks | None = None
    """The part of ``virtual_links`` that the current traffic pattern has; None where there is only one pattern."""
    idle_phases: frozenset[int] = frozenset()
    """Phases of ``virtual_links`` that other patterns have, while the current one is expected to last."""

    @property
    def sending(self) -> VirtualLinks:
        """What the job sends now, with the phases of ``virtual_links``."""
        return self.virtual_links if self.of_pattern is None else self.of_pattern

    @property
    def spec(self) -> JobSpec:
        return self.registration.spec

    @property
    def id(self) -> JobId:
        return JobId(self.spec.job_id)

    @property
    def uid(self) -> str:
        return self.registration.uid

    @property
    def registered_at(self) -> float:
        """Seconds since 1970."""
        return self.registration.registered_at

    @property
    def pairs(self) -> frozenset[Pair]:
        """(source, destination) addresses of the virtual links."""
        return self.virtual_links.pairs

    @property
    def transport(self) -> Transport:
        return self.spec.transport


class Epochs:
    """Begin an epoch (``Reported``) of each job that is planned for other bytes; ``core.sending`` begins one when its
    confirmed routes change."""

    def __init__(self) -> None:
        self._jobs: Mapping[JobId, Job] = {}

    def follow(self, jobs: Mapping[JobId, Job], now: float) -> None:
        """Begin an epoch of each job that is new or planned for other traffic than at the last call: its ideal time is
        not that of iterations before."""
        before, self._jobs = self._jobs, jobs
        for _, was, job in differing(before, jobs):
            if job and not (was and _same(was, job)):
                job.vitals.begin_epoch(now, job.sending, job.of_pattern is not None)


def _same(was: Job, job: Job) -> bool:
    return (
        was.uid == job.uid
        and was.sending is job.sending
        and (was.of_pattern is None) == (job.of_pattern is None)
        and was.per_iteration == job.per_iteration
        and was.registration.arrangement == job.registration.arrangement
        and (was.spec is job.spec or same_traffic(was.spec, job.spec))
    )


class JobReplacement(NamedTuple):
    """A job in the place of ``held``, the one that has its id; None for a new job. ``entry``: see ``UpdateJob``."""

    held: Job | None
    job: Job
    entry: str = ""
