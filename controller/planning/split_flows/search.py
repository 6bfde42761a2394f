"""Routes of flows that may be split, on any fabric: the smallest slowdowns, with few subflows.

In: a problem, its bounds, candidates. Out: further candidates, and the lower bounds that are proven.
docs/explanation/planning.md describes the stages, which ``_Stages`` runs in turn.

Parts share no link (``closed_forms``), so each part is planned separately, and rounding in one part does not affect the
others. All flows are one part when some paths do not have two links. A part keeps the routes of a candidate when no
flow moves and every job has the slowdown that the cuts require. The search of any other part has these steps:

1. Choose an aim for every job: the slowdown that the job has if the links of each cut that it crosses are equally
   loaded (``bounds``).
2. Start with whole routes, or with the running routes; find the fluid optimum with the fewest moves (``lp``).
3. When the aims cannot be reached, find the smallest possible worst slowdown, with its proof; then approach the aims as
   closely as this slowdown allows.
4. Divide the amounts into few subflows of flows (``dividing``).

Rounding can give larger slowdowns than a search with whole flows, so ``planner`` plans with fewer subflows first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import structlog

from controller.fabric.topology import Path
from controller.planning import greedy
from controller.planning.bounds import Bounds, peak_bounds
from controller.planning.closed_forms import common_links_of, parts
from controller.planning.efficiency import (
    SLOWDOWN_TOLERANCE,
    first_difference,
    job_loads,
    links_beyond,
    peak_slowdowns,
    sorted_slowdowns,
)
from controller.planning.plan import Draft, Drafts, best_first, draft, slowdowns_proven
from controller.planning.problem import Floats, Flow, FlowId, PlanLimits, Problem, Route, Routes, whole
from controller.planning.slowdown_vector import slowdown_vector, stronger
from controller.planning.split_flows import exact
from controller.planning.split_flows.commodities import Commodities
from controller.planning.split_flows.dividing import SMALLEST_SHARE, Divider, divided, exactly_one
from controller.planning.split_flows.leaf_spine import peel
from controller.planning.split_flows.lp import FluidModel, Goal, fits
from controller.planning.split_flows.sharing import shared
from controller.planning.whole_flows import search as whole_search
from controller.planning.whole_flows import tabu
from signalbox.jobs.spec import JobId

log = structlog.get_logger(__name__)
_NEAR = 0.01
"""Relative distance from the bound of the worst slowdown that counts as near."""
_FEW = 200
"""Number of flows up to which searches continue even near the bound."""
_BEGIN_S = 10e-6
"""Seconds per flow to find the parts of the problem, and the parts that miss their aims."""
_NEAR_AIM = 0.01
"""Relative excess of a slowdown over its aim up to which the aim counts as reached.

The excess is allowed only if the links' capacities differ a little, as they do because of measured background. It is
smaller than any gain for which a plan is adopted."""
_LINE_S, _CABLE_S = 10e-6, 5e-6
"""Seconds per flow that ``peeling`` needs: for the common links together, and for each spine with residual links."""
_ALIKE, _NEARLY_ALIKE = 1e-9, 0.05
"""Relative differences between the largest and the smallest capacity of links between switches.

Links with a difference up to ``_ALIKE`` are alike. With a difference up to ``_NEARLY_ALIKE`` they differ a little."""
_ROUNDS_SHARE = 0.85
"""Share of the time that is left for rounds of equal pieces and shares; the fluid optimum has the rest."""
_MOST_ROUNDS, _DETERMINISTIC_ROUNDS = 30, 5
"""Largest number of rounds with a deadline, and number of rounds without one."""
_PIECES = (1, 2)
"""Numbers of equal pieces of a flow that are tried in a round."""
_FIRST_STEPS = 500
"""Number of steps for each number of equal pieces in the first round; every further round has twice as many."""
_FEW_SHARE = 0.5
"""Share of the remaining time that the search for a fluid optimum with few subflows may use."""
_REACHED = 1e-6
"""Excess (in slowdowns) that counts as zero."""
_BISECTIONS = 8
_PIECE_ROUNDING = 1e-9


def solve(problem: Problem, limits: PlanLimits, bounds: Bounds, drafts: list[Draft], kept: Draft) -> Drafts:
    """Return candidates and bounds. If a solver fails, the candidates of the other solvers remain.

    ``kept``: the candidate with the fewest moves."""
    search = _Stages(problem, limits, bounds, drafts, kept)
    for stage in (search.spread, search.rounds, search.fluid, search.small, search.nearer):
        try:
            stage()
        except Exception:
            log.exception("solver failed; using the candidates of other solvers", generation=problem.generation)
    return Drafts(search.found, search.proven)


def in_closed_form(problem: Problem, limits: PlanLimits, bounds: Bounds, drafts: list[Draft]) -> list[Draft]:
    """Return a candidate in which all parts are planned in closed form; none when a part needs a search.

    A part keeps the routes of a candidate that is good enough; a part without such a candidate is peeled."""
    if not limits.allows("split flows", _BEGIN_S * len(problem.flows)):
        return []
    try:
        found = solve_by_part(problem, limits, bounds, drafts, searching=False)
    except Exception:
        log.exception("solver failed; using the candidates of other solvers", generation=problem.generation)
        return []
    return found.drafts if found else []


class _Stages:
    """Stages of the search. Each starts from the candidates of the previous ones."""

    def __init__(self, problem: Problem, limits: PlanLimits, bounds: Bounds, drafts: list[Draft], kept: Draft) -> None:
        self._problem, self._limits, self._bounds, self._drafts, self._kept = problem, limits, bounds, drafts, kept
        self._cap = math.inf if limits.max_moves is None else limits.max_moves
        self._most = max(flow.max_subflows for flow in problem.flows)
        self.found: list[Draft] = []
        self.proven = bounds.vector

    @property
    def _all(self) -> list[Draft]:
        return [*self.found, *self._drafts]

    @property
    def _best(self) -> Draft:
        return best_first([self._kept, *(of for of in self._all if of.moves <= self._cap)])[0]

    @property
    def _reached(self) -> bool:
        """Whether the best candidate reaches its bounds. With many flows, a worst slowdown near its bound is enough."""
        best = self._best.vector
        return _is_near(self._problem, best, self.proven) or slowdowns_proven(best, self.proven) == len(best)

    def spread(self) -> None:
        """Find the fluid optimum, for its bound; add it as a candidate if flows may have as many subflows as paths."""
        if self._reached or not fits(self._problem, self._limits, "fluid optimum"):
            return
        of = Commodities(self._problem)
        fluid = FluidModel(of, self._best.routes)
        goal = Goal(self._bounds.worst * of.capacity, of.capacity, moves_count=False)
        spread = fluid.optimum(goal, self._limits)
        if spread is None:
            return
        self.proven = stronger(self.proven, fluid.vector(spread, self._bounds))
        if of.cut.any() or (np.bincount(of.column_class, minlength=len(of.members)) > of.max_subflows).any():
            return
        few = fluid.optimum(goal, self._limits.part(_FEW_SHARE), nearly=False)
        for found in filter(None, (few, spread)):
            routes = {**self._best.routes, **divided(of, found.amounts, SMALLEST_SHARE)}
            self.found.append(draft(self._problem, "lp", routes))

    def rounds(self) -> None:
        """Improve the best candidate with equal pieces and with shares on few paths, in turn, in growing rounds.

        Rounds do not depend on the time limit, so a longer limit has the same rounds and then more. They end when a
        round with all useful steps finds no smaller slowdowns."""
        if self._limits.max_moves is not None:
            return
        limits = self._limits.part(_ROUNDS_SHARE)
        useful = tabu.useful_steps(self._problem, limits)
        for number in range(_DETERMINISTIC_ROUNDS if limits.deterministic else _MOST_ROUNDS):
            before = self._best.vector
            of_round = replace(limits, seed=limits.seed + (2 << number))
            for pieces in _PIECES:
                if self._reached or not limits.allows("pieces", 0.0):
                    return
                self._by_pieces(pieces, of_round, _FIRST_STEPS << number)
            if self._reached or not limits.allows("shares", 0.0):
                return
            routes = shared(self._problem, self._best.routes, self.proven[0], of_round, 2 << number)
            self.found += [draft(self._problem, "lp", routes)] if routes else []
            unchanged = first_difference(self._best.vector, before) is None
            if unchanged and _FIRST_STEPS << number >= useful and limits.allows("the rest of shares", 0.0):
                return

    def _by_pieces(self, most: int, limits: PlanLimits, steps: int) -> None:
        """Divide flows into at most ``most`` equal pieces, and place each piece as a whole flow."""
        known = [of for of in self._all if is_in_pieces(of.routes, most)]
        if not known:
            return
        start = best_first(known)[0].routes
        pieces: dict[FlowId, list[FlowId]] = {}
        flows, places = list[Flow](), dict[FlowId, Route]()
        for flow in self._problem.flows:
            if flow.id not in start:
                continue
            count = min(most, flow.max_subflows)
            pieces[flow.id] = [flow.id, *(flow.id._replace(subflow=-number) for number in range(1, count))]
            demand_bps = tuple((phase, bps / count) for phase, bps in flow.demand_bps)
            flows += [replace(flow, id=of, demand_bps=demand_bps) for of in pieces[flow.id]]
            places |= zip(pieces[flow.id], map(whole, _in_pieces(start[flow.id], count)), strict=True)
        routes = tabu.improved(self._problem.with_flows(flows), self._bounds, self.proven, places, limits, steps)
        if routes is not None:
            together = {flow: Counter(routes[of][0].path for of in ids) for flow, ids in pieces.items()}
            found = {flow: exactly_one({path: float(n) for path, n in of.items()}) for flow, of in together.items()}
            self.found.append(draft(self._problem, "tabu-search", found))

    def fluid(self) -> None:
        """Find the fluid optimum and divide it into subflows."""
        if slowdowns_proven(self._best.vector, self.proven) == len(self.proven):
            return
        if self._limits.allows("division", _BEGIN_S * len(self._problem.flows)):
            self._add(solve_by_part(self._problem, self._limits, self._bounds, self._all))

    def small(self) -> None:
        """Look for the optimum of a small problem whose bound of the worst slowdown is missed."""
        best = best_first(self._all)[0]
        if not slowdowns_proven(best.vector[:1], self.proven[:1]) and not _is_near(
            self._problem, best.vector, self.proven
        ):
            self._add(exact.solve(self._problem, self._limits, self._bounds, best))

    def nearer(self) -> None:
        least = best_first(self._all)[0]
        if least.moves and fits(self._problem, self._limits, "fewer moves"):
            nearer = relieve(self._problem, self._limits, self._bounds, least.routes)
            self.found += [draft(self._problem, "lp", nearer)] if nearer else []

    def _add(self, solution: Drafts | None) -> None:
        if solution is not None:
            self.found += solution.drafts
            self.proven = stronger(self.proven, solution.proven)


def _in_pieces(route: Route, count: int) -> list[Path]:
    """Return the paths of ``count`` equal pieces, as many on each path as its share allows best."""
    left = {path: count * share for path, share in route}
    paths = []
    for _ in range(count):
        paths.append(max(left, key=left.__getitem__))
        left[paths[-1]] -= 1
    return paths


def is_in_pieces(routes: Routes, most: int) -> bool:
    """Return whether each path of a flow carries one or more of its ``most`` equal pieces."""
    shares = most * np.array([share for route in routes.values() for _, share in route])
    return bool((np.abs(shares - np.round(shares)) <= _PIECE_ROUNDING).all())


def _is_near(problem: Problem, slowdowns: Sequence[float], proven: Sequence[float]) -> bool:
    """Return whether the worst slowdown is near its bound, and there are too many flows to search on."""
    return slowdowns[0] <= proven[0] * (1 + _NEAR) and len(problem.flows) > _FEW


# ---- part by part


def solve_by_part(
    problem: Problem, limits: PlanLimits, bounds: Bounds, drafts: Sequence[Draft], searching: bool = True
) -> Drafts | None:
    """Plan each part, and return the routes of all parts as one candidate, with the proven bounds.

    The result has no candidate when the problem is a single part and the best of ``drafts`` is not improved. If the
    candidate exceeds the cap on moves, the whole problem is searched within the cap; the result is None when this
    search finds nothing. Without ``searching``, return None when a part needs a search."""
    aims = _aims(problem, bounds)
    beyond = [links_beyond(problem, of.numbered or of.routes, aims) for of in drafts]
    routes: dict[FlowId, Route] = {flow.id: whole(()) for flow in problem.flows if flow.src_leaf == flow.dst_leaf}
    proven = bounds.vector
    for flows in _divided_into_parts(problem):
        new = not any(map(problem.is_in_force, flows))
        kept = [
            of.routes
            for of, links in zip(drafts, beyond, strict=True)
            if links.isdisjoint(link for flow in flows for path, _ in of.routes[flow.id] for link in path)
            and (new or all(flow.current in (None, of.routes[flow.id]) for flow in flows))
        ]
        if kept:
            routes |= {flow.id: kept[0][flow.id] for flow in flows}
            continue
        free = replace(limits, max_moves=None)
        part = problem if len(flows) == len(problem.flows) else problem.with_flows(flows)
        optima = 1 if limits.max_moves is None else 2
        of_part = bounds if part is problem else peak_bounds(part)
        found = _of_part(part, of_part, free, aims, drafts, optima, searching)
        if found is None:
            return None
        proven = stronger(proven, _of_all(bounds, found.proven))
        best = found.drafts[0]
        if part is problem and any(best.routes is of.routes for of in drafts):
            return Drafts([], proven)
        routes |= best.routes
    if limits.max_moves is not None and problem.moves(routes) > limits.max_moves:
        capped = search_part(problem, limits, bounds) if searching and fits(problem, limits, "lp") else None
        return capped and capped._replace(proven=stronger(proven, capped.proven))
    return Drafts([draft(problem, "lp", routes)], proven)


def _of_part(
    part: Problem,
    bounds: Bounds,
    limits: PlanLimits,
    aims: Mapping[JobId, float],
    known: Sequence[Draft],
    optima: int,
    searching: bool,
) -> Drafts | None:
    """Return the best candidate of one part, and the bounds that are proven.

    The known candidates and the closed form of ``peeling`` are compared first. When the best of them misses the aim of
    a job, a search follows, if there is time to find ``optima`` fluid optima. With a cap on moves ``optima`` is two,
    because the caller may then search a second time, within the cap."""
    drafts = [of if len(of.routes) == len(part.flows) else _draft(part, of.routes) for of in known]
    common = common_links_of(part, np.arange(len(part.flows)))
    if common:
        peeling_s = (_LINE_S + _CABLE_S * len(np.unique(common.others[0].other))) * len(part.flows)
        routes = peel(part, common, bounds.fluid) if limits.allows("peeling", peeling_s) else None
        drafts += [_draft(part, routes)] if routes else []
    best = best_first(drafts)[0]
    if not best.moves and all(
        slowdown <= aims[job] * (1 + SLOWDOWN_TOLERANCE) for job, slowdown in best.peak_slowdown.items()
    ):
        return Drafts([best], bounds.vector)
    if not searching:
        return None
    found = search_part(part, limits, bounds) if fits(part, limits, "lp", optima) else None
    if found is None:
        return Drafts([best], bounds.vector)
    return found._replace(drafts=[best_first([best, *found.drafts])[0]])


def _divided_into_parts(problem: Problem) -> list[list[Flow]]:
    """Return the flows between leaves that have a path, in parts that share no link between switches.

    All flows are one part where paths have more than two links, or where a leaf also forwards for other leaves."""
    flows, paths = problem.flows, problem.paths
    crossing = [flow for flow in problem.numbers.crossing.tolist() if problem.reachable(flows[flow])]
    pairs = {(flows[flow].src_leaf, flows[flow].dst_leaf) for flow in crossing}
    leaves = {leaf for pair in pairs for leaf in pair}
    next_hops = {paths.far_end[link] for leaf in leaves for link in paths.links_from(leaf)}
    two_links = not paths.stretch and all(paths.distance(src, dst) == 2 for src, dst in pairs)
    numbers = np.array(crossing, np.int64)
    apart = parts(problem.numbers, numbers) if two_links and leaves.isdisjoint(next_hops) else [numbers]
    return [[flows[flow] for flow in part.tolist()] for part in apart]


def _aims(problem: Problem, bounds: Bounds) -> dict[JobId, float]:
    """Return the slowdown of each job when the links of the cuts that it crosses are equally loaded.

    When the capacities of links differ a little, the aim is larger than this slowdown by ``_NEAR_AIM`` (relative)."""
    fabric_bps = np.array([problem.capacity_bps[link] for link in problem.paths.far_end])
    unlike = 1 - float(fabric_bps.min() / fabric_bps.max())
    near = 1 + _NEAR_AIM * (_ALIKE < unlike <= _NEARLY_ALIKE)
    return {job: near * slowdown for job, slowdown in bounds.even.items()}


def _draft(part: Problem, routes: Routes) -> Draft:
    return draft(part, "", {flow.id: routes[flow.id] for flow in part.flows})


def _of_all(bounds: Bounds, proven: Sequence[float]) -> tuple[float, ...]:
    """Return lower bounds of all jobs' sorted slowdowns, derived from the bounds ``proven`` of one part.

    If k entries of ``proven`` equal its worst entry, at least k jobs have this slowdown. When this slowdown is above
    the first entry of ``bounds.vector``, the other entries of ``bounds.vector`` cannot be used, because they assume
    that no job exceeds the first entry. Then each of the other jobs has only its own bound."""
    worst = proven[0] if proven else 1.0
    if not bounds.vector or worst <= bounds.vector[0]:
        return bounds.vector
    count = sum(slowdown >= worst * (1 - SLOWDOWN_TOLERANCE**2) for slowdown in proven)
    return (worst,) * count + tuple(sorted(bounds.job.values(), reverse=True))[count:]


# ---- one part


def search_part(problem: Problem, limits: PlanLimits, bounds: Bounds) -> Drafts | None:
    """Return the best routes found, within the cap on moves if there is a cap; None when no routes are found."""
    search = _Search(problem, limits, bounds)
    routes = search.routes()
    return None if routes is None else Drafts([draft(problem, "lp", routes)], search.proven)


def relieve(problem: Problem, limits: PlanLimits, bounds: Bounds, aim: Routes) -> Routes | None:
    """Return routes with the slowdowns of ``aim`` and few moves; None when there was not enough time.

    With a cap on moves, return the routes with the lowest link loads that are found within it."""
    return _Search(problem, limits, bounds).relieved(aim)


class _Aim(NamedTuple):
    """Goal of a search: the load that each link may have, and amounts of columns that keep to it.

    - ``room``: load that each link may have.
    - ``amounts``: amount of each column of ``fluid``."""

    fluid: FluidModel
    room: Floats
    amounts: Floats


class _Search:
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
        return aim and self._capped(aim)

    def relieved(self, aim: Routes) -> Routes | None:
        """Return routes for ``relieve``.

        A link may have a load up to the smallest slowdown of the jobs on it. A job is barred from links that may have a
        larger load than its slowdown. A link without jobs may have a load up to the smallest slowdown of the jobs that
        could use it."""
        slowdown, links = peak_slowdowns(self._problem, aim), self._problem.link_number
        least = np.full(len(links), np.inf)
        for link, jobs in job_loads(self._problem, aim).items():
            least[links[link]] = min(slowdown[job] for job in jobs)
        ids, used = self._problem.links.ids, least < np.inf
        off = {
            of: frozenset(ids[at] for at in np.flatnonzero(used & (least > of * (1 + SLOWDOWN_TOLERANCE))).tolist())
            for of in set(slowdown.values())
        }
        barred = {job: off[of] for job, of in slowdown.items()}
        fluid = FluidModel(Commodities(self._problem, slowdown, barred), self._before)
        allowed = np.where(used, least, np.minimum(fluid.of.least_slowdown(), max(slowdown.values())))
        fluid.of.amounts(aim)  # adds the columns of ``aim``
        room = allowed * (1 + _REACHED) * fluid.of.capacity
        spread = fluid.improve(Goal(room, fluid.of.capacity), self._limits)
        return self._capped(_Aim(fluid, room, spread.amounts)) if spread else None

    def _divided(self, aim: _Aim) -> Routes:
        return Divider(self._problem, aim.fluid.of, self._before, self._limits).divide(aim.amounts, aim.room)

    # ---- moves

    def _capped(self, aim: _Aim) -> Routes | None:
        """Return routes within the cap on moves, if there is a cap; None when no such routes are found.

        The more room links have, the fewer flows need to move. The room is bisected between the room of the aim and the
        loads of the previous routes."""
        routes = self._divided(aim)
        if self._max_moves is None or self._problem.moves(routes) <= self._max_moves:
            return routes
        found = None
        found_slowdowns: tuple[float, ...] = (math.inf,)
        least, enough = 1.0, aim.fluid.fullness(aim.room)
        for _ in range(_BISECTIONS):
            middle = math.sqrt(least * enough)
            spread = aim.fluid.improve(Goal(aim.room * middle, aim.fluid.of.capacity), self._limits)
            if spread is None:
                break
            routes = self._divided(_Aim(aim.fluid, aim.room * middle, spread.amounts))
            if self._problem.moves(routes) > self._max_moves:
                least = middle
                continue
            enough, slowdowns = middle, sorted_slowdowns(peak_slowdowns(self._problem, routes))
            if slowdowns < found_slowdowns:  # when time runs out, more moves may give larger slowdowns
                found, found_slowdowns = routes, slowdowns
        return found

    # ---- slowdowns

    def _spread(self) -> _Aim | None:
        """Return loads and amounts with slowdowns near ``bounds.even``; None when time runs out.

        The worst slowdown comes first: it must be the smallest possible one, even if some jobs then stay above
        ``bounds.even``."""
        of, worst = Commodities(self._problem, self._bounds.even), self._bounds.worst
        fluid = FluidModel(of, self._before)
        capacity = of.capacity
        room = np.minimum(of.least_slowdown(), worst) * capacity
        spread = fluid.improve(Goal(room, capacity), self._limits)
        if spread is None:
            return None
        if spread.near:
            return _Aim(fluid, room + spread.excess * capacity, spread.amounts)
        looser = room >= worst * capacity * (1 - _REACHED)
        if not looser.all():
            spread = fluid.improve(Goal(worst * capacity, capacity), self._limits) or spread
        if spread.excess > _REACHED:
            worst = self._least_worst(fluid, worst)
        room = np.where(looser, worst * (1 + _REACHED) * capacity, room)
        spread = fluid.improve(Goal(room, np.where(looser, 0.0, capacity)), self._limits) or spread
        return _Aim(fluid, np.maximum(room, of.link_loads(of.loads(spread.amounts))), spread.amounts)

    def _least_worst(self, fluid: FluidModel, worst: float) -> float:
        """Return the smallest worst slowdown of any routing, and store its lower bounds in ``proven``."""
        of = fluid.of
        spread = fluid.optimum(Goal(worst * of.capacity, of.capacity, moves_count=False), self._limits)
        if spread is None:
            return worst
        self.proven = fluid.vector(spread, self._bounds)
        return worst + spread.excess


# ---- whole routes to start from


def start_routes(problem: Problem, limits: PlanLimits) -> dict[FlowId, Route]:
    """Return a whole route for every flow that has a candidate; the better the routes, the fewer flows need splitting.

    Running flows keep their routes; the greedy chooses the others. Flows that must stay whole are placed first, as if
    there were no other flows."""
    rigid = tuple(f for f in problem.flows if f.max_subflows == 1)
    if 0 < len(rigid) < len(problem.flows):
        placed = _whole_routes(problem.with_flows(rigid), limits)
        problem = problem.with_flows(replace(f, current=placed.get(f.id, f.current)) for f in problem.flows)
    return greedy.assign(problem, keep_current=True)


def _whole_routes(problem: Problem, limits: PlanLimits) -> Routes:
    """Return routes of whole flows; running flows may have to move."""
    routes = greedy.assign(problem, keep_current=True)
    bounds = peak_bounds(problem)
    if max(peak_slowdowns(problem, routes).values(), default=1.0) <= bounds.worst or problem.paths.stretch:
        return routes
    return whole_search.local_search(problem, bounds, slowdown_vector(bounds, limits), routes, limits)
