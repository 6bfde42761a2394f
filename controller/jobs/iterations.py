"""How many iterations a job has done between two times, as far as its reports say: the error of a judgement.

A report says how long iterations took, and that they have ended when it arrives. From that follow bounds of the payload
that a right announcement shows between two readings of a pair's counters, in iterations:

- Counters lag by up to ``LAG_S`` at either end.
- Within an iteration a pair may send all its bytes at any instant, at about the same one in each. So a window in which
  ``n`` iterations fit, a fraction among them, has ``n`` rounded down or up (``judgement``).
- An iteration that takes longer or shorter than usual may send as much later or earlier. Where a window begins or ends
  near one, the bounds are wider by its part of an iteration.
- In time that no reported iteration covers there may be none, or some as fast as the fastest: the job pauses, its
  reports were lost, or the next one has not arrived.
- Until the first reported iteration has ended a training program may send more, such as its parameters: there is no
  upper bound.
- A report arrives up to ``LATE_S`` after the iteration ended, at most as long as the next one takes. That shifts all
  iterations alike, so their number between two times stays, except near pauses. The job may pause since the latest
  report: the lower bound counts no iteration in the time by which that may be late. An iteration had not ended when the
  report before its own was sent, so after a few reports this is little.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from controller.fabric.counter_samples import Floats
from controller.fabric.link_load import LAG_S
from signalbox.jobs.reports import REPORT_S as LATE_S

ON_THE_WAY_S = 0.25
"""Seconds that a report takes to arrive."""

REPORTS = 256
"""Iterations that are kept."""

USUAL = 32
"""Latest iterations of which the median is the usual duration."""

CLOCK_S = 0.02
"""Seconds between two iterations that are no gap."""

PAUSE = 0.25
"""Part of a usual iteration: if no iteration covers so much time, the job has paused."""


class Bounds(NamedTuple):
    """Iterations that fit into a window, fractions among them, one value per pair."""

    least: Floats
    most: Floats
    likely: Floats


class _Progress(NamedTuple):
    """Progress of the job at the times when iterations began and ended."""

    times: Floats
    done: Floats
    """Iterations done."""
    idle: Floats
    """Seconds that no iteration covers."""
    unusual: Floats
    """Part of a usual iteration by which each takes longer or shorter."""
    pauses: Floats
    """Begin and end of each, in two columns."""
    usual_s: float
    fastest_s: float

    def idle_at(self, at: Floats) -> Floats:
        """Seconds since the first iteration, less than 0 before it."""
        before, after = np.minimum(at - self.times[0], 0.0), np.maximum(at - self.times[-1], 0.0)
        idle: Floats = np.interp(at, self.times, self.idle) + before + after
        return idle

    def unsteady(self, at: Floats) -> Floats:
        """Iterations by which a pair may send earlier or later at these times than usual."""
        first, last = at[:, None] - LAG_S, at[:, None] + min(LATE_S, self.usual_s)
        near = (self.times[::2] < last) & (self.times[1::2] > first)
        unsteady: Floats = (near * self.unusual).max(axis=1)
        if len(self.pauses):
            in_pause = (self.pauses[:, 0] < at[:, None] + LATE_S) & (self.pauses[:, 1] > first)
            unsteady = np.where(in_pause.any(axis=1), 1.0 + LATE_S / self.usual_s, unsteady)
        return unsteady


class Iterations:
    """The iterations that one job has reported."""

    def __init__(self) -> None:
        self.ends = self.durations_s = np.zeros(0)
        """Of the latest ``REPORTS`` iterations, oldest first, as well as is known."""
        self._not_before = np.zeros(0)
        """When the report before that of each iteration arrived; minus infinity if it is not the first of its own."""
        self._reported_at = -inf
        self.since: float | None = None
        """When the first iteration began."""
        self._progress: _Progress | None = None

    def add(self, ends: Floats, durations_s: Floats, now: float) -> None:
        """Take in the iterations of one report, oldest first. Those before them ended before they began: their own
        reports were late."""
        if not len(ends):
            return
        begun = float(ends[0] - durations_s[0])
        if self.since is None:
            self.since = begun
        if len(self.ends):
            earlier = np.append(np.cumsum(self.durations_s[:0:-1])[::-1], 0.0)
            self.ends = np.minimum(self.ends, begun - earlier)
        self.ends = np.concatenate([self.ends, ends])[-REPORTS:]
        self.durations_s = np.concatenate([self.durations_s, durations_s])[-REPORTS:]
        not_before = np.full(len(ends), -inf)
        not_before[0], self._reported_at = self._reported_at, now
        self._not_before = np.concatenate([self._not_before, not_before])[-REPORTS:]
        self._progress = None

    @property
    def known_until(self) -> float:
        """Until when progress is known although reports are late; minus infinity without any."""
        if not len(self.ends):
            return -inf
        gaps = np.flatnonzero(self.ends[1:] - self.durations_s[1:] - self.ends[:-1] > CLOCK_S)
        since = int(gaps[-1]) + 1 if len(gaps) else 0
        late_s = float((self.ends - self._not_before)[since:].min()) + ON_THE_WAY_S
        return float(self.ends[-1]) - min(LATE_S, late_s)

    def mean_s(self, now: float, recent_s: float) -> float:
        """Return the mean duration of the iterations that ended in the last ``recent_s`` seconds, or within four times
        the latest one; 0 without any."""
        if not len(self.ends):
            return 0.0
        since = now - max(recent_s, 4 * self.durations_s[-1])
        lately = self.durations_s[np.searchsorted(self.ends, since, side="right") :]
        return float(lately.mean()) if len(lately) else 0.0

    def overdue(self, now: float) -> bool:
        """Whether the iteration in progress takes more than twice as long as usual, however late it is reported."""
        if not len(self.ends):
            return False
        return bool(now - self.ends[-1] > 2 * np.median(self.durations_s[-USUAL:]) + 2 * LATE_S)

    def between(self, start: Floats, end: Floats) -> Bounds | None:
        """Return the bounds for windows between these readings of counters; None if no iteration was reported."""
        if not len(self.ends):
            return None
        progress = self._progress = self._progress or self._drawn()
        number = len(start)
        at = np.concatenate([start - LAG_S, start, np.minimum(end - LAG_S, self.known_until), end])
        done = np.interp(at, progress.times, progress.done).reshape(4, number)
        idle = progress.idle_at(at).reshape(4, number)
        times, places = np.unique(np.concatenate([start, end]), return_inverse=True)
        slack = progress.unsteady(times)[places].reshape(2, number).sum(axis=0)
        most = done[3] - done[0] + (idle[3] - idle[0]) / progress.fastest_s + slack
        likely = done[3] - done[1] + (idle[3] - idle[1]) / progress.usual_s
        return Bounds(done[2] - done[1] - slack, np.where(at[:number] < progress.times[1], np.inf, most), likely)

    def _drawn(self) -> _Progress:
        times = np.stack((self.ends - self.durations_s, self.ends), axis=1).ravel()
        times = np.maximum.accumulate(times)
        number = np.arange(1, len(times) + 1)
        idle = np.cumsum(np.diff(times, prepend=times[0]) * (number % 2))
        recent = np.sort(self.durations_s[-USUAL:])
        usual_s, fastest_s = float(recent[len(recent) // 2]), float(recent[0])
        unusual = np.minimum(1.0, np.abs(self.durations_s / usual_s - 1.0))
        between = times[1:-1].reshape(-1, 2)
        pauses = between[between[:, 1] - between[:, 0] > PAUSE * usual_s]
        return _Progress(times, (number // 2).astype(np.float64), idle, unusual, pauses, usual_s, fastest_s)
