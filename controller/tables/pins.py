"""The pins of announced flows: what follows from the running routes, less those that no packet can take.

A route *stands* while its paths are there and are shortest ones, and its hosts are where they were. A flow whose route
does not stand is hashed until the next plan: a pin that leads away from the destination sends packets in a circle as
soon as a switch behind it fails over to ECMP (docs/explanation/forwarding.md). The running routes stay as they are: the
next plan has to know that they are broken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

from controller.fabric.shortest_paths import ShortestPaths
from controller.fabric.topology import Dpid, Fabric, Host, Link, LinkId, Path, moved_hosts
from controller.jobs.announcements import Announcements, Announcing
from controller.memo import Index, Memo
from controller.planning.problem import Announced, FlowId, Pairs, Route, Routes, flow_ids
from controller.shared_map import SharedMap, differing, updated
from controller.tables.pinned_table import Announcement, Part, Pin, Way, both_directions, reverse_path
from controller.tables.rules import job_owner
from signalbox.jobs.spec import JobId, Transport
from signalbox.jobs.subflows import Pair


class PinnedJob(Announced, Announcing, Protocol):
    """What rules need to know of a job. ``counted``: pairs that are counted besides its own, to learn of them."""

    @property
    def transport(self) -> Transport: ...
    @property
    def counted(self) -> Pairs: ...


@dataclass(frozen=True, slots=True)
class PinSet:
    """All pins. ``of``: by what they were made for, a job or ``OTHERS``; a tuple in it is the same object as long as
    nothing in it changes. ``fallen``: jobs with routes that do not stand, and so have no pins. ``astray``: flows that
    still have pins to such a route, which send no packet there, with their jobs: it is not their turn yet."""

    of: Mapping[str, tuple[Pin, ...]]
    fallen: frozenset[JobId] = frozenset()
    astray: Mapping[FlowId, JobId] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Pin]:
        return chain.from_iterable(self.of.values())

    def __len__(self) -> int:
        return sum(map(len, self.of.values()))


AT_ONCE = 64
"""Flows, or connections of flows, whose pins are derived at one time. What follows from them takes about as long for
each: the control loop must not be held while a plan for tens of thousands of flows comes into force."""

OTHERS = ""
"""Pins of no registered job, and of pairs that are learnt."""


class Pins:
    """Derives the pins of the announced flows, job by job: only of jobs that have changed, that share pairs with those,
    or that have other routes than at the last call, or routes over links that have changed. ``turn``: another number
    whenever a call is due although nothing has changed."""

    def __init__(self, flows_by_link: FlowsByLink | None = None) -> None:
        self._announced = Announcements()
        self._flows_by_link = flows_by_link or FlowsByLink()
        self._jobs: Mapping[JobId, PinnedJob] = {}
        self._job_of: dict[FlowId, JobId] = {}
        self._hosts: Mapping[str, Host] = {}
        self._routes: Routes = {}
        self._links: Mapping[LinkId, Link] = {}
        self._back: dict[Path, Path] = {}
        self._counted: dict[JobId, PinnedJob] = {}
        self._known_hosts: Mapping[str, Host] = {}
        self._ways = ShortestPaths()
        self._distance: Mapping[Dpid, Mapping[Dpid, int]] = {}
        self._of_pair: dict[JobId, dict[Pair, tuple[Pin, ...]]] = {}
        self._fallen: dict[JobId, set[Pair]] = {}
        self._due: dict[JobId, set[Pair]] = {}
        self._given_up: dict[JobId, set[Pair]] = {}
        """Of jobs that are due: pairs that they have no more, and the opposite ones, for which they still have pins."""
        self._astray: dict[FlowId, JobId] = {}
        self.turn = 0
        self._others = Memo(self._find_others)
        self._found = PinSet(SharedMap())

    @property
    def due(self) -> bool:
        """Some jobs have pins that do not follow from what was given at the last call: their turn comes with the next
        ones."""
        return bool(self._due)

    def next_turn(self) -> None:
        """Have the next call derive more pins, if some jobs wait for their turn."""
        self.turn += self.due

    def __call__(
        self, fabric: Fabric, jobs: Mapping[JobId, PinnedJob], routes: Routes, orphans: tuple[Pin, ...], _turn: int = 0
    ) -> PinSet:
        """Both directions of every announced flow, then the orphans, then pairs that are learnt; only flows whose hosts
        are known. Of ``AT_ONCE`` flows at most in one call, but of all whose hosts have moved, and of all flows of
        the jobs whose turn it is. Until the turn of a flow comes its rules send nothing over links that are lost or
        lead away: that follows from the links. The same object while nothing changes."""
        touched, gone = self._follow_jobs(jobs)
        self._other_routes(routes, touched)
        of = self._found.of
        pins: dict[str, tuple[Pin, ...] | None] = dict.fromkeys(gone)
        at_once, moved = AT_ONCE, self._follow_hosts(fabric.hosts, jobs)
        for job_id, of_hosts in moved.items():
            touched[job_id] |= of_hosts
        for job_id, pairs in self._follow_links(fabric, jobs, routes):
            touched[job_id].update(pairs)
            flows = chain.from_iterable(flow_ids(jobs[job_id].dividing, pair) for pair in pairs)
            astray = (flow for flow in flows if flow in routes and not self._stands(fabric, flow, routes[flow]))
            self._astray |= dict.fromkeys(astray, job_id)
        # Jobs that have pins first: a new one may take some of them over, and no two are to have the same one.
        for job_id in sorted(touched, key=lambda job_id: (job_id not in of, job_id)):
            self._due.setdefault(job_id, set()).update(touched[job_id])
        for first in [*self._due]:
            if first not in self._due or (at_once <= 0 and first not in moved):
                continue
            for job_id in self._together(first, jobs):
                due, job = self._due.pop(job_id), jobs.get(job_id)
                self._given_up.pop(job_id, None)
                if job is None:
                    continue
                pins[job_id] = self._pins_of(fabric, job, due, routes)
                of_pair = self._of_pair[job_id]
                at_once -= sum(max(1, len(of_pair.get(pair, ())) // 2) for pair in due)
        others = self._others(orphans, tuple(self._counted.values()), fabric.hosts, self._announced.version)
        if of.get(OTHERS) is not others:
            pins[OTHERS] = others
        if pins or self._astray != self._found.astray:
            fallen = frozenset((*self._fallen, *self._astray.values()))
            self._found = PinSet(updated(of, pins), fallen, dict(self._astray))
        return self._found

    def _together(self, job_id: JobId, jobs: Mapping[JobId, PinnedJob]) -> dict[JobId, None]:
        """Return the jobs whose pins change together: this one, and those that still have pins for pairs that one of
        them has now. In between, two jobs would have a pin, or a pair that has changed hands none."""
        found, to_look_at = {job_id: None}, [job_id]
        while self._given_up and to_look_at:
            job = jobs.get(to_look_at.pop())
            for other, pairs in self._given_up.items():
                if job and other not in found and other in self._due and not pairs.isdisjoint(job.pairs):
                    found[other] = None
                    to_look_at.append(other)
        return found

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
                self._astray.pop(flow, None)
        for job_id in gone:
            self._given_up.pop(job_id, None)
            self._fallen.pop(job_id, None)
            self._announced.remove(before[job_id])
        for job_id in changed:
            if job_id in before:
                self._announced.change(before[job_id], now[job_id])
                if job_id in self._found.of and (given_up := before[job_id].pairs - now[job_id].pairs):
                    self._given_up.setdefault(job_id, set()).update(given_up, ((dst, src) for src, dst in given_up))
            else:
                self._announced.add(now[job_id])
            self._job_of.update(dict.fromkeys(_flow_ids(now[job_id]), job_id))
        near += self._announced.near(chain.from_iterable(now[job_id].pairs for job_id in changed))
        touched = defaultdict[JobId, set[Pair]](set, {job_id: set(now[job_id].pairs) for job_id in changed})
        for job_id, pair in near:
            touched[job_id].add(pair)
        return touched, gone

    def _follow_hosts(self, hosts: Mapping[str, Host], jobs: Mapping[JobId, PinnedJob]) -> dict[JobId, set[Pair]]:
        """The pairs of hosts that have come, gone or moved, by job."""
        before, self._hosts = self._hosts, hosts
        other = moved_hosts(before, hosts)
        if not other:
            return {}
        touched = ((job_id, {pair for pair in job.pairs if not other.isdisjoint(pair)}) for job_id, job in jobs.items())
        return {job_id: pairs for job_id, pairs in touched if pairs}

    def _follow_links(
        self, fabric: Fabric, jobs: Mapping[JobId, PinnedJob], routes: Routes
    ) -> Iterator[tuple[JobId, Collection[Pair]]]:
        """The pairs whose routes may stand now and did not before, or the other way round, or whose answers may take
        other cables; by job, some more than once."""
        if fabric.links is self._links and fabric.hosts is self._known_hosts:
            return
        leaves = dict.fromkeys(host.at.dpid for host in fabric.hosts.values())
        before, self._known_hosts = self._distance, fabric.hosts
        self._distance = {leaf: to.distance for leaf, to in self._ways.towards(fabric, leaves).items()}
        changed_to = [(leaf, before.get(leaf, {})) for leaf in leaves if before.get(leaf) is not self._distance[leaf]]
        other = {(a, b) for b, was in changed_to for a in leaves if was.get(a) != self._distance[b].get(a)}
        if other:
            at = {ip: host.at.dpid for ip, host in fabric.hosts.items()}
            for job_id, job in jobs.items():
                if pairs := [(src, dst) for src, dst in job.pairs if (at.get(src), at.get(dst)) in other]:
                    yield job_id, pairs
        links, self._links = self._links, fabric.links
        if changed := {link for link, *_ in differing(links, fabric.links)}:
            self._reverse(fabric, changed)
            yield from self._fallen.items()
            on = self._flows_by_link(routes)
            for flow in chain.from_iterable(on.get(link, ()) for link in changed):
                if flow in self._job_of:
                    yield self._job_of[flow], (flow.pair,)

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
            self._fallen.pop(job.id, None)
        self._fallen[job.id] = self._fallen.get(job.id, set()) - due
        for pair in due & of_pair.keys():
            of_pair[pair] = tuple(self._pins(fabric, job, pair, routes))
        if not self._fallen[job.id]:
            del self._fallen[job.id]
        return tuple(chain.from_iterable(of_pair.values()))

    def _pins(self, fabric: Fabric, job: PinnedJob, pair: Pair, routes: Routes) -> Iterator[Pin]:
        if pair[0] not in self._hosts or pair[1] not in self._hosts:
            for flow in flow_ids(job.dividing, pair):
                self._astray.pop(flow, None)
            return
        flows = [(flow, self._standing(fabric, job, flow, routes)) for flow in flow_ids(job.dividing, pair)]
        for path in (path for _, route in flows for path, _ in route or ()):
            if path and path not in self._back and (back := reverse_path(fabric, path)):
                self._back[path] = back
        ways = tuple(Way(flow, route, tuple(self._back.get(path) for path, _ in route or ())) for flow, route in flows)
        opposite = pair[1], pair[0]
        alone = self._announced.first(pair) == job.id
        announcement = Announcement(job_owner(job.id), parts_of(job, pair), alone)
        answered = opposite in job.pairs or (alone and self._announced.first(opposite) is not None)
        yield from both_directions(ways, announcement, answered)

    def _standing(self, fabric: Fabric, job: PinnedJob, flow: FlowId, routes: Routes) -> Route | None:
        """The flow's route if it stands. If not, that is noted."""
        route = routes.get(flow)
        self._astray.pop(flow, None)
        if route is None or self._stands(fabric, flow, route):
            return route
        self._fallen.setdefault(job.id, set()).add(flow.pair)
        return None

    def _stands(self, fabric: Fabric, flow: FlowId, route: Route) -> bool:
        src, dst = (self._hosts.get(ip) for ip in flow.pair)
        return bool(src and dst and all(self._leads(fabric, path, src.at.dpid, dst.at.dpid) for path, _ in route))

    def _leads(self, fabric: Fabric, path: Path, src: Dpid, dst: Dpid) -> bool:
        """Whether the path is there, and a shortest one."""
        if len(path) != self._distance[dst].get(src):
            return False
        here = src
        for link_id in path:
            link = fabric.links.get(link_id)
            if link is None or link_id.dpid != here:
                return False
            here = link.dst.dpid
        return here == dst

    def _find_others(
        self, orphans: tuple[Pin, ...], learnt: tuple[PinnedJob, ...], hosts: Mapping[str, Host], _version: int
    ) -> tuple[Pin, ...]:
        left = tuple(
            pin
            for pin in orphans
            if self._announced.holder(pin.flow.pair) is None and hosts.keys() >= set(pin.flow.pair)
        )
        taken = {pin.flow.pair for pin in orphans}
        found = _learning_pins(hosts, learnt, self._announced)
        return left + tuple(pin for pin in found if pin.flow.pair not in taken)

    def _reverse(self, fabric: Fabric, changed: Set[LinkId]) -> None:
        """The same cables the other way, also while one of them is not usable: acknowledgements then fail over at their
        path group, like the flow itself."""
        for path in [path for path in self._back if not changed.isdisjoint(path)]:
            if back := reverse_path(fabric, path):
                self._back[path] = back


def _learning_pins(hosts: Mapping[str, Host], jobs: tuple[PinnedJob, ...], announced: Announcements) -> Iterator[Pin]:
    """Of jobs in their order; a pair that several of them might use is counted for the first. One that has a pin of
    its job's stays counted below it as long as the job wants: what it counted last is read then."""
    owners: dict[FlowId, int] = {}
    for job in jobs:
        owner = job_owner(job.id)
        for src, dst in sorted(job.counted):
            if src in hosts and dst in hosts and announced.holder((src, dst)) in (None, job.id):
                owners.setdefault(FlowId(src, dst), owner)
    return (Pin(flow, owner, None, learning=True) for flow, owner in owners.items())


def _flow_ids(job: PinnedJob) -> Iterator[FlowId]:
    return chain.from_iterable(flow_ids(job.dividing, pair) for pair in job.pairs)


def parts_of(job: PinnedJob, pair: Pair) -> tuple[tuple[Part, ...], ...]:
    """Of each subflow or piece that the job's flow of this pair can have; none when it stays whole."""
    return tuple(
        tuple(Part(job.transport, ports.src, dst_ports=ports.dst) for ports in bundle)
        for bundle in job.dividing.bundles(pair)
    )


NO_FLOWS: frozenset[FlowId] = frozenset()


class FlowsByLink(Index[FlowId, Route, LinkId]):
    """Derives the flows on every link that routes use, from the routes that have changed."""

    def __init__(self) -> None:
        super().__init__(lambda route: chain.from_iterable(path for path, _ in route))


def lost_links(on: Mapping[LinkId, Collection[FlowId]], links: Mapping[LinkId, Link]) -> frozenset[LinkId]:
    """The links that flows use and that are not there."""
    return frozenset(link for link in on if link not in links)


def flows_on(
    links: frozenset[LinkId], on: Mapping[LinkId, frozenset[FlowId]], waiting: Mapping[JobId, frozenset[FlowId]]
) -> Mapping[LinkId, frozenset[FlowId]]:
    """The flows that use each of these links; those without any are left out. ``waiting``: the flows of jobs that
    are not planned until their hosts are found; they do not count, because no plan would move them."""
    if not links:
        return {}
    unplanned = frozenset[FlowId]().union(*waiting.values())
    left = {link: on[link] - unplanned for link in links if link in on}
    return {link: flows for link, flows in left.items() if flows}
