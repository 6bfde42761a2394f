"""Which jobs have announced which pairs of addresses, and which pairs are counted to learn what a job sends.

What one job changes costs nothing for the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import permutations
from typing import Protocol

from controller.jobs.job import Job
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.jobs.subflows import Dividing, Pair


class Announcing(Protocol):
    """What counts of a job. ``dividing``: a job that reports its connections is its ``owner``, and may share pairs.
    ``registered_at``: seconds since 1970; the order of jobs that share a pair, which a restart does not change."""

    @property
    def id(self) -> JobId: ...
    @property
    def pairs(self) -> frozenset[Pair]: ...
    @property
    def dividing(self) -> Dividing: ...
    @property
    def registered_at(self) -> float: ...


class Announcements:
    """``version`` grows with every change."""

    def __init__(self) -> None:
        self.version = 0
        self._alone: dict[Pair, JobId] = {}
        self._sharing: dict[Pair, dict[JobId, tuple[float, JobId]]] = {}
        self._found: dict[Pair, JobId] = {}
        self._found_of: dict[JobId, set[Pair]] = {}

    def add(self, job: Announcing) -> None:
        self._add(job, job.pairs)

    def remove(self, job: Announcing) -> None:
        self._remove(job, job.pairs)

    def found(self, job: Announcing, pairs: Iterable[Pair]) -> None:
        """The job was seen to send on these pairs. What others announce later does not change whose they are, unless
        they announce the same pairs."""
        if job.dividing.owner:
            return
        new = {pair for pair in pairs if pair not in self._found} - job.pairs
        if new:
            self.version += 1
            self._found.update(dict.fromkeys(new, job.id))
            self._found_of.setdefault(job.id, set()).update(new)

    def forget_found(self, job_id: JobId) -> set[Pair]:
        """The job has left, or begins anew. Return the pairs that it was seen to send on."""
        pairs = self._found_of.pop(job_id, set[Pair]())
        self.version += bool(pairs)
        for pair in pairs:
            del self._found[pair]
        return pairs

    def change(self, before: Announcing, now: Announcing) -> None:
        """The same job, perhaps of another registration."""
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
        """The job that has announced the pair, or else the opposite one, and does not report its connections. Where
        only the opposite one is announced, the job that was ``found`` to send on the pair before that."""
        src, dst = pair
        if job_id := self._alone.get(pair):
            return job_id
        opposite = self._alone.get((dst, src))
        return opposite and self._found.get(pair, opposite)

    def first(self, pair: Pair) -> JobId | None:
        """The job that has announced the pair and does not report its connections, else the one registered first."""
        sharing = self._sharing.get(pair, {})
        return self._alone.get(pair) or min(sharing, key=sharing.__getitem__, default=None)

    def holder(self, pair: Pair) -> JobId | None:
        """Which job has the rule for all packets of a pair (``tables.pins``): the ``first``, else the one
        whose acknowledgements it has."""
        src, dst = pair
        return self.first(pair) or self.first((dst, src))

    def near(self, pairs: Iterable[Pair]) -> Iterator[tuple[JobId, Pair]]:
        """The jobs that have announced one of these pairs, or the opposite of one, or were ``found`` to send there;
        each with that pair of its own."""
        for src, dst in pairs:
            for pair in ((src, dst), (dst, src)):
                if job_id := self._alone.get(pair):
                    yield job_id, pair
                if job_id := self._found.get(pair):
                    yield job_id, pair
                for job_id in self._sharing.get(pair, ()):
                    yield job_id, pair


MANY = 20_000
"""Pairs that are looked at one by one, at most: it takes 5 ms."""


def pairs_within(spec: JobSpec) -> list[Pair]:
    """All pairs of addresses that the job's transfers can have: of first NICs, and within each rail. There can be more
    than a hundred million: ask ``count_pairs`` first."""
    return [pair for addresses in _nics(spec) for pair in permutations(sorted(addresses), 2)]


def count_pairs(spec: JobSpec) -> int:
    """Return the number of pairs that ``pairs_within`` would find."""
    return sum(len(addresses) * (len(addresses) - 1) for addresses in _nics(spec))


def learning_rules(job: Job) -> int:
    """How many pairs are counted at most to learn what an observed job sends; 0 of one that announces it."""
    if not job.spec.observed:
        return 0
    return len(job.dividing.connections) if job.dividing.owner else count_pairs(job.spec)


def _nics(spec: JobSpec) -> list[set[str]]:
    return [set(spec.endpoints), *(set(rail.endpoints) for rail in spec.rails)]


def pairs_to_learn(job: Job, announced: Announcements) -> Sequence[Pair]:
    """Return the pairs that no other job has announced; for a job that reports connections, those with any."""
    if job.dividing.owner:
        return list(job.dividing.connections)
    return [pair for pair in pairs_within(job.spec) if announced.owner(pair) in (None, job.id)]


def count_to_learn(_version: int, job: Job, announced: Announcements) -> int:
    """Return the number of pairs that ``pairs_to_learn`` would find; of more than ``MANY`` all that there are."""
    if not job.dividing.owner and (most := count_pairs(job.spec)) > MANY:
        return most
    return len(pairs_to_learn(job, announced))


def pairs_to_count(job: Job, announced: Announcements, known: Iterable[Pair], learning: bool) -> dict[Pair, None]:
    """Return the ``known`` pairs with their opposites, and those to learn, in order. Of a job that does not report its
    connections, not those that are another one's: what the rules of these count is that job's."""
    pairs = dict.fromkeys(known)
    pairs |= {(dst, src): None for src, dst in pairs}
    own = job.pairs
    if not job.dividing.owner:
        pairs = {pair: None for pair in pairs if pair in own or announced.owner(pair) in (None, job.id)}
    return pairs | dict.fromkeys(pairs_to_learn(job, announced)) if learning else pairs
