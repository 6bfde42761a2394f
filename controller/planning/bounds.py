"""Lower bounds that no routing of whole flows can beat, in closed form.

In: a ``Problem``. Out: a bound for the worst level, and one per job. Both come from *cuts*: a set of flows each of
which must cross one link of a set of links C, whatever path it takes (the flows out of a leaf and its uplinks; the
flows into it; those of one pair).

- Fluid: on link l the load times the capacity is the sum over jobs of their peaks; summed over C it is at least the sum
  over jobs of their largest phase D_j, so some link has load >= sum D_j / sum c. This also holds with split flows.
- Whole flows: m flows of at least d bit/s, of one phase per job so that they do add up, fill some link at least to
  the m-th smallest of the numbers k*d/c_l (k = 1, 2, ...; l in C). With S equal links and flows it is ceil(m/S)*d/c,
  which edge colouring reaches on a leaf-spine (König).
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controller.fabric.topology import LinkId
from controller.jobs.spec import JobId
from controller.planning.problem import Flow, Problem


@dataclass(frozen=True, slots=True)
class Bounds:
    """``worst``: no routing has a smaller worst level. ``job``: none gives this job a smaller level. All >= 1."""

    worst: float
    job: Mapping[JobId, float]

    @property
    def vector(self) -> tuple[float, ...]:
        """Lower bounds of the levels sorted from the worst, one per job."""
        own = sorted(self.job.values(), reverse=True)
        return (self.worst, *own[1:]) if own else ()


def level_bounds(problem: Problem, flows: Sequence[Flow]) -> Bounds:
    """Bounds for the given (routable) flows of the problem. On an unbroken leaf-spine with equal links and flows
    ``worst`` is reached."""
    of_job: defaultdict[JobId, list[Flow]] = defaultdict(list)
    for flow in flows:
        of_job[flow.job_id].append(flow)
    nic_load = _nic_loads(problem, of_job)
    alone = {
        job: max(1.0, _largest_cut(problem, own), *(nic_load[link] for flow in own for link in flow.nic_links))
        for job, own in of_job.items()
    }
    worst = max((*alone.values(), _largest_cut(problem, flows)), default=1.0)
    return Bounds(max(1.0, worst), alone)


def _nic_loads(problem: Problem, of_job: Mapping[JobId, Iterable[Flow]]) -> dict[LinkId, float]:
    """NICs are loaded alike by every routing."""
    loads: defaultdict[LinkId, float] = defaultdict(float)
    for flows in of_job.values():
        sums: defaultdict[LinkId, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
        for flow in flows:
            for link in flow.nic_links:
                for phase, bps in flow.demand_bps:
                    sums[link][phase] += bps
        for link, phases in sums.items():
            loads[link] += max(phases.values(), default=0.0) / problem.capacity_bps[link]
    return loads


def _largest_cut(problem: Problem, flows: Iterable[Flow]) -> float:
    cuts: dict[int, defaultdict[object, list[Flow]]] = {0: defaultdict(list), -1: defaultdict(list)}
    for flow in flows:
        if flow.src_leaf != flow.dst_leaf and flow.demand_bps:
            pair = (flow.src_leaf, flow.dst_leaf)
            for end, leaf in ((0, flow.src_leaf), (-1, flow.dst_leaf)):
                cuts[end][leaf].append(flow)
                cuts[end][pair].append(flow)
    return max((_cut_bound(problem, cut, end) for end, of in cuts.items() for cut in of.values()), default=0.0)


def _cut_bound(problem: Problem, flows: Sequence[Flow], end: int) -> float:
    """``end``: index of the crossed link in every candidate path, 0 or -1."""
    pairs = {(flow.src_leaf, flow.dst_leaf) for flow in flows}
    links = {path[end] for pair in pairs for path in problem.paths[pair]}
    capacities = sorted(problem.capacity_bps[link] for link in links)
    sums: defaultdict[JobId, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    parts: defaultdict[JobId, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for flow in flows:
        for phase, bps in flow.demand_bps:
            sums[flow.job_id][phase] += bps
            parts[flow.job_id][phase].append(bps)
    fluid = sum(max(phases.values()) for phases in sums.values()) / sum(capacities)
    additive = sorted((bps for phases in parts.values() for bps in max(phases.values(), key=len)), reverse=True)
    counts = {bps: count for count, bps in enumerate(additive, start=1)}
    return max(fluid, *(whole_flow_bound(count, bps, capacities) for bps, count in counts.items()))


def whole_flow_bound(count: int, demand_bps: float, capacities_bps: Sequence[float]) -> float:
    """The smallest largest load of ``count`` whole flows of ``demand_bps`` each over links side by side: the count-th
    smallest of all k * demand / capacity."""
    fluid = count * demand_bps / sum(capacities_bps)
    filled = [int(fluid * capacity / demand_bps) for capacity in capacities_bps]
    level = max(k * demand_bps / capacity for k, capacity in zip(filled, capacities_bps, strict=True))
    steps = [((k + 1) * demand_bps / c, k + 1, c) for k, c in zip(filled, capacities_bps, strict=True)]
    heapq.heapify(steps)
    for _ in range(count - sum(filled)):
        level, k, capacity = steps[0]
        heapq.heapreplace(steps, ((k + 1) * demand_bps / capacity, k + 1, capacity))
    return level
