"""Detection of three tiers of switches: a fat-tree, or another folded Clos network with planes.

A *pod* is a group of leaves with cables to the same aggregation switches. A *plane* has one aggregation switch in every
pod, and the cores that these switches share. A path between two pods stays in one plane. A *common link* is a cable
that every switch of a tier has: a common edge link leads from every leaf to the same plane, a common core link from
every pod to the same core. A path between two pods takes the same common edge link and the same common core link up and
down.

In: the paths of a problem, and the leaves at which its flows begin or end. Out: ``Tiers``, or None when the fabric has
another form.

Source: Al-Fares, Loukissas and Vahdat, "A scalable, commodity data center network architecture", SIGCOMM 2008,
section 3."""

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
    """Pods and planes of a fabric, by number.

    Planes are in descending order of their number of common core links; planes without common core links are left
    out."""

    pod: Mapping[Dpid, int]
    """Pod of each leaf."""
    plane: tuple[int, ...]
    """Plane of each common edge link, ascending."""
    up: Mapping[Dpid, Links]
    """Links from each leaf to aggregation switches, by common edge link."""
    down: Mapping[Dpid, Links]
    """Links from aggregation switches to each leaf, by common edge link."""
    core_up: Sequence[Sequence[Links]]
    """Links to cores, indexed by plane, then pod, then common core link."""
    core_down: Sequence[Sequence[Links]]
    """Links from cores, indexed by plane, then pod, then common core link."""

    @property
    def core_links(self) -> list[int]:
        """Number of common core links of each plane."""
        return [len(pods[0]) for pods in self.core_up]


def find_tiers(paths: CandidatePaths, leaves: Iterable[Dpid]) -> Tiers | None:
    """Return the tiers above ``leaves``, which must lie in at least two pods; None when there are no three tiers."""
    pods = _pods(paths, sorted(leaves))
    planes = _planes(paths, pods)
    if not planes:
        return None
    plane_of = {agg: plane for plane, aggs in enumerate(planes.values()) for agg in aggs}
    common: set[tuple[int, ...]] = set()

    def outward(switch: Dpid, number: Mapping[Dpid, int]) -> Links:
        return by_number((number.get(paths.far_end[link], -1), link) for link in paths.links_from(switch))

    def inward(switch: Dpid, number: Mapping[Dpid, int]) -> Links:
        return by_number((number.get(link.dpid, -1), link) for link in paths.links_into(switch))

    def by_number(links: Iterable[tuple[int, LinkId]]) -> Links:
        """Return the links that lead to numbered switches, ordered by the number of the switch."""
        ordered = sorted(link for link in links if link[0] >= 0)
        common.add(tuple([number for number, _ in ordered]))
        return tuple([link for _, link in ordered])

    up, down = ({leaf: way(leaf, plane_of) for leaf in pods} for way in (outward, inward))
    if len(common) > 1:
        return None
    plane = common.pop()
    core_up, core_down = (
        [[way(agg, dict(zip(cores, cores, strict=True))) for agg in aggs] for cores, aggs in planes.items()]
        for way in (outward, inward)
    )
    number = {aggs: pod for pod, aggs in enumerate(dict.fromkeys(pods.values()))}
    return Tiers({leaf: number[aggs] for leaf, aggs in pods.items()}, plane, up, down, core_up, core_down)


def _pods(paths: CandidatePaths, leaves: Sequence[Dpid]) -> dict[Dpid, Switches]:
    """Return the aggregation switches of each leaf's pod; empty when pods overlap."""
    pods = {leaf: tuple(sorted({paths.far_end[link] for link in paths.links_from(leaf)})) for leaf in leaves}
    aggs = [agg for of_pod in set(pods.values()) for agg in of_pod]
    apart = len(set(aggs)) == len(aggs) and pods.keys().isdisjoint(aggs)
    into = all({link.dpid for link in paths.links_into(leaf)} == set(of_pod) for leaf, of_pod in pods.items())
    return pods if apart and into else {}


def _planes(paths: CandidatePaths, pods: Mapping[Dpid, Switches]) -> dict[Switches, list[Dpid]]:
    """Return the aggregation switches of each plane, one per pod; empty when the cores do not form planes.

    The key of a plane is its cores, each repeated once per cable to a pod."""
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
