"""The one converter between the wire (protobuf) and our frozen types, both ways.

In from the wire: requests become ``JobSpec``, ``IterationTime`` and ``Strategy``, or ``InvalidInput`` whose paths are
the proto's field names. Out to the wire: the status and its parts become responses. Pure; linear in the size of the
message.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from operator import itemgetter
from typing import Any, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from controller.alarms import difference_text, text
from controller.api.pb.signalbox.v1 import signalbox_pb2 as pb
from controller.config import MAX_PORT, Strategy
from controller.errors import FieldProblem, InvalidInput
from controller.fabric.topology import Fabric, Path
from controller.jobs.collectives import check
from controller.jobs.demand import DemandSource, JobDemand
from controller.jobs.messages import Connected, IterationTime
from controller.jobs.registry import MAX_CONNECTIONS
from controller.jobs.spec import (
    MAX_COLLECTIVES,
    MAX_ENDPOINTS,
    MAX_GROUPS,
    MAX_RAILS,
    MAX_SUBFLOWS,
    MAX_VIRTUAL_LINKS,
    Algorithm,
    Dealing,
    JobId,
    JobSpec,
    Library,
    Transport,
)
from controller.jobs.subflows import Dividing, PortClass, Ports
from controller.planning.messages import ReplanOutcome, StrategySet
from controller.planning.plan import Plan
from controller.planning.problem import FlowId, Route, Subflow, route_of
from controller.status import JobState, JobStatus, LinkStatus, Status, SwitchStatus

MAX_RANKS = 2 * MAX_VIRTUAL_LINKS
"""Over all groups: a group of n ranks that is used makes at least n-1 >= n/2 virtual links."""

MAX_REPORTED = 10_000
"""Iterations in one report."""

_ALGORITHMS: dict[pb.Algorithm, Algorithm] = {getattr(pb, f"ALGORITHM_{a.name}"): a for a in Algorithm}
_ALGORITHM_VALUES = {algorithm: value for value, algorithm in _ALGORITHMS.items()}
_TRANSPORTS: dict[pb.Transport, Transport] = {getattr(pb, f"TRANSPORT_{t.name}"): t for t in Transport}
_TRANSPORT_VALUES = {transport: value for value, transport in _TRANSPORTS.items()}
_LIBRARIES: dict[pb.Library, Library] = {getattr(pb, f"LIBRARY_{lib.name}"): lib for lib in Library}
_LIBRARY_VALUES = {library: value for value, library in _LIBRARIES.items()}
_DEALINGS: dict[pb.Dealing, Dealing] = {getattr(pb, f"DEALING_{d.name}"): d for d in Dealing}
_DEALING_VALUES = {dealing: value for value, dealing in _DEALINGS.items()}
_STRATEGIES: dict[pb.Strategy, Strategy] = {getattr(pb, f"STRATEGY_{s.name}"): s for s in Strategy}
STRATEGY_VALUES = {strategy: value for value, strategy in _STRATEGIES.items()}
_JOB_STATES: dict[JobState, pb.JobState] = {
    "pending": pb.JOB_STATE_PENDING,
    "ecmp": pb.JOB_STATE_ECMP,
    "partly_pinned": pb.JOB_STATE_PARTLY_PINNED,
    "pinned": pb.JOB_STATE_PINNED,
}

_DEMAND_SOURCES: dict[DemandSource, pb.DemandSource] = {
    source: getattr(pb, f"DEMAND_SOURCE_{source.name}") for source in DemandSource
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
        "transfers": [
            {"src": t.src, "dst": t.dst, "bytes_per_iteration": t.bytes_per_iteration, "phase": t.phase, "step": t.step}
            for t in message.transfers
        ],
        "rails": [{"endpoints": list(rail.endpoints)} for rail in message.rails],
        "max_subflows": message.max_subflows or 1,
        "reports_connections": message.reports_connections,
    }
    if message.library != pb.LIBRARY_UNSPECIFIED:
        data["library"] = _LIBRARIES.get(message.library, message.library)
    if message.transport != pb.TRANSPORT_UNSPECIFIED:
        data["transport"] = _TRANSPORTS.get(message.transport, message.transport)
    if message.dealing != pb.DEALING_UNSPECIFIED:
        data["dealing"] = _DEALINGS.get(message.dealing, message.dealing)
    if message.HasField("lease"):
        data["lease_s"] = seconds(message.lease)
    try:
        spec = JobSpec.parse(data)
    except InvalidInput as error:
        raise InvalidInput(tuple(map(_in_proto_words, error.problems))) from None
    InvalidInput.refuse(check(spec))
    return spec


def iterations(request: pb.ReportIterationsRequest) -> tuple[IterationTime, ...]:
    """The reported iterations. Raises ``InvalidInput`` for times that are not finite and positive."""
    if len(request.iterations) > MAX_REPORTED:
        message = f"{len(request.iterations)} iterations in one report; at most {MAX_REPORTED} are allowed"
        raise InvalidInput.of("iterations", message)
    InvalidInput.refuse(
        FieldProblem(f"iterations[{i}].{name}", f"a time in seconds above 0 is needed (given: {value})")
        for i, iteration in enumerate(request.iterations)
        for name, value in (("duration_s", iteration.duration_s), ("communication_s", iteration.communication_s))
        if not (math.isfinite(value) and value > 0)
    )
    return tuple(IterationTime(i.index, i.duration_s, i.communication_s) for i in request.iterations)


def connections(request: pb.ReportConnectionsRequest) -> frozenset[Connected]:
    """The reported connections. Raises ``InvalidInput`` without an address, for other sources than it, for one host
    with itself, and for ports that there are not."""
    if len(request.connections) > MAX_CONNECTIONS:
        message = f"{len(request.connections)} connections in one report; at most {MAX_CONNECTIONS} are allowed"
        raise InvalidInput.of("connections", message)
    if not request.address:
        raise InvalidInput.of("address", "is missing: the address of the host that reports")
    InvalidInput.refuse(
        FieldProblem(f"connections[{i}].{name}", problem)
        for i, connection in enumerate(request.connections)
        for name, problem in _wrong_connection(connection, request.address)
    )
    return frozenset(Connected(c.src, c.src_port, c.dst, c.dst_port) for c in request.connections)


def _wrong_connection(connection: pb.Connection, address: str) -> Iterator[tuple[str, str]]:
    if connection.src != address:
        turn = "; a connection that it accepted has its own port as src_port" if connection.dst == address else ""
        yield "src", f"must be the address that reports, {address}{turn} (given: '{connection.src}')"
    elif connection.dst == address:
        yield "dst", f"{address} cannot be connected with itself"
    for name in ("src_port", "dst_port"):
        port = getattr(connection, name)
        if not 0 < port <= MAX_PORT:
            yield name, f"a port from 1 to {MAX_PORT} is needed (given: {port})"


def strategy(value: pb.Strategy) -> Strategy:
    """Raises ``InvalidInput`` for a value that names no strategy."""
    try:
        return _STRATEGIES[value]
    except KeyError:
        known = ", ".join(map(pb.Strategy.Name, _STRATEGIES))
        raise InvalidInput.of("strategy", f"choose one of {known} (given: {value})") from None


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
        ("transfers", "transfers", len(message.transfers), MAX_VIRTUAL_LINKS),
        ("rails", "rails", len(message.rails), MAX_RAILS),
        ("rails", "addresses in all rails", sum(len(r.endpoints) for r in message.rails), MAX_RAILS * MAX_ENDPOINTS),
    )
    InvalidInput.refuse(
        FieldProblem(path, f"at most {limit} {what} are allowed (given: {count})")
        for path, what, count, limit in lists
        if count > limit
    )


_ENUMS: dict[str, tuple[Callable[[Any], str], Iterable[int]]] = {
    "collectives.algorithm": (pb.Algorithm.Name, _ALGORITHMS),
    "library": (pb.Library.Name, _LIBRARIES),
    "transport": (pb.Transport.Name, _TRANSPORTS),
    "dealing": (pb.Dealing.Name, _DEALINGS),
}


def _in_proto_words(problem: FieldProblem) -> FieldProblem:
    if problem.path == "lease_s":
        return replace(problem, path="lease")
    enum = _ENUMS.get(re.sub(r"\[\d+\]", "", problem.path))
    if enum:
        name, values = enum
        return replace(problem, message="choose one of " + ", ".join(map(name, values)))
    return problem


# ---- to the wire

Wire = TypeVar("Wire", bound=Message)


def message_of(kind: type[Wire], source: object, /, **converted: Any) -> Wire:
    """The message with the ``converted`` fields; every other field is the attribute of ``source`` with its name."""
    names = (field.name for field in kind.DESCRIPTOR.fields if field.name not in converted)
    return kind(**{name: getattr(source, name) for name in names}, **converted)


def duration(value_s: float) -> Duration:
    """Nothing below zero: a lease that is over has nothing left."""
    whole, nanos = divmod(round(max(0.0, value_s) * 1e9), 1_000_000_000)
    return Duration(seconds=whole, nanos=nanos)


def spec_message(spec: JobSpec) -> pb.JobSpec:
    return message_of(
        pb.JobSpec,
        spec,
        groups=[message_of(pb.ParallelGroup, group) for group in spec.groups],
        collectives=[message_of(pb.Collective, c, algorithm=_ALGORITHM_VALUES[c.algorithm]) for c in spec.collectives],
        lease=duration(spec.lease_s),
        transport=_TRANSPORT_VALUES[spec.transport],
        transfers=[message_of(pb.Transfer, transfer) for transfer in spec.transfers],
        library=_LIBRARY_VALUES[spec.library],
        dealing=_DEALING_VALUES[spec.dealing],
        rails=[message_of(pb.Rail, rail) for rail in spec.rails],
    )


def job_message(job: JobStatus, now: float, demand: JobDemand | None = None, with_pairs: bool = False) -> pb.Job:
    """``now``: monotonic seconds, for what is left of the lease. ``demand``: what the job sends. ``with_pairs``: the
    traffic of each pair too."""
    return message_of(
        pb.Job,
        job,
        spec=spec_message(job.spec),
        state=_JOB_STATES[job.state],
        lease_left=duration(job.lease_ends_at - now),
        virtual_links=len(job.routes),
        demand=_demand(demand, with_pairs) if demand else None,
    )


def _demand(demand: JobDemand, with_pairs: bool) -> pb.Demand:
    measured = demand.measurement
    return pb.Demand(
        source=_DEMAND_SOURCES[demand.source],
        learning=demand.learning,
        difference=difference_text(demand.difference) if demand.difference else "",
        measured_bps=float(measured.bps.sum()) if measured else 0.0,
        window_s=measured.window_s if measured else 0.0,
        undeclared_fraction=demand.undeclared_fraction,
        pairs=_pair_demands(demand) if with_pairs else (),
    )


def _pair_demands(demand: JobDemand) -> list[pb.PairDemand]:
    """Pairs that were announced, and others that carry payload."""
    declared, measured = demand.declared, demand.measurement
    bps = dict(zip(measured.pairs, measured.bps.tolist(), strict=True)) if measured else {}
    iteration_s = measured.iteration_s if measured else None
    return [
        pb.PairDemand(
            src=pair[0],
            dst=pair[1],
            declared_bytes=declared.get(pair, 0),
            measured_bps=bps.get(pair, 0.0),
            measured_bytes=None if iteration_s is None else bps.get(pair, 0.0) * iteration_s / 8,
        )
        for pair in sorted({*declared, *(pair for pair, rate in bps.items() if rate > 0)})
    ]


def routes_message(job: JobStatus, fabric: Fabric) -> pb.WatchRoutesResponse:
    routes = [
        _route(flow, route, job.dividing, fabric) for flow, route in sorted(job.routes.items(), key=itemgetter(0))
    ]
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
    """``status``: for the jobs of the flows and the names of the switches."""
    owner: dict[FlowId, JobId] = {flow: job_id for job_id, job in status.jobs.items() for flow in job.routes}

    def planned(flow: FlowId) -> pb.PlannedRoute:
        job_id = owner.get(flow, JobId(""))
        if not job_id:  # its job has left since it was planned
            return pb.PlannedRoute(route=_route(flow, plan.routes.get(flow), Dividing(MAX_SUBFLOWS), status.fabric))
        dividing = status.jobs[job_id].dividing
        route = _route(flow, route_of(dividing, flow.pair, plan.routes), dividing, status.fabric)
        return pb.PlannedRoute(job_id=job_id, route=route)

    return message_of(
        pb.Plan,
        plan,
        ecmp_level_mean=plan.ecmp.mean if plan.ecmp else 0.0,
        ecmp_level_p95=plan.ecmp.p95 if plan.ecmp else 0.0,
        plan_ms=plan.times.total_ms,
        routes=[planned(flow) for flow in sorted({flow._replace(piece=0) for flow in plan.routes})],
        unrouted=[f"{flow.src_ip}>{flow.dst_ip}" for flow in plan.unrouted],
        installed=installed,
        baseline_level=status.baseline_levels if plan is status.plan else {},
        demand_source={job_id: _DEMAND_SOURCES[source] for job_id, source in status.plan_demand_source.items()}
        if plan is status.plan
        else {},
    )


def status_message(status: Status, now: float, version: str) -> pb.GetStatusResponse:
    """``now``: monotonic seconds, for the age of the counters (0 before the first)."""
    return message_of(
        pb.GetStatusResponse,
        status,
        version=version,
        strategy=STRATEGY_VALUES[status.strategy],
        switches=len(status.fabric.switches),
        switches_in_sync=sum(switch.in_sync for switch in status.switches.values()),
        links=len(status.fabric.links),
        hosts=len(status.fabric.hosts),
        jobs=len(status.jobs),
        jobs_pending=sum(job.state == "pending" for job in status.jobs.values()),
        rules=sum(switch.rules for switch in status.switches.values()),
        counters_age_s=0.0 if status.counters_at is None else max(0.0, now - status.counters_at),
        alarms=map(text, status.alarms),
        jobs_differing=sum(demand.difference is not None for demand in status.demands.values()),
        jobs_learning=sum(demand.learning for demand in status.demands.values()),
    )


def replan_message(outcome: ReplanOutcome, status: Status) -> pb.ReplanResponse:
    plan = outcome.plan
    message = plan_message(plan, status, plan is status.plan and status.plan_installed) if plan else None
    return message_of(pb.ReplanResponse, outcome, plan=message)


def strategy_message(done: StrategySet) -> pb.SetStrategyResponse:
    return message_of(pb.SetStrategyResponse, done, strategy=STRATEGY_VALUES[done.strategy])


def _route(flow: FlowId, route: Route | None, dividing: Dividing, fabric: Fabric) -> pb.Route:
    """``dividing``: of the flow's job. One subflow takes every port, several a class or some connections each."""
    if route is None:
        return pb.Route(src=flow.src_ip, dst=flow.dst_ip)
    bundles = dividing.bundles(flow.pair)
    if len(route) == 1:
        bundles = (tuple(chain.from_iterable(bundles)) if dividing.owner else (),)
    subflows = [_subflow(flow, piece, bundle, fabric) for piece, bundle in zip(route, bundles, strict=False)]
    switches = subflows[0].switches if len(route) == 1 else ()
    return pb.Route(src=flow.src_ip, dst=flow.dst_ip, pinned=True, switches=switches, subflows=subflows)


def _subflow(flow: FlowId, piece: Subflow, bundle: Sequence[Ports], fabric: Fabric) -> pb.Subflow:
    """``bundle``: what tells its packets from others; nothing when it has all."""
    classes = [ports.src for ports in bundle if ports.dst is None] or [PortClass(0, 0)]
    return pb.Subflow(
        share=piece.share,
        switches=_path_names(flow, piece.path, fabric),
        port_value=classes[0].value,
        port_mask=classes[0].mask,
        connections=[
            pb.Connection(src=flow.src_ip, src_port=ports.src.value, dst=flow.dst_ip, dst_port=ports.dst.value)
            for ports in bundle
            if ports.dst
        ],
    )


def _path_names(flow: FlowId, path: Path, fabric: Fabric) -> Sequence[str]:
    """Empty when the path stays on the switch of a host that has left."""
    source = fabric.hosts.get(flow.src_ip)
    if path:
        return fabric.path_names(path, path[0].dpid)
    return fabric.path_names(path, source.at.dpid) if source else ()


def _switches(status: Status) -> list[pb.Switch]:
    unknown = SwitchStatus(in_sync=False, rules=0, foreign_rules=0)
    return [
        message_of(
            pb.Switch,
            status.switches.get(dpid, unknown),
            dpid=dpid,
            name=switch.name,
            ports=[message_of(pb.Port, port) for _, port in sorted(switch.ports.items())],
        )
        for dpid, switch in sorted(status.fabric.switches.items())
    ]


def _links(status: Status) -> list[pb.Link]:
    unknown = LinkStatus(bytes_total=0, rate_bps=0.0, background_bps=0.0)
    return [
        message_of(
            pb.Link,
            status.links.get(link_id, unknown),
            src_dpid=link.src.dpid,
            src_port=link.src.port,
            dst_dpid=link.dst.dpid,
            dst_port=link.dst.port,
            name=status.fabric.link_name(link_id),
            capacity_bps=link.capacity_bps,
        )
        for link_id, link in sorted(status.fabric.links.items())
    ]
