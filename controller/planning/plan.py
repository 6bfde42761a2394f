"""Results of the planner: a checked plan with its certificate, and whether the plan is worth its moves.

In: routes from any of the solvers, as candidates (``Draft``). Out: the order of candidates; a ``Plan`` whose claims the
checker can verify, or a ``NoPlan``; a ``Planned``, which adds the decision and all facts that the control loop needs.
The planning threads compute these facts, which take seconds with tens of thousands of pinned flows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cmp_to_key
from itertools import groupby, repeat
from operator import itemgetter
from typing import Literal, NamedTuple

from controller.fabric.topology import LinkId
from controller.planning.bounds import Bounds, over_phases
from controller.planning.efficiency import (
    SLOWDOWN_TOLERANCE,
    EcmpSlowdown,
    all_slowdowns,
    ecmp_job_slowdowns,
    first_difference,
    is_less,
    job_slowdowns,
    outweighed,
    sorted_slowdowns,
)
from controller.planning.problem import FlowId, NumberedRoutes, PathShare, Problem, Route, Routes, Timing, whole
from controller.shared_map import SharedMap
from signalbox.errors import SignalboxError
from signalbox.jobs.spec import JobId
from signalbox.words import SharingObjective

Certificate = Literal["optimal", "gap", "heuristic"]
BOUNDING_SOLVERS = ("cpsat", "lp", "exact", "ilp")
"""Solvers that search for the optimum, and return a lower bound when they stop early."""
_MOST_NAMED = 3
"""Largest number of flows that one sentence lists by name."""
ECMP_SEED = 1
NO_ROUTES: Routes = {}


@dataclass(frozen=True, slots=True)
class PlanTimes:
    """Time of each stage in milliseconds. The comparison with ECMP, which follows the check, does not count."""

    build_ms: float
    solve_ms: float
    check_ms: float

    @property
    def total_ms(self) -> float:
        return self.build_ms + self.solve_ms + self.check_ms


@dataclass(frozen=True, slots=True)
class Plan:
    """Checked routing with bounds that prove how good it is."""

    generation: int
    routes: Routes
    """Route of every routed flow."""
    unrouted: tuple[FlowId, ...]
    job_slowdown: Mapping[JobId, float]
    """Slowdown (>= 1) of each job, see ``efficiency``."""
    own_slowdown: Mapping[JobId, float]
    """Slowdown (>= 1) of each job while no other job sends."""
    bound: float
    """Lower bound of the worst slowdown over all routings within the flows' ``max_subflows``."""
    fluid_bound: float
    """Lower bound of the worst slowdown when all flows may be split in any proportion."""
    integer_bound: float
    """Lower bound of the worst slowdown when no flow is split."""
    certificate: Certificate
    """Strength of the proof that the plan is good.

    - ``optimal``: all slowdowns are proven.
    - ``gap``: the worst slowdown is proven, or a solver gave a bound for it.
    - ``heuristic``: there are only closed-form bounds."""
    slowdowns_proven: int
    """Number of slowdowns, counted from the worst on, that are proven optimal over all shortest paths."""
    moves: int
    """Number of flows with a valid current route that the plan routes differently."""
    solver: str
    """Name of the stage that found the routes."""
    ecmp: EcmpSlowdown | None
    """Worst slowdown under ECMP; None when there were no draws."""
    times: PlanTimes
    cut_short: bool = False
    """Whether the time limit ended a search; a faster machine might then find a better plan.

    False for a plan that is optimal and moves nothing."""
    slowdowns_proven_listed: int = 0
    """Number of slowdowns, counted from the worst on, that are proven optimal over the candidate paths.

    These proofs hold for fewer routings than those of ``slowdowns_proven``, which cover all shortest paths. The value
    is therefore 0 unless it is larger than ``slowdowns_proven``, and always 0 when all shortest paths are
    candidates."""
    candidates_listed: int = 0
    """Largest number of candidate paths per pair of switches; 0 when ``slowdowns_proven_listed`` is 0."""

    @property
    def max_slowdown(self) -> float:
        return max(self.job_slowdown.values(), default=1.0)

    @property
    def gap(self) -> float:
        """Relative distance between the worst slowdown and its lower bound."""
        return max(0.0, self.max_slowdown / self.bound - 1.0)

    @property
    def subflows(self) -> int:
        """Number of subflows of all routed flows."""
        return sum(map(len, self.routes.values()))

    @property
    def sorted_slowdowns(self) -> tuple[float, ...]:
        return sorted_slowdowns(self.job_slowdown)


@dataclass(frozen=True, slots=True)
class NoPlan:
    """Reason why there is no plan. The running routes stay as they are."""

    generation: int
    reason: str


def answered(answer: Plan | NoPlan, where: str = "") -> Plan:
    """Return the plan, or raise ``SignalboxError`` for a ``NoPlan``; ``where`` becomes a part of the error's text."""
    if isinstance(answer, NoPlan):
        raise SignalboxError(f"no plan{where}: {answer.reason}")
    return answer


# ---- candidates


@dataclass(frozen=True, slots=True)
class Draft:
    """Candidate for the plan: routes and their slowdowns."""

    solver: str
    """Name of the stage that found the routes."""
    routes: Routes
    job_slowdown: Mapping[JobId, float]
    own_slowdown: Mapping[JobId, float]
    """Slowdown of each job while no other job sends."""
    peak_slowdown: Mapping[JobId, float]
    """Peak slowdown of each job, which most stages minimise; equal to ``job_slowdown`` when only worst phases count."""
    moves: int
    """Number of flows with a valid current route that the candidate routes differently."""
    paths: int = 0
    """Number of paths, see ``paths_used``; 0 when no flow is divided into equal subflows."""
    numbered: NumberedRoutes | None = field(default=None, repr=False)
    """Routes as arrays, where the solver returned them in this form."""

    @property
    def vector(self) -> tuple[float, ...]:
        """Peak slowdowns in descending order."""
        return sorted_slowdowns(self.peak_slowdown)


class Drafts(NamedTuple):
    """Candidates for the plan, and lower bounds of peak slowdowns that hold for all routings."""

    drafts: list[Draft]
    proven: tuple[float, ...] = ()
    """Lower bounds of the sorted slowdowns over all shortest paths; empty when only the bounds of cuts are known."""
    listed: tuple[float, ...] | None = None
    """Lower bounds of the slowdowns, worst first, over the candidate paths; None when these are all shortest paths."""
    integer: float = 1.0
    """Lower bound of the worst slowdown when all flows are whole."""


def routes_of(problem: Problem, numbered: NumberedRoutes) -> dict[FlowId, Route]:
    """Return the route of each flow."""
    flows, ids = problem.flows, problem.links.ids
    hops = [[ids[link] for link in column] for column in numbered.links.T.tolist()]
    subflows = map(tuple.__new__, repeat(PathShare), zip(zip(*hops, strict=True), numbered.share.tolist(), strict=True))
    at = numbered.flow.tolist()
    routes: dict[FlowId, Route] = {flow.id: whole(()) for flow in flows if flow.src_leaf == flow.dst_leaf}
    if len(set(at)) == len(at):
        routes.update(zip([flows[flow].id for flow in at], zip(subflows), strict=True))
    else:
        for flow, those in groupby(zip(at, subflows, strict=True), itemgetter(0)):
            routes[flows[flow].id] = tuple([subflow for _, subflow in those])
    return routes


def paths_used(routes: Routes) -> int:
    """Return the number of paths of all flows; a path that several equal subflows of one pair take counts once."""
    return len({(flow.joined, path) for flow, route in routes.items() for path, _ in route})


def draft(problem: Problem, solver: str, routes: Routes | NumberedRoutes) -> Draft:
    found = routes_of(problem, routes) if isinstance(routes, NumberedRoutes) else routes
    paths = paths_used(found) if problem.has_equal_subflows else 0
    numbered = routes if isinstance(routes, NumberedRoutes) else None
    return Draft(solver, found, *all_slowdowns(problem, routes), problem.moves(found), paths, numbered)


def compare(a: Draft, b: Draft) -> int:
    """Return a negative number when ``a`` is better than ``b``, a positive number when ``b`` is better, else 0.

    First the sorted slowdowns are compared, then the sorted peak slowdowns, the sorted own slowdowns, the numbers of
    moves, and those of paths. Smaller is better each time."""
    return (
        compare_slowdowns(a, b) or _compared(a.own_slowdown, b.own_slowdown) or a.moves - b.moves or a.paths - b.paths
    )


def compare_slowdowns(a: Draft, b: Draft) -> int:
    """Return a negative number when ``a`` has smaller slowdowns, or equal slowdowns and smaller peak slowdowns."""
    return _compared(a.job_slowdown, b.job_slowdown) or _compared(a.peak_slowdown, b.peak_slowdown)


def _compared(a: Mapping[JobId, float], b: Mapping[JobId, float]) -> int:
    vectors = sorted_slowdowns(a), sorted_slowdowns(b)
    return 0 if first_difference(*vectors) is None else -1 if is_less(*vectors) else 1


def best_first(drafts: Iterable[Draft]) -> list[Draft]:
    """Return the candidates, the best one first."""
    return sorted(drafts, key=cmp_to_key(compare))


def slowdowns_proven(slowdowns: Sequence[float], proven: Sequence[float]) -> int:
    """Return the number of slowdowns, from the worst one on, that are no larger than their lower bounds."""
    for index, (slowdown, bound) in enumerate(zip(slowdowns, proven, strict=True)):
        if slowdown > bound * (1 + SLOWDOWN_TOLERANCE):
            return index
    return len(slowdowns)


def certified(problem: Problem, draft: Draft, bounds: Bounds, of: Drafts, times: PlanTimes) -> Plan:
    """Return the candidate as a plan, with its bounds and its certificate.

    The plan's bounds follow from ``of.proven``, or from ``bounds.vector`` when ``of.proven`` is empty. ``of.proven``
    and ``bounds.vector`` are lower bounds of peak slowdowns."""
    slowdowns, proven, listed = sorted_slowdowns(draft.job_slowdown), of.proven or bounds.vector, of.listed
    integer = max(bounds.integer, of.integer)
    if problem.phase_share is not None:
        bounds = over_phases(problem, bounds, max(proven, default=1.0), integer)
        proven, listed, integer = bounds.vector, None, bounds.integer
    count = slowdowns_proven(slowdowns, proven)
    count_listed = slowdowns_proven(slowdowns, listed) if listed else 0
    certificate: Certificate = "gap" if count or draft.solver in BOUNDING_SOLVERS else "heuristic"
    if count == len(slowdowns):
        certificate = "optimal"
    bound = min(proven[0], slowdowns[0]) if proven else 1.0
    routes, flows = draft.routes, problem.flows
    return Plan(
        generation=problem.generation,
        routes=routes,
        unrouted=tuple([flow.id for flow in flows if flow.id not in routes]) if len(routes) < len(flows) else (),
        job_slowdown=draft.job_slowdown,
        own_slowdown=draft.own_slowdown,
        bound=bound,
        fluid_bound=min(bounds.fluid, bound),
        integer_bound=max(bound, integer),
        certificate=certificate,
        slowdowns_proven=count,
        moves=draft.moves,
        solver=draft.solver,
        ecmp=None,
        times=times,
        slowdowns_proven_listed=count_listed if count_listed > count else 0,
        candidates_listed=problem.paths.max_paths if count_listed > count else 0,
    )


# ---- goal plans: more moves than a cycle may make


@dataclass(frozen=True, slots=True)
class GoalPlan:
    """Plan that needs more moves than one cycle may make, and the number of moves that remain until it is reached."""

    plan: Plan
    problem: Problem
    """Problem from which the goal plan was made or last continued."""
    moves: int
    """Number of moves that remain after the moves of this cycle."""
    held: bool
    """Whether an earlier cycle found the goal plan."""
    blocked: tuple[FlowId, ...] = ()
    """Flows that would have to move together to bring the routes closer to the goal plan.

    The tuple is empty when moves within the cap lead towards the goal plan."""
    smallest: bool = False
    """Whether ``blocked`` is proven to be the smallest group of the remaining moves that improves the slowdowns.

    The proof covers only moves to the routes of the goal plan. Fewer moves to other routes may still give smaller
    slowdowns."""
    searched: int = 0
    """Cap on moves under which a search proved that no moves lead towards the plan; 0 without such a proof.

    A new search with this cap or a smaller cap would find no moves either."""

    @property
    def left(self) -> GoalPlanLeft:
        return GoalPlanLeft(self.problem.generation, self.moves, len(self.blocked), self.plan.job_slowdown)


class GoalPlanLeft(NamedTuple):
    """Summary of a goal plan for the control loop. The planning process keeps the goal plan itself."""

    generation: int
    """Generation of the problem from which the latest cycle towards the goal plan was computed."""
    moves: int
    blocked: int
    """Number of flows that would have to move together; 0 when moves within the cap lead towards the plan."""
    job_slowdown: Mapping[JobId, float]
    """Slowdowns of the jobs under the routes of the goal plan."""

    @property
    def max_slowdown(self) -> float:
        return max(self.job_slowdown.values())


# ---- whether a plan is worth its moves


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision whether to adopt a plan, with its reason."""

    adopt: bool
    reason: str
    moving: bool = True
    """Whether the plan's moves are made.

    If not, the plan ``stay`` of ``decide`` is adopted instead. ``stay`` gives new routes only to flows that are not
    pinned, or whose path is lost."""


def decide(
    problem: Problem, plan: Plan, min_gain: float, stay: Plan | None = None, goal: GoalPlan | None = None
) -> Decision:
    """Return the decision whether to adopt the plan, with its reason.

    A plan is adopted when it pins flows or repairs routes, or when its gain is worth its moves (hysteresis). Some plans
    pin or repair flows and also move other flows. The moves are then decided separately if there is a plan ``stay``
    that moves nothing.

    ``min_gain``: smallest relative gain that is worth moves (0.02 is 2 %). The gain is measured at the first entry of
    the sorted slowdowns in which the plan differs from the running routes.
    ``goal``: goal plan that the plan leads to. The gain of the goal plan then counts, and a goal plan that was adopted
    before needs no ``min_gain``."""
    routed = [flow for flow in problem.flows if flow.id in plan.routes]
    never = sum(flow.current is None and flow.src_leaf != flow.dst_leaf for flow in routed)
    stale = [flow.current for flow in routed if flow.current is not None and flow.id not in problem.in_force]
    drained = sum(any(not problem.drained.isdisjoint(subflow.path) for subflow in route) for route in stale)
    counts = (
        (never, "not pinned yet"),
        (len(stale) - drained, "whose path is lost"),
        (drained, "on drained links"),
    )
    what = [f"{count} {why}" for count, why in counts if count]
    pins = f"pins {_flows(never + len(stale))}: {' and '.join(what)}" if what else ""
    if never and plan.ecmp and plan.ecmp.is_as_good_as(min(plan.job_slowdown.values()), min_gain):
        pins += ", though pinning gains nothing now: hashing is as good"
    if pins and (stay is None or not plan.moves):
        others = "1 other flow" if plan.moves == 1 else f"{plan.moves or 'no'} other flows"
        return Decision(True, f"{pins}; {others} moved")
    before = stay.sorted_slowdowns if stay else _running_slowdowns(problem, plan)
    moves = _blocked(before, goal) if goal and goal.blocked else _worth(before, plan, min_gain, goal)
    if not pins:
        return moves
    return Decision(True, f"{pins}; other flows: {moves.reason}", moves.adopt)


def _running_slowdowns(problem: Problem, plan: Plan) -> tuple[float, ...]:
    """Return the sorted slowdowns without the plan's moves: flows without a running route take the plan's."""
    routes = {
        flow.id: plan.routes[flow.id] if flow.current is None else flow.current
        for flow in problem.flows
        if flow.id in plan.routes
    }
    return sorted_slowdowns(job_slowdowns(problem, routes))


def _worth(before: tuple[float, ...], plan: Plan, min_gain: float, goal: GoalPlan | None) -> Decision:
    """Decide whether the moves are worth their gain. ``before`` has the sorted slowdowns without the plan's moves."""
    aim = goal.plan if goal else plan
    index = first_difference(before, aim.sorted_slowdowns)
    if index is None and not goal:
        return Decision(False, "the running routes are as good as the plan")
    gain = relative_gain(before, aim.sorted_slowdowns)
    change = f"{_change(before, plan)} with {_flows(plan.moves)} moved"
    if goal and goal.moves:
        aimed = _change(plan.sorted_slowdowns, aim)
        change = f"{change}, and then {aimed} with a further {_flows(goal.moves)} moved"
    if gain < 0:
        return Decision(False, f"the running routes are better: {_change(before, aim)}")
    if gain < min_gain and not (goal and goal.held):
        return Decision(False, f"not worth it: {change}; planning.min_gain is {min_gain:.1%}")
    return Decision(True, change)


def relative_gain(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the relative decrease of the first sorted slowdown that differs; 0 when all slowdowns are equal."""
    index = first_difference(before, after)
    return 0.0 if index is None else 1 - after[index] / before[index]


def _change(before: Sequence[float], plan: Plan, falls: str = "falls") -> str:
    """Return a phrase on the first slowdown in which ``before`` and the plan differ."""
    after = plan.sorted_slowdowns
    index = first_difference(before, after)
    if index is None:
        return "no slowdown changes"
    old, new = before[index], after[index]
    which = "worst slowdown" if index == 0 else f"slowdown number {index + 1} from the worst"
    if new > old:
        return f"{which} {old:.2f} instead of {new:.2f}"
    return f"{which} {falls} from {old:.2f} to {new:.2f} ({1 - new / old:.1%})"


def _blocked(before: tuple[float, ...], goal: GoalPlan) -> Decision:
    named = ", ".join(f"{flow.src_ip} > {flow.dst_ip}" for flow in goal.blocked[:_MOST_NAMED])
    more = f" and {len(goal.blocked) - _MOST_NAMED} more" if len(goal.blocked) > _MOST_NAMED else ""
    least = "at least " if goal.smallest else "as far as known, "
    return Decision(
        False,
        f"{_change(before, goal.plan, 'could fall')}, but no moves within planning.max_moves were "
        f"found that lower it: {least}{len(goal.blocked)} of {_flows(goal.moves)} would have to move together "
        f"({named}{more})",
    )


def _flows(count: int) -> str:
    return f"{count} flow" if count == 1 else f"{count} flows"


# ---- jobs that share links


class Slot(NamedTuple):
    """Part of a circle in which a job may send one of its phases."""

    start_s: float
    length_s: float


@dataclass(frozen=True, slots=True)
class Circle:
    """Time after which the slots of some jobs repeat."""

    period_s: float
    slots: Mapping[JobId, tuple[Slot, ...]]
    """Slots of a job's first iteration in the period, one per phase in order, the first at 0 <= start < period."""
    turns: Mapping[JobId, int]
    """Number of iterations of each job per period. They begin ``period_s`` / turns apart."""

    def every_s(self, job: JobId) -> float:
        """Return the planned duration of the job's iterations."""
        return self.period_s / self.turns[job]


@dataclass(frozen=True, slots=True)
class CommonLinks:
    """Links with the jobs that send over them."""

    links: tuple[LinkId, ...]
    jobs: tuple[JobId, ...]
    average: float
    """Mean load by jobs with a ``Timing`` over ideal iterations: of the first link, or of all links of a leaf."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """Slots and classes of jobs that share links under a plan's routes, and what they guarantee.

    The unit of ``value`` and of its bounds is that of the objective: a slowdown of iterations (>= 1), or GPU-seconds
    per second that sharing costs."""

    circles: tuple[Circle, ...]
    """Circles without common jobs. A job without a slot begins its iterations whenever it likes."""
    class_of: Mapping[JobId, int]
    """Class of each job, 1 for the highest priority; empty when all jobs have the same priority."""
    guaranteed_s: Mapping[JobId, float]
    """Largest duration of an iteration of each job that has a ``Timing``, while no other traffic disturbs it."""
    promise_s: Mapping[JobId, float]
    """Durations that the same routes guarantee without slots and classes."""
    value: float
    bound: float
    """Lower bound of ``value`` for any slots, classes and routes; prices of links prove it."""
    searched: float
    """Lower bound of ``value`` for these routes, from exact searches; at least ``bound``."""
    objective: SharingObjective
    floor: float = 0.0
    """Fraction of each link that every class but the first keeps."""
    timings: Mapping[JobId, Timing] = field(default_factory=dict)
    """Times from which the plan was made, for the same jobs as ``guaranteed_s``."""
    without_slots_s: Mapping[JobId, float] = field(default_factory=dict)
    """Durations that the same classes guarantee without slots."""
    without_classes_s: Mapping[JobId, float] = field(default_factory=dict)
    """Durations that the same slots guarantee without classes, where they can be kept."""
    alone_s: Mapping[JobId, float] = field(default_factory=dict)
    """Durations if no other job sent; above the ideal ones where a job's own flows overfill a link."""
    links: tuple[CommonLinks, ...] = ()
    """Links that jobs can overfill: an entry for all links with the same jobs, the fullest link first."""
    crowded: tuple[CommonLinks, ...] = ()
    """All links of a leaf in one direction, where jobs always send more than these carry together, on any routes."""


# ---- answers for the control loop


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
    """Summary of the goal plan that remains when the plan is adopted; None when no goal plan remains."""
    for_now: bool = False
    """Whether the plan is for the phases that jobs send now (``Problem.now``), not for all phases."""
    sharing: Sharing | None = None
    """Slots and classes under the plan's routes; None when no jobs with a ``Timing`` share links."""

    @property
    def plan(self) -> Plan:
        """Plan of the answer. Raises ``SignalboxError`` when there is none."""
        return answered(self.answer)

    @property
    def adopted(self) -> bool:
        """Whether the planner considers the plan worth its moves."""
        return self.decision is not None and self.decision.adopt


@dataclass(frozen=True, slots=True)
class Slowdowns:
    """Slowdowns that the planner computed: either of jobs under certain routes, or under each published scheme.

    An object has only one of the two. The slowdowns of jobs are for the traffic that the jobs send now. The slowdowns
    under the published schemes are for the problem of a plan, and are computed after the plan."""

    generation: int
    """Generation of the problem for which the slowdowns were computed."""
    of_job: Mapping[JobId, float] = field(default_factory=dict)
    outweighed: frozenset[JobId] = frozenset()
    """Jobs that may be slower than predicted, see ``efficiency.outweighed``."""
    of_scheme: Mapping[str, float] | None = None
    """Worst slowdown under each published scheme; None when this object has slowdowns of jobs."""


def slowdowns(problem: Problem, draws: int) -> Slowdowns | None:
    """Return the slowdowns of the running routes, or None when one of these routes has a lost path.

    ``draws``: number of random draws of ECMP."""
    if problem.broken:
        return None
    problem = problem.now
    running = {flow.id: flow.current for flow in problem.flows if flow.current is not None}
    of_job = ecmp_job_slowdowns(problem, running, draws, ECMP_SEED)
    return Slowdowns(problem.generation, of_job, outweighed(problem, running))


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
    found = Slowdowns(problem.generation, of_job, outweighed(now, routes))
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
