"""Plans with fewer subflows per flow than allowed, down to whole flows, for when the usual plan misses its bound.

A fluid optimum that is rounded to k subflows per flow can have larger slowdowns than the result of a search with k - 1
subflows, or with whole flows. Near the bound of the worst slowdown, fewer subflows are tried only when the problem has
few flows, because each number of subflows takes another search.

In: a problem, its bounds, candidates. Out: further candidates, and the lower bounds of slowdowns that are proven."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cmp_to_key

import structlog

from controller.planning import closed_forms, greedy
from controller.planning.bounds import Bounds, slowdown_bounds
from controller.planning.efficiency import first_difference
from controller.planning.plan import Draft, Drafts, compare, draft, slowdowns_proven
from controller.planning.problem import PlanLimits, Problem
from controller.planning.slowdown_vector import stronger
from controller.planning.split_flows import by_part, search
from controller.planning.whole_flows import search as whole_search

log = structlog.get_logger(__name__)

_NEAR = 0.01
"""Relative distance from the bound of the worst slowdown that counts as near."""
_FEW = 200
"""Number of flows up to which fewer subflows are tried even near the bound."""
_BEGIN_S = 10e-6
"""Seconds per flow to find the parts of the problem, and the parts that miss their aims."""


def solve(problem: Problem, limits: PlanLimits, bounds: Bounds, drafts: list[Draft], kept: Draft) -> Drafts:
    """Return candidates and bounds. If a solver fails, the candidates of the other solvers remain.

    ``kept``: the candidate with the fewest moves."""
    found: list[Draft] = []
    proven = bounds.vector
    cap = math.inf if limits.max_moves is None else limits.max_moves
    most = max(flow.max_subflows for flow in problem.flows)
    for subflows in range(most, 0, -1):
        if not limits.allows("fewer subflows" if subflows < most else "split flows", _BEGIN_S * len(problem.flows)):
            break
        fewer = with_subflows(problem, subflows)
        try:
            if subflows == 1:
                found += _whole(problem, fewer, limits, [*found, *drafts], kept)
                break
            exact = closed_forms.route(fewer, bounds) if subflows < most else None
            known = [draft(problem, *exact)] if exact else drafts
            solution = by_part.solve(fewer, limits, bounds, known)
            if solution is not None:
                found += [*(known if exact else []), *solution.drafts]
                proven = stronger(proven, solution.proven)
        except Exception:
            log.exception("solver failed; using the candidates of other solvers", generation=problem.generation)
            break
        best = _within(cap, kept, [*found, *drafts]).vector
        near = best[0] <= proven[0] * (1 + _NEAR) and len(problem.flows) > _FEW
        if near or slowdowns_proven(best, proven) == len(best):
            break
    try:
        least = _best([*found, *drafts])
        if least.moves and search.fits(problem, limits, "fewer moves"):
            nearer = search.relieve(problem, limits, bounds, least.routes)
            found += [draft(problem, "lp", nearer)] if nearer else []
    except Exception:
        log.exception("solver failed; using the candidates of other solvers", generation=problem.generation)
    return Drafts(found, proven)


def _best(drafts: Sequence[Draft]) -> Draft:
    return min(drafts, key=cmp_to_key(compare))


def _within(cap: float, kept: Draft, drafts: Sequence[Draft]) -> Draft:
    """Return the best candidate within the cap on moves."""
    return _best([kept, *(of for of in drafts if of.moves <= cap)])


def with_subflows(problem: Problem, most: int) -> Problem:
    """Return the problem with ``max_subflows`` of each flow reduced to at most ``most``."""
    if all(flow.max_subflows <= most for flow in problem.flows):
        return problem
    return problem.with_flows(
        flow if flow.max_subflows <= most else replace(flow, max_subflows=most) for flow in problem.flows
    )


def _whole(problem: Problem, whole: Problem, limits: PlanLimits, drafts: list[Draft], kept: Draft) -> list[Draft]:
    """Return candidates with whole flows; none when their bounds show that none can be better than ``drafts``."""
    bounds, best = slowdown_bounds(whole), _best(drafts)
    index = first_difference(bounds.vector, best.vector)
    if index is None or bounds.vector[index] > best.vector[index]:
        return []
    exact = closed_forms.route(whole, bounds)
    cheap = [draft(problem, "greedy", greedy.assign(whole, keep_current=False))]
    cheap += [draft(problem, *exact)] if exact else []
    start = kept if all(len(route) == 1 for route in kept.routes.values()) else cheap[0]
    searched = whole_search.solve(whole, limits, bounds, _best([start, *cheap]), start)
    return [*searched.drafts, *cheap]
