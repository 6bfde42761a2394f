"""Takes the planner's problem from the state of the network: fabric, announced jobs, measured background, routes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

from controller.fabric.shortest_paths import CandidatePaths
from controller.fabric.topology import Fabric, Link, LinkId
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
    return tuple(sorted(_addresses(job.pairs) - fabric.hosts.keys()))


@lru_cache(maxsize=1 << 10)
def _addresses(pairs: frozenset[tuple[str, str]]) -> frozenset[str]:
    return frozenset(ip for pair in pairs for ip in pair)


def capacities(fabric: Fabric, background_bps: Mapping[LinkId, float]) -> dict[LinkId, float]:
    """Per directed link, host links too, what announced traffic may use (bit/s)."""
    nominal = {link.id: link.capacity_bps for link in fabric.links.values()}
    for host in fabric.hosts.values():
        nominal[host.uplink] = nominal[host.downlink] = host.nic_bps
    return {
        link: max(MIN_CAPACITY_FRACTION * bps, bps - background_bps.get(link, 0.0)) for link, bps in nominal.items()
    }


class Snapshots:
    """Problems of one network, one after the other: what did not change in between is not worked out again."""

    def __init__(self, max_paths: int) -> None:
        self._max_paths = max_paths
        self._paths: tuple[Mapping[LinkId, Link], CandidatePaths] | None = None
        self._capacities: tuple[tuple[object, ...], dict[LinkId, float]] | None = None
        self._flows: dict[JobId, tuple[tuple[object, ...], tuple[Flow, ...]]] = {}

    def take(
        self,
        generation: int,
        fabric: Fabric,
        jobs: Iterable[Announced],
        background_bps: Mapping[LinkId, float],
        routes: Routes,
    ) -> Problem:
        """``jobs``: those whose hosts are all known. ``routes``: of the pinned flows."""
        known, self._flows = self._flows, {}
        for job in jobs:
            self._flows[job.id] = self._flows_of(job, fabric, routes, known.get(job.id))
        flows = tuple(flow for _, of_job in self._flows.values() for flow in of_job)
        return Problem(generation, self.capacities(fabric, background_bps), self.paths(fabric), flows)

    def paths(self, fabric: Fabric) -> CandidatePaths:
        """They follow from the links."""
        if self._paths is None or self._paths[0] is not fabric.links:
            self._paths = fabric.links, CandidatePaths(fabric, self._max_paths)
        return self._paths[1]

    def capacities(self, fabric: Fabric, background_bps: Mapping[LinkId, float]) -> dict[LinkId, float]:
        """See the function of that name."""
        follow_from = (fabric.links, fabric.hosts, background_bps)
        if self._capacities is None or not _same(self._capacities[0], follow_from):
            self._capacities = follow_from, capacities(fabric, background_bps)
        return self._capacities[1]

    def _flows_of(
        self,
        job: Announced,
        fabric: Fabric,
        routes: Routes,
        known: tuple[tuple[object, ...], tuple[Flow, ...]] | None,
    ) -> tuple[tuple[object, ...], tuple[Flow, ...]]:
        follow_from = (job.virtual_links, fabric.hosts, job.max_subflows)
        if known is None or not _same(known[0], follow_from):
            return follow_from, tuple(_flows(fabric, job, routes))
        current = ((flow, routes.get(flow.id)) for flow in known[1])
        return known[0], tuple(
            flow if flow.current is route or flow.current == route else replace(flow, current=route)
            for flow, route in current
        )


def _same(before: tuple[object, ...], now: tuple[object, ...]) -> bool:
    return all(a is b for a, b in zip(before, now, strict=True))


def take_snapshot(
    generation: int,
    fabric: Fabric,
    jobs: Iterable[Announced],
    background_bps: Mapping[LinkId, float],
    routes: Routes,
    max_paths: int,
) -> Problem:
    """One problem, from nothing; see ``Snapshots.take``."""
    return Snapshots(max_paths).take(generation, fabric, jobs, background_bps, routes)


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
