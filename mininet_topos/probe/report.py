"""Figures of probes: packets lost, duplicated and overtaken, and gaps without arrivals.

The input is the reports of the probing processes. The result is one ``Stream`` per pair of hosts, and its ``Outcome``
in a window of time. Pure except for reading files. All times are seconds on CLOCK_MONOTONIC.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from pathlib import Path

Pair = tuple[str, str]
"""Addresses of source and destination."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Figures of the packets that were sent in a window.

    ``stopped_s``: longest time during which all packets were lost; 0 when none was lost. It lasts from the sending of
    the first lost packet to the sending of the next packet that arrived. ``overtaken``: packets that arrived after one
    with a larger number (RFC 4737, section 3). ``silence_s``: longest time between two arrivals."""

    sent: int
    lost: int
    duplicated: int
    overtaken: int
    stopped_s: float
    silence_s: float


@dataclass(frozen=True)
class Stream:
    """All probes from one host to another.

    ``sent``: times by number. ``arrivals``: (number, time), in order of arrival."""

    pair: Pair
    sent: Sequence[float]
    arrivals: Sequence[tuple[int, float]]

    @cached_property
    def _arrived(self) -> frozenset[int]:
        return frozenset(number for number, _ in self.arrivals)

    def numbers(self, start: float, end: float) -> range:
        """Return the numbers of the packets sent in [start, end)."""
        return range(bisect_left(self.sent, start), bisect_left(self.sent, end))

    def stops(self, start: float, end: float) -> Iterator[tuple[float, float]]:
        """Yield (start, length) of every run of lost packets that begins in the window.

        A run lasts until the sending of the next packet that arrived, which may be after the window. Without one, it
        lasts until the last packet that was sent."""
        gone = [number for number in self.numbers(start, end) if number not in self._arrived]
        for _, run in groupby(enumerate(gone), key=lambda item: item[1] - item[0]):
            first = next(run)[1]
            number = first
            while number < len(self.sent) and number not in self._arrived:
                number += 1
            yield self.sent[first], self.sent[min(number, len(self.sent) - 1)] - self.sent[first]

    def outcome(self, start: float, end: float) -> Outcome:
        """Return the figures of the packets sent in [start, end)."""
        numbers = self.numbers(start, end)
        seen = [(number, at) for number, at in self.arrivals if number in numbers]
        highest, overtaken = -1, 0
        for number, _ in seen:
            overtaken += number < highest
            highest = max(highest, number)
        different = {number for number, _ in seen}
        return Outcome(
            sent=len(numbers),
            lost=len(numbers) - len(different),
            duplicated=len(seen) - len(different),
            overtaken=overtaken,
            stopped_s=max((length for _, length in self.stops(start, end)), default=0.0),
            silence_s=max((b - a for (_, a), (_, b) in pairwise(seen)), default=0.0),
        )


def read_streams(reports: Iterable[Path]) -> tuple[dict[Pair, Stream], int]:
    """Return the streams between all hosts, and how many packets were dropped because a process was late."""
    by_ip = {report["ip"]: report for report in (json.loads(path.read_text()) for path in reports)}
    streams = {}
    for src, report in by_ip.items():
        for dst, sent in report["sent"].items():
            arrivals = [(number, at) for number, at in by_ip[dst]["received"].get(src, ())]
            streams[src, dst] = Stream((src, dst), sent, arrivals)
    return streams, sum(report["overflows"] for report in by_ip.values())
