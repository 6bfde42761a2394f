"""File of the events that are kept over a restart: JSON lines, written by a separate thread.

In: events. Out: after a restart, the events that were written. The loss of events affects nothing else: the log reports
a full disk or an unreadable line.
"""

from __future__ import annotations

import errno
import json
import os
import queue
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

import structlog

from controller.events import KEPT, Event, EventHistory
from controller.log_limit import LimitedLog
from signalbox.words import EventKind

log = LimitedLog(structlog.get_logger(__name__))

FILE = "events.jsonl"
MOST_LINES = 4 * KEPT * len(EventKind)
"""Number of lines above which the file is rewritten with only the events that are kept."""

MOST_BYTES = 16 << 20
"""Size in bytes above which the file is rewritten with only the newest events, in at most half of this size.

At the start of the controller, at most this many bytes at the end of the file are read."""

MOST_EVENTS = 2**62
"""Upper bound of event numbers, which the API sends as 64-bit integers."""


_EARLIER_KINDS: dict[str, EventKind] = {"strategy": EventKind.MODE}
"""Present kind for each former name of a kind, as files of earlier versions contain it."""


class EventFile:
    """Event history with a file in ``directory``; None: a history in memory only.

    ``history`` begins with the events that the file contained."""

    def __init__(self, directory: Path | None) -> None:
        self._path = directory / FILE if directory else None
        if directory:
            with suppress(OSError):  # writing events reports why it is missing
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._bytes = 0
        kept = list(self._read())
        self._lines = len(kept)
        self.history = EventHistory(kept, self._events.put if self._path else lambda _: None, time.time())
        if self._path:
            self._thread = threading.Thread(target=self._run, name="event-file", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Return when all events are written, or after 5 s."""
        if self._thread:
            self._events.put(None)
            self._thread.join(timeout=5)

    def _read(self) -> Iterator[Event]:
        if self._path is None:
            return
        unreadable = 0
        try:
            with open(self._path, "rb", opener=_opened) as file:
                self._bytes = os.fstat(file.fileno()).st_size
                file.seek(max(0, self._bytes - MOST_BYTES))
                lines = file.read(MOST_BYTES).decode(errors="replace").split("\n")
            for line in filter(str.strip, lines):
                try:
                    yield _event(json.loads(line))
                except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
                    unreadable += 1
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("the event history cannot be read", file=str(self._path), why=str(error))
        if unreadable:
            log.warning("lines of the event history cannot be read", file=str(self._path), lines=unreadable)

    def _run(self) -> None:
        while (event := self._events.get()) is not None:
            together = [event, *self._waiting()]
            try:
                self._write(together)
            except OSError as error:
                log.warning("the event history cannot be written", file=str(self._path), why=error.strerror or "")

    def _waiting(self) -> Iterator[Event]:
        while not self._events.empty():
            event = self._events.get()
            if event is None:
                self._events.put(None)
                return
            yield event

    def _write(self, events: Iterable[Event]) -> None:
        assert self._path is not None
        lines = [*map(_line, events)]
        size = sum(map(len, lines))
        if self._lines + len(lines) > MOST_LINES or self._bytes + size > MOST_BYTES:
            lines = _newest([*map(_line, self.history.after(0, MOST_LINES))], MOST_BYTES // 2)
            new = self._path.with_suffix(".new")
            new.unlink(missing_ok=True)
            _append(new, lines)
            new.replace(self._path)
            self._lines, self._bytes = len(lines), sum(map(len, lines))
        else:
            _append(self._path, lines)
            self._lines += len(lines)
            self._bytes += size


def _newest(lines: Sequence[bytes], most: int) -> list[bytes]:
    """Return the last lines whose sizes add up to at most ``most`` bytes."""
    sizes = list(accumulate(map(len, reversed(lines))))
    return list(lines[len(lines) - sum(size <= most for size in sizes) :])


def _append(path: Path, lines: Iterable[bytes]) -> None:
    with open(path, "ab", opener=_opened) as file:
        file.writelines(lines)


def _opened(path: str, flags: int) -> int:
    """Return the descriptor of a regular file that only its owner can read.

    Raises ``OSError`` for a symbolic link, which may lead to any file, and for a file without an end, such as a
    pipe."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "is not a regular file")


def _line(event: Event) -> bytes:
    """Return the event as a line. The newline comes first, so that a truncated line does not spoil the next one."""
    return f"\n{json.dumps([event.number, event.at, event.kind, event.what, dict(event.details)])}".encode()


def _event(line: Any) -> Event:
    """Return the event in a line.

    Raises ``ValueError``, ``TypeError`` or a similar error when it is malformed, or when the API could not send it."""
    number, at, kind, what, details = line
    of_kind = _EARLIER_KINDS.get(kind) or EventKind(kind)
    event = Event(int(number), float(at), of_kind, str(what), {name: str(of) for name, of in details.items()})
    datetime.fromtimestamp(event.at, UTC)
    if not 0 < event.number < MOST_EVENTS:
        raise ValueError(event.number)
    "".join((event.what, *event.details, *event.details.values())).encode()
    return event
