"""What jobs really send, as switches count it, compared with what they announced.

Owns which bytes every job is planned for. In: cumulative counters per pair of addresses (``pair_counters``), reported
iteration times and connections, now and then the time. Out: per job a frozen ``JobDemand``. One job is
``watched_job``'s matter; here they share the rules that may count, and the pairs that several of them use.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import chain
from types import MappingProxyType

import numpy as np

from controller.errors import InvalidInput
from controller.jobs.collectives import VirtualLink
from controller.jobs.demand import DemandSource, JobDemand
from controller.jobs.messages import IterationTime
from controller.jobs.pair_counters import PairCounters, Totals
from controller.jobs.registry import Job
from controller.jobs.spec import JobId, JobSpec
from controller.jobs.subflows import Pair
from controller.jobs.watched_job import WatchedJob, count_pairs

LATE = 2.5
"""Intervals without counters of a switch after which it is not known what it counts."""

BATCH = 64
"""Jobs that are judged at one time; all at once would hold the control loop."""

TURN_S = 120.0
"""For so long a job may be learnt while others wait for its rules."""


class MeasuredDemand:
    """``demands``: of every job, another mapping whenever one has changed. ``interval_s``: between counters.
    ``max_learning_rules``: pairs that are counted for learning at one time, over all jobs."""

    def __init__(self, interval_s: float, max_learning_rules: int) -> None:
        self.counters = PairCounters()
        self.demands: Mapping[JobId, JobDemand] = MappingProxyType({})
        self._interval_s = interval_s
        self._max_learning_rules = max_learning_rules
        self._jobs: dict[JobId, WatchedJob] = {}
        self._waiting: deque[JobId] = deque()
        self._suspicious: frozenset[str] = frozenset()
        self._turns: dict[JobId, float] = {}
        self._kept: list[tuple[Pair, ...]] = []

    def refuse_unlearnable(self, spec: JobSpec) -> None:
        """Raises ``InvalidInput`` for an observed job with more pairs than may be counted."""
        pairs = count_pairs(spec)
        if spec.observed and not spec.reports_connections and pairs > self._max_learning_rules:
            message = (
                f"{pairs} pairs of hosts would have to be counted to learn what the job sends; at most "
                f"{self._max_learning_rules} are (jobs.max_learning_rules). Announce its collectives or transfers, or "
                "report its connections"
            )
            raise InvalidInput.of("endpoints", message)

    @property
    def measured(self) -> dict[JobId, tuple[VirtualLink, ...]]:
        """What jobs are planned for that is not in their specs: what a restart has to know."""
        return {
            job_id: demand.virtual_links
            for job_id, demand in self.demands.items()
            if demand.source is DemandSource.MEASURED
        }

    def follow(
        self, jobs: Mapping[JobId, Job], now: float, measured: Mapping[JobId, tuple[VirtualLink, ...]] | None = None
    ) -> None:
        """These are the jobs that there are; one with another spec is looked at anew. ``measured``: as it was before a
        restart."""
        known = {job_id: one for job_id, one in self._jobs.items() if job_id in jobs and one.spec is jobs[job_id].spec}
        if known.keys() == jobs.keys() == self._jobs.keys():
            return
        owners = {
            pair: job_id
            for job_id, job in jobs.items()
            if not job.dividing.owner
            for src, dst in job.pairs
            for pair in both(src, dst)
        }
        before = measured or {}
        self._jobs = {
            job_id: known.get(job_id) or WatchedJob(job, self.counters, self._interval_s, now, before.get(job_id, ()))
            for job_id, job in jobs.items()
        }
        holders = _holders(jobs)
        for watched in self._jobs.values():
            watched.owners, watched.holders = owners, holders
        self.counters.connections = self._connections()
        self._publish(now)

    def connections_changed(self, job: Job, now: float) -> None:
        """The job has reported other connections: an observed one needs no other pairs."""
        self._jobs[job.id].connections_changed(job)
        self.counters.connections = self._connections()
        self._publish(now)

    def reported(self, job_id: JobId, iterations: Iterable[IterationTime], now: float) -> None:
        """The job has reported how long iterations took."""
        self._jobs[job_id].reported([iteration.duration_s for iteration in iterations], now)

    def update(self, suspicious: frozenset[str], now: float) -> None:
        """Judge what was counted so far. ``suspicious``: addresses that send more than is announced for them."""
        if not self.counters.running:
            return
        self._suspicious = suspicious
        interrupted = self.counters.interrupted(now, LATE * self._interval_s)
        for watched in self._jobs.values() if interrupted else ():
            if not interrupted.isdisjoint(watched.pairs):
                watched.interrupted()
        if not self._waiting:
            self._waiting.extend(self._jobs)
        self.go_on(now)

    @property
    def waiting(self) -> bool:
        """Some jobs were not judged yet since the last update; ``go_on`` does."""
        return bool(self._waiting)

    def go_on(self, now: float) -> None:
        """Judge the next ``BATCH`` of those that wait."""
        for _ in range(min(BATCH, len(self._waiting))):
            watched = self._jobs.get(self._waiting.popleft())
            if watched is not None:
                watched.judge(self._totals(watched), self._suspicious, now)
        self._publish(now)

    def _totals(self, watched: WatchedJob) -> Totals:
        """What the job has sent: of a pair for which it has the rule for all packets what that has counted too."""
        of_all = self.counters.totals(watched.rows("", self.counters.version))
        job = watched.reports_as
        if not job:
            return of_all
        free = np.array([watched.holders.get(pair, job) == job for pair in watched.pairs], bool)
        return self.counters.totals(watched.rows(job, self.counters.version)).with_others(of_all, free)

    def _connections(self) -> dict[tuple[str, str, int, int], str]:
        return {
            (*pair, *ports): watched.reports_as
            for watched in self._jobs.values()
            for pair, of_pair in watched.connections.items()
            for ports in of_pair
        }

    def _publish(self, now: float) -> None:
        """Grants learning as far as rules are left, then says what is known."""
        wanted = {job_id: watched.wants_to_count for job_id, watched in self._jobs.items()}
        granted = self._granted({job_id: rules for job_id, rules in wanted.items() if rules}, now)
        for job_id, watched in self._jobs.items():
            if watched.allow_learning(not wanted[job_id] or job_id in granted) and self.counters.running:
                watched.count_from_now(self._totals(watched), now)
        demands = {job_id: watched.demand for job_id, watched in self._jobs.items()}
        if list(demands.items()) != list(self.demands.items()):
            self.demands = MappingProxyType(demands)
        pairs = [watched.pairs for watched in self._jobs.values()]
        if list(map(id, pairs)) != list(map(id, self._kept)):
            self._kept = pairs
            self.counters.keep(set(chain.from_iterable(pairs)))

    def _granted(self, wanted: Mapping[JobId, int], now: float) -> set[JobId]:
        """Which jobs may be learnt: in the order in which they asked, and who had its turn asks again. One that sends
        nothing, or never the same, would keep its rules for good."""
        turns = {job_id: since for job_id, since in self._turns.items() if job_id in wanted}
        turns |= {job_id: math.inf for job_id in wanted if job_id not in turns}
        if any(since == math.inf and wanted[job_id] <= self._max_learning_rules for job_id, since in turns.items()):
            over = [job_id for job_id, since in turns.items() if now - since >= TURN_S]
            turns = {job_id: since for job_id, since in turns.items() if job_id not in over} | dict.fromkeys(
                over, math.inf
            )
        left = self._max_learning_rules
        for job_id, since in turns.items():
            fits = wanted[job_id] <= left
            turns[job_id] = min(since, now) if fits else math.inf
            left -= wanted[job_id] if fits else 0
        self._turns = turns
        return {job_id for job_id, since in turns.items() if since < math.inf}


def both(src: str, dst: str) -> tuple[Pair, Pair]:
    """The pair, and its acknowledgements'."""
    return (src, dst), (dst, src)


def _holders(jobs: Mapping[JobId, Job]) -> dict[Pair, JobId]:
    """Which job has the rule for all packets of a pair (``tables.running_routes``): the one that does not report its
    connections, else the first that has announced it, else the one whose acknowledgements it has."""
    in_order = sorted(jobs.values(), key=lambda job: bool(job.dividing.owner))
    holders: dict[Pair, JobId] = {}
    for job in in_order:
        for pair in job.pairs:
            holders.setdefault(pair, job.id)
    for (src, dst), job_id in tuple(holders.items()):
        holders.setdefault((dst, src), job_id)
    return holders
