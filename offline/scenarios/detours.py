"""Candidate paths that are longer than the shortest.

A detour visits no switch twice, and avoids each switch from which ECMP may lead back to an earlier switch of the path.
Packets therefore arrive even where some switches of a path have its pins and the others forward by ECMP. Every hop,
pinned or not, leads closer to the destination or along the path. This holds only while neither next hops nor paths
change. docs/explanation/forwarding.md says why the controller pins no detours.

The input is a ``Fabric``. For each pair of switches the result is the shortest paths, followed by the detours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import islice

from controller.public.problems import CandidatePaths, Dpid, Fabric, LinkId, Path, Towards

Switches = frozenset[Dpid]


class StretchedPaths(CandidatePaths):
    """Shortest paths and detours with up to ``stretch`` links more than the shortest.

    ``max_paths``: largest number of shortest paths of a pair of switches (``CandidatePaths``), and also the largest
    number of detours of the pair."""

    def __init__(self, fabric: Fabric, max_paths: int, stretch: int) -> None:
        super().__init__(fabric, max_paths)
        self.stretch = stretch
        self._ahead: dict[Dpid, dict[Dpid, Switches]] = {}

    def without(self, links: Collection[LinkId]) -> StretchedPaths:
        left = {link_id: link for link_id, link in self.links.items() if link_id not in links}
        return StretchedPaths(replace(self._fabric, links=left), self.max_paths, self.stretch)

    def ends(self, src: Dpid, dst: Dpid) -> tuple[Collection[LinkId], Collection[LinkId]]:
        """Return all links out of ``src`` and all links into ``dst``: a detour may use any of them."""
        return self.links_from(src), self.links_into(dst)

    def is_detour(self, path: Path, src: Dpid, dst: Dpid) -> bool:
        return path in self.between(src, dst)

    def _find(self, src: Dpid, dst: Dpid) -> tuple[Path, ...]:
        shortest = super()._find(src, dst)
        if src == dst or not shortest:
            return shortest
        found = tuple(islice(self._detours(src, dst), self.max_paths + 1))
        if len(found) > self.max_paths:
            self._cut.add((src, dst))
        return (*shortest, *found[: self.max_paths])

    def _detours(self, src: Dpid, dst: Dpid) -> Iterator[Path]:
        """Yield the detours, shorter ones first."""
        towards = self._towards(dst)
        if dst not in self._ahead:
            self._ahead[dst] = self._switches_ahead(towards)
        shortest = towards.distance[src]
        for more in range(1, self.stretch + 1):
            yield from self._walks(towards, src, dst, shortest + more, frozenset([src]))

    def _switches_ahead(self, towards: Towards) -> dict[Dpid, Switches]:
        """Return for each switch all switches that ECMP may pass from there to the destination."""
        ahead: dict[Dpid, Switches] = {}
        for dpid in sorted(towards.distance, key=towards.distance.__getitem__):
            ends = {self.far_end[link] for link in towards.hops.get(dpid, ())}
            ahead[dpid] = frozenset(ends).union(*(ahead[end] for end in ends))
        return ahead

    def _walks(self, towards: Towards, here: Dpid, dst: Dpid, left: int, before: Switches) -> Iterator[Path]:
        """Yield the paths of exactly ``left`` links, lazily, taking the links at each switch in turn.

        ``before``: switches that the path has already visited."""
        if here == dst:
            if not left:
                yield ()
            return
        waiting = []
        for link in self.links_from(here):
            there = self.far_end[link]
            near = towards.distance.get(there, left) < left
            if near and there not in before and self._ahead[dst][there].isdisjoint(before):
                waiting.append((link, self._walks(towards, there, dst, left - 1, before | {there})))
        yield from self._in_turn(waiting)
