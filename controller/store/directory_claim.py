"""Claim of a directory by one controller at a time, and a mark that shows whether controllers wait for the claim.

The claim and the mark are file locks in the directory. The kernel releases a lock when its process ends.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog

from controller.store.disk import full
from signalbox.errors import InvalidInput

log = structlog.get_logger(__name__)

LOCK = "lock"
MARK = "standby"
"""File on which all waiting controllers have a shared lock."""

_FLOCK = struct.Struct("hhqqi")
"""Type, whence, start, length and process of a lock (``struct flock`` of fcntl(2))."""


class DirectoryClaim:
    """Base class of a ``Store`` in a directory, with the methods that claim the directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock: int | None = None

    @property
    def is_claimed(self) -> bool:
        return self._lock is not None

    def claim(self, wait: bool = False) -> bool:
        """Claim the directory, which is created if it is missing.

        Returns False if another process has the claim; with ``wait``, waits for the claim instead. Raises
        ``InvalidInput`` if the directory cannot be written."""
        if self._lock is None:
            self._lock = _locked(self._directory, wait)
        return self._lock is not None

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def owner(self) -> str:
        """Return the id of the process that has claimed the directory last."""
        try:
            return (self._directory / LOCK).read_text(errors="replace")[:20] or "unknown"
        except OSError:
            return "unknown"

    @contextmanager
    def standing_by(self) -> Iterator[None]:
        """Show the active controller that this one waits: hold a lock on the file ``MARK``.

        A failure is ignored: its only effect is that the active controller does not see this one."""
        mark = None
        try:
            mark = os.open(self._directory / MARK, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.fcntl(mark, fcntl.F_OFD_SETLK, _lock_on_whole_file(fcntl.F_RDLCK))
        except OSError as error:
            log.warning("the active controller cannot see that this one stands by", why=str(error))
        try:
            yield
        finally:
            if mark is not None:
                os.close(mark)

    def has_standby(self) -> bool:
        """Return whether a controller waits. The test takes no lock, and so delays no other process."""
        with suppress(OSError):
            mark = os.open(self._directory / MARK, os.O_RDONLY)
            try:
                found = fcntl.fcntl(mark, fcntl.F_OFD_GETLK, _lock_on_whole_file(fcntl.F_WRLCK))
                return int(_FLOCK.unpack(found)[0]) != fcntl.F_UNLCK
            finally:
                os.close(mark)
        return False


def _lock_on_whole_file(kind: int) -> bytes:
    """Return a description of a lock on the whole file that belongs to the open file description (fcntl(2)).

    Processes that are forked meanwhile do not affect such a lock."""
    return _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)


def _locked(directory: Path, wait: bool) -> int | None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise cannot_write(directory, error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(lock)
        return None
    except BaseException:
        os.close(lock)
        raise
    try:
        os.truncate(lock, 0)
        os.write(lock, str(os.getpid()).encode())
    except OSError as error:
        os.close(lock)
        raise cannot_write(directory, error) from None
    return lock


def cannot_write(directory: Path, error: Exception) -> InvalidInput:
    """Return the error for a directory that cannot be written. ``error``: error of SQLite or of the file system."""
    why = full(directory, error) or (isinstance(error, OSError) and error.strerror) or error
    return InvalidInput.of("state_dir", f"cannot write in {directory}: {why}")
