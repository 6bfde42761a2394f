"""A training job as a workload file or a generator describes it: whole iterations, not only what it sends.

Made from workload files, a generator or a job spec (``announced``); planned like any announced job, and trained by
``simulator``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from controller.public.problems import Fabric, ideal_communication_s
from signalbox.jobs.collectives import VirtualLink, virtual_links
from signalbox.jobs.spec import Dealing, JobId, JobSpec, Transport
from signalbox.jobs.subflows import Dividing, Pair


@dataclass(frozen=True)
class WorkloadJob:
    """A training job: an iteration computes for ``compute_s`` and then runs all rings at once.

    ``virtual_links``: one per line, with the bytes of one iteration; of workload files all in phase 0. ``rings``: per
    ring the indices of its links. ``ideal_s``: the all-reduce alone on an idle fabric, set by the busiest NIC.
    ``max_subflows``: pieces that a flow may be cut into; ``dealing``: how its bytes are divided over them;
    ``transport``: how they would be told apart on switches. ``counted``: no other pairs are counted to learn of them.
    ``silent``: it does not send yet. ``idle_phases``: none, for it has one traffic pattern. ``steps``: of each ring,
    without them 2(n-1). ``parts``: of the iteration, in which each ring runs, counted from 0 without gaps: those of one
    part at once, part after part; without them all at once. So what is no ring, such as an all-to-all, is a ring of one
    step in a part of its own.
    """

    id: JobId
    virtual_links: tuple[VirtualLink, ...]
    rings: tuple[tuple[int, ...], ...]
    start_s: float
    compute_s: float
    ideal_s: float
    max_subflows: int = 1
    dealing: Dealing = Dealing.BY_SHARE
    transport: Transport = Transport.TCP
    counted: frozenset[Pair] = frozenset()
    silent: bool = False
    idle_phases: frozenset[int] = frozenset()
    registered_at: float = 0.0
    steps: tuple[int, ...] = ()
    parts: tuple[int, ...] = ()

    @cached_property
    def dividing(self) -> Dividing:
        return Dividing(self.max_subflows, self.dealing)

    @cached_property
    def pairs(self) -> frozenset[Pair]:
        return frozenset((link.src_ip, link.dst_ip) for link in self.virtual_links)


def announced(spec: JobSpec, fabric: Fabric, compute_s: float = 0.0) -> WorkloadJob:
    """The job as planner and simulator take it, with the addresses of the fabric's hosts. Its phases follow each other,
    and all that is sent in one begins at once; ``compute_s``: before the first. Raises ``InvalidInput``."""
    links = virtual_links(spec)
    phases = sorted({link.phase for link in links})
    return WorkloadJob(
        id=JobId(spec.job_id),
        virtual_links=links,
        rings=tuple(tuple(n for n, link in enumerate(links) if link.phase == phase) for phase in phases),
        start_s=0.0,
        compute_s=compute_s,
        ideal_s=ideal_communication_s(links, {ip: host.nic_bps for ip, host in fabric.hosts.items()}),
        max_subflows=spec.max_subflows,
        dealing=spec.dealing,
        steps=(1,) * len(phases),
        parts=tuple(range(len(phases))),
    )
