"""Requests to analyse the network, from the API to the control loop and on to a worker process, and the results.

- RPC ``Explain``: causes of a job's slowdown.
- RPC ``WhatIf``: effects of failures.
- RPC ``GetPlanProof``: proof that no routes are better than the routes in force.

Requests for the worker process are complete and picklable. Results have the field names of the API's messages, and give
links, switches and flows by name. A slowdown is a factor >= 1; loads and efficiencies are fractions (``efficiency``).
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from controller.demand.job_demand import JobDemand
from controller.fabric.topology import Dpid, Fabric, LinkId
from controller.jobs.job import Job
from controller.jobs.messages import Arrangement
from controller.planning.efficiency import SLOWDOWN_TOLERANCE, EcmpSlowdown
from controller.planning.plan import Certificate, Sharing
from controller.planning.problem import Flow, PlanLimits, Problem
from controller.planning.snapshot import Snapshot, ideal_communication_s, missing_hosts
from signalbox.errors import NotFound, NotKnownYet, cut
from signalbox.jobs.spec import JobId
from signalbox.words import FailureKind


class Parts(NamedTuple):
    """Parts of the fabric that fail together."""

    name: str
    """Names of all parts, separated by commas."""
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
    """Planning problem with the routes in force, or the snapshot from which the worker process makes the problem."""
    fabric: Fabric
    intact: Fabric
    """Fabric including all parts that have failed or are drained."""
    limits: PlanLimits
    """Limits of each plan that the analysis makes."""
    names: FabricNames
    drained: frozenset[LinkId] = frozenset()
    """Working links that an operator has taken out of service."""
    sharing: Sharing | None = None
    """Slots and classes that are in force; None without any."""

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
    """Number of the job's flows that have no path in the fabric.

    The number includes flows of a host whose port is down, which the planning problem does not contain."""
    arrangement: Arrangement | None = None
    """Arrangement of the job by an extension; None for most jobs."""
    withheld: str = ""
    """Reason why the slowdown of the job does not predict its efficiency; empty when it does."""
    demand: JobDemand | None = None
    """Traffic of the job as counted by switches; None when there are no switches."""
    awaits_iterations: bool = False
    """Whether iterations were reported, but none of them began in the present measuring period (``jobs.job``)."""
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
    """Return the request to the worker process that answers a question of the API.

    - ``without_path``: number of flows without a path, for each job that has such flows.
    - ``links``: links of the named parts.
    - ``withheld``: ``AnalyseJob.withheld`` of the job in the question.

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
        more = f" and {len(missing) - len(named)} more" if len(missing) > len(named) else ""
        text = f"job '{job.id}' waits for hosts that are not in the fabric yet: {', '.join(named)}{more}"
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
    """Return the efficiency measured at the mean communication time, and at the median without first iterations."""
    reported = job.vitals.reported
    if reported.planned is not job.sending or not reported.mean_communication_s or not job.per_iteration:
        return None, None
    nic_bps = {ip: fabric.hosts[ip].nic_bps for pair in job.pairs for ip in pair}
    ideal_s = ideal_communication_s(job.sending, nic_bps, job.overhead)
    usual_s = reported.usual_communication_s
    return ideal_s / reported.mean_communication_s, ideal_s / usual_s if usual_s else None


# ---- results: one job


LEAST_BACKGROUND = 0.01
"""Smallest fraction of a link's capacity at which unannounced traffic is reported."""
NOTICEABLE = 0.05
"""Relative increase of a job's communication time above which the job is called slow.

Loads from counters have an error of some percent, and the iterations of an undisturbed job differ by as much."""


class Verdict(StrEnum):
    """Cause that slows the job.

    - ``cut-off``: some flows have no path.
    - ``nothing``: the job is not slowed by more than ``NOTICEABLE``.
    - ``routing``: the routes of the job; better routes for the job are known.
    - ``nic``: one of the job's NICs.
    - ``fabric``: the links; the job would be as slow with any other routes.
    - ``unproven``: the links; whether other routes would help is not known."""

    CUT_OFF = "cut-off"
    NOTHING = "nothing"
    ROUTING = "routing"
    NIC = "nic"
    FABRIC = "fabric"
    UNPROVEN = "unproven"


@dataclass(frozen=True, slots=True)
class JobShare:
    """Traffic of one job on a link."""

    job_id: JobId
    flows: int
    load: float
    """Load in the job's worst phase, as a fraction of the link's capacity."""


@dataclass(frozen=True, slots=True)
class JobFlows:
    job_id: JobId
    flows: int


@dataclass(frozen=True, slots=True)
class BusyLink:
    """Link of the analysed job with its load."""

    link: str
    nic: bool
    load: float
    background: float
    """Fraction of the link's full capacity that unannounced traffic takes."""
    jobs: tuple[JobShare, ...]
    """Jobs on the link, the largest load first."""

    def load_of(self, job_id: JobId) -> float:
        return sum(share.load for share in self.jobs if share.job_id == job_id)


@dataclass(frozen=True, slots=True)
class LeafCut:
    """Cut that bounds the slowdown of a job: some flows, and the links of a leaf that these flows have to share.

    A cut has one of these sets of flows:
    - all flows out of the leaf, or all flows into it;
    - only the flows to ``other_leaf``, or only the flows from ``other_leaf``;
    - on three tiers, the flows from some leaves of a pod to other pods, or from other pods to these leaves. For such
      flows, ``leaf`` gives the number of these leaves, and names one leaf."""

    leaf: str
    other_leaf: str | None
    direction: Literal["out", "in"]
    links: int
    """Number of links that the flows share."""
    failed: int
    """Number of failed links of the switches on this side of the cut."""
    fluid_slowdown: float
    """Load of the links if the flows of the cut were spread evenly over the links."""
    whole_slowdown: float
    """Lower bound of the load of the most loaded link, when no flow is divided into more subflows than it may have."""
    jobs: tuple[JobFlows, ...]
    """Number of flows of each job, the job with the most flows first."""
    subflows: int
    """Number of subflows of the cut's flows; a flow that is planned as n equal subflows counts n times."""
    drained: int = 0
    """Number of working links, of the switches on this side of the cut, that an operator has taken out of service."""
    max_subflows: int = 1
    """Largest number of subflows into which a flow of the cut may be divided."""

    @property
    def slowdown(self) -> float:
        return max(self.fluid_slowdown, self.whole_slowdown)


@dataclass(frozen=True, slots=True)
class FoundRoutes:
    """Routes that the planner found."""

    slowdown: float
    """Slowdown of the analysed job."""
    worst_slowdown: float
    """Slowdown of the worst job."""
    worst_bound: float
    """Lower bound of ``worst_slowdown``."""
    certificate: Certificate
    best_for_all: bool
    """Whether it is proven that the job can only be faster if another job becomes slower."""
    moves: int
    most_subflows: int
    """Largest number of subflows of a flow."""
    first_slowdown: float
    """Slowdown of the analysed job after one planning cycle."""
    cycles: int | None
    """Largest number of planning cycles that the moves to the found routes take.

    None when the routes cannot be reached with ``planning.max_moves`` moves per cycle."""


@dataclass(frozen=True, slots=True)
class Arranged:
    """Statements of an extension about a job that it has arranged (``jobs.arrangement``).

    The fields other than ``sentences`` are set when only the links of the arrangement limit the job."""

    sentences: tuple[str, ...]
    """Sentences to print after all other sentences of the analysis."""
    limits: str = ""
    """Sentence that replaces the usual sentence on the cause of the slowdown; empty for no replacement."""
    gain: str = ""
    """Sentence that replaces the usual sentence on the possible gain of other routes; empty for no replacement."""
    link: str = "link"
    """Noun for a link of the arrangement in the sentences of the analysis."""
    at_bound: bool = False
    """Whether it is proven that no other routes over the arrangement's links are better."""


@dataclass(frozen=True, slots=True)
class JobAnalysis:
    """Analysis of one job."""

    job_id: JobId
    verdict: Verdict
    slowdown: float
    """Slowdown of the job now; the mean over random draws when some flows are hashed."""
    efficiency_measured: float | None
    """Measured efficiency; None without measured times."""
    least_slowdown: float
    """Lower bound of the job's slowdown over all routings of all jobs."""
    nic_slowdown: float
    """Slowdown of the job if only NICs had limited capacity."""
    flows: int
    flows_inside_a_leaf: int
    flows_hashed: int
    """Number of flows between leaves that have a path but no route in force."""
    flows_without_a_path: int
    equally_full_links: int
    """Number of links whose load equals the load of the first of ``fullest_links``."""
    fullest_links: tuple[BusyLink, ...]
    cut: LeafCut | None
    """Cut with the largest bound of the job's slowdown; None when no flow of the job leaves its leaf."""
    best: FoundRoutes | None
    """Best routes that the planner found; None when the job is not slow, or has no path."""
    split: FoundRoutes | None
    """Best routes if all flows could be split; None when the job is not slow, or when all flows may be split anyway."""
    arranged: Arranged | None = None
    withheld: str = ""
    """Reason why the slowdown does not predict the efficiency; empty when it does."""
    demand: JobDemand | None = field(default=None, compare=False)
    """Traffic of the job as counted by switches; None when there are no switches."""
    awaits_iterations: bool = False
    """Whether iterations were reported, but none of them began in the present measuring period (``jobs.job``)."""
    efficiency_usual: float | None = None
    """Measured efficiency at the median communication time per iteration, without the job's first iterations.

    None when there are no later iterations."""
    hashed_slowdown: float | None = None
    """Mean slowdown if the job's flows were hashed and the flows of other jobs kept their routes.

    None when no flow has a choice of paths."""
    pinning_gains_nothing: bool = False
    """Whether at least 95 % of the random draws for ``hashed_slowdown`` are as good as the best known routes."""
    fullest_nic: BusyLink | None = None
    own_link: BusyLink | None = None
    """Link between switches that the job's own flows load most; None unless they exceed its capacity."""

    @property
    def prediction_withheld(self) -> str:
        return self.withheld

    @property
    def efficiency_predicted(self) -> float | None:
        """Predicted efficiency: 0 while some flow has no path, None when the prediction is withheld."""
        if self.flows_without_a_path:
            return 0.0
        return None if self.withheld else 1 / self.slowdown


# ---- results: single failures


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure of one part, or of parts that fail together."""

    kind: FailureKind
    name: str
    """Name of the failed part, in the form that the failure options of the commands accept."""
    links: frozenset[LinkId]
    """Directed links that are lost."""


@dataclass(frozen=True, slots=True)
class Case:
    """A failure, or several failures that have the same effect."""

    kind: FailureKind
    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Effect of a case, computed for one failure of the case (``example``)."""

    case: Case
    example: Failure
    """Failure of the case for which the effect was computed."""
    lost: tuple[FlowEnds, ...]
    """Flows that lose their last path."""
    rerouted: tuple[int, int]
    """Smallest and largest number of flows, over the failures of the case, that must change to other paths.

    The counted flows are pinned to failed links and have other paths."""
    basis: Literal["plan", "repair", "bound"]
    """Source of ``slowdown``.

    - ``plan``: the planner's answer.
    - ``repair``: the repair's answer, because it reaches the bound or the time was over.
    - ``bound``: no slowdown is known, only the bound, because the time was over."""
    bound: float
    """Lower bound of the worst slowdown; ``bound``, ``fluid_bound`` and ``integer_bound`` are defined in ``Plan``."""
    fluid_bound: float
    integer_bound: float
    ecmp: EcmpSlowdown | None = None
    """Worst slowdown when all flows are hashed; None when only the bound is known."""
    repaired_slowdown: float | None = None
    """Worst slowdown after the repair, before a new plan; None when only the bound is known."""
    slowdown: float | None = None
    """Worst slowdown after planning; None when only the bound is known."""
    moved: int = 0
    """Number of flows with a valid route that the plan for ``example`` moves."""
    first_slowdown: float | None = None
    """Worst slowdown after one planning cycle."""
    cycles: int | None = 0
    """Largest number of planning cycles that the moves to the plan take.

    None when the plan cannot be reached with ``planning.max_moves`` moves per cycle."""

    @property
    def proven(self) -> bool:
        """Whether it is proven that no routing has a smaller worst slowdown."""
        return self.slowdown is not None and self.slowdown <= self.bound * (1 + SLOWDOWN_TOLERANCE)

    @property
    def repaired_only(self) -> bool:
        """Whether only the repair is known, because the time was over; a plan might have a smaller slowdown."""
        return self.basis == "repair" and not self.proven

    @property
    def severity(self) -> tuple[int, float, int, float]:
        """Sort key, larger is worse: number of lost flows, slowdown, number of rerouted flows, slowdown under ECMP."""
        slowdown = self.bound if self.slowdown is None else self.slowdown
        return len(self.lost), round(slowdown, 6), self.rerouted[1], self.ecmp.mean if self.ecmp else 0.0


@dataclass(frozen=True, slots=True)
class Present:
    """Result of the analysis without any failure."""

    slowdown: float
    """Worst slowdown of the running routes; flows without a valid route take the paths of the greedy algorithm."""
    bound: float
    fluid_bound: float
    integer_bound: float
    ecmp: EcmpSlowdown
    unrouted: tuple[FlowEnds, ...]
    """Flows that have no path even without a failure."""


@dataclass(frozen=True, slots=True)
class FailureAnalysis:
    """Analysis of failures."""

    pinned: bool
    """Whether the routes in force were analysed; if False, the routes of a plan, because no flow is pinned."""
    present: Present
    outcomes: tuple[Outcome, ...]
    """Outcomes, the worst first; outcomes of which only the bound is known are last."""
    felt: tuple[Case, ...]
    """All cases that affect some flow. A case that is missing in ``outcomes`` is no worse than those listed there."""
    unfelt: tuple[Case, ...]
    """Cases that affect no flow."""


# ---- results: the routes in force


@dataclass(frozen=True, slots=True)
class PlanProof:
    """Proof of the routes in force."""

    document: str
    """JSON document, as ``certificate`` describes it."""
    generation: int
    """Generation of the problem whose routes are proven."""


Analysis = JobAnalysis | FailureAnalysis | PlanProof
