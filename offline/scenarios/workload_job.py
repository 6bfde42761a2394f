"""Training job with whole iterations: computing as well as communication.

Workload files, a generator or a job spec (``announced``) describe the job. The planner plans it like an announced job,
and ``simulator`` trains it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from controller.public.problems import Fabric, ideal_communication_s
from signalbox.jobs.collectives import VirtualLink, virtual_links
from signalbox.jobs.spec import JobId, JobSpec, Striping, Transport
from signalbox.jobs.subflows import Dividing, Pair


@dataclass(frozen=True)
class WorkloadJob:
    """Training job: an iteration computes for ``compute_s``, then runs its rings.

    Some attributes, such as ``silent``, exist only because the planner reads them from every job."""

    id: JobId
    virtual_links: tuple[VirtualLink, ...]
    """Links of the job with their bytes per iteration; from a workload file, one per line and all in phase 0."""
    rings: tuple[tuple[int, ...], ...]
    """Indices of the links of each ring."""
    start_s: float
    compute_s: float
    ideal_s: float
    """Time in seconds of the all-reduce alone on an idle fabric; the busiest NIC limits it."""
    max_subflows: int = 1
    """Largest number of subflows of a flow."""
    striping: Striping = Striping.BY_SHARE
    """Division of the bytes of a flow over its subflows."""
    transport: Transport = Transport.TCP
    """Transport protocol, by which switches would distinguish the subflows."""
    counted: frozenset[Pair] = frozenset()
    """Pairs whose bytes are counted in order to learn the job's traffic; none here."""
    silent: bool = False
    """True while the job does not send yet."""
    idle_phases: frozenset[int] = frozenset()
    """Phases that are idle; none, since the job has one traffic pattern."""
    registered_at: float = 0.0
    steps: tuple[int, ...] = ()
    """Steps of each ring; empty: 2(n-1) for a ring of n."""
    parts: tuple[int, ...] = ()
    """Part of the iteration in which each ring runs, counted from 0 without gaps; empty: all rings run at once.

    Rings of one part run at once, and parts run one after the other. An all-to-all, or anything else that is no ring,
    is a ring of one step in a part of its own."""

    @cached_property
    def dividing(self) -> Dividing:
        return Dividing(self.max_subflows, self.striping)

    @cached_property
    def pairs(self) -> frozenset[Pair]:
        return frozenset((link.src_ip, link.dst_ip) for link in self.virtual_links)


def announced(spec: JobSpec, fabric: Fabric, compute_s: float = 0.0) -> WorkloadJob:
    """Return the job of a spec in the form that planner and simulator need. Raises ``InvalidInput``.

    The spec has the addresses of the fabric's hosts. Phases follow each other, and everything that a phase sends begins
    at once. ``compute_s``: seconds of computing before the first phase."""
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
        striping=spec.striping,
        steps=(1,) * len(phases),
        parts=tuple(range(len(phases))),
    )
