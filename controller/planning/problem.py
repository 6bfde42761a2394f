"""The planner's input: one frozen snapshot of capacities, candidate paths and flows, also in numbers; and routes.

A *flow* is a virtual link of one job with known ends: all bytes that the job sends from one host to another. A *route*
is how it travels: whole on one path, or in *subflows* with a share each. A flow may take part in several phases of its
job, with a demand in each. Phases never overlap, so a link's load counts only the job's largest phase on it (demand and
load are defined in ``efficiency``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.fabric.shortest_paths import CandidatePaths
from controller.fabric.topology import Dpid, LinkId, Path
from controller.jobs.spec import JobId

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class FlowId(NamedTuple):
    """Source and destination address; at most one job announces a pair."""

    src_ip: str
    dst_ip: str


class Subflow(NamedTuple):
    """A piece of a flow: ``share`` of its bytes, in (0, 1], on one path."""

    path: Path
    share: float


Route = tuple[Subflow, ...]
"""The pieces of one flow, in the order of their source-port classes. Their shares add up to 1."""

Routes = Mapping[FlowId, Route]


def whole(path: Path) -> Route:
    """The route of a flow that is not split."""
    return (Subflow(path, 1.0),)


@dataclass(frozen=True, slots=True)
class Flow:
    """``demand_bps``: per phase, bytes of the phase / T0 of the phase (bit/s), in ascending phase order.

    ``nic_links``: the source's link in and the destination's link out, loaded whatever the path.
    ``current``: how the flow is pinned now, None under ECMP. ``max_subflows``: into how many pieces its job can
    divide it; 1 is whole.
    """

    id: FlowId
    job_id: JobId
    src_leaf: Dpid
    dst_leaf: Dpid
    nic_links: tuple[LinkId, LinkId]
    demand_bps: tuple[tuple[int, float], ...]
    current: Route | None = None
    max_subflows: int = 1


@dataclass(frozen=True)
class Problem:
    """``capacity_bps``: per directed link what announced traffic may use (measured background already taken off).

    ``paths``: between each pair of switches the candidate paths; a pair without any cannot be routed. ``link_number``:
    the place of each link in ``capacity_bps``.
    """

    generation: int
    capacity_bps: Mapping[LinkId, float]
    paths: CandidatePaths
    flows: tuple[Flow, ...]

    @cached_property
    def link_number(self) -> Mapping[LinkId, int]:
        return dict(zip(self.capacity_bps, range(len(self.capacity_bps)), strict=True))

    @cached_property
    def numbers(self) -> Numbers:
        """Raises ``KeyError`` with a link of a host that has no capacity."""
        return Numbers(self)

    def candidates(self, flow: Flow) -> tuple[Path, ...]:
        """The paths the flow may take; the one empty path when both ends share a switch."""
        return self.paths.between(flow.src_leaf, flow.dst_leaf)

    def reachable(self, flow: Flow) -> bool:
        """Whether the flow has a candidate; without finding them all."""
        return self.paths.connected(flow.src_leaf, flow.dst_leaf)

    def stands(self, flow: Flow) -> bool:
        """Whether the flow is pinned, and every path it is pinned to is there."""
        return flow.current is not None and all(
            self.paths.leads(piece.path, flow.src_leaf, flow.dst_leaf) for piece in flow.current
        )


class Numbers:
    """A problem as arrays. Links go by ``Problem.link_number``, flows by their place in ``Problem.flows``, jobs by
    their place in ``job_ids``, which is sorted. An *entry* is one flow in one phase, a *cell* one job in one phase.

    ``capacity_bps``: per link. ``job``, ``nics`` (its two links), ``peak_bps`` (its largest demand): per flow.
    ``entry_flow``, ``entry_bps``, ``entry_cell``: per entry. ``cell_job``: per cell, ascending.
    """

    def __init__(self, problem: Problem) -> None:
        flows, number = problem.flows, problem.link_number
        self.capacity_bps = np.fromiter(problem.capacity_bps.values(), np.float64, len(number))
        self.job_ids = sorted({flow.job_id for flow in flows})
        job_number = {job: index for index, job in enumerate(self.job_ids)}
        self.job = np.array([job_number[flow.job_id] for flow in flows], np.int64)
        self.nics = np.array([number[link] for flow in flows for link in flow.nic_links], np.int64).reshape(-1, 2)
        demands = [flow.demand_bps for flow in flows]
        self._entries = np.array([len(demand) for demand in demands], np.int64)
        self._first = np.cumsum(self._entries) - self._entries
        self.entry_flow = np.repeat(np.arange(len(flows)), self._entries)
        self.entry_bps = np.array([bps for demand in demands for _, bps in demand], np.float64)
        self.peak_bps = np.zeros(len(flows))
        np.fmax.at(self.peak_bps, self.entry_flow, self.entry_bps)
        phases = np.array([phase for demand in demands for phase, _ in demand], np.int64)
        cells = self.job[self.entry_flow] * (int(phases.max(initial=0)) + 1) + phases
        used, self.entry_cell = np.unique(cells, return_inverse=True)
        self.cell_job = np.zeros(len(used), np.int64)
        self.cell_job[self.entry_cell] = self.job[self.entry_flow]

    def entries_of(self, flows: Ints) -> tuple[Ints, Ints]:
        """(index into ``flows``, entry) for every entry of each of these flows, which may repeat."""
        times = self._entries[flows]
        row = np.repeat(np.arange(len(flows)), times)
        return row, self._first[flows[row]] + np.arange(len(row)) - np.repeat(np.cumsum(times) - times, times)


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """``time_limit_s``: for the solver alone. ``max_moves``: pinned flows that may change route, None for any number;
    flows whose current path is lost do not count. ``ecmp_draws``: 0 leaves ECMP out. ``deterministic``: no wall-clock
    limit decides anything (same input, same plan)."""

    time_limit_s: float = 2.0
    max_moves: int | None = None
    ecmp_draws: int = 200
    seed: int = 1
    deterministic: bool = False
