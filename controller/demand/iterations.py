"""Number of iterations that a job has done between two times, with bounds, from its reports.

The bounds limit the payload, in iterations, that a correct announcement shows between two readings of a pair's counters
(see the table in docs/explanation/measured-demand.md). The most likely number assumes that no iteration was done
between two reported iterations with consecutive numbers. This assumption changes no bound, and suffices to confirm an
announcement.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from controller.fabric.counter_samples import Floats
from controller.fabric.link_load import LAG_S
from signalbox.jobs.reports import REPORT_S

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
"""Length of a gap between reported iterations above which iterations may have been done in the gap.

The length is a fraction of the duration of the fastest iteration."""

SLOW = 1.5
"""Multiple of the usual duration above which an iteration may be slow on the reporting rank only.

An example is an iteration in which this rank writes a checkpoint."""


class IterationCounts(NamedTuple):
    """Numbers of iterations whose bytes each reading of counters includes.

    The smallest number for a window is ``ended`` at its last reading minus ``begun`` at its first reading. The largest
    is ``possibly_begun`` at its last reading minus ``surely_ended`` at its first reading."""

    ended: Floats
    """Number of iterations that had certainly ended, without any that may have been done in the gaps."""
    begun: Floats
    """Number of iterations that any rank may have begun.

    While a slow iteration of the reporting rank continues, other ranks may have begun the next one."""
    possibly_begun: Floats
    """Number of iterations that had begun, including all that may have been done in the gaps between reported ones."""
    surely_ended: Floats
    """Number of iterations that had ended, including all that may have been done in the gaps between reported ones.

    It is minus infinity before the first reported iteration has ended."""


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
        """Seconds of iterations that are not kept any more."""

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
        """Return the mean duration in seconds of the iterations that ended lately; 0 without any.

        Lately means within ``recent_s`` seconds, or within four times the latest duration if that is longer."""
        if not len(self.ends):
            return 0.0
        since = now - max(recent_s, 4 * self.durations_s[-1])
        lately = self.durations_s[np.searchsorted(self.ends, since, side="right") :]
        return float(lately.mean()) if len(lately) else 0.0

    def first_is_over(self, at: float) -> bool:
        """Return whether counters read at this time include everything sent until the first iteration ended."""
        return at >= self._first_end + JITTER * self._usual_s + LAG_S

    def overdue(self, now: float) -> bool:
        """Return whether the iteration in progress takes over twice the usual time, however late its report may be."""
        return bool(len(self.ends) and now - self.ends[-1] > 2 * (max(self._usual_s, self._cycle_s) + REPORT_S))

    def _gaps_s(self) -> Floats:
        """Return the seconds from the end of each reported iteration to the beginning of the next one."""
        gaps_s: Floats = np.maximum(0.0, self.ends[1:] - self.durations_s[1:] - self.ends[:-1])
        return gaps_s

    def _skipped(self) -> Floats:
        """Return how many iterations the numbers of successive reported iterations leave out.

        The value is 0 where so many iterations do not fit into the time between the two reported ones, because such
        numbers do not count iterations."""
        skipped: Floats = np.maximum(0.0, np.diff(self._numbers) - 1)
        return np.where(skipped * self._fastest_s <= self._gaps_s(), skipped, 0.0)

    def done(self, at: Floats) -> Floats:
        """Return the most likely number of iterations done until these times.

        The result includes reported iterations and iterations that their numbers leave out. Before the first kept
        iteration, and after the latest one, the job is assumed to continue at its recent rate. If the next report is
        overdue, the job is assumed to have stopped."""
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
        """Return the iterations that readings at these times include; None if no iteration was reported.

        ``numbers_count_all``: assume that the numbers of the reported iterations count all iterations between them."""
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
            """Return the number of iterations that fit into gaps before ``moment``; negative before the first one."""
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
