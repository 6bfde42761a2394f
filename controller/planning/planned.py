"""Facts about routes and plans that the control loop needs, computed by pure functions.

The planning threads compute these facts. With tens of thousands of pinned flows this takes seconds, and the control
loop would block for as long. In: the problem, and the plan or repair for it. Out: the slowdowns of the running routes,
the plan with its subflows in their current source-port classes, and whether the plan is worth its moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from controller.planning.ecmp import ecmp_job_slowdowns
from controller.planning.efficiency import job_slowdowns, outweighed, phase_slowdowns
from controller.planning.plan import Decision, GoalPlan, GoalPlanLeft, NoPlan, Plan, answered, decide
from controller.planning.problem import Problem, Route, Routes
from controller.shared_map import SharedMap
from signalbox.jobs.spec import JobId

ECMP_SEED = 1
NO_ROUTES: Routes = {}


@dataclass(frozen=True, slots=True)
class Slowdowns:
    """Slowdowns of jobs under certain routes, or the worst slowdown under each published scheme.

    Slowdowns of jobs are for the traffic that the jobs send now. The planner computes the slowdowns under the schemes
    after the plan, for the plan's problem, and sends them in an object of their own."""

    generation: int
    """Generation of the problem."""
    of_job: Mapping[JobId, float] = field(default_factory=dict)
    of_phase: Mapping[JobId, Mapping[int, float]] = field(default_factory=dict)
    """Slowdown of each phase; empty when some flows are not pinned."""
    outweighed: frozenset[JobId] = frozenset()
    """Jobs that may be slower than predicted, see ``efficiency.outweighed``."""
    of_scheme: Mapping[str, float] | None = None
    """Worst slowdown under each published scheme; None when this object has slowdowns of jobs."""


def slowdowns(problem: Problem, draws: int) -> Slowdowns | None:
    """Return the slowdowns of the running routes; None when a path of these routes is lost.

    A flow whose path is lost does not run as planned. ``draws``: number of random draws of ECMP."""
    if problem.broken:
        return None
    problem = problem.now
    running = {flow.id: flow.current for flow in problem.flows if flow.current is not None}
    of_job = ecmp_job_slowdowns(problem, running, draws, ECMP_SEED)
    pinned = len(running) == len(problem.flows)
    of_phase = phase_slowdowns(problem, running) if pinned else {}
    return Slowdowns(problem.generation, of_job, of_phase, outweighed(problem, running))


@dataclass(frozen=True, slots=True)
class Planned:
    """Answer to one ``SolvePlan``: a repair, or the plan that follows it."""

    answer: Plan | NoPlan
    """Plan, or the reason why there is none.

    Subflows keep their current source-port classes where possible, so that rules and connections stay."""
    repair: bool = False
    """Whether the plan only gives new paths to flows whose own paths are lost."""
    decision: Decision | None = None
    """Decision whether to adopt the plan; None without a plan."""
    slowdowns: Slowdowns | None = None
    """Slowdowns under the plan's routes; None when ``decision`` is None."""
    repaired: int = 0
    """Number of flows whose path was lost and that have another path in the plan."""
    goal: GoalPlanLeft | None = None
    """Summary of the goal plan that is left when the plan is adopted; None when no goal plan is left."""
    for_now: bool = False
    """Whether the plan is for the phases that jobs send now (``Problem.now``), not for all phases."""

    @property
    def plan(self) -> Plan:
        """Plan of the answer. Raises ``SignalboxError`` when there is none."""
        return answered(self.answer)

    @property
    def adopted(self) -> bool:
        """Whether the planner considers the plan worth its moves."""
        return self.decision is not None and self.decision.adopt


def decided(
    problem: Problem,
    plan: Plan,
    min_gain: float | None,
    running: Routes = NO_ROUTES,
    stay: Plan | None = None,
    goal: GoalPlan | None = None,
) -> Planned:
    """Return the plan with the decision whether to adopt it, and its slowdowns.

    ``min_gain``, ``stay``, ``goal``: see ``plan.decide``. When ``min_gain`` is None the plan is a repair, which is
    adopted at once.
    ``running``: all running routes. The mapping of the plan's routes shares its unchanged parts with ``running``, so
    that the control loop need not compare the routes one by one."""
    plan = _placed(problem, plan)
    decision = Decision(True, "repair") if min_gain is None else decide(problem, plan, min_gain, stay, goal)
    if stay and not decision.moving:
        plan = _placed(problem, stay)
    gone = {flow.id for flow in problem.flows if flow.current is not None} - problem.in_force
    shared = SharedMap.of(running).become(plan.routes)
    now, routes = problem.now, plan.routes
    of_job = plan.job_slowdown if now is problem else job_slowdowns(now, routes)
    found = Slowdowns(problem.generation, of_job, phase_slowdowns(now, routes), outweighed(now, routes))
    return Planned(replace(plan, routes=shared), min_gain is None, decision, found, len(gone & routes.keys()))


def _placed(problem: Problem, plan: Plan) -> Plan:
    """Return the plan with the subflows of each flow in their current source-port classes where possible."""
    routes = {flow.id: in_place(plan.routes[flow.id], flow.current) for flow in problem.flows if flow.id in plan.routes}
    return replace(plan, routes=routes, moves=problem.moves(routes))


def in_place(route: Route, running: Route | None) -> Route:
    """Return ``route`` with its subflows reordered, so that as many as possible keep their source-port class.

    Return the object ``running`` itself when nothing changes."""
    if running is None or route == running:
        return running or route
    if len(route) == 1:
        return route
    left = {subflow.path: subflow for subflow in route}
    kept = [left.pop(subflow.path, None) for subflow in running[: len(route)]]
    kept += [None] * (len(route) - len(kept))
    rest = iter(left.values())
    return tuple(subflow or next(rest) for subflow in kept)
