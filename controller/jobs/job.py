"""An accepted job as a frozen snapshot (``Job``), its changing values (``Vitals``), and the pairs of all jobs.

A pair (source address, destination address) is announced by a job, or counted to learn its traffic. A change of one job
causes no work for the pairs of other jobs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import permutations, takewhile
from statistics import fmean, median
from typing import NamedTuple

from controller.jobs.messages import Registration
from controller.shared_map import differing
from signalbox.jobs.collectives import VirtualLinks
from signalbox.jobs.reports import REPORT_S, IterationTime
from signalbox.jobs.spec import JobId, JobSpec, Transport, same_traffic
from signalbox.jobs.subflows import Dividing, Pair

HEADER_BYTES: Mapping[Transport, int] = {Transport.TCP: 66, Transport.ROCE_V2: 58}
"""Header bytes of a packet that carries data.

TCP: Ethernet 14, IPv4 20, TCP 20 and its timestamps 12 (RFC 7323, appendix A). RoCEv2: Ethernet 14, IPv4 20, UDP 8, BTH
12, ICRC 4 (InfiniBand specification, annex A17)."""


class Overhead(NamedTuple):
    """Bytes on the wire per byte of payload, in addition to the payload itself."""

    header: float
    """Bytes of headers, in the direction of the payload."""
    answer: float
    """Bytes of acknowledgements, in the opposite direction."""


OVERHEAD: Mapping[Transport, Overhead] = {
    Transport.TCP: Overhead(HEADER_BYTES[Transport.TCP] / 1448, HEADER_BYTES[Transport.TCP] / (2 * 1448)),
    Transport.ROCE_V2: Overhead(HEADER_BYTES[Transport.ROCE_V2] / 1024, 0.0),
}
"""Overhead of each transport, as port counters and shapers count it.

TCP: Ethernet frames of 1,500 bytes with time stamps, and one acknowledgement per two segments (RFC 1122, 4.2.3.2).
RoCEv2: a path MTU of 1,024 bytes, and one acknowledgement per message, which is negligible. Preamble, checksum and gap
of Ethernet are not included, because counters and shapers do not count them."""

MEASURED_WINDOW = 16
"""Number of latest iterations over which the mean communication time is computed."""

FIRST_ITERATIONS = 2
"""Number of first iterations of a job, which often take longer than later ones, because programs compile and
connect."""

NOTICED_S = 10.0
"""Seconds within which counters show that a job sends another traffic pattern."""

NOTICED_ITERATIONS = 4
"""Number of iterations within which counters show another traffic pattern.

The limit is the longer time: that of these iterations, or ``NOTICED_S``."""

MOST_WAITING = 1000
"""Largest number of iterations in ``Reported.waiting``; further ones are ignored."""


class Reported(NamedTuple):
    """Iterations that the job has reported.

    A *measuring period* ends when the confirmed routes of the job change, or the bytes for which it is planned."""

    iterations: int = 0
    """Number of reported iterations."""
    last_communication_s: float = 0.0
    recent_communication_s: tuple[float, ...] = ()
    """Communication times in seconds of the latest iterations that began in this period, oldest first."""
    last_index: int = -1
    """Highest reported iteration number; -1 before the first report."""
    since: float = -math.inf
    """Start of the measuring period in monotonic seconds."""
    planned: VirtualLinks | None = None
    """Virtual links for which the job is planned in this measuring period."""
    alternates: bool = False
    """Whether the job alternates between traffic patterns, so that recent iterations may belong to another pattern."""
    waiting: tuple[tuple[float, float], ...] = ()
    """Latest iterations of an alternating job, if counters do not show yet to which traffic pattern they belong.

    An entry is a pair: latest possible end of the iteration in monotonic seconds, and communication time in seconds."""
    certain_s: tuple[float, ...] = ()
    """Communication times in seconds of the latest iterations that certainly belong to the present pattern."""

    def and_now(self, new: Sequence[IterationTime], now: float) -> Reported:
        """Return the state after a report of ``new`` iterations, oldest first, that arrived at ``now``.

        The latest iteration ended at the reported time or, without one, at most ``REPORT_S`` ago. Iterations that may
        have begun before the measuring period do not count for the communication times."""
        recent = list[tuple[float, float]]()
        began_at = now - REPORT_S
        for iteration in reversed(new[-MEASURED_WINDOW:]):
            least = began_at if iteration.ended_at is None else min(began_at, iteration.ended_at)
            ended_at, began_at = least + REPORT_S, least - iteration.duration_s
            if began_at < self.since:
                break
            recent.insert(0, (ended_at, iteration.communication_s))
        recent_s = [seconds for _, seconds in recent]
        noticed_at = now - max(NOTICED_S, NOTICED_ITERATIONS * new[-1].duration_s)
        waiting = (*self.waiting, *recent)[:MOST_WAITING] if self.alternates else ()
        certain_s = [seconds for _, seconds in takewhile(lambda each: each[0] <= noticed_at, waiting)]
        return self._replace(
            iterations=self.iterations + len(new),
            last_communication_s=new[-1].communication_s,
            recent_communication_s=(*self.recent_communication_s, *recent_s)[-MEASURED_WINDOW:],
            last_index=new[-1].index,
            waiting=waiting[len(certain_s) :],
            certain_s=(*self.certain_s, *certain_s)[-MEASURED_WINDOW:],
        )

    @property
    def mean_communication_s(self) -> float:
        """Mean of ``recent_communication_s``, or for an alternating job of ``certain_s``, in seconds; 0 if empty."""
        return fmean(self._measured_s) if self._measured_s else 0.0

    @property
    def usual_communication_s(self) -> float:
        """Median of the communication times that ``mean_communication_s`` averages, in seconds; 0 if there are none.

        The first ``FIRST_ITERATIONS`` of the job are left out."""
        later = max(0, self.iterations - FIRST_ITERATIONS)
        usual = self._measured_s[-later:] if later else ()
        return median(usual) if usual else 0.0

    @property
    def _measured_s(self) -> tuple[float, ...]:
        return self.certain_s if self.alternates else self.recent_communication_s


@dataclass(slots=True, eq=False)
class Vitals:
    """Lease and reported iterations of a running job, which change all the time.

    Each value is replaced as a whole, so that other threads can read it at any time."""

    lease_ends_at: float
    """End of the lease in monotonic seconds."""
    reported: Reported = field(default_factory=Reported)

    def begin_measuring(self, now: float, planned: VirtualLinks | None = None, alternates: bool | None = None) -> None:
        """Begin a measuring period: forget recent times, which belong to other routes or other bytes.

        ``planned``, ``alternates``: as in ``Reported``; None if unchanged."""
        before = self.reported
        self.reported = Reported(
            before.iterations,
            before.last_communication_s,
            last_index=before.last_index,
            since=now,
            planned=before.planned if planned is None else planned,
            alternates=before.alternates if alternates is None else alternates,
        )


@dataclass(frozen=True)
class Job:
    """An accepted job. All snapshots of one registration share the same ``vitals``."""

    registration: Registration
    virtual_links: VirtualLinks
    vitals: Vitals = field(compare=False)
    dividing: Dividing
    """Ways to divide the flows of the job into subflows; includes the connections that the job has reported."""
    addresses: frozenset[str]
    """Addresses of the job's hosts. While the host of some address is unknown, the job is pending.

    An observed job has all addresses of its spec, any other job those of its announced virtual links. Measurements do
    not change the addresses."""
    counted: frozenset[Pair] = frozenset()
    """Pairs that are counted for the job in addition to its virtual links (``demand``)."""
    per_iteration: bool = True
    """Whether the virtual links have the bytes of one iteration; otherwise they have the bytes of one second."""
    phases_known: bool = True
    """Whether the virtual links have the phases of the spec."""
    silent: bool = False
    """Whether the job has reported connections that do not carry traffic yet."""
    of_pattern: VirtualLinks | None = None
    """Virtual links of the present traffic pattern, part of ``virtual_links``; None if the job has only one pattern."""
    idle_phases: frozenset[int] = frozenset()
    """Phases of ``virtual_links`` in which the present pattern sends nothing; empty if the pattern may change soon."""

    @property
    def sending(self) -> VirtualLinks:
        """Virtual links for the traffic that the job sends now, with the phases of ``virtual_links``."""
        return self.virtual_links if self.of_pattern is None else self.of_pattern

    @property
    def spec(self) -> JobSpec:
        return self.registration.spec

    @property
    def id(self) -> JobId:
        return JobId(self.spec.job_id)

    @property
    def uid(self) -> str:
        return self.registration.uid

    @property
    def registered_at(self) -> float:
        """Time of the registration in seconds since 1970."""
        return self.registration.registered_at

    @property
    def pairs(self) -> frozenset[Pair]:
        return self.virtual_links.pairs

    @property
    def transport(self) -> Transport:
        return self.spec.transport

    @property
    def header_bytes(self) -> int:
        """Header bytes of each packet of the job that carries data."""
        return HEADER_BYTES[self.transport]

    @property
    def overhead(self) -> Overhead:
        """Bytes on the wire in addition to the payload, per byte of payload."""
        return OVERHEAD[self.transport]


class MeasuringPeriods:
    """Begins a new measuring period (``Reported``) of each job that is planned for other bytes than before.

    ``core.sending`` begins the measuring periods that follow from changed routes."""

    def __init__(self) -> None:
        self._jobs: Mapping[JobId, Job] = {}

    def follow(self, jobs: Mapping[JobId, Job], now: float) -> None:
        """Begin a measuring period of each job that is new, or planned for other traffic than at the last call.

        Earlier iterations of the job cannot be compared with its new ideal time."""
        before, self._jobs = self._jobs, jobs
        for _, was, job in differing(before, jobs):
            if job and not (was and _same(was, job)):
                job.vitals.begin_measuring(now, job.sending, job.of_pattern is not None)


def _same(was: Job, job: Job) -> bool:
    return (
        was.uid == job.uid
        and was.sending is job.sending
        and (was.of_pattern is None) == (job.of_pattern is None)
        and was.per_iteration == job.per_iteration
        and was.registration.arrangement == job.registration.arrangement
        and (was.spec is job.spec or same_traffic(was.spec, job.spec))
    )


class Announcements:
    """Pairs of all jobs: announced pairs, and pairs on which counters show traffic of a job.

    Jobs that report their connections (``dividing.owner`` is set) may share pairs. The jobs of a pair are in the order
    of ``registered_at``, so that a restart does not change the order."""

    def __init__(self) -> None:
        self.version = 0
        """Number that grows with every change."""
        self._alone: dict[Pair, JobId] = {}
        self._sharing: dict[Pair, dict[JobId, tuple[float, JobId]]] = {}
        self._found: dict[Pair, JobId] = {}
        self._found_of: dict[JobId, set[Pair]] = {}

    def add(self, job: Job) -> None:
        self._add(job, job.pairs)

    def remove(self, job: Job) -> None:
        self._remove(job, job.pairs)

    def found(self, job: Job, pairs: Iterable[Pair]) -> None:
        """Record that counters show the job sending on these pairs.

        The pairs belong to the job until other jobs announce them."""
        if job.dividing.owner:
            return
        new = {pair for pair in pairs if pair not in self._found} - job.pairs
        if new:
            self.version += 1
            self._found.update(dict.fromkeys(new, job.id))
            self._found_of.setdefault(job.id, set()).update(new)

    def forget_found(self, job_id: JobId) -> set[Pair]:
        """Forget the pairs that were recorded as ``found`` for a removed or restarted job, and return them."""
        pairs = self._found_of.pop(job_id, set[Pair]())
        self.version += bool(pairs)
        for pair in pairs:
            del self._found[pair]
        return pairs

    def change(self, before: Job, now: Job) -> None:
        """Replace the job ``before`` by ``now``: the same registration with changed values, or another registration."""
        same_place = before.registered_at == now.registered_at
        if same_place and bool(before.dividing.owner) is bool(now.dividing.owner):
            self._remove(before, before.pairs - now.pairs)
            self._add(now, now.pairs - before.pairs)
        else:
            self.remove(before)
            self.add(now)

    def _add(self, job: Job, pairs: Set[Pair]) -> None:
        self.version += 1
        if not job.dividing.owner:
            self._alone.update(dict.fromkeys(pairs, job.id))
            return
        for pair in pairs:
            self._sharing.setdefault(pair, {})[job.id] = job.registered_at, job.id

    def _remove(self, job: Job, pairs: Set[Pair]) -> None:
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
        """Return the job that owns the pair, or None if no job announced the pair or its reverse pair.

        Jobs that report their connections own no pairs. The owner is the job that announced the pair, else the job that
        was ``found`` on the pair, else the job that announced the reverse pair."""
        src, dst = pair
        if job_id := self._alone.get(pair):
            return job_id
        opposite = self._alone.get((dst, src))
        return opposite and self._found.get(pair, opposite)

    def first(self, pair: Pair) -> JobId | None:
        """Return the job that announced the pair and does not report its connections.

        Without such a job, return the job that registered first among those that share the pair."""
        sharing = self._sharing.get(pair, {})
        return self._alone.get(pair) or min(sharing, key=sharing.__getitem__, default=None)

    def holder(self, pair: Pair) -> JobId | None:
        """Return the job that owns the rule for all packets of a pair (``tables.pins``).

        The result is the ``first`` job of the pair, else the ``first`` job of the reverse pair, whose acknowledgements
        use the pair."""
        src, dst = pair
        return self.first(pair) or self.first((dst, src))

    def near(self, pairs: Iterable[Pair]) -> Iterator[tuple[JobId, Pair]]:
        """Yield (job, pair) for each job that announced one of the pairs, or was ``found`` on it.

        The reverse pair of each pair is examined in the same way."""
        for src, dst in pairs:
            for pair in ((src, dst), (dst, src)):
                if job_id := self._alone.get(pair):
                    yield job_id, pair
                if job_id := self._found.get(pair):
                    yield job_id, pair
                for job_id in self._sharing.get(pair, ()):
                    yield job_id, pair


MANY = 20_000
"""Largest number of pairs that are examined one by one, in 5 ms."""


def pairs_within(spec: JobSpec) -> list[Pair]:
    """Return all pairs between which the job may send: between the first NICs of hosts, and within each rail.

    Call ``count_pairs`` first, since there may be more than a hundred million pairs."""
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

    The result is an upper bound for a job with more than ``MANY`` pairs that does not report its connections. It then
    includes pairs of other jobs, because examining so many pairs would take too long."""
    if not job.dividing.owner and (most := count_pairs(job.spec)) > MANY:
        return most
    return len(pairs_to_learn(job, announced))


def pairs_to_count(job: Job, announced: Announcements, known: Iterable[Pair], learning: bool) -> dict[Pair, None]:
    """Return the pairs to count for a job, in this order.

    - the ``known`` pairs;
    - their reverse pairs;
    - if ``learning``, the pairs to learn (``pairs_to_learn``).

    Pairs that another job owns are left out, because their rules count for that job. A job that reports its connections
    keeps all pairs, because its connections have rules of their own."""
    pairs = dict.fromkeys(known)
    pairs |= {(dst, src): None for src, dst in pairs}
    own = job.pairs
    if not job.dividing.owner:
        pairs = {pair: None for pair in pairs if pair in own or announced.owner(pair) in (None, job.id)}
    return pairs | dict.fromkeys(pairs_to_learn(job, announced)) if learning else pairs
