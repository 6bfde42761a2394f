"""Plans and snapshots of problems, the slowdowns of routes, and the loads of links."""

from dataclasses import replace
from itertools import groupby

from controller.fabric.topology import LinkId
from controller.planning.efficiency import job_loads, job_slowdowns
from controller.planning.plan import NO_ROUTES, Plan, answered
from controller.planning.plan_check import check
from controller.planning.planner import plan, repair
from controller.planning.problem import NumberedRoutes, PlanLimits, Problem, Routes
from controller.planning.snapshot import Snapshot

EXACT = PlanLimits(time_limit_s=10, ecmp_draws=0, deterministic=True)


def planned(problem: Problem, limits: PlanLimits = EXACT) -> Plan:
    answer = answered(plan(problem, replace(limits, left_out=[])))
    assert check(problem, answer, limits.max_moves) == ()
    return answer


def repaired(problem: Problem) -> Plan:
    """Return the repair, and assert that it moves no flow whose route is in force."""
    answer = answered(repair(problem))
    assert check(problem, answer, 0) == ()
    return answer


def vector(problem: Problem, routes: Routes | NumberedRoutes) -> tuple[float, ...]:
    return tuple(sorted(job_slowdowns(problem, routes).values(), reverse=True))


def worst(problem: Problem, routes: Routes | NumberedRoutes) -> float:
    return max(job_slowdowns(problem, routes).values(), default=1.0)


def link_loads(problem: Problem, routes: Routes) -> dict[LinkId, float]:
    return {link: sum(loads.values()) for link, loads in job_loads(problem, routes).items()}


def snapshot_of(problem: Problem, generation: int, routes: Routes = NO_ROUTES) -> Snapshot:
    flows = {job_id: tuple(flows) for job_id, flows in groupby(problem.flows, lambda flow: flow.job_id)}
    return Snapshot(generation, problem.capacity_bps, problem.paths, flows, routes)
