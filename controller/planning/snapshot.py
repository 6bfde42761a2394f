"""Takes the planner's problem from the state of the network: fabric, announced jobs, measured background, routes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from controller.fabric.candidate_paths import CandidatePaths
from controller.fabric.topology import Fabric, LinkId
from controller.jobs.collectives import VirtualLink
from controller.jobs.spec import JobId
from controller.planning.efficiency import demands
from controller.planning.problem import Flow, Problem, Routes

MIN_CAPACITY_FRACTION = 0.05
"""Of a link's capacity, left to announced traffic however much background was measured: elastic background gives way,
and a link is better slow than impossible."""


class Announced(Protocol):
    """What the planner wants to know of a job, whoever announced it. ``pairs``: (source, destination) addresses of its
    virtual links. ``max_subflows``: into how many pieces it can divide each."""

    @property
    def id(self) -> JobId: ...
    @property
    def virtual_links(self) -> tuple[VirtualLink, ...]: ...
    @property
    def pairs(self) -> frozenset[tuple[str, str]]: ...
    @property
    def max_subflows(self) -> int: ...


def missing_hosts(fabric: Fabric, job: Announced) -> tuple[str, ...]:
    """Addresses that the job's virtual links name and the fabric does not know, in order."""
    return tuple(sorted({ip for pair in job.pairs for ip in pair if ip not in fabric.hosts}))


def capacities(fabric: Fabric, background_bps: Mapping[LinkId, float]) -> dict[LinkId, float]:
    """Per directed link, host links too, what announced traffic may use (bit/s)."""
    nominal = {link.id: link.capacity_bps for link in fabric.links.values()}
    for host in fabric.hosts.values():
        nominal[host.uplink] = nominal[host.downlink] = host.nic_bps
    return {
        link: max(MIN_CAPACITY_FRACTION * bps, bps - background_bps.get(link, 0.0)) for link, bps in nominal.items()
    }


def take_snapshot(
    generation: int,
    fabric: Fabric,
    jobs: Iterable[Announced],
    background_bps: Mapping[LinkId, float],
    routes: Routes,
    max_paths: int,
) -> Problem:
    """``jobs``: those whose hosts are all known. ``routes``: of the pinned flows."""
    flows = tuple(flow for job in jobs for flow in _flows(fabric, job, routes))
    return Problem(generation, capacities(fabric, background_bps), CandidatePaths(fabric, max_paths), flows)


def _flows(fabric: Fabric, job: Announced, routes: Routes) -> Iterable[Flow]:
    nic_bps = {ip: fabric.hosts[ip].nic_bps for pair in job.pairs for ip in pair}
    for flow_id, demand_bps in demands(job.virtual_links, nic_bps).items():
        src, dst = fabric.hosts[flow_id.src_ip], fabric.hosts[flow_id.dst_ip]
        yield Flow(
            id=flow_id,
            job_id=job.id,
            src_leaf=src.at.dpid,
            dst_leaf=dst.at.dpid,
            nic_links=(src.uplink, dst.downlink),
            demand_bps=demand_bps,
            current=routes.get(flow_id),
            max_subflows=job.max_subflows,
        )
