"""From problem to plan: bounds -> greedy -> CP-SAT -> independent check; the best valid routing wins.

In: one frozen ``Problem`` and ``PlanLimits``. Out: a checked ``Plan``, or ``NoPlan`` with the reason. No state is kept
between calls. Whatever happens to the solver, the running routes (with the greedy's paths for flows that have none) and
the greedy's routing are there to fall back to.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key
from itertools import zip_longest

import structlog

from controller.fabric.topology import Path
from controller.jobs.spec import JobId
from controller.planning import cpsat, greedy
from controller.planning.baselines.ecmp import ecmp_level
from controller.planning.bounds import Bounds, level_bounds
from controller.planning.efficiency import LEVEL_TOLERANCE, first_difference, job_levels
from controller.planning.plan import Certificate, EcmpLevel, NoPlan, Plan, PlanTimes
from controller.planning.plan_check import check
from controller.planning.problem import FlowId, PlanLimits, Problem

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Draft:
    """A routing that may become the plan."""

    solver: str
    paths: Mapping[FlowId, Path]
    job_level: Mapping[JobId, float]
    moves: int

    @property
    def vector(self) -> tuple[float, ...]:
        return tuple(sorted(self.job_level.values(), reverse=True))


def plan(problem: Problem, limits: PlanLimits) -> Plan | NoPlan:
    """Routes every flow that has a candidate path; the others are ``unrouted``. A problem that contradicts itself gets
    a ``NoPlan``."""
    started = time.perf_counter()
    fault = _fault(problem)
    if fault:
        return NoPlan(problem.generation, fault)
    bounds = level_bounds(problem, [flow for flow in problem.flows if problem.candidates(flow)])
    ecmp = ecmp_level(problem, limits.ecmp_draws, limits.seed)
    built = time.perf_counter()
    drafts, proven = _drafts(problem, limits, bounds)
    solved = time.perf_counter()
    times = PlanTimes(build_ms=1000 * (built - started), solve_ms=1000 * (solved - built), check_ms=0.0)
    for draft in sorted(drafts, key=cmp_to_key(_compare)):
        answer = _certified(problem, draft, proven, ecmp, times)
        violations = check(problem, answer, limits.max_moves)
        if not violations:
            return replace(answer, times=replace(times, check_ms=1000 * (time.perf_counter() - solved)))
        log.error("plan rejected by the checker", solver=draft.solver, violations=violations)
    return NoPlan(problem.generation, f"no routing passed the checker; the last one: {violations[0]}")


def _fault(problem: Problem) -> str:
    """Why the problem makes no sense, in words; empty when it does."""
    if len({flow.id for flow in problem.flows}) < len(problem.flows):
        return "a flow is in the problem twice"
    for flow in problem.flows:
        links = {*flow.nic_links, *(link for path in problem.candidates(flow) for link in path)}
        without = next((link for link in links if not problem.capacity_bps.get(link, 0.0) > 0), None)
        if without is not None:
            return f"link {without} has no capacity"
        if any(not (math.isfinite(bps) and bps > 0) for _, bps in flow.demand_bps):
            return f"flow {flow.id.src_ip} > {flow.id.dst_ip} has a demand that is not a positive number"
    return ""


def _drafts(problem: Problem, limits: PlanLimits, bounds: Bounds) -> tuple[list[_Draft], tuple[float, ...]]:
    """Routings within the cap on moves, at least one, and the proven lower bounds of the sorted levels."""
    kept = _draft(problem, "greedy", greedy.assign(problem, keep_current=True))
    if all(flow.current == kept.paths.get(flow.id) for flow in problem.flows):
        kept = replace(kept, solver="running")
    fresh = _draft(problem, "greedy", greedy.assign(problem, keep_current=False))
    drafts = [kept, fresh]
    proven = bounds.vector
    best = min(drafts, key=cmp_to_key(_compare))
    if best.moves > 0 or _levels_proven(best.vector, proven) < len(best.vector):
        improved, proven = _solved(problem, limits, bounds, best, kept)
        drafts = [*improved, *drafts]
    cap = math.inf if limits.max_moves is None else limits.max_moves
    return [draft for draft in drafts if draft.moves <= cap], proven


def _solved(
    problem: Problem, limits: PlanLimits, bounds: Bounds, best: _Draft, kept: _Draft
) -> tuple[list[_Draft], tuple[float, ...]]:
    """CP-SAT's routings, and all that is proven. When moves are capped, half of the time goes to the problem without
    the cap: what it proves holds for all, and often its fewest moves are within the cap."""
    pinned = sum(flow.current is not None for flow in problem.flows)
    cap = limits.max_moves
    if cap is None or cap >= pinned:
        return _solve(problem, limits, bounds, best, None)
    half = replace(limits, time_limit_s=limits.time_limit_s / 2)
    free, proven = _solve(problem, half, bounds, best, None)
    if free and free[0].moves <= cap:
        return free, proven
    return _solve(problem, half, bounds, kept, cap)[0], proven


def _solve(
    problem: Problem, limits: PlanLimits, bounds: Bounds, start: _Draft, max_moves: int | None
) -> tuple[list[_Draft], tuple[float, ...]]:
    try:
        solution = cpsat.solve(problem, limits, bounds, start.paths, max_moves)
    except Exception:
        log.exception("solver failed; the greedy's routing is used", generation=problem.generation)
        return [], bounds.vector
    if solution is None:
        return [], bounds.vector
    proven = tuple(max(pair) for pair in zip_longest(bounds.vector, solution.proven, fillvalue=1.0))
    return [_draft(problem, "cpsat", solution.paths)], proven


def _draft(problem: Problem, solver: str, paths: Mapping[FlowId, Path]) -> _Draft:
    moves = sum(
        flow.current is not None
        and flow.id in paths
        and flow.current in problem.candidates(flow)
        and paths[flow.id] != flow.current
        for flow in problem.flows
    )
    return _Draft(solver, paths, job_levels(problem, paths), moves)


def _compare(a: _Draft, b: _Draft) -> int:
    """Negative when ``a`` is the better routing: smaller sorted levels, then fewer moves."""
    index = first_difference(a.vector, b.vector)
    if index is not None:
        return -1 if a.vector[index] < b.vector[index] else 1
    return a.moves - b.moves


def _levels_proven(levels: Sequence[float], proven: Sequence[float]) -> int:
    """How many entries, from the worst, are no larger than their lower bound."""
    for index, (level, bound) in enumerate(zip(levels, proven, strict=True)):
        if level > bound * (1 + LEVEL_TOLERANCE):
            return index
    return len(levels)


def _certified(problem: Problem, draft: _Draft, proven: tuple[float, ...], ecmp: EcmpLevel, times: PlanTimes) -> Plan:
    levels_proven = _levels_proven(draft.vector, proven)
    certificate: Certificate = "gap" if draft.solver == "cpsat" else "heuristic"
    if levels_proven == len(draft.vector):
        certificate = "optimal"
    return Plan(
        generation=problem.generation,
        paths=draft.paths,
        unrouted=tuple(flow.id for flow in problem.flows if flow.id not in draft.paths),
        job_level=draft.job_level,
        bound=min(proven[0], draft.vector[0]) if proven else 1.0,
        certificate=certificate,
        levels_proven=levels_proven,
        moves=draft.moves,
        solver=draft.solver,
        ecmp=ecmp,
        times=times,
    )
