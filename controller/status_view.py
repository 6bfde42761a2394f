"""Builds the published ``Status`` from the control loop's state. Reads, never changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from controller.control_loop import ControlLoop
from controller.fabric.topology import Fabric
from controller.jobs.registry import Job
from controller.jobs.spec import JobId
from controller.planning.efficiency import LEVEL_TOLERANCE, ideal_communication_s
from controller.planning.problem import FlowId, Route
from controller.planning.snapshot import missing_hosts
from controller.status import JobState, JobStatus, Status, SwitchStatus


class StatusView:
    """Builds one status after another: what a job's status follows from seldom changes."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, tuple[tuple[object, ...], JobStatus]] = {}

    def status(self, loop: ControlLoop) -> Status:
        """Everything that others may see, as of now."""
        known, self._jobs = self._jobs, {}
        for job in loop.registry.jobs.values():
            before = known.get(job.id)
            follows_from = (job, loop.fabric, loop.confirmed.routes, loop.replanning.levels)
            if before is None or not all(a is b for a, b in zip(before[0], follows_from, strict=True)):
                before = follows_from, _job_status(loop, job)
            self._jobs[job.id] = before
        return _status(loop, {job_id: status for job_id, (_, status) in self._jobs.items()})


def build_status(loop: ControlLoop) -> Status:
    """Everything that others may see, worked out from nothing."""
    return StatusView().status(loop)


def _status(loop: ControlLoop, jobs: Mapping[JobId, JobStatus]) -> Status:
    fabric, foreign = loop.fabric, loop.sync.foreign
    refusing = {dpid for dpid, _ in loop.sync.refused}
    return Status(
        fabric=fabric,
        strategy=loop.strategy,
        adopting=loop.adopting,
        switches={
            dpid: SwitchStatus(
                in_sync=dpid in loop.sync.settled and dpid not in refusing,
                rules=len(loop.sync.installed.get(dpid, ())),
                foreign_rules=foreign.get(dpid, 0),
                healed_rules=loop.sync.healed[dpid],
            )
            for dpid in fabric.switches
        },
        links=loop.load.figures(fabric),
        jobs=jobs,
        plan=loop.replanning.plan,
        plan_installed=loop.replanning.adopted,
        plan_reason=loop.replanning.reason,
        baseline_levels=loop.replanning.baseline_levels,
        pins=len(loop.confirmed.pins),
        moved_flows_total=loop.replanning.moved_flows_total,
        plans_total=loop.replanning.plans_total,
        repair=loop.replanning.repair,
        repair_s=loop.losses.repair_s,
        repairs_total=loop.replanning.repairs_total,
        repaired_flows_total=loop.replanning.repaired_flows_total,
        counters_at=min(loop.counters.at.values(), default=None),
        punt_drops=loop.counters.drops.totals(fabric),
        refused_connections=dict(loop.refused_connections),
        refused_packets=dict(loop.refused_packets.total),
        refused_claims=dict(loop.hosts.claims.refused),
        alarms=tuple(_alarms(loop)),
    )


def _job_status(loop: ControlLoop, job: Job) -> JobStatus:
    fabric = loop.fabric
    missing = missing_hosts(fabric, job)
    routes = {FlowId(*pair): loop.confirmed.routes.get(FlowId(*pair)) for pair in sorted(job.pairs)}
    nic_bps = {ip: fabric.hosts[ip].nic_bps for pair in job.pairs for ip in pair if ip in fabric.hosts}
    return JobStatus(
        spec=job.spec,
        state="pending" if missing else _routed_state(fabric, routes),
        missing_hosts=missing,
        lease_ends_at=job.lease_ends_at,
        level=0.0 if missing else loop.replanning.levels.get(job.id, 0.0),
        ideal_communication_s=0.0 if missing else ideal_communication_s(job.virtual_links, nic_bps),
        iterations=job.iterations,
        last_communication_s=job.last_communication_s,
        mean_communication_s=job.mean_communication_s,
        routes=routes,
        routes_generation=loop.confirmed.generation.get(job.id, 0),
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


def _alarms(loop: ControlLoop) -> Iterator[str]:
    """One sentence for each thing an operator should look at."""
    plan = loop.replanning.plan
    if loop.replanning.adopted and plan and plan.ecmp and plan.max_level > plan.ecmp.mean * (1 + LEVEL_TOLERANCE):
        yield f"the plan's worst level {plan.max_level:.2f} is worse than ECMP's mean {plan.ecmp.mean:.2f}"
    if plan and plan.unrouted:
        pairs = ", ".join(f"{flow.src_ip} > {flow.dst_ip}" for flow in plan.unrouted[:4])
        yield f"{len(plan.unrouted)} flows have no path: {pairs}"
    refusals = Counter((dpid, refusal.reason) for (dpid, _), refusal in loop.sync.refused.items())
    for (dpid, reason), count in refusals.items():
        what = "a rule" if count == 1 else f"{count} rules"
        yield f"{loop.fabric.name(dpid)} refused {what} ({reason}); what was to be pinned stays on ECMP"
    yield from loop.contested.alarms(loop.fabric)
    for dpid, count in loop.sync.foreign.items():
        if count:
            yield f"{loop.fabric.name(dpid)} holds {count} rules of somebody else"
    yield from loop.refused_packets.alarms(loop.fabric)
    yield from loop.counters.drops.alarms(loop.fabric)
    for dpid, port in sorted(at for at in loop.hosts.claims.refused_at if at.dpid in loop.fabric.switches):
        yield f"{loop.fabric.name(dpid)}:{port} claims addresses of hosts elsewhere; they stay where they are"
    for job in loop.registry.jobs.values():
        missing = missing_hosts(loop.fabric, job)
        if missing:
            yield f"job {job.id} waits for {len(missing)} hosts: {', '.join(missing[:4])}"
