"""Rate limit for log lines that a client or a switch can cause.

Of each event (the fixed text of a line), the first ``LINES`` different lines in a period are written. Repeated and
further lines are left out, and a later line reports their number. Any thread may write.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

LINES = 10
"""Default for the largest number of lines of one event in a period."""
PERIOD_S = 1.0
"""Default length of a period in seconds."""
MOST_EVENTS = 1000
"""Largest number of events whose lines are counted.

Events are fixed texts, so there are few. The limit bounds the memory if an event contains text of a client by
mistake."""


@dataclass(slots=True)
class _Event:
    began: float
    written: set[str] = field(default_factory=set)
    left_out: int = 0


class LimitedLog:
    """Logger with a rate limit. ``log``: structlog logger. ``clock``: function that returns monotonic seconds."""

    def __init__(
        self, log: Any, clock: Callable[[], float] = time.monotonic, period_s: float = PERIOD_S, lines: int = LINES
    ) -> None:
        self._log = log
        self._period_s = period_s
        self._lines = lines
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
        """Log an error with the traceback of the current exception."""
        self._write(self._log.exception, event, details)

    def summarise(self) -> None:
        """Log how many lines were left out in past periods.

        Must be called periodically; otherwise the number is logged only when the event occurs again."""
        now = self._clock()
        with self._lock:
            over = {event: found for event, found in self._events.items() if now >= found.began + self._period_s}
            for event in over:
                del self._events[event]
        for event, found in over.items():
            self._summary(event, found.left_out)

    def _write(self, write: Callable[..., object], event: str, details: dict[str, Any]) -> None:
        now = self._clock()
        left_out, line = 0, str(details)
        with self._lock:
            found = self._events.get(event)
            if found is None or now >= found.began + self._period_s:
                left_out = found.left_out if found else 0
                if found is None and len(self._events) >= MOST_EVENTS:
                    self._events.clear()
                found = self._events[event] = _Event(now)
            if line in found.written or len(found.written) >= self._lines:
                found.left_out += 1
                return
            found.written.add(line)
        self._summary(event, left_out)
        write(event, **details)

    def _summary(self, event: str, left_out: int) -> None:
        if left_out:
            self._log.warning("lines left out", of=event, count=left_out)
