"""Payload of a job's pairs over windows of time.

*Payload* is bytes less the headers of every packet, so that acknowledgements count nothing. A window has at least two
counter intervals and, where the job reports its iterations, three of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.fabric.counter_samples import Floats, Rows
from controller.fabric.link_load import LAG_S
from controller.jobs.iterations import IterationCounts, Iterations
from controller.jobs.pair_counters import Totals
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import Transport

HEADER_BYTES: Mapping[Transport, int] = {Transport.TCP: 66, Transport.ROCE_V2: 58}
"""Of a packet that carries data. TCP: Ethernet 14, IPv4 20, TCP 20 and its timestamps 12 (RFC 7323, appendix A).
RoCEv2: Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4 (InfiniBand specification, annex A17)."""

SNAPSHOTS = 64
"""At most; then every second one of the older half goes: long iterations need windows that reach far back."""
VALUES = 20_000
"""Payloads of pairs, at most, that one judgement of a large job compares: it takes 5 ms."""
FEWEST_SNAPSHOTS = 6
LONGEST = 6
"""Intervals of a window, if three iterations do not take longer."""
MOST = 60
"""The same of a job whose known pairs come and go."""
FEWEST_ITERATIONS = 3
JUDGED_ITERATIONS = 12
"""Iterations that a window of a judgement may be long, if they take longer than ``LONGEST`` intervals."""
PLAUSIBLE_S = (1e-3, 86_400.0)
"""Durations of iterations. Others are not of training, and bytes per iteration made of them would be no numbers."""
STEADY = 30
"""Intervals at most over which the bytes of an iteration are taken while they do not change."""
FITTING = 1.25
"""Factor by which bytes may differ from what is planned for."""
UNREPORTED = 2
"""Iterations: if so much is sent after the latest one, further ones were done."""
SMALL = 0.05
"""Of the busiest pair."""


class Window(NamedTuple):
    """``bps``: payload per pair; 0 for pairs that were not counted at both ends. ``recent_bps``: since the counters
    before the latest. ``iterations``: that it holds, None where they are not reported. ``begun``: the first one was
    over before it. ``whole``: it is long enough to have had every pair's turn, and the job trained all the time.
    ``start``: in monotonic seconds."""

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


class Bounds(NamedTuple):
    """Iterations whose bytes each window has, with a value per pair."""

    least: Floats
    most: Floats
    likely: Floats
    """Iterations that it most probably has."""

    @classmethod
    def between(cls, counted: IterationCounts, done: Floats, starts: Rows, ends: Rows) -> Bounds:
        """``done``: most probably, until each reading. ``starts``, ``ends``: the readings of each window."""
        return cls(
            np.maximum(0.0, counted.ended[ends] - counted.begun[starts]),
            counted.possibly_begun[ends] - counted.surely_ended[starts],
            done[ends] - done[starts],
        )


class Spans(NamedTuple):
    """Windows that a judgement of amounts rests on, the longest first: in a row each, with a value per pair."""

    bytes: Floats
    """Payload between two readings of the pair's counters."""
    seconds: Floats
    """Time between these; not a number for pairs that were not counted at both ends."""
    apart_s: float
    """Largest difference between the times when counters of two pairs were read at the same end of the longest; 0
    where ``bounds`` know it."""
    bounds: Bounds | None
    """None while no iteration was reported."""
    told: Bounds | None
    """The same bounds, if the numbers of the reported iterations count all that were done."""
    reported: NDArray[np.bool_]
    """Whether the job has reported every iteration that ended in the window. A window that goes beyond the latest
    report may hold iterations that are faster than any before."""


class _Snapshot(NamedTuple):
    """Counters of all pairs at one time. ``times``: those of the readings; ``places``: of each pair's among them.
    ``counted``: pairs of which there are counters."""

    now: float
    at: Floats
    payload: Floats
    times: Floats
    places: Rows
    counted: int

    @classmethod
    def taken(cls, now: float, at: Floats, payload: Floats) -> _Snapshot:
        times, places = np.unique(at, return_inverse=True)
        return cls(now, at, payload, times, places, int(np.isfinite(at).sum()))

    def of(self, rows: Rows) -> _Snapshot:
        """Of other pairs, with their places here; -1 for pairs that are not here."""
        at, payload = (np.append(values, np.nan)[rows] for values in (self.at, self.payload))
        return _Snapshot.taken(self.now, at, np.nan_to_num(payload))


class PayloadWindows:
    """Of one job's pairs, in the order of the totals that are added."""

    def __init__(self, interval_s: float, transport: Transport) -> None:
        self._interval_s = interval_s
        self._header_bytes = HEADER_BYTES[transport]
        self._longest = LONGEST
        self._steady_since = float("-inf")
        self._reported = Iterations()
        self._snapshots: list[_Snapshot] = []
        self._interrupted_at = float("-inf")
        self._latest_at = float("-inf")

    def reported(self, iterations: Iterable[IterationTime], now: float) -> None:
        """The job has reported iterations, oldest first; times that cannot be are left out. One that has been
        interrupted sends most of its bytes in a small part of its time: windows begin after it."""
        least, most = PLAUSIBLE_S
        plausible = [one for one in iterations if least <= one.duration_s <= most]
        if not plausible:
            return
        durations_s = np.array([one.duration_s for one in plausible])
        ended_at = np.array([np.nan if one.ended_at is None else one.ended_at for one in plausible])
        after = np.where(np.isnan(ended_at), now, ended_at) - durations_s >= self._interrupted_at
        if not after.all():
            self.start_anew()
        numbers = np.array([one.index for one in plausible], np.float64)
        self._reported.add(durations_s[after], ended_at[after], now, numbers[after])

    def add(self, totals: Totals, now: float) -> None:
        """What is counted so far."""
        self._latest_at = now
        payload = totals.bytes - self._header_bytes * totals.packets
        self._snapshots.append(_Snapshot.taken(now, totals.at, payload))
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

    def overdue(self, planned_bytes: int, now: float) -> bool:
        """Whether the iteration in progress takes longer than those that were reported. Where more has been sent since
        the latest one ended, it is reports that are missing. ``planned_bytes``: of one iteration, 0 if not known."""
        if not self._reported.overdue(now):
            return False
        latest, ended_at = self._snapshots[-1], self._reported.ends[-1] + LAG_S
        since = (
            one.payload
            for one in self._snapshots
            if one.counted == latest.counted and np.nanmin(one.at, initial=np.inf) > ended_at
        )
        sent = float(np.maximum(0.0, latest.payload - next(since, latest.payload)).sum())
        return not planned_bytes or sent < UNREPORTED * planned_bytes

    def lengthen(self) -> None:
        """Windows twice as long."""
        self._longest = min(2 * self._longest, MOST)

    def shorten(self) -> None:
        """Windows as long as at first."""
        self._longest = LONGEST

    @property
    def are_long(self) -> bool:
        """Whether they were lengthened: the job sends different traffic within one iteration."""
        return self._longest > LONGEST

    def window(self, planned_bytes: int, now: float) -> Window | None:
        """The best one until now; None as long as there is none. ``planned_bytes``: of one iteration, or of one second,
        as far as is known."""
        return self._best(planned_bytes, now, now - self._longest * self._interval_s)

    def spans(self, now: float) -> Spans | None:
        """Return the windows that end with the latest counters, or with the latest until which all iterations that
        ended were reported; None as long as there is none. Without reported iterations the longest one."""
        latest = self._snapshots[-1]
        longest_s = max(LONGEST * self._interval_s, JUDGED_ITERATIONS * self._iteration_s(now)) + 0.5 * self._interval_s
        judged = [one for one in self._snapshots if latest.now - one.now <= longest_s and one.counted == latest.counted]
        most = max(FEWEST_SNAPSHOTS, VALUES // max(1, len(latest.at)))
        judged = [judged[place] for place in np.linspace(0, len(judged) - 1, min(most, len(judged))).astype(int)]
        taken = np.array([one.now for one in judged])
        known = np.flatnonzero(taken <= self._reported.ends[-1:].max(initial=-np.inf))
        is_end = np.zeros(len(judged), bool)
        is_end[[*known[-1:], -1]] = True
        starts, ends = np.nonzero(is_end & (taken - taken[:, None] >= 0.9 * self._interval_s))
        if not len(starts) or not latest.counted:
            return None
        if not len(self._reported.ends):
            starts, ends = starts[:1], ends[:1]
        at, payload = np.array([one.at for one in judged]), np.array([one.payload for one in judged])
        first = np.cumsum([0, *(len(one.times) for one in judged[:-1])])
        places = first[:, None] + np.array([one.places for one in judged])
        times, bounds, told = np.concatenate([one.times for one in judged]), None, None
        counted, as_told = self._reported.counted(times), self._reported.counted(times, told=True)
        if counted and as_told:
            done = self._reported.done(times)
            bounds, told = (Bounds.between(one, done, places[starts], places[ends]) for one in (counted, as_told))
        apart_s = 0.0 if bounds else max(float(np.nanmax(one.at) - np.nanmin(one.at)) for one in (judged[0], latest))
        reported = np.isin(ends, known)
        return Spans(
            np.maximum(0.0, payload[ends] - payload[starts]), at[ends] - at[starts], apart_s, bounds, told, reported
        )

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
        begun = self._reported.first_is_over(start.now)
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
        return self._reported.since is None or self._reported.since <= start.now - self._interval_s

    def _payload_bps(self, start: _Snapshot, end: _Snapshot) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            bps = 8 * np.maximum(0.0, end.payload - start.payload) / (end.at - start.at)
        return np.where(np.isfinite(bps), bps, 0.0)

    def _iterations(self, start: _Snapshot, end: _Snapshot, bps: Floats, planned_bytes: int) -> float | None:
        """Return how many iterations the window holds, None if none was reported: those reported, and those that their
        numbers leave out. Where more than two would fit into the time that is not covered, and the bytes are right
        only if that time is full of iterations, the program does not report all of them, and the window is divided by
        their mean duration. ``planned_bytes``: of one iteration, 0 if not known."""
        ends, durations_s = self._reported.ends, self._reported.durations_s
        spans = np.maximum(0.0, np.minimum(ends, end.now) - np.maximum(ends - durations_s, start.now))
        filled_s = float(spans.sum())
        reported = float((spans / durations_s).sum())
        if not reported:
            return None
        window_s = end.now - start.now
        told = float(np.diff(self._reported.done(np.array([start.now, end.now])))[0])
        total = float(0.125 * bps.sum() * window_s)
        if window_s - filled_s <= 2 * filled_s / reported or not planned_bytes or not total:
            return told

        def fits(count: float) -> bool:
            return 1 / FITTING < total / planned_bytes / count < FITTING

        by_duration = window_s * reported / filled_s
        return by_duration if fits(by_duration) and not fits(told) else told

    def _iteration_s(self, now: float) -> float:
        """Mean duration of the iterations that were reported lately; 0 without any."""
        return self._reported.mean_s(now, 8 * self._interval_s)


def _changed(a: Floats, b: Floats, slack: float) -> bool:
    """Whether the amount of a pair differs by such a factor, where it is not small."""
    most, least = np.maximum(a, b), np.minimum(a, b)
    return bool((most > np.maximum(slack * least, SMALL * most.max(initial=0.0))).any())
