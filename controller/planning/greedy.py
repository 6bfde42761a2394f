"""A greedy path assignment for any fabric, capacities and demands: the planner's repair and warm start.

After the greedy of arXiv 2503.05324 (as published: ``published_schemes``), but with loads instead of numbers of flows.
Flows are taken leaf by leaf, from the most loaded set (flows out of one leaf, or into one) to the least; each takes the
shortest path whose largest link load is smallest, the first on ties. On an unbroken leaf-spine with equal flows its
largest load is at most twice the optimum, whatever the order.

In: a ``Problem``. Out: one route per flow that has a path.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from controller.fabric.topology import Dpid
from controller.planning.efficiency import Increments
from controller.planning.next_hops import NextHops, PathChoices
from controller.planning.problem import FlowId, Ints, Problem, Route, whole


def assign(problem: Problem, *, keep_current: bool) -> dict[FlowId, Route]:
    """``keep_current``: flows stay on their current route where that still stands. Otherwise the running routes are
    ignored, except that a tie goes to the current path. All other flows are assigned, whole."""
    routes: dict[FlowId, Route] = {}
    waiting = []
    for number, flow in enumerate(problem.flows):
        if flow.src_leaf == flow.dst_leaf:
            routes[flow.id] = whole(())
        elif keep_current and flow.current is not None and problem.stands(flow):
            routes[flow.id] = flow.current
        else:
            waiting.append(number)
    if not waiting:
        return routes
    next_hops = NextHops(problem, waiting)
    choices = PathChoices(problem, next_hops)
    loads = _Loads(problem, next_hops)
    for number, flow in enumerate(problem.flows):
        for path, share in routes.get(flow.id, ()):
            loads.put(number, np.array([next_hops.number[link] for link in path], np.int64), share)
    options = dict(zip(next_hops.flows.tolist(), choices.options, strict=True))
    for number in _largest_set_first(problem, options):
        links = loads.least_loaded(number, options[number])
        loads.put(number, links)
        routes[problem.flows[number].id] = whole(next_hops.path(links))
    return routes


class _Loads:
    """Load of every link, in the numbers of ``NextHops``, while flows are put on it."""

    def __init__(self, problem: Problem, next_hops: NextHops) -> None:
        self._flows = problem.flows
        self._number = next_hops.number
        self._load = np.zeros(len(next_hops.capacity_bps))
        self._increments = Increments(problem, next_hops.capacity_bps)

    def put(self, flow: int, links: Ints, share: float = 1.0) -> None:
        self._load[links] += self._increments.added(flow, links, share)
        self._increments.count(flow, links, share)

    def least_loaded(self, flow: int, options: Ints) -> Ints:
        """``options``: the links of each path, shape (hops, paths). Those of the path on which the flow's worst link
        ends up least loaded; on ties the current path, or the first."""
        worst = self._load[options[0]] + self._increments.added(flow, options[0])
        for links in options[1:]:
            np.maximum(worst, self._load[links] + self._increments.added(flow, links), out=worst)
        best = int(worst.argmin())
        current = self._flows[flow].current
        if current is not None and len(current) == 1:
            links = [self._number.get(link, -1) for link in current[0].path]
            for path in np.flatnonzero(worst == worst[best]).tolist():
                if options[: len(links), path].tolist() == links:
                    best = path
        return options[:, best]


def _largest_set_first(problem: Problem, numbers: Iterable[int]) -> list[int]:
    """These flows in the order of the sets out of and into each leaf, by demand; in a set the largest flow first."""
    peaks = problem.numbers.peak_bps.tolist()
    sets: defaultdict[tuple[bool, Dpid], list[int]] = defaultdict(list)
    for number in sorted(numbers, key=peaks.__getitem__, reverse=True):
        sets[False, problem.flows[number].src_leaf].append(number)
        sets[True, problem.flows[number].dst_leaf].append(number)
    order = sorted(sets, key=lambda key: (-sum(peaks[number] for number in sets[key]), key))
    return list(dict.fromkeys(number for key in order for number in sets[key]))
