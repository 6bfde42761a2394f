"""Every single thing that can fail in a fabric, and which of these failures are alike.

In: a ``Fabric`` and the ``Problem`` on it. Out: ``Failure``s, and ``Case``s of failures that differ in name only.

Two switches at which no flow begins or ends are *interchangeable* when they have the same cables, with the same
capacities, to the same neighbours: swapping them is a symmetry of the problem that moves no end of any flow. So
failures that such swaps turn into each other have the same bounds, the same distribution under hashing and the same
routings but for the names. Only the running routes may tell them apart: how many flows pass by.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from controller.fabric.topology import Dpid, Fabric, LinkId, PortRef
from controller.planning.ecmp import NextHops
from controller.planning.problem import Problem


class Kind(StrEnum):
    """A switch without hosts, one cable, all of several cables between two switches."""

    SPINE = "spine"
    CABLE = "cable"
    BUNDLE = "bundle"


@dataclass(frozen=True, slots=True)
class Failure:
    """``name``: as the failure options of the commands take it. ``links``: the directed links that go."""

    kind: Kind
    name: str
    links: frozenset[LinkId]


@dataclass(frozen=True, slots=True)
class Case:
    """Failures that are alike, at least one. ``felt``: some flow may be routed or hashed over what fails; if not,
    nothing changes for any flow."""

    kind: Kind
    failures: tuple[Failure, ...]
    felt: bool


def single_failures(fabric: Fabric, kinds: Collection[Kind], intact: Fabric | None = None) -> tuple[Failure, ...]:
    """What is up in ``fabric`` and can fail. ``intact``: the fabric that cables in parallel are counted in."""
    whole = intact or fabric
    with_hosts = {host.at.dpid for host in whole.hosts.values()}
    out_of: defaultdict[Dpid, set[LinkId]] = defaultdict(set)
    for link in fabric.links.values():
        out_of[link.src.dpid] |= _both_ways(link.src, link.dst)
    found = [
        Failure(Kind.SPINE, fabric.name(dpid), frozenset(out_of[dpid].intersection(fabric.links)))
        for dpid in sorted(out_of)
        if Kind.SPINE in kinds and dpid not in with_hosts
    ]
    everywhere = _cables(whole, with_hosts)
    for (a, b), cables in _cables(fabric, with_hosts).items():
        ends = f"{fabric.name(a)}:{fabric.name(b)}"
        parallel = everywhere[a, b]
        if Kind.BUNDLE in kinds and len(cables) > 1:
            links = frozenset(link for cable in cables for link in _both_ways(*cable))
            found.append(Failure(Kind.BUNDLE, ends, links.intersection(fabric.links)))
        if Kind.CABLE in kinds:
            for cable in cables:
                name = f"{ends}:{parallel.index(cable)}" if len(parallel) > 1 else ends
                found.append(Failure(Kind.CABLE, name, _both_ways(*cable).intersection(fabric.links)))
    return tuple(found)


def cases(problem: Problem, fabric: Fabric, failures: Iterable[Failure]) -> tuple[Case, ...]:
    """The failures by what they do, in the order of the first of each. Those that no flow feels are one case per
    kind."""
    hops = NextHops(problem)
    usable = {hops.links[number] for number in set(hops.link.tolist()) - {hops.nothing}}
    label = interchangeable(problem, fabric)
    alike: defaultdict[tuple[Kind, object], list[Failure]] = defaultdict(list)
    for failure in failures:
        felt = not failure.links.isdisjoint(usable)
        links = (
            (label.get(link.dpid, link.dpid), label.get(far, far), problem.capacity_bps[link])
            for link, far in ((link, problem.paths.far_end[link]) for link in failure.links)
        )
        alike[failure.kind, tuple(sorted(links)) if felt else None].append(failure)
    return tuple(Case(kind, tuple(of), does is not None) for (kind, does), of in alike.items())


def interchangeable(problem: Problem, fabric: Fabric) -> Mapping[Dpid, Dpid]:
    """For every switch with a link the first of those that it may be swapped with, often itself."""
    ends = {leaf for flow in problem.flows for leaf in (flow.src_leaf, flow.dst_leaf)}
    around: defaultdict[Dpid, list[tuple[Dpid, float, float]]] = defaultdict(list)
    for link_id in problem.paths.far_end:
        link = fabric.links[link_id]
        back = problem.capacity_bps.get(LinkId(*link.dst), 0.0)
        around[link.src.dpid].append((link.dst.dpid, problem.capacity_bps[link_id], back))
        if LinkId(*link.dst) not in problem.paths.far_end:
            around[link.dst.dpid].append((link.src.dpid, 0.0, problem.capacity_bps[link_id]))
    first: dict[object, Dpid] = {}
    return {
        dpid: dpid if dpid in ends else first.setdefault(tuple(sorted(cables)), dpid)
        for dpid, cables in sorted(around.items())
    }


def failed(problem: Problem, failure: Failure) -> Problem:
    """The problem after the failure, with the same routes running."""
    left = {link: bps for link, bps in problem.capacity_bps.items() if link not in failure.links}
    return replace(problem, capacity_bps=left, paths=problem.paths.without(failure.links))


def _cables(fabric: Fabric, with_hosts: Collection[Dpid]) -> dict[tuple[Dpid, Dpid], list[tuple[PortRef, PortRef]]]:
    """Per pair of switches the ends of the cables between them, by port; a switch with hosts comes first."""
    between: defaultdict[tuple[Dpid, Dpid], set[tuple[PortRef, PortRef]]] = defaultdict(set)
    for link in fabric.links.values():
        a, b = sorted((link.src, link.dst), key=lambda end: (end.dpid not in with_hosts, end))
        between[a.dpid, b.dpid].add((a, b))
    return {pair: sorted(cables) for pair, cables in sorted(between.items())}


def _both_ways(a: PortRef, b: PortRef) -> frozenset[LinkId]:
    return frozenset((LinkId(*a), LinkId(*b)))
