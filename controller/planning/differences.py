"""Changes since the previous request, which the control loop and the planning process exchange.

Packing and unpacking a problem of tens of thousands of flows takes a second. Few flows, routes and capacities change
from one cycle to the next.

In: snapshots and plans. Out: in the sending process their changes; in the receiving process the snapshots and plans,
restored from the changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from controller.fabric.shortest_paths import CandidatePaths
from controller.fabric.topology import Fabric, Link, LinkId
from controller.planning.messages import Planned
from controller.planning.problem import Flow, FlowId, Route, Routes, Snapshot
from controller.shared_map import differing, updated
from signalbox.jobs.spec import JobId

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class SnapshotDelta:
    """Changes from one snapshot to the next snapshot; in the mappings the value None removes an entry."""

    generation: int
    max_paths: int
    capacity_bps: Mapping[LinkId, float | None]
    links: Mapping[LinkId, Link | None]
    flows: Mapping[JobId, tuple[Flow, ...] | None]
    routes: Mapping[FlowId, Route | None]
    drained: frozenset[LinkId]
    """All drained links of the next snapshot."""


MANY = 1000
"""Number of flows or routes that are packed or unpacked at once.

This takes some milliseconds, during which no other thread runs."""

NO_SNAPSHOT = Snapshot(0, {}, CandidatePaths(Fabric(), 0), {}, {})
"""Empty snapshot, before the first one."""


def changes(before: Snapshot, now: Snapshot) -> SnapshotDelta:
    same_paths = before.paths is now.paths
    return SnapshotDelta(
        now.generation,
        now.paths.max_paths,
        _changed(before.capacity_bps, now.capacity_bps),
        {} if same_paths else _changed(before.paths.links, now.paths.links),
        _changed(before.flows, now.flows),
        _changed(before.routes, now.routes),
        now.drained,
    )


def changed(before: Snapshot, found: SnapshotDelta) -> Snapshot:
    """Return the snapshot ``before`` after the changes ``found``.

    Candidate paths are computed anew when links, or the largest number of paths, have changed."""
    paths, capacity_bps = before.paths, {**before.capacity_bps, **found.capacity_bps}
    if found.links or found.max_paths != paths.max_paths:
        paths = CandidatePaths(Fabric(links=updated(paths.links, found.links)), found.max_paths)
    return Snapshot(
        found.generation,
        {link: bps for link, bps in capacity_bps.items() if bps is not None},
        paths,
        updated(before.flows, found.flows),
        updated(before.routes, found.routes),
        found.drained,
    )


def in_parts(found: SnapshotDelta) -> Iterator[SnapshotDelta]:
    """Yield small deltas that, applied in order, have the effect of the delta ``found``."""
    flows = list(_divided(found.flows, lambda of_job: len(of_job or ())))
    routes = list(_divided(found.routes, lambda _: 1))
    yield replace(found, flows=flows[0], routes=routes[0])
    rest = replace(found, capacity_bps={}, links={}, flows={}, routes={})
    yield from (replace(rest, flows=part) for part in flows[1:])
    yield from (replace(rest, routes=part) for part in routes[1:])


def _divided(entries: Mapping[Key, Value], size: Callable[[Value], int]) -> Iterator[dict[Key, Value]]:
    """Yield the entries in order, in parts whose total ``size`` is about ``MANY``; at least one part."""
    part: dict[Key, Value] = {}
    full = 0
    for key, value in entries.items():
        if full >= MANY:
            yield part
            part, full = {}, 0
        part[key] = value
        full += size(value)
    yield part


def _changed(before: Mapping[Key, Value], now: Mapping[Key, Value]) -> dict[Key, Value | None]:
    return {key: value for key, was, value in differing(before, now) if was != value}


SomeRoutes = dict[FlowId, Route | None]


def in_parts_without_routes(planned: Planned, running: Routes) -> tuple[list[SomeRoutes], Planned]:
    """Return the changed routes of the plan in small parts, and the plan without routes.

    ``running``: the routes of the request. A removed route is None. A ``Planned`` without a decision is returned
    undivided."""
    if planned.decision is None:
        return [], planned
    changed = _changed(running, planned.plan.routes)
    return list(_divided(changed, lambda _: 1)), _with(planned, {})


def with_routes(planned: Planned, found: SomeRoutes, running: Routes) -> Planned:
    """Return the plan with the routes ``running`` after the changes ``found``.

    Both mappings of routes share their unchanged parts. A ``Planned`` without a decision is returned as it is."""
    return planned if planned.decision is None else _with(planned, updated(running, found))


def _with(planned: Planned, routes: Routes) -> Planned:
    return replace(planned, answer=replace(planned.plan, routes=routes))
