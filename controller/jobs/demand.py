"""What is known of the traffic of each job, and the jobs as they are planned for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from controller.fabric.counter_samples import Floats
from controller.jobs.job import Job
from controller.memo import Memo, MemoPerKey, per_key
from controller.shared_map import SharedMap, differing, updated
from signalbox.jobs.collectives import VirtualLinks
from signalbox.jobs.spec import JobId
from signalbox.jobs.subflows import Pair


class DemandSource(StrEnum):
    """Which bytes a job is planned for. ``declared``: its spec's, not judged yet; ``confirmed``: its spec's, and they
    agree with the counters; ``measured``: the counters'; ``learning``: none yet; ``provisional``: of some pairs only
    that they carry traffic, or that the job expects it, is known."""

    DECLARED = "declared"
    CONFIRMED = "confirmed"
    MEASURED = "measured"
    LEARNING = "learning"
    PROVISIONAL = "provisional"

    @property
    def counted(self) -> bool:
        """Whether counters confirm the bytes."""
        return self in (DemandSource.CONFIRMED, DemandSource.MEASURED)


class Measurement(NamedTuple):
    """Payload of a job's pairs in bit/s over ``window_s``. ``iteration_s``: mean duration of the iterations reported
    then, None without any."""

    pairs: tuple[Pair, ...]
    bps: Floats
    window_s: float
    iteration_s: float | None
    undeclared_fraction: float = 0.0
    """Part of the payload on pairs, or in directions, that were not announced; 0 without payload."""


class Finding(StrEnum):
    """One way in which the counted traffic of a job is not what its spec says."""

    SILENT = "silent"
    """The job has sent before, and no pair of it carries payload now."""

    SLOWER = "slower"
    """The iteration in progress takes longer than those that were reported."""

    OTHER_TRAFFIC = "other_traffic"
    """Pairs or directions carry payload that were not announced."""

    OTHER_AMOUNTS = "other_amounts"
    """Announced pairs carry other bytes than were announced."""


CONTRADICTIONS = frozenset({Finding.OTHER_TRAFFIC, Finding.OTHER_AMOUNTS})


class Difference(NamedTuple):
    """How the counted traffic of a job differs from its spec. A job that is only silent or slower does not contradict
    its announcement."""

    findings: tuple[Finding, ...]

    undeclared: tuple[tuple[Pair, float], ...] = ()
    """Pairs that were not announced, with their payload in bit/s."""

    off: tuple[tuple[Pair, float], ...] = ()
    """Announced pairs with what they carry as a multiple of what was announced; if ``relative``, divided by the median
    of these."""

    backwards: bool = False
    """Every announced pair carries traffic in the other direction only."""

    factor: float | None = None
    """Counted divided by announced bytes, where all announced pairs share that factor."""

    relative: bool = False
    """No iterations are reported, so amounts of pairs are only compared with each other."""

    @property
    def contradicts(self) -> bool:
        """Whether the announcement is wrong."""
        return not CONTRADICTIONS.isdisjoint(self.findings)


@dataclass(frozen=True, slots=True, eq=False)
class JobDemand:
    """``virtual_links``: what the job is planned for. ``per_iteration``: their bytes are of one iteration, else of one
    second. ``counted``: pairs that are counted besides them. ``learning``: these are all pairs of its addresses.
    ``silent``: the connections that the job has reported carry nothing yet. ``declared``: bytes of one iteration per
    announced pair. ``held``: what a restarted controller should plan for, None where it is not in the spec or not known
    well enough."""

    source: DemandSource
    virtual_links: VirtualLinks
    declared: Mapping[Pair, int]
    per_iteration: bool = True
    counted: frozenset[Pair] = frozenset()
    learning: bool = False
    silent: bool = False
    measurement: Measurement | None = None
    difference: Difference | None = None
    held: VirtualLinks | None = None
    of_pattern: VirtualLinks | None = None
    """The part of ``virtual_links`` that the current traffic pattern has; None where there is only one pattern."""
    patterns: int = 0
    """Number of known traffic patterns."""
    pattern: int = 0
    """Number of the pattern that the job sends now, from 1; 0 if none."""
    idle_phases: frozenset[int] = frozenset()
    """Phases of ``virtual_links`` that other patterns have, while the current one is expected to last."""

    @property
    def contradicted(self) -> bool:
        """Whether the counters contradict the announcement."""
        return self.difference is not None and self.difference.contradicts

    @property
    def pairs(self) -> frozenset[Pair]:
        """Those that it is planned for."""
        return self.virtual_links.pairs


class _PlannedFor(NamedTuple):
    """What ``JobDemand`` says of the same."""

    virtual_links: VirtualLinks
    of_pattern: VirtualLinks | None
    idle_phases: frozenset[int]
    counted: frozenset[Pair]
    per_iteration: bool
    silent: bool


class MeasuredJobs:
    """Derives the jobs with what they are planned for, and what is counted besides. A pair belongs to the job that has
    announced it, else to the first that was found to use it."""

    def __init__(self) -> None:
        self._planned_for = per_key(_planned_for)
        self._jobs_as_planned = per_key(_measured_job)
        self._measured: Mapping[JobId, Job] = SharedMap()
        self._beyond: dict[JobId, Job] = {}
        """Jobs that were found to use pairs that they did not announce, in the order in which they were."""
        self._without_others = MemoPerKey[JobId, Job, frozenset[Pair], Job](_without)
        self._together = Memo[Mapping[JobId, Job], Mapping[JobId, Job], Mapping[JobId, Job]](updated)

    def __call__(self, jobs: Mapping[JobId, Job], demands: Mapping[JobId, JobDemand]) -> Mapping[JobId, Job]:
        before, self._measured = self._measured, self._jobs_as_planned(jobs, self._planned_for(demands))
        for job_id, _, job in differing(before, self._measured):
            if job and not job.dividing.owner and not job.pairs <= jobs[job_id].pairs:
                self._beyond[job_id] = job
            else:
                self._beyond.pop(job_id, None)
        return self._together(self._measured, self._without_conflicts(jobs)) if self._beyond else self._measured

    def _without_conflicts(self, jobs: Mapping[JobId, Job]) -> Mapping[JobId, Job]:
        """Return the jobs of ``_beyond`` without pairs that are another's."""
        beyond = {job_id: job.pairs - jobs[job_id].pairs for job_id, job in self._beyond.items()}
        pairs = frozenset[Pair]().union(*beyond.values())
        owner = {pair: job_id for job_id, job in jobs.items() if not job.dividing.owner for pair in job.pairs & pairs}
        for job_id, own in beyond.items():
            for pair in own:
                owner.setdefault(pair, job_id)
        return self._without_others(
            {
                job_id: (self._beyond[job_id], frozenset(pair for pair in own if owner[pair] != job_id))
                for job_id, own in beyond.items()
            }
        )


def _planned_for(_: JobId, demand: JobDemand) -> _PlannedFor:
    links = demand.virtual_links, demand.of_pattern, demand.idle_phases
    return _PlannedFor(*links, demand.counted, demand.per_iteration, demand.silent)


def _without(job: Job, pairs: frozenset[Pair]) -> Job:
    if not pairs:
        return job

    def own(links: VirtualLinks) -> VirtualLinks:
        return VirtualLinks(link for link in links if (link.src_ip, link.dst_ip) not in pairs)

    links, of_pattern = own(job.virtual_links), job.of_pattern and own(job.of_pattern)
    planned_for = _PlannedFor(links, of_pattern, job.idle_phases, job.counted, job.per_iteration, job.silent)
    return _measured_job(job.id, job, planned_for)


def _measured_job(_: JobId, job: Job, planned_for: _PlannedFor | None) -> Job:
    assert planned_for, "every job has a demand"
    counted, silent = planned_for.counted, planned_for.silent
    if planned_for.virtual_links is job.virtual_links:
        return replace(job, counted=counted, silent=silent) if counted or silent else job
    phases = planned_for.of_pattern or planned_for.virtual_links
    known = job.phases_known and phases.pairs <= job.pairs
    return replace(job, **planned_for._asdict(), phases_known=known)
