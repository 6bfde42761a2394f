"""Table of derived values. A row is a function and its inputs: state (``s``) or other rows (``self``).

Calling a row returns its value, which is computed again only when an input has changed (``controller.shared_map``).
Some functions (``Flows()``, ``Pins()`` …, ``per_key`` and ``joined``) also keep results per job, flow or switch.

A flow *without a path* is one whose hosts the fabric does not connect. Shortly after a start, parts that may still
appear are not reported as missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from controller.config import Config
from controller.core.alarms import demand_alarm, host_alarm, part_alarm, subjects_with_unique_names, switch_alarms
from controller.core.draining import Drained
from controller.core.job_statuses import JobStatuses
from controller.core.messages import Extension
from controller.core.state import State, published, unsaved
from controller.demand.measured_demand import MeasuredJobs
from controller.fabric.counter_samples import NO_USES
from controller.fabric.drains import (
    NOT_DRAINED,
    Drain,
    DrainedPart,
    drained_parts,
    excluded_links,
    forwarding_links,
    with_links,
    without,
)
from controller.fabric.link_load import background, planned_background
from controller.fabric.parts import Part, PartKey, PartKind, host_key, switch_key, unique_name
from controller.fabric.topology import (
    CandidatePaths,
    Dpid,
    Fabric,
    Host,
    Islands,
    LinkId,
    PortRef,
    Switch,
    connected,
    islands_beside_the_largest,
    leaves_of,
    ports_by_switch,
)
from controller.jobs.job import Job
from controller.planning.plan import Slowdowns
from controller.planning.problem import FlowId, flow_ids
from controller.planning.snapshot import Flows, Snapshot, capacities, missing_hosts
from controller.shared_map import Index, Row, joined, per_key, updated, when
from controller.tables.flow_tables import Gateway, adopting_rules
from controller.tables.pins import FlowsByLink, Pins, flows_on, lost_links
from controller.tables.pipeline import KeepUnknown, Pipeline, PipelineSettings
from controller.tables.rules import RuleSet
from controller.tables.running_routes import ConfirmedRoutes, CountedLinks, Uncounted, UncountedLinks
from signalbox.jobs.spec import JobId

Value = TypeVar("Value")

NO_BACKGROUND: Mapping[LinkId, float] = {}


class Derived:
    """Rows of the table; each attribute is a row and is documented where it is set."""

    def __init__(self, config: Config, s: State, extension: Extension) -> None:
        max_paths = config.planning.max_paths
        rate_pps = config.discovery.punt_rate_pps
        gateways = tuple(Gateway(gateway.ip, gateway.mac) for gateway in config.fabric.gateway)
        one_way = s.topology.settings.one_way
        one_way_at = ports_by_switch(one_way)
        pipeline = Pipeline(PipelineSettings(rate_pps, config.fabric.leaf_prefix_length, gateways, one_way_at))
        by_link, counted_links = FlowsByLink(), CountedLinks()
        pins, routes = Pins(by_link), s.routes

        # ---- jobs

        self.jobs = Row(MeasuredJobs(), lambda: (s.jobs.jobs, s.demand.demands))
        """Accepted jobs, with the virtual links that the planner uses for them."""
        self.missing = Row(joined(lambda job: job.addresses, _missing), lambda: (s.jobs.jobs, s.fabric.hosts))
        """Addresses of the unknown hosts of each job; a job without unknown hosts has no entry."""
        self.ready = Row(per_key(_if_ready), lambda: (self.jobs(), self.missing(), extension.waiting()))
        """Jobs that can be planned: all their hosts are known, and the extension does not make them wait."""
        self.waiting = Row(per_key(_flow_ids), lambda: (self.missing(), self.jobs()))
        """Flows of jobs that wait for unknown hosts."""
        self.flows = Row(Flows(config.planning.objective), lambda: (self.ready(), s.fabric.hosts))
        """Flows to plan, by job. Their routes are not part of this value."""
        self.registrations = Row(per_key(lambda _, job: job.registration), lambda: (s.jobs.jobs,))
        """Registration of each job, to be saved."""
        self.measured = Row(per_key(lambda _, demand: demand.held), lambda: (s.demand.demands,))
        """Measured virtual links, to be saved, of each job that is planned with measured virtual links."""
        self.polled_soon = Row(leaves_of, lambda: (s.demand.soon, s.fabric.hosts))
        """Leaf switches whose counters are read more often, because jobs on their hosts are being learnt."""

        # ---- links that plans may use, and links that packets are sent over

        def is_drained() -> bool:
            return bool(s.drains.parts)

        self.drained_parts = when(
            is_drained, Row(drained_parts, lambda: (s.drains.parts, s.fabric, s.parts.parts)), lambda: NOT_DRAINED
        )
        """Drained parts by name, with their links, the ports that send to them, and their hosts."""
        self.excluded = Row(excluded_links, lambda: (self.drained_parts(), s.drains.waiting))
        """Drained links over which the planner may not route flows any more."""
        self.plannable = when(
            is_drained, Row(without, lambda: (s.fabric.links, self.excluded())), lambda: s.fabric.links
        )
        """All links except the excluded ones."""
        self.flows_by_link = Row(by_link, lambda: (s.routes.routes,))
        """Flows on each link, by the running routes."""
        self.drained_flows = Row(_drained_flows, lambda: (self.drained_parts(), self.flows_by_link(), self.waiting()))
        """Flows on each drained link, except flows of jobs that wait for unknown hosts."""
        self.forwarding_links = Row(forwarding_links, lambda: (s.fabric.links, self.excluded(), self.drained_flows()))
        """All links, except excluded links that no route uses."""
        self.forwarding = when(
            is_drained, Row(with_links, lambda: (s.fabric, self.forwarding_links())), lambda: s.fabric
        )
        """Fabric of the forwarding links, from which rules are derived."""
        self.closed = Row(lambda links: one_way - links.keys(), lambda: (extension.links,))
        """All one-way ports that the extension connects to no other port at the moment."""
        self.routed_lost_links = Row(lost_links, lambda: (self.flows_by_link(), s.fabric.links))
        """Lost links that running routes use."""

        # ---- the problem

        self.paths = Row(lambda links: CandidatePaths(Fabric(links=links), max_paths), lambda: (self.plannable(),))
        """Candidate paths between switches over the plannable links."""
        self.ports = Row(_ports, lambda: (s.fabric.switches,))
        """All ports of the known switches; counters of any other port are ignored."""
        self.nominal_bps = Row(capacities, lambda: (s.fabric.links, s.fabric.hosts, NO_BACKGROUND))
        """Capacity in bit/s of each link; background is not subtracted."""
        self.uncounted = Row(
            Uncounted(),
            lambda: (self.jobs(), self.missing(), s.routes.orphans, s.fabric.hosts, s.load.measured.counted),
        )
        """Announced flows whose bytes no rule counts yet."""
        self.uncounted_links = Row(
            UncountedLinks(), lambda: (s.fabric.hosts, s.fabric.links, self.uncounted(), self.paths())
        )
        """Links whose port counters may include bytes of uncounted flows, by flow."""
        self.background = Row(
            background, lambda: (s.load.measured, self.uncounted_links() if s.load.beyond else NO_USES, s.fabric.hosts)
        )
        """Background of each link that has any, in bit/s: measured traffic that no announced flow explains."""
        self.planned_background = when(
            lambda: s.recent.held,
            Row(
                planned_background,
                lambda: (self.background(), s.recent.held, s.recent.left, self.flows_by_link(), self.uncounted_links()),
            ),
            self.background,
        )
        """Background for planning in bit/s: the measured one, or a higher value that a link had until recently."""
        self.capacity_bps = Row(capacities, lambda: (self.plannable(), s.fabric.hosts, self.planned_background()))
        """Capacity in bit/s that the background leaves for announced traffic on each plannable link."""
        self.snapshot = Row(
            Snapshot,
            lambda: (
                s.cycle.generation + 1,
                self.capacity_bps(),
                self.paths(),
                self.flows(),
                s.routes.routes,
                self.excluded(),
                extension.timings(self.ready()),
            ),
        )
        """Inputs of the next planning problem: capacities, candidate paths, flows and running routes."""

        # ---- rules

        self.with_rules = Row(
            per_key(_if_any_host), lambda: (self.jobs(), self.missing(), dict.fromkeys(s.cycle.unplanned, True))
        )
        """Jobs that have rules: at least one of their hosts is known, and they are not waiting for their first plan."""
        self.pins = Row(
            pins,
            lambda: (self.forwarding(), self.with_rules(), routes.routes, routes.orphans, pins.turn, extension.dscp),
        )
        """Wanted pins: rules that lead a flow along its route, or only count it.

        When many flows change, each turn updates the pins of only some of these flows."""
        self.pins_due: Callable[[], bool] = lambda: pins.due
        """Whether some jobs have outdated pins, which a later turn will update."""
        self.next_pins: Callable[[], None] = pins.next_turn
        """Start the next turn: the next call of ``pins`` updates the pins of more flows."""
        self.rules = Row(
            pipeline.desired, lambda: (s.fabric, self.pins(), s.sync.installed, self.forwarding(), self.closed())
        )
        """Rules that every switch should hold, by dpid."""
        self.rules_and_unknown = Row(
            KeepUnknown(gateways), lambda: (s.fabric.hosts, self.rules(), s.sync.installed, self.closed())
        )
        """Rules that every switch should hold, plus the installed rules that lead to unknown hosts."""
        self.adopting_rules = Row(_adopting_rules, lambda: (s.fabric, s.sync.installed, rate_pps, one_way_at))
        """Rules that every switch should hold while the controller adopts the installed rules."""
        self.counted_links = Row(counted_links, lambda: (s.fabric.hosts, s.fabric.links, self.pins(), self.paths()))
        """Links that the packets of each counting rule may use."""
        self.only_pins_changed: Callable[[], bool] = lambda: counted_links.is_quick(
            s.fabric.hosts, s.fabric.links, self.plannable()
        )
        """Whether ``counted_links`` can be derived quickly, because none of its inputs except the pins has changed."""
        self.confirmed = Row(
            ConfirmedRoutes(),
            lambda: (s.fabric.hosts, s.routes.routes, s.wanted.pins, s.wanted.rules, s.sync.installed),
        )
        """Wanted pins and routes that the switches hold."""
        self.slowdowns = Row(_in_force, lambda: (s.cycle.slowdowns, s.wanted.pins.invalid | s.cycle.unplanned))
        """Slowdowns of the planned jobs whose routes are all in force."""

        # ---- published values of jobs, as they are on disk (``core/state.py``)

        self.unsaved = Row(unsaved, lambda: (s.commits.on_disk.jobs, self.registrations(), s.jobs.ends))
        """Jobs whose latest change is not on disk. The values are those of the function ``unsaved``."""
        self.published_jobs = Row(published, lambda: (self.jobs(), s.commits.known.jobs, self.unsaved()))
        """Jobs to publish, as they are on disk."""
        self.published_demands = Row(published, lambda: (s.demand.demands, s.commits.known.demands, self.unsaved()))
        """Demand of each job to publish, as it was when the job was saved."""
        self.published_missing = Row(
            joined(lambda job: job.addresses, _missing), lambda: (self.published_jobs(), s.fabric.hosts)
        )
        """Addresses of the unknown hosts of each published job; a job without unknown hosts has no entry."""
        self.published_waiting: Callable[[], Mapping[JobId, str]] = lambda: extension.waiting_as_published(
            self.published_jobs()
        )
        """Reason why the extension makes a job wait, by published job."""
        self.islands = Row(islands_beside_the_largest, lambda: (s.fabric.switches, self.plannable(), s.fabric.hosts))
        """Hosts outside of the largest group of hosts that can reach each other."""
        self.flows_without_path = Row(
            joined(lambda job: job.virtual_links.addresses, count_without_path),
            lambda: (self.published_jobs(), s.fabric.hosts, self.islands()),
        )
        """Number of flows without a path, by job; a job without such flows has no entry."""
        self.without_path = Row(_without, lambda: (self.flows_without_path(), frozenset(self.published_waiting())))
        """Number of flows without a path, by job, except jobs that wait for the extension."""
        self.published_without_path = Row(unless_awaited, lambda: (self.without_path(), s.parts.awaited))
        """Number of flows without a path, by job. Empty while parts may still appear after the controller's start."""
        self.undiscovered = Row(
            lambda found, published: {} if published else found,
            lambda: (self.without_path(), self.published_without_path()),
        )
        """Number of flows without a path, by job, while parts may still appear after the start; empty after that."""
        self.job_statuses = Row(
            JobStatuses(),
            lambda: (
                self.published_jobs(),
                self.published_missing(),
                self.published_without_path(),
                s.fabric.hosts,
                s.sending.routes,
                s.sending.generation,
                self.slowdowns(),
                self.published_waiting(),
                self.undiscovered(),
            ),
        )
        """Published status of each job."""
        self.demand_alarms = Row(per_key(demand_alarm), lambda: (self.published_demands(),))
        """Alarms of jobs whose traffic contradicts their announcement."""
        self.missing_for_alarm = Row(not_awaited, lambda: (self.published_missing(), s.parts.awaited))
        """Addresses of unknown hosts, by job. Hosts that may still appear after the controller's start are left out."""
        self.host_alarms = Row(per_key(host_alarm), lambda: (self.missing_for_alarm(),))
        """Alarms of jobs whose hosts are missing."""

        # ---- published values of the fabric

        self.named_hosts = Row(
            Index[JobId, Job, PartKey](named_parts, s.parts.declared.hosts), lambda: (self.published_jobs(),)
        )
        """Hosts that jobs or the inventory file name, with the jobs that name them."""
        self.saved_parts = Row(per_key(saved_part), lambda: (s.parts.parts, self.named_hosts()))
        """Parts of the fabric to be saved for a restart."""
        self.known_switches = Row(
            per_key(lambda _, part: part if part.kind is PartKind.SWITCH else None), lambda: (s.parts.parts,)
        )
        """Switches among the known parts of the fabric, by part key."""
        self.down_parts = Row(
            per_key(lambda _, part: part if part.down_since is not None else None), lambda: (s.parts.parts,)
        )
        """Parts that are down."""
        self.drained_keys = Row(drained_keys, lambda: (s.drains.parts, self.down_parts()))
        """Drained switches, and the drained cables that are down."""
        self.excepted = Row(
            excepted,
            lambda: (s.parts.explained, tuple(s.refusals.other_masters), self.drained_keys(), self.down_parts()),
        )
        """Parts that raise no alarm when they are down."""
        self.part_alarms = Row(per_key(part_alarm), lambda: (self.down_parts(), self.excepted(), self.named_hosts()))
        """Alarms of cables and hosts that are down."""
        self.switch_alarms = Row(
            switch_alarms, lambda: (self.down_parts(), self.excepted(), s.parts.known_switches, s.parts.declared.roles)
        )
        """Alarms of switches that are down."""
        self.shared_names = Row(shared_names, lambda: (self.known_switches(), s.fabric.switches))
        """Names that several switches have."""
        self.fabric_with_unique_names = Row(switches_with_unique_names, lambda: (s.fabric, self.shared_names()))
        """Fabric with a unique name for each switch."""
        self.part_alarms_with_unique_names = Row(
            subjects_with_unique_names, lambda: (self.part_alarms(), self.shared_names())
        )
        self.switch_alarms_with_unique_names = Row(
            subjects_with_unique_names, lambda: (self.switch_alarms(), self.shared_names())
        )
        """Alarms of switches that are down, each with a unique subject."""

        self.drained: Callable[[], Drained] = lambda: Drained(
            self.drained_parts(), self.drained_flows(), s.drains.waiting
        )
        """Drained parts with the flows on them."""


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
    parts: Mapping[str, DrainedPart], on: Mapping[LinkId, frozenset[FlowId]], waiting: Mapping[JobId, frozenset[FlowId]]
) -> Mapping[LinkId, frozenset[FlowId]]:
    return flows_on(frozenset[LinkId]().union(*(part.links for part in parts.values())), on, waiting)


def _without(of_job: Mapping[JobId, Value], jobs: frozenset[JobId]) -> Mapping[JobId, Value]:
    return {job_id: value for job_id, value in of_job.items() if job_id not in jobs} if jobs else of_job


def _in_force(slowdowns: Slowdowns, others: frozenset[JobId]) -> Slowdowns:
    return replace(slowdowns, of_job=_without(slowdowns.of_job, others))


def _ports(switches: Mapping[Dpid, Switch]) -> frozenset[PortRef]:
    return frozenset(PortRef(dpid, port) for dpid, switch in switches.items() for port in switch.ports)


def _adopting_rules(
    fabric: Fabric, installed: Mapping[Dpid, RuleSet], rate_pps: int, one_way: Mapping[Dpid, object]
) -> Mapping[Dpid, RuleSet]:
    return {
        dpid: adopting_rules(fabric.switches[dpid], held, rate_pps, dpid in one_way) for dpid, held in installed.items()
    }


def named_parts(job: Job) -> Iterable[PartKey]:
    return map(host_key, job.addresses)


def count_without_path(job: Job, hosts: Mapping[str, Host], islands: Islands) -> int | None:
    """Return how many virtual links of a job between known hosts have no path; None instead of zero."""
    pairs = job.pairs if islands else ()
    unconnected = (src in hosts and dst in hosts and not connected(islands, src, dst) for src, dst in pairs)
    return sum(unconnected) or None


def saved_part(_: PartKey, part: Part, named: frozenset[JobId] | None) -> Part | None:
    """Return the part if it must be saved for a restart, else None.

    A host is saved only if it is down, and a job or the inventory file names it. After a restart the controller
    discovers all other hosts again, and a machine that invents addresses cannot fill the state."""
    if part.kind is PartKind.HOST:
        return part if named is not None and part.down_since is not None else None
    return part if part.seen or part.down_since is not None else None


def drained_keys(drains: Mapping[str, Drain], down: Mapping[PartKey, Part]) -> frozenset[PartKey]:
    """Return the keys of the drained switches, and of the drained cables that are down. ``drains``: by name."""
    cables = {drain.key for drain in drains.values() if isinstance(drain.part, frozenset)} & down.keys()
    switches = [drain for drain in drains.values() if isinstance(drain.part, int)]
    of_switches = (key for key, part in down.items() if any(drain.covers(part) for drain in switches))
    return frozenset((*cables, *of_switches, *(drain.key for drain in switches)))


def excepted(
    explained: Mapping[PartKey, bool],
    other_masters: tuple[Dpid, ...],
    drained: frozenset[PartKey],
    down: Mapping[PartKey, Part],
) -> Mapping[PartKey, bool]:
    """Return the parts of ``down`` that raise no alarm, each with the value True.

    ``explained``: parts that are down because of another part. ``other_masters``: switches whose master is another
    controller; a separate alarm reports them. ``drained``: drained switches and cables. A host that is down at a
    drained switch still raises its alarm, because a drained switch should have no hosts."""
    silent = {down[key].name for key in drained & down.keys() if key.kind is PartKind.SWITCH}
    hosts = (key for key in explained if key.kind is PartKind.HOST) if silent else ()
    changes: dict[PartKey, bool | None] = {key: None for key in hosts if down[key].ends[0].switch in silent}
    return updated(explained, {**changes, **dict.fromkeys((*map(switch_key, other_masters), *drained), True)})


def shared_names(known: Mapping[PartKey, Part], switches: Mapping[Dpid, Switch]) -> frozenset[str]:
    """Return the names that several of the known and connected switches have."""
    names = {part.ends[0].at.dpid: part.name for part in known.values() if part.seen}
    names |= {dpid: switch.name for dpid, switch in switches.items()}
    return frozenset(name for name, count in Counter(names.values()).items() if count > 1)


def switches_with_unique_names(fabric: Fabric, shared_names: frozenset[str]) -> Fabric:
    """Return the fabric with a unique name for each switch."""
    if not shared_names:
        return fabric
    switches = {
        dpid: replace(switch, name=unique_name(switch.name, dpid, shared_names))
        for dpid, switch in fabric.switches.items()
    }
    return replace(fabric, switches=switches)


def not_awaited(
    missing: Mapping[JobId, tuple[str, ...]], awaited: frozenset[PartKey]
) -> Mapping[JobId, tuple[str, ...]]:
    """Return the missing addresses of each job, except ``awaited`` ones (see ``KnownParts``)."""
    if not awaited:
        return missing
    left = {job_id: tuple(ip for ip in ips if host_key(ip) not in awaited) for job_id, ips in missing.items()}
    return {job_id: ips for job_id, ips in left.items() if ips}


def unless_awaited(without_path: Mapping[JobId, int], awaited: frozenset[PartKey]) -> Mapping[JobId, int]:
    """Return ``without_path``, or an empty mapping while ``awaited`` switches or cables may add paths."""
    return {} if any(key.kind is not PartKind.HOST for key in awaited) else without_path
