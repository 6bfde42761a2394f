"""The parts of the published ``Status`` that need work: the status of every job, and what raises alarms."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from controller.alarms import Alarm, AlarmKind
from controller.core.refusals import DUPLICATES_RECENT_S, PACKETS_RECENT_S
from controller.core.state import State
from controller.fabric.topology import Dpid, Fabric, LinkId, PortRef
from controller.jobs.prediction import prediction_withheld
from controller.jobs.registry import Job
from controller.jobs.spec import JobId
from controller.memo import MemoPerKey
from controller.planning.efficiency import LEVEL_TOLERANCE
from controller.planning.problem import (
    OVERHEAD,
    FlowId,
    Route,
    communication_s,
    ideal_communication_s,
    route_of,
)
from controller.status import JobState, JobStatus, Status, SwitchStatus
from controller.tables.switch_sync import SwitchSync

_LLDP_KINDS = {
    "malformed": AlarmKind.LLDP_MALFORMED,
    "forged": AlarmKind.LLDP_FORGED,
    "replayed": AlarmKind.LLDP_REPLAYED,
    "reflected": AlarmKind.LLDP_REFLECTED,
}
"""By why a packet was refused. Other reasons raise no alarm: LLDP of hosts, and of ports that go down, is common."""


def status(
    s: State, jobs: Mapping[JobId, JobStatus], background_bps: Mapping[LinkId, float], alarms: tuple[Alarm, ...]
) -> Status:
    """Everything that others may see, as of now."""
    return Status(
        fabric=s.fabric,
        strategy=s.strategy,
        adopting=s.phases.adopting,
        switches=_switches(s.sync, s.fabric),
        links=s.load.figures(s.fabric, background_bps),
        jobs=jobs,
        job_ends=s.jobs.ends.certain,
        jobs_ended=s.jobs.ends.totals,
        demands=s.demand.demands,
        plan=s.cycle.plan,
        plan_installed=s.cycle.adopted,
        plan_reason=s.cycle.reason,
        plan_demand_source=s.cycle.demand_source,
        baseline_levels=s.cycle.baseline_levels,
        pins=len(s.sending.pins),
        moved_flows_total=s.cycle.moved_flows_total,
        plans_total=s.cycle.plans_total,
        repair=s.cycle.repair,
        repair_s=s.losses.repair_s,
        repairs_total=s.cycle.repairs_total,
        repaired_flows_total=s.cycle.repaired_flows_total,
        counters_at=min(s.counters.at.values(), default=None),
        punt_drops={at: drops.total for at, drops in s.counters.drops.items() if drops.total and _exists(s.fabric, at)},
        refused_connections=dict(s.refusals.connections),
        refused_packets=dict(s.refusals.packets),
        refused_claims=dict(s.hosts.claims.refused),
        state_revision=s.commits.revision,
        state_failures=s.commits.failures,
        alarms=alarms,
    )


def _switches(sync: SwitchSync, fabric: Fabric) -> dict[Dpid, SwitchStatus]:
    foreign = sync.foreign
    refusing = {dpid for dpid, _ in sync.refused}
    return {
        dpid: SwitchStatus(
            in_sync=dpid in sync.settled and dpid not in refusing,
            rules=len(sync.installed.get(dpid, ())),
            foreign_rules=foreign.get(dpid, 0),
            healed_rules=sync.healed[dpid],
        )
        for dpid in fabric.switches
    }


NO_PHASES: Mapping[int, float] = {}


class JobStatuses:
    """Derives the status of every job; anew only for jobs whose inputs have changed."""

    def __init__(self) -> None:
        self._of_job = MemoPerKey[
            JobId, Job, tuple[str, ...], Fabric, Mapping[FlowId, Route], int, float, Mapping[int, float], JobStatus
        ](_job_status)

    def __call__(
        self,
        jobs: Mapping[JobId, Job],
        missing: Mapping[JobId, tuple[str, ...]],
        fabric: Fabric,
        confirmed: Mapping[FlowId, Route],
        generation: Mapping[JobId, int],
        levels: Mapping[JobId, float],
        phase_levels: Mapping[JobId, Mapping[int, float]],
    ) -> Mapping[JobId, JobStatus]:
        return self._of_job(
            {
                job_id: (
                    *(job, missing[job_id], fabric, confirmed, generation.get(job_id, 0)),
                    *(levels.get(job_id, 0.0), phase_levels.get(job_id, NO_PHASES)),
                )
                for job_id, job in jobs.items()
            }
        )


def _job_status(
    job: Job,
    missing: tuple[str, ...],
    fabric: Fabric,
    confirmed: Mapping[FlowId, Route],
    generation: int,
    level: float,
    phase_level: Mapping[int, float],
) -> JobStatus:
    owner = job.dividing.owner
    routes = {FlowId(*pair, owner): route_of(job.dividing, pair, confirmed) for pair in sorted(job.pairs)}
    nic_bps = {ip: fabric.hosts[ip].nic_bps for pair in job.pairs for ip in pair if ip in fabric.hosts}
    ideal_s = allowed_s = 0.0
    if not missing:
        overhead = OVERHEAD[job.transport]
        ideal_s = ideal_communication_s(job.virtual_links, nic_bps, overhead)
        allowed_s = (
            communication_s(job.virtual_links, nic_bps, phase_level, overhead) if phase_level else level * ideal_s
        )
    return JobStatus(
        registration=job.registration,
        state="pending" if missing else _routed_state(fabric, routes),
        missing_hosts=missing,
        vitals=job.vitals,
        level=0.0 if missing else level,
        ideal_communication_s=ideal_s if job.per_iteration else 0.0,
        efficiency_allowed=ideal_s / allowed_s if allowed_s else 0.0,
        prediction_withheld=prediction_withheld(job),
        routes=routes,
        dividing=job.dividing,
        routes_generation=generation,
    )


def _routed_state(fabric: Fabric, routes: Mapping[FlowId, Route | None]) -> JobState:
    crossing = [
        route
        for flow, route in routes.items()
        if fabric.hosts[flow.src_ip].at.dpid != fabric.hosts[flow.dst_ip].at.dpid
    ]
    pinned = sum(route is not None for route in crossing)
    if pinned == 0:
        return "ecmp"
    return "pinned" if pinned == len(crossing) else "partly_pinned"


def raised_alarms(s: State, missing: Mapping[JobId, tuple[str, ...]], now: float) -> Iterator[Alarm]:
    """What is wrong now, each kind at most once per subject. ``missing``: hosts, per job."""
    plan = s.cycle.plan
    if s.cycle.adopted and plan and plan.ecmp and plan.max_level > plan.ecmp.mean * (1 + LEVEL_TOLERANCE):
        yield Alarm(AlarmKind.PLAN_WORSE_THAN_ECMP, "plan", {"level": plan.max_level, "ecmp": plan.ecmp.mean})
    if plan and plan.unrouted:
        yield Alarm(AlarmKind.FLOWS_WITHOUT_PATH, "plan", {"flows": plan.unrouted})
    for job_id, demand in s.demand.demands.items():
        if demand.difference:
            yield Alarm(AlarmKind.DEMAND_DIFFERS, job_id, {"difference": demand.difference})
    if trouble := s.commits.trouble(now):
        yield Alarm(AlarmKind.STATE_NOT_SAVED, "state", {"why": trouble})
    yield from _switch_alarms(s, now)
    yield from _port_alarms(s, now)
    for job_id, hosts in missing.items():
        if hosts:
            yield Alarm(AlarmKind.HOSTS_MISSING, job_id, {"hosts": hosts})


def _switch_alarms(s: State, now: float) -> Iterator[Alarm]:
    reasons: defaultdict[Dpid, Counter[str]] = defaultdict(Counter)
    for (dpid, _), refusal in s.sync.refused.items():
        reasons[dpid][refusal.reason] += 1
    for dpid, of_switch in reasons.items():
        yield Alarm(AlarmKind.RULES_REFUSED, s.fabric.name(dpid), {"reasons": of_switch})
    for name in s.refusals.taken.values():
        yield Alarm(AlarmKind.MASTERSHIP_LOST, name)
    for dpid, (peer, last_at) in s.refusals.duplicates.items():
        if now < last_at + DUPLICATES_RECENT_S:
            yield Alarm(AlarmKind.DUPLICATE_DPID, s.fabric.name(dpid), {"peer": peer, "dpid": dpid})
    for dpid, count in s.sync.foreign.items():
        if count:
            yield Alarm(AlarmKind.FOREIGN_RULES, s.fabric.name(dpid), {"rules": count})


def _port_alarms(s: State, now: float) -> Iterator[Alarm]:
    """Of ports of switches that are connected."""
    for (at, reason), last_at in sorted(s.refusals.last_packets.items()):
        if reason in _LLDP_KINDS and now < last_at + PACKETS_RECENT_S and at.dpid in s.fabric.switches:
            yield Alarm(_LLDP_KINDS[reason], _port_name(s.fabric, at))
    for at, drops in s.counters.drops.items():
        if drops.packets and _exists(s.fabric, at):
            kind = "port" if LinkId(*at) in s.fabric.links else "host port"
            facts = {"port_kind": kind, "packets": drops.packets, "seconds": drops.seconds}
            yield Alarm(AlarmKind.PUNT_LIMIT_EXCEEDED, _port_name(s.fabric, at), facts)
    for at in sorted(s.hosts.claims.refused_at):
        if at.dpid in s.fabric.switches:
            yield Alarm(AlarmKind.ADDRESSES_CLAIMED, _port_name(s.fabric, at))


def _port_name(fabric: Fabric, at: PortRef) -> str:
    return f"{fabric.name(at.dpid)}:{at.port}"


def _exists(fabric: Fabric, at: PortRef) -> bool:
    switch = fabric.switches.get(at.dpid)
    return switch is not None and at.port in switch.ports


class AlarmTimes:
    """Since when each alarm has been raised."""

    def __init__(self) -> None:
        self._since: dict[tuple[AlarmKind, str], float] = {}

    def dated(self, raised: Iterator[Alarm], now: float) -> tuple[Alarm, ...]:
        """The alarms with their times. One that was not raised at the last call begins ``now``."""
        dated = tuple(
            Alarm(alarm.kind, alarm.subject, alarm.facts, self._since.get(alarm.key, now)) for alarm in raised
        )
        self._since = {alarm.key: alarm.since for alarm in dated}
        return dated
