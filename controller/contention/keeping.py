"""Members of a circle: how far each is ahead, and whether it keeps its slot and is no slower with it. Pure.

There is no common clock. The latest member sets the pace of the circle: the members that are ahead wait for it. A
member's lead is the time by which it is ahead of the latest member, compared with the distance of their slots.
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
SAME_START = 0.02
"""Difference, as a fraction of the planned iteration, up to which two slots count as the same."""
SLOWER = 0.01
"""Relative increase of the mean time of an iteration from which slots are withdrawn."""
SURE = 3.0
"""Number of standard errors that are added to ``SLOWER``, because times vary."""
PATIENCE = 128
"""Largest number of iterations for which members may take to reach their slots. Half a period takes 25 to 50."""
WAITS = 0.5
"""Part of the granted waits that a job must have waited to count as keeping its slot."""


def leads_s(circle: Circle, rhythms: Mapping[JobId, Rhythm]) -> Mapping[JobId, float]:
    """Return the lead in seconds of each member in ``rhythms``, 0 for the latest member.

    The latest member is the one for which the largest lead of the others is the smallest. While the jobs disturb each
    other, their iterations are longer than planned, and the circle turns as slowly as they do."""
    jobs = sorted(rhythms)
    slowed = fmean(rhythms[job].recent_s / circle.every_s(job) for job in jobs) if jobs else 1.0
    found = ({job: _ahead_s(circle, slowed, rhythms, job, latest) for job in jobs} for latest in jobs)
    return min(found, key=lambda leads: max(leads.values()), default={})


def _ahead_s(circle: Circle, slowed: float, rhythms: Mapping[JobId, Rhythm], job: JobId, latest: JobId) -> float:
    """Return the lead of a job: the delay in seconds that would put it at its slot's distance from the job ``latest``.

    The distance of two jobs repeats after the period / least common multiple of their turns. ``slowed``: actual time of
    an iteration / planned time."""
    if job == latest:
        return 0.0
    between_s = rhythms[latest].next_at - rhythms[job].next_at
    apart_s = circle.slots[latest][0].start_s - circle.slots[job][0].start_s
    repeats_s = circle.period_s / math.lcm(circle.turns[job], circle.turns[latest])
    return (between_s - slowed * apart_s) % (slowed * repeats_s)


def same_circle(one: Circle, other: Circle) -> bool:
    """Return whether the members of both circles have about the same places relative to each other."""
    if one.turns != other.turns or not math.isclose(one.period_s, other.period_s, rel_tol=SAME_START):
        return False
    first, *others = sorted(one.turns)
    starts = [{job: of.slots[job][0].start_s - of.slots[first][0].start_s for job in others} for of in (one, other)]
    return all(
        abs(math.remainder(starts[0][job] - starts[1][job], one.every_s(job))) <= SAME_START * one.every_s(job)
        for job in others
    )


@dataclass(frozen=True, slots=True)
class Member:
    """Job with a slot."""

    circle: Circle
    number: int
    """Number of the slot within the registration."""
    before: Mean | None
    """Time of an iteration before the job had the slot; None if it cannot be compared with later ones."""
    leads_s: tuple[float, ...] = ()
    """Leads at the latest reports, oldest first."""
    granted_s: tuple[float, ...] = ()
    """Wait that the answer to each of these reports granted: the lead, at most the longest wait at one boundary."""
    waited_s: tuple[float, ...] = ()
    """Waits before the latest iterations."""
    age: int = 0
    """Number of iterations with this slot."""
    kept: int = 0
    """Number of iterations since all members of the circle first began theirs in their slots; 0 before."""
    is_near: bool = False
    """Whether the job begins its iterations in its slot."""

    def and_now(
        self, rhythm: Rhythm, new: int, lead_s: float, max_wait_s: float, near_s: float, others_near: bool = True
    ) -> Member:
        """Return the member after a report of ``new`` iterations.

        ``max_wait_s``: longest wait at one boundary. ``near_s``: largest lead of a job in its slot. ``others_near``:
        whether the other members of the circle begin their iterations in their slots. Members that do not within
        ``PATIENCE`` iterations are judged all the same."""
        leads = (*self.leads_s, lead_s)[-WINDOW:]
        near = median(leads[-USUAL:]) <= near_s
        waited = tuple(beat.waited_s for beat in rhythm.beats[-min(new, WINDOW) :])
        return replace(
            self,
            leads_s=leads,
            granted_s=(*self.granted_s, min(lead_s, max_wait_s))[-WINDOW:],
            waited_s=(*self.waited_s, *waited)[-WINDOW:],
            age=self.age + new,
            kept=self.kept + new if self.kept or (near and others_near) or self.age > PATIENCE else 0,
            is_near=near,
        )

    def left(self, before: Member | None) -> bool:
        """Return whether the job was in its slot in the state ``before``, and is not any more."""
        return before is not None and before.is_near and not self.is_near

    @property
    def drift_s(self) -> float:
        """Median of the latest leads."""
        return median(self.leads_s[-USUAL:]) if self.leads_s else 0.0

    def ignores(self, near_s: float) -> bool:
        """Return whether none of the latest iterations began in the slot, although the job could have waited for it."""
        if len(self.leads_s) < WINDOW or min(self.leads_s) <= near_s:
            return False
        return sum(self.waited_s[1:]) < WAITS * sum(self.granted_s[:-1])

    def loses(self, rhythm: Rhythm, new: int) -> bool:
        """Return whether iterations with the slot take longer than without; judged once per ``WINDOW`` iterations."""
        if self.before is None or self.kept // WINDOW == (self.kept - new) // WINDOW:
            return False
        after = rhythm.mean(min(KEPT, self.kept // WINDOW * WINDOW))
        if after is None:
            return False
        noise_s = SURE * math.sqrt(self.before.variance + after.variance)
        return after.mean_s > self.before.mean_s * (1 + SLOWER) + noise_s
