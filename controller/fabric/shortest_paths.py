"""Shortest paths towards destinations: what every switch's next hops are, kept up as links come and go.

In: ``Fabric`` snapshots. Out: per destination the next hops of every switch and how far away it is. Only switches
forward; hosts never do. A link that comes or goes changes the next hops of one switch towards most destinations, and
distances towards few: only towards those a search begins anew, and what did not change stays the same object.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from controller.fabric.topology import Dpid, Fabric, Link, LinkId

Hops = Mapping[Dpid, tuple[LinkId, ...]]
"""Towards one destination: per switch that reaches it the links out of it that lie on a shortest path, sorted. The
destination has no entry; parallel cables are separate next hops."""

_LinksInto = Mapping[Dpid, Sequence[tuple[Dpid, LinkId]]]


class Towards(NamedTuple):
    """One destination. ``distance``: links to cross, of every switch that reaches it and of itself (0)."""

    hops: Hops
    distance: Mapping[Dpid, int]


def next_hops(fabric: Fabric, destinations: Iterable[Dpid]) -> dict[Dpid, Hops]:
    """The next hops towards each destination. One breadth-first search each."""
    into = _links_into(fabric.links)
    return {dst: _search(into, dst).hops for dst in destinations}


class ShortestPaths:
    """Those of the last fabric are remembered."""

    def __init__(self) -> None:
        self._links: Mapping[LinkId, Link] = {}
        self._known: dict[Dpid, Towards] = {}

    def towards(self, fabric: Fabric, destinations: Iterable[Dpid]) -> Mapping[Dpid, Towards]:
        """Of each destination; the same object as before where nothing changed."""
        before, self._links = self._links, fabric.links
        gone = (
            [link for link in before.values() if self._links.get(link.id) != link] if before is not self._links else []
        )
        new = (
            [link for link in self._links.values() if before.get(link.id) != link] if before is not self._links else []
        )
        into: _LinksInto | None = None
        towards = {}
        for dst in destinations:
            kept = _without(self._known[dst], gone) if dst in self._known else None
            kept = _with(kept, new) if kept else None
            if kept is None:
                into = into or _links_into(self._links)
                kept = _search(into, dst)
            towards[dst] = kept
        self._known = towards
        return towards


def _without(towards: Towards, gone: Iterable[Link]) -> Towards | None:
    """None when a switch loses its last next hop: distances change."""
    for link in gone:
        here = towards.hops.get(link.src.dpid, ())
        if link.id in here:
            left = tuple(hop for hop in here if hop != link.id)
            if not left:
                return None
            towards = Towards({**towards.hops, link.src.dpid: left}, towards.distance)
    return towards


def _with(towards: Towards, new: Iterable[Link]) -> Towards | None:
    """None when a switch comes closer."""
    for link in new:
        there, here = towards.distance.get(link.dst.dpid), towards.distance.get(link.src.dpid)
        if there is None or (here is not None and here < there + 1):
            continue
        if here is None or here > there + 1:
            return None
        hops = tuple(sorted((*towards.hops[link.src.dpid], link.id)))
        towards = Towards({**towards.hops, link.src.dpid: hops}, towards.distance)
    return towards


def _links_into(links: Mapping[LinkId, Link]) -> _LinksInto:
    """Per switch where its links come from, and which they are."""
    into: defaultdict[Dpid, list[tuple[Dpid, LinkId]]] = defaultdict(list)
    for link_id, link in links.items():
        into[link.dst.dpid].append((link.src.dpid, link_id))
    return into


def _search(into: _LinksInto, dst: Dpid) -> Towards:
    """Level by level from the destination: links from switches that were not reached before lead one level closer."""
    hops: dict[Dpid, tuple[LinkId, ...]] = {}
    distance, level = {dst: 0}, [dst]
    while level:
        found: defaultdict[Dpid, list[LinkId]] = defaultdict(list)
        for dpid in level:
            for src, link in into.get(dpid, ()):
                if src not in distance:
                    found[src].append(link)
        hops |= {dpid: tuple(sorted(links)) for dpid, links in found.items()}
        distance |= dict.fromkeys(found, distance[level[0]] + 1)
        level = list(found)
    return Towards(dict(sorted(hops.items())), distance)
