"""Everything that goes into the control loop, and everything that comes out of it.

Each stage defines its own messages; here is their union, with the messages that belong to no stage. No message names
OpenFlow, gRPC or Ryu.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from controller.config import Config
from controller.jobs.messages import SaveState, StateNotSaved, StateSaved
from controller.planning.analysis.requests import Analyse
from controller.planning.messages import Planned, Request, SolvePlan, WorkOutLevels
from controller.planning.planned import Levels
from controller.tables.messages import FromSwitches, ToSwitches


@dataclass(frozen=True, slots=True)
class Tick:
    """Sent ten times a second; time-outs, leases and periodic work happen on it. ``at``: seconds since 1970, only to
    tell when something happened."""

    at: float = field(default_factory=time.time, compare=False)


@dataclass(frozen=True, slots=True)
class NewSettings:
    """The configuration was read again. It differs from the one before in what may change at run time only."""

    config: Config


@dataclass(frozen=True, slots=True)
class Reply:
    """Resolve the future with ``value``; a ``SignalboxError`` becomes its exception. ``after_status``: the status that
    shows what the request did is published first, since the API reads it there once the reply is in. Not where the
    request has changed nothing that a status shows."""

    future: Future[Any]
    value: object
    after_status: bool = True


@dataclass(frozen=True, slots=True)
class WorkOut:
    """Have a question of the extension answered, in a process of its own; ``WorkedOut`` brings the answer."""

    question: Any


@dataclass(frozen=True, slots=True)
class WorkedOut:
    """``answer``: a text that says why there is none, where there is none."""

    question: Any
    answer: Any


Message = FromSwitches | Request | Planned | Levels | WorkedOut | StateSaved | StateNotSaved | Tick | NewSettings
Command = ToSwitches | SolvePlan | WorkOutLevels | WorkOut | Analyse | SaveState | Reply
