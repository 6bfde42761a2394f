"""Three tiers of switches, found in the graph: a fat-tree, or another folded Clos network with planes.

A *pod* is a group of leaves with cables to the same aggregation switches. A *plane* has one aggregation switch in every
pod and the cores that these share, so that a path between two pods stays in one plane. A *lane* is one cable: an edge
lane is one from every leaf to one plane, a core lane one from every pod to one core. A path between two pods takes the
same edge lane and the same core lane up and down.

In: the paths of a problem, and the leaves that matter. Out: ``Tiers``, or None where the fabric is not like that.
Al-Fares, Loukissas and Vahdat, "A scalable, commodity data center network architecture", SIGCOMM 2008, section 3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controller.fabric.shortest_paths import CandidatePaths
from controller.fabric.topology import Dpid, LinkId

Switches = tuple[Dpid, ...]
Links = tuple[LinkId, ...]


@dataclass(frozen=True, slots=True)
class Tiers:
    """Pods and planes go by number; planes are in descending order of their core lanes, those without any left out.

    ``pod``: of each leaf. ``plane``: of each edge lane, ascending. ``up``, ``down``: per leaf its links to and from
    aggregation switches, by edge lane. ``core_up``, ``core_down``: per plane and pod the links to and from cores, by
    core lane."""

    pod: Mapping[Dpid, int]
    plane: tuple[int, ...]
    up: Mapping[Dpid, Links]
    down: Mapping[Dpid, Links]
    core_up: Sequence[Sequence[Links]]
    core_down: Sequence[Sequence[Links]]

    @property
    def core_lanes(self) -> list[int]:
        """How many each plane has."""
        return [len(pods[0]) for pods in self.core_up]


def find_tiers(paths: CandidatePaths, leaves: Iterable[Dpid]) -> Tiers | None:
    """``leaves``: in at least two pods."""
    pods = _pods(paths, sorted(leaves))
    planes = _planes(paths, pods)
    if not planes:
        return None
    plane_of = {agg: plane for plane, aggs in enumerate(planes.values()) for agg in aggs}
    lanes: set[tuple[int, ...]] = set()

    def outward(switch: Dpid, number: Mapping[Dpid, int]) -> Links:
        return by_number((number.get(paths.far_end[link], -1), link) for link in paths.links_from(switch))

    def inward(switch: Dpid, number: Mapping[Dpid, int]) -> Links:
        return by_number((number.get(link.dpid, -1), link) for link in paths.links_into(switch))

    def by_number(links: Iterable[tuple[int, LinkId]]) -> Links:
        """Of the switches that have one."""
        ordered = sorted(link for link in links if link[0] >= 0)
        lanes.add(tuple([number for number, _ in ordered]))
        return tuple([link for _, link in ordered])

    up, down = ({leaf: way(leaf, plane_of) for leaf in pods} for way in (outward, inward))
    if len(lanes) > 1:
        return None
    plane = lanes.pop()
    core_up, core_down = (
        [[way(agg, dict(zip(cores, cores, strict=True))) for agg in aggs] for cores, aggs in planes.items()]
        for way in (outward, inward)
    )
    number = {aggs: pod for pod, aggs in enumerate(dict.fromkeys(pods.values()))}
    return Tiers({leaf: number[aggs] for leaf, aggs in pods.items()}, plane, up, down, core_up, core_down)


def _pods(paths: CandidatePaths, leaves: Sequence[Dpid]) -> dict[Dpid, Switches]:
    """Per leaf the aggregation switches of its pod; none when pods overlap."""
    pods = {leaf: tuple(sorted({paths.far_end[link] for link in paths.links_from(leaf)})) for leaf in leaves}
    aggs = [agg for of_pod in set(pods.values()) for agg in of_pod]
    apart = len(set(aggs)) == len(aggs) and pods.keys().isdisjoint(aggs)
    into = all({link.dpid for link in paths.links_into(leaf)} == set(of_pod) for leaf, of_pod in pods.items())
    return pods if apart and into else {}


def _planes(paths: CandidatePaths, pods: Mapping[Dpid, Switches]) -> dict[Switches, list[Dpid]]:
    """Per plane its aggregation switches, one for each pod; by its cores, each as often as it has cables to a pod. None
    when the cores do not make planes."""
    aggs = {agg: pod for pod, of_pod in enumerate(dict.fromkeys(pods.values())) for agg in of_pod}
    above = {agg: [paths.far_end[link] for link in paths.links_from(agg)] for agg in aggs}
    reached: defaultdict[Dpid, set[int]] = defaultdict(set)
    for agg, switches in above.items():
        for switch in switches:
            reached[switch].add(aggs[agg])
    cores = {switch for switch, of_pods in reached.items() if len(of_pods) > 1}
    planes: defaultdict[Switches, list[Dpid]] = defaultdict(list)
    for agg, switches in above.items():
        own = tuple(sorted(switch for switch in switches if switch in cores))
        if own != tuple(sorted(link.dpid for link in paths.links_into(agg) if link.dpid in cores)):
            return {}
        if own:
            planes[own].append(agg)
    pod_count = len(set(aggs.values()))
    whole = all([aggs[agg] for agg in those] == list(range(pod_count)) for those in planes.values())
    shared = [core for own in planes for core in set(own)]
    if not whole or len(set(shared)) < len(shared) or not aggs.keys().isdisjoint(reached):
        return {}
    return dict(sorted(planes.items(), key=lambda plane: (-len(plane[0]), plane[0])))
