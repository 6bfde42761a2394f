"""The parts of a leaf-spine that can be planned apart, and the lanes that the leaves of a part share.

A flow loads links out of its source's leaf and links into its destination's. Two flows are in one *part* when they have
one of these sides in common, or are joined by others that do. Parts share no link between switches. Leaves of different
parts may be the same switches: its links out may belong to one part, its links in to another.

A *lane* is one cable from every leaf that sends in the part to one spine, and one cable back to every leaf that
receives. With several cables between a leaf and a spine a spine has several lanes. Cables that failed at one leaf of
the part are lanes of none. In: a ``Problem``. Out: parts and lanes; no lanes where paths have not two links.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controller.fabric.topology import Dpid, LinkId
from controller.planning.problem import Flow, Problem

_EQUAL = 1e-9

Cable = tuple[Dpid, int]
"""A spine, and which of the cables between it and a leaf."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """``up``, ``down``: of the leaves that send and of those that receive the links by lane; the path from one to
    another by lane l is its up link l and the other's down link l. ``bps``: per lane the least capacity of its links,
    descending. ``up_besides``, ``down_besides``: the leaves' other links."""

    up: Mapping[Dpid, tuple[LinkId, ...]]
    down: Mapping[Dpid, tuple[LinkId, ...]]
    bps: tuple[float, ...]
    up_besides: Mapping[Dpid, Mapping[Cable, LinkId]]
    down_besides: Mapping[Dpid, Mapping[Cable, LinkId]]

    @property
    def count(self) -> int:
        return len(self.bps)

    @property
    def alike(self) -> bool:
        return self.bps[0] - self.bps[-1] <= _EQUAL * self.bps[0]


def find_lanes(problem: Problem) -> Lanes | None:
    """The lanes of all leaves that the problem's flows begin and end at, where these are alike: every cable of theirs
    belongs to a lane, and all have one capacity."""
    leaves = {leaf for flow in crossing(problem) for leaf in (flow.src_leaf, flow.dst_leaf)}
    lanes = lanes_between(problem, leaves, leaves)
    if lanes is None or not lanes.alike:
        return None
    paths, capacity_bps = problem.paths, problem.capacity_bps
    around = [*map(paths.links_from, leaves), *map(paths.links_into, leaves)]
    if any(len(links) != lanes.count for links in around):
        return None
    fastest = max(capacity_bps[link] for links in around for link in links)
    return lanes if fastest - lanes.bps[-1] <= _EQUAL * fastest else None


def crossing(problem: Problem) -> list[Flow]:
    """The flows between leaves."""
    return [flow for flow in problem.flows if flow.src_leaf != flow.dst_leaf]


def lanes_of(problem: Problem, flows: Iterable[Flow]) -> Lanes | None:
    """Those of the leaves of these flows."""
    pairs = {(flow.src_leaf, flow.dst_leaf) for flow in flows}
    return lanes_between(problem, {src for src, _ in pairs}, {dst for _, dst in pairs})


def lanes_between(problem: Problem, senders: Iterable[Dpid], receivers: Iterable[Dpid]) -> Lanes | None:
    """The lanes of these leaves, the fastest first; None when there are none."""
    paths = problem.paths
    out = {
        leaf: _by_spine(problem, [(paths.far_end[link], link) for link in paths.links_from(leaf)]) for leaf in senders
    }
    into = {leaf: _by_spine(problem, [(link.dpid, link) for link in paths.links_into(leaf)]) for leaf in receivers}
    sides = [*out.values(), *into.values()]
    if not sides or not {spine for side in sides for spine, _ in side}.isdisjoint([*out, *into]):
        return None
    shared = set(sides[0]).intersection(*sides[1:])
    number = problem.link_number
    capacity_bps = problem.numbers.capacity_bps
    links = {lane: [side[lane] for side in sides] for lane in sorted(shared)}
    bps = {lane: float(capacity_bps[[number[link] for link in of]].min()) for lane, of in links.items()}
    order = sorted(bps, key=lambda lane: (-bps[lane], lane))
    if not order:
        return None
    up, down = ({leaf: tuple([of[lane] for lane in order]) for leaf, of in side.items()} for side in (out, into))
    besides = (
        {leaf: {lane: of[lane] for lane in of.keys() - shared} for leaf, of in side.items()} for side in (out, into)
    )
    return Lanes(up, down, tuple(bps[lane] for lane in order), *besides)


def _by_spine(problem: Problem, links: Sequence[tuple[Dpid, LinkId]]) -> dict[Cable, LinkId]:
    """Per cable its link; of several to one spine the fastest first."""
    found: dict[Cable, LinkId] = {}
    if len(dict(links)) == len(links):
        return {(spine, 0): link for spine, link in links}
    seen: Counter[Dpid] = Counter()
    for spine, link in sorted(links, key=lambda at: (at[0], -problem.capacity_bps[at[1]], at[1])):
        found[spine, seen[spine]] = link
        seen[spine] += 1
    return found


def parts(flows: Iterable[Flow]) -> list[list[Flow]]:
    """Flows between leaves, apart where they share no side of a leaf; in the order of their first flows."""
    of_pair: defaultdict[tuple[Dpid, Dpid], list[Flow]] = defaultdict(list)
    for flow in flows:
        of_pair[flow.src_leaf, flow.dst_leaf].append(flow)
    above: dict[tuple[bool, Dpid], tuple[bool, Dpid]] = {}

    def root(side: tuple[bool, Dpid]) -> tuple[bool, Dpid]:
        while (upper := above.setdefault(side, side)) != side:
            above[side] = above[upper]
            side = upper
        return side

    for src, dst in of_pair:
        above[root((True, dst))] = root((False, src))
    found: defaultdict[tuple[bool, Dpid], list[Flow]] = defaultdict(list)
    for (src, _), those in of_pair.items():
        found[root((False, src))] += those
    return list(found.values())
