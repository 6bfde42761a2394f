"""Whole routes to begin to split from: the better they are, the fewer flows need splitting.

In: a ``Problem``. Out: one path for every flow that has a candidate. Flows that run keep their routes. On a leaf-spine,
even one with failures, equal flows are coloured: each leaf then has the same number of flows on every spine, and only
those whose cable has failed go to the path with the least load. Elsewhere the greedy chooses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from controller.fabric.topology import Dpid
from controller.planning.bounds.level_bounds import level_bounds
from controller.planning.bounds.level_vector import level_vector
from controller.planning.efficiency import Valuation
from controller.planning.problem import Flow, FlowId, PlanLimits, Problem, Route, Routes, whole
from controller.planning.whole import greedy, local_search
from controller.planning.whole.edge_coloring import balanced_coloring

Lane = tuple[Dpid, int]
"""A spine, and which of the parallel cables to it."""


def start_routes(problem: Problem, limits: PlanLimits) -> dict[FlowId, Route]:
    """Also of the flows inside a leaf. Flows that have to stay whole are placed as if they were alone: the others can
    make room for them."""
    crossing = [f for f in problem.flows if f.src_leaf != f.dst_leaf and problem.reachable(f)]
    colored = {} if any(f.current for f in crossing) else _color(problem, crossing)
    flows = tuple(replace(f, current=colored.get(f.id, f.current)) for f in problem.flows)
    rigid = tuple(f for f in flows if f.max_subflows == 1)
    if 0 < len(rigid) < len(flows):
        placed = _placed(replace(problem, flows=rigid), limits)
        flows = tuple(replace(f, current=placed.get(f.id, f.current)) for f in flows)
    return greedy.assign(replace(problem, flows=flows), keep_current=True)


def _placed(problem: Problem, limits: PlanLimits) -> Routes:
    """Of whole flows, which may have to move."""
    routes = greedy.assign(problem, keep_current=True)
    valuation = Valuation(problem)
    bounds = level_bounds(problem, valuation)
    if max(valuation.job_levels(routes).values(), default=1.0) <= bounds.worst:
        return routes
    return local_search.search(problem, valuation, bounds, level_vector(bounds), routes, limits)


def _color(problem: Problem, crossing: Sequence[Flow]) -> dict[FlowId, Route | None]:
    """Of flows with equal demands on what looks like a leaf-spine; None where a cable is missing."""
    lanes = _lanes(problem, crossing) if len({f.demand_bps for f in crossing}) == 1 else []
    if not lanes:
        return {}
    colors = balanced_coloring([(f.src_leaf, f.dst_leaf) for f in crossing], len(lanes))
    return {f.id: _route(problem, f, lanes[color]) for f, color in zip(crossing, colors, strict=True)}


def _lanes(problem: Problem, crossing: Sequence[Flow]) -> list[Lane]:
    """All lanes; none when the fabric does not look like a leaf-spine with failures, whose leaves share most spines."""
    paths = problem.paths
    lanes: set[Lane] = set()
    fewest = len(paths.far_end)
    for leaf in {leaf for f in crossing for leaf in (f.src_leaf, f.dst_leaf)}:
        cables = Counter(paths.far_end[link] for link in paths.links_from(leaf))
        lanes.update((spine, cable) for spine, count in cables.items() for cable in range(count))
        fewest = min(fewest, cables.total())
    return sorted(lanes) if 2 * fewest > len(lanes) else []


def _route(problem: Problem, flow: Flow, lane: Lane) -> Route | None:
    """None where a cable is missing."""
    spine, cable = lane
    up, down = problem.paths.links_between(flow.src_leaf, spine), problem.paths.links_between(spine, flow.dst_leaf)
    return whole((up[cable], down[cable])) if cable < min(len(up), len(down)) else None
