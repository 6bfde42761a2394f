"""Measured traffic of jobs, compared with their announcements, and the jobs as the planner gets them.

In: cumulative counters by pair of addresses (``pair_counters``), reported times of iterations, reported connections,
and the time. Out: a frozen ``JobDemand`` for each job, from which ``MeasuredJobs`` derives the jobs for the planner.
When one job changes, nothing is computed anew for the other jobs.

``watched_job`` handles a single job. This module divides two shared resources among jobs: the switch rules that count
packets, and the pairs of addresses on which several jobs send.

To *learn* a job is to count all pairs of its addresses, in order to find the pairs on which it sends. A small new job
is learnt early, before counters have confirmed or contradicted its announcement, with rules that no other job needs. A
job that has two hosts in common with another job is not learnt early: unannounced traffic between these hosts could
belong to either job.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, takewhile
from typing import NamedTuple

import numpy as np

from controller.demand.job_demand import JobDemand
from controller.demand.pair_counters import PairCounters, Totals
from controller.demand.watched_job import WatchedJob
from controller.jobs.job import Announcements, Job, count_pairs
from controller.shared_map import ChangedKeys, Memo, MemoPerKey, SharedMap, differing, per_key, updated
from signalbox.errors import InvalidInput
from signalbox.jobs.collectives import VirtualLinks
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.jobs.subflows import Pair

LATE = 2.5
"""Age of a switch's latest counters, in polling intervals, above which the traffic that it counts is unknown."""

BATCH = 64
"""Largest number of jobs that are judged at one time; judging all jobs at once would block the control loop."""

FORGET_AFTER_S = 30.0
"""Seconds from a change of demands until the pairs that no job uses any more are forgotten."""

SOON_S = 60.0
"""Seconds for which counters of a job are polled more often after its pairs began to be counted."""

SOON_RULES = 1024
"""Largest number of rules whose counters are polled more often.

If there are more such rules, the jobs whose learning began last are chosen."""

TURN_S = 120.0
"""Seconds for which a job may be learnt while other jobs wait for learning rules."""


class MeasuredDemand:
    """Measured traffic of all jobs.

    ``interval_s``: seconds between polls. ``max_learning_rules``: largest number of pairs that are counted for learning
    at a time, in total for all jobs."""

    def __init__(self, interval_s: float, max_learning_rules: int) -> None:
        self.counters = PairCounters()
        self.demands: Mapping[JobId, JobDemand] = SharedMap()
        """Demand of every job; a new mapping on each change."""
        self._unseen: deque[JobId] = deque()
        self._interval_s = interval_s
        self.max_learning_rules = max_learning_rules
        """Largest number of pairs that are counted for learning at a time, for all jobs together."""
        self._jobs: dict[JobId, WatchedJob] = {}
        self._changed = ChangedKeys[JobId]()
        self._announced = Announcements()
        self._wanted: dict[JobId, int] = {}
        self._early = EarlyLearning()
        self._at = JobsByAddress()
        self._waiting: deque[JobId] = deque()
        self._suspicious: frozenset[str] = frozenset()
        self._turns: dict[JobId, float] = {}
        self._served: dict[str, float] = {}
        self._forget_at = math.inf
        self._published_at = 0.0
        self._soon: frozenset[str] | None = frozenset()

    def take_max_learning_rules(self, max_learning_rules: int) -> None:
        """Set ``max_learning_rules`` from now on."""
        self.max_learning_rules = max_learning_rules

    def refuse_unlearnable(self, spec: JobSpec) -> None:
        """Raise ``InvalidInput`` if learning the job would count more pairs than ``max_learning_rules``.

        Only observed jobs are checked: they announce no traffic, so they have to be learnt. A job that reports its
        connections is never refused here, because only the pairs of its connections are counted."""
        pairs = count_pairs(spec)
        if spec.observed and not spec.reports_connections and pairs > self.max_learning_rules:
            message = (
                f"{pairs} pairs of hosts would have to be counted to learn what the job sends; at most "
                f"{self.max_learning_rules} are allowed (jobs.max_learning_rules). Announce its collectives or "
                "transfers, or report its connections"
            )
            raise InvalidInput.of("endpoints", message)

    def follow(
        self, jobs: Mapping[JobId, Job], now: float, measured: Mapping[JobId, VirtualLinks] | None = None
    ) -> None:
        """Update the jobs. Only jobs that are new, removed or changed are examined.

        A job whose traffic may have changed is measured again. ``measured``: measured virtual links that were saved
        before a restart, by job."""
        known = self._jobs
        changed, no_more = self._changed(jobs)
        stay = {one for one in changed if one in known and _sends_alike(known[one].job, jobs[one])}
        for one in stay:
            known[one].update(jobs[one])
        gone = known.keys() & {*changed, *no_more} - stay
        left = {job_id: known.pop(job_id) for job_id in gone}
        new = [jobs[job_id] for job_id in changed if job_id not in known]
        other = [one for one in stay if self.demands[one] is not known[one].demand]
        if not left and not new and not other:
            return
        before = [watched.job for watched in left.values()]
        touched = [*before, *new, *(jobs[one] for one in other)]
        for job in before:
            self._at.remove(job)
        for job_id in left.keys() - {job.id for job in new}:
            self._announced.remove(left[job_id].job)
        for job in new:
            if replaced := left.get(job.id):
                self._announced.change(replaced.job, job)
            else:
                self._announced.add(job)
        found = {pair for job_id in left for pair in self._announced.forget_found(job_id)}
        links_of = {} if measured is None else {job.id: measured.get(job.id, VirtualLinks()) for job in new}
        for job in new:
            if links := links_of.get(job.id):
                self._announced.found(job, links.pairs)
        other += self._count_again(found.union(*(job.pairs for job in (*before, *new))), now)
        for job in new:
            before_restart = links_of.get(job.id)
            known[job.id] = WatchedJob(job, self.counters, self._interval_s, now, before_restart, self._announced)
            self._at.add(job)
        other += self._end_early(new)
        if any(job.dividing.owner for job in touched):
            self.counters.connections = self._connections()
        self._publish([*other, *(job.id for job in new)], now, gone)

    def _end_early(self, new: Collection[Job]) -> list[JobId]:
        if not self._early and not any(self._jobs[job.id].early for job in new):
            return []  # for speed: after a restart, a job may share hosts with hundreds of others
        sharing = [jobs for job in new if len(jobs := self._at.sharing(job.spec.addresses)) > 1]
        ended = [job_id for job_id in dict.fromkeys(chain.from_iterable(sharing)) if self._jobs[job_id].early]
        for job_id in ended:
            self._jobs[job_id].early = False
        return ended

    def _count_again(self, pairs: Collection[Pair], now: float) -> list[JobId]:
        """Choose again which pairs to count for jobs near ``pairs``, and return the jobs that changed.

        Called after ``pairs`` were announced, found or released by another job. Two kinds of jobs are examined: jobs
        that announced one of these pairs or its reverse pair, or were found on it, and jobs that are to be learnt. Jobs
        without an address among the sources of ``pairs`` are skipped."""
        hosts = {src for src, _ in pairs}
        near = (job_id for job_id, _ in self._announced.near(pairs))
        changed = []
        for watched in [self._jobs[one] for one in dict.fromkeys((*near, *self._wanted)) if one in self._jobs]:
            if hosts.isdisjoint(watched.job.spec.addresses):
                continue
            before = watched.pairs
            watched.others_announced()
            if watched.pairs is before:
                if watched.learns and self._wanted.get(watched.job.id, 0) != watched.wants_to_count:
                    changed.append(watched.job.id)  # the job waits for rules, whose number has changed
            else:
                changed.append(watched.job.id)
                if self.counters.polled:
                    watched.count_from_now(self._totals(watched), now)
        return changed

    def reported(self, job_id: JobId, iterations: Iterable[IterationTime], now: float) -> None:
        """Record the times of iterations that the job reported."""
        self._jobs[job_id].reported(iterations, now)

    def update(self, suspicious: frozenset[str], now: float, without_path: Iterable[JobId] = ()) -> None:
        """Judge the traffic that was counted so far.

        ``suspicious``: addresses that send more than is announced for them. ``without_path``: jobs with flows that
        the fabric does not connect. Such a job stops within an iteration, or its packets are lost, so its counters
        do not show its traffic."""
        if not self.counters.polled:
            return
        self._suspicious = suspicious
        interrupted = self.counters.interrupted(now, LATE * self._interval_s)
        for watched in self._jobs.values() if interrupted else ():
            if not interrupted.isdisjoint(watched.pairs):
                watched.interrupted()
        for job_id in without_path:
            if stopped := self._jobs.get(job_id):
                stopped.interrupted()
        if now >= self._forget_at or self.counters.has_grown:
            self._forget_at = math.inf
            self.counters.keep(set(chain.from_iterable(watched.pairs for watched in self._jobs.values())))
        if not self._waiting:
            self._waiting.extend(self._jobs)
        self.judge_next(now)

    @property
    def waiting(self) -> bool:
        """Whether some jobs wait for their judgement, because ``update`` judges only ``BATCH`` jobs."""
        return bool(self._waiting)

    def judge_next(self, now: float) -> None:
        """Judge the next ``BATCH`` of the waiting jobs."""
        judged = []
        for _ in range(min(BATCH, len(self._waiting))):
            watched = self._jobs.get(self._waiting.popleft())
            if watched is not None:
                watched.judge(self._totals(watched), self._suspicious, now)
                judged.append(watched.job.id)
        self._publish(judged, now)

    def search(self, now: float) -> None:
        """Search the counters of the next ``BATCH`` jobs that are being learnt for unknown pairs.

        Every such job is examined once per reading of counters."""
        if not self._unseen and self.counters.news:
            self.counters.news = False
            self._unseen.extend(reversed(self._wanted))  # newest first: these jobs have no routes yet
            self._unseen.extend(job_id for job_id, _, _ in self._early.newest())
        found = []
        for _ in range(min(BATCH, len(self._unseen))):
            watched = self._jobs.get(self._unseen.popleft())
            if watched is not None and watched.learns and watched.search(self._totals(watched), now):
                found.append(watched.job.id)
        if found:
            self._publish(found, now)

    def _totals(self, watched: WatchedJob) -> Totals:
        """Return the bytes and packets that were counted for the job on each of its pairs.

        For a job without reported connections, the result sums all rules of its pairs, except rules for connections of
        other jobs. For a job with reported connections, the result sums the rules for these connections. On a pair that
        no other job holds (``Announcements.holder``), the counts of the pair's other rules are added."""
        of_all = self.counters.totals(watched.rows("", self.counters.version))
        job = watched.reports_as
        if not job:
            return of_all
        free = np.array([self._announced.holder(pair) in (None, job) for pair in watched.pairs], bool)
        return self.counters.totals(watched.rows(job, self.counters.version)).with_others(of_all, free)

    def _connections(self) -> dict[tuple[str, str, int, int], str]:
        return {
            (*pair, *ports): watched.reports_as
            for watched in self._jobs.values()
            for pair, of_pair in watched.connections.items()
            for ports in of_pair
        }

    def _publish(self, touched: Iterable[JobId], now: float, gone: Collection[JobId] = ()) -> None:
        """Decide which jobs may be learnt with the available rules, then update the demands.

        ``touched``: jobs that may have changed. For other jobs, only the permission to learn is updated."""
        changed = dict.fromkeys(touched)
        for job_id in gone:
            self._wanted.pop(job_id, None)
            self._early.remove(job_id)
        for job_id in changed:
            watched = self._jobs[job_id]
            if watched.early:
                self._early.add(watched.job, watched.wants_to_count, now)
                continue
            self._early.remove(job_id)
            if watched.learns:
                self._wanted[job_id] = watched.wants_to_count
            else:
                self._wanted.pop(job_id, None)
        granted = self._granted({job_id: rules for job_id, rules in self._wanted.items() if rules}, now)
        allowed = {job_id: not rules or job_id in granted for job_id, rules in self._wanted.items()}
        left = self.max_learning_rules - sum(self._wanted[job_id] for job_id in granted)
        allowed.update((job_id, True) for job_id in changed if self._jobs[job_id].early)
        allowed.update(dict.fromkeys(self._early.shrink(left), False))
        for job_id, may_learn in allowed.items():
            watched = self._jobs[job_id]
            if watched.allow_learning(may_learn) and self.counters.polled:
                watched.count_from_now(self._totals(watched), now)
            changed[job_id] = None
        demands: dict[JobId, JobDemand | None] = dict.fromkeys(gone)
        demands.update((job_id, self._jobs[job_id].demand) for job_id in changed)
        before = self.demands
        other = {job_id: demand for job_id, demand in demands.items() if before.get(job_id) is not demand}
        self.demands = updated(before, other)
        for job_id, demand in other.items():
            if demand is not None and not self._jobs[job_id].early:
                self._announced.found(self._jobs[job_id].job, demand.pairs)
        if self.demands is not before:
            self._forget_at = min(self._forget_at, now + FORGET_AFTER_S)
        self._published_at, self._soon = now, None

    @property
    def soon(self) -> frozenset[str]:
        """Addresses of hosts whose counters are polled more often, because the learning of their jobs began lately."""
        if self._soon is not None:
            return self._soon
        left, soon, now = SOON_RULES, set[str](), self._published_at
        newest = sorted(self._turns.items(), key=lambda turn: -turn[1])
        turns = ((job_id, self._wanted.get(job_id, 0), since) for job_id, since in newest)
        early = takewhile(lambda learnt: now - learnt[2] < SOON_S and learnt[1] <= left, self._early.newest())
        for job_id, rules, since in chain(turns, early):
            if 0 <= now - since < SOON_S and rules <= left:
                left -= rules
                soon |= self._jobs[job_id].job.spec.addresses
        self._soon = frozenset(soon)
        return self._soon

    def _granted(self, wanted: Mapping[JobId, int], now: float) -> set[JobId]:
        """Return the jobs that may be learnt, granting rules in the order of ``_in_turn``.

        A job that was learnt for ``TURN_S`` while other jobs waited is put last. Without this limit, a job that sends
        nothing, or ever-changing traffic, would keep its rules for ever."""
        turns = {job_id: since for job_id, since in self._turns.items() if job_id in wanted}
        turns |= {job_id: math.inf for job_id in wanted if job_id not in turns}
        if any(since == math.inf and wanted[job_id] <= self.max_learning_rules for job_id, since in turns.items()):
            over = [job_id for job_id, since in turns.items() if now - since >= TURN_S]
            turns = {job_id: since for job_id, since in turns.items() if job_id not in over} | dict.fromkeys(
                over, math.inf
            )
        left = self.max_learning_rules
        for job_id in self._in_turn(turns):
            since, fits = turns[job_id], wanted[job_id] <= left
            if fits and since == math.inf:
                self._served[self._tenant(job_id)] = now
            turns[job_id] = min(since, now) if fits else math.inf
            left -= wanted[job_id] if fits else 0
        self._turns = turns
        return {job_id for job_id, since in turns.items() if since < math.inf}

    def _in_turn(self, turns: Mapping[JobId, float]) -> list[JobId]:
        """Return the jobs in the order in which they get rules.

        The first job of every tenant comes before the second job of any tenant, and so on. No tenant thus waits for all
        jobs of another tenant. Among the first jobs of the tenants, jobs that are already being learnt come first. The
        remaining first jobs follow, ordered by the time when the latest turn of their tenant began, earliest first. The
        second jobs are ordered in the same way, and so on."""
        self._served = {tenant: self._served.get(tenant, -math.inf) for tenant in map(self._tenant, turns)}
        before = Counter[str]()
        order: dict[JobId, tuple[int, bool, float]] = {}
        for job_id, since in turns.items():
            tenant = self._tenant(job_id)
            order[job_id] = before[tenant], since == math.inf, self._served[tenant]
            before[tenant] += 1
        return sorted(order, key=order.__getitem__)

    def _tenant(self, job_id: JobId) -> str:
        return self._jobs[job_id].job.registration.tenant


def _sends_alike(before: Job, now: Job) -> bool:
    """Return whether the measurements of ``before`` are valid for ``now``.

    Measurements depend neither on the lease nor on how flows are divided. Equal virtual links are the same object
    (``JobRegistry``)."""
    same = ("observed", "transport", "endpoints", "rails", "reports_connections")
    return (
        before.uid == now.uid
        and before.virtual_links is now.virtual_links
        and all(getattr(before.spec, name) == getattr(now.spec, name) for name in same)
    )


# ---- early learning


class _Learnt(NamedTuple):
    tenant: str
    rules: int
    since: float


class EarlyLearning:
    """Jobs that are learnt early, with the number of rules that count the pairs of each job.

    If there are too few rules, ``shrink`` removes jobs one by one. Each time it removes the oldest job of the tenant
    that has the most rules."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, _Learnt] = {}
        self._of_tenant = defaultdict[str, dict[JobId, None]](dict)
        self._rules_of = Counter[str]()

    def __len__(self) -> int:
        """Return the number of jobs that are learnt early."""
        return len(self._jobs)

    def add(self, job: Job, rules: int, now: float) -> None:
        """Add a job, or change the number of its rules."""
        before = self._jobs.get(job.id, _Learnt(job.registration.tenant, 0, now))
        self._jobs[job.id] = learnt = before._replace(rules=rules)
        self._of_tenant[learnt.tenant][job.id] = None
        self._rules_of[learnt.tenant] += rules - before.rules

    def remove(self, job_id: JobId) -> None:
        """Remove a job if it is learnt early."""
        if learnt := self._jobs.pop(job_id, None):
            self._rules_of[learnt.tenant] -= learnt.rules
            del self._of_tenant[learnt.tenant][job_id]

    def shrink(self, most: int) -> list[JobId]:
        """Remove jobs until all jobs together have at most ``most`` rules, and return the removed jobs.

        A job that alone has more than ``most`` rules is removed first, because the removal of other jobs would not
        suffice."""
        if self._rules_of.total() <= most:
            return []
        removed = [job_id for job_id, learnt in self._jobs.items() if learnt.rules > most]
        for job_id in removed:
            self.remove(job_id)
        while self._jobs and self._rules_of.total() > most:
            tenant = max(self._rules_of, key=self._rules_of.__getitem__)
            removed.append(next(iter(self._of_tenant[tenant])))
            self.remove(removed[-1])
        return removed

    def newest(self) -> Iterator[tuple[JobId, int, float]]:
        """Yield each job with its number of rules and the time when it was added, newest first."""
        for job_id, learnt in reversed(self._jobs.items()):
            yield job_id, learnt.rules, learnt.since


class JobsByAddress:
    """Index of the jobs whose specs name an address, by address."""

    def __init__(self) -> None:
        self._at = defaultdict[str, dict[JobId, None]](dict)

    def add(self, job: Job) -> None:
        for address in job.spec.addresses:
            self._at[address][job.id] = None

    def remove(self, job: Job) -> None:
        for address in job.spec.addresses:
            del self._at[address][job.id]
            if not self._at[address]:
                del self._at[address]

    def sharing(self, addresses: Collection[str]) -> list[JobId]:
        """Return the jobs whose specs name at least two of these addresses."""
        at = Counter(chain.from_iterable(self._at.get(address, ()) for address in addresses))
        return [job_id for job_id, number in at.items() if number > 1]


# ---- jobs for the planner


class _PlannedFor(NamedTuple):
    virtual_links: VirtualLinks
    of_pattern: VirtualLinks | None
    idle_phases: frozenset[int]
    counted: frozenset[Pair]
    per_iteration: bool
    silent: bool


class MeasuredJobs:
    """Function object that derives the planner's jobs from the accepted jobs and their demands.

    The result has the virtual links to plan with, and the pairs to count. If several jobs send on a pair, the pair is
    given to the job that announced it. If no job announced it, the pair is given to the job that was first found to use
    it."""

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
    """Return whether the jobs differ only in ``Job.counted``; no plan depends on this field."""
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
