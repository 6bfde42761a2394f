"""The levels that quick published schemes would reach: a controller compares its plans with them.

The schemes are modelled to compare with, never installed: their routes are whole, and they ignore the running routes.

In: a ``Problem`` and ``PlanLimits``. Out: the worst level by scheme.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cached_property

from controller.planning.baseline_routing import first_fit, fold_coloring, published_greedy
from controller.planning.ecmp import NextHops, hashed_level, hashed_links, nic_level
from controller.planning.efficiency import FabricLoads
from controller.planning.greedy import PathChoices
from controller.planning.planner import Fault, refuse_faults
from controller.planning.problem import Ints, PlanLimits, Problem

_BUDGET_S = 0.1
"""``baseline_levels`` starts nothing that is expected to end later."""
_S_PER_FLOW = 5e-6
_NUMBERING = 3
_S_PER_FLOW_AND_DRAW = 2e-8
"""What one cheap scheme takes, how much longer numbering a problem does, and what ECMP takes: measured with 1,700
flows on 32 spines."""


class Numbered:
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


QUICK: Mapping[str, Callable[[Numbered, int], Ints]] = {
    "greedy": lambda numbered, _: published_greedy(numbered.choices),
    "edge-coloring": lambda numbered, _: fold_coloring(numbered.problem, numbered.choices),
    "first-fit": lambda numbered, seed: first_fit(numbered.choices, numbered.hashed(seed)),
}
"""The links that each flow takes, by the name of the scheme. The second argument is the seed."""


def baseline_levels(problem: Problem, limits: PlanLimits) -> dict[str, float]:
    """The worst levels that quick published schemes reach: the mean of ``limits.ecmp_draws`` draws of ``ecmp``, and
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
    numbered = Numbered(problem)
    for name, route in QUICK.items():
        if time.perf_counter() + expected_s > ends:
            return levels
        levels[name] = numbered.worst_level(route(numbered, limits.seed))
    drawn_s = _S_PER_FLOW_AND_DRAW * len(problem.flows) * limits.ecmp_draws
    if limits.ecmp_draws and time.perf_counter() + drawn_s < ends:
        levels["ecmp"] = hashed_level(problem, numbered.next_hops, limits.ecmp_draws, limits.seed).mean
    return levels
