"""The planner's input: one frozen snapshot of capacities, candidate paths and flows.

A *flow* is a virtual link of one job with known ends: all bytes that the job sends from one host to another. It
is routed whole. A flow may take part in several phases of its job, with a demand in each: the phases never
overlap, so a link's load counts only the job's worst phase on it (DESIGN: demand and load are defined in
``efficiency``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from controller.fabric.topology import Dpid, LinkId, Path
from controller.jobs.spec import JobId


class FlowId(NamedTuple):
    """Source and destination address; at most one job announces a pair."""

    src_ip: str
    dst_ip: str


@dataclass(frozen=True, slots=True)
class Flow:
    """``demand_bps``: per phase, bytes of the phase / T0 of the phase (bit/s), in ascending phase order.

    ``nic_links``: the source's link in and the destination's link out, loaded whatever the path.
    ``current``: the path the flow is pinned to now, None under ECMP.
    """

    id: FlowId
    job_id: JobId
    src_leaf: Dpid
    dst_leaf: Dpid
    nic_links: tuple[LinkId, LinkId]
    demand_bps: tuple[tuple[int, float], ...]
    current: Path | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """``capacity_bps``: per directed link what announced traffic may use (measured background already taken off).

    ``paths``: per (source switch, destination switch) the candidate paths, shortest first; a pair that is missing
    or empty cannot be routed.
    """

    generation: int
    capacity_bps: Mapping[LinkId, float]
    paths: Mapping[tuple[Dpid, Dpid], tuple[Path, ...]]
    flows: tuple[Flow, ...]

    def candidates(self, flow: Flow) -> tuple[Path, ...]:
        """The paths the flow may take; the one empty path when both ends share a switch."""
        if flow.src_leaf == flow.dst_leaf:
            return ((),)
        return self.paths.get((flow.src_leaf, flow.dst_leaf), ())


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """``time_limit_s``: for the solver alone. ``max_moves``: pinned flows that may change path, None for any number;
    flows whose current path has gone do not count. ``deterministic``: one worker, fixed seed, no wall-clock limit
    in the search order (same input, same plan)."""

    time_limit_s: float = 2.0
    max_moves: int | None = None
    ecmp_draws: int = 200
    seed: int = 1
    workers: int = 1
    deterministic: bool = False
