"""Slowdown of jobs, recomputed from switch ports and the jobs' logs, to check the slowdown that the controller reports.

The input is bytes that cables have carried, the iterations of announced jobs, their traffic per iteration, and their
paths. The result is the slowdown of each job: on its fullest link, the demand of all announced flows / the capacity
that other traffic leaves. This module shares no code with the controller. All of it except ``PortBytes`` is pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from mininet_topos.lab.lab import Lab

Link = tuple[str, str]
"""Names of the two bridges, which are the controller's names of the switches, in the direction of the bytes."""
Flow = tuple[str, str, str]
Moment = tuple[float, float, float]
"""Seconds, the reported slowdown, the true slowdown."""

HEADERS = 1514 / 1448
"""Bytes on the wire per byte of payload, in full segments with timestamps."""
INTERFACES = Path("/sys/class/net")
LEAST_LEFT = 0.5
"""Share of a link that is always counted as free of other traffic.

Traffic that adapts gives way (docs/explanation/planning.md)."""


@dataclass
class PortBytes:
    """Bytes of each link, counted at the receiving end of every cable."""

    lab: Lab
    samples: list[tuple[float, dict[Link, int]]] = field(default_factory=list)
    """Time of each sample in seconds, and the bytes of each link from the start of the lab until then."""

    def sample(self, at_s: float) -> None:
        found = {}
        for cable in self.lab.topo.fabric.cables:
            for src, dst, port in ((cable.a, cable.b, cable.b_port), (cable.b, cable.a, cable.a_port)):
                name = self.lab.topo.interface(dst, port)
                ends = self.lab.bridge(src), self.lab.bridge(dst)
                found[ends] = int((INTERFACES / name / "statistics" / "rx_bytes").read_text())
        self.samples.append((round(at_s, 2), found))


class Sends(NamedTuple):
    """Traffic of an announced job."""

    iterations: Sequence[tuple[float, float]]
    """Begin and duration of each iteration."""
    flows: Mapping[tuple[str, str], float]
    """Payload of an iteration, by source and destination."""
    shares: Mapping[tuple[str, str], float]
    """Share of a link's capacity that each pair needs when nothing slows it."""


def sent_between(iterations: Iterable[tuple[float, float]], begin: float, end: float) -> float:
    """Return the number of iterations sent from ``begin`` to ``end``; parts of iterations count as fractions.

    Each iteration is assumed to send at a constant rate."""
    return sum(max(0.0, min(end, at + took) - max(begin, at)) / took for at, took in iterations)


def rates(samples: Sequence[tuple[float, Mapping[Link, int]]], at: float, window_s: float) -> dict[Link, float]:
    """Return the bit/s of each link over the window that ends at the last sample up to ``at``.

    The result is empty when no sample is at least ``window_s`` older than that sample."""
    past = [sample for sample in samples if sample[0] <= at]
    before = [sample for sample in past if past and sample[0] <= past[-1][0] - window_s]
    if not before:
        return {}
    (began, old), (ended, new) = before[-1], past[-1]
    return {link: 8 * (new[link] - old[link]) / (ended - began) for link in new}


def slowdowns(
    jobs: Mapping[str, Sends],
    paths: Mapping[Flow, Sequence[str]],
    samples: Sequence[tuple[float, Mapping[Link, int]]],
    at: float,
    window_s: float,
    capacity_bps: float,
) -> dict[str, float]:
    """Return the slowdown, at least 1, of each job with a path whose links were all counted.

    ``paths``: switches on the path of each announced flow."""
    port_bps = rates(samples, at, window_s)
    own: defaultdict[Link, float] = defaultdict(float)
    demand: defaultdict[Link, float] = defaultdict(float)
    users: defaultdict[Link, set[str]] = defaultdict(set)
    for (job, src, dst), path in paths.items():
        sends = jobs.get(job)
        if sends is None or (src, dst) not in sends.flows:
            continue
        parts = sent_between(sends.iterations, at - window_s, at)
        for link in pairwise(path):
            own[link] += 8 * HEADERS * sends.flows[src, dst] * parts / window_s
            demand[link] += sends.shares[src, dst]
            users[link].add(job)
    known = {job for job, _, _ in paths if job in jobs}
    known -= {job for link, of_jobs in users.items() if link not in port_bps for job in of_jobs}
    found = dict.fromkeys(known, 1.0)
    for link, of_jobs in users.items():
        others = max(0.0, port_bps.get(link, 0.0) - own[link]) / capacity_bps
        for job in of_jobs & known:
            found[job] = max(found[job], demand[link] / max(LEAST_LEFT, 1 - others))
    return found


def longest_off(moments: Sequence[Moment], tolerance: float) -> float:
    """Return the longest time for which the reported value differs from the truth by more than ``tolerance``."""
    longest, since = 0.0, None
    for at, shown, true in moments:
        if abs(shown / true - 1) <= tolerance:
            since = None
        else:
            since = at if since is None else since
            longest = max(longest, at - since)
    return longest
