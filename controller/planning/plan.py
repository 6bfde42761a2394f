"""The planner's answer: a checked plan with its certificate, or the reason why there is none.

Routings that may become the plan are ``Draft``s. In: routes from any of the planners. Out: how drafts compare, and a
``Plan`` whose claims the checker can judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, repeat
from operator import itemgetter
from typing import Literal, NamedTuple

from controller.planning.bounds import Bounds
from controller.planning.efficiency import LEVEL_TOLERANCE, first_difference, job_levels
from controller.planning.numbered import NumberedRoutes
from controller.planning.problem import FlowId, Problem, Route, Routes, Subflow, whole
from signalbox.errors import SignalboxError
from signalbox.jobs.spec import JobId

Certificate = Literal["optimal", "gap", "heuristic"]

BOUNDING_SOLVERS = ("cpsat", "lp", "ilp")
"""Solvers that search for the optimum, and give a bound when they stop before."""

_MOST_NAMED = 3
"""Flows of a group, in one sentence."""


@dataclass(frozen=True, slots=True)
class EcmpLevel:
    """A level under hashing, over seeded draws on the same snapshot: of a plan that of the worst job."""

    mean: float
    p95: float

    def is_as_good_as(self, level: float, min_gain: float) -> bool:
        """Whether at most one draw of 20 has a level that is larger by more than ``min_gain`` (relative)."""
        return self.p95 <= level * (1 + min_gain)


@dataclass(frozen=True, slots=True)
class PlanTimes:
    """Milliseconds per stage. ``ecmp_ms``: the comparison with ECMP, which follows the check and is not part of
    ``total_ms``."""

    build_ms: float
    solve_ms: float
    check_ms: float
    ecmp_ms: float = 0.0

    @property
    def total_ms(self) -> float:
        return self.build_ms + self.solve_ms + self.check_ms


@dataclass(frozen=True, slots=True)
class Plan:
    """``routes``: of every routed flow. ``job_level``: L_j >= 1, see ``efficiency``.

    ``bound``: no routing within the flows' ``max_subflows`` has a smaller worst level. ``fluid_bound``: none has if all
    flows may be split at will; ``integer_bound``: none has if all are whole. ``gap``: max_level / bound - 1.
    ``certificate``: ``optimal`` when all levels are proven, ``gap`` when the worst level is or a solver gave a bound
    for it, ``heuristic`` when there are only closed-form bounds. ``levels_proven``: how many entries of the descending
    vector of job levels are proven optimal, over all shortest paths. ``levels_proven_listed``: how many are over the
    candidate paths, ``candidates_listed`` per pair of switches at most; both are 0 where these prove no more or are all
    shortest paths. ``moves``: flows whose current route still stands and which the plan routes
    otherwise. ``solver``: the stage that made the routes. ``ecmp``: None without draws.
    ``cut_short``: the time limit was over before the searches had ended; a faster machine might find more.
    """

    generation: int
    routes: Routes
    unrouted: tuple[FlowId, ...]
    job_level: Mapping[JobId, float]
    bound: float
    fluid_bound: float
    integer_bound: float
    certificate: Certificate
    levels_proven: int
    moves: int
    solver: str
    ecmp: EcmpLevel | None
    times: PlanTimes
    cut_short: bool = False
    levels_proven_listed: int = 0
    candidates_listed: int = 0

    @property
    def max_level(self) -> float:
        return max(self.job_level.values(), default=1.0)

    @property
    def gap(self) -> float:
        return max(0.0, self.max_level / self.bound - 1.0)

    @property
    def subflows(self) -> int:
        """Pieces of all routed flows."""
        return sum(map(len, self.routes.values()))

    @property
    def sorted_levels(self) -> tuple[float, ...]:
        return tuple(sorted(self.job_level.values(), reverse=True))


@dataclass(frozen=True, slots=True)
class NoPlan:
    """The planner could not answer; the running routes stay as they are."""

    generation: int
    reason: str


def answered(answer: Plan | NoPlan, where: str = "") -> Plan:
    """The plan. Raises ``SignalboxError`` when there is none; ``where`` is a part of its text."""
    if isinstance(answer, NoPlan):
        raise SignalboxError(f"no plan{where}: {answer.reason}")
    return answer


# ---- drafts


@dataclass(frozen=True, slots=True)
class Draft:
    """``moves``: flows whose current route stands and which are routed otherwise. ``solver``: the stage that made
    it. ``paths``: see ``paths_used``; 0 where no flows are in equal pieces. ``numbered``: the routes in numbers, where
    these are known."""

    solver: str
    routes: Routes
    job_level: Mapping[JobId, float]
    moves: int
    paths: int = 0
    numbered: NumberedRoutes | None = field(default=None, repr=False)

    @property
    def vector(self) -> tuple[float, ...]:
        """The levels sorted from the worst."""
        return tuple(sorted(self.job_level.values(), reverse=True))


class Drafts(NamedTuple):
    """Routings that may become the plan, and what is proven of all routings."""

    drafts: list[Draft]
    proven: tuple[float, ...] = ()
    """Lower bounds of the sorted levels, over all shortest paths; empty where only the cuts are known."""
    listed: tuple[float, ...] | None = None
    """The same over the candidate paths; None where these are all shortest paths."""
    integer: float = 1.0
    """Lower bound of the worst level that whole flows can have."""


def routes_of(problem: Problem, numbered: NumberedRoutes) -> dict[FlowId, Route]:
    """By flow."""
    flows, ids = problem.flows, problem.links.ids
    hops = [[ids[link] for link in column] for column in numbered.links.T.tolist()]
    pieces = map(tuple.__new__, repeat(Subflow), zip(zip(*hops, strict=True), numbered.share.tolist(), strict=True))
    at = numbered.flow.tolist()
    routes: dict[FlowId, Route] = {flow.id: whole(()) for flow in flows if flow.src_leaf == flow.dst_leaf}
    if len(set(at)) == len(at):
        routes.update(zip([flows[flow].id for flow in at], zip(pieces), strict=True))
    else:
        for flow, those in groupby(zip(at, pieces, strict=True), itemgetter(0)):
            routes[flows[flow].id] = tuple([piece for _, piece in those])
    return routes


def paths_used(routes: Routes) -> int:
    """Paths of all flows; one that several pieces of one flow take counts once."""
    return len({(flow.joined, path) for flow, route in routes.items() for path, _ in route})


def draft(problem: Problem, solver: str, routes: Routes | NumberedRoutes) -> Draft:
    levels = job_levels(problem, routes)
    found = routes_of(problem, routes) if isinstance(routes, NumberedRoutes) else routes
    paths = paths_used(found) if problem.in_pieces else 0
    return Draft(
        solver, found, levels, problem.moves(found), paths, routes if isinstance(routes, NumberedRoutes) else None
    )


def compare(a: Draft, b: Draft) -> int:
    """Negative when ``a`` is the better routing: smaller sorted levels, then fewer moves, then fewer paths."""
    index = first_difference(a.vector, b.vector)
    if index is not None:
        return -1 if a.vector[index] < b.vector[index] else 1
    return a.moves - b.moves or a.paths - b.paths


def levels_proven(levels: Sequence[float], proven: Sequence[float]) -> int:
    """How many entries, from the worst, are no larger than their lower bound."""
    for index, (level, bound) in enumerate(zip(levels, proven, strict=True)):
        if level > bound * (1 + LEVEL_TOLERANCE):
            return index
    return len(levels)


def certified(problem: Problem, draft: Draft, bounds: Bounds, of: Drafts, times: PlanTimes) -> Plan:
    """Return the draft as a plan. ``of``: where it comes from; what is proven there is at least ``bounds.vector``."""
    proven = of.proven or bounds.vector
    count = levels_proven(draft.vector, proven)
    count_listed = levels_proven(draft.vector, of.listed) if of.listed else 0
    certificate: Certificate = "gap" if count or draft.solver in BOUNDING_SOLVERS else "heuristic"
    if count == len(draft.vector):
        certificate = "optimal"
    bound = min(proven[0], draft.vector[0]) if proven else 1.0
    return Plan(
        generation=problem.generation,
        routes=draft.routes,
        unrouted=tuple(flow.id for flow in problem.flows if flow.id not in draft.routes),
        job_level=draft.job_level,
        bound=bound,
        fluid_bound=min(bounds.fluid, bound),
        integer_bound=max(bound, bounds.integer, of.integer),
        certificate=certificate,
        levels_proven=count,
        moves=draft.moves,
        solver=draft.solver,
        ecmp=None,
        times=times,
        levels_proven_listed=count_listed if count_listed > count else 0,
        candidates_listed=problem.paths.max_paths if count_listed > count else 0,
    )


# ---- more moves than a cycle may make


@dataclass(frozen=True, slots=True)
class Target:
    """A plan that needs more moves than a cycle may make. ``problem``: that it was made for. ``moves``: left after this
    cycle's. ``held``: it was found in an earlier cycle. ``blocked``: no moves within the cap were found that lead on;
    of those that are left, the moves of these flows would have to be made together. ``smallest``: proven that fewer of
    them do not improve anything. Other routes may need fewer. ``searched``: the cap for which the search that ended
    blocked came to its end, so that it would find nothing again; 0 where time was over."""

    plan: Plan
    problem: Problem
    moves: int
    held: bool
    blocked: tuple[FlowId, ...] = ()
    smallest: bool = False
    searched: int = 0

    @property
    def left(self) -> TargetLeft:
        return TargetLeft(self.problem.generation, self.moves, len(self.blocked), self.plan.job_level)


class TargetLeft(NamedTuple):
    """What the control loop knows of a target; the rest of it stays where plans are made. ``generation``: of the
    cycle that left it. ``blocked``: how many flows would have to move together. ``job_level``: with its routes."""

    generation: int
    moves: int
    blocked: int
    job_level: Mapping[JobId, float]

    @property
    def max_level(self) -> float:
        return max(self.job_level.values())


# ---- whether a plan is worth its moves


@dataclass(frozen=True, slots=True)
class Decision:
    """``moving``: with the flows that the plan moves. Else only flows that are not pinned, or whose path has gone, get
    new routes, as in ``stay``."""

    adopt: bool
    reason: str
    moving: bool = True


def decide(
    problem: Problem, plan: Plan, min_gain: float, stay: Plan | None = None, target: Target | None = None
) -> Decision:
    """A plan is adopted when it pins or repairs something, or gains enough to be worth its moves (hysteresis). Where it
    does both these are decided apart, if there is a plan that moves nothing: ``stay``.

    ``min_gain``: relative, at the first entry of the sorted levels that differs from the running routes' (0.02 is
    2 %). ``target``: that the plan leads to; then what the target gains counts, and nothing more is asked for when it
    was adopted before."""
    routed = [flow for flow in problem.flows if flow.id in plan.routes]
    never = sum(flow.current is None and flow.src_leaf != flow.dst_leaf for flow in routed)
    astray = [flow.current for flow in routed if flow.current is not None and flow.id not in problem.standing]
    drained = sum(any(not problem.drained.isdisjoint(piece.path) for piece in route) for route in astray)
    counts = (
        (never, "not pinned yet"),
        (len(astray) - drained, "whose path has gone"),
        (drained, "on what is drained"),
    )
    what = [f"{count} {why}" for count, why in counts if count]
    pins = f"pins {_flows(never + len(astray))}: {' and '.join(what)}" if what else ""
    if never and plan.ecmp and plan.ecmp.is_as_good_as(min(plan.job_level.values()), min_gain):
        pins += ", though pinning gains nothing now: hashing is as good"
    if pins and (stay is None or not plan.moves):
        return Decision(True, f"{pins}; {_flows(plan.moves) if plan.moves else 'no flows'} moved besides")
    before = stay.sorted_levels if stay else _running_levels(problem, plan)
    moves = _blocked(before, target) if target and target.blocked else _worth(before, plan, min_gain, target)
    if not pins:
        return moves
    return Decision(True, f"{pins}; of the others: {moves.reason}", moves.adopt)


def _running_levels(problem: Problem, plan: Plan) -> tuple[float, ...]:
    """Of the flows that the plan routes."""
    routes = {
        flow.id: plan.routes[flow.id] if flow.current is None else flow.current
        for flow in problem.flows
        if flow.id in plan.routes
    }
    return tuple(sorted(job_levels(problem, routes).values(), reverse=True))


def _worth(before: tuple[float, ...], plan: Plan, min_gain: float, target: Target | None) -> Decision:
    """``before``: the levels without the plan's moves."""
    aim = target.plan if target else plan
    index = first_difference(before, aim.sorted_levels)
    if index is None and not target:
        return Decision(False, "the running routes are as good")
    gain = relative_gain(before, aim.sorted_levels)
    change = f"{_change(before, plan.sorted_levels)} with {_flows(plan.moves)} moved"
    if target and target.moves:
        aimed = _change(plan.sorted_levels, aim.sorted_levels)
        change = f"{change}, and then {aimed} when {_flows(target.moves)} more are moved"
    if gain < 0:
        return Decision(False, f"the running routes are better: {_change(before, aim.sorted_levels)}")
    if gain < min_gain and not (target and target.held):
        return Decision(False, f"not worth it: {change}; at least {min_gain:.1%} is asked for")
    return Decision(True, change)


def relative_gain(before: Sequence[float], after: Sequence[float]) -> float:
    """Return by which part the first of the sorted levels that differs is smaller; 0 where none does."""
    index = first_difference(before, after)
    return 0.0 if index is None else 1 - after[index] / before[index]


def _change(before: Sequence[float], after: Sequence[float], falls: str = "falls") -> str:
    """The first entry that differs, in words."""
    index = first_difference(before, after)
    if index is None:
        return "no level changes"
    old, new = before[index], after[index]
    which = "worst level" if index == 0 else f"level number {index + 1} from the worst"
    if new > old:
        return f"{which} {old:.2f} instead of {new:.2f}"
    return f"{which} {falls} from {old:.2f} to {new:.2f} ({1 - new / old:.1%})"


def _blocked(before: tuple[float, ...], target: Target) -> Decision:
    named = ", ".join(f"{flow.src_ip} > {flow.dst_ip}" for flow in target.blocked[:_MOST_NAMED])
    more = f" and {len(target.blocked) - _MOST_NAMED} more" if len(target.blocked) > _MOST_NAMED else ""
    least = " at least" if target.smallest else ", as far as known,"
    return Decision(
        False,
        f"{_change(before, target.plan.sorted_levels, 'could fall')}, but no moves that lead there were found within "
        f"planning.max_moves: of {_flows(target.moves)} to move{least} {len(target.blocked)} would have to move "
        f"together ({named}{more})",
    )


def _flows(count: int) -> str:
    return f"{count} flow" if count == 1 else f"{count} flows"
