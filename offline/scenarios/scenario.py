"""Input of the planner and the simulator, made from a command's options.

In: ``FabricOptions`` from a command line. Out: a ``Scenario``: the fabric with and without its failures, the jobs, and
the names of hosts, switches, links and paths.

``StretchedPaths`` also has detours, which are longer than the shortest paths. A detour visits no switch twice, and
avoids each switch from which ECMP may lead back to an earlier switch of the path. With such detours, every hop, pinned
or not, leads closer to the destination or along the path. So packets arrive even where only some switches of a path
have its pins. This guarantee holds only while neither next hops nor paths change
(docs/explanation/forwarding.md#why-no-detours).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from types import MappingProxyType

from controller.public.problems import (
    CandidatePaths,
    Dpid,
    Fabric,
    FabricNames,
    LinkId,
    Path,
    Problem,
    Routes,
    Towards,
    take_snapshot,
)
from offline.scenarios.fabric_options import LEAST_GBPS, MOST_GBPS, FabricKind, FabricOptions, WrongUsage
from offline.scenarios.fabrics import (
    cable_links,
    fat_tree,
    leaf_spine,
    parallel_cables,
    spine_links,
    without,
    without_random_links,
)
from offline.scenarios.graph_file import graph_file
from offline.scenarios.job_files import read_jobs
from offline.scenarios.workloads import Numbering, WorkloadJob, read_workload
from signalbox.errors import FieldProblem
from signalbox.jobs.spec import Striping
from signalbox.words import Objective

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
        """Yield the paths of exactly ``left`` links from ``here`` to ``dst``, computed one at a time.

        Successive paths begin with different links where possible. ``before``: switches that the path has already
        visited."""
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
        yield from self._alternating(waiting)


GIGABIT = 1e9
MAX_PATHS = 1024
"""Largest number of shortest paths that are listed for a pair of switches.

A leaf-spine with 256 spines and two cables to each spine has this number."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Fabric with jobs, before and after the failures."""

    intact: Fabric
    """Fabric before the failures; names and numbers come from it."""
    fabric: Fabric
    """Fabric after the failures."""
    jobs: tuple[WorkloadJob, ...]
    """Jobs of the workload, then those of the job specs."""
    names: Names
    objective: Objective = Objective.ITERATION

    @property
    def striping(self) -> Striping | None:
        """Striping of all jobs; None if they differ."""
        stripings = {job.striping for job in self.jobs}
        return stripings.pop() if len(stripings) == 1 else None

    def problem(self, routes: Routes = MappingProxyType({}), path_stretch: int = 0) -> Problem:
        """Return the planner's input, with flows in the order of the files; see ``problem_of``."""
        return problem_of(self.fabric, self.jobs, routes, path_stretch, self.objective)


def problem_of(
    fabric: Fabric,
    jobs: Iterable[WorkloadJob],
    routes: Routes = MappingProxyType({}),
    path_stretch: int = 0,
    objective: Objective = Objective.ITERATION,
) -> Problem:
    """Return the planner's input, with flows in the order of the jobs and their links.

    - ``routes``: routes already in force.
    - ``path_stretch``: number of links that a path may have more than the shortest path."""
    problem = take_snapshot(fabric.generation, fabric, jobs, {}, routes, MAX_PATHS, objective)
    return replace(problem, paths=StretchedPaths(fabric, MAX_PATHS, path_stretch)) if path_stretch else problem


def scenario(options: FabricOptions) -> Scenario:
    """Return the scenario of the options.

    Raises ``WrongUsage`` for wrong options, ``InvalidInput`` for wrong files, and ``OSError`` for a file that cannot be
    read."""
    intact = build_fabric(options)
    fabric = fail(intact, options)
    if options.workload is None and options.jobs is None:
        raise WrongUsage.of("--workload", "is missing: give --workload, --jobs or both")
    jobs: tuple[WorkloadJob, ...] = ()
    if options.workload is not None:
        jobs = read_workload(options.workload, intact, options.max_subflows, options.striping)
    if options.jobs is not None:
        jobs += read_jobs(options.jobs, intact, jobs)
    return Scenario(intact, fabric, jobs, Names(intact), options.objective)


def build_fabric(options: FabricOptions) -> Fabric:
    """Return the fabric before any failure. Raises ``WrongUsage``, ``InvalidInput``, ``OSError``."""
    _only_what_belongs_together(options)
    if options.graph is not None:
        return graph_file(options.graph)
    link_bps = options.link_gbps * GIGABIT
    uplink_bps = link_bps if options.uplink_gbps is None else options.uplink_gbps * GIGABIT
    if options.fabric is FabricKind.FAT_TREE:
        return fat_tree(_given(k=options.k)[0], link_bps, uplink_bps)
    leaves, spines, hosts = _given(leaves=options.leaves, spines=options.spines, hosts_per_leaf=options.hosts_per_leaf)
    return leaf_spine(leaves, spines, hosts, link_bps, uplink_bps, options.cables)


def fail(intact: Fabric, options: FabricOptions) -> Fabric:
    """Return the fabric after the failures; ``intact`` itself when nothing fails.

    Raises ``WrongUsage``, ``InvalidInput``."""
    spines, cables = _items("--fail-spines", options.fail_spines), _items("--fail-links", options.fail_links)
    links: set[LinkId] = spine_links(intact, spines) | cable_links(intact, cables)
    fabric = without(intact, links) if links else intact
    if options.fail_random_links:
        fabric = without_random_links(fabric, options.fail_random_links, options.seed)
    return fabric


def _only_what_belongs_together(options: FabricOptions) -> None:
    """Raise ``WrongUsage`` for options that other options make useless, and for rates outside the limits."""
    of_leaf_spine = ("leaves", "spines", "hosts_per_leaf")
    foreign: tuple[str, ...]
    if options.graph is not None:
        where, foreign = "a --graph", (*of_leaf_spine, "k", "uplink_gbps")
    elif options.fabric is FabricKind.FAT_TREE:
        where, foreign = "a fat-tree", of_leaf_spine
    else:
        where, foreign = "a leaf-spine", ("k",)
    problems = [
        FieldProblem(_flag(name), f"does not apply to {where}")
        for name in foreign
        if getattr(options, name) is not None
    ]
    if options.cables != 1 and (options.graph is not None or options.fabric is FabricKind.FAT_TREE):
        problems.append(FieldProblem("--cables", f"does not apply to {where}"))
    rates = {"link_gbps": options.link_gbps, "uplink_gbps": options.uplink_gbps}
    problems += [
        FieldProblem(_flag(name), f"must be from {LEAST_GBPS:g} to {MOST_GBPS:g} (given: {rate:g})")
        for name, rate in rates.items()
        if rate is not None and not LEAST_GBPS <= rate <= MOST_GBPS
    ]
    WrongUsage.refuse(problems)


def _given(**numbers: int | None) -> list[int]:
    WrongUsage.refuse(
        FieldProblem(_flag(name), "is needed for this kind of fabric")
        for name, value in numbers.items()
        if value is None
    )
    return [value for value in numbers.values() if value is not None]


def _items(option: str, text: str) -> list[str]:
    items = [item.strip() for item in text.split(",")] if text else []
    if not all(items):
        raise WrongUsage.of(option, f"'{text}' has an empty item; items are separated by single commas")
    return items


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# ---- names


class Names(FabricNames):
    """Names in output and workload files: numbers for hosts, names for switches, texts for paths.

    ``intact``: the fabric without failures, so that no number depends on what failed. ``Numbering`` numbers the
    nodes."""

    def __init__(self, intact: Fabric) -> None:
        super().__init__(intact)
        self.numbering = Numbering(intact)

    def host(self, ip: str) -> int:
        """Return the host's number in workload files. Raises ``KeyError`` for an address outside the fabric."""
        return self.numbering.host_of[ip]

    def path(self, src_leaf: Dpid, path: Path) -> str:
        """Return ``leaf14>spine3>leaf5``, or ``leaf14`` alone for a path inside this leaf.

        Where several cables lead to the next switch, the number of the cable is added, from 0:
        ``leaf14:1>spine3:0>leaf5``."""
        hops = [self._hop(link) for link in path]
        end = self._fabric.links[path[-1]].dst.dpid if path else src_leaf
        return ">".join([*hops, self.switch(end)])

    def link(self, link_id: LinkId) -> str:
        """Return ``leaf5>spine2`` or ``leaf5:1>spine2`` for parallel cables.

        Links of a host are ``544>leaf14`` and ``leaf14>544``."""
        link = self._fabric.links.get(link_id)
        if link:
            return f"{self._hop(link_id)}>{self.switch(link.dst.dpid)}"
        ends = [str(self._host_at[link_id]), self.switch(link_id.dpid)]
        return ">".join(ends if link_id.direction == "in" else ends[::-1])

    def _hop(self, link_id: LinkId) -> str:
        link = self._fabric.links[link_id]
        cables = self._cables[link.src.dpid, link.dst.dpid]
        number = f":{cables.index(link_id)}" if len(cables) > 1 else ""
        return f"{self.switch(link.src.dpid)}{number}"

    @cached_property
    def _cables(self) -> dict[tuple[Dpid, Dpid], tuple[LinkId, ...]]:
        return dict(parallel_cables(self._fabric))

    @cached_property
    def _host_at(self) -> dict[LinkId, int]:
        hosts = self._fabric.hosts.values()
        return {link: self.host(host.ip) for host in hosts for link in (host.uplink, host.downlink)}
