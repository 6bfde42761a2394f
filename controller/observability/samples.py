"""Samples of metrics that need more than one field of the status. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import get_args

from controller.alarms import severity
from controller.fabric.messages import RefusalReason
from controller.fabric.parts import PartKey, PartKind, switch_key, unique_name
from controller.observability.shapes import (
    Sample,
    Snapshot,
    demands,
    down_links,
)
from controller.status import EndReason, JobState, SwitchStatus, Unserved
from controller.store.members import Membership
from controller.tables.counters import CountersRead
from controller.tables.flow_tables import Dropped
from controller.tables.switch_sync import TableUse
from signalbox.words import AlarmKind

BITS_PER_BYTE = 8


def link_capacity(snapshot: Snapshot) -> Iterator[Sample]:
    for labels, capacity_bps in snapshot.links.values():
        yield labels, capacity_bps / BITS_PER_BYTE


def link_bytes(snapshot: Snapshot) -> Iterator[Sample]:
    """Yield the bytes of each link whose counters are up to date.

    If a counter were not read for a while, its link would first seem idle, and then seem to exceed its capacity."""
    late = snapshot.status.late_ports(snapshot.now)
    for link_id, link in snapshot.status.links.items():
        if link_id in snapshot.links and link_id.dpid not in late:
            yield snapshot.links[link_id][0], link.bytes_total


def link_background(snapshot: Snapshot) -> Iterator[Sample]:
    for link_id, link in snapshot.status.links.items():
        if link_id in snapshot.links and link.background_bps:
            yield snapshot.links[link_id][0], link.background_bps / BITS_PER_BYTE


def refused_packets(snapshot: Snapshot) -> Iterator[Sample]:
    """Yield the refused packets of connected switches."""
    fabric = snapshot.status.fabric
    for (at, reason), count in snapshot.status.refused_packets.items():
        if at.dpid in fabric.switches:
            yield (fabric.name(at.dpid), str(at.port), reason), count


def dropped_packets(snapshot: Snapshot) -> Iterator[Sample]:
    """Yield the dropped packets by kind.

    Every kind has a series from the first reading on, because an increase can only be seen after a 0."""
    fabric = snapshot.status.fabric
    for dpid, packets in snapshot.status.dropped_packets.items():
        if dpid in fabric.switches:
            for kind in Dropped:
                yield (fabric.name(dpid), kind.value), packets.get(kind, 0)


def table_entries(snapshot: Snapshot) -> Iterator[Sample]:
    return _of_tables(snapshot, lambda use: use.entries)


def table_max_entries(snapshot: Snapshot) -> Iterator[Sample]:
    return _of_tables(snapshot, lambda use: use.max_entries)


def _of_tables(snapshot: Snapshot, value: Callable[[TableUse], int | None]) -> Iterator[Sample]:
    for dpid, switch in snapshot.status.switches.items():
        for use in switch.tables:
            if (known := value(use)) is not None:
                yield (snapshot.status.fabric.name(dpid), use.name), known


def refused_connections(snapshot: Snapshot) -> Iterator[Sample]:
    """Yield refusals by reason. Every reason has a series, because an increase can only be seen after a 0."""
    for reason in get_args(RefusalReason):
        yield (reason,), snapshot.status.refused_connections.get(reason, 0)


def alarms(snapshot: Snapshot) -> Iterator[Sample]:
    """Yield the numbers of alarms by kind. Every kind has a series, so that a sum over time shows a brief alarm."""
    active = Counter(alarm.kind for alarm in snapshot.status.alarms.values() if not alarm.silence)
    for kind in AlarmKind:
        yield (kind.value, severity(kind)), active[kind]


def silenced_alarms(snapshot: Snapshot) -> Iterator[Sample]:
    for kind, count in Counter(alarm.kind for alarm in snapshot.status.alarms.values() if alarm.silence).items():
        yield (kind.value, severity(kind)), count


def jobs(snapshot: Snapshot) -> Iterator[Sample]:
    """Yield the numbers of jobs by state.

    Every state has a series, because an alerting rule on ``pending`` needs the 0."""
    states = Counter(job.state for job in snapshot.status.jobs.values())
    for state in get_args(JobState):
        yield (state,), states[state]


def jobs_unserved(snapshot: Snapshot) -> Iterator[Sample]:
    unserved = snapshot.status.unserved
    for reason in get_args(Unserved):
        yield (reason,), unserved.get(reason, 0)


def jobs_ended(snapshot: Snapshot) -> Iterator[Sample]:
    for reason in EndReason:
        yield (reason.value,), snapshot.status.jobs_ended.get(reason, 0)


def plan_duration(snapshot: Snapshot) -> Iterator[Sample]:
    if snapshot.status.plan:
        times = snapshot.status.plan.times
        for stage, milliseconds in (("build", times.build_ms), ("solve", times.solve_ms), ("check", times.check_ms)):
            yield (stage,), milliseconds / 1000


def repair_duration(snapshot: Snapshot) -> Iterator[Sample]:
    if snapshot.status.repair:
        yield ("plan",), snapshot.status.repair.plan_ms / 1000
    if snapshot.status.repair_s is not None:
        yield ("total",), snapshot.status.repair_s


def plan_info(snapshot: Snapshot) -> Iterator[Sample]:
    if snapshot.status.plan:
        yield (snapshot.status.plan.solver, snapshot.status.plan.certificate), 1


def demand_source(snapshot: Snapshot) -> Iterator[Sample]:
    for (job_id,), demand in demands(snapshot):
        yield (job_id, demand.source.value), 1


def membership(snapshot: Snapshot) -> tuple[Membership, ...]:
    """Return the membership of this controller; empty if the state is not in etcd."""
    return (snapshot.board.membership,) if snapshot.board.membership else ()


def member_switches(snapshot: Snapshot) -> Iterator[Sample]:
    return _of_members(snapshot, snapshot.board.switches_of_members()[0])


def member_assigned_switches(snapshot: Snapshot) -> Iterator[Sample]:
    return _of_members(snapshot, snapshot.board.switches_of_members()[1])


def _of_members(snapshot: Snapshot, counts: Mapping[str, int]) -> Iterator[Sample]:
    for name, ids in _members(snapshot):
        yield (name,), sum(counts.get(one, 0) for one in ids)


def member_draining(snapshot: Snapshot) -> Iterator[Sample]:
    for one in membership(snapshot):
        draining = one.newest.draining
        for name, _ in _members(snapshot):
            yield (name,), name in draining


def member_refused(snapshot: Snapshot) -> Iterator[Sample]:
    refused = Counter[str]()
    for member, count in snapshot.board.refused_members.items():
        refused[member.partition("/")[0]] += count
    for name in {name: None for name, _ in _members(snapshot)} | dict.fromkeys(refused):
        yield (name,), refused[name]


def _members(snapshot: Snapshot) -> Iterator[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for one in membership(snapshot):
        for member in one.newest.all:
            found.setdefault(member.name, []).append(member.id)
    yield from found.items()


def counters_age(snapshot: Snapshot) -> Iterator[Sample]:
    if snapshot.status.counters_at is not None:
        yield (), snapshot.now - snapshot.status.counters_at


def plan_age(snapshot: Snapshot) -> Iterator[Sample]:
    if snapshot.status.plan_at is not None:
        yield (), snapshot.now - snapshot.status.plan_at


def switch_counters_age(snapshot: Snapshot) -> Iterator[Sample]:
    """Yield the age of the counters of connected switches."""
    fabric = snapshot.status.fabric
    for dpid, read in snapshot.status.counters_read.items():
        if dpid in fabric.switches:
            for kind, at in zip(CountersRead._fields, read, strict=True):
                yield (fabric.name(dpid), kind), snapshot.now - at


def if_read(count: Callable[[SwitchStatus], int]) -> Callable[[SwitchStatus], int | None]:
    return lambda switch: count(switch) if switch.is_read else None


def switch_up(snapshot: Snapshot) -> Iterator[Sample]:
    """Yield 1 for each switch that is up, and 0 for each that is down.

    Switches of the extension, such as optical switches, do not belong to the fabric. If such a switch has the same name
    as a switch of the fabric, its name in the metric is made unique."""
    status = snapshot.status
    up = dict.fromkeys((switch.name for switch in status.fabric.switches.values()), 1)
    up |= {snapshot.down_names[key][0]: 0 for key, part in status.down_parts.items() if part.kind is PartKind.SWITCH}
    for dpid, switch in sorted(status.extension.switches.items()):
        up[unique_name(switch.name, dpid, frozenset(up))] = int(switch.connected)
    for name, value in up.items():
        yield (name,), value


def link_up(snapshot: Snapshot) -> Iterator[Sample]:
    """Yield 1 for each link between switches that is up, and 0 for each that is down.

    A cable has a series for each direction. A circuit has a series only while it exists."""
    for labels, _ in snapshot.links.values():
        if labels.kind == "fabric":
            yield labels, 1
    for part in snapshot.status.down_parts.values():
        if part.kind is PartKind.LINK:
            yield from ((labels, 0) for labels in down_links(part, snapshot.down_names[part.key]))


def switch_drained(snapshot: Snapshot) -> Iterator[Sample]:
    """Yield the drained switches, with the same names as in ``switch_up``."""
    status = snapshot.status
    for switch in status.fabric.switches.values() if status.drained else ():
        if switch_key(switch.dpid) in status.drained:
            yield (switch.name,), 1
    for key in status.drained & status.down_parts.keys():
        if isinstance(key, PartKey) and key.kind is PartKind.SWITCH:
            yield (snapshot.down_names[key][0],), 1


def link_drained(snapshot: Snapshot) -> Iterator[Sample]:
    """Yield the drained links, with the same names as in ``link_up``."""
    status = snapshot.status
    for link_id, (labels, _) in snapshot.links.items() if status.drained else ():
        if link_id in status.drained:
            yield labels, 1
    for key in status.drained & status.down_parts.keys():
        if isinstance(key, PartKey) and key.kind is PartKind.LINK:
            yield from ((down, 1) for down in down_links(status.down_parts[key], snapshot.down_names[key]))


def host_up(snapshot: Snapshot) -> Iterator[Sample]:
    """Yield 1 for each host that is up, and 0 for each that is down, with the name of its switch.

    Only hosts that a job or the inventory names are included, from when they are first seen or declared."""
    status = snapshot.status
    for key in status.named_hosts:
        if key in status.down_parts:
            yield (key.id, snapshot.down_names[key][0]), 0
        elif host := status.fabric.hosts.get(key.id):
            yield (key.id, status.fabric.name(host.at.dpid)), 1
