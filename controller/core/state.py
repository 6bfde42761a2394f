"""State of the controller: each kind of state has one owner, and only the owner's methods change it.

``derived`` computes further values from this state. ``Commits`` owns the state on disk, and the requests that wait
until they are on disk. In: requests that were carried out, each with its reply and an undo function; the store's answer
to each commit. Out: the state to write next, one commit at a time; replies. When a commit fails, all requests that are
not on disk are undone, newest first, and refused.

A request changes a job at once, and rules and plans follow before the commit ends. Acting before the end of the commit
is safe: ECMP rules forward flows that lose their pins, and the planner plans anew after an undo. But what callers,
watchers, the log, metrics and alarms have seen cannot be undone. So ``published`` returns the job as it was before a
change that is not on disk. Only the end of a lease is published at once, because a failed commit does not undo it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from controller.config import Config
from controller.core.draining import Draining
from controller.core.messages import Reply
from controller.core.planning_cycle import LoadEvents, PlanningCycle
from controller.core.sending import Adoption, Departures, LinkLosses, Phases, Sending
from controller.demand.job_demand import JobDemand
from controller.demand.measured_demand import MeasuredDemand
from controller.fabric.counter_samples import UsesOf
from controller.fabric.drains import Drains
from controller.fabric.host_discovery import HostDiscovery
from controller.fabric.link_load import LinkLoad, RecentBackground
from controller.fabric.parts import Declared, KnownParts
from controller.fabric.refusals import Refusals
from controller.fabric.topology import Dpid, Fabric, Port, Switch, port_refs
from controller.fabric.topology_state import TopologySettings, TopologyState
from controller.jobs.job import Job, MeasuringPeriods
from controller.jobs.messages import EndReason, Ends, Registration, SavedState, SaveState
from controller.jobs.registry import JobRegistry
from controller.planning.problem import SharingRules
from controller.shared_map import differing, updated
from controller.silence import Silences
from controller.store.members import NONE_MISSING, MissingMembers
from controller.store.records import changes
from controller.tables.counters import CounterIntake
from controller.tables.pins import PinSet
from controller.tables.rules import RuleSet
from controller.tables.running_routes import RunningRoutes
from controller.tables.switch_sync import SwitchSync, TableUses
from signalbox.errors import InvalidInput, Unavailable
from signalbox.jobs.spec import JobId
from signalbox.words import Mode

Value = TypeVar("Value")

RETRY_S = 5.0
"""Seconds from a failed commit until the next attempt. Each new request starts an attempt at once."""

SLOW_S = 2.0
"""Duration of a commit in seconds above which an alarm is raised."""


class KnownJobs(NamedTuple):
    """The jobs and their measured demands at one moment."""

    jobs: Mapping[JobId, Job] = {}
    demands: Mapping[JobId, JobDemand] = {}


class _WaitingRequest(NamedTuple):
    reply: Future[Any] | None
    value: object
    undo: Callable[[float], object]
    then: Callable[[float], object]
    jobs: tuple[Job, ...]


class Commits:
    """Requests that wait until they are on disk, and the progress of commits. ``now`` is monotonic seconds."""

    def __init__(self, saved: SavedState) -> None:
        self.on_disk = saved
        """State on disk: written by the latest successful commit, or read at the start."""
        self.known = KnownJobs()
        """Jobs and demands at the moment when the state on disk was passed to the store."""
        self.revision = saved.revision
        """Revision of the state on disk."""
        self.failures = 0
        """Number of failed commits since the start."""
        self.why = ""
        """Reason why the last commit failed; empty when it succeeded."""
        self.is_claimed = True
        """Whether this process had the claim at the latest tick (``Tick.is_claimed``)."""
        self._writing: SavedState | None = None
        self._writing_known = self.known
        self._writing_since = 0.0
        self._trial_at = 0.0
        self._under_way: list[_WaitingRequest] = []
        self._waiting: list[_WaitingRequest] = []

    def start(self, known: KnownJobs) -> None:
        """Record the jobs and demands of the saved state; called once, before any request."""
        self.known = known

    @property
    def latest(self) -> SavedState:
        """State that the commit under way writes, else the state on disk."""
        return self._writing or self.on_disk

    @property
    def has_waiting(self) -> bool:
        """Whether the change of some request is not on disk yet."""
        return bool(self._waiting or self._under_way)

    def add_request(
        self,
        reply: Future[Any] | None,
        value: object,
        undo: Callable[[float], object],
        then: Callable[[float], object] = lambda _: None,
        jobs: tuple[Job, ...] = (),
    ) -> None:
        """Keep a request that has been carried out, until the next commit ends.

        If the commit succeeds, ``then`` is called and ``value`` is the reply. If the commit fails, ``undo`` is called
        and the request is refused. Both functions get the time. ``reply``: None if another component replies. ``jobs``:
        jobs that ``undo`` restores."""
        self._waiting.append(_WaitingRequest(reply, value, undo, then, jobs))

    @property
    def restorable_jobs(self) -> tuple[Job, ...]:
        """Jobs with an arrangement of an extension, as they were before changes that are not on disk yet.

        If the commit fails, these jobs are restored."""
        held = (*self._under_way, *self._waiting)
        return tuple(job for request in held for job in request.jobs if job.registration.arrangement)

    def begin(self, state: SavedState, known: KnownJobs, now: float) -> list[SaveState | Reply]:
        """Return the command that writes the difference between ``state`` and the state on disk.

        If nothing differs, return the replies to the waiting requests instead. After a failed commit, or without the
        claim, an empty difference is written too, to find out whether changes can be saved. Must not be called while
        ``busy``."""
        changed = changes(self.on_disk, state)
        self._under_way, self._waiting = self._waiting, []
        if not changed and not self.why and self.is_claimed:
            return list(self._answered(now))
        self._writing, self._writing_known, self._writing_since = state, known, now
        return [SaveState(state, changed)]

    @property
    def busy(self) -> bool:
        return self._writing is not None

    def done(self, revision: int, now: float) -> list[Reply]:
        """Record that the commit under way is on disk and return the replies."""
        assert self._writing is not None
        self.on_disk, self._writing, self.revision, self.why = self._writing, None, revision, ""
        self.known = self._writing_known
        return self._answered(now)

    def failed(self, why: str, now: float) -> list[Reply]:
        """Record that the commit under way has failed: undo all waiting requests, and return their refusals."""
        self._writing, self.why = None, why
        self.failures += 1
        self._trial_at = now + RETRY_S
        held, self._under_way, self._waiting = [*self._under_way, *self._waiting], [], []
        for request in reversed(held):
            request.undo(now)
        return [Reply(request.reply, self.error) for request in held if request.reply]

    @property
    def error(self) -> Unavailable:
        """Error with which an undone request is refused."""
        return Unavailable(f"the change cannot be saved ({self.why}), so it is not in effect; try again later", RETRY_S)

    def follow_claim(self, is_claimed: bool) -> None:
        """Record whether this process has the claim of the state."""
        self.is_claimed = is_claimed

    def trial_due(self, now: float) -> bool:
        """Return whether a commit is due only to find out whether changes can be saved.

        The controller tries such commits after a failed commit, and while this process is without the claim. An alarm
        can then report the problem before a client requests a change."""
        return not self.busy and now >= self._trial_at and (bool(self.why) or not self.is_claimed)

    def trouble(self, now: float) -> str:
        """Return why a restart would lose changes made now; empty when commits succeed."""
        if self.why:
            return self.why
        waited = now - self._writing_since if self.busy else 0.0
        return f"the store has not answered for {waited:.0f} s" if waited > SLOW_S else ""

    def _answered(self, now: float) -> list[Reply]:
        held, self._under_way = self._under_way, []
        for request in held:
            request.then(now)
        return [Reply(request.reply, request.value) for request in held if request.reply]


def unsaved(
    on_disk: Mapping[JobId, Registration], registrations: Mapping[JobId, Registration], ends: Ends
) -> Mapping[JobId, bool]:
    """Return the jobs whose registration differs from the one on disk.

    The value of a job says whether readers may still see the registration that is on disk. The value is False for a
    job that is not on disk, or whose lease has ended."""

    def ran_out(saved: Registration) -> bool:
        end = ends.of(saved.job_id, saved.uid)
        return end is not None and end.reason is EndReason.LEASE_RAN_OUT

    return {
        job_id: saved is not None and not ran_out(saved)
        for job_id, saved, now in differing(on_disk, registrations)
        if saved != now
    }


def published(
    now: Mapping[JobId, Value], saved: Mapping[JobId, Value], unsaved: Mapping[JobId, bool]
) -> Mapping[JobId, Value]:
    """Return the value to publish for each job: the saved value while a change of the job is not on disk.

    ``now``: current values of all jobs. ``saved``: values when the state on disk was passed to the store. ``unsaved``:
    result of the function ``unsaved``."""
    kept = {job_id: saved.get(job_id) if holds else None for job_id, holds in unsaved.items()}
    return updated(now, {job_id: value for job_id, value in kept.items() if now.get(job_id) is not value})


UNKNOWN_PORT_BPS = 10e9
"""Capacity in bit/s of a port that reports no speed."""

MAX_NAMED = 16
"""Largest number of jobs that one error message names."""


class Wanted(NamedTuple):
    """Rules that switches should hold.

    The rules are those of the last derivation, without next hops over links that were lost after the derivation."""

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
    """Search for hosts with ARP requests, and addresses that are claimed at ports."""
    jobs: JobRegistry
    """Specs, leases and reported times of jobs."""
    measuring_periods: MeasuringPeriods
    """Begins a measuring period of a job when its planned traffic changes (``jobs.job.Reported``)."""
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
    """Phase of the controller: adopting rules, steady, or reacting to lost links."""
    adoption: Adoption
    """Progress of adopting the rules that switches hold."""
    departures: Departures
    """Switches that have disconnected and whose links are still in use."""
    refusals: Refusals
    """Packets and connections that the controller refused."""
    silences: Silences
    """Silenced alarms."""
    missing_members: MissingMembers = NONE_MISSING
    wanted_at: float = -math.inf
    """Time when the wanted rules were derived, in monotonic seconds."""

    @property
    def fabric(self) -> Fabric:
        return self.topology.fabric

    @property
    def saved_mode(self) -> Mode:
        """Mode on disk, else the configured mode.

        ``mode`` may be newer, and is restored to this mode if the commit fails."""
        return self.commits.on_disk.mode or self.first_mode

    @property
    def plan_installed(self) -> bool:
        """Whether the running routes are those of the newest plan, and all of them are valid."""
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

        ``counted_links``: function that returns the links that the packets of each counting rule may use; None if these
        links have not changed. The function is called at the next evaluation of counters."""
        self.wanted, self.wanted_at = Wanted(jobs, pins, rules), now
        if counted_links:
            self.load.routes_changed(now, counted_links)

    def want_rules(self, rules: Mapping[Dpid, RuleSet]) -> None:
        """Replace the rules that switches should hold, but not the jobs and pins from which they were derived."""
        self.wanted = self.wanted._replace(rules=rules)

    def set_mode(self, mode: Mode) -> None:
        """Set the mode, which decides whether plans are made and installed."""
        self.mode = mode

    def take_members(self, missing: MissingMembers) -> None:
        self.missing_members = missing

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
        raise InvalidInput.of(config.saved_in, _refused(config, problems))
    demand.follow(jobs.jobs, now, saved.measured)
    routes = RunningRoutes(saved.shares)
    load = LinkLoad(config.counters.window_s, config.counters.noise_fraction, now)
    sync, phases, of = SwitchSync(config.openflow.audit_interval_s), Phases(), config.contention
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
        measuring_periods=MeasuringPeriods(),
        demand=demand,
        routes=routes,
        load=load,
        recent=RecentBackground(),
        load_events=LoadEvents(),
        counters=counters,
        tables=TableUses(config.counters.table_alarm_fraction),
        cycle=PlanningCycle(config.planning, routes, SharingRules(of.classes, of.floor, of.objective, of.max_stretch)),
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
    """Return the configured capacity of a port in bit/s, each way, else the speed that the port reports.

    ``at_edge``: whether a host is connected to the port."""
    for link in config.fabric.link:
        if (link.switch, link.port) == (switch.name, port.name):
            return link.bps
    return (config.fabric.host_link_bps if at_edge else config.fabric.link_bps) or port.speed_bps or UNKNOWN_PORT_BPS
