"""Keep many jobs registered from one process, such as a daemon on the head node of a cluster.

A ``Keeper`` receives the specs of jobs to register and the ids of jobs to release. It owns the memberships of these
jobs, and the threads and schedule of the calls. Lease tokens can be saved for the process that replaces this one.
Several jobs are updated in one call when each job needs hosts that another job releases.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import re
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, cast

from signalbox.errors import (
    Conflict,
    Exhausted,
    HostNotAllowed,
    InvalidInput,
    NotFound,
    SignalboxError,
    WrongLeaseToken,
)
from signalbox.jobs.spec import JobSpec
from signalbox.membership import MAX_PAUSE_S, Change, Controller, Ended, Membership

WORKERS = 4
CLOSE_S = 5.0
BEGUN_ANEW = (Ended.REFUSED, Ended.DEREGISTERED)
"""Reasons for the end of a registration after which the same job may be registered again.

The job is registered again when ``keep`` gets another spec for the job."""

log = logging.getLogger("signalbox")


class Tokens(Protocol):
    """Storage of lease tokens that outlives the process. Its methods may raise ``OSError`` and ``SignalboxError``."""

    def kept(self, job_id: str, /) -> str: ...
    def keep(self, job_id: str, token: str, /) -> None: ...
    def forget(self, job_id: str, /) -> None: ...


class NoTokens:
    """Storage that saves no lease token."""

    def kept(self, _job_id: str, /) -> str:
        return ""

    def keep(self, _job_id: str, _token: str, /) -> None: ...
    def forget(self, _job_id: str, /) -> None: ...


class Keeper:
    """Registrations of many jobs.

    - ``connect``: function that makes a client. Each thread has its own client, and makes a new client after a failure.
    - ``tokens``: saved lease tokens, with which this process continues the registrations of an earlier process
    - ``on_end``: function that is called with a job's id and the reason, once for each end of a job, except for a
      released job; runs in another thread

    A job that another registration has taken over is not registered again until it has been released here. A job that
    was refused, or that an operator deregistered, is registered again when ``keep`` gets another spec for it. Jobs may
    exchange hosts: a change that conflicts with another job is sent together with all changes that wait.

    The methods may be called from any thread. All except ``close`` return at once."""

    def __init__(
        self,
        connect: Callable[[], Any],
        tokens: Tokens | None = None,
        on_end: Callable[[str, Ended], None] = lambda _job_id, _why: None,
        workers: int = WORKERS,
    ) -> None:
        self._client = _OfEachThread(connect)
        self._controller = cast(Controller, _WithOthers(self._client, self._changes_besides, self._announce_again))
        self._tokens = tokens or NoTokens()
        self._on_end = on_end
        self._jobs: dict[str, _Job] = {}
        self._due: list[tuple[float, int, _Job]] = []
        self._entries = itertools.count()
        self._changed = threading.Condition()
        self._closing = False
        self._threads = [
            threading.Thread(target=self._run, name=f"signalbox-keeper-{n}", daemon=True) for n in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def keep(self, spec: JobSpec) -> None:
        """Register the job, or announce this spec in place of the job's earlier spec."""
        with self._changed:
            job = self._jobs.get(spec.job_id)
            if job is None:
                self._begin(spec)
            elif job.ended is None:
                if spec != job.wanted:
                    job.wanted = spec
                    job.membership.update(spec)
                    self._hurry(job)
            elif job.wanted is None or (job.ended in BEGUN_ANEW and spec != job.wanted):
                job.wanted, job.anew = spec, True
                self._hurry(job)

    def release(self, job_id: str) -> None:
        """Deregister the job. The call is repeated until the controller answers, or until the lease has run out."""
        with self._changed:
            if job := self._jobs.get(job_id):
                job.wanted = None
                job.membership.release()
                self._hurry(job)

    def registered(self, job_id: str) -> bool:
        """Return whether the job is registered, as far as this process knows."""
        job = self._jobs.get(job_id)
        return job is not None and job.membership.registered

    def close(self) -> None:
        """End the threads within ``CLOSE_S``. The jobs stay registered, so that another process can continue."""
        deadline = time.monotonic() + CLOSE_S
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    # ---- inside, with the lock

    def _begin(self, spec: JobSpec) -> None:
        job = _Job(spec)
        job.membership = Membership(
            lambda: self._controller,
            spec,
            partial(self._ended, job),
            token=self._log_errors_of(self._tokens.kept, job.id) or "",
            on_token=partial(self._log_errors_of, self._tokens.keep, job.id),
            hands_over=True,
            report_s=math.inf,
        )
        self._jobs[spec.job_id] = job  # added when complete: other methods use it without the lock
        self._schedule(job, 0.0)

    def _schedule(self, job: _Job, at: float) -> None:
        """Schedule the job's next round of calls at the monotonic time ``at``; an earlier entry becomes invalid."""
        job.entry = next(self._entries)
        heapq.heappush(self._due, (at, job.entry, job))
        self._changed.notify_all()

    def _hurry(self, job: _Job) -> None:
        if job.busy:
            job.again = True
        else:
            self._schedule(job, 0.0)

    def _next(self) -> _Job | None:
        while not self._closing:
            while self._due and self._due[0][2].entry != self._due[0][1]:
                heapq.heappop(self._due)
            wait_s = self._due[0][0] - time.monotonic() if self._due else None
            if wait_s is not None and wait_s <= 0:
                return heapq.heappop(self._due)[2]
            self._changed.wait(wait_s)
        return None

    def _schedule_next(self, job: _Job, pause_s: float | None) -> None:
        job.busy = False
        if pause_s is not None or (job.ended and job.again):
            self._schedule(job, 0.0 if job.again else time.monotonic() + (pause_s or 0.0))
        elif job.wanted is None or job.anew or job.ended is None:  # released; it may have been added again
            if not job.ended:
                log.info("job '%s' is deregistered", job.id)
            self._log_errors_of(self._tokens.forget, job.id)
            del self._jobs[job.id]
            self._retry_changes()
            if job.wanted:
                self._begin(job.wanted)

    def _retry_changes(self) -> None:
        """Retry the changes that the controller has refused; the end of another job may have made them possible."""
        for job in self._jobs.values():
            if job.membership.change:
                job.membership.try_again()
                self._hurry(job)

    # ---- inside, in the threads

    def _changes_besides(self, job_id: str) -> list[Change]:
        with self._changed:
            waiting = [job.membership.change for job in self._jobs.values() if job.id != job_id]
        return [change for change in waiting if change]

    def _announce_again(self, job_ids: Collection[str]) -> None:
        """Make these jobs announce their specs again.

        The controller has accepted the changes of these jobs in an update of several jobs. The controller may have
        refused the same changes before, so each job has to send its change once more."""
        with self._changed:
            for job in [self._jobs[job_id] for job_id in job_ids if job_id in self._jobs]:
                job.membership.try_again()
                self._hurry(job)

    def _run(self) -> None:
        while True:
            with self._changed:
                job = self._next()
                if job is None:
                    break
                job.busy, job.again = True, False
            pause_s = None if job.ended else self._round(job)
            with self._changed:
                self._schedule_next(job, pause_s)
        self._client.close()

    def _round(self, job: _Job) -> float | None:
        try:
            return job.membership.round(time.monotonic())
        except Exception:
            log.exception("job '%s': calls to the controller failed; they are repeated", job.id)
            return MAX_PAUSE_S

    def _ended(self, job: _Job, why: Ended) -> None:
        job.ended = why
        self._log_errors_of(self._on_end, job.id, why)

    def _log_errors_of(self, call: Callable[..., Any], job_id: str, *more: Any) -> Any:
        try:
            return call(job_id, *more)
        except Exception as error:
            log.warning("job '%s': %s", job_id, error)


class _WithOthers:
    """Client that repeats a conflicting update together with the waiting changes of other jobs.

    - ``others``: function that returns the waiting changes of all jobs except the given one
    - ``taken``: function that is called after such a joint update, with the ids of the other jobs that it has
      changed"""

    def __init__(
        self, client: Any, others: Callable[[str], list[Change]], taken: Callable[[Collection[str]], None]
    ) -> None:
        self._client = client
        self._others = others
        self._announce_again = taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def update_job(self, spec: JobSpec, *, lease_token: str) -> None:
        try:
            self._client.update_job(spec, lease_token=lease_token)
        except Conflict as conflict:
            change, others = Change(spec, lease_token), self._others(spec.job_id)
            self._announce_again(update_with_others(self._client, change, conflict, others))


class _Job:
    """Schedule and state of one kept job.

    - ``wanted``: spec to announce; None when the job is to be released
    - ``busy``: whether a round of calls is under way
    - ``again``: whether another round must follow the round under way
    - ``anew``: whether the job's registration has ended and the job is to be registered again
    - ``entry``: number of the job's valid entry in the schedule; all its other entries are ignored"""

    membership: Membership

    def __init__(self, spec: JobSpec) -> None:
        self.id = spec.job_id
        self.wanted: JobSpec | None = spec
        self.ended: Ended | None = None
        self.anew = False
        self.busy = False
        self.again = False
        self.entry = -1


class _OfEachThread(threading.local):
    """Client that makes each call through a client of the calling thread; a closed client is replaced."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._client: Any = None

    def __getattr__(self, name: str) -> Any:
        try:
            self._client = self._client or self._connect()
        except InvalidInput as error:  # wrong credential files may be corrected before the next call
            raise SignalboxError(str(error)) from error
        return getattr(self._client, name)

    def close(self) -> None:
        client, self._client = self._client, None
        if client:
            with suppress(Exception):
                client.close()


MAX_JOBS = 256
"""Largest number of jobs in one request for an update."""

NO_SUCH_METHOD = "NO_SUCH_METHOD"
"""Reason of the error from an older controller, which lacks the method ``UpdateJobs``."""


def update_with_others(client: Any, change: Change, conflict: Conflict, others: Sequence[Change]) -> tuple[str, ...]:
    """Update a job together with as many of ``others`` as possible, after the update of this job alone was refused.

    - ``client``: has the methods of ``signalbox.client.Client``
    - ``conflict``: error of the update alone, which is raised when no joint update is accepted

    Returns the ids of the other updated jobs. Raises other errors of the call too, such as ``Unreachable``."""
    left = [change, *others[: MAX_JOBS - 1]]
    while True:
        tokens = {one.spec.job_id: one.lease_token for one in left}
        try:
            client.update_jobs([one.spec for one in left], lease_tokens=tokens)
        except (Conflict, Exhausted, HostNotAllowed, InvalidInput, NotFound, WrongLeaseToken) as error:
            if not (at_fault := entry_at_fault(error)):
                raise conflict from None
            del left[at_fault]
        except SignalboxError as error:
            raise conflict if error.reason == NO_SUCH_METHOD else error from None
        else:
            return tuple(one.spec.job_id for one in left[1:])


def entry_at_fault(error: SignalboxError) -> int | None:
    """Return the position of the request's entry that an error is about; None if it is not about one entry."""
    paths = [problem.path for problem in error.problems] if isinstance(error, InvalidInput) else []
    found = (re.match(r"jobs\[(\d+)\]", path) for path in (*paths, error.about.get("field", "")))
    return next((int(match[1]) for match in found if match), None)
