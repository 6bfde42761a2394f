"""What the controller knows: each kind of state has one owner, and only the owner's methods change it.

What follows from this state is declared in ``derived``.
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
from controller.jobs.measured_demand import MeasuredDemand
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
from signalbox.words import Strategy

UNKNOWN_PORT_BPS = 10e9
"""Of a port that does not say its speed."""

MAX_NAMED = 16
"""Saved jobs that cannot be accepted, in one message."""


class Wanted(NamedTuple):
    """What switches should hold, as last derived, less the next hops that have been lost since. ``jobs``, ``pins``:
    those that ``rules`` were derived from."""

    jobs: Mapping[JobId, Job]
    pins: PinSet
    rules: Mapping[Dpid, RuleSet]

    def not_followed(self, jobs: Mapping[JobId, Job]) -> frozenset[Dpid]:
        """The switches with pins of jobs that have gone or changed since."""
        changed = [job_id for job_id, was, _ in differing(self.jobs, jobs) if was]
        pins = chain.from_iterable(self.pins.of.get(job_id, ()) for job_id in changed)
        return frozenset(link.dpid for pin in pins for link in pin.path or ())


@dataclass(slots=True)
class State:
    """What the controller knows: one owner per kind of state."""

    strategy: Strategy
    """What becomes of plans."""
    first_strategy: Strategy
    """The strategy before any was saved."""
    commits: Commits
    """What is on disk, and requests that wait for that."""
    topology: TopologyState
    """Switches, ports, links and hosts."""
    parts: KnownParts
    """Which of them there have been, and what is down."""
    drains: Drains
    """What of these operators have taken out of use."""
    draining: Draining
    """Whether that carries nothing any more."""
    hosts: HostDiscovery
    """ARP questions and claims."""
    jobs: JobRegistry
    """Specs, leases, reported times."""
    epochs: Epochs
    """When measured times of jobs begin."""
    demand: MeasuredDemand
    """What jobs really send."""
    routes: RunningRoutes
    """The running routes."""
    load: LinkLoad
    """Samples of counters, and the measured background."""
    recent: RecentBackground
    """The background of before."""
    load_events: LoadEvents
    """When loads start a plan."""
    counters: CounterIntake
    """Which counter counts what."""
    tables: TableUses
    """How full flow tables are."""
    cycle: PlanningCycle
    """The planning cycle and the newest plan."""
    wanted: Wanted
    """What switches should hold."""
    sync: SwitchSync
    """What every switch holds, and changes under way."""
    sending: Sending
    """Confirmed pins and routes, and replies that wait for confirmation."""
    losses: LinkLosses
    """Lost links, and whether the answer to them is confirmed."""
    phases: Phases
    """How far what is known of the network can be trusted."""
    adoption: Adoption
    """How far what switches hold has been adopted."""
    departures: Departures
    """Switches that have left and are not given up yet."""
    refusals: Refusals
    """Packets and connections that were refused."""
    silences: Silences
    """Alarms that operators know of."""
    wanted_at: float = -math.inf
    """When the wanted rules were derived, in monotonic seconds."""

    @property
    def fabric(self) -> Fabric:
        """The current snapshot of the topology."""
        return self.topology.fabric

    @property
    def saved_strategy(self) -> Strategy:
        """The one that is on disk, or was configured: one that is being saved may be set back."""
        return self.commits.on_disk.strategy or self.first_strategy

    @property
    def plan_installed(self) -> bool:
        """The newest plan is what runs."""
        return self.cycle.adopted and not self.wanted.pins.fallen

    def want(
        self,
        jobs: Mapping[JobId, Job],
        pins: PinSet,
        rules: Mapping[Dpid, RuleSet],
        counted_links: Callable[[], UsesOf] | None,
        now: float,
    ) -> None:
        """What switches should hold from ``now`` on. ``counted_links``: per rule that counts the links that its packets
        may use; called when counters are evaluated next. None where that has not changed."""
        self.wanted, self.wanted_at = Wanted(jobs, pins, rules), now
        if counted_links:
            self.load.routes_changed(now, counted_links)

    def want_rules(self, rules: Mapping[Dpid, RuleSet]) -> None:
        """Replace the rules that switches should hold; the jobs and pins behind them stay."""
        self.wanted = self.wanted._replace(rules=rules)

    def set_strategy(self, strategy: Strategy) -> None:
        """Decide from now on what becomes of plans."""
        self.strategy = strategy

    def take_settings(self, config: Config, now: float) -> None:
        """Those that may change while the controller runs (``controller.config.Reloaded``)."""
        self.cycle.take_settings(config.planning, now)
        self.load.take_noise_fraction(config.counters.noise_fraction)
        self.tables.take_alarm_fraction(config.counters.table_alarm_fraction)
        self.sync.take_audit_interval(config.openflow.audit_interval_s)
        self.jobs.take_limits(config.jobs.max_jobs, config.jobs.max_virtual_links)
        self.demand.take_max_learning_rules(config.jobs.max_learning_rules)


def initial(config: Config, saved: SavedState, declared: Declared, now: float) -> State:
    """The state of a controller that has just started. ``now``: monotonic seconds. Raises ``InvalidInput`` when jobs
    that were saved cannot be accepted any more."""
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
    is_restart = replace(saved, parts={}) != SavedState()  # of jobs: only they have rules that are to be adopted
    return State(
        strategy=saved.strategy or config.planning.strategy,
        first_strategy=config.planning.strategy,
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
        f"jobs that are saved in {config.state_dir} cannot be accepted: {'; '.join(problems[:MAX_NAMED])}{more}. "
        f"Nothing was changed. Raise the limit (jobs.max_jobs is {config.jobs.max_jobs}, jobs.max_virtual_links "
        f"{config.jobs.max_virtual_links}), or forget them (signalbox state drop --state-dir {config.state_dir} JOB), "
        "or start the version of signalbox that saved them and deregister them there"
    )


def _capacity_bps(config: Config, switch: Switch, port: Port, at_edge: bool) -> float:
    """Of what is plugged into a port, each way: as configured, else as the port says. ``at_edge``: it is a host."""
    for link in config.fabric.link:
        if (link.switch, link.port) == (switch.name, port.name):
            return link.bps
    return (config.fabric.host_link_bps if at_edge else config.fabric.link_bps) or port.speed_bps or UNKNOWN_PORT_BPS
