"""File in the state directory with the events that are saved for a restart."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from controller.serving.kept_events import MOST_KEPT
from controller.store.store import NewestLines

FILE = "events.jsonl"
MOST_LINES = 4 * MOST_KEPT
"""Number of lines above which the file is rewritten with only the events that are still in the history."""

MOST_BYTES = 16 << 20
"""Size in bytes above which the file is rewritten with the newest events, to at most half of this size.

At the start of the controller, at most this many bytes at the end of the file are read."""


class EventFile:
    """Saved lines of events (``EventLines``), in a file in ``directory``. Without a directory, no line is saved."""

    pause_s = 0.0

    def __init__(self, directory: Path | None) -> None:
        self._path = directory / FILE if directory else None
        self.where = str(self._path)
        if directory:
            with suppress(OSError):  # writing events reports why it is missing
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._bytes = self._count = 0

    def read(self) -> Iterable[bytes]:
        if self._path is None:
            return ()
        with open(self._path, "rb", opener=_opened) as file:
            self._bytes = os.fstat(file.fileno()).st_size
            file.seek(max(0, self._bytes - MOST_BYTES))
            lines = [text for text in file.read(MOST_BYTES).split(b"\n") if text.strip()]
        self._count = len(lines)
        return lines

    def write(self, lines: Sequence[bytes], newest: NewestLines) -> None:
        if self._path is None:
            return
        size = sum(map(len, lines))
        if self._count + len(lines) > MOST_LINES or self._bytes + size > MOST_BYTES:
            lines = newest(MOST_BYTES // 2)
            new = self._path.with_suffix(".new")
            new.unlink(missing_ok=True)
            _append(new, lines)
            new.replace(self._path)
            self._count, self._bytes = len(lines), sum(map(len, lines))
        else:
            _append(self._path, lines)
            self._count += len(lines)
            self._bytes += size


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
