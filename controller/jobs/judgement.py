"""What the counted payload of a job's pairs contradicts, and since when.

A declaration is contradicted by payload on a pair or in a direction that was not announced, or by an announced pair
that carries another amount: per iteration where the job reports its iterations, else in proportion to the other pairs.
A contradiction counts when it was found in several consecutive judgements (docs/explanation/measured-demand.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.fabric.counter_samples import Floats
from controller.fabric.link_load import LAG_S
from controller.jobs.demand import Difference, Finding
from controller.jobs.iterations import JITTER
from controller.jobs.payload_windows import LONGEST, Bounds, Spans, Window
from signalbox.jobs.subflows import Pair

UNDECLARED = 0.05
"""Of the flow in the other direction. An acknowledgement with three SACK blocks has 28 bytes more than
``HEADER_BYTES`` (RFC 2018), one per segment of 1,448 bytes at most: 2 %."""

INSIGNIFICANT = 0.01
"""Of the busiest pair: not learnt."""

TOLERANCE = 1.25
"""Factor by which an announced amount may be wrong."""

AGAIN = 1.6
"""The same, upwards, for pairs whose destination has more than ``AT_ONCE`` senders in one phase: what is lost is sent
again. With 7 senders to one port of 5 Mbit/s, as in an all-to-all of Open MPI over 8 ranks, a pair carries up to 1.5
times its bytes, and a little more in single iterations."""

AT_ONCE = 2

AGREEMENT = 1.2
"""Factor by which amounts may differ where the spec is to be planned for again."""

CLOSE = 1.8
"""Factor by which amounts must be known for an announcement to be confirmed: that excludes half and double."""

SHARED = 1.5
"""Factor by which the amounts of pairs may differ from the one factor that all of them share."""

FOLLOWED = 1.33
"""Factor by which proportions of measured traffic may change before it is measured anew."""

CONTRADICTIONS = 2
"""Judgements in a row that must find one where it is not certain."""

FIRST_CONTRADICTIONS = 3
"""The same until the first iteration is over, of traffic that was not announced: more than the parameters take that a
training program sends to all ranks at its start."""

ANOTHER = 0.5
"""Part of the most that a pair sent between two polls. Less is the beginning or the end of a burst, and is not counted
as another contradiction."""

UNREPORTED_CONTRADICTIONS = LONGEST + 2
"""The same of amounts: what was sent once has left the longest window by then."""

Flags = NDArray[np.bool_]

Profile = Mapping[Pair, Sequence[tuple[int, int]]]
"""Phases of each announced pair, with their bytes."""


@dataclass(slots=True, eq=False)
class Judgement:
    """What is wrong with the pairs of a job, in their order."""

    undeclared: Flags
    """Pairs that were not announced and lastingly carry payload."""
    off: Flags
    """Announced pairs that lastingly carry other bytes."""
    ratio: Floats
    """Counted divided by announced bytes."""
    clean: bool
    """Nothing is outside of its bounds, lastingly or not."""
    confirms: bool
    """Clean, and every announced pair is known to carry about what was announced, if as many iterations were done as
    the numbers of reported ones tell. The bounds of a few iterations leave room for half or double of it."""
    agrees: bool
    """As ``confirms``, also where no iterations are reported yet, and amounts differ by less than may be wrong: else a
    job at the limit would go back and forth."""
    relative: bool
    """``ratio`` is divided by its median: no iterations are reported."""

    @property
    def differs(self) -> bool:
        return bool(self.undeclared.any() or self.off.any())


class _Compared(NamedTuple):
    """One value per pair."""

    outside: Flags
    surely: Flags
    """Outside even if iterations that are not reported yet are faster than any before."""
    ratio: Floats
    """Counted divided by announced bytes."""
    right: Flags
    """About what was announced, and no other amount is possible."""


class Judge:
    """Of ``pairs``: remembers for each how often it was wrong in turn. ``profile``: of those that are announced."""

    def __init__(self, pairs: Sequence[Pair], profile: Profile) -> None:
        self.pairs = pairs
        place = {pair: number for number, pair in enumerate(pairs)}
        self._opposite = np.array([place.get((dst, src), -1) for src, dst in pairs], np.int64)
        self._announced = self.in_order({pair: sum(size for _, size in phases) for pair, phases in profile.items()})
        crowded = _crowded(profile)
        self._above = np.array([AGAIN if pair in crowded else TOLERANCE for pair in pairs])
        self._undeclared_runs = _Runs(len(pairs))
        self._undeclared_most = np.zeros(len(pairs))
        """Largest payload rate between two polls of pairs that were not announced."""
        self._off_runs = _Runs(len(pairs))
        self._changed_runs = _Runs(len(pairs))
        self._unreported = 0
        """Judgements in a row that found nothing wrong, without iterations to compare with."""

    def in_order(self, amounts: Mapping[Pair, float]) -> Floats:
        """One per pair; 0 where there is none."""
        return np.array([amounts.get(pair, 0.0) for pair in self.pairs], np.float64)

    def undeclared_fraction(self, bps: Floats) -> float:
        """Of the payload; 0 of a job that announced none."""
        return float(bps[self._announced == 0].sum() / bps.sum()) if self._announced.any() else 0.0

    def carrying(self, bps: Floats) -> list[Pair]:
        """Pairs with traffic. An opposite direction is one only beyond what acknowledgements can be taken for."""
        wanted = (bps > INSIGNIFICANT * bps.max(initial=0.0)) & (bps > UNDECLARED * self._the_other_way(bps))
        return [self.pairs[number] for number in np.flatnonzero(wanted).tolist()]

    def against_spec(self, window: Window, spans: Spans) -> Judgement:
        """Return what lastingly differs from the spec: ``window`` shows which pairs carry payload, ``spans`` how much.
        When most announced pairs are outside of their bounds at once, that is certain."""
        announced, bps, recent = self._announced, window.bps, window.recent_bps
        undeclared = (announced == 0) & self._significant(bps)
        own = (announced > INSIGNIFICANT * announced.max(initial=0.0)) | (
            (announced > 0) & (bps > UNDECLARED * bps.max(initial=0.0))
        )
        off, surely, ratio, right = self._compared(spans, own)
        reported = spans.bounds is not None
        certain = reported and 2 * np.count_nonzero(surely) > np.count_nonzero(own)
        self._undeclared_most = np.where(undeclared, np.maximum(self._undeclared_most, recent), 0.0)
        lasting = self._undeclared_runs.add(
            undeclared,
            CONTRADICTIONS if window.begun or certain else FIRST_CONTRADICTIONS,
            self._significant(recent) & (recent > ANOTHER * self._undeclared_most),
        )
        lasting_off = self._off_runs.add(off, CONTRADICTIONS if reported else UNREPORTED_CONTRADICTIONS)
        clean = not (undeclared.any() or off.any())
        self._unreported = self._unreported + 1 if clean and not reported else 0
        fits = clean and window.whole and bool(right[own].all())
        near = (ratio > 1 / AGREEMENT) & (ratio < AGREEMENT)
        return Judgement(
            undeclared if certain else lasting,
            off if certain else lasting_off,
            ratio,
            clean,
            fits and (reported or self._unreported >= UNREPORTED_CONTRADICTIONS),
            fits and bool(near[own].all()),
            relative=not reported,
        )

    def _compared(self, spans: Spans, own: Flags) -> _Compared:
        """The payload of all windows with their bounds. ``own``: pairs that are judged."""
        bounds = spans.bounds or self._among(spans, own)
        judged = own & (spans.seconds > 0)
        done = np.where(judged, spans.bytes / np.where(own, self._announced, 1.0), 0.0)
        at_least, highest = _limits(done, bounds, judged)
        longest = int(np.argmax(spans.reported))  # of those without an iteration in progress, if there are any
        likely = bounds.likely[longest]
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.where(judged[longest] & (likely > 0), done[longest] / likely, 1.0)
        lowest, less = at_least.max(axis=0), own & (highest < 1 / TOLERANCE)
        surely = less | (own & (at_least[spans.reported].max(axis=0, initial=0.0) > self._above))
        if spans.told is not None:
            ratio = np.clip(ratio, lowest, highest)
            told_at_least, told_at_most = _limits(done, spans.told, judged)
            told = told_at_least.max(axis=0)
            right = (told > 1 / CLOSE) & (told < self._above)
            right &= (told_at_most < CLOSE) & (told_at_most > 1 / TOLERANCE)
        else:
            right = (done[0] > 0) & (ratio > 1 / TOLERANCE) & (ratio < self._above)
        return _Compared(less | (own & (lowest > self._above)), surely, ratio, right)

    def _significant(self, bps: Floats) -> Flags:
        """Pairs that carry more than acknowledgements and the small messages of libraries."""
        busiest = bps.max(initial=0.0)
        opposite = self._the_other_way(bps)
        reference = np.where(opposite > INSIGNIFICANT * busiest, opposite, busiest)
        significant: Flags = (bps > UNDECLARED * reference) & (bps > INSIGNIFICANT * busiest)
        return significant

    def _among(self, spans: Spans, own: Flags) -> Bounds:
        """Bounds where no iterations are reported: each pair has done as many as the median of all, but for one that is
        there in part at either end."""
        seconds = np.where(spans.seconds > 0, spans.seconds, 0.0)
        longest_s = seconds.max(initial=0.0) or 1.0
        share = seconds / longest_s
        judged = own & (share > 0)
        done = spans.bytes[judged] / (self._announced * share)[judged]
        likely = share * (np.median(done) if done.size else 0.0)
        error = 2 * (LAG_S + spans.apart_s) / longest_s
        least, most = likely * (1 - error) - 1, likely * (1 + error) + 1
        return Bounds(np.floor(least - JITTER), np.ceil(most + JITTER), likely)

    def changed(self, bps: Floats, held: Mapping[Pair, float]) -> bool:
        """Whether other pairs than those held carry traffic, lastingly, or the same ones in other proportions."""
        amounts = self.in_order(held)
        own = amounts > 0
        if not own.any():
            return False
        scale = np.median(bps[own] / amounts[own])
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(own, bps / (amounts * scale), 1.0)
        new = ~own & (bps > UNDECLARED * bps.max()) & (bps > UNDECLARED * self._the_other_way(bps))
        wrong = new | ~((ratio > 1 / FOLLOWED) & (ratio < FOLLOWED))
        return bool(self._changed_runs.add(wrong, CONTRADICTIONS).any())

    def difference(self, judgement: Judgement, bps: Floats) -> Difference:
        """What is wrong, by pair."""

        def of_pairs(flags: Flags, values: Floats) -> tuple[tuple[Pair, float], ...]:
            return tuple(
                sorted((self.pairs[number], float(values[number])) for number in np.flatnonzero(flags).tolist())
            )

        own = self._announced > 0
        undeclared, off = of_pairs(judgement.undeclared, bps), of_pairs(judgement.off, judgement.ratio)
        reverse = bps < UNDECLARED * self._the_other_way(bps)
        backwards = bool(judgement.undeclared.any() and reverse[own].all())
        most = 2 * len(off) > np.count_nonzero(own) and not backwards
        return Difference(
            tuple(
                finding
                for finding, pairs in ((Finding.OTHER_TRAFFIC, undeclared), (Finding.OTHER_AMOUNTS, off))
                if pairs
            ),
            undeclared,
            off,
            backwards,
            _shared_factor(judgement.ratio[own]) if most else None,
            judgement.relative,
        )

    def _the_other_way(self, bps: Floats) -> Floats:
        return np.where(self._opposite >= 0, bps[self._opposite], 0.0)


class _Runs:
    """In how many consecutive judgements each pair was wrong."""

    def __init__(self, pairs: int) -> None:
        self._counts = np.zeros(pairs)

    def add(self, wrong: Flags, needed: int, again: Flags | bool = True) -> Flags:
        """Which pairs have been wrong so often. ``again``: also since the judgement before."""
        self._counts = np.where(wrong, self._counts + again, 0)
        lasting: Flags = self._counts >= needed
        return lasting


def _limits(done: Floats, bounds: Bounds, judged: Flags) -> tuple[Floats, Floats]:
    """How many times what was announced each pair carries: at least, in each window, and at most. ``done``: iterations
    of the announcement that have as many bytes."""
    with np.errstate(invalid="ignore", divide="ignore"):
        at_least = np.where(judged & (done > 0), done / bounds.most, 0.0)
        at_most: Floats = np.where(judged & (bounds.least > 0), done / bounds.least, inf).min(axis=0)
    return at_least, at_most


def _crowded(profile: Profile) -> frozenset[Pair]:
    """Pairs whose destination has more than ``AT_ONCE`` senders in one of their phases."""
    senders = Counter((dst, phase) for (_, dst), sizes in profile.items() for phase, _ in sizes)
    return frozenset(
        (src, dst) for (src, dst), sizes in profile.items() if any(senders[dst, phase] > AT_ONCE for phase, _ in sizes)
    )


def _shared_factor(ratios: Floats) -> float | None:
    """The factor that all pairs share, None where they have several."""
    factor = float(np.median(ratios))
    alike = ratios.min() > 0 and ratios.max() < SHARED * factor and ratios.min() > factor / SHARED
    return factor if alike else None
