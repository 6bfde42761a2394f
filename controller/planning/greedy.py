"""A greedy path assignment for any fabric, capacities and demands: the planner's repair and warm start.

After the greedy of arXiv 2503.05324 (as published: ``baselines.published_greedy``), but with loads instead of numbers
of flows. Flows are taken leaf by leaf, from the most loaded set (flows out of one leaf, or into one) to the least; each
goes on the shortest path whose largest link load is smallest, the first on ties. On an unbroken leaf-spine with equal
flows its largest load is at most twice the optimum, whatever the order.

In: a ``Problem``. Out: one route per flow that has a path.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from controller.fabric.topology import Dpid, LinkId, Path
from controller.jobs.spec import JobId
from controller.planning.efficiency import Floats, Ints
from controller.planning.next_hops import NextHops, PathChoices
from controller.planning.problem import Flow, FlowId, Problem, Route, whole


def assign(problem: Problem, *, keep_current: bool, on: Mapping[FlowId, Path] | None = None) -> dict[FlowId, Route]:
    """``keep_current``: flows stay on their current route where that still stands; otherwise there is no memory of the
    running routes, except that a tie goes to the current path. ``on``: the paths of further flows that are settled. All
    others are assigned, whole."""
    routes: dict[FlowId, Route] = {}
    waiting = []
    for flow in problem.flows:
        if flow.src_leaf == flow.dst_leaf:
            routes[flow.id] = whole(())
        elif keep_current and flow.current is not None and problem.stands(flow):
            routes[flow.id] = flow.current
        elif on and flow.id in on:
            routes[flow.id] = whole(on[flow.id])
        else:
            waiting.append(flow)
    if not waiting:
        return routes
    asking = replace(problem, flows=tuple(waiting))
    next_hops = NextHops(asking)
    choices = PathChoices(asking, next_hops)
    loads = _Loads(problem, next_hops)
    for flow in problem.flows:
        for path, share in routes.get(flow.id, ()):
            loads.put(flow, [loads.number[link] for link in path], share)
    for number in _largest_set_first(choices.flows):
        flow = choices.flows[number]
        links = loads.least_loaded(flow, choices.options[number])
        loads.put(flow, links.tolist())
        routes[flow.id] = whole(next_hops.path(links))
    return routes


class _Loads:
    """Load of every link while flows are put on it: the sum over jobs of their worst phase, / capacity. Links have the
    numbers of ``NextHops``."""

    def __init__(self, problem: Problem, next_hops: NextHops) -> None:
        self.number: Mapping[LinkId, int] = {link: number for number, link in enumerate(next_hops.links)}
        self._per_bps: Floats = 1 / next_hops.capacity_bps
        self._load = np.zeros(len(self._per_bps))
        phases: defaultdict[JobId, set[int]] = defaultdict(set)
        for flow in problem.flows:
            phases[flow.job_id].update(phase for phase, _ in flow.demand_bps)
        self._several = {job for job, of in phases.items() if len(of) > 1}
        self._phases: defaultdict[tuple[JobId, int], defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))

    def least_loaded(self, flow: Flow, options: Ints) -> Ints:
        """``options``: the links of each path, shape (hops, paths). Those of the path on which the flow's worst link
        ends up least loaded; on ties the current path, or the first."""
        worst = self._with(flow, options[0])
        for links in options[1:]:
            np.maximum(worst, self._with(flow, links), out=worst)
        best = int(worst.argmin())
        if flow.current is not None and len(flow.current) == 1:
            links = [self.number.get(link, -1) for link in flow.current[0].path]
            for path in np.flatnonzero(worst == worst[best]).tolist():
                if options[: len(links), path].tolist() == links:
                    best = path
        return options[:, best]

    def put(self, flow: Flow, links: Sequence[int], share: float = 1.0) -> None:
        several = flow.job_id in self._several
        bps = share * _peak(flow)
        for link in links:
            self._load[link] += self._added(link, flow, share) if several else bps * self._per_bps[link]
            if several:
                for phase, rate in flow.demand_bps:
                    self._phases[flow.job_id, link][phase] += share * rate

    def _with(self, flow: Flow, links: Ints) -> Floats:
        """The loads of these links with the flow."""
        load: Floats = self._load[links]
        if flow.job_id in self._several:
            load += np.array([self._added(link, flow) for link in links.tolist()])
        else:
            load += _peak(flow) * self._per_bps[links]
        return load

    def _added(self, link: int, flow: Flow, share: float = 1.0) -> float:
        """By how much the flow raises the load, where its job has several phases."""
        sums = self._phases[flow.job_id, link]
        before = max(sums.values(), default=0.0)
        after = max((sums[phase] + share * bps for phase, bps in flow.demand_bps), default=0.0)
        return max(0.0, after - before) * float(self._per_bps[link])


def _peak(flow: Flow) -> float:
    return max((bps for _, bps in flow.demand_bps), default=0.0)


def _largest_set_first(flows: Sequence[Flow]) -> list[int]:
    """Numbers of the flows in the order of the sets out of and into each leaf, by demand; within a set the largest flow
    first."""
    peaks = [_peak(flow) for flow in flows]
    sets: defaultdict[tuple[bool, Dpid], list[int]] = defaultdict(list)
    for number in sorted(range(len(flows)), key=peaks.__getitem__, reverse=True):
        sets[False, flows[number].src_leaf].append(number)
        sets[True, flows[number].dst_leaf].append(number)
    order = sorted(sets, key=lambda key: (-sum(peaks[number] for number in sets[key]), key))
    return list(dict.fromkeys(number for key in order for number in sets[key]))
