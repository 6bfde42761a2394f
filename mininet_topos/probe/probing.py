"""Probes in the hosts of a lab: started once, changed while they run, read at the end.

There is one probing process per host. The result is all packets between every two hosts, as one ``Stream`` per pair. A
stream's ``Outcome`` in a window of time has the packets lost, duplicated and overtaken, and gaps without arrivals. All
times are seconds on CLOCK_MONOTONIC.
"""

import json
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Protocol, Self

from mininet_topos.probe.prober import LINGER_S, MIN_FRAME_BYTES
from offline.scenarios.topologies import Host

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


STOP_TIMEOUT_S = 30.0


class Place(Protocol):
    """Object that starts programs in hosts, such as a ``Lab``."""

    def popen(self, host: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]: ...


class Probing:
    """Probing processes in ``hosts``, which run while the context is entered.

    ``raw``: directory for their reports. ``tos``: type of service in the header of every packet."""

    def __init__(self, lab: Place, hosts: Iterable[Host], raw: Path, tos: int = 0) -> None:
        self._lab = lab
        self._hosts = tuple(hosts)
        self._raw = raw
        self._tos = tos
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._running: set[Pair] = set()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._raw.mkdir(parents=True, exist_ok=True)
        for host in self._hosts:
            options = ["--bind", host.ip, "--tos", str(self._tos), "--out", str(self._report(host))]
            argv = [sys.executable, "-m", "mininet_topos.probe", *options]
            log = self._stack.enter_context((self._raw / f"{host.name}.log").open("w"))
            self._processes[host.ip] = self._lab.popen(
                host.name, argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        for process in self._processes.values():
            assert process.stdout
            process.stdout.readline()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            with process:  # closes its pipes and waits
                process.kill()
        self._stack.close()

    def send(self, pair: Pair, interval_s: float, frame_bytes: int = MIN_FRAME_BYTES) -> None:
        """Send a frame every ``interval_s`` seconds from now on; 0 stops that."""
        stdin = self._processes[pair[0]].stdin
        assert stdin
        stdin.write(f"{pair[1]} {interval_s} {frame_bytes}\n")
        stdin.flush()
        (self._running.add if interval_s else self._running.discard)(pair)

    def finish(self) -> tuple[dict[Pair, Stream], int]:
        """End all probes; return the streams, and how many packets were dropped because a process was late."""
        for pair in tuple(self._running):
            self.send(pair, 0)
        time.sleep(LINGER_S)  # for packets in queues: all must have stopped sending before any stops listening
        for process in self._processes.values():
            assert process.stdin
            process.stdin.close()
        for host in self._hosts:
            if self._processes[host.ip].wait(STOP_TIMEOUT_S):
                raise RuntimeError(f"the probes of {host.name} failed, see {self._raw / host.name}.log")
        return read_streams(self._report(host) for host in self._hosts)

    def _report(self, host: Host) -> Path:
        return self._raw / f"probes-{host.name}.json"
