"""Plans of problems, and the slowdowns of routes."""

from __future__ import annotations

from dataclasses import replace

from controller.planning.efficiency import job_slowdowns
from controller.planning.plan import Plan, answered
from controller.planning.plan_check import check
from controller.planning.planner import plan, repair
from controller.planning.problem import NumberedRoutes, PlanLimits, Problem, Routes

EXACT = PlanLimits(time_limit_s=10, ecmp_draws=0, deterministic=True)


def planned(problem: Problem, limits: PlanLimits = EXACT) -> Plan:
    """Return the plan, which the checker accepts. Stages that another plan left out are not those of this plan."""
    answer = answered(plan(problem, replace(limits, left_out=[])))
    assert check(problem, answer, limits.max_moves) == ()
    return answer


def repaired(problem: Problem) -> Plan:
    """Return the repair, which moves no flow whose route is in force."""
    answer = answered(repair(problem))
    assert check(problem, answer, 0) == ()
    return answer


def vector(problem: Problem, routes: Routes | NumberedRoutes) -> tuple[float, ...]:
    """Return the slowdowns of all jobs, from the worst."""
    return tuple(sorted(job_slowdowns(problem, routes).values(), reverse=True))


def worst(problem: Problem, routes: Routes | NumberedRoutes) -> float:
    """Return the worst slowdown of any job."""
    return max(job_slowdowns(problem, routes).values(), default=1.0)
