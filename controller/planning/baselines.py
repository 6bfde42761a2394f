"""Slowdowns under quick published schemes, with which a controller compares its plans.

In: a ``Problem`` and ``PlanLimits``. Out: the worst slowdown by scheme. The schemes are models for comparison and are
never installed: their routes are whole, and they ignore the running routes. They were published for leaf-spine fabrics;
on other fabrics a shortest path takes the place of a spine.

A scheme returns the links of each flow, shape (hops, flows), in the link numbers of ``NextHops``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np

from controller.planning.closed_forms import CommonLinks, find_common_links
from controller.planning.edge_coloring import proper_coloring
from controller.planning.efficiency import FabricLoads, ecmp_slowdown, hashed_links, nic_slowdown
from controller.planning.greedy import PathChoices, largest_set_first
from controller.planning.next_hops import NextHops
from controller.planning.planner import Fault, refuse_faults
from controller.planning.problem import Ints, PlanLimits, Problem

_BUDGET_S = 0.1
"""Seconds for all schemes together; a scheme that would not end in this time is left out."""
_S_PER_FLOW = 5e-6
_NUMBERING = 3
_S_PER_FLOW_AND_DRAW = 2e-8
"""Estimates of the time needed, measured with 1,700 flows on 32 spines.

- ``_S_PER_FLOW``: seconds per flow of one cheap scheme.
- ``_NUMBERING``: time to number a problem, in units of one cheap scheme.
- ``_S_PER_FLOW_AND_DRAW``: seconds of ECMP per flow and draw."""


class Numbered:
    """Arrays of a problem, computed on first use."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.next_hops = NextHops(problem)

    @cached_property
    def choices(self) -> PathChoices:
        return PathChoices(self.problem, self.next_hops)

    @cached_property
    def nic_slowdown(self) -> float:
        return nic_slowdown(self.problem, self.next_hops)

    def worst_slowdown(self, links: Ints) -> float:
        return float(FabricLoads(self.problem, self.next_hops).worst(links[:, None])[0])

    def hashed(self, seed: int) -> Ints:
        """Return the links of each flow under ECMP, as ``hashed_links`` does."""
        return hashed_links(self.problem, self.next_hops, seed)


# ---- the greedy of "Routing for Large ML Models" (arXiv 2503.05324)


def published_greedy(choices: PathChoices) -> Ints:
    """Return the links of each flow under the published greedy, which counts flows instead of weighing them by demand.

    The flows out of a leaf form a set, and the flows into the leaf form another set. The sets are served from the
    largest to the smallest, the flows of a set in their order. Every flow takes the path whose most loaded link has the
    fewest flows; the first path wins ties.

    On an intact leaf-spine the largest number of flows on a link is at most twice the optimum."""
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


# ---- folded edge colouring, to which arXiv 2503.05324 compares itself


def fold_coloring(problem: Problem, choices: PathChoices) -> Ints:
    """Return the links of each flow under folded edge colouring.

    Flows are edges between their leaves. A proper colouring has D colours, where D is the largest number of flows out
    of or into one leaf (König). With S working spines the flows of colour c take spine c mod S, so that at most ceil(D
    / S) flows share a link. A spine with several cables counts as one spine per cable.

    A flow whose spine does not connect its leaves takes the path whose number is its colour modulo the number of its
    paths."""
    colors = proper_coloring([(flow.src_leaf, flow.dst_leaf) for flow in choices.flows])
    common = find_common_links(problem)
    return _by_spine(choices, colors) if common is None else _by_common_link(choices, colors, common)


def _by_common_link(choices: PathChoices, colors: list[int], common: CommonLinks) -> Ints:
    numbers = choices.next_hops.number
    folded = [(flow, color % common.count) for flow, color in zip(choices.flows, colors, strict=True)]
    up = [numbers[common.up[flow.src_leaf][common_link]] for flow, common_link in folded]
    down = [numbers[common.down[flow.dst_leaf][common_link]] for flow, common_link in folded]
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
"""Fraction of a link's capacity that is added as room, so that flows that fill a link exactly fit despite rounding."""


def first_fit(choices: PathChoices, hashed: Ints) -> Ints:
    """Return the links of each flow under global first fit.

    The scheme serves one flow after the other. It takes the flow's first path whose links all have room for the flow's
    demand, and reserves the demand on these links. A flow without such a path stays on its ECMP path (``hashed``) and
    reserves nothing. Hedera has no phases: a flow counts with its largest demand in any phase."""
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


# ---- slowdowns of the schemes


QUICK: Mapping[str, Callable[[Numbered, int], Ints]] = {
    "greedy": lambda numbered, _: published_greedy(numbered.choices),
    "edge-coloring": lambda numbered, _: fold_coloring(numbered.problem, numbered.choices),
    "first-fit": lambda numbered, seed: first_fit(numbered.choices, numbered.hashed(seed)),
}
"""Function of each quick scheme, by name. It returns the links of each flow; its second argument is the seed."""


def baseline_slowdowns(problem: Problem, limits: PlanLimits) -> dict[str, float]:
    """Return the worst slowdowns of the quick schemes ``greedy``, ``edge-coloring``, ``first-fit`` and ``ecmp``.

    The slowdown of ``ecmp`` is the mean of ``limits.ecmp_draws`` draws. Schemes that do not fit into a tenth of a
    second are left out; on large problems all schemes are left out. The result is empty for a problem that contradicts
    itself."""
    ends = time.perf_counter() + _BUDGET_S
    expected_s = _S_PER_FLOW * len(problem.flows)
    slowdowns: dict[str, float] = {}
    if _NUMBERING * expected_s > _BUDGET_S:
        return slowdowns
    try:
        refuse_faults(problem)
    except Fault:
        return slowdowns
    numbered = Numbered(problem)
    for name, route in QUICK.items():
        if time.perf_counter() + expected_s > ends:
            return slowdowns
        slowdowns[name] = numbered.worst_slowdown(route(numbered, limits.seed))
    drawn_s = _S_PER_FLOW_AND_DRAW * len(problem.flows) * limits.ecmp_draws
    if limits.ecmp_draws and time.perf_counter() + drawn_s < ends:
        slowdowns["ecmp"] = ecmp_slowdown(problem, limits.ecmp_draws, limits.seed, numbered.next_hops).mean
    return slowdowns
