"""The jobs that the benchmark registers: workload files' rings as announcements.

In: ``WorkloadJob``s, whose rings are lists of flows. Out: ``JobSpec``s whose ring all-reduces have the same flows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from controller.errors import FieldProblem, InvalidInput
from controller.fabric.topology import Fabric
from controller.jobs.collectives import VirtualLink
from controller.jobs.spec import MAX_LEASE_S, Algorithm, Collective, JobSpec, ParallelGroup
from controller.jobs.workload import WorkloadJob
from controller.offline.fabric_options import Placement
from controller.offline.generator import generate, jobs_of
from controller.offline.workloads import read_workload

JOBS = 3
RING_SIZE = 8
FILLED = 7 / 8
"""Of all hosts, by generated jobs, at most: 1,696 flows on 64 leaves with 32 hosts each."""


def workload(fabric: Fabric, folder: Path | None, seed: int) -> tuple[WorkloadJob, ...]:
    """The jobs in ``folder``, or generated ones of the published shape that fill the fabric. Raises ``InvalidInput``
    when that cannot be."""
    if folder is not None:
        return read_workload(folder, fabric)
    hosts = len(fabric.hosts)
    jobs = max(1, min(JOBS, hosts // 4))
    rings = max(1, int(hosts * FILLED) // (jobs * RING_SIZE))
    return jobs_of(generate(fabric, jobs, RING_SIZE, Placement.WHOLE_LEAF, seed, max_rings=rings), fabric)


def job_spec(job: WorkloadJob) -> JobSpec:
    """Raises ``InvalidInput`` when a ring of the job is none."""
    rings = [_ring([job.virtual_links[index] for index in ring], job.id) for ring in job.rings]
    endpoints = tuple(dict.fromkeys(ip for ring in rings for ip in ring))
    rank = {ip: number for number, ip in enumerate(endpoints)}
    groups = tuple(ParallelGroup(name=f"ring{n}", ranks=tuple(rank[ip] for ip in ring)) for n, ring in enumerate(rings))
    collectives = tuple(
        Collective(
            algorithm=Algorithm.RING_ALL_REDUCE,
            groups=tuple(group.name for group, size in zip(groups, sizes, strict=True) if size == wanted),
            bytes_per_iteration=wanted,
        )
        for sizes in [[_buffer_bytes(job, ring) for ring in job.rings]]
        for wanted in dict.fromkeys(sizes)
    )
    name = re.sub(r"[^a-z0-9.-]", "-", job.id.lower()).strip("-.")
    return JobSpec(
        job_id=f"bench-{name}"[:63], endpoints=endpoints, groups=groups, collectives=collectives, lease_s=MAX_LEASE_S
    )


def _buffer_bytes(job: WorkloadJob, ring: Sequence[int]) -> int:
    """M, of which each of n ranks sends 2(n-1)/n."""
    return -(-job.virtual_links[ring[0]].bytes * len(ring) // (2 * (len(ring) - 1)))


def _ring(links: Sequence[VirtualLink], job: str) -> list[str]:
    """The addresses in the order in which they send to each other."""
    leads_to = {link.src_ip: link.dst_ip for link in links}
    ring = [links[0].src_ip]
    while (after := leads_to.get(ring[-1])) is not None and after != ring[0] and len(ring) <= len(links):
        ring.append(after)
    if len(ring) != len(links) or after is None:
        raise InvalidInput((FieldProblem(job, "has flows of one ring_index that are no ring"),))
    return ring
