"""Rows of the watches of jobs, fabric, plan and alarms.

In: a published ``Status``. Out: its rows by key, and for each row a response with this row alone. The classes keep
encodings for the next status, so only one thread at a time may call them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

from google.protobuf.message import Message

from controller.alarms import Alarm, AlarmKey, same_news
from controller.api import convert, convert_fabric, convert_plan
from controller.api.watch_table import Rows
from controller.demand.job_demand import JobDemand
from controller.fabric.parts import Part, PartKey
from controller.fabric.topology import Dpid, Fabric, Host, Link, LinkId, Switch
from controller.planning.plan import Plan
from controller.shared_map import Memo
from controller.status import DrainStatus, JobEnd, JobStatus, Status
from signalbox.jobs.spec import JobId
from signalbox.mapping import message_of, timestamp
from signalbox.v1 import signalbox_pb2 as pb


def _bytes(message: Message) -> bytes:
    encoded: bytes = message.SerializeToString()
    return encoded


# ---- jobs

JobKey = tuple[JobId, str]
"""Key of a registration: the job's id, and the registration's uid."""

JobRow = tuple[JobStatus, JobDemand | None, tuple[float, ...]]
"""Job, its demand, and its reported figures: number of iterations, latest communication time in seconds, measured
efficiency."""

_SNAPSHOT = attrgetter(*(field.name for field in fields(JobStatus) if field.name != "vitals"))
"""Function that returns a tuple of all fields of a job's status except ``vitals``.

The other fields never change while a status is published. Two tuples are compared fast, because Python compares their
entries by identity first."""


class JobRows(Rows[JobKey, JobRow]):
    """Registered jobs, without the remaining times of leases and the measured rates, which change all the time."""

    def __init__(self) -> None:
        self._ends: Mapping[str, JobEnd] = {}

    def of(self, status: Status) -> Mapping[JobKey, JobRow]:
        """Return the jobs, and remember the ends of registrations, which the messages of ``gone`` report."""
        self._ends = {end.uid: end for end in status.job_ends}
        return _jobs(status)

    def row(self, _: JobKey, row: JobRow) -> bytes:
        job, demand, _reported = row
        message = convert.job_message(job, job.lease_ends_at, demand)
        message.ClearField("lease_left")
        if demand:
            for rate in ("measured_bps", "window", "undeclared_fraction"):
                message.demand.ClearField(rate)
        return _bytes(pb.WatchJobsResponse(jobs=[message]))

    def gone(self, key: JobKey, row: JobRow) -> bytes:
        job_id, uid = key
        end = self._ends.get(uid)
        if end:
            message = message_of(pb.JobEnd, end, end_time=timestamp(end.ended_at))
        else:
            message = pb.JobEnd(job_id=job_id, uid=uid, tenant=row[0].registration.tenant)
        return _bytes(pb.WatchJobsResponse(ended=[message]))

    def same(self, before: JobRow, now: JobRow) -> bool:
        (job, demand, reported), (job_now, demand_now, reported_now) = before, now
        if reported != reported_now or (
            demand is not demand_now and _published_fields(demand) != _published_fields(demand_now)
        ):
            return False
        return job is job_now or bool(_SNAPSHOT(job) == _SNAPSHOT(job_now))

    def owner(self, row: JobRow) -> str:
        return row[0].registration.tenant


def _jobs(status: Status) -> dict[JobKey, JobRow]:
    return {
        (job_id, job.uid): (
            job,
            status.demands.get(job_id),
            (job.iterations, job.last_communication_s, job.efficiency_measured),
        )
        for job_id, job in status.jobs.items()
    }


def _published_fields(demand: JobDemand | None) -> object:
    return demand and (demand.source, demand.learning, demand.difference)


# ---- fabric

FabricKey = Dpid | LinkId | str | PartKey | tuple[str, str]
"""Key of a switch, a link, a host, a part that is down, or a drained part."""

FabricRow = tuple[Any, ...]
"""Tuple whose first entry is the part. The further entries depend on the kind of the part:

- Switch: its status, or None.
- Link: its name, and its rates of all traffic and of background traffic in bit/s.
- Host: the name of its switch.
- Part that is down, drained part: no further entries."""


class FabricRows(Rows[FabricKey, FabricRow]):
    """Switches, links with their rates, hosts, parts that are down, and drained parts."""

    def __init__(self) -> None:
        self._names = Memo(_names)
        self._links: dict[LinkId, tuple[Link, str, pb.WatchFabricResponse]] = {}

    def of(self, status: Status) -> Mapping[FabricKey, FabricRow]:
        fabric = status.fabric
        found: dict[FabricKey, FabricRow] = {
            dpid: (switch, status.switches.get(dpid)) for dpid, switch in fabric.switches.items()
        }
        names, rates = self._names(fabric), convert_fabric.rates(status, status.late_ports(time.monotonic()))
        for link_id, link in fabric.links.items():
            found[link_id] = (link, names[link_id], *rates(link_id))
        for ip, host in fabric.hosts.items():
            found[ip] = (host, fabric.name(host.at.dpid))
        for name, drain in status.drains.items():
            found["drain", name] = (drain,)
        found.update((key, (part,)) for key, part in status.down_parts.items())
        return found

    def row(self, _: FabricKey, row: FabricRow) -> bytes:
        match row:
            case Switch() as switch, status:
                return _bytes(pb.WatchFabricResponse(switches=[convert_fabric.switch_message(switch, status)]))
            case Host() as host, name:
                return _bytes(pb.WatchFabricResponse(hosts=[convert_fabric.host_message(host, name)]))
            case (DrainStatus() as drain,):
                return _bytes(pb.WatchFabricResponse(drains=[convert_fabric.drain_message(drain)]))
            case (Part() as part,):
                return _bytes(pb.WatchFabricResponse(parts_down=[convert_fabric.down_message(part)]))
        link, name, rate_bps, background_bps = row
        message = self._link(link, name)
        for field, value in (("rate_bps", rate_bps), ("background_bps", background_bps)):
            if value is None:
                message.links[0].ClearField(field)
            else:
                setattr(message.links[0], field, value)
        return _bytes(message)

    def gone(self, key: FabricKey, row: FabricRow) -> bytes:
        match key:
            case PartKey():
                return _bytes(pb.WatchFabricResponse(parts_back=[convert_fabric.down_message(row[0])]))
            case LinkId(dpid, port):
                return _bytes(pb.WatchFabricResponse(links_gone=[pb.PortRef(dpid=dpid, port=port)]))
            case (_, name):
                return _bytes(pb.WatchFabricResponse(drains_gone=[name]))
            case str(ip):
                return _bytes(pb.WatchFabricResponse(hosts_gone=[ip]))
            case dpid:
                return _bytes(pb.WatchFabricResponse(switches_gone=[dpid]))

    def _link(self, link: Link, name: str) -> pb.WatchFabricResponse:
        """Return the response of a link without its rates.

        The response is kept: the rates of links change every second, but all other fields change seldom."""
        known = self._links.get(link.id)
        if known is None or known[:2] != (link, name):
            known = link, name, pb.WatchFabricResponse(links=[convert_fabric.link_message(link, name)])
            self._links[link.id] = known
        return known[2]


def _names(fabric: Fabric) -> Mapping[LinkId, str]:
    return {link_id: fabric.link_name(link_id) for link_id in fabric.links}


# ---- plan

PlanRow = tuple[Plan, bool, Mapping[str, float], Mapping[JobId, object], object]
"""Plan, whether it is installed, slowdown by baseline, source of each job's demand, and sharing of links."""


class PlanRows(Rows[str, PlanRow]):
    """The newest plan: one row, or no row before the first plan."""

    def __init__(self) -> None:
        self._status = Status()

    def of(self, status: Status) -> Mapping[str, PlanRow]:
        self._status = status
        if status.plan is None:
            return {}
        slowdowns, sources = status.baseline_slowdowns, status.plan_demand_source
        return {"plan": (status.plan, status.plan_installed, slowdowns, sources, status.extension.sharing)}

    def row(self, _: str, row: PlanRow) -> bytes:
        return convert_plan.plan_bytes(pb.WatchPlanResponse(), row[0], self._status, row[1])

    def gone(self, _key: str, _row: PlanRow) -> bytes:
        return b""

    def same(self, before: PlanRow, now: PlanRow) -> bool:
        return before[0] is now[0] and before[1:] == now[1:]


# ---- alarms


class AlarmRows(Rows[AlarmKey, Alarm]):
    """Raised alarms."""

    def __init__(self) -> None:
        # Read the offset once, so that the raise time of an alarm never changes.
        self._unix_offset_s = time.time() - time.monotonic()

    def of(self, status: Status) -> Mapping[AlarmKey, Alarm]:
        return status.alarms

    def row(self, _: AlarmKey, alarm: Alarm) -> bytes:
        return _bytes(pb.WatchAlarmsResponse(raised=[self._message(alarm)]))

    def gone(self, _: AlarmKey, alarm: Alarm) -> bytes:
        return _bytes(pb.WatchAlarmsResponse(ended=[self._message(alarm)]))

    def same(self, before: Alarm, now: Alarm) -> bool:
        return same_news(before, now)

    def _message(self, alarm: Alarm) -> pb.Alarm:
        return convert.alarm_message(alarm, self._unix_offset_s)
