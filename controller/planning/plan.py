"""The planner's answer: a checked plan with its certificate, or the reason why there is none.

Routings that may become the plan are ``Draft``s. In: routes from any of the planners. Out: how drafts compare, and a
``Plan`` whose claims the checker can judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from controller.errors import SignalboxError
from controller.jobs.spec import JobId
from controller.planning.bounds import Bounds
from controller.planning.efficiency import LEVEL_TOLERANCE, first_difference, job_levels
from controller.planning.problem import FlowId, Problem, Routes

Certificate = Literal["optimal", "gap", "heuristic"]

BOUNDING_SOLVERS = ("cpsat", "lp", "ilp")
"""Solvers that search for the optimum, and give a bound when they stop before."""


@dataclass(frozen=True, slots=True)
class EcmpLevel:
    """The worst job level under hashing, over seeded draws on the same snapshot."""

    mean: float
    p95: float


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
    vector of job levels are proven optimal. ``moves``: flows whose current route still stands and which the plan routes
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
    it."""

    solver: str
    routes: Routes
    job_level: Mapping[JobId, float]
    moves: int

    @property
    def vector(self) -> tuple[float, ...]:
        """The levels sorted from the worst."""
        return tuple(sorted(self.job_level.values(), reverse=True))


def draft(problem: Problem, solver: str, routes: Routes) -> Draft:
    return Draft(solver, routes, job_levels(problem, routes), problem.moves(routes))


def compare(a: Draft, b: Draft) -> int:
    """Negative when ``a`` is the better routing: smaller sorted levels, then fewer moves."""
    index = first_difference(a.vector, b.vector)
    if index is not None:
        return -1 if a.vector[index] < b.vector[index] else 1
    return a.moves - b.moves


def levels_proven(levels: Sequence[float], proven: Sequence[float]) -> int:
    """How many entries, from the worst, are no larger than their lower bound."""
    for index, (level, bound) in enumerate(zip(levels, proven, strict=True)):
        if level > bound * (1 + LEVEL_TOLERANCE):
            return index
    return len(levels)


def certified(problem: Problem, draft: Draft, bounds: Bounds, proven: tuple[float, ...], times: PlanTimes) -> Plan:
    """``proven``: lower bounds of the sorted levels, one per job; at least ``bounds.vector``."""
    count = levels_proven(draft.vector, proven)
    certificate: Certificate = "gap" if count or draft.solver in BOUNDING_SOLVERS else "heuristic"
    if count == len(draft.vector):
        certificate = "optimal"
    bound = min(proven[0], draft.vector[0]) if proven else 1.0
    whole = all(flow.max_subflows == 1 for flow in problem.flows)
    return Plan(
        generation=problem.generation,
        routes=draft.routes,
        unrouted=tuple(flow.id for flow in problem.flows if flow.id not in draft.routes),
        job_level=draft.job_level,
        bound=bound,
        fluid_bound=min(bounds.fluid, bound),
        integer_bound=bound if whole else max(bound, bounds.integer),
        certificate=certificate,
        levels_proven=count,
        moves=draft.moves,
        solver=draft.solver,
        ecmp=None,
        times=times,
    )


# ---- whether a plan is worth its moves


@dataclass(frozen=True, slots=True)
class Decision:
    adopt: bool
    reason: str


def decide(problem: Problem, plan: Plan, min_gain: float) -> Decision:
    """A plan is adopted when it repairs something, or gains enough to be worth its moves (hysteresis).

    ``min_gain``: relative, at the first entry of the sorted levels that differs from the running routes' (0.02 is
    2 %)."""
    routed = [flow for flow in problem.flows if flow.id in plan.routes]
    never = sum(flow.current is None and flow.src_leaf != flow.dst_leaf for flow in routed)
    gone = sum(flow.current is not None and flow.id not in problem.standing for flow in routed)
    if never or gone:
        what = [f"{never} not pinned yet"] * bool(never) + [f"{gone} whose path has gone"] * bool(gone)
        return Decision(True, f"pins {_flows(never + gone)}: {' and '.join(what)}; {_flows(plan.moves)} moved besides")
    running = job_levels(
        problem, {flow.id: plan.routes[flow.id] if flow.current is None else flow.current for flow in routed}
    )
    levels = tuple(sorted(running.values(), reverse=True))
    index = first_difference(levels, plan.sorted_levels)
    if index is None:
        return Decision(False, "the running routes are as good")
    before, after = levels[index], plan.sorted_levels[index]
    gain = 1 - after / before
    which = "worst level" if index == 0 else f"level number {index + 1} from the worst"
    if gain < 0:
        return Decision(False, f"the running routes are better: {which} {before:.2f} instead of {after:.2f}")
    change = f"{which} falls from {before:.2f} to {after:.2f} ({gain:.1%}) with {_flows(plan.moves)} moved"
    if gain < min_gain:
        return Decision(False, f"not worth it: {change}; at least {min_gain:.1%} is asked for")
    return Decision(True, change)


def _flows(count: int) -> str:
    return f"{count} flow" if count == 1 else f"{count} flows"
