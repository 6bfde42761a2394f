"""What is known of the traffic of each job, and the jobs as they are planned for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from controller.fabric.counter_samples import Floats
from controller.jobs.job import Job
from controller.memo import ChangedKeys, Memo, MemoPerKey, same
from controller.shared_map import SharedMap, updated
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


_Inputs = tuple[Job, VirtualLinks, VirtualLinks | None, frozenset[int], frozenset[Pair], bool, bool]


class MeasuredJobs:
    """Derives the jobs with what they are planned for, and what is counted besides. A pair belongs to the job that has
    announced it, else to the first that was found to use it."""

    def __init__(self) -> None:
        self._changed = ChangedKeys[JobId]()
        self._known: dict[JobId, tuple[_Inputs, Job]] = {}
        self._measured: Mapping[JobId, Job] = SharedMap()
        self._beyond: dict[JobId, Job] = {}
        self._owned = MemoPerKey[JobId, Job, frozenset[Pair], Job](_without)
        self._together = Memo(_together)

    def __call__(self, jobs: Mapping[JobId, Job], demands: Mapping[JobId, JobDemand]) -> Mapping[JobId, Job]:
        changed, gone = self._changed(jobs, demands)
        other: dict[JobId, Job | None] = dict.fromkeys(gone)
        for job_id in changed:
            demand = demands[job_id]
            links = demand.virtual_links, demand.of_pattern, demand.idle_phases
            inputs = jobs[job_id], *links, demand.counted, demand.per_iteration, demand.silent
            known = self._known.get(job_id)
            if known is None or not all(map(same, known[0], inputs)):
                other[job_id] = job = _measured_job(*inputs)
                self._known[job_id] = inputs, job
                if not job.dividing.owner and not job.pairs <= jobs[job_id].pairs:
                    self._beyond[job_id] = job
                else:
                    self._beyond.pop(job_id, None)
        for job_id in gone:
            self._known.pop(job_id, None)
            self._beyond.pop(job_id, None)
        self._measured = updated(self._measured, other)
        return self._together(self._measured, self._without_conflicts(jobs)) if self._beyond else self._measured

    def _without_conflicts(self, jobs: Mapping[JobId, Job]) -> Mapping[JobId, Job]:
        """The jobs that were found to use pairs that they did not announce, without those that are another's."""
        beyond = {job_id: job.pairs - jobs[job_id].pairs for job_id, job in self._beyond.items()}
        pairs = frozenset[Pair]().union(*beyond.values())
        owner = {pair: job_id for job_id, job in jobs.items() if not job.dividing.owner for pair in job.pairs & pairs}
        for job_id, own in beyond.items():
            for pair in own:
                owner.setdefault(pair, job_id)
        return self._owned(
            {
                job_id: (self._beyond[job_id], frozenset(pair for pair in own if owner[pair] != job_id))
                for job_id, own in beyond.items()
            }
        )


def _together(measured: Mapping[JobId, Job], owned: Mapping[JobId, Job]) -> Mapping[JobId, Job]:
    return updated(measured, owned)


def _without(job: Job, pairs: frozenset[Pair]) -> Job:
    if not pairs:
        return job

    def own(links: VirtualLinks) -> VirtualLinks:
        return VirtualLinks(link for link in links if (link.src_ip, link.dst_ip) not in pairs)

    links = own(job.virtual_links)
    of_pattern = job.of_pattern and own(job.of_pattern)
    return _measured_job(job, links, of_pattern, job.idle_phases, job.counted, job.per_iteration, job.silent)


def _measured_job(
    job: Job,
    virtual_links: VirtualLinks,
    of_pattern: VirtualLinks | None,
    idle_phases: frozenset[int],
    counted: frozenset[Pair],
    per_iteration: bool,
    silent: bool,
) -> Job:
    if virtual_links is job.virtual_links:
        return replace(job, counted=counted, silent=silent) if counted or silent else job
    return replace(
        job,
        virtual_links=virtual_links,
        counted=counted,
        per_iteration=per_iteration,
        phases_known=job.phases_known and (of_pattern or virtual_links).pairs <= job.pairs,
        silent=silent,
        of_pattern=of_pattern,
        idle_phases=idle_phases,
    )
