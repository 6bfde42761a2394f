"""Payload of a job's pairs over windows of time, and the iterations that each window includes.

Payload is the number of bytes minus the headers of every packet, so an empty acknowledgement counts as 0. A window
lasts at least two counter intervals and, if the job reports its iterations, at least three iterations.

``Iterations`` derives from a job's reports how many iterations the job did between two times: at least, at most, and
most likely. If an announcement is correct, at least the smallest and at most the largest number of iterations can have
sent the payload between two readings (table in docs/explanation/measured-demand.md#what-contradicts-an-announcement).
The most likely number assumes that no iteration was done between two reported iterations with consecutive numbers. The
most likely number can confirm an announcement, but does not narrow the bounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.demand.pair_counters import Totals
from controller.fabric.counter_samples import Floats, Rows
from controller.fabric.link_load import LAG_S
from signalbox.jobs.reports import REPORT_S, IterationTime

ON_THE_WAY_S = 0.25
"""Seconds that a report may take to arrive."""

JITTER = 0.2
"""Fraction of a usual iteration by which a rank may send before the reported iteration begins, or after it ends."""

REPORTS = 256
"""Number of latest iterations that are kept."""

USUAL = 32
"""Number of latest iterations whose median duration is the usual duration."""

LATELY = 8
"""Number of latest iterations whose median interval is the usual time from one iteration to the next."""

PAUSE = 0.5
"""Shortest gap between reported iterations in which an unreported iteration may have been done.

The unit is the duration of the fastest iteration."""

SLOW = 1.5
"""Multiple of the usual duration above which an iteration may be slow on the reporting rank only.

For example, this rank may have written a checkpoint."""


class IterationCounts(NamedTuple):
    """Bounds of the number of iterations that were done until each reading of the counters.

    The number of iterations in a window, from a first to a last reading, has these bounds:
    - smallest number: ``ended`` at the last reading minus ``begun`` at the first reading;
    - largest number: ``possibly_begun`` at the last reading minus ``surely_ended`` at the first reading."""

    ended: Floats
    """Number of iterations that had certainly ended; unreported iterations between reports are not counted."""
    begun: Floats
    """Number of iterations that any rank may have begun.

    While a slow iteration of the reporting rank continues, other ranks may have begun the next one."""
    possibly_begun: Floats
    """Number of iterations that had begun, if the job did as many unreported iterations as fit between its reports."""
    surely_ended: Floats
    """Number of iterations that had ended, if the job did as many unreported iterations as fit between its reports.

    The number is minus infinity before the end of the first reported iteration."""


class Iterations:
    """Iterations that a job has reported."""

    def __init__(self) -> None:
        self.ends = self.durations_s = np.zeros(0)
        """Latest possible ends, in monotonic seconds, of the latest ``REPORTS`` iterations, oldest first."""
        self._late_s = np.zeros(0)
        """Seconds by which each iteration may have ended earlier than its value in ``ends``."""
        self.since: float | None = None
        """Time when the first iteration began, in monotonic seconds."""
        self._first_end = inf
        self._usual_s = self._fastest_s = self._cycle_s = inf
        self._numbers = np.zeros(0)
        self._dropped_s = 0.0
        """Seconds from the beginning of the first iteration to the beginning of the oldest iteration that is kept."""

    def add(self, durations_s: Floats, ended_at: Floats, now: float, numbers: Floats | None = None) -> None:
        """Add the iterations of one report, oldest first.

        ``ended_at``: monotonic seconds, NaN where the report has no time. Each iteration ended before the next one
        began, whatever its report says."""
        if not len(durations_s):
            return
        says_when = np.isfinite(ended_at)
        since_last_s = now - durations_s.sum() - self.ends[-1] if len(self.ends) else 0.0
        late_s = np.where(says_when, ON_THE_WAY_S, max(REPORT_S, since_last_s))
        ends = np.where(says_when, ended_at, now)
        self.durations_s = np.concatenate([self.durations_s, durations_s])[-REPORTS:]
        self._late_s = np.concatenate([self._late_s, late_s])[-REPORTS:]
        numbers = np.zeros(len(ends)) if numbers is None else numbers
        self._numbers = np.concatenate([self._numbers, numbers])[-REPORTS:]
        done_s = np.cumsum(self.durations_s)
        behind_s = np.concatenate([self.ends, ends])[-REPORTS:] - done_s
        self.ends = np.minimum.accumulate(behind_s[::-1])[::-1] + done_s
        recent = np.sort(self.durations_s[-USUAL:])
        self._usual_s, self._fastest_s = float(recent[(len(recent) - 1) // 2]), float(self.durations_s.min())
        cycles_s = np.diff(self.ends) / (1 + self._skipped())
        self._cycle_s = float(np.median(cycles_s[-LATELY:])) if len(cycles_s) else self._usual_s
        if self.since is None:
            self.since, self._first_end = float(self.ends[0] - durations_s[0]), float(self.ends[0])
        self._dropped_s = max(0.0, float(self.ends[0] - self.durations_s[0]) - self.since)

    def mean_s(self, now: float, recent_s: float) -> float:
        """Return the mean duration in seconds of the latest iterations; 0 if the last iteration ended too long ago.

        The latest iterations are those that ended in the ``recent_s`` seconds before ``now``. If four times the latest
        duration is longer than ``recent_s``, this longer period applies."""
        if not len(self.ends):
            return 0.0
        since = now - max(recent_s, 4 * self.durations_s[-1])
        lately = self.durations_s[np.searchsorted(self.ends, since, side="right") :]
        return float(lately.mean()) if len(lately) else 0.0

    def first_is_over(self, at: float) -> bool:
        """Return whether counters read at this time include everything sent until the first iteration ended."""
        return at >= self._first_end + JITTER * self._usual_s + LAG_S

    def overdue(self, now: float) -> bool:
        """Return whether the iteration in progress takes over twice the usual time, even if its report is late."""
        return bool(len(self.ends) and now - self.ends[-1] > 2 * (max(self._usual_s, self._cycle_s) + REPORT_S))

    def _gaps_s(self) -> Floats:
        """Return the seconds from the end of each reported iteration to the beginning of the next one."""
        gaps_s: Floats = np.maximum(0.0, self.ends[1:] - self.durations_s[1:] - self.ends[:-1])
        return gaps_s

    def _skipped(self) -> Floats:
        """Return how many unreported iterations lie between consecutive reported ones, according to their numbers.

        For example, 3 iterations lie between the numbers 5 and 9. Where so many iterations do not fit into the time
        between the two reported iterations, the numbers do not count iterations, and the value is 0."""
        skipped: Floats = np.maximum(0.0, np.diff(self._numbers) - 1)
        return np.where(skipped * self._fastest_s <= self._gaps_s(), skipped, 0.0)

    def done(self, at: Floats) -> Floats:
        """Return the most likely number of iterations done until these times.

        The result includes reported iterations, and unreported iterations that follow from the numbers of the reports
        (``_skipped``). Before the first kept iteration, and after the latest one, the job is assumed to continue at its
        recent rate. If the next report is overdue, the job is assumed to have stopped."""
        times = np.stack((self.ends - self.durations_s, self.ends), axis=1).ravel()
        left_out = np.repeat(np.append(0.0, np.cumsum(self._skipped())), 2)
        done = np.interp(at, np.maximum.accumulate(times), np.arange(1, len(times) + 1) // 2 + left_out)
        after_s = np.maximum(at - self.ends[-1], 0.0)
        if (after_s > (1 + JITTER) * self._cycle_s + REPORT_S + ON_THE_WAY_S).any():
            after_s = np.zeros(len(at))
        before_s = np.clip(times[0] - at, 0.0, self._dropped_s)
        likely: Floats = done + (after_s - before_s) / self._cycle_s
        return likely

    def counted(self, at: Floats, numbers_count_all: bool = False) -> IterationCounts | None:
        """Return bounds of the number of iterations that counters read at these times include.

        Returns None if no iteration was reported. ``numbers_count_all``: assume no unreported iterations except those
        that follow from the numbers of the reports (``_skipped``). If False, every gap between reported iterations may
        contain as many unreported iterations as fit into the gap."""
        if not len(self.ends):
            return None
        begins = self.ends - self.durations_s
        slow = self.durations_s > SLOW * self._usual_s
        others_end = begins + np.where(slow, self._usual_s, self.durations_s)
        earliest = np.append(begins[:1], np.minimum(begins[1:], others_end[:-1])) - self._late_s
        earliest = np.minimum.accumulate(earliest[::-1])[::-1]
        early, late = at - LAG_S - JITTER * self._usual_s, at + JITTER * self._usual_s
        ended = np.searchsorted(self.ends, early, side="right").astype(np.float64)
        begun = np.searchsorted(earliest, late).astype(np.float64)
        late_end = late + self._late_s[-1]
        begun += (late_end > others_end[-1]) & (late_end <= self.ends[-1])
        gaps_s = self._gaps_s()
        fitting = np.where(gaps_s > PAUSE * self._fastest_s, np.ceil(gaps_s / self._fastest_s), 0.0)
        skipped = self._skipped()
        missing, surely_missing = (
            np.repeat(np.append(0.0, np.cumsum(in_gaps)), 2)
            for in_gaps in ((skipped, skipped) if numbers_count_all else (fitting, np.zeros(len(skipped))))
        )
        times = np.maximum.accumulate(np.stack((begins, self.ends), axis=1).ravel())

        def missing_at(moment: Floats) -> Floats:
            """Return the number of iterations that fit into gaps before ``moment``; negative before all iterations."""
            outside_s = np.minimum(moment - times[0], 0.0) + np.maximum(moment - times[-1], 0.0)
            most: Floats = np.interp(moment, times, missing) + outside_s / self._fastest_s
            return most

        patience_s = 2 * (min(self._usual_s, self.durations_s[-1]) + REPORT_S) if len(self.ends) > 1 else 0.0
        overdue = late > self.ends[-1] + patience_s
        return IterationCounts(
            ended + np.floor(np.interp(early, times, surely_missing)),
            begun + np.ceil(np.interp(late, times, surely_missing)),
            np.where(overdue, inf, begun + np.ceil(missing_at(late + self._late_s[-1]))),
            np.where(early < self._first_end, -inf, ended + np.floor(missing_at(early))),
        )


# ---- windows


SNAPSHOTS = 64
"""Largest number of snapshots.

Beyond this number, every second snapshot of the older half is dropped: long iterations need windows that reach far
back."""
VALUES = 20_000
"""Largest number of values (pairs times snapshots) that one judgement compares, which takes 5 ms."""
FEWEST_SNAPSHOTS = 6
"""Smallest number of snapshots that a judgement compares."""
LONGEST = 6
"""Usual length of a window, in polling intervals. A window is longer if three iterations take longer."""
MOST = 60
"""Largest length of a window, in polling intervals, to which ``PayloadWindows.lengthen`` can lengthen it."""
FEWEST_ITERATIONS = 3
"""Smallest number of iterations in a window."""
JUDGED_ITERATIONS = 12
"""Length in iterations of the longest window of a judgement, unless ``LONGEST`` intervals are longer."""
PLAUSIBLE_S = (1e-3, 86_400.0)
"""Shortest and longest plausible duration of an iteration in seconds.

Other durations would give absurd bytes per iteration."""
STEADY = 30
"""Largest number of intervals over which the bytes of an iteration are averaged while they do not change."""
FITTING = 1.25
"""Factor up to which the counted bytes of an iteration may differ from the planned bytes and still match them."""
UNREPORTED = 2
"""Number of iterations whose bytes a job can send after its latest report until a report counts as missing."""
SMALL = 0.05
"""Fraction of the busiest pair's payload below which changes in the payload of a pair are ignored."""


class Window(NamedTuple):
    """Payload of a job's pairs over one window of time."""

    start: float
    """Start of the window in monotonic seconds."""
    bps: Floats
    """Payload rate of each pair in bit/s; 0 for pairs that were not counted at both ends."""
    recent_bps: Floats
    """Payload rate of each pair in bit/s between the latest two readings of counters."""
    seconds: float
    """Length of the window in seconds."""
    iterations: float | None
    """Number of iterations in the window; None if no iterations are reported."""
    begun: bool
    """Whether the first iteration had ended when the window began."""
    whole: bool
    """Whether the window is long enough to show every pair, and the job was training all the time."""

    @property
    def error(self) -> float:
        """Largest relative error of the bytes of a pair.

        The error has two causes: counters lag behind the traffic, and a window may begin or end within an iteration."""
        return LAG_S / self.seconds + (0.5 / self.iterations if self.iterations else 0.0)

    @property
    def iteration_s(self) -> float | None:
        """Mean duration of an iteration in seconds; None if no iterations are reported."""
        return self.seconds / self.iterations if self.iterations else None

    @property
    def bytes(self) -> Floats:
        """Payload bytes of each pair in the window."""
        return 0.125 * self.bps * self.seconds


class Bounds(NamedTuple):
    """Bounds of the number of iterations whose bytes each window includes, with one value per pair."""

    least: Floats
    most: Floats
    likely: Floats
    """Most probable number of iterations."""

    @classmethod
    def between(cls, counted: IterationCounts, done: Floats, starts: Rows, ends: Rows) -> Bounds:
        """Return the bounds of the number of iterations in windows from readings ``starts`` to readings ``ends``.

        ``done``: most probable number of iterations until each reading."""
        return cls(
            np.maximum(0.0, counted.ended[ends] - counted.begun[starts]),
            counted.possibly_begun[ends] - counted.surely_ended[starts],
            done[ends] - done[starts],
        )

    def apart(self, iterations: float) -> Bounds:
        """Return these bounds, made wider by ``iterations`` in both directions.

        The wider bounds also hold for pairs whose sender is so many iterations behind or ahead of the rank that
        reports."""
        return self._replace(least=np.maximum(0.0, self.least - iterations), most=self.most + iterations)


class Spans(NamedTuple):
    """Windows over which the amounts of a job's pairs are judged, longest window first.

    ``reported`` has one value per window. All other arrays have one row per window, and one value per pair in each
    row."""

    bytes: Floats
    """Payload in bytes between two readings of the pair's counters."""
    seconds: Floats
    """Seconds between the two readings of the pair; NaN for pairs that were not counted at both ends."""
    apart_s: float
    """Largest difference in seconds between the times at which the counters of two pairs were read.

    The readings at the start of the longest window are compared with each other, and the readings at its end likewise.
    The value is 0 if ``bounds`` is not None, because the bounds allow for the difference."""
    bounds: Bounds | None
    """Bounds from the reported iterations; None while no iteration was reported."""
    numbered: Bounds | None
    """``bounds`` under the assumption that the numbers of the reported iterations count all iterations done."""
    reported: NDArray[np.bool_]
    """Whether all iterations that ended in the window have been reported.

    If False, an unreported iteration in the window may have been faster than all reported iterations."""


class _Snapshot(NamedTuple):
    now: float
    """Time when the snapshot was taken, in monotonic seconds."""
    at: Floats
    """Time of the reading of each pair's counter."""
    payload: Floats
    times: Floats
    """Distinct values of ``at``, sorted."""
    places: Rows
    counted: int

    @classmethod
    def taken(cls, now: float, at: Floats, payload: Floats) -> _Snapshot:
        times, places = np.unique(at, return_inverse=True)
        return cls(now, at, payload, times, places, int(np.isfinite(at).sum()))

    def of(self, rows: Rows) -> _Snapshot:
        """Return this snapshot for a new list of pairs.

        ``rows``: index of each new pair in the old list, -1 if not there."""
        at, payload = (np.append(values, np.nan)[rows] for values in (self.at, self.payload))
        return _Snapshot.taken(self.now, at, np.nan_to_num(payload))


class PayloadWindows:
    """Snapshots of the counters of one job's pairs, and the windows between snapshots.

    Each array has one value per pair, in the order in which the added totals list the pairs."""

    def __init__(self, interval_s: float, header_bytes: int) -> None:
        self._interval_s = interval_s
        self._header_bytes = header_bytes
        self._longest = LONGEST
        self._steady_since = float("-inf")
        self._reported = Iterations()
        self._snapshots: list[_Snapshot] = []
        self._interrupted_at = float("-inf")
        self._latest_at = float("-inf")

    def reported(self, iterations: Iterable[IterationTime], now: float) -> None:
        """Add reported iterations, oldest first; implausible durations are left out.

        Iterations that began before ``interrupted`` was called are left out too, and windows begin only after them. A
        part of an iteration may contain most of the iteration's bytes, or almost none."""
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
        """Add the totals of the latest counters."""
        self._latest_at = now
        payload = totals.bytes - self._header_bytes * totals.packets
        self._snapshots.append(_Snapshot.taken(now, totals.at, payload))
        if len(self._snapshots) > SNAPSHOTS:
            del self._snapshots[1 : SNAPSHOTS // 2 : 2]

    def count_from_now(self, totals: Totals, now: float) -> None:
        """Begin now to count the pairs that have no recent counters; their counts begin at ``totals``.

        Counters are recent if they were read in the last two polling intervals."""
        is_counted = now - totals.at <= 2 * self._interval_s
        self.add(totals._replace(at=np.where(is_counted, totals.at, now)), now)

    def of_pairs(self, rows: Rows) -> None:
        """Convert the snapshots to a new list of pairs, to which all totals that are added later belong.

        ``rows``: for each new pair, its index in the old list, or -1 if the pair is not in the old list."""
        self._snapshots = [snapshot.of(rows) for snapshot in self._snapshots]

    def interrupted(self) -> None:
        """Drop all snapshots now, and again when the iteration in progress is reported."""
        self._interrupted_at = self._latest_at
        self._snapshots.clear()

    def start_anew(self) -> None:
        """Drop all snapshots except the latest."""
        self._snapshots = self._snapshots[-1:]

    def overdue(self, planned_bytes: int, now: float) -> bool:
        """Return whether the iteration in progress takes longer than the reported iterations.

        The result is False if the job has sent the bytes of ``UNREPORTED`` iterations since the latest report, because
        then reports are missing. ``planned_bytes``: bytes of one iteration, 0 if unknown."""
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
        """Double the length of windows."""
        self._longest = min(2 * self._longest, MOST)

    def shorten(self) -> None:
        """Restore the initial length of windows."""
        self._longest = LONGEST

    @property
    def are_long(self) -> bool:
        """Whether windows were lengthened, because the job sends different traffic within one iteration."""
        return self._longest > LONGEST

    def window(self, planned_bytes: int, now: float) -> Window | None:
        """Return the window with the smallest error that ends now, or None if there is none.

        ``planned_bytes``: bytes that the job is planned to send in one iteration, or in one second."""
        return self._best(planned_bytes, now, now - self._longest * self._interval_s)

    def spans(self, now: float) -> Spans | None:
        """Return windows that end with the latest counters, or with the last counters that iteration reports cover.

        Returns None without such a window. If no iterations are reported, only the longest window is returned."""
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
        times, bounds, numbered = np.concatenate([one.times for one in judged]), None, None
        counted, as_numbered = self._reported.counted(times), self._reported.counted(times, numbers_count_all=True)
        if counted and as_numbered:
            done = self._reported.done(times)
            bounds, numbered = (
                Bounds.between(one, done, places[starts], places[ends]) for one in (counted, as_numbered)
            )
        apart_s = 0.0 if bounds else max(float(np.nanmax(one.at) - np.nanmin(one.at)) for one in (judged[0], latest))
        reported = np.isin(ends, known)
        return Spans(
            np.maximum(0.0, payload[ends] - payload[starts]), at[ends] - at[starts], apart_s, bounds, numbered, reported
        )

    def steady(self, window: Window, planned_bytes: int, now: float) -> Window:
        """Return a longer window with the same end and the same traffic per iteration as ``window``, else ``window``.

        A longer window reduces the errors of lagging counters and of partial iterations."""
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
        """Return the window with the smallest error, or None without any window.

        ``since``: earliest start of the window; only if the window has too few iterations, it starts earlier."""
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
        """Return the two snapshots whose window has the smallest error, or None.

        The two snapshots are recent, have counters of the same pairs, and are at least two intervals and three reported
        iterations apart. If fewer iterations were reported, the longest window is used."""
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
            """Return the relative error that partial iterations and lagging counters cause in the window."""
            window_s = latest.now - start.now
            iterations = window_s / iteration_s
            return abs(iterations - round(iterations)) / iterations + 0.5 * LAG_S / window_s

        return min(whole, key=error), latest

    def _trains_all_the_time(self, start: _Snapshot) -> bool:
        """Return whether the job was already training when the counters at the start of the window were read.

        The counters may have been read up to one polling interval before the snapshot ``start`` was taken. A window
        with time before the first iteration would show too few bytes per iteration, with a different error on each
        switch."""
        return self._reported.since is None or self._reported.since <= start.now - self._interval_s

    def _payload_bps(self, start: _Snapshot, end: _Snapshot) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            bps = 8 * np.maximum(0.0, end.payload - start.payload) / (end.at - start.at)
        return np.where(np.isfinite(bps), bps, 0.0)

    def _iterations(self, start: _Snapshot, end: _Snapshot, bps: Floats, planned_bytes: int) -> float | None:
        """Return the number of iterations in the window, None if no iteration was reported.

        The number includes unreported iterations that follow from the numbers of the reported ones
        (``Iterations.done``). Some programs, however, report only some of their iterations, and number the reports
        instead of the iterations. The controller assumes such numbering if both conditions are true:
        - More than two iterations fit into the gaps between reported iterations.
        - The counted bytes match the planned bytes only if the program did iterations in these gaps.

        With such numbering the result is the length of the window divided by the mean duration of an iteration.
        ``planned_bytes``: bytes of one iteration, 0 if unknown."""
        ends, durations_s = self._reported.ends, self._reported.durations_s
        spans = np.maximum(0.0, np.minimum(ends, end.now) - np.maximum(ends - durations_s, start.now))
        filled_s = float(spans.sum())
        reported = float((spans / durations_s).sum())
        if not reported:
            return None
        window_s = end.now - start.now
        likely = float(np.diff(self._reported.done(np.array([start.now, end.now])))[0])
        total = float(0.125 * bps.sum() * window_s)
        if window_s - filled_s <= 2 * filled_s / reported or not planned_bytes or not total:
            return likely

        def fits(count: float) -> bool:
            return 1 / FITTING < total / planned_bytes / count < FITTING

        by_duration = window_s * reported / filled_s
        return by_duration if fits(by_duration) and not fits(likely) else likely

    def _iteration_s(self, now: float) -> float:
        return self._reported.mean_s(now, 8 * self._interval_s)


def _changed(a: Floats, b: Floats, slack: float) -> bool:
    """Return whether the amount of some pair that is not small differs by more than the factor ``slack``."""
    most, least = np.maximum(a, b), np.minimum(a, b)
    return bool((most > np.maximum(slack * least, SMALL * most.max(initial=0.0))).any())
