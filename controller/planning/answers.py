"""Answers one request to plan after the other, and keeps what the next one needs.

In: ``SolvePlan``. Out: the repair, when routes are broken, and the plan. The two are asked for apart, and may be by
different threads.
"""

from __future__ import annotations

import structlog

from controller.planning.messages import Planned, PlanningRequest, SolvePlan
from controller.planning.plan import NoPlan, Target
from controller.planning.planner import repair_first
from controller.planning.problem import Problem, Routed
from controller.planning.target import solved

log = structlog.get_logger(__name__)


class Answers:
    """``targets``: by the generation of the cycle that left them; those that the next request may name."""

    def __init__(self) -> None:
        self.targets: dict[int, Target] = {}
        self._routed = Routed()

    def repair(self, request: PlanningRequest) -> tuple[Planned | None, Problem]:
        """As ``planner.repair_first``."""
        problem = request.snapshot.problem_of(self._routed)
        return repair_first(problem, request.snapshot.routes) if isinstance(request, SolvePlan) else (None, problem)

    def plan(self, request: SolvePlan, problem: Problem) -> Planned:
        """``problem``: that ``repair`` has left. The target that the plan leads to is kept beside the one that the
        request names: the control loop may not take the answer."""
        held = self.targets.get(request.target.generation) if request.target else None
        try:
            planned, target = solved(problem, request.limits, request.min_gain, held, request.snapshot.routes)
        except Exception as error:
            log.exception("planning failed", generation=problem.generation)
            return Planned(NoPlan(problem.generation, f"planning failed: {type(error).__name__}: {error}"))
        self.targets = {each.left.generation: each for each in (held, target) if each}
        return planned
