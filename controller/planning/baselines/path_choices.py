"""The paths of all flows as rows of link numbers: what the baselines choose from.

In: a ``Problem`` and its ``NextHops``. Out: per flow its shortest paths. Their order goes round the first switch's next
hops, from the lowest on: the first k paths have as many different first links as k paths can.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from controller.planning.baselines.next_hops import NextHops
from controller.planning.efficiency import Floats, Ints
from controller.planning.problem import Flow, Problem

_MOST_PATHS = 512
"""A pair of switches with more shortest paths than this is left with the problem's candidates."""
_BLOCK = 512
"""States whose paths are listed together: few enough for the processor's cache."""


class PathChoices:
    """``flows``: those that have a way through the fabric, the others leave no choice. ``options``: per flow its paths,
    shape (hops, paths), in link numbers of ``next_hops``; shorter paths are filled up with ``nothing``. ``peak_bps``:
    per flow its largest demand, which is all that a scheme without phases knows of it."""

    def __init__(self, problem: Problem, next_hops: NextHops) -> None:
        self.next_hops = next_hops
        self.flows: Sequence[Flow] = [problem.flows[number] for number in next_hops.flows.tolist()]
        self.peak_bps: Sequence[float] = [max((bps for _, bps in flow.demand_bps), default=0.0) for flow in self.flows]
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
    numbers = {link: number for number, link in enumerate(next_hops.links)}
    found = []
    for flow in flows:
        paths = problem.candidates(flow)
        links = np.full((next_hops.longest, len(paths)), next_hops.nothing)
        for column, path in enumerate(paths):
            links[: len(path), column] = [numbers[link] for link in path]
        found.append(links)
    return found
