"""What a message leads to, as one value: work, with the time when it is due, and commands that need nothing else.

Effects of many messages merge with ``|``; work of one kind is done once for all messages that asked for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from types import MappingProxyType

from controller.core.messages import Command

MAX_DEBOUNCES = 10
"""Work that waits for quiet is done after this many quiet times at the latest, however often more is asked for."""


class Work(Enum):
    """``RULES``: derive the rules that switches should hold. ``STAGE``: compare them with what switches hold and send
    the first stage. ``PLAN``: begin a planning cycle. ``LEVELS``: work out those of the running routes. ``SAVE``: write
    what a restart must know."""

    RULES = auto()
    STAGE = auto()
    PLAN = auto()
    LEVELS = auto()
    SAVE = auto()


@dataclass(frozen=True, slots=True)
class Due:
    """Monotonic seconds. ``quiet_at``: later if the same work is asked for again before; ``latest_at``: in any case."""

    quiet_at: float
    latest_at: float

    def __or__(self, other: Due) -> Due:
        return Due(max(self.quiet_at, other.quiet_at), min(self.latest_at, other.latest_at))


@dataclass(frozen=True, slots=True)
class Effects:
    """``due``: work by kind. ``commands``: in the order in which they are to be given."""

    due: Mapping[Work, Due] = field(default_factory=lambda: MappingProxyType({}))
    commands: tuple[Command, ...] = ()

    def __or__(self, other: Effects) -> Effects:
        if not other.due:
            return replace(self, commands=self.commands + other.commands) if other.commands else self
        both = {work: self.due[work] | due if work in self.due else due for work, due in other.due.items()}
        return Effects({**self.due, **both}, self.commands + other.commands)

    def has_due(self, work: Work, now: float) -> bool:
        """Whether this work is to be done by now."""
        due = self.due.get(work)
        return due is not None and now >= min(due.quiet_at, due.latest_at)

    def without(self, work: Work) -> Effects:
        """The same after this work was done."""
        return replace(self, due={kind: due for kind, due in self.due.items() if kind is not work})


NOTHING = Effects()


def at_once(*works: Work) -> Effects:
    """Work that waits for nothing."""
    return Effects(dict.fromkeys(works, Due(float("-inf"), float("-inf"))))


def not_before(work: Work, at: float) -> Effects:
    """Work that waits for nothing but that time."""
    return Effects({work: Due(at, at)})


def when_quiet(work: Work, now: float, quiet_s: float) -> Effects:
    """Work that waits until nothing has asked for it for ``quiet_s`` seconds."""
    return Effects({work: Due(now + quiet_s, now + MAX_DEBOUNCES * quiet_s)})


def commands(*to_give: Command) -> Effects:
    """Commands, and no work."""
    return Effects(commands=to_give)
