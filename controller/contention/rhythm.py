"""Rhythm of a job: the times of its latest iterations, and their usual values. Pure.

In: reported iterations. Only those with the time of their end are used. All times are in seconds, or in monotonic
seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, variance
from typing import NamedTuple

from controller.jobs.job import FIRST_ITERATIONS
from signalbox.jobs.reports import IterationTime

USUAL = 8
"""Number of latest iterations over whose times a median is taken."""
WINDOW = 16
"""Number of latest iterations over which a mean is taken."""
KEPT = 64
"""Number of latest iterations that are kept."""
CHANGE = 0.02
"""Relative difference of compute times up to which they have not changed."""
ALIKE = 4.0
"""Number of successive iterations that are as good as one for a mean: jobs move slowly past each other."""
FEW = 2.0
"""Relative error of a spread of n times is at most this number / sqrt(n)."""
NORMAL = 1.4826
"""Standard deviation of a normal distribution / its median absolute deviation."""
UNMEASURED = 1 - 1e-6
"""Communication time / duration of an iteration above which the job did not measure its communication separately."""


class Mean(NamedTuple):
    """Mean of several times, and the variance of this mean."""

    mean_s: float
    variance: float


class Beat(NamedTuple):
    """Iteration of a job."""

    number: int
    ended_at: float
    duration_s: float
    interval_s: float | None
    """Time from the end of the iteration before, with the wait between them; None if that end is unknown."""
    computed_s: float | None
    """Time in which the iteration did not communicate; None if its communication was not measured."""
    communication_s: float
    until_s: float
    """Time from the beginning of the iteration to its communication."""
    waited_s: float

    @property
    def communicated_at(self) -> float:
        """Beginning of the iteration's communication."""
        return self.ended_at - self.communication_s


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Latest iterations of a job, oldest first."""

    beats: tuple[Beat, ...] = ()
    waited_s: float = 0.0
    """Sum of the waits before all iterations, also of those that are not in ``beats`` any more."""

    def and_now(self, new: Iterable[IterationTime]) -> Rhythm:
        """Return the rhythm after further iterations, oldest first."""
        beats = list(self.beats)
        for iteration in new:
            if iteration.ended_at is not None:
                beats.append(_beat(iteration, iteration.ended_at, beats[-1] if beats else None))
        added = beats[len(self.beats) :]
        waited_s = self.waited_s + math.fsum(beat.waited_s for beat in added)
        found = Rhythm(tuple(beats[-KEPT:]), waited_s)
        return replace(found, beats=found.beats[-USUAL:]) if found._has_changed else found

    def anew(self) -> Rhythm:
        """Return the rhythm without iterations, because the job sends other traffic now."""
        return Rhythm(waited_s=self.waited_s)

    @property
    def is_known(self) -> bool:
        return len(self._periods_s) >= USUAL

    @property
    def period_s(self) -> float:
        """Usual time from one beginning of an iteration to the next, without the wait between them."""
        return median(self._periods_s[-USUAL:])

    @property
    def computed_s(self) -> float | None:
        """Usual time in which an iteration does not communicate; None while it was not measured.

        It is the median of all kept iterations, because a circle has room for few per cent of error, and the median of
        few iterations varies by more."""
        found = self._computed_s
        return median(found) if len(found) >= USUAL else None

    @property
    def _has_changed(self) -> bool:
        """Whether all of the latest iterations compute longer, or all shorter, than most of the ones before.

        Chance does this to one of 100,000 groups of iterations. Then the ones before are forgotten."""
        before, latest = sorted(self._computed_s[:-USUAL]), self._computed_s[-USUAL:]
        if len(before) < WINDOW:
            return False
        few = len(before) // 10
        return min(latest) > before[-1 - few] * (1 + CHANGE) or max(latest) < before[few] * (1 - CHANGE)

    @property
    def error(self) -> float:
        """Relative standard error of ``computed_s``, at most. For a median it is sqrt(pi / 2) times that of a mean."""
        count = max(1, len(self._computed_s))
        return math.sqrt(math.pi / 2 / count) * self.jitter * (1 + FEW / math.sqrt(count))

    @property
    def least_jitter(self) -> float:
        """``jitter`` minus its own error."""
        return self.jitter * (1 - 1 / math.sqrt(max(1, len(self._computed_s or self._periods_s))))

    @property
    def until_s(self) -> float:
        """Usual time from the beginning of an iteration to its communication."""
        return median(beat.until_s for beat in self.beats[-USUAL:])

    @property
    def jitter(self) -> float:
        """Spread of the time in which iterations do not communicate, as a fraction of this time.

        Without measured communication, it is the spread of the period as a fraction of the period."""
        found = self._computed_s or self._periods_s
        usual = median(found) if found else 0.0
        return _spread(found) / usual if usual > 0 else 0.0

    def mean(self, count: int) -> Mean | None:
        """Return the mean time of the latest ``count`` iterations, with waits; None if fewer are known."""
        found = [beat.interval_s for beat in self.beats[-count:] if beat.interval_s is not None]
        return Mean(fmean(found), ALIKE * variance(found) / count) if count and len(found) == count else None

    @property
    def recent_s(self) -> float:
        """Mean time of the latest iterations, with waits."""
        return fmean(beat.duration_s if beat.interval_s is None else beat.interval_s for beat in self.beats[-USUAL:])

    def next_at(self, wait_s: float = 0.0) -> float:
        """Return when the communication of the next iteration begins if the job waits ``wait_s`` before it."""
        return self.beats[-1].ended_at + self.until_s + wait_s

    @property
    def _periods_s(self) -> Sequence[float]:
        known = ((beat, beat.interval_s) for beat in self._later if beat.interval_s is not None)
        return [max(beat.duration_s, interval_s - beat.waited_s) for beat, interval_s in known]

    @property
    def _computed_s(self) -> Sequence[float]:
        return [beat.computed_s for beat in self._later if beat.computed_s is not None]

    @property
    def _later(self) -> Iterable[Beat]:
        """All iterations but the first ones of the job, which are often slow."""
        return (beat for beat in self.beats if beat.number >= FIRST_ITERATIONS)


def _spread(times_s: Sequence[float]) -> float:
    """Return the standard deviation of normally distributed times, from their median absolute deviation."""
    usual_s = median(times_s)
    return NORMAL * median(abs(each - usual_s) for each in times_s)


def _beat(iteration: IterationTime, ended_at: float, before: Beat | None) -> Beat:
    duration_s, communication_s = iteration.duration_s, min(iteration.communication_s, iteration.duration_s)
    follows = before is not None and before.number + 1 == iteration.index and before.ended_at < ended_at
    interval_s = ended_at - before.ended_at if before and follows else None
    period_s = duration_s if interval_s is None else max(duration_s, interval_s - iteration.waited_s)
    until_s = iteration.until_communication_s
    computed_s: float | None = period_s - communication_s
    if communication_s > UNMEASURED * duration_s:
        computed_s = until_s
        communication_s -= until_s or 0.0
    most_s = duration_s - communication_s
    until_s = most_s if until_s is None else min(until_s, most_s)
    waited_s = min(iteration.waited_s, max(0.0, ended_at - before.ended_at)) if before else iteration.waited_s
    return Beat(iteration.index, ended_at, duration_s, interval_s, computed_s, communication_s, until_s, waited_s)
