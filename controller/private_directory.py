"""Directories of one process, for sockets and copies, among the system's temporary files.

A process that is killed cannot remove its own, so the next one does. Each directory is locked by its process
(flock(2)), and the lock ends with that, however it ends: what is locked belongs to a process that runs. Programs that
tidy up temporary files leave locked directories alone too (systemd-tmpfiles(8), tmpfiles.d(5)).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def private_directory(purpose: str) -> Iterator[Path]:
    """A new one of mode 0700, which goes at the end. What killed processes of this user have left that was for the same
    ``purpose`` goes first. Raises ``OSError`` when none can be made."""
    prefix = f"signalbox-{purpose}."
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            _remove_if_left(left)
    path, lock = _made(prefix)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _made(prefix: str) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix))
        with suppress(FileNotFoundError):
            lock = _locked(path)
            if lock is not None:
                return path, lock
        # Another process has taken it for one that was left: it was not locked yet.


def _remove_if_left(path: Path) -> None:
    """Raises ``OSError``."""
    lock = _locked(path) if path.stat(follow_symlinks=False).st_uid == os.geteuid() else None
    if lock is not None:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _locked(path: Path) -> int | None:
    """The descriptor of the directory, which this call has locked; None when another process has. Raises ``OSError``,
    also when the directory is gone by then."""
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.stat()  # who had the lock before may have removed it
    except BlockingIOError:
        os.close(lock)
        return None
    except BaseException:
        os.close(lock)
        raise
    return lock
