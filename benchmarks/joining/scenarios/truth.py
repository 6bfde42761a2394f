"""What slows a job, recomputed from the ports of switches and the jobs' logs, to check what the controller shows.

In: bytes that cables have carried, the iterations of announced jobs, what these send per iteration, their paths. Out:
the slowdown of each job: the demand of all announced flows on its fullest link over what other traffic leaves of it.
Shares nothing with the controller. Pure but for ``PortBytes``.
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
"""Names of the bridges, which the controller has for the switches, in the direction of the bytes."""
Flow = tuple[str, str, str]
Moment = tuple[float, float, float]
"""Seconds, the slowdown that is shown, the true one."""

HEADERS = 1514 / 1448
"""Bytes on the wire per byte of payload in full segments with timestamps."""
INTERFACES = Path("/sys/class/net")
LEAST_LEFT = 0.5
"""Share of a link that is left however much other traffic was there: what adapts gives way
(docs/explanation/planning.md)."""


@dataclass
class PortBytes:
    """``samples``: (seconds, bytes by link since the lab began), as the receiving end of every cable counts them."""

    lab: Lab
    samples: list[tuple[float, dict[Link, int]]] = field(default_factory=list)

    def sample(self, at_s: float) -> None:
        found = {}
        for cable in self.lab.topo.fabric.cables:
            for src, dst, port in ((cable.a, cable.b, cable.b_port), (cable.b, cable.a, cable.a_port)):
                name = self.lab.topo.interface(dst, port)
                ends = self.lab.bridge(src), self.lab.bridge(dst)
                found[ends] = int((INTERFACES / name / "statistics" / "rx_bytes").read_text())
        self.samples.append((round(at_s, 2), found))


class Sends(NamedTuple):
    """An announced job. ``iterations``: (begin, duration). ``flows``: payload of an iteration by source and
    destination; ``shares``: of the capacity that each needs when nothing is in its way."""

    iterations: Sequence[tuple[float, float]]
    flows: Mapping[tuple[str, str], float]
    shares: Mapping[tuple[str, str], float]


def sent_between(iterations: Iterable[tuple[float, float]], begin: float, end: float) -> float:
    """Return how many iterations were sent between the times, in parts, if each sends steadily."""
    return sum(max(0.0, min(end, at + took) - max(begin, at)) / took for at, took in iterations)


def rates(samples: Sequence[tuple[float, Mapping[Link, int]]], at: float, window_s: float) -> dict[Link, float]:
    """Return the bits per second of each link over the window that ends at the last sample up to then; empty without
    one."""
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
    """Return the slowdown, at least 1, of each job with a path whose links were all counted. ``paths``: of all
    announced flows, the switches."""
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
    """Return the longest time for which what is shown differs from the truth by more than this part."""
    longest, since = 0.0, None
    for at, shown, true in moments:
        if abs(shown / true - 1) <= tolerance:
            since = None
        else:
            since = at if since is None else since
            longest = max(longest, at - since)
    return longest
