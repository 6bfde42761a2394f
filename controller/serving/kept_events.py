"""Events that are saved for a restart or a takeover, as lines of JSON, by a separate thread.

Events that cannot be written or read are reported in the log, and have no other consequence.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

import structlog

from controller.events import KEPT, LEFT_OUT, Event, EventHistory
from controller.log_limit import LimitedLog
from controller.store.commit_queue import batches
from controller.store.store import EventLines
from signalbox.words import EventKind

log = LimitedLog(structlog.get_logger(__name__))

MOST_EVENTS = 2**62
"""Upper bound for event numbers, which the API sends as 64-bit integers."""

MOST_KEPT = KEPT * len(EventKind)
"""Largest number of events in a history."""

_EARLIER_KINDS: dict[str, EventKind] = {"strategy": EventKind.MODE}
"""Present kinds, by their names in lines of earlier versions."""


class KeptEvents:
    """Event history that begins with the events that earlier controllers have saved in ``kept``."""

    def __init__(self, kept: EventLines) -> None:
        self._kept = kept
        self._closing = threading.Event()
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self.history = EventHistory(self._read(), self._events.put, time.time())
        self._thread = threading.Thread(target=self._run, name="kept-events", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait until all events are written, for at most 5 s."""
        self._closing.set()
        self._events.put(None)
        self._thread.join(timeout=5)

    def newest(self, most: int) -> list[bytes]:
        """Return lines of the history with at most ``most`` bytes in total.

        A longer history is first reduced to fewer events of each kind, and then to its latest lines."""
        lines = list[bytes]()
        for kept in (KEPT, KEPT // 2, KEPT // 4, KEPT // 8):
            lines = [*map(line, self.history.fewer(kept))]
            if sum(map(len, lines)) <= most:
                break
        return newest(lines, most)

    def _read(self) -> Iterable[Event]:
        found: dict[int, Event] = {}
        unreadable = 0
        try:
            for text in filter(bytes.strip, self._kept.read()):
                try:
                    event = _event(json.loads(text.decode(errors="replace")))
                except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
                    unreadable += 1
                else:
                    found[event.number] = event
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("the event history cannot be read", place=self._kept.where, why=error.strerror or str(error))
        if unreadable:
            log.warning("lines of the event history cannot be read", place=self._kept.where, lines=unreadable)
        return found.values()

    def _run(self) -> None:
        for together in batches(self._events):
            try:
                self._kept.write([*map(line, together)], self.newest)
            except OSError as error:
                log.warning(
                    "the event history cannot be written", place=self._kept.where, why=error.strerror or str(error)
                )
            self._closing.wait(self._kept.pause_s)


def newest(lines: Sequence[bytes], most: int) -> list[bytes]:
    """Return the latest lines, with at most ``most`` bytes in total."""
    sizes = list(accumulate(map(len, reversed(lines))))
    return list(lines[len(lines) - sum(size <= most for size in sizes) :])


def line(event: Event) -> bytes:
    """Return the event as a line. The newline comes first, so that a truncated line does not spoil the next one."""
    return f"\n{json.dumps([event.number, event.at, event.kind, event.what, dict(event.details)])}".encode()


def _event(data: Any) -> Event:
    """Return the event in the data of a line.

    Raises ``ValueError``, ``TypeError`` or a similar error for malformed data, and for an event that the API could
    not send."""
    number, at, kind, what, details = data
    of_kind = _EARLIER_KINDS.get(kind) or EventKind(kind)
    event = Event(int(number), float(at), of_kind, str(what), {name: str(of) for name, of in details.items()})
    datetime.fromtimestamp(event.at, UTC)
    if not 0 < event.number < MOST_EVENTS or int(event.details.get(LEFT_OUT, 0)) < 0:
        raise ValueError(event.number)
    "".join((event.what, *event.details, *event.details.values())).encode()
    return event
