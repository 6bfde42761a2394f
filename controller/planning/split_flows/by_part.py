"""Plans of flows that may be split, part by part: parts share no link, so each part is planned separately.

A part keeps the routes of a candidate when no flow moves and every job of the part has the slowdown that the cuts
require. Only the other parts are searched, each with its own flows alone. Their programmes are small, and rounding in
one part does not affect other parts. All flows are one part when some paths do not have two links.

In: a problem, its bounds, candidates. Out: the best routes found per part, and the lower bounds that are proven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cmp_to_key

import numpy as np

from controller.fabric.topology import LinkId
from controller.planning.bounds import Bounds, slowdown_bounds
from controller.planning.common_links import common_links_of, parts
from controller.planning.efficiency import SLOWDOWN_TOLERANCE, links_beyond
from controller.planning.plan import Draft, Drafts, compare, draft
from controller.planning.problem import Flow, FlowId, PlanLimits, Problem, Route, Routes, whole
from controller.planning.slowdown_vector import stronger
from controller.planning.split_flows import peeling, search
from signalbox.jobs.spec import JobId

_NEAR = 0.01
"""Relative distance above an aim at which the aim counts as reached, when the capacities of links differ a little.

Capacities differ because of measured background, which is never the same twice. The distance is smaller than any gain
for which a plan is adopted."""
_LINE_S, _CABLE_S = 10e-6, 5e-6
"""Seconds per flow that ``peeling`` needs for the line of the common links, and for each spine with residual links."""
_ALIKE, _NEARLY_ALIKE = 1e-9, 0.05
"""Relative distances of the smallest capacity of a link between switches from the largest capacity.

Up to ``_ALIKE`` the links are alike, up to ``_NEARLY_ALIKE`` they differ a little."""


def solve(problem: Problem, limits: PlanLimits, bounds: Bounds, drafts: Sequence[Draft]) -> Drafts | None:
    """Return the best candidate found and the proven bounds; no candidate if the best is one of ``drafts``.

    With a cap on moves, return the best candidate that the search finds within it; None when there is none."""
    aims = _aims(problem, bounds)
    beyond = [links_beyond(problem, of.numbered or of.routes, aims) for of in drafts]
    routes: dict[FlowId, Route] = {flow.id: whole(()) for flow in problem.flows if flow.src_leaf == flow.dst_leaf}
    proven = bounds.vector
    for flows in _apart(problem):
        new = not any(map(problem.is_in_force, flows))
        kept = [of.routes for of, links in zip(drafts, beyond, strict=True) if not _touch(flows, of.routes, links)]
        kept = [of for of in kept if new or all(flow.current in (None, of[flow.id]) for flow in flows)]
        if kept:
            routes |= {flow.id: kept[0][flow.id] for flow in flows}
            continue
        free = replace(limits, max_moves=None)
        part = problem if len(flows) == len(problem.flows) else problem.with_flows(flows)
        optima = 1 if limits.max_moves is None else 2
        found = _of_part(part, bounds if part is problem else slowdown_bounds(part), free, aims, drafts, optima)
        proven = stronger(proven, _of_all(bounds, found.proven))
        best = found.drafts[0]
        if part is problem and any(best.routes is of.routes for of in drafts):
            return Drafts([], proven)
        routes |= best.routes
    if limits.max_moves is not None and problem.moves(routes) > limits.max_moves:
        capped = search.solve(problem, limits, bounds) if search.fits(problem, limits, "lp") else None
        return capped and capped._replace(proven=stronger(proven, capped.proven))
    return Drafts([draft(problem, "lp", routes)], proven)


def _of_part(
    part: Problem,
    bounds: Bounds,
    limits: PlanLimits,
    aims: Mapping[JobId, float],
    known: Sequence[Draft],
    optima: int,
) -> Drafts:
    """Return the best candidate of one part, and the bounds that are proven.

    The known candidates and the closed form of ``peeling`` are compared first. When they miss an aim, a search follows
    if there is time for ``optima`` optima: two with a cap on moves, because another search then follows this one."""
    drafts = [of if len(of.routes) == len(part.flows) else _draft(part, of.routes) for of in known]
    common = common_links_of(part, np.arange(len(part.flows)))
    if common:
        peeling_s = (_LINE_S + _CABLE_S * len(np.unique(common.others[0].other))) * len(part.flows)
        routes = peeling.route(part, common, bounds.fluid) if limits.allows("peeling", peeling_s) else None
        drafts += [_draft(part, routes)] if routes else []
    best = min(drafts, key=cmp_to_key(compare))
    if not best.moves and all(
        slowdown <= aims[job] * (1 + SLOWDOWN_TOLERANCE) for job, slowdown in best.job_slowdown.items()
    ):
        return Drafts([best], bounds.vector)
    found = search.solve(part, limits, bounds) if search.fits(part, limits, "lp", optima) else None
    if found is None:
        return Drafts([best], bounds.vector)
    return found._replace(drafts=[min(best, *found.drafts, key=cmp_to_key(compare))])


def _apart(problem: Problem) -> list[list[Flow]]:
    flows = problem.flows
    crossing = [flow for flow in problem.numbers.crossing.tolist() if problem.reachable(flows[flow])]
    pairs = {(flows[flow].src_leaf, flows[flow].dst_leaf) for flow in crossing}
    two_links = not problem.paths.stretch and all(problem.paths.distance(src, dst) == 2 for src, dst in pairs)
    apart = parts(problem.numbers, np.array(crossing, np.int64)) if two_links else [np.array(crossing, np.int64)]
    return [[flows[flow] for flow in part.tolist()] for part in apart]


def _aims(problem: Problem, bounds: Bounds) -> dict[JobId, float]:
    """Return the slowdown of each job when the links of the cuts that it crosses are equally loaded.

    When the capacities of links differ a little, the aim is larger than this slowdown by ``_NEAR`` (relative)."""
    fabric_bps = np.array([problem.capacity_bps[link] for link in problem.paths.far_end])
    unlike = 1 - float(fabric_bps.min() / fabric_bps.max())
    near = 1 + _NEAR * (_ALIKE < unlike <= _NEARLY_ALIKE)
    return {job: near * slowdown for job, slowdown in bounds.even.items()}


def _touch(flows: Sequence[Flow], routes: Routes, links: set[LinkId]) -> bool:
    return bool(links) and any(link in links for flow in flows for path, _ in routes[flow.id] for link in path)


def _draft(part: Problem, routes: Routes) -> Draft:
    return draft(part, "", {flow.id: routes[flow.id] for flow in part.flows})


def _of_all(bounds: Bounds, proven: Sequence[float]) -> tuple[float, ...]:
    """Return lower bounds of all jobs' sorted slowdowns, derived from the bounds ``proven`` of one part.

    The worst entry of ``proven`` bounds as many jobs as there are entries equal to it. When this entry is above the
    first entry of ``bounds.vector``, the other entries of that vector do not hold, because they assume that the first
    entry is reached. The own bound of each job still holds."""
    worst = proven[0] if proven else 1.0
    if not bounds.vector or worst <= bounds.vector[0]:
        return bounds.vector
    count = sum(slowdown >= worst * (1 - SLOWDOWN_TOLERANCE**2) for slowdown in proven)
    return (worst,) * count + tuple(sorted(bounds.job.values(), reverse=True))[count:]
