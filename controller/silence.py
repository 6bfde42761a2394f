"""Silences: marks that an operator has noticed an alarm. A silence lasts until the alarm ends, or until a given time.

In: requests of operators, and the raised alarms. Out: silences by alarm. Pure; times are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from signalbox.errors import NO_SUCH_NAME, InvalidInput

SilenceKey = tuple[str, str]
"""Kind and subject of the alarm; an empty subject means all alarms of the kind."""

MOST = 1000
"""Largest number of silences in force."""

FORGOTTEN_S = 3600.0
"""Seconds after which a silence without end time is dropped if its alarm has not been raised meanwhile.

The seconds count from the start of the silence, or from the start of the controller if that is later."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Silence of an alarm, or of all alarms of a kind if ``subject`` is empty."""

    kind: str
    """Kind of the alarm, an ``AlarmKind``."""
    subject: str
    since: float
    """Start of the silence in seconds since 1970."""
    until: float | None = None
    """End in seconds since 1970; None: the silence lasts until the alarm ends."""
    by: str = ""
    """Name of the caller who set the silence; empty if callers have no names."""
    comment: str = ""

    @property
    def key(self) -> SilenceKey:
        return self.kind, self.subject


@dataclass(frozen=True, slots=True)
class SilenceAlarms:
    """Request to begin a silence. The reply is None, once the silence is saved."""

    silence: Silence
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class EndSilence:
    """Request to end a silence. The reply is None, once the end is saved."""

    key: SilenceKey
    reply: Future[Any] = field(default_factory=Future, compare=False)


class Silences:
    """All silences that are in force."""

    def __init__(self, saved: Mapping[SilenceKey, Silence]) -> None:
        self.of: Mapping[SilenceKey, Silence] = saved
        """Silences by kind and subject; a new mapping on each change."""
        self._raised: set[SilenceKey] = set()
        self._now = self._started_at = 0.0

    def add(self, silence: Silence) -> None:
        """Add a silence, or replace the one with the same key. Raises ``InvalidInput`` when there are too many."""
        if silence.key not in self.of and len(self.of) >= MOST:
            raise InvalidInput.of("kind", f"there are {MOST} silences already; end some first")
        self.of = {**self.of, silence.key: silence}

    def end(self, key: SilenceKey) -> None:
        """End the silence with this key. Raises ``InvalidInput`` if none exists."""
        if key not in self.of:
            what = f"'{key[1]}'" if key[1] else "all alarms of this kind"
            raise InvalidInput.of("subject", f"no silence of {key[0]} exists for {what}", NO_SUCH_NAME)
        self.of = {one: silence for one, silence in self.of.items() if one != key}

    def restore(self, of: Mapping[SilenceKey, Silence]) -> None:
        """Replace all silences by these."""
        self.of = of

    def tick(self, now: float) -> None:
        """Record the current time."""
        self._now = now
        self._started_at = self._started_at or now

    def follow(self, raised: Collection[SilenceKey]) -> bool:
        """Drop silences that are over and return whether there were any. ``raised``: the alarms raised now.

        A silence without an end time is over when its alarm ends. If the alarm has not been raised since the controller
        started, the silence is over after ``FORGOTTEN_S``."""
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
