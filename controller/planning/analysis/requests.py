"""Requests to analyse the network: what slows a job (RPC ``Explain``), what single failures would do (RPC ``WhatIf``),
and why no routes are better than those in force (RPC ``GetPlanProof``).

In: the API's requests, the network and the accepted jobs. Out: requests for the worker process, with all that it needs,
which can be pickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from controller.fabric.topology import Dpid, Fabric, LinkId
from controller.jobs.demand import JobDemand
from controller.jobs.job import Job
from controller.jobs.messages import Arrangement
from controller.planning.demands import OVERHEAD, ideal_communication_s
from controller.planning.problem import Flow, PlanLimits, Problem, Snapshot, missing_hosts
from signalbox.errors import NotFound, NotKnownYet, cut
from signalbox.jobs.spec import JobId
from signalbox.words import FailureKind


class Parts(NamedTuple):
    """``name``: of all of them. ``links``: that they have."""

    name: str
    links: frozenset[LinkId]


# ---- api -> loop


@dataclass(frozen=True, slots=True)
class Explain:
    """Replies with a ``JobAnalysis``."""

    job_id: JobId
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Replies with a ``FailureAnalysis``. ``top``: outcomes wanted, None for all. ``within_s``: seconds for all.
    ``names``: parts that fail all at once, in place of ``kinds``; ``circuits``: that fail with them."""

    kinds: frozenset[FailureKind]
    top: int | None
    within_s: float
    names: tuple[str, ...] = ()
    circuits: tuple[Parts, ...] = ()
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class GetPlanProof:
    """Replies with a ``PlanProof``."""

    reply: Future[Any] = field(default_factory=Future, compare=False)


Question = Explain | WhatIf | GetPlanProof
"""Changes nothing; an analysis answers it."""


# ---- loop -> worker


class FlowEnds(NamedTuple):
    """Names of a flow's hosts and leaves."""

    src: str
    dst: str
    src_leaf: str
    dst_leaf: str


class FabricNames:
    """Names in results."""

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
        """``10.0.1.1>10.0.2.1 (leaf1>leaf2)``"""
        ends = self.ends(flow)
        return f"{ends.src}>{ends.dst} ({ends.src_leaf}>{ends.dst_leaf})"


@dataclass(frozen=True, slots=True)
class Network:
    """``found``: the problem with the routes in force, or what it is made of: the control loop leaves that to the
    analysis. ``intact``: the fabric with what has failed and what is drained. ``limits``: of each plan that the
    analysis makes. ``drained``: links that work, but are taken out of use."""

    found: Problem | Snapshot
    fabric: Fabric
    intact: Fabric
    limits: PlanLimits
    names: FabricNames
    drained: frozenset[LinkId] = frozenset()

    @property
    def problem(self) -> Problem:
        return self.found if isinstance(self.found, Problem) else self.found.problem

    @property
    def sending(self) -> Network:
        """The same with the flows that jobs send now."""
        problem, now = self.problem, self.problem.now
        return self if now is problem else replace(self, found=now.with_flows(f for f in now.flows if f.demand_bps))


@dataclass(frozen=True, slots=True)
class AnalyseJob:
    """``efficiency_measured``: None without measured times. ``without_path``: flows of the job between hosts that the
    fabric does not connect, the ports of hosts included, of which the problem knows nothing. ``arrangement``: of a job
    that has one."""

    network: Network
    job_id: JobId
    efficiency_measured: float | None
    without_path: int = 0
    arrangement: Arrangement | None = None
    withheld: str = ""
    """Why the level of the job is no prediction of its efficiency; empty when it is."""
    demand: JobDemand | None = None
    """What switches count of the job; None where there are no switches."""
    awaits_iterations: bool = False
    """Iterations were reported, and none of them began in the present epoch (``jobs.job``)."""
    min_gain: float = 0.0
    """Relative gain of levels that makes pins worth it."""


@dataclass(frozen=True, slots=True)
class AnalyseFailures:
    """The fields are those of ``WhatIf``. ``parts``: None unless some are named."""

    network: Network
    kinds: frozenset[FailureKind]
    top: int | None
    within_s: float
    parts: Parts | None = None


@dataclass(frozen=True, slots=True)
class ProveRoutes:
    """Those in force."""

    network: Network


AnalysisRequest = AnalyseJob | AnalyseFailures | ProveRoutes


@dataclass(frozen=True, slots=True)
class Analyse:
    """The worker resolves the future without the loop."""

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
    """``without_path``: as in ``AnalyseJob``, of jobs that have any. ``links``: of the parts that are named.
    ``withheld``: as in ``AnalyseJob``, of the job that is named. Raises ``NotFound`` for an unknown job,
    ``NotKnownYet`` for a job with hosts, or all of whose traffic, are not known yet."""
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
        text = f"job '{job.id}' waits for {', '.join(named)}: where its traffic goes is not known yet"
        raise NotKnownYet(text, {"jobId": job.id, "missingHosts": ",".join(named)})
    if not job.pairs:
        text = (
            f"job '{job.id}' is being learnt: counters show no traffic of it yet, and the switches hash what it sends"
        )
        raise NotKnownYet(text, {"jobId": job.id})
    measured = _efficiency_measured(network.fabric, job)
    return AnalyseJob(
        network,
        job.id,
        measured,
        without_path.get(job.id, 0),
        job.registration.arrangement,
        withheld,
        demands.get(job.id),
        awaits_iterations=measured is None and job.per_iteration and job.vitals.reported.iterations > 0,
        min_gain=min_gain,
    )


def _efficiency_measured(fabric: Fabric, job: Job) -> float | None:
    reported = job.vitals.reported
    measured_s = reported.mean_communication_s if reported.planned is job.sending else 0.0
    if not measured_s or not job.per_iteration:
        return None
    nic_bps = {ip: fabric.hosts[ip].nic_bps for pair in job.pairs for ip in pair}
    return ideal_communication_s(job.sending, nic_bps, OVERHEAD[job.transport]) / measured_s
