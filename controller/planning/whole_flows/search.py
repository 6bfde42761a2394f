"""Search for whole flows when no closed form is optimal or within the cap on moves: local or tabu search, then CP-SAT.

In: a problem of whole flows and the best candidates so far. Out: further candidates, and lower bounds of the slowdowns,
sorted from the worst. Flows, links and jobs have the numbers of ``Numbers``; a path is a tuple of links. A flow counts
as moved when it is not on its *pinned* path.

Searches aim at the slowdowns that the cuts allow all jobs together (``slowdown_vector``); when they reach them, they
are proven. Local search runs where flows run, because it moves few flows; tabu search (``tabu``) runs where moves have
no cap. CP-SAT (``cpsat``) handles the rest: slowdowns that are not proven, and fewer moves.

In local search every job has a *ceiling* for the loads of the links that it uses. The ceiling of a link is the smallest
ceiling of the jobs on it. A flow without a path takes the path with the least load above ceilings. This flow ejects
flows in its way, which then look for paths, until all flows have a path. Such a chain avoids links on which a flow was
just placed. When all leaves and flows are alike, chains become the alternating paths in two colours of König's theorem
(Kempe chains). Chains also work with missing cables, unequal links and three tiers.

Steps are limited, so that the same input gives the same routes, unless time runs out before the last step.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import structlog

from controller.fabric.topology import Dpid
from controller.planning.bounds import Bounds
from controller.planning.efficiency import SLOWDOWN_TOLERANCE
from controller.planning.greedy import Increments
from controller.planning.plan import Draft, Drafts, best_first, draft, slowdowns_proven
from controller.planning.problem import Floats, FlowId, Ints, PlanLimits, Problem, Route, Routes, link_rows, whole
from controller.planning.slowdown_vector import SlowdownVector, slowdown_vector, stronger
from controller.planning.split_flows.lp import fits, fluid_bound
from controller.planning.whole_flows import cpsat, tabu

log = structlog.get_logger(__name__)
MAX_FLOWS = 20_000
"""Number of flows above which there is no search; it would take many times as long as closed forms and the greedy."""
_VARIABLES_PER_S = 5_000
"""Number of variables with which CP-SAT finds or proves something in a second; one per class of flows and path.

Building a model of ten times that size alone takes a second."""
_LOCAL_S, _TABU_S = 50e-6, 20e-6
"""Seconds per flow until local search has made its first step, and until tabu search has."""
_LOCAL_SHARE = 0.25
"""Share of the remaining time that local search may use when tabu search follows."""
_TABU_SHARE = 0.7
"""Share of the remaining time that tabu search may use if CP-SAT follows; bounds and CP-SAT have the rest."""
_MOVES_SHARE = 0.25
"""Share of the time limit for CP-SAT when all slowdowns are proven, so that only fewer moves are left to find."""
_FLUID_SHARE = 0.25
"""Share of the remaining time for the fluid optimum, which may be a stronger bound than cuts."""
_STEPS_PER_S = 15_000
"""Number of steps that count as a second of the time limit. A step places one flow, and ejects the flows in its way."""
_PATIENCE = 3_500
"""Number of steps without progress (fewer flows without a path) after which an attempt is given up."""
_TRIES = 3
_TRY_STEPS = 15_000
"""Largest number of steps in all tries for the target together.

There are ``_TRIES`` tries, or fewer if ``_TRIES`` tries would need more steps; the first try may always use all of its
steps. The next try often reaches a target that the previous try missed."""
_ATTEMPTS = 4
"""Number of bisections between a slowdown that was reached and a slowdown that was not reached."""
_ATTEMPT_PATIENCE = 1_000
_DESCENT_STEPS = 10_000
"""Number of steps of all attempts of ``descend`` together."""
_AVOIDED = 10
"""Number of steps for which a link is avoided after a flow was placed on it."""
_AVOIDANCE = 3.0
"""Cost of ejecting a flow from a link that is avoided, as a multiple of the excess load of the link."""
_MOVE = 0.5
"""Cost of ejecting a flow from its pinned path, as a multiple of the excess load of the link.

The cost applies when all flows on the link are on their pinned paths."""
_EXTRA_MOVE = 100.0
"""Cost that replaces ``_MOVE`` when no more flows may move."""
_NOISE = 1e-3
"""Random cost, in slowdowns, that decides between equally good paths."""
_ROUNDS = 3
"""Number of routings in a row that save no moves, after which the search for fewer moves ends."""
_DETOUR = 40
"""Number of steps to place other flows so that one flow can return to its pinned path."""
_ROUNDING = 1e-7
"""Load of a link beyond its ceiling that still counts as within the ceiling."""
Links = tuple[int, ...]


def solve(problem: Problem, limits: PlanLimits, bounds: Bounds, best: Draft, kept: Draft) -> Drafts:
    """Return candidates and bounds. No candidate has needless moves, but some may exceed ``limits.max_moves``.

    ``kept``: the candidate with the fewest moves."""
    target = slowdown_vector(bounds, limits)
    if len(problem.flows) > MAX_FLOWS:
        return Drafts([], target.slowdowns)
    free, searched = limits.max_moves is None or not problem.runs, list[Draft]()
    if problem.runs:
        searched = _search(problem, limits.part(_LOCAL_SHARE) if free else limits, bounds, target, kept)
        best = best_first([best, *searched])[0]
    if free and slowdowns_proven(best.vector, target.slowdowns) < len(best.vector):
        part = limits.part(_TABU_SHARE) if _fits_cpsat(problem, limits) else limits
        searched += _by_tabu(problem, part, bounds, target.slowdowns, best)
        best = best_first([best, *searched])[0]
    settled = slowdowns_proven(best.vector, target.slowdowns) == len(best.vector)
    settled &= limits.max_moves is None or best.moves <= limits.max_moves
    if settled:
        limits = replace(limits, time_limit_s=_MOVES_SHARE * limits.time_limit_s)
    if settled and not best.moves:
        return Drafts(searched, target.slowdowns)
    known = _stronger_bound(problem, limits, bounds, target.slowdowns, best)
    if not _fits_cpsat(problem, limits):
        return Drafts(searched, known)
    found = _by_cpsat(problem, limits, bounds, known, best, kept)
    return found._replace(drafts=[*found.drafts, *searched])


def _stronger_bound(
    problem: Problem, limits: PlanLimits, bounds: Bounds, known: tuple[float, ...], best: Draft
) -> tuple[float, ...]:
    """Return ``known``, or the stronger bounds of the fluid optimum, if they are needed and there is time."""
    if slowdowns_proven(best.vector[:1], known[:1]):
        return known
    part = replace(limits.sooner((1 - _FLUID_SHARE) * min(limits.left_s, limits.time_limit_s)), left_out=[])
    if not fits(problem, part, "fluid bound"):
        return known
    return stronger(known, fluid_bound(problem, best.routes, bounds, part))


def _by_tabu(problem: Problem, limits: PlanLimits, bounds: Bounds, least: Sequence[float], best: Draft) -> list[Draft]:
    """Return the candidate that tabu search finds from ``best``, and an equally good candidate with fewer moves."""
    if not limits.allows("tabu search", _TABU_S * len(problem.flows)):
        return []
    try:
        routes = tabu.improved(problem, bounds, least, best.routes, limits)
        if routes is None:
            return []
        found = draft(problem, "tabu-search", routes)
        if not found.moves:
            return [found]
        aim = SlowdownVector(found.vector, found.peak_slowdown)
        return [found, draft(problem, "tabu-search", local_search(problem, bounds, aim, routes, limits))]
    except Exception:
        log.exception("tabu search failed; using the candidates of other solvers", generation=problem.generation)
        return []


def _search(problem: Problem, limits: PlanLimits, bounds: Bounds, target: SlowdownVector, kept: Draft) -> list[Draft]:
    """Return the candidate of local search from ``kept``; none without a change, without time, or with detours."""
    if problem.paths.stretch or not limits.allows("local search", _LOCAL_S * len(problem.flows)):
        return []
    try:
        routes = local_search(problem, bounds, target, kept.routes, limits)
    except Exception:
        log.exception("local search failed; using the candidates of other solvers", generation=problem.generation)
        return []
    limits.allows("the rest of local search", 0.0)
    return [] if routes == kept.routes else [draft(problem, "local-search", routes)]


def _fits_cpsat(problem: Problem, limits: PlanLimits) -> bool:
    """Return whether the CP-SAT model is small enough; most paths are counted without finding them."""
    paths, left = problem.paths, _VARIABLES_PER_S * limits.time_limit_s
    for _, _, src, dst in {(flow.job_id, flow.demand_bps, flow.src_leaf, flow.dst_leaf) for flow in problem.flows}:
        two_links = not paths.stretch and paths.distance(src, dst) == 2
        left -= len(paths.links_from(src) if two_links else paths.between(src, dst)) if src != dst else 0
        if left < 0:
            return False
    return True


def _by_cpsat(
    problem: Problem, limits: PlanLimits, bounds: Bounds, known: tuple[float, ...], best: Draft, kept: Draft
) -> Drafts:
    """Return the candidates of CP-SAT, and bounds. ``known``: lower bounds that are proven without CP-SAT.

    With a cap on moves, half of the time is spent on the problem without the cap: its proofs hold for all routings,
    and its fewest moves are often within the cap."""
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


# ---- local search


def local_search(
    problem: Problem, bounds: Bounds, target: SlowdownVector, start: Routes, limits: PlanLimits
) -> dict[FlowId, Route]:
    """Return routes with the slowdowns of ``target``, or with slowdowns near them, the worst slowdowns first.

    If the slowdowns of ``target`` are not reached, and no flow runs, the routes are those of the start: tabu search and
    CP-SAT then find better routes. Where flows run, few moves count, too, and routes near ``target`` are a good start.
    The routes have at most ``limits.max_moves`` moves, unless ``start`` has more. ``start``: a route for every flow
    that has a candidate."""
    state = LocalSearch(problem, start, limits)
    steps = _useful_steps(len(problem.flows))
    ceilings: Sequence[float] = [target.ceiling.get(job, math.inf) for job in problem.numbers.job_ids]
    if not any(state.reach(ceilings, steps, _PATIENCE) for _ in range(max(1, min(_TRIES, _TRY_STEPS // steps)))):
        if not problem.runs:
            return state.routes()
        floors = [bounds.job.get(job, 1.0) for job in problem.numbers.job_ids]
        apart = min(filter(None, bounds.cuts.steps().tolist()), default=0.0)
        ceilings = state.descend(target.slowdowns[0], floors, apart, min(steps, _DESCENT_STEPS))
    state.save_moves(ceilings, steps)
    return state.routes()


def _useful_steps(flows: int) -> int:
    """Return the number of steps after which success is unlikely; success mostly takes a tenth of this number."""
    return max(1, min(40 * flows, 4_000 + 6 * flows))


class LocalSearch:
    """Routing that changes step by step. ``loads``: loads and limits, if they are not those of ``CappedLoads``.

    Slowdowns and ceilings of jobs are lists, in the order of ``Numbers.job_ids``."""

    def __init__(self, problem: Problem, start: Routes, limits: PlanLimits, loads: CappedLoads | None = None) -> None:
        self._problem = problem
        self._start = start
        self._loads = loads or CappedLoads(problem)
        self._begin: list[Links | None] = [None] * len(problem.flows)
        self._keeps_pins = False
        """Whether flows stay on their pinned paths once as many flows have moved as the cap allows."""
        self._apart = 0.0
        self._most_moves = len(problem.flows) if limits.max_moves is None else limits.max_moves
        self._left = int(limits.time_limit_s * _STEPS_PER_S)
        self._limits = limits
        self._step = 0
        self._placed_at = [-_AVOIDED] * len(problem.flows)
        self._avoided_until = np.zeros(len(problem.capacity_bps), np.int64)
        self._waiting: list[int] = []
        """Flows that have no path now."""
        self._before: dict[int, Links] = {}
        """Paths of flows that were ejected since a routing was last accepted."""
        self._random = random.Random(limits.seed)
        self._noise = np.random.default_rng(limits.seed)
        for index, flow in enumerate(problem.flows):
            if flow.src_leaf == flow.dst_leaf or flow.id not in start:
                continue
            if flow.current is not None and len(flow.current) == 1 and problem.is_in_force(flow):
                self._loads.pin(index, _numbered(flow.current, problem))
            self._begin[index] = path = _numbered(start[flow.id], problem)
            self._loads.put(index, path)
        self._ceilings = self._loads.slowdowns()

    @property
    def _over(self) -> bool:
        return self._limits.left_s <= 0

    def reach(self, ceilings: Sequence[float], steps: int, patience: int) -> bool:
        """Search for a routing within the ceilings and the cap on moves; return whether a routing was found.

        If no routing was found, or if the time is over, the previous routing stays."""
        if self._over:
            return False
        before = self._ceilings, list(self._loads.at)
        found = self._within(ceilings, steps, patience)
        if found and self._loads.moves > self._most_moves:
            self._undo_moves(self._step + min(steps, self._left))
        if found and self._loads.moves > self._most_moves:
            self._return_to(before[1])
            found = not self._keeps_pins and self._within_moves(ceilings, steps, patience)
        if not found:
            self._return_to(before[1])
            self._ceilings = before[0]
            self._loads.limit(self._ceilings)
        return found

    def _within_moves(self, ceilings: Sequence[float], steps: int, patience: int) -> bool:
        """Search within the cap on moves, from now on with pinned paths kept when the cap is reached."""
        self._keeps_pins = True
        return self._within(ceilings, steps, patience) and self._loads.moves <= self._most_moves

    def _within(self, ceilings: Sequence[float], steps: int, patience: int) -> bool:
        self._loads.limit(ceilings)
        for link in self._loads.all_full():
            if self._over:
                break
            self._eject_from(link, None)
        self._random.shuffle(self._waiting)
        self._waiting.sort(key=self._loads.peak_bps.__getitem__)
        if not self._over and self._place_all(steps, patience):
            self._before.clear()
            self._ceilings = list(ceilings)
            return True
        self._restore_accepted()
        self._loads.limit(self._ceilings)
        return False

    def descend(self, least: float, floors: Sequence[float], apart: float, steps: int) -> Sequence[float]:
        """Lower the slowdowns one after the other, and return the ceilings that were reached.

        First the worst slowdown is brought as near to ``least`` as possible. Then the slowdowns of single jobs, the
        worst first, are brought as near to their ``floors`` as possible without raising the slowdown of another job.
        ``apart``: smallest difference between two slowdowns. ``steps``: number of steps of all attempts together."""
        end = self._step + min(steps, self._left)
        self._apart = apart * (1 + SLOWDOWN_TOLERANCE)
        reached = self._loads.slowdowns()
        self._bisect_to(least, max(reached), lambda goal: [max(goal, floor) for floor in floors], end)
        reached = self._loads.slowdowns()
        flows = Counter(self._loads.job)
        for job in sorted(range(len(reached)), key=lambda job: (-reached[job], flows[job])):
            if self._over:
                break
            now = [max(slowdown, floor) for slowdown, floor in zip(self._loads.slowdowns(), floors, strict=True)]
            self._bisect_to(floors[job], now[job], partial(_with, now, job), end)
        return [max(slowdown, floor) for slowdown, floor in zip(self._loads.slowdowns(), floors, strict=True)]

    def _bisect_to(self, least: float, reached: float, ceilings: Callable[[float], Sequence[float]], end: int) -> None:
        if reached <= least * (1 + SLOWDOWN_TOLERANCE) or self.reach(
            ceilings(least), end - self._step, _ATTEMPT_PATIENCE
        ):
            return
        for _ in range(_ATTEMPTS):
            if reached - least <= self._apart:
                return
            goal = (least + reached) / 2
            if self.reach(ceilings(goal), end - self._step, _ATTEMPT_PATIENCE):
                reached = goal
            else:
                least = goal

    def save_moves(self, ceilings: Sequence[float], steps: int) -> None:
        """Undo moves, then start again with other random numbers, and keep the routing with the fewest moves.

        The search ends when no move was saved ``_ROUNDS`` times in a row, or after ``steps`` steps."""
        end = self._step + min(steps, self._left)
        fewest, best, rounds = math.inf, self._begin, 0
        while rounds < _ROUNDS:
            self._undo_moves(end)
            moves = self._loads.moves
            rounds = 0 if moves < fewest else rounds + 1
            if moves < fewest:
                fewest, best = moves, list(self._loads.at)
            if not moves or self._step >= end or self._over:
                break
            self._return_to(self._begin)
            if not self._within(ceilings, end - self._step, _ATTEMPT_PATIENCE):
                break
        self._return_to(best)

    def _undo_moves(self, end: int) -> None:
        """Return flows to pinned paths one by one until step ``end``; flows in the way must not need more moves."""
        moved = self._moved_flows()
        while moved and self._step < end and not self._over:
            flow = moved.pop()
            pinned = self._loads.pinned[flow]
            if pinned is None or self._loads.at[flow] == pinned:
                continue
            self._eject(flow)
            placed = self._place(flow, pinned) and self._place_all(_DETOUR, _DETOUR)
            change = sum(self._is_moved(of) - (was != self._loads.pinned[of]) for of, was in self._before.items())
            if not placed or change > 0:
                self._restore_accepted()
                continue
            self._before.clear()
            if change < 0:
                moved = self._moved_flows()

    def _return_to(self, at: Sequence[Links | None]) -> None:
        changed = [flow for flow, path in enumerate(at) if path != self._loads.at[flow]]
        for flow in changed:
            self._loads.remove(flow)
        for flow in changed:
            path = at[flow]
            if path is not None:
                self._loads.put(flow, path)

    def routes(self) -> dict[FlowId, Route]:
        routes = dict(self._start)
        for index, path in enumerate(self._loads.at):
            flow = self._problem.flows[index]
            if path is not None and (path != self._begin[index] or len(self._start[flow.id]) > 1):
                number = int((self._loads.paths(index) == path).all(axis=1).argmax())
                routes[flow.id] = whole(self._problem.candidates(flow)[number])
        return routes

    # ---- one step

    def _place_all(self, steps: int, patience: int) -> bool:
        """Place all waiting flows within ``steps`` steps; return whether all have a path.

        Give up after ``patience`` steps in which the number of waiting flows has not decreased."""
        end = self._step + min(steps, self._left)
        fewest, since = len(self._waiting), self._step
        while self._waiting and self._left and self._step < min(end, since + patience):
            self._step += 1
            self._left = 0 if self._over else self._left - 1
            flow = self._waiting.pop()
            path = self._choose(flow)
            if path is None or not self._place(flow, path):
                return False
            if len(self._waiting) < fewest:
                fewest, since = len(self._waiting), self._step
        return not self._waiting

    def _choose(self, flow: int) -> Links | None:
        """Return the path with the smallest excess and surcharges; None when the flow is too large for any path."""
        paths = self._loads.paths(flow)
        avoided = self._avoided_until[paths] > self._step
        all_on_pins = self._loads.off_pin[paths] == 0
        move = _EXTRA_MOVE if self._all_moved() else _MOVE
        cost = (self._loads.excess(flow, paths) * (1 + _AVOIDANCE * avoided + move * all_on_pins)).sum(axis=1)
        cost += _NOISE * self._noise.random(len(cost))
        pinned = self._loads.pinned[flow]
        if pinned is not None:
            cost[(paths == pinned).all(axis=1)] -= 2 * _NOISE
        best = int(cost.argmin())
        return tuple(paths[best].tolist()) if math.isfinite(cost[best]) else None

    def _place(self, flow: int, path: Links) -> bool:
        """Put a flow on a path and eject the flows in its way; return False when that is not possible."""
        self._loads.put(flow, path)
        self._placed_at[flow] = self._step
        self._avoided_until[list(path)] = self._step + _AVOIDED
        return all(self._eject_from(link, flow) for link in path)

    def _eject_from(self, link: int, staying: int | None) -> bool:
        """Eject flows until the link is within its ceiling; return False when ``staying`` alone exceeds it."""
        while self._loads.full(link):
            others = (flow for flow in self._loads.on(link) if flow != staying)
            ejected = min(others, key=self._ejection_order(link), default=None)
            if ejected is None:
                return False
            self._eject(ejected)
            self._waiting.append(ejected)
        return True

    def _ejection_order(self, link: int) -> Callable[[int], tuple[object, ...]]:
        """Return the sort key of flows on a link: the flow with the smallest key is ejected first.

        The criteria, the most important first: the flow may move; without the flow, the link is within its ceiling; the
        flow was not just placed; the flow is not on its pinned path. Among flows that relieve the link the smallest
        flow is ejected first, among other flows the largest."""
        loads = self._loads
        all_moved = self._all_moved()

        def order(flow: int) -> tuple[bool, bool, bool, bool, float, float]:
            relieves = loads.relieves(flow, link)
            weight = loads.weight(flow, link)
            recent = self._placed_at[flow] > self._step - _AVOIDED
            on_pin = loads.at[flow] == loads.pinned[flow]
            may = not (on_pin and all_moved)
            return not may, not relieves, recent, on_pin, weight if relieves else -weight, self._random.random()

        return order

    def _eject(self, flow: int) -> None:
        path = self._loads.at[flow]
        if path is not None:
            self._before.setdefault(flow, path)
            self._loads.remove(flow)

    def _restore_accepted(self) -> None:
        for flow in self._before:
            if self._loads.at[flow] is not None:
                self._loads.remove(flow)
        for flow, path in self._before.items():
            self._loads.put(flow, path)
        self._before.clear()
        self._waiting.clear()

    def _all_moved(self) -> bool:
        return self._keeps_pins and self._loads.moves >= self._most_moves

    def _is_moved(self, flow: int) -> bool:
        return self._loads.at[flow] != self._loads.pinned[flow]

    def _moved_flows(self) -> list[int]:
        moved = [flow for flow, path in enumerate(self._loads.pinned) if path is not None and self._is_moved(flow)]
        self._random.shuffle(moved)
        return moved


def _with(slowdowns: Sequence[float], job: int, slowdown: float) -> list[float]:
    return [*slowdowns[:job], slowdown, *slowdowns[job + 1 :]]


def _numbered(route: Route, problem: Problem) -> Links:
    return tuple([problem.link_number[link] for link in route[0].path])


# ---- loads under ceilings


class CappedLoads:
    """Loads and ceilings of links, and paths of flows.

    - ``load``, ``ceiling``: per link; the ceiling of a link without flows is infinite.
    - ``off_pin``: per link the number of its flows that are not on their pinned path.
    - ``at``: per flow its path, None while it has no path.
    - ``pinned``: per flow its pinned path, None for a flow that is not pinned.
    - ``moves``: number of flows that are not on their pinned path.
    - ``job``, ``peak_bps``: per flow its job and its largest demand."""

    def __init__(self, problem: Problem) -> None:
        numbers = problem.numbers
        links = len(numbers.capacity_bps)
        self.load = np.zeros(links)
        self.ceiling = np.full(links, np.inf)
        self.off_pin = np.zeros(links, np.int64)
        self.at: list[Links | None] = [None] * len(problem.flows)
        self.pinned: list[Links | None] = [None] * len(problem.flows)
        self.moves = 0
        self.job: list[int] = numbers.job.tolist()
        self._problem = problem
        self._limit = [np.inf] * len(numbers.job_ids)
        self.peak_bps: list[float] = numbers.peak_bps.tolist()
        self._increments = Increments(problem, numbers.capacity_bps)
        self._flows_on: list[dict[int, None]] = [{} for _ in range(links)]
        self._jobs_on: list[dict[int, int]] = [{} for _ in range(links)]
        self._paths: dict[tuple[Dpid, Dpid], Ints] = {}

    def pin(self, flow: int, path: Links) -> None:
        """Set the pinned path of a flow that has neither a pinned path nor a path yet."""
        self.pinned[flow] = path
        self.moves += 1

    def limit(self, limits: Sequence[float]) -> None:
        """Set the ceiling of every job."""
        self._limit = list(limits)
        for link, jobs in enumerate(self._jobs_on):
            if jobs:
                self.ceiling[link] = self._least(jobs)

    def paths(self, flow: int) -> Ints:
        """Return the candidate paths of the flow in the problem's order, one row of link numbers per path."""
        ends = self._problem.flows[flow]
        pair = (ends.src_leaf, ends.dst_leaf)
        if pair not in self._paths:
            self._paths[pair] = link_rows(self._problem.candidates(ends), self._problem.link_number)
        return self._paths[pair]

    def put(self, flow: int, path: Links) -> None:
        """Put a flow that has no path yet on ``path``."""
        job = self.job[flow]
        limit = self._limit[job]
        off_pin = path != self.pinned[flow]
        self.moves -= not off_pin
        self._increments.count(flow, path)
        for link in path:
            self.load[link] += self._increments.weight(flow, link)
            self._flows_on[link][flow] = None
            jobs = self._jobs_on[link]
            jobs[job] = jobs.get(job, 0) + 1
            if limit < self.ceiling[link]:
                self.ceiling[link] = limit
            self.off_pin[link] += off_pin
        self.at[flow] = path

    def remove(self, flow: int) -> None:
        """Remove the flow from its path."""
        path = self.at[flow] or ()
        job = self.job[flow]
        off_pin = path != self.pinned[flow]
        self.moves += not off_pin
        for link in path:
            self.load[link] -= self._increments.weight(flow, link)
            del self._flows_on[link][flow]
            self.off_pin[link] -= off_pin
            jobs = self._jobs_on[link]
            jobs[job] -= 1
            if not jobs[job]:
                del jobs[job]
                self.ceiling[link] = self._least(jobs)
        self._increments.count(flow, path, -1)
        self.at[flow] = None

    def excess(self, flow: int, paths: Ints) -> Floats:
        """Return by how much each link of these paths would exceed its ceiling if the flow used the link.

        The flow also lowers the ceiling of a link to the ceiling of its own job, if that is smaller. The excess is
        infinite when the flow alone exceeds the ceiling of its job."""
        limit = self._limit[self.job[flow]]
        added = self._increments.added(flow, paths)
        beyond: Floats = self.load[paths] + added - np.minimum(self.ceiling[paths], limit)
        beyond[beyond < _ROUNDING] = 0.0
        beyond[self._increments.alone(flow, paths) > limit + _ROUNDING] = np.inf
        return beyond

    def slowdowns(self) -> list[float]:
        """Return for each job the largest load of a link that it uses, at least 1; NICs do not count."""
        slowdowns = [1.0] * len(self._limit)
        for jobs, load in zip(self._jobs_on, self.load.tolist(), strict=True):
            for job in jobs:
                slowdowns[job] = max(slowdowns[job], load)
        return slowdowns

    def full(self, link: int) -> bool:
        """Return whether the load of the link exceeds its ceiling."""
        return bool(self.load[link] > self.ceiling[link] + _ROUNDING)

    def all_full(self) -> list[int]:
        """Return the links whose load exceeds their ceiling."""
        links: list[int] = np.flatnonzero(self.load > self.ceiling + _ROUNDING).tolist()
        return links

    def on(self, link: int) -> Collection[int]:
        """Return the flows on the link, in the order in which they were added."""
        return self._flows_on[link]

    def weight(self, flow: int, link: int) -> float:
        """Return the load that the link loses when the flow leaves it."""
        return self._increments.weight(flow, link)

    def relieves(self, flow: int, link: int) -> bool:
        """Return whether the load of the link would be within its ceiling without the flow."""
        jobs = self._jobs_on[link]
        job = self.job[flow]
        ceiling = self.ceiling[link] if jobs[job] > 1 else self._least(other for other in jobs if other != job)
        return bool(self.load[link] - self._increments.weight(flow, link) <= ceiling + _ROUNDING)

    def _least(self, jobs: Iterable[int]) -> float:
        return min([self._limit[job] for job in jobs], default=np.inf)
