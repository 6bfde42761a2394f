"""Checks a plan before it is installed. Shares no code with the planners: everything is derived again.

In: the problem, the plan, the cap on moves. Out: a sentence per violation; none when the plan is right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from controller.fabric.topology import Path
from controller.planning.plan import Plan
from controller.planning.problem import Flow, Problem, Route

_ROUNDING = 1e-9
_SAME_LEVEL = 1e-4


def check(problem: Problem, plan: Plan, max_moves: int | None = None) -> tuple[str, ...]:
    """The plan's violations. Load and level are defined in docs/explanation/planning.md."""
    if not min(problem.capacity_bps.values(), default=1.0) > 0:
        return ("a link has no capacity",)
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
        route = plan.routes.get(flow.id)
        if route is None:
            reason = _unrouted_fault(problem, flow, flow.id in unrouted)
        elif flow.id in unrouted:
            reason = "is both routed and listed as unrouted"
        elif len(route) == 1 and route[0].share == 1:
            reason = _path_fault(problem, flow, route[0].path)
        else:
            reason = _pieces_fault(problem, flow, route)
        if reason:
            yield f"{flow.id.src_ip} > {flow.id.dst_ip}: {reason}"


def _unrouted_fault(problem: Problem, flow: Flow, listed: bool) -> str:
    if not listed:
        return "is neither routed nor listed as unrouted"
    return "is unrouted although it has a path" if problem.candidates(flow) else ""


def _pieces_fault(problem: Problem, flow: Flow, route: Route) -> str:
    if not 1 <= len(route) <= flow.max_subflows:
        return f"has {len(route)} subflows, its job allows {flow.max_subflows}"
    if abs(sum([share for _, share in route]) - 1) > _ROUNDING:
        return "the shares of its subflows do not add up to 1"
    if len(route) > 1:
        if len({path for path, _ in route}) < len(route):
            return "two of its subflows share a path"
        if not all(share > 0 for _, share in route):
            return "a subflow has no share"
    for path, _ in route:
        fault = _path_fault(problem, flow, path)
        if fault:
            return fault
    return ""


def _path_fault(problem: Problem, flow: Flow, path: Path) -> str:
    here, far_end = flow.src_leaf, problem.paths.far_end
    if here == flow.dst_leaf:
        return "crosses the fabric although both ends share a switch" if path else ""
    for link in path:
        if link.dpid != here or link not in far_end:
            return "its path is not among the candidates"
        here = far_end[link]
    ends = flow.src_leaf, flow.dst_leaf
    if here != flow.dst_leaf or not (
        problem.paths.is_shortest(len(path), *ends) or problem.paths.is_detour(path, *ends)
    ):
        return "its path is not among the candidates"
    return ""


def _levels(problem: Problem, plan: Plan) -> Iterator[str]:
    routed = [(flow, plan.routes[flow.id]) for flow in problem.flows if flow.id in plan.routes]
    jobs = sorted({flow.job_id for flow, _ in routed})
    if set(jobs) != set(plan.job_level):
        yield f"levels are given for {sorted(plan.job_level)}, routed are {jobs}"
        return
    # One row per link that a piece of a flow passes; then, phase after phase, each job's bit/s on each link.
    number = problem.link_number
    capacity_bps = np.fromiter(problem.capacity_bps.values(), np.float64, len(number))
    pieces = [(index, path, share) for index, (_, route) in enumerate(routed) for path, share in route]
    nics = [number[link] for flow, _ in routed for link in flow.nic_links]
    link = np.array(nics + [number[link] for _, path, _ in pieces for link in path], np.int64)
    passed = [len(path) for _, path, _ in pieces]
    own = np.repeat(np.arange(len(routed)), 2)
    of_flow = np.concatenate([own, np.repeat(np.array([index for index, _, _ in pieces], np.int64), passed)])
    share = np.concatenate([np.ones(len(own)), np.repeat([share for _, _, share in pieces], passed)])
    of_job = np.array([jobs.index(flow.job_id) for flow, _ in routed], np.int64)
    pairs, place = np.unique(link * len(jobs) + of_job[of_flow], return_inverse=True)
    peaks_bps = np.zeros(len(pairs))
    for phase in {phase for flow, _ in routed for phase, _ in flow.demand_bps}:
        rate_bps = np.array([dict(flow.demand_bps).get(phase, 0.0) for flow, _ in routed])
        peaks_bps = np.maximum(peaks_bps, np.bincount(place, rate_bps[of_flow] * share, len(pairs)))
    loads = np.bincount(pairs // len(jobs), peaks_bps, len(number)) / capacity_bps
    for index, job in enumerate(jobs):
        mine = (pairs % len(jobs) == index) & (peaks_bps > 0)
        level = max(1.0, float(loads[pairs[mine] // len(jobs)].max(initial=0.0)))
        if not math.isclose(level, plan.job_level[job], rel_tol=_ROUNDING):
            yield f"job {job} has level {level:.6g}, the plan says {plan.job_level[job]:.6g}"


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
    if plan.levels_proven_listed and not plan.levels_proven < plan.levels_proven_listed <= len(levels):
        yield f"{plan.levels_proven_listed} levels are said to be proven over candidates, {plan.levels_proven} over all"
    if (plan.levels_proven_listed > 0) != (plan.candidates_listed > 0):
        yield f"levels are said to be proven over {plan.candidates_listed} candidates"
    if plan.ecmp and min(plan.ecmp.mean, plan.ecmp.p95) < 1:
        yield f"ECMP's levels {plan.ecmp.mean:.6g} and {plan.ecmp.p95:.6g} are below 1"
