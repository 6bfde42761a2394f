"""What the control loop has to know of routes and of a plan. Pure.

The threads that plan work it out: where tens of thousands of flows are pinned it takes seconds, for which the loop
would be held. In: the problem, and the plan or repair for it. Out: the levels of the running routes; the plan with
subflows in place, and whether it is worth its moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from controller.planning.ecmp import ecmp_job_levels
from controller.planning.efficiency import job_levels, outweighed, phase_levels
from controller.planning.plan import Decision, NoPlan, Plan, Target, TargetLeft, answered, decide
from controller.planning.problem import Problem, Route, Routes
from controller.shared_map import SharedMap
from signalbox.jobs.spec import JobId

ECMP_SEED = 1
NO_ROUTES: Routes = {}


@dataclass(frozen=True, slots=True)
class Levels:
    """Levels of jobs under certain routes, for what the jobs send now; or the worst levels of published schemes for the
    same problem, which are worked out later and come apart."""

    generation: int
    """Generation of the problem."""
    of_job: Mapping[JobId, float] = field(default_factory=dict)
    of_phase: Mapping[JobId, Mapping[int, float]] = field(default_factory=dict)
    """Levels of each phase; empty where not all flows are pinned."""
    outweighed: frozenset[JobId] = frozenset()
    """See ``efficiency``."""
    of_scheme: Mapping[str, float] | None = None
    """Worst level under each published scheme. None where these are levels of jobs."""


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
class Planned:
    """The answer to one ``SolvePlan``: a repair, or the plan that follows it."""

    answer: Plan | NoPlan
    """Subflows are in the classes that they are in now where that is possible: then rules and connections stay."""
    repair: bool = False
    """Whether this is only new paths for flows whose own have gone."""
    decision: Decision | None = None
    """On the plan; None without one."""
    levels: Levels | None = None
    """Of the plan's routes; None where ``decision`` is."""
    repaired: int = 0
    """Flows whose path has gone and that have another one."""
    target: TargetLeft | None = None
    """What is left of the target when the plan is adopted; None when there is none."""
    for_now: bool = False
    """Whether the plan is for ``Problem.now``."""

    @property
    def plan(self) -> Plan:
        """The plan. Raises ``SignalboxError`` when there is none."""
        return answered(self.answer)

    @property
    def adopted(self) -> bool:
        """Whether the plan is worth its moves, as far as the planner has decided."""
        return self.decision is not None and self.decision.adopt


def decided(
    problem: Problem,
    plan: Plan,
    min_gain: float | None,
    running: Routes = NO_ROUTES,
    stay: Plan | None = None,
    target: Target | None = None,
) -> Planned:
    """Return the plan with the decision on it and the levels that it gives.

    ``min_gain``, ``stay``, ``target``: see ``plan.decide``; without ``min_gain`` the plan is a repair, which is adopted
    at once. ``running``: all routes. The plan's routes share with them what they have in common, so that the control
    loop need not compare them one by one.
    """
    plan = _placed(problem, plan)
    decision = Decision(True, "repair") if min_gain is None else decide(problem, plan, min_gain, stay, target)
    if stay and not decision.moving:
        plan = _placed(problem, stay)
    gone = {flow.id for flow in problem.flows if flow.current is not None} - problem.standing
    shared = SharedMap.of(running).become(plan.routes)
    now, routes = problem.now, plan.routes
    of_job = plan.job_level if now is problem else job_levels(now, routes)
    found = Levels(problem.generation, of_job, phase_levels(now, routes), outweighed(now, routes))
    return Planned(replace(plan, routes=shared), min_gain is None, decision, found, len(gone & routes.keys()))


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
