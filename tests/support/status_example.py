"""A controller's ``Status`` with example values for tests of the API and the metrics.

The status has two leaves, a spine, two hosts, one pinned job, and a job that waits for a host."""

import numpy as np

from controller.alarms import Alarm
from controller.demand.job_demand import DemandSource, Difference, Finding, JobDemand, Measurement
from controller.fabric.messages import RefusedPacket
from controller.fabric.parts import End, Part, PartKind, cable_key, host_key, switch_key
from controller.fabric.topology import Dpid, Fabric, Host, Link, LinkId, Port, PortNo, PortRef, Switch
from controller.jobs.job import Reported, Vitals
from controller.jobs.messages import Registration
from controller.planning.efficiency import EcmpSlowdown
from controller.planning.plan import Plan, PlanTimes
from controller.planning.problem import FlowId, whole
from controller.shared_map import Histogram
from controller.silence import Silence
from controller.status import (
    CirclePart,
    DrainStatus,
    EndReason,
    ExtensionStatus,
    JobEnd,
    JobStatus,
    JobTiming,
    LinkStatus,
    PublishedSlot,
    Repair,
    Status,
    SwitchStatus,
)
from controller.tables.counters import CountersRead
from controller.tables.flow_tables import Dropped
from controller.tables.rules import Table
from controller.tables.switch_sync import TableUse
from signalbox.jobs.collectives import VirtualLinks
from signalbox.jobs.spec import JobId
from signalbox.jobs.subflows import Dividing
from signalbox.words import AlarmKind, Mode
from tests.support.job_specs import job_spec, sends

LEAF1, LEAF2, SPINE = Dpid(1), Dpid(2), Dpid(101)
UP1 = LinkId(LEAF1, PortNo(2))
HOST_UP = LinkId(LEAF1, PortNo(1), "in")


def link(src: Dpid, src_port: int, dst: Dpid, dst_port: int) -> Link:
    return Link(PortRef(src, PortNo(src_port)), PortRef(dst, PortNo(dst_port)), 5e6)


def switch(dpid: Dpid, name: str) -> Switch:
    return Switch(dpid, name, {PortNo(n): Port(PortNo(n), f"{name}-eth{n}", "", True, 1e10) for n in (1, 2)})


def fabric(*, second_leaf_name: str = "leaf2") -> Fabric:
    links = (link(LEAF1, 2, SPINE, 1), link(SPINE, 1, LEAF1, 2), link(LEAF2, 2, SPINE, 2), link(SPINE, 2, LEAF2, 2))
    hosts = (
        Host("10.0.1.1", None, PortRef(LEAF1, PortNo(1)), 5e6),
        Host("10.0.2.1", None, PortRef(LEAF2, PortNo(1)), 5e6),
    )
    return Fabric(
        generation=7,
        switches={
            LEAF1: switch(LEAF1, "leaf1"),
            LEAF2: switch(LEAF2, second_leaf_name),
            SPINE: switch(SPINE, "spine1"),
        },
        links={each.id: each for each in links},
        hosts={host.ip: host for host in hosts},
    )


def job(job_id: str, *, pinned: bool) -> JobStatus:
    spec = job_spec(job_id, ["10.0.1.1", "10.0.2.1"], sends("ring_all_reduce", 1_000_000))
    path = (UP1, LinkId(SPINE, PortNo(2)))
    return JobStatus(
        registration=Registration(spec, uid="0", registered_at=1e9),
        state="pinned" if pinned else "pending",
        missing_hosts=() if pinned else ("10.0.2.1",),
        vitals=Vitals(60.0, Reported(5, 2.6, (2.4, 2.6)) if pinned else Reported()),
        slowdown=1.25 if pinned else 0.0,
        ideal_communication_s=2.0 if pinned else 0.0,
        prediction_withheld="",
        routes={FlowId("10.0.1.1", "10.0.2.1"): whole(path), FlowId("10.0.2.1", "10.0.1.1"): None} if pinned else {},
        routes_generation=1,
        flows_without_path=0 if pinned else 1,
        dividing=Dividing.of(spec),
    )


ALARMS = (
    Alarm(AlarmKind.FOREIGN_RULES, "leaf2", {"rules": 2}),
    Alarm(AlarmKind.FOREIGN_RULES, "leaf1", {"rules": 1}, silence=Silence("foreign_rules", "leaf1", 1e9)),
)


def demand() -> JobDemand:
    """Return the demand of a job that sends 1.5 times the announced bytes, and unannounced bytes in reverse."""
    pairs = ("10.0.1.1", "10.0.2.1"), ("10.0.2.1", "10.0.1.1")
    return JobDemand(
        source=DemandSource.MEASURED,
        virtual_links=VirtualLinks(),
        declared={pairs[0]: 1_000_000},
        learning=True,
        measurement=Measurement(pairs, np.array([3e6, 1e6]), 6.0, 2.5, undeclared_fraction=0.25),
        difference=Difference(
            (Finding.OTHER_TRAFFIC, Finding.OTHER_AMOUNTS), ((pairs[1], 1e6),), ((pairs[0], 1.5),), factor=1.5
        ),
    )


def timing() -> JobTiming:
    """Return the timing of a job that keeps its slot in the first half of a circle."""
    return JobTiming(
        state="keeping", reason="", traffic_class=2, period_s=4.0, until_communication_s=2.0, jitter=0.05, drift_s=0.03,
        waited_s=1.5, guaranteed_s=4.1, promised_s=6.0, slots=(CirclePart(0.0, 0.5),), ideal_s=4.0,
        slot=PublishedSlot(4.0, 90.0, 0.08, 1), dscp=18, realignments=3, changes=1,
    )  # fmt: skip


def plan() -> Plan:
    return Plan(
        generation=7, routes={}, unrouted=(), job_slowdown={JobId("llama"): 1.25}, own_slowdown={JobId("llama"): 1.0},
        bound=1.0, fluid_bound=1.0, integer_bound=1.0, certificate="gap", slowdowns_proven=0, moves=0, solver="cp-sat",
        ecmp=EcmpSlowdown(mean=2.1, p95=3.0), times=PlanTimes(build_ms=10, solve_ms=200, check_ms=5),
    )  # fmt: skip


def down_parts() -> tuple[Part, ...]:
    """Return the parts that are down: a spine, its cable to leaf1, and two hosts, one of which a job names."""
    spine, at, port = Dpid(102), PortRef(LEAF1, PortNo(3)), PortRef(Dpid(102), PortNo(1))
    host = End(PortRef(LEAF1, PortNo(4)), "leaf1", "leaf1-eth4")
    return (
        Part(switch_key(spine), (End(PortRef(spine, PortNo(0)), "spine2"),), 1e9),
        Part(cable_key(at, port), (End(at, "leaf1", "leaf1-eth3"), End(port, "spine2", "spine2-eth1")), 1e9),
        Part(host_key("10.0.1.3"), (host,), 1e9),
        Part(host_key("10.0.1.4"), (host,), 1e9),
    )


def status(of: Fabric | None = None) -> Status:
    return Status(
        fabric=of or fabric(),
        mode=Mode.PLANNED,
        switches={
            LEAF1: SwitchStatus(True, 30, 0, tables=(TableUse(Table.PINNED, 190, 200),)),
            LEAF2: SwitchStatus(False, 28, 2),
            SPINE: SwitchStatus(True, 12, 0),
        },
        links={UP1: LinkStatus(1_000_000, 4e6, 8e5), HOST_UP: LinkStatus(2_000_000, 4e6, 0.0)},
        jobs={JobId("llama"): job("llama", pinned=True), JobId("bert"): job("bert", pinned=False)},
        job_ends=(JobEnd(JobId("gpt"), "1", "", EndReason.TAKEN_OVER, 1e9),),
        jobs_ended={EndReason.TAKEN_OVER: 1},
        demands={JobId("llama"): demand()},
        plan=plan(),
        plan_demand_source={JobId("llama"): DemandSource.MEASURED},
        plan_installed=True,
        baseline_slowdowns={"ecmp": 2.1, "greedy": 2.0},
        pins=1,
        extension=ExtensionStatus(timings={JobId("llama"): timing()}),
        moved_flows_total=3,
        drains={"spine2": DrainStatus("spine2", 1e9, "safe", 0, 8, 800.0)},
        drained=frozenset(part.key for part in down_parts() if part.kind is not PartKind.HOST),
        plans_total=9,
        repair=Repair(flows=2, plan_ms=4.0),
        repair_s=0.05,
        repairs_total=1,
        repaired_flows_total=2,
        plan_at=90.0,
        plan_times=Histogram().observed(0.2, 0.3),
        repair_times=Histogram().observed(0.05),
        counters_read={LEAF1: CountersRead(103.0, 103.5), LEAF2: CountersRead(100.0, 103.0)},
        refused_connections={"malformed": 3},
        refused_packets={
            RefusedPacket(PortRef(LEAF1, PortNo(1)), "forged"): 4,
            RefusedPacket(PortRef(Dpid(99), PortNo(1)), "forged"): 1,
        },
        punt_drops={PortRef(LEAF1, PortNo(3)): 77},
        dropped_packets={LEAF1: {Dropped.IPV6: 12, Dropped.DHCP: 3}, Dpid(99): {Dropped.IPV6: 1}},
        refused_claims={PortRef(LEAF1, PortNo(1)): 5, PortRef(Dpid(99), PortNo(1)): 1},
        alarms={alarm.key: alarm for alarm in ALARMS},
        down_parts={part.key: part for part in down_parts()},
        absent_parts={PartKind.SWITCH: 1, PartKind.LINK: 1, PartKind.HOST: 1},
        named_hosts={host_key("10.0.1.1"): True, host_key("10.0.1.3"): True, host_key("10.0.9.9"): True},
    )
