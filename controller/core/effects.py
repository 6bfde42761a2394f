"""Effects of a message: work with its due time, and commands to carry out.

Effects of several messages merge with ``|``; work of one kind is done once for all messages that requested it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from types import MappingProxyType

from controller.core.messages import Command

MAX_DEBOUNCES = 10
"""Largest delay of work that waits for quiet, as a multiple of its quiet time."""


class Work(Enum):
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
    """Time when the work is due in any case."""

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
            return replace(self, commands=self.commands + other.commands) if other.commands else self
        both = {work: self.due[work] | due if work in self.due else due for work, due in other.due.items()}
        return Effects({**self.due, **both}, self.commands + other.commands)

    def has_due(self, work: Work, now: float) -> bool:
        """Return whether this work is due by ``now``."""
        due = self.due.get(work)
        return due is not None and now >= min(due.quiet_at, due.latest_at)

    def without(self, work: Work) -> Effects:
        """Return the effects without this kind of work."""
        return replace(self, due={kind: due for kind, due in self.due.items() if kind is not work})


NOTHING = Effects()


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
