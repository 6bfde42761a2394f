"""Equal-cost next hops and shortest paths in numbers: numpy then follows many flows at once.

In: a ``Problem``. Out: for every switch and destination on shortest paths of its flows, the links that lead on; per
flow its shortest paths as rows of link numbers. There is no cap on next hops: a switch hashes over all of them, even
where the problem's candidate paths are capped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import count, pairwise

import numpy as np

from controller.fabric.topology import LinkId, Path
from controller.planning.problem import Floats, Flow, Ints, Problem

_BLOCK = 512
"""States that are looked at together: few enough for the processor's cache."""
_MOST_PATHS = 512
"""A pair of switches with more shortest paths than this is left with the problem's candidates."""


class NextHops:
    """A *state* is a switch on the way to a destination. Its *positions* are its next hops, each a link and the state
    that it leads to.

    ``links``: fabric links by number, sorted by switch, far end and port; ``nothing``: the number after the last, which
    fills up the shorter paths. ``capacity_bps``: of each link, endless for ``nothing``. ``far_end``: the
    number of the switch that each link leads to; switches are numbered in the order of their dpids.
    ``flows``: numbers of the flows that have a way through the fabric; ``state``: where each of them begins.
    ``start``, ``size``: the positions of each state; ``link``, ``after``: of each position. The last state is the
    destination, reached by every path, with ``nothing`` as its only next hop. ``longest``: links on the longest path.
    """

    def __init__(self, problem: Problem, flows: Sequence[int] | None = None) -> None:
        """``flows``: numbers of the flows to look at, None for all."""
        far_end = problem.paths.far_end
        dpids, ports, _ = zip(*far_end, strict=True) if far_end else ((), (), ())
        at = {dpid: number for number, dpid in enumerate(sorted({*far_end.values(), *dpids}))}
        here = np.array(list(map(at.__getitem__, dpids)), np.int64)
        there = np.array(list(map(at.__getitem__, far_end.values())), np.int64)
        order = np.lexsort((np.array(ports, np.int64), there, here))
        links = list(far_end)
        self.links: tuple[LinkId, ...] = tuple(map(links.__getitem__, order.tolist()))
        self.nothing = len(links)
        self.far_end: Ints = there[order]
        self.capacity_bps: Floats = np.array([*map(problem.capacity_bps.__getitem__, self.links), np.inf])
        asked = range(len(problem.flows)) if flows is None else flows
        ends = [
            (at.get(flow.src_leaf, -1), at.get(flow.dst_leaf, -1)) for flow in map(problem.flows.__getitem__, asked)
        ]
        src, dst = np.array(ends, np.int64).reshape(-1, 2).T
        targets, column = np.unique(dst, return_inverse=True)
        fabric = _Fabric(here[order], self.far_end, targets, len(at))
        joined = np.flatnonzero((src >= 0) & (dst >= 0))
        distance = fabric.distance[src[joined], column[joined]]
        joined = joined[distance > 0]
        self.flows: Ints = np.array(asked, np.int64)[joined]
        self.longest = int(distance.max(initial=0))
        self._expand(fabric, src[joined] * len(targets) + column[joined])

    @cached_property
    def number(self) -> dict[LinkId, int]:
        """Of each link."""
        return {link: number for number, link in enumerate(self.links)}

    def path(self, numbers: Ints) -> Path:
        """The path of these links, in order; ``nothing`` is left out."""
        return tuple(self.links[number] for number in numbers.tolist() if number != self.nothing)

    def _expand(self, fabric: _Fabric, begin: Ints) -> None:
        """Numbers the states that can be reached from the codes ``begin``."""
        state_of = np.full(fabric.arrived + 1, -1)
        ahead = np.zeros(fabric.arrived + 1, bool)
        ahead[begin] = True
        sizes, links, afters = [], [], []
        states = 0
        while len(codes := np.flatnonzero(ahead & (state_of < 0))):
            state_of[codes] = states + np.arange(len(codes))
            states += len(codes)
            for first in range(0, len(codes), _BLOCK):
                size, link, after = fabric.onward(codes[first : first + _BLOCK])
                sizes.append(size)
                links.append(link)
                afters.append(after)
                ahead[after] = True
            ahead[fabric.arrived] = False
        state_of[fabric.arrived] = states
        self.size: Ints = np.concatenate([*sizes, [1]])
        self.start: Ints = np.cumsum(self.size) - self.size
        self.link: Ints = np.concatenate([*links, [self.nothing]])
        self.after: Ints = np.concatenate([*(state_of[after] for after in afters), [states]])
        self.state: Ints = state_of[begin]


class _Fabric:
    """Switches, links and distances in numbers. A switch on the way to a target has the *code* switch x targets +
    target.

    ``distance``: links from each switch to each target, shape (switches, targets); -1 when there is no way.
    ``arrived``: the code after all others, of every target itself.
    """

    def __init__(self, here: Ints, there: Ints, targets: Ints, switches: int) -> None:
        """``here``, ``there``: the ends of each link, sorted. ``targets``: switches; -1 is one that has no link."""
        self._there = there
        self._between = here * switches + there
        self._switches = switches
        self._targets = targets
        self._first = np.searchsorted(here, np.arange(switches))
        self._degree = np.bincount(here, minlength=switches)
        adjacent = np.zeros((switches, switches), np.float32)
        adjacent[here, there] = 1
        frontier = np.zeros((switches, len(targets)), np.float32)
        frontier[targets[targets >= 0], np.flatnonzero(targets >= 0)] = 1
        self.arrived = switches * len(targets)
        self.distance = np.where(frontier > 0, 0, -1)
        for steps in count(1):
            found = (adjacent @ frontier > 0) & (self.distance < 0)
            if not found.any():
                break
            self.distance[found] = steps
            frontier = found.astype(np.float32)

    def onward(self, codes: Ints) -> tuple[Ints, Ints, Ints]:
        """How many next hops each code has; and of all next hops, in this order, the link and the code after it."""
        switch, column = np.divmod(codes, len(self._targets))
        left = self.distance[switch, column]
        # The last hop has its target as far end: bisection finds it among the spine's links to all leaves.
        last = switch * self._switches + self._targets[column]
        first = np.where(left == 1, np.searchsorted(self._between, last), self._first[switch])
        degree = np.where(left == 1, np.searchsorted(self._between, last, "right") - first, self._degree[switch])
        of = np.repeat(np.arange(len(codes)), degree)
        link = np.arange(len(of)) + np.repeat(first - (np.cumsum(degree) - degree), degree)
        leads = self.distance[self._there[link], column[of]] == left[of] - 1
        link, of = link[leads], of[leads]
        after = np.where(left[of] == 1, self.arrived, self._there[link] * len(self._targets) + column[of])
        return np.bincount(of, minlength=len(codes)), link, after


class PathChoices:
    """``flows``: those that have a way through the fabric. ``options``: per flow its paths, shape (hops, paths), as
    link numbers of ``next_hops``; shorter paths are filled up with ``nothing``. Their order goes round the first
    switch's next hops, from the lowest on: the first k paths have as many different first links as k paths can.
    ``peak_bps``: per flow its largest demand, for schemes without phases."""

    def __init__(self, problem: Problem, next_hops: NextHops) -> None:
        self.next_hops = next_hops
        self.flows: Sequence[Flow] = [problem.flows[number] for number in next_hops.flows.tolist()]
        self.peak_bps: Sequence[float] = problem.numbers.peak_bps[next_hops.flows].tolist()
        states, first, pair = np.unique(next_hops.state, return_index=True, return_inverse=True)
        if _path_counts(next_hops)[states].max(initial=0) > _MOST_PATHS:
            of_pair = _candidates(problem, next_hops, [self.flows[flow] for flow in first.tolist()])
        else:
            blocks = [states[begin : begin + _BLOCK] for begin in range(0, len(states), _BLOCK)]
            of_pair = [paths for block in blocks for paths in _all_paths(next_hops, block)]
        self.options: Sequence[Ints] = [of_pair[number] for number in pair.tolist()]


def _path_counts(next_hops: NextHops) -> Floats:
    """How many shortest paths lead on from each state."""
    counts = np.zeros(len(next_hops.size))
    counts[-1] = 1
    for _ in range(next_hops.longest):
        counts = np.add.reduceat(counts[next_hops.after], next_hops.start)
    return counts


def _all_paths(next_hops: NextHops, states: Ints) -> list[Ints]:
    """Per state the paths from there, the shape of each is (hops, paths)."""
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
    """The number of each path among those of the same owner and first link, which lie side by side."""
    begins = np.flatnonzero(np.diff(owner, prepend=-1) | np.diff(first, prepend=-1))
    ranks: Ints = np.arange(len(owner)) - np.repeat(begins, np.diff(begins, append=len(owner)))
    return ranks


def _candidates(problem: Problem, next_hops: NextHops, flows: Sequence[Flow]) -> list[Ints]:
    """Per flow the problem's candidates."""
    found = []
    for flow in flows:
        paths = problem.candidates(flow)
        links = np.full((next_hops.longest, len(paths)), next_hops.nothing)
        for column, path in enumerate(paths):
            links[: len(path), column] = [next_hops.number[link] for link in path]
        found.append(links)
    return found
