"""Interface of the core: messages, commands, effects, and the methods that an extension overrides.

Each package defines its own messages. This module defines the union of all messages, and the messages that belong to no
package. No message refers to OpenFlow, gRPC or Ryu. The effects of a message are commands to carry out, and kinds of
work with their due times. ``|`` merges effects, so that work of one kind is done once for several messages.

An extension may own switches that do not forward packets by themselves, such as optical switches. It decides where
one-way ports lead, which jobs wait, and which jobs send when. ``controller.extensions`` loads it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import IntEnum, auto
from types import MappingProxyType
from typing import Any

from controller.alarms import Alarm
from controller.config import Config
from controller.fabric.parts import NO_REASONS, WhyNot
from controller.fabric.topology import Fabric, PortRef
from controller.jobs.job import Job
from controller.jobs.messages import Arrangement, SaveState, StateNotSaved, StateSaved
from controller.planning.analysis.messages import Analyse
from controller.planning.messages import Request, SolvePlan, WorkOutSlowdowns
from controller.planning.plan import Planned, Sharing, Slowdowns
from controller.planning.problem import Routes, Timing
from controller.planning.snapshot import NO_TIMINGS
from controller.status import NO_EXTENSION, ExtensionStatus
from controller.store.members import MissingMembers
from controller.tables.messages import FromSwitches, ToSwitches
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId


@dataclass(frozen=True, slots=True)
class Tick:
    """Timer message, sent ten times a second: it drives time-outs, leases and periodic work."""

    at: float = field(default_factory=time.time, compare=False)
    """Time in seconds since 1970, used only to record when something happened."""
    is_claimed: bool = True
    """Whether this process still has the claim: the exclusive right to write the saved state. Without claim, commits
    fail."""


@dataclass(frozen=True, slots=True)
class NewSettings:
    """Configuration after a reload. Only settings that may change at run time have new values."""

    config: Config


@dataclass(frozen=True, slots=True)
class Reply:
    """Resolve the future with ``value``; a ``SignalboxError`` becomes its exception."""

    future: Future[Any]
    value: object
    after_status: bool = True
    """Whether the reply waits until the status that shows the result is published, because the API reads it next.

    False if the request has not changed the status."""


@dataclass(frozen=True, slots=True)
class WorkOut:
    """Command to answer a question of the extension in a separate process. The answer arrives as ``WorkedOut``."""

    question: Any


@dataclass(frozen=True, slots=True)
class WorkedOut:
    """Answer to a question that the extension asked with ``WorkOut``."""

    question: Any
    answer: Any
    """The answer, or a text that says why the question has no answer."""


Message = (
    FromSwitches
    | Request
    | Planned
    | Slowdowns
    | WorkedOut
    | StateSaved
    | StateNotSaved
    | MissingMembers
    | Tick
    | NewSettings
)
Command = ToSwitches | SolvePlan | WorkOutSlowdowns | WorkOut | Analyse | SaveState | Reply


MAX_DEBOUNCES = 10
"""Longest delay of work that is requested again and again, as a multiple of ``quiet_s`` (``when_quiet``)."""


class Work(IntEnum):
    """Kinds of work that messages make due."""

    RULES = auto()
    """Derive the rules that switches should hold."""
    STAGE = auto()
    """Compare the wanted rules with the rules that switches hold, and send the first stage of the difference."""
    PLAN = auto()
    """Begin a planning cycle."""
    SLOWDOWNS = auto()
    """Compute the slowdowns under the running routes."""
    SAVE = auto()
    """Write to disk the state that a restart needs."""


@dataclass(frozen=True, slots=True)
class Due:
    """Time when work is due, in monotonic seconds."""

    quiet_at: float
    """Time when the work is due unless it is requested again before."""
    latest_at: float
    """Time when the work is due even if it is requested again and again."""

    def __or__(self, other: Due) -> Due:
        return Due(max(self.quiet_at, other.quiet_at), min(self.latest_at, other.latest_at))


@dataclass(frozen=True, slots=True)
class Effects:
    """Due work, and commands to carry out, that follow from messages."""

    due: Mapping[Work, Due] = field(default_factory=lambda: MappingProxyType({}))
    """Due time of each kind of work."""
    commands: tuple[Command, ...] = ()
    """Commands, in the order in which they are to be carried out."""

    def __or__(self, other: Effects) -> Effects:
        if not other.due:
            return Effects(self.due, self.commands + other.commands) if other.commands else self
        both = {work: self.due[work] | due if work in self.due else due for work, due in other.due.items()}
        return Effects({**self.due, **both}, self.commands + other.commands)

    def has_due(self, work: Work, now: float) -> bool:
        due = self.due.get(work)
        return due is not None and now >= min(due.quiet_at, due.latest_at)

    def without(self, work: Work) -> Effects:
        """Return the effects without this kind of work."""
        return Effects({kind: due for kind, due in self.due.items() if kind is not work}, self.commands)


NO_EFFECTS = Effects()


def at_once(*works: Work) -> Effects:
    """Return work that is due at once."""
    return Effects(dict.fromkeys(works, Due(float("-inf"), float("-inf"))))


def not_before(work: Work, at: float) -> Effects:
    """Return work that is due at the time ``at``."""
    return Effects({work: Due(at, at)})


def when_quiet(work: Work, now: float, quiet_s: float) -> Effects:
    """Return work that is due when it has not been requested again for ``quiet_s`` seconds."""
    return Effects({work: Due(now + quiet_s, now + MAX_DEBOUNCES * quiet_s)})


def commands(*to_give: Command) -> Effects:
    """Return effects with these commands and no due work."""
    return Effects(commands=to_give)


Arrange = Callable[[Job, Arrangement, float], Effects]
"""Function with which an extension replaces the traffic of a job by that of an ``Arrangement``.

The third argument is the present time in monotonic seconds. If the function raises ``SignalboxError``, the job is
unchanged."""


class Extension:
    """Interface of extensions; this base class does nothing. ``now`` is monotonic seconds."""

    answer: Callable[[Any], object] | None = None
    """Function that answers the question of a ``WorkOut`` in a separate process, which has called ``prepare`` once
    before."""
    prepare: Callable[[], object] | None = None

    # ---- input

    def handle(self, message: object, arrange: Arrange, now: float) -> Effects | None:
        """Return the effects of a switch message or a ``WorkedOut``, or None for a message that the core handles."""
        return None

    def tick(self, arrange: Arrange, now: float) -> Effects:
        """Return the effects that have become due. Called ten times a second."""
        return NO_EFFECTS

    def iterations_ended(self, job_id: JobId, new: Sequence[IterationTime], arrange: Arrange, now: float) -> Effects:
        """Return the effects of ``new`` iterations of the job, oldest first, and those that were delayed until then."""
        return NO_EFFECTS

    def take_sharing(self, sharing: Sharing | None) -> Effects:
        """Apply the slots and classes of a plan whose routes are in force, and return the effects."""
        return NO_EFFECTS

    def take_settings(self, config: Config) -> None:
        """Apply the settings that may change at run time (``controller.config.Reloaded``)."""

    # ---- output

    def work(self) -> Sequence[Command]:
        """Bring ``links`` up to date, and return the commands that are due. Called before rules are derived."""
        return ()

    def change(self, now: float) -> Sequence[Command]:
        """Return commands that reconnect one-way ports to other ports.

        The core calls this method while all other switches hold the wanted rules: no outdated rule then sends packets
        to these ports."""
        return ()

    def begin(self, now: float) -> Mapping[JobId, Routes | None]:
        """Return the jobs that stop waiting. The value of a job is its first routes, or None to keep its routes."""
        return {}

    @property
    def links(self) -> Mapping[PortRef, PortRef]:
        """Port where each one-way link should end, by the port where the link begins.

        A link is used only after a probe has arrived over it. The mapping is the same object while no link changes."""
        return _NONE

    @property
    def dscp(self) -> Mapping[JobId, int]:
        """DSCP that switches write into the packets of each job with a class. The same object while nothing changes."""
        return _NONE

    def wait_s(self, job_id: JobId) -> float | None:
        """Return how long the job should wait at its next iteration boundaries, in seconds; None without a slot."""
        return None

    def timings(self, jobs: Mapping[JobId, Job]) -> Mapping[JobId, Timing]:
        """Return the times of the jobs that may share links in time. The same object while nothing changes."""
        return NO_TIMINGS

    def waiting(self) -> Mapping[JobId, str]:
        """Return why each waiting job waits, for example because another job occupies its links or hosts."""
        return _NONE

    def waiting_as_published(self, jobs: Mapping[JobId, Job]) -> Mapping[JobId, str]:
        """Return ``waiting`` as it may be published. ``jobs``: jobs as they are on disk."""
        return _NONE

    def alarms(self, fabric: Fabric) -> Iterable[Alarm]:
        """Return the alarms of the extension. ``fabric``: the topology with a unique name for each switch."""
        return ()

    def status(self) -> ExtensionStatus:
        return NO_EXTENSION

    def no_parts(self, names: Sequence[str]) -> WhyNot:
        """Return, for each name that belongs to the extension, the reason why it cannot be drained."""
        return NO_REASONS


_NONE: Mapping[Any, Any] = {}
