"""What the control loop has to know of routes and of a plan, worked out in the threads that plan: where tens of
thousands of flows are pinned it takes seconds, for which the loop would be held. Pure.

In: the problem, and the plan or repair for it. Out: the levels of the running routes; the plan with subflows in place,
and whether it is worth its moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from controller.jobs.spec import JobId
from controller.planning.ecmp import ecmp_job_levels
from controller.planning.efficiency import phase_levels
from controller.planning.plan import Decision, Plan, decide
from controller.planning.problem import Problem, Route, Routes
from controller.shared_map import SharedMap

ECMP_SEED = 1
NO_ROUTES: Routes = {}


@dataclass(frozen=True, slots=True)
class Levels:
    """Of the running routes of the problem with this generation. ``of_phase``: where all flows are pinned."""

    generation: int
    of_job: Mapping[JobId, float]
    of_phase: Mapping[JobId, Mapping[int, float]]


def levels(problem: Problem, draws: int) -> Levels | None:
    """None where paths of running routes are gone: nothing runs as it is planned. ``draws``: of ECMP."""
    if problem.broken:
        return None
    running = {flow.id: flow.current for flow in problem.flows if flow.current is not None}
    of_job = ecmp_job_levels(problem, running, draws, ECMP_SEED)
    pinned = len(running) == len(problem.flows)
    return Levels(problem.generation, of_job, phase_levels(problem, running) if pinned else {})


@dataclass(frozen=True, slots=True)
class Verdict:
    """``plan``: with the subflows of each flow in the classes they are in now where that is possible: the rules and
    connections of a subflow that stays need not change. ``phase_levels``: of its routes. ``repaired``: how many flows
    whose path has gone have another one."""

    plan: Plan
    decision: Decision
    phase_levels: Mapping[JobId, Mapping[int, float]]
    repaired: int


def verdict(problem: Problem, plan: Plan, min_gain: float | None, running: Routes = NO_ROUTES) -> Verdict:
    """On a plan. ``min_gain``: see ``plan.decide``; None for a repair, which is adopted at once. ``running``: all
    routes, with which those of the plan share what they have in common: the control loop need not compare them one by
    one."""
    routes = {flow.id: in_place(plan.routes[flow.id], flow.current) for flow in problem.flows if flow.id in plan.routes}
    stands = problem.standing
    moves = sum(flow.id in routes and flow.id in stands and flow.current != routes[flow.id] for flow in problem.flows)
    repaired = sum(flow.current is not None and flow.id in routes and flow.id not in stands for flow in problem.flows)
    plan = replace(plan, routes=routes, moves=moves)
    decision = Decision(True, "repair") if min_gain is None else decide(problem, plan, min_gain)
    of_phase = phase_levels(problem, routes)
    shared = SharedMap.of(running).become(routes)
    return Verdict(replace(plan, routes=shared), decision, of_phase, repaired)


def in_place(route: Route, running: Route | None) -> Route:
    """The same subflows, in an order that leaves as many as possible in the class they have in ``running``; that object
    itself if nothing changes."""
    if running is None or route == running:
        return running or route
    if len(route) == 1:
        return route
    left = {piece.path: piece for piece in route}
    kept = [left.pop(piece.path, None) for piece in running[: len(route)]]
    kept += [None] * (len(route) - len(kept))
    rest = iter(left.values())
    return tuple(piece or next(rest) for piece in kept)
