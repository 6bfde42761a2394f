"""Traffic that each job is planned with (``JobDemand``), and the jobs as the planner gets them (``MeasuredJobs``)."""

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
    """Source of the bytes that a job is planned with."""

    DECLARED = "declared"
    """The spec, which counters have neither confirmed nor contradicted yet."""
    CONFIRMED = "confirmed"
    """The spec, which agrees with the counters."""
    MEASURED = "measured"
    """Counters, because they contradict the spec, or because the spec announces no traffic."""
    LEARNING = "learning"
    """No source yet: the traffic of the job is being learnt."""
    PROVISIONAL = "provisional"
    """Pairs without known amounts: the counters show, or the spec expects, that some pairs carry traffic."""

    @property
    def counted(self) -> bool:
        """Whether counters confirm the bytes."""
        return self in (DemandSource.CONFIRMED, DemandSource.MEASURED)


class Measurement(NamedTuple):
    """Measured payload of the pairs of a job."""

    pairs: tuple[Pair, ...]
    bps: Floats
    """Payload of each pair in bit/s over the window."""
    window_s: float
    """Length of the window in seconds."""
    iteration_s: float | None
    """Mean duration in seconds of the iterations reported in the window; None without any."""
    undeclared_fraction: float = 0.0
    """Fraction of the payload on pairs, or in directions, that were not announced; 0 without payload."""


class Finding(StrEnum):
    """Way in which the counted traffic of a job differs from its spec."""

    SILENT = "silent"
    """The job has sent before, and none of its pairs carries payload now."""

    SLOWER = "slower"
    """The iteration in progress takes longer than the reported ones."""

    OTHER_TRAFFIC = "other_traffic"
    """Pairs or directions that were not announced carry payload."""

    OTHER_AMOUNTS = "other_amounts"
    """Announced pairs carry other amounts than announced."""


CONTRADICTIONS = frozenset({Finding.OTHER_TRAFFIC, Finding.OTHER_AMOUNTS})


class Difference(NamedTuple):
    """Difference between the counted traffic of a job and its spec.

    A job that is only silent or slower does not contradict its announcement."""

    findings: tuple[Finding, ...]

    undeclared: tuple[tuple[Pair, float], ...] = ()
    """Pairs that were not announced, with their payload in bit/s."""

    off: tuple[tuple[Pair, float], ...] = ()
    """Announced pairs with other amounts, each with its ratio of counted to announced bytes.

    If ``relative``, each ratio is divided by the median ratio."""

    backwards: bool = False
    """Whether every announced pair carries traffic in the reverse direction only."""

    factor: float | None = None
    """Ratio of counted to announced bytes, if all announced pairs share it."""

    relative: bool = False
    """Whether amounts are only compared with each other, because no iterations are reported."""

    @property
    def contradicts(self) -> bool:
        """Whether the difference shows that the announcement is wrong."""
        return not CONTRADICTIONS.isdisjoint(self.findings)


@dataclass(frozen=True, slots=True, eq=False)
class JobDemand:
    """Traffic that a job is planned with, and its measurement."""

    source: DemandSource
    virtual_links: VirtualLinks
    """Virtual links that the job is planned with."""
    declared: Mapping[Pair, int]
    """Announced bytes of one iteration, by pair."""
    per_iteration: bool = True
    """Whether ``virtual_links`` has the bytes of one iteration; otherwise it has the bytes of one second."""
    counted: frozenset[Pair] = frozenset()
    """Pairs that are counted in addition to ``virtual_links``."""
    learning: bool = False
    """Whether ``counted`` has all pairs of the job's addresses."""
    silent: bool = False
    """Whether the connections that the job has reported carry nothing yet."""
    measurement: Measurement | None = None
    difference: Difference | None = None
    held: VirtualLinks | None = None
    """Virtual links that a restarted controller should plan with; None to plan with the links of the spec."""
    of_pattern: VirtualLinks | None = None
    """Virtual links of the current traffic pattern, a part of ``virtual_links``; None if there is only one pattern."""
    patterns: int = 0
    """Number of known traffic patterns."""
    pattern: int = 0
    """Number of the pattern that the job sends now, from 1; 0 if none."""
    idle_phases: frozenset[int] = frozenset()
    """Phases of ``virtual_links`` in which the current pattern sends nothing; empty unless it is expected to last."""

    @property
    def contradicted(self) -> bool:
        """Whether the counters contradict the announcement."""
        return self.difference is not None and self.difference.contradicts

    @property
    def pairs(self) -> frozenset[Pair]:
        """Pairs of source and destination address of the virtual links."""
        return self.virtual_links.pairs


class _PlannedFor(NamedTuple):
    """Fields of ``JobDemand`` that are copied into the jobs for the planner."""

    virtual_links: VirtualLinks
    of_pattern: VirtualLinks | None
    idle_phases: frozenset[int]
    counted: frozenset[Pair]
    per_iteration: bool
    silent: bool


class MeasuredJobs:
    """Derivation of the jobs for the planner, with the virtual links to plan with and the pairs to count.

    A pair belongs to the job that announced it, or else to the first job that was found to use it."""

    def __init__(self) -> None:
        self._planned_for = per_key(_planned_for)
        self._jobs_as_planned = per_key(_measured_job)
        self._measured: Mapping[JobId, Job] = SharedMap()
        self._beyond: dict[JobId, Job] = {}
        """Jobs that were found to use pairs that they did not announce, in the order in which they were found."""
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
        """Return the jobs of ``_beyond`` without pairs of other jobs."""
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


def only_counted_otherwise(before: Mapping[JobId, Job], now: Mapping[JobId, Job]) -> bool:
    """Return whether the jobs differ only in ``Job.counted``, on which no plan depends."""
    return all(was and job and replace(was, counted=job.counted) == job for _, was, job in differing(before, now))


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
