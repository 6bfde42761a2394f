"""Routings that may become the plan, how they compare, and the certificate of the one that does.

In: routes from whichever planner. Out: ``Draft``s with their levels and moves; a ``Plan`` whose claims the checker
can judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.jobs.spec import JobId
from controller.planning.bounds.level_bounds import Bounds
from controller.planning.efficiency import LEVEL_TOLERANCE, Valuation, first_difference
from controller.planning.plan import Certificate, Plan, PlanTimes
from controller.planning.problem import Problem, Routes

EXACT = ("cpsat", "lp", "ilp")
"""Solvers that search for the optimum, and say how far from it they stopped."""


@dataclass(frozen=True, slots=True)
class Draft:
    """``moves``: flows whose current route stands and which are routed otherwise. ``solver``: who made it."""

    solver: str
    routes: Routes
    job_level: Mapping[JobId, float]
    moves: int

    @property
    def vector(self) -> tuple[float, ...]:
        """The levels sorted from the worst."""
        return tuple(sorted(self.job_level.values(), reverse=True))


def draft(problem: Problem, valuation: Valuation, solver: str, routes: Routes) -> Draft:
    moves = sum(
        flow.current is not None and flow.id in routes and routes[flow.id] != flow.current and problem.stands(flow)
        for flow in problem.flows
    )
    return Draft(solver, routes, valuation.job_levels(routes), moves)


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
    certificate: Certificate = "gap" if count or draft.solver in EXACT else "heuristic"
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
