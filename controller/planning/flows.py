"""Flows of jobs, which the planner routes, and their routes.

A *flow* is a virtual link of one job with known ends: all bytes that the job sends from one host to another. A *route*
says how the flow travels: whole on one path, or in *subflows*, each with a share of the bytes. A flow may take part in
several phases of its job, with a demand in each:

- The ideal time of a phase is its communication time when the job is alone on an idle fabric. The busiest NIC sets it.
- The demand of a flow in a phase is its bits / the ideal time, in bit/s. When all flows of the phase send at their
  demands, they all end together.

The phases of one job never overlap, so the load of a link counts only the job's largest phase on it
(``efficiency``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from controller.fabric.topology import Dpid, LinkId, Path
from signalbox.jobs.spec import JobId
from signalbox.jobs.subflows import Dividing


class FlowId(NamedTuple):
    """Source and destination address of a flow, and two fields that distinguish flows with equal addresses.

    At most one job without an ``owner`` may announce a pair of addresses."""

    src_ip: str
    dst_ip: str
    owner: str = ""
    """Job of the flow where several jobs share the pair, see ``signalbox.jobs.subflows``; else empty."""
    subflow: int = 0
    """Number of this subflow where the job has divided the pair into equal subflows; else 0."""

    @property
    def pair(self) -> tuple[str, str]:
        return self.src_ip, self.dst_ip

    @property
    def back(self) -> FlowId:
        """Flow in the opposite direction."""
        return self._replace(src_ip=self.dst_ip, dst_ip=self.src_ip)

    @property
    def joined(self) -> FlowId:
        """Common id of all equal subflows of the same pair and owner."""
        return FlowId(self.src_ip, self.dst_ip, self.owner) if self.subflow else self


def flow_ids(dividing: Dividing, pair: tuple[str, str]) -> tuple[FlowId, ...]:
    """Return the ids of a job's flows between a pair of addresses: one, or one per equal subflow."""
    return tuple(FlowId(*pair, dividing.owner, subflow) for subflow in range(len(dividing.subflows(pair).weights)))


class Subflow(NamedTuple):
    """Part of a flow that takes one path."""

    path: Path
    share: float
    """Share of the flow's bytes, in (0, 1]."""


Route = tuple[Subflow, ...]
"""Subflows of one flow. Subflow i has source-port class i (``signalbox.jobs.subflows``). The shares add up to 1."""

Routes = Mapping[FlowId, Route]


def whole(path: Path) -> Route:
    """Return the route of a flow that takes one path."""
    return (Subflow(path, 1.0),)


@dataclass(frozen=True, slots=True)
class Flow:
    """Demand of one job between two hosts, and the route that it has now."""

    id: FlowId
    job_id: JobId
    src_leaf: Dpid
    dst_leaf: Dpid
    nic_links: tuple[LinkId, LinkId]
    """Uplink of the source host and downlink of the destination host, which the flow loads on every path."""
    demand_bps: tuple[tuple[int, float], ...]
    """Demand of each phase in bit/s (bits of the phase / its ideal time), in ascending order of phases."""
    current: Route | None = None
    """Route that the flow is pinned to now; None when ECMP routes it."""
    max_subflows: int = 1
    """Largest number of subflows into which the job can divide the flow; 1 for a flow that stays whole."""
    paced: bool = False
    """Whether each subflow is sent at a steady rate of its own."""
    idle_phases: frozenset[int] = frozenset()
    """Phases of other traffic patterns, which the job does not send now and will not send for some time."""
