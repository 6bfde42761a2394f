"""Answers to planning requests, one after the other, and the state that the next request needs.

In: ``SolvePlan``. Out: up to four answers:

- the repair, when routes are broken;
- the plan;
- the slowdowns of the running routes, if these routes stay;
- the slowdowns of published schemes for the same problem.

The caller requests each answer separately, and different threads may do so. When nothing has changed since the
previous request, the answers to that request are reused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import structlog

from controller.planning.baselines import baseline_slowdowns
from controller.planning.goal_plan import solved
from controller.planning.messages import PlanningRequest, SolvePlan
from controller.planning.plan import GoalPlan, NoPlan, Planned, Slowdowns, slowdowns
from controller.planning.planner import repair_first
from controller.planning.problem import Problem
from controller.planning.snapshot import Routed

log = structlog.get_logger(__name__)

TRIES = 3
"""Number of attempts at a plan whose search the time limit cuts short, while the request stays the same.

Between attempts the load of the machine changes, but the best plan that the planner can find seldom changes."""


class Answers:
    """State of the planner between requests."""

    def __init__(self) -> None:
        self.goals: dict[int, GoalPlan] = {}
        """Goal plans that the next request may name, by the generation of the cycle that left them."""
        self._routed = Routed()
        self._last: tuple[SolvePlan, Planned] | None = None
        self._tries = 0
        self._baselines: Mapping[str, float] | None = None
        self._slowdowns: Slowdowns | None = None

    def repair(self, request: PlanningRequest) -> tuple[Planned | None, Problem]:
        """Repair broken routes, as ``planner.repair_first`` does."""
        problem = request.snapshot.problem_of(self._routed)
        repairs = isinstance(request, SolvePlan) and request.repairs
        return repair_first(problem, request.snapshot.routes) if repairs else (None, problem)

    def plan(self, request: SolvePlan, problem: Problem) -> Planned:
        """Return the plan for a request. ``problem`` is the problem that ``repair`` returned.

        The goal plan that the request names is kept beside the new goal plan, in case the control loop does not adopt
        the answer."""
        again = self._again(request)
        if again:
            return again
        self._baselines = self._slowdowns = None
        held = self.goals.get(request.goal.generation) if request.goal else None
        try:
            planned, goal = solved(problem, request.limits, request.min_gain, held, request.snapshot.routes)
        except Exception as error:
            log.exception("planning failed", generation=problem.generation)
            return Planned(NoPlan(problem.generation, f"planning failed: {type(error).__name__}: {error}"))
        self.goals = {each.left.generation: each for each in (held, goal) if each}
        self._tries = self._tries + 1 if self._last and _same(self._last[0], request) else 1
        self._last = request, planned
        return planned

    def running(self, request: SolvePlan, problem: Problem, planned: Planned) -> Slowdowns | None:
        """Return the slowdowns of the running routes; None when the plan replaces these routes. Call ``plan`` first.

        Return None also when the slowdowns cannot be computed."""
        if request.installs and planned.adopted:
            return None
        self._slowdowns = self._slowdowns or slowdowns_of(problem, request.limits.ecmp_draws)
        return self._slowdowns and replace(self._slowdowns, generation=problem.generation)

    def compare(self, problem: Problem, request: SolvePlan) -> Slowdowns:
        """Return the slowdowns of published schemes for the latest plan's problem; none when the comparison fails."""
        problem = problem.now if self._last and self._last[1].for_now else problem
        if self._baselines is None:
            try:
                self._baselines = baseline_slowdowns(problem, request.limits)
            except Exception:
                log.exception("baselines failed", generation=problem.generation)
                self._baselines = {}
        return Slowdowns(problem.generation, of_scheme=self._baselines)

    def _again(self, request: SolvePlan) -> Planned | None:
        if self._last is None:
            return None
        before, planned = self._last
        plan = planned.answer
        if isinstance(plan, NoPlan) or planned.decision is None or planned.goal or not _same(before, request):
            return None
        if plan.cut_short and (self._tries < TRIES or request.anew):
            return None
        return replace(planned, answer=replace(plan, generation=request.snapshot.generation))


def _same(before: SolvePlan, now: SolvePlan) -> bool:
    """Return whether two requests are equal, apart from the generation and ``anew``."""
    a, b = before.snapshot, now.snapshot
    same_network = a.paths is b.paths and a.capacity_bps == b.capacity_bps
    return (
        same_network
        and a.flows == b.flows
        and a.routes == b.routes
        and replace(before, snapshot=b, anew=now.anew) == now
    )


def slowdowns_of(problem: Problem, draws: int) -> Slowdowns | None:
    """Return the slowdowns of the running routes, or None when they cannot be computed.

    The computation fails for a problem that contradicts itself. The answer to a ``SolvePlan`` for this problem then
    names the contradiction."""
    try:
        return slowdowns(problem, draws)
    except Exception:
        log.exception("slowdowns failed", generation=problem.generation)
        return None
