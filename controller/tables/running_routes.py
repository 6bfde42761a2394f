"""The routes that announced flows should take, and the pins that follow from them.

``RunningRoutes`` owns the running plan: how each announced flow is pinned. After a restart it is read back from the
switches; the shares of split flows, which no rule holds, come from the saved state. Pins of jobs that have not
registered again are *orphans* and kept for one lease (docs/explanation/restart-and-repair.md).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import Protocol

from controller.fabric.recent_uses import Counted, Uses
from controller.fabric.shortest_paths import CandidatePaths
from controller.fabric.topology import Dpid, Fabric, Host, Link, LinkId, Path
from controller.jobs.announcements import Announcements
from controller.jobs.spec import JobId, Transport
from controller.jobs.subflows import Pair
from controller.memo import Memo
from controller.planning.problem import Announced, FlowId, Pairs, Route, Routes, Subflow, flow_ids, whole
from controller.shared_map import SharedMap, differing, updated
from controller.tables.adoption import installed_pins
from controller.tables.pinned_table import Announcement, Part, Pin, Way, both_directions, counted, reverse_path
from controller.tables.rules import RuleSet, job_owner

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
        self.routes: Routes = SharedMap()
        self.orphans: tuple[Pin, ...] = ()
        self._saved: Shares = dict(saved or {})
        self._jobs: Mapping[JobId, PinnedJob] | None = None
        self._shares = Memo(_Shares())

    @property
    def shares(self) -> Shares:
        """Of every split flow, and of those whose jobs may still register again: what a restart has to know. Those of
        jobs that report their connections are taken as equal until the next plan."""
        return self._shares(self.routes, self._saved)

    def replace(self, routes: Routes) -> None:
        """A plan or a repair is adopted, or all routes are given up."""
        if routes != self.routes:
            self.routes = SharedMap.of(routes)

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
        claimed: dict[FlowId, Route | None] = {
            flow: route
            for pair, of_part in paths.items()
            for flow, route in _claimed(job, pair, of_part, self.shares.get(pair, ()))
            if len(route) >= len(self.routes.get(flow, ()))  # else some of its switches are not there yet
        }
        self.replace(updated(self.routes, claimed))
        if self._jobs is not None:
            self._jobs = updated(self._jobs, {job.id: job})
        before, self.orphans = self.orphans, tuple(pin for pin in self.orphans if pin.owner != owner)
        return len(self.orphans) < len(before)

    def drop_orphans(self) -> None:
        """Jobs that have not registered again by now are not expected any more."""
        self.orphans = ()
        self._saved = {}

    def release(self, jobs: Mapping[JobId, PinnedJob], before: Mapping[JobId, PinnedJob] | None = None) -> None:
        """Keep only the routes that these jobs can have. Only flows of jobs that have come, gone or changed are looked
        at, at the first call all. ``before``: the jobs that the routes were made for, None: those of the last call, and
        those that have claimed any since."""
        before, self._jobs = self._jobs if before is None else before, jobs
        if before is jobs or not self.routes:
            return
        other = [*differing(before or {}, jobs)]
        most = dict(chain.from_iterable(_most_subflows(job) for _, _, job in other if job))
        left = chain.from_iterable(_most_subflows(job) for _, job, _ in other if job)
        flows = self.routes if before is None else {flow for flow, _ in left}
        lost = {flow for flow in flows if len(self.routes.get(flow, ())) > most.get(flow, 0)}
        self.routes = updated(self.routes, dict.fromkeys(lost))

    def forget_orphans(self) -> None:
        """The pins without a job are not expected to be claimed; saved shares may be."""
        self.orphans = ()


def _most_subflows(job: PinnedJob) -> Iterator[tuple[FlowId, int]]:
    """That each flow of the job can have."""
    for pair in job.pairs:
        most = job.dividing.pieces(pair).max_subflows
        yield from ((flow, most) for flow in flow_ids(job.dividing, pair))


class _Shares:
    """Derives the shares of split flows: the saved ones, and above them those of the running routes."""

    def __init__(self) -> None:
        self._routes: Routes = {}
        self._split: Shares = {}
        self._with_saved = Memo[Shares, Shares, Shares](lambda saved, split: {**saved, **split} if saved else split)

    def __call__(self, routes: Routes, saved: Shares) -> Shares:
        before, self._routes = self._routes, routes
        other: list[tuple[Pair, tuple[float, ...] | None]] = [
            (flow.pair, None if route is None or len(route) == 1 else tuple(share for _, share in route))
            for flow, was, route in differing(before, routes)
            if not flow.owner and (len(was or ()) > 1 or len(route or ()) > 1)
        ]
        self._split = updated(self._split, dict(other))
        return self._with_saved(saved, self._split)


@dataclass(frozen=True, slots=True)
class PinSet:
    """All pins. ``of``: by what they were made for, a job or ``OTHERS``; a tuple in it is the same object as long as
    nothing in it changes."""

    of: Mapping[str, tuple[Pin, ...]]

    def __iter__(self) -> Iterator[Pin]:
        return chain.from_iterable(self.of.values())

    def __len__(self) -> int:
        return sum(map(len, self.of.values()))


AT_ONCE = 128
"""Flows whose pins are derived at one time. What follows from them takes about as long per flow: the control loop must
not be held while a plan for tens of thousands of flows comes into force."""

OTHERS = ""
"""Pins of no registered job, and of pairs that are learnt."""


class Pins:
    """Derives the pins of the announced flows, job by job: only of jobs that have changed, that share pairs with those,
    or that have other routes than at the last call; of all jobs where links have changed. ``turn``: another number
    whenever a call is due although nothing has changed; who calls counts it."""

    def __init__(self) -> None:
        self._announced = Announcements()
        self._jobs: Mapping[JobId, PinnedJob] = {}
        self._job_of: dict[FlowId, JobId] = {}
        self._hosts: Mapping[str, Host] = {}
        self._routes: Routes = {}
        self._links: Mapping[LinkId, Link] = {}
        self._back: dict[Path, Path] = {}
        self._counted: dict[JobId, PinnedJob] = {}
        self._known_hosts: Mapping[str, Host] = {}
        self._of_pair: dict[JobId, dict[Pair, tuple[Pin, ...]]] = {}
        self._due: dict[JobId, set[Pair]] = {}
        self.turn = 0
        self._others = Memo(self._find_others)
        self._found = PinSet(SharedMap())

    @property
    def due(self) -> bool:
        """Some jobs have pins that do not follow from what was given at the last call: their turn comes with the next
        ones."""
        return bool(self._due)

    def __call__(
        self, fabric: Fabric, jobs: Mapping[JobId, PinnedJob], routes: Routes, orphans: tuple[Pin, ...], _turn: int = 0
    ) -> PinSet:
        """Both directions of every announced flow, then the orphans, then pairs that are learnt; only flows whose hosts
        are known. Of ``AT_ONCE`` flows at most in one call, unless links or hosts have changed. The same object while
        nothing changes."""
        touched, gone = self._follow_jobs(jobs)
        self._other_routes(routes, touched)
        of = self._found.of
        pins: dict[str, tuple[Pin, ...] | None] = dict.fromkeys(gone)
        at_once: float = AT_ONCE
        if fabric.hosts is not self._hosts:
            other, self._hosts = self._hosts.keys() ^ fabric.hosts.keys(), fabric.hosts
            if other:
                for job_id, one in jobs.items():
                    if pairs := {pair for pair in one.pairs if not other.isdisjoint(pair)}:
                        touched[job_id] |= pairs
        if fabric.links is not self._links or fabric.hosts is not self._known_hosts:
            self._known_hosts, at_once = fabric.hosts, math.inf
        if fabric.links is not self._links:
            for job_id, one in jobs.items():
                touched[job_id] |= one.pairs
            self._reverse(fabric, {path for job in jobs.values() for path in _paths(job, routes)})
        # Jobs that have pins first: a new one may take some of them over, and no two are to have the same one.
        for job_id in sorted(touched, key=lambda job_id: (job_id not in of, job_id)):
            self._due.setdefault(job_id, set()).update(touched[job_id])
        for job_id in [*self._due]:
            if at_once <= 0:
                break
            due, job = self._due.pop(job_id), jobs.get(job_id)
            if job is None:
                continue
            at_once -= len(due)
            pins[job_id] = self._pins_of(fabric, job, due, routes)
        others = self._others(orphans, tuple(self._counted.values()), fabric.hosts, self._announced.version)
        if of.get(OTHERS) is not others:
            pins[OTHERS] = others
        if pins:
            self._found = PinSet(updated(of, pins))
        return self._found

    def _follow_jobs(self, now: Mapping[JobId, PinnedJob]) -> tuple[defaultdict[JobId, set[Pair]], list[JobId]]:
        """The pairs of jobs that have changed, with those near them, by job; and the jobs that are gone."""
        before, self._jobs = self._jobs, now
        changed: list[JobId] = []
        gone: list[JobId] = []
        for job_id, _, job in differing(before, now):
            self._of_pair.pop(job_id, None)
            (gone if job is None else changed).append(job_id)
            if job is not None and job.counted:
                self._counted[job_id] = job
            else:
                self._counted.pop(job_id, None)
        known = [before[job_id] for job_id in (*changed, *gone) if job_id in before]
        near = [*self._announced.near(chain.from_iterable(job.pairs for job in known))]
        for job in known:
            for flow in _flow_ids(job):
                self._job_of.pop(flow, None)
        for job_id in gone:
            self._announced.remove(before[job_id])
        for job_id in changed:
            if job_id in before:
                self._announced.change(before[job_id], now[job_id])
            else:
                self._announced.add(now[job_id])
            self._job_of.update(dict.fromkeys(_flow_ids(now[job_id]), job_id))
        near += self._announced.near(chain.from_iterable(now[job_id].pairs for job_id in changed))
        touched = defaultdict[JobId, set[Pair]](set, {job_id: set(now[job_id].pairs) for job_id in changed})
        for job_id, pair in near:
            touched[job_id].add(pair)
        return touched, gone

    def _other_routes(self, routes: Routes, touched: defaultdict[JobId, set[Pair]]) -> None:
        """Adds the pairs of flows that have another route than before."""
        before, self._routes = self._routes, routes
        for flow, *_ in differing(before, routes):
            if flow in self._job_of:
                touched[self._job_of[flow]].add(flow.pair)

    def _pins_of(self, fabric: Fabric, job: PinnedJob, due: Set[Pair], routes: Routes) -> tuple[Pin, ...]:
        """All pins of the job, of whose pairs only those that are ``due`` are looked at."""
        of_pair = self._of_pair.get(job.id)
        if of_pair is None:
            of_pair = self._of_pair[job.id] = dict.fromkeys(sorted(job.pairs), ())
            due = job.pairs
        for pair in due & of_pair.keys():
            of_pair[pair] = tuple(self._pins(fabric, job, pair, routes))
        return tuple(chain.from_iterable(of_pair.values()))

    def _pins(self, fabric: Fabric, job: PinnedJob, pair: Pair, routes: Routes) -> Iterator[Pin]:
        if pair[0] not in self._hosts or pair[1] not in self._hosts:
            return
        flows = [(flow, routes.get(flow)) for flow in flow_ids(job.dividing, pair)]
        for path in (path for _, route in flows for path, _ in route or ()):
            if path and path not in self._back and (back := reverse_path(fabric, path)):
                self._back[path] = back
        ways = tuple(Way(flow, route, tuple(self._back.get(path) for path, _ in route or ())) for flow, route in flows)
        opposite = pair[1], pair[0]
        alone = self._announced.first(pair) == job.id
        announcement = Announcement(job_owner(job.id), parts_of(job, pair), alone)
        answered = opposite in job.pairs or (alone and self._announced.first(opposite) is not None)
        yield from both_directions(ways, announcement, answered)

    def _find_others(
        self, orphans: tuple[Pin, ...], learnt: tuple[PinnedJob, ...], hosts: Mapping[str, Host], _version: int
    ) -> tuple[Pin, ...]:
        left = tuple(
            pin
            for pin in orphans
            if self._announced.holder(pin.flow.pair) is None and hosts.keys() >= set(pin.flow.pair)
        )
        taken = {pin.flow.pair for pin in orphans}
        found = _learning_pins(hosts, learnt)
        return left + tuple(
            pin for pin in found if pin.flow.pair not in taken and self._announced.holder(pin.flow.pair) is None
        )

    def _reverse(self, fabric: Fabric, paths: Set[Path]) -> None:
        """The same cables the other way, also while one of them is not usable: acknowledgements then fail over at their
        path group, like the flow itself."""
        before, self._links = self._links, fabric.links
        changed = {link for link in self._links.keys() | before.keys() if self._links.get(link) is not before.get(link)}
        kept = {path: back for path, back in self._back.items() if path in paths and changed.isdisjoint(path)}
        fresh = {path: reverse_path(fabric, path) or self._back.get(path) for path in paths - kept.keys()}
        self._back = kept | {path: back for path, back in fresh.items() if back}


def _learning_pins(hosts: Mapping[str, Host], jobs: tuple[PinnedJob, ...]) -> Iterator[Pin]:
    """Of jobs in their order; a pair that several of them might use is counted for the first."""
    owners: dict[FlowId, int] = {}
    for job in jobs:
        owner = job_owner(job.id)
        for src, dst in sorted(job.counted):
            if src in hosts and dst in hosts:
                owners.setdefault(FlowId(src, dst), owner)
    return (Pin(flow, owner, None, learning=True) for flow, owner in owners.items())


def _flow_ids(job: PinnedJob) -> Iterator[FlowId]:
    return chain.from_iterable(flow_ids(job.dividing, pair) for pair in job.pairs)


def _paths(job: PinnedJob, routes: Routes) -> Iterator[Path]:
    """That the job's flows take, but the empty ones."""
    for flow in _flow_ids(job):
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


class LostLinks:
    """Derives which links routes use that are not there. Looks at routes that have changed, and counts how many
    subflows use each path, which are few paths."""

    def __init__(self) -> None:
        self._routes: Routes = {}
        self._used: Counter[Path] = Counter()

    def __call__(self, routes: Routes, links: Mapping[LinkId, Link]) -> frozenset[LinkId]:
        before, self._routes = self._routes, routes
        for _, was, route in differing(before, routes):
            self._used.update(path for path, _ in route or ())
            for path, _ in was or ():
                self._used[path] -= 1
                if not self._used[path]:
                    del self._used[path]
        return frozenset(set(chain.from_iterable(self._used)) - links.keys())


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
