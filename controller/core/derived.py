"""What follows from what: one table.

A row is a function and the inputs that its value follows from, state (``s``) or other rows (``self``). Calling a row
gives its value. The function is called again only when one of the inputs has changed (``controller.memo``); functions
that are objects (``Flows()``, ``Pins()`` …) remember more finely, per job, flow or switch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from controller.alarms import Alarm
from controller.config import Config
from controller.core.counted_links import CountedLinks, Uncounted, UncountedLinks
from controller.core.draining import Drained
from controller.core.extension import Extension
from controller.core.missed_parts import (
    NamedHosts,
    drained_keys,
    excepted,
    if_cable,
    if_down,
    if_switch,
    part_alarm,
    saved_part,
    shared_names,
    subjects_told_apart,
    switch_alarms,
    switches_told_apart,
)
from controller.core.raised_alarms import demand_alarm, host_alarm, raised_alarms
from controller.core.sending import ConfirmedRoutes
from controller.core.state import State
from controller.core.status_and_alarms import AlarmTimes, JobStatuses, status
from controller.core.told import Unsaved, told, told_missing
from controller.core.unserved import WithoutPath, not_awaited, unless_awaited
from controller.fabric.background import background, planned_background
from controller.fabric.drains import (
    all_links,
    avoided,
    emptied,
    hosts_of_parts,
    links_of_parts,
    senders,
    with_links,
    without,
)
from controller.fabric.islands import islands_beside_the_largest
from controller.fabric.recent_uses import NO_USES
from controller.fabric.shortest_paths import CandidatePaths
from controller.fabric.topology import Dpid, Fabric, Host, Link, LinkId, PortRef, Switch, leaves_of, ports_by_switch
from controller.jobs.demand import JobDemand, MeasuredJobs
from controller.jobs.job import Job
from controller.jobs.messages import Registration
from controller.memo import ChangedKeys, Row, per_key
from controller.planning.problem import (
    FlowId,
    Flows,
    FlowsOf,
    Routes,
    Snapshot,
    capacities,
    flow_ids,
    missing_hosts,
)
from controller.shared_map import SharedMap, updated
from controller.status import DrainStatus, Status
from controller.tables.control_table import adopting_rules
from controller.tables.default_table import Gateway
from controller.tables.flows_by_link import FlowsByLink, flows_on, lost_links
from controller.tables.pins import Pins
from controller.tables.pipeline import Pipeline, PipelineSettings
from controller.tables.rules import RuleSet
from controller.tables.unknown_hosts import KeepUnknown
from signalbox.jobs.collectives import VirtualLinks
from signalbox.jobs.spec import JobId

Value = TypeVar("Value")

NO_BACKGROUND: Mapping[LinkId, float] = {}


class Derived:
    """The table. ``jobs``: the accepted ones, with the virtual links that they are planned for. ``missing``: of the
    jobs that have any, the addresses of hosts that are not known. ``ready``: the jobs without any. ``with_rules``: the
    jobs that have rules: of the others no host is known, or the first plan is about to come. ``uncounted``: the
    announced flows that are not counted yet; ``uncounted_links``: with all links that each may use, pinned or not, as
    its bytes of a moment ago may have.
    ``drained``, and by part ``drained_parts``: links that operators have taken out of use; ``avoided``: those on which
    no flow is planned any more, ``usable``: all but these; ``emptied``: those that no route uses, ``carrying``: the
    fabric without them, on which rules are derived. ``waiting``: the flows of jobs that miss hosts. ``drained_flows``:
    on each of the drained links that has any; without these: they are hashed when no others are left there. ``cables``:
    all that are remembered; ``senders``, ``drained_hosts``: that ``what_is_drained`` has of each part. ``background``:
    of every link that has any; ``planned_background``: with what links carried until lately.
    ``rules``: what every switch should hold; ``rules_and_unknown``: with the installed
    rules that lead to unknown hosts; ``adopting_rules``: while what switches hold is adopted. ``pins_due``: some jobs
    wait for their turn, which comes with ``next_pins``. ``counted_links``: per rule that counts the links that its
    packets may use; ``follows_uses``: it costs only what other pins there are. ``confirmed``: the pins and routes that
    switches hold of those that are wanted. ``routed_lost_links``: lost links of routes. ``levels``, ``phase_levels``:
    of the jobs all of whose running routes stand (``tables.pins``), and that have been planned. ``islands``: hosts that
    cannot reach most others. ``without_path``: flows for which that means that they have no path, of the jobs that have
    any. ``missed``, ``cut_off``: of ``missing`` and ``without_path`` what raises alarms: not what may be due to parts
    that have had no time to come since the start. ``named_hosts``: those that jobs or the inventory file name.
    ``saved_parts``: parts of the fabric that a restart should know; ``drained_keys``: those that are drained;
    ``excepted``: those that raise no alarm when they are down (``core.missed_parts``). ``shared_names``: those that
    several switches have; ``told_fabric``, ``told_part_alarms``, ``told_switch_alarms``: with dpids behind these.
    ``unsaved``: the jobs whose latest change is not on disk; ``told_jobs``, ``told_demands``, ``told_missing``: of
    those as before it (``core.told``). ``alarms`` are without their times; ``status`` takes them dated, and whether
    rules are to be derived anew."""

    def __init__(self, config: Config, s: State, extension: Extension) -> None:
        max_paths = config.planning.max_paths
        rate_pps = config.discovery.punt_rate_pps
        gateways = tuple(Gateway(str(gateway.ip), gateway.mac) for gateway in config.fabric.gateway)
        one_way = s.topology.settings.one_way
        one_way_at = ports_by_switch(one_way)
        pipeline = Pipeline(PipelineSettings(rate_pps, config.fabric.leaf_prefix_length, gateways, one_way_at))

        # fmt: off
        # value                     function             what it follows from
        self.jobs = Row(            MeasuredJobs(),      lambda: (s.jobs.jobs, s.demand.demands))
        self.missing = Row(         MissingHosts(),      lambda: (s.jobs.jobs, s.fabric.hosts))
        self.ready = Row(           per_key(_if_ready),  lambda: (self.jobs(), self.missing(), extension.waiting()))
        self.with_rules = Row(      WithRules(),         lambda: (self.jobs(), self.missing(), s.cycle.unplanned))
        self.ports = Row(           _ports,              lambda: (s.fabric.switches,))
        self.drained_parts = Row(   links_of_parts,      lambda: (s.drains.parts, s.fabric.links))
        self.drained = Row(         all_links,          lambda: (self.drained_parts(),))
        self.avoided = Row(         avoided,            lambda: (self.drained(), s.drains.waiting))
        by_link = FlowsByLink()
        self.flows_by_link = Row(   by_link,             lambda: (s.routes.routes,))
        self.waiting = Row(         per_key(_flow_ids),  lambda: (self.missing(), self.jobs()))
        self.drained_flows = Row(   flows_on,            lambda: (self.drained(), self.flows_by_link(),
                                                                  self.waiting()))
        self.cables = Row(          per_key(if_cable),   lambda: (s.parts.parts,))
        self.senders = Row(         senders,             lambda: (s.drains.parts, self.cables(), s.fabric))
        self.drained_hosts = Row(   hosts_of_parts,      lambda: (s.drains.parts, s.fabric))
        self.usable = Row(          without,             lambda: (s.fabric.links, self.avoided()))
        self.emptied = Row(         emptied,            lambda: (s.fabric.links, self.avoided(), self.drained_flows()))
        self.carrying_links = Row(  without,             lambda: (s.fabric.links, self.emptied()))
        self.carrying = Row(        with_links,         lambda: (s.fabric, self.carrying_links()))
        self.paths = Row(           _paths,              lambda: (self.usable(), max_paths))
        self.nominal_bps = Row(     capacities,          lambda: (s.fabric.links, s.fabric.hosts, NO_BACKGROUND))
        self.uncounted = Row(       Uncounted(),         lambda: (self.jobs(), self.missing(), s.routes.orphans,
                                                                  s.fabric.hosts, s.load.measured.counted))
        self.uncounted_links = Row( UncountedLinks(),    lambda: (s.fabric.hosts, s.fabric.links, self.uncounted(),
                                                                  self.paths()))
        self.background = Row(      background,          lambda: (s.load.measured,
                                                                  self.uncounted_links() if s.load.beyond else NO_USES,
                                                                  s.fabric.hosts))
        self.planned_background = Row(planned_background, lambda: (self.background(), s.recent.held, s.recent.left,
                                                                  self.flows_by_link(),
                                                                  self.uncounted_links() if s.recent.held else NO_USES))
        self.capacity_bps = Row(    capacities,          lambda: (self.usable(), s.fabric.hosts,
                                                                  self.planned_background()))
        self.flows = Row(           Flows(),             lambda: (self.ready(), s.fabric.hosts))
        self.snapshot = Row(        _snapshot,           lambda: (s.cycle.generation, self.capacity_bps(), self.paths(),
                                                                  self.flows(), s.routes.routes, self.avoided()))
        pins, counted_links = Pins(by_link), CountedLinks()
        self.pins = Row(            pins,                lambda: (self.carrying(), self.with_rules(), s.routes.routes,
                                                                  s.routes.orphans, pins.turn))
        self.pins_due: Callable[[], bool] = lambda: pins.due
        self.next_pins: Callable[[], None] = pins.next_turn
        self.closed = Row(          _closed,             lambda: (one_way, extension.links))
        self.rules = Row(           pipeline.desired,    lambda: (s.fabric, self.pins(), s.sync.installed,
                                                                  self.carrying(), self.closed()))
        keep_unknown = KeepUnknown(gateways)
        self.rules_and_unknown = Row(keep_unknown,       lambda: (s.fabric.hosts, self.rules(), s.sync.installed,
                                                                  self.closed()))
        self.adopting_rules = Row(  _adopting_rules,     lambda: (s.fabric, s.sync.installed, rate_pps,
                                                                  one_way_at))
        self.counted_links = Row(   counted_links,       lambda: (s.fabric.hosts, s.fabric.links, self.pins(),
                                                                  self.paths()))
        self.confirmed = Row(       ConfirmedRoutes(),   lambda: (s.fabric.hosts, s.routes.routes, s.wanted.pins,
                                                                  s.wanted.rules, s.sync.installed))
        self.routed_lost_links = Row(lost_links,         lambda: (self.flows_by_link(), s.fabric.links))
        self.levels = Row(          _without,            lambda: (s.cycle.levels,
                                                                  s.wanted.pins.fallen | s.cycle.unplanned))
        self.phase_levels = Row(    _without,            lambda: (s.cycle.phase_levels,
                                                                  s.wanted.pins.fallen | s.cycle.unplanned))
        self.polled_soon = Row(     leaves_of,           lambda: (s.demand.soon, s.fabric.hosts))
        self.registrations = Row(   per_key(_registration), lambda: (s.jobs.jobs,))
        self.measured = Row(        per_key(_measured),  lambda: (s.demand.demands,))
        self.unsaved = Row(         Unsaved(s.jobs.ends), lambda: (s.commits.on_disk.jobs, self.registrations()))
        self.told_jobs = Row(       told,                lambda: (self.jobs(), s.commits.known.jobs, self.unsaved()))
        self.told_demands = Row(    told,                lambda: (s.demand.demands, s.commits.known.demands,
                                                                  self.unsaved()))
        self.told_missing = Row(    told_missing,        lambda: (self.missing(), self.told_jobs(), self.unsaved(),
                                                                  s.fabric.hosts))
        self.islands = Row(         islands_beside_the_largest, lambda: (s.fabric.switches, self.usable(),
                                                                  s.fabric.hosts))
        self.parted = Row(          WithoutPath(),       lambda: (self.told_jobs(), s.fabric.hosts, self.islands()))
        self.told_waiting: Callable[[], Mapping[JobId, str]] = lambda: extension.waiting_as_told(self.told_jobs())
        self.without_path = Row(    _without,            lambda: (self.parted(), frozenset(self.told_waiting())))
        self.job_statuses = Row(    JobStatuses(),       lambda: (self.told_jobs(), self.told_missing(),
                                                                  self.without_path(), s.fabric.hosts,
                                                                  s.sending.routes, s.sending.generation,
                                                                  self.levels(), self.phase_levels(),
                                                                  s.cycle.outweighed, self.told_waiting()))
        self.demand_alarms = Row(   per_key(demand_alarm), lambda: (self.told_demands(),))
        self.missed = Row(          not_awaited,         lambda: (self.told_missing(), s.parts.awaited))
        self.host_alarms = Row(     per_key(host_alarm), lambda: (self.missed(),))
        self.cut_off = Row(         unless_awaited,      lambda: (self.without_path(), s.parts.awaited))
        self.named_hosts = Row(     NamedHosts(s.parts.declared_hosts), lambda: (self.told_jobs(),))
        self.saved_parts = Row(     per_key(saved_part), lambda: (s.parts.parts, self.named_hosts()))
        self.down_parts = Row(      per_key(if_down),    lambda: (s.parts.parts,))
        self.down_switches = Row(   per_key(if_switch),  lambda: (self.down_parts(),))
        self.drained_keys = Row(    drained_keys,        lambda: (s.drains.parts, self.down_parts()))
        self.excepted = Row(        excepted,            lambda: (s.parts.explained, tuple(s.refusals.taken),
                                                                  self.drained_keys(), self.down_parts()))
        self.part_alarms = Row(     per_key(part_alarm), lambda: (self.down_parts(), self.excepted(),
                                                                  self.named_hosts()))
        self.switch_alarms = Row(   switch_alarms,       lambda: (self.down_switches(), self.excepted(),
                                                                  s.known_switches, s.parts.roles))
        self.known_switches = Row(  per_key(if_switch),  lambda: (s.parts.parts,))
        self.shared_names = Row(    shared_names,        lambda: (self.known_switches(), s.fabric.switches))
        self.told_fabric = Row(     switches_told_apart, lambda: (s.fabric, self.shared_names()))
        self.told_part_alarms = Row(subjects_told_apart, lambda: (self.part_alarms(), self.shared_names()))
        self.told_switch_alarms = Row(subjects_told_apart, lambda: (self.switch_alarms(), self.shared_names()))
        # fmt: on
        self.follows_uses: Callable[[], bool] = lambda: counted_links.follows(
            s.fabric.hosts, s.fabric.links, self.usable()
        )
        # Not kept: what they follow from changes all the time.
        self.alarms: Callable[[float], Sequence[Mapping[Any, Alarm]]] = lambda now: (
            {
                alarm.key: alarm
                for alarm in (
                    *raised_alarms(s, self.told_fabric(), self.cut_off(), now),
                    *extension.alarms(self.told_fabric()),
                )
            },
            self.demand_alarms(),
            self.host_alarms(),
            self.told_part_alarms(),
            self.told_switch_alarms(),
        )
        self.what_is_drained: Callable[[], Drained] = lambda: Drained(
            s.drains.parts,
            self.drained_parts(),
            self.senders(),
            self.drained_hosts(),
            self.drained_flows(),
            s.drains.waiting,
        )
        self.drain_statuses: Callable[[], Mapping[str, DrainStatus]] = lambda: (
            s.draining.statuses(self.what_is_drained(), s.fabric, s.parts.parts, self.down_parts().keys())
            if s.drains.parts
            else {}
        )
        self.status: Callable[[AlarmTimes, bool], Status] = lambda alarm_times, rules_due: status(
            s,
            self.jobs() if rules_due else s.wanted.jobs,
            self.job_statuses(),
            self.told_demands(),
            self.background(),
            alarm_times.alarms,
            alarm_times.before,
            self.drain_statuses(),
            self.drained() | self.drained_keys(),
            self.down_parts(),
            self.named_hosts(),
            extension.status(),
        )


class MissingHosts:
    """Derives the addresses of hosts that are not known, of the jobs that have any; another mapping when they change.
    Looks at jobs that have changed, and at those whose hosts come and go."""

    def __init__(self) -> None:
        self._changed = ChangedKeys[JobId]()
        self._hosts: Mapping[str, Host] = {}
        self._missing: Mapping[JobId, tuple[str, ...]] = SharedMap()
        self._waiting: defaultdict[str, set[JobId]] = defaultdict(set)

    def __call__(self, jobs: Mapping[JobId, Job], hosts: Mapping[str, Host]) -> Mapping[JobId, tuple[str, ...]]:
        looked_at = set(chain.from_iterable(self._changed(jobs)))
        if hosts is not self._hosts:
            gone, come = self._hosts.keys() - hosts.keys(), hosts.keys() - self._hosts.keys()
            looked_at |= {job_id for ip in come & self._waiting.keys() for job_id in self._waiting[ip]}
            if gone:
                looked_at |= {job_id for job_id, job in jobs.items() if not gone.isdisjoint(job.addresses)}
            self._hosts = hosts
        found = {job_id: missing_hosts(hosts, jobs[job_id].addresses) if job_id in jobs else () for job_id in looked_at}
        changed = {job_id: ips for job_id, ips in found.items() if ips != self._missing.get(job_id, ())}
        for job_id, ips in changed.items():
            self._wait_for(job_id, ips)
        self._missing = updated(self._missing, {job_id: ips or None for job_id, ips in changed.items()})
        return self._missing

    def _wait_for(self, job_id: JobId, ips: tuple[str, ...]) -> None:
        for ip in self._missing.get(job_id, ()):
            self._waiting[ip].discard(job_id)
            if not self._waiting[ip]:
                del self._waiting[ip]
        for ip in ips:
            self._waiting[ip].add(job_id)


def _if_ready(_: JobId, job: Job, missing: tuple[str, ...] | None, waiting: str | None) -> Job | None:
    return None if missing or waiting else job


def _flow_ids(_: JobId, __: tuple[str, ...], job: Job | None) -> frozenset[FlowId]:
    found = (flow_ids(job.dividing, pair) for pair in job.pairs) if job else ()
    return frozenset(chain.from_iterable(found))


class WithRules:
    """Derives the jobs that have rules."""

    def __init__(self) -> None:
        self._of_job = per_key(_if_any_host)

    def __call__(
        self, jobs: Mapping[JobId, Job], missing: Mapping[JobId, tuple[str, ...]], unplanned: frozenset[JobId]
    ) -> Mapping[JobId, Job]:
        return self._of_job(jobs, missing, dict.fromkeys(unplanned, True))


def _if_any_host(_: JobId, job: Job, missing: tuple[str, ...] | None, unplanned: bool | None) -> Job | None:
    return None if unplanned or (missing and len(missing) == len(job.addresses)) else job


def _closed(one_way: frozenset[PortRef], links: Mapping[PortRef, PortRef]) -> frozenset[PortRef]:
    """One-way ports that may lead nowhere now."""
    return one_way - links.keys()


def _registration(_: JobId, job: Job) -> Registration:
    return job.registration


def _measured(_: JobId, demand: JobDemand) -> VirtualLinks | None:
    """What was measured of the job, if it is planned for that."""
    return demand.held


def _without(of_job: Mapping[JobId, Value], jobs: frozenset[JobId]) -> Mapping[JobId, Value]:
    return {job_id: value for job_id, value in of_job.items() if job_id not in jobs} if jobs else of_job


def _ports(switches: Mapping[Dpid, Switch]) -> frozenset[PortRef]:
    return frozenset(PortRef(dpid, port) for dpid, switch in switches.items() for port in switch.ports)


def _snapshot(
    cycles: int,
    capacity_bps: Mapping[LinkId, float],
    paths: CandidatePaths,
    flows: FlowsOf,
    routes: Routes,
    drained: frozenset[LinkId],
) -> Snapshot:
    """The next cycle's."""
    return Snapshot(cycles + 1, capacity_bps, paths, flows, routes, drained)


def _paths(links: Mapping[LinkId, Link], max_paths: int) -> CandidatePaths:
    return CandidatePaths(Fabric(links=links), max_paths)


def _adopting_rules(
    fabric: Fabric, installed: Mapping[Dpid, RuleSet], rate_pps: int, one_way: Mapping[Dpid, object]
) -> Mapping[Dpid, RuleSet]:
    return {
        dpid: adopting_rules(fabric.switches[dpid], held, rate_pps, dpid in one_way) for dpid, held in installed.items()
    }
