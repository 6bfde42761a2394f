"""Changes that must be on disk before the controller acknowledges them.

In: requests that were carried out, each with its reply and an undo function, and the store's answer to each commit.
Out: the state to write next, one commit at a time, and replies. When a commit fails, all requests that are not on disk
are undone, newest first, and refused. Only these replies and published values wait for the disk.

A request changes a job at once. Rules and plans follow the change before the commit ends. This is safe: ECMP rules
forward flows that lose their pins, and the planner plans anew after an undo. Published values (to callers, watchers,
the log, metrics and alarms) cannot be undone, so they wait: where a job's change is not on disk, ``published`` returns
the job as it was before the change. The end of a lease is published at once, because a failed commit does not undo it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from controller.core.messages import Reply
from controller.demand.job_demand import JobDemand
from controller.jobs.ends import EndReason, Ends
from controller.jobs.job import Job
from controller.jobs.messages import Registration, SavedState, SaveState
from controller.shared_map import differing, updated
from controller.store.records import changes
from signalbox.errors import Unavailable
from signalbox.jobs.spec import JobId

Value = TypeVar("Value")

RETRY_S = 5.0
"""Seconds from a failed commit until the next attempt; each new request also starts an attempt."""

SLOW_S = 2.0
"""Seconds after which a commit that has not ended is reported."""


class KnownJobs(NamedTuple):
    """The jobs and their measured demands at one moment."""

    jobs: Mapping[JobId, Job] = {}
    demands: Mapping[JobId, JobDemand] = {}


class _Held(NamedTuple):
    reply: Future[Any] | None
    value: object
    undo: Callable[[float], object]
    then: Callable[[float], object]
    jobs: tuple[Job, ...]


class Commits:
    """Requests that wait for the disk, and the state of the commits.

    ``now`` is monotonic seconds."""

    def __init__(self, saved: SavedState) -> None:
        self.on_disk = saved
        """State on disk: written by the latest successful commit, or read at the start."""
        self.known = KnownJobs()
        """Jobs and demands at the moment when the state on disk was passed to the store."""
        self.revision = saved.revision
        """Revision of the state on disk."""
        self.failures = 0
        """Number of failed commits since the start."""
        self.why = ""
        """Reason why the last commit failed; empty when it succeeded."""
        self._given: SavedState | None = None
        self._given_known = self.known
        self._given_at = 0.0
        self._retry_at = 0.0
        self._under_way: list[_Held] = []
        self._next: list[_Held] = []

    def start(self, known: KnownJobs) -> None:
        """Record the jobs and demands of the saved state; called once, before any request."""
        self.known = known

    @property
    def latest(self) -> SavedState:
        """State of the commit under way, else the state on disk."""
        return self._given or self.on_disk

    @property
    def holding(self) -> bool:
        """Whether some request is not on disk yet."""
        return bool(self._next or self._under_way)

    def hold(
        self,
        reply: Future[Any] | None,
        value: object,
        undo: Callable[[float], object],
        then: Callable[[float], object] = lambda _: None,
        jobs: tuple[Job, ...] = (),
    ) -> None:
        """Keep a carried-out request until the commit ends: then call ``then`` and reply, or ``undo`` it and refuse.

        Both functions get the time. Without ``reply`` another component replies. ``jobs``: jobs that ``undo``
        restores."""
        self._next.append(_Held(reply, value, undo, then, jobs))

    @property
    def may_return(self) -> tuple[Job, ...]:
        """Jobs that a failed commit would restore, as they were before; only jobs that an extension has arranged."""
        held = (*self._under_way, *self._next)
        return tuple(job for request in held for job in request.jobs if job.registration.arrangement)

    def begin(self, state: SavedState, known: KnownJobs, now: float) -> list[SaveState | Reply]:
        """Return the command that writes the difference between ``state`` and the state on disk.

        If nothing differs, the replies to the waiting requests are returned instead. After a failure, an empty
        difference is written too, to find out whether the disk works again. Must not be called while ``busy``."""
        changed = changes(self.on_disk, state)
        self._under_way, self._next = self._next, []
        if not changed and not self.why:
            return list(self._answered(now))
        self._given, self._given_known, self._given_at = state, known, now
        return [SaveState(state, changed)]

    @property
    def busy(self) -> bool:
        """Whether a commit is under way."""
        return self._given is not None

    def done(self, revision: int, now: float) -> list[Reply]:
        """Record that the commit under way is on disk and return the replies."""
        assert self._given is not None
        self.on_disk, self._given, self.revision, self.why = self._given, None, revision, ""
        self.known = self._given_known
        return self._answered(now)

    def failed(self, why: str, now: float) -> list[Reply]:
        """Record that the commit under way failed: undo all requests that wait and return their refusals."""
        self._given, self.why = None, why
        self.failures += 1
        self._retry_at = now + RETRY_S
        held, self._under_way, self._next = [*self._under_way, *self._next], [], []
        for request in reversed(held):
            request.undo(now)
        return [Reply(request.reply, self.error) for request in held if request.reply]

    @property
    def error(self) -> Unavailable:
        """Reply to a request that was undone."""
        return Unavailable(f"the change cannot be saved ({self.why}), so it was not made; try again later", RETRY_S)

    def retry_due(self, now: float) -> bool:
        """Return whether a failed commit is to be tried again now."""
        return bool(self.why) and not self.busy and now >= self._retry_at

    def trouble(self, now: float) -> str:
        """Return why a restart would lose changes made now; empty when commits succeed."""
        if self.why:
            return self.why
        waited = now - self._given_at if self.busy else 0.0
        return f"the disk has not answered for {waited:.0f} s" if waited > SLOW_S else ""

    def _answered(self, now: float) -> list[Reply]:
        held, self._under_way = self._under_way, []
        for request in held:
            request.then(now)
        return [Reply(request.reply, request.value) for request in held if request.reply]


def unsaved(
    on_disk: Mapping[JobId, Registration], registrations: Mapping[JobId, Registration], ends: Ends
) -> Mapping[JobId, bool]:
    """Return the jobs whose registration differs from the one on disk.

    The value of a job is True if its registration on disk may still be published. It is False for a job that is not on
    disk, and for a job whose lease has ended."""

    def ran_out(saved: Registration) -> bool:
        end = ends.of(saved.job_id, saved.uid)
        return end is not None and end.reason is EndReason.LEASE_RAN_OUT

    return {
        job_id: saved is not None and not ran_out(saved)
        for job_id, saved, now in differing(on_disk, registrations)
        if saved != now
    }


def published(
    now: Mapping[JobId, Value], saved: Mapping[JobId, Value], unsaved: Mapping[JobId, bool]
) -> Mapping[JobId, Value]:
    """Return the publishable value of each job: the saved one where a change of the job is not on disk yet.

    ``now``: current values of all jobs. ``saved``: values when the state on disk was passed to the store. ``unsaved``:
    result of the function ``unsaved``."""
    kept = {job_id: saved.get(job_id) if holds else None for job_id, holds in unsaved.items()}
    return updated(now, {job_id: value for job_id, value in kept.items() if now.get(job_id) is not value})
