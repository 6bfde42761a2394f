"""Bytes and packets from one address to another, added up over all rules that have ever counted them.

Rules come and go: a pair is counted by a learning rule, then by a pin, then by one pin per subflow. In: the cumulative
counters of each switch's rules, as they are polled. Out: totals per pair that never fall, in arrays. What a rule had
counted before it was seen first is left out, unless the switch was polled before and did not have it then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.fabric.counter_samples import Floats, Rows
from controller.fabric.link_load import Counted
from controller.fabric.topology import Dpid
from controller.jobs.subflows import Pair


class RuleReading(NamedTuple):
    """One rule of one poll: what it counts, and how much so far."""

    what: Counted
    bytes: int
    packets: int


class Totals(NamedTuple):
    """One value per pair that was asked for. ``at``: monotonic seconds of the latest poll of the switch that counts it,
    NaN where there was none. Bytes include all headers from Ethernet on."""

    at: Floats
    bytes: Floats
    packets: Floats

    def with_others(self, others: Totals, wanted: NDArray[np.bool_]) -> Totals:
        """And where ``wanted`` what these have counted too."""
        return Totals(
            np.where(wanted, np.fmax(self.at, others.at), self.at),
            self.bytes + np.where(wanted, others.bytes, 0.0),
            self.packets + np.where(wanted, others.packets, 0.0),
        )


MOST_GONE = 1000
"""Rules that were not in the latest poll are remembered: it may be incomplete."""

Key = tuple[str, str, str]
"""Source, destination, and the job that has reported the connection; empty for rules of all packets, or of classes."""


class PairCounters:
    """One row per key, kept until ``keep`` drops it. ``connections``: the job of each connection (addresses, then
    ports) that was reported; what its rule counts is that job's alone."""

    def __init__(self) -> None:
        self.connections: Mapping[tuple[str, str, int, int], str] = {}
        self._row_of: dict[Key, int] = {}
        self._at = np.zeros(0)
        self._bytes = np.zeros(0)
        self._packets = np.zeros(0)
        self._last: dict[Dpid, dict[Counted, tuple[int, int]]] = {}

    def count(self, dpid: Dpid, at: float, readings: Sequence[RuleReading]) -> None:
        """One poll of one switch, all its rules at once."""
        before, now = self._last.get(dpid), {}
        rows = self._rows(self._key(reading.what) for reading in readings)
        more_bytes, more_packets = np.zeros(len(rows)), np.zeros(len(rows))
        for number, (what, bytes_, packets) in enumerate(readings):
            now[what] = bytes_, packets
            if before is None:
                continue
            last_bytes, last_packets = before.get(what, (0, 0))
            if bytes_ < last_bytes or packets < last_packets:  # added anew
                last_bytes = last_packets = 0
            more_bytes[number], more_packets[number] = bytes_ - last_bytes, packets - last_packets
        kept = before if before and len(before) <= MOST_GONE + 2 * len(now) else {}
        self._last[dpid] = {**kept, **now}
        np.add.at(self._bytes, rows, more_bytes)
        np.add.at(self._packets, rows, more_packets)
        self._at[rows] = at

    @property
    def running(self) -> bool:
        """Some switch was polled."""
        return bool(self._last)

    def switch_left(self, dpid: Dpid) -> None:
        """What its rules count from here on is not known to go on where it was."""
        self._last.pop(dpid, None)

    def keep(self, pairs: Set[Pair]) -> None:
        """Forgets all others."""
        kept = {key: row for key, row in self._row_of.items() if key[:2] in pairs}
        if len(kept) == len(self._row_of):
            return
        rows = np.fromiter(kept.values(), np.int64, len(kept))
        self._at, self._bytes, self._packets = self._at[rows], self._bytes[rows], self._packets[rows]
        self._row_of = {key: row for row, key in enumerate(kept)}

    def totals(self, pairs: Sequence[Pair], job: str = "") -> Totals:
        """Of these pairs, in their order: of the rules for the connections of ``job``, or of all others."""
        rows = np.fromiter((self._row_of.get((*pair, job), -1) for pair in pairs), np.int64, len(pairs))
        if not len(self._at):
            return Totals(np.full(len(rows), np.nan), np.zeros(len(rows)), np.zeros(len(rows)))
        known = rows >= 0
        return Totals(
            np.where(known, self._at[rows], np.nan),
            np.where(known, self._bytes[rows], 0.0),
            np.where(known, self._packets[rows], 0.0),
        )

    def _key(self, what: Counted) -> Key:
        if isinstance(what.part, tuple):
            src, dst = what.part
            if src is not None and dst is not None:
                return what.src_ip, what.dst_ip, self.connections.get((*what[:2], src.value, dst.value), "")
        return what.src_ip, what.dst_ip, ""

    def _rows(self, keys: Iterable[Key]) -> Rows:
        rows = np.array([self._row_of.setdefault(key, len(self._row_of)) for key in keys], np.int64)
        new = len(self._row_of) - len(self._at)
        if new:
            self._at = np.concatenate([self._at, np.full(new, np.nan)])
            self._bytes = np.concatenate([self._bytes, np.zeros(new)])
            self._packets = np.concatenate([self._packets, np.zeros(new)])
        return rows
