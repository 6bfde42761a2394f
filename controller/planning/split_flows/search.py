"""Routes of flows that may be split, on any fabric: the smallest slowdowns, with few subflows.

1. Aim at a slowdown for every job: its slowdown if the links of each cut that it crosses are equally loaded
   (``bounds``).
2. Start with whole routes, or with the running routes; find the fluid optimum with the fewest moves (``lp``).
3. When the aim cannot be reached, find the smallest possible worst slowdown, with its proof; then approach the aim as
   closely as this slowdown allows.
4. Divide the amounts into the subflows of flows (``dividing``, ``shares``): few subflows, and at most as many as a flow
   may have.

In: a problem, its bounds. Out: routes, and the lower bounds that are proven; None when there was not enough time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from controller.fabric.topology import Dpid, LinkId
from controller.planning import greedy
from controller.planning.bounds import Bounds, slowdown_bounds
from controller.planning.closed_forms import balanced_coloring
from controller.planning.efficiency import SLOWDOWN_TOLERANCE, job_loads, job_slowdowns
from controller.planning.plan import Drafts, draft
from controller.planning.problem import Floats, Flow, FlowId, PlanLimits, Problem, Route, Routes, whole
from controller.planning.slowdown_vector import slowdown_vector
from controller.planning.split_flows.commodities import Commodities
from controller.planning.split_flows.dividing import Divider
from controller.planning.split_flows.lp import FluidModel, Goal, Spread
from controller.planning.whole_flows import local_search
from signalbox.jobs.spec import JobId

_REACHED = 1e-6
"""Excess (in slowdowns) that counts as zero."""
_BISECTIONS = 8
_FLOW_S, _PATH_S = 100e-6, 3e-6
"""Seconds per flow until the first optimum is found, and per path between leaves that are more than two links apart.

Measured on a leaf-spine of 64 leaves, and on a fat-tree with k = 16."""

CommonLink = tuple[Dpid, int]
"""Spine, and index of the cable among the cables between this spine and a leaf."""


def fits(problem: Problem, limits: PlanLimits, stage: str, optima: int = 1) -> bool:
    """Return whether there is time to compute the candidate paths and then to find ``optima`` fluid optima.

    Candidate paths, sometimes of thousands of pairs of leaves, are computed in this call as far as time allows, and
    kept for the next call."""
    paths = problem.paths
    pairs = dict.fromkeys((flow.src_leaf, flow.dst_leaf) for flow in problem.flows)
    far = [pair for pair in pairs if (paths.distance(*pair) or 0) > 2]
    listed = sum(min(paths.max_paths, len(paths.links_from(src)) ** 2) for src, _ in far)
    seconds = optima * (_FLOW_S * len(problem.flows) + _PATH_S * listed)
    for pair in far:
        if limits.left_s <= seconds:
            break
        paths.between(*pair)
    return limits.allows(stage, seconds)


def solve(problem: Problem, limits: PlanLimits, bounds: Bounds) -> Drafts | None:
    """Return the best routes found, within the cap on moves if there is a cap; None when no routes are found."""
    search = _Search(problem, limits, bounds)
    routes = search.routes()
    return None if routes is None else Drafts([draft(problem, "lp", routes)], search.proven)


def relieve(problem: Problem, limits: PlanLimits, bounds: Bounds, aim: Routes) -> Routes | None:
    """Return routes with the slowdowns of ``aim`` and few moves; None when there was not enough time.

    With a cap on moves, return the routes with the lowest link loads that are found within it."""
    return _Search(problem, limits, bounds).relieved(aim)


class Fluid:
    """View of the problem in which each job aims at its entry of ``slowdown`` and avoids its links in ``barred``.

    Its spreads start from the routes ``before``."""

    def __init__(
        self,
        problem: Problem,
        before: Routes,
        slowdown: Mapping[JobId, float],
        barred: Mapping[JobId, frozenset[LinkId]] = MappingProxyType({}),
    ) -> None:
        self.of = Commodities(problem, slowdown, barred)
        self.model = FluidModel(self.of)
        self._start = self.of.amounts(before)

    def improve(
        self, room: Floats, limits: PlanLimits, stretch: Floats | None = None, moves_count: bool = True
    ) -> Spread | None:
        goal = Goal(room, self.of.capacity if stretch is None else stretch, moves_count)
        return self.model.improve(self.of.padded(self._start), goal, limits)

    def link_loads(self, amounts: Floats) -> Floats:
        return self.of.link_loads(self.of.loads(amounts))

    def fullness(self, room: Floats) -> float:
        """Return the largest quotient (at least 1) of the load and the room of a link, under the routes ``before``."""
        loads = self.link_loads(self.of.padded(self._start))
        return float((loads / np.maximum(room, _REACHED)).max(initial=1.0))


class _Aim(NamedTuple):
    """Amounts per column that fit into the room of each link, in one view of the problem."""

    fluid: Fluid
    room: Floats
    amounts: Floats


class _Search:
    """Search for the best routes of one problem."""

    def __init__(self, problem: Problem, limits: PlanLimits, bounds: Bounds) -> None:
        self._problem = problem
        self._bounds = bounds
        self._max_moves = limits.max_moves
        self._limits = limits
        self._before = start_routes(problem, limits)
        self.proven = bounds.vector
        """Lower bounds of the slowdowns, sorted from the worst."""

    def routes(self) -> Routes | None:
        aim = self._spread()
        if aim is None:
            return None
        routes = self._divided(aim.fluid, aim.amounts, aim.room)
        if self._max_moves is not None and self._problem.moves(routes) > self._max_moves:
            return self._within_cap(aim, self._max_moves)
        return routes

    def relieved(self, aim: Routes) -> Routes | None:
        """Return routes for ``relieve``.

        A link may have a load up to the smallest slowdown of the jobs on it. A job is barred from links that may have a
        larger load than its slowdown. A link without jobs may have a load up to the smallest slowdown of the jobs that
        could use it."""
        slowdown, links = job_slowdowns(self._problem, aim), self._problem.link_number
        least = np.full(len(links), np.inf)
        for link, jobs in job_loads(self._problem, aim).items():
            least[links[link]] = min(slowdown[job] for job in jobs)
        ids, used = self._problem.links.ids, least < np.inf
        off = {
            of: frozenset(ids[at] for at in np.flatnonzero(used & (least > of * (1 + SLOWDOWN_TOLERANCE))).tolist())
            for of in set(slowdown.values())
        }
        fluid = Fluid(self._problem, self._before, slowdown, {job: off[of] for job, of in slowdown.items()})
        allowed = np.where(used, least, np.minimum(fluid.of.least_slowdown(), max(slowdown.values())))
        amounts = fluid.of.amounts(aim)
        found = _Aim(fluid, allowed * (1 + _REACHED) * fluid.of.capacity, amounts)
        spread = fluid.improve(found.room, self._limits)
        routes = self._divided(fluid, spread.amounts, found.room) if spread else None
        if routes and self._max_moves is not None and self._problem.moves(routes) > self._max_moves:
            return self._within_cap(found, self._max_moves)
        return routes

    def _divided(self, fluid: Fluid, amounts: Floats, room: Floats) -> Routes:
        return Divider(self._problem, fluid.of, self._before, self._limits).divide(amounts, room)

    # ---- moves

    def _within_cap(self, aim: _Aim, max_moves: int) -> Routes | None:
        """Return routes within the cap on moves; None when no such routes are found.

        The more room links have, the fewer flows need to move. The room is bisected between the room of the aim and the
        loads of the previous routes."""
        found = None
        found_slowdowns: tuple[float, ...] = (math.inf,)
        least, enough = 1.0, aim.fluid.fullness(aim.room)
        for _ in range(_BISECTIONS):
            middle = math.sqrt(least * enough)
            spread = aim.fluid.improve(aim.room * middle, self._limits)
            if spread is None:
                break
            routes = self._divided(aim.fluid, spread.amounts, aim.room * middle)
            if self._problem.moves(routes) > max_moves:
                least = middle
                continue
            enough, slowdowns = middle, tuple(sorted(job_slowdowns(self._problem, routes).values(), reverse=True))
            if slowdowns < found_slowdowns:  # when time runs out, more moves may give larger slowdowns
                found, found_slowdowns = routes, slowdowns
        return found

    # ---- slowdowns

    def _spread(self) -> _Aim | None:
        """Return a spread as near to ``bounds.even`` as the smallest worst slowdown allows; None when time runs out."""
        fluid, worst = Fluid(self._problem, self._before, self._bounds.even), self._bounds.worst
        capacity = fluid.of.capacity
        room = np.minimum(fluid.of.least_slowdown(), worst) * capacity
        spread = fluid.improve(room, self._limits)
        if spread is None:
            return None
        if spread.near:
            return _Aim(fluid, room + spread.excess * capacity, spread.amounts)
        looser = room >= worst * capacity * (1 - _REACHED)
        if not looser.all():
            spread = fluid.improve(worst * capacity, self._limits) or spread
        if spread.excess > _REACHED:
            worst = self._least_worst(fluid, worst)
        room = np.where(looser, worst * (1 + _REACHED) * capacity, room)
        spread = fluid.improve(room, self._limits, np.where(looser, 0.0, capacity)) or spread
        return _Aim(fluid, np.maximum(room, fluid.link_loads(spread.amounts)), spread.amounts)

    def _least_worst(self, fluid: Fluid, worst: float) -> float:
        """Return the smallest worst slowdown of any routing, and store its lower bounds in ``proven``."""
        of = fluid.of
        spread = fluid.improve(worst * of.capacity, self._limits, moves_count=False)
        if spread is None:
            return worst
        bound, bound_classes = fluid.model.lower_bound(spread)
        if bound > self.proven[0]:
            tight = {of.flows[index].job_id for number in bound_classes for index in of.members[number]}
            own = sorted(
                (bound if job in tight else slowdown for job, slowdown in self._bounds.job.items()), reverse=True
            )
            self.proven = (bound, *own[1:])
        return worst + spread.excess


# ---- whole routes to start from


def start_routes(problem: Problem, limits: PlanLimits) -> dict[FlowId, Route]:
    """Return a whole route for every flow that has a candidate; the better the routes, the fewer flows need splitting.

    Running flows keep their routes. On a leaf-spine, even with failures, equal flows are coloured: each leaf then has
    the same number of flows on every spine. Only flows whose cable has failed take the path with the smallest load. On
    other fabrics the greedy chooses the paths. Flows that must stay whole are placed first, as if there were no other
    flows."""
    crossing = [f for f in problem.flows if f.src_leaf != f.dst_leaf and problem.reachable(f)]
    colored = {} if any(f.current for f in crossing) else _color(problem, crossing)
    flows = tuple(replace(f, current=colored.get(f.id, f.current)) for f in problem.flows)
    rigid = tuple(f for f in flows if f.max_subflows == 1)
    if 0 < len(rigid) < len(flows):
        placed = _placed(problem.with_flows(rigid), limits)
        flows = tuple(replace(f, current=placed.get(f.id, f.current)) for f in flows)
    return greedy.assign(problem.with_flows(flows), keep_current=True)


def _placed(problem: Problem, limits: PlanLimits) -> Routes:
    """Return routes of whole flows; running flows may have to move."""
    routes = greedy.assign(problem, keep_current=True)
    bounds = slowdown_bounds(problem)
    if max(job_slowdowns(problem, routes).values(), default=1.0) <= bounds.worst or problem.paths.stretch:
        return routes
    return local_search.search(problem, bounds, slowdown_vector(bounds, limits), routes, limits)


def _color(problem: Problem, crossing: Sequence[Flow]) -> dict[FlowId, Route | None]:
    """Return routes of flows with equal demands on a leaf-spine; None for a flow whose chosen cable is missing."""
    common = _common(problem, crossing) if len({f.demand_bps for f in crossing}) == 1 else []
    if not common:
        return {}
    colors = balanced_coloring([(f.src_leaf, f.dst_leaf) for f in crossing], len(common))
    return {f.id: _route(problem, f, common[color]) for f, color in zip(crossing, colors, strict=True)}


def _common(problem: Problem, crossing: Sequence[Flow]) -> list[CommonLink]:
    """Return all pairs of spine and cable; empty when the fabric is no leaf-spine whose leaves share most spines."""
    paths = problem.paths
    common: set[CommonLink] = set()
    fewest = len(paths.far_end)
    for leaf in {leaf for f in crossing for leaf in (f.src_leaf, f.dst_leaf)}:
        cables = Counter(paths.far_end[link] for link in paths.links_from(leaf))
        common.update((spine, cable) for spine, count in cables.items() for cable in range(count))
        fewest = min(fewest, cables.total())
    return sorted(common) if 2 * fewest > len(common) else []


def _route(problem: Problem, flow: Flow, common_link: CommonLink) -> Route | None:
    """Return the route over a spine's cable; None when a cable is missing."""
    spine, cable = common_link
    up, down = problem.paths.links_between(flow.src_leaf, spine), problem.paths.links_between(spine, flow.dst_leaf)
    return whole((up[cable], down[cable])) if cable < min(len(up), len(down)) else None
