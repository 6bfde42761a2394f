"""Follow the routes of a job as they change, and derive the shares of split flows from the routes.

A ``RouteFollower`` owns the stream of routes, and reopens it when it breaks. Meanwhile the last known routes are used,
because the rules stay on the switches.
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
from signalbox.slots import Slot

MAX_PAUSE_S = 20.0

REST_S, MAX_REST_S, RESTS = 0.05, 60.0, 100
"""Shortest and longest pause after a message in seconds, and ratio of the pause to the message's processor time.

The processor time is that of this thread for handling the message. So even if a controller sends routes without end,
handling them takes at most a hundredth of the training's processor time. During a pause, gRPC's flow control stops the
controller."""

UNPACKED_AT_ONCE = 50
"""Number of routes that are unpickled at a time. Meanwhile no other thread of the training runs.

Unpickling the routes of 65,536 flows takes 0.6 s; unpickling 50 routes takes a few milliseconds."""

MAX_PACKED_BYTES = 64 << 20
"""Largest size of all pickled routes of a job in bytes; the routes of 65,536 flows have 7 MiB."""

log = logging.getLogger("signalbox")


@dataclass(frozen=True, slots=True)
class Subflow:
    """Part of a flow that takes its own path.

    - ``share``: fraction of the flow's bytes
    - ``switches``: names of the switches along its path
    - ``ports``: class of its source ports
    - ``connections``: connections of this subflow, if the job reports its connections"""

    share: float
    switches: tuple[str, ...]
    ports: PortClass
    connections: tuple[Connected, ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """Path of the flow from address ``src`` to ``dst``.

    - ``pinned``: whether rules fix the path; otherwise ECMP chooses it by hash
    - ``switches``: names along the path; empty for a flow that is split or not pinned
    - ``subflows``: parts of a pinned flow; a flow that is not split has one part"""

    src: str
    dst: str
    pinned: bool
    switches: tuple[str, ...]
    subflows: tuple[Subflow, ...]


class Share(NamedTuple):
    """Fraction of a flow's bytes for connections from source ports p with ``p & port_mask == port_value``."""

    share: float
    port_value: int
    port_mask: int


Shares = Mapping[Pair, tuple[Share, ...]]
"""Shares of each split flow, by (source, destination). Any other flow uses a single connection."""


class PackedRoutes(NamedTuple):
    """Routes in the form in which ``client_process`` sends them. ``packed``: pickled tuples of ``Route``."""

    resume_token: str
    packed: tuple[bytes, ...]
    slot: Slot | None = None


class RouteStreams(Protocol):
    """The calls of ``signalbox.client.Client`` that a ``RouteFollower`` makes."""

    def watch_routes(self, job_id: str, resume_token: str) -> Iterator[Any]: ...
    def close(self) -> None: ...


def routes_in(response: Any) -> tuple[Route, ...]:
    """Return the routes in a ``WatchRoutesResponse`` or in ``PackedRoutes``."""
    if isinstance(response, PackedRoutes):
        return tuple(chain.from_iterable(map(pickle.loads, response.packed)))
    return tuple(
        Route(route.src, route.dst, route.pinned, tuple(route.switches), tuple(map(_subflow, route.subflows)))
        for route in response.routes
    )


def packed_routes(response: Any) -> PackedRoutes:
    """Return the routes of a ``WatchRoutesResponse`` in packed form.

    Raises ``SignalboxError`` when they have more than ``MAX_PACKED_BYTES``."""
    routes = routes_in(response)
    parts = (routes[at : at + UNPACKED_AT_ONCE] for at in range(0, len(routes), UNPACKED_AT_ONCE))
    packed = tuple(map(pickle.dumps, parts))
    if sum(map(len, packed)) > MAX_PACKED_BYTES:
        raise SignalboxError(f"the {len(routes)} routes from the controller exceed {MAX_PACKED_BYTES >> 20} MiB")
    return PackedRoutes(response.resume_token, packed, slot_in(response))


def slot_in(response: Any) -> Slot | None:
    """Return the slot in a ``WatchRoutesResponse`` or in ``PackedRoutes``; None without a slot."""
    if isinstance(response, PackedRoutes):
        return response.slot
    slot = response.slot
    if not response.HasField("slot"):
        return None
    return Slot(slot.period.ToNanoseconds() / 1e9, slot.max_wait.ToNanoseconds() / 1e9, slot.number)


def _subflow(subflow: Any) -> Subflow:
    connections = (Connected(c.src, c.src_port, c.dst, c.dst_port) for c in subflow.connections)
    ports = PortClass(subflow.port_value, subflow.port_mask)
    return Subflow(subflow.share, tuple(subflow.switches), ports, tuple(connections))


def shares_of(routes: tuple[Route, ...]) -> Shares:
    """Return the shares of the split flows.

    If a subflow's connections are known, each connection gets an equal part of the subflow's share."""
    return {
        (route.src, route.dst): tuple(share for subflow in route.subflows for share in _shares(subflow))
        for route in routes
        if len(route.subflows) > 1
    }


def _shares(subflow: Subflow) -> Iterator[Share]:
    if not subflow.connections:
        yield Share(subflow.share, *subflow.ports)
    for connection in subflow.connections:
        yield Share(subflow.share / len(subflow.connections), *exactly(connection.src_port))


class RouteFollower:
    """Follower of a job's routes. While its context is active, its thread calls ``on_routes`` now and at each change.

    - ``connect``: function that makes a client; it is called again after every failure
    - ``on_gone``: function that receives the reason when the registration has ended, and returns whether to stop; by
      default the job's next registration is followed
    - ``on_slot``: called with the job's slot, or None without one, whenever routes or slot change"""

    def __init__(
        self,
        connect: Callable[[], RouteStreams],
        job_id: str,
        on_routes: Callable[[tuple[Route, ...]], object],
        on_gone: Callable[[Gone], bool] = lambda _: False,
        max_pause_s: float = MAX_PAUSE_S,
        on_slot: Callable[[Slot | None], object] = lambda _: None,
    ) -> None:
        self.routes: tuple[Route, ...] = ()
        self._connect = connect
        self._job_id = job_id
        self._on_routes = on_routes
        self._on_gone = on_gone
        self._max_pause_s = max_pause_s
        self._on_slot = on_slot
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
        """Stop following the routes; return at once."""
        self._left = True
        self._rounds.leave()
        self.reopen()

    def reopen(self) -> None:
        """Close the present stream and open a new one now. The present stream may have stopped without notice."""
        self._failures = 0
        self._rounds.hurry()
        if controller := self._controller:
            controller.close()

    def round(self) -> float | None:
        """Follow one stream to its end. Return the seconds until the next stream is opened, or None to stop."""
        controller = None
        try:
            controller = self._controller = self._connect()
            # If ``leave`` was called before ``_controller`` was set, it closed nothing. Then no stream may be opened.
            for response in () if self._left else controller.watch_routes(self._job_id, self._token):
                began = time.thread_time()  # not earlier: gRPC polls while it waits for a message
                self._token, self._failures = response.resume_token, 0
                self._on_slot(slot_in(response))
                self._take(routes_in(response))
                self._rounds.wait(min(MAX_REST_S, max(REST_S, RESTS * (time.thread_time() - began))))
        except NotFound as error:
            self._token = ""
            if self._on_gone(error.reason):
                return None
        except SignalboxError:
            pass  # the controller does not answer, or refuses this client; the membership logs such errors
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
            log.exception("job '%s': on_routes failed; the training continues", self._job_id)
