"""The one converter between the wire (protobuf) and our frozen types, both ways.

In from the wire: requests become ``JobSpec``, ``IterationTime`` and ``Strategy``, or ``InvalidInput`` whose paths are
the proto's field names. Out to the wire: the status and its parts become responses. Pure; linear in the size of the
message.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from google.protobuf.duration_pb2 import Duration

from controller.alarms import text
from controller.api.pb.signalbox.v1 import signalbox_pb2 as pb
from controller.config import Strategy
from controller.errors import FieldProblem, InvalidInput
from controller.fabric.topology import Fabric, Path
from controller.jobs.collectives import MAX_VIRTUAL_LINKS, PortClass, check, port_classes
from controller.jobs.messages import IterationTime
from controller.jobs.spec import MAX_COLLECTIVES, MAX_ENDPOINTS, MAX_GROUPS, Algorithm, JobId, JobSpec, Transport
from controller.planning.messages import ReplanOutcome, StrategySet
from controller.planning.plan import Plan
from controller.planning.problem import FlowId, Route
from controller.status import JobState, JobStatus, Status

MAX_RANKS = 2 * MAX_VIRTUAL_LINKS
"""Over all groups: a group of n ranks that is used makes at least n-1 >= n/2 virtual links."""

MAX_REPORTED = 10_000
"""Iterations in one report."""

_ALGORITHMS: dict[pb.Algorithm, Algorithm] = {getattr(pb, f"ALGORITHM_{a.name}"): a for a in Algorithm}
_ALGORITHM_VALUES = {algorithm: value for value, algorithm in _ALGORITHMS.items()}
_TRANSPORTS: dict[pb.Transport, Transport] = {getattr(pb, f"TRANSPORT_{t.name}"): t for t in Transport}
_TRANSPORT_VALUES = {transport: value for value, transport in _TRANSPORTS.items()}
_STRATEGIES: dict[pb.Strategy, Strategy] = {getattr(pb, f"STRATEGY_{s.name}"): s for s in Strategy}
_STRATEGY_VALUES = {strategy: value for value, strategy in _STRATEGIES.items()}
_JOB_STATES: dict[JobState, pb.JobState] = {
    "pending": pb.JOB_STATE_PENDING,
    "ecmp": pb.JOB_STATE_ECMP,
    "partly_pinned": pb.JOB_STATE_PARTLY_PINNED,
    "pinned": pb.JOB_STATE_PINNED,
}

# ---- from the wire


def job_spec(request: pb.RegisterJobRequest) -> JobSpec:
    """The announced job. Raises ``InvalidInput`` with every wrong field, by its path inside ``spec``."""
    message = request.spec
    _refuse_oversized(message)
    data: dict[str, Any] = {
        "job_id": message.job_id,
        "endpoints": list(message.endpoints),
        "groups": [{"name": g.name, "ranks": list(g.ranks)} for g in message.groups],
        "collectives": [
            {
                "algorithm": _ALGORITHMS.get(c.algorithm, c.algorithm),
                "groups": list(c.groups),
                "bytes_per_iteration": c.bytes_per_iteration,
                "phase": c.phase,
            }
            for c in message.collectives
        ],
        "max_subflows": message.max_subflows or 1,
    }
    if message.transport != pb.TRANSPORT_UNSPECIFIED:
        data["transport"] = _TRANSPORTS.get(message.transport, message.transport)
    if message.HasField("lease"):
        data["lease_s"] = seconds(message.lease)
    try:
        spec = JobSpec.parse(data)
    except InvalidInput as error:
        raise InvalidInput(tuple(map(_in_proto_words, error.problems))) from None
    problems = check(spec)
    if problems:
        raise InvalidInput(tuple(problems))
    return spec


def iterations(request: pb.ReportIterationsRequest) -> tuple[IterationTime, ...]:
    """The reported iterations. Raises ``InvalidInput`` for times that are not finite and positive."""
    if len(request.iterations) > MAX_REPORTED:
        message = f"{len(request.iterations)} iterations in one report; at most {MAX_REPORTED} are allowed"
        raise InvalidInput((FieldProblem("iterations", message),))
    problems = tuple(
        FieldProblem(f"iterations[{i}].{name}", f"a time in seconds above 0 is needed (given: {value})")
        for i, iteration in enumerate(request.iterations)
        for name, value in (("duration_s", iteration.duration_s), ("communication_s", iteration.communication_s))
        if not (math.isfinite(value) and value > 0)
    )
    if problems:
        raise InvalidInput(problems)
    return tuple(IterationTime(i.index, i.duration_s, i.communication_s) for i in request.iterations)


def strategy(value: pb.Strategy) -> Strategy:
    """Raises ``InvalidInput`` for a value that names no strategy."""
    try:
        return _STRATEGIES[value]
    except KeyError:
        known = ", ".join(map(pb.Strategy.Name, _STRATEGIES))
        raise InvalidInput((FieldProblem("strategy", f"choose one of {known} (given: {value})"),)) from None


def seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9


def _refuse_oversized(message: pb.JobSpec) -> None:
    """Lists that are too long, alone or taken together, before anything is spent on their items."""
    lists = (
        ("endpoints", "endpoints", len(message.endpoints), MAX_ENDPOINTS),
        ("groups", "groups", len(message.groups), MAX_GROUPS),
        ("groups", "ranks in all groups", sum(len(group.ranks) for group in message.groups), MAX_RANKS),
        ("collectives", "collectives", len(message.collectives), MAX_COLLECTIVES),
        (
            "collectives",
            "groups in all collectives",
            sum(len(c.groups) for c in message.collectives),
            MAX_VIRTUAL_LINKS,
        ),
    )
    problems = tuple(
        FieldProblem(path, f"at most {limit} {what} are allowed (given: {count})")
        for path, what, count, limit in lists
        if count > limit
    )
    if problems:
        raise InvalidInput(problems)


def _in_proto_words(problem: FieldProblem) -> FieldProblem:
    if problem.path == "lease_s":
        return replace(problem, path="lease")
    if re.fullmatch(r"collectives\[\d+\]\.algorithm", problem.path):
        return replace(problem, message="choose one of " + ", ".join(map(pb.Algorithm.Name, _ALGORITHMS)))
    if problem.path == "transport":
        return replace(problem, message="choose one of " + ", ".join(map(pb.Transport.Name, _TRANSPORTS)))
    return problem


# ---- to the wire


def duration(value_s: float) -> Duration:
    """Nothing below zero: a lease that is over has nothing left."""
    whole, nanos = divmod(round(max(0.0, value_s) * 1e9), 1_000_000_000)
    return Duration(seconds=whole, nanos=nanos)


def spec_message(spec: JobSpec) -> pb.JobSpec:
    return pb.JobSpec(
        job_id=spec.job_id,
        endpoints=spec.endpoints,
        groups=[pb.ParallelGroup(name=g.name, ranks=g.ranks) for g in spec.groups],
        collectives=[
            pb.Collective(
                algorithm=_ALGORITHM_VALUES[c.algorithm],
                groups=c.groups,
                bytes_per_iteration=c.bytes_per_iteration,
                phase=c.phase,
            )
            for c in spec.collectives
        ],
        lease=duration(spec.lease_s),
        max_subflows=spec.max_subflows,
        transport=_TRANSPORT_VALUES[spec.transport],
    )


def iteration_message(iteration: IterationTime) -> pb.Iteration:
    return pb.Iteration(**asdict(iteration))


def strategy_value(value: Strategy) -> pb.Strategy:
    return _STRATEGY_VALUES[value]


def job_message(job: JobStatus, now: float) -> pb.Job:
    """``now``: monotonic seconds, for what is left of the lease."""
    return pb.Job(
        spec=spec_message(job.spec),
        state=_JOB_STATES[job.state],
        missing_hosts=job.missing_hosts,
        lease_left=duration(job.lease_ends_at - now),
        virtual_links=len(job.routes),
        pinned=job.pinned,
        level=job.level,
        efficiency_predicted=job.efficiency_predicted,
        efficiency_measured=job.efficiency_measured,
        ideal_communication_s=job.ideal_communication_s,
        iterations=job.iterations,
        last_communication_s=job.last_communication_s,
        subflows=job.subflows,
    )


def routes_message(job: JobStatus, fabric: Fabric) -> pb.WatchRoutesResponse:
    classes = port_classes(job.spec.max_subflows)
    routes = [_route(flow, route, classes, fabric) for flow, route in sorted(job.routes.items(), key=_by_flow)]
    return pb.WatchRoutesResponse(generation=job.routes_generation, routes=routes)


def fabric_message(status: Status) -> pb.GetFabricResponse:
    """Switches by datapath id, directed links by port, hosts by address."""
    fabric = status.fabric
    return pb.GetFabricResponse(
        generation=fabric.generation,
        switches=_switches(status),
        links=_links(status),
        hosts=[
            pb.Host(ip=h.ip, mac=h.mac or "", dpid=h.at.dpid, port=h.at.port, switch=fabric.name(h.at.dpid))
            for h in sorted(fabric.hosts.values(), key=lambda host: host.at)
        ],
    )


def plan_message(plan: Plan, status: Status, installed: bool) -> pb.Plan:
    """``status`` says whose flows the plan routes and names the switches."""
    owner: dict[FlowId, JobId] = {flow: job_id for job_id, job in status.jobs.items() for flow in job.routes}
    classes = {job_id: port_classes(job.spec.max_subflows) for job_id, job in status.jobs.items()}

    def planned(flow: FlowId, route: Route) -> pb.PlannedRoute:
        job_id = owner.get(flow, JobId(""))
        told = classes[job_id] if job_id else port_classes(len(route))  # its job has left since it was planned
        return pb.PlannedRoute(job_id=job_id, route=_route(flow, route, told, status.fabric))

    return pb.Plan(
        generation=plan.generation,
        max_level=plan.max_level,
        bound=plan.bound,
        gap=plan.gap,
        certificate=plan.certificate,
        levels_proven=plan.levels_proven,
        solver=plan.solver,
        moves=plan.moves,
        ecmp_level_mean=plan.ecmp.mean if plan.ecmp else 0.0,
        ecmp_level_p95=plan.ecmp.p95 if plan.ecmp else 0.0,
        plan_ms=plan.times.total_ms,
        job_level={str(job_id): level for job_id, level in plan.job_level.items()},
        routes=[planned(flow, route) for flow, route in sorted(plan.routes.items(), key=_by_flow)],
        unrouted=[f"{flow.src_ip}>{flow.dst_ip}" for flow in plan.unrouted],
        installed=installed,
        subflows=plan.subflows,
        baseline_level=status.baseline_levels if plan is status.plan else {},
    )


def status_message(status: Status, now: float, version: str) -> pb.GetStatusResponse:
    """``now``: monotonic seconds, for the age of the counters (0 before the first)."""
    return pb.GetStatusResponse(
        version=version,
        strategy=_STRATEGY_VALUES[status.strategy],
        switches=len(status.fabric.switches),
        switches_in_sync=sum(switch.in_sync for switch in status.switches.values()),
        links=len(status.fabric.links),
        hosts=len(status.fabric.hosts),
        jobs=len(status.jobs),
        jobs_pending=sum(job.state == "pending" for job in status.jobs.values()),
        pins=status.pins,
        rules=sum(switch.rules for switch in status.switches.values()),
        moved_flows_total=status.moved_flows_total,
        network_efficiency=status.network_efficiency,
        counters_age_s=0.0 if status.counters_at is None else max(0.0, now - status.counters_at),
        alarms=map(text, status.alarms),
        adopting=status.adopting,
    )


def replan_message(outcome: ReplanOutcome, status: Status) -> pb.ReplanResponse:
    plan = outcome.plan
    message = plan_message(plan, status, plan is status.plan and status.plan_installed) if plan else None
    return pb.ReplanResponse(outcome=outcome.outcome, reason=outcome.reason, plan=message)


def strategy_message(done: StrategySet) -> pb.SetStrategyResponse:
    return pb.SetStrategyResponse(strategy=_STRATEGY_VALUES[done.strategy], install_s=done.install_s, pins=done.pins)


def _by_flow(item: tuple[FlowId, object]) -> FlowId:
    return item[0]


def _route(flow: FlowId, route: Route | None, classes: Sequence[PortClass], fabric: Fabric) -> pb.Route:
    """``classes``: of the flow's job. One subflow takes every port, several take a class each."""
    if route is None:
        return pb.Route(src=flow.src_ip, dst=flow.dst_ip)
    ports = classes if len(route) > 1 else (PortClass(0, 0),)
    subflows = [
        pb.Subflow(share=share, switches=_path_names(flow, path, fabric), port_value=of.value, port_mask=of.mask)
        for (path, share), of in zip(route, ports, strict=False)
    ]
    switches = subflows[0].switches if len(route) == 1 else ()
    return pb.Route(src=flow.src_ip, dst=flow.dst_ip, pinned=True, switches=switches, subflows=subflows)


def _path_names(flow: FlowId, path: Path, fabric: Fabric) -> Sequence[str]:
    """Empty when the path stays on the switch of a host that has left."""
    source = fabric.hosts.get(flow.src_ip)
    if path:
        return fabric.path_names(path, path[0].dpid)
    return fabric.path_names(path, source.at.dpid) if source else ()


def _switches(status: Status) -> list[pb.Switch]:
    found = []
    for dpid, switch in sorted(status.fabric.switches.items()):
        state = status.switches.get(dpid)
        found.append(
            pb.Switch(
                dpid=dpid,
                name=switch.name,
                ports=[pb.Port(number=p.number, name=p.name, up=p.up) for _, p in sorted(switch.ports.items())],
                in_sync=bool(state and state.in_sync),
                rules=state.rules if state else 0,
                foreign_rules=state.foreign_rules if state else 0,
            )
        )
    return found


def _links(status: Status) -> list[pb.Link]:
    found = []
    for link_id, link in sorted(status.fabric.links.items()):
        load = status.links.get(link_id)
        found.append(
            pb.Link(
                src_dpid=link.src.dpid,
                src_port=link.src.port,
                dst_dpid=link.dst.dpid,
                dst_port=link.dst.port,
                name=status.fabric.link_name(link_id),
                capacity_bps=link.capacity_bps,
                rate_bps=load.rate_bps if load else 0.0,
                background_bps=load.background_bps if load else 0.0,
            )
        )
    return found
