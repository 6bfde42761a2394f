"""Takes the planner's problem from the state of the network: fabric, announced jobs, measured background, routes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controller.fabric.candidate_paths import candidate_paths
from controller.fabric.topology import Fabric, LinkId, Path
from controller.jobs.registry import Job
from controller.planning.efficiency import demands
from controller.planning.problem import Flow, FlowId, Problem

MIN_CAPACITY_FRACTION = 0.05
"""Of a link's capacity, left to announced traffic however much background was measured: elastic background gives way,
and a link is better slow than impossible."""


def missing_hosts(fabric: Fabric, job: Job) -> tuple[str, ...]:
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
    jobs: Iterable[Job],
    background_bps: Mapping[LinkId, float],
    routes: Mapping[FlowId, Path],
    max_paths: int,
) -> Problem:
    """``jobs``: those whose hosts are all known. ``routes``: the pinned flows' paths."""
    flows = tuple(flow for job in jobs for flow in _flows(fabric, job, routes))
    pairs = {(flow.src_leaf, flow.dst_leaf) for flow in flows if flow.src_leaf != flow.dst_leaf}
    paths = candidate_paths(fabric, sorted(pairs), max_paths)
    return Problem(generation, capacities(fabric, background_bps), paths, flows)


def _flows(fabric: Fabric, job: Job, routes: Mapping[FlowId, Path]) -> Iterable[Flow]:
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
        )
