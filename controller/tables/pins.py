"""Pins of announced flows, derived from the running routes that are in force.

A route is in force while its paths exist and are shortest paths, and its hosts have not moved. Any other route is
invalid: its flow uses ECMP until the next plan, which can replace the route. If a pin led away from the destination,
packets would loop as soon as a later switch failed over to ECMP (docs/explanation/forwarding.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import chain

from controller.fabric.topology import Dpid, Fabric, Host, Link, LinkId, Path, ShortestPaths, moved_hosts
from controller.jobs.job import Announcements, Job
from controller.planning.problem import FlowId, Route, Routes, flow_ids
from controller.shared_map import Index, Memo, SharedMap, differing, updated
from controller.tables.flow_tables import Announcement, FlowPart, Pin, Routed, both_directions, reverse_path
from controller.tables.rules import SetDscp, job_owner
from signalbox.jobs.spec import JobId
from signalbox.jobs.subflows import Pair


@dataclass(frozen=True, slots=True)
class PinSet:
    """All pins."""

    of: Mapping[str, tuple[Pin, ...]]
    """Pins by job, or by ``OTHERS``. The tuple of a job is the same object while none of its pins changes."""
    invalid: frozenset[JobId] = frozenset()
    """Jobs with an invalid route. Such a route has no pins, except stale ones."""
    stale: Mapping[FlowId, JobId] = field(default_factory=dict)
    """Flows with stale pins, each with its job.

    A pin is stale while its route is invalid and a later turn has still to remove the pin. The rules of a stale pin
    send no packets over the route."""

    def __iter__(self) -> Iterator[Pin]:
        return chain.from_iterable(self.of.values())

    def __len__(self) -> int:
        return sum(map(len, self.of.values()))


AT_ONCE = 64
"""Approximate number of flows whose pins are derived in one call of ``Pins``, a *turn*.

A flow with several pins in each direction counts several times. The limit keeps the control loop responsive while a
plan for tens of thousands of flows is installed. Deriving the rules takes about as long as deriving the pins."""

NO_DSCP: Mapping[JobId, int] = {}

OTHERS = ""
"""Key of the pins that belong to no registered job, and of the pins for pairs that are being learnt."""


class Pins:
    """Derivation of the pins of announced flows, job by job.

    A call derives the pins of a job again only for one of these reasons:

    - The job or its DSCP has changed.
    - The job shares a pair of hosts with a job that has changed.
    - A route of the job has changed.
    - A link of one of its routes has changed."""

    def __init__(self, flows_by_link: FlowsByLink | None = None) -> None:
        self._announced = Announcements()
        self._flows_by_link = flows_by_link or FlowsByLink()
        self._jobs: Mapping[JobId, Job] = {}
        self._job_of: dict[FlowId, JobId] = {}
        self._hosts: Mapping[str, Host] = {}
        self._routes: Routes = {}
        self._links: Mapping[LinkId, Link] = {}
        self._dscp = NO_DSCP
        self._back: dict[Path, Path] = {}
        self._counted: dict[JobId, Job] = {}
        self._known_hosts: Mapping[str, Host] = {}
        self._ways = ShortestPaths()
        self._distance: Mapping[Dpid, Mapping[Dpid, int]] = {}
        self._of_pair: dict[JobId, dict[Pair, tuple[Pin, ...]]] = {}
        self._invalid: dict[JobId, set[Pair]] = {}
        self._due: dict[JobId, set[Pair]] = {}
        self._given_up: dict[JobId, set[Pair]] = {}
        """Pairs of hosts, in both directions, that a job does not announce any more although their pins still exist; by
        job."""
        self._stale: dict[FlowId, JobId] = {}
        self.turn = 0
        """Number that changes whenever the pins must be derived again although no input has changed."""
        self._others = Memo(self._find_others)
        self._found = PinSet(SharedMap())

    @property
    def due(self) -> bool:
        """Whether there are jobs with outdated pins, which wait for a later turn."""
        return bool(self._due)

    def next_turn(self) -> None:
        """Let the next call derive more pins, if jobs wait for a later turn."""
        self.turn += self.due

    def __call__(
        self,
        fabric: Fabric,
        jobs: Mapping[JobId, Job],
        routes: Routes,
        orphans: tuple[Pin, ...],
        _turn: int = 0,
        dscp: Mapping[JobId, int] = NO_DSCP,
    ) -> PinSet:
        """Return all pins: of announced flows between known hosts, then orphans, then learning pins.

        An announced flow has pins for its data and for its acknowledgements. A call derives the pins of flows whose
        hosts have moved, and then of further jobs until it has about ``AT_ONCE`` flows. The jobs that remain keep
        outdated pins until a later turn. Outdated pins are safe, because rules also depend on the links. No outdated
        pin sends packets over lost links or away from the destination. The result is the same object while nothing
        changes."""
        touched, gone = self._follow_jobs(jobs)
        self._follow_routes(routes, touched)
        for job_id in (job_id for job_id, *_ in differing(self._dscp, dscp) if job_id in jobs):
            touched[job_id] |= jobs[job_id].pairs
        self._dscp = dscp
        of = self._found.of
        pins: dict[str, tuple[Pin, ...] | None] = dict.fromkeys(gone)
        at_once, moved = AT_ONCE, self._follow_hosts(fabric.hosts, jobs)
        for job_id, of_hosts in moved.items():
            touched[job_id] |= of_hosts
        for job_id, pairs in self._follow_links(fabric, jobs, routes):
            touched[job_id].update(pairs)
            flows = chain.from_iterable(flow_ids(jobs[job_id].dividing, pair) for pair in pairs)
            stale = (flow for flow in flows if flow in routes and not self._is_in_force(fabric, flow, routes[flow]))
            self._stale |= dict.fromkeys(stale, job_id)
        # Jobs with pins come first: a new job may get some of their pins, and no two jobs may have the same pin.
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
        if pins or self._stale != self._found.stale:
            invalid = frozenset((*self._invalid, *self._stale.values()))
            self._found = PinSet(updated(of, pins), invalid, dict(self._stale))
        return self._found

    def _together(self, job_id: JobId, jobs: Mapping[JobId, Job]) -> dict[JobId, None]:
        """Return the jobs whose pins must be derived together with the pins of the given job, including the given job.

        A pair of hosts may have moved from job A to job B while A still has an outdated pin for it. Separate calls for
        A and B would leave a time with two equal pins, or without any pin for the pair. A call for B therefore includes
        A, and in turn the jobs from which A has taken a pair."""
        found, to_look_at = {job_id: None}, [job_id]
        while self._given_up and to_look_at:
            job = jobs.get(to_look_at.pop())
            for other, pairs in self._given_up.items():
                if job and other not in found and other in self._due and not pairs.isdisjoint(job.pairs):
                    found[other] = None
                    to_look_at.append(other)
        return found

    def _follow_jobs(self, now: Mapping[JobId, Job]) -> tuple[defaultdict[JobId, set[Pair]], list[JobId]]:
        """Return two results: by job, the pairs whose pins may change because jobs have changed; and the removed jobs.

        A changed job has all of its pairs in the result. An unchanged job has only those pairs that it shares with a
        changed or removed job, in the same or the opposite direction."""
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
                self._stale.pop(flow, None)
        for job_id in gone:
            self._given_up.pop(job_id, None)
            self._invalid.pop(job_id, None)
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

    def _follow_hosts(self, hosts: Mapping[str, Host], jobs: Mapping[JobId, Job]) -> dict[JobId, set[Pair]]:
        before, self._hosts = self._hosts, hosts
        other = moved_hosts(before, hosts)
        if not other:
            return {}
        touched = ((job_id, {pair for pair in job.pairs if not other.isdisjoint(pair)}) for job_id, job in jobs.items())
        return {job_id: pairs for job_id, pairs in touched if pairs}

    def _follow_links(
        self, fabric: Fabric, jobs: Mapping[JobId, Job], routes: Routes
    ) -> Iterator[tuple[JobId, Collection[Pair]]]:
        """Yield the pairs whose pins may change because links have changed, by job; a job may occur several times.

        Routes may have become valid or invalid, or the reverse paths of acknowledgements may have changed."""
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
            self._update_reverse_paths(fabric, changed)
            yield from self._invalid.items()
            on = self._flows_by_link(routes)
            for flow in chain.from_iterable(on.get(link, ()) for link in changed):
                if flow in self._job_of:
                    yield self._job_of[flow], (flow.pair,)

    def _follow_routes(self, routes: Routes, touched: defaultdict[JobId, set[Pair]]) -> None:
        before, self._routes = self._routes, routes
        for flow, *_ in differing(before, routes):
            if flow in self._job_of:
                touched[self._job_of[flow]].add(flow.pair)

    def _pins_of(self, fabric: Fabric, job: Job, due: Set[Pair], routes: Routes) -> tuple[Pin, ...]:
        of_pair = self._of_pair.get(job.id)
        if of_pair is None:
            of_pair = self._of_pair[job.id] = dict.fromkeys(sorted(job.pairs), ())
            due = job.pairs
            self._invalid.pop(job.id, None)
        self._invalid[job.id] = self._invalid.get(job.id, set()) - due
        for pair in due & of_pair.keys():
            of_pair[pair] = tuple(self._pins(fabric, job, pair, routes))
        if not self._invalid[job.id]:
            del self._invalid[job.id]
        return tuple(chain.from_iterable(of_pair.values()))

    def _pins(self, fabric: Fabric, job: Job, pair: Pair, routes: Routes) -> Iterator[Pin]:
        if pair[0] not in self._hosts or pair[1] not in self._hosts:
            for flow in flow_ids(job.dividing, pair):
                self._stale.pop(flow, None)
            return
        flows = [(flow, self._route_in_force(fabric, job, flow, routes)) for flow in flow_ids(job.dividing, pair)]
        for path in (path for _, route in flows for path, _ in route or ()):
            if path and path not in self._back and (back := reverse_path(fabric, path)):
                self._back[path] = back
        ways = tuple(Routed(flow, of, tuple(self._back.get(path) for path, _ in of or ())) for flow, of in flows)
        opposite = pair[1], pair[0]
        alone = self._announced.first(pair) == job.id
        marking = (SetDscp(self._dscp[job.id]),) if job.id in self._dscp else ()
        announcement = Announcement(job_owner(job.id), parts_of(job, pair), alone, marking)
        answered = opposite in job.pairs or (alone and self._announced.first(opposite) is not None)
        yield from both_directions(ways, announcement, answered)

    def _route_in_force(self, fabric: Fabric, job: Job, flow: FlowId, routes: Routes) -> Route | None:
        route = routes.get(flow)
        self._stale.pop(flow, None)
        if route is None or self._is_in_force(fabric, flow, route):
            return route
        self._invalid.setdefault(job.id, set()).add(flow.pair)
        return None

    def _is_in_force(self, fabric: Fabric, flow: FlowId, route: Route) -> bool:
        src, dst = (self._hosts.get(ip) for ip in flow.pair)
        return bool(
            src and dst and all(self._is_shortest_path(fabric, path, src.at.dpid, dst.at.dpid) for path, _ in route)
        )

    def _is_shortest_path(self, fabric: Fabric, path: Path, src: Dpid, dst: Dpid) -> bool:
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
        self, orphans: tuple[Pin, ...], learnt: tuple[Job, ...], hosts: Mapping[str, Host], _version: int
    ) -> tuple[Pin, ...]:
        left = tuple(
            pin
            for pin in orphans
            if self._announced.holder(pin.flow.pair) is None and hosts.keys() >= set(pin.flow.pair)
        )
        taken = {pin.flow.pair for pin in orphans}
        found = _learning_pins(hosts, learnt, self._announced)
        return left + tuple(pin for pin in found if pin.flow.pair not in taken)

    def _update_reverse_paths(self, fabric: Fabric, changed: Set[LinkId]) -> None:
        """Update the reverse path of every path with a changed link. Acknowledgements use the reverse path.

        A reverse path with a lost link is kept, so that acknowledgements fail over by their path group, like the flow
        itself."""
        for path in [path for path in self._back if not changed.isdisjoint(path)]:
            if back := reverse_path(fabric, path):
                self._back[path] = back


def _learning_pins(hosts: Mapping[str, Host], jobs: tuple[Job, ...], announced: Announcements) -> Iterator[Pin]:
    """Return the learning pins of the jobs. If several jobs might use a pair, the pin belongs to the first of them.

    The learning pin stays as long as the pair is in the job's ``counted``, even below a pin with a higher priority. The
    last count of the learning pin can then still be read."""
    owners: dict[FlowId, int] = {}
    for job in jobs:
        owner = job_owner(job.id)
        for src, dst in sorted(job.counted):
            if src in hosts and dst in hosts and announced.holder((src, dst)) in (None, job.id):
                owners.setdefault(FlowId(src, dst), owner)
    return (Pin(flow, owner, None, learning=True) for flow, owner in owners.items())


def _flow_ids(job: Job) -> Iterator[FlowId]:
    return chain.from_iterable(flow_ids(job.dividing, pair) for pair in job.pairs)


def parts_of(job: Job, pair: Pair) -> tuple[tuple[FlowPart, ...], ...]:
    """Return the parts of each subflow into which the flow of this pair can be split; empty if the flow stays whole."""
    return tuple(
        tuple(FlowPart(job.transport, ports.src, dst_ports=ports.dst) for ports in bundle)
        for bundle in job.dividing.bundles(pair)
    )


class FlowsByLink(Index[FlowId, Route, LinkId]):
    """Derivation of the flows on each link that routes use; only changed routes are examined."""

    def __init__(self) -> None:
        super().__init__(lambda route: chain.from_iterable(path for path, _ in route))


def lost_links(on: Mapping[LinkId, Collection[FlowId]], links: Mapping[LinkId, Link]) -> frozenset[LinkId]:
    """Return the links that flows use and that do not exist."""
    return frozenset(link for link in on if link not in links)


def flows_on(
    links: frozenset[LinkId], on: Mapping[LinkId, frozenset[FlowId]], waiting: Mapping[JobId, frozenset[FlowId]]
) -> Mapping[LinkId, frozenset[FlowId]]:
    """Return the flows on each of the given links; links without flows are left out.

    ``on``: flows by link. ``waiting``: flows of jobs that wait for hosts. The result does not contain these flows,
    because no plan would move them."""
    if not links:
        return {}
    unplanned = frozenset[FlowId]().union(*waiting.values())
    left = {link: on[link] - unplanned for link in links if link in on}
    return {link: flows for link, flows in left.items() if flows}
