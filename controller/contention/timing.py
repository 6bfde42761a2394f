"""Times of a job for the planner, from its spec and from its rhythm. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from controller.contention.rhythm import Rhythm
from controller.fabric.topology import Host
from controller.jobs.job import Job
from controller.planning.problem import PhaseTime, Timing
from controller.planning.snapshot import ideal_time_s
from controller.shared_map import updated
from signalbox.jobs.collectives import announced_phases
from signalbox.jobs.spec import Compute, JobId, JobSpec

CHANGE = 0.02
"""Relative change of a measured time from which the planner gets the new time."""
COMMON = 0.02
"""Relative difference of periods up to which jobs share a circle."""
SURE = 2.0
"""Number of standard errors up to which two times count as equal, because times vary."""


class Measured(NamedTuple):
    """Times of a job, measured from its reports, for the planner."""

    computed_s: float | None
    """Time of an iteration without communication; None while it was not measured."""
    is_regular: bool
    """Whether at least eight iterations are known, and their times vary by no more than allowed."""
    error_s: float = 0.0
    """Standard error of ``computed_s``."""

    def differs(self, other: Measured, error: float = 0.0) -> bool:
        """Return whether the planner should use these times in place of the other ones.

        ``error``: relative standard error of ``computed_s``."""
        known = self.computed_s is None, self.is_regular
        if known != (other.computed_s is None, other.is_regular):
            return True
        most = max(CHANGE, SURE * error)
        return not math.isclose(self.computed_s or 0.0, other.computed_s or 0.0, rel_tol=most, abs_tol=1e-4)


UNKNOWN = Measured(None, False)


def measured(rhythm: Rhythm, max_jitter: float) -> Measured:
    if not rhythm.is_known:
        return UNKNOWN
    error_s = rhythm.error * (rhythm.computed_s or 0.0)
    return Measured(rhythm.computed_s, rhythm.least_jitter <= max_jitter, error_s)


def timing(
    job: Job, hosts: Mapping[str, Host], found: Measured, may_keep: bool, declared_work: bool = True
) -> Timing | None:
    """Return the times of the job; None if its computing or its communication is not known.

    ``hosts``: all hosts of the job, and others. ``may_keep``: whether the job may get a slot, provided that it is
    regular and announces ``keeps_slots``. ``declared_work``: whether its announced work and weight count."""
    compute = _announced(job.spec)
    if not job.per_iteration or not job.pairs or not (compute or found.computed_s is not None):
        return None
    nic_bps = {ip: hosts[ip].nic_bps for pair in job.pairs for ip in pair}
    ideal_s = ideal_time_s(job.virtual_links, nic_bps, job.overhead)
    announced = tuple(ideal_s)
    if any(each.phase is not None or each.before is not None for each in compute):
        numbers = announced_phases(job.spec)
        announced = numbers if job.phases_known and len(numbers) == len(ideal_s) else announced
    alone, overlapping = _by_phase(compute, announced, found)
    phases = tuple(
        PhaseTime(phase, alone_s, max(ideal, overlapping_s))
        for (phase, ideal), alone_s, overlapping_s in zip(ideal_s.items(), alone, overlapping, strict=True)
    )
    gpus = job.spec.gpus or len(job.spec.endpoints)
    claimed = job.spec if declared_work else None
    work = (claimed and claimed.work_per_iteration) or gpus * math.fsum([*alone, *overlapping])
    keeps = may_keep and found.is_regular and job.spec.keeps_slots
    return Timing(phases, gpus, work, (claimed and claimed.weight) or 1.0, keeps)


def with_common_periods(timings: Mapping[JobId, Timing], found: Mapping[JobId, Measured]) -> Mapping[JobId, Timing]:
    """Return the timings with equal periods for jobs with slots whose periods differ by little.

    Periods may differ by measuring errors, or by ``COMMON``. Jobs with shorter periods get longer computing times, up
    to the longest period of their group."""
    period_s = {job: _period_s(timing) for job, timing in timings.items() if timing.keeps_slots}
    groups = list[list[JobId]]()
    for job in sorted(period_s, key=lambda job: (period_s[job], job)):
        first = groups[-1][0] if groups else job
        error_s = SURE * math.hypot(found[first].error_s, found[job].error_s)
        if groups and period_s[job] - period_s[first] <= max(error_s, COMMON * period_s[first]):
            groups[-1].append(job)
        else:
            groups.append([job])
    longer_s = {job: period_s[group[-1]] - period_s[job] for group in groups for job in group}
    return updated(timings, {job: _longer(timings[job], more_s) for job, more_s in longer_s.items() if more_s > 0})


def _period_s(timing: Timing) -> float:
    return math.fsum(each.compute_s + each.ideal_s for each in timing.phases)


def _longer(timing: Timing, more_s: float) -> Timing:
    first, *others = timing.phases
    return replace(timing, phases=(first._replace(compute_s=first.compute_s + more_s), *others))


def _announced(spec: JobSpec) -> tuple[Compute, ...]:
    return spec.parallelizations[0].compute if spec.parallelizations else spec.compute


def _by_phase(
    compute: tuple[Compute, ...], phases: tuple[int, ...], found: Measured
) -> tuple[list[float], list[float]]:
    """Return two lists of times by phase: computing before its communication, and computing that overlaps with it.

    ``phases``: announced number of each phase. Each step of an announced phase is a phase here, with the announced
    number. ``found``: measured sum of the first list. If the announced sum differs clearly, the times of the first list
    are scaled to the measured sum."""
    alone, overlapping = [0.0] * len(phases), [0.0] * len(phases)
    for each in compute:
        if each.phase is not None:
            for at in [at for at, phase in enumerate(phases) if phase == each.phase]:
                overlapping[at] += each.seconds / phases.count(each.phase)
        else:  # computing after the last phase precedes the first one of the next iteration
            later = (at for at, phase in enumerate(phases) if each.before is not None and phase >= each.before)
            alone[next(later, 0)] += each.seconds
    announced_s, computed_s = math.fsum(alone), found.computed_s
    if computed_s is not None and not announced_s:
        alone[0] = computed_s
    elif computed_s is not None and abs(computed_s - announced_s) > max(CHANGE * announced_s, SURE * found.error_s):
        alone = [each * computed_s / announced_s for each in alone]
    return alone, overlapping
