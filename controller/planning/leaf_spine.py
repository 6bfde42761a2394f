"""The view of a fabric as a leaf-spine whose leaves are all alike, which closed forms and edge colouring need.

In: a ``Problem``. Out: *lanes*, or None where the fabric is not like that. A lane is one cable from every leaf to one
spine and one cable back to every leaf; all have one capacity. With several cables between each leaf and spine a spine
has several lanes. Spines that failed for every leaf are simply no lanes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.fabric.topology import Dpid, LinkId, Path
from controller.planning.problem import Problem

_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class Lanes:
    """``up``, ``down``: per leaf its links out and in, by lane. ``capacity_bps``: of every link."""

    up: Mapping[Dpid, tuple[LinkId, ...]]
    down: Mapping[Dpid, tuple[LinkId, ...]]
    capacity_bps: float
    count: int

    def path(self, src: Dpid, dst: Dpid, lane: int) -> Path:
        return self.up[src][lane], self.down[dst][lane]


def find_lanes(problem: Problem) -> Lanes | None:
    """The lanes between the leaves that the problem's flows begin and end at."""
    paths = problem.paths
    crossing = [flow for flow in problem.flows if flow.src_leaf != flow.dst_leaf]
    leaves = sorted({leaf for flow in crossing for leaf in (flow.src_leaf, flow.dst_leaf)})
    if not leaves:
        return None
    spines = sorted({paths.far_end[link] for link in paths.links_from(leaves[0])})
    if not spines or not set(spines).isdisjoint(leaves):
        return None
    cables = len(paths.links_between(leaves[0], spines[0]))
    capacity = problem.capacity_bps[paths.links_from(leaves[0])[0]]
    up, down = {}, {}
    for leaf in leaves:
        outward = [paths.links_between(leaf, spine) for spine in spines]
        inward = [paths.links_between(spine, leaf) for spine in spines]
        if any(len(links) != cables for links in (*outward, *inward)) or len(paths.links_from(leaf)) != cables * len(
            spines
        ):
            return None
        up[leaf] = tuple(link for links in outward for link in links)
        down[leaf] = tuple(link for links in inward for link in links)
        if any(abs(problem.capacity_bps[link] - capacity) > _EQUAL * capacity for link in (*up[leaf], *down[leaf])):
            return None
    return Lanes(up, down, capacity, cables * len(spines))
