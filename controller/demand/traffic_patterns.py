"""Traffic patterns of one job, which it sends at different times, such as an all-reduce and an all-to-all.

The virtual links for the planner contain every recurring pattern, each with phases of its own, so that routes serve all
of them. A plan may serve the current pattern better if it treats the phases of the other patterns as idle for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from math import inf
from typing import NamedTuple

import numpy as np

from controller.demand.judgement import FOLLOWED, UNDECLARED, Judge
from controller.demand.payload_windows import Window
from controller.fabric.counter_samples import Floats
from controller.shared_map import Memo
from signalbox.jobs.collectives import VirtualLink, VirtualLinks
from signalbox.jobs.subflows import Pair

MOST = 4
"""Largest number of known patterns of a job; a new pattern replaces the pattern that was seen longest ago."""

LASTING = 2
"""Number of windows that must show a pattern alone for it to be known."""

LONG_S = 15.0
"""Shortest previous period of a pattern, in seconds, after which the job is expected to send the pattern as long again.

Routes for this pattern alone may then be worth their moves. The limit is about twice the time that it takes to
recognise a change of patterns, which is 4 to 8 s."""

KEPT_S = 900.0
"""Seconds after a pattern was last seen during which the planner still plans for it; the pattern stays known."""

EXACT = 0.02
"""Relative difference up to which a pattern keeps its measured amounts, even if the new amounts are more exact."""

MOST_MIXED = 4
"""Largest number of consecutive windows that may show a mixture of known patterns.

If more windows show a mixture, the mixture is new traffic and not a change from one pattern to another."""


NO_PHASES = frozenset[int]()


@dataclass(slots=True, eq=False)
class Pattern:
    """A traffic pattern: the pairs that carry traffic, and the bytes of each pair."""

    amounts: Mapping[Pair, float]
    """Bytes of each pair per iteration, or per second if ``per_iteration`` is False."""
    links: VirtualLinks
    """Virtual links with the amounts of the pattern; their phases begin at 0."""
    per_iteration: bool = True
    announced: bool = False
    error: float = 0.0
    """Relative error of ``amounts``."""
    bps_per_byte: float = 0.0
    """Rate of a pair in bit/s, per byte of its amount, while the pattern is sent."""
    windows: int = 0
    """Number of windows that showed this pattern alone."""
    periods: int = 1
    """Number of times that the job began this pattern."""
    alternates: bool = False
    """Whether the job returned to this pattern, or changed from this pattern to a known pattern."""
    began_at: float = inf
    """Time when the pattern was first seen in the present period, in monotonic seconds."""
    seen_at: float = -inf
    """Time when the pattern was last seen, in monotonic seconds."""
    lasted_s: float = 0.0
    """Seconds for which the pattern was seen in the previous period."""

    def end_period(self) -> None:
        """Record that the job has changed from this pattern to another pattern."""
        self.lasted_s = max(0.0, self.seen_at - self.began_at)
        self.began_at = inf


class Planned(NamedTuple):
    """Virtual links with which several patterns are planned together."""

    links: VirtualLinks
    """Virtual links of all patterns, with different phases."""
    of_each: tuple[VirtualLinks, ...]
    """Virtual links of each pattern, with the phases that they have in ``links``."""


class TrafficPatterns:
    """Known patterns of a job, and the current pattern, which becomes known when ``LASTING`` windows have shown it."""

    def __init__(self, announced: VirtualLinks, measured: VirtualLinks, now: float) -> None:
        """Begin with the announced pattern, or, if ``measured`` has links, with these links as the pattern.

        ``measured``: links planned before a restart. The measured links may belong to several patterns, so they stay in
        the plan beside patterns that are found later."""
        self._announced = Pattern(announced.bytes_of, announced, announced=True)
        self.known: list[Pattern] = []
        self.current = self._announced
        if measured:
            restored = Pattern(measured.bytes_of, measured, False, error=inf, alternates=True, seen_at=now)
            self.known, self.current = [restored], restored
        self._version = 0
        self._rates = Memo(_rates)
        self._planned = Memo(_with_phases_in_sequence)
        self._other_phases = Memo(_other_phases)
        self._plan()

    @property
    def held(self) -> Mapping[Pair, float] | None:
        """Measured amounts of the current pattern; None while the announced amounts apply."""
        return None if self.current.announced else self.current.amounts

    @property
    def number(self) -> int:
        """Number of the current pattern among the known patterns, from 1; 0 while the current pattern is not known."""
        return self.known.index(self.current) + 1 if self.current in self.known else 0

    @property
    def several(self) -> bool:
        """Whether the job has known patterns besides the current pattern."""
        return any(pattern is not self.current for pattern in self.known)

    @property
    def repeats(self) -> bool:
        """Whether the current pattern and a further pattern have each begun twice."""
        return self.current.periods > 1 and sum(pattern.periods > 1 for pattern in self.known) > 1

    def made_of(self, judge: Judge, bps: Floats, error: float) -> tuple[Pattern, ...]:
        """Return the one or two patterns that explain the rates ``bps``; empty if no patterns explain them.

        Two patterns explain the rates if the job may have sent each of them for a fraction of the window. ``error``:
        relative error of these fractions."""
        candidates = self._current_first
        rates = self._rates(judge, candidates, self._version)
        return tuple(candidates[number] for number in _rows_that_add_up_to(rates, bps, error))

    def mixed(self, judge: Judge, window: Window, shown: tuple[Pattern, ...], are_long: bool) -> bool:
        """Return whether the job has changed from one pattern to another during the window.

        The rates of the latest polling interval are evaluated in addition to those of the window, unless ``are_long``
        says that windows were lengthened. A window that no known patterns explain also counts as a change, if the job
        alternates between patterns and all pairs in the window that carry traffic are pairs of these patterns.
        ``shown``: result of ``made_of`` for the window."""
        carrying, alone = set(judge.carrying(window.bps)), (self.current,)
        latest = shown if are_long else self.made_of(judge, window.recent_bps, 0.0)
        stays = shown == alone and carrying <= self.current.amounts.keys() and len(latest) != 1
        return not stays and latest != alone and (len(shown) > 1 or self._alternate_over(carrying))

    def _alternate_over(self, pairs: Iterable[Pair]) -> bool:
        alternating = [pattern.amounts for pattern in self.known if pattern.alternates]
        return len(alternating) > 1 and all(any(pair in amounts for amounts in alternating) for pair in pairs)

    def saw_current(self, judge: Judge, window: Window, now: float) -> None:
        """Record that a window shows the current pattern alone. The pattern is known after ``LASTING`` such windows."""
        current = self.current
        if current.windows < LASTING or len(self.known) > 1:
            amounts = judge.in_order(current.amounts)
            own = amounts > 0
            current.bps_per_byte = float(np.median(window.bps[own] / amounts[own])) if own.any() else 0.0
        current.windows += 1
        current.began_at, current.seen_at = min(current.began_at, now), now
        if current.windows >= LASTING and current not in self.known:
            self.known.append(current)
            if len(self.known) > MOST:
                self.known.remove(min(self.known, key=lambda pattern: pattern.seen_at))
        self._plan()

    def enter(self, pattern: Pattern) -> None:
        """Make ``pattern`` the current one. A job that sent ``pattern`` before alternates between both patterns."""
        if pattern.windows:
            pattern.periods += 1
            pattern.alternates = self.current.alternates = True
        self.current.end_period()
        self.current = pattern
        self._plan()

    def forget(self) -> None:
        """Forget the known patterns, because each of them has turned out to be only a part of an iteration."""
        self.known = []
        self.current.alternates = False
        self._plan()

    def return_to_announced(self) -> None:
        """Plan for the announced amounts again.

        If the current pattern has nearly the same proportions as the announced pattern, the two count as one pattern.
        The announced pattern then inherits the periods and times of the current pattern, which is forgotten. If the
        proportions differ, the job counts as having changed from the current to the announced pattern."""
        measured, announced = self.current, self._announced
        if not _in_same_proportions(measured.amounts, announced.amounts):
            self.enter(announced)
            return
        self.current = announced
        announced.periods, announced.alternates = measured.periods, measured.alternates
        announced.began_at, announced.lasted_s = measured.began_at, measured.lasted_s
        self.known = [pattern for pattern in self.known if pattern is not measured]
        self._plan()

    def hold(self, amounts: Mapping[Pair, float], per_iteration: bool, error: float) -> bool:
        """Set the measured amounts of the current pattern, and return whether anything has changed.

        The amounts begin a new pattern if the current pattern is the announced one, or has clearly different
        proportions. Amounts that agree with the old ones are ignored. Amounts agree if they differ by at most the
        errors of both; new amounts that are more exact than the old amounts agree if they differ by at most
        ``EXACT``."""
        current = self.current
        held = self.held or {}
        wrong = EXACT if error < current.error else error + current.error
        same = held.keys() == amounts.keys() and per_iteration == current.per_iteration
        if same and all(abs(amounts[pair] - held[pair]) <= wrong * held[pair] for pair in held):
            return False
        links = self._links_of(amounts)
        if current.announced or not _in_same_proportions(held, amounts):
            current.end_period()
            self.current = current = Pattern(amounts, links)
        current.amounts, current.links, current.per_iteration, current.error = amounts, links, per_iteration, error
        self._plan()
        return True

    def _links_of(self, amounts: Mapping[Pair, float]) -> VirtualLinks:
        """Return virtual links with these amounts.

        If every pair was announced, the links have the announced phases. If not, all links are in phase 0."""
        announced = self._announced.links
        if amounts.keys() <= announced.pairs:
            links = [
                VirtualLink(*pair, phase, max(1, round(amount * size / announced.bytes_of[pair])))
                for pair, amount in amounts.items()
                for phase, size in announced.in_phases[pair]
            ]
        else:
            links = [VirtualLink(*pair, 0, max(1, round(amount))) for pair, amount in amounts.items()]
        return _in_order(links)

    @property
    def links(self) -> VirtualLinks:
        """Virtual links to plan for: the links of the current pattern and of recurring patterns."""
        return self._planned(self._parts).links

    @property
    def sending(self) -> VirtualLinks:
        """Virtual links of the current pattern, a part of ``links``."""
        return self._planned(self._parts).of_each[self._place]

    @property
    def idle_phases(self) -> frozenset[int]:
        """Phases of ``links`` in which the job sends nothing while it sends the current pattern.

        The result is empty if the current pattern is not expected to last."""
        return self._other_phases(self.links, self.sending) if self.current.lasted_s >= LONG_S else NO_PHASES

    def _plan(self) -> None:
        self._version += 1
        latest = max([pattern.seen_at for pattern in self.known], default=-inf)
        kept = [each for each in self.known if each.alternates and latest - each.seen_at <= KEPT_S]
        planned = kept if self.current in kept else [*kept, self.current]
        self._place = planned.index(self.current)
        self._parts = tuple(pattern.links for pattern in planned)

    @property
    def _current_first(self) -> tuple[Pattern, ...]:
        return (self.current, *(pattern for pattern in self.known if pattern is not self.current))


def _rates(judge: Judge, patterns: tuple[Pattern, ...], _version: int) -> Floats:
    """Return rates in bit/s while the job sends each pattern: a row per pattern, a column per pair of ``judge``.

    ``_version`` changes when the patterns do."""
    rows = [(pattern.bps_per_byte or 1.0) * judge.in_order(pattern.amounts) for pattern in patterns]
    return np.array(rows).reshape(len(rows), len(judge.pairs))


def _with_phases_in_sequence(parts: tuple[VirtualLinks, ...]) -> Planned:
    """Return the virtual links of all patterns; the phases of a pattern follow those of the previous pattern."""
    if len(parts) == 1:
        return Planned(parts[0], parts)
    of_each, first = [], 0
    for links in parts:
        of_each.append(VirtualLinks(replace(link, phase=first + link.phase) for link in links))
        first = 1 + max((link.phase for link in of_each[-1]), default=first)
    return Planned(_in_order(chain.from_iterable(of_each)), tuple(of_each))


def _other_phases(links: VirtualLinks, sending: VirtualLinks) -> frozenset[int]:
    return frozenset(link.phase for link in links) - frozenset(link.phase for link in sending)


def _in_order(links: Iterable[VirtualLink]) -> VirtualLinks:
    return VirtualLinks(sorted(links, key=lambda link: (link.src_ip, link.dst_ip, link.phase)))


def _in_same_proportions(before: Mapping[Pair, float], now: Mapping[Pair, float]) -> bool:
    if before.keys() != now.keys():
        return False
    ratios = np.array([now[pair] / amount for pair, amount in before.items()])
    return not len(ratios) or bool(ratios.max() < FOLLOWED**2 * ratios.min())


def _rows_that_add_up_to(rates: Floats, bps: Floats, error: float) -> Sequence[int]:
    """Return the row of ``rates`` that is proportional to ``bps``, or two rows whose weighted sum is ``bps``, by index.

    The weights may be any positive numbers. One row is preferred to two. Earlier rows are preferred to later ones. The
    result is empty if there are no such rows. ``error``: see ``TrafficPatterns.made_of``."""
    for number, rate in enumerate(rates):
        own = rate > 0
        scale = np.median(bps[own] / rate[own]) if own.any() else 0.0
        if _matches(bps, scale * rate, 0.0):
            return (number,)
    for pair in combinations(range(len(rates)), 2):
        both = rates[list(pair)]
        weights = np.linalg.lstsq(both.T, bps, rcond=None)[0]
        if weights.min() > 0 and _matches(bps, weights @ both, 2 * error * both.max(axis=0)):
            return pair
    return ()


def _matches(bps: Floats, expected: Floats, slack: Floats | float) -> bool:
    """Return whether all pairs agree within ``FOLLOWED`` and ``slack``; pairs with hardly any traffic are ignored."""
    allowed = (FOLLOWED - 1) * expected + UNDECLARED * bps.max(initial=0.0) + slack
    return bool((expected > 0).any() and (np.abs(bps - expected) <= allowed).all())


def levelled(amounts: Mapping[Pair, float], equal: float) -> dict[Pair, float]:
    """Return the amounts, with nearly equal amounts replaced by their mean.

    All amounts of a group are at least (1 - ``equal``) times the group's largest amount."""
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
