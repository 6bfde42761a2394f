"""Candidates that put several equal subflows of a flow on one path.

A subflow on a path of its own costs switch rules, and most flows need not be divided over paths. Some senders stripe
the same number of bytes over each connection. A flow of such a sender becomes several equal subflows, each a whole flow
to the planner (``signalbox.jobs.subflows``). Plans for these subflows show which slowdowns can be reached. The
candidates here divide only the flows that must be divided to reach these slowdowns:

- *Joined problem*: every flow is whole again, unless its subflows run on several paths. A plan for this problem puts
  all subflows of a whole flow on one path.
- *Whole flows first* (``color_whole_first``): in closed form, as many whole flows on every link as the slowdown allows,
  and the subflows of the other flows on the remaining capacity.

In: a ``Problem``. Out: a ``Problem`` with fewer flows, and routes of the subflows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from controller.planning.bounds import Bounds
from controller.planning.closed_forms import nearly_equal, proper_coloring
from controller.planning.common_links import CommonLinks, common_links_of, find_common_links, parts
from controller.planning.problem import Flow, FlowId, Ints, NumberedRoutes, Numbers, Problem, Routes

_ROUNDING = 1e-9


def joined(problem: Problem) -> Problem | None:
    """Return the problem with one flow in place of the equal subflows of each flow that run on one path.

    Subflows that are not pinned to valid paths are joined too. None when no two subflows can be joined."""
    of_flow: defaultdict[FlowId, list[Flow]] = defaultdict(list)
    for flow in problem.flows:
        of_flow[flow.id.joined].append(flow)
    flows: list[Flow] = []
    for subflows in of_flow.values():
        flows += [_one(subflows)] if _run_together(problem, subflows) else subflows
    return problem.with_flows(flows) if len(flows) < len(problem.flows) else None


def of_subflows(problem: Problem, routes: Routes) -> Routes:
    """Return the routes of the subflows, given the routes of the joined problem."""
    found = {flow.id: routes.get(flow.id) or routes.get(flow.id.joined) for flow in problem.flows}
    return {flow: route for flow, route in found.items() if route is not None}


def _run_together(problem: Problem, subflows: Sequence[Flow]) -> bool:
    return len({subflow.current if subflow.id in problem.in_force else None for subflow in subflows}) == 1


def _one(subflows: Sequence[Flow]) -> Flow:
    """Return one flow for these subflows, which must have their demands in the same phases."""
    if len(subflows) == 1:
        return subflows[0]
    phases = zip(*(subflow.demand_bps for subflow in subflows), strict=True)
    demand_bps = tuple((of[0][0], sum(bps for _, bps in of)) for of in phases)
    return replace(subflows[0], id=subflows[0].id.joined, demand_bps=demand_bps)


# ---- in closed form


def color_whole_first(problem: Problem, bounds: Bounds) -> NumberedRoutes | None:
    """Return routes of equal flows in equal numbers of subflows on a leaf-spine, part by part.

    The worst slowdown equals the worst slowdown of an even colouring of the subflows. None when flows differ, or when
    the leaves of a part have no common link."""
    numbers = problem.numbers
    number: dict[FlowId, int] = {}
    group = np.array([number.setdefault(flow.id.joined, len(number)) for flow in problem.flows], np.int64)
    floors = np.array([bounds.job.get(job, 1.0) for job in numbers.job_ids])
    alike = find_common_links(problem) if len(numbers.crossing) else None
    found = []
    for flows in parts(numbers, numbers.crossing) if len(numbers.crossing) else []:
        common = alike or common_links_of(problem, flows)
        routed = common and _colored(numbers, flows, group[flows], common, float(floors[numbers.job[flows]].min()))
        if not routed:
            return None
        found.append(routed)
    return NumberedRoutes.joined(found) if found else None


def _colored(numbers: Numbers, flows: Ints, group: Ints, common: CommonLinks, floor: float) -> NumberedRoutes | None:
    """Return routes of one part; None when flows differ.

    The multigraph of whole flows has a proper colouring with D colours, where D is its largest degree. Every common
    link gets the same number of whole colours, as many as its load allows; the colours with the most flows are chosen.
    The subflows of the other colours lie colour by colour on a line, which is cut into segments of equal length, one
    per common link.

    ``floor``: lower bound of all slowdowns, so that links may have this load."""
    order = np.argsort(group, kind="stable")
    flows = flows[order]
    _, first, sizes = np.unique(group[order], return_index=True, return_counts=True)
    demand_bps = nearly_equal(numbers.peak_bps[flows])
    subflows = int(sizes[0])
    if subflows == 1 or (sizes != subflows).any() or demand_bps is None:
        return None
    src, dst = numbers.src[flows[first]], numbers.dst[flows[first]]
    degree = max(int(np.bincount(of).max()) for of in (src, dst))
    fit = int(floor * common.bps[-1] / demand_bps + _ROUNDING)
    on_link = max(-(-degree * subflows // common.count), fit)
    whole = min(on_link // subflows * common.count, degree)
    colors = np.array(proper_coloring(list(zip(src.tolist(), dst.tolist(), strict=True))), np.int64)
    rank = np.argsort(np.argsort(-np.bincount(colors, minlength=degree), kind="stable"))[colors]
    place = np.repeat((rank - whole) * subflows, subflows) + np.tile(np.arange(subflows), len(first))
    left = max(1, on_link - whole // common.count * subflows)
    common_link = np.where(np.repeat(rank < whole, subflows), np.repeat(rank, subflows) % common.count, place // left)
    return NumberedRoutes(flows, common.paths(numbers, flows, common_link), np.ones(len(flows)))
