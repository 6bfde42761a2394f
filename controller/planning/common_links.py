"""Parts of a leaf-spine that can be planned separately, and the common links of the leaves of each part.

A flow loads links out of its source's leaf and links into its destination's leaf. Two flows belong to one *part* when
they have the same source leaf or the same destination leaf, or when a chain of such flows connects them. Parts
share no link between switches. A leaf can belong to two parts: its links out to one part, its links in to the other.

A *common link* has a cable from every sending leaf to one spine, and a cable from this spine to every receiving leaf. A
spine with several cables to each leaf has several common links. A cable that has failed at one leaf of the part belongs
to no common link. The cables of the leaves that belong to no common link are *residual links*.

In: a ``Problem``. Out: parts and common links; no common links when some paths do not have two links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from controller.fabric.topology import Dpid, LinkId
from controller.planning.problem import Around, Flow, Ints, Links, Numbers, Problem

_EQUAL = 1e-9

Cable = tuple[Dpid, int]
"""Spine, and index of the cable among the cables between this spine and a leaf."""


@dataclass(frozen=True)
class CommonLinks:
    """Common links of one part.

    The path from a sender to a receiver over common link l is the sender's link out l and the receiver's link in l.

    - ``senders``, ``receivers``: leaves that send and leaves that receive, ascending.
    - ``out``: number of each sender's link out by common link; shape (senders, common links).
    - ``into``: number of each receiver's link in by common link; shape (receivers, common links).
    - ``bps``: per common link the smallest capacity of its links, descending.
    - ``others``: residual links of senders and of receivers."""

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
        """Whether both senders and receivers have residual links."""
        return all(len(side.at) for side in self.others)

    @cached_property
    def up(self) -> Mapping[Dpid, tuple[LinkId, ...]]:
        """Links out of each sender, by common link."""
        return self._by_leaf(self.senders, self.out)

    @cached_property
    def down(self) -> Mapping[Dpid, tuple[LinkId, ...]]:
        """Links into each receiver, by common link."""
        return self._by_leaf(self.receivers, self.into)

    @cached_property
    def up_residual(self) -> Mapping[Dpid, Mapping[Cable, LinkId]]:
        """Residual links out of each sender, by cable."""
        return self._residual(self.senders, self.others[0])

    @cached_property
    def down_residual(self) -> Mapping[Dpid, Mapping[Cable, LinkId]]:
        """Residual links into each receiver, by cable."""
        return self._residual(self.receivers, self.others[1])

    def paths(self, numbers: Numbers, flows: Ints, common: Ints) -> Ints:
        """Return the two links of each flow's path over its common link; shape (flows, 2)."""
        row_out, row_in = self.rows(numbers, flows)
        return np.stack([self.out[row_out, common], self.into[row_in, common]], axis=1)

    def rows(self, numbers: Numbers, flows: Ints) -> tuple[Ints, Ints]:
        """Return the positions of each flow's leaves in ``senders`` and ``receivers``."""
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

    def _residual(self, leaves: Sequence[Dpid], around: Around) -> dict[Dpid, dict[Cable, LinkId]]:
        found: dict[Dpid, dict[Cable, LinkId]] = {leaf: {} for leaf in leaves}
        ids, dpids = self.links.ids, self.links.dpids
        for at, spine, cable, link in zip(*(column.tolist() for column in around), strict=True):
            found[leaves[at]][dpids[spine], cable] = ids[link]
        return found


def find_common_links(problem: Problem) -> CommonLinks | None:
    """Return the common links of all leaves at which flows begin or end; None unless these leaves are alike.

    Leaves are alike when every cable belongs to a common link and all cables have the same capacity."""
    numbers = problem.numbers
    ends = np.concatenate([numbers.src[numbers.crossing], numbers.dst[numbers.crossing]])
    leaves = [numbers.leaves[leaf] for leaf in np.unique(ends).tolist()]
    common = common_links_between(problem, leaves, leaves)
    if common is None or not common.alike or any(len(others.at) for others in common.others):
        return None
    fastest = max(float(numbers.capacity_bps[links].max()) for links in (common.out, common.into))
    return common if fastest - common.bps[-1] <= _EQUAL * fastest else None


def common_links_of(problem: Problem, flows: Ints) -> CommonLinks | None:
    """Return the common links of the leaves at which these flows begin and end; None when there are none."""
    numbers = problem.numbers
    ends = (np.unique(of[flows]).tolist() for of in (numbers.src, numbers.dst))
    return common_links_between(problem, *([numbers.leaves[leaf] for leaf in those] for those in ends))


def common_links_between(problem: Problem, senders: Iterable[Dpid], receivers: Iterable[Dpid]) -> CommonLinks | None:
    """Return the common links of these leaves, the fastest first; None when there are none."""
    links = problem.links
    senders, receivers = sorted(set(senders)), sorted(set(receivers))
    sides = links.around(senders, outward=True), links.around(receivers, outward=False)
    spines = {links.dpids[spine] for side in sides for spine in np.unique(side.other).tolist()}
    if not spines.isdisjoint([*senders, *receivers]):
        return None
    width = 1 + max(int(side.cable.max(initial=0)) for side in sides)
    keys = [side.other * width + side.cable for side in sides]
    common_link, at_leaves = np.unique(np.concatenate(keys), return_counts=True)
    common_link = common_link[at_leaves == len(senders) + len(receivers)]
    if not len(common_link):
        return None
    shared = [np.isin(key, common_link) for key in keys]
    out, into = (side.link[those].reshape(-1, len(common_link)) for side, those in zip(sides, shared, strict=True))
    bps = np.minimum(links.capacity_bps[out].min(axis=0), links.capacity_bps[into].min(axis=0))
    order = np.argsort(-bps, kind="stable")
    others = [Around(*(of[~those] for of in side)) for side, those in zip(sides, shared, strict=True)]
    best_first = (out[:, order], into[:, order], tuple(bps[order].tolist()))
    return CommonLinks(links, senders, receivers, *best_first, (others[0], others[1]))


def crossing(problem: Problem) -> list[Flow]:
    """Return the flows between different leaves."""
    return [flow for flow in problem.flows if flow.src_leaf != flow.dst_leaf]


def parts(numbers: Numbers, flows: Ints) -> list[Ints]:
    """Return the parts of these flows, in the order of their first flows."""
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
