"""Silences: an operator knows of an alarm. The frozen type, and the requests that begin and end one."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

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


@dataclass(frozen=True, slots=True)
class SilenceAlarms:
    """Request to begin a silence. The reply is None, when the silence is saved."""

    silence: Silence
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class EndSilence:
    """Request to end a silence. The reply is None, when that is saved."""

    key: SilenceKey
    reply: Future[Any] = field(default_factory=Future, compare=False)
