"""Standby: waits until this controller may use the saved state, which only one controller may use at a time.

In: the state's store. Out: the claim, or False when the process must stop first. During the wait no port is open; slow
imports are done, and files have been read.
"""

from __future__ import annotations

import os
import time
from typing import NoReturn

import structlog

from controller.serving import readiness
from controller.southbound.outbox import stop_signals
from controller.store.store import Store

log = structlog.get_logger(__name__)


class _Stopped(BaseException):
    """SIGTERM or SIGINT arrived."""


def wait_for_turn(store: Store) -> bool:
    """Return True once the state is claimed, or False when SIGTERM or SIGINT arrives first; for the main thread.

    Raises ``InvalidInput`` for a state that cannot be written."""
    if store.claim():
        return True
    began = time.monotonic()
    log.info("standing by", active=store.owner(), pid=os.getpid())
    readiness.ready("stands by")
    try:
        with stop_signals(_stop), store.standing_by():
            store.claim(wait=True)
    except _Stopped:
        log.info("stopping", after_s=round(time.monotonic() - began, 1))
        return False
    log.info("taking over", after_s=round(time.monotonic() - began, 1))
    return True


def _stop() -> NoReturn:
    """Interrupt the wait."""
    raise _Stopped
