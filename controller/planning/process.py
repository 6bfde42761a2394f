"""Planning in a process of its own, so that plans do not slow down OpenFlow, the control loop or the API.

In: requests of the control loop. Out: answers, put into the loop's inbox. The two processes exchange only changes
(``snapshot``).

The controller's end has three threads: one sends the newest request, one receives answers, one checks that the process
still answers. When the process ends, a new one gets the newest request, if its plan is still due. A request is answered
with ``NoPlan`` when two processes have ended while working on it, or when one has worked on it for minutes. If the
first process ends before it accepts requests, the controller has a fatal error.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Protocol

import structlog

from controller.child import Child
from controller.planning.messages import Answer, PlanningRequest, SolvePlan, WorkOutSlowdowns
from controller.planning.plan import NoPlan, Planned, Slowdowns
from controller.planning.problem import Routes
from controller.planning.snapshot import (
    NO_SNAPSHOT,
    SnapshotDelta,
    SomeRoutes,
    changed,
    changes,
    in_parts,
    in_parts_without_routes,
    with_routes,
)

log = structlog.get_logger(__name__)

RETRY_S = 5.0
"""Seconds of waiting before a new process is started, if the last two processes each ran for less than this time."""

STUCK_S = 60.0
"""Seconds without an answer after which the process is replaced, in addition to ``STUCK_LIMITS`` times the time limit.

Some stages before and after the search have no limit; they take a second with ten thousand flows."""
STUCK_LIMITS = 20

LOOK_S = 1.0
"""Seconds between two checks that the process answers."""
END_S = 10.0
"""Seconds that a planning process may take to end after it has closed its end of the connection."""

Put = Callable[[Answer], None]
OnCrash = Callable[[BaseException], None]


class PlanRequestHandler(Protocol):
    """Object in the planning process that answers requests. ``submit`` never blocks."""

    def submit(self, request: PlanningRequest) -> None: ...
    def stop(self) -> None: ...


MakePlanner = Callable[[Put, OnCrash], PlanRequestHandler]


def planning_worker(put: Put, on_crash: OnCrash) -> PlanRequestHandler:
    """Return the planner of the planning process. OR-Tools is imported there, not in the controller's process."""
    from controller.planning.worker import PlanningWorker

    return PlanningWorker(put, on_crash)


class PlanningProcess:
    """Controller's end of the planning process, which starts at once.

    ``on_crash``: called with the exception when a thread of this object fails, or when the first process ends before it
    accepts requests.
    ``begin``: called first in the process, for example to configure logging.
    ``make``: called in the process; returns the planner. ``begin`` and ``make`` must be picklable."""

    def __init__(
        self,
        put: Put,
        on_crash: OnCrash,
        begin: Callable[[], object] | None = None,
        make: MakePlanner = planning_worker,
    ) -> None:
        self._put = put
        self._on_crash = on_crash
        self._begin, self._make = begin, make
        self._child = _Child(begin, make)
        self._changed = threading.Condition()
        self._stopping = False
        self._newest: PlanningRequest | None = None
        """Newest request until its plan has arrived, then None. No process gets the same request twice."""
        self._due_before: PlanningRequest | None = None
        """Request that the previous process had not answered when it ended; else None."""
        self.replaced = 0
        """Number of processes that have ended unexpectedly."""
        self._retry_s = 0.0
        self._threads = [
            threading.Thread(target=self._guarded, args=(run,), name=name, daemon=True)
            for name, run in (
                ("planning-requests", self._send),
                ("planning-answers", self._receive),
                ("planning-watch", self._watch),
            )
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, request: PlanningRequest) -> None:
        """Submit a request; it replaces a request that waits to be sent."""
        with self._changed:
            self._newest = request
            self._changed.notify_all()

    def configure(self, begin: Callable[[], object]) -> None:
        """Call ``begin`` soon in the running process, and first in every process that is started later."""
        with self._changed:
            self._begin = begin
            self._changed.notify_all()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Kill the process, even while it plans."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._child.process.kill()
        for thread in self._threads:
            thread.join(timeout_s)
        self._child.process.join(timeout_s)

    def _guarded(self, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as error:
            log.exception("planning thread failed")
            self._on_crash(error)

    def _send(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._stopping or not self._child.has_been_sent(self._begin, self._newest)
                )
                child, begin, request = self._child, self._begin, self._newest
            if self._stopping:
                return
            if begin and begin is not child.begin:
                child.begin = begin
                child.send(begin)
            if request and request is not child.asked:
                child.send_request(request)

    def _watch(self) -> None:
        while not self._stopping:
            self._child.end_if_late()
            with self._changed:
                self._changed.wait_for(lambda: self._stopping, LOOK_S)

    def _receive(self) -> None:
        while not self._stopping:
            child = self._child
            with suppress(EOFError, OSError):
                while True:
                    for answer in child.answers():
                        self._answered(child.asked, child.due)
                        self._put(answer)
            if not self._stopping:
                self._replace(child)

    def _answered(self, asked: PlanningRequest | None, due: PlanningRequest | None) -> None:
        with self._changed:
            if due is None and self._newest is asked:
                self._newest = None

    def _replace(self, child: _Child) -> None:
        why = child.why_ended()
        if not (child.began or self.replaced):
            raise ChildProcessError(f"{why} before it could plan")
        self.replaced += 1
        log.error("starting another planning process", why=why)
        request = child.due
        if request and (request is self._due_before or request is child.was_late):
            self._answered(request, None)
            self._put(Planned(NoPlan(request.snapshot.generation, why)))
        self._due_before = request
        self._wait(0.0 if child.lasted else self._retry_s)
        self._retry_s = 0.0 if child.lasted else RETRY_S
        while not self._stopping and self._child is child:
            try:
                another = _Child(self._begin, self._make)
            except OSError as error:
                log.error("cannot start a planning process", why=str(error), again_in_s=RETRY_S)
                self._wait(RETRY_S)
                continue
            with self._changed:
                self._child = another
                self._changed.notify_all()
            if self._stopping:
                another.process.kill()

    def _wait(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, seconds)


class _Child(Child):
    """Planning process, and the state of the requests that were sent to it."""

    def __init__(self, begin: Callable[[], object] | None, make: MakePlanner) -> None:
        self.begin = begin
        """Latest configuring function that was sent to the process."""
        self._began_at = math.inf
        self.asked: PlanningRequest | None = None
        self.was_late: PlanningRequest | None = None
        self._waits_since = math.inf
        self._answered = 0
        self._routes: SomeRoutes = {}
        super().__init__("planning", _run_planner, begin, make)

    @property
    def began(self) -> bool:
        return self._began_at < math.inf

    @property
    def lasted(self) -> bool:
        return time.monotonic() > self._began_at + RETRY_S

    @property
    def due(self) -> PlanningRequest | None:
        """Newest request that was sent, until its plan or its slowdowns have arrived; then None."""
        asked = self.asked
        return asked if asked and asked.snapshot.generation != self._answered else None

    def end_if_late(self) -> None:
        due = self.due
        if not isinstance(due, SolvePlan):
            return
        if time.monotonic() > self._waits_since + STUCK_S + STUCK_LIMITS * due.limits.time_limit_s:
            self.was_late = due
            self.process.kill()

    def why_ended(self) -> str:
        """End the process if it still runs, and return the reason why it ended."""
        status = self.end(END_S)
        if self.was_late:
            return "the planning process did not answer in time"
        return f"the planning process ended with status {status}"

    def send_request(self, request: PlanningRequest) -> None:
        """Send a request, unless the process has ended."""
        before, asked = self.asked.snapshot if self.asked else NO_SNAPSHOT, isinstance(self.due, SolvePlan)
        if not asked:
            self._waits_since = time.monotonic()
        self.asked = request
        parts = in_parts(changes(before, request.snapshot))
        self.send(*parts, replace(request, snapshot=NO_SNAPSHOT))

    def has_been_sent(self, begin: Callable[[], object] | None, request: PlanningRequest | None) -> bool:
        return begin is self.begin and (request is None or request is self.asked)

    def answers(self) -> list[Answer]:
        """Wait for a message and return the answers that it completes; answers to older requests are dropped.

        Raises ``EOFError`` or ``OSError`` when the process has ended."""
        found = self.receive()
        self._waits_since = time.monotonic()
        self._began_at = min(self._began_at, self._waits_since)
        if isinstance(found, dict):
            self._routes |= found
            return []
        if isinstance(found, Slowdowns) and isinstance(self.asked, WorkOutSlowdowns):
            self._answered = found.generation
        if not isinstance(found, Planned):
            return [found] if found else []
        routes, self._routes = self._routes, {}
        asked, generation = self.asked, found.answer.generation
        if asked is None or generation != asked.snapshot.generation:
            return []
        if not found.repair:
            self._answered = generation
        return [with_routes(found, routes, asked.snapshot.routes)]


def _run_planner(connection: Connection, begin: Callable[[], object] | None, make: MakePlanner) -> None:
    """Run the planner until the connection closes: the main function of the process."""
    if begin:
        begin()
    running: dict[int, Routes] = {}
    sending = threading.Lock()

    def put(answer: Answer) -> None:
        packed: list[object] = [answer]
        if isinstance(answer, Planned):
            generation = answer.answer.generation
            routes, rest = in_parts_without_routes(answer, running[generation])
            packed = [*routes, rest]
            for before in [] if answer.repair else [each for each in [*running] if each <= generation]:
                del running[before]
        with sending:
            for part in packed:
                connection.send(part)

    planner = make(put, lambda _: os._exit(1))
    connection.send(None)  # tells the controller that the process accepts requests
    snapshot = NO_SNAPSHOT
    while True:
        try:
            received: PlanningRequest | SnapshotDelta | Callable[[], object] = connection.recv()
        except (EOFError, OSError):
            os._exit(0)  # even while a solver runs
        if isinstance(received, SnapshotDelta):
            snapshot = changed(snapshot, received)
        elif isinstance(received, PlanningRequest):
            if isinstance(received, SolvePlan):
                running[snapshot.generation] = snapshot.routes
            planner.submit(replace(received, snapshot=snapshot))
        else:
            received()
