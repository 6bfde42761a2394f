"""The pairs of a job that is being learnt which carry traffic, from the first counters that show it.

How much each of them carries takes a window (``payload_windows``). Until then all pairs that were found together are
taken to carry the same, in a phase of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set

import numpy as np

from controller.fabric.counter_samples import Rows
from controller.fabric.link_load import LAG_S
from controller.jobs.pair_counters import Totals
from controller.jobs.payload_windows import HEADER_BYTES
from controller.memo import Memo
from signalbox.jobs.collectives import VirtualLink, VirtualLinks
from signalbox.jobs.spec import Transport
from signalbox.jobs.subflows import Pair

FEWEST_BYTES = 10 * 1448
"""Payload of a pair between two polls: ten full segments. Less may be of a handshake."""

LEAST_PAYLOAD = 64
"""Mean payload of a packet in bytes. An acknowledgement with three SACK blocks has 28 (RFC 2018), and the traffic that
it answers may not be counted yet."""

LEAST_PART = 0.1
"""Of the highest rate of a pair of the job so far. Counters that lag show a fifth of a rate at first."""

APART_S = 1.25
"""Pairs that are found so much later than those before send at another time. Switches that are read together show the
pairs of one collective within the lag of their counters and a poll."""


class FirstBytes:
    """What is seen of one job since ``begin``. Totals are in the order of the job's pairs."""

    def __init__(self, transport: Transport) -> None:
        self._header_bytes = HEADER_BYTES[transport]
        self._last: Totals | None = None
        self._peak_bps = 0.0
        self._found: dict[Pair, tuple[float, int]] = {}  # when, and with which group
        self._bytes: list[int] = []  # of the pairs of each group
        self._found_at = -math.inf
        self._minor: set[Pair] = set()
        self._with_found = Memo(_with_found)

    def begin(self, totals: Totals, now: float) -> None:
        """Pairs that were not counted have rules from now on. What others have counted of them before is left out."""
        self._last = totals._replace(at=np.full(len(totals.at), now))

    def of_pairs(self, rows: Rows) -> None:
        """From now on totals are of other pairs. ``rows``: their places among those before, -1 for new ones."""
        if self._last is not None:
            unknown = np.full((1, 3), np.nan)
            self._last = Totals(*np.concatenate([np.stack(self._last, axis=1), unknown])[rows].T)

    def look(self, pairs: Sequence[Pair], totals: Totals, known: Set[Pair], iteration_s: float, now: float) -> bool:
        """Take the latest counters in. Return whether they show pairs that are neither ``known`` nor found yet.
        ``iteration_s``: for which the bytes of these pairs are given."""
        last, self._last = self._last, totals
        if last is None:
            return False
        packets = totals.packets - last.packets
        payload = totals.bytes - last.bytes - self._header_bytes * packets
        # Counters follow in steps of their lag: two polls a moment apart would make a high rate of it.
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
        """What was sent from then on is known, of every pair: one that was found before and is not known by now has
        sent little."""
        self._minor |= {pair for pair, (at, _) in self._found.items() if at < since}
        self._found = {pair: found for pair, found in self._found.items() if pair not in self._minor}

    def added_to(self, known: VirtualLinks) -> VirtualLinks:
        """These, and in phases of their own the pairs found that are not among them; the same object without any."""
        found = tuple((pair, group) for pair, (_, group) in self._found.items() if pair not in known.pairs)
        return self._with_found(known, found, tuple(self._bytes)) if found else known


def _with_found(known: VirtualLinks, found: tuple[tuple[Pair, int], ...], sizes: tuple[int, ...]) -> VirtualLinks:
    first = max((link.phase for link in known), default=-1) + 1
    phase = {group: first + number for number, group in enumerate(sorted({group for _, group in found}))}
    links = [*known, *(VirtualLink(*pair, phase[group], sizes[group]) for pair, group in found)]
    return VirtualLinks(sorted(links, key=lambda link: (link.src_ip, link.dst_ip, link.phase)))
