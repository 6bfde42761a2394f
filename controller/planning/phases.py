"""Slowdowns of phases and of iterations, and lower bounds of the latter.

- Slowdown of a phase of a job: the largest load, at least 1, of a link that the phase uses. That load counts the phase
  itself, and the largest phase of every other job.
- Iteration slowdown of a job: the sum over its phases of share x slowdown. The share is that of the phase in the job's
  ideal communication time. The communication of an iteration takes at most iteration slowdown x ideal time.

The slowdown of a job (``efficiency``) is that of its worst phase. In: a ``Problem`` and routes. Out: plain numbers.
Arrays have one entry per *cell*, which is one phase of one job (``Numbers``)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from controller.planning.bounds import Bounds
from controller.planning.efficiency import Passing, job_slowdowns, passing, peaks
from controller.planning.problem import Floats, NumberedRoutes, Problem, Routes, distinct
from signalbox.jobs.spec import JobId


def phase_slowdowns(problem: Problem, routes: Routes) -> dict[JobId, dict[int, float]]:
    """Return the slowdown of each phase of every job, for jobs with a routed flow."""
    numbers, slowdowns = problem.numbers, cell_slowdowns(problem, passing(problem, routes))
    found: defaultdict[JobId, dict[int, float]] = defaultdict(dict)
    for cell in np.flatnonzero(slowdowns).tolist():
        found[numbers.job_ids[numbers.cell_job[cell]]][int(numbers.cell_phase[cell])] = float(slowdowns[cell])
    return dict(found)


def iteration_slowdowns(problem: Problem, routes: Routes | NumberedRoutes) -> dict[JobId, float]:
    """Return the iteration slowdown of every job with a routed flow; empty when iterations do not count.

    Iterations do not count without several phases, and when only the worst phase counts (``Problem.phase_share``)."""
    share, numbers = problem.phase_share, problem.numbers
    if share is None:
        return {}
    rows = passing(problem, routes)
    slowdowns = of_iterations(problem, cell_slowdowns(problem, rows), share)
    return {numbers.job_ids[job]: float(slowdowns[job]) for job in np.unique(numbers.job[rows.routed]).tolist()}


def objective(problem: Problem, routes: Routes) -> dict[JobId, float]:
    """Return what plans minimise for each job: its iteration slowdown, or its slowdown when iterations do not count."""
    return iteration_slowdowns(problem, routes) or job_slowdowns(problem, routes)


def of_iterations(problem: Problem, of_cells: Floats, share: Floats) -> Floats:
    """Return the iteration slowdown of each job, given the slowdown of each cell."""
    numbers = problem.numbers
    weighted = share * np.maximum(1.0, of_cells)
    return np.maximum(1.0, np.bincount(numbers.cell_job, weighted, len(numbers.job_ids)))


def cell_slowdowns(problem: Problem, rows: Passing) -> Floats:
    """Return the slowdown of each cell; 0 for a cell without a routed flow."""
    numbers = problem.numbers
    cells, jobs = max(1, len(numbers.cell_job)), len(numbers.job_ids)
    subflow, entry = numbers.entries_of(rows.flow)
    places, cell_of, bps = rows.link[subflow], numbers.entry_cell[entry], numbers.entry_bps[entry] * rows.share[subflow]
    largest = peaks(places, cell_of, bps, numbers.cell_job)
    total_bps = np.bincount(largest.place, largest.bps, len(numbers.capacity_bps))
    at, row = distinct(places * cells + cell_of)
    link, cell = at // cells, at % cells
    own_bps = np.bincount(row, bps, len(at))
    peak = np.searchsorted(largest.place * jobs + largest.job, link * jobs + numbers.cell_job[cell])
    slowdowns = np.zeros(len(numbers.cell_job))
    load = (total_bps[link] + own_bps - largest.bps[peak]) / numbers.capacity_bps[link]
    np.maximum.at(slowdowns, cell, np.maximum(1.0, load))
    return slowdowns


# ---- lower bounds


def cell_bounds(problem: Problem, bounds: Bounds) -> Floats:
    """Return a lower bound of the slowdown of each cell, from the loads of NICs and the cuts of its own flows."""
    flows, numbers = bounds.cuts.routable, problem.numbers
    links = numbers.nics[flows].T.ravel()
    nics = Passing(flows, np.concatenate([flows, flows]), links, np.ones(len(links)))
    return np.maximum(bounds.cuts.cell_slowdowns(), cell_slowdowns(problem, nics))


def iteration_bounds(problem: Problem, bounds: Bounds, jobs: Sequence[JobId]) -> tuple[float, ...]:
    """Return lower bounds of the sorted iteration slowdowns of these jobs; empty when iterations do not count.

    Each job has the bound of its own phases. For the worst one, jobs that meet count too: a cut whose load is at least
    L has a link with such a load. A phase that is the largest of its job on this link has at least the slowdown L."""
    share = problem.phase_share
    if share is None:
        return ()
    least, cuts, numbers = cell_bounds(problem, bounds), bounds.cuts, problem.numbers
    own = of_iterations(problem, least, share)
    load = np.maximum(cuts.fluid(), cuts.slowdowns(cuts.most))
    more = share[cuts.cell] * np.maximum(0.0, load[cuts.cut] - np.maximum(1.0, least[cuts.cell]))
    of_cut = np.full(len(load), np.inf)
    np.minimum.at(of_cut, cuts.cut, own[cuts.job] + more)
    worst = float(of_cut[np.isfinite(of_cut)].max(initial=1.0))
    number = {job: index for index, job in enumerate(numbers.job_ids)}
    ordered = sorted((float(own[number[job]]) for job in jobs), reverse=True)
    return (max(worst, ordered[0]), *ordered[1:]) if ordered else ()
