"""The pairs of addresses whose counters say what a job sends, and how many are counted to learn it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import permutations

from controller.jobs.announcements import Announcements
from controller.jobs.job import Job
from signalbox.jobs.spec import JobSpec
from signalbox.jobs.subflows import Pair

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
