"""Results of the analyses, which cross a process boundary. The API's messages have the same field names.

Levels are factors >= 1, loads and efficiencies shares; ``efficiency`` defines them. Links, switches and flows are given
by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from controller.fabric.topology import LinkId
from controller.jobs.demand import JobDemand
from controller.planning.analysis.requests import FlowEnds
from controller.planning.efficiency import LEVEL_TOLERANCE
from controller.planning.plan import Certificate, EcmpLevel
from signalbox.jobs.spec import JobId
from signalbox.words import FailureKind

LEAST_BACKGROUND = 0.01
"""The share of a link from which on unannounced traffic is told."""

NOTICEABLE = 0.05
"""Share by which communication must be prolonged before a job is called slow. Loads that rest on counters are known to
some percent, and iterations of a job that nothing disturbs differ by as much."""

# ---- one job


class Verdict(StrEnum):
    """What slows the job. ``cut-off``: some flows have no path. ``nothing``: it is not slowed by more than
    ``NOTICEABLE``. ``routing``: better routes for it are known. ``nic``: one of its NICs. ``fabric``: the links, with
    any routes. ``unproven``: the links; whether other routes would help is open."""

    CUT_OFF = "cut-off"
    NOTHING = "nothing"
    ROUTING = "routing"
    NIC = "nic"
    FABRIC = "fabric"
    UNPROVEN = "unproven"


@dataclass(frozen=True, slots=True)
class JobShare:
    """What one job sends over a link. ``load``: in its worst phase, as a share of the link's capacity."""

    job_id: JobId
    flows: int
    load: float


@dataclass(frozen=True, slots=True)
class JobFlows:
    job_id: JobId
    flows: int


@dataclass(frozen=True, slots=True)
class BusyLink:
    """``background``: share of the link's own capacity that unannounced traffic takes. ``jobs``: the largest first."""

    link: str
    nic: bool
    load: float
    background: float
    jobs: tuple[JobShare, ...]


@dataclass(frozen=True, slots=True)
class LeafCut:
    """Flows out of a leaf or into it, all of them or those to or from one ``other_leaf``; they share ``links`` links.
    On three tiers also flows between some leaves of a pod and other pods; ``leaf`` says how many leaves, and names one.
    ``failed``, ``drained``: links of the switches on this side of the cut that have failed, or work but are taken out
    of use.

    ``fluid_level``: load of the links if all these flows could be spread evenly. ``whole_level``: least load of one of
    the links, because flows that may not be split stay whole. ``jobs``: flows of each job, the most first.
    """

    leaf: str
    other_leaf: str | None
    direction: Literal["out", "in"]
    links: int
    failed: int
    fluid_level: float
    whole_level: float
    jobs: tuple[JobFlows, ...]
    drained: int = 0

    @property
    def level(self) -> float:
        return max(self.fluid_level, self.whole_level)


@dataclass(frozen=True, slots=True)
class FoundRoutes:
    """Routes that the planner found. ``level``: of the job; ``worst_level``: of the worst job; ``worst_bound``: of
    that. ``best_for_all``: proven that the job's level could only be smaller if that of another job were larger.
    ``first_level``: of the job after one planning cycle. ``cycles``: that the moves take at most, None when no moves
    within ``planning.max_moves`` lead there."""

    level: float
    worst_level: float
    worst_bound: float
    certificate: Certificate
    best_for_all: bool
    moves: int
    most_pieces: int
    first_level: float
    cycles: int | None


@dataclass(frozen=True, slots=True)
class Arranged:
    """What the extension says of a job that it has arranged (``jobs.arrangement``). ``sentences``: for people, after
    the others. The rest is set where only the links of the arrangement limit the job. ``limits`` says so, in place of
    the sentence on what slows it; ``gain`` is in place of the sentence on what routing could gain. ``link``: what one
    of these links is called. ``at_bound``: no routes on them are better."""

    sentences: tuple[str, ...]
    limits: str = ""
    gain: str = ""
    link: str = "link"
    at_bound: bool = False


@dataclass(frozen=True, slots=True)
class JobAnalysis:
    """``level``: now, its mean over draws where flows are hashed. ``least_level``: no routing of any jobs gives the job
    a smaller one. ``nic_level``: with a fabric of unlimited capacity. ``flows_hashed``: those without a route.
    ``equally_full_links``: how many are as full as the first. ``cut``: the leaf that bounds the job most, None when no
    flow leaves its leaf. ``best``, ``split``: None when there is nothing to gain. ``efficiency_measured``: None without
    measured times. ``withheld``: why the level is no prediction of the efficiency; empty when it is."""

    job_id: JobId
    verdict: Verdict
    level: float
    efficiency_measured: float | None
    least_level: float
    nic_level: float
    flows: int
    flows_inside_a_leaf: int
    flows_hashed: int
    flows_without_a_path: int
    equally_full_links: int
    fullest_links: tuple[BusyLink, ...]
    cut: LeafCut | None
    best: FoundRoutes | None
    split: FoundRoutes | None
    arranged: Arranged | None = None
    withheld: str = ""
    demand: JobDemand | None = field(default=None, compare=False)
    """What switches count of the job; None where there are no switches."""
    awaits_iterations: bool = False
    """Iterations were reported, and none of them began in the present epoch (``jobs.job``)."""
    hashed_level: float | None = None
    """Mean level if the flows of the job were hashed, and those of others stayed as they are; None when no flow has a
    choice of paths."""
    pinning_gains_nothing: bool = False
    """Whether the level in 95 % of the draws of ``hashed_level`` is as good as with the best known routes."""
    fullest_nic: BusyLink | None = None

    @property
    def prediction_withheld(self) -> str:
        return self.withheld

    @property
    def efficiency_predicted(self) -> float | None:
        """0 while some flow has no path, else None where it is withheld."""
        if self.flows_without_a_path:
            return 0.0
        return None if self.withheld else 1 / self.level


# ---- single failures


@dataclass(frozen=True, slots=True)
class Failure:
    """``name``: as the failure options of the commands take it. ``links``: the directed links that are lost."""

    kind: FailureKind
    name: str
    links: frozenset[LinkId]


@dataclass(frozen=True, slots=True)
class Case:
    """Failures with the same effect, at least one."""

    kind: FailureKind
    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a case does. ``example``: the failure that was computed.

    ``basis``: the planner's answer; the repair's, which reaches the bound or for which the time was over; or only
    the bound, because the time was over. ``bound``, ``fluid_bound``, ``integer_bound``: as a ``Plan``'s. ``lost``:
    flows that lose their last path. ``rerouted``: fewest and most flows, over the failures of the case, that are pinned
    to what fails and have other paths. ``ecmp``: when all flows are hashed. ``repaired_level``: worst level after the
    repair, before anything is planned. ``level``: after planning. These three are None when only the bound is known.
    ``moved``: other flows that the plan for the example moves. ``first_level``: after one planning cycle; ``cycles``:
    that its moves take at most, None when no moves within ``planning.max_moves`` lead there.
    """

    case: Case
    example: Failure
    lost: tuple[FlowEnds, ...]
    rerouted: tuple[int, int]
    basis: Literal["plan", "repair", "bound"]
    bound: float
    fluid_bound: float
    integer_bound: float
    ecmp: EcmpLevel | None = None
    repaired_level: float | None = None
    level: float | None = None
    moved: int = 0
    first_level: float | None = None
    cycles: int | None = 0

    @property
    def proven(self) -> bool:
        """No routing has a smaller worst level."""
        return self.level is not None and self.level <= self.bound * (1 + LEVEL_TOLERANCE)

    @property
    def repaired_only(self) -> bool:
        """The time was over before it was planned: with a plan its level may be smaller."""
        return self.basis == "repair" and not self.proven

    @property
    def severity(self) -> tuple[int, float, int, float]:
        """Larger is worse: lost flows, then the level, then the flows to re-route, then the level under hashing."""
        level = self.bound if self.level is None else self.level
        return len(self.lost), round(level, 6), self.rerouted[1], self.ecmp.mean if self.ecmp else 0.0


@dataclass(frozen=True, slots=True)
class Present:
    """Before any failure. ``level``: of the running routes, with the greedy's paths for flows that have none.
    ``unrouted``: flows without a path already."""

    level: float
    bound: float
    fluid_bound: float
    integer_bound: float
    ecmp: EcmpLevel
    unrouted: tuple[FlowEnds, ...]


@dataclass(frozen=True, slots=True)
class FailureAnalysis:
    """``pinned``: the routes in force were analysed; if not, those that would be planned. ``outcomes``: the worst
    first; those of which only the bound is known come last. ``felt``: all cases that change something; those without
    an outcome are no worse than the outcomes. ``unfelt``: those that change nothing for any flow."""

    pinned: bool
    present: Present
    outcomes: tuple[Outcome, ...]
    felt: tuple[Case, ...]
    unfelt: tuple[Case, ...]


# ---- the routes in force


@dataclass(frozen=True, slots=True)
class PlanProof:
    """``document``: JSON, as ``certificate`` describes it. ``generation``: of the problem."""

    document: str
    generation: int


Analysis = JobAnalysis | FailureAnalysis | PlanProof
