"""Candidate paths that are longer than the shortest.

A detour goes round no switch twice, and never to a switch from which ECMP may lead back to where the path has been. So
packets arrive even where some switches of a path have its pins and the others send by ECMP: every hop, pinned or not,
leads to the destination or on along the path. That holds while neither next hops nor paths change, and only then:
docs/explanation/forwarding.md says why the controller pins no detours.

In: a ``Fabric``. Out: per pair of switches the shortest paths, and then the detours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import islice

from controller.public.problems import CandidatePaths, Dpid, Fabric, LinkId, Path, Towards

Switches = frozenset[Dpid]


class StretchedPaths(CandidatePaths):
    """``stretch``: links that a path may have more than the shortest. ``max_paths``: of shortest paths, see
    ``CandidatePaths``, and again as many detours."""

    def __init__(self, fabric: Fabric, max_paths: int, stretch: int) -> None:
        super().__init__(fabric, max_paths)
        self.stretch = stretch
        self._ahead: dict[Dpid, dict[Dpid, Switches]] = {}

    def without(self, links: Collection[LinkId]) -> StretchedPaths:
        left = {link_id: link for link_id, link in self.links.items() if link_id not in links}
        return StretchedPaths(replace(self._fabric, links=left), self.max_paths, self.stretch)

    def ends(self, src: Dpid, dst: Dpid) -> tuple[Collection[LinkId], Collection[LinkId]]:
        """All links out of the one switch, and all into the other: a detour may use any."""
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
        """The shorter ones first."""
        towards = self._towards(dst)
        if dst not in self._ahead:
            self._ahead[dst] = self._switches_ahead(towards)
        shortest = towards.distance[src]
        for more in range(1, self.stretch + 1):
            yield from self._walks(towards, src, dst, shortest + more, frozenset([src]))

    def _switches_ahead(self, towards: Towards) -> dict[Dpid, Switches]:
        """Per switch all that ECMP may lead through from there."""
        ahead: dict[Dpid, Switches] = {}
        for dpid in sorted(towards.distance, key=towards.distance.__getitem__):
            ends = {self.far_end[link] for link in towards.hops.get(dpid, ())}
            ahead[dpid] = frozenset(ends).union(*(ahead[end] for end in ends))
        return ahead

    def _walks(self, towards: Towards, here: Dpid, dst: Dpid, left: int, before: Switches) -> Iterator[Path]:
        """Of so many links, lazily, going round the links at every switch. ``before``: where the path has been."""
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
