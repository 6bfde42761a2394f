"""What a routing is worth: demand, load, level of a job, network efficiency (DESIGN section 6).

The one place with these definitions; planner, live status and metrics all use it. In: virtual links and NIC rates,
or a ``Problem`` with one path per flow. Out: plain numbers.

- T0 of a phase: the job's communication time alone on an idle fabric, set by its busiest NIC.
- Demand of a flow in a phase: its bits / T0, in bit/s; sent at this rate, all flows of the phase end together.
- Load of a link: the sum over jobs of the job's largest load over its phases, / capacity. Phases of one job never
  overlap; those of different jobs may.
- Level of a job: max(1, the largest load on a link it uses). Its communication takes at most level x T0.
- Network efficiency: 1 / the worst level. Routings are compared by the levels sorted from the worst.

A flow without a path loads nothing here; what hashing does with it is ``baselines.ecmp``'s to estimate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from controller.fabric.topology import LinkId, Path
from controller.jobs.collectives import VirtualLink
from controller.jobs.spec import JobId
from controller.planning.problem import Flow, FlowId, Problem

LEVEL_TOLERANCE = 1e-4
"""Levels closer than this (relative) are the same level: far below what can be measured, well above rounding."""


def ideal_time_s(virtual_links: Iterable[VirtualLink], nic_bps: Mapping[str, float]) -> dict[int, float]:
    """T0 of each phase in seconds: the largest (bits through a NIC in one direction / NIC rate), phases ascending.

    ``nic_bps``: rate of each address's NIC, bit/s per direction. Raises ``KeyError`` for an address without one.
    """
    through: defaultdict[tuple[int, str, str], int] = defaultdict(int)
    for link in virtual_links:
        through[link.phase, link.src_ip, "out"] += link.bytes
        through[link.phase, link.dst_ip, "in"] += link.bytes
    slowest: dict[int, float] = {}
    for (phase, ip, _), amount in sorted(through.items()):
        slowest[phase] = max(slowest.get(phase, 0.0), 8 * amount / nic_bps[ip])
    return slowest


def ideal_communication_s(virtual_links: Iterable[VirtualLink], nic_bps: Mapping[str, float]) -> float:
    """Seconds of communication per iteration on an idle fabric: the phases' T0, one after the other."""
    return sum(ideal_time_s(virtual_links, nic_bps).values())


def demands(
    virtual_links: Sequence[VirtualLink], nic_bps: Mapping[str, float]
) -> dict[FlowId, tuple[tuple[int, float], ...]]:
    """The demand of every flow of one job: (phase, bit/s) in ascending phase order, as ``Flow.demand_bps`` wants it.
    Raises ``KeyError`` for an address without NIC rate."""
    t0_s = ideal_time_s(virtual_links, nic_bps)
    bits: defaultdict[FlowId, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for link in virtual_links:
        bits[FlowId(link.src_ip, link.dst_ip)][link.phase] += 8 * link.bytes
    return {
        flow: tuple((phase, amount / t0_s[phase]) for phase, amount in sorted(phases.items()) if amount)
        for flow, phases in bits.items()
    }


def used_links(flow: Flow, path: Path) -> tuple[LinkId, ...]:
    """Every link that a flow loads on a path: the source's NIC, the fabric, the destination's NIC."""
    return (flow.nic_links[0], *path, flow.nic_links[1])


def link_loads(problem: Problem, paths: Mapping[FlowId, Path | None]) -> dict[LinkId, float]:
    """Load of every link that the routed flows use, as a share of its capacity. Flows that are missing from ``paths``
    or have None there are left out."""
    return {link: sum(jobs.values()) / problem.capacity_bps[link] for link, jobs in _peaks_bps(problem, paths).items()}


def job_levels(problem: Problem, paths: Mapping[FlowId, Path | None]) -> dict[JobId, float]:
    """Level (>= 1) of every job with at least one routed flow, over its routed flows."""
    levels: dict[JobId, float] = {}
    for link, jobs in _peaks_bps(problem, paths).items():
        load = sum(jobs.values()) / problem.capacity_bps[link]
        for job, peak in jobs.items():
            levels[job] = max(levels.get(job, 1.0), load if peak > 0 else 1.0)
    return levels


def network_efficiency(levels: Iterable[float]) -> float:
    """1 / the worst level; 1 when there is no job."""
    return 1.0 / max(levels, default=1.0)


def first_difference(levels: Sequence[float], others: Sequence[float]) -> int | None:
    """Index of the first entry in which two vectors of levels, sorted from the worst, differ by more than the
    tolerance; None when they are equal. Both have one entry per job of the same jobs."""
    for index, (a, b) in enumerate(zip(levels, others, strict=True)):
        if abs(a - b) > LEVEL_TOLERANCE * max(a, b):
            return index
    return None


def _peaks_bps(problem: Problem, paths: Mapping[FlowId, Path | None]) -> dict[LinkId, dict[JobId, float]]:
    """Per link and job on it, the job's largest load over its phases, bit/s."""
    sums: dict[LinkId, dict[JobId, dict[int, float]]] = {}
    for flow in problem.flows:
        path = paths.get(flow.id)
        if path is None:
            continue
        for link in used_links(flow, path):
            phases = sums.setdefault(link, {}).setdefault(flow.job_id, {})
            for phase, bps in flow.demand_bps:
                phases[phase] = phases.get(phase, 0.0) + bps
    return {
        link: {job: max(phases.values(), default=0.0) for job, phases in jobs.items()} for link, jobs in sums.items()
    }
