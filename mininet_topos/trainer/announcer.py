"""Rank 0's calls to the controller, in two threads beside the training.

``Announcer`` registers the job, renews its lease, reports iterations, and once after every registration the connections
of all ranks. ``RouteListener`` passes on every message of the job's route stream; the trainer writes the shares of
split flows from it. Errors of the controller never reach the training: calls are repeated, the job is registered again
when the controller does not know it, and the latest iterations are kept until they are reported.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, Self
from uuid import uuid4

import structlog

from mininet_topos.trainer.shares import Shares, Subflow
from signalbox.errors import NotFound, SignalboxError
from signalbox.jobs.reports import Connected, IterationTime
from signalbox.jobs.spec import Algorithm, Dealing, JobSpec
from signalbox.jobs.subflows import exactly

MAX_PERIOD_S = 2.0
RENEWALS_PER_LEASE = 4
KEPT_ITERATIONS = 1000
LEAVE_TIMEOUT_S = 5.0

log = structlog.get_logger(__name__)


class Controller(Protocol):
    """The calls of ``signalbox.client.Client`` that an ``Announcer`` makes."""

    def register_job(self, spec: JobSpec, *, lease_token: str, request_id: str) -> Lease: ...
    def renew_lease(self, job_id: str, lease_token: str) -> object: ...
    def report_iterations(self, job_id: str, iterations: Sequence[IterationTime], lease_token: str) -> object: ...
    def report_connections(
        self, job_id: str, address: str, connections: Iterable[Connected], lease_token: str
    ) -> object: ...
    def deregister_job(self, job_id: str, lease_token: str) -> object: ...
    def close(self) -> None: ...


class Lease(Protocol):
    """What ``register_job`` returns."""

    @property
    def lease_token(self) -> str: ...


class RouteStreams(Protocol):
    """The calls of ``signalbox.client.Client`` that a ``RouteListener`` makes."""

    def watch_routes(self, job_id: str) -> Iterator[Any]: ...
    def close(self) -> None: ...


def announcement(
    job_id: str,
    peers: Sequence[str],
    algorithm: Algorithm,
    vector_bytes: int,
    lease_s: float,
    max_subflows: int = 1,
    dealing: Dealing = Dealing.BY_SHARE,
    reports_connections: bool = False,
) -> JobSpec:
    """The spec of a job of one group that runs one collective per iteration, ranks in the order of ``peers``. Raises
    ``InvalidInput``."""
    return JobSpec.parse(
        {
            "job_id": job_id,
            "endpoints": tuple(peers),
            "groups": [{"name": "all", "ranks": tuple(range(len(peers)))}],
            "collectives": [{"algorithm": algorithm, "groups": ["all"], "bytes_per_iteration": vector_bytes}],
            "max_subflows": max_subflows,
            "dealing": dealing,
            "reports_connections": reports_connections,
            "lease_s": lease_s,
        }
    )


class Announcer:
    """Keeps ``spec`` registered while it is entered; leaving it deregisters the job. All its registrations have one
    request id, so that one whose answer was lost can be repeated. A job of the same id that is not its own stays.

    ``connect`` is called again after every failure: a channel that failed often waits minutes before it tries again,
    and a restarted controller that does not know the job removes its pins after a while. ``connections``: of all ranks,
    None while not all are connected; it is asked only if the job reports them.
    """

    def __init__(
        self,
        connect: Callable[[], Controller],
        spec: JobSpec,
        connections: Callable[[], frozenset[Connected] | None] = lambda: None,
    ) -> None:
        self._connect = connect
        self._connections = connections
        self._controller: Controller | None = None
        self._spec = spec
        self._period_s = min(MAX_PERIOD_S, spec.lease_s / RENEWALS_PER_LEASE)
        self._unsent: deque[IterationTime] = deque(maxlen=KEPT_ITERATIONS)
        self._lock = threading.Lock()
        self._request_id = str(uuid4())  # of the next registration: it names that one for good
        self._token = ""
        self._registered = False
        self._connections_known = False
        self._reachable = True
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="announcer", daemon=True)

    def report(self, iteration: IterationTime) -> None:
        """Keep an iteration for the next call; returns at once."""
        with self._lock:
            self._unsent.append(iteration)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        self._thread.join(LEAVE_TIMEOUT_S)

    def _run(self) -> None:
        while True:
            self._attempt(self._renew)
            if self._leaving.wait(self._period_s):
                self._attempt(self._leave)
                return

    def _renew(self, controller: Controller) -> None:
        if self._registered:
            controller.renew_lease(self._spec.job_id, self._token)
        else:
            lease = controller.register_job(self._spec, lease_token=self._token, request_id=self._request_id)
            self._token, self._request_id = lease.lease_token, str(uuid4())
            self._registered, self._connections_known = True, not self._spec.reports_connections
        if not self._connections_known:
            self._send_connections(controller)
        self._send_iterations(controller)

    def _send_connections(self, controller: Controller) -> None:
        connections = self._connections()
        if connections is None:
            return
        for address in sorted({connection.src_ip for connection in connections}):
            of_address = [connection for connection in connections if connection.src_ip == address]
            controller.report_connections(self._spec.job_id, address, of_address, self._token)
        self._connections_known = True

    def _leave(self, controller: Controller) -> None:
        self._send_iterations(controller)
        controller.deregister_job(self._spec.job_id, self._token)
        controller.close()

    def _send_iterations(self, controller: Controller) -> None:
        with self._lock:
            batch = tuple(self._unsent)
        if batch:
            controller.report_iterations(self._spec.job_id, batch, self._token)
            with self._lock:
                while self._unsent and self._unsent[0].index <= batch[-1].index:
                    self._unsent.popleft()

    def _attempt(self, calls: Callable[[Controller], None]) -> None:
        """One round of calls. Their errors do not end the training."""
        controller = self._controller = self._controller or self._connect()
        try:
            calls(controller)
        except NotFound:
            self._registered, self._request_id = False, str(uuid4())
        except Exception as error:
            self._registered = False
            self._controller = None
            controller.close()
            if self._reachable:
                log.warning("controller does not answer, training goes on", job=self._spec.job_id, reason=str(error))
            self._reachable = False
        else:
            self._reachable = True


class RouteListener:
    """Calls ``on_routes`` with every ``WatchRoutesResponse`` of the job's route stream while it is entered. A stream
    that ends is opened again after ``retry_s``."""

    def __init__(
        self, connect: Callable[[], RouteStreams], job_id: str, on_routes: Callable[[Any], None], retry_s: float = 1.0
    ) -> None:
        self._connect = connect
        self._job_id = job_id
        self._on_routes = on_routes
        self._retry_s = retry_s
        self._leaving = threading.Event()
        self._controller: RouteStreams | None = None
        self._thread = threading.Thread(target=self._run, name="routes", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        if self._controller:
            self._controller.close()

    def _run(self) -> None:
        while not self._leaving.is_set():
            controller = self._controller = self._connect()
            try:
                for routes in controller.watch_routes(self._job_id):
                    self._on_routes(routes)
            except SignalboxError:
                pass  # the job is not registered yet, or the controller does not answer
            except Exception as error:
                if not self._leaving.is_set():  # a closed channel ends its streams with other errors
                    log.warning("the route stream ended", job=self._job_id, reason=str(error))
            controller.close()
            self._leaving.wait(self._retry_s)


def shares_of(response: Any) -> Shares:
    """The shares of the split flows in a ``WatchRoutesResponse``. The other flows take the first connection."""
    return {
        f"{route.src}>{route.dst}": [share for piece in route.subflows for share in _shares_of(piece)]
        for route in response.routes
        if len(route.subflows) > 1
    }


def _shares_of(piece: Any) -> Iterator[Subflow]:
    """Of one subflow: of its class of ports, or the same for each of its connections."""
    if not piece.connections:
        yield piece.share, piece.port_value, piece.port_mask
    for connection in piece.connections:
        yield (piece.share / len(piece.connections), *exactly(connection.src_port))
