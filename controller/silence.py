"""That an operator knows of an alarm."""

from __future__ import annotations

from dataclasses import dataclass

SilenceKey = tuple[str, str]
"""The kind of the alarm, and its subject; an empty one for all alarms of the kind."""


@dataclass(frozen=True, slots=True)
class Silence:
    """``kind``: an ``AlarmKind``. ``since``, ``until``: seconds since 1970; without ``until`` it lasts until the alarm
    is over. ``by``: who has said so, empty where callers have no names."""

    kind: str
    subject: str
    since: float
    until: float | None = None
    by: str = ""
    comment: str = ""

    @property
    def key(self) -> SilenceKey:
        return self.kind, self.subject
