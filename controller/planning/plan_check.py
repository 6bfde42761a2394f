"""Judges a plan before anybody installs it. Shares no code with the planners: everything is derived again.

In: the problem, the plan, the cap on moves. Out: what is wrong, in words; nothing when the plan is right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from controller.fabric.topology import LinkId, Path
from controller.jobs.spec import JobId
from controller.planning.plan import Plan
from controller.planning.problem import Flow, Problem, Route

_ROUNDING = 1e-9
_SAME_LEVEL = 1e-4


def check(problem: Problem, plan: Plan, max_moves: int | None = None) -> tuple[str, ...]:
    """The plan's violations. Load and level are defined in DESIGN section 6."""
    violations = list(_routing(problem, plan))
    if not violations:
        violations += _levels(problem, plan)
        violations += _moves(problem, plan, max_moves)
        violations += _certificate(plan)
    return tuple(violations)


def _routing(problem: Problem, plan: Plan) -> Iterator[str]:
    if plan.generation != problem.generation:
        yield f"the plan is for generation {plan.generation}, the problem is generation {problem.generation}"
    announced = {flow.id for flow in problem.flows}
    for flow_id in [*plan.routes, *plan.unrouted]:
        if flow_id not in announced:
            yield f"{flow_id.src_ip} > {flow_id.dst_ip} is no flow of the problem"
    unrouted = set(plan.unrouted)
    if len(unrouted) < len(plan.unrouted):
        yield "a flow is listed as unrouted twice"
    for flow in problem.flows:
        reason = _route_fault(problem, flow, plan.routes.get(flow.id), flow.id in unrouted)
        if reason:
            yield f"{flow.id.src_ip} > {flow.id.dst_ip}: {reason}"


def _route_fault(problem: Problem, flow: Flow, route: Route | None, unrouted: bool) -> str:
    if route is None:
        if not unrouted:
            return "is neither routed nor listed as unrouted"
        return "is unrouted although it has a path" if problem.candidates(flow) else ""
    if unrouted:
        return "is both routed and listed as unrouted"
    if not 1 <= len(route) <= flow.max_subflows:
        return f"has {len(route)} subflows, its job allows {flow.max_subflows}"
    if len(route) > 1:
        if len({path for path, _ in route}) < len(route):
            return "two of its subflows share a path"
        if not all(share > 0 for _, share in route):
            return "a subflow has no share"
    if abs(sum(share for _, share in route) - 1) > _ROUNDING:
        return "the shares of its subflows do not add up to 1"
    for path, _ in route:
        fault = _path_fault(problem, flow, path)
        if fault:
            return fault
    return ""


def _path_fault(problem: Problem, flow: Flow, path: Path) -> str:
    if flow.src_leaf == flow.dst_leaf:
        return "crosses the fabric although both ends share a switch" if path else ""
    here = flow.src_leaf
    far_end = problem.paths.far_end
    for link in path:
        if link.dpid != here or link not in far_end:
            return "its path is not among the candidates"
        if not problem.capacity_bps.get(link, 0.0) > 0:
            return "its path uses a link without capacity"
        here = far_end[link]
    if here != flow.dst_leaf or not problem.paths.leads(path, flow.src_leaf, flow.dst_leaf):
        return "its path is not among the candidates"
    return ""


def _levels(problem: Problem, plan: Plan) -> Iterator[str]:
    # Per link and job the bit/s of each phase, then the worst phase, then the sum over jobs.
    phases: dict[LinkId, dict[JobId, dict[int, float]]] = {}
    jobs = set()
    for flow in problem.flows:
        route = plan.routes.get(flow.id)
        if route is None:
            continue
        jobs.add(flow.job_id)
        loaded = [(link, 1.0) for link in flow.nic_links]
        loaded += [(link, share) for path, share in route for link in path]
        for link, share in loaded:
            of_job = phases.setdefault(link, {}).setdefault(flow.job_id, {})
            for phase, rate in flow.demand_bps:
                of_job[phase] = of_job.get(phase, 0.0) + rate * share
    if jobs != set(plan.job_level):
        yield f"levels are given for {sorted(plan.job_level)}, routed are {sorted(jobs)}"
        return
    level = dict.fromkeys(jobs, 1.0)
    for link, of_jobs in phases.items():
        peaks = {job: max(of.values()) for job, of in of_jobs.items() if of}
        load = sum(peaks.values()) / problem.capacity_bps[link]
        for job in peaks:
            level[job] = max(level[job], load)
    for job in sorted(jobs):
        if not math.isclose(level[job], plan.job_level[job], rel_tol=_ROUNDING):
            yield f"job {job} has level {level[job]:.6g}, the plan says {plan.job_level[job]:.6g}"


def _moves(problem: Problem, plan: Plan, max_moves: int | None) -> Iterator[str]:
    moves = 0
    for flow in problem.flows:
        if flow.current is None or flow.id not in plan.routes:
            continue
        there = not any(_path_fault(problem, flow, path) for path, _ in flow.current)
        moves += there and plan.routes[flow.id] != flow.current
    if moves != plan.moves:
        yield f"the plan moves {moves} flows, it says {plan.moves}"
    if max_moves is not None and moves > max_moves:
        yield f"the plan moves {moves} flows, at most {max_moves} may be moved"


def _certificate(plan: Plan) -> Iterator[str]:
    levels = sorted(plan.job_level.values(), reverse=True)
    worst = levels[0] if levels else 1.0
    if not 1.0 <= plan.bound <= worst * (1 + _ROUNDING):
        yield f"the bound {plan.bound:.6g} is not between 1 and the worst level {worst:.6g}"
    if not 1.0 <= plan.fluid_bound <= plan.bound * (1 + _ROUNDING):
        yield f"the fluid bound {plan.fluid_bound:.6g} is not between 1 and the bound {plan.bound:.6g}"
    if plan.integer_bound < plan.bound * (1 - _ROUNDING):
        yield f"the bound of whole flows {plan.integer_bound:.6g} is below the bound {plan.bound:.6g}"
    if not 0 <= plan.levels_proven <= len(levels):
        yield f"{plan.levels_proven} levels are said to be proven, there are {len(levels)}"
    if plan.levels_proven and worst > plan.bound * (1 + _SAME_LEVEL):
        yield f"the worst level {worst:.6g} is said to be proven, its bound is {plan.bound:.6g}"
    if (plan.certificate == "optimal") != (plan.levels_proven == len(levels)):
        yield f"the certificate is '{plan.certificate}' with {plan.levels_proven} of {len(levels)} levels proven"
    if plan.ecmp and min(plan.ecmp.mean, plan.ecmp.p95) < 1:
        yield f"ECMP's levels {plan.ecmp.mean:.6g} and {plan.ecmp.p95:.6g} are below 1"
