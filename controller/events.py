"""History of events: the latest events of each kind. Any thread may add and read events."""

from __future__ import annotations

import math
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from operator import attrgetter

from signalbox.words import EventKind

KEPT = 2000
"""Largest number of events of a kind that are kept, so that frequent events do not displace other kinds."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the controller."""

    number: int
    """Number that grows with each event, across restarts too."""
    at: float
    """Time in seconds since 1970."""
    kind: EventKind
    what: str
    """Description in words."""
    details: Mapping[str, str] = field(default_factory=dict)
    """Further details by name."""


class EventHistory:
    """Latest events of each kind.

    ``kept``: events of earlier controllers. ``keep``: function that is called with each new event. ``begun_at``: start
    in seconds since 1970. Later events have larger numbers than all earlier ones, even ones that were not kept, unless
    the clock was set back."""

    def __init__(
        self, kept: Iterable[Event] = (), keep: Callable[[Event], object] = lambda _: None, begun_at: float = 0.0
    ) -> None:
        self._keep = keep
        self._lock = threading.Lock()
        self._of: defaultdict[EventKind, deque[Event]] = defaultdict(lambda: deque(maxlen=KEPT))
        self.last = 0
        """Largest number of an event."""
        for event in sorted(kept, key=attrgetter("number")):
            self._of[event.kind].append(event)
            self.last = event.number
        self.last = max(self.last, int(begun_at * 1e6))

    def add(self, kind: EventKind, what: str, details: Mapping[str, object], at: float) -> None:
        """Add an event.

        Its number is the time in microseconds since 1970, so numbers grow even if no event was kept."""
        with self._lock:
            self.last = max(self.last + 1, int(at * 1e6))
            event = Event(self.last, at, kind, what, {name: str(value) for name, value in details.items()})
            self._of[kind].append(event)
        self._keep(event)

    def after(self, number: int, most: int, kinds: Collection[EventKind] = (), since: float = -math.inf) -> list[Event]:
        """Return the first ``most`` events with a number above ``number``, in order.

        ``kinds``: kinds to return; all if empty. ``since``: earliest time in seconds since 1970; numbers do not tell
        times, because a clock may be set back."""
        with self._lock:
            if self.last <= number:
                return []
            of_kinds = [events for kind, events in self._of.items() if not kinds or kind in kinds]
            newer = ([e for e in events if e.number > number and e.at >= since] for events in of_kinds)
            return list(islice(merge(*newer, key=attrgetter("number")), most))
