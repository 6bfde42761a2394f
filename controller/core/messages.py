"""Messages into the control loop, and commands out of it.

Each package defines its own messages. This module defines the union of all messages, and the messages that belong to no
package. No message refers to OpenFlow, gRPC or Ryu.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from controller.config import Config
from controller.jobs.messages import SaveState, StateNotSaved, StateSaved
from controller.planning.analysis.requests import Analyse
from controller.planning.messages import Planned, Request, SolvePlan, WorkOutSlowdowns
from controller.planning.planned import Slowdowns
from controller.tables.messages import FromSwitches, ToSwitches


@dataclass(frozen=True, slots=True)
class Tick:
    """Timer message, sent ten times a second: it drives time-outs, leases and periodic work."""

    at: float = field(default_factory=time.time, compare=False)
    """Time in seconds since 1970, used only to record when something happened."""


@dataclass(frozen=True, slots=True)
class NewSettings:
    """The configuration was read again; only settings that may change at run time differ."""

    config: Config


@dataclass(frozen=True, slots=True)
class Reply:
    """Resolve the future with ``value``; a ``SignalboxError`` becomes its exception."""

    future: Future[Any]
    value: object
    after_status: bool = True
    """Whether the status that shows the result is published before the reply.

    The API reads that status after the reply. False where the request has changed nothing that a status shows."""


@dataclass(frozen=True, slots=True)
class WorkOut:
    """Command to answer a question of the extension in a separate process; ``WorkedOut`` returns the answer."""

    question: Any


@dataclass(frozen=True, slots=True)
class WorkedOut:
    """Answer to a question that the extension asked with ``WorkOut``."""

    question: Any
    answer: Any
    """The answer, or a text with the reason why the question has no answer."""


Message = FromSwitches | Request | Planned | Slowdowns | WorkedOut | StateSaved | StateNotSaved | Tick | NewSettings
Command = ToSwitches | SolvePlan | WorkOutSlowdowns | WorkOut | Analyse | SaveState | Reply
