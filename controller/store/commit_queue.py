"""Queue of commits, and the thread that writes them. All waiting commits are written together."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import structlog

from controller.log_limit import LimitedLog
from controller.store.records import ChangedRecords
from controller.store.store import Done

Item = TypeVar("Item")

limited_log = LimitedLog(structlog.get_logger(__name__), period_s=60)


class _Commit(NamedTuple):
    changes: ChangedRecords
    done: Done


class CommitQueue:
    """Commits in the order of their arrival, written by a thread of their own.

    ``write``: writes several changes as one, and returns the revision or the error. An exception is logged, and
    reported as an error. ``after``: called in the thread when a write has been reported. ``end``: called in the thread
    when the queue was closed and all commits are written."""

    def __init__(
        self,
        write: Callable[[Sequence[ChangedRecords]], int | OSError],
        after: Callable[[], None] = lambda: None,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self._write, self._after, self._end = write, after, end
        self._commits: queue.SimpleQueue[_Commit | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="state-store", daemon=True)
        self._thread.start()

    def put(self, changes: ChangedRecords, done: Done) -> None:
        self._commits.put(_Commit(changes, done))

    def close(self) -> None:
        """Write all waiting commits, and return when the thread has ended."""
        self._commits.put(None)
        self._thread.join()

    def _run(self) -> None:
        for together in batches(self._commits):
            try:
                found = self._write([one.changes for one in together])
            except Exception as error:
                limited_log.exception("the state was not saved because of an unexpected error")
                found = OSError(f"unexpected error, whose traceback is in the log: {error!r}")
            for one in together:
                one.done(found)
            self._after()
        self._end()


def batches(waiting: queue.SimpleQueue[Item | None]) -> Iterator[list[Item]]:
    """Yield lists with all items that wait in the queue at the moment, until the queue contains None."""
    while (item := waiting.get()) is not None:
        together = [item]
        while not waiting.empty() and (item := waiting.get()) is not None:
            together.append(item)
        yield together
        if item is None:
            return
