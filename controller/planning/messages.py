"""Requests that need planning, and what passes between the control loop and the threads that plan."""

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
from controller.planning.analysis.requests import Question
from controller.planning.plan import Plan, TargetLeft
from controller.planning.planned import Levels
from controller.planning.planned import Planned as Planned
from controller.planning.problem import PlanLimits, Snapshot
from controller.silence import EndSilence, SilenceAlarms
from signalbox.words import Strategy


@dataclass(frozen=True, slots=True)
class Replan:
    """Replies with a ``ReplanOutcome``."""

    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class ReplanOutcome:
    outcome: Literal["adopted", "kept", "no plan"]
    reason: str
    plan: Plan | None


@dataclass(frozen=True, slots=True)
class SetStrategy:
    """Replies with a ``StrategySet`` after the last barrier."""

    strategy: Strategy
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class StrategySet:
    strategy: Strategy
    install_s: float
    pins: int


@dataclass(frozen=True, slots=True)
class SolvePlan:
    """A waiting request is replaced by a newer one; the one being solved is finished. ``min_gain``: that makes a plan
    worth its moves. ``target``: that an earlier cycle left. ``installs``: a plan that is worth its moves becomes the
    running routes; the levels of those are worked out if it does not. ``anew``: a plan that was cut short is not given
    again, however often it was: an operator asks. ``repairs``: flows whose paths have gone are routed before the
    plan is made, and adopted at once."""

    snapshot: Snapshot
    limits: PlanLimits
    min_gain: float = 0.0
    target: TargetLeft | None = None
    installs: bool = True
    anew: bool = False
    repairs: bool = True


@dataclass(frozen=True, slots=True)
class WorkOutLevels:
    """Of the running routes; nothing is planned. ``draws``: of ECMP."""

    snapshot: Snapshot
    draws: int


PlanningRequest = SolvePlan | WorkOutLevels


Answer = Planned | Levels
"""What planning tells the control loop."""

Request = (
    RegisterJob
    | UpdateJobs
    | DeregisterJob
    | RenewLease
    | ReportIterations
    | ReportConnections
    | Replan
    | SetStrategy
    | DrainParts
    | UndrainParts
    | SilenceAlarms
    | EndSilence
    | Question
    | ForgetParts
)
"""What the API asks of the control loop, which resolves ``reply`` with a value or a ``SignalboxError``."""
