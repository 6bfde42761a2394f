"""Waits of jobs for their slots, relative to each other. Pure.

In: the slots of jobs, and when each job began its latest iteration. Out: how long a job waits before the next one.

A job that is ahead of another member of its circle waits, at most a given fraction of its iteration. So the latest
member sets the pace of the circle, and no common clock is needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Generic, TypeVar

from offline.scenarios.workloads import Slot

MAX_WAIT = 0.02
"""Largest wait in an iteration, as a fraction of the iteration on its circle."""

JobT = TypeVar("JobT")


class Waits(Generic[JobT]):
    """Waits of jobs with slots. ``begun_s``: time at which each job began its latest iteration."""

    def __init__(self, slots: Mapping[JobT, Slot], max_wait: float = MAX_WAIT) -> None:
        self.begun_s: dict[JobT, float] = {}
        self._slots, self._max_wait = slots, max_wait
        self._others = {
            job: [other for other, of in slots.items() if of.circle == slot.circle and other != job]
            for job, slot in slots.items()
        }

    def of(self, job: JobT) -> float:
        """Return how long the job waits for the latest member of its circle; 0 for a job without a slot."""
        if not self._others.get(job):
            return 0.0
        lead_s = max(self._lead_s(job, other) for other in self._others[job])
        slot = self._slots[job]
        return max(0.0, min(lead_s, self._max_wait * slot.period_s / slot.turns))

    def _lead_s(self, job: JobT, other: JobT) -> float:
        """Return by how much the job is ahead of another one, relative to their slots; negative if it is behind."""
        if not self.begun_s.keys() >= {job, other}:
            return 0.0
        own, of = self._slots[job], self._slots[other]
        repeats_s = own.period_s / math.lcm(own.turns, of.turns)
        lead_s = self.begun_s[other] - of.start_s - self.begun_s[job] + own.start_s
        return (lead_s + repeats_s / 2) % repeats_s - repeats_s / 2
