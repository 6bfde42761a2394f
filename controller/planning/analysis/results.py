"""Results of the analyses, which cross a process boundary. The API's messages have the same field names.

A slowdown is a factor >= 1; loads and efficiencies are fractions; ``efficiency`` defines all three. Links, switches and
flows are given by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from controller.demand.job_demand import JobDemand
from controller.fabric.topology import LinkId
from controller.planning.analysis.requests import FlowEnds
from controller.planning.efficiency import SLOWDOWN_TOLERANCE, EcmpSlowdown
from controller.planning.plan import Certificate
from signalbox.jobs.spec import JobId
from signalbox.words import FailureKind

LEAST_BACKGROUND = 0.01
"""Smallest fraction of a link's capacity at which unannounced traffic is reported."""

NOTICEABLE = 0.05
"""Relative increase of a job's communication time above which the job is called slow.

Loads that rest on counters have an error of some percent, and the iterations of an undisturbed job differ by as
much."""

# ---- one job


class Verdict(StrEnum):
    """Cause that slows the job.

    - ``cut-off``: some flows have no path.
    - ``nothing``: the job is not slowed by more than ``NOTICEABLE``.
    - ``routing``: its routes; better routes for the job are known.
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


@dataclass(frozen=True, slots=True)
class LeafCut:
    """Cut that bounds a job: flows that share the links of a leaf, out of it or into it.

    The cut has all flows out of (or into) the leaf, or only the flows to (or from) ``other_leaf``. On three tiers it
    may also have the flows between some leaves of a pod and other pods. ``leaf`` then gives the number of these leaves,
    and names one of them."""

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
    """Lower bound of the load of the most loaded link when flows that may not be split stay whole."""
    jobs: tuple[JobFlows, ...]
    """Number of flows of each job, the job with the most flows first."""
    drained: int = 0
    """Number of links of the switches on this side of the cut that work, but are taken out of service."""

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
    first_slowdown: float
    """Slowdown of the analysed job after one planning cycle."""
    cycles: int | None
    """Largest number of cycles that the moves take.

    None when no moves within ``planning.max_moves`` lead to these routes."""


@dataclass(frozen=True, slots=True)
class Arranged:
    """Statements of an extension about a job that it has arranged (``jobs.arrangement``).

    All fields but ``sentences`` are set only when nothing but the links of the arrangement limits the job."""

    sentences: tuple[str, ...]
    """Sentences to print after all other sentences of the analysis."""
    limits: str = ""
    """Sentence that replaces the usual sentence on the cause of the slowdown; empty for no replacement."""
    gain: str = ""
    """Sentence that replaces the usual sentence on the possible gain of other routes; empty for no replacement."""
    link: str = "link"
    """Word for one of the arrangement's links."""
    at_bound: bool = False
    """Whether no routes on the arrangement's links are better."""


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
    """Whether iterations were reported, but none of them began in the present epoch (``jobs.job``)."""
    efficiency_usual: float | None = None
    """Measured efficiency at the median communication time per iteration, without the job's first iterations.

    None when there are no later iterations."""
    hashed_slowdown: float | None = None
    """Mean slowdown if the job's flows were hashed and the flows of other jobs kept their routes.

    None when no flow has a choice of paths."""
    pinning_gains_nothing: bool = False
    """Whether 95 % of the draws of ``hashed_slowdown`` are as good as the best known routes."""
    fullest_nic: BusyLink | None = None

    @property
    def prediction_withheld(self) -> str:
        return self.withheld

    @property
    def efficiency_predicted(self) -> float | None:
        """Predicted efficiency: 0 while some flow has no path, None when the prediction is withheld."""
        if self.flows_without_a_path:
            return 0.0
        return None if self.withheld else 1 / self.slowdown


# ---- single failures


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

    These flows are pinned to failed links and have other paths."""
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
    """Number of flows with a valid route that the plan for the example moves."""
    first_slowdown: float | None = None
    """Worst slowdown after one planning cycle."""
    cycles: int | None = 0
    """Largest number of cycles that the plan's moves take.

    None when no moves within ``planning.max_moves`` lead to the plan."""

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
    """State before any failure."""

    slowdown: float
    """Worst slowdown of the running routes, with the greedy's paths for flows without a valid route."""
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
    """Whether the routes in force were analysed; otherwise the routes of a plan, because no flow is pinned."""
    present: Present
    outcomes: tuple[Outcome, ...]
    """Outcomes, the worst first; outcomes of which only the bound is known are last."""
    felt: tuple[Case, ...]
    """All cases that change something for a flow; cases without an outcome are no worse than the outcomes."""
    unfelt: tuple[Case, ...]
    """Cases that change nothing for any flow."""


# ---- the routes in force


@dataclass(frozen=True, slots=True)
class PlanProof:
    """Proof of the routes in force."""

    document: str
    """JSON document, as ``certificate`` describes it."""
    generation: int
    """Generation of the problem."""


Analysis = JobAnalysis | FailureAnalysis | PlanProof
