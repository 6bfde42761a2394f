"""Publication times of the control loop's status: soon after a change, and rarely while only counters arrive.

In: the messages and commands of each turn, and the routes that are published to jobs. Out: whether to publish now.
Pure; ``now`` is in monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Iterable

from controller.core.messages import Command, Message, Reply, Tick
from controller.jobs.messages import RenewLease, ReportIterations
from controller.tables.messages import Counters

PUBLISH_ROUTES_S = 0.1
"""Seconds between publications while routes, for which training jobs wait, change."""
PUBLISH_S = 0.25
"""Seconds between publications while other parts of the status change.

The status is also published before each reply whose effect it shows, so that a client that has the reply can read the
effect."""
PUBLISH_COUNTERS_S = 1.0
"""Seconds between publications while only counters arrive."""


class Publishing:
    """Schedule of publications. ``routes``: published routes of jobs; a new object after each change."""

    def __init__(self) -> None:
        self._at = 0.0
        self._quiet = True
        self._routes: object = None

    def note(self, messages: Iterable[Message], commands: Iterable[Command]) -> None:
        """Note the messages of a turn, and the commands that followed."""
        self._quiet = self._quiet and all(map(_has_no_effect, commands)) and not any(map(_may_change_status, messages))

    def is_due(self, routes: object, now: float) -> bool:
        if routes is not self._routes:
            return now >= self._at + PUBLISH_ROUTES_S
        return now >= self._at + (PUBLISH_COUNTERS_S if self._quiet else PUBLISH_S)

    def done(self, routes: object, now: float) -> None:
        self._at, self._quiet, self._routes = now, True, routes


def _has_no_effect(command: Command) -> bool:
    return isinstance(command, Reply) and not command.after_status


def _may_change_status(message: Message) -> bool:
    return not isinstance(message, Tick | Counters | RenewLease | ReportIterations)
