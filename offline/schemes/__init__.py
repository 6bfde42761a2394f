"""Every routing scheme, behind one signature, judged by the same checker, bounds and slowdowns.

In: a ``Problem`` and ``PlanLimits``. Out: a checked ``Plan`` with its certificate, or ``NoPlan`` with the reason.
``planned`` is Signalbox's own planner. The other schemes are published elsewhere, modelled for comparison and never
installed. They split no flow, and ignore the routes in force.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from controller.public.plans import QUICK, Bounds, Drafts, Fault, NoPlan, Numbered, Plan, draft, judged, plan
from controller.public.problems import PlanLimits, Problem
from offline.schemes.annealing import anneal
from offline.schemes.integer_program import Routed, min_max_ilp

Scheme = Callable[[Problem, PlanLimits], Plan | NoPlan]


def _links_of_flows(name: str, numbered: Numbered, limits: PlanLimits) -> Routed | None:
    """Return the links of every flow, or None when the scheme found no routing within its time limit."""
    match name:
        case "ecmp":
            return Routed(numbered.hashed(limits.seed))
        case "annealing":
            return Routed(anneal(numbered.choices, limits.seed))
        case "ilp":
            return min_max_ilp(numbered.choices, numbered.nic_slowdown, limits)
        case _:
            return Routed(QUICK[name](numbered, limits.seed))


def _plan(name: str, problem: Problem, limits: PlanLimits) -> Plan | NoPlan:
    limits = limits.begun()
    return judged(problem, limits, partial(_drafts, name, problem, limits))


def _drafts(name: str, problem: Problem, limits: PlanLimits, bounds: Bounds) -> Drafts:
    numbered = Numbered(problem)
    routed = _links_of_flows(name, numbered, limits)
    if routed is None:
        raise Fault(f"{name} found no routing within {limits.time_limit_s:g} s; --time-limit gives it more time")
    routing = draft(problem, name, numbered.next_hops.routes(routed.links))
    splits = any(flow.max_subflows > 1 for flow in problem.flows)
    worst = 1.0 if splits else routed.bound  # nothing is proven for flows that may be split
    return Drafts([routing], replace(bounds, worst=max(bounds.worst, worst)).vector, None, routed.bound)


SCHEMES: Mapping[str, Scheme] = {"planned": plan} | {
    name: partial(_plan, name) for name in ("ecmp", *QUICK, "annealing", "ilp")
}
"""Planning function of each scheme, by the name that commands and benchmarks use."""
