"""What comes before a plan when links were lost: new paths for the flows whose own have gone, and nothing else.

In: a ``SolvePlan`` request. Out: the repair, within milliseconds, and the request for the plan that follows: it starts
from the repaired routes, so that only what is worth a second move is moved again.
"""

from __future__ import annotations

from dataclasses import replace

import structlog

from controller.planning.messages import Planned, SolvePlan
from controller.planning.plan import Plan
from controller.planning.planner import repair
from controller.planning.problem import Problem, Routes

log = structlog.get_logger(__name__)


def needs_repair(problem: Problem) -> bool:
    """Some flow is pinned to a path that is not there (any more)."""
    return any(flow.current is not None and not problem.stands(flow) for flow in problem.flows)


def running(problem: Problem, routes: Routes) -> Problem:
    """The same problem, with these routes as those that are in force."""
    flows = tuple(replace(flow, current=routes.get(flow.id)) for flow in problem.flows)
    return replace(problem, flows=flows)


def repair_first(request: SolvePlan) -> tuple[Planned | None, SolvePlan]:
    """The repair, None when there is nothing to repair or it cannot be done, and what is left to plan."""
    if not needs_repair(request.problem):
        return None, request
    try:
        answer = repair(request.problem)
    except Exception:
        log.exception("repair failed; the plan has to do it", generation=request.problem.generation)
        return None, request
    if not isinstance(answer, Plan):
        return None, request
    return Planned(answer, repair=True), replace(request, problem=running(request.problem, answer.routes))
