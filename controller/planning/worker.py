"""Planning threads, which run in a separate process (``process``).

In: ``SolvePlan`` requests. Out, through ``put``: the answers that ``answers`` lists; published schemes are compared
only when no other request waits.

Repairs have a thread of their own, so that no repair waits for a solver that is busy with an older request. A newer
request replaces a request that waits for a thread. CP-SAT releases the interpreter lock while it solves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

from controller.planning.answers import Answers, slowdowns_of
from controller.planning.messages import Answer, PlanningRequest, WorkOutSlowdowns
from controller.planning.plan import Plan, Slowdowns
from controller.planning.problem import Problem

log = structlog.get_logger(__name__)

Kind = TypeVar("Kind")


class PlanningWorker:
    """Two threads, one for repairs and one for plans, which start at once.

    ``on_crash`` is called with the exception when a thread fails, but not when the computation of a plan fails."""

    def __init__(self, put: Callable[[Answer], None], on_crash: Callable[[BaseException], None]) -> None:
        self._put = put
        self._on_crash = on_crash
        self._answers = Answers()
        self._to_repair = Newest[PlanningRequest]()
        self._to_plan = Newest[tuple[PlanningRequest, Problem]]()
        self._threads = (
            threading.Thread(target=self._run, args=(self._to_repair, self._repair), name="repairing", daemon=True),
            threading.Thread(target=self._run, args=(self._to_plan, self._plan), name="planning", daemon=True),
        )
        for thread in self._threads:
            thread.start()

    def submit(self, request: PlanningRequest) -> None:
        self._to_repair.put(request)

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the threads after their current requests. Waiting requests are dropped."""
        self._to_repair.close()
        self._to_plan.close()
        for thread in self._threads:
            thread.join(timeout_s)

    def _run(self, requests: Newest[Kind], work: Callable[[Kind], None]) -> None:
        try:
            while (request := requests.take()) is not None:
                work(request)
        except BaseException as error:
            log.exception("planning thread failed")
            self._on_crash(error)

    def _repair(self, request: PlanningRequest) -> None:
        repaired, problem = self._answers.repair(request)
        if repaired:
            self._put(repaired)
        self._to_plan.put((request, problem))

    def _plan(self, due: tuple[PlanningRequest, Problem]) -> None:
        request, problem = due
        if isinstance(request, WorkOutSlowdowns):
            self._put_any(slowdowns_of(problem, request.draws))
            return
        planned = self._answers.plan(request, problem)
        self._put(planned)
        self._put_any(self._answers.running(request, problem, planned))
        if isinstance(planned.answer, Plan) and not self._to_plan.waits:
            self._put(self._answers.compare(problem, request))

    def _put_any(self, found: Slowdowns | None) -> None:
        if found:
            self._put(found)


class Newest(Generic[Kind]):
    """Queue of at most one request: a newer request replaces a request that still waits for a thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._request: Kind | None = None
        self._closed = False

    def put(self, request: Kind) -> None:
        with self._changed:
            self._request = request
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    @property
    def waits(self) -> bool:
        """Whether there is a request that no thread has taken."""
        return self._request is not None

    def take(self) -> Kind | None:
        """Wait for a request and return it; return None when the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._request is not None)
            request, self._request = self._request, None
            return None if self._closed else request
