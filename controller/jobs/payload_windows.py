"""Payload of a job's pairs over windows of time.

*Payload* is bytes less the headers of every packet, so that acknowledgements count nothing. A window has at least two
counter intervals and, where the job reports its iterations, three of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from controller.fabric.counter_samples import Floats, Rows
from controller.jobs.pair_counters import Totals
from signalbox.jobs.spec import Transport

HEADER_BYTES: Mapping[Transport, int] = {Transport.TCP: 66, Transport.ROCE_V2: 58}
"""Of a packet that carries data. TCP: Ethernet 14, IPv4 20, TCP 20 and its timestamps 12 (RFC 7323, appendix A).
RoCEv2: Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4 (InfiniBand specification, annex A17)."""

LAG_S = 0.5
"""Counters of Open vSwitch lag by up to so much, at both ends of a window: its ``max-revalidator`` interval."""

SNAPSHOTS = 64
"""At most; then every second one of the older half goes: long iterations need windows that reach far back."""
REPORTS = 256
LONGEST = 6
"""Intervals of a window, if three iterations do not take longer."""
MOST = 60
"""The same of a job whose known pairs come and go."""
FEWEST_ITERATIONS = 3
PLAUSIBLE_S = (1e-3, 86_400.0)
"""Durations of iterations. Others are not of training, and bytes per iteration made of them would be no numbers."""
STEADY = 30
"""Intervals at most over which the bytes of an iteration are taken while they do not change."""
SMALL = 0.05
"""Of the busiest pair."""


class Window(NamedTuple):
    """``bps``: payload per pair; 0 for pairs that were not counted at both ends. ``recent_bps``: since the counters
    before the latest. ``iterations``: that it holds, None where they are not reported. ``begun``: some were reported
    before it. ``whole``: it is long enough to have had every pair's turn, and the job trained all the time. ``start``:
    in monotonic seconds."""

    start: float
    bps: Floats
    recent_bps: Floats
    seconds: float
    iterations: float | None
    begun: bool
    whole: bool

    @property
    def error(self) -> float:
        """Relative: how wrong the bytes of a pair can be, as counters lag and one iteration is there in part."""
        return LAG_S / self.seconds + (0.5 / self.iterations if self.iterations else 0.0)

    @property
    def iteration_s(self) -> float | None:
        """Mean duration."""
        return self.seconds / self.iterations if self.iterations else None

    @property
    def bytes(self) -> Floats:
        """Payload of the window, per pair."""
        return 0.125 * self.bps * self.seconds


class _Snapshot(NamedTuple):
    """``counted``: pairs of which there are counters."""

    now: float
    totals: Totals
    counted: int

    @classmethod
    def taken(cls, now: float, totals: Totals) -> _Snapshot:
        return cls(now, totals, int(np.isfinite(totals.at).sum()))

    def of(self, rows: Rows) -> _Snapshot:
        """Of other pairs, with their places here; -1 for pairs that are not here."""
        at, *totals = (np.append(values, np.nan)[rows] for values in self.totals)
        return _Snapshot.taken(self.now, Totals(at, *map(np.nan_to_num, totals)))


class PayloadWindows:
    """Of one job's pairs, in the order of the totals that are added."""

    def __init__(self, interval_s: float, transport: Transport) -> None:
        self._interval_s = interval_s
        self._header_bytes = HEADER_BYTES[transport]
        self._longest = LONGEST
        self._steady_since = float("-inf")
        self._durations: deque[tuple[float, float]] = deque(maxlen=REPORTS)
        self._trains_since: float | None = None
        self._snapshots: list[_Snapshot] = []
        self._interrupted_at = float("-inf")
        self._latest_at = float("-inf")

    def reported(self, durations_s: Iterable[float], now: float) -> None:
        """The job has reported iterations, oldest first; times that cannot be are left out. One that has been
        interrupted sends most of its bytes in a small part of its time: windows begin after it."""
        least, most = PLAUSIBLE_S
        durations = [duration for duration in durations_s if least <= duration <= most]
        ends_at = now - sum(durations)
        for duration in durations:
            if ends_at < self._interrupted_at:
                self.start_anew()
            else:
                self._durations.append((ends_at + duration, duration))
                if self._trains_since is None:
                    self._trains_since = ends_at
            ends_at += duration

    def add(self, totals: Totals, now: float) -> None:
        """What is counted so far."""
        self._latest_at = now
        self._snapshots.append(_Snapshot.taken(now, totals))
        if len(self._snapshots) > SNAPSHOTS:
            del self._snapshots[1 : SNAPSHOTS // 2 : 2]

    def count_from_now(self, totals: Totals, now: float) -> None:
        """Pairs that are not counted now have counters from now on, which go on from ``totals``."""
        is_counted = now - totals.at <= 2 * self._interval_s
        self.add(totals._replace(at=np.where(is_counted, totals.at, now)), now)

    def of_pairs(self, rows: Rows) -> None:
        """From now on other pairs are added. ``rows``: their places among those before, -1 for new ones."""
        self._snapshots = [snapshot.of(rows) for snapshot in self._snapshots]

    def interrupted(self) -> None:
        """Nothing that was counted so far is looked at any more, nor what is counted until the iteration that has begun
        is reported."""
        self._interrupted_at = self._latest_at
        self._snapshots.clear()

    def start_anew(self) -> None:
        """What was counted before the latest counters is not looked at any more."""
        self._snapshots = self._snapshots[-1:]

    def lengthen(self) -> None:
        """Windows twice as long."""
        self._longest = min(2 * self._longest, MOST)

    def shorten(self) -> None:
        """Windows as long as at first."""
        self._longest = LONGEST

    def window(self, planned_bytes: int, now: float) -> Window | None:
        """The best one until now; None as long as there is none. ``planned_bytes``: of one iteration, or of one second,
        as far as is known."""
        return self._best(planned_bytes, now, now - self._longest * self._interval_s)

    def steady(self, window: Window, planned_bytes: int, now: float) -> Window:
        """The longest good one that ends with this one and in which the same was sent in each iteration, as far as this
        one says. It makes less of lagging counters and of parts of iterations."""
        if window.iterations is None:
            return window
        since = max(self._steady_since, now - STEADY * self._interval_s)
        steady = self._best(planned_bytes, now, since)
        if steady is None or steady.iterations is None:
            return window
        slack = 1 + 2 * window.error + steady.error
        if window.whole and _changed(window.bytes / window.iterations, steady.bytes / steady.iterations, slack):
            self._steady_since = window.start
            return window
        return steady if steady.seconds > window.seconds else window

    def _best(self, planned_bytes: int, now: float, since: float) -> Window | None:
        """``since``: the earliest start, unless so few iterations are reported since then that it must be earlier."""
        iteration_s = self._iteration_s(now)
        ends = self._ends(now, since, iteration_s)
        if ends is None:
            return None
        start, latest = ends
        bps = self._payload_bps(start, latest)
        seconds = latest.now - start.now
        whole = seconds >= FEWEST_ITERATIONS * iteration_s and self._trains_all_the_time(start)
        recent_bps = self._payload_bps(self._snapshots[-2], latest)
        begun = bool(self._durations) and self._durations[0][0] <= start.now
        iterations = self._iterations(start, latest, bps, planned_bytes)
        return Window(start.now, bps, recent_bps, seconds, iterations, begun, whole)

    def _ends(self, now: float, since: float, iteration_s: float) -> tuple[_Snapshot, _Snapshot] | None:
        """Two snapshots with counters of the same pairs, at least two intervals and, where they are reported, three
        iterations apart, and not long ago: where least is uncertain. Without so many iterations the longest."""
        latest = self._snapshots[-1]
        intervals_s = 1.9 * self._interval_s
        shortest_s = max(intervals_s, FEWEST_ITERATIONS * iteration_s)
        longest_s = max(now - since, 2 * shortest_s)
        starts = [
            start
            for start in self._snapshots
            if intervals_s <= latest.now - start.now <= longest_s and start.counted == latest.counted
        ]
        if not starts:
            return None
        whole = [start for start in starts if latest.now - start.now >= shortest_s]
        if not iteration_s or not whole:
            return starts[0], latest
        whole = [start for start in whole if self._trains_all_the_time(start)] or whole

        def error(start: _Snapshot) -> float:
            """Relative: by parts of iterations, and by counters that lag."""
            window_s = latest.now - start.now
            iterations = window_s / iteration_s
            return abs(iterations - round(iterations)) / iterations + 0.5 * LAG_S / window_s

        return min(whole, key=error), latest

    def _trains_all_the_time(self, start: _Snapshot) -> bool:
        """From the counters of that snapshot on, each of which may be an interval older. What is counted from before
        the first iteration on is less per iteration, and of each switch by another part."""
        return self._trains_since is None or self._trains_since <= start.now - self._interval_s

    def _payload_bps(self, start: _Snapshot, end: _Snapshot) -> Floats:
        a, b = start.totals, end.totals
        counted = b.bytes - a.bytes - self._header_bytes * (b.packets - a.packets)
        with np.errstate(invalid="ignore", divide="ignore"):
            bps = 8 * counted / (b.at - a.at)
        return np.where(np.isfinite(bps), np.maximum(bps, 0.0), 0.0)

    def _iterations(self, start: _Snapshot, end: _Snapshot, bps: Floats, planned_bytes: int) -> float | None:
        """By their mean duration, weighted with the time that each has in the window. Where they fill less of it by
        more than two of them, the job pauses or does not report all: then by how many were reported, if that makes more
        of what is planned for come true."""
        spans = [
            (min(at, end.now) - max(at - duration, start.now), duration)
            for at, duration in self._durations
            if start.now < at and at - duration < end.now
        ]
        filled_s = sum(span for span, _ in spans)
        reported = sum(span / duration for span, duration in spans)
        if not reported:
            return None
        window_s = end.now - start.now
        by_duration = window_s * reported / filled_s
        total = 0.125 * bps.sum() * window_s
        if window_s - filled_s <= 2 * filled_s / reported or not planned_bytes or not total:
            return by_duration

        def error(count: float) -> float:
            ratio = float(total / planned_bytes / count)
            return max(ratio, 1 / ratio)

        return min((by_duration, reported), key=error)

    def _iteration_s(self, now: float) -> float:
        """Mean duration of the iterations that were reported lately; 0 without any."""
        if not self._durations:
            return 0.0
        since = now - max(8 * self._interval_s, 4 * self._durations[-1][1])
        lately = [duration for _, duration in takewhile(lambda report: report[0] > since, reversed(self._durations))]
        return sum(lately) / len(lately) if lately else 0.0


def _changed(a: Floats, b: Floats, slack: float) -> bool:
    """Whether the amount of a pair differs by such a factor, where it is not small."""
    most, least = np.maximum(a, b), np.minimum(a, b)
    return bool((most > np.maximum(slack * least, SMALL * most.max(initial=0.0))).any())
