"""Greedy path assignment for any fabric, capacities and demands: repair and warm start of the planner.

It follows the greedy of arXiv 2503.05324 (``baselines`` has it as published), but compares loads instead of numbers of
flows. A *set* is all flows out of one leaf, or all flows into one leaf. The sets are served in descending order of
their total demand. Each flow takes the shortest path whose most loaded link ends up with the smallest load. Of several
such paths the flow takes its current path, or else the first path. On an intact leaf-spine with equal flows the largest
load is at most twice the optimum, in any order of flows.

In: a ``Problem``. Out: one route per flow that has a path. ``PathChoices`` holds the shortest paths of all flows as
rows of link numbers, also for the published schemes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from controller.fabric.topology import Dpid
from controller.planning.efficiency import Increments, NextHops, loads_of, passing
from controller.planning.problem import Floats, Flow, FlowId, Ints, Problem, Route, Routes, whole

_MOST_PATHS = 512
"""Number of shortest paths of a pair of switches above which only the problem's candidates are used."""
_BLOCK = 512
"""Number of states (see ``NextHops``) whose paths are listed at once, so that the arrays fit into the CPU's cache."""


def assign(problem: Problem, *, keep_current: bool) -> dict[FlowId, Route]:
    """Assign a whole route to every flow that has a path.

    ``keep_current``: whether flows stay on their current routes where these routes are valid. Otherwise current routes
    are ignored, except that the current path wins ties."""
    routes: dict[FlowId, Route] = {}
    waiting = []
    for number, flow in enumerate(problem.flows):
        if flow.src_leaf == flow.dst_leaf:
            routes[flow.id] = whole(())
        elif keep_current and flow.current is not None and flow.id in problem.in_force:
            routes[flow.id] = flow.current
        else:
            waiting.append(number)
    if not waiting:
        return routes
    next_hops = NextHops(problem, waiting)
    choices = PathChoices(problem, next_hops)
    loads = _Loads(problem, next_hops)
    loads.put_all(problem, routes)
    options = dict(zip(next_hops.flows.tolist(), choices.options, strict=True))
    peaks = problem.numbers.peak_bps.tolist()
    for number in largest_set_first(problem.flows, sorted(options, key=peaks.__getitem__, reverse=True), peaks):
        links = loads.least_loaded(number, options[number])
        loads.put(number, links)
        routes[problem.flows[number].id] = whole(next_hops.path(links))
    return routes


class _Loads:
    """Loads of all links, numbered as in ``NextHops``; they grow as flows are added."""

    def __init__(self, problem: Problem, next_hops: NextHops) -> None:
        self._flows = problem.flows
        self._number = next_hops.number
        self._load = np.zeros(len(next_hops.capacity_bps))
        self._increments = Increments(problem, next_hops.capacity_bps)

    def put_all(self, problem: Problem, routes: Routes) -> None:
        """Add the loads of all routes. No flow may have been added before."""
        rows = passing(problem, routes)
        place = np.array([problem.link_number[link] for link in self._number], np.int64)
        number = np.full(len(problem.capacity_bps), -1)
        number[place] = np.arange(len(place))
        self._load[: len(place)] = loads_of(problem, rows)[place]
        inside = number[rows.link] >= 0
        self._increments.count_rows(rows.flow[inside], number[rows.link[inside]], rows.share[inside])

    def put(self, flow: int, links: Ints, share: float = 1.0) -> None:
        self._load[links] += self._increments.added(flow, links, share)
        self._increments.count(flow, links, share)

    def least_loaded(self, flow: int, options: Ints) -> Ints:
        """Return the links of the path whose most loaded link ends up with the smallest load.

        The current path wins ties, else the first path. ``options`` has the links of each path; shape (hops, paths)."""
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


def largest_set_first(flows: Sequence[Flow], numbers: Iterable[int], weights: Sequence[float]) -> list[int]:
    """Return the flows ordered by their sets: the flows out of or into one leaf, the set with the largest weight first.

    Within a set the flows keep their order. Among sets of equal weight, flows out of a leaf precede flows into a leaf,
    and then a leaf with a lower dpid precedes one with a higher dpid."""
    sets: defaultdict[tuple[bool, Dpid], list[int]] = defaultdict(list)
    for number in numbers:
        sets[False, flows[number].src_leaf].append(number)
        sets[True, flows[number].dst_leaf].append(number)
    order = sorted(sets, key=lambda key: (-sum(weights[number] for number in sets[key]), key))
    return list(dict.fromkeys(number for key in order for number in sets[key]))


# ---- all paths as arrays


class PathChoices:
    """Shortest paths of all flows, computed at once.

    ``CandidatePaths.between`` finds the same paths pair by pair; this class is seven times as fast on 64 x 32 switches.

    - ``flows``: the flows that have a path through the fabric.
    - ``options``: per flow its paths as link numbers of ``next_hops``, shape (hops, paths); shorter paths are padded
      with ``nothing``. Paths cycle through the first switch's next hops, from the lowest on. The first k paths
      therefore have as many different first links as k paths can have.
    - ``peak_bps``: per flow its largest demand in any phase, for schemes that do not distinguish phases.
    - ``complete``: whether ``options`` has every path that flows may take."""

    def __init__(self, problem: Problem, next_hops: NextHops) -> None:
        self.next_hops = next_hops
        self.flows: Sequence[Flow] = [problem.flows[number] for number in next_hops.flows.tolist()]
        self.peak_bps: Sequence[float] = problem.numbers.peak_bps[next_hops.flows].tolist()
        states, first, pair = np.unique(next_hops.state, return_index=True, return_inverse=True)
        few: bool = _path_counts(next_hops)[states].max(initial=0) <= _MOST_PATHS
        self.complete = few and not problem.paths.stretch
        if not few:
            of_pair = _candidates(problem, next_hops, [self.flows[flow] for flow in first.tolist()])
        else:
            blocks = [states[begin : begin + _BLOCK] for begin in range(0, len(states), _BLOCK)]
            of_pair = [paths for block in blocks for paths in _all_paths(next_hops, block)]
        self.options: Sequence[Ints] = [of_pair[number] for number in pair.tolist()]

    def no_links(self) -> Ints:
        """Return a path of padding (``nothing``) for every flow; shape (hops, flows)."""
        return np.full((self.next_hops.longest, len(self.flows)), self.next_hops.nothing)


def _path_counts(next_hops: NextHops) -> Floats:
    """Return the number of shortest paths from each state (``NextHops``) to its destination."""
    counts = np.zeros(len(next_hops.size))
    counts[-1] = 1
    for _ in range(next_hops.longest):
        counts = np.add.reduceat(counts[next_hops.after], next_hops.start)
    return counts


def _all_paths(next_hops: NextHops, states: Ints) -> list[Ints]:
    """Return the paths from each state; the shape of each entry is (hops, paths)."""
    owner, here = np.arange(len(states)), states
    links = np.zeros((0, len(states)), np.int64)
    for _ in range(next_hops.longest):
        size = next_hops.size[here]
        path = np.repeat(np.arange(len(here)), size)
        position = np.arange(len(path)) + np.repeat(next_hops.start[here] - (np.cumsum(size) - size), size)
        links = np.concatenate([links[:, path], next_hops.link[position][None]])
        owner, here = owner[path], next_hops.after[position]
    if next_hops.longest and (ranks := _ranks(owner, links[0])).any():
        links = links[:, np.lexsort((ranks, owner))]
    ends = np.cumsum(np.bincount(owner, minlength=len(states))).tolist()
    return [links[:, begin:end] for begin, end in pairwise([0, *ends])]


def _ranks(owner: Ints, first: Ints) -> Ints:
    """Return the index of each path among the adjacent paths with the same owner and first link."""
    begins = np.flatnonzero(np.diff(owner, prepend=-1) | np.diff(first, prepend=-1))
    ranks: Ints = np.arange(len(owner)) - np.repeat(begins, np.diff(begins, append=len(owner)))
    return ranks


def _candidates(problem: Problem, next_hops: NextHops, flows: Sequence[Flow]) -> list[Ints]:
    """Return the problem's candidate paths of each flow."""
    found = []
    for flow in flows:
        paths = problem.candidates(flow)
        links = np.full((next_hops.longest, len(paths)), next_hops.nothing)
        for column, path in enumerate(paths):
            links[: len(path), column] = [next_hops.number[link] for link in path]
        found.append(links)
    return found
