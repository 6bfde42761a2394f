"""Plans in a separate process, so that OpenFlow, the control loop and the API do not share an interpreter with the
planner.

In: requests of the control loop. Out: their answers, put into its inbox. What passes is differences (``differences``).
Three threads stand at the controller's end: one sends the newest request, one receives, one looks whether the process
answers. A process that ends is replaced, and the next one gets the newest request if its plan has not come; of a
request on which two have ended, or on which one has worked for minutes, the answer is ``NoPlan``. If the first one
cannot even begin, that is an error of the controller.
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
from controller.planning import differences
from controller.planning.differences import NO_SNAPSHOT, SnapshotDelta, SomeRoutes
from controller.planning.messages import Answer, Planned, PlanningRequest, SolvePlan, WorkOutLevels
from controller.planning.plan import NoPlan
from controller.planning.planned import Levels
from controller.planning.problem import Routes

log = structlog.get_logger(__name__)

RETRY_S = 5.0
"""Before another process is started where two have not worked for as long, one after the other."""

STUCK_S = 60.0
"""Without an answer, beside ``STUCK_LIMITS`` times the time limit of the request: then the process is replaced. Some
stages before and after the search are not limited: a second at ten thousand flows."""
STUCK_LIMITS = 20

LOOK_S = 1.0
"""Between looks whether it answers."""
END_S = 10.0
"""For a process that has closed its end of the connection to end."""

Put = Callable[[Answer], None]
OnCrash = Callable[[BaseException], None]


class Planner(Protocol):
    """``submit`` never blocks."""

    def submit(self, request: PlanningRequest) -> None: ...
    def stop(self) -> None: ...


MakePlanner = Callable[[Put, OnCrash], Planner]


def planning_worker(put: Put, on_crash: OnCrash) -> Planner:
    """What plans in the process. OR-Tools is imported there only."""
    from controller.planning.worker import PlanningWorker

    return PlanningWorker(put, on_crash)


class PlanningProcess:
    """Starts the process at once. ``on_crash`` is called with the exception if a thread here fails, or the process
    before it could take a request. ``begin``: called first in the process, such as to configure logging. ``make``: what
    plans there. Both are pickled."""

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
        """Until its plan has come: each process is asked it once."""
        self._again: PlanningRequest | None = None
        self.replaced = 0
        """Processes that have ended although they should work."""
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
        """A request that waits to be sent is replaced."""
        with self._changed:
            self._newest = request
            self._changed.notify_all()

    def configure(self, begin: Callable[[], object]) -> None:
        """Call ``begin`` in the process soon, and first in any that is started later."""
        with self._changed:
            self._begin = begin
            self._changed.notify_all()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ends the process, whatever it works on."""
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
            log.exception("planning failed")
            self._on_crash(error)

    def _send(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or not self._child.was_told(self._begin, self._newest))
                child, begin, request = self._child, self._begin, self._newest
            if self._stopping:
                return
            if begin and begin is not child.begin:
                child.begin = begin
                child.send(begin)
            if request and request is not child.asked:
                child.ask(request)

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
        """The process has ended, or is stuck."""
        why = child.why_ended()
        if not (child.began or self.replaced):
            raise ChildProcessError(f"{why} before it could plan")
        self.replaced += 1
        log.error("another planning process is started", why=why)
        request = child.due
        if request and (request is self._again or request is child.was_late):
            self._answered(request, None)
            self._put(Planned(NoPlan(request.snapshot.generation, why)))
        self._again = request
        self._wait(0.0 if child.lasted else self._retry_s)
        self._retry_s = 0.0 if child.lasted else RETRY_S
        while not self._stopping and self._child is child:
            try:
                another = _Child(self._begin, self._make)
            except OSError as error:
                log.error("no planning process can be started", why=str(error), again_in_s=RETRY_S)
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
    """One process. ``begin``: what was called in it. ``asked``: the newest request. ``was_late``: for which it was
    ended. What is large passes in parts."""

    def __init__(self, begin: Callable[[], object] | None, make: MakePlanner) -> None:
        self.begin = begin
        self._began_at = math.inf
        self.asked: PlanningRequest | None = None
        self.was_late: PlanningRequest | None = None
        self._waits_since = math.inf
        self._answered = 0
        self._routes: SomeRoutes = {}
        super().__init__("planning", _work, begin, make)

    @property
    def began(self) -> bool:
        """It takes requests."""
        return self._began_at < math.inf

    @property
    def lasted(self) -> bool:
        """It has worked for a while."""
        return time.monotonic() > self._began_at + RETRY_S

    @property
    def due(self) -> PlanningRequest | None:
        """The newest request, until its plan has come, or the levels if it asks for these."""
        asked = self.asked
        return asked if asked and asked.snapshot.generation != self._answered else None

    def end_if_late(self) -> None:
        """When nothing has come from it for long, although the plan for the newest request is due."""
        due = self.due
        if not isinstance(due, SolvePlan):
            return
        if time.monotonic() > self._waits_since + STUCK_S + STUCK_LIMITS * due.limits.time_limit_s:
            self.was_late = due
            self.process.kill()

    def why_ended(self) -> str:
        """End it, if it has not ended. Returns why."""
        status = self.end(END_S)
        if self.was_late:
            return "the planning process did not answer in time"
        return f"the planning process ended with status {status}"

    def ask(self, request: PlanningRequest) -> None:
        """Does nothing more when the process has gone."""
        before, asked = self.asked.snapshot if self.asked else NO_SNAPSHOT, isinstance(self.due, SolvePlan)
        if not asked:
            self._waits_since = time.monotonic()
        self.asked = request
        changes = differences.in_parts(differences.changes(before, request.snapshot))
        self.send(*changes, replace(request, snapshot=NO_SNAPSHOT))

    def was_told(self, begin: Callable[[], object] | None, request: PlanningRequest | None) -> bool:
        """Whether it was asked the request, if there is one, and ``begin`` was called in it."""
        return begin is self.begin and (request is None or request is self.asked)

    def answers(self) -> list[Answer]:
        """Waits for an answer, which is dropped unless it is for the newest request. Raises ``EOFError`` or ``OSError``
        when the process has gone."""
        found = self.receive()
        self._waits_since = time.monotonic()
        self._began_at = min(self._began_at, self._waits_since)
        if isinstance(found, dict):
            self._routes |= found
            return []
        if isinstance(found, Levels) and isinstance(self.asked, WorkOutLevels):
            self._answered = found.generation
        if not isinstance(found, Planned):
            return [found] if found else []
        routes, self._routes = self._routes, {}
        asked, generation = self.asked, found.answer.generation
        if asked is None or generation != asked.snapshot.generation:
            return []
        if not found.repair:
            self._answered = generation
        return [differences.with_routes(found, routes, asked.snapshot.routes)]


def _work(connection: Connection, begin: Callable[[], object] | None, make: MakePlanner) -> None:
    """The process."""
    if begin:
        begin()
    running: dict[int, Routes] = {}
    sending = threading.Lock()

    def put(answer: Answer) -> None:
        packed: list[object] = [answer]
        if isinstance(answer, Planned):
            generation = answer.answer.generation
            routes, rest = differences.in_parts_without_routes(answer, running[generation])
            packed = [*routes, rest]
            for before in [] if answer.repair else [each for each in [*running] if each <= generation]:
                del running[before]
        with sending:
            for part in packed:
                connection.send(part)

    planner = make(put, lambda _: os._exit(1))
    connection.send(None)  # it has begun
    snapshot = NO_SNAPSHOT
    while True:
        try:
            received: PlanningRequest | SnapshotDelta | Callable[[], object] = connection.recv()
        except (EOFError, OSError):
            os._exit(0)  # whatever is being solved
        if isinstance(received, SnapshotDelta):
            snapshot = differences.changed(snapshot, received)
        elif isinstance(received, PlanningRequest):
            if isinstance(received, SolvePlan):
                running[snapshot.generation] = snapshot.routes
            planner.submit(replace(received, snapshot=snapshot))
        else:
            received()
