"""The thread that plans, so that neither OpenFlow nor the control loop ever waits for a solver.

In: ``SolvePlan`` requests; one that waits is replaced by a newer one, the one being solved is finished. Out: one
``Planned`` per request solved, put into the loop's inbox. CP-SAT releases the interpreter lock while it solves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from controller.messages import Planned, SolvePlan
from controller.planning.plan import NoPlan, Plan
from controller.planning.planner import plan

log = structlog.get_logger(__name__)


class PlanningWorker:
    """Starts its thread at once. ``on_crash`` is called with the exception if the thread itself fails, not when a plan
    does."""

    def __init__(self, inbox_put: Callable[[Planned], None], on_crash: Callable[[BaseException], None]) -> None:
        self._inbox_put = inbox_put
        self._on_crash = on_crash
        self._changed = threading.Condition()
        self._waiting: SolvePlan | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="planning", daemon=True)
        self._thread.start()

    def submit(self, request: SolvePlan) -> None:
        with self._changed:
            self._waiting = request
            self._changed.notify()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ends the thread after the plan being solved; a waiting request is dropped."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while (request := self._next()) is not None:
                self._inbox_put(Planned(_answer(request)))
        except BaseException as error:
            log.exception("planning thread failed")
            self._on_crash(error)

    def _next(self) -> SolvePlan | None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._waiting is not None)
            request, self._waiting = self._waiting, None
            return None if self._stopping else request


def _answer(request: SolvePlan) -> Plan | NoPlan:
    try:
        return plan(request.problem, request.limits)
    except Exception as error:
        log.exception("planning failed", generation=request.problem.generation)
        return NoPlan(request.problem.generation, f"planning failed: {type(error).__name__}: {error}")
