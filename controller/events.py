"""What has happened: the latest events of each kind, for all who ask. Any thread may add and read."""

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
"""Events of a kind. What happens often, as jobs that come and go do, takes no place of other kinds."""


@dataclass(frozen=True, slots=True)
class Event:
    """``number``: grows with each event, also over restarts. ``at``: seconds since 1970. ``what``: in words.
    ``details``: by name."""

    number: int
    at: float
    kind: EventKind
    what: str
    details: Mapping[str, str] = field(default_factory=dict)


class EventHistory:
    """``kept``: events of before. ``keep``: is given each new event. ``begun_at``: seconds since 1970; events from then
    on have larger numbers than any had before, also those that were not kept, unless the clock was set back.
    ``last``: no event has a larger number."""

    def __init__(
        self, kept: Iterable[Event] = (), keep: Callable[[Event], object] = lambda _: None, begun_at: float = 0.0
    ) -> None:
        self._keep = keep
        self._lock = threading.Lock()
        self._of: defaultdict[EventKind, deque[Event]] = defaultdict(lambda: deque(maxlen=KEPT))
        self.last = 0
        for event in sorted(kept, key=attrgetter("number")):
            self._of[event.kind].append(event)
            self.last = event.number
        self.last = max(self.last, int(begun_at * 1e6))

    def add(self, kind: EventKind, what: str, details: Mapping[str, object], at: float) -> None:
        """Numbers are microseconds since 1970, so that they go on where none were kept."""
        with self._lock:
            self.last = max(self.last + 1, int(at * 1e6))
            event = Event(self.last, at, kind, what, {name: str(value) for name, value in details.items()})
            self._of[kind].append(event)
        self._keep(event)

    def after(self, number: int, most: int, kinds: Collection[EventKind] = (), since: float = -math.inf) -> list[Event]:
        """The first ``most`` events with a larger number, in order. ``kinds``: all when empty. ``since``: seconds since
        1970; numbers say nothing of times, because a clock may be set back."""
        with self._lock:
            if self.last <= number:
                return []
            of_kinds = [events for kind, events in self._of.items() if not kinds or kind in kinds]
            newer = ([e for e in events if e.number > number and e.at >= since] for events in of_kinds)
            return list(islice(merge(*newer, key=attrgetter("number")), most))
