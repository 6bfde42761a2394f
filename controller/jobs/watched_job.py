"""What one job is planned for, and which of its pairs are counted for that.

A declaration holds until it is contradicted (``judgement``). From then on, and for an observed job from its start, all
pairs of its addresses are counted (*learning*) until the same ones carry traffic in ``STABLE`` consecutive judgements.
What was counted is *held*: it is planned for until it changes again, or agrees with the declaration.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf

import numpy as np

from controller.fabric.counter_samples import Rows
from controller.fabric.link_load import LAG_S
from controller.jobs.announcements import Announcements, count_to_learn, pairs_to_count
from controller.jobs.demand import DemandSource, Difference, Finding, JobDemand, Measurement
from controller.jobs.first_bytes import FirstBytes
from controller.jobs.job import Job
from controller.jobs.judgement import Judge, Judgement
from controller.jobs.pair_counters import PairCounters, Totals
from controller.jobs.payload_windows import PayloadWindows, Spans, Window
from controller.jobs.traffic_patterns import MOST_MIXED, Pattern, TrafficPatterns, levelled
from controller.memo import Memo
from signalbox.jobs.collectives import VirtualLinks
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.subflows import Connections, Pair

EQUAL = 0.08
"""Amounts closer than this (relative) are planned as equal, or closer than what is uncertain of them."""

STABLE = 3
RETURNS = 2
FEWEST_BYTES = 10 * 1448
"""Of the busiest pair in a window: ten full segments. Less says nothing."""
RELEARN_AFTER_S = 30.0
"""After learning has found nothing new, twice as long each time."""


class WatchedJob:
    """One job. ``pairs``: those whose counters are looked at. ``demand``: what is known. ``job``: as it was registered,
    with its connections."""

    def __init__(
        self,
        job: Job,
        counters: PairCounters,
        interval_s: float,
        now: float,
        measured: VirtualLinks,
        announced: Announcements,
    ) -> None:
        """``measured``: what it was planned for before a restart. ``announced``: by all jobs, this one among them."""
        self._rows = defaultdict[str, Memo[Sequence[Pair], str, int, Rows]](lambda: Memo(counters.rows))
        self._to_learn = Memo(count_to_learn)
        self._announced = announced
        self.job = job
        self._windows = PayloadWindows(interval_s, job.transport)
        self._first = FirstBytes(job.transport)
        self._profile = job.virtual_links.in_phases
        self._declared = job.virtual_links.bytes_of
        self._patterns = TrafficPatterns(job.virtual_links, measured, now)
        self._mixed = self._agreeing = self._stable = self._returns = 0
        self._seen = set(self._held or ())
        self._measurement: Measurement | None = None
        self._differing: Difference | None = None
        self._pace: Finding | None = None
        self._agreed = self._heard = self._silent = self._learning = self._hold_next = False
        self._wants_learning = job.spec.observed and not measured
        self._began = self._relearn_at = now
        self._relearn_after_s = RELEARN_AFTER_S
        self.pairs: tuple[Pair, ...] = ()
        self._judges = Memo(Judge)
        self._count_pairs()
        self.demand = self._state()

    @property
    def reports_as(self) -> str:
        """The job's id if it reports its connections, else empty."""
        return self.job.dividing.owner

    @property
    def connections(self) -> Connections:
        """That it has reported."""
        return self.job.dividing.connections

    def rows(self, job: str, version: int) -> Rows:
        """Of its pairs in the counters."""
        return self._rows[job](self.pairs, job, version)

    @property
    def _held(self) -> Mapping[Pair, float] | None:
        """Measured amounts that the job is planned for; None while the announced ones hold."""
        return self._patterns.held

    @property
    def _links(self) -> VirtualLinks:
        return self._patterns.links

    # ---- what is counted

    @property
    def learns(self) -> bool:
        """It learns, or wants to."""
        return self._wants_learning or self._learning

    @property
    def wants_to_count(self) -> int:
        """Rules that learning takes, if it is wanted."""
        return self._to_learn(self._announced.version, self.job, self._announced) if self._wants_learning else 0

    def allow_learning(self, allowed: bool) -> bool:
        """Whether learning begins with it."""
        learning = self._wants_learning and allowed
        if learning == self._learning:
            return False
        self._learning = learning
        self._first = FirstBytes(self.job.transport)
        self._stable = 0
        self._count_pairs()
        self.demand = self._state()
        return learning

    def announced_again(self, job: Job) -> None:
        """Its spec says the same of what it sends."""
        was, self.job = self.job, job
        if was.spec.provisional != job.spec.provisional:
            self.demand = self._state()

    def count_from_now(self, totals: Totals, now: float) -> None:
        """Pairs that were not counted yet have counters from now on. ``totals``: what was counted of them before, for
        other jobs. Not to be called while switches were not polled yet."""
        self._windows.count_from_now(totals, now)
        self._first.begin(totals, now)

    def connections_changed(self, job: Job) -> None:
        """An observed job that reports its connections is learnt from them, anew when there are some between other
        hosts."""
        self.job = job
        if job.spec.observed and (self._held is None or not self.connections.keys() <= set(self.pairs)):
            self._wants_learning = True
        self._count_pairs()
        self.demand = self._state()

    def others_announced(self) -> None:
        """Other jobs announce or send on other pairs than before, so others may be this job's."""
        before = self.pairs
        self._count_pairs()
        if self.pairs is not before:
            self._measurement = None
            self.demand = self._state()

    def _count_pairs(self) -> None:
        """From now on these pairs are looked at, from the next counters on."""
        known = {**self._declared, **dict.fromkeys(self._seen), **(self._held or {})}
        wanted = pairs_to_count(self.job, self._announced, known, self._learning)
        if wanted.keys() != set(self.pairs):
            before = {pair: number for number, pair in enumerate(self.pairs)}
            self.pairs = tuple(wanted)
            rows = np.array([before.get(pair, -1) for pair in self.pairs], np.int64)
            self._windows.of_pairs(rows)
            self._first.of_pairs(rows)
        self._count_besides()

    def _count_besides(self) -> None:
        planned = self._links.pairs
        self._besides = frozenset(pair for pair in self.pairs if planned.isdisjoint((pair, pair[::-1])))

    def look(self, totals: Totals, now: float) -> bool:
        """Take the latest counters of a job that learns. Return whether they show pairs that were not known."""
        iteration_s = (self._measurement and self._measurement.iteration_s) or 1.0
        if not self._learning or not self._first.look(self.pairs, totals, self._links.pairs, iteration_s, now):
            return False
        if self.job.spec.observed:
            self._windows.start_anew()  # how much these send is not known from before they were found
        self.demand = self._state()
        return True

    # ---- judgement

    @property
    def _judge(self) -> Judge:
        """Of its pairs, made when it is needed first: a job whose hosts are not known sends nothing to judge."""
        return self._judges(self.pairs, self._profile)

    def reported(self, iterations: Iterable[IterationTime], now: float) -> None:
        """The job has reported how long iterations took."""
        self._windows.reported(iterations, now)

    def interrupted(self) -> None:
        """Some of its pairs were not counted for a time, or had no path: what they sent is not compared with what
        others did, and what is counted now is not known."""
        self._windows.interrupted()
        self._measurement = None
        self.demand = self._state()

    def judge(self, totals: Totals, suspicious: frozenset[str], now: float) -> None:
        """``totals``: of its pairs until now. ``suspicious``: addresses that send more than is announced for them."""
        self.look(totals, now)
        # A reading from before the job began is of another job's rule. This job's own rule may not be there yet.
        self._windows.add(totals._replace(at=np.where(totals.at > self._began, totals.at, np.nan)), now)
        per_iteration = self._patterns.current.per_iteration
        planned = sum(link.bytes for link in self._patterns.sending) if per_iteration else 0
        announced = planned if self._held is None else 0  # what is held follows from windows
        window = self._windows.window(announced, now)
        spans = self._windows.spans(now)
        if window is None or spans is None:
            return
        if window.bytes.max(initial=0.0) < FEWEST_BYTES:
            self._suspect(suspicious, now)
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
        """The latest ``window`` shows what changes, ``steady`` how much it is while nothing does."""
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
            self._suspect(suspicious, now)
        if self._learning:
            self._learn(window, now)
        if self._agreeing >= STABLE:
            self._return_to_spec()

    def _judge_spec(self, judgement: Judgement, window: Window) -> None:
        if not self._declared:
            return
        if judgement.confirms:
            self._agreed = True
            self._differing = None
        elif judgement.differs:
            self._agreed = False
            self._differing = self._judge.difference(judgement, window.bps)
            self._hold(window)
            self._wants_learning = True

    def _recognise(self, window: Window) -> bool:
        """Whether the window shows known patterns other than the current one alone: then it says nothing new. One that
        spans a change is a mixture; the next window begins after it."""
        patterns = self._patterns
        if not patterns.several:
            return False
        shown = patterns.made_of(self._judge, window.bps, window.error)
        if len(shown) == 1 and shown[0] is not patterns.current:
            if window.whole:
                self._enter(shown[0])
            return True
        self._mixed = self._mixed + 1 if patterns.mixed(self._judge, window, shown, self._windows.are_long) else 0
        if self._mixed:
            self._windows.start_anew()
        return 0 < self._mixed <= MOST_MIXED

    def _enter(self, pattern: Pattern) -> None:
        """The job sends a known pattern again."""
        self._patterns.enter(pattern)
        if pattern.announced:
            self._differing, self._agreed = None, True
        self._agreeing = self._mixed = 0
        self._wants_learning = self._hold_next = False
        self._count_pairs()

    def _judge_held(self, judgement: Judgement, window: Window, steady: Window, now: float) -> None:
        """Planned for what was counted: it may change, it may be known better, and it may agree with the spec again."""
        if self._declared:
            self._agreeing = self._agreeing + 1 if judgement.agrees else 0
            if judgement.differs:
                self._differing = self._judge.difference(judgement, window.bps)
        held = self._held or {}
        if self._hold_next:
            self._hold_next = False
            self._hold(window)
        elif self._learning:
            return
        elif self._judge.changed(window.bps, held):
            self._follow(window)
        else:
            self._patterns.saw_current(self._judge, window, now)
            if steady.iterations is not None and held.keys() == set(self._judge.carrying(steady.bps)):
                self._hold(steady)

    def _follow(self, window: Window) -> None:
        """Learn anew if pairs carry traffic that are not known. Known pairs that came and went twice, or changed their
        proportions, will do so again: the job's iterations are longer than its window. Otherwise count from now on."""
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
        """What is counted agrees with the spec again."""
        self._patterns.return_to_announced()
        self._differing, self._agreed = None, True
        self._agreeing = 0
        self._wants_learning = False
        self._count_pairs()

    def _suspect(self, suspicious: frozenset[str], now: float) -> None:
        """An address of the job sends what is not announced: to whom?"""
        if self._wants_learning or now < self._relearn_at or suspicious.isdisjoint(self.job.addresses):
            return
        self._wants_learning = True
        self._relearn_after_s *= 2

    def _learn(self, window: Window, now: float) -> None:
        """Hold what carries traffic until it has been the same for long enough."""
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

    # ---- what is held

    def _hold(self, window: Window) -> None:
        """Plan for what is measured from now on, if it is known better than what is held, or differs by more than is
        uncertain of both."""
        scale = 0.125 * (window.iteration_s or 1.0)
        rate_of = dict(zip(self.pairs, window.bps.tolist(), strict=True))
        carrying = {pair: scale * rate_of[pair] for pair in self._judge.carrying(window.bps)}
        amounts = levelled(carrying, max(EQUAL, 2 * LAG_S / window.seconds))
        if self._patterns.hold(amounts, window.iterations is not None, window.error):
            self._seen |= amounts.keys()
            self._count_besides()

    def _difference(self) -> Difference | None:
        """Return what differs from the spec, and whether the job is silent."""
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
            self._learning,
            self._silent,
            self._measurement,
            None if self.job.spec.provisional else self._difference(),
            patterns.links if measured else None,
            patterns.sending if patterns.sending is not patterns.links else None,
            len(patterns.known),
            patterns.number,
            patterns.idle_phases,
        )
