"""Snapshots: problems made from the state of the network, and the changes from one snapshot to the next.

In: jobs with their virtual links, hosts, links, measured background, and routes. Out: a ``Snapshot``, whose parts are
computed anew only where something has changed, and its ``Problem``. The busiest NIC of a phase sets the phase's ideal
time, from which the demands follow.

The control loop and the planning process exchange only changes. Packing and unpacking a problem of tens of thousands of
flows takes a second, but little changes between cycles.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple, Protocol, TypeVar

from controller.fabric.topology import CandidatePaths, Fabric, Host, Link, LinkId
from controller.jobs.job import Overhead
from controller.planning.plan import Planned
from controller.planning.problem import Flow, FlowId, Problem, Route, Routes, Timing
from controller.shared_map import ChangedKeys, SharedMap, differing, updated
from signalbox.jobs.collectives import VirtualLink
from signalbox.jobs.spec import JobId, Striping
from signalbox.jobs.subflows import Dividing
from signalbox.words import Objective

Key = TypeVar("Key")
Value = TypeVar("Value")
MIN_CAPACITY_FRACTION = 0.05
"""Fraction of a link's capacity that stays available to announced traffic, however much background was measured.

Background traffic that adapts its rate yields to the jobs, and the planner cannot solve a problem in which a link
has no capacity."""
SILENT_PART = 0.01
"""Fraction of a job's demand that is planned while the job's reported connections carry no traffic.

The fraction is large enough to give the job a route of its own where there is room. It is too small to take room from a
job that sends."""
_SHARE_DIGITS = 12
NO_TIMINGS: Mapping[JobId, Timing] = SharedMap()
Pairs = frozenset[tuple[str, str]]
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
    timings: Mapping[JobId, Timing] = field(default_factory=lambda: NO_TIMINGS)
    """Jobs of which the times are known; the planner chooses slots and classes for those that share links."""

    @cached_property
    def problem(self) -> Problem:
        """Problem of this snapshot, computed from scratch."""
        return self.problem_of(Routed())

    def problem_of(self, routed: Routed) -> Problem:
        """Return the problem of this snapshot, reusing the flows that have not changed since the previous problem.

        ``routed`` must be the object with which the previous problem was made."""
        flows = in_order(routed(self.flows, self.routes))
        return Problem(self.generation, self.capacity_bps, self.paths, flows, self.drained)


def take_snapshot(
    generation: int,
    fabric: Fabric,
    jobs: Iterable[Announced],
    background_bps: Mapping[LinkId, float],
    routes: Routes,
    max_paths: int,
    objective: Objective = Objective.ITERATION,
) -> Problem:
    """Return the problem of a network, computed from scratch."""
    flows = in_order(Routed()(Flows(objective)({job.id: job for job in jobs}, fabric.hosts), routes))
    capacity_bps = capacities(fabric.links, fabric.hosts, background_bps)
    return Problem(generation, capacity_bps, CandidatePaths(fabric, max_paths), flows)


# ---- parts of a snapshot


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
    """Return the capacity (bit/s) of a link that announced traffic may use: the capacity minus the background.

    The result is at least ``MIN_CAPACITY_FRACTION`` of the capacity."""
    return max(MIN_CAPACITY_FRACTION * capacity_bps, capacity_bps - background_bps)


class Flows:
    """Cache of the flows of all jobs, without routes.

    It recomputes only the flows of jobs that have changed, and of jobs whose hosts have changed."""

    def __init__(self, objective: Objective = Objective.ITERATION) -> None:
        self._objective = objective
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
        flows = {job_id: _flows(jobs[job_id], hosts, self._objective) for job_id in looked_at}
        self._flows = updated(self._flows, {**flows, **dict.fromkeys(gone)})
        return self._flows


def _flows(job: Announced, hosts: Mapping[str, Host], objective: Objective) -> tuple[Flow, ...]:
    part = SILENT_PART if job.silent else 1.0
    paced = job.dividing.striping is Striping.PACED
    nic_bps = {ip: hosts[ip].nic_bps for pair in job.pairs for ip in pair}
    phase_share = _phase_share(job.virtual_links, nic_bps) if objective is Objective.ITERATION else ()

    def flows(pair: tuple[str, str], demand_bps: tuple[tuple[int, float], ...]) -> Iterator[Flow]:
        src, dst = (hosts[ip] for ip in pair)
        nic_links = (src.uplink, dst.downlink)
        weights, max_subflows = job.dividing.subflows(pair)
        for subflow, weight in enumerate(weights):
            own_bps = tuple((phase, part * weight * bps) for phase, bps in demand_bps)
            flow_id = FlowId(*pair, job.dividing.owner, subflow)
            ends = src.at.dpid, dst.at.dpid
            idle = job.idle_phases
            yield Flow(flow_id, job.id, *ends, nic_links, own_bps, None, max_subflows, paced, idle, phase_share)

    return tuple(flow for item in demands(job.virtual_links, nic_bps).items() for flow in flows(*item))


def _phase_share(virtual_links: Sequence[VirtualLink], nic_bps: Mapping[str, float]) -> tuple[tuple[int, float], ...]:
    """Return ``Flow.phase_share`` of a job, rounded so that it stays the same when all bytes change by one factor."""
    if len({link.phase for link in virtual_links}) <= 1:
        return ()
    times_s = ideal_time_s(virtual_links, nic_bps)
    total_s = sum(times_s.values()) or 1.0
    return tuple((phase, round(time_s / total_s, _SHARE_DIGITS)) for phase, time_s in times_s.items())


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


def _routed(flows: tuple[Flow, ...], routes: Routes) -> tuple[Flow, ...]:
    if not routes:
        return flows
    return tuple(replace(flow, current=routes[flow.id]) if flow.id in routes else flow for flow in flows)


def in_order(flows: FlowsOf) -> tuple[Flow, ...]:
    """Return the flows of all jobs in one tuple, ordered by job id."""
    return tuple(chain.from_iterable(flows[job_id] for job_id in sorted(flows)))


# ---- demands


PAYLOAD_ONLY = Overhead(0.0, 0.0)


def ideal_time_s(
    virtual_links: Iterable[VirtualLink], nic_bps: Mapping[str, float], overhead: Overhead = PAYLOAD_ONLY
) -> dict[int, float]:
    """Return the ideal time of each phase in seconds, in ascending order of phases.

    The ideal time is the largest value of bits through a NIC / rate of the NIC, over all NICs and both directions.
    ``nic_bps``: rate of the NIC of each address, in bit/s per direction. Raises ``KeyError`` for an address without a
    rate."""
    return {phase: nic.seconds for phase, nic in _busiest(virtual_links, nic_bps, overhead).items()}


def ideal_communication_s(
    virtual_links: Iterable[VirtualLink], nic_bps: Mapping[str, float], overhead: Overhead = PAYLOAD_ONLY
) -> float:
    """Return the seconds of communication per iteration on an idle fabric: the sum of the ideal times of all phases."""
    return sum(ideal_time_s(virtual_links, nic_bps, overhead).values())


def demands(
    virtual_links: Sequence[VirtualLink], nic_bps: Mapping[str, float]
) -> dict[tuple[str, str], tuple[tuple[int, float], ...]]:
    """Return the demand of each pair of addresses of one job as (phase, bit/s), in ascending order of phases.

    A demand is the pair's fraction of the traffic of the busiest NIC, times the rate of that NIC. A flow that carries
    all of that traffic therefore demands exactly the NIC's rate. Multiplying all bytes by one number does not change
    the demands.

    Raises ``KeyError`` for an address without a NIC rate."""
    busiest = _busiest(virtual_links, nic_bps, PAYLOAD_ONLY)
    bits: defaultdict[tuple[str, str], defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for link in virtual_links:
        bits[link.src_ip, link.dst_ip][link.phase] += 8 * link.bytes
    return {
        pair: tuple(
            (phase, amount / busiest[phase].bits * busiest[phase].bps)
            for phase, amount in sorted(phases.items())
            if amount
        )
        for pair, phases in bits.items()
    }


class _Busiest(NamedTuple):
    """NIC that needs the most time for its traffic of a phase in one direction."""

    seconds: float
    bits: float
    bps: float


def _busiest(
    virtual_links: Iterable[VirtualLink], nic_bps: Mapping[str, float], overhead: Overhead
) -> dict[int, _Busiest]:
    """Return the busiest NIC of each phase, in ascending order of phases."""
    header, answer = overhead
    through: defaultdict[tuple[int, str, str], float] = defaultdict(int)
    for link in virtual_links:
        size = link.bytes * (1 + header) if header else link.bytes
        through[link.phase, link.src_ip, "out"] += size
        through[link.phase, link.dst_ip, "in"] += size
        if answer:
            through[link.phase, link.dst_ip, "out"] += link.bytes * answer
            through[link.phase, link.src_ip, "in"] += link.bytes * answer
    found: dict[int, _Busiest] = {}
    for (phase, ip, _), amount in sorted(through.items()):
        nic = _Busiest(8 * amount / nic_bps[ip], 8 * amount, nic_bps[ip])
        if phase not in found or nic.seconds > found[phase].seconds:
            found[phase] = nic
    return found


# ---- changes


MANY = 1000
"""Number of flows or routes that are packed or unpacked at once.

This takes some milliseconds, during which no other thread runs."""
NO_SNAPSHOT = Snapshot(0, {}, CandidatePaths(Fabric(), 0), {}, {})
"""Empty snapshot, before the first one."""


@dataclass(frozen=True, slots=True)
class SnapshotDelta:
    """Changes from one snapshot to the next snapshot; in the mappings the value None removes an entry."""

    generation: int
    max_paths: int
    capacity_bps: Mapping[LinkId, float | None]
    links: Mapping[LinkId, Link | None]
    flows: Mapping[JobId, tuple[Flow, ...] | None]
    routes: Mapping[FlowId, Route | None]
    drained: frozenset[LinkId]
    """All drained links of the next snapshot."""
    timings: Mapping[JobId, Timing | None] = field(default_factory=dict)


def changes(before: Snapshot, now: Snapshot) -> SnapshotDelta:
    same_paths = before.paths is now.paths
    return SnapshotDelta(
        now.generation,
        now.paths.max_paths,
        _changed(before.capacity_bps, now.capacity_bps),
        {} if same_paths else _changed(before.paths.links, now.paths.links),
        _changed(before.flows, now.flows),
        _changed(before.routes, now.routes),
        now.drained,
        _changed(before.timings, now.timings),
    )


def changed(before: Snapshot, found: SnapshotDelta) -> Snapshot:
    """Return the snapshot ``before`` after the changes ``found``.

    Candidate paths are computed anew when links, or the largest number of paths, have changed."""
    paths, capacity_bps = before.paths, {**before.capacity_bps, **found.capacity_bps}
    if found.links or found.max_paths != paths.max_paths:
        paths = CandidatePaths(Fabric(links=updated(paths.links, found.links)), found.max_paths)
    return Snapshot(
        found.generation,
        {link: bps for link, bps in capacity_bps.items() if bps is not None},
        paths,
        updated(before.flows, found.flows),
        updated(before.routes, found.routes),
        found.drained,
        updated(before.timings, found.timings),
    )


def in_parts(found: SnapshotDelta) -> Iterator[SnapshotDelta]:
    """Yield small deltas that, applied in order, have the effect of the delta ``found``."""
    flows = list(_divided(found.flows, lambda of_job: len(of_job or ())))
    routes = list(_divided(found.routes, lambda _: 1))
    yield replace(found, flows=flows[0], routes=routes[0])
    rest = replace(found, capacity_bps={}, links={}, flows={}, routes={}, timings={})
    yield from (replace(rest, flows=part) for part in flows[1:])
    yield from (replace(rest, routes=part) for part in routes[1:])


SomeRoutes = dict[FlowId, Route | None]


def in_parts_without_routes(planned: Planned, running: Routes) -> tuple[list[SomeRoutes], Planned]:
    """Return the changed routes of the plan in small parts, and the plan without routes.

    ``running``: the routes of the request. A removed route is None. A ``Planned`` without a decision is returned
    undivided."""
    if planned.decision is None:
        return [], planned
    changed = _changed(running, planned.plan.routes)
    return list(_divided(changed, lambda _: 1)), _with(planned, {})


def with_routes(planned: Planned, found: SomeRoutes, running: Routes) -> Planned:
    """Return the plan with the routes ``running`` after the changes ``found``.

    Both mappings of routes share their unchanged parts. A ``Planned`` without a decision is returned as it is."""
    return planned if planned.decision is None else _with(planned, updated(running, found))


def _with(planned: Planned, routes: Routes) -> Planned:
    return replace(planned, answer=replace(planned.plan, routes=routes))


def _divided(entries: Mapping[Key, Value], size: Callable[[Value], int]) -> Iterator[dict[Key, Value]]:
    """Yield the entries in order, in parts whose total ``size`` is about ``MANY``; at least one part."""
    part: dict[Key, Value] = {}
    full = 0
    for key, value in entries.items():
        if full >= MANY:
            yield part
            part, full = {}, 0
        part[key] = value
        full += size(value)
    yield part


def _changed(before: Mapping[Key, Value], now: Mapping[Key, Value]) -> dict[Key, Value | None]:
    return {key: value for key, was, value in differing(before, now) if was != value}
