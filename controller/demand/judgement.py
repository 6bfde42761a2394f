"""Comparison of the counted payload of a job's pairs with its announcement (docs/explanation/measured-demand.md).

An announcement is contradicted if a pair or direction that was not announced carries payload, or if an announced pair
carries another amount. Amounts are bytes per iteration if the job reports its iterations. If it reports none, pairs are
compared with each other. A contradiction counts when several consecutive judgements find it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.demand.job_demand import Difference, Finding
from controller.demand.payload_windows import JITTER, LONGEST, Bounds, Spans, Window
from controller.fabric.counter_samples import Floats
from controller.fabric.link_load import LAG_S
from signalbox.jobs.subflows import Pair

UNDECLARED = 0.05
"""Largest payload that counts as mere acknowledgements, as a fraction of the payload in the opposite direction.

An acknowledgement with three SACK blocks has 28 bytes more than ``HEADER_BYTES`` (RFC 2018), one per segment of 1,448
bytes at most: 2 %."""

INSIGNIFICANT = 0.01
"""Fraction of the busiest pair below which traffic is ignored."""

TOLERANCE = 1.25
"""Factor by which a counted amount may differ from the announced amount without contradicting it."""

AGAIN = 1.6
"""Factor that replaces ``TOLERANCE`` for pairs whose destination has more than ``AT_ONCE`` senders in a phase.

Such senders lose packets and send them again. Example: in an all-to-all of Open MPI over 8 ranks, 7 senders share one
port of 5 Mbit/s. A pair carries up to 1.5 times its bytes, and a little more in single iterations."""

AT_ONCE = 2
"""Number of simultaneous senders to one destination above which packet losses are expected."""

AGREEMENT = 1.2
"""Factor within which all amounts must agree with the spec for the controller to plan with the spec again."""

CLOSE = 1.8
"""Largest factor between counted and announced bytes with which an announcement is confirmed.

The bounds of the counted bytes must also be within this factor. The factor is less than 2, so that half or double the
announced amount is not confirmed."""

SHARED = 1.5
"""Factor by which ratios of counted to announced bytes may differ from their median and still count as equal."""

FOLLOWED = 1.33
"""Factor by which proportions between pairs may change before the traffic is measured again."""

CONTRADICTIONS = 2
"""Number of consecutive judgements that must find a contradiction, unless it is certain."""

FIRST_CONTRADICTIONS = 4
"""Number of consecutive judgements that must find unannounced traffic while the first iteration is not over.

Training programs broadcast their parameters at the start. This broadcast ends before ``FIRST_CONTRADICTIONS``
judgements are made."""

APART = 1
"""Number of iterations by which a pair may be behind or ahead of the rank that reports.

A rank cannot end an iteration before all other ranks have begun it, so ranks of busy hosts are up to one iteration
apart. This tolerance applies only if at most half of the pairs need it."""

ANOTHER = 0.5
"""Smallest rate at which a judgement counts unannounced traffic of a pair, as a fraction of the pair's largest rate.

Both rates are measured between two polls. Traffic at a lower rate is the beginning or the end of a burst, and leaves
the number of consecutive judgements unchanged."""

UNREPORTED_CONTRADICTIONS = LONGEST + 2
"""Number of consecutive judgements that must find other amounts if no iterations are reported.

After this number of judgements, the longest window no longer includes traffic that was sent only once."""

Flags = NDArray[np.bool_]

Profile = Mapping[Pair, Sequence[tuple[int, int]]]
"""Phases in which each announced pair sends, each as (phase, bytes)."""


@dataclass(slots=True, eq=False)
class Judgement:
    """Result of a comparison; arrays have one value per pair."""

    undeclared: Flags
    """Pairs that were not announced, and carried payload in enough consecutive judgements."""
    off: Flags
    """Announced pairs that carried another amount than announced in enough consecutive judgements."""
    ratio: Floats
    """Ratio of counted to announced bytes."""
    clean: bool
    """Whether no pair differs from the announcement in this judgement."""
    confirms: bool
    """Whether the result is clean and every announced pair is known to carry about the announced amount.

    The numbers of reported iterations are assumed to count all iterations, so that the number of iterations in a window
    is known. Without this assumption, half or double the amount would also fit a window of a few iterations."""
    agrees: bool
    """Whether the result is clean and every pair is within the factor ``AGREEMENT`` of its announced amount.

    Unlike ``confirms``, one judgement suffices even if no iterations are reported. ``AGREEMENT`` is stricter than
    ``TOLERANCE``, so that a job near the limit does not change between spec and measurements again and again."""
    relative: bool
    """Whether ``ratio`` is divided by its median, because no iterations are reported."""

    @property
    def differs(self) -> bool:
        """Whether any pair contradicts the announcement."""
        return bool(self.undeclared.any() or self.off.any())


class _Compared(NamedTuple):
    outside: Flags
    """Whether the counted amount of the pair is outside its bounds."""
    surely: Flags
    """Whether the amount is outside its bounds even if unreported iterations were faster than all reported ones."""
    ratio: Floats
    """Ratio of counted to announced bytes."""
    right: Flags
    """Whether the counters show that the amount is near the announced amount, whatever their uncertainty."""


class Judge:
    """Comparison of counted with announced bytes of ``pairs``; counts consecutive contradictions of each pair.

    ``profile``: phases of the announced pairs.
    ``before``: judge of the pairs that the job had before; None if there was no judge."""

    def __init__(self, pairs: Sequence[Pair], profile: Profile, before: Judge | None) -> None:
        self.pairs = pairs
        place = {pair: number for number, pair in enumerate(pairs)}
        self._opposite = np.array([place.get((dst, src), -1) for src, dst in pairs], np.int64)
        self._announced = self.in_order({pair: sum(size for _, size in phases) for pair, phases in profile.items()})
        crowded = _pairs_to_crowded_hosts(profile)
        self._above = np.array([AGAIN if pair in crowded else TOLERANCE for pair in pairs])
        self._undeclared_runs = _Runs(len(pairs))
        self._undeclared_most = np.zeros(len(pairs))
        """Largest recent payload rate between two polls, in bit/s, of each pair that was not announced."""
        self._most_ago = np.zeros(len(pairs))
        """Number of judgements since each pair had its rate in ``_undeclared_most``."""
        self._off_runs = _Runs(len(pairs))
        self._changed_runs = _Runs(len(pairs))
        self._unreported: int = before._unreported if before and place.keys() <= {*before.pairs} else 0
        """Number of consecutive clean judgements of a job without reported iterations."""

    def in_order(self, amounts: Mapping[Pair, float]) -> Floats:
        """Return the amounts as an array in the order of the pairs; 0 for a pair without an amount."""
        return np.array([amounts.get(pair, 0.0) for pair in self.pairs], np.float64)

    def undeclared_fraction(self, bps: Floats) -> float:
        """Return the fraction of the payload that unannounced pairs carry; 0 for a job that announced no pairs."""
        return float(bps[self._announced == 0].sum() / bps.sum()) if self._announced.any() else 0.0

    def carrying(self, bps: Floats) -> list[Pair]:
        """Return the pairs that carry traffic.

        A pair in the reverse direction of another pair counts only if it carries more than acknowledgements."""
        wanted = (bps > INSIGNIFICANT * bps.max(initial=0.0)) & (bps > UNDECLARED * self._the_other_way(bps))
        return [self.pairs[number] for number in np.flatnonzero(wanted).tolist()]

    def against_spec(self, window: Window, spans: Spans) -> Judgement:
        """Return the differences from the spec, and which differences count as contradictions.

        ``window``: rates, which show the pairs with payload. ``spans``: bytes to compare with the announced amounts. If
        most announced pairs are outside their bounds at once, the contradiction is certain."""
        announced, bps, recent = self._announced, window.bps, window.recent_bps
        undeclared = (announced == 0) & self._significant(bps)
        own = (announced > INSIGNIFICANT * announced.max(initial=0.0)) | (
            (announced > 0) & (bps > UNDECLARED * bps.max(initial=0.0))
        )
        off, surely, ratio, right = self._compared(spans, own)
        reported = spans.bounds is not None
        certain = reported and _most(surely, own)
        self._remember_most(undeclared, recent)
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

    def _remember_most(self, undeclared: Flags, recent: Floats) -> None:
        """Update the largest rate of each pair between two polls.

        A rate is forgotten after ``LONGEST`` judgements, so that slower traffic after a fast burst is found later."""
        higher = (recent >= self._undeclared_most) | (self._most_ago >= LONGEST) | ~undeclared
        self._undeclared_most = np.where(undeclared, np.where(higher, recent, self._undeclared_most), 0.0)
        self._most_ago = np.where(higher, 0, self._most_ago + 1)

    def _compared(self, spans: Spans, own: Flags) -> _Compared:
        """Compare the payload of each pair in all windows with its announced bytes.

        ``own``: pairs that are judged."""
        bounds = spans.bounds or self._bounds_without_reports(spans, own)
        judged = own & (spans.seconds > 0)
        done = np.where(judged, spans.bytes / np.where(own, self._announced, 1.0), 0.0)
        at_least, highest = _limits(done, bounds, judged)
        lowest = at_least.max(axis=0)
        longest = int(np.argmax(spans.reported))  # longest window without an iteration in progress, else longest of all
        likely = bounds.likely[longest]
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.where(judged[longest] & (likely > 0), done[longest] / likely, 1.0)
        off = self._outside(lowest, highest, own)
        surely = self._outside(at_least[spans.reported].max(axis=0, initial=0.0), highest, own)
        if spans.numbered is not None:
            if not _most(off, own):
                apart_at_least, apart_highest = _limits(done, bounds.apart(APART), judged)
                off = self._outside(apart_at_least.max(axis=0), apart_highest, own)
            ratio = np.clip(ratio, lowest, highest)
            numbered_at_least, numbered_at_most = _limits(done, spans.numbered, judged)
            numbered = numbered_at_least.max(axis=0)
            right = (numbered > 1 / CLOSE) & (numbered < self._above)
            right &= (numbered_at_most < CLOSE) & (numbered_at_most > 1 / TOLERANCE)
        else:
            right = (done[0] > 0) & (ratio > 1 / TOLERANCE) & (ratio < self._above)
        return _Compared(off, surely, ratio, right)

    def _outside(self, at_least: Floats, at_most: Floats, own: Flags) -> Flags:
        """Return the pairs of ``own`` whose counted bytes are surely too few or too many for their announced bytes.

        ``at_least``, ``at_most``: bounds of the ratio of counted to announced bytes."""
        outside: Flags = own & ((at_most < 1 / TOLERANCE) | (at_least > self._above))
        return outside

    def _significant(self, bps: Floats) -> Flags:
        """Return the pairs that carry more than acknowledgements and the small messages of libraries."""
        busiest = bps.max(initial=0.0)
        opposite = self._the_other_way(bps)
        reference = np.where(opposite > INSIGNIFICANT * busiest, opposite, busiest)
        significant: Flags = (bps > UNDECLARED * reference) & (bps > INSIGNIFICANT * busiest)
        return significant

    def _bounds_without_reports(self, spans: Spans, own: Flags) -> Bounds:
        """Return bounds of the number of iterations in each window for a job that reports no iterations.

        All pairs get the number of the median pair. The bounds are one below and one above this number, because the
        window may begin and end during an iteration. The bounds also allow for errors of the reading times."""
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
        """Return whether several consecutive judgements found pairs, or proportions, that differ from ``held``.

        ``held``: amounts that the job is planned with."""
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

    def difference(self, judgement: Judgement, bps: Floats, before: Difference | None) -> Difference:
        """Return the difference from the spec that the judgement found, pair by pair.

        ``before``: the previous difference. While a job pauses, its number of iterations is uncertain, so that the
        judgement finds few wrong pairs. In this case the result is ``before``, if the factor of ``before`` still fits
        all pairs."""

        def of_pairs(flags: Flags, values: Floats) -> tuple[tuple[Pair, float], ...]:
            return tuple(
                sorted((self.pairs[number], float(values[number])) for number in np.flatnonzero(flags).tolist())
            )

        own = self._announced > 0
        undeclared, off = of_pairs(judgement.undeclared, bps), of_pairs(judgement.off, judgement.ratio)
        reverse = bps < UNDECLARED * self._the_other_way(bps)
        backwards = bool(judgement.undeclared.any() and reverse[own].all())
        most = 2 * len(off) > np.count_nonzero(own) and not backwards
        factor = _shared_factor(judgement.ratio[own]) if most else None
        if not factor and not undeclared and before and before.factor and _fit(judgement.ratio[own], before.factor):
            return before
        return Difference(
            tuple(
                finding
                for finding, pairs in ((Finding.OTHER_TRAFFIC, undeclared), (Finding.OTHER_AMOUNTS, off))
                if pairs
            ),
            undeclared,
            off,
            backwards,
            factor,
            judgement.relative,
        )

    def _the_other_way(self, bps: Floats) -> Floats:
        return np.where(self._opposite >= 0, bps[self._opposite], 0.0)


class _Runs:
    """Number of consecutive judgements in which each pair was wrong."""

    def __init__(self, pairs: int) -> None:
        self._counts = np.zeros(pairs)

    def add(self, wrong: Flags, needed: int, again: Flags | bool = True) -> Flags:
        """Count a judgement and return the pairs that have been wrong ``needed`` times in a row.

        ``again``: whether this judgement increases the count of a wrong pair or leaves the count unchanged."""
        self._counts = np.where(wrong, self._counts + again, 0)
        lasting: Flags = self._counts >= needed
        return lasting


def _most(some: Flags, of: Flags) -> bool:
    return 2 * int(np.count_nonzero(some)) > int(np.count_nonzero(of))


def _limits(done: Floats, bounds: Bounds, judged: Flags) -> tuple[Floats, Floats]:
    """Return a lower bound by window and pair, and an upper bound by pair, of the ratio of counted to announced bytes.

    ``done``: counted bytes / announced bytes of one iteration."""
    with np.errstate(invalid="ignore", divide="ignore"):
        at_least = np.where(judged & (done > 0), done / bounds.most, 0.0)
        at_most: Floats = np.where(judged & (bounds.least > 0), done / bounds.least, inf).min(axis=0)
    return at_least, at_most


def _pairs_to_crowded_hosts(profile: Profile) -> frozenset[Pair]:
    senders = Counter((dst, phase) for (_, dst), sizes in profile.items() for phase, _ in sizes)
    return frozenset(
        (src, dst) for (src, dst), sizes in profile.items() if any(senders[dst, phase] > AT_ONCE for phase, _ in sizes)
    )


def _shared_factor(ratios: Floats) -> float | None:
    factor = float(np.median(ratios))
    alike = ratios.min() > 0 and ratios.max() < SHARED * factor and ratios.min() > factor / SHARED
    return factor if alike else None


def _fit(ratios: Floats, factor: float) -> bool:
    """Return whether all ratios are near the factor, and no ratio agrees with the announcement."""
    near = np.maximum(ratios, factor) < CLOSE * np.minimum(ratios, factor)
    agrees = (ratios > 1 / AGREEMENT) & (ratios < AGREEMENT)
    return bool((near & ~agrees).all())
