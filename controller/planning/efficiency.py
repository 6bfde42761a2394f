"""What a routing is worth: demand, load, level of a job, network efficiency (docs/planning.md).

The one place with these definitions; planner, live status and metrics all use it. In: virtual links and NIC rates,
or a ``Problem`` with a route per flow. Out: plain numbers.

- T0 of a phase: the job's communication time alone on an idle fabric, set by its busiest NIC.
- Demand of a flow in a phase: its bits / T0, in bit/s; sent at this rate, all flows of the phase end together.
- Load of a link: the sum over jobs of the job's largest load over its phases, / capacity. Phases of one job never
  overlap; those of different jobs may. A subflow loads its path with its share of the flow's demand.
- Level of a job: max(1, the largest load on a link it uses). Its communication takes at most level x T0.
- Network efficiency: 1 / the worst level. Routings are compared by the levels sorted from the worst.

A flow without a route loads nothing here; what hashing does with it is ``baselines.ecmp``'s to estimate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.fabric.topology import LinkId
from controller.jobs.collectives import VirtualLink
from controller.jobs.spec import JobId
from controller.planning.problem import FlowId, Problem, Routes

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LEVEL_TOLERANCE = 1e-4
"""Levels closer than this (relative) are the same level: far below what can be measured, well above rounding."""


def ideal_time_s(virtual_links: Iterable[VirtualLink], nic_bps: Mapping[str, float]) -> dict[int, float]:
    """T0 of each phase in seconds: the largest (bits through a NIC in one direction / NIC rate), phases ascending.

    ``nic_bps``: rate of each address's NIC, bit/s per direction. Raises ``KeyError`` for an address without one.
    """
    through: defaultdict[tuple[int, str, str], int] = defaultdict(int)
    for link in virtual_links:
        through[link.phase, link.src_ip, "out"] += link.bytes
        through[link.phase, link.dst_ip, "in"] += link.bytes
    slowest: dict[int, float] = {}
    for (phase, ip, _), amount in sorted(through.items()):
        slowest[phase] = max(slowest.get(phase, 0.0), 8 * amount / nic_bps[ip])
    return slowest


def ideal_communication_s(virtual_links: Iterable[VirtualLink], nic_bps: Mapping[str, float]) -> float:
    """Seconds of communication per iteration on an idle fabric: the phases' T0, one after the other."""
    return sum(ideal_time_s(virtual_links, nic_bps).values())


def demands(
    virtual_links: Sequence[VirtualLink], nic_bps: Mapping[str, float]
) -> dict[FlowId, tuple[tuple[int, float], ...]]:
    """The demand of every flow of one job: (phase, bit/s) in ascending phase order, as ``Flow.demand_bps`` wants it.
    Raises ``KeyError`` for an address without NIC rate."""
    t0_s = ideal_time_s(virtual_links, nic_bps)
    bits: defaultdict[FlowId, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for link in virtual_links:
        bits[FlowId(link.src_ip, link.dst_ip)][link.phase] += 8 * link.bytes
    return {
        flow: tuple((phase, amount / t0_s[phase]) for phase, amount in sorted(phases.items()) if amount)
        for flow, phases in bits.items()
    }


class Valuation:
    """What routings of one problem are worth; made once and used for many of them, because it numbers links, flows and
    phases for numpy.

    An *entry* is one flow in one phase, a *cell* one job in one phase.
    """

    def __init__(self, problem: Problem) -> None:
        """Raises ``KeyError`` with a link of a host that has no capacity."""
        flows = problem.flows
        number = self.number = problem.link_number
        self.capacity_bps = np.fromiter(problem.capacity_bps.values(), np.float64, len(number))
        self.flow_ids = [flow.id for flow in flows]
        self.job_ids = sorted({flow.job_id for flow in flows})
        numbered = {job: index for index, job in enumerate(self.job_ids)}
        self.job = np.array([numbered[flow.job_id] for flow in flows], np.int64)
        self.nics = np.array([number[link] for flow in flows for link in flow.nic_links], np.int64).reshape(-1, 2)
        demands = [flow.demand_bps for flow in flows]
        self._entries = np.array([len(demand) for demand in demands], np.int64)
        self._first = np.cumsum(self._entries) - self._entries
        self.entry_flow = np.repeat(np.arange(len(flows)), self._entries)
        self.entry_bps = np.array([bps for demand in demands for _, bps in demand], np.float64)
        phases = np.array([phase for demand in demands for phase, _ in demand], np.int64)
        cells = self.job[self.entry_flow] * (int(phases.max(initial=0)) + 1) + phases
        used, self.entry_cell = np.unique(cells, return_inverse=True)
        self.cell_job = np.zeros(len(used), np.int64)
        self.cell_job[self.entry_cell] = self.job[self.entry_flow]

    def job_levels(self, routes: Routes) -> dict[JobId, float]:
        """Level (>= 1) of every job with at least one routed flow, over its routed flows. Flows that are missing from
        ``routes`` are left out."""
        return self._levels(*self._pieces(routes))

    def nic_levels(self, flows: Ints) -> dict[JobId, float]:
        """The same as if these flows (by number) passed nothing but their NICs, which no routing can change."""
        links = np.concatenate([self.nics[flows, 0], self.nics[flows, 1]])
        return self._levels(flows, np.concatenate([flows, flows]), links, np.ones(len(links)))

    def link_loads(self, routes: Routes) -> dict[LinkId, float]:
        """Load of every link that the routed flows use, as a share of its capacity."""
        _, flows, links, shares = self._pieces(routes)
        on_link = self._peaks_bps(flows, links, shares)
        loads = np.bincount(on_link.link, on_link.peak_bps, len(self.number)) / self.capacity_bps
        used = set(links.tolist())
        return {link: float(loads[number]) for link, number in self.number.items() if number in used}

    def job_loads(self, routes: Routes) -> dict[LinkId, dict[JobId, float]]:
        """The same, of each job on the link."""
        _, flows, links, shares = self._pieces(routes)
        on_link = self._peaks_bps(flows, links, shares)
        link_ids = list(self.number)
        loads: defaultdict[LinkId, dict[JobId, float]] = defaultdict(dict)
        share = on_link.peak_bps / self.capacity_bps[on_link.link]
        for link, job, load in zip(on_link.link.tolist(), on_link.job.tolist(), share.tolist(), strict=True):
            loads[link_ids[link]][self.job_ids[job]] = load
        return loads

    def entries_of(self, flows: Ints) -> tuple[Ints, Ints]:
        """(index into ``flows``, entry) for every entry of each of these flows, which may repeat."""
        times = self._entries[flows]
        row = np.repeat(np.arange(len(flows)), times)
        return row, self._first[flows[row]] + np.arange(len(row)) - np.repeat(np.cumsum(times) - times, times)

    def _pieces(self, routes: Routes) -> tuple[Ints, Ints, Ints, Floats]:
        """The routed flows, and one (flow, link, share) for every link that a piece of a flow passes, NICs too."""
        number = self.number
        found = [routes.get(flow_id) for flow_id in self.flow_ids]
        of = np.array([flow for flow, route in enumerate(found) if route is not None], np.int64)
        pieces = [(flow, path, share) for flow, route in enumerate(found) if route for path, share in route]
        passed = np.array([len(path) for _, path, _ in pieces], np.int64)
        links = np.array([number[link] for _, path, _ in pieces for link in path], np.int64)
        flows = np.repeat(np.array([flow for flow, _, _ in pieces], np.int64), passed)
        shares = np.repeat(np.array([share for _, _, share in pieces], np.float64), passed)
        return (
            of,
            np.concatenate([flows, of, of]),
            np.concatenate([links, self.nics[of, 0], self.nics[of, 1]]),
            np.concatenate([shares, np.ones(2 * len(of))]),
        )

    def _levels(self, routed: Ints, flows: Ints, links: Ints, shares: Floats) -> dict[JobId, float]:
        levels = np.ones(len(self.job_ids))
        on_link = self._peaks_bps(flows, links, shares)
        loads = np.bincount(on_link.link, on_link.peak_bps, len(self.number)) / self.capacity_bps
        np.maximum.at(levels, on_link.job, loads[on_link.link])
        return {self.job_ids[job]: float(levels[job]) for job in np.unique(self.job[routed])}

    def _peaks_bps(self, flows: Ints, links: Ints, shares: Floats) -> _OnLinks:
        """Per link and job on it, the job's largest load over its phases."""
        piece, entry = self.entries_of(flows)
        cells = len(self.cell_job)
        at, place = np.unique(links[piece] * cells + self.entry_cell[entry], return_inverse=True)
        bps = np.bincount(place, self.entry_bps[entry] * shares[piece], len(at))
        link, job = at // max(cells, 1), self.cell_job[at % max(cells, 1)]
        # Cells are in the order of jobs, so the phases of one job on one link lie side by side.
        starts = np.flatnonzero(np.diff(link, prepend=-1) | np.diff(job, prepend=-1))
        peaks: Floats = np.maximum.reduceat(bps, starts) if len(starts) else np.zeros(0)
        return _OnLinks(link[starts], job[starts], peaks)


class _OnLinks(NamedTuple):
    """One row per link and job on it."""

    link: Ints
    job: Ints
    peak_bps: Floats


def job_levels(problem: Problem, routes: Routes) -> dict[JobId, float]:
    """``Valuation.job_levels`` of a single routing."""
    return Valuation(problem).job_levels(routes)


def link_loads(problem: Problem, routes: Routes) -> dict[LinkId, float]:
    """``Valuation.link_loads`` of a single routing."""
    return Valuation(problem).link_loads(routes)


def network_efficiency(levels: Iterable[float]) -> float:
    """1 / the worst level; 1 when there is no job."""
    return 1.0 / max(levels, default=1.0)


def first_difference(levels: Sequence[float], others: Sequence[float]) -> int | None:
    """Index of the first entry in which two vectors of levels, sorted from the worst, differ by more than the
    tolerance; None when they are equal. Both have one entry per job of the same jobs."""
    for index, (a, b) in enumerate(zip(levels, others, strict=True)):
        if abs(a - b) > LEVEL_TOLERANCE * max(a, b):
            return index
    return None
