"""Leaf-spine fabrics and ring jobs to measure on, generated or from published workload files.

Out: the frozen ``Fabric`` and ``Job`` that the controller itself uses. All links and NICs have one rate, as in the
publications.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from controller.fabric.topology import Dpid, Fabric, Host, Link, Port, PortNo, PortRef, Switch
from controller.jobs.registry import Job, JobRegistry
from controller.jobs.spec import JobSpec

LINK_BPS = 100e9
RING = 4
BYTES_PER_ITERATION = 1 << 30
SEED = 1


class Size(NamedTuple):
    leaves: int
    spines: int
    hosts_per_leaf: int

    def __str__(self) -> str:
        return "x".join(map(str, self))


PUBLISHED = Size(64, 32, 32)
"""The fabric that the published workloads are made for (arXiv 2503.05324)."""


def leaf_spine(size: Size) -> Fabric:
    """Switches 1, 2, ... are the leaves, then come the spines. A leaf's first ports go to the spines, its next ones to
    its hosts; hosts are in the order of their leaves."""
    leaves = [Dpid(1 + leaf) for leaf in range(size.leaves)]
    spines = [Dpid(1 + size.leaves + spine) for spine in range(size.spines)]
    switches = [_switch(dpid, f"leaf{dpid}", size.spines + size.hosts_per_leaf) for dpid in leaves]
    switches += [_switch(dpid, f"spine{dpid - size.leaves}", size.leaves) for dpid in spines]
    links = []
    for leaf, (number, spine) in product(leaves, enumerate(spines, start=1)):
        up, down = PortRef(leaf, PortNo(number)), PortRef(spine, PortNo(leaf))
        links += [Link(up, down, LINK_BPS), Link(down, up, LINK_BPS)]
    hosts = [
        Host(f"10.0.{leaf}.{1 + host}", None, PortRef(leaf, PortNo(1 + size.spines + host)), LINK_BPS)
        for leaf, host in product(leaves, range(size.hosts_per_leaf))
    ]
    return Fabric(1, {s.dpid: s for s in switches}, {li.id: li for li in links}, {h.ip: h for h in hosts})


def _switch(dpid: Dpid, name: str, ports: int) -> Switch:
    numbers = [PortNo(1 + port) for port in range(ports)]
    return Switch(dpid, name, {number: Port(number, f"eth{number}", "", True, LINK_BPS) for number in numbers})


def without_a_cable(fabric: Fabric) -> Fabric:
    """The same fabric with the first leaf's first cable cut."""
    cut = next(iter(fabric.links.values()))
    links = {link_id: link for link_id, link in fabric.links.items() if link_id.at not in (cut.src, cut.dst)}
    return replace(fabric, generation=fabric.generation + 1, links=links)


def ring_jobs(fabric: Fabric, jobs: int) -> list[Job]:
    """Jobs of equally many rings of four randomly placed hosts, as many as fit."""
    ips = list(fabric.hosts)
    random.Random(SEED).shuffle(ips)
    rings = [ips[start : start + RING] for start in range(0, len(ips), RING)]
    share = len(rings) // jobs
    return [_job(f"job{n}", rings[n * share : (n + 1) * share], BYTES_PER_ITERATION) for n in range(jobs)]


def _job(job_id: str, rings: Iterable[Sequence[str]], size: int) -> Job:
    """``rings``: addresses in ring order; each runs a ring all-reduce of ``size`` bytes per iteration."""
    endpoints: list[str] = []
    groups = []
    for number, ring in enumerate(rings):
        ranks = range(len(endpoints), len(endpoints) + len(ring))
        groups.append({"name": f"ring{number}", "ranks": ranks})
        endpoints += ring
    names = [group["name"] for group in groups]
    collective = {"algorithm": "ring_all_reduce", "groups": names, "bytes_per_iteration": size}
    spec = JobSpec.parse({"job_id": job_id, "endpoints": endpoints, "groups": groups, "collectives": [collective]})
    return JobRegistry(max_jobs=1).register(spec, now=0.0)


def workloads(folder: Path, fabric: Fabric) -> Iterator[tuple[str, list[Job]]]:
    """Every folder below that holds workload files, one job each, in the order of names."""
    files: dict[Path, list[Path]] = defaultdict(list)
    for file in sorted(folder.rglob("*.txt")):
        files[file.parent].append(file)
    for parent, of_jobs in files.items():
        yield str(parent.relative_to(folder)), [_read_job(file, fabric) for file in of_jobs]


def _read_job(file: Path, fabric: Fabric) -> Job:
    """A line per virtual link: ``src dst src_tor dst_tor start_ns flow_bytes compute_ns ring_index``. Switches are
    numbered first, then hosts leaf by leaf. ``flow_bytes``: one of the 2(n-1) steps of a ring, 1/n of its vector.
    Raises ``ValueError`` for what is not a table of numbers."""
    lines = np.loadtxt(file, dtype=int, ndmin=2)
    ips = list(fabric.hosts)
    next_of = {ips[src]: ips[dst] for src, dst in lines[:, :2] - len(fabric.switches)}
    first_of = {ring: ips[src - len(fabric.switches)] for src, ring in lines[::-1, [0, -1]]}
    rings = [_in_order(first, next_of) for first in first_of.values()]
    return _job(file.stem.lower(), rings, len(rings[0]) * int(lines[0, 5]))


def _in_order(first: str, next_of: Mapping[str, str]) -> list[str]:
    ring = [first]
    while next_of[ring[-1]] != first:
        ring.append(next_of[ring[-1]])
    return ring
