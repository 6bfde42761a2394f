"""Log lines that a client or a switch can cause, at most so many a second.

In: lines. Out: the first ``LINES`` of each event in a second; the others are counted, and the count is one line later.
Any thread may write.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LINES = 10
"""Of one event, in each ``PERIOD_S``."""
PERIOD_S = 1.0
MOST_EVENTS = 1000
"""Events are texts of ours; should one ever contain what a client has sent, it takes no more memory than this."""


@dataclass(slots=True)
class _Event:
    began: float
    written: int = 0
    left_out: int = 0


class LimitedLog:
    """``log``: a structlog logger. ``clock``: monotonic seconds."""

    def __init__(self, log: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._events: dict[str, _Event] = {}

    def info(self, event: str, **details: Any) -> None:
        self._write(self._log.info, event, details)

    def warning(self, event: str, **details: Any) -> None:
        self._write(self._log.warning, event, details)

    def error(self, event: str, **details: Any) -> None:
        self._write(self._log.error, event, details)

    def exception(self, event: str, **details: Any) -> None:
        """With the traceback of the exception that is being handled."""
        self._write(self._log.exception, event, details)

    def summarise(self) -> None:
        """Writes how many lines were left out of the periods that are over. To be called now and then: nothing else
        writes it when an event does not come again."""
        now = self._clock()
        with self._lock:
            over = {event: found for event, found in self._events.items() if now >= found.began + PERIOD_S}
            for event in over:
                del self._events[event]
        for event, found in over.items():
            self._summary(event, found.left_out)

    def _write(self, write: Callable[..., object], event: str, details: dict[str, Any]) -> None:
        now = self._clock()
        left_out = 0
        with self._lock:
            found = self._events.get(event)
            if found is None or now >= found.began + PERIOD_S:
                left_out = found.left_out if found else 0
                if found is None and len(self._events) >= MOST_EVENTS:
                    self._events.clear()
                found = self._events[event] = _Event(now)
            found.written += 1
            if found.written > LINES:
                found.left_out += 1
                return
        self._summary(event, left_out)
        write(event, **details)

    def _summary(self, event: str, left_out: int) -> None:
        if left_out:
            self._log.warning("lines left out", of=event, count=left_out)
