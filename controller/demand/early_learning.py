"""Early learning: all pairs of a new job are counted before counters have confirmed or contradicted its declaration.

Early learning uses only counting rules that no other job needs.

A job that shares two hosts with another job is not learnt early: either of the two jobs may send on a pair that no job
announced. A change of one job causes no work for other jobs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from itertools import chain
from typing import NamedTuple

from controller.jobs.job import Job
from signalbox.jobs.spec import JobId


class _Learnt(NamedTuple):
    tenant: str
    rules: int
    since: float


class EarlyLearning:
    """Jobs that are learnt early, with the number of rules that count the pairs of each job.

    If there are too few rules, jobs are removed until the rules suffice: each time the oldest job of the tenant with
    the most rules."""

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

        A job that alone has more than ``most`` rules is removed first, so that no other job is removed in vain."""
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
