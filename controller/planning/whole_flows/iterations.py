"""Local search for smaller slowdowns of jobs with several phases (``efficiency``).

The search lowers the slowdown of one job after the other, the largest first. For this, one phase of the job must become
faster, and the job's other phases may become slower by up to half of the gain. Jobs that are at least as slow keep the
slowdowns of all their phases. Faster jobs may become as slow as the job is afterwards. So the sorted slowdowns only get
smaller. The method is the local search of ``search``, with limits for phases instead of jobs.

Flows that are split take part as *pieces*: each subflow is a whole flow of the search, with its share of the demand. A
whole flow that may be split has two equal pieces, unless it has a route already.

In: a problem and a candidate. Out: the candidate with smaller slowdowns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from controller.fabric.topology import Path
from controller.planning.bounds import Bounds, phase_bounds
from controller.planning.efficiency import SLOWDOWN_TOLERANCE, of_iterations
from controller.planning.plan import Draft, draft
from controller.planning.problem import Floats, Flow, FlowId, Ints, PathShare, PlanLimits, Problem, Route, Routes, whole
from controller.planning.split_flows.dividing import exactly_one
from controller.planning.whole_flows.search import CappedLoads, Links, LocalSearch

_MOST_PIECES = 4_000
"""Number of pieces above which there is no search."""
_MOST_LOADS = 2_000_000
"""Largest number of loads (cell, link); a larger problem is not searched."""
_STEPS, _STEPS_OF_EACH = 2_000, 10
"""Number of steps of all attempts together for n pieces: ``_STEPS`` + ``_STEPS_OF_EACH`` * n."""
_ROUNDS = 6
"""Number of rounds in a row without smaller slowdowns, after which the search ends."""
_PEAKED = 8
"""Exponent of the random numbers that say which phase may get slower."""
_PATIENCE = 200
"""Number of steps without progress after which an attempt is given up."""
_PARTS = (0.0, 0.5, 0.8)
"""Goals of a phase: its bound, then values at these parts of the distance from the bound to its slowdown."""
_GIVEN = 0.5
"""Part of a phase's gain that the job's other phases may give back."""
_ROUNDING = 1e-7


def shortened(problem: Problem, bounds: Bounds, best: Draft, limits: PlanLimits) -> Draft | None:
    """Return a candidate with smaller slowdowns than ``best``; None when none is found.

    ``Problem.phase_share`` must not be None."""
    share, least = problem.phase_share, phase_bounds(problem, bounds.cuts, bounds.cuts.most)
    if share is None or limits.max_moves == 0 or problem.paths.stretch or limits.left_s <= 0:
        return None
    own = dict(zip(problem.numbers.job_ids, of_iterations(problem, least, share).tolist(), strict=True))
    if all(slowdown <= own[job] * (1 + SLOWDOWN_TOLERANCE) for job, slowdown in best.job_slowdown.items()):
        return None
    pieces = _pieces(problem, best.routes)
    flows = [flow for of in pieces.values() for flow, _ in of]
    if len(flows) > _MOST_PIECES or len(share) * len(problem.capacity_bps) > _MOST_LOADS:
        return None
    start = {flow.id: whole(path) for of in pieces.values() for flow, path in of}
    unrouted = [flow for flow in problem.flows if flow.id not in pieces]
    search = _IterationSearch(problem.with_flows([*flows, *unrouted]), start, limits, share, least)
    if not search.lower(_STEPS + _STEPS_OF_EACH * len(flows)):
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


class _IterationSearch(LocalSearch):
    def __init__(self, problem: Problem, start: Routes, limits: PlanLimits, share: Floats, least: Floats) -> None:
        self._share, self._least = share, least
        self._job_of_cell: Ints = problem.numbers.cell_job
        self._of_phases = _PhaseLoads(problem)
        super().__init__(problem, start, limits, self._of_phases)

    def lower(self, steps: int) -> bool:
        """Lower the slowdowns in at most ``steps`` steps; return whether any slowdown was lowered."""
        end, found, round_number = self._step + steps, False, 0
        while round_number < _ROUNDS and not self._over:
            slower = self._which_get_slower(round_number)
            round_number += 1
            for job in np.argsort(-self._now()[1], kind="stable").tolist():
                while self._lower_job(job, slower, end):
                    found, round_number = True, 0
        return found

    def _which_get_slower(self, round_number: int) -> Floats:
        """Return weights of cells that divide a job's delay: first all to its shortest phase, later at random."""
        if round_number == 0:
            shortest = np.full(len(self._problem.numbers.job_ids), np.inf)
            np.minimum.at(shortest, self._job_of_cell, self._share)
            return (self._share <= shortest[self._job_of_cell]).astype(np.float64)
        return self._share if round_number == 1 else self._noise.random(len(self._share)) ** _PEAKED

    def _now(self) -> tuple[Floats, Floats]:
        """Return the slowdown of each cell, and the slowdown of each job."""
        of_cells: Floats = np.maximum(self._least, self._of_phases.slowdowns_of_cells())
        return of_cells, of_iterations(self._problem, of_cells, self._share)

    def _lower_job(self, job: int, slower: Floats, end: int) -> bool:
        if self._step >= end or self._over:
            return False
        now, of_jobs = self._now()
        most = self._share * (now - self._least)
        mine = np.flatnonzero((self._job_of_cell == job) & (most > 0))
        for cell in mine[np.argsort(-most[mine], kind="stable")].tolist():
            for part in _PARTS:
                gain = (1 - part) * most[cell]
                if gain * (1 - _GIVEN) <= SLOWDOWN_TOLERANCE * of_jobs[job] or self._step >= end or self._over:
                    break
                allowed = np.maximum(0.0, of_jobs[job] - (1 - _GIVEN) * gain - of_jobs)
                allowed[job] = _GIVEN * gain
                takes = np.where(np.arange(len(now)) == cell, 0.0, slower)
                takes /= np.maximum(_ROUNDING, np.bincount(self._job_of_cell, takes, len(of_jobs)))[self._job_of_cell]
                limits = now + allowed[self._job_of_cell] * takes / np.maximum(_ROUNDING, self._share)
                limits[cell] = now[cell] - (1 - part) * (now[cell] - self._least[cell])
                if self._reach_limits(limits, end):
                    return True
        return False

    def _reach_limits(self, limits: Floats, end: int) -> bool:
        before, self._of_phases.limits = self._of_phases.limits, limits
        found = self.reach(self._ceilings, end - self._step, _PATIENCE)
        if not found:
            self._of_phases.limits = before
        return found


class _PhaseLoads(CappedLoads):
    """Loads with a limit for the slowdown of each cell.

    ``own``: load of each link by each cell alone; shape (cells, links)."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        numbers = problem.numbers
        used, self._group = np.unique(numbers.cell_job, return_inverse=True)
        self._first = np.searchsorted(numbers.cell_job, used)
        self._per_bps: Floats = 1 / numbers.capacity_bps
        starts = np.searchsorted(numbers.entry_flow, np.arange(len(problem.flows) + 1)).tolist()
        entries = [slice(*ends) for ends in pairwise(starts)]
        self._cells = [numbers.entry_cell[of] for of in entries]
        self._bps = [numbers.entry_bps[of] for of in entries]
        self.own: Floats = np.zeros((len(numbers.cell_job), len(problem.capacity_bps)))
        self.limits: Floats = np.full(len(numbers.cell_job), np.inf)

    def slowdowns_of_cells(self) -> Floats:
        slowdowns: Floats = np.maximum(1.0, self._seen(self.own).max(axis=1))
        return slowdowns

    def put(self, flow: int, path: Links) -> None:
        super().put(flow, path)
        self._add(flow, path, 1)

    def remove(self, flow: int) -> None:
        self._add(flow, self.at[flow] or (), -1)
        super().remove(flow)

    def limit(self, limits: Sequence[float]) -> None:
        """Do nothing: cells have limits here, and jobs have none."""

    def excess(self, flow: int, paths: Ints) -> Floats:
        cells, own = self._cells[flow], self.own[:, paths]
        alone = self._bps[flow][:, None, None] * self._per_bps[paths]
        own[cells] += alone
        beyond: Floats = self._beyond(own).max(axis=0)
        beyond[beyond < _ROUNDING] = 0.0
        beyond[(alone > self.limits[cells][:, None, None] + _ROUNDING).any(axis=0)] = np.inf
        return beyond

    def full(self, link: int) -> bool:
        return bool((self._beyond(self.own[:, link]) > _ROUNDING).any())

    def all_full(self) -> list[int]:
        links: list[int] = np.flatnonzero((self._beyond(self.own) > _ROUNDING).any(axis=0)).tolist()
        return links

    def relieves(self, flow: int, link: int) -> bool:
        own = self.own[:, link].copy()
        own[self._cells[flow]] -= self._bps[flow] * self._per_bps[link]
        return not (self._beyond(own) > _ROUNDING).any()

    def _add(self, flow: int, path: Links, sign: int) -> None:
        links = np.array(path, np.int64)
        self.own[np.ix_(self._cells[flow], links)] += sign * np.outer(self._bps[flow], self._per_bps[links])

    def _seen(self, own: Floats) -> Floats:
        """Return the load of each link as each cell sees it: its own load, and the largest phase of each other job."""
        peak = np.maximum.reduceat(own, self._first, axis=0)
        seen: Floats = np.where(own > _ROUNDING, peak.sum(axis=0) + own - peak[self._group], 0.0)
        return seen

    def _beyond(self, own: Floats) -> Floats:
        limits = self.limits.reshape(-1, *[1] * (own.ndim - 1))
        beyond: Floats = np.maximum(0.0, self._seen(own) - limits)
        return beyond
