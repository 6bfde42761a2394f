"""Next hops of flows on shortest paths, as arrays.

``efficiency`` follows hashed flows along them, and ``greedy.PathChoices`` lists all paths. In: a ``Problem``. Out:
``NextHops``, whose links are numbered from 0."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import count

import numpy as np

from controller.fabric.topology import LinkId, Path
from controller.planning.problem import Floats, FlowId, Ints, Problem, Route, whole

_BLOCK = 512
"""Number of states that are expanded at once, so that the arrays fit into the processor's cache."""


class NextHops:
    """Next hops of all flows as arrays.

    A *state* is a switch on the way to a destination. It has one *position* per next hop: a link, and the state that
    the link leads to. The last state stands for every destination that a path has reached; its only next hop is
    ``nothing``.

    - ``links``: fabric links by number, sorted by switch, far end and port.
    - ``nothing``: the number after the last link, which pads shorter paths.
    - ``capacity_bps``: capacity of each link, infinite for ``nothing``.
    - ``far_end``: number of the switch that each link leads to; switches are numbered in the order of their dpids.
    - ``flows``: indices of the flows that have a path through the fabric.
    - ``state``: state in which each flow of ``flows`` begins.
    - ``start``, ``size``: first position and number of positions of each state.
    - ``link``, ``after``: link and next state of each position.
    - ``longest``: number of links on the longest path."""

    def __init__(self, problem: Problem, flows: Sequence[int] | None = None) -> None:
        """Compute the next hops of ``flows`` (numbers), or of all flows for None."""
        self._all = problem.flows
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
        wanted = range(len(problem.flows)) if flows is None else flows
        ends = [
            (at.get(flow.src_leaf, -1), at.get(flow.dst_leaf, -1)) for flow in map(problem.flows.__getitem__, wanted)
        ]
        src, dst = np.array(ends, np.int64).reshape(-1, 2).T
        targets, column = np.unique(dst, return_inverse=True)
        fabric = _Fabric(here[order], self.far_end, targets, len(at))
        joined = np.flatnonzero((src >= 0) & (dst >= 0))
        distance = fabric.distance[src[joined], column[joined]]
        joined = joined[distance > 0]
        self.flows: Ints = np.array(wanted, np.int64)[joined]
        self.longest = int(distance.max(initial=0))
        self._expand(fabric, src[joined] * len(targets) + column[joined])

    @cached_property
    def number(self) -> dict[LinkId, int]:
        """Number of each link."""
        return {link: number for number, link in enumerate(self.links)}

    def least(self, cost: Floats) -> Floats:
        """Return the cost of the cheapest path from each state.

        ``cost`` has the cost of each link and of ``nothing``."""
        least = np.zeros(len(self.size))
        for _ in range(self.longest):
            least = np.minimum.reduceat(cost[self.link] + least[self.after], self.start)
        return least

    def cheapest(self, state: int, cost: Floats, least: Floats) -> Ints:
        """Return the links of the cheapest path from a state. ``least``: result of the method ``least``."""
        links = []
        for _ in range(self.longest):
            here = np.arange(self.start[state], self.start[state] + self.size[state])
            best = here[int(np.argmin(cost[self.link[here]] + least[self.after[here]]))]
            links.append(int(self.link[best]))
            state = int(self.after[best])
        return np.array(links, np.int64)

    def routes(self, links: Ints) -> dict[FlowId, Route]:
        """Return whole routes. Flows within a leaf get the empty path.

        ``links``: the links of each of ``flows``; shape (hops, flows)."""
        routes = {flow.id: whole(()) for flow in self._all if flow.src_leaf == flow.dst_leaf}
        paths = zip(self.flows.tolist(), links.T, strict=True)
        return routes | {self._all[number].id: whole(self.path(path)) for number, path in paths}

    def path(self, numbers: Ints) -> Path:
        """Return the path of these links, without padding (``nothing``)."""
        return tuple(self.links[number] for number in numbers.tolist() if number != self.nothing)

    def _expand(self, fabric: _Fabric, begin: Ints) -> None:
        """Find and number the states reachable from the codes ``begin`` (see ``_Fabric``), and fill their arrays."""
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
    """Switches, links and distances as arrays.

    A switch on the way to a target has the *code* switch x number of targets + target.

    - ``distance``: number of links from each switch to each target, shape (switches, targets); -1 when there is no
      path.
    - ``arrived``: number after the last code; it stands for a target that has been reached."""

    def __init__(self, here: Ints, there: Ints, targets: Ints, switches: int) -> None:
        """Compute the distances.

        ``here``, ``there``: the ends of each link, sorted. ``targets``: numbers of switches; -1 for a switch without
        links."""
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
        """Return the number of next hops of each code, and the link and following code of each next hop, in order."""
        switch, column = np.divmod(codes, len(self._targets))
        left = self.distance[switch, column]
        # A last hop ends at the target, so bisection finds its link among a spine's links to all leaves.
        last = switch * self._switches + self._targets[column]
        first = np.where(left == 1, np.searchsorted(self._between, last), self._first[switch])
        degree = np.where(left == 1, np.searchsorted(self._between, last, "right") - first, self._degree[switch])
        of = np.repeat(np.arange(len(codes)), degree)
        link = np.arange(len(of)) + np.repeat(first - (np.cumsum(degree) - degree), degree)
        leads = self.distance[self._there[link], column[of]] == left[of] - 1
        link, of = link[leads], of[leads]
        after = np.where(left[of] == 1, self.arrived, self._there[link] * len(self._targets) + column[of])
        return np.bincount(of, minlength=len(codes)), link, after
