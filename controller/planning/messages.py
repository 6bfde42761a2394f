"""Messages between the control loop and the planning threads, and the union of all requests of the API."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from controller.fabric.messages import DrainParts, ForgetParts, UndrainParts
from controller.jobs.messages import (
    DeregisterJob,
    RegisterJob,
    RenewLease,
    ReportConnections,
    ReportIterations,
    UpdateJobs,
)
from controller.planning.analysis.messages import Question
from controller.planning.plan import GoalPlanLeft, Plan, Planned, Slowdowns
from controller.planning.problem import PlanLimits
from controller.planning.snapshot import Snapshot
from controller.silence import EndSilence, SilenceAlarms
from signalbox.words import Mode


@dataclass(frozen=True, slots=True)
class Replan:
    """Request for a new plan. The reply is a ``ReplanOutcome``."""

    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class ReplanOutcome:
    outcome: Literal["adopted", "kept", "no plan"]
    reason: str
    plan: Plan | None


@dataclass(frozen=True, slots=True)
class SetMode:
    """Request for another mode of the controller.

    The reply is a ``ModeSet``. The control loop sends it when the switches have confirmed the rules of the new mode."""

    mode: Mode
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class ModeSet:
    mode: Mode
    install_s: float
    pins: int


@dataclass(frozen=True, slots=True)
class SolvePlan:
    """Request for a plan.

    A newer request replaces a waiting request; the planner finishes the request on which it is working."""

    snapshot: Snapshot
    limits: PlanLimits
    min_gain: float = 0.0
    """Smallest relative gain at which a plan is worth its moves."""
    goal: GoalPlanLeft | None = None
    """Goal plan of an earlier cycle that is not reached yet; None without such a plan."""
    installs: bool = True
    """Whether the control loop installs a plan that is worth its moves.

    When the plan is not installed, the planner also computes the slowdowns of the running routes."""
    anew: bool = False
    """Whether an operator requests the plan.

    A plan that was cut short is then computed again, however often it was computed before."""
    repairs: bool = True
    """Whether the planner first repairs the routes of flows on lost paths; the control loop adopts a repair at once."""


@dataclass(frozen=True, slots=True)
class WorkOutSlowdowns:
    """Request for the slowdowns of the running routes, without a plan."""

    snapshot: Snapshot
    draws: int
    """Number of random draws of ECMP."""


PlanningRequest = SolvePlan | WorkOutSlowdowns
Answer = Planned | Slowdowns
"""Answers of the planning process to the control loop."""

Request = (
    RegisterJob
    | UpdateJobs
    | DeregisterJob
    | RenewLease
    | ReportIterations
    | ReportConnections
    | Replan
    | SetMode
    | DrainParts
    | UndrainParts
    | SilenceAlarms
    | EndSilence
    | Question
    | ForgetParts
)
"""Requests of the API to the control loop, which resolves ``reply`` with a value or a ``SignalboxError``."""
