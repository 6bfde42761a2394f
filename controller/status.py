"""Frozen snapshot of the controller's state, shared by all readers.

The control loop publishes a new ``Status`` after each message that has changed the state. Calls, watches and metrics
read only the ``StatusBoard``, never the state of the loop itself.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from controller.alarms import Alarm, AlarmKey
from controller.demand.job_demand import DemandSource, JobDemand
from controller.events import EventHistory
from controller.fabric.counter_samples import LinkStatus as LinkStatus
from controller.fabric.messages import RefusalReason, RefusedPacket
from controller.fabric.parts import Part, PartKey, PartKind
from controller.fabric.topology import Dpid, Fabric, LinkId, PortRef
from controller.jobs.job import Vitals
from controller.jobs.messages import EndReason as EndReason
from controller.jobs.messages import JobEnd as JobEnd
from controller.jobs.messages import Registration
from controller.planning.efficiency import network_efficiency
from controller.planning.plan import GoalPlanLeft, Plan, Sharing
from controller.planning.problem import FlowId, Route
from controller.shared_map import Histogram
from controller.store.assignment import Holder
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
"""Reason why a job makes the network's efficiency 0: unknown hosts, flows without a path, or no plan."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Published state of a job."""

    registration: Registration
    state: JobState
    missing_hosts: tuple[str, ...]
    """Addresses of hosts that the job waits for."""
    vitals: Vitals
    """Lease and reported iteration times. They change while this object is in use; all other fields are fixed."""
    ideal_communication_s: float
    """Ideal time of one iteration in seconds, on an idle fabric; 0 while unknown."""
    prediction_withheld: str
    """Reason why ``efficiency_predicted`` is None even if ``slowdown`` is known; empty without a reason."""
    routes: Mapping[FlowId, Route | None]
    """Confirmed route of every virtual link; None under ECMP."""
    routes_generation: int
    """Number that grows when the routes change."""
    dividing: Dividing
    """Ports by which switches distinguish the subflows of a flow."""
    slowdown: float = 0.0
    """Slowdown of the job under the running routes; 0 while unknown."""
    routes_known: bool = True
    """Whether ``routes`` are certain: False until switches first confirm routes of the job to this controller.

    A restarted controller begins without confirmed routes, although the switches may have pins of the job."""
    flows_without_path: int = 0
    """Number of virtual links between hosts that the fabric does not connect now."""
    is_undiscovered: bool = False
    """Whether a missing path may be found soon: some flow has no path, and discovery after a restart is not complete.

    Discovery is complete when all parts that were known before the restart have been found again."""
    waiting: str = ""
    """Reason why the extension lets the job wait; empty if the job need not wait."""
    planned: VirtualLinks | None = None
    """Traffic for which the planner plans the job. The ideal time is that of this traffic."""

    @property
    def spec(self) -> JobSpec:
        return self.registration.spec

    @property
    def uid(self) -> str:
        return self.registration.uid

    @property
    def last_index(self) -> int:
        """Highest reported iteration number; -1 before the first report."""
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
        """Mean communication time in seconds of the latest iterations of the present measuring period.

        This period (``jobs.job``) ends when the confirmed routes of the job, or its planned bytes, change.
        The mean is 0 before the first iteration of the period, and if the period began with other traffic than
        ``planned``."""
        reported = self.vitals.reported
        return reported.mean_communication_s if reported.planned is self.planned else 0.0

    @property
    def pinned(self) -> int:
        return sum(route is not None for route in self.routes.values())

    @property
    def subflows(self) -> int:
        """Number of subflows of all pinned virtual links."""
        return sum(len(route) for route in self.routes.values() if route)

    @property
    def efficiency_predicted(self) -> float | None:
        """Predicted efficiency of the job under the running routes: 1 / slowdown.

        The efficiency is 0 while the job waits for hosts or a flow has no path. It is None in three cases: the slowdown
        is unknown, ``is_undiscovered`` is True, or ``prediction_withheld`` has a reason."""
        if self.missing_hosts or self.flows_without_path:
            return 0.0
        withheld = self.is_undiscovered or self.prediction_withheld
        return 1 / self.slowdown if self.slowdown and not withheld else None

    @property
    def efficiency_measured(self) -> float:
        """Ideal time divided by ``mean_communication_s``; 0 while either time is unknown."""
        measured_s = self.mean_communication_s
        return self.ideal_communication_s / measured_s if measured_s else 0.0


@dataclass(frozen=True, slots=True)
class SwitchStatus:
    """Published state of a switch."""

    in_sync: bool
    """Whether the switch has confirmed exactly the rules that it should have."""
    rules: int
    """Number of Signalbox's rules on the switch."""
    foreign_rules: int
    """Number of foreign flows, groups and meters."""
    healed_rules: int = 0
    """Number of Signalbox's rules that other programs or people changed and the controller restored, since the
    start."""
    is_read: bool = True
    """Whether the rules have been read since the switch connected. Before that, all numbers of rules are 0."""
    tables: tuple[TableUse, ...] = ()
    """Number of entries in each table, as far as the switch reports it."""


@dataclass(frozen=True, slots=True)
class ExtensionSwitch:
    """Published state of a switch that an extension of the control loop controls, such as an optical switch."""

    name: str
    """Name of the switch; its dpid in hexadecimal until it has connected."""
    connected: bool


TimingState = Literal["free", "aligning", "keeping", "ignoring"]
"""State of a job's slot, as in the proto file."""


class PublishedSlot(NamedTuple):
    """Slot of a job, which begins an iteration at ``begins_at`` (monotonic seconds), and every ``period_s`` seconds."""

    period_s: float
    begins_at: float
    max_wait_s: float
    """Longest wait at one iteration boundary."""
    number: int
    """Number of the slot within the registration."""


class CirclePart(NamedTuple):
    """Part of a circle: begin and length as fractions of the circle."""

    start: float
    length: float


@dataclass(frozen=True, slots=True)
class JobTiming:
    """Times of a job's iterations, and its part in sharing links. The proto file describes the fields (``Timing``)."""

    state: TimingState
    reason: str
    traffic_class: int
    period_s: float | None
    until_communication_s: float | None
    jitter: float | None
    drift_s: float | None
    waited_s: float
    guaranteed_s: float | None
    promised_s: float | None
    slots: tuple[CirclePart, ...]
    ideal_s: float | None = None
    """Time of an iteration if the job were alone, as the planner uses it; None while unknown."""
    slot: PublishedSlot | None = None
    dscp: int | None = None
    """DSCP that the job's hosts should set; None for any."""
    realignments: int = 0
    """Number of times that the job has left its slot."""
    changes: int = 0
    """Number of changes of ``slot.number`` and ``dscp``."""


@dataclass(frozen=True, slots=True)
class ExtensionStatus:
    """Published state of the extension."""

    switches: Mapping[Dpid, ExtensionSwitch] = field(default_factory=dict)
    change_times: Histogram = field(default_factory=Histogram)
    """Distribution of the seconds from the start of a change of circuits until all of its switches had confirmed it."""
    latest_change: tuple[int, int, float] | None = None
    """Latest change of circuits: its number, the number of ports that it changed, and its duration in seconds."""
    timings: Mapping[JobId, JobTiming] = field(default_factory=dict)
    """Timing of each job that reports iterations, if links are shared in time or by class."""
    sharing: Sharing | None = None
    """Slots and classes that are in force; None without any."""


NO_EXTENSION = ExtensionStatus()


DrainState = Literal["moving", "confirming", "measuring", "carrying", "safe"]
"""Progress of a drain.

- ``moving``: flows are being moved away.
- ``confirming``: no flow should use the part any more, but switches have not confirmed all rules for this yet.
- ``measuring``: switches have confirmed these rules, but counters have not been read twice since then.
- ``carrying``: counters still show packets other than LLDP probes.
- ``safe``: counters show no traffic, so the part can be pulled."""


@dataclass(frozen=True, slots=True)
class DrainStatus:
    """Published state of a drained switch or cable."""

    name: str
    since: float
    """Start of the drain in seconds since 1970."""
    state: DrainState
    flows: int
    """Number of flows whose routes still use the part."""
    links: int
    """Number of links of the part that exist now."""
    rate_bps: float | None = None
    """Mean rate of the part's busiest link in bit/s, since no flow should use the part; None until counters show it."""
    waits_for: tuple[str, ...] = ()
    """Texts that name the switches whose confirmation or counters are still missing."""


@dataclass(frozen=True, slots=True)
class Repair:
    """Result of a repair: ``flows`` flows without a path got new paths, which took ``plan_ms`` milliseconds to find."""

    flows: int
    plan_ms: float


@dataclass(frozen=True, slots=True)
class Status:
    """Published state of the controller. Numbers of events, and distributions, count from the controller's start."""

    fabric: Fabric = field(default_factory=Fabric)
    mode: Mode = Mode.PLANNED
    adopting: bool = False
    switches: Mapping[Dpid, SwitchStatus] = field(default_factory=dict)
    links: Mapping[LinkId, LinkStatus] = field(default_factory=dict)
    """Published state of each link. A value is computed when it is looked up."""
    jobs: Mapping[JobId, JobStatus] = field(default_factory=dict)
    job_ends: tuple[JobEnd, ...] = ()
    """Latest ends of registrations, oldest first."""
    jobs_ended: Mapping[EndReason, int] = field(default_factory=dict)
    """Number of ended registrations, by reason of the end."""
    demands: Mapping[JobId, JobDemand] = field(default_factory=dict)
    """Measured traffic of jobs."""
    plan: Plan | None = None
    plan_installed: bool = False
    plan_reason: str = ""
    """Text with the decision on the newest plan, and the reason."""
    plan_demand_source: Mapping[JobId, DemandSource] = field(default_factory=dict)
    """Source of the bytes that the newest plan assumes for each job, such as the job's spec or counters."""
    goal: GoalPlanLeft | None = None
    """Better plan that needs more moves than one cycle allows, and is approached cycle by cycle; None if there is
    none."""
    baseline_slowdowns: Mapping[str, float] = field(default_factory=dict)
    """Worst slowdown that each baseline scheme, such as ECMP, would have on the problem of the newest plan."""
    pins: int = 0
    moved_flows_total: int = 0
    plans_total: int = 0
    repair: Repair | None = None
    """Repair after the latest loss of links that routes used. None if no links were lost, or if no flow could be
    repaired."""
    repair_s: float | None = None
    """Seconds from the latest loss until switches had confirmed the repaired routes; None until then."""
    repairs_total: int = 0
    repaired_flows_total: int = 0
    counters_read: Mapping[Dpid, CountersRead] = field(default_factory=dict)
    """Times of the latest readings of each connected switch's counters, in monotonic seconds."""
    counters_late_after_s: float = math.inf
    """Age in seconds above which counters are out of date."""
    refused_connections: Mapping[RefusalReason, int] = field(default_factory=dict)
    """Number of refused connections of switches, by reason. Reasons that have not occurred are missing."""
    refused_packets: Mapping[RefusedPacket, int] = field(default_factory=dict)
    """Number of refused packets by port and reason."""
    refused_claims: Mapping[PortRef, int] = field(default_factory=dict)
    """Number of refused packets in which a port claimed the address of a host at another port, by port."""
    masterships_lost: int = 0
    """Number of times that this controller was not the OpenFlow master of a switch any more, because another one was.

    The switch then refused this controller's claim to be master, or its rules."""
    punt_drops: Mapping[PortRef, int] = field(default_factory=dict)
    """Number of packets to the controller that were dropped at the limit of their port, by port. Ports without drops
    are missing."""
    plan_at: float | None = None
    """Time of the newest plan in monotonic seconds."""
    plan_times: Histogram = field(default_factory=Histogram)
    """Distribution of the planning times in seconds."""
    repair_times: Histogram = field(default_factory=Histogram)
    """Distribution of all values of ``repair_s``."""
    install_times: Histogram = field(default_factory=Histogram)
    """Distribution of the seconds that switches took for a stage of rule changes: from sending it to the last
    confirmation."""
    communication_times: Histogram = field(default_factory=Histogram)
    """Distribution of the communication times of all reported iterations, in seconds."""
    dropped_packets: Mapping[Dpid, Mapping[Dropped, int]] = field(default_factory=dict)
    """Number of packets that each switch has dropped since its rules were installed, by kind. Switches are missing
    before their first reading."""
    state_revision: int = 0
    state_failures: int = 0
    alarms: Mapping[AlarmKey, Alarm] = field(default_factory=dict)
    alarms_before: Mapping[AlarmKey, float] = field(default_factory=dict)
    """Alarms from before the restart that may be raised again, with their starts in monotonic seconds."""
    rules: Mapping[Dpid, RuleSet] = field(default_factory=dict)
    """Rules of each switch whose rules have been read."""
    drains: Mapping[str, DrainStatus] = field(default_factory=dict)
    """Drained parts by name."""
    drained: frozenset[LinkId | PartKey] = frozenset()
    """Existing links of drained parts, drained switches, and drained cables that are down."""
    parts: Mapping[PartKey, Part] = field(default_factory=dict)
    """Known switches, cables and hosts, present or down."""
    down_parts: Mapping[PartKey, Part] = field(default_factory=dict)
    """Parts that are down."""
    absent_parts: Mapping[PartKind, int] = field(default_factory=dict)
    """Number of absent parts by kind, including those that are not yet reported as down."""
    named_hosts: Mapping[PartKey, object] = field(default_factory=dict)
    """Hosts whose names appear in a job or in the inventory file."""
    extension: ExtensionStatus = NO_EXTENSION
    """State of the configured extension."""

    @property
    def counters_at(self) -> float | None:
        """Time of the oldest among the latest readings, in monotonic seconds; None without switches."""
        return min(map(min, self.counters_read.values()), default=None)

    def late_ports(self, now: float) -> frozenset[Dpid]:
        """Return the switches whose port counters are out of date, so that the rates of their links are unknown.

        ``now``: monotonic seconds."""
        since = now - self.counters_late_after_s
        return frozenset(dpid for dpid, read in self.counters_read.items() if read.ports < since)

    @property
    def moves_left(self) -> int:
        """Number of moves that are still needed to reach the goal plan; 0 without one."""
        return self.goal.moves if self.goal else 0

    @property
    def blocked_flows(self) -> int:
        """Number of flows that must move together to reach the goal plan; moving them one by one is not allowed."""
        return self.goal.blocked if self.goal else 0

    @property
    def unserved(self) -> Mapping[Unserved, int]:
        """Number of jobs with the efficiency 0, by the first reason that applies."""
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
        """Network efficiency: 1 divided by the slowdown of the worst job; 0 while a job is unserved.

        The efficiency is None while no slowdown is known, for example without jobs, and while a restarted controller
        has not read the rules of the switches."""
        if self.adopting:
            return None
        return 0.0 if self.unserved else network_efficiency(job.slowdown for job in self.jobs.values() if job.slowdown)


class StatusBoard:
    """Newest ``Status``, and values that other threads maintain.

    The control loop's thread writes the status; any thread may read it."""

    def __init__(self) -> None:
        self.history = EventHistory()
        """History of events."""
        self.call_times: Mapping[tuple[str, str], Histogram] = {}
        """Distribution of the seconds that API calls took, by method and code; written by the API's thread."""
        self.metrics_refused: Mapping[str, int] = {"tls": 0}
        """Number of refused connections of scrapers, by reason."""
        self.reload_refused = False
        """Whether the latest SIGHUP was without effect because of a problem in a file."""
        self.has_standby: Callable[[], bool] = lambda: False
        """Function that returns whether a standby waits to take over from this controller."""
        self.is_active: Callable[[], bool] = lambda: True
        """Function that returns whether this controller still holds the claim: the exclusive right to change the saved
        state."""
        self.membership: Membership | None = None
        """Controllers that share the state in etcd; None if the state is not in etcd."""
        self.holders: Callable[[], Mapping[Dpid, Holder]] | None = None
        """Function that returns the OpenFlow master of each switch, one of the members, as the switch has confirmed it.

        None if the leader is always the master."""
        self.assigned: Callable[[], Mapping[Dpid, Holder]] = dict
        """Function that returns the member to which each switch is assigned."""
        self.refused_members: Mapping[str, int] = {}
        """Number of times that switches refused a member as OpenFlow master, or refused its rules; by the member's
        NAME/ID.

        The leader counts them at its end of the link to each member."""
        self.stands_by = False
        """Whether this controller is a standby."""
        self.planning_replaced: Callable[[], int] = lambda: 0
        """Function that returns the number of planning processes that have ended unexpectedly."""
        self.certificates_end: Mapping[str, float] = {}
        """Expiry of each listener's certificate, in seconds since 1970."""
        self._lock = threading.Lock()
        self._status = Status()
        self._listeners: list[Callable[[], None]] = []

    @property
    def status(self) -> Status:
        return self._status

    def switches_of_members(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Return two mappings by the id of the member: the number of switches it holds, and the number assigned to it.

        A member holds a switch when the switch has confirmed it as its OpenFlow master. If only the leader can be
        master, both numbers are that of all switches in the fabric."""
        if self.holders:
            held, assigned = (Counter(one.id for one in find().values()) for find in (self.holders, self.assigned))
            return held, assigned
        leader = self.membership.leader() if self.membership else None
        found = {leader.id: len(self._status.fabric.switches)} if leader else {}
        return found, found

    def publish(self, status: Status) -> None:
        with self._lock:
            self._status = status
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener()

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after every publication, and return a function that stops the calls.

        The listener must be quick, because it runs in the control loop's thread."""
        with self._lock:
            self._listeners.append(listener)

        def unsubscribe() -> None:
            with self._lock:
                self._listeners.remove(listener)

        return unsubscribe
