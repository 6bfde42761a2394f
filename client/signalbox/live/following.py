"""Keep a ``State`` up to date: a thread per watch, a thread that requests the status, and a queue to the reader.

``changes`` applies the messages in the queue. Only this function changes the state, in the thread of its caller."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from queue import Empty, Queue
from threading import Event, Thread
from typing import Any, Self

from signalbox.client import Client, Unreachable, resuming
from signalbox.errors import SignalboxError, Unavailable
from signalbox.live.state import Kind, State
from signalbox.v1 import signalbox_pb2 as pb

STATUS_S = 1.0
"""Seconds between two requests for the status."""
TAKE_S = 0.25
"""Seconds between two checks of the queue by a reader."""
OFTEN_S = 1.0
"""Seconds between two redraws of values that change all the time, such as rates."""
OFTEN = frozenset({Kind.RATES, Kind.JOBS, Kind.STATUS})
EVENTS_OF_S = 24 * 3600.0
"""Age in seconds of the oldest past events that are read at the start."""
MOST_WAITING = 1000
"""Largest number of messages in the queue. Further messages wait in the controller, which merges them."""
MOST_BYTES = 64 << 20
"""Limit in bytes for a message, a list, a snapshot (all objects at one time) and a change."""
CHANGED_BYTES = 4 * MOST_BYTES
"""Number of bytes of changes after which a watch is closed and opened again.

A reopened watch sends all objects anew, so the size of the state stays bounded."""
SMALL_BYTES = 1 << 16
"""Size in bytes above which a message keeps its watch waiting until the reader has emptied the queue."""
RETRY_S = 2.0

Take = Callable[[Any], frozenset[Kind]]
Watch = Callable[[str], Generator[Any, None, None]]


class Following:
    """Follower of one controller. ``open_client``: function that makes a client.

    The methods do not raise errors of the controller: ``state.lost`` says why the controller does not answer, and
    ``state.refused`` why a part of the state is missing. If the clients limit answers to ``MOST_BYTES``, a controller
    that sends without end can neither fill the memory nor stop the reader."""

    def __init__(self, open_client: Callable[[], Client]) -> None:
        self.state = State()
        self._client = open_client()
        self._waiting: Queue[Callable[[], frozenset[Kind]]] = Queue(MOST_WAITING)
        self._closed = Event()
        self._later = frozenset[Kind]()
        self._shown_at = 0.0
        state = self.state
        watches: dict[str, tuple[Watch, Take]] = {
            "fabric": (self._client.watch_fabric, state.take_fabric),
            "jobs": (self._client.watch_jobs, state.take_jobs),
            "alarms": (self._client.watch_alarms, state.take_alarms),
            "events": (self._watch_events, lambda message: state.take_events(message.events)),
            "plan": (
                self._client.watch_plan,
                lambda m: state.take_plan(m.plan if m.HasField("plan") else None, time.time()),
            ),
        }
        for name in ("fabric", "jobs", "alarms"):
            state.take_refused(name, f"{name} not received yet")
        self._threads = [
            Thread(target=self._watch, args=(name, *each), name=f"watch {name}", daemon=True)
            for name, each in watches.items()
        ]
        self._threads.append(Thread(target=self._ask, name="status", daemon=True))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close the client's channel. The threads end at their next message or answer."""
        self._closed.set()
        self._client.close()

    def changes(self, wait_s: float = 0.0) -> frozenset[Kind]:
        """Apply the messages in the queue, and return the kinds of changes.

        ``wait_s``: longest wait in seconds for a message if the queue is empty."""
        changed = frozenset[Kind]()
        with suppress(Empty):
            for number in range(self._waiting.qsize() or 1):
                take = self._waiting.get(block=wait_s > 0 and number == 0, timeout=wait_s)
                try:
                    changed |= take()
                finally:
                    self._waiting.task_done()
        return changed

    def changes_to_show(self) -> frozenset[Kind]:
        """Apply the messages in the queue, and return the kinds of changes that should be redrawn now.

        Values that change all the time are redrawn once per ``OFTEN_S``, or together with a change of the fabric's
        shape."""
        changed = self._later | self.changes()
        now = time.monotonic()
        if Kind.SHAPE in changed or now - self._shown_at >= OFTEN_S:
            self._later = frozenset()
            self._shown_at = now if changed & OFTEN else self._shown_at
            return changed
        self._later = changed & OFTEN
        return changed - OFTEN

    def _watch(self, name: str, watch: Watch, take: Take) -> None:
        """Put the messages of one watch into the queue.

        All messages up to one with a resume token belong to the same snapshot or change, and are applied together."""
        while not self._closed.is_set():
            try:
                with closing(resuming(watch, pause=self._pause)) as messages:
                    for parts, size in _changes(messages):
                        self._put(partial(self._take_all, name, take, parts), size)
            except (Unreachable, Unavailable, ValueError):  # ValueError: the channel is closed
                pass  # the thread that polls the status reports the outage
            except SignalboxError as error:
                self._put(partial(self.state.take_refused, name, str(error)))
            self._closed.wait(RETRY_S)

    def _watch_events(self, resume_token: str) -> Generator[Any, None, None]:
        return self._client.watch_events(resume_token, after_s=time.time() - EVENTS_OF_S)

    def _ask(self) -> None:
        while not self._closed.is_set():
            try:
                status = self._client.get_status()
                self._put(partial(self._answered, status), status.ByteSize())
            except (SignalboxError, ValueError) as error:
                self._put(partial(self.state.take_lost, str(error)))
            self._closed.wait(STATUS_S)

    def _answered(self, status: pb.GetStatusResponse) -> frozenset[Kind]:
        return self.state.take_status(status) | self.state.take_lost("")

    def _take_all(self, name: str, take: Take, messages: Iterable[Any]) -> frozenset[Kind]:
        try:
            changed = frozenset[Kind]().union(*map(take, messages))
        except SignalboxError as error:
            return frozenset(Kind) | self.state.take_refused(name, str(error))
        return changed | self.state.take_refused(name, "")

    def _put(self, take: Callable[[], frozenset[Kind]], size: int = 0) -> None:
        """Put an action into the queue of the reader.

        ``size``: bytes of memory that the action needs until it is done."""
        if not self._closed.is_set():
            self._waiting.put(take)
            if size > SMALL_BYTES:
                self._waiting.join()

    def _pause(self, wait_s: float) -> None:
        self._closed.wait(wait_s)
        if self._closed.is_set():
            raise SignalboxError("closed")


def _changes(messages: Iterable[Any]) -> Iterator[tuple[list[Any], int]]:
    """Yield the messages of each snapshot or change, with their size in bytes.

    The generator ends after ``CHANGED_BYTES`` of changes. It raises ``SignalboxError`` when a snapshot or change is
    larger than ``MOST_BYTES``."""
    parts: list[Any] = []
    size = changed = 0
    for message in messages:
        if getattr(message, "snapshot", False):
            parts, size, changed = [], 0, 0
        parts.append(message)
        size += message.ByteSize()
        if size > MOST_BYTES:
            raise SignalboxError(f"one change from the controller exceeds this program's limit of {MOST_BYTES:,} bytes")
        if message.resume_token:
            yield parts, size
            changed += size
            if changed > CHANGED_BYTES:
                return
            parts, size = [], 0
