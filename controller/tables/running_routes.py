"""Routes that announced flows should take, routes that switches have confirmed, and links that flows may use.

``RunningRoutes`` owns the running plan: the pinned paths of announced flows. After a restart the plan is read from the
rules of the switches. Only the shares of split flows come from the saved state. Pins of jobs that have not registered
again are *orphans*, which are kept for one lease (docs/explanation/restart-and-repair.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, takewhile, zip_longest
from typing import NamedTuple

from controller.fabric.counter_samples import NO_USES, Counted, Uses, UsesOf
from controller.fabric.topology import (
    CandidatePaths,
    Dpid,
    Fabric,
    Hops,
    Host,
    Link,
    LinkId,
    Path,
    PortNo,
    PortRef,
    moved_hosts,
    next_hops,
)
from controller.jobs.job import Job
from controller.planning.problem import FlowId, PathShare, Route, Routes, flow_ids, whole
from controller.planning.snapshot import Pairs
from controller.shared_map import ChangedKeys, Memo, SharedMap, differing, per_key, updated
from controller.tables.flow_tables import FlowPart, Pin, counted, read_pin
from controller.tables.pins import PinSet, parts_of
from controller.tables.rules import FlowKey, FlowRule, Output, RuleSet, Table, job_owner, other_rules
from signalbox.jobs.spec import JobId
from signalbox.jobs.subflows import Pair

Shares = Mapping[tuple[str, str], tuple[float, ...]]


class RunningRoutes:
    """Running plan.

    ``saved``: shares of split flows from the saved state. If the number of installed subflows of a flow is not that of
    its saved shares, the flow counts as evenly split."""

    def __init__(self, saved: Shares | None = None) -> None:
        self.routes: Routes = SharedMap()
        """Routes of the pinned flows; a new mapping on each change. Announced flows without a route use ECMP."""
        self.orphans: tuple[Pin, ...] = ()
        """Pins without a registered job."""
        self._saved: Shares = dict(saved or {})
        self._jobs: Mapping[JobId, Job] | None = None
        self._split = per_key(_shares)
        self._shares = Memo(_by_pair)

    @property
    def shares(self) -> Shares:
        """Shares of subflows that are saved for a restart.

        The saved shares are those of every split flow, and of flows whose jobs may still register again. Shares of jobs
        that report their connections are not saved: after a restart these shares count as equal until the next plan."""
        return self._shares(self._saved, self._split(self.routes))

    def replace(self, routes: Routes) -> None:
        """Replace all routes by those of a plan or of a repair, or by none."""
        if routes != self.routes:
            self.routes = SharedMap.of(routes)

    def adopt(self, fabric: Fabric, installed: Mapping[Dpid, RuleSet], jobs: Iterable[Job]) -> frozenset[JobId]:
        """Read the running plan from the installed rules, and return the jobs with installed pins or counting rules."""
        self.orphans = tuple(installed_pins(fabric, installed))
        return frozenset(job.id for job in jobs if self.claim(job))

    def claim(self, job: Job) -> bool:
        """Turn the orphans of a job that has registered again into routes. Return False if the job has no orphans.

        Orphans of pairs that are still being learnt stay orphans."""
        owner = job_owner(job.id)
        paths: dict[Pair, dict[FlowPart | None, Path]] = {}
        for pin in self.orphans:
            if pin.owner == owner and pin.path is not None and pin.flow.pair in job.pairs:
                paths.setdefault(pin.flow.pair, {})[pin.part] = pin.path
        claimed: dict[FlowId, Route | None] = {
            flow: route
            for pair, of_part in paths.items()
            for flow, route in _routes_of_pins(job, pair, of_part, self.shares.get(pair, ()))
            if len(route) >= len(self.routes.get(flow, ()))  # with fewer, some switches have not been read yet
        }
        self.replace(updated(self.routes, claimed))
        if self._jobs is not None:
            self._jobs = updated(self._jobs, {job.id: job})
        before, left = self.orphans, {*job.counted} - {*job.pairs, *(flow.back.pair for flow in claimed)}
        self.orphans = tuple(pin for pin in before if pin.owner != owner or pin.flow.pair in left)
        return len(self.orphans) < len(before)

    def begin(self, job: Job, routes: Routes) -> None:
        """Adopt the first routes of a job.

        The flow ids in ``routes`` have no ``owner`` yet; the job's owner is filled in. Routes with more subflows than
        the flow can have are ignored."""
        most = dict(_most_subflows(job))
        own = {flow._replace(owner=job.dividing.owner): route for flow, route in routes.items()}
        self.replace(updated(self.routes, {flow: of for flow, of in own.items() if len(of) <= most.get(flow, 0)}))
        if self._jobs is not None:
            self._jobs = updated(self._jobs, {job.id: job})

    def drop_orphans(self) -> None:
        """Drop all orphans and saved shares, because the time for their jobs to register again is over."""
        self.orphans = ()
        self._saved = {}

    def release(self, jobs: Mapping[JobId, Job], before: Mapping[JobId, Job] | None = None) -> None:
        """Drop routes of flows that belong to none of these jobs, and routes with more subflows than the flow can have.

        ``before``: jobs that the present routes were made for. By default these are the jobs of the previous call, and
        those of ``begin`` and ``claim`` since then. Only flows of jobs that differ between ``before`` and ``jobs`` are
        examined; the first call examines all flows."""
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
        """Drop all orphans, but keep the saved shares for jobs that may still register again."""
        self.orphans = ()


def _most_subflows(job: Job) -> Iterator[tuple[FlowId, int]]:
    for pair in job.pairs:
        most = job.dividing.subflows(pair).max_subflows
        yield from ((flow, most) for flow in flow_ids(job.dividing, pair))


def _shares(flow: FlowId, route: Route) -> tuple[float, ...] | None:
    return None if flow.owner or len(route) == 1 else tuple(share for _, share in route)


def _by_pair(saved: Shares, split: Mapping[FlowId, tuple[float, ...]]) -> Shares:
    return {**saved, **{flow.pair: shares for flow, shares in split.items()}}


def _routes_of_pins(
    job: Job, pair: Pair, path_of: Mapping[FlowPart | None, Path], shares: tuple[float, ...]
) -> Iterator[tuple[FlowId, Route]]:
    """Yield the flows of a pair with the routes that follow from its pins.

    ``path_of``: path of the pin for each part of the packets. ``shares``: last known shares of the subflows."""
    flows, parts = flow_ids(job.dividing, pair), parts_of(job, pair)
    firsts = [bundle[0] for bundle in parts]
    if len(flows) > 1:
        found = [path_of.get(part, path_of.get(None)) for part in firsts]
        yield from ((flow, whole(path)) for flow, path in zip(flows, found, strict=True) if path is not None)
        return
    if None in path_of:
        yield flows[0], whole(path_of[None])
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
    yield flows[0], tuple(map(PathShare, paths, shares))


# ---- hosts and pins in installed rules, for a controller that has just started


def installed_hosts(installed: Mapping[Dpid, RuleSet]) -> Iterator[tuple[str, PortRef]]:
    """Yield (address, port) of every host to which a switch delivers directly."""
    for dpid, rules in installed.items():
        for key, rule in rules.flows.items():
            dst = key.match.ip_dst
            if key.table == Table.DEFAULT and dst and dst.is_host and len(rule.actions) == 1:
                (action,) = rule.actions
                if isinstance(action, Output):
                    yield dst.address, PortRef(dpid, action.port)


def installed_pins(fabric: Fabric, installed: Mapping[Dpid, RuleSet]) -> Iterator[Pin]:
    """Yield the pins from which installed rules were made: pins and counting rules at the switch of the flow's source.

    The path of a pin is read from the rules of the following switches. The path is None for a counting rule, and if the
    rules do not lead to the destination over existing links."""
    towards = next_hops(fabric, {host.at.dpid for host in fabric.hosts.values()})
    for dpid, rules in installed.items():
        for rule in rules.flows.values():
            pin = read_pin(rule)
            source = fabric.hosts.get(pin.flow.src_ip) if pin else None
            if pin and source and source.at.dpid == dpid and pin.flow.dst_ip in fabric.hosts:
                yield replace(pin, path=_installed_path(fabric, installed, pin.flow, rule, towards))


def _installed_path(
    fabric: Fabric, installed: Mapping[Dpid, RuleSet], flow: FlowId, rule: FlowRule, towards: Mapping[Dpid, Hops]
) -> Path | None:
    """Return the path on which the installed rules lead the flow; None if they do not lead to the destination."""
    if rule.goto is not None:
        return None
    here, leaf = fabric.hosts[flow.src_ip].at.dpid, fabric.hosts[flow.dst_ip].at.dpid
    path: list[LinkId] = []
    while here != leaf and len(path) <= len(fabric.switches):
        rules = installed.get(here, RuleSet())
        port = _planned_port(rules, rules.flows.get(rule.key))
        default = towards[leaf].get(here, ())
        hop = LinkId(here, port) if port is not None else default[0] if len(default) == 1 else None
        if hop is None or hop not in fabric.links:
            return None
        path.append(hop)
        here = fabric.links[hop].dst.dpid
    return tuple(path) if here == leaf else None


def _planned_port(rules: RuleSet, rule: FlowRule | None) -> PortNo | None:
    """Return the port of the first bucket of the path group to which a pin sends; None if there is no such port."""
    if rule is None or rule.group_id is None:
        return None
    group = rules.groups.get(rule.group_id)
    first = group.buckets[0].action if group and group.buckets else None
    return first.port if isinstance(first, Output) else None


_Flows = Mapping[FlowKey, FlowRule]


NO_ROUTES: Mapping[FlowId, Route] = {}


class Confirmed(NamedTuple):
    """Confirmed part of the wanted pins and routes."""

    pins: int
    """Number of confirmed pins that lead over a path."""
    routes: Mapping[str, Mapping[FlowId, Route]]
    """Confirmed routes by job: all subflows of such a route have the wanted pins.

    The mapping of a job is the same object while its routes do not change."""


class ConfirmedRoutes:
    """Derivation of the confirmed routes, whose pins are installed at the switches of their sources.

    Only jobs with changed pins, or with changed rules for their pins, are examined."""

    def __init__(self) -> None:
        self._hosts: Mapping[str, Host] = {}
        self._pins: Mapping[str, tuple[Pin, ...]] = {}
        self._stale: Mapping[FlowId, JobId] = {}
        self._rules: dict[Dpid, tuple[_Flows, _Flows]] = {}
        self._names_of: dict[FlowKey, tuple[str, ...]] = {}
        """Jobs that have a pin with this key.

        A key has several jobs after a pair of hosts has moved to another job, until the former job's pins are
        deleted."""
        self._known: dict[str, _Pinned] = {}
        self._held = 0
        self._found = Confirmed(0, {})

    def __call__(
        self,
        hosts: Mapping[str, Host],
        routes: Mapping[FlowId, Route],
        pins: PinSet,
        wanted: Mapping[Dpid, RuleSet],
        installed: Mapping[Dpid, RuleSet],
    ) -> Confirmed:
        before, self._pins = self._pins, pins.of
        stale, self._stale = self._stale, pins.stale
        names = {name for name, *_ in differing(before, self._pins)} | self._jobs_of_moved_hosts(hosts)
        for name in names:
            self._note_pins(name)
        look_at = {name: self._known[name].pins.keys() for name in names if name in self._known}
        others: dict[str, set[FlowKey]] = {}
        for key in self._changed_pins(wanted, installed):
            for name in self._names_of.get(key, ()):
                if name not in look_at:
                    others.setdefault(name, set()).add(key)
        both = {**stale, **self._stale}
        for name in {both[flow] for flow in stale.keys() ^ self._stale.keys()}:
            if name in self._known and name not in look_at:
                others.setdefault(name, set())
        found: dict[str, Mapping[FlowId, Route] | None] = dict.fromkeys(names - self._known.keys())
        for name, keys in (look_at | others).items():
            self._held -= self._known[name].held
            confirmed = self._confirmed(self._known[name], keys, routes, wanted, installed)
            self._held += self._known[name].held
            if confirmed != self._found.routes.get(name, NO_ROUTES):
                found[name] = confirmed or None
        self._found = Confirmed(self._held, updated(self._found.routes, found))
        return self._found

    def _jobs_of_moved_hosts(self, hosts: Mapping[str, Host]) -> set[str]:
        before, self._hosts = self._hosts, hosts
        ips = moved_hosts(before, hosts)
        return (
            {name for name, pins in self._pins.items() if any(pin.flow.src_ip in ips for pin in pins)} if ips else set()
        )

    def _note_pins(self, name: str) -> None:
        if before := self._known.pop(name, None):
            self._held -= before.held
        for key in before.pins if before else ():
            if len(names := self._names_of.pop(key)) > 1:
                self._names_of[key] = tuple(other for other in names if other != name)
        if name in self._pins:
            pins = {pin.key: pin for pin in self._pins[name] if pin.path and pin.flow.src_ip in self._hosts}
            known = self._known[name] = _Pinned(pins)
            self._held += known.held
            shared = {key: (*self._names_of[key], name) for key in pins.keys() & self._names_of.keys()}
            self._names_of.update(dict.fromkeys(pins, (name,)) | shared)

    def _changed_pins(self, wanted: Mapping[Dpid, RuleSet], installed: Mapping[Dpid, RuleSet]) -> set[FlowKey]:
        before, self._rules = (
            self._rules,
            {dpid: (rules.flows, installed[dpid].flows) for dpid, rules in wanted.items() if dpid in installed},
        )
        other: set[FlowKey] = set()
        for dpid in before.keys() | self._rules.keys():
            for old, new in zip(before.get(dpid, _NEITHER), self._rules.get(dpid, _NEITHER), strict=True):
                rules = chain.from_iterable(other_rules(old, new))
                other.update(rule.key for rule in rules if rule and rule.key.table == Table.PINNED)
        return other

    def _confirmed(
        self,
        known: _Pinned,
        look_at: Iterable[FlowKey],
        routes: Mapping[FlowId, Route],
        wanted: Mapping[Dpid, RuleSet],
        installed: Mapping[Dpid, RuleSet],
    ) -> Mapping[FlowId, Route]:
        """Return the job's routes whose pins are all confirmed.

        ``look_at``: keys of the pins that may have changed."""
        for key in look_at:
            at = self._hosts[known.pins[key].flow.src_ip].at.dpid
            confirmed = _is_confirmed(key, wanted.get(at), installed.get(at))
            (known.missing.discard if confirmed else known.missing.add)(key)
        missing = {flow for key in known.missing for flow in known.pins[key].flows}
        missing |= self._stale.keys() & known.paths.keys()
        whole = ((flow, paths, routes.get(flow)) for flow, paths in known.paths.items() if flow not in missing)
        return {flow: route for flow, paths, route in whole if route and _have_all_paths_of(paths, route)}


class _Pinned:
    """Pins of one job that lead over a path, by key, each confirmed or missing."""

    def __init__(self, pins: Mapping[FlowKey, Pin]) -> None:
        self.pins = pins
        self.paths: dict[FlowId, list[Path | None]] = {}
        """Paths of each flow, one for each pin."""
        for pin in pins.values():
            for flow in pin.flows:
                self.paths.setdefault(flow, []).append(pin.path)
        self.missing: set[FlowKey] = set()

    @property
    def held(self) -> int:
        return len(self.pins) - len(self.missing)


def _have_all_paths_of(paths: list[Path | None], route: Route) -> bool:
    """Return whether the pins of a flow, with these ``paths``, have every path of the route.

    Pins that lack a path belong to an earlier route of the flow: the pins of a large plan are derived in portions."""
    return len(paths) >= len(route) and all(path in paths for path, _ in route)


def _is_confirmed(key: FlowKey, wanted: RuleSet | None, installed: RuleSet | None) -> bool:
    """Return whether the switch holds the wanted pin with this key, and the pin leads over a path.

    ``wanted``, ``installed``: rules of the switch of the flow's source. The cookie is ignored, because it may still
    name the former job of the flow. The marking is ignored, because it does not change the path."""
    if wanted is None or installed is None:
        return False
    rule, held = wanted.flows.get(key), installed.flows.get(key)
    if rule is None or rule.goto is not None or held is None:
        return False
    ways = (held.actions[len(held.marking) :], rule.actions[len(rule.marking) :])
    return ways[0] == ways[1] and (held.goto, held.meter) == (rule.goto, rule.meter)


_NEITHER: tuple[_Flows, _Flows] = {}, {}


# ---- links of announced flows


def possible_links(fabric: Fabric, pins: Iterable[Pin], candidates: CandidatePaths) -> Uses:
    """Return all links that the packets of each pin may use, by the traffic that the rule of the pin counts.

    The links of the two hosts are included. A pinned flow uses its path. Without a pin, or after a failover, a flow may
    use all candidate paths."""
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
    """Yield disjoint sets of links, which together are the links of all candidate paths."""
    if candidates.distance(src, dst) == 2:
        yield from map(frozenset, candidates.ends(src, dst))
    else:
        yield frozenset(link for path in candidates.between(src, dst) for link in path)


class Uncounted:
    """Derivation of the pairs of hosts whose traffic no rule counts yet.

    The pairs of a new job are uncounted until the job has rules. Only changed jobs are examined, or all jobs if the set
    of counted pairs has changed."""

    def __init__(self) -> None:
        self._changed = ChangedKeys[JobId]()
        self._counted: Pairs = frozenset()
        self._of_job: dict[JobId, Pairs] = {}

    def __call__(
        self,
        jobs: Mapping[JobId, Job],
        missing: Mapping[JobId, tuple[str, ...]],
        orphans: tuple[Pin, ...],
        hosts: Mapping[str, Host],
        counted: Pairs,
    ) -> Pairs:
        changed, gone = self._changed(jobs, missing)
        if counted is not self._counted and counted != self._counted:
            self._counted, self._of_job = counted, {}
            changed = list(jobs)
        for job_id in chain(gone, changed):
            self._of_job.pop(job_id, None)
        for job_id in changed:
            left = (jobs[job_id].pairs | jobs[job_id].counted) - self._counted
            if job_id in missing:
                left = frozenset((src, dst) for src, dst in left if src in hosts and dst in hosts)
            if left:
                self._of_job[job_id] = left
        unclaimed = {pin.flow.pair for pin in orphans if hosts.keys() >= set(pin.flow.pair)} - self._counted
        return frozenset[tuple[str, str]](unclaimed).union(*self._of_job.values())


class CountedLinks:
    """Derivation of the links that the packets counted by each rule may use, by job.

    Links are determined again only for changed pins, pins of moved hosts, and pins whose packets may use changed
    links."""

    def __init__(self) -> None:
        self._hosts: Mapping[str, Host] = {}
        self._links: Mapping[LinkId, Link] = {}
        self._usable: Mapping[LinkId, Link] = {}
        self._pins: Mapping[str, tuple[Pin, ...]] = {}
        self._uses: UsesOf = {}

    def __call__(
        self, hosts: Mapping[str, Host], links: Mapping[LinkId, Link], pins: PinSet, paths: CandidatePaths
    ) -> UsesOf:
        before, self._pins = self._pins, pins.of
        again = self._pairs_with_other_links(hosts, links, paths.links)
        other = {name: was or () for name, was, _ in differing(before, pins.of)}
        fabric = Fabric(links=links, hosts=hosts)
        changes: dict[str, Uses | None] = {}
        for name in {**dict.fromkeys(again), **other}:
            of_name, pairs, uses = pins.of.get(name, ()), again.get(name, set()), dict(self._uses.get(name, NO_USES))
            if name in other:
                known = {id(pin) for pin in other[name]}
                same = [counted(pin.key) for pin in of_name if id(pin) in known]
                uses = {what: uses[what] for what in same if what}
                of_name = tuple(pin for pin in of_name if id(pin) not in known or pin.flow.pair in pairs)
            else:
                of_name = tuple(pin for pin in of_name if pin.flow.pair in pairs)
            uses |= possible_links(fabric, of_name, paths)
            changes[name] = uses or None
        self._uses = updated(self._uses, changes)
        return self._uses

    def _pairs_with_other_links(
        self, hosts: Mapping[str, Host], links: Mapping[LinkId, Link], usable: Mapping[LinkId, Link]
    ) -> dict[str, set[tuple[str, str]]]:
        """Return the pairs of hosts, by owner of their rules, for which links must be determined again.

        The packets of these pairs may use other links although the rules are the same, because links or the places of
        hosts have changed. Pairs without a pinned path are returned after any change of links."""
        places, self._hosts = differing(self._hosts, hosts), hosts
        moved = {ip for ip, was, now in places if was and now and was.at != now.at}
        changed = {link for link, *_ in chain(differing(self._links, links), differing(self._usable, usable))}
        self._links, self._usable = links, usable
        if not moved and not changed:
            return {}
        found = (
            (name, {what[:2] for what, sets in uses.items() if len(sets) > 1 or not changed.isdisjoint(sets[0])})
            for name, uses in self._uses.items()
        )
        again = {name: pairs for name, pairs in found if pairs}
        for name, uses in self._uses.items() if moved else ():
            if pairs := {what[:2] for what in uses if not moved.isdisjoint(what[:2])}:
                again[name] = again.get(name, set()) | pairs
        return again

    def is_quick(self, hosts: Mapping[str, Host], links: Mapping[LinkId, Link], usable: Mapping[LinkId, Link]) -> bool:
        """Return whether hosts and links are those of the last call, so that the next call is quick."""
        return hosts is self._hosts and links is self._links and usable is self._usable


class UncountedLinks:
    """Derivation of all links that the traffic of each uncounted pair of hosts may use.

    Results are remembered until hosts, links or paths change."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Uses] = {}
        self._of: tuple[object, ...] = ()

    def __call__(
        self, hosts: Mapping[str, Host], links: Mapping[LinkId, Link], uncounted: Pairs, paths: CandidatePaths
    ) -> Uses:
        if not all(a is b for a, b in zip_longest(self._of, (hosts, links, paths))):
            self._of, self._known = (hosts, links, paths), {}
        fabric, known = Fabric(links=links, hosts=hosts), self._known
        new = sorted(uncounted - known.keys())
        found = possible_links(fabric, (Pin(FlowId(*pair), 0, None) for pair in new), paths)
        self._known = {pair: known[pair] for pair in uncounted & known.keys()}
        self._known.update(zip(new, ({what: of} for what, of in found.items()), strict=True))
        return dict(chain.from_iterable(uses.items() for uses in self._known.values()))
