"""The next hops that hashing chooses from, in numbers, so that numpy can follow many flows at once.

In: a ``Problem``. Out: for every switch and destination that its flows come by on shortest paths, the links that lead
on. There is no cap on paths here: a switch hashes over all of its next hops, whatever the planner looks at.
"""

from __future__ import annotations

from itertools import count

import numpy as np

from controller.fabric.topology import LinkId, Path
from controller.planning.efficiency import Floats, Ints
from controller.planning.problem import Problem

_BLOCK = 512
"""States that are looked at together: few enough for the processor's cache."""


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

    def __init__(self, problem: Problem) -> None:
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
        ends = [(at.get(flow.src_leaf, -1), at.get(flow.dst_leaf, -1)) for flow in problem.flows]
        src, dst = np.array(ends, np.int64).reshape(-1, 2).T
        targets, column = np.unique(dst, return_inverse=True)
        fabric = _Fabric(here[order], self.far_end, targets, len(at))
        flows = np.flatnonzero((src >= 0) & (dst >= 0))
        distance = fabric.distance[src[flows], column[flows]]
        self.flows: Ints = flows[distance > 0]
        self.longest = int(distance.max(initial=0))
        self._expand(fabric, src[self.flows] * len(targets) + column[self.flows])

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
