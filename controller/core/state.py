"""State of the controller: each kind of state has one owner, and only the owner's methods change it.

``derived`` declares the values that are computed from this state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import NamedTuple

from controller.config import Config
from controller.core.commits import Commits
from controller.core.draining import Draining
from controller.core.load_events import LoadEvents
from controller.core.phases import Adoption, Departures, LinkLosses, Phases
from controller.core.planning_cycle import PlanningCycle
from controller.core.sending import Sending
from controller.demand.measured_demand import MeasuredDemand
from controller.fabric.background import RecentBackground
from controller.fabric.drains import Drains
from controller.fabric.host_discovery import HostDiscovery
from controller.fabric.known_parts import KnownParts
from controller.fabric.link_load import LinkLoad
from controller.fabric.parts import Declared
from controller.fabric.recent_uses import UsesOf
from controller.fabric.refusals import Refusals
from controller.fabric.topology import Dpid, Fabric, Port, Switch, port_refs
from controller.fabric.topology_state import TopologySettings, TopologyState
from controller.jobs.job import Epochs, Job
from controller.jobs.messages import SavedState
from controller.jobs.registry import JobRegistry
from controller.shared_map import differing
from controller.silence import Silences
from controller.tables.counters import CounterIntake
from controller.tables.pins import PinSet
from controller.tables.rules import RuleSet
from controller.tables.running_routes import RunningRoutes
from controller.tables.switch_sync import SwitchSync
from controller.tables.table_use import TableUses
from signalbox.errors import InvalidInput
from signalbox.jobs.spec import JobId
from signalbox.words import Mode

UNKNOWN_PORT_BPS = 10e9
"""Capacity in bit/s of a port that reports no speed."""

MAX_NAMED = 16
"""Largest number of saved jobs that one error message names."""


class Wanted(NamedTuple):
    """Rules that switches should hold, as last derived, minus next hops that have been lost since."""

    jobs: Mapping[JobId, Job]
    """Jobs that ``rules`` were derived from."""
    pins: PinSet
    """Pins that ``rules`` were derived from."""
    rules: Mapping[Dpid, RuleSet]

    def not_followed(self, jobs: Mapping[JobId, Job]) -> frozenset[Dpid]:
        """Return the switches with pins of jobs that were removed or changed since ``rules`` were derived."""
        changed = [job_id for job_id, was, _ in differing(self.jobs, jobs) if was]
        pins = chain.from_iterable(self.pins.of.get(job_id, ()) for job_id in changed)
        return frozenset(link.dpid for pin in pins for link in pin.path or ())


@dataclass(slots=True)
class State:
    """State of the controller, with one owner for each kind of state."""

    mode: Mode
    """Mode, which decides whether plans are made and installed."""
    first_mode: Mode
    """Mode of the configuration, used as long as no mode has been saved."""
    commits: Commits
    """State on disk, and requests that wait for the disk."""
    topology: TopologyState
    """Switches, ports, links and hosts."""
    parts: KnownParts
    """Switches, cables and hosts that are declared or have been seen, and whether each is down."""
    drains: Drains
    """Parts that operators have taken out of use."""
    draining: Draining
    """Progress of the drains: whether the drained parts still carry traffic."""
    hosts: HostDiscovery
    """ARP requests that search for hosts, and claims of ports to addresses."""
    jobs: JobRegistry
    """Specs, leases and reported times of jobs."""
    epochs: Epochs
    """Detector of changes in the planned traffic of a job, each of which begins an epoch (``jobs.job.Reported``)."""
    demand: MeasuredDemand
    """Measured traffic of jobs."""
    routes: RunningRoutes
    """Route that each pinned flow should take now; flows without a route use ECMP."""
    load: LinkLoad
    """Samples of counters, and the measured background."""
    recent: RecentBackground
    """Links whose background was higher until recently, with the higher value."""
    load_events: LoadEvents
    """Detector of changed loads that start a plan."""
    counters: CounterIntake
    """Counters of all switches, and the times when they were read."""
    tables: TableUses
    """Entries and capacity of each switch's flow, group and meter tables, as far as they are reported."""
    cycle: PlanningCycle
    """Planning cycle and newest plan."""
    wanted: Wanted
    """Rules that switches should hold."""
    sync: SwitchSync
    """Rules that every switch holds, and changes under way."""
    sending: Sending
    """Confirmed pins and routes, and replies that wait for confirmation."""
    losses: LinkLosses
    """Lost links, and whether the repaired routes are confirmed."""
    phases: Phases
    """Phase of the controller: adopting rules, steady, or answering lost links."""
    adoption: Adoption
    """Progress of adopting the rules that switches hold."""
    departures: Departures
    """Switches that have disconnected and whose links are not given up yet."""
    refusals: Refusals
    """Packets and connections that the controller refused."""
    silences: Silences
    """Silenced alarms."""
    wanted_at: float = -math.inf
    """Time when the wanted rules were derived, in monotonic seconds."""

    @property
    def fabric(self) -> Fabric:
        """Current snapshot of the topology."""
        return self.topology.fabric

    @property
    def saved_mode(self) -> Mode:
        """Mode on disk, else the configured mode. ``mode`` may be newer; it is undone when the commit fails."""
        return self.commits.on_disk.mode or self.first_mode

    @property
    def plan_installed(self) -> bool:
        """Whether the running routes are those of the newest plan, and all of these routes are valid."""
        return self.cycle.adopted and not self.wanted.pins.invalid

    def want(
        self,
        jobs: Mapping[JobId, Job],
        pins: PinSet,
        rules: Mapping[Dpid, RuleSet],
        counted_links: Callable[[], UsesOf] | None,
        now: float,
    ) -> None:
        """Set the rules that switches should hold from ``now`` on.

        ``counted_links``: returns the links that the packets of each counting rule may use, called at the next
        evaluation of counters; None if they have not changed."""
        self.wanted, self.wanted_at = Wanted(jobs, pins, rules), now
        if counted_links:
            self.load.routes_changed(now, counted_links)

    def want_rules(self, rules: Mapping[Dpid, RuleSet]) -> None:
        """Replace the rules that switches should hold; the jobs and pins behind them stay."""
        self.wanted = self.wanted._replace(rules=rules)

    def set_mode(self, mode: Mode) -> None:
        """Set the mode, which decides whether plans are made and installed."""
        self.mode = mode

    def take_settings(self, config: Config, now: float) -> None:
        """Apply the settings that may change at run time (``controller.config.Reloaded``)."""
        self.cycle.take_settings(config.planning, now)
        self.load.take_noise_fraction(config.counters.noise_fraction)
        self.tables.take_alarm_fraction(config.counters.table_alarm_fraction)
        self.sync.take_audit_interval(config.openflow.audit_interval_s)
        self.jobs.take_limits(config.jobs.max_jobs, config.jobs.max_virtual_links)
        self.demand.take_max_learning_rules(config.jobs.max_learning_rules)


def initial(config: Config, saved: SavedState, declared: Declared, now: float) -> State:
    """Return the state of a controller that has just started; ``now`` is monotonic seconds.

    Raises ``InvalidInput`` when saved jobs cannot be accepted any more."""
    settings = TopologySettings(
        (config.discovery.hold_down_s, config.discovery.max_hold_down_s),
        config.discovery.edge_after_s,
        partial(_capacity_bps, config),
        port_refs(config.circuits.fibres.values()),
    )
    topology = TopologyState(settings, declared.hosts, declared.dpid_of)
    jobs = JobRegistry(config.jobs.max_jobs, config.jobs.max_virtual_links)
    demand = MeasuredDemand(config.counters.interval_s, config.jobs.max_learning_rules)
    if problems := jobs.take_saved(saved, now):
        raise InvalidInput.of("state_dir", _refused(config, problems))
    demand.follow(jobs.jobs, now, saved.measured)
    routes = RunningRoutes(saved.shares)
    load = LinkLoad(config.counters.window_s, config.counters.noise_fraction, now)
    sync, phases = SwitchSync(config.openflow.audit_interval_s), Phases()
    counters = CounterIntake(load, demand.counters, config.counters.interval_s)
    named = chain.from_iterable(job.addresses for job in jobs.jobs.values())
    parts = KnownParts(declared, saved.parts, config.discovery.adoption_patience_s, now, named)
    is_restart = replace(saved, parts={}) != SavedState()  # parts do not count: only jobs have rules to adopt
    return State(
        mode=saved.mode or config.planning.mode,
        first_mode=config.planning.mode,
        commits=Commits(saved),
        topology=topology,
        drains=Drains(saved.drains),
        draining=Draining(load, sync, counters, config.discovery.probe_interval_s),
        parts=parts,
        hosts=HostDiscovery(topology),
        jobs=jobs,
        epochs=Epochs(),
        demand=demand,
        routes=routes,
        load=load,
        recent=RecentBackground(),
        load_events=LoadEvents(),
        counters=counters,
        tables=TableUses(config.counters.table_alarm_fraction),
        cycle=PlanningCycle(config.planning, routes),
        wanted=Wanted({}, PinSet({}), {}),
        sync=sync,
        sending=Sending(sync, topology, phases),
        losses=LinkLosses(),
        phases=phases,
        adoption=Adoption(config.discovery.adoption_patience_s, config.jobs.orphan_lease_s, is_restart, now),
        departures=Departures(),
        refusals=Refusals(),
        silences=Silences(saved.silences),
    )


def _refused(config: Config, problems: list[str]) -> str:
    more = f"; and {len(problems) - MAX_NAMED} more jobs" if len(problems) > MAX_NAMED else ""
    return (
        f"saved jobs cannot be accepted: {'; '.join(problems[:MAX_NAMED])}{more}. "
        f"Nothing was changed. Raise the limit (jobs.max_jobs is {config.jobs.max_jobs}, jobs.max_virtual_links "
        f"{config.jobs.max_virtual_links}), or forget them (signalbox state drop --config FILE JOB), "
        "or start the version of signalbox that saved them and deregister them there"
    )


def _capacity_bps(config: Config, switch: Switch, port: Port, at_edge: bool) -> float:
    """Return the capacity of a port in bit/s, each way: the configured one, else the speed that the port reports.

    ``at_edge``: whether a host is connected to the port."""
    for link in config.fabric.link:
        if (link.switch, link.port) == (switch.name, port.name):
            return link.bps
    return (config.fabric.host_link_bps if at_edge else config.fabric.link_bps) or port.speed_bps or UNKNOWN_PORT_BPS
