"""The threads that plan, so that neither OpenFlow nor the control loop ever waits for a solver.

In: ``SolvePlan`` requests. Out: messages put into the loop's inbox: per request a repair, when routes are broken, the
plan, the levels of the running routes if those stay, and when no other request waits, the levels of published schemes
for the same problem. Repairs have a separate thread, so that none waits for a solver that is busy with an older
request. In front of each thread a request that waits is replaced by a newer one; the one that is being worked on is
finished. CP-SAT releases the interpreter lock while it solves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import structlog

from controller.planning.baselines import baseline_levels
from controller.planning.messages import Compared, Planned, SolvePlan, WorkOutLevels
from controller.planning.plan import NoPlan, Plan
from controller.planning.planner import repair_first
from controller.planning.problem import Problem
from controller.planning.target import solved
from controller.planning.verdict import Levels, levels

log = structlog.get_logger(__name__)

Kind = TypeVar("Kind")


Request = SolvePlan | WorkOutLevels


class _Newest(Generic[Kind]):
    """Holds the newest request until a thread takes it; older ones are dropped."""

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
        """There is a request that no thread has taken."""
        return self._request is not None

    def take(self) -> Kind | None:
        """Waits for a request; None when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._request is not None)
            request, self._request = self._request, None
            return None if self._closed else request


class PlanningWorker:
    """Starts its threads at once. ``on_crash`` is called with the exception if a thread itself fails, not when a plan
    does."""

    def __init__(
        self, inbox_put: Callable[[Planned | Compared | Levels], None], on_crash: Callable[[BaseException], None]
    ) -> None:
        self._inbox_put = inbox_put
        self._on_crash = on_crash
        self._to_repair = _Newest[SolvePlan]()
        self._to_plan = _Newest[Request]()
        self._threads = (
            threading.Thread(target=self._run, args=(self._to_repair, self._repair), name="repairing", daemon=True),
            threading.Thread(target=self._run, args=(self._to_plan, self._plan), name="planning", daemon=True),
        )
        for thread in self._threads:
            thread.start()

    def submit(self, request: SolvePlan | WorkOutLevels) -> None:
        if isinstance(request, WorkOutLevels):
            self._to_plan.put(request)
        else:
            self._to_repair.put(request)

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ends the threads after what they are working on; waiting requests are dropped."""
        self._to_repair.close()
        self._to_plan.close()
        for thread in self._threads:
            thread.join(timeout_s)

    def _run(self, requests: _Newest[Kind], work: Callable[[Kind], None]) -> None:
        try:
            while (request := requests.take()) is not None:
                work(request)
        except BaseException as error:
            log.exception("planning thread failed")
            self._on_crash(error)

    def _repair(self, request: SolvePlan) -> None:
        repaired, request = repair_first(request)
        if repaired:
            self._inbox_put(repaired)
        self._to_plan.put(request)

    def _plan(self, request: Request) -> None:
        if isinstance(request, WorkOutLevels):
            self._put_levels(request.problem, request.draws)
            return
        planned = _answer(request)
        answer, judged = planned.answer, planned.verdict
        self._inbox_put(planned)
        if not (request.installs and judged and judged.decision.adopt):  # else those of the plan are known
            self._put_levels(request.problem, request.limits.ecmp_draws)
        if isinstance(answer, Plan) and not self._to_plan.waits:
            self._inbox_put(Compared(answer.generation, _baselines(request)))

    def _put_levels(self, problem: Problem, draws: int) -> None:
        """A problem that contradicts itself has none; what is wrong with it, the plan says."""
        try:
            found = levels(problem, draws)
        except Exception:
            log.exception("levels failed", generation=problem.generation)
            return
        if found:
            self._inbox_put(found)


def _baselines(request: SolvePlan) -> Mapping[str, float]:
    """A comparison is no reason to stop planning."""
    try:
        return baseline_levels(request.problem, request.limits)
    except Exception:
        log.exception("baselines failed", generation=request.problem.generation)
        return {}


def _answer(request: SolvePlan) -> Planned:
    try:
        return solved(request)
    except Exception as error:
        log.exception("planning failed", generation=request.problem.generation)
        return Planned(NoPlan(request.problem.generation, f"planning failed: {type(error).__name__}: {error}"))
