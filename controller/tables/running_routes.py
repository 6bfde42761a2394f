"""The routes that announced flows should take, and the pins that follow from them.

``RunningRoutes`` owns the running plan: how each announced flow is pinned. After a restart it is read back from the
switches; the shares of split flows, which no rule holds, come from the saved state. Pins of jobs that have not
registered again are *orphans* and kept for one lease (docs/explanation/restart-and-repair.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import chain, takewhile
from typing import Protocol

from controller.fabric.link_load import Counted, Uses
from controller.fabric.shortest_paths import CandidatePaths
from controller.fabric.topology import Dpid, Fabric, Host, Link, LinkId, Path
from controller.jobs.collectives import port_classes
from controller.jobs.spec import JobId, Transport
from controller.memo import Memo, MemoPerKey
from controller.planning.problem import Announced, FlowId, Pairs, Route, Routes, Subflow, whole
from controller.tables.adoption import installed_pins
from controller.tables.pinned_table import Announcement, Part, Pin, both_directions, counted, reverse_path
from controller.tables.rules import FlowKey, FlowRule, RuleSet, job_owner

Shares = Mapping[tuple[str, str], tuple[float, ...]]


class PinnedJob(Announced, Protocol):
    """What rules need to know of a job. ``counted``: pairs that are counted besides its own, to learn of them."""

    @property
    def transport(self) -> Transport: ...
    @property
    def counted(self) -> Pairs: ...


class RunningRoutes:
    """``routes``: of the pinned flows, another object whenever they change. A flow that is announced and not here is on
    ECMP. ``orphans``: pins without a registered job.

    ``saved``: the shares of split flows as the last controller saved them. A split flow that is not among them, or has
    another number of subflows by its rules, is taken to be split evenly.
    """

    def __init__(self, saved: Shares | None = None) -> None:
        self.routes: Routes = {}
        self.orphans: tuple[Pin, ...] = ()
        self._saved = dict(saved or {})

    @property
    def shares(self) -> dict[tuple[str, str], tuple[float, ...]]:
        """Of every split flow, and of those whose jobs may still register again: what a restart has to know."""
        running: Shares = {
            flow: tuple(share for _, share in route) for flow, route in self.routes.items() if len(route) > 1
        }
        return {**self._saved, **running}

    def replace(self, routes: Routes) -> None:
        """A plan or a repair is adopted, or all routes are given up."""
        if routes != self.routes:
            self.routes = dict(routes)

    def adopt(self, fabric: Fabric, installed: Mapping[Dpid, RuleSet], jobs: Iterable[PinnedJob]) -> frozenset[JobId]:
        """Take what switches hold for the running plan. Returns the jobs whose pins or counters they hold."""
        self.orphans = tuple(installed_pins(fabric, installed))
        return frozenset(job.id for job in jobs if self.claim(job))

    def claim(self, job: PinnedJob) -> bool:
        """A job is registered (again): its orphans become its routes. False when it has none."""
        owner, pairs = job_owner(job.id), job.pairs
        paths: dict[FlowId, dict[Part | None, Path]] = {}
        for pin in self.orphans:
            if pin.owner == owner and pin.path is not None and pin.flow in pairs:
                paths.setdefault(pin.flow, {})[pin.part] = pin.path
        shares, claimed = self.shares, dict(self.routes)
        for flow, of_part in paths.items():
            known = shares.get(flow, ())
            route = whole(of_part[None]) if None in of_part else _split(of_part, parts_of(job), known)
            if route and len(route) >= len(claimed.get(flow, ())):  # else some of its switches are not there yet
                claimed[flow] = route
        self.replace(claimed)
        before, self.orphans = self.orphans, tuple(pin for pin in self.orphans if pin.owner != owner)
        return len(self.orphans) < len(before)

    def drop_orphans(self) -> None:
        """Jobs that have not registered again by now are not expected any more."""
        self.orphans = ()
        self._saved.clear()

    def release(self, jobs: Iterable[PinnedJob]) -> None:
        """Keep only the routes that these jobs can have."""
        most = {FlowId(*pair): job.max_subflows for job in jobs for pair in job.pairs}
        self.replace({flow: route for flow, route in self.routes.items() if len(route) <= most.get(flow, 0)})

    def forget_orphans(self) -> None:
        """The pins without a job are not expected to be claimed; saved shares may be."""
        self.orphans = ()


class Pins:
    """Derives the pins of the announced flows; only where something has changed since the last call."""

    def __init__(self) -> None:
        self._back: dict[Path, Path] = {}
        self._links: Mapping[LinkId, Link] = {}
        self._of_flow = MemoPerKey[
            FlowId, FlowId, Route | None, tuple[Path | None, ...], Announcement, bool, tuple[Pin, ...]
        ](both_directions)
        self._learning = Memo(_learning_pins)

    def __call__(
        self, fabric: Fabric, jobs: Iterable[PinnedJob], routes: Routes, orphans: tuple[Pin, ...]
    ) -> tuple[Pin, ...]:
        """Both directions of every announced flow, then the orphans, then pairs that are learnt; only flows whose hosts
        are known."""
        announced: dict[FlowId, Announcement] = {}
        for job in jobs:
            of_job = Announcement(job_owner(job.id), parts_of(job))
            for src, dst in sorted(job.pairs):
                if src in fabric.hosts and dst in fabric.hosts:
                    announced[FlowId(src, dst)] = of_job
        self._reverse(fabric, {path for flow in announced for path, _ in routes.get(flow, ()) if path})
        of_flow = self._of_flow({flow: self._inputs(flow, routes, announced) for flow in announced})
        pins = tuple(chain.from_iterable(of_flow.values()))
        taken = {pin.flow for pin in pins}
        pins += tuple(pin for pin in orphans if pin.flow not in taken and fabric.hosts.keys() >= set(pin.flow))
        taken |= {pin.flow for pin in orphans}
        return pins + self._learning(fabric.hosts, tuple(job for job in jobs if job.counted), frozenset(taken))

    def _inputs(
        self, flow: FlowId, routes: Routes, announced: Mapping[FlowId, Announcement]
    ) -> tuple[FlowId, Route | None, tuple[Path | None, ...], Announcement, bool]:
        """What the pins of a flow follow from."""
        route = routes.get(flow)
        back = tuple(self._back.get(path) for path, _ in route or ())
        return flow, route, back, announced[flow], FlowId(flow.dst_ip, flow.src_ip) in announced

    def _reverse(self, fabric: Fabric, paths: Set[Path]) -> None:
        """The same cables the other way, also while one of them is not usable: acknowledgements then fail over at their
        path group, like the flow itself."""
        before, self._links = self._links, fabric.links
        changed = {link for link in self._links.keys() | before.keys() if self._links.get(link) is not before.get(link)}
        kept = {path: back for path, back in self._back.items() if path in paths and changed.isdisjoint(path)}
        fresh = {path: reverse_path(fabric, path) or self._back.get(path) for path in paths - kept.keys()}
        self._back = kept | {path: back for path, back in fresh.items() if back}


def _learning_pins(hosts: Mapping[str, Host], jobs: tuple[PinnedJob, ...], taken: frozenset[FlowId]) -> tuple[Pin, ...]:
    """Of jobs in their order; a pair that several of them might use is counted for the first. Pairs that have other
    rules are counted there."""
    owners: dict[FlowId, int] = {}
    for job in jobs:
        owner = job_owner(job.id)
        for src, dst in sorted(job.counted):
            if src in hosts and dst in hosts:
                owners.setdefault(FlowId(src, dst), owner)
    return tuple(Pin(flow, owner, None, learning=True) for flow, owner in owners.items() if flow not in taken)


def _split(path_of: Mapping[Part | None, Path], parts: Iterable[Part], shares: tuple[float, ...]) -> Route:
    """The subflows that are pinned, from the first class on; empty when they are not the job's. ``shares``: as last
    known."""
    paths = [path_of[part] for part in takewhile(path_of.__contains__, parts)]
    if len(paths) < len(path_of):
        return ()
    if len(shares) != len(paths):
        shares = (1 / len(paths),) * len(paths)
    return tuple(map(Subflow, paths, shares))


def parts_of(job: PinnedJob) -> tuple[Part, ...]:
    """One per subflow that the job's flows can have; none when they stay whole."""
    return tuple(Part(job.transport, ports) for ports in port_classes(job.max_subflows))


def in_place(route: Route, running: Route | None) -> Route:
    """The same subflows, in an order that leaves as many as possible in the class they have in ``running``."""
    if running is None or len(route) == 1:
        return route
    left = {piece.path: piece for piece in route}
    kept = [left.pop(piece.path, None) for piece in running[: len(route)]]
    kept += [None] * (len(route) - len(kept))
    rest = iter(left.values())
    return tuple(piece or next(rest) for piece in kept)


def lost_links(routes: Routes, links: Mapping[LinkId, Link]) -> frozenset[LinkId]:
    """Links that routes use and that are not there."""
    return frozenset({link for route in routes.values() for path, _ in route for link in path} - links.keys())


def confirmed_pins(
    pins: Iterable[Pin], wanted: Mapping[FlowKey, FlowRule], installed: Mapping[FlowKey, FlowRule]
) -> tuple[Pin, ...]:
    """The pins to a path, of those that begin at a switch, that the switch holds as they should be."""
    confirmed = []
    for pin in pins:
        rule = wanted.get(pin.key) if pin.path else None
        if rule and rule.goto is None and installed.get(rule.key) == rule:
            confirmed.append(pin)
    return tuple(confirmed)


def confirmed_routes(routes: Routes, confirmed: Iterable[Pin]) -> dict[FlowId, Route]:
    """The routes all of whose subflows are confirmed."""
    held = Counter(pin.flow for pin in confirmed)
    return {flow: route for flow, route in routes.items() if held[flow] == len(route)}


def possible_links(fabric: Fabric, pins: Iterable[Pin], candidates: CandidatePaths) -> Uses:
    """Per rule that counts every link its packets may use: the pinned path, or all candidates under ECMP and after a
    failover; the hosts' own links too."""
    uses: dict[Counted, tuple[frozenset[LinkId], ...]] = {}
    everywhere: dict[tuple[Dpid, Dpid], tuple[frozenset[LinkId], ...]] = {}
    shared: dict[frozenset[LinkId], frozenset[LinkId]] = {}
    for pin in pins:
        src, dst = fabric.hosts[pin.flow.src_ip], fabric.hosts[pin.flow.dst_ip]
        leaves = src.at.dpid, dst.at.dpid
        if pin.path is not None and all(link in fabric.links for link in pin.path):
            links: tuple[frozenset[LinkId], ...] = (frozenset((*pin.path, src.uplink, dst.downlink)),)
        else:
            if leaves not in everywhere:
                sets = _candidate_links(candidates, *leaves)
                everywhere[leaves] = tuple(shared.setdefault(some, some) for some in sets)
            links = (*everywhere[leaves], frozenset((src.uplink, dst.downlink)))
        what = counted(pin.key)
        assert what is not None
        uses[what] = links
    return uses


def _candidate_links(candidates: CandidatePaths, src: Dpid, dst: Dpid) -> Iterator[frozenset[LinkId]]:
    """Of all candidate paths, in sets without a link in common that other pairs of leaves have as well."""
    if candidates.distance(src, dst) == 2:
        yield from map(frozenset, candidates.ends(src, dst))
    else:
        yield frozenset(link for path in candidates.between(src, dst) for link in path)
