"""Converter for routes and plans. Pure; the time is linear in the number of routes.

In: a plan, and the status with the jobs and switches that it refers to. Out: messages; long lists are serialized here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import attrgetter, itemgetter
from typing import Any

from google.protobuf.message import Message

from controller.api.pages import filled
from controller.demand.job_demand import DemandSource
from controller.fabric.topology import Fabric, Path
from controller.planning.messages import ReplanOutcome
from controller.planning.plan import GoalPlanLeft, Plan, Sharing
from controller.planning.problem import FlowId, PathShare, Route, route_of, whole
from controller.status import ExtensionStatus, JobStatus, Status
from signalbox.jobs.spec import MAX_SUBFLOWS, JobId
from signalbox.jobs.subflows import Dividing, PortClass, Ports
from signalbox.mapping import duration, message_of, number_of, optional_duration
from signalbox.v1 import signalbox_pb2 as pb

ROUTES_TOGETHER = 256
"""Number of routes that are serialized together. Serializing 256 routes takes about a millisecond."""

# ---- plans


def plan_bytes(answer: Message, plan: Plan | None, status: Status, installed: bool) -> bytes:
    """Return the serialized message ``answer``, to whose field ``plan`` the plan is added.

    ``status`` provides the jobs of the flows and the names of the switches. Routes are ordered by job and flow; routes
    whose job has ended since the plan was made come last.

    Routes are serialized in groups, because other threads cannot run during a serialization. Concatenated serialized
    messages are one message (see ``watch_table``)."""
    parts = [answer.SerializeToString()]
    if plan:
        kind: Any = type(answer)
        parts.append(kind(plan=_plan_without_routes(plan, status, installed)).SerializeToString())
        routes = _planned_routes(plan, status)
        while some := list(islice(routes, ROUTES_TOGETHER)):
            part = kind()
            for flow, job_id, route, dividing in some:
                message = part.plan.routes.add(job_id=job_id)
                _fill_route(message.route, flow, route, dividing, status.fabric)
            parts.append(part.SerializeToString())
    return b"".join(parts)


OF_STATUS = attrgetter(
    *("plan", "plan_installed", "baseline_slowdowns", "plan_demand_source", "goal", "jobs", "fabric"),
    "extension.sharing",
)
"""Function that reads the arguments of ``get_plan_bytes`` from a ``Status``."""


def get_plan_bytes(
    plan: Plan | None,
    installed: bool,
    slowdowns: Mapping[str, float],
    sources: Mapping[JobId, DemandSource],
    goal: GoalPlanLeft | None,
    jobs: Mapping[JobId, JobStatus],
    fabric: Fabric,
    sharing: Sharing | None,
) -> bytes:
    """Return a serialized ``GetPlanResponse``."""
    status = Status(
        fabric=fabric,
        jobs=jobs,
        plan=plan,
        plan_demand_source=sources,
        baseline_slowdowns=slowdowns,
        goal=goal,
        extension=ExtensionStatus(sharing=sharing),
    )
    return plan_bytes(pb.GetPlanResponse(), plan, status, installed)


def _planned_routes(plan: Plan, status: Status) -> Iterator[tuple[FlowId, JobId, Route | None, Dividing]]:
    left = {flow if flow.subflow == 0 else flow._replace(subflow=0): None for flow in plan.routes}
    for job_id, job in sorted(status.jobs.items(), key=itemgetter(0)):
        for flow in sorted(flow for flow in job.routes if flow in left):
            del left[flow]
            yield flow, job_id, route_of(job.dividing, flow.pair, plan.routes), job.dividing
    for flow in left:
        yield flow, JobId(""), plan.routes.get(flow), Dividing(MAX_SUBFLOWS)


def _plan_without_routes(plan: Plan, status: Status, installed: bool) -> pb.Plan:
    newest = plan is status.plan
    return message_of(
        pb.Plan,
        plan,
        ecmp_slowdown=message_of(pb.EcmpSlowdowns, plan.ecmp) if plan.ecmp else None,
        plan_time=duration(plan.times.total_ms / 1e3),
        jobs=[
            pb.PlannedJob(
                job_id=job_id,
                slowdown=slowdown,
                own_slowdown=plan.own_slowdown[job_id],
                demand_source=_demand_source(status.plan_demand_source.get(job_id) if newest else None),
            )
            for job_id, slowdown in sorted(plan.job_slowdown.items())
        ],
        routes=(),
        unrouted=[pb.Pair(src=flow.src_ip, dst=flow.dst_ip) for flow in plan.unrouted],
        installed=installed,
        schemes=_schemes(status.baseline_slowdowns if newest else {}),
        moves_left=status.moves_left if newest else 0,
        blocked_flows=status.blocked_flows if newest else 0,
        goal=_goal(status.goal) if newest and status.goal else None,
        sharing=_sharing(status.extension.sharing, status.fabric) if newest and status.extension.sharing else None,
    )


def _sharing(sharing: Sharing, fabric: Fabric) -> pb.Sharing:
    slots = {
        job_id: [
            pb.CirclePart(start=start_s / circle.period_s % 1.0, length=length_s / circle.period_s)
            for start_s, length_s in parts
        ]
        for circle in sharing.circles
        for job_id, parts in circle.slots.items()
    }
    turns = {job_id: turns for circle in sharing.circles for job_id, turns in circle.turns.items()}
    return message_of(
        pb.Sharing,
        sharing,
        guaranteed=sharing.value,
        circles=[
            pb.Circle(period=duration(circle.period_s), job_ids=sorted(circle.slots)) for circle in sharing.circles
        ],
        jobs=[
            pb.SharedJob(
                job_id=job_id,
                traffic_class=sharing.class_of.get(job_id, 1),
                start=slots[job_id][0].start if job_id in slots else None,
                guaranteed=duration(guaranteed_s),
                promised=optional_duration(sharing.promise_s.get(job_id)),
                slots=slots.get(job_id),
                turns=turns.get(job_id, 0),
                without_slots=optional_duration(sharing.without_slots_s.get(job_id)),
                without_classes=optional_duration(sharing.without_classes_s.get(job_id)),
                alone=optional_duration(sharing.alone_s.get(job_id)),
            )
            for job_id, guaranteed_s in sorted(sharing.guaranteed_s.items())
        ],
        links=[
            pb.SharedLinks(links=map(fabric.link_name, each.links), job_ids=each.jobs, average_load=each.average)
            for each in sharing.links
        ],
    )


def _goal(goal: GoalPlanLeft) -> pb.GoalPlan:
    jobs = [pb.GoalPlanJob(job_id=job_id, slowdown=slowdown) for job_id, slowdown in sorted(goal.job_slowdown.items())]
    return pb.GoalPlan(max_slowdown=goal.max_slowdown, jobs=jobs)


def _demand_source(source: DemandSource | None) -> pb.DemandSource | None:
    return number_of(pb.DemandSource.DESCRIPTOR, source) if source else None


def _schemes(slowdowns: Mapping[str, float]) -> list[pb.RoutingSchemeSlowdown]:
    found = [
        pb.RoutingSchemeSlowdown(scheme=number_of(pb.RoutingScheme.DESCRIPTOR, name), slowdown=slowdown)
        for name, slowdown in slowdowns.items()
    ]
    return sorted(found, key=lambda scheme: scheme.scheme)


def replan_bytes(outcome: ReplanOutcome, status: Status) -> bytes:
    """Return a serialized ``ReplanResponse``."""
    plan = outcome.plan
    answer = message_of(pb.ReplanResponse, outcome, plan=None)
    return plan_bytes(answer, plan, status, plan is status.plan and status.plan_installed)


# ---- routes


def routes_message(job: JobStatus, fabric: Fabric) -> pb.WatchRoutesResponse:
    message = pb.WatchRoutesResponse(generation=job.routes_generation, uid=job.uid)
    for flow, route in sorted(job.routes.items(), key=itemgetter(0)):
        _fill_route(message.routes.add(), flow, route, job.dividing, fabric)
    return message


def _fill_route(message: pb.Route, flow: FlowId, route: Route | None, dividing: Dividing, fabric: Fabric) -> None:
    """Write a route into ``message``, which must already be part of the enclosing message.

    Copying a separate message into the enclosing one would take longer than all other work. ``dividing``: division
    of the job's flows into subflows, by port class or by connection."""
    message.src, message.dst = flow.src_ip, flow.dst_ip
    if route is None:
        return
    bundles = dividing.bundles(flow.pair)
    if len(route) == 1:
        bundles = (tuple(chain.from_iterable(bundles)) if dividing.owner else (),)
    message.pinned = True
    for subflow, bundle in zip(route, bundles, strict=False):
        _fill_subflow(message.subflows.add(), flow, subflow, bundle, fabric)
    if len(route) == 1:
        message.switches.extend(message.subflows[0].switches)


def _fill_subflow(
    message: pb.Subflow, flow: FlowId, subflow: PathShare, bundle: Sequence[Ports], fabric: Fabric
) -> None:
    """Fill the message of a subflow.

    ``bundle``: ports of the subflow's packets; empty if the flow has only this subflow."""
    classes = [ports.src for ports in bundle if ports.dst is None] or [PortClass(0, 0)]
    message.share = subflow.share
    message.switches.extend(_path_names(flow, subflow.path, fabric))
    message.port_value, message.port_mask = classes[0].value, classes[0].mask
    for ports in bundle:
        if ports.dst:
            message.connections.add(
                src=flow.src_ip, src_port=ports.src.value, dst=flow.dst_ip, dst_port=ports.dst.value
            )


# ---- routes with their links


def listed_routes_bytes(jobs: Iterable[JobStatus], status: Status, after: str, size: int, only_other: bool) -> bytes:
    """Return a serialized ``ListRoutesResponse`` with as many routes as fit into a page of ``size``.

    The page begins after the key ``after``. ``only_other``: whether to list only routes that differ from the newest
    plan."""
    listed = _listed_routes(jobs, status, tuple(after.split()), only_other)
    serialized = (
        (f"{one.job_id} {one.src} {one.dst}", pb.ListRoutesResponse(routes=[one]).SerializeToString()) for one in listed
    )
    parts, token = filled(serialized, size)
    generation = status.plan.generation if status.plan else 0
    rest = pb.ListRoutesResponse(next_page_token=token, plan_generation=generation)
    return b"".join((*parts, rest.SerializeToString()))


def _listed_routes(
    jobs: Iterable[JobStatus], status: Status, after: tuple[str, ...], only_other: bool
) -> Iterator[pb.ListedRoute]:
    planned_routes = status.plan.routes if status.plan else {}
    for job in sorted(jobs, key=lambda job: job.spec.job_id):
        job_id = job.spec.job_id
        if (job_id,) < after[:1]:
            continue
        for flow, held in sorted(job.routes.items(), key=itemgetter(0)):
            if (job_id, *flow.pair) <= after:
                continue
            planned = route_of(job.dividing, flow.pair, planned_routes)
            other = planned is not None and any(path for path, _ in planned) and planned != held
            if held is None and _inside_a_switch(flow, status.fabric):
                held = whole(())
            if other or not only_other:
                yield pb.ListedRoute(
                    job_id=job_id,
                    src=flow.src_ip,
                    dst=flow.dst_ip,
                    held=_route_paths(flow, held or (), status.fabric),
                    planned=_route_paths(flow, (planned if other else None) or (), status.fabric),
                )


def _inside_a_switch(flow: FlowId, fabric: Fabric) -> bool:
    src, dst = fabric.hosts.get(flow.src_ip), fabric.hosts.get(flow.dst_ip)
    return src is not None and dst is not None and src.at.dpid == dst.at.dpid


def _route_paths(flow: FlowId, route: Route, fabric: Fabric) -> list[pb.RoutePath]:
    return [
        pb.RoutePath(
            share=subflow.share,
            switches=_path_names(flow, subflow.path, fabric),
            links=[pb.PortRef(dpid=link.dpid, port=link.port) for link in subflow.path],
        )
        for subflow in route
    ]


def _path_names(flow: FlowId, path: Path, fabric: Fabric) -> Sequence[str]:
    """Return the names of the switches on a path; only the source host's switch for a path without links.

    The result is empty if this host is not in the fabric."""
    source = fabric.hosts.get(flow.src_ip)
    if path:
        return fabric.path_names(path, path[0].dpid)
    return fabric.path_names(path, source.at.dpid) if source else ()
