"""Quality of a routing: load of a link, slowdown of a job, network efficiency.

In: a ``Problem``, whose flows have their demands, and routes. Out: plain numbers. Planner, live status and metrics all
use these definitions:

- Load of a link: traffic of all jobs (bit/s) / the link's capacity. Each job counts with the phase in which it sends
  most over the link: phases of one job never overlap, phases of different jobs may.
- Slowdown of a phase of a job: the largest load, at least 1, of a link that the phase uses. This load counts the phase
  itself, and the largest phase of every other job.
- Slowdown of a job: the sum over its phases of share x slowdown. The share of a phase is its part of the job's ideal
  communication time. So the communication of an iteration takes at most slowdown x ideal time. When only worst phases
  count (``Problem.phase_share``), the slowdown is the peak slowdown.
- *Peak* slowdown of a job: the slowdown of its slowest phase, which is the largest load of a link that the job uses.
- *Own* slowdown of a job: its slowdown while no other job sends.
- Network efficiency: 1 / the worst slowdown.

A *cell* is one phase of one job (``Numbers``). ``peaks`` computes loads for a whole routing, ``FabricLoads`` for
hundreds of random draws, ``greedy.Increments`` flow by flow. Two other modules compute loads of their own:
``split_flows.commodities`` as rows of its linear programme, and ``whole_flows.cpsat`` as integers that are rounded
down.

ECMP hashes flows without a route. In the model, a flow takes at every switch one of the equal-cost next hops, each with
the same probability, independently of all other flows and switches. All next hops of a switch count, even where the
candidate paths of the problem are capped (``NextHops``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from controller.fabric.topology import LinkId
from controller.planning.next_hops import NextHops
from controller.planning.problem import (
    Floats,
    Flow,
    Ints,
    NumberedRoutes,
    Problem,
    Routes,
    distinct,
    run_starts,
)
from signalbox.jobs.spec import ROCE_PORT, JobId

SLOWDOWN_TOLERANCE = 1e-4
"""Relative difference below which two slowdowns count as equal.

It is far below measurable differences, and well above rounding errors."""


def first_difference(slowdowns: Sequence[float], others: Sequence[float]) -> int | None:
    """Return the index of the first entry in which two sorted vectors differ by more than the tolerance.

    The vectors have the slowdowns of the same jobs, from the worst. Return None when they are equal."""
    for index, (a, b) in enumerate(zip(slowdowns, others, strict=True)):
        if abs(a - b) > SLOWDOWN_TOLERANCE * max(a, b):
            return index
    return None


def is_less(slowdowns: Sequence[float], others: Sequence[float]) -> bool:
    """Return whether two sorted vectors differ, and ``slowdowns`` has the smaller entry where they first differ."""
    index = first_difference(slowdowns, others)
    return index is not None and slowdowns[index] < others[index]


def sorted_slowdowns(of_job: Mapping[JobId, float]) -> tuple[float, ...]:
    """Return the slowdowns of all jobs, the worst first."""
    return tuple(sorted(of_job.values(), reverse=True))


def network_efficiency(slowdowns: Iterable[float]) -> float | None:
    """Return 1 / the worst slowdown; None when ``slowdowns`` is empty."""
    worst = max(slowdowns, default=None)
    return None if worst is None else 1.0 / worst


class JobSlowdowns(NamedTuple):
    """Slowdowns (>= 1) of every job with a routed flow."""

    slowdown: dict[JobId, float]
    own: dict[JobId, float]
    peak: dict[JobId, float]
    """The object ``slowdown`` itself when the slowdowns of all jobs are peak slowdowns."""


def all_slowdowns(problem: Problem, routes: Routes | NumberedRoutes) -> JobSlowdowns:
    """Return slowdowns, own slowdowns and peak slowdowns. Flows that are missing from ``routes`` do not count."""
    rows = passing(problem, routes)
    loads, on_link = _loads(problem, rows)
    peak = _of_jobs(problem, rows, on_link, loads[on_link.place])
    if problem.phase_share is None:
        own = on_link.bps / problem.numbers.capacity_bps[on_link.place]
        return JobSlowdowns(peak, _of_jobs(problem, rows, on_link, own), peak)
    of_cells, alone = cell_slowdowns(problem, rows)
    return JobSlowdowns(_of_routed(problem, rows, of_cells), _of_routed(problem, rows, alone), peak)


def job_slowdowns(problem: Problem, routes: Routes | NumberedRoutes) -> dict[JobId, float]:
    """Return the slowdown of every job with a routed flow, as ``all_slowdowns`` does."""
    if problem.phase_share is None:
        return peak_slowdowns(problem, routes)
    rows = passing(problem, routes)
    return _of_routed(problem, rows, cell_slowdowns(problem, rows)[0])


def peak_slowdowns(problem: Problem, routes: Routes | NumberedRoutes) -> dict[JobId, float]:
    """Return the peak slowdown of every job with a routed flow, as ``all_slowdowns`` does."""
    return peaks_of(problem, passing(problem, routes))


def phase_slowdowns(problem: Problem, routes: Routes) -> dict[JobId, dict[int, float]]:
    """Return the slowdown of each phase of every job, for jobs with a routed flow."""
    numbers, slowdowns = problem.numbers, cell_slowdowns(problem, passing(problem, routes))[0]
    found: defaultdict[JobId, dict[int, float]] = defaultdict(dict)
    for cell in np.flatnonzero(slowdowns).tolist():
        found[numbers.job_ids[numbers.cell_job[cell]]][int(numbers.cell_phase[cell])] = float(slowdowns[cell])
    return dict(found)


def of_iterations(problem: Problem, of_cells: Floats, share: Floats) -> Floats:
    """Return the slowdown of each job, given the slowdown and the share of each cell."""
    numbers = problem.numbers
    weighted = share * np.maximum(1.0, of_cells)
    return np.maximum(1.0, np.bincount(numbers.cell_job, weighted, len(numbers.job_ids)))


def cell_slowdowns(problem: Problem, rows: Passing) -> tuple[Floats, Floats]:
    """Return each cell's slowdown, and its slowdown while no other job sends; 0 for a cell without a routed flow."""
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
    slowdowns, alone = np.zeros(len(numbers.cell_job)), np.zeros(len(numbers.cell_job))
    load = (total_bps[link] + own_bps - largest.bps[peak]) / numbers.capacity_bps[link]
    np.maximum.at(slowdowns, cell, np.maximum(1.0, load))
    np.maximum.at(alone, cell, np.maximum(1.0, own_bps / numbers.capacity_bps[link]))
    return slowdowns, alone


def _of_routed(problem: Problem, rows: Passing, of_cells: Floats) -> dict[JobId, float]:
    numbers, share = problem.numbers, problem.phase_share
    assert share is not None
    slowdowns = of_iterations(problem, of_cells, share)
    return {numbers.job_ids[job]: float(slowdowns[job]) for job in distinct(numbers.job[rows.routed])[0].tolist()}


def of_nics(problem: Problem, flows: Ints) -> Passing:
    """Return rows in which ``flows`` (numbers) use only their NICs. No routing can change the load of a NIC."""
    links = problem.numbers.nics[flows].T.ravel()
    return Passing(flows, np.concatenate([flows, flows]), links, np.ones(len(links)))


def nic_slowdowns(problem: Problem, flows: Ints) -> dict[JobId, float]:
    """Return the peak slowdown of each job if ``flows`` (numbers) load only their NICs."""
    return peaks_of(problem, of_nics(problem, flows))


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
    connection per subflow; paced subflows together count as one connection.

    For each connection, a lower bound of its rate is computed. If all connections sent at once, each link of its path
    would give it some rate; the bound is the smallest of these rates. On one link this rate is capacity x d / D. Here d
    is the demand of the connection's flow, and D is the sum of d over all connections on the link. When all flows have
    equally many connections, this rate is the connection's part of d, divided by the load of the link. Flows of unequal
    demand are assumed to get rates in proportion to their demands, as slowdowns assume too."""
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
    slowdowns = peak_slowdowns(problem, routes)
    return frozenset(
        job
        for job, slowdown in zip(numbers.job_ids, least.tolist(), strict=True)
        if slowdown > slowdowns.get(job, 1.0) * (1 + SLOWDOWN_TOLERANCE)
    )


def peaks_of(problem: Problem, rows: Passing) -> dict[JobId, float]:
    """Return the peak slowdown of every job with a routed flow."""
    loads, on_link = _loads(problem, rows)
    return _of_jobs(problem, rows, on_link, loads[on_link.place])


def _of_jobs(problem: Problem, rows: Passing, on_link: Peaks, loads: Floats) -> dict[JobId, float]:
    """Return the largest of ``loads`` (per row of ``on_link``), at least 1, for each job with a routed flow."""
    numbers = problem.numbers
    slowdowns = np.ones(len(numbers.job_ids))
    np.maximum.at(slowdowns, on_link.job, loads)
    return {numbers.job_ids[job]: float(slowdowns[job]) for job in distinct(numbers.job[rows.routed])[0].tolist()}


def loads_of(problem: Problem, rows: Passing) -> Floats:
    """Return the load of each link as a fraction of its capacity."""
    return _loads(problem, rows)[0]


def _loads(problem: Problem, rows: Passing) -> tuple[Floats, Peaks]:
    """Return the load of each link, and the bit/s of each job's largest phase on each link."""
    numbers = problem.numbers
    subflow, entry = numbers.entries_of(rows.flow)
    bps = numbers.entry_bps[entry] * rows.share[subflow]
    on_link = peaks(rows.link[subflow], numbers.entry_cell[entry], bps, numbers.cell_job)
    return np.bincount(on_link.place, on_link.bps, len(numbers.capacity_bps)) / numbers.capacity_bps, on_link


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
    starts = run_starts(place * count + job)
    largest: Floats = np.maximum.reduceat(sums, starts) if len(starts) else np.zeros(0)
    return Peaks(place[starts], job[starts], largest)


class Passing(NamedTuple):
    """Links that routed flows use, NICs included; one row (``flow``, ``link``, ``share``) per link and subflow."""

    routed: Ints
    """Indices of the flows that have a route."""
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


# ---- slowdowns under hashing


_CHUNK = 1 << 16
"""Number of values that are computed at once, so that the arrays fit into the processor's cache."""
_FIRST_DYNAMIC_PORT = 49152
_DYNAMIC_PORTS = 16384
"""Number of ports in IANA's dynamic range, which begins at ``_FIRST_DYNAMIC_PORT`` (RFC 6335, section 6)."""
_UDP = 17
"""IP protocol number of UDP, over which RoCEv2 runs.

RoCEv2 senders vary the UDP source port, so that switches hash their flows differently."""


@dataclass(frozen=True, slots=True)
class EcmpSlowdown:
    """Statistics of a slowdown under ECMP hashing, over seeded random draws on one snapshot.

    The slowdown is of one job; in a plan it is of the worst job."""

    mean: float
    p95: float

    def is_as_good_as(self, slowdown: float, min_gain: float) -> bool:
        """Return whether at most 5 % of the draws exceed ``slowdown`` by more than ``min_gain`` (relative)."""
        return self.p95 <= slowdown * (1 + min_gain)


def ecmp_slowdown(problem: Problem, draws: int, seed: int, hops: NextHops | None = None) -> EcmpSlowdown:
    """Return the mean and 95th percentile of the worst slowdown when every routable flow is hashed; 1 without flows.

    ``hops``: next hops of the problem, if the caller has computed them."""
    hops = hops or NextHops(problem)
    loads = FabricLoads(problem, hops)
    worst = np.concatenate([loads.worst(links) for links in _draws(hops, hops.state, draws, seed)])
    return EcmpSlowdown(float(worst.mean()), float(np.percentile(worst, 95)))


def nic_slowdown(problem: Problem, hops: NextHops) -> float:
    """Return the worst peak slowdown (>= 1) that NICs impose on every routing."""
    return max(nic_slowdowns(problem, _routable(problem, hops.flows, {})).values(), default=1.0)


def ecmp_job_slowdowns(problem: Problem, pinned: Routes, draws: int, seed: int) -> dict[JobId, float]:
    """Return the expected slowdown of every job with a routable flow, see ``hashed_job_slowdowns``."""
    return {job: slowdown.mean for job, slowdown in hashed_job_slowdowns(problem, pinned, draws, seed).items()}


def hashed_job_slowdowns(problem: Problem, pinned: Routes, draws: int, seed: int) -> dict[JobId, EcmpSlowdown]:
    """Return statistics of the slowdown of every job with a routable flow.

    ``pinned``: routes of flows. Flows that are not in ``pinned``, or whose route has a lost link, are hashed. The
    result is exact when every flow is pinned."""
    in_force = {flow.id: pinned[flow.id] for flow in problem.flows if _is_in_force(problem, pinned, flow)}
    if len(in_force) == len(problem.flows):
        return {job: EcmpSlowdown(slowdown, slowdown) for job, slowdown in job_slowdowns(problem, in_force).items()}
    hops = NextHops(problem)
    loads = FabricLoads(problem, hops, in_force)
    drawn = [loads.slowdowns(links) for links in _draws(hops, hops.state[loads.hashed], draws, seed)]
    of_jobs = np.concatenate(drawn).T
    routable = np.unique(problem.numbers.job[loads.routable]).tolist()
    return {
        problem.numbers.job_ids[job]: EcmpSlowdown(float(of_jobs[job].mean()), float(np.percentile(of_jobs[job], 95)))
        for job in routable
    }


def hashed_links(problem: Problem, hops: NextHops, seed: int) -> Ints:
    """Return the links of each flow when every switch hashes the flow's addresses and ports; shape (hops, flows).

    Column i is flow ``hops.flows[i]``. The source port is a function of the seed and the job. Each switch uses a
    hash function of its own."""
    ports = {
        job: _FIRST_DYNAMIC_PORT + crc32(f"{seed} {job}".encode()) % _DYNAMIC_PORTS for job in problem.numbers.job_ids
    }
    flows = [problem.flows[number] for number in hops.flows.tolist()]
    words = [
        crc32(f"{f.id.src_ip} {f.id.dst_ip} {_UDP} {ports[f.job_id] + f.id.subflow} {ROCE_PORT}".encode())
        for f in flows
    ]
    five_tuple = np.array(words, np.uint64)
    first = hops.link[hops.start].tolist()
    switch = np.array([hops.links[link].dpid if link != hops.nothing else 0 for link in first], np.uint64)
    taken = np.full((hops.longest, len(flows)), hops.nothing)
    here = hops.state
    for hop in range(hops.longest):
        bits = _mixed(five_tuple ^ _mixed(switch[here])) >> np.uint64(32)
        position = hops.start[here] + _number_below(hops.size[here], bits)
        taken[hop] = hops.link[position]
        here = hops.after[position]
    return taken


def _draws(hops: NextHops, state: Ints, draws: int, seed: int) -> Iterator[Ints]:
    """Yield the links of flows that begin in ``state``, some random draws at a time; shape (hops, draws, flows)."""
    random = np.random.default_rng(seed)
    forks = _has_choice(hops, state)
    portion = max(1, _CHUNK // max(1, len(state), len(hops.links)))
    for done in range(0, draws, portion):
        shape = (min(portion, draws - done), len(state))
        links = np.full((hops.longest, *shape), hops.nothing)
        here = state[None]
        for hop in range(hops.longest):
            position = hops.start[here]
            if forks[hop]:
                position = position + _number_below(hops.size[here], random.integers(0, 1 << 32, shape, np.uint32))
            links[hop] = hops.link[position]
            if hop + 1 < hops.longest:
                here = hops.after[position]
        yield links


def _has_choice(hops: NextHops, state: Ints) -> list[bool]:
    forks = []
    of_position = np.repeat(np.arange(len(hops.size)), hops.size)
    here = np.zeros(len(hops.size), bool)
    here[state] = True
    for _ in range(hops.longest):
        forks.append(bool((hops.size[here] > 1).any()))
        ahead = hops.after[here[of_position]]
        here = np.zeros(len(hops.size), bool)
        here[ahead] = True
    return forks


def _routable(problem: Problem, hashed: Ints, in_force: Routes) -> Ints:
    """Return the numbers of the flows that have a path. ``hashed``: flows (numbers) that have a path between leaves."""
    routable = np.array([flow.src_leaf == flow.dst_leaf or flow.id in in_force for flow in problem.flows], bool)
    routable[hashed] = True
    return np.flatnonzero(routable)


def _is_in_force(problem: Problem, pinned: Routes, flow: Flow) -> bool:
    route = pinned.get(flow.id)
    return route is not None and all(link in problem.paths.far_end for subflow in route for link in subflow.path)


def _fixed(problem: Problem, in_force: Routes, hops: NextHops) -> Passing:
    return _passing(
        (number, hops.number[link], share)
        for number, flow in enumerate(problem.flows)
        for path, share in in_force.get(flow.id, ())
        for link in path
    )


def _passing(rows: Iterable[tuple[int, int, float]]) -> Passing:
    flows, links, shares = np.array([*rows], np.float64).reshape(-1, 3).T
    return Passing(np.unique(flows).astype(np.int64), flows.astype(np.int64), links.astype(np.int64), shares)


def _number_below(size: Ints, bits: NDArray[np.unsignedinteger]) -> Ints:
    """Return a number from 0 to ``size`` - 1 for each entry of ``bits``, which has 32 random bits."""
    return ((bits * size.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return words in which every bit depends on every bit of the input word.

    This is the finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA
    2014). A CRC alone is linear: pairs of flows whose addresses differ in the same bits would collide at every
    switch."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


# ---- loads of many draws


class FabricLoads:
    """Loads and slowdowns of many random draws of routes at once.

    Flows in ``in_force`` take their routes in every draw; all other flows with a path between leaves are hashed.
    ``hashed`` says which of ``hops.flows`` are hashed. The argument ``links`` of the methods has their paths; shape
    (hops, draws, flows). Links are numbered as in ``hops``."""

    def __init__(self, problem: Problem, hops: NextHops, in_force: Routes = MappingProxyType({})) -> None:
        numbers = problem.numbers
        self.hashed = np.array([problem.flows[number].id not in in_force for number in hops.flows.tolist()], bool)
        flows, fixed = hops.flows[self.hashed], _fixed(problem, in_force, hops)
        self.routable = _routable(problem, hops.flows, in_force)
        self._share, self._capacity_bps = problem.phase_share, hops.capacity_bps
        nics, jobs = of_nics(problem, self.routable), numbers.job_ids
        self._jobs = len(jobs)
        of_nic = peaks_of(problem, nics)
        self._floor = np.array([of_nic.get(job, 1.0) for job in jobs])
        self._floor_of_cell = np.maximum(1.0, cell_slowdowns(problem, nics)[0]) if self._share is not None else None
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
        self._several: defaultdict[int, dict[int, _Cell]] = defaultdict(dict)
        for cell in np.flatnonzero(phases[numbers.cell_job] > 1).tolist():
            mine, pinned = numbers.entry_cell[entry] == cell, numbers.entry_cell[fixed_entry] == cell
            self._several[int(numbers.cell_job[cell])][cell] = _Cell(
                column[mine], numbers.entry_bps[entry[mine]], fixed.link[row[pinned]], fixed_bps[pinned]
            )

    def of(self, links: Ints) -> Floats:
        """Return the load of every link in every draw; shape (draws, links)."""
        return self._loads(links)[0]

    def slowdowns(self, links: Ints) -> Floats:
        """Return the slowdown of every job in every draw; shape (draws, jobs)."""
        loads, phases = self._loads(links)
        slowdowns: Floats = np.maximum(self._peaks(links, loads), self._floor)
        if self._share is None or self._floor_of_cell is None:
            return slowdowns
        for job, of_job in phases.items():
            slowdowns[:, job] = 0
            largest = np.maximum.reduce(list(of_job.loads.values()))
            for cell, own in of_job.loads.items():
                seen = np.where(own > 0, loads[:, of_job.links] - largest + own, 0.0).max(axis=1, initial=0.0)
                slowdowns[:, job] += self._share[cell] * np.maximum(seen, self._floor_of_cell[cell])
            np.maximum(slowdowns[:, job], 1.0, out=slowdowns[:, job])
        return slowdowns

    def worst(self, links: Ints) -> Floats:
        """Return the slowdown of the worst job in every draw."""
        if self._share is None:
            worst: Floats = np.maximum(self.of(links).max(axis=1, initial=0.0), self._floor.max(initial=1.0))
        else:
            worst = self.slowdowns(links).max(axis=1, initial=1.0)
        return worst

    def _loads(self, links: Ints) -> tuple[Floats, Mapping[int, _Phases]]:
        """Return the load of every link in every draw, and the loads by the phases of each job with several phases."""
        width, phases = len(self._capacity_bps), dict[int, _Phases]()
        loads = self._single.sums(self._single.taken(links), self._single.fixed_link, width) / self._capacity_bps
        for job, cells in self._several.items():
            used, place = _compact(links, cells.values(), width)
            sums = {
                number: cell.sums(place[cell.taken(links)], place[cell.fixed_link], len(used))
                / self._capacity_bps[used]
                for number, cell in cells.items()
            }
            loads[:, used] += np.maximum.reduce(list(sums.values()))
            phases[job] = _Phases(used, sums)
        return loads, phases

    def _peaks(self, links: Ints, loads: Floats) -> Floats:
        """Return for each job the largest load of a link that it uses, 0 without such a link; shape (draws, jobs)."""
        slowdowns = np.zeros((len(loads), self._jobs))
        if len(self._job):
            rows = np.arange(len(loads))[:, None] * loads.shape[1]
            seen = loads.ravel()[links[:, :, self._by_job] + rows].max(axis=0)
            starts = run_starts(self._job)
            slowdowns[:, self._job[starts]] = np.maximum.reduceat(seen, starts, axis=1)
        for job in np.unique(self._fixed_job).tolist():
            on = np.unique(self._fixed_link[self._fixed_job == job])
            slowdowns[:, job] = np.maximum(slowdowns[:, job], loads[:, on].max(axis=1))
        return slowdowns


class _Phases(NamedTuple):
    links: Ints
    """Links that the job uses in any draw."""
    loads: Mapping[int, Floats]
    """Load of these links by each cell of the job; shape (draws, links)."""


class _Cell:
    """Flows and fixed subflows whose rates add up on a link.

    A cell has the flows of one phase of a job, or the flows of all jobs that have a single phase. ``columns``: places
    of the flows in the last dimension of the argument ``links`` of ``FabricLoads.of``."""

    def __init__(self, columns: Ints, bps: Floats, fixed_link: Ints, fixed_bps: Floats) -> None:
        self.columns = columns
        self.fixed_link = fixed_link
        self._bps = bps
        self._fixed_bps = fixed_bps
        self._equal_bps = float(bps[0]) if len(bps) and (bps == bps[0]).all() else None

    def taken(self, links: Ints) -> Ints:
        return links if len(self.columns) == links.shape[2] else links[:, :, self.columns]

    def sums(self, taken: Ints, fixed_link: Ints, width: int) -> Floats:
        """Return the bit/s that these flows and fixed subflows send over every link; shape (draws, ``width``).

        ``taken``: links of the flows, as the method ``taken`` returns them. ``fixed_link``: link of each fixed subflow.
        Both may number the links anew (``_compact``); all numbers are below ``width``."""
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
    """Assign new numbers from 0 to the links that one job uses, so that its sums fit into small arrays.

    Return the usual numbers of these links, and the new number of each link by its usual one (below ``width``)."""
    on = np.zeros(width, bool)
    for cell in cells:
        on[cell.taken(links)] = True
        on[cell.fixed_link] = True
    return np.flatnonzero(on), np.cumsum(on) - 1
