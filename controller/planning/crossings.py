"""Cuts of a problem and the flows that cross them, from which the closed-form bounds (``bounds``) are computed.

In: a ``Problem``. Out: the place and links of each cut, and the flows that cross it on every path.

*Pods* on three tiers have cuts of their own, because a pod whose cores have failed or are few has less capacity than
its leaves. A flow from a leaf to another pod takes one plane. There it crosses an uplink of the leaf, and then a link
from the pod to a core. Consider the flows from some leaves of a pod to other pods. For each plane the cut has either
the uplinks of these leaves or the pod's links to cores, whichever have less capacity. Suppose that n leaves with D
flows have n uplinks per plane, that the pod has c links to cores in a plane, and that all links are equal. Then some
link has at least D / (sum of min(n, c) over the planes) flows. The leaves are added from the most loaded leaf on. Flows
into the leaves have cuts of the same kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from controller.fabric.topology import Dpid, LinkId
from controller.planning.problem import Ints, Problem, Tiers, distinct


class Place(NamedTuple):
    """Place of a cut: a leaf, a pair of leaves, or several leaves of one pod."""

    leaf: Dpid
    outward: bool
    """Whether the flows of the cut leave the leaf."""
    other: Dpid | None
    """Second leaf of a pair; None for other cuts."""
    leaves: int = 0
    """Number of leaves of one pod, of which ``leaf`` is one; 0 for a single leaf.

    Flows within the pod do not cross the cut."""


class Crossings(NamedTuple):
    """Cuts, and one row for every flow that crosses a cut: the numbers of the flow and of the cut."""

    places: Sequence[Place]
    links: Sequence[Sequence[LinkId]]
    flow: Ints
    cut: Ints
    routable: Ints
    """Numbers of the flows that have a path, whether or not they cross a cut."""
    numbers: Ints
    """Numbers of the links of all cuts, cut by cut, in any order within a cut."""


def crossings(problem: Problem) -> Crossings:
    """Return all cuts of the problem.

    Two leaves have a cut only if some uplink of the source or some downlink of the destination is on no path between
    them. Otherwise the cut of the single leaf is stronger."""
    if _all_alike(problem):
        return _crossings_of_leaves(problem)
    if problem.tiers:
        return _crossings_of_pods(problem, problem.tiers)
    return _crossings_over_spines(problem) or _crossings_of_pairs(problem)


def _crossings_of_pairs(problem: Problem) -> Crossings:
    """Return the cuts of leaves and pairs of leaves on any fabric."""
    paths = problem.paths
    links_of: list[Sequence[LinkId]] = []
    number_of: dict[Place, int] = {}
    cuts_of: dict[tuple[Dpid, Dpid], tuple[int, ...]] = {}

    def cut(place: Place, links: Iterable[LinkId]) -> int:
        if place not in number_of:
            number_of[place] = len(links_of)
            links_of.append(tuple(links))
        return number_of[place]

    def cuts_between(src: Dpid, dst: Dpid) -> tuple[int, ...]:
        if src == dst or not paths.connected(src, dst):
            return ()
        cuts = []
        first, last = paths.ends(src, dst)
        for leaf, other, around, crossed in (
            (src, dst, paths.links_from(src), first),
            (dst, src, paths.links_into(dst), last),
        ):
            cuts.append(cut(Place(leaf, leaf == src, None), around))
            if len(crossed) < len(around):
                cuts.append(cut(Place(leaf, leaf == src, other), crossed))
        return tuple(cuts)

    of_flow = []
    for flow in problem.flows:
        pair = (flow.src_leaf, flow.dst_leaf)
        if pair not in cuts_of:
            cuts_of[pair] = cuts_between(*pair)
        of_flow.append(cuts_of[pair])
    flows = np.repeat(np.arange(len(of_flow)), np.array([len(cuts) for cuts in of_flow], np.int64))
    routable = [index for index, flow in enumerate(problem.flows) if of_flow[index] or flow.src_leaf == flow.dst_leaf]
    cut_of = np.array([number for cuts in of_flow for number in cuts], np.int64)
    of_links = _numbers(problem, links_of)
    return Crossings(list(number_of), links_of, flows, cut_of, np.array(routable, np.int64), of_links)


def _numbers(problem: Problem, links_of: Iterable[Sequence[LinkId]]) -> Ints:
    number = problem.links.number
    return np.array([number[link] for links in links_of for link in links], np.int64)


def _crossings_over_spines(problem: Problem) -> Crossings | None:
    """Return the cuts of leaves and pairs of leaves when all paths have two links; else None.

    The cut of a pair is left out when its bound cannot exceed 1: it has no more flows than links, and no flow demands
    more than a link's capacity."""
    numbers, links, paths = problem.numbers, problem.links, problem.paths
    leaves, crossing = numbers.leaves, numbers.crossing
    out, into = np.zeros((2, len(leaves), len(links.switch)), np.float32)
    sides = links.around(leaves, outward=True), links.around(leaves, outward=False)
    for side, cables in zip(sides, (out, into), strict=True):
        np.add.at(cables, (side.at, side.other), 1)
    ends = [links.switch.get(leaf, -1) for leaf in leaves]
    first, last = out @ (into > 0).T, into @ (out > 0).T
    src, dst = numbers.src[crossing], numbers.dst[crossing]
    if not len(crossing) or -1 in ends or (out[:, ends][src, dst] > 0).any() or not first[src, dst].all():
        return None
    pairs, pair = distinct(src * len(leaves) + dst)
    flows = np.bincount(pair)
    grouped, ends_at = crossing[np.argsort(pair, kind="stable")], np.cumsum(flows)
    slowest = min(float(numbers.capacity_bps[side.link].min()) for side in sides)
    may_fill = flows > (first.ravel()[pairs] if numbers.peak_bps.max() <= slowest else 0)
    found = _crossings_of_leaves(problem)
    places, links_of = [*found.places], [*found.links]
    flow, cut = [found.flow], [found.cut]
    for number in np.flatnonzero(may_fill).tolist():
        a, b = divmod(int(pairs[number]), len(leaves))
        fewer = first[a, b] < out[a].sum(), last[b, a] < into[b].sum()
        if not any(fewer):
            continue
        crossed = paths.ends(leaves[a], leaves[b])
        for place, those, is_cut in zip(
            (Place(leaves[a], True, leaves[b]), Place(leaves[b], False, leaves[a])), crossed, fewer, strict=True
        ):
            if is_cut:
                flow.append(grouped[ends_at[number] - flows[number] : ends_at[number]])
                cut.append(np.full(len(flow[-1]), len(places)))
                places.append(place)
                links_of.append(tuple(those))
    of_links = np.concatenate([found.numbers, _numbers(problem, links_of[len(found.links) :])])
    return Crossings(places, links_of, np.concatenate(flow), np.concatenate(cut), found.routable, of_links)


def _crossings_of_leaves(problem: Problem) -> Crossings:
    """Return the cuts of single leaves. They are all cuts when every link of a leaf leads to every other leaf."""
    numbers, leaves = problem.numbers, problem.numbers.leaves
    places = [Place(leaf, outward, None) for outward in (True, False) for leaf in leaves]
    links_of = [*map(problem.paths.links_from, leaves), *map(problem.paths.links_into, leaves)]
    crossing = numbers.crossing
    cut = np.stack([numbers.src[crossing], len(leaves) + numbers.dst[crossing]], axis=1).ravel()
    used, cut = distinct(cut)
    places, links_of = [places[index] for index in used], [links_of[index] for index in used]
    out, into = (problem.links.around(leaves, outward=outward) for outward in (True, False))
    crossed = np.isin(np.concatenate([out.at, len(leaves) + into.at]), used)
    of_links = np.concatenate([out.link, into.link])[crossed]
    return Crossings(places, links_of, np.repeat(crossing, 2), cut, np.arange(len(numbers.src)), of_links)


def _crossings_of_pods(problem: Problem, tiers: Tiers) -> Crossings:
    """Return the cuts of single leaves and of several leaves of one pod."""
    places, links_of, flows, cut, routable, of_links = _crossings_of_leaves(problem)
    added = list(_pod_cuts(problem, tiers))
    crossing = [flow for of in added for flow in of.flows]
    number = [len(places) + index for index, of in enumerate(added) for _ in of.flows]
    return Crossings(
        [*places, *(Place(of.leaves[0], of.outward, None, len(of.leaves)) for of in added)],
        [*links_of, *(of.links for of in added)],
        np.concatenate([flows, np.array(crossing, np.int64)]),
        np.concatenate([cut, np.array(number, np.int64)]),
        routable,
        np.concatenate([of_links, _numbers(problem, [of.links for of in added])]),
    )


def _all_alike(problem: Problem) -> bool:
    """Return whether all leaves have cables to and from the same switches, with the same number of cables to each.

    All links out of a leaf then lead to every other leaf."""
    leaves, links = problem.numbers.leaves, problem.links
    sides = [links.around(leaves, outward=outward) for outward in (True, False)]
    count = len(sides[0].at) // max(1, len(leaves))
    if not count or any(len(side.at) != count * len(leaves) for side in sides):
        return False
    rows = np.concatenate([side.other for side in sides]).reshape(-1, count)
    even = all((np.bincount(side.at) == count).all() for side in sides) and bool((rows == rows[0]).all())
    return even and {links.dpids[switch] for switch in rows[0].tolist()}.isdisjoint(leaves)


# ---- pods


class _PodCut(NamedTuple):
    """Cut of several leaves of one pod."""

    leaves: Sequence[Dpid]
    outward: bool
    """Whether the flows leave the leaves."""
    links: Sequence[LinkId]
    flows: Sequence[int]
    """Numbers of the flows that cross the cut."""


def _pod_cuts(problem: Problem, tiers: Tiers) -> Iterator[_PodCut]:
    """Yield the cuts that can be stronger than the cuts of single leaves."""
    load_bps = problem.numbers.peak_bps.tolist()
    for outward in (True, False):
        flows = _between_pods(problem, tiers, outward)
        load = {leaf: sum([load_bps[flow] for flow in own]) for leaf, own in flows.items()}
        pods: defaultdict[int, list[Dpid]] = defaultdict(list)
        for leaf in sorted(flows, key=lambda leaf: (-load[leaf], leaf)):
            pods[tiers.pod[leaf]].append(leaf)
        for leaves in pods.values():
            for those, links in _cuts_of_pod(problem, tiers, leaves, outward):
                yield _PodCut(those, outward, links, [flow for leaf in those for flow in flows[leaf]])


def _between_pods(problem: Problem, tiers: Tiers, outward: bool) -> Mapping[Dpid, Sequence[int]]:
    """Return the flows from each leaf to other pods, or from other pods to each leaf."""
    flows: defaultdict[Dpid, list[int]] = defaultdict(list)
    for number, flow in enumerate(problem.flows):
        src, dst = flow.src_leaf, flow.dst_leaf
        if src != dst and tiers.pod[src] != tiers.pod[dst]:
            flows[src if outward else dst].append(number)
    return flows


def _cuts_of_pod(
    problem: Problem, tiers: Tiers, leaves: Sequence[Dpid], outward: bool
) -> Iterator[tuple[Sequence[Dpid], list[LinkId]]]:
    """Yield (first n leaves, links of their cut) for each n with a cut that can be stronger than single leaves."""
    capacity_bps, pod = problem.capacity_bps, tiers.pod[leaves[0]]
    edge, core = (tiers.up, tiers.core_up) if outward else (tiers.down, tiers.core_down)
    around = problem.paths.links_from(leaves[0]) if outward else problem.paths.links_into(leaves[0])
    narrower = len(around) > len(tiers.plane)
    to_cores = [(sum([capacity_bps[link] for link in common[pod]]), common[pod]) for common in core]
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
