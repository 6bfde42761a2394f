"""Requests to analyse the network, from the API to the control loop and from there to a worker process.

- RPC ``Explain``: causes of a job's slowdown.
- RPC ``WhatIf``: effects of failures.
- RPC ``GetPlanProof``: proof that no routes are better than the routes in force.

In: the API's requests, the network and the accepted jobs. Out: requests for the worker process, complete and
picklable."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from controller.demand.job_demand import JobDemand
from controller.fabric.topology import Dpid, Fabric, LinkId
from controller.jobs.job import Job
from controller.jobs.messages import Arrangement
from controller.planning.problem import Flow, PlanLimits, Problem
from controller.planning.snapshot import Snapshot, ideal_communication_s, missing_hosts
from signalbox.errors import NotFound, NotKnownYet, cut
from signalbox.jobs.spec import JobId
from signalbox.words import FailureKind


class Parts(NamedTuple):
    """Parts of the fabric that fail together."""

    name: str
    """Names of all parts, joined."""
    links: frozenset[LinkId]
    """Links of the parts."""


# ---- from the API to the control loop


@dataclass(frozen=True, slots=True)
class Explain:
    """Request for the analysis of a job. The reply is a ``JobAnalysis``."""

    job_id: JobId
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Request for the analysis of failures. The reply is a ``FailureAnalysis``."""

    kinds: frozenset[FailureKind]
    top: int | None
    """Number of outcomes to return; None for all."""
    within_s: float
    """Seconds for the whole analysis."""
    names: tuple[str, ...] = ()
    """Names of parts that fail at the same time; with names, single failures of ``kinds`` are not analysed."""
    circuits: tuple[Parts, ...] = ()
    """Circuits that fail together with ``names``."""
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class GetPlanProof:
    """Request for the proof of the routes in force. The reply is a ``PlanProof``."""

    reply: Future[Any] = field(default_factory=Future, compare=False)


Question = Explain | WhatIf | GetPlanProof
"""Requests that change nothing and that an analysis answers."""


# ---- from the control loop to the worker


class FlowEnds(NamedTuple):
    """Names of a flow's hosts and leaves."""

    src: str
    dst: str
    src_leaf: str
    dst_leaf: str


class FabricNames:
    """Names of hosts, switches, links and flows in results."""

    def __init__(self, intact: Fabric) -> None:
        self._fabric = intact

    def host(self, ip: str) -> int | str:
        return ip

    def switch(self, dpid: Dpid) -> str:
        return self._fabric.name(dpid)

    def link(self, link_id: LinkId) -> str:
        return self._fabric.link_name(link_id)

    def ends(self, flow: Flow) -> FlowEnds:
        src, dst = str(self.host(flow.id.src_ip)), str(self.host(flow.id.dst_ip))
        return FlowEnds(src, dst, self.switch(flow.src_leaf), self.switch(flow.dst_leaf))

    def flow(self, flow: Flow) -> str:
        """Return the name of a flow, such as ``10.0.1.1>10.0.2.1 (leaf1>leaf2)``."""
        ends = self.ends(flow)
        return f"{ends.src}>{ends.dst} ({ends.src_leaf}>{ends.dst_leaf})"


@dataclass(frozen=True, slots=True)
class Network:
    """Network that an analysis examines."""

    found: Problem | Snapshot
    """Problem with the routes in force, or its snapshot.

    The control loop passes a snapshot when the worker shall make the problem."""
    fabric: Fabric
    intact: Fabric
    """Fabric including all parts that have failed or are drained."""
    limits: PlanLimits
    """Limits of each plan that the analysis makes."""
    names: FabricNames
    drained: frozenset[LinkId] = frozenset()
    """Links that work, but that an operator has taken out of service."""

    @property
    def problem(self) -> Problem:
        return self.found if isinstance(self.found, Problem) else self.found.problem

    @property
    def sending(self) -> Network:
        """Network with only the flows that jobs send now; otherwise equal to this network."""
        problem, now = self.problem, self.problem.now
        return self if now is problem else replace(self, found=now.with_flows(f for f in now.flows if f.demand_bps))


@dataclass(frozen=True, slots=True)
class AnalyseJob:
    """Request to the worker: analyse a job."""

    network: Network
    job_id: JobId
    efficiency_measured: float | None
    """Measured efficiency; None without measured times."""
    without_path: int = 0
    """Number of the job's flows between hosts that the fabric does not connect.

    It includes flows that are cut off at the port of a host; the problem does not contain such flows."""
    arrangement: Arrangement | None = None
    """Arrangement of the job by an extension; None for most jobs."""
    withheld: str = ""
    """Reason why the slowdown of the job does not predict its efficiency; empty when it does."""
    demand: JobDemand | None = None
    """Traffic of the job as counted by switches; None when there are no switches."""
    awaits_iterations: bool = False
    """Whether iterations were reported, but none of them began in the present epoch (``jobs.job``)."""
    efficiency_usual: float | None = None
    """Measured efficiency at the median communication time per iteration, without the job's first iterations.

    None when there are no later iterations."""
    min_gain: float = 0.0
    """Smallest relative gain in slowdown for which pinning counts as better than hashing."""


@dataclass(frozen=True, slots=True)
class AnalyseFailures:
    """Request to the worker: analyse failures. The fields are those of ``WhatIf``."""

    network: Network
    kinds: frozenset[FailureKind]
    top: int | None
    within_s: float
    parts: Parts | None = None
    """Named parts that fail together; None to analyse single failures."""


@dataclass(frozen=True, slots=True)
class ProveRoutes:
    """Request to the worker: prove the routes in force."""

    network: Network


AnalysisRequest = AnalyseJob | AnalyseFailures | ProveRoutes


@dataclass(frozen=True, slots=True)
class Analyse:
    """Analysis to run. The worker resolves ``reply`` itself; the result does not pass through the control loop."""

    request: AnalysisRequest
    reply: Future[Any] = field(compare=False)


def analysis_request(
    message: Question,
    network: Network,
    jobs: Mapping[JobId, Job],
    without_path: Mapping[JobId, int],
    links: frozenset[LinkId] = frozenset(),
    withheld: str = "",
    demands: Mapping[JobId, JobDemand] = MappingProxyType({}),
    min_gain: float = 0.0,
) -> AnalysisRequest:
    """Return the request to the worker that answers a question of the API.

    ``without_path``: see ``AnalyseJob``, for the jobs that have such flows. ``links``: links of the named parts.
    ``withheld``: see ``AnalyseJob``, for the named job.

    Raises ``NotFound`` for an unknown job. Raises ``NotKnownYet`` for a job when some of its hosts, or all of its
    traffic, are not known yet."""
    if isinstance(message, WhatIf):
        named = (*message.names, *(circuits.name for circuits in message.circuits))
        links = links.union(*(circuits.links for circuits in message.circuits))
        parts = Parts(", ".join(named), links) if named else None
        return AnalyseFailures(network, message.kinds, message.top, message.within_s, parts)
    if isinstance(message, GetPlanProof):
        return ProveRoutes(network)
    job = jobs.get(message.job_id)
    if job is None:
        known = f"jobs: {', '.join(sorted(jobs))}" if jobs else "no job is announced"
        raise NotFound(f"there is no job '{cut(message.job_id)}'; {known}", about={"jobId": message.job_id})
    missing = missing_hosts(network.fabric.hosts, job.addresses)
    if missing:
        named = missing[:4]
        text = f"job '{job.id}' waits for {', '.join(named)}: these hosts are not in the fabric yet"
        raise NotKnownYet(text, {"jobId": job.id, "missingHosts": ",".join(named)})
    if not job.pairs:
        text = f"job '{job.id}' is being learnt: counters show no traffic of it yet, and the switches hash its flows"
        raise NotKnownYet(text, {"jobId": job.id})
    measured, usual = _efficiencies_measured(network.fabric, job)
    return AnalyseJob(
        network,
        job.id,
        measured,
        without_path.get(job.id, 0),
        job.registration.arrangement,
        withheld,
        demands.get(job.id),
        awaits_iterations=measured is None and job.per_iteration and job.vitals.reported.iterations > 0,
        efficiency_usual=usual,
        min_gain=min_gain,
    )


def _efficiencies_measured(fabric: Fabric, job: Job) -> tuple[float | None, float | None]:
    """Return two measured efficiencies of the job, or None for an efficiency that is not known.

    The first is at the mean communication time of all iterations. The second is at the median communication time
    without the job's first iterations."""
    reported = job.vitals.reported
    if reported.planned is not job.sending or not reported.mean_communication_s or not job.per_iteration:
        return None, None
    nic_bps = {ip: fabric.hosts[ip].nic_bps for pair in job.pairs for ip in pair}
    ideal_s = ideal_communication_s(job.sending, nic_bps, job.overhead)
    usual_s = reported.usual_communication_s
    return ideal_s / reported.mean_communication_s, ideal_s / usual_s if usual_s else None
