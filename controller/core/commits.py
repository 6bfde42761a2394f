"""Changes that must be on disk before they are acknowledged.

In: requests that were carried out, each with its reply and what takes it back; what the store says of the last commit.
Out: what is to be written next, one commit at a time; replies. When a commit fails, all requests that are not on disk
are taken back, the newest first, and refused. Nothing waits for the disk but these replies.

A request changes a job at once. Rules and plans follow from it meanwhile, which is safe: ECMP lies under every pin, and
what is taken back is planned anew. What is published (to callers and watchers, in the log, as metrics and alarms) is
not taken back, so it waits: ``published`` gives a job whose change is not on disk as it was before. Ended leases do not
wait: they happen whatever the disk does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from controller.core.messages import Reply
from controller.jobs.demand import JobDemand
from controller.jobs.ends import EndReason, Ends
from controller.jobs.job import Job
from controller.jobs.messages import Registration, SavedState, SaveState
from controller.shared_map import differing, updated
from controller.store.records import changes
from signalbox.errors import Unavailable
from signalbox.jobs.spec import JobId

Value = TypeVar("Value")

RETRY_S = 5.0
"""After a commit has failed the next one is tried so much later, and with each request."""

SLOW_S = 2.0
"""A commit that takes longer is reported."""


class KnownJobs(NamedTuple):
    """What was known of jobs at one moment."""

    jobs: Mapping[JobId, Job] = {}
    demands: Mapping[JobId, JobDemand] = {}


class _Held(NamedTuple):
    reply: Future[Any] | None
    value: object
    undo: Callable[[float], object]
    then: Callable[[float], object]
    jobs: tuple[Job, ...]


class Commits:
    """``on_disk``: as the store has it; ``known``: of its jobs, when it was given to the store. ``revision``: of that.
    ``failures``: of commits so far; ``why``: the last one failed, empty when it did not. ``now`` is
    monotonic seconds."""

    def __init__(self, saved: SavedState) -> None:
        self.on_disk = saved
        self.known = KnownJobs()
        self.revision = saved.revision
        self.failures = 0
        self.why = ""
        self._given: SavedState | None = None
        self._given_known = self.known
        self._given_at = 0.0
        self._retry_at = 0.0
        self._under_way: list[_Held] = []
        self._next: list[_Held] = []

    def start(self, known: KnownJobs) -> None:
        """Note what is known of the saved jobs before any request."""
        self.known = known

    @property
    def latest(self) -> SavedState:
        """As last given to the store."""
        return self._given or self.on_disk

    @property
    def holding(self) -> bool:
        """Some request is not on disk yet."""
        return bool(self._next or self._under_way)

    def hold(
        self,
        reply: Future[Any] | None,
        value: object,
        undo: Callable[[float], object],
        then: Callable[[float], object] = lambda _: None,
        jobs: tuple[Job, ...] = (),
    ) -> None:
        """A request was carried out: ``then`` and reply when it is on disk, else ``undo`` it, given now. Without
        ``reply`` others reply. ``jobs``: as ``undo`` brings them back."""
        self._next.append(_Held(reply, value, undo, then, jobs))

    @property
    def may_return(self) -> tuple[Job, ...]:
        """Jobs with arrangements, as they were before requests that are not on disk yet."""
        held = (*self._under_way, *self._next)
        return tuple(job for request in held for job in request.jobs if job.registration.arrangement)

    def begin(self, state: SavedState, known: KnownJobs, now: float) -> list[SaveState | Reply]:
        """Write what differs from what is on disk; after a failure also nothing, which shows whether the disk is back.
        Not to be called while ``busy``."""
        changed = changes(self.on_disk, state)
        self._under_way, self._next = self._next, []
        if not changed and not self.why:
            return list(self._answered(now))
        self._given, self._given_known, self._given_at = state, known, now
        return [SaveState(state, changed)]

    @property
    def busy(self) -> bool:
        """A commit is under way."""
        return self._given is not None

    def done(self, revision: int, now: float) -> list[Reply]:
        """The commit under way is on disk."""
        assert self._given is not None
        self.on_disk, self._given, self.revision, self.why = self._given, None, revision, ""
        self.known = self._given_known
        return self._answered(now)

    def failed(self, why: str, now: float) -> list[Reply]:
        """It is not."""
        self._given, self.why = None, why
        self.failures += 1
        self._retry_at = now + RETRY_S
        held, self._under_way, self._next = [*self._under_way, *self._next], [], []
        for request in reversed(held):
            request.undo(now)
        return [Reply(request.reply, self.error) for request in held if request.reply]

    @property
    def error(self) -> Unavailable:
        """The reply to a request that was taken back."""
        return Unavailable(f"the change cannot be saved ({self.why}), so it was not made; try again later", RETRY_S)

    def retry_due(self, now: float) -> bool:
        """Whether to try again what could not be written."""
        return bool(self.why) and not self.busy and now >= self._retry_at

    def trouble(self, now: float) -> str:
        """Why what happens now is not known after a restart; empty while it is."""
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
    """Return the jobs whose registration is another one than on disk, and whether what was published of them before
    still holds."""

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
    """Return what may be published of each job. ``now``: of all jobs. ``saved``: when what is on disk was given to the
    store. ``unsaved``: as ``unsaved`` gives it."""
    kept = {job_id: saved.get(job_id) if holds else None for job_id, holds in unsaved.items()}
    return updated(now, {job_id: value for job_id, value in kept.items() if now.get(job_id) is not value})
