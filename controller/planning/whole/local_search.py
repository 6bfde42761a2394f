"""Whole flows on irregular fabrics, by ejection chains: a routing in which no job exceeds its ceiling, with few moves.

A flow without a path takes the one on which the least is in its way; what is in its way is ejected and looks for a path
itself, until all have one. Links that somebody has just come to are avoided for a while, so that a chain does not turn
back on itself. Where all leaves and flows are alike, chains become the alternating paths in two colours with which
König's theorem colours the edges of a bipartite graph (Kempe chains); but they also find their way around missing
cables, over unequal links and through three tiers. Nothing is proven here: ``level_vector`` says what to aim at, and
that no routing does better.

In: a ``Problem``, what to aim at, routes to begin from. Out: routes. Steps are limited, not time:
the same input gives the same routes.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from controller.planning.bounds import Bounds
from controller.planning.efficiency import LEVEL_TOLERANCE
from controller.planning.level_vector import LevelVector
from controller.planning.problem import FlowId, PlanLimits, Problem, Route, Routes, whole
from controller.planning.whole.capped_loads import CappedLoads, Links

_STEPS_PER_S = 15_000
"""A step is what is done to give one flow a path; so many take about a second."""
_PATIENCE = 3_500
"""Steps in which the flows without a path do not become fewer, until an attempt is given up."""
_TRIES = 3
_TRY_STEPS = 15_000
"""So often the target is tried, if all tries fit into so many steps: what one misses the next one often finds."""
_ATTEMPTS = 4
"""To halve the distance between a level that was reached and one that was not."""
_ATTEMPT_PATIENCE = 1_000
_DESCENT_STEPS = 10_000
"""For all those attempts together."""
_AVOIDED = 10
"""Steps for which a link is avoided after somebody has come to it."""
_AVOIDANCE = 3.0
"""What it costs to eject somebody from such a link, in times the excess."""
_HOMELY = 0.5
"""What it costs to eject somebody from home, because there is nobody else on the link, in times the excess."""
_FORBIDDEN = 100.0
"""The same when no more flows may move."""
_NOISE = 1e-3
"""Of a level: decides between equally good paths."""
_ROUNDS = 3
"""Routings that do not have fewer moves than the best before the search for them ends."""
_DETOUR = 40
"""Steps that others may take to let one flow go home."""


def search(
    problem: Problem, bounds: Bounds, target: LevelVector, start: Routes, limits: PlanLimits
) -> dict[FlowId, Route]:
    """Routes with the levels of ``target``, or else with levels as near to it as could be found, the worst ones first;
    with at most ``limits.max_moves``, unless ``start`` has more. ``start``: a route for every flow that has a
    candidate."""
    walk = _Walk(problem, start, limits)
    steps = _worth_it(len(problem.flows))
    ceilings: Sequence[float] = [target.ceiling.get(job, math.inf) for job in problem.numbers.job_ids]
    if not any(walk.reach(ceilings, steps, _PATIENCE) for _ in range(max(1, min(_TRIES, _TRY_STEPS // steps)))):
        floors = [bounds.job.get(job, 1.0) for job in problem.numbers.job_ids]
        apart = min(filter(None, bounds.cuts.steps().tolist()), default=0.0)
        ceilings = walk.descend(target.levels[0], floors, apart, min(steps, _DESCENT_STEPS))
    walk.save_moves(ceilings, steps)
    return walk.routes()


def _worth_it(flows: int) -> int:
    """Steps: what reaches its aim at all mostly does so in a tenth of them."""
    return max(1, min(40 * flows, 4_000 + 6 * flows))


class _Walk:
    """A routing that changes step by step. ``_waiting``: flows without a path at the moment. ``_was``: where flows were
    that have left since a routing was last accepted. ``_frugal``: flows stay at home when as many have left as may.
    Jobs' levels and ceilings are lists, in the order of ``Numbers.job_ids``."""

    def __init__(self, problem: Problem, start: Routes, limits: PlanLimits) -> None:
        self._problem = problem
        self._start = start
        self._loads = CappedLoads(problem)
        self._begin: list[Links | None] = [None] * len(problem.flows)
        self._frugal = False
        self._apart = 0.0
        self._most_moves = len(problem.flows) if limits.max_moves is None else limits.max_moves
        self._left = int(limits.time_limit_s * _STEPS_PER_S)
        self._step = 0
        self._came = [-_AVOIDED] * len(problem.flows)
        self._avoided_until = np.zeros(len(problem.capacity_bps), np.int64)
        self._waiting: list[int] = []
        self._was: dict[int, Links] = {}
        self._random = random.Random(limits.seed)
        self._noise = np.random.default_rng(limits.seed)
        for index, flow in enumerate(problem.flows):
            if flow.src_leaf == flow.dst_leaf or flow.id not in start:
                continue
            if flow.current is not None and len(flow.current) == 1 and problem.stands(flow):
                self._loads.settle(index, _numbered(flow.current, problem))
            self._begin[index] = path = _numbered(start[flow.id], problem)
            self._loads.put(index, path)
        self._ceilings = self._loads.levels()

    def reach(self, ceilings: Sequence[float], steps: int, patience: int) -> bool:
        """Whether a routing was found that keeps to the ceilings and to the moves that are allowed; if not, the routing
        is what it was before."""
        before = self._ceilings, list(self._loads.at)
        found = self._within(ceilings, steps, patience)
        if found and self._loads.away > self._most_moves:
            self._go_home(self._step + min(steps, self._left))
        if found and self._loads.away > self._most_moves:
            self._return_to(before[1])
            found = not self._frugal and self._within_moves(ceilings, steps, patience)
        if not found:
            self._return_to(before[1])
            self._ceilings = before[0]
            self._loads.limit(self._ceilings)
        return found

    def _within_moves(self, ceilings: Sequence[float], steps: int, patience: int) -> bool:
        """The same, now and from now on protecting the homes of the flows that may not move any more."""
        self._frugal = True
        return self._within(ceilings, steps, patience) and self._loads.away <= self._most_moves

    def _within(self, ceilings: Sequence[float], steps: int, patience: int) -> bool:
        """The same for any number of moves."""
        self._loads.limit(ceilings)
        for link in self._loads.all_full():
            self._clear(link, None)
        self._random.shuffle(self._waiting)
        self._waiting.sort(key=self._loads.peak_bps.__getitem__)
        if self._settle(steps, patience):
            self._was.clear()
            self._ceilings = list(ceilings)
            return True
        self._undo()
        self._loads.limit(self._ceilings)
        return False

    def descend(self, least: float, floors: Sequence[float], apart: float, steps: int) -> Sequence[float]:
        """What is reached: the worst level as near to ``least`` as can be found; then the levels of the jobs, the worst
        first, as near to their ``floors``, no other getting worse than it is. ``apart``: how far levels are from each
        other at least. ``steps``: for all attempts."""
        end = self._step + min(steps, self._left)
        self._apart = apart * (1 + LEVEL_TOLERANCE)
        reached = self._loads.levels()
        self._lower(least, max(reached), lambda goal: [max(goal, floor) for floor in floors], end)
        reached = self._loads.levels()
        flows = Counter(self._loads.job)
        for job in sorted(range(len(reached)), key=lambda job: (-reached[job], flows[job])):
            now = [max(level, floor) for level, floor in zip(self._loads.levels(), floors, strict=True)]
            self._lower(floors[job], now[job], partial(_with, now, job), end)
        return [max(level, floor) for level, floor in zip(self._loads.levels(), floors, strict=True)]

    def _lower(self, least: float, reached: float, ceilings: Callable[[float], Sequence[float]], end: int) -> None:
        """Tries ``least``, then what is halfway between the last failure and what was reached."""
        if reached <= least * (1 + LEVEL_TOLERANCE) or self.reach(ceilings(least), end - self._step, _ATTEMPT_PATIENCE):
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
        """Takes moves back, then begins anew to see whether chance is kinder, until ``_ROUNDS`` times in a row it is
        not, or after so many steps."""
        end = self._step + min(steps, self._left)
        fewest, best, rounds = math.inf, self._begin, 0
        while rounds < _ROUNDS:
            self._go_home(end)
            moves = self._loads.away
            rounds = 0 if moves < fewest else rounds + 1
            if moves < fewest:
                fewest, best = moves, list(self._loads.at)
            if not moves or self._step >= end:
                break
            self._return_to(self._begin)
            if not self._within(ceilings, end - self._step, _ATTEMPT_PATIENCE):
                break
        self._return_to(best)

    def _go_home(self, end: int) -> None:
        """Until step ``end``: one flow goes home, and whoever is in its way finds another path without more moves in
        all."""
        away = self._away()
        while away and self._step < end:
            flow = away.pop()
            home = self._loads.home[flow]
            if home is None or self._loads.at[flow] == home:
                continue
            self._leave(flow)
            settled = self._come(flow, home) and self._settle(_DETOUR, _DETOUR)
            change = sum(self._is_away(of) - (was != self._loads.home[of]) for of, was in self._was.items())
            if not settled or change > 0:
                self._undo()
                continue
            self._was.clear()
            if change < 0:
                away = self._away()

    def _return_to(self, at: Sequence[Links | None]) -> None:
        """Every flow to where it was."""
        changed = [flow for flow, path in enumerate(at) if path != self._loads.at[flow]]
        for flow in changed:
            self._loads.take(flow)
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

    def _settle(self, steps: int, patience: int) -> bool:
        """Whether all flows have a path, after so many steps at the most; ``patience``: and after so many in which the
        flows without one have not become fewer."""
        end = self._step + min(steps, self._left)
        fewest, since = len(self._waiting), self._step
        while self._waiting and self._step < min(end, since + patience):
            self._step += 1
            self._left -= 1
            flow = self._waiting.pop()
            path = self._choose(flow)
            if path is None or not self._come(flow, path):
                return False
            if len(self._waiting) < fewest:
                fewest, since = len(self._waiting), self._step
        return not self._waiting

    def _choose(self, flow: int) -> Links | None:
        """The path with the least in the flow's way; None when the flow is too large for any."""
        paths = self._loads.paths(flow)
        avoided = self._avoided_until[paths] > self._step
        homely = self._loads.strays[paths] == 0
        worth = _FORBIDDEN if self._all_moved() else _HOMELY
        cost = (self._loads.excess(flow, paths) * (1 + _AVOIDANCE * avoided + worth * homely)).sum(axis=1)
        cost += _NOISE * self._noise.random(len(cost))
        home = self._loads.home[flow]
        if home is not None:
            cost[(paths == home).all(axis=1)] -= 2 * _NOISE
        best = int(cost.argmin())
        return tuple(paths[best].tolist()) if math.isfinite(cost[best]) else None

    def _come(self, flow: int, path: Links) -> bool:
        """Puts a flow on a path and ejects what is in its way; False when that is not possible."""
        self._loads.put(flow, path)
        self._came[flow] = self._step
        self._avoided_until[list(path)] = self._step + _AVOIDED
        return all(self._clear(link, flow) for link in path)

    def _clear(self, link: int, staying: int | None) -> bool:
        """Ejects flows until the link is not full; False when ``staying`` alone is too much."""
        while self._loads.full(link):
            leaver = min(
                (flow for flow in self._loads.on(link) if flow != staying), key=self._worth(link), default=None
            )
            if leaver is None:
                return False
            self._leave(leaver)
            self._waiting.append(leaver)
        return True

    def _worth(self, link: int) -> Callable[[int], tuple[object, ...]]:
        """Smallest for the flow that had best leave: one that may, that is enough, that has not just come, that is not
        at home; the smallest that is enough, or else the largest."""
        loads = self._loads
        all_moved = self._all_moved()

        def worth(flow: int) -> tuple[bool, bool, bool, bool, float, float]:
            enough = loads.relieves(flow, link)
            weight = loads.weight(flow, link)
            recent = self._came[flow] > self._step - _AVOIDED
            at_home = loads.at[flow] == loads.home[flow]
            may = not (at_home and all_moved)
            return not may, not enough, recent, at_home, weight if enough else -weight, self._random.random()

        return worth

    def _leave(self, flow: int) -> None:
        path = self._loads.at[flow]
        if path is not None:
            self._was.setdefault(flow, path)
            self._loads.take(flow)

    def _undo(self) -> None:
        """Back to the routing that was last accepted."""
        for flow in self._was:
            if self._loads.at[flow] is not None:
                self._loads.take(flow)
        for flow, path in self._was.items():
            self._loads.put(flow, path)
        self._was.clear()
        self._waiting.clear()

    def _all_moved(self) -> bool:
        """Whether no more flows may leave their homes."""
        return self._frugal and self._loads.away >= self._most_moves

    def _is_away(self, flow: int) -> bool:
        return self._loads.at[flow] != self._loads.home[flow]

    def _away(self) -> list[int]:
        """Flows that have a home and are not there, in random order."""
        away = [flow for flow, home in enumerate(self._loads.home) if home is not None and self._is_away(flow)]
        self._random.shuffle(away)
        return away


def _with(levels: Sequence[float], job: int, level: float) -> list[float]:
    return [*levels[:job], level, *levels[job + 1 :]]


def _numbered(route: Route, problem: Problem) -> Links:
    """The links of its first piece."""
    return tuple([problem.link_number[link] for link in route[0].path])
