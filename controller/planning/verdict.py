"""What the control loop has to know of routes and of a plan, worked out in the threads that plan: where tens of
thousands of flows are pinned it takes seconds, for which the loop would be held. Pure.

In: the problem, and the plan or repair for it. Out: the levels of the running routes; the plan with subflows in place,
and whether it is worth its moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from controller.planning.ecmp import ecmp_job_levels
from controller.planning.efficiency import job_levels, outweighed, phase_levels
from controller.planning.plan import Decision, Plan, Target, decide
from controller.planning.problem import Problem, Route, Routes
from controller.shared_map import SharedMap
from signalbox.jobs.spec import JobId

ECMP_SEED = 1
NO_ROUTES: Routes = {}


@dataclass(frozen=True, slots=True)
class Levels:
    """Of the running routes of the problem with this generation, for what jobs send now. ``of_phase``: where all
    flows are pinned. ``outweighed``: see ``efficiency``."""

    generation: int
    of_job: Mapping[JobId, float]
    of_phase: Mapping[JobId, Mapping[int, float]]
    outweighed: frozenset[JobId]


def levels(problem: Problem, draws: int) -> Levels | None:
    """None where paths of running routes are gone: nothing runs as it is planned. ``draws``: of ECMP."""
    if problem.broken:
        return None
    problem = problem.now
    running = {flow.id: flow.current for flow in problem.flows if flow.current is not None}
    of_job = ecmp_job_levels(problem, running, draws, ECMP_SEED)
    pinned = len(running) == len(problem.flows)
    of_phase = phase_levels(problem, running) if pinned else {}
    return Levels(problem.generation, of_job, of_phase, outweighed(problem, running))


@dataclass(frozen=True, slots=True)
class Verdict:
    """``plan``: adopted if ``decision`` is for it. Subflows are in the classes they are in now where that is possible:
    the rules and connections of a subflow that stays need not change. ``levels``, ``phase_levels``, ``outweighed`` (see
    ``efficiency``): of its routes, for what jobs send now. ``repaired``: how many flows whose path has gone
    have another one."""

    plan: Plan
    decision: Decision
    levels: Mapping[JobId, float]
    phase_levels: Mapping[JobId, Mapping[int, float]]
    outweighed: frozenset[JobId]
    repaired: int


def verdict(
    problem: Problem,
    plan: Plan,
    min_gain: float | None,
    running: Routes = NO_ROUTES,
    stay: Plan | None = None,
    target: Target | None = None,
) -> Verdict:
    """On a plan. ``min_gain``, ``stay``, ``target``: see ``plan.decide``; without ``min_gain`` it is a repair, which is
    adopted at once. ``running``: all routes, with which those of the plan share what they have in common: the control
    loop need not compare them one by one."""
    plan = _placed(problem, plan)
    decision = Decision(True, "repair") if min_gain is None else decide(problem, plan, min_gain, stay, target)
    if stay and not decision.moving:
        plan = _placed(problem, stay)
    gone = {flow.id for flow in problem.flows if flow.current is not None} - problem.standing
    shared = SharedMap.of(running).become(plan.routes)
    now, routes = problem.now, plan.routes
    of_job = plan.job_level if now is problem else job_levels(now, routes)
    of_phase, heavier = phase_levels(now, routes), outweighed(now, routes)
    return Verdict(replace(plan, routes=shared), decision, of_job, of_phase, heavier, len(gone & routes.keys()))


def _placed(problem: Problem, plan: Plan) -> Plan:
    """With the subflows of each flow in the classes they are in now where that is possible."""
    routes = {flow.id: in_place(plan.routes[flow.id], flow.current) for flow in problem.flows if flow.id in plan.routes}
    return replace(plan, routes=routes, moves=problem.moves(routes))


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
