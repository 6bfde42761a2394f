"""The levels that quick published schemes would reach: a controller compares its plans with them.

The schemes are modelled to compare with, never installed: their routes are whole, and they ignore the running routes.
Published for leaf-spine fabrics; on any other fabric one of a flow's shortest paths takes the place of a spine. A
scheme gives the links that each flow takes, shape (hops, flows), in the link numbers of ``NextHops``.

In: a ``Problem`` and ``PlanLimits``. Out: the worst level by scheme.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np

from controller.planning.closed_forms import proper_coloring
from controller.planning.ecmp import NextHops, hashed_level, hashed_links, nic_level
from controller.planning.efficiency import FabricLoads
from controller.planning.greedy import PathChoices, largest_set_first
from controller.planning.lanes import Lanes, find_lanes
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


# ---- the greedy of "Routing for Large ML Models" (arXiv 2503.05324)


def published_greedy(choices: PathChoices) -> Ints:
    """Flows are counted, not weighed by their demand. The flows out of a leaf are a set, and the flows into it are
    another. The sets are taken from the largest to the smallest, the flows of each in their order; every flow takes the
    path on which the largest load is smallest, the first on ties.

    On an unbroken leaf-spine at most twice as many flows share a link as must."""
    taken = choices.no_links()
    load = np.zeros(choices.next_hops.nothing + 1)
    load[-1] = -np.inf
    count = len(choices.flows)
    for flow in largest_set_first(choices.flows, range(count), [1] * count):
        hops = choices.options[flow]
        largest = load[hops[0]]
        for links in hops[1:]:
            np.maximum(largest, load[links], out=largest)
        path = hops[:, largest.argmin()]
        for link in path.tolist():
            load[link] += 1
        taken[:, flow] = path
    return taken


# ---- folded edge colouring, which arXiv 2503.05324 compares itself with


def fold_coloring(problem: Problem, choices: PathChoices) -> Ints:
    """Flows are edges between their leaves. A proper colouring has as many colours as the largest leaf has flows, D
    (König). With S spines alive colour c goes over spine c mod S, and so at most ceil(D / S) flows share a link. Each
    of several cables to a spine counts as a spine.

    A flow whose spine does not join its leaves takes the path with its colour's number modulo the number of its paths.
    """
    colors = proper_coloring([(flow.src_leaf, flow.dst_leaf) for flow in choices.flows])
    lanes = find_lanes(problem)
    return _by_spine(choices, colors) if lanes is None else _by_lane(choices, colors, lanes)


def _by_lane(choices: PathChoices, colors: list[int], lanes: Lanes) -> Ints:
    numbers = choices.next_hops.number
    folded = [(flow, color % lanes.count) for flow, color in zip(choices.flows, colors, strict=True)]
    up = [numbers[lanes.up[flow.src_leaf][lane]] for flow, lane in folded]
    down = [numbers[lanes.down[flow.dst_leaf][lane]] for flow, lane in folded]
    return np.array([up, down])


def _by_spine(choices: PathChoices, colors: list[int]) -> Ints:
    taken = choices.no_links()
    vias = [choices.next_hops.far_end[links[0]] for links in choices.options]
    spines = np.unique(np.concatenate(vias)) if vias else np.zeros(0, np.int64)
    for flow, (color, via) in enumerate(zip(colors, vias, strict=True)):
        paths = np.flatnonzero(via == spines[color % len(spines)])
        path = paths[color // len(spines) % len(paths)] if len(paths) else color % len(via)
        taken[:, flow] = choices.options[flow][:, path]
    return taken


# ---- global first fit (Al-Fares et al., "Hedera", NSDI 2010, section 4.1)

_ROUNDING = 1e-9
"""Of a link's capacity: flows that fill it exactly fit."""


def first_fit(choices: PathChoices, hashed: Ints) -> Ints:
    """Flow after flow, the paths are searched in order for the first on which every link still has room for the flow's
    demand; there the demand is reserved. A flow that fits on no path stays on its links of ``hashed``, and nothing is
    reserved for it. Hedera has no phases: a flow's demand is its largest."""
    taken = hashed.copy()
    room_bps = choices.next_hops.capacity_bps * (1 + _ROUNDING)
    for number, (bps, hops) in enumerate(zip(choices.peak_bps, choices.options, strict=True)):
        least = room_bps[hops[0]]
        for links in hops[1:]:
            np.minimum(least, room_bps[links], out=least)
        fits = least >= bps
        first = fits.argmax()
        if fits[first]:
            path = hops[:, first]
            for link in path.tolist():
                room_bps[link] -= bps
            taken[:, number] = path
    return taken


# ---- their levels


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
