"""Waits for the turn of this controller: one at a time uses a state directory.

In: the state's store, whose lock is released when the process that holds it ends. Out: the lock, or that this process
was told to stop first. No port is open meanwhile; what is slow to import has been imported, and what files say has been
read. While it waits it holds a lock of its own, by which the active controller sees that it is there.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import structlog

from controller.serving import readiness
from controller.southbound.outbox import stop_signals
from controller.store.sqlite_store import StateStore
from signalbox.errors import InvalidInput

log = structlog.get_logger(__name__)

MARK = "standby"
"""The file in the state directory that those who wait have locked, together."""
_LOCK = struct.Struct("hhqqi")
"""Type, whence, start, length and process of a lock (``struct flock`` of fcntl(2))."""


class _Stopped(BaseException):
    """SIGTERM or SIGINT came."""


def wait_for_turn(store: StateStore) -> bool:
    """Returns once the state directory is claimed; False when SIGTERM or SIGINT came first. Call it in the main thread.
    Raises ``InvalidInput`` without a state directory, or for one that cannot be written."""
    if store.directory is None:
        raise InvalidInput.of("state_dir", "--standby needs one: its lock decides which is active")
    if store.claim():
        return True
    began = time.monotonic()
    log.info("standing by", state_dir=str(store.directory), active=store.owner(), pid=os.getpid())
    readiness.ready("stands by")
    try:
        with stop_signals(_stop), _marked(store.directory):
            store.claim(wait=True)
    except _Stopped:
        log.info("stopping", after_s=round(time.monotonic() - began, 1))
        return False
    log.info("taking over", after_s=round(time.monotonic() - began, 1))
    return True


def is_there(state_dir: Path | None) -> bool:
    """Whether a controller waits for this directory. Takes no lock, so that asking delays no other process."""
    if state_dir is None:
        return False
    with suppress(OSError):
        mark = os.open(state_dir / MARK, os.O_RDONLY)
        try:
            return int(_LOCK.unpack(fcntl.fcntl(mark, fcntl.F_OFD_GETLK, _whole(fcntl.F_WRLCK)))[0]) != fcntl.F_UNLCK
        finally:
            os.close(mark)
    return False


@contextmanager
def _marked(state_dir: Path) -> Iterator[None]:
    """The lock ends with the process. A directory that does not take it costs no more than not to be seen."""
    mark = None
    try:
        mark = os.open(state_dir / MARK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.fcntl(mark, fcntl.F_OFD_SETLK, _whole(fcntl.F_RDLCK))
    except OSError as error:
        log.warning("the active controller cannot see this one", why=str(error))
    try:
        yield
    finally:
        if mark is not None:
            os.close(mark)


def _whole(kind: int) -> bytes:
    """A lock of the whole file, of its open file description: processes that are made meanwhile take no part."""
    return _LOCK.pack(kind, os.SEEK_SET, 0, 0, 0)


def _stop() -> NoReturn:
    """Ends what is being waited for."""
    raise _Stopped
