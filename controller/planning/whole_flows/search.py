"""Search for whole flows when no closed form is optimal or within the cap on moves: local search, then CP-SAT.

In: a problem of whole flows and the best candidates so far. Out: further candidates, and lower bounds of the slowdowns,
sorted from the worst. Local search aims at the slowdowns that the cuts allow all jobs together (``slowdown_vector``);
when it reaches them, they are proven. CP-SAT handles the rest: slowdowns that are not proven, and fewer moves."""

from __future__ import annotations

from dataclasses import replace
from functools import cmp_to_key, partial

import structlog

from controller.planning.bounds import Bounds
from controller.planning.plan import Draft, Drafts, compare, draft, slowdowns_proven
from controller.planning.problem import PlanLimits, Problem
from controller.planning.slowdown_vector import SlowdownVector, slowdown_vector, stronger
from controller.planning.whole_flows import cpsat, local_search

log = structlog.get_logger(__name__)

MAX_FLOWS = 20_000
"""Number of flows above which there is no search; it would take many times as long as closed forms and the greedy."""
_VARIABLES_PER_S = 5_000
"""Number of variables with which CP-SAT finds or proves something in a second; one per class of flows and path.

Building a model of ten times that size alone takes a second."""
_LOCAL_S = 50e-6
"""Seconds per flow until local search has made its first step."""
_MOVES_SHARE = 0.25
"""Share of the time limit for CP-SAT when it can only save moves."""


def solve(problem: Problem, limits: PlanLimits, bounds: Bounds, best: Draft, kept: Draft) -> Drafts:
    """Return candidates and bounds. No candidate has needless moves, but some may exceed ``limits.max_moves``.

    ``kept``: the candidate with the fewest moves."""
    target = slowdown_vector(bounds, limits)
    if len(problem.flows) > MAX_FLOWS:
        return Drafts([], target.slowdowns)
    searched = _search(problem, limits, bounds, target, kept)
    best = min([best, *searched], key=cmp_to_key(compare))
    settled = slowdowns_proven(best.vector, target.slowdowns) == len(best.vector)
    settled &= limits.max_moves is None or best.moves <= limits.max_moves
    if settled:
        limits = replace(limits, time_limit_s=_MOVES_SHARE * limits.time_limit_s)
    if (settled and not best.moves) or _variables(problem) > _VARIABLES_PER_S * limits.time_limit_s:
        return Drafts(searched, target.slowdowns)
    exact = _by_cpsat(problem, limits, bounds, target.slowdowns, best, kept)
    return exact._replace(drafts=[*exact.drafts, *searched])


def _search(problem: Problem, limits: PlanLimits, bounds: Bounds, target: SlowdownVector, kept: Draft) -> list[Draft]:
    """Return the candidate that local search finds from ``kept``.

    Return no candidate when the search changes no route, when paths may be detours, or when there is no time."""
    if problem.paths.stretch or not limits.allows("local search", _LOCAL_S * len(problem.flows)):
        return []
    try:
        routes = local_search.search(problem, bounds, target, kept.routes, limits)
    except Exception:
        log.exception("local search failed; using the candidates of other solvers", generation=problem.generation)
        return []
    return [] if routes == kept.routes else [draft(problem, "local-search", routes)]


def _variables(problem: Problem) -> int:
    """Return the approximate size of the CP-SAT model, without finding shortest paths."""
    paths = problem.paths
    classes = {(flow.job_id, flow.demand_bps, flow.src_leaf, flow.dst_leaf) for flow in problem.flows}
    pairs = [(src, dst) for _, _, src, dst in classes if src != dst]
    if paths.stretch:
        return sum(len(paths.between(*pair)) for pair in pairs)
    return sum(len(paths.links_from(src)) for src, _ in pairs)


def _by_cpsat(
    problem: Problem, limits: PlanLimits, bounds: Bounds, known: tuple[float, ...], best: Draft, kept: Draft
) -> Drafts:
    """Return the candidates of CP-SAT, and bounds.

    ``known``: lower bounds that are proven without CP-SAT. With a cap on moves, half of the time is spent on the
    problem without the cap: its proofs hold for all routings, and its fewest moves are often within the cap."""
    attempt = partial(_attempt, problem, bounds, known)
    pinned = sum(flow.current is not None for flow in problem.flows)
    cap = limits.max_moves
    if cap is None or cap >= pinned:
        return attempt(limits, best, None)
    half = replace(limits, time_limit_s=limits.time_limit_s / 2)
    free = attempt(half, best, None)
    if free.drafts and free.drafts[0].moves <= cap:
        return free
    return free._replace(drafts=attempt(half, kept, cap).drafts)


def _attempt(
    problem: Problem,
    bounds: Bounds,
    known: tuple[float, ...],
    limits: PlanLimits,
    start: Draft,
    max_moves: int | None,
) -> Drafts:
    try:
        found = cpsat.solve(problem, limits, bounds, start.routes, max_moves, known)
    except Exception:
        log.exception("solver failed; using the candidates of other solvers", generation=problem.generation)
        found = None
    if found is None:
        return Drafts([], known)
    proven = stronger(known, found.listed or found.proven)
    drafts = [each for each in found.drafts if each.routes != start.routes or proven != known]
    return Drafts(drafts, known, proven) if found.listed else Drafts(drafts, proven)
