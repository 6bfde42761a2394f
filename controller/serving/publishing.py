"""When the control loop's status is published: soon when something has happened, rarely while only counters come in.

In: messages and commands of each turn, the routes that jobs are told. Out: whether to publish now. Pure; ``now`` is
monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Iterable

from controller.core.messages import Command, Message, Reply, Tick
from controller.jobs.messages import RenewLease, ReportIterations
from controller.tables.messages import Counters

PUBLISH_ROUTES_S = 0.1
"""The status is published this often while the routes change that jobs are told: trainers wait for them."""
PUBLISH_S = 0.25
"""And this often while anything else happens. Before a reply to what it shows it is published at once, so that a client
with a reply reads what was done."""
PUBLISH_COUNTERS_S = 1.0
"""And this often while nothing comes in but counters."""


class Publishing:
    """``told``: the routes that jobs are told; another object when they have changed."""

    def __init__(self) -> None:
        self._at = 0.0
        self._quiet = True
        self._told: object = None

    def note(self, messages: Iterable[Message], commands: Iterable[Command]) -> None:
        """What came in, and what followed."""
        self._quiet = self._quiet and all(map(_is_quiet, commands)) and not any(map(_is_news, messages))

    def is_due(self, told: object, now: float) -> bool:
        if told is not self._told:
            return now >= self._at + PUBLISH_ROUTES_S
        return now >= self._at + (PUBLISH_COUNTERS_S if self._quiet else PUBLISH_S)

    def done(self, told: object, now: float) -> None:
        self._at, self._quiet, self._told = now, True, told


def _is_quiet(command: Command) -> bool:
    """A status shows nothing of it."""
    return isinstance(command, Reply) and not command.after_status


def _is_news(message: Message) -> bool:
    """A status may soon show what it has led to."""
    return not isinstance(message, Tick | Counters | RenewLease | ReportIterations)
