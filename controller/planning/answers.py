"""Answers one request to plan after the other, and keeps what the next one needs.

In: ``SolvePlan``. Out: the repair, when routes are broken; the plan; the levels of the running routes, if those stay,
and of published schemes for the same problem. They are asked for apart, and may be by different threads. Where nothing
has changed since the request before, its answers are given again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import structlog

from controller.planning.baselines import baseline_levels
from controller.planning.messages import Planned, PlanningRequest, SolvePlan
from controller.planning.plan import NoPlan, Target
from controller.planning.planned import Levels, levels
from controller.planning.planner import repair_first
from controller.planning.problem import Problem, Routed
from controller.planning.target import solved

log = structlog.get_logger(__name__)

TRIES = 3
"""For a plan that was cut short: what else runs on the machine changes, what the planner can find seldom does."""


class Answers:
    """``targets``: by the generation of the cycle that left them; those that the next request may name."""

    def __init__(self) -> None:
        self.targets: dict[int, Target] = {}
        self._routed = Routed()
        self._last: tuple[SolvePlan, Planned] | None = None
        self._tries = 0
        self._baselines: Mapping[str, float] | None = None
        self._levels: Levels | None = None

    def repair(self, request: PlanningRequest) -> tuple[Planned | None, Problem]:
        """As ``planner.repair_first``."""
        problem = request.snapshot.problem_of(self._routed)
        repairs = isinstance(request, SolvePlan) and request.repairs
        return repair_first(problem, request.snapshot.routes) if repairs else (None, problem)

    def plan(self, request: SolvePlan, problem: Problem) -> Planned:
        """``problem``: that ``repair`` has left. The target that the plan leads to is kept beside the one that the
        request names: the control loop may not take the answer."""
        again = self._again(request)
        if again:
            return again
        self._baselines = self._levels = None
        held = self.targets.get(request.target.generation) if request.target else None
        try:
            planned, target = solved(problem, request.limits, request.min_gain, held, request.snapshot.routes)
        except Exception as error:
            log.exception("planning failed", generation=problem.generation)
            return Planned(NoPlan(problem.generation, f"planning failed: {type(error).__name__}: {error}"))
        self.targets = {each.left.generation: each for each in (held, target) if each}
        self._tries = self._tries + 1 if self._last and _same(self._last[0], request) else 1
        self._last = request, planned
        return planned

    def running(self, request: SolvePlan, problem: Problem, planned: Planned) -> Levels | None:
        """After the plan: of the running routes, if they are not the plan's, whose levels are known."""
        if request.installs and planned.adopted:
            return None
        self._levels = self._levels or levels_of(problem, request.limits.ecmp_draws)
        return self._levels and replace(self._levels, generation=problem.generation)

    def compare(self, problem: Problem, request: SolvePlan) -> Levels:
        """Return the levels of published schemes for the latest plan's problem. A comparison that fails has none."""
        problem = problem.now if self._last and self._last[1].for_now else problem
        if self._baselines is None:
            try:
                self._baselines = baseline_levels(problem, request.limits)
            except Exception:
                log.exception("baselines failed", generation=problem.generation)
                self._baselines = {}
        return Levels(problem.generation, of_scheme=self._baselines)

    def _again(self, request: SolvePlan) -> Planned | None:
        if self._last is None:
            return None
        before, planned = self._last
        plan = planned.answer
        if isinstance(plan, NoPlan) or planned.decision is None or planned.target or not _same(before, request):
            return None
        if plan.cut_short and (self._tries < TRIES or request.anew):
            return None
        return replace(planned, answer=replace(plan, generation=request.snapshot.generation))


def _same(before: SolvePlan, now: SolvePlan) -> bool:
    """But for the generation, and who asks."""
    a, b = before.snapshot, now.snapshot
    same_network = a.paths is b.paths and a.capacity_bps == b.capacity_bps
    return (
        same_network
        and a.flows == b.flows
        and a.routes == b.routes
        and replace(before, snapshot=b, anew=now.anew) == now
    )


def levels_of(problem: Problem, draws: int) -> Levels | None:
    """A problem that contradicts itself has none; what is wrong with it, the plan says."""
    try:
        return levels(problem, draws)
    except Exception:
        log.exception("levels failed", generation=problem.generation)
        return None
