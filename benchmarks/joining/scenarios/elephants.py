"""Scenario elephants: unannounced traffic starts while announced jobs train.

Three rings, each with one host per leaf, are announced and train. Then three long TCP flows and 200 short ones a second
start between the fourth hosts of the leaves, over links that the rings use. The scenario measures how long iterations
suffer, and whether the reported slowdowns are right.

``slowdowns`` recomputes the slowdown of each job from port counters and the jobs' logs, without the controller's code.
On the job's fullest link it divides the demand of all announced flows by the capacity that other traffic leaves.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from benchmarks.joining.mixes import Announced, spec_of
from benchmarks.joining.scenarios.rows import Found, Row, Target, by_mode, with_flat_s, worst
from benchmarks.joining.scenarios.stage import Stage, moves
from mininet_topos.demo.phases import HOSTS_PER_LEAF, RATE_BPS
from mininet_topos.joining.jobs import LibraryJob
from mininet_topos.lab.lab import Lab
from offline.scenarios.topologies import Host
from signalbox.jobs.collectives import virtual_links

SECONDS = 75.0
WARM_S = 25.0
"""Seconds for which the jobs train before the other traffic starts.

By then the plan is in force, and counters have confirmed the announced bytes.
"""
SAMPLE_S = 0.5
COUNTERS_S = 2.0
"""Seconds between two polls of counters by the controller."""
EARLY_S = 3.0
MICE_PER_S = 200.0
KINDS = (("all_reduce", 120_120), ("ddp", 120_408), ("all_gather", 240_240))

Link = tuple[str, str]
"""Link from one switch to another, by their names."""
Flow = tuple[str, str, str]
Moment = tuple[float, float, float]
"""Seconds after the stage began, reported slowdown, true slowdown."""

HEADERS = 1514 / 1448
"""Bytes on the wire per byte of payload, for full segments with TCP timestamps."""
INTERFACES = Path("/sys/class/net")
LEAST_LEFT = 0.5
"""Part of a link's capacity that the jobs are assumed to get at least, however much other traffic it carries.

Traffic that adapts its rate gives way to the jobs."""

AFTER, OFF_S, TOLERANCE = 1.10, 2 * COUNTERS_S, 0.2
"""Targets: iteration time relative to the flat switch; seconds of a wrong slowdown; error that makes a slowdown wrong.

``OFF_S`` is the time of two polls of counters. The first poll sees the traffic up to ``COUNTERS_S`` after its start.
The next poll, ``COUNTERS_S`` later, has counted it for a whole interval, so the reported slowdown must then be right.
"""


def layout(hosts: Sequence[Host], seed: int) -> tuple[list[tuple[Host, ...]], tuple[Host, ...]]:
    """Return three rings, each with one host per leaf, and the remaining hosts, one per leaf."""
    chosen = random.Random(seed)
    leaves = [chosen.sample(hosts[at : at + HOSTS_PER_LEAF], HOSTS_PER_LEAF) for at in range(0, 16, HOSTS_PER_LEAF)]
    *rings, idle = zip(*leaves, strict=True)
    return rings, idle


def ring_jobs(stage: Stage, seed: int) -> list[LibraryJob]:
    rings, _ = layout(stage.lab.hosts, seed)
    return [
        LibraryJob(f"e{seed}-{number}-{name.replace('_', '-')}", "gloo", name, hosts, elements)
        for number, ((name, elements), hosts) in enumerate(zip(KINDS, rings, strict=True))
    ]


def play(stage: Stage, seed: int, seconds: float) -> Iterator[tuple[LibraryJob, Mapping[str, Any]]]:
    jobs = ring_jobs(stage, seed)
    _, idle = layout(stage.lab.hosts, seed)
    unannounced = Unannounced(stage, idle, seconds)
    for job in jobs:
        stage.begin(job, spec_of(job, Announced.RIGHT))
    ports = PortBytes(stage.lab)
    began_s = None
    start_s = stage.now_s
    for now in stage.until(start_s + WARM_S + seconds):
        if not ports.samples or now >= ports.samples[-1][0] + SAMPLE_S:
            ports.sample(now)
        if began_s is None and now >= start_s + WARM_S:
            unannounced.begin()
            began_s = now
    stage.end_all()
    found = shown_and_true(stage, jobs, ports) if stage.planned else {}
    for job in jobs:
        moments = found.get(job.job_id)
        off_s = longest_off(moments, TOLERANCE) if moments else None
        yield job, {"began_s": began_s, "off_s": off_s, "moves": moves(stage.looks), "slowdowns": moments}


class Unannounced:
    """Unannounced traffic between the idle hosts (``demo.traffic``). All of it starts with ``begin``."""

    def __init__(self, stage: Stage, idle: Sequence[Host], seconds: float) -> None:
        self._ready, self._go = stage.folder / "sinks", stage.folder / "go"
        self._stage = stage
        logs = stage.folder / "unannounced"
        logs.mkdir()
        for source, sink in pairwise(idle):
            name = ["--name", f"{source.name}-{sink.name}"]
            self._start(sink, "sink", "--rendezvous", str(self._ready), *name, "--bind", sink.ip)
            self._start(source, "source", "--rendezvous", str(self._go), *name, "--seconds", str(seconds))
        for host in idle:
            peers = ",".join(other.ip for other in idle if other is not host)
            words = ["--rendezvous", str(self._go), "--name", "mice", "--bind", host.ip, "--peers", peers]
            rate = str(MICE_PER_S / len(idle))
            self._start(host, "mice", *words, "--per-second", rate, "--seconds", str(seconds))

    def _start(self, host: Host, *words: str) -> None:
        with (self._stage.folder / "unannounced" / f"{host.name}-{words[0]}.log").open("w") as log:
            argv = [sys.executable, "-m", "mininet_topos.demo.traffic", *words]
            self._stage.lab.popen(host.name, argv, stdout=log, stderr=log)

    def begin(self) -> None:
        shutil.copytree(self._ready, self._go, dirs_exist_ok=True)
        (self._go / "mice").write_text("- 0\n")


def shown_and_true(stage: Stage, jobs: Sequence[LibraryJob], ports: PortBytes) -> dict[str, list[Moment]]:
    """Return, for each job, the reported and the true slowdown in every ``Look`` after the warm-up."""
    sends = {}
    for job in jobs:
        flows: dict[tuple[str, str], float] = {}
        for link in virtual_links(spec_of(job, Announced.RIGHT)):
            flows[link.src_ip, link.dst_ip] = flows.get((link.src_ip, link.dst_ip), 0.0) + link.bytes
        busiest = max(flows.values())  # every NIC of a ring sends this number of bytes
        iterations = [(begin, took) for begin, took, _ in stage.iterations_of(job.job_id)]
        sends[job.job_id] = Sends(iterations, flows, {pair: count / busiest for pair, count in flows.items()})
    moments: dict[str, list[Moment]] = {job.job_id: [] for job in jobs}
    for look in stage.looks:
        if look.after_s < WARM_S:
            continue
        true = slowdowns(sends, look.paths, ports.samples, look.after_s, COUNTERS_S, RATE_BPS)
        for job_id, slowdown in true.items():
            shown = look.jobs[job_id].slowdown if job_id in look.jobs else None
            if shown is not None:
                moments[job_id].append((look.after_s, shown, round(slowdown, 3)))
    return moments


# ---- verdict


def by_time(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a line per job: mean ratios before the other traffic, in its first 3 s, and later.

    ``slow_until_s``: seconds from the start of the traffic to the end of the last iteration with a ratio above
    ``AFTER``."""
    lines = []
    for row, alone_s in with_flat_s(rows):
        began = row.more["began_s"]
        over = [(begin - began, begin + took - began, took / alone_s) for begin, took, *_ in row.settled]
        parts = {
            "before": [ratio for _, end, ratio in over if end <= 0],
            "first 3 s": [ratio for begin, end, ratio in over if end > 0 and begin < EARLY_S],
            "later": [ratio for begin, _, ratio in over if begin >= EARLY_S],
        }
        bad = [end for begin, end, ratio in over if end > 0 and ratio > AFTER]
        lines.append(
            {
                "mode": row.mode,
                "repeat": str(row.repeat),
                "job": row.job,
                **{name: fmean(part) if part else None for name, part in parts.items()},
                "worst_later": max(parts["later"], default=None),
                "slow_until_s": max(bad, default=0.0),
                "largest_shown": max((shown for _, shown, _ in row.more["slowdowns"] or ()), default=None),
                "largest_true": max((true for *_, true in row.more["slowdowns"] or ()), default=None),
                "shown_off_s": row.more["off_s"],
                "moves": row.more["moves"],
            }
        )
    return lines


def judge(rows: Sequence[Row]) -> Found:
    lines = by_time(rows)
    return Found(
        {"Iteration times / those on the flat switch": by_mode(rows), "Before and after the traffic begins": lines},
        [
            Target(
                "worst iteration that starts at least 3 s after the other traffic", worst(lines, "worst_later"), AFTER
            ),
            Target(
                "longest time in s for which a shown slowdown is off by more than 20 %",
                worst(lines, "shown_off_s"),
                OFF_S,
            ),
        ],
    )


@dataclass
class PortBytes:
    """Bytes that each link has carried, counted at the receiving end of its cable."""

    lab: Lab
    samples: list[tuple[float, dict[Link, int]]] = field(default_factory=list)
    """Samples: time in seconds, and the bytes of each link since the lab was started."""

    def sample(self, at_s: float) -> None:
        found = {}
        for cable in self.lab.topo.fabric.cables:
            for src, dst, port in ((cable.a, cable.b, cable.b_port), (cable.b, cable.a, cable.a_port)):
                name = self.lab.topo.interface(dst, port)
                ends = self.lab.bridge(src), self.lab.bridge(dst)
                found[ends] = int((INTERFACES / name / "statistics" / "rx_bytes").read_text())
        self.samples.append((round(at_s, 2), found))


class Sends(NamedTuple):
    """Traffic of one announced job."""

    iterations: Sequence[tuple[float, float]]
    """Start and duration of each iteration, in seconds."""
    flows: Mapping[tuple[str, str], float]
    """Bytes of payload per iteration, by source and destination address."""
    shares: Mapping[tuple[str, str], float]
    """Bandwidth that each pair needs in an undisturbed iteration, as a share of a link's capacity."""


def sent_between(iterations: Iterable[tuple[float, float]], begin: float, end: float) -> float:
    """Return how many iterations' worth of bytes were sent from ``begin`` to ``end``, such as 1.5.

    An iteration is assumed to send at a constant rate from its start to its end."""
    return sum(max(0.0, min(end, at + took) - max(begin, at)) / took for at, took in iterations)


def rates(samples: Sequence[tuple[float, Mapping[Link, int]]], at: float, window_s: float) -> dict[Link, float]:
    """Return the bit/s of each link, averaged over the ``window_s`` seconds before the last sample up to ``at``.

    The result is empty when no sample is that old."""
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
    """Return the slowdown, at least 1, of each job; jobs that use an uncounted link are left out.

    ``paths``: names of the switches on the path of each announced flow."""
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
    """Return the longest time in seconds for which the reported value is wrong by more than ``tolerance``."""
    longest, since = 0.0, None
    for at, shown, true in moments:
        if abs(shown / true - 1) <= tolerance:
            since = None
        else:
            since = at if since is None else since
            longest = max(longest, at - since)
    return longest
