"""Watches: streams that begin with a snapshot and continue with changes.

In: the published ``Status``, and a wake-up after each publication. Out: serialized messages, which watchers of the same
data share. A slow reader gets all changes that were published meanwhile in one message. All calls are made in the API's
thread; long encodings run in another thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401  (asyncio would import it at the first call of to_thread)
import functools
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

from google.protobuf.message import Message

from controller.api import convert, convert_plan
from controller.api.long_work import SMALL, LongWork
from controller.api.watch_rows import AlarmRows, FabricRows, JobRows, PlanRows
from controller.api.watch_table import Reader, ResumeTokens, Rows, WatchTable
from controller.status import JobStatus, Status, StatusBoard
from signalbox.errors import NotFound
from signalbox.jobs.spec import JobId
from signalbox.v1 import signalbox_pb2 as pb

SPACING_S = 1.0
"""Smallest number of seconds between messages to a watcher.

The first change is sent at once. Later changes wait and are sent together, since rates of links change all the time."""

ROUTES_SPACING_S = 0.02
"""Smallest number of seconds between messages with routes, for which training jobs wait."""

TOGETHER = 16
TURN_S = 0.015
"""Seconds from the wake-up of one group of watchers to the next. A group has ``TOGETHER`` watchers."""

LARGE_BYTES = 256 * 1024
LARGE_TOGETHER = 4
"""Largest number of large messages that are sent at the same time.

A message is large if it has more than ``LARGE_BYTES`` bytes, for example because it contains a plan."""

SHARED_ROUTES_BYTES = 16 << 20
"""Total size in bytes of the latest messages with routes that are kept for other watchers."""

Key = TypeVar("Key")
Value = TypeVar("Value")

Write = Callable[[bytes], Awaitable[None]]
"""Function that sends a message, and returns when the reader's flow-control window has had room for it."""

Wait = Callable[[asyncio.Event], Awaitable[None]]
"""Function that waits until the event is set. Raises an exception when the server stops first."""

UidOf = Callable[[str, str], Awaitable[str]]
"""Function with the arguments (job id, uid) that returns the uid of this registration. Raises ``NotFound``.

An empty uid stands for the present registration."""

Ended = Callable[[str, str], NotFound | None]
"""Function with the arguments (job id, uid) that returns the error about the end of this registration.

It returns None while the end is not certain."""


class Publications:
    """Wake-ups of watchers after publications: the first is immediate, later ones are at least ``spacing_s`` apart.

    All watchers share one listener of the board, which exists only while there are watchers."""

    def __init__(self, board: StatusBoard, spacing_s: float) -> None:
        self._board = board
        self._spacing_s = spacing_s
        self._watchers: dict[asyncio.Event, Callable[[], bool]] = {}
        self._unsubscribe: Callable[[], None] = lambda: None
        self._waking = False
        self._next_at = 0.0
        self.wakes = 0
        """Number of times that watchers were woken."""

    @contextmanager
    def heard(self, concerned: Callable[[], bool] = lambda: True) -> Iterator[asyncio.Event]:
        """Yield an event that is set after publications if ``concerned`` then returns True."""
        if not self._watchers:
            loop = asyncio.get_running_loop()
            self._unsubscribe = self._board.subscribe(lambda: self._published(loop))
        event = asyncio.Event()
        self._watchers[event] = concerned
        try:
            yield event
        finally:
            del self._watchers[event]
            if not self._watchers:
                self._unsubscribe()

    def _published(self, loop: asyncio.AbstractEventLoop) -> None:
        """Schedule a wake-up, from the control loop's thread.

        Several publications need only one wake-up, since a woken watcher reads the newest status."""
        if not self._waking:
            self._waking = True
            with suppress(RuntimeError):  # the server has stopped
                loop.call_soon_threadsafe(self._wake_later, loop)

    def _wake_later(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_at(max(loop.time(), self._next_at), self.wake)

    def wake(self) -> None:
        """Wake the concerned watchers, group by group, so that other calls run in between."""
        loop = asyncio.get_running_loop()
        self._waking = False
        self.wakes += 1
        events = [event for event, concerned in self._watchers.items() if concerned()]
        turns = [events[first : first + TOGETHER] for first in range(0, len(events), TOGETHER)]
        self._next_at = loop.time() + max(self._spacing_s, len(turns) * TURN_S)
        for number, turn in enumerate(turns):
            loop.call_later(number * TURN_S, _set_all, turn)


def _set_all(events: list[asyncio.Event]) -> None:
    for event in events:
        event.set()


class LargeMessages:
    """Limit of the number of large messages that are written at the same time, because gRPC keeps a copy of each."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(LARGE_TOGETHER)

    async def write(self, write: Write, message: bytes) -> None:
        """Write the message; a large one waits until fewer than ``LARGE_TOGETHER`` large messages are being written."""
        if len(message) <= LARGE_BYTES:
            await write(message)
            return
        async with self._turns:
            await write(message)


class Feed(Generic[Key, Value]):
    """Watch of one kind of rows. The table is kept up to date only while there are watchers."""

    def __init__(
        self, board: StatusBoard, response: type[Message], rows: Rows[Key, Value], large: LargeMessages
    ) -> None:
        self._board = board
        self._large = large
        self._rows = rows
        self._table = WatchTable(response, rows)
        self._publications = Publications(board, SPACING_S)
        self._followed: Status | None = None
        self._followed_at = 0
        self._following: asyncio.Task[None] | None = None

    async def watch(self, token: str, only: str | None, write: Write, wait: Wait) -> None:
        """Write messages until ``wait`` raises.

        ``only``: owner whose rows are sent; None: all rows. Raises ``InvalidInput`` for a malformed resume token."""
        reader = Reader(self._table, token, only)
        with self._publications.heard() as published:
            await self._up_to_date()
            while True:
                while message := reader.message():
                    await self._large.write(write, message)
                await wait(published)
                published.clear()
                await self._woken()

    async def _up_to_date(self) -> None:
        """Wait until the table includes all that was published before this call.

        Concurrent callers share one update of the table, which continues if one caller is cancelled."""
        if self._following:  # this update may have begun before the publication
            await asyncio.wait({self._following})
        if not self._following:
            self._followed_at = self._publications.wakes
            self._following = asyncio.create_task(self._follow())
        await asyncio.shield(self._following)

    async def _woken(self) -> None:
        """Bring the table up to date after a wake-up; all watchers of one wake-up share one update."""
        if self._followed_at != self._publications.wakes:
            await self._up_to_date()
        elif self._following:
            await asyncio.shield(self._following)

    async def _follow(self) -> None:
        status = self._board.status
        try:
            if status is not self._followed:
                self._table.apply(await asyncio.to_thread(lambda: self._table.changes(self._rows.of(status))))
                self._followed = status
        finally:
            self._following = None


class Routes:
    """Watches of the routes of a job; each message has all routes of the job."""

    def __init__(
        self, board: StatusBoard, uid_of: UidOf, ended: Ended, large: LargeMessages, long_work: LongWork
    ) -> None:
        self._board = board
        self._large = large
        self._long_work = long_work
        self._encoding = asyncio.Lock()
        self._uid_of = uid_of
        self._ended = ended
        self._publications = Publications(board, ROUTES_SPACING_S)
        self._tokens = ResumeTokens()
        self._since = time.time()
        self._shared: dict[str, bytes] = {}
        self._shared_bytes = 0

    async def watch(self, job_id: str, uid: str, token: str, write: Write, wait: Wait) -> None:
        """Write the newest routes whenever they have changed, until ``wait`` raises.

        ``uid``: uid of the watched registration; if empty, the registration in the resume token, or the present one
        without a token. Raises ``NotFound`` when the registration ends or has ended, and ``InvalidInput`` for a
        malformed resume token."""
        named = self._tokens.uid(token)
        uid = await self._uid_of(job_id, uid or named)
        stream = f"{uid} {job_id}"
        sent = self._tokens.position(stream, token)

        def changed() -> bool:
            status = self._board.status
            job = status.jobs.get(JobId(job_id))
            return job is None or job.uid != uid or (_position(job, status) != sent and self._known(job, status))

        with self._publications.heard(changed) as published:
            while True:
                published.clear()
                status = self._board.status
                job = status.jobs.get(JobId(job_id))
                if job is None or job.uid != uid:
                    if error := self._ended(job_id, uid):
                        raise error
                elif (position := _position(job, status)) != sent and self._known(job, status):
                    sent = position
                    encoded = await self._message(stream, job, status)
                    if timing := status.extension.timings.get(JobId(job_id)):
                        encoded += convert.slot_message(timing, time.monotonic()).SerializeToString()
                    await self._large.write(write, encoded)
                await wait(published)

    def _known(self, job: JobStatus, status: Status) -> bool:
        """Return whether the routes of the job are certain.

        After a restart, switches may still have pins of a job. The routes of such a job are unknown until the rules
        were read."""
        return job.routes_known or not status.adopting or job.registration.registered_at > self._since

    async def _message(self, stream: str, job: JobStatus, status: Status) -> bytes:
        """Return the message with a job's routes, encoded once for all watchers that need it."""
        token = self._tokens.token(stream, _position(job, status), job.uid)
        if len(job.routes) <= SMALL:
            return self._shared.get(token) or self._keep(token, _encoded(token, job, status))
        async with self._encoding:
            if found := self._shared.get(token):
                return found
            work = functools.partial(_encoded, token, job, status)
            return self._keep(token, await self._long_work.run(work))

    def _keep(self, token: str, encoded: bytes) -> bytes:
        self._shared[token] = encoded
        self._shared_bytes += len(encoded)
        while self._shared_bytes > SHARED_ROUTES_BYTES:
            self._shared_bytes -= len(self._shared.pop(next(iter(self._shared))))
        return encoded


def _position(job: JobStatus, status: Status) -> int:
    """Return a number that changes with the routes of the job, and with its slot and DSCP."""
    timing = status.extension.timings.get(JobId(job.spec.job_id))
    return job.routes_generation + (timing.changes if timing else 0)


def _encoded(token: str, job: JobStatus, status: Status) -> bytes:
    response = convert_plan.routes_message(job, status.fabric)
    response.resume_token = token
    encoded: bytes = response.SerializeToString()
    return encoded


class Watches:
    """Watches of jobs, the fabric, the plan, alarms, and the routes of a job."""

    def __init__(self, board: StatusBoard, uid_of: UidOf, ended: Ended, long_work: LongWork) -> None:
        large = LargeMessages()
        self.jobs = Feed(board, pb.WatchJobsResponse, JobRows(), large)
        self.fabric = Feed(board, pb.WatchFabricResponse, FabricRows(), large)
        self.plan = Feed(board, pb.WatchPlanResponse, PlanRows(), large)
        self.alarms = Feed(board, pb.WatchAlarmsResponse, AlarmRows(), large)
        self.routes = Routes(board, uid_of, ended, large, long_work)
