"""Simulated annealing for smaller slowdowns of jobs with several phases (``efficiency``).

The slowdown of a phase is the largest load that it sees, so most moves do not change it. The search therefore lowers a
smooth value. The smooth slowdown of a phase is the 16-norm (``_EXPONENT``) of all loads that it sees; a job's is the
sum of share * smooth slowdown over its phases; the value is the 16-norm of those of all jobs. A proposed move that
raises the value is accepted with a probability that falls with the temperature (Kirkpatrick, Gelatt and Vecchi,
"Optimization by simulated annealing", 1983). Proposals are evaluated many at once; of the accepted ones, those are made
that share no link. The best routes are kept: those with the smallest sorted slowdowns.

Rounds get longer, and do not depend on the time limit, so a longer limit continues the same search.

Flows that are split take part as *pieces*: each subflow is a whole flow of the search, with its share of the demand. A
whole flow that may be split has two equal pieces, unless it has a route already.

In: a problem and a candidate. Out: the candidate with smaller slowdowns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from controller.fabric.topology import Path
from controller.planning.bounds import Bounds, phase_bounds
from controller.planning.efficiency import SLOWDOWN_TOLERANCE, is_less, of_iterations
from controller.planning.greedy import PathChoices, PathTable
from controller.planning.next_hops import NextHops
from controller.planning.plan import Draft, draft
from controller.planning.problem import Floats, Flow, FlowId, Ints, PathShare, PlanLimits, Problem, Route, Routes, whole
from controller.planning.split_flows.dividing import exactly_one

_MOST_PIECES = 4_000
"""Number of pieces above which there is no search."""
_MOST_LOADS = 2_000_000
"""Largest number of loads (link, job, phase); a larger problem is not searched."""
_EXPONENT = 16
"""Power of loads and slowdowns; a power of two."""
_ROUNDS, _DETERMINISTIC_ROUNDS, _IDLE_ROUNDS = 7, 4, 4
"""Largest number of rounds, with and without a deadline, and number of rounds in a row without smaller slowdowns."""
_PROPOSALS, _PROPOSALS_OF_EACH = 100, 20
"""Number of proposals in the first round for n pieces: ``_PROPOSALS`` + ``_PROPOSALS_OF_EACH`` * n.

Every further round has twice as many."""
_COOL, _HOTTER, _HOTTEST, _COLDEST = 0.001, 4.0, 0.05, 0.0003
"""Temperatures, relative to the value: at the start of the first round; how many times as hot each further round
starts; the hottest start; at the end of each round."""
_MOST_PROPOSED, _MOST_VALUES = 64, 60_000
"""Largest number of proposals that are evaluated at once, and largest number of loads in their evaluation."""
_LOADS_PER_STEP = 50_000
"""Number of loads (link, job, phase) per step between two looks at the slowdowns."""
_ROUNDING = 1e-9


def searches(problem: Problem) -> bool:
    """Return whether a problem with jobs of several phases is small enough for the search."""
    if problem.paths.stretch:
        return False
    numbers = problem.numbers
    loads = len(problem.capacity_bps) * len(numbers.job_ids) * int(np.bincount(numbers.cell_job).max(initial=1))
    return len(problem.flows) <= _MOST_PIECES and loads <= _MOST_LOADS


def shortened(problem: Problem, bounds: Bounds, best: Draft, limits: PlanLimits) -> Draft | None:
    """Return a candidate with smaller slowdowns than ``best``; None when none is found.

    ``Problem.phase_share`` must not be None."""
    share, least = problem.phase_share, phase_bounds(problem, bounds.cuts, bounds.cuts.most)
    if share is None or not searches(problem) or limits.max_moves == 0 or limits.left_s <= 0:
        return None
    floors = dict(zip(problem.numbers.job_ids, of_iterations(problem, least, share).tolist(), strict=True))
    if all(slowdown <= floors[job] * (1 + SLOWDOWN_TOLERANCE) for job, slowdown in best.job_slowdown.items()):
        return None
    pieces = _pieces(problem, best.routes)
    of_pieces = problem.with_flows(flow for of in pieces.values() for flow, _ in of)
    crossing = of_pieces.numbers.crossing
    if not len(crossing) or len(of_pieces.flows) > _MOST_PIECES:
        return None
    start = {flow.id: whole(path) for of in pieces.values() for flow, path in of}
    # Flows without a route have no loads, but their cells have numbers.
    unrouted = [flow for flow in problem.flows if flow.id not in pieces]
    of_pieces = of_pieces.with_flows([*of_pieces.flows, *unrouted])
    choices = PathChoices(of_pieces, NextHops(of_pieces, crossing.tolist()))
    search = _PhaseSearch(of_pieces, start, limits, share, least, choices)
    own = np.array([floors[job] for job in problem.numbers.job_ids])
    if not search.listed or not search.lower(own):
        return None
    placed = search.routes()
    found = draft(problem, best.solver, {flow: _joined(of, placed) for flow, of in pieces.items()})
    return found if limits.max_moves is None or found.moves <= max(limits.max_moves, best.moves) else None


def _pieces(problem: Problem, routes: Routes) -> dict[FlowId, list[tuple[Flow, Path]]]:
    """Return the pieces of each routed flow, and the path of each piece."""
    pieces: dict[FlowId, list[tuple[Flow, Path]]] = {}
    for flow in problem.flows:
        route = routes.get(flow.id)
        if route is None:
            continue
        if len(route) == 1 and flow.max_subflows > 1 and flow.current is None:
            route = (PathShare(route[0].path, 0.5),) * 2
        pieces[flow.id] = [(_piece(flow, number, of.share), of.path) for number, of in enumerate(route)]
    return pieces


def _piece(flow: Flow, number: int, share: float) -> Flow:
    if share == 1.0:
        return flow
    demand_bps = tuple((phase, share * bps) for phase, bps in flow.demand_bps)
    return replace(flow, id=flow.id._replace(subflow=-1 - number), demand_bps=demand_bps, current=None)


def _joined(pieces: Sequence[tuple[Flow, Path]], placed: Routes) -> Route:
    bps: defaultdict[Path, float] = defaultdict(float)
    for piece, _ in pieces:
        bps[placed[piece.id][0].path] += piece.demand_bps[0][1] if piece.demand_bps else 1.0
    return exactly_one(bps)


class _PhaseSearch:
    """Subflows, their paths, and what each cell sees on each link.

    Links have the numbers of ``NextHops``. Cells are in arrays of shape (jobs, phases), padded with empty cells.
    ``own``: load of each link by each cell alone. ``seen``: load that each cell sees; 0 where it has no flow.
    ``sums``: sum over all links of the powers of what each cell sees."""

    def __init__(
        self,
        problem: Problem,
        start: Routes,
        limits: PlanLimits,
        share: Floats,
        least: Floats,
        choices: PathChoices,
    ) -> None:
        numbers, next_hops = problem.numbers, choices.next_hops
        self._problem, self._start, self._limits, self._next_hops = problem, start, limits, next_hops
        self._random = np.random.default_rng(limits.seed)
        table = PathTable(problem, choices)
        self._pair, self._paths = table.pair, table.paths
        jobs, phases = len(numbers.job_ids), table.bps.shape[1]
        first = np.searchsorted(numbers.cell_job, np.arange(jobs))
        place = numbers.cell_job, np.arange(len(share)) - first[numbers.cell_job]
        self._share, self._floor = np.zeros((jobs, phases)), np.ones((jobs, phases))
        self._share[place], self._floor[place] = share, np.maximum(1.0, least)
        self._per_bps: Floats = np.append(1 / next_hops.capacity_bps[:-1], 0.0)
        job = numbers.job[next_hops.flows]
        self._job, self._bps = job, table.bps
        self._paths_of: Ints = (~table.missing).sum(axis=1)[self._pair]
        self._movable: Ints = np.flatnonzero(self._paths_of > 1)
        self._at: Ints = table.columns(start)[1]
        self.listed = bool((self._at >= 0).all())
        """Whether ``PathChoices.options`` has all paths of the start. If not, there is no search."""
        flows = [problem.flows[number] for number in next_hops.flows.tolist()]
        self._runs = np.array([flow.id in problem.in_force for flow in flows], bool)
        current = {flow.id: (problem.is_in_force(flow) and flow.current) or start[flow.id] for flow in flows}
        in_one = all(len(route) == 1 for route in current.values())
        self._running: Ints = table.columns(current)[1] if in_one else self._at.copy()
        self.lay()

    def lay(self) -> None:
        """Compute all loads from the paths of the flows."""
        links = self._paths[self._pair, self._at]
        self._own: Floats = np.zeros((len(self._per_bps), *self._share.shape))
        loads = self._bps[:, None] * self._per_bps[links][:, :, None]
        np.add.at(self._own, (links, self._job[:, None]), loads)
        self._peak: Floats = np.zeros(self._own.shape[:2])
        self._total: Floats = np.zeros(len(self._own))
        self._seen, self._powers = np.zeros_like(self._own), np.zeros_like(self._own)
        self._sums: Floats = _power(self._floor)
        self._look(np.arange(len(self._own)))

    def _look(self, links: Ints) -> None:
        own = self._own[links]
        own[own < _ROUNDING] = 0.0
        peak = own.max(axis=2)
        total = peak.sum(axis=1)
        seen = np.where(own > 0, (total[:, None] - peak)[:, :, None] + own, 0.0)
        self._own[links], self._peak[links], self._total[links] = own, peak, total
        powers = _power(seen)
        self._sums += (powers - self._powers[links]).sum(axis=0)
        self._seen[links], self._powers[links] = seen, powers

    def slowdowns(self) -> Floats:
        """Return the slowdown of each job."""
        slowdowns: Floats = (self._share * np.maximum(self._floor, self._seen.max(axis=0))).sum(axis=1)
        return np.maximum(1.0, slowdowns)

    def lower(self, least: Floats) -> bool:
        """Lower the sorted slowdowns; return whether any got smaller. ``least``: lower bound of each job's slowdown."""
        best, best_at, found = np.sort(self.slowdowns())[::-1].tolist(), self._at.copy(), False
        values = self._own[0].size * 2 * self._paths.shape[2]
        size = max(1, min(_MOST_PROPOSED, len(self._movable) // 4, _MOST_VALUES // values))
        idle, reached = 0, False
        for number in range(_DETERMINISTIC_ROUNDS if self._limits.deterministic else _ROUNDS):
            idle += 1
            if idle > _IDLE_ROUNDS or not len(self._movable):
                break
            steps = (_PROPOSALS + _PROPOSALS_OF_EACH * len(self._movable) << number) // size
            hottest = min(_HOTTEST, _COOL * _HOTTER**number)
            for step in range(steps):
                if self._limits.left_s <= 0 or reached:
                    break
                self._propose(size, hottest * (_COLDEST / hottest) ** (step / steps))
                if step % (1 + self._own.size // _LOADS_PER_STEP):
                    continue
                self._sums = _power(self._floor) + self._powers.sum(axis=0)  # without rounding errors
                now = self.slowdowns()
                if now.max() <= best[0] * (1 + SLOWDOWN_TOLERANCE):
                    ordered = np.sort(now)[::-1].tolist()
                    if is_less(ordered, best):
                        best, best_at, found, idle = ordered, self._at.copy(), True, 0
                        reached = bool((now <= least * (1 + SLOWDOWN_TOLERANCE)).all())
            self._at = best_at.copy()
            self.lay()
        return found

    def _propose(self, size: int, temperature: float) -> None:
        """Make those of ``size`` random moves that are accepted and share no link with one another."""
        flows = self._movable[self._random.integers(len(self._movable), size=size)]
        paths = (self._random.random(size) * self._paths_of[flows]).astype(np.int64)
        old, new = self._paths[self._pair[flows], self._at[flows]], self._paths[self._pair[flows], paths]
        same, nothing = new[:, :, None] == old[:, None, :], len(self._own) - 1
        old, new = np.where(same.any(axis=1), nothing, old), np.where(same.any(axis=2), nothing, new)
        links, sign = np.concatenate([old, new], axis=1), np.repeat([-1.0, 1.0], old.shape[1])
        before, after = self._value(self._sums[None]), self._value(self._sums + self._changes(flows, links, sign))
        accepted = after - before <= temperature * before * self._random.exponential(size=size)
        taken: set[int] = {nothing}
        for index in np.flatnonzero(accepted & (paths != self._at[flows])).tolist():
            flow, touched = int(flows[index]), set(links[index].tolist()) - {nothing}
            if taken.isdisjoint(touched) and self._may_move(flow):
                taken |= touched
                self._at[flow] = paths[index]
                loads = (sign * self._per_bps[links[index]])[:, None] * self._bps[flow]
                np.add.at(self._own, (links[index], self._job[flow]), loads)
        if len(taken) > 1:
            self._look(np.array(sorted(taken)))

    def _may_move(self, flow: int) -> bool:
        most, moved = self._limits.max_moves, self._runs & (self._at != self._running)
        return most is None or not self._runs[flow] or bool(moved[flow]) or int(moved.sum()) < most

    def _value(self, sums: Floats) -> Floats:
        """Return the smooth value of each entry of ``sums``, the sums of the powers that cells see."""
        of_job = (self._share * _root(np.maximum(1.0, sums))).sum(axis=2)
        return _root(_power(of_job).sum(axis=1))

    def _changes(self, flows: Ints, links: Ints, sign: Floats) -> Floats:
        """Return the change of the sums of powers when a flow leaves or joins links; shape (flows, jobs, phases)."""
        job, place = self._job[flows][:, None], np.arange(len(flows))[:, None]
        own = self._own[links, job] + (sign * self._per_bps[links])[:, :, None] * self._bps[flows][:, None]
        own[own < _ROUNDING] = 0.0
        before, seen = self._peak[links, job], self._seen[links]
        after = np.where(seen > 0, seen + (own.max(axis=2) - before)[:, :, None, None], 0.0)
        others = (self._total[links] - before)[:, :, None]
        after[place, np.arange(len(sign)), job] = np.where(own > 0, others + own, 0.0)
        changes: Floats = (_power(after) - self._powers[links]).sum(axis=1)
        return changes

    def routes(self) -> dict[FlowId, Route]:
        """Return the route of every flow. Flows within one leaf keep the route of the start."""
        routes = dict(self._start)
        for flow, links in zip(self._next_hops.flows.tolist(), self._paths[self._pair, self._at], strict=True):
            routes[self._problem.flows[flow].id] = whole(self._next_hops.path(links))
        return routes


def _power(values: Floats) -> Floats:
    """Return the values to the power ``_EXPONENT``."""
    for _ in range(_EXPONENT.bit_length() - 1):
        values = values * values
    return values


def _root(values: Floats) -> Floats:
    for _ in range(_EXPONENT.bit_length() - 1):
        values = np.sqrt(values)
    return values
