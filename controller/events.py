"""History of events: the latest events of each kind. Any thread may add and read events.

A switch, a host or a client may cause any number of events. When there are too many of a kind, the history first drops
repeated events, and then those of a source that has caused more than its share. The next event that remains says how
many were dropped before it.
"""

from __future__ import annotations

import math
import re
import threading
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import islice
from operator import attrgetter

from signalbox.words import EventKind

KEPT = 2000
"""Largest number of events of each kind. With a limit per kind, frequent events do not displace events of other
kinds."""
ROOM = KEPT // 10
"""Smallest number of events that are dropped at a time, since dropping examines all events of the kind."""
OF_TOPIC = (512, 128, 32, 8)
"""Limits of the number of events of one topic; they are applied one after the other until there is enough room."""
OF_SOURCE = 0.1
"""Largest share of one source in the events of a kind, if no limit in ``OF_TOPIC`` makes enough room."""
LEFT_OUT = "left_out"
"""Name of the detail with the number of events of the same topic or source that were dropped before the event."""

_SUBJECTS = ("subject", "job", "part", "names", "ip", "switch")
_PLACES = ("at", "switch", "subject", "names")
"""Names of details that may contain the place of an event's cause; the first one that the event has is used.

``_SUBJECTS`` has the names of details that may contain the event's subject."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the controller."""

    number: int
    """Number that grows with each event, even across restarts."""
    at: float
    """Time in seconds since 1970."""
    kind: EventKind
    what: str
    """Description of the event in words."""
    details: Mapping[str, str] = field(default_factory=dict)
    """Further details by name."""

    @property
    def topic(self) -> tuple[str, str]:
        """Group of similar events: the text of the event without numbers, and its subject.

        The beginning and the end of an alarm have the same topic."""
        return self.details.get("kind") or re.sub(r"\d+", "", self.what), self._first_of(_SUBJECTS)

    @property
    def source(self) -> str:
        """Tenant or switch that caused the event; empty if the details name none."""
        return self.details.get("tenant") or re.split("[:>,]", self._first_of(_PLACES))[0]

    def _first_of(self, names: Iterable[str]) -> str:
        return next((self.details[name] for name in names if name in self.details), "")


class EventHistory:
    """Latest events of each kind.

    ``kept``: saved events of earlier controllers. ``keep``: function that saves a new event. ``begun_at``: start of
    this controller in seconds since 1970. Numbers of events ascend, even across restarts, unless the clock is set back
    during a restart."""

    def __init__(
        self, kept: Iterable[Event] = (), keep: Callable[[Event], object] = lambda _: None, begun_at: float = 0.0
    ) -> None:
        self._keep = keep
        self._lock = threading.Lock()
        self._of: defaultdict[EventKind, list[Event]] = defaultdict(list)
        self.last = 0
        """Number of the newest event."""
        for event in sorted(kept, key=attrgetter("number")):
            self._append(event)
        self.last = max(self.last, int(begun_at * 1e6))

    def add(self, kind: EventKind, what: str, details: Mapping[str, object], at: float) -> None:
        """Add an event.

        Its number is the time in microseconds since 1970, so numbers grow even if no event was kept."""
        with self._lock:
            number = max(self.last + 1, int(at * 1e6))
            event = Event(number, at, kind, what, {name: str(value) for name, value in details.items()})
            self._append(event)
        self._keep(event)

    def _append(self, event: Event) -> None:
        events = self._of[event.kind]
        events.append(event)
        if len(events) > KEPT:
            self._of[event.kind] = _fewer(events, KEPT - ROOM)
        self.last = event.number

    def fewer(self, most: int) -> list[Event]:
        """Return the events that a history with ``most`` events of each kind would contain, in order."""
        with self._lock:
            of_kinds = [[*events] for events in self._of.values()]
        return [*merge(*(_fewer(events, most) for events in of_kinds), key=attrgetter("number"))]

    def after(self, number: int, most: int, kinds: Collection[EventKind] = (), since: float = -math.inf) -> list[Event]:
        """Return the first ``most`` events with a number above ``number``, in order.

        ``kinds``: kinds to return; all if empty. ``since``: earliest time of the events in seconds since 1970. A larger
        number does not always mean a later time, because the clock may be set back."""
        with self._lock:
            if self.last <= number:
                return []
            of_kinds = [events for kind, events in self._of.items() if not kinds or kind in kinds]
            newer = ([e for e in _after(events, number) if e.at >= since] for events in of_kinds)
            return list(islice(merge(*newer, key=attrgetter("number")), most))


def _after(events: list[Event], number: int) -> list[Event]:
    return events[bisect_right(events, number, key=attrgetter("number")) :]


def _fewer(events: list[Event], most: int) -> list[Event]:
    """Return at most ``most`` events: thin out large topics first, then large sources; then drop the oldest."""
    topic, source = attrgetter("topic"), attrgetter("source")
    for group, limit in (*((topic, limit) for limit in OF_TOPIC), (source, int(OF_SOURCE * most)), (topic, 2)):
        if len(events) <= most:
            return events
        events = _thinned(events, [group(event) for event in events], limit)
    return events[-most:]


def _thinned(events: Iterable[Event], groups: Sequence[Hashable], most: int) -> list[Event]:
    """Return at most ``most`` events of each group: the first one and the latest ones.

    ``groups``: group of each event; all events of the empty group are kept."""
    left, left_out = Counter(groups), Counter[Hashable]()
    begun, kept = set[Hashable](), list[Event]()
    for event, group in zip(events, groups, strict=True):
        before = int(event.details.get(LEFT_OUT, 0))
        if group and group in begun and left[group] >= most:
            left_out[group] += 1 + before
        else:
            more = left_out.pop(group, 0)
            kept.append(replace(event, details={**event.details, LEFT_OUT: str(before + more)}) if more else event)
        begun.add(group)
        left[group] -= 1
    return kept
