"""The one frozen picture of the controller that all readers share.

The control loop publishes a new ``Status`` after every message that changed something; gRPC reads, watch streams
and metrics take it from ``StatusBoard`` and never see the loop's own state.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from controller.alarms import Alarm, AlarmKey
from controller.events import EventHistory
from controller.fabric.counter_samples import LinkStatus as LinkStatus
from controller.fabric.messages import RefusalReason, RefusedPacket
from controller.fabric.parts import Part, PartKey, PartKind
from controller.fabric.topology import Dpid, Fabric, LinkId, PortRef
from controller.histogram import Histogram
from controller.jobs.demand import DemandSource, JobDemand
from controller.jobs.ends import EndReason as EndReason
from controller.jobs.ends import JobEnd as JobEnd
from controller.jobs.job import Vitals
from controller.jobs.messages import Registration
from controller.planning.efficiency import network_efficiency
from controller.planning.plan import Plan, TargetLeft
from controller.planning.problem import FlowId, Route
from controller.tables.counters import CountersRead
from controller.tables.default_table import Dropped
from controller.tables.rules import RuleSet
from controller.tables.table_use import TableUse
from signalbox.jobs.collectives import VirtualLinks
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.jobs.subflows import Dividing
from signalbox.words import Strategy

JobState = Literal["pending", "ecmp", "partly_pinned", "pinned"]

Unserved = Literal["hosts_missing", "no_path", "unplanned"]
"""Why a job counts 0 in the network's efficiency: it waits for hosts, has flows without a path, or is to be planned and
has not been yet."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """``vitals``: lease and reported times, as of the moment when they are read, not of the status.
    ``level``: L_j of the running routes, 0 while unknown. ``ideal_communication_s``: of one iteration, on an idle
    fabric, 0 while unknown. ``efficiency_allowed``: ideal communication time over the one that the running routes
    allow. ``prediction_withheld``: why that is no prediction, empty when it is. ``routes``: of every virtual link the
    route that its switches confirmed, None under ECMP. ``routes_generation`` grows when they change. ``dividing``: what
    tells the subflows apart. ``routes_known``: some switch has confirmed or given up a route of the job since the
    start. ``flows_without_path``: virtual links between hosts that the fabric does not connect now. ``waiting``: why
    the extension lets it wait; it is pending then. ``planned``: the virtual
    links that it is planned for, which the ideal time is of."""

    registration: Registration
    state: JobState
    missing_hosts: tuple[str, ...]
    vitals: Vitals
    level: float
    ideal_communication_s: float
    efficiency_allowed: float
    prediction_withheld: str
    routes: Mapping[FlowId, Route | None]
    routes_generation: int
    dividing: Dividing
    routes_known: bool = True
    flows_without_path: int = 0
    waiting: str = ""
    planned: VirtualLinks | None = None

    @property
    def spec(self) -> JobSpec:
        return self.registration.spec

    @property
    def uid(self) -> str:
        return self.registration.uid

    @property
    def last_index(self) -> int:
        """The highest that was reported, -1 before the first."""
        return self.vitals.reported.last_index

    @property
    def lease_ends_at(self) -> float:
        """Monotonic seconds."""
        return self.vitals.lease_ends_at

    @property
    def iterations(self) -> int:
        """How many were reported."""
        return self.vitals.reported.iterations

    @property
    def last_communication_s(self) -> float:
        return self.vitals.reported.last_communication_s

    @property
    def mean_communication_s(self) -> float:
        """Mean over the latest iterations of the present epoch (``jobs.job``), 0 until there is one, and while
        ``planned`` is not what they were measured of."""
        reported = self.vitals.reported
        return reported.mean_communication_s if reported.planned is self.planned else 0.0

    @property
    def pinned(self) -> int:
        return sum(route is not None for route in self.routes.values())

    @property
    def subflows(self) -> int:
        """Pieces of the pinned virtual links."""
        return sum(len(route) for route in self.routes.values() if route)

    @property
    def efficiency_predicted(self) -> float | None:
        """By the running routes: 0 while the job waits for hosts or some flow has no path; None while it is unknown or
        withheld."""
        if self.missing_hosts or self.flows_without_path:
            return 0.0
        return self.efficiency_allowed if self.level and not self.prediction_withheld else None

    @property
    def efficiency_measured(self) -> float:
        """Ideal over measured communication time of the present epoch; 0 until an iteration of it was reported."""
        measured_s = self.mean_communication_s
        return self.ideal_communication_s / measured_s if measured_s else 0.0


@dataclass(frozen=True, slots=True)
class SwitchStatus:
    """``foreign_rules``: flows, groups and meters of others. ``healed_rules``: rules of Signalbox that others
    changed and that were restored, since the start. ``is_read``: its rules were read since it connected; else there are
    0 of each kind. ``tables``: how full they are, as far as it says."""

    in_sync: bool
    rules: int
    foreign_rules: int
    healed_rules: int = 0
    is_read: bool = True
    tables: tuple[TableUse, ...] = ()


@dataclass(frozen=True, slots=True)
class ExtensionSwitch:
    """A switch of the extension. ``name``: its dpid in hexadecimal as long as it has not connected."""

    name: str
    connected: bool


@dataclass(frozen=True, slots=True)
class ExtensionStatus:
    """What others may see of the extension. ``change_times``: seconds of each change, until all of its switches had
    confirmed it. ``latest_change``: its number, how many ports it changed, and its seconds."""

    switches: Mapping[Dpid, ExtensionSwitch] = field(default_factory=dict)
    change_times: Histogram = field(default_factory=Histogram)
    latest_change: tuple[int, int, float] | None = None


NO_EXTENSION = ExtensionStatus()


DrainState = Literal["moving", "confirming", "measuring", "carrying", "safe"]


@dataclass(frozen=True, slots=True)
class DrainStatus:
    """A part of the fabric that is taken out of use. ``since``: seconds since 1970. ``state``: flows are being moved
    away; switches have not confirmed that yet; counters have not been read twice since; they show packets that are no
    probes; nothing is sent over it, so that it can be pulled. ``flows``: those whose routes still use it.
    ``rate_bps``: what its busiest link has carried since it was empty, None before that is known. ``links``: how many
    of it are there. ``waits_for``: what it is that has not confirmed, or has not been counted, in words."""

    name: str
    since: float
    state: DrainState
    flows: int
    links: int
    rate_bps: float | None = None
    waits_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Repair:
    """New paths for ``flows`` flows whose paths were lost, found in ``plan_ms`` milliseconds."""

    flows: int
    plan_ms: float


@dataclass(frozen=True, slots=True)
class Status:
    """``job_ends``: the latest registrations that are over, oldest first. ``jobs_ended``: how many since the start.
    ``demands``: what jobs really send. ``plan_reason``: what became of the newest plan, and why.
    ``plan_demand_source``: which bytes of each job it was made for. ``target``: that the plans lead to, None when the
    plan is the best. ``baseline_levels``: of other strategies on the plan's problem. ``repair``: after the latest loss
    of links that routes used, None until then, and when no flow could get a new path. ``repair_s``: from the moment
    that the controller knew of the loss until the switches had confirmed the repaired routes, None until then.
    ``counters_read``: when the counters of each connected switch were read; ``counters_late_after_s``: an age of some
    that are not up to date. ``refused_connections``: since the start, by reason; a reason without one is missing.
    ``refused_packets`` and ``refused_claims`` (of addresses that live at another port): since the start, by port.
    ``punt_drops``: packets that a port wanted to hand to the controller beyond its limit, as its switch counts them;
    ports without are missing. ``dropped_packets``: what each switch has dropped because it is not carried, since its
    rules were made; switches are missing before the first reading. ``links``: their figures are made when they are
    asked for. ``rules``: what each switch that was read holds. ``drains``: by name. ``drained``: their links that are
    there, their switches, and their cables that are down. ``parts``: every part of the fabric that is remembered;
    ``down_parts``: those that are down; ``absent_parts``: how many are not there, also before they had the time to
    come. ``named_hosts``: those that jobs or the inventory file name. ``alarms_before``: of before the start, which are
    not raised again and may still be, with since when they were. ``plan_at``: monotonic seconds when the latest plan
    came. Seconds, since the start: ``plan_times``, to make each plan; ``repair_times``, see ``repair_s``;
    ``install_times``, from the moment that a stage was sent until all of its switches had confirmed it;
    ``communication_times``, of each iteration that jobs reported. ``extension``: of the one that is configured."""

    fabric: Fabric = field(default_factory=Fabric)
    strategy: Strategy = Strategy.PLANNED
    adopting: bool = False
    switches: Mapping[Dpid, SwitchStatus] = field(default_factory=dict)
    links: Mapping[LinkId, LinkStatus] = field(default_factory=dict)
    jobs: Mapping[JobId, JobStatus] = field(default_factory=dict)
    job_ends: tuple[JobEnd, ...] = ()
    jobs_ended: Mapping[EndReason, int] = field(default_factory=dict)
    demands: Mapping[JobId, JobDemand] = field(default_factory=dict)
    plan: Plan | None = None
    plan_installed: bool = False
    plan_reason: str = ""
    plan_demand_source: Mapping[JobId, DemandSource] = field(default_factory=dict)
    target: TargetLeft | None = None
    baseline_levels: Mapping[str, float] = field(default_factory=dict)
    pins: int = 0
    moved_flows_total: int = 0
    plans_total: int = 0
    repair: Repair | None = None
    repair_s: float | None = None
    repairs_total: int = 0
    repaired_flows_total: int = 0
    counters_read: Mapping[Dpid, CountersRead] = field(default_factory=dict)
    counters_late_after_s: float = math.inf
    refused_connections: Mapping[RefusalReason, int] = field(default_factory=dict)
    refused_packets: Mapping[RefusedPacket, int] = field(default_factory=dict)
    refused_claims: Mapping[PortRef, int] = field(default_factory=dict)
    punt_drops: Mapping[PortRef, int] = field(default_factory=dict)
    plan_at: float | None = None
    plan_times: Histogram = field(default_factory=Histogram)
    repair_times: Histogram = field(default_factory=Histogram)
    install_times: Histogram = field(default_factory=Histogram)
    communication_times: Histogram = field(default_factory=Histogram)
    dropped_packets: Mapping[Dpid, Mapping[Dropped, int]] = field(default_factory=dict)
    state_revision: int = 0
    state_failures: int = 0
    alarms: Mapping[AlarmKey, Alarm] = field(default_factory=dict)
    alarms_before: Mapping[AlarmKey, float] = field(default_factory=dict)
    rules: Mapping[Dpid, RuleSet] = field(default_factory=dict)
    drains: Mapping[str, DrainStatus] = field(default_factory=dict)
    drained: frozenset[LinkId | PartKey] = frozenset()
    parts: Mapping[PartKey, Part] = field(default_factory=dict)
    down_parts: Mapping[PartKey, Part] = field(default_factory=dict)
    absent_parts: Mapping[PartKind, int] = field(default_factory=dict)
    named_hosts: Mapping[PartKey, object] = field(default_factory=dict)
    extension: ExtensionStatus = NO_EXTENSION

    @property
    def counters_at(self) -> float | None:
        """Monotonic seconds of what was read longest ago, of any switch and kind; None without switches."""
        return min(map(min, self.counters_read.values()), default=None)

    def late_ports(self, now: float) -> frozenset[Dpid]:
        """Switches whose port counters are not up to date: rates of their links are not known any more. ``now``:
        monotonic seconds."""
        since = now - self.counters_late_after_s
        return frozenset(dpid for dpid, read in self.counters_read.items() if read.ports < since)

    @property
    def moves_left(self) -> int:
        """To the target; 0 without one."""
        return self.target.moves if self.target else 0

    @property
    def blocked_flows(self) -> int:
        """That would have to move together, where no moves within the cap were found that lead to the target."""
        return self.target.blocked if self.target else 0

    @property
    def unserved(self) -> Mapping[Unserved, int]:
        """How many jobs count 0 in the efficiency, by the first reason that holds."""
        return Counter(why for why in map(self._why_unserved, self.jobs.values()) if why)

    def _why_unserved(self, job: JobStatus) -> Unserved | None:
        if job.missing_hosts:
            return "hosts_missing"
        if job.flows_without_path:
            return "no_path"
        planned = job.level or job.state == "pinned" or not job.routes
        return "unplanned" if self.strategy is Strategy.PLANNED and not planned else None

    @property
    def network_efficiency(self) -> float | None:
        """1 / level of the worst job; 0 while some job is unserved. None while no job's level is known, as without
        jobs, and while a restarted controller has not read what switches hold."""
        if self.adopting:
            return None
        return 0.0 if self.unserved else network_efficiency(job.level for job in self.jobs.values() if job.level)


class StatusBoard:
    """Holds the newest ``Status``. Written by the loop's thread, read by any. ``call_times``: how long calls of the API
    took, by method and code; written by its thread. ``reload_refused``: whether the latest SIGHUP changed nothing,
    because something was wrong. ``certificates_end``: of each listener with TLS, in seconds since 1970. Both are
    written by who reads the files. ``has_standby``: whether another controller waits for this one's end.
    ``metrics_refused``: how many connections of scrapers were refused, by reason. ``planning_replaced``: how many
    planning processes have ended although they should work. ``history``: what has happened; written by who
    publishes."""

    def __init__(self) -> None:
        self.history = EventHistory()
        self.call_times: Mapping[tuple[str, str], Histogram] = {}
        self.metrics_refused: Mapping[str, int] = {"tls": 0}
        self.reload_refused = False
        self.has_standby: Callable[[], bool] = lambda: False
        self.planning_replaced: Callable[[], int] = lambda: 0
        self.certificates_end: Mapping[str, float] = {}
        self._lock = threading.Lock()
        self._status = Status()
        self._listeners: list[Callable[[], None]] = []

    @property
    def status(self) -> Status:
        return self._status

    def publish(self, status: Status) -> None:
        with self._lock:
            self._status = status
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener()

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` (quick, from the loop's thread) after every publication; returns the way to stop it."""
        with self._lock:
            self._listeners.append(listener)

        def unsubscribe() -> None:
            with self._lock:
                self._listeners.remove(listener)

        return unsubscribe
