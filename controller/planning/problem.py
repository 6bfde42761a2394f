"""The planner's input: one frozen snapshot of capacities, candidate paths and flows (``flows``), also in numbers."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Protocol

from controller.fabric.shortest_paths import CandidatePaths
from controller.fabric.topology import Fabric, Host, Link, LinkId, Path
from controller.memo import ChangedKeys
from controller.planning.demands import demands
from controller.planning.flows import Flow as Flow
from controller.planning.flows import FlowId as FlowId
from controller.planning.flows import Route as Route
from controller.planning.flows import Routes as Routes
from controller.planning.flows import Subflow as Subflow
from controller.planning.flows import flow_ids as flow_ids
from controller.planning.flows import whole as whole
from controller.planning.numbered import Floats as Floats
from controller.planning.numbered import Ints as Ints
from controller.planning.numbered import Links, Numbers
from controller.planning.tiers import Tiers, find_tiers
from controller.shared_map import SharedMap, differing, updated
from signalbox.jobs.collectives import VirtualLink
from signalbox.jobs.spec import Dealing, JobId
from signalbox.jobs.subflows import Dividing

MIN_CAPACITY_FRACTION = 0.05
"""Of a link's capacity, left to announced traffic however much background was measured: background that adapts gives
way, and a problem without capacity on a link could not be solved."""

SILENT_PART = 0.01
"""Of the demand of a job that has reported connections which carry nothing: enough that it has a route of its own where
there is room, too little to take the room of a job that sends."""

Pairs = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Problem:
    """``capacity_bps``: per directed link what announced traffic may use (measured background already taken off).

    ``paths``: between each pair of switches the candidate paths; a pair without any cannot be routed. ``link_number``:
    the place of each link in ``capacity_bps``. ``drained``: links that work, but are taken out of use.
    """

    generation: int
    capacity_bps: Mapping[LinkId, float]
    paths: CandidatePaths
    flows: tuple[Flow, ...]
    drained: frozenset[LinkId] = frozenset()

    @cached_property
    def links(self) -> Links:
        """Raises ``KeyError`` with a link between switches that has no capacity."""
        return Links(self.capacity_bps, self.paths)

    @property
    def link_number(self) -> Mapping[LinkId, int]:
        return self.links.number

    @cached_property
    def numbers(self) -> Numbers:
        """Raises ``KeyError`` with a link that has no capacity."""
        return Numbers(self.flows, self.links)

    def with_flows(self, flows: Iterable[Flow]) -> Problem:
        """The same problem with other flows; its links are not numbered again."""
        other = replace(self, flows=tuple(flows))
        vars(other)["links"] = self.links
        return other

    @cached_property
    def now(self) -> Problem:
        """The same problem without demand in idle phases; the same object where there are none."""
        if not any(flow.idle_phases for flow in self.flows):
            return self

        def sending(flow: Flow) -> Flow:
            kept = tuple(demand for demand in flow.demand_bps if demand[0] not in flow.idle_phases)
            return replace(flow, demand_bps=kept, idle_phases=frozenset())

        return self.with_flows(sending(flow) if flow.idle_phases else flow for flow in self.flows)

    @cached_property
    def tiers(self) -> Tiers | None:
        """Of the leaves that flows leave or enter; None with detours, which cross tiers otherwise."""
        crossing = [flow for flow in self.flows if flow.src_leaf != flow.dst_leaf and not self.paths.stretch]
        return find_tiers(self.paths, {leaf for flow in crossing for leaf in (flow.src_leaf, flow.dst_leaf)})

    @cached_property
    def in_pieces(self) -> bool:
        """Whether some flows are equal pieces of one."""
        return any(flow.id.piece for flow in self.flows)

    def candidates(self, flow: Flow) -> tuple[Path, ...]:
        """The paths the flow may take; the one empty path when both ends share a switch."""
        return self.paths.between(flow.src_leaf, flow.dst_leaf)

    def reachable(self, flow: Flow) -> bool:
        """Whether the flow has a candidate; without finding them all."""
        return self.paths.connected(flow.src_leaf, flow.dst_leaf)

    @cached_property
    def standing(self) -> frozenset[FlowId]:
        """The flows that are pinned to paths that are there."""
        return frozenset(flow.id for flow in self.flows if self.stands(flow))

    @property
    def broken(self) -> bool:
        """Some flow is pinned to a path that is not there (any more)."""
        return any(flow.current is not None and flow.id not in self.standing for flow in self.flows)

    def with_routes(self, routes: Routes) -> Problem:
        """The same problem, with these as the running routes."""
        return self.with_flows(replace(flow, current=routes.get(flow.id)) for flow in self.flows)

    def moves(self, routes: Routes) -> int:
        """How many flows whose current route stands these routes have otherwise."""
        pinned = [flow for flow in self.flows if flow.current is not None]
        left = [flow.id for flow in pinned if routes.get(flow.id, flow.current) != flow.current]
        return sum(flow in self.standing for flow in left)

    def stands(self, flow: Flow) -> bool:
        """Whether the flow is pinned, and every path it is pinned to is there."""
        return flow.current is not None and all(
            self.paths.leads(piece.path, flow.src_leaf, flow.dst_leaf) for piece in flow.current
        )


FlowsOf = Mapping[JobId, tuple[Flow, ...]]
"""By job."""


@dataclass(frozen=True)
class Snapshot:
    """What a problem is made of; the next one shares with it what has not changed. ``flows``: without routes, which are
    in ``routes``."""

    generation: int
    capacity_bps: Mapping[LinkId, float]
    paths: CandidatePaths
    flows: FlowsOf
    routes: Routes
    drained: frozenset[LinkId] = frozenset()

    @cached_property
    def problem(self) -> Problem:
        """Made from nothing."""
        return self.problem_of(Routed())

    def problem_of(self, routed: Routed) -> Problem:
        """``routed``: with which the problem before was made."""
        flows = in_order(routed(self.flows, self.routes))
        return Problem(self.generation, self.capacity_bps, self.paths, flows, self.drained)


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """``time_limit_s``: for everything that searches, all together. Searches count their own steps, so that the plan
    does not depend on the machine unless they are cut at ``until`` (``time.perf_counter``), which ``begun`` sets. With
    ``deterministic`` nothing is cut. ``left_out``: stages for which there was no time. ``max_moves``: pinned flows that
    may change route, None for any number; flows whose current path is lost do not count. ``ecmp_draws``: 0 leaves ECMP
    out."""

    time_limit_s: float = 2.0
    max_moves: int | None = None
    ecmp_draws: int = 200
    seed: int = 1
    deterministic: bool = False
    until: float = math.inf
    left_out: list[str] = field(default_factory=list, compare=False)

    def begun(self) -> PlanLimits:
        """The same, of which the time runs from now on, unless it does already."""
        if self.deterministic or math.isfinite(self.until):
            return self
        return replace(self, until=time.perf_counter() + self.time_limit_s, left_out=[])

    def sooner(self, seconds: float) -> PlanLimits:
        """The same, with the end so much earlier."""
        return replace(self, until=self.until - seconds)

    def allows(self, stage: str, seconds: float) -> bool:
        """Whether a stage that cannot be cut has time, of which it takes about so much; if not, it is ``left_out``."""
        if self.left_s > seconds:
            return True
        self.left_out.append(stage)
        return False

    @property
    def left_s(self) -> float:
        return self.until - time.perf_counter()


# ---- taken from the state of the network


def route_of(dividing: Dividing, pair: tuple[str, str], routes: Routes) -> Route | None:
    """How everything from one address to another travels; None when some piece of it has no route."""
    ids, weights = flow_ids(dividing, pair), dividing.pieces(pair).weights
    if len(ids) == 1:
        return routes.get(ids[0])
    pieces = [routes.get(flow) for flow in ids]
    return (
        tuple(Subflow(piece[0].path, weight) for piece, weight in zip(pieces, weights, strict=True) if piece)
        if all(pieces)
        else None
    )


class Announced(Protocol):
    """What the planner needs of a job, registered or from a file. ``pairs``: (source, destination) addresses of its
    virtual links. ``dividing``: how it can divide each. ``silent``: it does not send yet, see ``SILENT_PART``.
    ``idle_phases``: see ``Flow``."""

    @property
    def id(self) -> JobId: ...
    @property
    def virtual_links(self) -> tuple[VirtualLink, ...]: ...
    @property
    def pairs(self) -> Pairs: ...
    @property
    def dividing(self) -> Dividing: ...
    @property
    def silent(self) -> bool: ...
    @property
    def idle_phases(self) -> frozenset[int]: ...


def missing_hosts(hosts: Mapping[str, Host], addresses: frozenset[str]) -> tuple[str, ...]:
    """The addresses that are not among the hosts, in order."""
    return tuple(sorted(addresses - hosts.keys()))


def capacities(
    links: Mapping[LinkId, Link], hosts: Mapping[str, Host], background_bps: Mapping[LinkId, float]
) -> dict[LinkId, float]:
    """Per directed link, host links too, what announced traffic may use (bit/s)."""
    bps = {link_id: link.capacity_bps for link_id, link in links.items()}
    for host in hosts.values():
        bps[host.uplink] = bps[host.downlink] = host.nic_bps
    for link, background in background_bps.items():
        if link in bps:
            bps[link] = left_bps(bps[link], background)
    return bps


def left_bps(capacity_bps: float, background_bps: float) -> float:
    """Return what the background leaves announced traffic of a link."""
    return max(MIN_CAPACITY_FRACTION * capacity_bps, capacity_bps - background_bps)


class Flows:
    """Derives the flows of jobs, without routes. Only jobs are looked at that have changed, or whose hosts have."""

    def __init__(self) -> None:
        self._changed = ChangedKeys[JobId]()
        self._hosts: Mapping[str, Host] = {}
        self._flows: FlowsOf = SharedMap()

    def __call__(self, jobs: Mapping[JobId, Announced], hosts: Mapping[str, Host]) -> FlowsOf:
        """By job. ``jobs``: those whose hosts are all known."""
        changed, gone = self._changed(jobs)
        looked_at = dict.fromkeys(changed)
        if others := {ip for ip, *_ in differing(self._hosts, hosts)}:
            of_others = (
                job_id for job_id, job in jobs.items() if any(not others.isdisjoint(pair) for pair in job.pairs)
            )
            looked_at.update(dict.fromkeys(of_others))
        self._hosts = hosts
        flows = {job_id: _flows(jobs[job_id], hosts) for job_id in looked_at}
        self._flows = updated(self._flows, {**flows, **dict.fromkeys(gone)})
        return self._flows


class Routed:
    """Gives flows their current routes. Only jobs are looked at whose flows have changed, or have other routes."""

    def __init__(self) -> None:
        self._flows: FlowsOf = {}
        self._routes: Routes = {}
        self._job_of: dict[FlowId, JobId] = {}
        self._routed: FlowsOf = SharedMap()

    def __call__(self, flows: FlowsOf, routes: Routes) -> FlowsOf:
        """By job. ``routes``: of the pinned flows."""
        changed = [*differing(self._flows, flows)]
        for _, before, _ in changed:
            for flow in before or ():
                del self._job_of[flow.id]
        for job_id, _, now in changed:
            self._job_of.update(dict.fromkeys((flow.id for flow in now or ()), job_id))
        anew = {job_id: None for job_id, *_ in changed}
        others = (self._job_of.get(flow) for flow, *_ in differing(self._routes, routes))
        anew.update(dict.fromkeys(job_id for job_id in others if job_id is not None))
        self._flows, self._routes = flows, routes
        self._routed = updated(
            self._routed, {job_id: _routed(flows[job_id], routes) if job_id in flows else None for job_id in anew}
        )
        return self._routed


def in_order(flows: FlowsOf) -> tuple[Flow, ...]:
    """Those of all jobs, in the order of the jobs' ids."""
    return tuple(chain.from_iterable(flows[job_id] for job_id in sorted(flows)))


def take_snapshot(
    generation: int,
    fabric: Fabric,
    jobs: Iterable[Announced],
    background_bps: Mapping[LinkId, float],
    routes: Routes,
    max_paths: int,
) -> Problem:
    """Return one problem, made from nothing."""
    flows = in_order(Routed()(Flows()({job.id: job for job in jobs}, fabric.hosts), routes))
    capacity_bps = capacities(fabric.links, fabric.hosts, background_bps)
    return Problem(generation, capacity_bps, CandidatePaths(fabric, max_paths), flows)


def _flows(job: Announced, hosts: Mapping[str, Host]) -> tuple[Flow, ...]:
    part = SILENT_PART if job.silent else 1.0
    paced = job.dividing.dealing is Dealing.PACED
    nic_bps = {ip: hosts[ip].nic_bps for pair in job.pairs for ip in pair}

    def flows(pair: tuple[str, str], demand_bps: tuple[tuple[int, float], ...]) -> Iterator[Flow]:
        src, dst = (hosts[ip] for ip in pair)
        nic_links = (src.uplink, dst.downlink)
        weights, max_subflows = job.dividing.pieces(pair)
        for piece, weight in enumerate(weights):
            own_bps = tuple((phase, part * weight * bps) for phase, bps in demand_bps)
            flow_id = FlowId(*pair, job.dividing.owner, piece)
            ends = src.at.dpid, dst.at.dpid
            yield Flow(flow_id, job.id, *ends, nic_links, own_bps, None, max_subflows, paced, job.idle_phases)

    return tuple(flow for item in demands(job.virtual_links, nic_bps).items() for flow in flows(*item))


def _routed(flows: tuple[Flow, ...], routes: Routes) -> tuple[Flow, ...]:
    return tuple(replace(flow, current=routes[flow.id]) if flow.id in routes else flow for flow in flows)
