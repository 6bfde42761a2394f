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
from controller.jobs.spec import JobId, Transport
from controller.jobs.subflows import Pair
from controller.memo import Memo, MemoPerKey
from controller.planning.problem import Announced, FlowId, Pairs, Route, Routes, Subflow, flow_ids, whole
from controller.tables.adoption import installed_pins
from controller.tables.pinned_table import Announcement, Part, Pin, Way, both_directions, counted, reverse_path
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
        self._saved: Shares = dict(saved or {})
        self._jobs: Mapping[JobId, PinnedJob] = {}
        self._shares = Memo(_shares)

    @property
    def shares(self) -> Shares:
        """Of every split flow, and of those whose jobs may still register again: what a restart has to know. Those of
        jobs that report their connections are taken as equal until the next plan."""
        return self._shares(self.routes, self._saved)

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
        owner = job_owner(job.id)
        paths: dict[Pair, dict[Part | None, Path]] = {}
        for pin in self.orphans:
            if pin.owner == owner and pin.path is not None and pin.flow.pair in job.pairs:
                paths.setdefault(pin.flow.pair, {})[pin.part] = pin.path
        shares, claimed = self.shares, dict(self.routes)
        for pair, of_part in paths.items():
            for flow, route in _claimed(job, pair, of_part, shares.get(pair, ())):
                if len(route) >= len(claimed.get(flow, ())):  # else some of its switches are not there yet
                    claimed[flow] = route
        self.replace(claimed)
        before, self.orphans = self.orphans, tuple(pin for pin in self.orphans if pin.owner != owner)
        return len(self.orphans) < len(before)

    def drop_orphans(self) -> None:
        """Jobs that have not registered again by now are not expected any more."""
        self.orphans = ()
        self._saved = {}

    def release(self, jobs: Mapping[JobId, PinnedJob], before: Mapping[JobId, PinnedJob] | None = None) -> None:
        """Keep only the routes that these jobs can have. Only flows of jobs that have come, gone or changed are looked
        at. ``before``: the jobs that the routes were made for, None: those of the last call."""
        before, self._jobs = self._jobs if before is None else before, jobs
        if before is jobs:
            return
        left = [job for job_id, job in before.items() if jobs.get(job_id) is not job]
        come = [job for job_id, job in jobs.items() if before.get(job_id) is not job]
        most = dict(chain.from_iterable(map(_most_subflows, come)))
        lost = {
            flow
            for flow, _ in chain.from_iterable(map(_most_subflows, left))
            if len(self.routes.get(flow, ())) > most.get(flow, 0)
        }
        if lost:
            self.routes = {flow: route for flow, route in self.routes.items() if flow not in lost}

    def forget_orphans(self) -> None:
        """The pins without a job are not expected to be claimed; saved shares may be."""
        self.orphans = ()


def _most_subflows(job: PinnedJob) -> Iterator[tuple[FlowId, int]]:
    """That each flow of the job can have."""
    for pair in job.pairs:
        most = job.dividing.pieces(pair).max_subflows
        yield from ((flow, most) for flow in flow_ids(job.dividing, pair))


def _shares(routes: Routes, saved: Shares) -> Shares:
    running: Shares = {
        flow.pair: tuple(share for _, share in route)
        for flow, route in routes.items()
        if len(route) > 1 and not flow.owner
    }
    return {**saved, **running}


class Pins:
    """Derives the pins of the announced flows; only where something has changed since the last call."""

    def __init__(self) -> None:
        self._back: dict[Path, Path] = {}
        self._links: Mapping[LinkId, Link] = {}
        self._of_pair = MemoPerKey[tuple[JobId, Pair], tuple[Way, ...], Announcement, bool, tuple[Pin, ...]](
            both_directions
        )
        self._learning = Memo(_learning_pins)

    def __call__(
        self, fabric: Fabric, jobs: Iterable[PinnedJob], routes: Routes, orphans: tuple[Pin, ...]
    ) -> tuple[Pin, ...]:
        """Both directions of every announced flow, then the orphans, then pairs that are learnt; only flows whose hosts
        are known."""
        jobs = tuple(jobs)
        announced = {
            (job.id, pair): job
            for job in jobs
            for pair in sorted(job.pairs)
            if pair[0] in fabric.hosts and pair[1] in fabric.hosts
        }
        used = {path for job_id, pair in announced for path in _paths(announced[job_id, pair], pair, routes)}
        self._reverse(fabric, used)
        claims = _claims(announced)
        of_pair = self._of_pair(
            {key: self._inputs(job, key[1], routes, announced, claims) for key, job in announced.items()}
        )
        pins = tuple(chain.from_iterable(of_pair.values()))
        taken = {pin.flow.pair for pin in pins}
        pins += tuple(
            pin for pin in orphans if pin.flow.pair not in taken and fabric.hosts.keys() >= set(pin.flow.pair)
        )
        taken |= {pin.flow.pair for pin in orphans}
        return pins + self._learning(fabric.hosts, tuple(job for job in jobs if job.counted), frozenset(taken))

    def _inputs(
        self,
        job: PinnedJob,
        pair: Pair,
        routes: Routes,
        announced: Mapping[tuple[JobId, Pair], PinnedJob],
        claims: Mapping[Pair, JobId],
    ) -> tuple[tuple[Way, ...], Announcement, bool]:
        """What the pins of one pair of a job follow from."""
        ways = tuple(
            Way(flow, route, tuple(self._back.get(path) for path, _ in route or ()))
            for flow, route in ((flow, routes.get(flow)) for flow in flow_ids(job.dividing, pair))
        )
        back = pair[1], pair[0]
        alone = claims[pair] == job.id
        announcement = Announcement(job_owner(job.id), parts_of(job, pair), alone)
        return ways, announcement, (job.id, back) in announced or (alone and back in claims)

    def _reverse(self, fabric: Fabric, paths: Set[Path]) -> None:
        """The same cables the other way, also while one of them is not usable: acknowledgements then fail over at their
        path group, like the flow itself."""
        before, self._links = self._links, fabric.links
        changed = {link for link in self._links.keys() | before.keys() if self._links.get(link) is not before.get(link)}
        kept = {path: back for path, back in self._back.items() if path in paths and changed.isdisjoint(path)}
        fresh = {path: reverse_path(fabric, path) or self._back.get(path) for path in paths - kept.keys()}
        self._back = kept | {path: back for path, back in fresh.items() if back}


def _learning_pins(hosts: Mapping[str, Host], jobs: tuple[PinnedJob, ...], taken: frozenset[Pair]) -> tuple[Pin, ...]:
    """Of jobs in their order; a pair that several of them might use is counted for the first. Pairs that have other
    rules are counted there."""
    owners: dict[FlowId, int] = {}
    for job in jobs:
        owner = job_owner(job.id)
        for src, dst in sorted(job.counted):
            if src in hosts and dst in hosts:
                owners.setdefault(FlowId(src, dst), owner)
    return tuple(Pin(flow, owner, None, learning=True) for flow, owner in owners.items() if flow.pair not in taken)


def _claims(announced: Mapping[tuple[JobId, Pair], PinnedJob]) -> dict[Pair, JobId]:
    """Which job has the rules for all packets of a pair: the one that cannot be told apart from others, else the
    first."""
    claims: dict[Pair, JobId] = {}
    for (job_id, pair), job in announced.items():
        if not job.dividing.owner:
            claims[pair] = job_id
    for job_id, pair in announced:
        claims.setdefault(pair, job_id)
    return claims


def _paths(job: PinnedJob, pair: Pair, routes: Routes) -> Iterator[Path]:
    """That the pair's flows take, but the empty ones."""
    for flow in flow_ids(job.dividing, pair):
        yield from (path for path, _ in routes.get(flow, ()) if path)


def _claimed(
    job: PinnedJob, pair: Pair, path_of: Mapping[Part | None, Path], shares: tuple[float, ...]
) -> Iterator[tuple[FlowId, Route]]:
    """The routes that pins of a pair stand for. ``shares``: as last known."""
    flows, parts = flow_ids(job.dividing, pair), parts_of(job, pair)
    if None in path_of:
        yield flows[0], whole(path_of[None])
        return
    firsts = [bundle[0] for bundle in parts]
    if len(flows) > 1:
        yield from ((flow, whole(path_of[part])) for flow, part in zip(flows, firsts, strict=True) if part in path_of)
        return
    paths = [path_of[part] for part in takewhile(path_of.__contains__, firsts)]
    if not paths or any(part not in path_of for bundle in parts[: len(paths)] for part in bundle):
        return
    if len(set(path_of) - set(chain.from_iterable(parts[: len(paths)]))):
        return
    if len(set(paths)) == 1 and len(paths) == len(parts) and job.dividing.owner:
        yield flows[0], whole(paths[0])  # the pair is shared: each connection has a pin
        return
    if len(shares) != len(paths):
        shares = (1 / len(paths),) * len(paths)
    yield flows[0], tuple(map(Subflow, paths, shares))


def parts_of(job: PinnedJob, pair: Pair) -> tuple[tuple[Part, ...], ...]:
    """Of each subflow or piece that the job's flow of this pair can have; none when it stays whole."""
    return tuple(
        tuple(Part(job.transport, ports.src, dst_ports=ports.dst) for ports in bundle)
        for bundle in job.dividing.bundles(pair)
    )


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


def confirmed_routes(routes: Routes, pins: Iterable[Pin], confirmed: Iterable[Pin]) -> dict[FlowId, Route]:
    """The routes all of whose ``pins`` are confirmed."""
    wanted = Counter(pin.flow for pin in pins if pin.path is not None)
    held = Counter(pin.flow for pin in confirmed)
    return {flow: route for flow, route in routes.items() if wanted[flow] == held[flow] >= len(route)}


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
