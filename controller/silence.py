"""Silences: an operator knows of an alarm, until it is over or for some time.

In: what operators say, the alarms that are raised. Out: the silence of each alarm that has one. Pure; times are seconds
since 1970.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from signalbox.errors import NO_SUCH_NAME, InvalidInput

SilenceKey = tuple[str, str]
"""The kind of the alarm, and its subject; an empty one for all alarms of the kind."""

MOST = 1000
"""Silences at a time."""

FORGOTTEN_S = 3600.0
"""A silence until its alarm is over is dropped when the alarm was not raised for so long after the start."""


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


class Silences:
    """``of``: by kind and subject, another mapping whenever it changes."""

    def __init__(self, saved: Mapping[SilenceKey, Silence]) -> None:
        self.of: Mapping[SilenceKey, Silence] = saved
        self._raised: set[SilenceKey] = set()
        self._now = self._started_at = 0.0

    def add(self, silence: Silence) -> None:
        """In place of one that there is. Raises ``InvalidInput`` when there are too many."""
        if silence.key not in self.of and len(self.of) >= MOST:
            raise InvalidInput.of("kind", f"there are {MOST} silences already; end some first")
        self.of = {**self.of, silence.key: silence}

    def end(self, key: SilenceKey) -> None:
        """Raises ``InvalidInput`` when there is none."""
        if key not in self.of:
            what = f"'{key[1]}'" if key[1] else "all alarms of this kind"
            raise InvalidInput.of("subject", f"there is no silence of {key[0]} for {what}", NO_SUCH_NAME)
        self.of = {one: silence for one, silence in self.of.items() if one != key}

    def restore(self, of: Mapping[SilenceKey, Silence]) -> None:
        """Exactly these."""
        self.of = of

    def tick(self, now: float) -> None:
        """Time has passed."""
        self._now = now
        self._started_at = self._started_at or now

    def follow(self, raised: Collection[SilenceKey]) -> bool:
        """Drop those that are over; whether there were any. ``raised``: the alarms of now. A silence without a time is
        over when its alarm, which was raised since the start, is not any more."""
        over = [key for key, silence in self.of.items() if self._is_over(key, silence, raised)]
        self._raised = ({key for key in self.of if self._is_raised(key, raised)} | self._raised) - {*over}
        if over:
            self.of = {key: silence for key, silence in self.of.items() if key not in over}
        return bool(over)

    def _is_over(self, key: SilenceKey, silence: Silence, raised: Collection[SilenceKey]) -> bool:
        if silence.until is not None:
            return self._now >= silence.until
        if self._is_raised(key, raised):
            return False
        return key in self._raised or self._now > max(self._started_at, silence.since) + FORGOTTEN_S

    @staticmethod
    def _is_raised(key: SilenceKey, raised: Collection[SilenceKey]) -> bool:
        return key in raised or (not key[1] and any(kind == key[0] for kind, _ in raised))
