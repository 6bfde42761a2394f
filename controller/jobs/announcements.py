"""Pairs of addresses that jobs have announced, and pairs that are counted to learn the traffic of a job.

A change of one job causes no work for other jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import permutations
from typing import Protocol

from controller.jobs.job import Job
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.jobs.subflows import Dividing, Pair


class Announcing(Protocol):
    """Properties of a job that announcements depend on.

    ``dividing``: its ``owner`` is set if the job reports its connections; such a job may share pairs with other jobs.
    ``registered_at``: seconds since 1970; it orders the jobs that share a pair, and a restart does not change it."""

    @property
    def id(self) -> JobId: ...
    @property
    def pairs(self) -> frozenset[Pair]: ...
    @property
    def dividing(self) -> Dividing: ...
    @property
    def registered_at(self) -> float: ...


class Announcements:
    """Pairs of all jobs: those that jobs announced, and those on which counters found them sending."""

    def __init__(self) -> None:
        self.version = 0
        """Number that grows with every change."""
        self._alone: dict[Pair, JobId] = {}
        self._sharing: dict[Pair, dict[JobId, tuple[float, JobId]]] = {}
        self._found: dict[Pair, JobId] = {}
        self._found_of: dict[JobId, set[Pair]] = {}

    def add(self, job: Announcing) -> None:
        self._add(job, job.pairs)

    def remove(self, job: Announcing) -> None:
        self._remove(job, job.pairs)

    def found(self, job: Announcing, pairs: Iterable[Pair]) -> None:
        """Record that the job was seen to send on these pairs.

        The pairs stay with the job unless other jobs announce the same pairs later."""
        if job.dividing.owner:
            return
        new = {pair for pair in pairs if pair not in self._found} - job.pairs
        if new:
            self.version += 1
            self._found.update(dict.fromkeys(new, job.id))
            self._found_of.setdefault(job.id, set()).update(new)

    def forget_found(self, job_id: JobId) -> set[Pair]:
        """Forget the pairs on which a removed or restarted job was ``found``, and return these pairs."""
        pairs = self._found_of.pop(job_id, set[Pair]())
        self.version += bool(pairs)
        for pair in pairs:
            del self._found[pair]
        return pairs

    def change(self, before: Announcing, now: Announcing) -> None:
        """Replace a job by a new version, perhaps of another registration."""
        same_place = before.registered_at == now.registered_at
        if same_place and bool(before.dividing.owner) is bool(now.dividing.owner):
            self._remove(before, before.pairs - now.pairs)
            self._add(now, now.pairs - before.pairs)
        else:
            self.remove(before)
            self.add(now)

    def _add(self, job: Announcing, pairs: Set[Pair]) -> None:
        self.version += 1
        if not job.dividing.owner:
            self._alone.update(dict.fromkeys(pairs, job.id))
            return
        for pair in pairs:
            self._sharing.setdefault(pair, {})[job.id] = job.registered_at, job.id

    def _remove(self, job: Announcing, pairs: Set[Pair]) -> None:
        self.version += 1
        mine, shares = job.id, bool(job.dividing.owner)
        for pair in pairs:
            if not shares:
                if self._alone.get(pair) == mine:
                    del self._alone[pair]
            elif len(self._sharing[pair]) > 1:
                del self._sharing[pair][mine]
            else:
                del self._sharing[pair]

    def owner(self, pair: Pair) -> JobId | None:
        """Return the job that announced the pair, or the reverse pair, and does not report its connections.

        If only the reverse pair is announced, a job that was ``found`` on the pair before has precedence."""
        src, dst = pair
        if job_id := self._alone.get(pair):
            return job_id
        opposite = self._alone.get((dst, src))
        return opposite and self._found.get(pair, opposite)

    def first(self, pair: Pair) -> JobId | None:
        """Return the job that announced the pair and does not report its connections.

        If there is none, return the first registered of the jobs that share the pair."""
        sharing = self._sharing.get(pair, {})
        return self._alone.get(pair) or min(sharing, key=sharing.__getitem__, default=None)

    def holder(self, pair: Pair) -> JobId | None:
        """Return the job that has the rule for all packets of a pair (``tables.pins``).

        That job is the ``first`` job, or else the job whose acknowledgements travel on the pair."""
        src, dst = pair
        return self.first(pair) or self.first((dst, src))

    def near(self, pairs: Iterable[Pair]) -> Iterator[tuple[JobId, Pair]]:
        """Yield each job that announced, or was ``found`` on, one of the pairs or a reverse pair, with that pair."""
        for src, dst in pairs:
            for pair in ((src, dst), (dst, src)):
                if job_id := self._alone.get(pair):
                    yield job_id, pair
                if job_id := self._found.get(pair):
                    yield job_id, pair
                for job_id in self._sharing.get(pair, ()):
                    yield job_id, pair


MANY = 20_000
"""Largest number of pairs that are examined one by one, which takes 5 ms."""


def pairs_within(spec: JobSpec) -> list[Pair]:
    """Return all pairs of addresses that the job's transfers can have: between first NICs, and within each rail.

    There can be more than a hundred million pairs, so call ``count_pairs`` first."""
    return [pair for addresses in _nics(spec) for pair in permutations(sorted(addresses), 2)]


def count_pairs(spec: JobSpec) -> int:
    """Return the number of pairs that ``pairs_within`` would return."""
    return sum(len(addresses) * (len(addresses) - 1) for addresses in _nics(spec))


def learning_rules(job: Job) -> int:
    """Return the largest number of pairs that are counted to learn an observed job; 0 for any other job."""
    if not job.spec.observed:
        return 0
    return len(job.dividing.connections) if job.dividing.owner else count_pairs(job.spec)


def _nics(spec: JobSpec) -> list[set[str]]:
    return [set(spec.endpoints), *(set(rail.endpoints) for rail in spec.rails)]


def pairs_to_learn(job: Job, announced: Announcements) -> Sequence[Pair]:
    """Return the pairs to count in order to learn a job: pairs of its addresses that no other job has announced.

    For a job that reports its connections, return the pairs of these connections instead."""
    if job.dividing.owner:
        return list(job.dividing.connections)
    return [pair for pair in pairs_within(job.spec) if announced.owner(pair) in (None, job.id)]


def count_to_learn(_version: int, job: Job, announced: Announcements) -> int:
    """Return the number of pairs that ``pairs_to_learn`` would return.

    If the job has more than ``MANY`` pairs and does not report its connections, return the number of all its pairs."""
    if not job.dividing.owner and (most := count_pairs(job.spec)) > MANY:
        return most
    return len(pairs_to_learn(job, announced))


def pairs_to_count(job: Job, announced: Announcements, known: Iterable[Pair], learning: bool) -> dict[Pair, None]:
    """Return the ``known`` pairs, then their reverse pairs and, if ``learning``, then the pairs to learn.

    If the job does not report its connections, pairs of other jobs are left out, because the rules of these pairs count
    for the other jobs."""
    pairs = dict.fromkeys(known)
    pairs |= {(dst, src): None for src, dst in pairs}
    own = job.pairs
    if not job.dividing.owner:
        pairs = {pair: None for pair in pairs if pair in own or announced.owner(pair) in (None, job.id)}
    return pairs | dict.fromkeys(pairs_to_learn(job, announced)) if learning else pairs
