"""Bring the recorded calls of each rank to rank 0 through the program's key-value store.

Each rank has one thread for this; the thread ends when rank 0 has derived the job's traffic. No call of the program
waits for the thread. Ranks need not reach a window of iterations at the same time, or at all. The first window is
early, and the next window corrects its result."""

from __future__ import annotations

import json
import logging
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from signalbox.errors import InvalidInput
from signalbox.ranks.marks import WINDOWS, Marks, Window
from signalbox.rounds import Rounds

POLL_S = 1.0
"""Longest pause in seconds between polls; earlier pauses are as long as the wait so far."""
LEAST_POLL_S = 0.1
IDLE_S = 3600.0
"""Longest pause in seconds while a window is incomplete; its completion ends the pause."""
GIVE_UP_S = 600.0
"""Seconds after its own window that rank 0 waits for the other ranks' windows, which end at about the same time."""

log = logging.getLogger("signalbox")

Record = Callable[[int, int], Mapping[str, Any]]
"""Function that returns the calls between two times (ns since 1970), as in a dump of the flight recorder.

The function may raise ``InvalidInput``."""
Understand = Callable[[Mapping[int, Any], Window], object]
"""Function that evaluates the recorded calls of all ranks in a window, by rank; it may raise ``InvalidInput``."""


class Store(Protocol):
    """The methods of ``torch.distributed.Store`` that are called."""

    def set(self, key: str, value: bytes, /) -> object: ...
    def get(self, key: str, /) -> bytes: ...
    def check(self, keys: list[str], /) -> bool: ...


class Exchange:
    """Exchange of recorded calls for one job.

    ``key``: prefix of all its keys in the store. ``on_end``: called when recording is over."""

    def __init__(
        self,
        store: Store,
        key: str,
        rank: int,
        ranks: int,
        record: Record,
        understand: Understand,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._key = store, key
        self._rank, self._ranks = rank, ranks
        self._record, self._understand = record, understand
        self._recorded = 0
        self._asked = 0  # windows that rank 0 has evaluated
        self._asked_since = 0.0
        self._rounds = Rounds("signalbox-recording", self._round, on_end)
        self.marks = Marks(self._rounds.hurry, time.time_ns())

    def start(self) -> None:
        """Start the thread. Raises ``RuntimeError`` when no further thread is possible."""
        self._rounds.start()

    def begin_leaving(self) -> None:
        self._rounds.leave()

    def end_leaving(self, timeout_s: float) -> None:
        """Wait for the thread, which must not be inside the store when the interpreter ends."""
        self._rounds.join(timeout_s)

    def _round(self) -> float | None:
        try:
            return self.round(time.monotonic())
        except Exception as error:
            log.info("the job's traffic is not recorded, the training continues: %s", error)
            return None

    def round(self, now: float) -> float | None:
        """Do one round; return the seconds until the next round, or None after the last one."""
        while self._recorded < len(WINDOWS) and (window := self.marks.window(self._recorded)):
            if self._recorded and self._store.check([f"{self._key}/done"]):
                return None
            self._store.set(self._of(self._recorded, self._rank), _packed(self._record, window))
            self._recorded, self._asked_since = self._recorded + 1, now
        if self._rank:
            return IDLE_S if self._recorded < len(WINDOWS) else None
        if self._asked == self._recorded:
            return IDLE_S if self._asked < len(WINDOWS) else None
        return self._ask(now)

    def _ask(self, now: float) -> float | None:
        keys = [self._of(self._asked, rank) for rank in range(self._ranks)]
        if not self._store.check(keys):
            waited_s = now - self._asked_since
            return min(max(LEAST_POLL_S, waited_s), POLL_S) if waited_s < GIVE_UP_S else None
        window = WINDOWS[self._asked]
        self._asked += 1
        try:
            self._understand({rank: _unpacked(self._store.get(key), rank) for rank, key in enumerate(keys)}, window)
        except InvalidInput as error:
            log.info("the job's traffic cannot be derived from its calls, the training continues: %s", error)
            return 0.0
        if window.provisional:
            return 0.0
        self._store.set(f"{self._key}/done", b"")
        return None

    def _of(self, window: int, rank: int) -> str:
        return f"{self._key}/{window}/{rank}"


def _packed(record: Record, window: tuple[int, int]) -> bytes:
    try:
        data: Mapping[str, Any] = record(*window)
    except InvalidInput as error:
        data = {"problem": str(error)}
    return zlib.compress(json.dumps(data).encode(), 1)


def _unpacked(data: bytes, rank: int) -> Any:
    found = json.loads(zlib.decompress(data))
    if "problem" in found:
        raise InvalidInput.of(f"rank {rank}", found["problem"])
    return found
