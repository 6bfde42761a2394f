"""Quality of a routing: load of a link, slowdown of a job, network efficiency (docs/explanation/planning.md).

Load, slowdown and efficiency are defined only here; planner, live status and metrics all use these definitions. In: a
``Problem``, whose flows have their demands, and routes. Out: plain numbers.

- Load of a link: traffic of all jobs (bit/s) / the link's capacity. Each job counts with the phase in which it sends
  most over the link. Phases of one job never overlap; phases of different jobs may. A subflow loads its path with its
  share of the flow's demand.
- Slowdown of a job: the largest load of a link that it uses, and at least 1. Its communication takes at most slowdown x
  ideal time.
- Network efficiency: 1 / the worst slowdown. Routings are compared by their slowdowns, sorted from the worst.

A flow without a route loads nothing here; ``ecmp`` estimates the slowdowns when such a flow is hashed.

Loads are computed in three ways: for a whole routing at once (``peaks``), for hundreds of random draws at once
(``FabricLoads``), and flow by flow for searches (``Increments``). Two other modules compute loads of their own:
``split_flows.commodities`` as rows of its linear programme, and ``whole_flows.cpsat`` as integers that are rounded
down."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from controller.fabric.topology import LinkId
from controller.planning.numbered import Floats, Ints, NumberedRoutes, distinct
from controller.planning.problem import Problem, Routes
from signalbox.jobs.spec import JobId

SLOWDOWN_TOLERANCE = 1e-4
"""Relative difference below which two slowdowns count as equal.

It is far below measurable differences, and well above rounding errors."""


def job_slowdowns(problem: Problem, routes: Routes | NumberedRoutes) -> dict[JobId, float]:
    """Return the slowdown (>= 1) of every job with a routed flow.

    Flows that are missing from ``routes`` do not count."""
    return slowdowns_of(problem, passing(problem, routes))


def phase_slowdowns(problem: Problem, routes: Routes) -> dict[JobId, dict[int, float]]:
    """Return the slowdown of each phase of every job, for jobs with a routed flow.

    The slowdown of a phase is the largest load (at least 1) of a link that the phase uses. That load counts the phase
    itself, and the largest phase of every other job. The job's slowdown is the largest of its phases' slowdowns."""
    numbers = problem.numbers
    rows = passing(problem, routes)
    flows, links, shares = rows.flow, rows.link, rows.share
    loads, on_link = _loads(problem, rows)
    subflow, entry = numbers.entries_of(flows)
    cells, jobs = len(numbers.cell_job), len(numbers.job_ids)
    at, row = distinct(links[subflow] * cells + numbers.entry_cell[entry])
    own = np.bincount(row, numbers.entry_bps[entry] * shares[subflow], len(at))
    link, cell = at // max(1, cells), at % max(1, cells)
    peak = np.searchsorted(on_link.place * jobs + on_link.job, link * jobs + numbers.cell_job[cell])
    load = loads[link] + (own - on_link.bps[peak]) / numbers.capacity_bps[link]
    slowdown = np.ones(cells)
    np.maximum.at(slowdown, cell, load)
    found: defaultdict[JobId, dict[int, float]] = defaultdict(dict)
    for used in np.unique(cell).tolist():
        found[numbers.job_ids[numbers.cell_job[used]]][int(numbers.cell_phase[used])] = float(slowdown[used])
    return dict(found)


def nic_slowdowns(problem: Problem, flows: Ints) -> dict[JobId, float]:
    """Return the slowdown of each job if ``flows`` (numbers) load only their NICs.

    No routing can change the load of a NIC."""
    links = problem.numbers.nics[flows].T.ravel()
    return slowdowns_of(problem, Passing(flows, np.concatenate([flows, flows]), links, np.ones(len(links))))


def job_loads(problem: Problem, routes: Routes) -> dict[LinkId, dict[JobId, float]]:
    """Return, for every link that routed flows use, the load of each job as a fraction of the link's capacity."""
    _, on_link = _loads(problem, passing(problem, routes))
    link_ids, job_ids = list(problem.link_number), problem.numbers.job_ids
    load = on_link.bps / problem.numbers.capacity_bps[on_link.place]
    loads: defaultdict[LinkId, dict[JobId, float]] = defaultdict(dict)
    for link, job, share in zip(on_link.place.tolist(), on_link.job.tolist(), load.tolist(), strict=True):
        loads[link_ids[link]][job_ids[job]] = share
    return loads


def links_beyond(problem: Problem, routes: Routes | NumberedRoutes, slowdown: Mapping[JobId, float]) -> set[LinkId]:
    """Return the links whose load exceeds ``slowdown[job]`` for a job that uses the link."""
    loads, on_link = _loads(problem, passing(problem, routes))
    most = np.array([slowdown[job] for job in problem.numbers.job_ids])
    link_ids = list(problem.link_number)
    beyond = on_link.place[loads[on_link.place] > most[on_link.job] * (1 + SLOWDOWN_TOLERANCE)]
    return {link_ids[link] for link in beyond.tolist()}


def outweighed(problem: Problem, routes: Routes) -> frozenset[JobId]:
    """Return jobs that may be slower than predicted, because other jobs open more connections per flow on their links.

    A saturated link gives each of its connections the same rate (docs/explanation/simulator.md). A flow has one
    connection per subflow; paced subflows together count as one connection. A connection gets at least the smallest
    rate that any link of its path would give it if all connections sent at once. On one link this rate is capacity x
    d / D. Here d is the demand of the connection's flow, and D is the sum of d over all connections on the link. When
    all flows have equally many connections, this rate is the connection's part of d / the load of the link. Flows of
    unequal demand are assumed to get rates in proportion to their demands, as slowdowns assume too."""
    routed = [(flow, number, routes[flow.id]) for number, flow in enumerate(problem.flows) if flow.id in routes]
    if not any(flow.id.subflow or (len(route) > 1 and not flow.paced) for flow, _, route in routed):
        return frozenset()
    together = Counter(flow.id.joined for flow, _, _ in routed)
    rows: list[tuple[int, int, float, float]] = []
    for flow, number, route in routed:
        subflows = together[flow.id.joined]
        apart = len(route) > 1 and not flow.paced
        for path, share in route:
            weight, part = (1.0, share) if apart else (subflows * share, 1 / subflows)
            rows += [(number, problem.link_number[link], weight, part) for link in (*path, *flow.nic_links)]
    columns = np.array(rows).T
    (flows, links), (weights, parts) = columns[:2].astype(np.int64), columns[2:]
    loads = loads_of(problem, Passing(flows, flows, links, weights))
    numbers = problem.numbers
    least = np.zeros(len(numbers.job_ids))
    np.maximum.at(least, numbers.job[flows], loads[links] * parts)
    slowdowns = job_slowdowns(problem, routes)
    return frozenset(
        job
        for job, slowdown in zip(numbers.job_ids, least.tolist(), strict=True)
        if slowdown > slowdowns.get(job, 1.0) * (1 + SLOWDOWN_TOLERANCE)
    )


class Peaks(NamedTuple):
    """Largest load (bit/s) of each job over its phases; one row per pair of place and job, in ascending order.

    A place is the number of a link, a cut or a group of flows."""

    place: Ints
    job: Ints
    bps: Floats


def peaks(places: Ints, cells: Ints, bps: Floats, cell_job: Ints) -> Peaks:
    """Return the largest load (bit/s) of each job at each place, such as a link or cut.

    Row i adds ``bps[i]`` of cell ``cells[i]`` at ``places[i]``. ``cell_job``: see ``Numbers``."""
    count = max(1, len(cell_job))
    at, row = distinct(places * count + cells)
    sums = np.bincount(row, bps, len(at))
    place, job = at // count, cell_job[at % count]
    # Cells are ordered by job, so the rows of one job's phases at one place are adjacent.
    starts = np.flatnonzero(np.diff(place, prepend=-1) | np.diff(job, prepend=-1))
    largest: Floats = np.maximum.reduceat(sums, starts) if len(starts) else np.zeros(0)
    return Peaks(place[starts], job[starts], largest)


class Passing(NamedTuple):
    """Links that routed flows use, NICs included; one row (``flow``, ``link``, ``share``) per link and subflow."""

    routed: Ints
    """Numbers of the flows that have a route."""
    flow: Ints
    link: Ints
    share: Floats


def passing(problem: Problem, routes: Routes | NumberedRoutes) -> Passing:
    """Return one row for every link that a subflow of these routes uses, NICs included."""
    number, nics = problem.link_number, problem.numbers.nics
    if isinstance(routes, NumberedRoutes):
        of, hops = np.arange(len(problem.flows)), routes.links.shape[1]
        links, flows, shares = routes.links.ravel(), np.repeat(routes.flow, hops), np.repeat(routes.share, hops)
    else:
        found = [routes.get(flow.id) for flow in problem.flows]
        of = np.array([flow for flow, route in enumerate(found) if route is not None], np.int64)
        subflows = [(flow, path, share) for flow, route in enumerate(found) if route for path, share in route]
        passed = np.array([len(path) for _, path, _ in subflows], np.int64)
        links = np.array([number[link] for _, path, _ in subflows for link in path], np.int64)
        flows = np.repeat(np.array([flow for flow, _, _ in subflows], np.int64), passed)
        shares = np.repeat(np.array([share for _, _, share in subflows], np.float64), passed)
    return Passing(
        of,
        np.concatenate([flows, of, of]),
        np.concatenate([links, nics[of, 0], nics[of, 1]]),
        np.concatenate([shares, np.ones(2 * len(of))]),
    )


def slowdowns_of(problem: Problem, rows: Passing) -> dict[JobId, float]:
    """Return the slowdown of every job with a routed flow, as ``job_slowdowns`` does."""
    numbers = problem.numbers
    loads, on_link = _loads(problem, rows)
    slowdowns = np.ones(len(numbers.job_ids))
    np.maximum.at(slowdowns, on_link.job, loads[on_link.place])
    return {numbers.job_ids[job]: float(slowdowns[job]) for job in np.unique(numbers.job[rows.routed])}


def loads_of(problem: Problem, rows: Passing) -> Floats:
    """Return the load of each link as a fraction of its capacity."""
    return _loads(problem, rows)[0]


def _loads(problem: Problem, rows: Passing) -> tuple[Floats, Peaks]:
    """Return the load of each link, and per link and job the bit/s of the job's largest phase."""
    numbers = problem.numbers
    subflow, entry = numbers.entries_of(rows.flow)
    bps = numbers.entry_bps[entry] * rows.share[subflow]
    on_link = peaks(rows.link[subflow], numbers.entry_cell[entry], bps, numbers.cell_job)
    return np.bincount(on_link.place, on_link.bps, len(numbers.capacity_bps)) / numbers.capacity_bps, on_link


@dataclass(frozen=True, slots=True)
class Fixed:
    """Subflows that take the same links in every draw; one row per flow (by number) and link that it passes."""

    flow: Ints
    link: Ints
    share: Floats


NOTHING_FIXED = Fixed(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


class FabricLoads:
    """Loads and slowdowns of many random draws at once.

    ``flows``: numbers of the flows whose paths differ between draws. The argument ``links`` of the methods has the
    paths of these flows; shape (hops, draws, flows). Links are numbered as in ``capacity_bps``."""

    def __init__(self, problem: Problem, capacity_bps: Floats, flows: Ints, fixed: Fixed = NOTHING_FIXED) -> None:
        numbers = problem.numbers
        self._capacity_bps = capacity_bps
        self._jobs = len(numbers.job_ids)
        phases = np.bincount(numbers.cell_job, minlength=self._jobs)
        column, entry = numbers.entries_of(flows)
        row, fixed_entry = numbers.entries_of(fixed.flow)
        # Flows without demand use no link.
        sending, self._fixed_link = np.unique(column), fixed.link[row]
        self._by_job = sending[np.argsort(numbers.job[flows[sending]], kind="stable")]
        self._job = numbers.job[flows[self._by_job]]
        self._fixed_job = numbers.job[fixed.flow[row]]
        several = phases[numbers.job] > 1
        alone, fixed_alone = ~several[flows[column]], ~several[fixed.flow[row]]
        fixed_bps = numbers.entry_bps[fixed_entry] * fixed.share[row]
        self._single = _Cell(
            column[alone], numbers.entry_bps[entry[alone]], fixed.link[row[fixed_alone]], fixed_bps[fixed_alone]
        )
        self._several: defaultdict[int, list[_Cell]] = defaultdict(list)
        for cell in np.flatnonzero(phases[numbers.cell_job] > 1).tolist():
            mine, pinned = numbers.entry_cell[entry] == cell, numbers.entry_cell[fixed_entry] == cell
            self._several[int(numbers.cell_job[cell])].append(
                _Cell(column[mine], numbers.entry_bps[entry[mine]], fixed.link[row[pinned]], fixed_bps[pinned])
            )

    def of(self, links: Ints) -> Floats:
        """Return the load of every link in every draw; shape (draws, links)."""
        width = len(self._capacity_bps)
        bps = self._single.sums(self._single.taken(links), self._single.fixed_link, width)
        for cells in self._several.values():
            used, place = _compact(links, cells, width)
            phases = [cell.sums(place[cell.taken(links)], place[cell.fixed_link], len(used)) for cell in cells]
            bps[:, used] += np.maximum.reduce(phases)
        bps /= self._capacity_bps
        return bps

    def of_jobs(self, links: Ints, loads: Floats) -> Floats:
        """Return for each job the largest load of a link that it uses, 0 without such a link; shape (draws, jobs)."""
        slowdowns = np.zeros((len(loads), self._jobs))
        if len(self._job):
            rows = np.arange(len(loads))[:, None] * loads.shape[1]
            seen = loads.ravel()[links[:, :, self._by_job] + rows].max(axis=0)
            starts = np.flatnonzero(np.diff(self._job, prepend=-1))
            slowdowns[:, self._job[starts]] = np.maximum.reduceat(seen, starts, axis=1)
        for job in np.unique(self._fixed_job).tolist():
            on = np.unique(self._fixed_link[self._fixed_job == job])
            slowdowns[:, job] = np.maximum(slowdowns[:, job], loads[:, on].max(axis=1))
        return slowdowns


class _Cell:
    """Flows and fixed subflows of one phase of a job, or of all jobs that have a single phase.

    ``columns``: columns of ``links`` in which ``FabricLoads`` has these flows."""

    def __init__(self, columns: Ints, bps: Floats, fixed_link: Ints, fixed_bps: Floats) -> None:
        self.columns = columns
        self.fixed_link = fixed_link
        self._bps = bps
        self._fixed_bps = fixed_bps
        self._equal_bps = float(bps[0]) if len(bps) and (bps == bps[0]).all() else None

    def taken(self, links: Ints) -> Ints:
        """Return the columns of ``links`` that belong to this cell."""
        return links if len(self.columns) == links.shape[2] else links[:, :, self.columns]

    def sums(self, taken: Ints, fixed_link: Ints, width: int) -> Floats:
        """Return the bit/s on every link; shape (draws, ``width``).

        Both ``taken`` and ``fixed_link`` contain numbers of links, below ``width``."""
        draws = taken.shape[1]
        at = (taken + (np.arange(draws) * width)[:, None]).ravel()
        if self._equal_bps is not None:
            sums = np.multiply(np.bincount(at, minlength=draws * width), self._equal_bps, dtype=np.float64)
        else:
            # bincount returns integers when it has nothing to count, in spite of the weights.
            weights = np.broadcast_to(self._bps, taken.shape).ravel()
            sums = np.asarray(np.bincount(at, weights, draws * width), np.float64)
        found: Floats = sums.reshape(draws, width)
        if len(self.fixed_link):
            found += np.bincount(fixed_link, self._fixed_bps, width)
        return found


def _compact(links: Ints, cells: Iterable[_Cell], width: int) -> tuple[Ints, Ints]:
    """Return the numbers of the links that one job uses, and an array that gives the index of each such number.

    With these indices the job's sums fit into small arrays. ``width``: number of all links."""
    on = np.zeros(width, bool)
    for cell in cells:
        on[cell.taken(links)] = True
        on[cell.fixed_link] = True
    return np.flatnonzero(on), np.cumsum(on) - 1


class Increments:
    """Loads that flows add to links when a search adds and removes them one by one.

    A job with several phases loads a link with its largest phase, so the load that a flow adds depends on the job's
    other flows on the link. For jobs with several phases the sums per phase and link are kept.

    Flows are numbered as in ``Numbers``, links as in ``capacity_bps``."""

    def __init__(self, problem: Problem, capacity_bps: Floats) -> None:
        numbers = problem.numbers
        self._peak_bps: list[float] = numbers.peak_bps.tolist()
        self._per_bps = 1 / capacity_bps
        self._per_bps_of: list[float] = self._per_bps.tolist()
        phases = np.bincount(numbers.cell_job, minlength=len(numbers.job_ids))
        first_cell = (np.cumsum(phases) - phases).tolist()
        self._job: list[int] = numbers.job.tolist()
        self._sums = {job: np.zeros((phases[job], len(capacity_bps))) for job in np.flatnonzero(phases > 1).tolist()}
        self._bps: dict[int, Floats] = {}
        for entry in np.flatnonzero(phases[numbers.cell_job[numbers.entry_cell]] > 1).tolist():
            flow, cell = int(numbers.entry_flow[entry]), int(numbers.entry_cell[entry])
            job = self._job[flow]
            own = self._bps.setdefault(flow, np.zeros(phases[job]))
            own[cell - first_cell[job]] = numbers.entry_bps[entry]

    def count_rows(self, flows: Ints, links: Ints, shares: Floats) -> None:
        """Count ``shares[i]`` of flow ``flows[i]`` on link ``links[i]``, for each i; a flow may occur several times."""
        several = np.zeros(len(self._job), bool)
        several[list(self._bps)] = True
        for row in np.flatnonzero(several[flows]).tolist():
            self.count(int(flows[row]), links[row : row + 1], float(shares[row]))

    def count(self, flow: int, links: Ints | Sequence[int], share: float = 1.0) -> None:
        """Count a share of the flow on each of these links; a negative share is subtracted."""
        if flow in self._bps:
            self._sums[self._job[flow]][:, links] += share * self._bps[flow][:, None]

    def added(self, flow: int, links: Ints, share: float = 1.0) -> Floats:
        """Return the load that a share of the flow, not counted yet, would add to each of these links."""
        if flow not in self._bps:
            return self.alone(flow, links, share)
        sums = self._sums[self._job[flow]][:, links]
        own = share * self._bps[flow].reshape(-1, *[1] * links.ndim)
        added: Floats = ((sums + own).max(axis=0) - sums.max(axis=0)) * self._per_bps[links]
        return added

    def alone(self, flow: int, links: Ints, share: float = 1.0) -> Floats:
        """Return the load of each of these links when only this share of the flow uses it."""
        load: Floats = share * self._peak_bps[flow] * self._per_bps[links]
        return load

    def weight(self, flow: int, link: int) -> float:
        """Return the load that the link would lose without the flow, which must have been counted."""
        if flow not in self._bps:
            return self._peak_bps[flow] * self._per_bps_of[link]
        sums = self._sums[self._job[flow]][:, link]
        return float(sums.max() - (sums - self._bps[flow]).max()) * self._per_bps_of[link]


def network_efficiency(slowdowns: Iterable[float]) -> float | None:
    """Return 1 / the worst slowdown; None when ``slowdowns`` is empty."""
    worst = max(slowdowns, default=None)
    return None if worst is None else 1.0 / worst


def first_difference(slowdowns: Sequence[float], others: Sequence[float]) -> int | None:
    """Return the index of the first entry in which two sorted vectors differ by more than the tolerance.

    The vectors have the slowdowns of the same jobs, from the worst. None when they are equal."""
    for index, (a, b) in enumerate(zip(slowdowns, others, strict=True)):
        if abs(a - b) > SLOWDOWN_TOLERANCE * max(a, b):
            return index
    return None
