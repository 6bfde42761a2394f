"""Members of a circle: how far each is ahead, and whether it keeps its slot and is no slower with it. Pure.

There is no common clock. The members that are ahead wait for the others. A member's lead is the time by which it is
ahead of the latest member, compared with the distance of their slots. Its drift is its lead minus the mean of all
leads. For the first alignment a member waits for its lead at once, later for its drift: half of the waits are enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean, median

from controller.contention.rhythm import KEPT, USUAL, WINDOW, Mean, Rhythm
from controller.planning.plan import Circle
from signalbox.jobs.spec import JobId

NEAR = 0.05
"""Lead, as a fraction of the planned iteration, up to which an iteration counts as begun in its slot."""
SLOWER = 0.01
"""Relative increase of the mean time of an iteration from which slots are withdrawn."""
SURE = 3.0
"""Number of standard errors that are added to ``SLOWER``, because times vary."""
PATIENCE = 128
"""Largest number of iterations for which members may take to reach their slots. Half a period takes 25 to 50."""
LONG = 1.5
"""Wait / longest usual wait above which a job has waited for its whole lead: timers overshoot."""
WAITS = 0.5
"""Part of the granted waits that a job must have waited to count as keeping its slot."""


def leads_s(
    circle: Circle, next_at: Mapping[JobId, float], now: float = -math.inf, sent_s: float = 0.0
) -> Mapping[JobId, float]:
    """Return the lead in seconds of each member in ``next_at``, 0 for the latest member.

    ``next_at``: time at which each member begins its next communication. A time before ``now`` means that the member is
    communicating. ``sent_s``: seconds for which another member has communicated until ``now``. Two members that
    communicate at once get half of the link each, so half of their common time is added to ``next_at``.

    The latest member is the one for which the largest lead of the others is the smallest."""
    jobs = sorted(next_at)
    next_at = {job: at + min(max(0.0, now - at), sent_s) / 2 for job, at in next_at.items()}
    found = ({job: _ahead_s(circle, next_at, job, latest) for job in jobs} for latest in jobs)
    return min(found, key=lambda leads: max(leads.values()), default={})


def _ahead_s(circle: Circle, next_at: Mapping[JobId, float], job: JobId, latest: JobId) -> float:
    """Return the lead of a job: the delay in seconds that would put it at its slot's distance from the job ``latest``.

    The distance of two jobs repeats after the period / least common multiple of their turns."""
    if job == latest:
        return 0.0
    between_s = next_at[latest] - next_at[job]
    apart_s = circle.slots[latest][0].start_s - circle.slots[job][0].start_s
    repeats_s = circle.period_s / math.lcm(circle.turns[job], circle.turns[latest])
    return (between_s - apart_s) % repeats_s


def same_circle(one: Circle, other: Circle) -> bool:
    """Return whether the members of both circles have about the same places relative to each other.

    The periods may differ, because the circle turns as slowly as its members do."""
    if one.turns != other.turns:
        return False
    first, *others = sorted(one.turns)

    def place(circle: Circle, job: JobId) -> float:
        return (circle.slots[job][0].start_s - circle.slots[first][0].start_s) / circle.every_s(job)

    return all(abs(math.remainder(place(one, job) - place(other, job), 1.0)) <= NEAR for job in others)


@dataclass(frozen=True, slots=True)
class Member:
    """Job with a slot."""

    circle: Circle
    number: int
    """Number of the slot within the registration."""
    before: Mean | None
    """Time of an iteration before the job had the slot; None if it cannot be compared with later ones."""
    drifts_s: tuple[float, ...] = ()
    """Drifts at the latest reports, oldest first."""
    wait_s: float = 0.0
    """Wait in the answer to the latest report. It is negative for a member that is behind the others."""
    granted_s: tuple[float, ...] = ()
    """Usual waits that the answers to these reports granted."""
    waited_s: tuple[float, ...] = ()
    """Waits before the latest iterations."""
    aligns: bool = True
    """Whether the job may still wait once for its whole lead."""
    age: int = 0
    """Number of iterations with this slot."""
    kept: int = 0
    """Number of iterations since all members of the circle first began theirs in their slots; 0 before."""
    is_near: bool = False
    """Whether the job begins its iterations in its slot."""

    def and_now(
        self,
        rhythm: Rhythm,
        new: int,
        leads: Mapping[JobId, float],
        job: JobId,
        max_wait_s: float,
        near_s: float,
        others_near: bool = True,
    ) -> Member:
        """Return the member after a report of ``new`` iterations of the ``job``.

        ``leads``: leads of all members. ``max_wait_s``: longest usual wait. ``near_s``: largest drift of a job in its
        slot. ``others_near``: whether the other members of the circle begin their iterations in their slots. Members
        that do not within ``PATIENCE`` iterations are judged all the same."""
        lead_s = leads.get(job, 0.0)
        drift_s = lead_s - fmean(leads.values()) if leads else 0.0
        drifts_s = (*self.drifts_s, drift_s)[-WINDOW:]
        near = median(map(abs, drifts_s[-USUAL:])) <= near_s
        waited = tuple(beat.waited_s for beat in rhythm.beats[-min(new, WINDOW) :])
        age = self.age + new
        aligns = self.aligns and age <= USUAL and max(waited, default=0.0) <= LONG * max_wait_s
        if not aligns:
            wait_s = drift_s
        elif lead_s <= WINDOW * (rhythm.recent_s - self.circle.every_s(job)):  # it pays within so many iterations
            wait_s = lead_s
        else:
            wait_s = min(drift_s, max_wait_s)
        return replace(
            self,
            drifts_s=drifts_s,
            wait_s=wait_s,
            granted_s=(*self.granted_s, max(0.0, min(drift_s, max_wait_s)))[-WINDOW:],
            waited_s=(*self.waited_s, *waited)[-WINDOW:],
            aligns=aligns,
            age=age,
            kept=self.kept + new if self.kept or (near and others_near) or self.age > PATIENCE else 0,
            is_near=near,
        )

    def left(self, before: Member | None) -> bool:
        """Return whether the job was in its slot in the state ``before``, and is not any more."""
        return before is not None and before.is_near and not self.is_near

    @property
    def drift_s(self) -> float:
        """Median of the latest drifts."""
        return median(self.drifts_s[-USUAL:]) if self.drifts_s else 0.0

    def ignores(self, near_s: float) -> bool:
        """Return whether none of the latest iterations began in the slot, although the job could have waited for it."""
        if len(self.drifts_s) < WINDOW or min(map(abs, self.drifts_s)) <= near_s:
            return False
        return sum(self.waited_s[1:]) < WAITS * sum(self.granted_s[:-1])

    def loses(self, rhythm: Rhythm, new: int) -> bool:
        """Return whether iterations with the slot take longer than without; judged once per ``KEPT`` iterations.

        A slot costs a job no more than its short waits, so there is time to measure."""
        if self.before is None or self.kept // KEPT == (self.kept - new) // KEPT:
            return False
        after = rhythm.mean(KEPT)
        if after is None:
            return False
        noise_s = SURE * math.sqrt(self.before.variance + after.variance)
        return after.mean_s > self.before.mean_s * (1 + SLOWER) + noise_s
