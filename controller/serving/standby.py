"""Standby: waits for the claim of the saved state, which only one controller has at a time.

In: the store. Out: the claim, or False if the process must stop first. Files are read before the wait, and slow imports
happen during it. With etcd, the API forwards calls to the active controller, and ``/metrics`` has the metrics of a
standby. With a shared state directory, no port is open.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

import structlog

from controller.api.forwarding import Forwarder
from controller.config import Config
from controller.observability.families import OF_STANDBY
from controller.observability.metrics import MetricsServer
from controller.serving import readiness
from controller.serving.loaded import Loaded
from controller.southbound.outbox import stop_signals
from controller.status import StatusBoard
from controller.store.members import Membership
from controller.store.store import StateAway, Store

log = structlog.get_logger(__name__)

RETRY_S = 1.0
"""Seconds between two attempts to read a state in etcd that does not answer."""


class Stopped(BaseException):
    """SIGTERM or SIGINT has arrived."""


def wait_for_turn(store: Store, check: Callable[[], None] = lambda: None) -> bool:
    """Return True when the state is claimed, or False when SIGTERM or SIGINT arrives first. For the main thread.

    ``check``: raises ``InvalidInput`` if this controller could not use the saved state. If the state cannot be read at
    first, ``check`` is called once it can be read. Raises ``InvalidInput`` too for a state that cannot be written."""
    began = time.monotonic()
    try:
        with stop_signals(stop):
            if _wait_for_claim(store, check):
                return True
            log.info("standing by", active=store.owner(), pid=os.getpid())
            readiness.ready("stands by")
            with store.standing_by():
                store.claim(wait=True)
    except Stopped:
        log.info("stopping", after_s=round(time.monotonic() - began, 1))
        return False
    log.info("taking over", after_s=round(time.monotonic() - began, 1))
    return True


def _wait_for_claim(store: Store, check: Callable[[], None]) -> bool:
    was_away = False
    while True:
        try:
            if store.claim():
                return True
            if was_away:
                check()
            return False
        except StateAway as away:
            if not was_away:
                log.warning("standing by until etcd answers", why=str(away), pid=os.getpid())
                readiness.ready("stands by until etcd answers")
            was_away = True
            time.sleep(RETRY_S)


@contextmanager
def forwarding(
    config: Config,
    loaded: Loaded,
    board: StatusBoard,
    membership: Membership,
    beside: Callable[[], Coroutine[Any, Any, None]],
) -> Iterator[None]:
    """Forward calls to the active controller and serve metrics while the context lasts.

    ``beside``: coroutine that runs in the same asyncio loop meanwhile.

    Raises ``OSError`` and ``InvalidInput`` if the process cannot listen on an address."""
    board.stands_by = True
    with ExitStack() as ends:
        forwarder = Forwarder(config.api, loaded.api, membership, loaded.members_tls, beside)
        metrics = MetricsServer(config.metrics, board, loaded.metrics_tls, OF_STANDBY)
        ends.callback(forwarder.stop, 0.0)
        ends.callback(metrics.stop)
        membership.changed = forwarder.look
        forwarder.start()
        metrics.start()
        yield
    board.stands_by = False


def stop() -> NoReturn:
    """Handle a signal: interrupt the main thread."""
    raise Stopped
