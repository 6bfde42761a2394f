"""Waits for the turn of this controller: one at a time has the saved state.

In: the state's store. Out: the claim, or that this process was told to stop first. No port is open meanwhile; what is
slow to import has been imported, and what files say has been read.
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
    """SIGTERM or SIGINT came."""


def wait_for_turn(store: Store) -> bool:
    """Returns once the state is claimed; False when SIGTERM or SIGINT came first. Call it in the main thread. Raises
    ``InvalidInput`` for a state that cannot be written."""
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
    """Ends what is being waited for."""
    raise _Stopped
