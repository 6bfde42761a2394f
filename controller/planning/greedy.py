"""The published greedy path assignment (arXiv 2503.05324), for any candidate paths, capacities and demands.

Flows are taken leaf by leaf, from the most loaded set (flows out of one leaf, or into one) to the least; each goes on
the candidate path whose largest link load is smallest, the first on ties. On an unbroken leaf-spine with equal flows
its largest load is at most twice the optimum, whatever the order.

In: a ``Problem``. Out: one path per flow that has a candidate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from controller.fabric.topology import LinkId, Path
from controller.jobs.spec import JobId
from controller.planning.problem import Flow, FlowId, Problem


class _Loads:
    """Load of every link while flows are put on it: the sum over jobs of their worst phase, / capacity."""

    def __init__(self, problem: Problem) -> None:
        self._capacity = problem.capacity_bps
        self._load: defaultdict[LinkId, float] = defaultdict(float)
        self._phases: defaultdict[tuple[LinkId, JobId], dict[int, float]] = defaultdict(dict)
        self._peak: defaultdict[tuple[LinkId, JobId], float] = defaultdict(float)

    def with_flow(self, link: LinkId, flow: Flow) -> float:
        """What the link's load would be with the flow on it."""
        key = (link, flow.job_id)
        phases = self._phases.get(key)
        if phases is None:
            peak = max((bps for _, bps in flow.demand_bps), default=0.0)
        else:
            peak = max((phases.get(phase, 0.0) + bps for phase, bps in flow.demand_bps), default=0.0)
            peak = max(0.0, peak - self._peak[key])
        return self._load[link] + peak / self._capacity[link]

    def put(self, flow: Flow, path: Path) -> None:
        for link in path:
            self._load[link] = self.with_flow(link, flow)
            key = (link, flow.job_id)
            phases = self._phases[key]
            for phase, bps in flow.demand_bps:
                phases[phase] = phases.get(phase, 0.0) + bps
            self._peak[key] = max(phases.values(), default=0.0)


def assign(problem: Problem, *, keep_current: bool) -> dict[FlowId, Path]:
    """``keep_current``: flows stay on their current path where that is still a candidate, and only the others are
    assigned; otherwise there is no memory of the running routes, except that a tie goes to the current path."""
    loads = _Loads(problem)
    paths: dict[FlowId, Path] = {}
    waiting = []
    for flow in problem.flows:
        candidates = problem.candidates(flow)
        if keep_current and flow.current in candidates and flow.current is not None:
            loads.put(flow, flow.current)
            paths[flow.id] = flow.current
        elif candidates:
            waiting.append(flow)
    for flow in _largest_set_first(waiting):
        candidates = problem.candidates(flow)
        if flow.current in candidates and flow.current is not None:
            candidates = (flow.current, *candidates)
        path = _least_loaded(loads, flow, candidates)
        loads.put(flow, path)
        paths[flow.id] = path
    return {flow.id: paths[flow.id] for flow in problem.flows if flow.id in paths}


def _least_loaded(loads: _Loads, flow: Flow, candidates: Sequence[Path]) -> Path:
    if len(candidates) == 1:
        return candidates[0]
    best, smallest = candidates[0], float("inf")
    for path in candidates:
        load = max(loads.with_flow(link, flow) for link in path)
        if load < smallest:
            best, smallest = path, load
    return best


def _largest_set_first(flows: Iterable[Flow]) -> list[Flow]:
    """Flows in the order of the sets out of and into each leaf, by demand; within a set the largest flow first."""
    sets: defaultdict[tuple[bool, int], list[Flow]] = defaultdict(list)
    weight: defaultdict[tuple[bool, int], float] = defaultdict(float)
    for flow in flows:
        peak = max((bps for _, bps in flow.demand_bps), default=0.0)
        for key in ((False, flow.src_leaf), (True, flow.dst_leaf)):
            sets[key].append(flow)
            weight[key] += peak
    order = sorted(sets, key=lambda key: (-weight[key], key))
    largest = (sorted(sets[key], key=lambda f: -max((bps for _, bps in f.demand_bps), default=0.0)) for key in order)
    return list({flow.id: flow for members in largest for flow in members}.values())
