"""A stand-in for the control loop in tests of the API: a thread that answers messages from a real ``JobRegistry``.

It also publishes a status."""

import queue
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from controller.alarms import Alarm
from controller.api.lease_tokens import LeaseTokens
from controller.api.server import ApiServer, MemberPort
from controller.config import ApiConfig
from controller.core.messages import Message
from controller.demand.measured_demand import MeasuredDemand
from controller.fabric.drains import Drains, links_named
from controller.fabric.messages import DrainParts, ForgetParts, UndrainParts
from controller.fabric.parts import End, Part, PartKind, switch_key
from controller.fabric.topology import Dpid, Fabric, Host, Link, LinkId, Path, Port, PortNo, PortRef, Switch
from controller.jobs.job import Job
from controller.jobs.messages import (
    DeregisterJob,
    RegisterJob,
    RenewLease,
    ReportConnections,
    ReportIterations,
    UpdateJobs,
)
from controller.jobs.registry import JobRegistry
from controller.planning.analysis.messages import FailureAnalysis, WhatIf
from controller.planning.messages import ModeSet, Replan, ReplanOutcome, SetMode
from controller.planning.plan import Plan
from controller.planning.problem import FlowId, Route, whole
from controller.silence import EndSilence, Silence, SilenceAlarms, SilenceKey, Silences
from controller.status import DrainStatus, JobStatus, LinkStatus, Status, StatusBoard, SwitchStatus
from controller.tables.counters import CountersRead
from controller.tables.flow_tables import MISS_RULE
from controller.tables.rules import OtherTable, RuleSet, Table
from controller.tables.switch_sync import TableUse
from signalbox.errors import NO_SUCH_NAME, InvalidInput, NotKnownYet, SignalboxError, cut
from signalbox.jobs.spec import JobId
from signalbox.words import AlarmKind
from tests.support import status_example
from tests.support.waiting import DEADLINE_S, beside

LEAF1, LEAF2, SPINE = Dpid(1), Dpid(2), Dpid(11)
H1, H2 = "10.0.1.1", "10.0.2.1"
VIA_SPINE: Path = (LinkId(LEAF1, PortNo(1)), LinkId(SPINE, PortNo(2)))
BACK: Path = (LinkId(LEAF2, PortNo(1)), LinkId(SPINE, PortNo(1)))


TABLES = (TableUse(Table.PINNED, 9, 200), TableUse(Table.DEFAULT, 3, None), TableUse(OtherTable.METERS, 4, 64))
SPINE2 = Part(switch_key(Dpid(12)), (End(PortRef(Dpid(12), PortNo(0)), "spine2"),), 1e9)
"""A switch that is down."""


def two_leaves_and_a_spine() -> Fabric:
    def port(number: int) -> Port:
        return Port(PortNo(number), f"eth{number}", f"02:00:00:00:00:0{number}", True, 1e10)

    def link(src: tuple[int, int], dst: tuple[int, int]) -> Link:
        return Link(PortRef(Dpid(src[0]), PortNo(src[1])), PortRef(Dpid(dst[0]), PortNo(dst[1])), 5e6)

    ports = {PortNo(n): port(n) for n in (1, 2)}
    links = [link((1, 1), (11, 1)), link((11, 1), (1, 1)), link((2, 1), (11, 2)), link((11, 2), (2, 1))]
    return Fabric(
        generation=7,
        switches={d: Switch(d, name, ports) for d, name in ((LEAF1, "leaf1"), (LEAF2, "leaf2"), (SPINE, "spine1"))},
        links={one.id: one for one in links},
        hosts={
            H1: Host(H1, "02:00:00:00:01:01", PortRef(LEAF1, PortNo(2)), 5e6),
            H2: Host(H2, None, PortRef(LEAF2, PortNo(2)), 5e6),
        },
    )


def example_plan() -> Plan:
    return replace(
        status_example.plan(),
        routes={FlowId(H1, H2): whole(VIA_SPINE), FlowId(H2, H1): whole(BACK)},
        unrouted=(FlowId(H1, "10.0.9.9"),),
        job_slowdown={JobId("ring"): 1.25},
        own_slowdown={JobId("ring"): 1.0},
        moves=1,
    )


@dataclass
class ControlStandIn:
    """Thread that answers the messages of the API.

    ``routes``: routes to which the jobs are pinned, set by ``set_route``.
    ``analysis``: answer to ``WhatIf``.

    An iteration with index 666 raises an error, as a defect would."""

    board: StatusBoard
    registry: JobRegistry = field(default_factory=lambda: JobRegistry(max_jobs=3))
    drains: Drains = field(default_factory=lambda: Drains({}))
    silences: Silences = field(default_factory=lambda: Silences({}))
    demand: MeasuredDemand = field(default_factory=lambda: MeasuredDemand(2.0, 4032))
    inbox: queue.Queue[Any] = field(default_factory=queue.Queue)
    status: Status = field(
        default_factory=lambda: Status(
            fabric=two_leaves_and_a_spine(),
            switches={LEAF1: SwitchStatus(True, 12, 1, tables=TABLES)},
            links={VIA_SPINE[0]: LinkStatus(1000, 4e6, 1e6)},
            counters_read={LEAF1: CountersRead(time.monotonic(), time.monotonic())},
            rules={LEAF1: RuleSet.of([MISS_RULE])},
            alarms={alarm.key: alarm for alarm in [Alarm(AlarmKind.FOREIGN_RULES, "spine1", {"rules": 2})]},
            down_parts={part.key: part for part in [SPINE2]},
            absent_parts={PartKind.SWITCH: 1},
        )
    )
    analysis: FailureAnalysis | SignalboxError = field(default_factory=lambda: NotKnownYet("nothing is analysed"))
    routes: dict[FlowId, Route] = field(default_factory=dict)
    routes_generation: int = 1

    def run(self) -> None:
        self.publish()
        while (message := self.inbox.get()) is not None:
            if callable(message):
                message()
                self.publish()
                continue
            try:
                answer = self.answer(message)
            except (SignalboxError, ZeroDivisionError) as error:
                message.reply.set_exception(error)
            else:
                self.publish()
                message.reply.set_result(answer)

    def answer(self, message: Any) -> object:
        now = time.monotonic()
        match message:
            case RegisterJob():
                held = self.registry.jobs.get(JobId(message.spec.job_id))
                uid = self.registry.register(message, now).uid
                if held and (end := self.registry.ends.of(held.id, held.uid)):
                    self.registry.ends.confirm(end)
                return uid
            case UpdateJobs(updates=updates, quota=quota):
                return tuple(job.uid for job in self.registry.update(updates, quota))
            case DeregisterJob(job_id=job_id, owner=owner, ended_at=ended_at, force=force, tenant=tenant):
                if end := self.registry.deregister(job_id, owner, ended_at, force, tenant):
                    self.registry.ends.confirm(end)
            case RenewLease(job_id=job_id, owner=owner):
                return self.registry.renew(job_id, owner, now)
            case ReportIterations(job_id=job_id, owner=owner, iterations=iterations):
                if any(i.index == 666 for i in iterations):
                    raise ZeroDivisionError("a defect of the loop")
                return len(self.registry.report(job_id, owner, iterations, now)), None
            case ReportConnections(job_id=job_id, owner=owner, address=address, connections=connections, places=places):
                self.registry.report_connections(job_id, address, connections, owner, places=places)
            case Replan():
                self.status = replace(self.status, plan=example_plan(), plan_installed=True)
                return ReplanOutcome("adopted", "better", self.status.plan)
            case DrainParts(names=names, at=at):
                named = self.drains.drain(names, self.status.fabric, at)
                found = {name: DrainStatus(name, at, "safe", 0, 2, 12.0) for name in named}
                self.status = replace(self.status, drains={**self.status.drains, **found})
                return named
            case UndrainParts(names=names):
                self.drains.undrain(names, self.status.fabric)
                left = {name: part for name, part in self.status.drains.items() if name in self.drains.parts}
                self.status = replace(self.status, drains=left)
            case SilenceAlarms(silence=silence):
                self._silence((silence.kind, silence.subject), silence)
                self.silences.add(silence)
            case EndSilence(key=key):
                self.silences.end(key)
                self._silence(key, None)
            case WhatIf(names=names):
                links_named(names, self.status.fabric, ())
                if isinstance(self.analysis, SignalboxError):
                    raise self.analysis
                return self.analysis
            case SetMode(mode=mode):
                self.status = replace(self.status, mode=mode)
                return ModeSet(mode, 0.25, 4)
            case ForgetParts(names):
                down = self.status.down_parts
                gone = tuple(part for part in down.values() if part.name in names)
                if len(gone) < len(names):
                    text = f"no part of the fabric has the name '{cut(names[0])}'"
                    raise InvalidInput.of("names[0]", text, NO_SUCH_NAME)
                self.status = replace(
                    self.status, down_parts={key: part for key, part in down.items() if part not in gone}
                )
                return gone
        return None

    def _silence(self, key: SilenceKey, silence: Silence | None) -> None:
        alarms = self.status.alarms.items()
        changed = {one: replace(alarm, silence=silence) if one == key else alarm for one, alarm in alarms}
        self.status = replace(self.status, alarms=changed)

    def job_status(self, job: Job) -> JobStatus:
        missing = tuple(ip for ip in job.spec.endpoints if ip not in self.status.fabric.hosts)
        flows = (FlowId(*pair, job.dividing.owner) for pair in job.pairs)
        routes = {flow: self.routes.get(flow) for flow in flows}
        pinned = all(path is not None for path in routes.values())
        return JobStatus(
            registration=job.registration,
            state="pending" if missing else "pinned" if pinned else "ecmp",
            missing_hosts=missing,
            vitals=job.vitals,
            slowdown=0.0 if missing else 1.25,
            ideal_communication_s=0.0 if missing else 0.5,
            prediction_withheld="",
            routes=routes,
            dividing=job.dividing,
            routes_generation=self.routes_generation,
            routes_known=self.routes_generation > 0,
        )

    def publish(self) -> None:
        jobs = {job_id: self.job_status(job) for job_id, job in self.registry.jobs.items()}
        self.demand.follow(self.registry.jobs, time.monotonic())
        self.status = replace(self.status, jobs=jobs, job_ends=self.registry.ends.certain, demands=self.demand.demands)
        self.board.publish(self.status)

    def put(self, message: Message | Callable[[], None]) -> None:
        self.inbox.put(message)

    def set_route(self, flow: FlowId, path: Path) -> None:
        """Pin a flow, as if the switches had confirmed it."""

        def pin() -> None:
            self.routes[flow] = whole(path)
            self.routes_generation += 1

        self.inbox.put(pin)


@dataclass(frozen=True)
class Running:
    addresses: tuple[str, ...]
    control: ControlStandIn
    server: ApiServer


@contextmanager
def running_api(*listen: str, members: MemberPort | None = None, **config: Any) -> Iterator[Running]:
    board = StatusBoard()
    control = ControlStandIn(board)
    ended = beside(control.run)
    settings = ApiConfig(listen=listen or ("127.0.0.1:0",), **config)
    server = ApiServer(settings, board, control.put, LeaseTokens(), members=members)
    try:
        yield Running(server.start(), control, server)
    finally:
        server.stop(grace_s=0.2)
        control.inbox.put(None)
        ended.result(DEADLINE_S)
