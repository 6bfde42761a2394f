"""What a job tells the controller: its spec, that it lives, how long its iterations took.

Owns a thread beside the training. In: the spec, and iterations as they end. Out: calls to the controller. A controller
that is away, refuses or has forgotten the job costs the training nothing: calls are tried again every period, the job
is registered again when it is unknown, and the latest iterations are kept until somebody wants them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, Self

import structlog

from controller.errors import NotFound
from controller.jobs.messages import IterationTime
from controller.jobs.spec import Algorithm, JobSpec

MAX_PERIOD_S = 2.0
RENEWALS_PER_LEASE = 4
KEPT_ITERATIONS = 1000
GOODBYE_S = 5.0

log = structlog.get_logger(__name__)


class Controller(Protocol):
    """What is needed of ``controller.api.client.Client``."""

    def register_job(self, spec: JobSpec) -> object: ...
    def renew_lease(self, job_id: str) -> object: ...
    def report_iterations(self, job_id: str, iterations: Sequence[IterationTime]) -> object: ...
    def deregister_job(self, job_id: str) -> object: ...
    def close(self) -> None: ...


def announcement(
    job_id: str,
    peers: Sequence[str],
    algorithm: Algorithm,
    vector_bytes: int,
    lease_s: float,
    max_subflows: int = 1,
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
            "lease_s": lease_s,
        }
    )


class Announcer:
    """Announces ``spec`` while it is entered; leaving it deregisters the job.

    ``connect`` is called again after every failure: a channel that failed often waits minutes before it tries again,
    and a job that a restarted controller does not know has to be there before its pins go.
    """

    def __init__(self, connect: Callable[[], Controller], spec: JobSpec) -> None:
        self._connect = connect
        self._controller: Controller | None = None
        self._spec = spec
        self._period_s = min(MAX_PERIOD_S, spec.lease_s / RENEWALS_PER_LEASE)
        self._unsent: deque[IterationTime] = deque(maxlen=KEPT_ITERATIONS)
        self._lock = threading.Lock()
        self._registered = False
        self._reachable = True
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="announcer", daemon=True)

    def report(self, iteration: IterationTime) -> None:
        """Note an iteration for the next call; returns at once."""
        with self._lock:
            self._unsent.append(iteration)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        self._thread.join(GOODBYE_S)

    def _run(self) -> None:
        while True:
            self._attempt(self._speak)
            if self._leaving.wait(self._period_s):
                self._attempt(self._leave)
                return

    def _speak(self, controller: Controller) -> None:
        if self._registered:
            controller.renew_lease(self._spec.job_id)
        else:
            controller.register_job(self._spec)
            self._registered = True
        self._send_iterations(controller)

    def _leave(self, controller: Controller) -> None:
        self._send_iterations(controller)
        controller.deregister_job(self._spec.job_id)
        controller.close()

    def _send_iterations(self, controller: Controller) -> None:
        with self._lock:
            batch = tuple(self._unsent)
        if batch:
            controller.report_iterations(self._spec.job_id, batch)
            with self._lock:
                while self._unsent and self._unsent[0].index <= batch[-1].index:
                    self._unsent.popleft()

    def _attempt(self, calls: Callable[[Controller], None]) -> None:
        """One round of calls. Whatever goes wrong is the controller's trouble, never the training's."""
        controller = self._controller = self._controller or self._connect()
        try:
            calls(controller)
        except NotFound:
            self._registered = False
        except Exception as error:
            self._registered = False
            self._controller = None
            controller.close()
            if self._reachable:
                log.warning("controller does not answer, training goes on", job=self._spec.job_id, reason=str(error))
            self._reachable = False
        else:
            self._reachable = True
