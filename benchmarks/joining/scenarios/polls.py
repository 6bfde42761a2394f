"""Counters of a real job as polls deliver them, recorded next to the controller for replay.

The leaves of a lab are polled with ovs-ofctl every ``EVERY_S``. The result is a JSON file per job:

- ``spec``, ``interval_s``;
- ``pairs`` of its hosts: [source, destination, number of the source's switch];
- ``polls``: [{``now``, ``counters`` per pair [time of the switch's answer, bytes, packets]}];
- ``reports``: [time, durations of the iterations that ended].
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

from controller.tables.rules import Table
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import run
from signalbox.jobs.spec import JobSpec

EVERY_S = 2.0
PINNED = f"table={Table.PINNED.value}"
FLOW = re.compile(r"\bn_packets=(\d+), n_bytes=(\d+),.*\bnw_src=([\d.]+),nw_dst=([\d.]+)\b")

Pair = tuple[str, str]


class Answer(NamedTuple):
    """Counters of one switch. ``at``: seconds after the recording began."""

    at: float
    bytes: Counter[Pair]
    packets: Counter[Pair]


def counted(listed: str) -> tuple[Counter[Pair], Counter[Pair]]:
    """Return bytes and packets by source and destination, from ``ovs-ofctl dump-flows``.

    A pair may have several rules."""
    bytes_, packets = Counter[Pair](), Counter[Pair]()
    for line in listed.splitlines():
        if found := FLOW.search(line):
            pair = found[3], found[4]
            bytes_[pair] += int(found[2])
            packets[pair] += int(found[1])
    return bytes_, packets


class Recorder:
    """Recording of the counters of all leaves of a lab."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._began = time.monotonic()
        self._leaves = tuple(dict.fromkeys(host.leaf for host in lab.hosts))
        self._leaf_of = {host.ip: self._leaves.index(host.leaf) for host in lab.hosts}
        self._polls: list[tuple[float, list[Answer]]] = []

    def poll(self) -> None:
        """Poll all switches if a poll is due."""
        if self._now() < EVERY_S * len(self._polls):
            return
        answers = []
        for leaf in self._leaves:
            listed = run("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", self._lab.bridge(leaf), PINNED)
            answers.append(Answer(self._now(), *counted(listed)))
        self._polls.append((self._now(), answers))

    def write(self, spec: JobSpec, iterations: Sequence[tuple[float, float]], file: Path) -> None:
        """Write the file of one job. ``iterations``: end in monotonic seconds, and duration."""
        pairs = list(permutations(dict.fromkeys(spec.endpoints), 2))
        polls = []
        for now, answers in self._polls:
            of_pair = ((pair, answers[self._leaf_of[pair[0]]]) for pair in pairs)
            counters = [[round(a.at, 4), a.bytes[pair], a.packets[pair]] for pair, a in of_pair]
            polls.append({"now": round(now, 4), "counters": counters})
        data = {
            "spec": spec.model_dump(mode="json", exclude_defaults=True),
            "interval_s": EVERY_S,
            "pairs": [[*pair, self._leaf_of[pair[0]]] for pair in pairs],
            "polls": polls,
            "reports": [[round(end - self._began, 4), [round(took, 4)]] for end, took in iterations],
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(data) + "\n")

    def _now(self) -> float:
        return time.monotonic() - self._began
