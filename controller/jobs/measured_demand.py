"""What jobs really send, as switches count it, compared with what they announced.

Owns which bytes a job is planned for. In: cumulative counters per pair of addresses (``pair_counters``), reported
iteration times, now and then the time. Out: per job a frozen ``JobDemand``.

*Payload* is bytes less the headers of every packet, so that acknowledgements count nothing. A declaration holds until
it is contradicted in ``CONTRADICTIONS`` consecutive judgements: by payload on a pair or in a direction that was not
announced (above ``UNDECLARED`` of the flow the other way, or of the job's busiest pair where there is none), or by an
announced pair that carries another amount. Amounts are judged

- per iteration, over whole iterations, where the job reports its iterations;
- else among pairs of the same phases, which send at the same time: one against the others.

From then on, and for an observed job from its start, all pairs of its addresses are counted (*learning*) until the
same ones carry traffic in ``STABLE`` consecutive judgements. What was counted is planned for until it changes again, or
agrees with the declaration.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, permutations
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.errors import InvalidInput
from controller.fabric.counter_samples import Floats, Rows
from controller.jobs.collectives import VirtualLink
from controller.jobs.messages import IterationTime
from controller.jobs.pair_counters import PairCounters, Totals
from controller.jobs.registry import Job
from controller.jobs.spec import JobId, JobSpec, Transport
from controller.jobs.subflows import Connections, Pair
from controller.memo import Memo, MemoPerKey

HEADER_BYTES: Mapping[Transport, int] = {Transport.TCP: 66, Transport.ROCE_V2: 58}
"""Of a packet that carries data. TCP: Ethernet 14, IPv4 20, TCP 20 and its timestamps 12 (RFC 7323, appendix A).
RoCEv2: Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4 (InfiniBand specification, annex A17)."""

UNDECLARED = 0.05
"""Of the flow in the other direction. An acknowledgement with three SACK blocks has 28 bytes more than
``HEADER_BYTES`` (RFC 2018), one per segment of 1,448 bytes at most: 2 %."""

INSIGNIFICANT = 0.01
"""Of the busiest pair: not learnt."""

TOLERANCE = 1.33
"""Factor by which the amount of a pair may differ from the announced one."""

AMONG_TOLERANCE = 1.67
"""The same where pairs are compared with each other over short windows."""

EQUAL = 0.08
"""Amounts closer than this (relative) are planned as equal, or closer than what is uncertain of them."""

SCALE = 0.04
"""By which the bytes of one iteration may be wrong over all pairs before they are corrected."""

LAG_S = 0.5
"""Counters of Open vSwitch lag by up to so much, at both ends of a window: its ``max-revalidator`` interval."""

CONTRADICTIONS = 2
AMONG_CONTRADICTIONS = 4
UNDECLARED_CONTRADICTIONS = 3
"""More than the parameters take that a training program sends to all ranks before its first iteration."""
STABLE = 3
SNAPSHOTS = 64
LONGEST = 6
"""Intervals of a window, if three iterations do not take longer."""
MOST = 60
"""The same of a job whose known pairs come and go."""
RETURNS = 2
FEWEST_ITERATIONS = 3
FEWEST_PACKETS = 10
"""Of the busiest pair in a window, of full size: less says nothing."""
FULL_PACKET = 1448
RELEARN_AFTER_S = 30.0
"""After learning has found nothing new, twice as long each time."""


class DemandSource(StrEnum):
    """Which bytes a job is planned for. ``declared``: its spec's, not judged yet; ``confirmed``: its spec's, and they
    agree with the counters; ``measured``: the counters'; ``learning``: none yet."""

    DECLARED = "declared"
    CONFIRMED = "confirmed"
    MEASURED = "measured"
    LEARNING = "learning"


class Measurement(NamedTuple):
    """Payload of a job's pairs in bit/s over ``window_s``. ``iteration_s``: mean duration of the iterations reported
    then, None without any."""

    pairs: tuple[Pair, ...]
    bps: Floats
    window_s: float
    iteration_s: float | None


class Difference(NamedTuple):
    """How a job differs from its spec. ``undeclared``: pairs with their payload in bit/s; ``off``: announced pairs with
    what they carry as a multiple of what was announced (of the others, where iterations are not reported)."""

    undeclared: tuple[tuple[Pair, float], ...]
    off: tuple[tuple[Pair, float], ...]


@dataclass(frozen=True, slots=True, eq=False)
class JobDemand:
    """``virtual_links``: what the job is planned for. ``per_iteration``: their bytes are of one iteration, else of one
    second. ``counted``: pairs that are counted besides them. ``learning``: these are all pairs of its addresses.
    ``silent``: the connections that the job has reported carry nothing yet.
    ``declared``: bytes of one iteration per announced pair. ``undeclared_fraction``: of the measured payload."""

    source: DemandSource
    virtual_links: tuple[VirtualLink, ...]
    declared: Mapping[Pair, int]
    per_iteration: bool = True
    counted: frozenset[Pair] = frozenset()
    learning: bool = False
    silent: bool = False
    measurement: Measurement | None = None
    difference: Difference | None = None
    undeclared_fraction: float = 0.0

    @property
    def pairs(self) -> frozenset[Pair]:
        """Those that it is planned for."""
        return frozenset((link.src_ip, link.dst_ip) for link in self.virtual_links)


class MeasuredDemand:
    """``demands``: of every job, another mapping whenever one has changed. ``interval_s``: between counters.
    ``max_learning_rules``: pairs that are counted for learning at one time, over all jobs."""

    def __init__(self, interval_s: float, max_learning_rules: int) -> None:
        self.counters = PairCounters()
        self.demands: Mapping[JobId, JobDemand] = MappingProxyType({})
        self._interval_s = interval_s
        self._max_learning_rules = max_learning_rules
        self._jobs: dict[JobId, _Watched] = {}
        self._kept: list[tuple[Pair, ...]] = []

    def refuse_unlearnable(self, spec: JobSpec) -> None:
        """Raises ``InvalidInput`` for an observed job with more pairs than may be counted."""
        pairs = len(pairs_within(spec))
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
        """These are the jobs that there are. ``measured``: as it was before a restart."""
        if self._jobs.keys() == jobs.keys():
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
            job_id: self._jobs.get(job_id)
            or _Watched(job, self.counters, self._interval_s, now, before.get(job_id, ()))
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
        for watched in self._jobs.values() if self.counters.running else ():
            watched.judge(self._totals(watched), suspicious, now)
        self._publish(now)

    def _totals(self, watched: _Watched) -> Totals:
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
        """Grants learning in the order of the jobs as far as rules are left."""
        left = self._max_learning_rules
        for watched in self._jobs.values():
            wanted = watched.wants_to_count
            watched.allow_learning(wanted <= left, now if self.counters.running else None)
            left -= wanted if wanted <= left else 0
        demands = {job_id: watched.demand for job_id, watched in self._jobs.items()}
        if list(demands.items()) != list(self.demands.items()):
            self.demands = MappingProxyType(demands)
        pairs = [watched.pairs for watched in self._jobs.values()]
        if list(map(id, pairs)) != list(map(id, self._kept)):
            self._kept = pairs
            self.counters.keep(set(chain.from_iterable(pairs)))


def pairs_within(spec: JobSpec) -> list[Pair]:
    """All pairs of addresses that the job's transfers can have: of first NICs, and within each rail."""
    nics = (spec.endpoints, *(rail.endpoints for rail in spec.rails))
    return [pair for addresses in nics for pair in permutations(sorted(set(addresses)), 2)]


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


Flags = NDArray[np.bool_]


class _Snapshot(NamedTuple):
    """``counted``: pairs of which there are counters."""

    now: float
    totals: Totals

    @property
    def counted(self) -> int:
        return int(np.isfinite(self.totals.at).sum())

    def of(self, rows: Rows) -> _Snapshot:
        """Of other pairs, with their places here; -1 for pairs that are not here."""
        at, *totals = (np.append(values, np.nan)[rows] for values in self.totals)
        return _Snapshot(self.now, Totals(at, *map(np.nan_to_num, totals)))


@dataclass(slots=True, eq=False)
class _Runs:
    """In how many consecutive judgements each pair was wrong."""

    counts: Floats
    needed: int

    def add(self, wrong: Flags, again: Flags | bool = True) -> Flags:
        """Which pairs have been wrong often enough. ``again``: also since the judgement before."""
        self.counts = np.where(wrong, self.counts + again, 0)
        lasting: Flags = self.counts >= self.needed
        return lasting


@dataclass(slots=True, eq=False)
class _Judgement:
    """Of the pairs of a job, in their order: what has lastingly been wrong. ``clean``: nothing is wrong at all."""

    undeclared: Flags
    off: Flags
    ratio: Floats
    clean: bool

    @property
    def differs(self) -> bool:
        return bool(self.undeclared.any() or self.off.any())


class _Watched:
    """One job. ``pairs``: those whose counters are looked at. ``demand``: what is known. ``owners``: the job that has
    announced a pair, or the opposite one. ``holders``: the one that has the rule for all of its packets."""

    def __init__(
        self, job: Job, counters: PairCounters, interval_s: float, now: float, measured: tuple[VirtualLink, ...]
    ) -> None:
        self._rows = defaultdict[str, Memo[Sequence[Pair], str, int, Rows]](lambda: Memo(counters.rows))
        self.owners: Mapping[Pair, JobId] = {}
        self.holders: Mapping[Pair, JobId] = {}
        self._job = job
        self._interval_s = interval_s
        self._header_bytes = HEADER_BYTES[job.transport]
        self._durations: deque[tuple[float, float]] = deque(maxlen=64)
        self._held: dict[Pair, float] | None = None
        self._held_per_iteration = False
        self._agreed = False
        self._differing: Difference | None = None
        self._wants_learning = job.spec.observed
        self._learning = False
        self._heard = self._silent = False
        self._stable = 0
        self._agreeing = 0
        self._seen: set[Pair] = set()
        self._returns = 0
        self._longest = LONGEST
        self._hold_next = False
        self._off_scale = 0
        self._relearn_at = now
        self._relearn_after_s = RELEARN_AFTER_S
        self._declared: dict[Pair, int] = {}
        self._profile: dict[Pair, list[tuple[int, int]]] = {}
        for link in job.virtual_links:
            pair = link.src_ip, link.dst_ip
            self._declared[pair] = self._declared.get(pair, 0) + link.bytes
            self._profile.setdefault(pair, []).append((link.phase, link.bytes))
        self._measurement: Measurement | None = None
        self._undeclared_fraction = 0.0
        self._links = job.virtual_links
        if measured:
            self._links, self._held, self._wants_learning = measured, {}, False
            for link in measured:
                self._held[link.src_ip, link.dst_ip] = self._held.get((link.src_ip, link.dst_ip), 0.0) + link.bytes
            self._seen = set(self._held)
        self.pairs: tuple[Pair, ...] = ()
        self._snapshots: deque[_Snapshot] = deque(maxlen=SNAPSHOTS)
        self._count_pairs()
        self.demand = self._state()

    @property
    def reports_as(self) -> str:
        """The job's id if it reports its connections, else empty."""
        return self._job.dividing.owner

    def rows(self, job: str, version: int) -> Rows:
        """Of its pairs in the counters."""
        return self._rows[job](self.pairs, job, version)

    @property
    def connections(self) -> Connections:
        """That it has reported."""
        return self._job.dividing.connections

    # ---- what is counted

    @property
    def wants_to_count(self) -> int:
        """Rules that learning takes, if it is wanted."""
        return len(self._all_pairs()) if self._wants_learning else 0

    def allow_learning(self, allowed: bool, now: float | None) -> None:
        """``now``: None while switches were not polled yet, so that what rules counted before is not known."""
        learning = self._wants_learning and allowed
        if learning != self._learning:
            self._learning = learning
            self._stable = 0
            self._count_pairs()
            if learning and not self._declared and self._held is None and now is not None:
                none = np.zeros(len(self.pairs))
                self._snapshots.append(_Snapshot(now, Totals(none + now, none, none)))
            self.demand = self._state()

    def connections_changed(self, job: Job) -> None:
        self._job = job
        self._wants_learning = (job.spec.observed and self._held is None) or self._wants_learning
        self._count_pairs()
        self.demand = self._state()

    def _all_pairs(self) -> Sequence[Pair]:
        """That no other job has announced; of a job that reports its connections those that have any."""
        mine = self._job.id
        if self._job.dividing.owner:
            return list(self._job.dividing.connections)
        return [pair for pair in pairs_within(self._job.spec) if self.owners.get(pair, mine) == mine]

    def _count_pairs(self) -> None:
        """From now on these pairs are looked at, from the next counters on."""
        known = {**self._declared, **dict.fromkeys(self._seen), **(self._held or {})}
        wanted = dict.fromkeys((*known, *((dst, src) for src, dst in known)))
        if self._learning:
            wanted |= dict.fromkeys(self._all_pairs())
        before, self.pairs = self.pairs, tuple(wanted)
        place = {pair: number for number, pair in enumerate(self.pairs)}
        self._opposite = np.array([place.get((dst, src), -1) for src, dst in self.pairs], np.int64)
        seen = {pair: number for number, pair in enumerate(before)}
        rows = np.array([seen.get(pair, -1) for pair in self.pairs], np.int64)
        self._snapshots = deque((snapshot.of(rows) for snapshot in self._snapshots), maxlen=SNAPSHOTS)
        self._amounts = self._of_pairs(self._declared)
        self._groups = self._grouped()
        count = len(self.pairs)
        self._undeclared_runs = _Runs(np.zeros(count), UNDECLARED_CONTRADICTIONS)
        self._off_runs = _Runs(np.zeros(count), CONTRADICTIONS)
        self._among_runs = _Runs(np.zeros(count), AMONG_CONTRADICTIONS)
        self._changed_runs = _Runs(np.zeros(count), CONTRADICTIONS)
        self._count_besides()

    def _count_besides(self) -> None:
        planned = {(link.src_ip, link.dst_ip) for link in self._links}
        self._besides = frozenset(self.pairs) - planned - {(dst, src) for src, dst in planned}

    def _of_pairs(self, amounts: Mapping[Pair, float]) -> Floats:
        return np.array([amounts.get(pair, 0.0) for pair in self.pairs])

    def _grouped(self) -> Rows:
        """A number per pair, the same for pairs that send at the same times: in the same phases, in the same
        proportions."""
        numbers: dict[object, int] = {}
        groups = []
        for pair in self.pairs:
            total = self._declared.get(pair, 0)
            profile = tuple((phase, round(10 * size / total)) for phase, size in self._profile.get(pair, ()))
            groups.append(numbers.setdefault(profile, len(numbers)))
        return np.array(groups)

    # ---- judgement

    def reported(self, durations_s: Iterable[float], now: float) -> None:
        self._durations.extend((now, duration) for duration in durations_s)

    def judge(self, totals: Totals, suspicious: frozenset[str], now: float) -> None:
        self._snapshots.append(_Snapshot(now, totals))
        window = self._window(now)
        if window is None:
            return
        bps, window_s = self._payload_bps(*window)
        iterations = self._iterations(*window, bps)
        iteration_s = window_s / iterations if iterations else None
        if 0.125 * bps.max(initial=0.0) * window_s < FEWEST_PACKETS * FULL_PACKET:
            self._suspect(suspicious, now)
            self._silent = bool(self.reports_as) and not self._heard
            self.demand = self._state()
            return
        self._heard, self._silent = True, False
        self._measurement = Measurement(self.pairs, bps, window_s, iteration_s)
        whole = window_s >= FEWEST_ITERATIONS * self._iteration_s(now)
        judgement = self._against_spec(bps, window_s, iterations, whole)
        undeclared = bps[self._amounts == 0].sum() if self._declared else 0.0
        self._undeclared_fraction = float(undeclared / bps.sum())
        if self._held is None:
            self._judge_spec(judgement, whole)
        elif whole:
            self._judge_held(judgement)
        if judgement.clean or not self._declared:
            self._suspect(suspicious, now)
        if self._learning:
            self._learn(now, whole)
        if self._agreeing >= STABLE:
            self._return_to_spec()
        self.demand = self._state()

    def _judge_spec(self, judgement: _Judgement, whole: bool) -> None:
        if not self._declared:
            return
        if judgement.clean:
            if whole:
                self._agreed = True
                self._differing = None
        elif judgement.differs:
            self._agreed = False
            self._differing = self._difference(judgement)
            self._hold()
            self._wants_learning = True

    def _judge_held(self, judgement: _Judgement) -> None:
        """Planned for what was counted: it may change, and it may agree with the spec again."""
        if self._declared:
            self._agreeing = self._agreeing + 1 if judgement.clean else 0
            if judgement.differs:
                self._differing = self._difference(judgement)
        if self._hold_next:
            self._hold_next = False
            self._hold()
        elif self._learning:
            return
        elif self._changed():
            self._follow()
        else:
            self._correct_scale()

    def _follow(self) -> None:
        """Learn anew if pairs carry traffic that are not known. Known pairs that came and went twice will do so again:
        the job's iterations are longer than its window. Otherwise count from now on."""
        assert self._measurement is not None
        assert self._held is not None
        carrying = set(self._carrying(self._measurement.bps))
        if not carrying <= self._seen:
            self._wants_learning, self._longest, self._returns = True, LONGEST, 0
            return
        self._hold_next = True
        self._returns += bool(carrying - self._held.keys())
        if self._returns > RETURNS:
            self._longest = min(2 * self._longest, MOST)
        else:
            self._snapshots = deque([self._snapshots[-1]], maxlen=SNAPSHOTS)

    def _return_to_spec(self) -> None:
        """What is counted agrees with the spec again."""
        self._held, self._differing, self._agreed = None, None, True
        self._agreeing = 0
        self._wants_learning = False
        self._links = self._job.virtual_links
        self._count_pairs()

    def _suspect(self, suspicious: frozenset[str], now: float) -> None:
        """An address of the job sends what is not announced: to whom?"""
        if self._wants_learning or now < self._relearn_at or suspicious.isdisjoint(self._job.addresses):
            return
        self._wants_learning = True
        self._relearn_after_s *= 2

    def _learn(self, now: float, whole: bool) -> None:
        """Hold what carries traffic until it has been the same for long enough. ``whole``: over three iterations."""
        before = frozenset(self._held or ())
        if self._held is not None or not self._declared:
            self._hold()
        self._stable = self._stable + whole if frozenset(self._held or ()) == before else 0
        if self._stable >= STABLE:
            self._wants_learning = False
            self._relearn_at = now + self._relearn_after_s

    def _carrying(self, bps: Floats) -> list[Pair]:
        """Pairs with traffic. An opposite direction is one only beyond what acknowledgements can be taken for."""
        opposite = np.where(self._opposite >= 0, bps[self._opposite], 0.0)
        wanted = (bps > INSIGNIFICANT * bps.max(initial=0.0)) & (bps > UNDECLARED * opposite)
        return [self.pairs[number] for number in np.flatnonzero(wanted)]

    def _hold(self) -> None:
        """Plan for what is measured from now on, if it differs from what is held."""
        measured = self._measurement
        assert measured is not None
        carrying = frozenset(self._carrying(measured.bps))
        scale = 0.125 * (measured.iteration_s or 1.0)
        rates = zip(self.pairs, measured.bps.tolist(), strict=True)
        equal = max(EQUAL, 2 * LAG_S / measured.window_s)
        amounts = levelled({pair: scale * bps for pair, bps in rates if pair in carrying}, equal)
        per_iteration = measured.iteration_s is not None
        held = self._held or {}
        same = held.keys() == amounts.keys() and per_iteration == self._held_per_iteration
        if not same or any(abs(amounts[pair] - held[pair]) > EQUAL * held[pair] for pair in held):
            self._held, self._held_per_iteration = amounts, per_iteration
            self._seen |= amounts.keys()
            self._links = self._measured_links(self._held)
            self._count_besides()

    def _changed(self) -> bool:
        """What is counted has lastingly other proportions than what is held."""
        assert self._measurement is not None
        bps = self._measurement.bps
        held = self._of_pairs(self._held or {})
        own = held > 0
        if not own.any():
            return False
        scale = np.median(bps[own] / held[own])
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(own, bps / (held * scale), 1.0)
        opposite = np.where(self._opposite >= 0, bps[self._opposite], 0.0)
        new = ~own & (bps > UNDECLARED * bps.max()) & (bps > UNDECLARED * opposite)
        wrong = new | ~((ratio > 1 / TOLERANCE) & (ratio < TOLERANCE))
        return bool(self._changed_runs.add(wrong).any())

    def _correct_scale(self) -> None:
        """The first windows are short: all amounts of an iteration can be wrong by one factor, which longer windows
        show. It does not change the plan, but the ideal time."""
        measured, held = self._measurement, self._held
        if not held or measured is None or measured.iteration_s is None:
            return
        own = self._of_pairs(held) > 0
        factor = float(0.125 * measured.iteration_s * measured.bps[own].sum() / sum(held.values()))
        wrong = abs(factor - 1) > max(SCALE, LAG_S / measured.window_s) or not self._held_per_iteration
        self._off_scale = self._off_scale + 1 if wrong else 0
        if factor > 0 and self._off_scale >= CONTRADICTIONS:
            self._held, self._held_per_iteration = {pair: factor * amount for pair, amount in held.items()}, True
            self._links = self._measured_links(self._held)
            self._off_scale = 0

    def _against_spec(self, bps: Floats, window_s: float, iterations: float | None, whole: bool) -> _Judgement:
        """What lastingly differs from the spec. ``iterations``: in the window, None where that is not known. Before
        the window is ``whole`` a pair may not have had its turn: amounts are not judged yet."""
        own = self._amounts > INSIGNIFICANT * self._amounts.max(initial=0.0)
        busiest = bps.max(initial=0.0)
        opposite = np.where(self._opposite >= 0, bps[self._opposite], 0.0)
        reference = np.where(opposite > INSIGNIFICANT * busiest, opposite, busiest)
        undeclared = (self._amounts == 0) & (bps > UNDECLARED * reference) & (bps > INSIGNIFICANT * busiest)
        recent, _ = self._payload_bps(self._snapshots[-2], self._snapshots[-1])
        lasting = self._undeclared_runs.add(undeclared, recent > INSIGNIFICANT * busiest)
        if not whole:
            return _Judgement(lasting, own & False, np.ones(len(bps)), not undeclared.any())
        if iterations is not None:
            ratio = _ratios(0.125 * bps * window_s / iterations, self._amounts)
            slack = TOLERANCE + 0.5 / iterations
            runs = self._off_runs
        else:
            ratio, slack, runs = self._among(recent, own), AMONG_TOLERANCE, self._among_runs
        off = own & ~((ratio > 1 / slack) & (ratio < slack))
        clean = not (undeclared.any() or off.any())
        return _Judgement(lasting, runs.add(off), ratio, clean)

    def _among(self, bps: Floats, own: Flags) -> Floats:
        """What each pair carries, as a multiple of what the others of its group do per announced byte; 1 where the
        group says nothing."""
        per_byte = _ratios(bps, self._amounts)
        ratio = np.ones(len(bps))
        for group in np.unique(self._groups[own]):
            members = own & (self._groups == group)
            carrying = per_byte[members & (bps > 0)]
            if len(carrying):
                ratio[members] = per_byte[members] / np.median(carrying)
        return ratio

    def _difference(self, judgement: _Judgement) -> Difference:
        assert self._measurement is not None

        def of_pairs(flags: Flags, values: Floats) -> tuple[tuple[Pair, float], ...]:
            return tuple(sorted((self.pairs[number], float(values[number])) for number in np.flatnonzero(flags)))

        undeclared = of_pairs(judgement.undeclared, self._measurement.bps)
        return Difference(undeclared, of_pairs(judgement.off, judgement.ratio))

    # ---- windows

    def _iterations(self, start: _Snapshot, end: _Snapshot, bps: Floats) -> float | None:
        """In the window: by their mean duration, or by how many were reported in it, whichever makes more of what is
        planned for come true. A job that pauses takes fewer than by their duration; reports come late and several at
        once. None where they are not reported."""
        durations = [duration for at, duration in self._durations if start.now < at <= end.now]
        if not durations:
            return None
        by_duration = (end.now - start.now) * len(durations) / sum(durations)
        planned = sum(link.bytes for link in self._links)
        total = 0.125 * bps.sum() * (end.now - start.now)
        if not planned or not total:
            return by_duration
        return min((by_duration, float(len(durations))), key=lambda count: _factor(float(total / planned / count)))

    def _iteration_s(self, now: float) -> float:
        """Mean duration of the iterations that were reported lately; 0 without any."""
        lately = [duration for at, duration in self._durations if at > now - 8 * self._interval_s]
        return sum(lately) / len(lately) if lately else 0.0

    def _window(self, now: float) -> tuple[_Snapshot, _Snapshot] | None:
        """Two snapshots with counters of the same pairs, at least two intervals and, where they are reported, three
        iterations apart, and not long ago: where least is uncertain. Without so many iterations the longest."""
        latest = self._snapshots[-1]
        iteration_s = self._iteration_s(now)
        intervals_s = 1.9 * self._interval_s
        shortest_s = max(intervals_s, FEWEST_ITERATIONS * iteration_s)
        longest_s = max(self._longest * self._interval_s, 2 * shortest_s)
        starts = [
            start
            for start in self._snapshots
            if intervals_s <= latest.now - start.now <= longest_s and start.counted == latest.counted
        ]
        if not starts:
            return None
        whole = [start for start in starts if latest.now - start.now >= shortest_s]
        if not iteration_s or not whole:
            return starts[0], latest

        def error(start: _Snapshot) -> float:
            """Relative: by parts of iterations, and by counters that lag."""
            window_s = latest.now - start.now
            iterations = window_s / iteration_s
            return abs(iterations - round(iterations)) / iterations + 0.5 * LAG_S / window_s

        return min(whole, key=error), latest

    def _payload_bps(self, start: _Snapshot, end: _Snapshot) -> tuple[Floats, float]:
        """0 for pairs that were not counted both times."""
        a, b = start.totals, end.totals
        counted = b.bytes - a.bytes - self._header_bytes * (b.packets - a.packets)
        with np.errstate(invalid="ignore", divide="ignore"):
            bps = 8 * counted / (b.at - a.at)
        return np.where(np.isfinite(bps), np.maximum(bps, 0.0), 0.0), end.now - start.now

    # ---- what is known

    def _state(self) -> JobDemand:
        if self._held is not None:
            source = DemandSource.MEASURED
        elif not self._declared:
            source = DemandSource.LEARNING
        else:
            source = DemandSource.CONFIRMED if self._agreed else DemandSource.DECLARED
        return JobDemand(
            source,
            self._links,
            self._declared,
            self._held is None or self._held_per_iteration,
            self._besides,
            self._learning,
            self._silent,
            self._measurement,
            self._differing,
            self._undeclared_fraction,
        )

    def _measured_links(self, held: Mapping[Pair, float]) -> tuple[VirtualLink, ...]:
        """Where only amounts differ, the phases of the spec with other amounts; else one phase."""
        if held.keys() <= self._declared.keys():
            links = [
                VirtualLink(*pair, phase, max(1, round(amount * size / self._declared[pair])))
                for pair, amount in held.items()
                for phase, size in self._profile[pair]
            ]
        else:
            links = [VirtualLink(*pair, 0, max(1, round(amount))) for pair, amount in held.items()]
        return tuple(sorted(links, key=lambda link: (link.src_ip, link.dst_ip, link.phase)))


def levelled(amounts: Mapping[Pair, float], equal: float) -> dict[Pair, float]:
    """Amounts of nearly the same size made equal: to the mean of those within a share ``equal`` of the largest."""
    level: dict[Pair, float] = {}
    group: list[Pair] = []

    def close() -> None:
        mean = sum(amounts[pair] for pair in group) / max(1, len(group))
        level.update(dict.fromkeys(group, mean))
        group.clear()

    for pair in sorted(amounts, key=lambda pair: -amounts[pair]):
        if group and amounts[pair] < (1 - equal) * amounts[group[0]]:
            close()
        group.append(pair)
    close()
    return level


def _ratios(measured: Floats, amounts: Floats) -> Floats:
    """1 where nothing is announced."""
    ratios: Floats = np.where(amounts > 0, measured / np.where(amounts > 0, amounts, 1.0), 1.0)
    return ratios


def _factor(ratio: float) -> float:
    """How far a ratio is from 1, up or down."""
    return max(ratio, 1 / ratio) if ratio > 0 else float("inf")


class MeasuredJobs:
    """Derives the jobs with what they are planned for, and what is counted besides. A pair belongs to the job that has
    announced it, else to the first that was found to use it."""

    def __init__(self) -> None:
        self._of_job = MemoPerKey[JobId, Job, tuple[VirtualLink, ...], frozenset[Pair], bool, bool, Job](_measured_job)
        self._without_conflicts = Memo(_without_conflicts)

    def __call__(self, jobs: Mapping[JobId, Job], demands: Mapping[JobId, JobDemand]) -> Mapping[JobId, Job]:
        planned = {job_id: (job, demands[job_id]) for job_id, job in jobs.items()}
        measured = self._of_job(
            {
                job_id: (job, demand.virtual_links, demand.counted, demand.per_iteration, demand.silent)
                for job_id, (job, demand) in planned.items()
            }
        )
        return self._without_conflicts(jobs, measured)


def _measured_job(
    job: Job, virtual_links: tuple[VirtualLink, ...], counted: frozenset[Pair], per_iteration: bool, silent: bool
) -> Job:
    if virtual_links is job.virtual_links:
        return replace(job, counted=counted, silent=silent) if counted or silent else job
    pairs = frozenset((link.src_ip, link.dst_ip) for link in virtual_links)
    return replace(
        job, virtual_links=virtual_links, pairs=pairs, counted=counted, per_iteration=per_iteration, silent=silent
    )


def _without_conflicts(announced: Mapping[JobId, Job], measured: Mapping[JobId, Job]) -> Mapping[JobId, Job]:
    if all(job.pairs <= announced[job_id].pairs for job_id, job in measured.items()):
        return measured
    alone = {job_id: job for job_id, job in measured.items() if not job.dividing.owner}
    owner = {pair: job_id for job_id in alone for pair in announced[job_id].pairs}
    for job_id, job in alone.items():
        for pair in job.pairs:
            owner.setdefault(pair, job_id)
    return {
        job_id: _measured_job(job, _owned(job, owner), job.counted, job.per_iteration, job.silent)
        for job_id, job in measured.items()
    }


def _owned(job: Job, owner: Mapping[Pair, JobId]) -> tuple[VirtualLink, ...]:
    links = tuple(link for link in job.virtual_links if job.dividing.owner or owner[link.src_ip, link.dst_ip] == job.id)
    return links if len(links) < len(job.virtual_links) else job.virtual_links
