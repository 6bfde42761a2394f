"""Times of a job for the planner, from its announcement and from its rhythm. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from controller.contention.rhythm import Rhythm
from controller.fabric.topology import Host
from controller.jobs.job import Job
from controller.planning.problem import PhaseTime, Timing
from controller.planning.snapshot import ideal_time_s
from signalbox.jobs.collectives import announced_phases
from signalbox.jobs.spec import Compute, JobSpec

CHANGE = 0.02
"""Relative change of a measured time from which the planner is told the new one."""
MOST_SLOWED = 1.5
"""Largest ratio of a measured communication time to the ideal time that counts as the job's own.

A library may be slower than its links. A larger ratio means that the job has always shared its links."""


class Measured(NamedTuple):
    """Times of a job that its reports show, as the planner uses them."""

    computed_s: float | None
    """Time of an iteration without communication; None while it was not measured."""
    communication_s: float
    """Shortest communication time; infinite while it was not measured."""
    is_regular: bool
    """Whether at least eight iterations are known, and their times vary by no more than allowed."""

    def differs(self, other: Measured) -> bool:
        """Return whether the planner should use these times in place of the other ones."""
        known = self.computed_s is None, self.is_regular
        if known != (other.computed_s is None, other.is_regular):
            return True
        pairs = (self.computed_s or 0.0, other.computed_s or 0.0), (self.communication_s, other.communication_s)
        return not all(math.isclose(one, two, rel_tol=CHANGE, abs_tol=1e-4) for one, two in pairs)


UNKNOWN = Measured(None, math.inf, False)


def measured(rhythm: Rhythm, max_jitter: float) -> Measured:
    if not rhythm.is_known:
        return UNKNOWN
    return Measured(rhythm.computed_s, rhythm.least_communication_s, rhythm.jitter <= max_jitter)


def timing(job: Job, hosts: Mapping[str, Host], found: Measured, may_keep: bool) -> Timing | None:
    """Return the times of the job; None if its computing or its communication is not known.

    ``hosts``: all hosts of the job, and others. ``may_keep``: whether the job may get a slot, if it is regular and
    waits."""
    compute = _announced(job.spec)
    if not job.per_iteration or not job.pairs or not (compute or found.computed_s is not None):
        return None
    nic_bps = {ip: hosts[ip].nic_bps for pair in job.pairs for ip in pair}
    ideal_s = ideal_time_s(job.virtual_links, nic_bps, job.overhead)
    total_s = math.fsum(ideal_s.values())
    slowed = (
        min(max(found.communication_s / total_s, 1.0), MOST_SLOWED) if math.isfinite(found.communication_s) else 1.0
    )
    announced = tuple(ideal_s)
    if any(each.phase is not None or each.before is not None for each in compute):
        numbers = announced_phases(job.spec)
        announced = numbers if job.phases_known and len(numbers) == len(ideal_s) else announced
    alone, overlapping = _by_phase(compute, announced, found.computed_s)
    phases = tuple(
        PhaseTime(phase, alone_s, max(slowed * ideal, overlapping_s))
        for (phase, ideal), alone_s, overlapping_s in zip(ideal_s.items(), alone, overlapping, strict=True)
    )
    gpus = job.spec.gpus or len(job.spec.endpoints)
    work = job.spec.work_per_iteration or gpus * math.fsum([*alone, *overlapping])
    keeps = may_keep and found.is_regular and job.spec.keeps_slots
    return Timing(phases, gpus, work, job.spec.weight or 1.0, keeps)


def _announced(spec: JobSpec) -> tuple[Compute, ...]:
    return spec.parallelizations[0].compute if spec.parallelizations else spec.compute


def _by_phase(
    compute: tuple[Compute, ...], phases: tuple[int, ...], computed_s: float | None
) -> tuple[list[float], list[float]]:
    """Return two lists of times by phase: computing before its communication, and computing that overlaps with it.

    ``phases``: announced number of each phase; the steps of an announced phase are phases of their own. ``computed_s``:
    measured sum of the first list, which corrects the announced times unless they are about the same."""
    alone, overlapping = [0.0] * len(phases), [0.0] * len(phases)
    for each in compute:
        if each.phase is not None:
            for at in [at for at, phase in enumerate(phases) if phase == each.phase]:
                overlapping[at] += each.seconds / phases.count(each.phase)
        else:  # computing after the last phase precedes the first one of the next iteration
            later = (at for at, phase in enumerate(phases) if each.before is not None and phase >= each.before)
            alone[next(later, 0)] += each.seconds
    announced_s = math.fsum(alone)
    if computed_s is not None and not announced_s:
        alone[0] = computed_s
    elif computed_s is not None and not math.isclose(computed_s, announced_s, rel_tol=CHANGE):
        alone = [each * computed_s / announced_s for each in alone]
    return alone, overlapping
