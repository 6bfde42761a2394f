"""Takes the planner's problem from the state of the network: fabric, announced jobs, measured background, routes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Protocol

from controller.fabric.shortest_paths import CandidatePaths
from controller.fabric.topology import Fabric, Host, Link, LinkId
from controller.jobs.collectives import VirtualLink
from controller.jobs.spec import JobId
from controller.memo import MemoPerKey
from controller.planning.efficiency import demands
from controller.planning.problem import Flow, FlowId, Problem, Route, Routes

MIN_CAPACITY_FRACTION = 0.05
"""Of a link's capacity, left to announced traffic however much background was measured: background that adapts gives
way, and a problem without capacity on a link could not be solved."""

Pairs = frozenset[tuple[str, str]]


class Announced(Protocol):
    """What the planner needs of a job, registered or from a file. ``pairs``: (source, destination) addresses of its
    virtual links. ``max_subflows``: into how many pieces it can divide each."""

    @property
    def id(self) -> JobId: ...
    @property
    def virtual_links(self) -> tuple[VirtualLink, ...]: ...
    @property
    def pairs(self) -> Pairs: ...
    @property
    def max_subflows(self) -> int: ...


def missing_hosts(hosts: Mapping[str, Host], pairs: Pairs) -> tuple[str, ...]:
    """The addresses of the pairs that are not among the hosts, in order."""
    return tuple(sorted({ip for pair in pairs for ip in pair} - hosts.keys()))


def capacities(
    links: Mapping[LinkId, Link], hosts: Mapping[str, Host], background_bps: Mapping[LinkId, float]
) -> dict[LinkId, float]:
    """Per directed link, host links too, what announced traffic may use (bit/s)."""
    nominal = {link.id: link.capacity_bps for link in links.values()}
    for host in hosts.values():
        nominal[host.uplink] = nominal[host.downlink] = host.nic_bps
    return {
        link: max(MIN_CAPACITY_FRACTION * bps, bps - background_bps.get(link, 0.0)) for link, bps in nominal.items()
    }


class Flows:
    """Derives the flows of jobs, each with its current route. Jobs for which nothing has changed keep theirs."""

    def __init__(self) -> None:
        self._of_job = MemoPerKey[
            JobId, JobId, tuple[VirtualLink, ...], Mapping[str, Host], Pairs, int, tuple[Flow, ...]
        ](_flows)
        self._routed = MemoPerKey[JobId, tuple[Flow, ...], tuple[Route | None, ...], tuple[Flow, ...]](_routed)

    def __call__(self, jobs: Iterable[Announced], hosts: Mapping[str, Host], routes: Routes) -> tuple[Flow, ...]:
        """``jobs``: those whose hosts are all known. ``routes``: of the pinned flows."""
        of_job = self._of_job({job.id: (job.id, job.virtual_links, hosts, job.pairs, job.max_subflows) for job in jobs})
        routed = self._routed(
            {job_id: (flows, tuple(routes.get(flow.id) for flow in flows)) for job_id, flows in of_job.items()}
        )
        return tuple(chain.from_iterable(routed.values()))


def take_snapshot(
    generation: int,
    fabric: Fabric,
    jobs: Iterable[Announced],
    background_bps: Mapping[LinkId, float],
    routes: Routes,
    max_paths: int,
) -> Problem:
    """One problem, from nothing."""
    flows = Flows()(jobs, fabric.hosts, routes)
    capacity_bps = capacities(fabric.links, fabric.hosts, background_bps)
    return Problem(generation, capacity_bps, CandidatePaths(fabric, max_paths), flows)


def _flows(
    job_id: JobId,
    virtual_links: tuple[VirtualLink, ...],
    hosts: Mapping[str, Host],
    pairs: Pairs,
    max_subflows: int,
) -> tuple[Flow, ...]:
    nic_bps = {ip: hosts[ip].nic_bps for pair in pairs for ip in pair}

    def flow(flow_id: FlowId, demand_bps: tuple[tuple[int, float], ...]) -> Flow:
        src, dst = hosts[flow_id.src_ip], hosts[flow_id.dst_ip]
        nic_links = (src.uplink, dst.downlink)
        return Flow(flow_id, job_id, src.at.dpid, dst.at.dpid, nic_links, demand_bps, None, max_subflows)

    return tuple(flow(*item) for item in demands(virtual_links, nic_bps).items())


def _routed(flows: tuple[Flow, ...], routes: tuple[Route | None, ...]) -> tuple[Flow, ...]:
    return tuple(
        flow if route is None else replace(flow, current=route) for flow, route in zip(flows, routes, strict=True)
    )
