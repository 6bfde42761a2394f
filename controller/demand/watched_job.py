"""Virtual links that one job is planned with, and the pairs that are counted for it.

An announcement is valid until it is contradicted (``judgement``). From then on, the controller *learns* the job: it
counts all pairs of the job's addresses, until ``STABLE`` consecutive judgements find traffic on the same pairs. An
observed job, which announces no traffic, is learnt from its start. A small new job is learnt *early*, until its
announcement is confirmed or contradicted.

The amount of a pair is known only after a window (``payload_windows``). Until then, ``FirstBytes`` finds the sending
pairs. Pairs that ``FirstBytes`` finds at the same time are assumed to send equal amounts, in a phase of their own.

Measured links are *held*: the job is planned with them until they change, or agree with the announcement again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from math import inf

import numpy as np

from controller.demand.job_demand import DemandSource, Difference, Finding, JobDemand, Measurement
from controller.demand.judgement import Judge, Judgement
from controller.demand.pair_counters import PairCounters, Totals
from controller.demand.payload_windows import PayloadWindows, Spans, Window
from controller.demand.traffic_patterns import MOST_MIXED, Pattern, TrafficPatterns, levelled
from controller.fabric.counter_samples import Rows
from controller.fabric.link_load import LAG_S
from controller.jobs.job import Announcements, Job, count_pairs, count_to_learn, pairs_to_count
from controller.shared_map import Memo
from signalbox.jobs.collectives import VirtualLink, VirtualLinks
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.subflows import Connections, Pair

FEWEST_BYTES = 10 * 1448
"""Smallest payload, in bytes between two polls or in a window, that shows that a job sends on a pair.

The value is ten full segments; a smaller payload may belong to a handshake."""

LEAST_PAYLOAD = 64
"""Smallest mean payload of a pair's packets, in bytes, that shows that the packets are not only acknowledgements.

An acknowledgement with three SACK blocks has 28 bytes (RFC 2018). The acknowledged traffic may not be counted yet, so
both directions cannot be compared."""

LEAST_PART = 0.1
"""Smallest rate that shows that a pair is used, as a fraction of the highest rate of the job's pairs so far.

Lagging counters show only a fifth of a rate at first."""

APART_S = 1.25
"""Longest time in seconds between the discoveries of two pairs that are put into the same phase.

All switches are polled together. The pairs of one collective are therefore found within one polling interval, plus the
time by which counters lag."""


EQUAL = 0.08
"""Relative difference below which the amounts of several pairs are planned as equal.

If the measurement error of the amounts is larger than this difference, the error is the limit."""

FEW_PAIRS = 64
"""Largest number of pairs of hosts of a job that is learnt early.

Traffic that such a job does not announce is found as early as the traffic of an observed job."""

STABLE = 3
"""Number of consecutive judgements with the same pairs after which learning ends."""
RETURNS = 2
"""Number of times that the traffic of known pairs may change before windows are lengthened.

A change is that known pairs send again after a pause, or that their proportions change."""
RELEARN_AFTER_S = 30.0
"""Shortest time in seconds from the end of learning until the job is learnt again; doubled with each repetition."""


class WatchedJob:
    """Measured traffic of one job."""

    def __init__(
        self,
        job: Job,
        counters: PairCounters,
        interval_s: float,
        now: float,
        measured: VirtualLinks | None,
        announced: Announcements,
    ) -> None:
        """Start watching.

        ``measured``: links planned before a restart; None for a new job. ``announced``: pairs of all jobs, this one
        included."""
        self._rows = defaultdict[str, Memo[Sequence[Pair], str, int, Rows]](lambda: Memo(counters.rows))
        self._to_learn = Memo(count_to_learn)
        self._announced = announced
        self.job = job
        """The registered job, with its connections."""
        self._interval_s = interval_s
        self._first = FirstBytes(job.header_bytes)
        self._profile = job.virtual_links.in_phases
        self._declared = job.virtual_links.bytes_of
        self._patterns = TrafficPatterns(job.virtual_links, measured or VirtualLinks(), now)
        self._mixed = self._agreeing = self._stable = self._returns = 0
        self._seen = set(self._held or ())
        self._measurement: Measurement | None = None
        self._differing: Difference | None = None
        self._pace: Finding | None = None
        self._agreed = self._heard = self._silent = self._learning = self._hold_next = False
        self._wants_learning = job.spec.observed and not measured
        self.early = False
        """Whether the job is to be learnt before its announcement is confirmed or contradicted."""
        self._began = self._relearn_at = now
        self._relearn_after_s = RELEARN_AFTER_S
        self.pairs: tuple[Pair, ...] = ()
        """Pairs whose counters are evaluated."""
        self._latest_judge: Judge | None = None
        self._made_windows: PayloadWindows | None = None
        self._count_pairs()
        if measured is None and self._declared:
            self.early = len(self.pairs) < count_pairs(job.spec) <= FEW_PAIRS
        self.demand = self._state()
        """Demand of the job after the latest judgement or change."""

    @property
    def reports_as(self) -> str:
        """Id of the job if it reports its connections, else empty."""
        return self.job.dividing.owner

    @property
    def connections(self) -> Connections:
        """Connections that the job has reported."""
        return self.job.dividing.connections

    def rows(self, job: str, version: int) -> Rows:
        """Return the result of ``PairCounters.rows`` for the job's pairs."""
        return self._rows[job](self.pairs, job, version)

    @property
    def _held(self) -> Mapping[Pair, float] | None:
        return self._patterns.held

    # ---- counted pairs

    @property
    def learns(self) -> bool:
        """Whether the job is being learnt or is to be learnt."""
        return self.early or self._wants_learning or self._learning

    @property
    def wants_to_count(self) -> int:
        """Number of rules that learning the job needs; 0 if the job need not be learnt."""
        wants = self.early or self._wants_learning
        return self._to_learn(self._announced.version, self.job, self._announced) if wants else 0

    def allow_learning(self, allowed: bool) -> bool:
        """Allow or forbid to learn the job, and return whether learning begins now.

        Early learning that was forbidden once is never allowed again."""
        self.early &= allowed
        learning = (self.early or self._wants_learning) and allowed
        if learning == self._learning:
            return False
        self._learning = learning
        self._first = FirstBytes(self.job.header_bytes)
        self._stable = 0
        self._count_pairs()
        self.demand = self._state()
        return learning

    def update(self, job: Job) -> None:
        """Replace the job by ``job``, whose spec describes the same traffic.

        An observed job that reports its connections is learnt from the counters of these connections. Such a job is
        learnt again when it reports connections between hosts that had no connections before."""
        was, self.job = self.job, job
        if self.connections != was.dividing.connections:
            if job.spec.observed and (self._held is None or not self.connections.keys() <= set(self.pairs)):
                self._wants_learning = True
            self._count_pairs()
        elif was.spec.provisional == job.spec.provisional:
            return
        self.demand = self._state()

    def count_from_now(self, totals: Totals, now: float) -> None:
        """Begin now to count the pairs that have no recent counters for this job.

        ``totals``: counts so far, which belong to other jobs. Must not be called before switches were polled."""
        if self._heard or not self._declared:  # a new job may lack rules for its declared pairs
            self._windows.count_from_now(totals, now)
        self._first.begin(totals, now, now - 2 * self._interval_s)

    def others_announced(self) -> None:
        """Choose again which pairs to count, after other jobs announced other pairs or were found on other pairs."""
        before = self.pairs
        self._count_pairs()
        if self.pairs is not before:
            self._measurement = None
            self.demand = self._state()

    def _count_pairs(self) -> None:
        known = {**self._declared, **dict.fromkeys(self._seen), **(self._held or {})}
        wanted = pairs_to_count(self.job, self._announced, known, self._learning)
        if wanted.keys() != set(self.pairs):
            before = {pair: number for number, pair in enumerate(self.pairs)}
            self.pairs = tuple(wanted)
            rows = np.array([before.get(pair, -1) for pair in self.pairs], np.int64)
            if self._made_windows:
                self._made_windows.of_pairs(rows)
            self._first.of_pairs(rows)
        self._count_besides()

    def _count_besides(self) -> None:
        planned = self._patterns.links.pairs
        self._besides = frozenset(pair for pair in self.pairs if planned.isdisjoint((pair, pair[::-1])))

    def search(self, totals: Totals, now: float) -> bool:
        """Evaluate the latest counters of a job that learns, and return whether they show unknown pairs."""
        iteration_s = (self._measurement and self._measurement.iteration_s) or 1.0
        known = self.demand.virtual_links.pairs
        if not self._learning or not self._first.search(self.pairs, totals, known, iteration_s, now):
            return False
        if self.job.spec.observed:
            self._windows.start_anew()  # earlier counters do not show how much these pairs send
        self.demand = self._state()
        return True

    # ---- judgement

    @property
    def _windows(self) -> PayloadWindows:
        """Windows of the job's counters, made at first use: most jobs are registered before they send."""
        if self._made_windows is None:
            self._made_windows = PayloadWindows(self._interval_s, self.job.header_bytes)
        return self._made_windows

    @property
    def _judge(self) -> Judge:
        """Comparison of the traffic on the job's pairs with its announcement.

        The ``Judge`` is made at first use, because a job whose hosts are unknown sends nothing that could be judged."""
        if self._latest_judge is None or self._latest_judge.pairs is not self.pairs:
            self._latest_judge = Judge(self.pairs, self._profile, self._latest_judge)
        return self._latest_judge

    def reported(self, iterations: Iterable[IterationTime], now: float) -> None:
        """Record the times of iterations that the job reported."""
        self._windows.reported(iterations, now)

    def interrupted(self) -> None:
        """Drop the counts so far, because some pairs were not counted for a time, or had no path.

        The counts of such pairs cannot be compared with the counts of other pairs."""
        self._windows.interrupted()
        self._measurement = None
        self.demand = self._state()

    def judge(self, totals: Totals, suspicious: frozenset[str], now: float) -> None:
        """Judge the counters so far. ``suspicious``: addresses that send more than is announced for them."""
        self.search(totals, now)
        # Readings from before the job began belong to the rule of another job: the job itself may have no rule yet.
        self._windows.add(totals._replace(at=np.where(totals.at > self._began, totals.at, np.nan)), now)
        spans = self._windows.spans(now)
        if spans is None:
            return
        per_iteration = self._patterns.current.per_iteration
        planned = sum(link.bytes for link in self._patterns.sending) if per_iteration else 0
        announced = planned if self._held is None else 0  # held amounts are derived from windows themselves
        window = self._windows.window(announced, now)
        if window is None:
            return
        sends = window.bytes.max(initial=0.0) >= FEWEST_BYTES
        if self.early:
            self._first.forget_silent(self._judge.carrying(window.bps) if sends else (), window.start)
        if not sends:
            self._learn_again_if_suspicious(suspicious, now)
            if self._measurement:
                self._measurement = Measurement(self.pairs, window.bps, window.seconds, window.iteration_s)
            self._silent = bool(self.reports_as) and not self._heard
            self._pace = Finding.SILENT if self._heard else None
        else:
            self._heard, self._silent = True, False
            self._pace = Finding.SLOWER if self._windows.overdue(planned, now) else None
            self._judge_traffic(window, self._windows.steady(window, announced, now), spans, suspicious, now)
        self.demand = self._state()

    def _judge_traffic(
        self, window: Window, steady: Window, spans: Spans, suspicious: frozenset[str], now: float
    ) -> None:
        """Judge a window with traffic.

        ``window``: latest traffic, which shows changes. ``steady``: more exact amounts."""
        undeclared = self._judge.undeclared_fraction(window.bps)
        self._measurement = Measurement(self.pairs, steady.bps, steady.seconds, steady.iteration_s, undeclared)
        if self._recognise(window):
            return
        judgement = self._judge.against_spec(window, spans)
        if self._held is None:
            self._judge_spec(judgement, window)
            if self._agreed and judgement.confirms and window.whole:
                self._patterns.saw_current(self._judge, window, now)
        elif window.whole:
            self._judge_held(judgement, window, steady, now)
        if judgement.clean or not self._declared:
            self._learn_again_if_suspicious(suspicious, now)
        if self._learning and not self.early:
            self._learn(window, now)
        if self._agreeing >= STABLE:
            self._return_to_spec()

    def _judge_spec(self, judgement: Judgement, window: Window) -> None:
        if not self._declared:
            return
        if judgement.confirms:
            self._agreed, self.early = True, False
            self._differing = None
        elif judgement.differs:
            self._agreed = self.early = False
            self._differing = self._judge.difference(judgement, window.bps, self._differing)
            self._hold(window)
            self._wants_learning = True

    def _recognise(self, window: Window) -> bool:
        """Return whether known patterns explain the window, so that it need not be judged.

        If the job changed its pattern during the window, the window shows a mixture of both patterns. The next window
        begins after such a window. After ``MOST_MIXED`` mixtures in a row, the next is not explained."""
        patterns = self._patterns
        if not patterns.several:
            return False
        shown = patterns.made_of(self._judge, window.bps, window.error)
        if len(shown) == 1 and shown[0] is not patterns.current:
            if window.whole:
                self._enter_pattern(shown[0])
            return True
        self._mixed = self._mixed + 1 if patterns.mixed(self._judge, window, shown, self._windows.are_long) else 0
        if self._mixed:
            self._windows.start_anew()
        return 0 < self._mixed <= MOST_MIXED

    def _enter_pattern(self, pattern: Pattern) -> None:
        self._patterns.enter(pattern)
        if pattern.announced:
            self._differing, self._agreed = None, True
        self._agreeing = self._mixed = 0
        self._wants_learning = self._hold_next = False
        self._count_pairs()

    def _judge_held(self, judgement: Judgement, window: Window, steady: Window, now: float) -> None:
        """Judge a job that is planned with measured traffic.

        The measured traffic may change, become more exact, or agree with the spec again."""
        if self._declared:
            self._agreeing = self._agreeing + 1 if judgement.agrees else 0
            if judgement.differs:
                self._differing = self._judge.difference(judgement, window.bps, self._differing)
        held = self._held or {}
        if self._hold_next:
            self._hold_next = False
            self._hold(window)
        elif self._learning:
            return
        elif self._judge.changed(window.bps, held):
            self._react_to_change(window)
        else:
            self._patterns.saw_current(self._judge, window, now)
            if steady.iterations is not None and held.keys() == set(self._judge.carrying(steady.bps)):
                self._hold(steady)

    def _react_to_change(self, window: Window) -> None:
        """React to changed traffic: learn again if unknown pairs carry traffic, else measure the known pairs again.

        Windows are lengthened if known pairs sent again, or changed their proportions, more than ``RETURNS`` times,
        which shows that an iteration is longer than a window."""
        carrying = set(self._judge.carrying(window.bps))
        if not carrying <= self._seen:
            self._wants_learning, self._returns = True, 0
            self._windows.shorten()
            return
        self._hold_next = True
        self._patterns.current.error = inf
        self._returns += not carrying < (self._held or {}).keys()
        if self._returns > RETURNS:
            self._windows.lengthen()
            self._patterns.forget()
        else:
            self._windows.start_anew()

    def _return_to_spec(self) -> None:
        self._patterns.return_to_announced()
        self._differing, self._agreed = None, True
        self._agreeing = 0
        self._wants_learning = False
        self._count_pairs()

    def _learn_again_if_suspicious(self, suspicious: frozenset[str], now: float) -> None:
        if self.early or self._wants_learning or now < self._relearn_at or suspicious.isdisjoint(self.job.addresses):
            return
        self._wants_learning = True
        self._relearn_after_s *= 2

    def _learn(self, window: Window, now: float) -> None:
        """Plan with the traffic that the window shows; end learning after ``STABLE`` windows with the same pairs."""
        before = frozenset(self._held or ())
        if self._held is not None or not self._declared:
            self._hold(window)
            self._first.measured(window.start)
        self._stable = self._stable + window.whole if frozenset(self._held or ()) == before else 0
        if self._stable and self._held is not None:
            self._patterns.saw_current(self._judge, window, now)
        if self._stable >= STABLE:
            self._wants_learning = False
            self._relearn_at = now + self._relearn_after_s

    # ---- held traffic

    def _hold(self, window: Window) -> None:
        """Plan with the window's traffic if it is more exact than the traffic planned now, or clearly different."""
        scale = 0.125 * (window.iteration_s or 1.0)
        rate_of = dict(zip(self.pairs, window.bps.tolist(), strict=True))
        carrying = {pair: scale * rate_of[pair] for pair in self._judge.carrying(window.bps)}
        amounts = levelled(carrying, max(EQUAL, 2 * LAG_S / window.seconds))
        if self._patterns.hold(amounts, window.iterations is not None, window.error):
            self._seen |= amounts.keys()
            self._count_besides()

    def _difference(self) -> Difference | None:
        differing = None if self._patterns.repeats else self._differing
        if self._pace is None:
            return differing
        differing = differing or Difference(())
        return differing._replace(findings=(self._pace, *differing.findings))

    def _state(self) -> JobDemand:
        patterns = self._patterns
        links = self._first.added_to(patterns.links)
        measured = self._held is not None or patterns.links is not patterns.sending
        if links is not patterns.links:
            source = DemandSource.PROVISIONAL
        elif measured:
            source = DemandSource.MEASURED
        elif self.job.spec.observed:
            source = DemandSource.LEARNING
        elif self._agreed:
            source = DemandSource.CONFIRMED
        else:
            source = DemandSource.PROVISIONAL if self.job.spec.provisional else DemandSource.DECLARED
        of_iteration = patterns.current.per_iteration if self._held is not None else bool(self._declared)
        return JobDemand(
            source,
            links,
            self._declared,
            of_iteration and source is not DemandSource.PROVISIONAL,
            self._besides,
            self._learning and not self.early,
            self._silent,
            self._measurement,
            None if self.job.spec.provisional else self._difference(),
            patterns.links if measured else None,
            patterns.sending if patterns.sending is not patterns.links else None,
            len(patterns.known),
            patterns.number,
            patterns.idle_phases,
        )


# ---- pairs found before amounts are known


class FirstBytes:
    """Pairs of one job that were found to send since ``begin``. Totals are in the order of the job's pairs."""

    def __init__(self, header_bytes: int) -> None:
        self._header_bytes = header_bytes
        self._last: Totals | None = None
        self._began_at = -inf
        self._peak_bps = 0.0
        self._found: dict[Pair, tuple[float, int]] = {}  # time when found, and number of the group
        self._bytes: list[int] = []  # bytes of each pair, by group
        self._found_at = -inf
        self._minor: set[Pair] = set()
        self._with_found = Memo(_with_found)

    def begin(self, totals: Totals, now: float, since: float) -> None:
        """Begin to evaluate the counters of further pairs; bytes that they counted before ``now`` are left out.

        A pair whose counter was read between ``since`` and ``now`` already has a rule. The counter of this rule lags
        behind the traffic, so the bytes that it counts until ``LAG_S`` after ``now`` are left out too. Nothing changes
        for pairs that are already evaluated."""
        exists = (totals.at > since) & (totals.at < now)
        begun = Totals(np.full(len(exists), now), *(np.where(exists, np.nan, counts) for counts in totals[1:]))
        counted = self._last or begun
        self._last = Totals(*np.where(np.isnan(counted.bytes), begun, counted))
        self._began_at = now

    def of_pairs(self, rows: Rows) -> None:
        """Convert the state to a new list of pairs, to which all later totals belong.

        ``rows``: for each new pair, its index in the old list, or -1 if the pair is not in the old list."""
        if self._last is not None:
            unknown = np.full((1, 3), np.nan)
            self._last = Totals(*np.concatenate([np.stack(self._last, axis=1), unknown])[rows].T)

    def search(self, pairs: Sequence[Pair], totals: Totals, known: Set[Pair], iteration_s: float, now: float) -> bool:
        """Evaluate the latest counters and return whether they show pairs that are neither ``known`` nor found yet.

        ``iteration_s``: duration of an iteration in seconds, for which the bytes of found pairs are computed."""
        last, self._last = self._last, totals
        if last is None:
            return False
        before = np.isnan(last.bytes) & (totals.at < self._began_at + LAG_S)
        self._last = Totals(*np.where(before, np.nan, totals))
        packets = totals.packets - last.packets
        payload = totals.bytes - last.bytes - self._header_bytes * packets
        # Counters advance in steps of their lag: two polls a moment apart would show too high a rate.
        bps = np.nan_to_num(8 * payload / np.fmax(totals.at - last.at, LAG_S))
        self._peak_bps = max(self._peak_bps, float(bps.max(initial=0.0)))
        much = (payload >= FEWEST_BYTES) & (payload >= LEAST_PAYLOAD * packets) & (bps >= LEAST_PART * self._peak_bps)
        new = {pairs[number] for number in np.flatnonzero(much).tolist()} - known - self._found.keys() - self._minor
        if new:
            if now - self._found_at > APART_S:
                self._bytes.append(0)
            self._found_at, self._bytes[-1] = now, max(1, round(0.125 * self._peak_bps * iteration_s))
            self._found |= dict.fromkeys(sorted(new), (now, len(self._bytes) - 1))
        return bool(new)

    def measured(self, since: float) -> None:
        """Record that the amounts of all traffic after ``since`` are measured.

        Pairs that were found before ``since`` are dropped. The amounts of the dropped pairs are measured, or too small
        to be planned for."""
        self._minor |= {pair for pair, (at, _) in self._found.items() if at < since}
        self._found = {pair: found for pair, found in self._found.items() if pair not in self._minor}

    def forget_silent(self, carrying: Collection[Pair], since: float) -> None:
        """Forget the pairs that were found before ``since`` and have sent nothing from then on.

        ``carrying``: pairs that have sent since then."""
        self._found = {pair: found for pair, found in self._found.items() if found[0] >= since or pair in carrying}

    def added_to(self, known: VirtualLinks) -> VirtualLinks:
        """Return ``known`` with links for the found pairs that it lacks; pairs that were found together share a phase.

        If ``known`` lacks no found pair, the same object is returned."""
        found = tuple((pair, group) for pair, (_, group) in self._found.items() if pair not in known.pairs)
        return self._with_found(known, found, tuple(self._bytes)) if found else known


def _with_found(known: VirtualLinks, found: tuple[tuple[Pair, int], ...], sizes: tuple[int, ...]) -> VirtualLinks:
    first = max((link.phase for link in known), default=-1) + 1
    phase = {group: first + number for number, group in enumerate(sorted({group for _, group in found}))}
    links = [*known, *(VirtualLink(*pair, phase[group], sizes[group]) for pair, group in found)]
    return VirtualLinks(sorted(links, key=lambda link: (link.src_ip, link.dst_ip, link.phase)))
