"""Rank 0's ear for the job's route stream: what it hears of split flows it writes into the ranks' shared directory.

In: the controller's route stream. Out: ``division.SHARES_FILE``, replaced in one step whenever it changes. A controller
that is away changes nothing: its rules stay on the switches, and so does its last word on how to divide.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import structlog

from mininet_topos.trainer.division import SHARES_FILE, Shares

RETRY_S = 1.0

log = structlog.get_logger(__name__)


class Subflow(Protocol):
    """What is read of the API's message of that name."""

    @property
    def share(self) -> float: ...
    @property
    def port_value(self) -> int: ...
    @property
    def port_mask(self) -> int: ...


class Route(Protocol):
    @property
    def src(self) -> str: ...
    @property
    def dst(self) -> str: ...
    @property
    def subflows(self) -> Sequence[Subflow]: ...


class Routes(Protocol):
    @property
    def routes(self) -> Sequence[Route]: ...


def shares_of(told: Routes) -> dict[str, list[tuple[float, int, int]]]:
    """What is told of flows that are split. The others go whole, over the first connection."""
    return {
        f"{route.src}>{route.dst}": [(piece.share, piece.port_value, piece.port_mask) for piece in route.subflows]
        for route in told.routes
        if len(route.subflows) > 1
    }


class Watcher(Protocol):
    """What is needed of ``controller.api.client.Client``."""

    def watch_routes(self, job_id: str) -> Iterator[Any]: ...
    def close(self) -> None: ...


class RouteListener:
    """Listens to a job's routes while it is entered, in a thread whose troubles never reach the training."""

    def __init__(self, connect: Callable[[], Watcher], job_id: str, directory: Path) -> None:
        self._connect = connect
        self._job_id = job_id
        self._directory = directory
        self._leaving = threading.Event()
        self._watcher: Watcher | None = None
        self._thread = threading.Thread(target=self._run, name="routes", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        if self._watcher:
            self._watcher.close()

    def _run(self) -> None:
        while not self._leaving.is_set():
            self._watcher = self._connect()
            try:
                for told in self._watcher.watch_routes(self._job_id):
                    self._write(shares_of(told))
            except Exception as error:
                if not self._leaving.is_set():
                    log.debug("the route stream ended", job=self._job_id, reason=str(error))
            self._watcher.close()
            self._leaving.wait(RETRY_S)

    def _write(self, shares: Shares) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        draft = self._directory / f".{SHARES_FILE}.{os.getpid()}"
        draft.write_text(json.dumps(shares))
        draft.replace(self._directory / SHARES_FILE)
