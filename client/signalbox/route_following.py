"""A job's routes, followed as they change.

Owns the stream and what it told last. In: a client. Out: ``Route``s, and the shares of those that are split. A stream
that breaks off is opened again; meanwhile the routes stay as they were, because the rules stay on the switches.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, Protocol, Self

from signalbox.errors import Gone, NotFound, SignalboxError
from signalbox.jobs.reports import Connected
from signalbox.jobs.subflows import Pair, PortClass, exactly
from signalbox.rounds import Rounds, pause_after

MAX_PAUSE_S = 20.0

REST_S, MAX_REST_S, RESTS = 0.05, 60.0, 100
"""After a message: so many times the processor time that it took this thread, within these bounds, so that a controller
that goes on and on telling routes takes no more than a hundredth of the training's. gRPC makes it wait."""

UNPACKED_AT_ONCE = 50
"""Routes, while no other thread of the training runs: of 65,536 flows that would be 0.6 s, of 50 a few milliseconds."""

MAX_PACKED_BYTES = 64 << 20
"""Of all routes; those of 65,536 flows have 7 MiB."""

log = logging.getLogger("signalbox")


@dataclass(frozen=True, slots=True)
class Subflow:
    """One piece of a flow. ``share``: of the flow's bytes. ``switches``: names along its path. ``ports``: the class of
    its source ports. ``connections``: of a job that reports them, those that this piece has."""

    share: float
    switches: tuple[str, ...]
    ports: PortClass
    connections: tuple[Connected, ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """How the flow from address ``src`` to ``dst`` travels. ``switches``: along the path of one that is whole; empty
    where it is split, and where it is not ``pinned`` but hashed by ECMP."""

    src: str
    dst: str
    pinned: bool
    switches: tuple[str, ...]
    subflows: tuple[Subflow, ...]


class Share(NamedTuple):
    """Of a flow's bytes: for the connections from source ports p with ``p & port_mask == port_value``."""

    share: float
    port_value: int
    port_mask: int


Shares = Mapping[Pair, tuple[Share, ...]]
"""Per (source, destination) of each flow that is split. The other flows use one connection."""


class ToldRoutes(NamedTuple):
    """A message of a stream that another process follows. ``packed``: tuples of ``Route``, pickled."""

    resume_token: str
    packed: tuple[bytes, ...]


class RouteStreams(Protocol):
    """The calls of ``signalbox.client.Client`` that a ``RouteFollower`` makes."""

    def watch_routes(self, job_id: str, resume_token: str) -> Iterator[Any]: ...
    def close(self) -> None: ...


def routes_in(response: Any) -> tuple[Route, ...]:
    """In a ``WatchRoutesResponse``, or in ``ToldRoutes``."""
    if isinstance(response, ToldRoutes):
        return tuple(chain.from_iterable(map(pickle.loads, response.packed)))
    return tuple(
        Route(route.src, route.dst, route.pinned, tuple(route.switches), tuple(map(_subflow, route.subflows)))
        for route in response.routes
    )


def told_routes(response: Any) -> ToldRoutes:
    """Of a ``WatchRoutesResponse``. Raises ``SignalboxError`` for more than any job has."""
    routes = routes_in(response)
    parts = (routes[at : at + UNPACKED_AT_ONCE] for at in range(0, len(routes), UNPACKED_AT_ONCE))
    packed = tuple(map(pickle.dumps, parts))
    if sum(map(len, packed)) > MAX_PACKED_BYTES:
        raise SignalboxError(f"the controller tells {len(routes)} routes, which are too many")
    return ToldRoutes(response.resume_token, packed)


def _subflow(piece: Any) -> Subflow:
    connections = (Connected(c.src, c.src_port, c.dst, c.dst_port) for c in piece.connections)
    ports = PortClass(piece.port_value, piece.port_mask)
    return Subflow(piece.share, tuple(piece.switches), ports, tuple(connections))


def shares_of(routes: tuple[Route, ...]) -> Shares:
    """Of the flows that are split. The connections of a piece that are known have equal parts of its share."""
    return {
        (route.src, route.dst): tuple(share for piece in route.subflows for share in _shares(piece))
        for route in routes
        if len(route.subflows) > 1
    }


def _shares(piece: Subflow) -> Iterator[Share]:
    if not piece.connections:
        yield Share(piece.share, *piece.ports)
    for connection in piece.connections:
        yield Share(piece.share / len(piece.connections), *exactly(connection.src_port))


class RouteFollower:
    """Calls ``on_routes`` with the job's routes now and whenever they change, in a thread of its own, while it is
    entered. ``connect``: makes a client; it is called again after every failure. ``on_gone``: told why there is no
    registration any more; whether to follow no longer. Without it the next registration of the job is followed."""

    def __init__(
        self,
        connect: Callable[[], RouteStreams],
        job_id: str,
        on_routes: Callable[[tuple[Route, ...]], object],
        on_gone: Callable[[Gone], bool] = lambda _: False,
        max_pause_s: float = MAX_PAUSE_S,
    ) -> None:
        self.routes: tuple[Route, ...] = ()
        self._connect = connect
        self._job_id = job_id
        self._on_routes = on_routes
        self._on_gone = on_gone
        self._max_pause_s = max_pause_s
        self._controller: RouteStreams | None = None
        self._token = ""
        self._failures = 0
        self._left = False
        self._rounds = Rounds("signalbox-routes", self.round)

    def __enter__(self) -> Self:
        self._rounds.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Returns at once."""
        self._left = True
        self._rounds.leave()
        self.reopen()

    def reopen(self) -> None:
        """The stream may have gone silent: open it again now."""
        self._failures = 0
        self._rounds.hurry()
        if controller := self._controller:
            controller.close()

    def round(self) -> float | None:
        """Follow one stream to its end. Returns seconds until the next one is due; None when there is none."""
        controller = None
        try:
            controller = self._controller = self._connect()
            began = time.thread_time()
            # One that was left before it had a controller to close would wait for a stream.
            for response in () if self._left else controller.watch_routes(self._job_id, self._token):
                self._token, self._failures = response.resume_token, 0
                self._take(routes_in(response))
                self._rounds.wait(min(MAX_REST_S, max(REST_S, RESTS * (time.thread_time() - began))))
                began = time.thread_time()
        except NotFound as error:
            self._token = ""
            if self._on_gone(error.reason):
                return None
        except SignalboxError:
            pass  # the controller does not answer, or not to this client: who announces the job has logged that
        except Exception:
            log.debug("job '%s': the route stream ended", self._job_id, exc_info=True)
        finally:
            self._controller = None
            if controller:
                controller.close()
        self._failures += 1
        return pause_after(self._failures, self._max_pause_s)

    def _take(self, routes: tuple[Route, ...]) -> None:
        self.routes = routes
        try:
            self._on_routes(routes)
        except Exception:
            log.exception("job '%s': what was called with its routes failed, the training goes on", self._job_id)
