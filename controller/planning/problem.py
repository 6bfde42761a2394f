"""Input of the planner: one immutable snapshot of link capacities, candidate paths and flows.

The demands of the flows are defined in ``flows``; ``Problem.numbers`` holds the same snapshot as arrays."""

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
from controller.shared_map import ChangedKeys, SharedMap, differing, updated
from signalbox.jobs.collectives import VirtualLink
from signalbox.jobs.spec import JobId, Striping
from signalbox.jobs.subflows import Dividing

MIN_CAPACITY_FRACTION = 0.05
"""Fraction of a link's capacity that stays available to announced traffic, however much background was measured.

Background traffic that adapts its rate gives way to the jobs, and the planner cannot solve a problem in which a link
has no capacity."""

SILENT_PART = 0.01
"""Fraction of a job's demand that is planned while the job's reported connections carry no traffic.

The fraction is large enough to give the job a route of its own where there is room. It is too small to take room from a
job that sends."""

Pairs = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Problem:
    """Immutable input of one planning run."""

    generation: int
    capacity_bps: Mapping[LinkId, float]
    """Capacity of each directed link (bit/s) for announced traffic: measured background is already subtracted."""
    paths: CandidatePaths
    """Candidate paths between each pair of switches. A flow between a pair without candidates cannot be routed."""
    flows: tuple[Flow, ...]
    drained: frozenset[LinkId] = frozenset()
    """Links that work, but that an operator has taken out of service."""

    @cached_property
    def links(self) -> Links:
        """Links as arrays. Raises ``KeyError`` with the link when a link between switches has no capacity."""
        return Links(self.capacity_bps, self.paths)

    @property
    def link_number(self) -> Mapping[LinkId, int]:
        """Number of each link: its position in ``capacity_bps``."""
        return self.links.number

    @cached_property
    def numbers(self) -> Numbers:
        """Flows and demands as arrays. Raises ``KeyError`` with the link when a link has no capacity."""
        return Numbers(self.flows, self.links)

    def with_flows(self, flows: Iterable[Flow]) -> Problem:
        """Return this problem with other flows; both problems share the numbering of links."""
        other = replace(self, flows=tuple(flows))
        vars(other)["links"] = self.links
        return other

    @cached_property
    def now(self) -> Problem:
        """Problem without the demands of idle phases; this object itself when no flow has an idle phase."""
        if not any(flow.idle_phases for flow in self.flows):
            return self

        def sending(flow: Flow) -> Flow:
            kept = tuple(demand for demand in flow.demand_bps if demand[0] not in flow.idle_phases)
            return replace(flow, demand_bps=kept, idle_phases=frozenset())

        return self.with_flows(sending(flow) if flow.idle_phases else flow for flow in self.flows)

    @cached_property
    def tiers(self) -> Tiers | None:
        """Tiers above the leaves that flows leave or enter; None when the fabric has no three tiers.

        Always None when candidate paths may be detours, because a detour crosses the tiers in another order."""
        crossing = [flow for flow in self.flows if flow.src_leaf != flow.dst_leaf and not self.paths.stretch]
        return find_tiers(self.paths, {leaf for flow in crossing for leaf in (flow.src_leaf, flow.dst_leaf)})

    @cached_property
    def has_equal_subflows(self) -> bool:
        """Whether a job has divided one of its flows into equal subflows, each of which is a flow of this problem."""
        return any(flow.id.subflow for flow in self.flows)

    def candidates(self, flow: Flow) -> tuple[Path, ...]:
        """Return the paths that the flow may take: only the empty path when both of its ends are at the same switch."""
        return self.paths.between(flow.src_leaf, flow.dst_leaf)

    def reachable(self, flow: Flow) -> bool:
        """Return whether the flow has a candidate path, without computing all of them."""
        return self.paths.connected(flow.src_leaf, flow.dst_leaf)

    @cached_property
    def in_force(self) -> frozenset[FlowId]:
        """Flows that are pinned to paths that still exist."""
        return frozenset(flow.id for flow in self.flows if self.is_in_force(flow))

    @property
    def broken(self) -> bool:
        """Whether a flow is pinned to a path that no longer exists."""
        return any(flow.current is not None and flow.id not in self.in_force for flow in self.flows)

    def with_routes(self, routes: Routes) -> Problem:
        """Return this problem with ``routes`` as the running routes."""
        return self.with_flows(replace(flow, current=routes.get(flow.id)) for flow in self.flows)

    def moves(self, routes: Routes) -> int:
        """Return the number of flows that have a valid current route and a different route in ``routes``."""
        pinned = [flow for flow in self.flows if flow.current is not None]
        left = [flow.id for flow in pinned if routes.get(flow.id, flow.current) != flow.current]
        return sum(flow in self.in_force for flow in left)

    def is_in_force(self, flow: Flow) -> bool:
        """Return whether the flow is pinned, and each of its paths still leads from its source to its destination."""
        return flow.current is not None and all(
            self.paths.leads(subflow.path, flow.src_leaf, flow.dst_leaf) for subflow in flow.current
        )


FlowsOf = Mapping[JobId, tuple[Flow, ...]]
"""Flows of each job."""


@dataclass(frozen=True)
class Snapshot:
    """Parts from which a problem is made. Consecutive snapshots share the parts that have not changed."""

    generation: int
    capacity_bps: Mapping[LinkId, float]
    paths: CandidatePaths
    flows: FlowsOf
    """Flows without their routes, which are in ``routes``."""
    routes: Routes
    drained: frozenset[LinkId] = frozenset()

    @cached_property
    def problem(self) -> Problem:
        """Problem of this snapshot, computed from scratch."""
        return self.problem_of(Routed())

    def problem_of(self, routed: Routed) -> Problem:
        """Return the problem of this snapshot, reusing the flows that have not changed since the previous problem.

        ``routed`` must be the object with which the previous problem was made."""
        flows = in_order(routed(self.flows, self.routes))
        return Problem(self.generation, self.capacity_bps, self.paths, flows, self.drained)


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """Limits of one planning run."""

    time_limit_s: float = 2.0
    """Time for all searches of the run together, in seconds."""
    max_moves: int | None = None
    """Number of pinned flows that may change their route; None for no limit.

    A flow whose current path is lost does not count."""
    ecmp_draws: int = 200
    """Number of random draws in the comparison with ECMP; 0 skips it."""
    seed: int = 1
    deterministic: bool = False
    """Whether the time limit is ignored.

    Searches then end only by their own counts of steps, so that the plan does not depend on the machine."""
    until: float = math.inf
    """Time (``time.perf_counter``) at which searches are cut off; set by ``begun``."""
    left_out: list[str] = field(default_factory=list, compare=False)
    """Stages that were skipped for lack of time."""

    def begun(self) -> PlanLimits:
        """Return these limits with the end of the run set in ``until``; unchanged when ``until`` is set already.

        Limits without a clock are also returned unchanged. Their runs share ``left_out``, which stays empty, because
        such a run skips no stage."""
        if self.deterministic or math.isfinite(self.until):
            return self
        return replace(self, until=time.perf_counter() + self.time_limit_s, left_out=[])

    def sooner(self, seconds: float) -> PlanLimits:
        """Return these limits with an end that is ``seconds`` earlier."""
        return replace(self, until=self.until - seconds)

    def allows(self, stage: str, seconds: float) -> bool:
        """Return whether there is time for a stage that takes about ``seconds`` and cannot be cut off.

        A stage without time is added to ``left_out``."""
        if self.left_s > seconds:
            return True
        self.left_out.append(stage)
        return False

    @property
    def left_s(self) -> float:
        return self.until - time.perf_counter()


# ---- problems made from the state of the network


def route_of(dividing: Dividing, pair: tuple[str, str], routes: Routes) -> Route | None:
    """Return the route of all traffic of a job between a pair of addresses.

    Return None when a flow of the job between the addresses has no route."""
    ids, weights = flow_ids(dividing, pair), dividing.subflows(pair).weights
    if len(ids) == 1:
        return routes.get(ids[0])
    subflows = [routes.get(flow) for flow in ids]
    return (
        tuple(Subflow(subflow[0].path, weight) for subflow, weight in zip(subflows, weights, strict=True) if subflow)
        if all(subflows)
        else None
    )


class Announced(Protocol):
    """Properties of a job that the planner needs; the job is registered, or read from a file."""

    @property
    def id(self) -> JobId: ...
    @property
    def virtual_links(self) -> tuple[VirtualLink, ...]: ...
    @property
    def pairs(self) -> Pairs:
        """Pairs (source address, destination address) of the virtual links."""

    @property
    def dividing(self) -> Dividing:
        """Ways in which the job can divide each virtual link into subflows."""

    @property
    def silent(self) -> bool:
        """Whether the job does not send yet, see ``SILENT_PART``."""

    @property
    def idle_phases(self) -> frozenset[int]:
        """Phases that the job does not send now, see ``Flow``."""


def missing_hosts(hosts: Mapping[str, Host], addresses: frozenset[str]) -> tuple[str, ...]:
    """Return the addresses that belong to no known host, sorted."""
    return tuple(sorted(addresses - hosts.keys()))


def capacities(
    links: Mapping[LinkId, Link], hosts: Mapping[str, Host], background_bps: Mapping[LinkId, float]
) -> dict[LinkId, float]:
    """Return the capacity (bit/s) for announced traffic of each directed link, including the links of hosts."""
    bps = {link_id: link.capacity_bps for link_id, link in links.items()}
    for host in hosts.values():
        bps[host.uplink] = bps[host.downlink] = host.nic_bps
    for link, background in background_bps.items():
        if link in bps:
            bps[link] = left_bps(bps[link], background)
    return bps


def left_bps(capacity_bps: float, background_bps: float) -> float:
    """Return the capacity (bit/s) of a link that its background leaves for announced traffic."""
    return max(MIN_CAPACITY_FRACTION * capacity_bps, capacity_bps - background_bps)


class Flows:
    """Cache of the flows of all jobs, without routes.

    It recomputes only the flows of jobs that have changed, and of jobs whose hosts have changed."""

    def __init__(self) -> None:
        self._changed = ChangedKeys[JobId]()
        self._hosts: Mapping[str, Host] = {}
        self._flows: FlowsOf = SharedMap()

    def __call__(self, jobs: Mapping[JobId, Announced], hosts: Mapping[str, Host]) -> FlowsOf:
        """Return the flows of each job. All hosts of ``jobs`` must be known."""
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
    """Cache of the flows with their current routes. It recomputes only jobs whose flows or routes have changed."""

    def __init__(self) -> None:
        self._flows: FlowsOf = {}
        self._routes: Routes = {}
        self._job_of: dict[FlowId, JobId] = {}
        self._routed: FlowsOf = SharedMap()

    def __call__(self, flows: FlowsOf, routes: Routes) -> FlowsOf:
        """Return the flows of each job with their current routes. ``routes`` has the routes of the pinned flows."""
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
    """Return the flows of all jobs in one tuple, ordered by job id."""
    return tuple(chain.from_iterable(flows[job_id] for job_id in sorted(flows)))


def take_snapshot(
    generation: int,
    fabric: Fabric,
    jobs: Iterable[Announced],
    background_bps: Mapping[LinkId, float],
    routes: Routes,
    max_paths: int,
) -> Problem:
    """Return the problem of a network, computed from scratch."""
    flows = in_order(Routed()(Flows()({job.id: job for job in jobs}, fabric.hosts), routes))
    capacity_bps = capacities(fabric.links, fabric.hosts, background_bps)
    return Problem(generation, capacity_bps, CandidatePaths(fabric, max_paths), flows)


def _flows(job: Announced, hosts: Mapping[str, Host]) -> tuple[Flow, ...]:
    part = SILENT_PART if job.silent else 1.0
    paced = job.dividing.striping is Striping.PACED
    nic_bps = {ip: hosts[ip].nic_bps for pair in job.pairs for ip in pair}

    def flows(pair: tuple[str, str], demand_bps: tuple[tuple[int, float], ...]) -> Iterator[Flow]:
        src, dst = (hosts[ip] for ip in pair)
        nic_links = (src.uplink, dst.downlink)
        weights, max_subflows = job.dividing.subflows(pair)
        for subflow, weight in enumerate(weights):
            own_bps = tuple((phase, part * weight * bps) for phase, bps in demand_bps)
            flow_id = FlowId(*pair, job.dividing.owner, subflow)
            ends = src.at.dpid, dst.at.dpid
            yield Flow(flow_id, job.id, *ends, nic_links, own_bps, None, max_subflows, paced, job.idle_phases)

    return tuple(flow for item in demands(job.virtual_links, nic_bps).items() for flow in flows(*item))


def _routed(flows: tuple[Flow, ...], routes: Routes) -> tuple[Flow, ...]:
    return tuple(replace(flow, current=routes[flow.id]) if flow.id in routes else flow for flow in flows)
