"""The published greedy path assignment (arXiv 2503.05324), for any candidate paths, capacities and demands.

Flows are taken leaf by leaf, from the most loaded set (flows out of one leaf, or into one) to the least; each goes on
the candidate path whose largest link load is smallest, the first on ties. On an unbroken leaf-spine with equal flows
its largest load is at most twice the optimum, whatever the order.

In: a ``Problem``. Out: one path per flow that has a candidate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from controller.fabric.topology import Dpid, Path
from controller.jobs.spec import JobId
from controller.planning.problem import Flow, FlowId, Problem, Route, whole


def assign(problem: Problem, *, keep_current: bool) -> dict[FlowId, Route]:
    """``keep_current``: flows stay on their current route where that still stands, and only the others are assigned;
    otherwise there is no memory of the running routes, except that a tie goes to the current path. Flows that are
    assigned are whole."""
    loads = _Loads(problem)
    routes: dict[FlowId, Route] = {}
    waiting = []
    for flow in problem.flows:
        candidates = problem.candidates(flow)
        if flow.src_leaf == flow.dst_leaf:
            routes[flow.id] = whole(())
        elif keep_current and flow.current is not None and problem.stands(flow):
            loads.put(flow, flow.current)
            routes[flow.id] = flow.current
        elif candidates:
            waiting.append(flow)
    for flow in _largest_set_first(waiting):
        routes[flow.id] = whole(loads.least_loaded(flow))
        loads.put(flow, routes[flow.id])
    return routes


class _Loads:
    """Load of every link while flows are put on it: the sum over jobs of their worst phase, / capacity. Links are
    numbered, because a large fabric asks for a load some 100,000 times."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._number = {link: number for number, link in enumerate(problem.capacity_bps)}
        self._per_bps = [1 / capacity for capacity in problem.capacity_bps.values()]
        self._load = [0.0] * len(self._number)
        self._candidates: dict[tuple[Dpid, Dpid], list[tuple[int, ...]]] = {}
        phases: defaultdict[JobId, set[int]] = defaultdict(set)
        for flow in problem.flows:
            phases[flow.job_id].update(phase for phase, _ in flow.demand_bps)
        self._several = {job for job, of in phases.items() if len(of) > 1}
        self._phases: defaultdict[tuple[JobId, int], defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))

    def least_loaded(self, flow: Flow) -> Path:
        """The candidate on which the flow's worst link ends up least loaded; on ties the current path, or the
        first."""
        candidates = self._problem.candidates(flow)
        best, smallest = candidates[0], float("inf")
        bps = _peak(flow)
        several = flow.job_id in self._several
        for path, links in zip(candidates, self._numbered(flow, candidates), strict=True):
            worst = 0.0
            for link in links:
                added = self._added(link, flow) if several else bps * self._per_bps[link]
                worst = max(worst, self._load[link] + added)
            if worst < smallest or (worst == smallest and flow.current == whole(path)):
                best, smallest = path, worst
        return best

    def put(self, flow: Flow, route: Route) -> None:
        bps = _peak(flow)
        for link, share in ((self._number[link], piece.share) for piece in route for link in piece.path):
            if flow.job_id in self._several:
                self._load[link] += self._added(link, flow, share)
                for phase, rate in flow.demand_bps:
                    self._phases[flow.job_id, link][phase] += share * rate
            else:
                self._load[link] += share * bps * self._per_bps[link]

    def _added(self, link: int, flow: Flow, share: float = 1.0) -> float:
        """By how much the flow raises the load, where its job has several phases."""
        sums = self._phases[flow.job_id, link]
        before = max(sums.values(), default=0.0)
        after = max((sums[phase] + share * bps for phase, bps in flow.demand_bps), default=0.0)
        return max(0.0, after - before) * self._per_bps[link]

    def _numbered(self, flow: Flow, candidates: Sequence[Path]) -> list[tuple[int, ...]]:
        pair = (flow.src_leaf, flow.dst_leaf)
        if pair not in self._candidates:
            self._candidates[pair] = [tuple(self._number[link] for link in path) for path in candidates]
        return self._candidates[pair]


def _peak(flow: Flow) -> float:
    return max((bps for _, bps in flow.demand_bps), default=0.0)


def _largest_set_first(flows: Iterable[Flow]) -> list[Flow]:
    """Flows in the order of the sets out of and into each leaf, by demand; within a set the largest flow first."""
    sets: defaultdict[tuple[bool, Dpid], list[Flow]] = defaultdict(list)
    for flow in sorted(flows, key=_peak, reverse=True):
        sets[False, flow.src_leaf].append(flow)
        sets[True, flow.dst_leaf].append(flow)
    order = sorted(sets, key=lambda key: (-sum(map(_peak, sets[key])), key))
    return list({flow.id: flow for key in order for flow in sets[key]}.values())
