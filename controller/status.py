"""Frozen snapshot of the controller that all readers share.

The control loop publishes a new ``Status`` after every message that changed something. gRPC calls, watch streams and
metrics read it from the ``StatusBoard`` and never see the state of the loop itself.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from controller.alarms import Alarm, AlarmKey
from controller.demand.job_demand import DemandSource, JobDemand
from controller.events import EventHistory
from controller.fabric.counter_samples import LinkStatus as LinkStatus
from controller.fabric.messages import RefusalReason, RefusedPacket
from controller.fabric.parts import Part, PartKey, PartKind
from controller.fabric.topology import Dpid, Fabric, LinkId, PortRef
from controller.histogram import Histogram
from controller.jobs.job import Vitals
from controller.jobs.messages import EndReason as EndReason
from controller.jobs.messages import JobEnd as JobEnd
from controller.jobs.messages import Registration
from controller.planning.efficiency import network_efficiency
from controller.planning.plan import GoalPlanLeft, Plan
from controller.planning.problem import FlowId, Route
from controller.store.members import Membership
from controller.tables.counters import CountersRead
from controller.tables.flow_tables import Dropped
from controller.tables.rules import RuleSet
from controller.tables.switch_sync import TableUse
from signalbox.jobs.collectives import VirtualLinks
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.jobs.subflows import Dividing
from signalbox.words import Mode

JobState = Literal["pending", "ecmp", "partly_pinned", "pinned"]

Unserved = Literal["hosts_missing", "no_path", "unplanned"]
"""Reason why a job counts as 0 in the network's efficiency: unknown hosts, flows without a path, or no plan yet."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Published state of a job."""

    registration: Registration
    state: JobState
    missing_hosts: tuple[str, ...]
    """Addresses of hosts that the job waits for."""
    vitals: Vitals
    """Lease and reported times. Unlike all other fields, they continue to change after the status was made."""
    ideal_communication_s: float
    """Ideal time of one iteration in seconds, on an idle fabric; 0 while unknown."""
    prediction_withheld: str
    """Reason why ``efficiency_allowed`` is no prediction; empty if it is one."""
    routes: Mapping[FlowId, Route | None]
    """Confirmed route of every virtual link; None under ECMP."""
    routes_generation: int
    """Number that grows when the routes change."""
    dividing: Dividing
    """Ports that tell the subflows of a flow apart."""
    slowdown: float = 0.0
    """Slowdown L_j of the job under the running routes; 0 while unknown."""
    efficiency_allowed: float = 0.0
    """Ideal time divided by the communication time that the running routes allow."""
    routes_known: bool = True
    """Whether a route of the job has been confirmed, or a confirmed route removed, since the start."""
    flows_without_path: int = 0
    """Number of virtual links between hosts that the fabric does not connect now."""
    waiting: str = ""
    """Reason why the extension makes the job wait; the job is pending then."""
    planned: VirtualLinks | None = None
    """Virtual links that the job is planned with and that the ideal time belongs to."""

    @property
    def spec(self) -> JobSpec:
        return self.registration.spec

    @property
    def uid(self) -> str:
        return self.registration.uid

    @property
    def last_index(self) -> int:
        """Highest iteration number that was reported; -1 before the first."""
        return self.vitals.reported.last_index

    @property
    def lease_ends_at(self) -> float:
        """End of the lease in monotonic seconds."""
        return self.vitals.lease_ends_at

    @property
    def iterations(self) -> int:
        """Number of reported iterations."""
        return self.vitals.reported.iterations

    @property
    def last_communication_s(self) -> float:
        return self.vitals.reported.last_communication_s

    @property
    def mean_communication_s(self) -> float:
        """Mean communication time of the latest iterations of the present epoch (``jobs.job``), in seconds.

        It is 0 before the first such iteration, and while the iterations were measured with other links than
        ``planned``."""
        reported = self.vitals.reported
        return reported.mean_communication_s if reported.planned is self.planned else 0.0

    @property
    def pinned(self) -> int:
        return sum(route is not None for route in self.routes.values())

    @property
    def subflows(self) -> int:
        """Number of subflows of the pinned virtual links."""
        return sum(len(route) for route in self.routes.values() if route)

    @property
    def efficiency_predicted(self) -> float | None:
        """Predicted efficiency of the job under the running routes.

        The efficiency is 0 while the job waits for hosts or some flow has no path, and None while it is unknown or
        withheld."""
        if self.missing_hosts or self.flows_without_path:
            return 0.0
        return self.efficiency_allowed if self.slowdown and not self.prediction_withheld else None

    @property
    def efficiency_measured(self) -> float:
        """Ideal time divided by ``mean_communication_s``; 0 while either time is unknown."""
        measured_s = self.mean_communication_s
        return self.ideal_communication_s / measured_s if measured_s else 0.0


@dataclass(frozen=True, slots=True)
class SwitchStatus:
    """Published state of a switch."""

    in_sync: bool
    """Whether the switch holds its wanted rules."""
    rules: int
    """Number of our rules on the switch."""
    foreign_rules: int
    """Number of foreign flows, groups and meters."""
    healed_rules: int = 0
    """Number of our rules that others changed and the controller restored, since the start."""
    is_read: bool = True
    """Whether the rules were read since the switch connected; if not, all numbers of rules are 0."""
    tables: tuple[TableUse, ...] = ()
    """Use of the tables, as far as the switch reports it."""


@dataclass(frozen=True, slots=True)
class ExtensionSwitch:
    """A switch of the extension."""

    name: str
    """Name of the switch; its dpid in hexadecimal until it has connected."""
    connected: bool


@dataclass(frozen=True, slots=True)
class ExtensionStatus:
    """Published state of the extension."""

    switches: Mapping[Dpid, ExtensionSwitch] = field(default_factory=dict)
    change_times: Histogram = field(default_factory=Histogram)
    """Distribution of the seconds from the start of a change until all of its switches had confirmed it."""
    latest_change: tuple[int, int, float] | None = None
    """Number of the latest change, number of ports that it changed, and its duration in seconds."""


NO_EXTENSION = ExtensionStatus()


DrainState = Literal["moving", "confirming", "measuring", "carrying", "safe"]
"""Progress of a drain.

- ``moving``: flows are being moved away.
- ``confirming``: switches have not confirmed yet that no flow uses the part.
- ``measuring``: counters have not been read twice since the switches confirmed it.
- ``carrying``: counters show packets that are no probes.
- ``safe``: nothing is sent over the part, so it can be pulled."""


@dataclass(frozen=True, slots=True)
class DrainStatus:
    """Published state of a drained part of the fabric."""

    name: str
    since: float
    """Time of the drain in seconds since 1970."""
    state: DrainState
    flows: int
    """Number of flows whose routes still use the part."""
    links: int
    """Number of existing links of the part."""
    rate_bps: float | None = None
    """Rate of the part's busiest link since flows stopped using the part, in bit/s; None until the rate is known."""
    waits_for: tuple[str, ...] = ()
    """Obstacles in words: switches that have not confirmed, or counters that have not been read."""


@dataclass(frozen=True, slots=True)
class Repair:
    """New paths for ``flows`` flows whose paths were lost, found in ``plan_ms`` milliseconds."""

    flows: int
    plan_ms: float


@dataclass(frozen=True, slots=True)
class Status:
    """Published state of the controller. Totals and distributions are since the start."""

    fabric: Fabric = field(default_factory=Fabric)
    mode: Mode = Mode.PLANNED
    adopting: bool = False
    switches: Mapping[Dpid, SwitchStatus] = field(default_factory=dict)
    links: Mapping[LinkId, LinkStatus] = field(default_factory=dict)
    """Published state of each link; a value is computed when it is read."""
    jobs: Mapping[JobId, JobStatus] = field(default_factory=dict)
    job_ends: tuple[JobEnd, ...] = ()
    """Latest ends of registrations, oldest first."""
    jobs_ended: Mapping[EndReason, int] = field(default_factory=dict)
    """Number of ended registrations, by reason."""
    demands: Mapping[JobId, JobDemand] = field(default_factory=dict)
    """Measured traffic of jobs."""
    plan: Plan | None = None
    plan_installed: bool = False
    plan_reason: str = ""
    """Decision on the newest plan, and its reason."""
    plan_demand_source: Mapping[JobId, DemandSource] = field(default_factory=dict)
    """Source, by job, of the bytes for which the newest plan was made."""
    goal: GoalPlanLeft | None = None
    """Goal plan that the plans approach in several cycles; None if the newest plan is the best."""
    baseline_slowdowns: Mapping[str, float] = field(default_factory=dict)
    """Slowdown of each baseline on the problem of the newest plan."""
    pins: int = 0
    moved_flows_total: int = 0
    plans_total: int = 0
    repair: Repair | None = None
    """Repair after the latest loss of links that routes used; None without one, or if no flow could get a new path."""
    repair_s: float | None = None
    """Seconds from the latest loss until the switches had confirmed the repaired routes; None until then."""
    repairs_total: int = 0
    repaired_flows_total: int = 0
    counters_read: Mapping[Dpid, CountersRead] = field(default_factory=dict)
    """Times of the latest readings of the counters of each connected switch."""
    counters_late_after_s: float = math.inf
    """Age in seconds above which counters count as late."""
    refused_connections: Mapping[RefusalReason, int] = field(default_factory=dict)
    """Number of refused connections by reason; reasons without any are missing."""
    refused_packets: Mapping[RefusedPacket, int] = field(default_factory=dict)
    """Number of refused packets by port and reason."""
    refused_claims: Mapping[PortRef, int] = field(default_factory=dict)
    """Number of refused claims to addresses of other ports, by port."""
    masterships_lost: int = 0
    """Number of times that a switch has refused the claims or the writes of this controller for another master."""
    punt_drops: Mapping[PortRef, int] = field(default_factory=dict)
    """Number of packets to the controller that exceeded the limit of their port, by port; only ports with any."""
    plan_at: float | None = None
    """Time of the newest plan in monotonic seconds."""
    plan_times: Histogram = field(default_factory=Histogram)
    """Distribution of the planning times in seconds."""
    repair_times: Histogram = field(default_factory=Histogram)
    """Distribution of the values of ``repair_s``."""
    install_times: Histogram = field(default_factory=Histogram)
    """Distribution of the seconds from sending a stage until all of its switches had confirmed it."""
    communication_times: Histogram = field(default_factory=Histogram)
    """Distribution of the communication times of all reported iterations, in seconds."""
    dropped_packets: Mapping[Dpid, Mapping[Dropped, int]] = field(default_factory=dict)
    """Packets that each switch has dropped since its rules were installed; missing before the first reading."""
    state_revision: int = 0
    state_failures: int = 0
    alarms: Mapping[AlarmKey, Alarm] = field(default_factory=dict)
    alarms_before: Mapping[AlarmKey, float] = field(default_factory=dict)
    """Alarms from before the restart that may still be raised again, with their starts in monotonic seconds."""
    rules: Mapping[Dpid, RuleSet] = field(default_factory=dict)
    """Rules of each switch that was read."""
    drains: Mapping[str, DrainStatus] = field(default_factory=dict)
    """Drained parts by name."""
    drained: frozenset[LinkId | PartKey] = frozenset()
    """Existing links of drained parts, drained switches, and drained cables that are down."""
    parts: Mapping[PartKey, Part] = field(default_factory=dict)
    """Known switches, cables and hosts, present or down."""
    down_parts: Mapping[PartKey, Part] = field(default_factory=dict)
    """Parts that are down."""
    absent_parts: Mapping[PartKind, int] = field(default_factory=dict)
    """Number of absent parts by kind, including parts that do not count as down yet."""
    named_hosts: Mapping[PartKey, object] = field(default_factory=dict)
    """Hosts that jobs or the inventory file name."""
    extension: ExtensionStatus = NO_EXTENSION
    """State of the configured extension."""

    @property
    def counters_at(self) -> float | None:
        """Oldest time of a reading of any kind of counters, in monotonic seconds; None without switches."""
        return min(map(min, self.counters_read.values()), default=None)

    def late_ports(self, now: float) -> frozenset[Dpid]:
        """Return the switches whose port counters are late, so that the rates of their links are unknown.

        ``now``: monotonic seconds."""
        since = now - self.counters_late_after_s
        return frozenset(dpid for dpid, read in self.counters_read.items() if read.ports < since)

    @property
    def moves_left(self) -> int:
        """Number of moves to the goal plan; 0 without one."""
        return self.goal.moves if self.goal else 0

    @property
    def blocked_flows(self) -> int:
        """Number of flows that no allowed sequence of single moves brings to the goal plan; they must move together."""
        return self.goal.blocked if self.goal else 0

    @property
    def unserved(self) -> Mapping[Unserved, int]:
        """Number of jobs that count as 0 in the efficiency, by the first reason that applies."""
        return Counter(why for why in map(self._why_unserved, self.jobs.values()) if why)

    def _why_unserved(self, job: JobStatus) -> Unserved | None:
        if job.missing_hosts:
            return "hosts_missing"
        if job.flows_without_path:
            return "no_path"
        planned = job.slowdown or job.state == "pinned" or not job.routes
        return "unplanned" if self.mode is Mode.PLANNED and not planned else None

    @property
    def network_efficiency(self) -> float | None:
        """Network efficiency: 1 divided by the slowdown of the worst job; 0 while some job is unserved.

        The efficiency is None while no slowdown is known, for example without jobs, and while a restarted controller
        has not read the rules of the switches."""
        if self.adopting:
            return None
        return 0.0 if self.unserved else network_efficiency(job.slowdown for job in self.jobs.values() if job.slowdown)


class StatusBoard:
    """Newest ``Status``, and values that other threads maintain.

    The loop's thread writes the status, any thread reads it."""

    def __init__(self) -> None:
        self.history = EventHistory()
        """History of events, written by the publisher."""
        self.call_times: Mapping[tuple[str, str], Histogram] = {}
        """Distribution of the seconds that API calls took, by method and code; written by the API's thread."""
        self.metrics_refused: Mapping[str, int] = {"tls": 0}
        """Number of refused connections of scrapers, by reason."""
        self.reload_refused = False
        """Whether the latest SIGHUP changed nothing because of a problem; written by the reader of the files."""
        self.has_standby: Callable[[], bool] = lambda: False
        """Function that returns whether another controller waits for the end of this one."""
        self.is_active: Callable[[], bool] = lambda: True
        """Function that returns whether this controller still has the claim of the saved state."""
        self.membership: Membership | None = None
        """Controllers that share the state in etcd; None where it is not in etcd."""
        self.held: Callable[[], Mapping[str, int]] | None = None
        """Function that returns the number of switches that each member holds, by its id; None if the leader holds all.
        """
        self.refused_members: Mapping[str, int] = {}
        """Number of claims and writes of each member that switches refused for another master, by its NAME/ID.

        The links of the leader count in it."""
        self.stands_by = False
        """Whether this controller waits for the end of another one."""
        self.planning_replaced: Callable[[], int] = lambda: 0
        """Function that returns the number of planning processes that ended unexpectedly."""
        self.certificates_end: Mapping[str, float] = {}
        """Expiry of the certificate of each listener with TLS, in seconds since 1970; written by the file reader."""
        self._lock = threading.Lock()
        self._status = Status()
        self._listeners: list[Callable[[], None]] = []

    @property
    def status(self) -> Status:
        return self._status

    def held_switches(self) -> Mapping[str, int]:
        """Return the number of switches that each member holds, by the member's id."""
        if self.held:
            return self.held()
        leader = self.membership.leader() if self.membership else None
        return {leader.id: len(self._status.fabric.switches)} if leader else {}

    def publish(self, status: Status) -> None:
        with self._lock:
            self._status = status
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener()

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after every publication and return a function that stops this.

        The listener is called in the loop's thread, so it must be quick."""
        with self._lock:
            self._listeners.append(listener)

        def unsubscribe() -> None:
            with self._lock:
                self._listeners.remove(listener)

        return unsubscribe
