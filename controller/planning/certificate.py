"""A plan with its proofs as plain data, which ``verify`` checks without a solver.

In: a problem and its plan. Out: links, jobs, flows, routes and slowdowns as integers, and a witness for every proven
slowdown (``witnesses``). docs/reference/json-output.md describes the form. When the planner claims a proof for which no
witness is found here, a search has proven the slowdown. The file has the number of such slowdowns (``searched``)."""

from __future__ import annotations

import json
import math
from typing import Any

from controller.fabric.topology import LinkId
from controller.planning.analysis.requests import FabricNames
from controller.planning.efficiency import SLOWDOWN_TOLERANCE
from controller.planning.plan import Plan
from controller.planning.problem import Problem, Route
from controller.planning.verify import slowdowns_of, verify
from controller.planning.witnesses import Witnesses
from signalbox.jobs.spec import JobId

WHOLE = 10**12
"""Denominator of slowdowns, bounds and shares."""
_FINE = 12
"""Decimal exponent of the largest capacity when it is written as an integer.

Demands and capacities that differ only by rounding thus become equal."""


def certificate(problem: Problem, plan: Plan, names: FabricNames) -> dict[str, Any]:
    """Return the plan with its proofs.

    Raises ``ValueError`` when ``verify`` refuses the result, or when rounding to integers changes a slowdown."""
    form = _form(problem, plan, names)
    for job, slowdown in zip(form["jobs"], slowdowns_of(form), strict=True):
        job["slowdown"] = slowdown
        planned = plan.job_slowdown[JobId(job["name"])]
        if not math.isclose(slowdown / WHOLE, planned, rel_tol=SLOWDOWN_TOLERANCE):
            far = "capacities and demands are too far apart to be written as integers"
            raise ValueError(
                f"{far}: job '{job['name']}' has slowdown {planned:.6g}, {slowdown / WHOLE:.6g} when rounded"
            )
    slowdowns = sorted((job["slowdown"] for job in form["jobs"]), reverse=True)
    found = Witnesses(problem, plan, form).find(slowdowns)
    form |= found
    above = sum(slowdown > WHOLE + form["tolerance"] for slowdown in slowdowns)
    form["searched"] = max(0, min(above, plan.slowdowns_proven) - form["proven"])
    verify(form)
    return form


def document(form: dict[str, Any]) -> str:
    """Return the JSON text of a certificate."""
    return json.dumps(form, separators=(",", ":")) + "\n"


def _form(problem: Problem, plan: Plan, names: FabricNames) -> dict[str, Any]:
    """Return the plan as data, without slowdowns and proofs."""
    paths = problem.paths
    routed = [flow for flow in problem.flows if flow.id in plan.routes]
    ends: dict[LinkId, tuple[int | str, int | str]] = {
        link: (names.switch(link.dpid), names.switch(end)) for link, end in paths.far_end.items()
    }
    for flow in routed:
        src, dst = names.host(flow.id.src_ip), names.host(flow.id.dst_ip)
        ends[flow.nic_links[0]] = src, names.switch(flow.src_leaf)
        ends[flow.nic_links[1]] = names.switch(flow.dst_leaf), dst
    place = {link: number for number, link in enumerate(ends)}
    largest = max([problem.capacity_bps[link] for link in ends], default=1.0)
    per_bps = 10.0 ** (_FINE - math.floor(math.log10(largest)))
    job_ids = sorted({flow.job_id for flow in routed})
    number = {job: index for index, job in enumerate(job_ids)}
    return {
        "denominator": WHOLE,
        "tolerance": int(SLOWDOWN_TOLERANCE * WHOLE),
        "units_per_bps": f"{per_bps:g}",
        "links": [[*of, max(1, round(problem.capacity_bps[link] * per_bps))] for link, of in ends.items()],
        "jobs": [{"name": str(job), "slowdown": WHOLE} for job in job_ids],
        "flows": [
            {
                "job": number[flow.job_id],
                "from": names.host(flow.id.src_ip),
                "to": names.host(flow.id.dst_ip),
                "hops": 2 + len(plan.routes[flow.id][0].path),
                "demand": [[phase, max(1, round(bps * per_bps))] for phase, bps in flow.demand_bps],
                "max_subflows": flow.max_subflows,
                "route": [
                    [share, [place[flow.nic_links[0]], *(place[link] for link in path), place[flow.nic_links[1]]]]
                    for share, (path, _) in zip(_parts(plan.routes[flow.id]), plan.routes[flow.id], strict=True)
                ],
            }
            for flow in routed
        ],
    }


def _parts(route: Route) -> list[int]:
    """Return the shares of a route as integers; the largest absorbs the rounding error."""
    parts = [max(1, round(share * WHOLE)) for _, share in route]
    parts[parts.index(max(parts))] += WHOLE - sum(parts)
    return parts
