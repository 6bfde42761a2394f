"""Detection of the pairs on which an unknown job sends, from the first counters that show traffic.

Measuring the amount of a pair takes a window (``payload_windows``). Until then, pairs that were found together are
assumed to send the same amount, in a phase of their own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence, Set

import numpy as np

from controller.demand.pair_counters import Totals
from controller.fabric.counter_samples import Rows
from controller.fabric.link_load import LAG_S
from controller.memo import Memo
from signalbox.jobs.collectives import VirtualLink, VirtualLinks
from signalbox.jobs.subflows import Pair

FEWEST_BYTES = 10 * 1448
"""Smallest payload of a pair between two polls, in bytes, that shows that the pair is used: ten full segments.

A smaller payload may belong to a handshake."""

LEAST_PAYLOAD = 64
"""Smallest mean payload of a pair's packets, in bytes, that shows that the packets are not only acknowledgements.

An acknowledgement with three SACK blocks has 28 bytes (RFC 2018). The acknowledged traffic may not be counted yet, so
both directions cannot be compared."""

LEAST_PART = 0.1
"""Smallest rate that shows that a pair is used, as a fraction of the highest rate of the job's pairs so far.

Because counters lag, they show only a fifth of a rate at first."""

APART_S = 1.25
"""Seconds after the latest found pair from which a newly found pair belongs to another phase.

Switches that are read together show all pairs of a collective within the lag of their counters and one poll."""


class FirstBytes:
    """Pairs of one job that were found to send since ``begin``. Totals are in the order of the job's pairs."""

    def __init__(self, header_bytes: int) -> None:
        self._header_bytes = header_bytes
        self._last: Totals | None = None
        self._began_at = -math.inf
        self._peak_bps = 0.0
        self._found: dict[Pair, tuple[float, int]] = {}  # time when found, and number of the group
        self._bytes: list[int] = []  # bytes of each pair, by group
        self._found_at = -math.inf
        self._minor: set[Pair] = set()
        self._with_found = Memo(_with_found)

    def begin(self, totals: Totals, now: float, since: float) -> None:
        """Begin to evaluate pairs from ``now`` on; their counts until ``now`` are left out.

        A pair that was read after ``since`` has a rule already. The counter of this rule lags, so its counts until
        ``LAG_S`` after ``now`` are left out too. Pairs that are evaluated already are not changed."""
        exists = (totals.at > since) & (totals.at < now)
        begun = Totals(np.full(len(exists), now), *(np.where(exists, np.nan, counts) for counts in totals[1:]))
        counted = self._last or begun
        self._last = Totals(*np.where(np.isnan(counted.bytes), begun, counted))
        self._began_at = now

    def of_pairs(self, rows: Rows) -> None:
        """Change the pairs, and their order, for which later totals have values.

        ``rows``: index of each new pair among the old pairs, -1 if it was not there."""
        if self._last is not None:
            unknown = np.full((1, 3), np.nan)
            self._last = Totals(*np.concatenate([np.stack(self._last, axis=1), unknown])[rows].T)

    def look(self, pairs: Sequence[Pair], totals: Totals, known: Set[Pair], iteration_s: float, now: float) -> bool:
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
        """Record that all traffic after ``since`` is measured.

        Drop the pairs that were found before ``since``: such a pair is measured by now, or sends little."""
        self._minor |= {pair for pair, (at, _) in self._found.items() if at < since}
        self._found = {pair: found for pair, found in self._found.items() if pair not in self._minor}

    def forget_silent(self, carrying: Collection[Pair], since: float) -> None:
        """Forget the pairs that were found before ``since`` and have sent nothing from then on.

        ``carrying``: pairs that have sent since then."""
        self._found = {pair: found for pair, found in self._found.items() if found[0] >= since or pair in carrying}

    def added_to(self, known: VirtualLinks) -> VirtualLinks:
        """Return ``known`` with links for the found pairs that it lacks; each group of pairs has its own phase.

        If ``known`` lacks no found pair, the same object is returned."""
        found = tuple((pair, group) for pair, (_, group) in self._found.items() if pair not in known.pairs)
        return self._with_found(known, found, tuple(self._bytes)) if found else known


def _with_found(known: VirtualLinks, found: tuple[tuple[Pair, int], ...], sizes: tuple[int, ...]) -> VirtualLinks:
    first = max((link.phase for link in known), default=-1) + 1
    phase = {group: first + number for number, group in enumerate(sorted({group for _, group in found}))}
    links = [*known, *(VirtualLink(*pair, phase[group], sizes[group]) for pair, group in found)]
    return VirtualLinks(sorted(links, key=lambda link: (link.src_ip, link.dst_ip, link.phase)))
