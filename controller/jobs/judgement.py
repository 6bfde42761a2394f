"""What the counted payload of a job's pairs contradicts, and since when.

A declaration is contradicted by payload on a pair or in a direction that was not announced (above ``UNDECLARED`` of the
flow the other way, or of the job's busiest pair where there is none), or by an announced pair that carries another
amount. Amounts are judged

- per iteration, over whole iterations, where the job reports its iterations;
- else among pairs of the same phases, which send at the same time: one against the others.

A contradiction counts when it was found in several consecutive judgements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.fabric.counter_samples import Floats, Rows
from controller.jobs.demand import Difference, Finding
from controller.jobs.payload_windows import Window
from signalbox.jobs.subflows import Pair

UNDECLARED = 0.05
"""Of the flow in the other direction. An acknowledgement with three SACK blocks has 28 bytes more than
``HEADER_BYTES`` (RFC 2018), one per segment of 1,448 bytes at most: 2 %."""

INSIGNIFICANT = 0.01
"""Of the busiest pair: not learnt."""

TOLERANCE = 1.33
"""Factor by which the amount of a pair may differ from the announced one."""

SENT_AGAIN = 1.2
"""Factor by which a pair may carry more than that per iteration: what was lost and sent again. With 7 senders to one
port of 5 Mbit/s, as in an all-to-all of Open MPI over 8 ranks, a pair carries up to 1.5 times its bytes."""

SHARED = 1.25
"""Factor by which the amounts of pairs may differ from the one factor that all of them share."""

AMONG_TOLERANCE = 1.67
"""The same where pairs are compared with each other over short windows."""

CONTRADICTIONS = 2
AMONG_CONTRADICTIONS = 4
FIRST_CONTRADICTIONS = 3
"""Of traffic before the first iteration: more than the parameters take that a training program sends to all ranks."""

Flags = NDArray[np.bool_]

Profile = Mapping[Pair, Sequence[tuple[int, int]]]
"""Phases of each announced pair, with their bytes."""


@dataclass(slots=True, eq=False)
class Judgement:
    """Of pairs, in their order: what has lastingly been wrong. ``ratio``: counted to announced. ``clean``: nothing is
    wrong at all. ``agrees``: nor near it, by half of what an amount may differ; else a job at the limit would go back
    and forth."""

    undeclared: Flags
    off: Flags
    ratio: Floats
    clean: bool
    agrees: bool

    @property
    def differs(self) -> bool:
        return bool(self.undeclared.any() or self.off.any())


class Judge:
    """Of ``pairs``: remembers for each how often it was wrong in turn. ``profile``: of those that are announced."""

    def __init__(self, pairs: Sequence[Pair], profile: Profile) -> None:
        self.pairs = pairs
        place = {pair: number for number, pair in enumerate(pairs)}
        self._opposite = np.array([place.get((dst, src), -1) for src, dst in pairs], np.int64)
        self._announced = self.in_order({pair: sum(size for _, size in phases) for pair, phases in profile.items()})
        self._groups = _groups(pairs, profile)
        self._undeclared_runs = _Runs(len(pairs))
        self._off_runs = _Runs(len(pairs))
        self._among_runs = _Runs(len(pairs))
        self._changed_runs = _Runs(len(pairs))

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

    def against_spec(self, window: Window) -> Judgement:
        """What lastingly differs from the spec. Before the window is whole a pair may not have had its turn: amounts
        are not judged yet."""
        announced, bps, recent = self._announced, window.bps, window.recent_bps
        busiest = bps.max(initial=0.0)
        opposite = self._the_other_way(bps)
        reference = np.where(opposite > INSIGNIFICANT * busiest, opposite, busiest)
        undeclared = (announced == 0) & (bps > UNDECLARED * reference) & (bps > INSIGNIFICANT * busiest)
        needed = CONTRADICTIONS if window.begun else FIRST_CONTRADICTIONS
        lasting = self._undeclared_runs.add(undeclared, needed, recent > INSIGNIFICANT * busiest)
        own = (announced > INSIGNIFICANT * announced.max(initial=0.0)) | (
            (announced > 0) & (bps > UNDECLARED * busiest)
        )
        if not window.whole:
            clean = not undeclared.any()
            return Judgement(lasting, own & False, np.ones(len(bps)), clean, clean)
        if window.iterations is not None:
            ratio = _ratios(window.bytes / window.iterations, announced)
            slack, more, runs, needed = TOLERANCE + 0.5 / window.iterations, SENT_AGAIN, self._off_runs, CONTRADICTIONS
        else:
            ratio, slack, more = self._among(recent, own), AMONG_TOLERANCE, 1.0
            runs, needed = self._among_runs, AMONG_CONTRADICTIONS
        off, near = (own & ~((ratio > 1 / most) & (ratio < more * most)) for most in (slack, 0.5 + 0.5 * slack))
        clean = not (undeclared.any() or off.any())
        return Judgement(lasting, runs.add(off, needed), ratio, clean, clean and not near.any())

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
        wrong = new | ~((ratio > 1 / TOLERANCE) & (ratio < TOLERANCE))
        return bool(self._changed_runs.add(wrong, CONTRADICTIONS).any())

    def difference(self, judgement: Judgement, bps: Floats) -> Difference:
        """What is wrong, by pair."""

        def of_pairs(flags: Flags, values: Floats) -> tuple[tuple[Pair, float], ...]:
            return tuple(
                sorted((self.pairs[number], float(values[number])) for number in np.flatnonzero(flags).tolist())
            )

        own = self._announced > 0
        undeclared, off = of_pairs(judgement.undeclared, bps), of_pairs(judgement.off, judgement.ratio)
        backwards = judgement.undeclared.any() and (bps < UNDECLARED * self._the_other_way(bps))[own].all()
        return Difference(
            tuple(
                finding
                for finding, pairs in ((Finding.OTHER_TRAFFIC, undeclared), (Finding.OTHER_AMOUNTS, off))
                if pairs
            ),
            undeclared,
            off,
            bool(backwards),
            _shared_factor(judgement.ratio[own]) if len(off) == np.count_nonzero(own) else None,
        )

    def _the_other_way(self, bps: Floats) -> Floats:
        return np.where(self._opposite >= 0, bps[self._opposite], 0.0)

    def _among(self, bps: Floats, own: Flags) -> Floats:
        """What each pair carries, as a multiple of what the others of its group do per announced byte; 1 where the
        group says nothing."""
        per_byte = _ratios(bps, self._announced)
        ratio = np.ones(len(bps))
        for group in np.unique(self._groups[own]):
            members = own & (self._groups == group)
            carrying = per_byte[members & (bps > 0)]
            if len(carrying):
                ratio[members] = per_byte[members] / np.median(carrying)
        return ratio


class _Runs:
    """In how many consecutive judgements each pair was wrong."""

    def __init__(self, pairs: int) -> None:
        self._counts = np.zeros(pairs)

    def add(self, wrong: Flags, needed: int, again: Flags | bool = True) -> Flags:
        """Which pairs have been wrong so often. ``again``: also since the judgement before."""
        self._counts = np.where(wrong, self._counts + again, 0)
        lasting: Flags = self._counts >= needed
        return lasting


def _groups(pairs: Sequence[Pair], profile: Profile) -> Rows:
    """A number per pair, the same for pairs that send at the same times: in the same phases, in the same
    proportions."""
    numbers: dict[object, int] = {}
    groups = []
    for pair in pairs:
        phases = profile.get(pair, ())
        total = sum(size for _, size in phases)
        shares = tuple((phase, round(10 * size / total)) for phase, size in phases)
        groups.append(numbers.setdefault(shares, len(numbers)))
    return np.array(groups, np.int64)


def _shared_factor(ratios: Floats) -> float | None:
    """The factor that all pairs share, None where they have several."""
    factor = float(np.median(ratios))
    alike = ratios.min() > 0 and ratios.max() < SHARED * factor and ratios.min() > factor / SHARED
    return factor if alike else None


def _ratios(measured: Floats, amounts: Floats) -> Floats:
    """1 where nothing is announced."""
    ratios: Floats = np.where(amounts > 0, measured / np.where(amounts > 0, amounts, 1.0), 1.0)
    return ratios
