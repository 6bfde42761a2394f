"""Choice of the alarm events that get a line in the log. Pure.

In: events of alarms, and ``now`` in monotonic seconds. Out: lines. Not every event gets a line, because a switch can
make alarms begin and end all the time; the history has all events (``controller.events``). The first beginning and the
first end of an alarm have a line each. Further events of the alarm within ``AGAIN_S`` get no line at once. After
``AGAIN_S``, the latest event gets a line if it differs from the last line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from controller.events import LEFT_OUT
from controller.serving.event_log import OVER, Event

AGAIN_S = 60.0


@dataclass(slots=True)
class _Alarm:
    since: float
    """Monotonic time of the line with which the present period of ``AGAIN_S`` began."""
    line: str
    latest: Event
    left_out: int = 0


class AlarmLines:
    def __init__(self) -> None:
        self._alarms: dict[tuple[str, str], _Alarm] = {}

    def of(self, event: str, details: Mapping[str, Any], now: float) -> Iterator[Event]:
        """Yield the event of an alarm if it gets a line now. ``details``: include ``kind`` and ``subject``."""
        key, line = (details["kind"], details["subject"]), (event, dict(details))
        alarm = self._alarms.get(key)
        if alarm is None:
            self._alarms[key] = _Alarm(now, event, line)
            yield line
            return
        alarm.latest = line
        if event == OVER and not alarm.left_out and alarm.line != OVER:
            alarm.line = OVER
            yield line
        else:
            alarm.left_out += 1

    def due(self, now: float) -> Iterator[Event]:
        """Yield the latest events of alarms whose ``AGAIN_S`` is over, if these events had no line."""
        for key, alarm in [(key, alarm) for key, alarm in self._alarms.items() if now >= alarm.since + AGAIN_S]:
            event, details = alarm.latest
            if event != alarm.line:
                self._alarms[key] = _Alarm(now, event, alarm.latest)
                yield event, {**details, LEFT_OUT: alarm.left_out - 1}
            else:
                del self._alarms[key]
