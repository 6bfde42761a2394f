"""What is wrong now: alarms of jobs, of the plan, and of what switches do. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from controller.alarms import Alarm
from controller.core.refusals import (
    CONNECTIONS_RECENT_S,
    DUPLICATES_RECENT_S,
    FLOODS_RECENT_S,
    PACKETS_RECENT_S,
)
from controller.core.state import State
from controller.fabric.topology import Dpid, Fabric, LinkId, PortRef
from controller.jobs.demand import JobDemand
from controller.planning.efficiency import LEVEL_TOLERANCE
from controller.tables.rules import Table
from signalbox.jobs.spec import JobId
from signalbox.words import AlarmKind

_LLDP_KINDS = {
    "malformed": AlarmKind.LLDP_MALFORMED,
    "forged": AlarmKind.LLDP_FORGED,
    "replayed": AlarmKind.LLDP_REPLAYED,
    "reflected": AlarmKind.LLDP_REFLECTED,
}
"""By why a packet was refused. Other reasons raise no alarm: LLDP of hosts, and of ports that go down, is common."""


def demand_alarm(job_id: JobId, demand: JobDemand) -> Alarm | None:
    """Return the alarm of a job that contradicts its announcement, else None. A job that is silent or slower has none:
    it may write a checkpoint, and the lease of one that was killed ends."""
    facts = {"difference": demand.difference}
    return Alarm(AlarmKind.DEMAND_DIFFERS, job_id, facts) if demand.contradicted else None


def host_alarm(job_id: JobId, missing: tuple[str, ...]) -> Alarm:
    """Of a job that waits for hosts."""
    return Alarm(AlarmKind.HOSTS_MISSING, job_id, {"hosts": missing})


def raised_alarms(s: State, fabric: Fabric, without_path: Mapping[JobId, int], now: float) -> Iterator[Alarm]:
    """What is wrong now beside jobs, each kind at most once per subject. ``without_path``: flows of jobs whose hosts
    the fabric does not connect, whatever is planned. ``fabric``: with a name of its switches for each."""
    plan = s.cycle.plan
    if s.plan_installed and plan and plan.ecmp and plan.max_level > plan.ecmp.mean * (1 + LEVEL_TOLERANCE):
        yield Alarm(AlarmKind.PLAN_WORSE_THAN_ECMP, "plan", {"level": plan.max_level, "ecmp": plan.ecmp.mean})
    if without_path:
        yield Alarm(AlarmKind.FLOWS_WITHOUT_PATH, "plan", {"flows": (), "of_jobs": dict(without_path)})
    elif plan and plan.unrouted:
        yield Alarm(AlarmKind.FLOWS_WITHOUT_PATH, "plan", {"flows": plan.unrouted})
    if trouble := s.commits.trouble(now):
        yield Alarm(AlarmKind.STATE_NOT_SAVED, "state", {"why": trouble})
    yield from _switch_alarms(s, fabric, now)
    yield from _refused_connections(s, now)
    yield from _stale_counters(s, fabric, now)
    yield from _full_tables(s, fabric)
    yield from _port_alarms(s, fabric, now)


def _switch_alarms(s: State, fabric: Fabric, now: float) -> Iterator[Alarm]:
    reasons: defaultdict[Dpid, Counter[str]] = defaultdict(Counter)
    for (dpid, _), refusal in s.sync.refused.items():
        reasons[dpid][refusal.reason] += 1
    for dpid, of_switch in reasons.items():
        yield Alarm(AlarmKind.RULES_REFUSED, fabric.name(dpid), {"reasons": of_switch})
    for name in s.refusals.taken.values():
        yield Alarm(AlarmKind.MASTERSHIP_LOST, name)
    for dpid, (peer, last_at) in s.refusals.duplicates.items():
        if now < last_at + DUPLICATES_RECENT_S:
            yield Alarm(AlarmKind.DUPLICATE_DPID, fabric.name(dpid), {"peer": peer, "dpid": dpid})
    for dpid, last_at in s.refusals.floods.items():
        if now < last_at + FLOODS_RECENT_S:
            yield Alarm(AlarmKind.SWITCH_FLOODS, fabric.name(dpid))
    for dpid, count in s.sync.foreign.items():
        if count:
            yield Alarm(AlarmKind.FOREIGN_RULES, fabric.name(dpid), {"rules": count})


def _full_tables(s: State, fabric: Fabric) -> Iterator[Alarm]:
    """Of switches that are connected."""
    for dpid, use, refused in s.tables.nearly_full((rule[0], why) for rule, why in s.sync.refused.items()):
        if dpid in fabric.switches:
            name = fabric.name(dpid)
            facts = {"switch": name, "use": use, "refused": refused}
            table = f"table{use.name}" if isinstance(use.table, Table) else use.name
            yield Alarm(AlarmKind.TABLE_NEARLY_FULL, f"{name}:{table}", facts)


def _refused_connections(s: State, now: float) -> Iterator[Alarm]:
    """By why."""
    for reason, (peer, last_at) in s.refusals.last_connections.items():
        if now < last_at + CONNECTIONS_RECENT_S:
            yield Alarm(AlarmKind.CONNECTIONS_REFUSED, reason, {"peer": peer})


def _stale_counters(s: State, fabric: Fabric, now: float) -> Iterator[Alarm]:
    """Of switches that are connected."""
    oldest = now - s.counters.stale_after_s
    for dpid, read in s.counters.read.items():
        if min(read) < oldest and dpid in fabric.switches:
            yield Alarm(AlarmKind.COUNTERS_STALE, fabric.name(dpid), {"what": read.oldest})


def _port_alarms(s: State, fabric: Fabric, now: float) -> Iterator[Alarm]:
    """Of ports of switches that are connected."""
    for (at, reason), last_at in sorted(s.refusals.last_packets.items()):
        if reason in _LLDP_KINDS and now < last_at + PACKETS_RECENT_S and at.dpid in fabric.switches:
            yield Alarm(_LLDP_KINDS[reason], _port_name(fabric, at))
    for at, drops in s.counters.drops.items():
        if drops.packets and port_exists(fabric, at):
            kind = "port" if LinkId(*at) in fabric.links else "host port"
            facts = {"port_kind": kind, "packets": drops.packets, "seconds": drops.seconds}
            yield Alarm(AlarmKind.PUNT_LIMIT_EXCEEDED, _port_name(fabric, at), facts)
    for at in sorted(s.hosts.claims.refused_at):
        if at.dpid in fabric.switches:
            yield Alarm(AlarmKind.ADDRESSES_CLAIMED, _port_name(fabric, at))


def _port_name(fabric: Fabric, at: PortRef) -> str:
    return f"{fabric.name(at.dpid)}:{at.port}"


def port_exists(fabric: Fabric, at: PortRef) -> bool:
    switch = fabric.switches.get(at.dpid)
    return switch is not None and at.port in switch.ports
