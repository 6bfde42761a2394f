"""The parts of a leaf-spine that can be planned apart, and the lanes that the leaves of a part share.

A flow loads links out of its source's leaf and links into its destination's. Two flows are in one *part* when they have
one of these sides in common, or are joined by others that do. Parts share no link between switches. Leaves of different
parts may be the same switches: its links out may belong to one part, its links in to another.

A *lane* is one cable from every leaf that sends in the part to one spine, and one cable back to every leaf that
receives. With several cables between a leaf and a spine a spine has several lanes. Cables that failed at one leaf of
the part are lanes of none. In: a ``Problem``. Out: parts and lanes; no lanes where paths have not two links.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from controller.fabric.topology import Dpid, LinkId
from controller.planning.numbered import Around, Ints, Links, Numbers
from controller.planning.problem import Flow, Problem

_EQUAL = 1e-9

Cable = tuple[Dpid, int]
"""A spine, and which of the cables between it and a leaf."""


@dataclass(frozen=True)
class Lanes:
    """``out``, ``into``: of the leaves that send (``senders``, ascending) and of those that receive (``receivers``) the
    numbers of the links by lane, shape (leaves, lanes); the path from one to another by lane l is its link out l and
    the other's link in l. ``bps``: per lane the least capacity of its links, descending. ``others``: the leaves' other
    links, with the spine and which of the cables to it."""

    links: Links
    senders: Sequence[Dpid]
    receivers: Sequence[Dpid]
    out: Ints
    into: Ints
    bps: tuple[float, ...]
    others: tuple[Around, Around]

    @property
    def count(self) -> int:
        return len(self.bps)

    @property
    def alike(self) -> bool:
        return self.bps[0] - self.bps[-1] <= _EQUAL * self.bps[0]

    @property
    def has_others(self) -> bool:
        """Whether senders and receivers have links that are no lane's."""
        return all(len(side.at) for side in self.others)

    @cached_property
    def up(self) -> Mapping[Dpid, tuple[LinkId, ...]]:
        """Links by lane."""
        return self._by_leaf(self.senders, self.out)

    @cached_property
    def down(self) -> Mapping[Dpid, tuple[LinkId, ...]]:
        """Links by lane."""
        return self._by_leaf(self.receivers, self.into)

    @cached_property
    def up_besides(self) -> Mapping[Dpid, Mapping[Cable, LinkId]]:
        """Links that are no lane's."""
        return self._besides(self.senders, self.others[0])

    @cached_property
    def down_besides(self) -> Mapping[Dpid, Mapping[Cable, LinkId]]:
        """Links that are no lane's."""
        return self._besides(self.receivers, self.others[1])

    def paths(self, numbers: Numbers, flows: Ints, lanes: Ints) -> Ints:
        """The two links of each of these flows' path over its lane, shape (flows, 2)."""
        row_out, row_in = self.rows(numbers, flows)
        return np.stack([self.out[row_out, lanes], self.into[row_in, lanes]], axis=1)

    def rows(self, numbers: Numbers, flows: Ints) -> tuple[Ints, Ints]:
        """The places of each flow's leaves among ``senders`` and ``receivers``."""
        if self.senders == self.receivers == numbers.leaves:
            return numbers.src[flows], numbers.dst[flows]
        place_out = {leaf: row for row, leaf in enumerate(self.senders)}
        place_in = {leaf: row for row, leaf in enumerate(self.receivers)}
        row_out = np.array([place_out.get(leaf, -1) for leaf in numbers.leaves])[numbers.src[flows]]
        row_in = np.array([place_in.get(leaf, -1) for leaf in numbers.leaves])[numbers.dst[flows]]
        return row_out, row_in

    def _by_leaf(self, leaves: Sequence[Dpid], links: Ints) -> dict[Dpid, tuple[LinkId, ...]]:
        ids = self.links.ids
        return {leaf: tuple([ids[link] for link in row]) for leaf, row in zip(leaves, links.tolist(), strict=True)}

    def _besides(self, leaves: Sequence[Dpid], around: Around) -> dict[Dpid, dict[Cable, LinkId]]:
        found: dict[Dpid, dict[Cable, LinkId]] = {leaf: {} for leaf in leaves}
        ids, dpids = self.links.ids, self.links.dpids
        for at, spine, cable, link in zip(*(column.tolist() for column in around), strict=True):
            found[leaves[at]][dpids[spine], cable] = ids[link]
        return found


def find_lanes(problem: Problem) -> Lanes | None:
    """The lanes of all leaves that the problem's flows begin and end at, where these are alike: every cable of theirs
    belongs to a lane, and all have one capacity."""
    numbers = problem.numbers
    ends = np.concatenate([numbers.src[numbers.crossing], numbers.dst[numbers.crossing]])
    leaves = [numbers.leaves[leaf] for leaf in np.unique(ends).tolist()]
    lanes = lanes_between(problem, leaves, leaves)
    if lanes is None or not lanes.alike or any(len(others.at) for others in lanes.others):
        return None
    fastest = max(float(numbers.capacity_bps[links].max()) for links in (lanes.out, lanes.into))
    return lanes if fastest - lanes.bps[-1] <= _EQUAL * fastest else None


def lanes_of(problem: Problem, flows: Ints) -> Lanes | None:
    """Those of the leaves of these flows."""
    numbers = problem.numbers
    ends = (np.unique(of[flows]).tolist() for of in (numbers.src, numbers.dst))
    return lanes_between(problem, *([numbers.leaves[leaf] for leaf in those] for those in ends))


def lanes_between(problem: Problem, senders: Iterable[Dpid], receivers: Iterable[Dpid]) -> Lanes | None:
    """The lanes of these leaves, the fastest first; None when there are none."""
    links = problem.links
    senders, receivers = sorted(set(senders)), sorted(set(receivers))
    sides = links.around(senders, outward=True), links.around(receivers, outward=False)
    spines = {links.dpids[spine] for side in sides for spine in np.unique(side.other).tolist()}
    if not spines.isdisjoint([*senders, *receivers]):
        return None
    width = 1 + max(int(side.cable.max(initial=0)) for side in sides)
    keys = [side.other * width + side.cable for side in sides]
    lane, at_leaves = np.unique(np.concatenate(keys), return_counts=True)
    lane = lane[at_leaves == len(senders) + len(receivers)]
    if not len(lane):
        return None
    shared = [np.isin(key, lane) for key in keys]
    out, into = (side.link[those].reshape(-1, len(lane)) for side, those in zip(sides, shared, strict=True))
    bps = np.minimum(links.capacity_bps[out].min(axis=0), links.capacity_bps[into].min(axis=0))
    order = np.argsort(-bps, kind="stable")
    others = [Around(*(of[~those] for of in side)) for side, those in zip(sides, shared, strict=True)]
    best_first = (out[:, order], into[:, order], tuple(bps[order].tolist()))
    return Lanes(links, senders, receivers, *best_first, (others[0], others[1]))


def crossing(problem: Problem) -> list[Flow]:
    """The flows between leaves."""
    return [flow for flow in problem.flows if flow.src_leaf != flow.dst_leaf]


def parts(numbers: Numbers, flows: Ints) -> list[Ints]:
    """Flows between leaves, apart where they share no side of a leaf; in the order of their first flows."""
    leaves = len(numbers.leaves)
    src, dst = numbers.src[flows], leaves + numbers.dst[flows]
    root = np.arange(2 * leaves)
    while True:
        lowest = root.copy()
        np.minimum.at(lowest, src, root[dst])
        np.minimum.at(lowest, dst, root[src])
        lowest = lowest[lowest]
        if (lowest == root).all():
            break
        root = lowest
    _, first, part = np.unique(root[src], return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))[part]
    sizes = np.bincount(rank, minlength=1)
    return np.split(flows[np.argsort(rank, kind="stable")], np.cumsum(sizes)[:-1])
