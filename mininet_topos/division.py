"""How a rank divides its bytes over the connections to a peer: told by the controller, obeyed between iterations.

Rank 0 listens to the job's route stream and writes what it hears into the ranks' shared directory (``RouteListener``);
every rank looks there before each iteration (``Division``). A controller that is away changes nothing: its rules stay
on the switches, and so does the last word on how to divide.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import structlog

from controller.jobs.source_ports import PortClass

SHARES_FILE = "routes.json"
PARTS = 1000
"""Shares are dealt in thousandths."""

RETRY_S = 1.0

log = structlog.get_logger(__name__)


class Deal:
    """Deals slices to ``count`` connections in proportion to weights, evenly spread (smooth weighted round robin).

    Both ends of a bundle deal alike, so that the receiver knows on which connection the next slice comes. Before
    anything is told everything goes to the first.
    """

    def __init__(self, count: int) -> None:
        self.weights: tuple[int, ...] = (PARTS, *[0] * (count - 1))
        self._credit = [0] * count

    def set(self, weights: Sequence[int]) -> None:
        """Weights as before change nothing: the deal goes on where it was."""
        if tuple(weights) != self.weights:
            self.weights = tuple(weights)
            self._credit = [0] * len(weights)

    def next(self) -> int:
        """The connection of the next slice."""
        self._credit = [credit + weight for credit, weight in zip(self._credit, self.weights, strict=True)]
        chosen = self._credit.index(max(self._credit))
        self._credit[chosen] -= sum(self.weights)
        return chosen


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


Shares = Mapping[str, Sequence[tuple[float, int, int]]]
"""Per flow, ``source>destination``: of each subflow the share, and value and mask of its source ports."""


def shares_of(told: Routes) -> dict[str, list[tuple[float, int, int]]]:
    """What is told of flows that are split. The others go whole, over the first connection."""
    return {
        f"{route.src}>{route.dst}": [(piece.share, piece.port_value, piece.port_mask) for piece in route.subflows]
        for route in told.routes
        if len(route.subflows) > 1
    }


def weights_of(pieces: Iterable[tuple[float, int, int]], source_ports: Sequence[int]) -> tuple[int, ...]:
    """The weight of each connection, by its source port: the share of the subflow in whose class that is, in
    thousandths, at least one; 0 for connections of no subflow. All to the first when no class has a connection."""
    weights = [0] * len(source_ports)
    for share, value, mask in pieces:
        holder = next((i for i, port in enumerate(source_ports) if PortClass(value, mask).holds(port)), None)
        if holder is not None:
            weights[holder] = max(1, round(share * PARTS))
    return tuple(weights) if any(weights) else (PARTS, *weights[1:])


class Division:
    """What is in the shared directory; read again when it was replaced."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / SHARES_FILE
        self._read: tuple[int, int] | None = None
        self._shares: Shares = {}

    def pieces(self, src: str, dst: str) -> Sequence[tuple[float, int, int]]:
        """The subflows of a flow as told last; none when it is whole."""
        return self._shares.get(f"{src}>{dst}", ())

    def look(self) -> bool:
        """Whether there is something new."""
        try:
            stat = self._file.stat()
            seen = stat.st_mtime_ns, stat.st_ino
            if seen == self._read:
                return False
            read = json.loads(self._file.read_text())
        except FileNotFoundError:
            return False
        self._shares = {flow: [(share, value, mask) for share, value, mask in of] for flow, of in read.items()}
        self._read = seen
        return True


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
