"""Routes for the traffic patterns that jobs send now, where routes for all of their patterns hold these back.

A plan for all patterns together serves each of them, and nothing moves when a job goes from one to another. But a flow
has one route in all patterns, and so have the flows of other jobs: seldom, what is best for one pattern is worse for
another. Then routes for the present patterns alone are taken, if that gains more than moves must.

In: a ``Problem`` with idle phases, and the plan for all phases. Out: a plan in place of it.
"""

from __future__ import annotations

from dataclasses import replace

from controller.planning.bounds import level_bounds
from controller.planning.efficiency import first_difference, job_levels
from controller.planning.plan import NoPlan, Plan, relative_gain
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits, Problem

FOR_NOW = "for what jobs send now"


def for_now(problem: Problem, union: Plan, limits: PlanLimits, min_gain: float) -> Plan | None:
    """Return a plan of ``problem.now`` that is better by ``min_gain`` (relative) than ``union``, the plan for all
    phases; None where there is none. Flows that send nothing now stay where they are, or begin as in ``union``. The
    search has a time limit of its own, as long again."""
    now = problem.now
    if now is problem:
        return None
    levels = tuple(sorted(job_levels(now, union.routes).values(), reverse=True))
    if first_difference(levels, level_bounds(now).vector) is None:
        return None
    found = plan(now, limits)
    if isinstance(found, NoPlan) or relative_gain(levels, found.sorted_levels) < min_gain:
        return None
    routes = dict(found.routes)
    for flow in now.flows:
        if not flow.demand_bps and flow.id in union.routes:
            routes[flow.id] = flow.current if flow.current and now.stands(flow) else union.routes[flow.id]
    return replace(found, routes=routes, moves=problem.moves(routes))
