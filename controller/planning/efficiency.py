"""What a routing is worth: demand, load, level of a job, network efficiency (DESIGN section 6).

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
        self.number = {link: number for number, link in enumerate(problem.capacity_bps)}
        self.capacity_bps = np.fromiter(problem.capacity_bps.values(), np.float64, len(self.number))
        self.flow_ids = [flow.id for flow in problem.flows]
        self.job_ids = sorted({flow.job_id for flow in problem.flows})
        numbered = {job: number for number, job in enumerate(self.job_ids)}
        self.job = np.array([numbered[flow.job_id] for flow in problem.flows], np.int64)
        self.nics = np.array(
            [(self.number[flow.nic_links[0]], self.number[flow.nic_links[1]]) for flow in problem.flows], np.int64
        ).reshape(-1, 2)
        entries = [(i, phase, bps) for i, flow in enumerate(problem.flows) for phase, bps in flow.demand_bps]
        self.entry_flow = np.array([entry[0] for entry in entries], np.int64)
        self.entry_bps = np.array([entry[2] for entry in entries], np.float64)
        phases = np.array([entry[1] for entry in entries], np.int64)
        cells = self.job[self.entry_flow] * (int(phases.max(initial=0)) + 1) + phases
        used, self.entry_cell = np.unique(cells, return_inverse=True)
        self.cell_job = np.zeros(len(used), np.int64)
        self.cell_job[self.entry_cell] = self.job[self.entry_flow]

    def job_levels(self, routes: Routes) -> dict[JobId, float]:
        """Level (>= 1) of every job with at least one routed flow, over its routed flows. Flows that are missing from
        ``routes`` are left out."""
        routed, flows, links, shares = self._pieces(routes)
        levels = np.ones(len(self.job_ids))
        on_link = self._peaks_bps(flows, links, shares)
        loads = np.bincount(on_link.link, on_link.peak_bps, len(self.number)) / self.capacity_bps
        np.maximum.at(levels, on_link.job, loads[on_link.link])
        return {self.job_ids[job]: float(levels[job]) for job in np.unique(self.job[routed])}

    def link_loads(self, routes: Routes) -> dict[LinkId, float]:
        """Load of every link that the routed flows use, as a share of its capacity."""
        _, flows, links, shares = self._pieces(routes)
        on_link = self._peaks_bps(flows, links, shares)
        loads = np.bincount(on_link.link, on_link.peak_bps, len(self.number)) / self.capacity_bps
        used = set(links.tolist())
        return {link: float(loads[number]) for link, number in self.number.items() if number in used}

    def entries_of(self, flows: Ints) -> tuple[Ints, Ints]:
        """(index into ``flows``, entry) for every entry of each of these flows, which may repeat."""
        per_flow = np.bincount(self.entry_flow, minlength=len(self.flow_ids))
        first = np.cumsum(per_flow) - per_flow
        times = per_flow[flows]
        row = np.repeat(np.arange(len(flows)), times)
        return row, first[flows[row]] + np.arange(len(row)) - np.repeat(np.cumsum(times) - times, times)

    def _pieces(self, routes: Routes) -> tuple[Ints, Ints, Ints, Floats]:
        """The routed flows, and one (flow, link, share) for every link that a piece of a flow passes, NICs too."""
        routed, flows, links, shares = [], [], [], []
        number = self.number
        for flow, flow_id in enumerate(self.flow_ids):
            route = routes.get(flow_id)
            if route is None:
                continue
            routed.append(flow)
            for path, share in route:
                for link in path:
                    flows.append(flow)
                    links.append(number[link])
                    shares.append(share)
        of = np.array(routed, np.int64)
        return (
            of,
            np.concatenate([np.array(flows, np.int64), of, of]),
            np.concatenate([np.array(links, np.int64), self.nics[of, 0], self.nics[of, 1]]),
            np.concatenate([np.array(shares, np.float64), np.ones(2 * len(of))]),
        )

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
