"""Waits for the turn of this controller: one at a time uses a state directory.

In: the state's store, whose lock is released when the process that holds it ends. Out: the lock, or that this process
was told to stop first. No port is open meanwhile; what is slow to import has been imported.
"""

from __future__ import annotations

import os
import time
from typing import NoReturn

import structlog

from controller.errors import InvalidInput
from controller.jobs.store import StateStore
from controller.southbound.outbox import stop_signals

log = structlog.get_logger(__name__)


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
    try:
        with stop_signals(_stop):
            store.claim(wait=True)
    except _Stopped:
        log.info("stopping", after_s=round(time.monotonic() - began, 1))
        return False
    log.info("taking over", after_s=round(time.monotonic() - began, 1))
    return True


def _stop() -> NoReturn:
    """Ends what is being waited for."""
    raise _Stopped
