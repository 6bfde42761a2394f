"""Queue of commits, and the thread that writes them. All waiting commits are written together."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import structlog

from controller.log_limit import LimitedLog
from controller.store.records import ChangedRecords
from controller.store.store import Done

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
        while (commit := self._commits.get()) is not None:
            together = [commit, *self._waiting()]
            try:
                found = self._write([one.changes for one in together])
            except Exception as error:
                limited_log.exception("the state was not saved because of an unexpected error")
                found = OSError(f"unexpected error, whose traceback is in the log: {error!r}")
            for one in together:
                one.done(found)
            self._after()
        self._end()

    def _waiting(self) -> Iterator[_Commit]:
        while not self._commits.empty():
            commit = self._commits.get()
            if commit is None:
                self._commits.put(None)
                return
            yield commit
