"""Every routing scheme, behind one signature, and the levels that cheap published schemes would reach.

``planned`` is Signalbox's own planner. The others are published schemes, modelled to compare with, never installed:
their routes are whole, they ignore the running routes, and they are judged by the same checker, bounds and levels.

In: a ``Problem`` and ``PlanLimits``. Out: a checked ``Plan`` with its certificate, or ``NoPlan`` with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial

from controller.planning.baseline_routing import (
    Routed,
    anneal,
    first_fit,
    fold_coloring,
    min_max_ilp,
    published_greedy,
)
from controller.planning.bounds import Bounds
from controller.planning.ecmp import NextHops, hashed_level, hashed_links, nic_level
from controller.planning.efficiency import FabricLoads
from controller.planning.greedy import PathChoices
from controller.planning.plan import Drafts, NoPlan, Plan, draft
from controller.planning.planner import Fault, judged, plan, refuse_faults
from controller.planning.problem import Ints, PlanLimits, Problem

Scheme = Callable[[Problem, PlanLimits], Plan | NoPlan]

_BUDGET_S = 0.1
"""``baseline_levels`` starts nothing that is expected to end later."""
_S_PER_FLOW = 5e-6
_NUMBERING = 3
_S_PER_FLOW_AND_DRAW = 2e-8
"""What one cheap scheme takes, how much longer numbering a problem does, and what ECMP takes: measured with 1,700
flows on 32 spines."""


class _Numbered:
    """A problem in numbers, computed when they are needed."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.next_hops = NextHops(problem)

    @cached_property
    def choices(self) -> PathChoices:
        return PathChoices(self.problem, self.next_hops)

    @cached_property
    def nic_level(self) -> float:
        return nic_level(self.problem, self.next_hops)

    def worst_level(self, links: Ints) -> float:
        loads = FabricLoads(self.problem, self.next_hops.capacity_bps, self.next_hops.flows)
        return max(self.nic_level, float(loads.of(links[:, None]).max(initial=0.0)))

    def hashed(self, seed: int) -> Ints:
        """The links that each flow takes when it is hashed."""
        return hashed_links(self.problem, self.next_hops, seed)


_ROUTERS: Mapping[str, Callable[[_Numbered, PlanLimits], Routed | None]] = {
    "ecmp": lambda numbered, limits: Routed(numbered.hashed(limits.seed)),
    "greedy": lambda numbered, _: Routed(published_greedy(numbered.choices)),
    "edge-coloring": lambda numbered, _: Routed(fold_coloring(numbered.problem, numbered.choices)),
    "first-fit": lambda numbered, limits: Routed(first_fit(numbered.choices, numbered.hashed(limits.seed))),
    "annealing": lambda numbered, limits: Routed(anneal(numbered.choices, limits.seed)),
    "ilp": lambda numbered, limits: min_max_ilp(numbered.choices, numbered.nic_level, limits),
}
_CHEAP = ("greedy", "edge-coloring", "first-fit")


def _plan(name: str, problem: Problem, limits: PlanLimits) -> Plan | NoPlan:
    """The scheme's routes as a plan."""
    limits = limits.begun()
    return judged(problem, limits, partial(_routings, name, problem, limits))


def _routings(name: str, problem: Problem, limits: PlanLimits, bounds: Bounds) -> Drafts:
    numbered = _Numbered(problem)
    routed = _ROUTERS[name](numbered, limits)
    if routed is None:
        raise Fault(f"{name} found no routing within {limits.time_limit_s:g} s")
    routing = draft(problem, name, numbered.next_hops.routes(routed.links))
    splits = any(flow.max_subflows > 1 for flow in problem.flows)
    worst = 1.0 if splits else routed.bound  # nothing is proven for flows that may be split
    return Drafts([routing], replace(bounds, worst=max(bounds.worst, worst)).vector, None, routed.bound)


SCHEMES: Mapping[str, Scheme] = {"planned": plan} | {name: partial(_plan, name) for name in _ROUTERS}
"""By the name that commands and benchmarks use."""


def baseline_levels(problem: Problem, limits: PlanLimits) -> dict[str, float]:
    """The worst levels that cheap published schemes reach: the mean of ``limits.ecmp_draws`` draws of ``ecmp``, and
    those of ``greedy``, ``edge-coloring`` and ``first-fit``. Those that do not fit in a tenth of a second are left out:
    all of them on large problems. A problem that contradicts itself gets none."""
    ends = time.perf_counter() + _BUDGET_S
    expected_s = _S_PER_FLOW * len(problem.flows)
    levels: dict[str, float] = {}
    if _NUMBERING * expected_s > _BUDGET_S:
        return levels
    try:
        refuse_faults(problem)
    except Fault:
        return levels
    numbered = _Numbered(problem)
    for name in _CHEAP:
        if time.perf_counter() + expected_s > ends:
            return levels
        routed = _ROUTERS[name](numbered, limits)
        if routed is not None:
            levels[name] = numbered.worst_level(routed.links)
    drawn_s = _S_PER_FLOW_AND_DRAW * len(problem.flows) * limits.ecmp_draws
    if limits.ecmp_draws and time.perf_counter() + drawn_s < ends:
        levels["ecmp"] = hashed_level(problem, numbered.next_hops, limits.ecmp_draws, limits.seed).mean
    return levels
