"""Judges a plan before anybody installs it. Shares no code with the planners: everything is derived again.

In: the problem, the plan, the cap on moves. Out: what is wrong, in words; nothing when the plan is right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from controller.fabric.topology import LinkId, Path
from controller.planning.plan import Plan
from controller.planning.problem import Flow, Problem

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
    for flow_id in [*plan.paths, *plan.unrouted]:
        if flow_id not in announced:
            yield f"{flow_id.src_ip} > {flow_id.dst_ip} is no flow of the problem"
    if len(set(plan.unrouted)) < len(plan.unrouted):
        yield "a flow is listed as unrouted twice"
    for flow in problem.flows:
        reason = _path_fault(problem, flow, plan.paths.get(flow.id), flow.id in plan.unrouted)
        if reason:
            yield f"{flow.id.src_ip} > {flow.id.dst_ip}: {reason}"


def _path_fault(problem: Problem, flow: Flow, path: Path | None, unrouted: bool) -> str:
    local = flow.src_leaf == flow.dst_leaf
    options = () if local else problem.paths.get((flow.src_leaf, flow.dst_leaf), ())
    if path is None:
        if not unrouted:
            return "is neither routed nor listed as unrouted"
        return "is unrouted although it has a path" if local or options else ""
    if unrouted:
        return "is both routed and listed as unrouted"
    if local:
        return "crosses the fabric although both ends share a switch" if path else ""
    if path not in options:
        return "its path is not among the candidates"
    if path[0].dpid != flow.src_leaf:
        return "its path does not start at the source's switch"
    if len({link.dpid for link in path}) < len(path):
        return "its path passes a switch twice"
    if any(problem.capacity_bps.get(link, 0.0) <= 0 for link in path):
        return "its path uses a link without capacity"
    return ""


def _levels(problem: Problem, plan: Plan) -> Iterator[str]:
    routed = [flow for flow in problem.flows if flow.id in plan.paths]
    bps: dict[tuple[LinkId, str, int], float] = {}
    for flow in routed:
        for link in {*flow.nic_links, *plan.paths[flow.id]}:
            for phase, rate in flow.demand_bps:
                bps[link, flow.job_id, phase] = bps.get((link, flow.job_id, phase), 0.0) + rate
    worst_phase: dict[tuple[LinkId, str], float] = {}
    for (link, job, _), rate in bps.items():
        worst_phase[link, job] = max(worst_phase.get((link, job), 0.0), rate)
    load: dict[LinkId, float] = {}
    for (link, _), rate in worst_phase.items():
        load[link] = load.get(link, 0.0) + rate / problem.capacity_bps[link]
    jobs = {flow.job_id for flow in routed}
    if jobs != set(plan.job_level):
        yield f"levels are given for {sorted(plan.job_level)}, routed are {sorted(jobs)}"
        return
    for job in sorted(jobs):
        level = max([1.0, *(load[link] for (link, of), rate in worst_phase.items() if of == job and rate > 0)])
        if not math.isclose(level, plan.job_level[job], rel_tol=_ROUNDING):
            yield f"job {job} has level {level:.6g}, the plan says {plan.job_level[job]:.6g}"


def _moves(problem: Problem, plan: Plan, max_moves: int | None) -> Iterator[str]:
    moves = 0
    for flow in problem.flows:
        there = flow.current is not None and flow.current in problem.paths.get((flow.src_leaf, flow.dst_leaf), ())
        moves += there and flow.id in plan.paths and plan.paths[flow.id] != flow.current
    if moves != plan.moves:
        yield f"the plan moves {moves} flows, it says {plan.moves}"
    if max_moves is not None and moves > max_moves:
        yield f"the plan moves {moves} flows, at most {max_moves} may be moved"


def _certificate(plan: Plan) -> Iterator[str]:
    levels = sorted(plan.job_level.values(), reverse=True)
    worst = levels[0] if levels else 1.0
    if not 1.0 <= plan.bound <= worst * (1 + _ROUNDING):
        yield f"the bound {plan.bound:.6g} is not between 1 and the worst level {worst:.6g}"
    if not 0 <= plan.levels_proven <= len(levels):
        yield f"{plan.levels_proven} levels are said to be proven, there are {len(levels)}"
    if plan.levels_proven and worst > plan.bound * (1 + _SAME_LEVEL):
        yield f"the worst level {worst:.6g} is said to be proven, its bound is {plan.bound:.6g}"
    if (plan.certificate == "optimal") != (plan.levels_proven == len(levels)):
        yield f"the certificate is '{plan.certificate}' with {plan.levels_proven} of {len(levels)} levels proven"
    if plan.ecmp.mean < 1 or plan.ecmp.p95 < 1:
        yield f"ECMP's levels {plan.ecmp.mean:.6g} and {plan.ecmp.p95:.6g} are below 1"
