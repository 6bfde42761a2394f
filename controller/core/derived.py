"""What follows from what: one table.

A row is a function and the inputs that its value follows from, state (``s``) or other rows (``self``). Calling a row
gives its value. The function is called again only when one of the inputs has changed (``controller.memo``). Functions
that are objects (``Flows()``, ``Pins()`` …), and those of ``per_key`` and ``joined``, remember more finely, per job,
flow or switch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from controller.config import Config
from controller.core.alarms import (
    demand_alarm,
    host_alarm,
    part_alarm,
    subjects_told_apart,
    switch_alarms,
)
from controller.core.commits import published, unsaved
from controller.core.draining import Drained
from controller.core.extension import Extension
from controller.core.job_statuses import JobStatuses
from controller.core.missed_parts import (
    addresses,
    addresses_of_flows,
    count_without_path,
    drained_keys,
    excepted,
    if_down,
    if_switch,
    named_parts,
    not_awaited,
    saved_part,
    shared_names,
    switches_told_apart,
    unless_awaited,
)
from controller.core.state import State
from controller.fabric.background import background, planned_background
from controller.fabric.drains import (
    NOT_DRAINED,
    DrainedPart,
    drained_parts,
    excluded_links,
    forwarding_links,
    with_links,
    without,
)
from controller.fabric.islands import islands_beside_the_largest
from controller.fabric.parts import PartKey
from controller.fabric.recent_uses import NO_USES
from controller.fabric.shortest_paths import CandidatePaths
from controller.fabric.topology import Dpid, Fabric, Host, Link, LinkId, PortRef, Switch, leaves_of, ports_by_switch
from controller.jobs.demand import JobDemand, MeasuredJobs
from controller.jobs.job import Job
from controller.jobs.messages import Registration
from controller.memo import Index, Row, joined, per_key, when
from controller.planning.planned import Levels
from controller.planning.problem import (
    FlowId,
    Flows,
    Snapshot,
    capacities,
    flow_ids,
    missing_hosts,
)
from controller.tables.confirmed_routes import ConfirmedRoutes
from controller.tables.control_table import adopting_rules
from controller.tables.counted_links import CountedLinks, Uncounted, UncountedLinks
from controller.tables.default_table import Gateway
from controller.tables.pins import FlowsByLink, Pins, flows_on, lost_links
from controller.tables.pipeline import Pipeline, PipelineSettings
from controller.tables.rules import RuleSet
from controller.tables.unknown_hosts import KeepUnknown
from signalbox.jobs.collectives import VirtualLinks
from signalbox.jobs.spec import JobId

Value = TypeVar("Value")

NO_BACKGROUND: Mapping[LinkId, float] = {}


class Derived:
    """The table of derived values. Each attribute is a row, and is described where it is set."""

    def __init__(self, config: Config, s: State, extension: Extension) -> None:
        max_paths = config.planning.max_paths
        rate_pps = config.discovery.punt_rate_pps
        gateways = tuple(Gateway(str(gateway.ip), gateway.mac) for gateway in config.fabric.gateway)
        one_way = s.topology.settings.one_way
        one_way_at = ports_by_switch(one_way)
        pipeline = Pipeline(PipelineSettings(rate_pps, config.fabric.leaf_prefix_length, gateways, one_way_at))
        by_link, counted_links = FlowsByLink(), CountedLinks()
        pins = Pins(by_link)

        # ---- jobs

        self.jobs = Row(MeasuredJobs(), lambda: (s.jobs.jobs, s.demand.demands))
        """The accepted jobs, with the virtual links that they are planned for."""
        self.missing = Row(joined(addresses, _missing), lambda: (s.jobs.jobs, s.fabric.hosts))
        """Addresses of unknown hosts, of the jobs that name any."""
        self.ready = Row(per_key(_if_ready), lambda: (self.jobs(), self.missing(), extension.waiting()))
        """The jobs that can be planned."""
        self.waiting = Row(per_key(_flow_ids), lambda: (self.missing(), self.jobs()))
        """The flows of jobs that miss hosts."""
        self.flows = Row(Flows(), lambda: (self.ready(), s.fabric.hosts))
        """The flows to plan by job, without routes."""
        self.registrations = Row(per_key(_registration), lambda: (s.jobs.jobs,))
        """The registration of each job, to be saved."""
        self.measured = Row(per_key(_measured), lambda: (s.demand.demands,))
        """The measured virtual links of jobs that are planned for these, to be saved."""
        self.polled_soon = Row(leaves_of, lambda: (s.demand.soon, s.fabric.hosts))
        """The leaves whose counters say first what jobs send that are being learnt."""

        # ---- links: those that plans may use, and those that packets are sent over

        def is_drained() -> bool:
            return bool(s.drains.parts)

        self.drained_parts = when(
            is_drained, Row(drained_parts, lambda: (s.drains.parts, s.fabric, s.parts.parts)), lambda: NOT_DRAINED
        )
        """The drained parts by name, with their links and what is beside them."""
        self.excluded = Row(excluded_links, lambda: (self.drained_parts(), s.drains.waiting))
        """The drained links on which no flow is planned any more."""
        self.plannable = when(
            is_drained, Row(without, lambda: (s.fabric.links, self.excluded())), lambda: s.fabric.links
        )
        """All links but the excluded ones."""
        self.flows_by_link = Row(by_link, lambda: (s.routes.routes,))
        """The flows on each link that routes use."""
        self.drained_flows = Row(_drained_flows, lambda: (self.drained_parts(), self.flows_by_link(), self.waiting()))
        """The flows on each drained link, without those of jobs that miss hosts."""
        self.forwarding_links = Row(forwarding_links, lambda: (s.fabric.links, self.excluded(), self.drained_flows()))
        """All links but the excluded ones that no route uses."""
        self.forwarding = when(
            is_drained, Row(with_links, lambda: (s.fabric, self.forwarding_links())), lambda: s.fabric
        )
        """The fabric of the forwarding links, from which rules follow."""
        self.closed = Row(_closed, lambda: (one_way, extension.links))
        """One-way ports that lead nowhere now."""
        self.routed_lost_links = Row(lost_links, lambda: (self.flows_by_link(), s.fabric.links))
        """Lost links of routes."""

        # ---- the problem

        self.paths = Row(_paths, lambda: (self.plannable(), max_paths))
        """The candidate paths."""
        self.ports = Row(_ports, lambda: (s.fabric.switches,))
        """All ports of switches, whose counters count."""
        self.nominal_bps = Row(capacities, lambda: (s.fabric.links, s.fabric.hosts, NO_BACKGROUND))
        """The capacity of each link without background."""
        self.uncounted = Row(
            Uncounted(),
            lambda: (self.jobs(), self.missing(), s.routes.orphans, s.fabric.hosts, s.load.measured.counted),
        )
        """The announced flows that no rule counts yet."""
        self.uncounted_links = Row(
            UncountedLinks(), lambda: (s.fabric.hosts, s.fabric.links, self.uncounted(), self.paths())
        )
        """All links that each of them may use, pinned or not, as its bytes of a moment ago may have."""
        self.background = Row(
            background,
            lambda: (s.load.measured, self.uncounted_links() if s.load.beyond else NO_USES, s.fabric.hosts),
        )
        """The background of each link that has any, in bit/s."""
        self.planned_background = when(
            lambda: s.recent.held,
            Row(
                planned_background,
                lambda: (
                    self.background(),
                    s.recent.held,
                    s.recent.left,
                    self.flows_by_link(),
                    self.uncounted_links(),
                ),
            ),
            self.background,
        )
        """The background with what links carried until lately."""
        self.capacity_bps = Row(capacities, lambda: (self.plannable(), s.fabric.hosts, self.planned_background()))
        """The capacity of each link for announced traffic."""
        self.snapshot = Row(
            Snapshot,
            lambda: (
                s.cycle.generation + 1,
                self.capacity_bps(),
                self.paths(),
                self.flows(),
                s.routes.routes,
                self.excluded(),
            ),
        )
        """What the problem of the next planning cycle is made of."""

        # ---- rules

        self.with_rules = Row(
            per_key(_if_any_host), lambda: (self.jobs(), self.missing(), dict.fromkeys(s.cycle.unplanned, True))
        )
        """The jobs that have rules: some host of theirs is known, and their first plan is not about to come."""
        self.pins = Row(
            pins, lambda: (self.forwarding(), self.with_rules(), s.routes.routes, s.routes.orphans, pins.turn)
        )
        """The pins of all flows whose turn has come."""
        self.pins_due: Callable[[], bool] = lambda: pins.due
        """Whether some jobs wait for their turn, which comes with ``next_pins``."""
        self.next_pins: Callable[[], None] = pins.next_turn
        self.rules = Row(
            pipeline.desired, lambda: (s.fabric, self.pins(), s.sync.installed, self.forwarding(), self.closed())
        )
        """The rules that every switch should hold."""
        self.rules_and_unknown = Row(
            KeepUnknown(gateways), lambda: (s.fabric.hosts, self.rules(), s.sync.installed, self.closed())
        )
        """The same with the installed rules that lead to unknown hosts."""
        self.adopting_rules = Row(_adopting_rules, lambda: (s.fabric, s.sync.installed, rate_pps, one_way_at))
        """The rules that every switch should hold while what switches hold is adopted."""
        self.counted_links = Row(counted_links, lambda: (s.fabric.hosts, s.fabric.links, self.pins(), self.paths()))
        """The links that the packets of each rule that counts may use."""
        self.follows_uses: Callable[[], bool] = lambda: counted_links.follows(
            s.fabric.hosts, s.fabric.links, self.plannable()
        )
        """Whether ``counted_links`` looks at nothing but other pins now, which takes little time."""
        self.confirmed = Row(
            ConfirmedRoutes(),
            lambda: (s.fabric.hosts, s.routes.routes, s.wanted.pins, s.wanted.rules, s.sync.installed),
        )
        """The wanted pins and routes that switches hold."""
        self.levels = Row(_in_force, lambda: (s.cycle.levels, s.wanted.pins.fallen | s.cycle.unplanned))
        """The levels of the planned jobs all of whose routes stand."""

        # ---- published of jobs, as they are on disk (``core/commits.py``)

        self.unsaved = Row(unsaved, lambda: (s.commits.on_disk.jobs, self.registrations(), s.jobs.ends))
        """The jobs whose latest change is not on disk."""
        self.published_jobs = Row(published, lambda: (self.jobs(), s.commits.known.jobs, self.unsaved()))
        """The jobs as before changes that are not on disk."""
        self.published_demands = Row(published, lambda: (s.demand.demands, s.commits.known.demands, self.unsaved()))
        """Their measured demands."""
        self.published_missing = Row(joined(addresses, _missing), lambda: (self.published_jobs(), s.fabric.hosts))
        """Addresses of unknown hosts, of those of them that name any."""
        self.published_waiting: Callable[[], Mapping[JobId, str]] = lambda: extension.waiting_as_published(
            self.published_jobs()
        )
        """Why the extension lets some of them wait."""
        self.islands = Row(islands_beside_the_largest, lambda: (s.fabric.switches, self.plannable(), s.fabric.hosts))
        """The hosts that cannot reach most others."""
        self.parted = Row(
            joined(addresses_of_flows, count_without_path),
            lambda: (self.published_jobs(), s.fabric.hosts, self.islands()),
        )
        """How many flows have no path, of the jobs that have any such."""
        self.without_path = Row(_without, lambda: (self.parted(), frozenset(self.published_waiting())))
        """The same without jobs that wait for the extension."""
        self.job_statuses = Row(
            JobStatuses(),
            lambda: (
                self.published_jobs(),
                self.published_missing(),
                self.without_path(),
                s.fabric.hosts,
                s.sending.routes,
                s.sending.generation,
                self.levels(),
                self.published_waiting(),
            ),
        )
        """The published status of each job."""
        self.demand_alarms = Row(per_key(demand_alarm), lambda: (self.published_demands(),))
        """The alarms of jobs that contradict their announcement."""
        self.missed = Row(not_awaited, lambda: (self.published_missing(), s.parts.awaited))
        """Addresses of hosts that jobs miss and that had the time to come since the start."""
        self.host_alarms = Row(per_key(host_alarm), lambda: (self.missed(),))
        """The alarms of jobs that miss these."""
        self.cut_off = Row(unless_awaited, lambda: (self.without_path(), s.parts.awaited))
        """How many flows have no path, once all parts had the time to come since the start."""

        # ---- published of the fabric

        self.named_hosts = Row(
            Index[JobId, Job, PartKey](named_parts, s.parts.declared_hosts), lambda: (self.published_jobs(),)
        )
        """The hosts that jobs or the inventory file name, with these jobs."""
        self.saved_parts = Row(per_key(saved_part), lambda: (s.parts.parts, self.named_hosts()))
        """The parts of the fabric that a restart should know."""
        self.known_switches = Row(per_key(if_switch), lambda: (s.parts.parts,))
        """The switches that are remembered."""
        self.down_parts = Row(per_key(if_down), lambda: (s.parts.parts,))
        """The parts that are down."""
        self.drained_keys = Row(drained_keys, lambda: (s.drains.parts, self.down_parts()))
        """The drained switches, and the cables that are down and drained."""
        self.excepted = Row(
            excepted,
            lambda: (s.parts.explained, tuple(s.refusals.taken), self.drained_keys(), self.down_parts()),
        )
        """The parts that raise no alarm when they are down."""
        self.part_alarms = Row(per_key(part_alarm), lambda: (self.down_parts(), self.excepted(), self.named_hosts()))
        """The alarms of cables and hosts that are down."""
        self.switch_alarms = Row(
            switch_alarms, lambda: (self.down_parts(), self.excepted(), s.parts.known_switches, s.parts.roles)
        )
        """The alarms of switches that are down."""
        self.shared_names = Row(shared_names, lambda: (self.known_switches(), s.fabric.switches))
        """The names that several switches have."""
        self.fabric_told_apart = Row(switches_told_apart, lambda: (s.fabric, self.shared_names()))
        """The fabric with another name for each switch."""
        self.part_alarms_told_apart = Row(subjects_told_apart, lambda: (self.part_alarms(), self.shared_names()))
        self.switch_alarms_told_apart = Row(subjects_told_apart, lambda: (self.switch_alarms(), self.shared_names()))
        """The alarms with another subject for each part."""

        self.what_is_drained: Callable[[], Drained] = lambda: Drained(
            self.drained_parts(), self.drained_flows(), s.drains.waiting
        )
        """What is drained, and the flows there."""


def _missing(job: Job, hosts: Mapping[str, Host]) -> tuple[str, ...] | None:
    return missing_hosts(hosts, job.addresses) or None


def _if_ready(_: JobId, job: Job, missing: tuple[str, ...] | None, waiting: str | None) -> Job | None:
    return None if missing or waiting else job


def _flow_ids(_: JobId, __: tuple[str, ...], job: Job | None) -> frozenset[FlowId]:
    found = (flow_ids(job.dividing, pair) for pair in job.pairs) if job else ()
    return frozenset(chain.from_iterable(found))


def _if_any_host(_: JobId, job: Job, missing: tuple[str, ...] | None, unplanned: bool | None) -> Job | None:
    return None if unplanned or (missing and len(missing) == len(job.addresses)) else job


def _drained_flows(
    parts: Mapping[str, DrainedPart],
    on: Mapping[LinkId, frozenset[FlowId]],
    waiting: Mapping[JobId, frozenset[FlowId]],
) -> Mapping[LinkId, frozenset[FlowId]]:
    return flows_on(frozenset[LinkId]().union(*(part.links for part in parts.values())), on, waiting)


def _closed(one_way: frozenset[PortRef], links: Mapping[PortRef, PortRef]) -> frozenset[PortRef]:
    return one_way - links.keys()


def _registration(_: JobId, job: Job) -> Registration:
    return job.registration


def _measured(_: JobId, demand: JobDemand) -> VirtualLinks | None:
    return demand.held


def _without(of_job: Mapping[JobId, Value], jobs: frozenset[JobId]) -> Mapping[JobId, Value]:
    return {job_id: value for job_id, value in of_job.items() if job_id not in jobs} if jobs else of_job


def _in_force(levels: Levels, others: frozenset[JobId]) -> Levels:
    of_job, of_phase = _without(levels.of_job, others), _without(levels.of_phase, others)
    return replace(levels, of_job=of_job, of_phase=of_phase)


def _ports(switches: Mapping[Dpid, Switch]) -> frozenset[PortRef]:
    return frozenset(PortRef(dpid, port) for dpid, switch in switches.items() for port in switch.ports)


def _paths(links: Mapping[LinkId, Link], max_paths: int) -> CandidatePaths:
    return CandidatePaths(Fabric(links=links), max_paths)


def _adopting_rules(
    fabric: Fabric, installed: Mapping[Dpid, RuleSet], rate_pps: int, one_way: Mapping[Dpid, object]
) -> Mapping[Dpid, RuleSet]:
    return {
        dpid: adopting_rules(fabric.switches[dpid], held, rate_pps, dpid in one_way) for dpid, held in installed.items()
    }
