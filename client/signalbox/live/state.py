"""State of a controller, assembled from the messages of its watches. No clock is read; callers give the time."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import nlargest
from math import nan
from typing import Any

from signalbox.errors import SignalboxError
from signalbox.live.jobs import LinkAt, urgency
from signalbox.live.shown import counted, short
from signalbox.mapping import seconds_since_1970
from signalbox.v1 import signalbox_pb2 as pb

MOST_EVENTS = 500
MOST_SLOWDOWNS = 3600
"""Largest number of stored events, and largest number of plans whose slowdowns are stored; the newest are stored."""
MOST_ENTRIES = 65_536
"""Largest number of stored objects of one kind, such as switches, links or jobs."""
MOST_EVENT_BYTES = 10_000
"""Largest size in bytes of an event whose details are stored."""
MOST_LOAD = 1e6
"""Load above which a reported rate is no real measurement, and counts as unknown."""

Link = pb.Link
"""Type of a directed link. Modules that import no generated code use this name."""
PartId = tuple[int, str]
"""Number of the kind (``PartKind``) and id of a part that is down."""
AlarmId = tuple[int, str]
"""Number of the kind (``AlarmKind``) and subject of an alarm."""


class Kind(StrEnum):
    """Part of the ``State`` that a message has changed."""

    SHAPE = "shape"
    """Switches, links, hosts, drains or parts that are down: added, removed, or changed in more than rates."""
    RATES = "rates"
    JOBS = "jobs"
    PLAN = "plan"
    ALARMS = "alarms"
    EVENTS = "events"
    STATUS = "status"
    REACHED = "reached"
    """Whether the controller answers, and whether it refuses a watch."""


@dataclass(frozen=True, slots=True)
class Slowdowns:
    """Worst slowdown in one plan, its lower bound, and the worst slowdown under ECMP.

    ``unix_s``: time when the plan arrived. ``ecmp``: mean over hash draws; None while unknown."""

    unix_s: float
    plan: float
    bound: float
    ecmp: float | None


@dataclass(slots=True)
class State:
    """State of a controller. Methods raise ``SignalboxError`` when a message adds too many objects.

    - ``lost``: why the controller does not answer; empty while it does, None before the first answer
    - ``events``: newest last
    - ``slowdowns``: worst slowdowns of plans, newest last
    - ``refusals``: by name of a watch, why its messages are missing"""

    lost: str | None = None
    switches: dict[int, pb.Switch] = field(default_factory=dict)
    links: dict[LinkAt, pb.Link] = field(default_factory=dict)
    hosts: dict[str, pb.Host] = field(default_factory=dict)
    drains: dict[str, pb.DrainedPart] = field(default_factory=dict)
    parts_down: dict[PartId, pb.DownPart] = field(default_factory=dict)
    jobs: dict[str, pb.Job] = field(default_factory=dict)
    alarms: dict[AlarmId, pb.Alarm] = field(default_factory=dict)
    events: deque[pb.Event] = field(default_factory=lambda: deque(maxlen=MOST_EVENTS))
    plan: pb.Plan | None = None
    slowdowns: deque[Slowdowns] = field(default_factory=lambda: deque(maxlen=MOST_SLOWDOWNS))
    status: pb.GetStatusResponse | None = None
    refusals: dict[str, str] = field(default_factory=dict)

    @property
    def refused(self) -> str:
        """Reasons why parts of the state are missing; empty when the state is complete."""
        return "; ".join(sorted(set(self.refusals.values())))

    def take_fabric(self, message: pb.WatchFabricResponse | pb.GetFabricResponse) -> frozenset[Kind]:
        """Apply one message of the watch of the fabric, or an answer of ``GetFabric``, which has the whole fabric."""
        if isinstance(message, pb.GetFabricResponse):
            names = ("switches", "links", "hosts", "drains", "parts_down")
            message = pb.WatchFabricResponse(snapshot=True, **{name: getattr(message, name) for name in names})
        shape = message.snapshot
        if message.snapshot:
            for known in (self.switches, self.links, self.hosts, self.drains, self.parts_down):
                known.clear()
        shape |= _change(self.switches, {each.dpid: each for each in message.switches}, message.switches_gone)
        shape |= _change(self.hosts, {each.ip: each for each in message.hosts}, message.hosts_gone)
        shape |= _change(self.drains, {each.name: each for each in message.drains}, message.drains_gone)
        down = {(each.kind, each.id): each for each in message.parts_down}
        shape |= _change(self.parts_down, down, [(each.kind, each.id) for each in message.parts_back])
        shape = shape or not all(
            _differs_in_rates_only(self.links.get((link.src.dpid, link.src.port)), link) for link in message.links
        )
        links = {(each.src.dpid, each.src.port): each for each in message.links}
        shape |= bool(message.links_gone)
        _update(self.links, links, [(gone.dpid, gone.port) for gone in message.links_gone])
        return frozenset({Kind.SHAPE, Kind.RATES} if shape else {Kind.RATES} if links else ())

    def take_jobs(self, message: pb.WatchJobsResponse) -> frozenset[Kind]:
        """Apply one message of the watch of jobs.

        Ended jobs are removed before jobs are added, because the id of an ended job may have been registered again."""
        if message.snapshot:
            self.jobs.clear()
        for end in message.ended:
            if (job := self.jobs.get(end.job_id)) and job.uid == end.uid:
                del self.jobs[end.job_id]
        _update(self.jobs, {job.spec.job_id: job for job in message.jobs}, ())
        return frozenset({Kind.JOBS})

    def take_alarms(self, message: pb.WatchAlarmsResponse) -> frozenset[Kind]:
        if message.snapshot:
            self.alarms.clear()
        raised = {(each.kind, each.subject): each for each in message.raised}
        _change(self.alarms, raised, [(each.kind, each.subject) for each in message.ended])
        return frozenset({Kind.ALARMS})

    def take_events(self, events: Iterable[pb.Event]) -> frozenset[Kind]:
        """Append those events that are not known yet.

        An event is new if its number or its time is above that of the newest known event. The time matters because a
        controller that has lost its saved state numbers events from the start again."""
        newest = self.events[-1] if self.events else pb.Event()
        new = [event for event in events if event.number > newest.number or _time(event) > _time(newest)]
        self.events.extend(map(_copy_of, new))
        return frozenset({Kind.EVENTS} if new else ())

    def take_plan(self, plan: pb.Plan | None, unix_s: float) -> frozenset[Kind]:
        """Store the newest plan; ``plan`` is None when the controller has none, as after a restart.

        The same plan may arrive again with further facts, but with the same generation and plan time. The generation
        alone does not identify a plan, because a controller that has restarted counts generations from the start."""
        if plan is None:
            known, self.plan = self.plan, None
            return frozenset({Kind.PLAN} if known else ())
        if self.plan and (self.plan.generation, self.plan.plan_time) == (plan.generation, plan.plan_time):
            unix_s = self.slowdowns.pop().unix_s
        self.plan = plan
        ecmp = plan.ecmp_slowdown.mean if plan.HasField("ecmp_slowdown") else None
        self.slowdowns.append(Slowdowns(unix_s, plan.max_slowdown, plan.bound, ecmp))
        return frozenset({Kind.PLAN})

    def take_status(self, status: pb.GetStatusResponse) -> frozenset[Kind]:
        self.status = status
        return frozenset({Kind.STATUS})

    def take_lost(self, why: str) -> frozenset[Kind]:
        """Store why the controller does not answer; ``why`` is empty when the controller answers."""
        changed = self.lost != why
        self.lost = why
        return frozenset({Kind.REACHED} if changed else ())

    def take_refused(self, what: str, why: str) -> frozenset[Kind]:
        """Store why the messages of the watch ``what`` are missing; ``why`` is empty when they arrive."""
        before = self.refused
        if why:
            self.refusals[what] = why
        else:
            self.refusals.pop(what, None)
        return frozenset({Kind.REACHED} if before != self.refused else ())

    def newest_events(self, most: int) -> list[pb.Event]:
        """Return the ``most`` newest events, newest first."""
        return list(self.events)[: -most - 1 : -1]

    def jobs_by_urgency(self, find: str = "") -> list[pb.Job]:
        """Return the jobs, the most urgent first (``urgency``).

        ``find``: text in lower case that a job's id must contain."""
        return sorted((job for name, job in self.jobs.items() if find in name.lower()), key=urgency)

    def busiest_links(self, most: int) -> list[pb.Link]:
        """Return at most ``most`` links with a measured load, the highest load first."""
        measured = [link for link in self.links.values() if load(link) is not None]
        return nlargest(most, measured, key=lambda link: load(link) or 0.0)

    def alarms_by_urgency(self) -> list[pb.Alarm]:
        """Return the alarms by severity, then newest first; acknowledged and silenced alarms come last."""
        return sorted(
            self.alarms.values(),
            key=lambda alarm: (alarm.HasField("silence"), -alarm.severity, -seconds_since_1970(alarm.raise_time)),
        )


def _change(known: dict[Any, Any], changed: Mapping[Any, Any], gone: Collection[object]) -> bool:
    different = any(key in known for key in gone) or any(known.get(key) != value for key, value in changed.items())
    _update(known, changed, gone)
    return different


def _update(known: dict[Any, Any], changed: Mapping[Any, Any], gone: Iterable[object]) -> None:
    for key in gone:
        known.pop(key, None)
    if len(known) + len(changed) > MOST_ENTRIES and len(known.keys() | changed.keys()) > MOST_ENTRIES:
        kind = type(next(iter(changed.values()))).__name__
        raise SignalboxError(f"the controller sends more than {MOST_ENTRIES:,} messages of the type {kind}")
    known.update(changed)


def _copy_of(event: pb.Event) -> pb.Event:
    """Return a copy of an event, which does not keep its whole message in memory; a large event loses its details."""
    if event.ByteSize() > MOST_EVENT_BYTES:
        return pb.Event(number=event.number, event_time=event.event_time, what=short(event.what))
    kept = pb.Event()
    kept.CopyFrom(event)
    return kept


def _differs_in_rates_only(before: pb.Link | None, now: pb.Link) -> bool:
    fields = ("dst", "name", "capacity_bps", "one_way")
    return before is not None and all(getattr(before, field) == getattr(now, field) for field in fields)


def load(link: pb.Link) -> float | None:
    """Return the measured rate divided by the capacity; None for a rate that is unknown or impossible."""
    share = link.rate_bps / link.capacity_bps if link.HasField("rate_bps") and link.capacity_bps else nan
    return share if 0 <= share < MOST_LOAD else None


def out_of_use(state: State) -> list[str]:
    """Return the number of parts that are down and the number of drained parts, in words.

    A switch is one part, however many cables it has."""
    parts = ((len(state.parts_down), "down"), (len(state.drains), "drained"))
    return [f"{counted(count, 'part')} {what}" for count, what in parts if count]


def _time(event: pb.Event) -> tuple[int, int]:
    return event.event_time.seconds, event.event_time.nanos
