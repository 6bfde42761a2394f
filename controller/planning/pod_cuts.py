"""Cuts of pods on three tiers: where cores have failed or are few, a pod is narrower than its leaves.

A flow from a leaf to another pod takes one plane: there it crosses the leaf's uplink, and behind that a link from the
pod to a core. So the flows that leave some leaves of a pod for other pods cross the set of links that has, for each
plane, either those uplinks or those links to cores, whichever have less capacity: n equal uplinks of n leaves, or c
links to cores. With D flows, S planes and the leaves taken from the fullest on, some link has at least
D / sum of min(n, c) over the S planes. The same holds for flows into the leaves.

In: a problem and its ``Tiers``. Out: the cuts that can be stronger than those of single leaves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from controller.fabric.topology import Dpid, LinkId
from controller.planning.problem import Problem
from controller.planning.tiers import Tiers


class PodCut(NamedTuple):
    """``outward``: whether its flows, by number, leave these leaves of one pod or enter them."""

    leaves: Sequence[Dpid]
    outward: bool
    links: Sequence[LinkId]
    flows: Sequence[int]


def pod_cuts(problem: Problem, tiers: Tiers) -> Iterator[PodCut]:
    load_bps = problem.numbers.peak_bps.tolist()
    for outward in (True, False):
        flows = _between_pods(problem, tiers, outward)
        load = {leaf: sum([load_bps[flow] for flow in own]) for leaf, own in flows.items()}
        pods: defaultdict[int, list[Dpid]] = defaultdict(list)
        for leaf in sorted(flows, key=lambda leaf: (-load[leaf], leaf)):
            pods[tiers.pod[leaf]].append(leaf)
        for leaves in pods.values():
            for those, links in _cuts(problem, tiers, leaves, outward):
                yield PodCut(those, outward, links, [flow for leaf in those for flow in flows[leaf]])


def _between_pods(problem: Problem, tiers: Tiers, outward: bool) -> Mapping[Dpid, Sequence[int]]:
    """The flows from each leaf to other pods, or to each leaf from other pods."""
    flows: defaultdict[Dpid, list[int]] = defaultdict(list)
    for number, flow in enumerate(problem.flows):
        src, dst = flow.src_leaf, flow.dst_leaf
        if src != dst and tiers.pod[src] != tiers.pod[dst]:
            flows[src if outward else dst].append(number)
    return flows


def _cuts(
    problem: Problem, tiers: Tiers, leaves: Sequence[Dpid], outward: bool
) -> Iterator[tuple[Sequence[Dpid], list[LinkId]]]:
    """The first leaves, by number of leaves, and the links of the cut."""
    capacity_bps, pod = problem.capacity_bps, tiers.pod[leaves[0]]
    edge, core = (tiers.up, tiers.core_up) if outward else (tiers.down, tiers.core_down)
    around = problem.paths.links_from(leaves[0]) if outward else problem.paths.links_into(leaves[0])
    narrower = len(around) > len(tiers.plane)
    to_cores = [(sum([capacity_bps[link] for link in lanes[pod]]), lanes[pod]) for lanes in core]
    to_planes: list[tuple[float, list[LinkId]]] = [(0.0, []) for _ in core]
    all_bps = np.zeros(len(core))
    np.add.at(all_bps, list(tiers.plane) * len(leaves), [capacity_bps[link] for leaf in leaves for link in edge[leaf]])
    if not narrower and (all_bps <= [bps for bps, _ in to_cores]).all():
        return
    for count, leaf in enumerate(leaves, 1):
        for plane, link in zip(tiers.plane, edge[leaf], strict=True):
            bps, links = to_planes[plane]
            to_planes[plane] = bps + capacity_bps[link], [*links, link]
        smaller = [min(both, key=itemgetter(0)) for both in zip(to_planes, to_cores, strict=True)]
        if (narrower and count == 1) or smaller != to_planes:
            yield leaves[:count], [link for _, links in smaller for link in links]
