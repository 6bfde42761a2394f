"""The view of a fabric as a leaf-spine whose leaves are all alike, which closed forms and edge colouring need.

In: a ``Problem``. Out: *lanes*, or None where the fabric is not like that. A lane is one cable from every leaf to one
spine and one cable back to every leaf; all have one capacity. With several cables between each leaf and spine a spine
has several lanes. Spines that failed for every leaf are simply no lanes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from controller.fabric.topology import Dpid, LinkId
from controller.planning.problem import Problem

_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class Lanes:
    """``up``, ``down``: per leaf its links out and in, by lane; the path from a leaf to another by lane l is its up
    link l and the other's down link l."""

    up: Mapping[Dpid, tuple[LinkId, ...]]
    down: Mapping[Dpid, tuple[LinkId, ...]]
    count: int


def find_lanes(problem: Problem) -> Lanes | None:
    """The lanes between the leaves that the problem's flows begin and end at."""
    paths, capacity_bps = problem.paths, problem.capacity_bps
    leaves = {
        leaf for flow in problem.flows if flow.src_leaf != flow.dst_leaf for leaf in (flow.src_leaf, flow.dst_leaf)
    }
    up, down = {}, {}
    spines: list[Dpid] | None = None
    for leaf in sorted(leaves):
        outward = sorted((paths.far_end[link], link) for link in paths.links_from(leaf))
        inward = sorted((link.dpid, link) for link in paths.links_into(leaf))
        if spines is None:
            spines = [spine for spine, _ in outward]
        if [spine for spine, _ in outward] != spines or [spine for spine, _ in inward] != spines:
            return None
        up[leaf] = tuple(link for _, link in outward)
        down[leaf] = tuple(link for _, link in inward)
    if not spines or not leaves.isdisjoint(spines) or len(set(Counter(spines).values())) > 1:
        return None
    rates = {capacity_bps[link] for links in (*up.values(), *down.values()) for link in links}
    if max(rates) - min(rates) > _EQUAL * max(rates):
        return None
    return Lanes(up, down, len(spines))
