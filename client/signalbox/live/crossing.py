"""Find the flows that cross a link or a switch, from the routes that switches hold.

The links of flows that ECMP hashes are unknown. The time is linear in the number of routes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from signalbox.live.shown import counted
from signalbox.v1 import signalbox_pb2 as pb

ListedRoute = pb.ListedRoute
"""Type of a route, for modules that import no generated code."""
LinkAt = tuple[int, int]
"""Dpid and port of the switch where a directed link begins."""


class CrossingSubflow(NamedTuple):
    """A flow, or a subflow, on a link. ``share``: fraction of the flow's bytes."""

    job_id: str
    src: str
    dst: str
    share: float


def links_of(routes: Iterable[ListedRoute]) -> frozenset[LinkAt]:
    """Return the links that these routes take."""
    return frozenset((link.dpid, link.port) for route in routes for path in route.held for link in path.links)


def circuits_of(job: pb.Job | None) -> frozenset[LinkAt]:
    """Return the dpids and ports where the circuits of a job begin."""
    return frozenset((each.src.dpid, each.src.port) for each in job.wiring.circuits) if job else frozenset()


def subflows_by_link(routes: Iterable[ListedRoute]) -> Mapping[LinkAt, list[CrossingSubflow]]:
    """Return the flows and subflows on each link that some route takes."""
    found: defaultdict[LinkAt, list[CrossingSubflow]] = defaultdict(list)
    for route in routes:
        for path in route.held:
            subflow = CrossingSubflow(route.job_id, route.src, route.dst, path.share)
            for link in path.links:
                found[link.dpid, link.port].append(subflow)
    return found


def flows_over(routes: Iterable[ListedRoute], links: Collection[LinkAt | None]) -> list[ListedRoute]:
    """Return the routes that take one of these links."""
    return [route for route in routes if not links_of([route]).isdisjoint(links)]


def flows_at_switch(dpid: int, fabric: pb.GetFabricResponse, routes: Iterable[ListedRoute]) -> list[ListedRoute]:
    """Return the flows that begin or end at the switch, or cross it on their way."""
    ends = {host.ip for host in fabric.hosts if host.at.dpid == dpid}
    touching = {(link.src.dpid, link.src.port) for link in fabric.links if dpid in (link.src.dpid, link.dst.dpid)}
    return [
        route
        for route in routes
        if not ends.isdisjoint((route.src, route.dst)) or not touching.isdisjoint(links_of([route]))
    ]


def jobs_of(flows: Iterable[CrossingSubflow | ListedRoute]) -> dict[str, int]:
    """Return the number of flows of each job, largest number first; subflows of one flow count once."""
    pairs = {(flow.job_id, flow.src, flow.dst) for flow in flows}
    number = Counter(job_id for job_id, *_ in pairs)
    return dict(sorted(number.items(), key=lambda of_job: (-of_job[1], of_job[0])))


def jobs_in_words(flows: Iterable[CrossingSubflow | ListedRoute], most: int = 3) -> str:
    """Return jobs with their numbers of flows, such as ``ring (4), bert (2)``; empty without flows."""
    jobs = jobs_of(flows)
    named = [f"{job_id} ({count})" for job_id, count in [*jobs.items()][:most]]
    return ", ".join(named + [counted(len(jobs) - most, "more job")] * (len(jobs) > most))


def hashed(fabric: pb.GetFabricResponse, routes: Iterable[ListedRoute]) -> int:
    """Return the number of flows without a route whose source and destination the controller has found."""
    known = {host.ip for host in fabric.hosts}
    return sum(not route.held and known >= {route.src, route.dst} for route in routes)
