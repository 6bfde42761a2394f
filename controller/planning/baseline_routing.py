"""The routing schemes of the literature, as published: what Signalbox's planner is compared with.

Their routes are whole, and they know nothing of the running routes. Published for leaf-spine fabrics; on any other
fabric one of a flow's shortest paths takes the place of a spine.

In: ``PathChoices``. Out: the links that each flow takes, shape (hops, flows), in the link numbers of ``NextHops``.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from controller.fabric.topology import Dpid, LinkId
from controller.planning.closed_forms import proper_coloring
from controller.planning.greedy import PathChoices, largest_set_first
from controller.planning.lanes import Lanes, find_lanes
from controller.planning.problem import Ints, PlanLimits, Problem
from controller.planning.solver import cp_model, solver_within
from signalbox.jobs.spec import JobId

# ---- the greedy of "Routing for Large ML Models" (arXiv 2503.05324)


def published_greedy(choices: PathChoices) -> Ints:
    """Flows are counted, not weighed by their demand. The flows out of a leaf are a set, and the flows into it are
    another. The sets are taken from the largest to the smallest, the flows of each in their order; every flow takes the
    path on which the largest load is smallest, the first on ties.

    On an unbroken leaf-spine at most twice as many flows share a link as must."""
    taken = _no_links(choices)
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
    taken = _no_links(choices)
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


# ---- annealing over destinations (Hedera, section 4.2), as the authors of arXiv 2503.05324 ran it

_HOTTEST = 1000.0
_COLDEST = 0.1
_COOLING = 0.99
_EQUAL = 1e-9
"""Links whose loads differ by less, relative to the largest, are equally loaded."""


def anneal(choices: PathChoices, seed: int) -> Ints:
    """The state is one spine per destination host: all flows to it go over that spine. At first the hosts of a leaf
    have the spines in order. A step swaps the spines of two hosts, half of the time of the same leaf; a state of less
    energy is always accepted, another one with probability exp(-difference / T). T starts at 1000 and is multiplied
    with 0.99 until it is 0.1. The last state is the answer.

    The energy is the sum of the loads of the most loaded links. The load of a link is the sum of the flows' largest
    demands / capacity: for equal flows that fill a link, their number, as published. On other fabrics than leaf-spine
    a path number, modulo the number of the flow's paths, takes the spine's place."""
    state = _State(choices)
    chance = random.Random(seed)
    crowded = [hosts for hosts in state.hosts_of_leaf.values() if len(hosts) > 1]
    everywhere = list(range(len(state.spine)))
    energy = state.energy()
    temperature = _HOTTEST
    while temperature > _COLDEST and len(everywhere) > 1:
        among = chance.choice(crowded) if crowded and chance.random() < 0.5 else everywhere
        one, other = chance.sample(among, 2)
        state.swap(one, other)
        changed = state.energy()
        if changed < energy or math.exp((energy - changed) / temperature) > chance.random():
            energy = changed
        else:
            state.swap(one, other)
        temperature *= _COOLING
    return state.taken


class _State:
    """``spine``: of each destination host. ``hosts_of_leaf``: numbers of these hosts. ``taken``: the links of each
    flow."""

    def __init__(self, choices: PathChoices) -> None:
        self._options = choices.options
        self._bps = choices.peak_bps
        self._capacity_bps = choices.next_hops.capacity_bps
        self._load = np.zeros(len(self._capacity_bps))
        self.taken = _no_links(choices)
        flows_to: defaultdict[LinkId, list[int]] = defaultdict(list)
        for number, flow in enumerate(choices.flows):
            flows_to[flow.nic_links[1]].append(number)
        self.hosts_of_leaf: defaultdict[Dpid, list[int]] = defaultdict(list)
        self.spine: list[int] = []
        self._flows_to: list[list[int]] = []
        for host, nic in enumerate(sorted(flows_to)):
            self._flows_to.append(flows_to[nic])
            self.spine.append(len(self.hosts_of_leaf[nic.dpid]))
            self.hosts_of_leaf[nic.dpid].append(host)
            self._put(host)

    def swap(self, one: int, other: int) -> None:
        """Exchange the spines of two hosts."""
        for host in (one, other):
            for flow in self._flows_to[host]:
                self._add(flow, -1)
        self.spine[one], self.spine[other] = self.spine[other], self.spine[one]
        self._put(one)
        self._put(other)

    def energy(self) -> float:
        most = self._load.max()
        return float(self._load[self._load >= most * (1 - _EQUAL)].sum())

    def _put(self, host: int) -> None:
        for flow in self._flows_to[host]:
            options = self._options[flow]
            self.taken[:, flow] = options[:, self.spine[host] % options.shape[1]]
            self._add(flow, 1)

    def _add(self, flow: int, times: int) -> None:
        links = self.taken[:, flow]
        self._load[links] += times * self._bps[flow] / self._capacity_bps[links]


# ---- the integer program that arXiv 2503.05324 compares itself with

_SCALE = 10_000_000
"""Integer units per load of 1. Weights are rounded down, so that a bound of the model is a bound of the problem."""
_HEAVIEST = 1 << 40
"""Larger weights count as this one: sums of 10^5 of them fit into 64 bits."""

_Row = tuple[int, cp_model.IntVar, int]
"""Phase, boolean, weight."""


@dataclass(frozen=True, slots=True)
class Routed:
    """``links``: shape (hops, flows), link numbers. ``bound``: no routing of whole flows has a smaller worst level."""

    links: Ints
    bound: float = 1.0


def min_max_ilp(choices: PathChoices, floor: float, limits: PlanLimits) -> Routed | None:
    """One boolean per flow and path, of which each flow takes one; every link carries at most alpha; minimise alpha by
    OR-Tools CP-SAT. None when it found nothing in its time. ``floor``: the level (>= 1) that NICs impose on every
    routing; smaller loads of links count as this one.

    Published for the number of flows on a link; here for its load as ``efficiency`` defines it, which is that number
    when flows are equal, fill a link and have one phase. Neither classes of flows nor the running routes help the
    solver here, unlike in ``whole_flows.cpsat``."""
    model = cp_model.CpModel()
    takes = [[model.new_bool_var("") for _ in range(options.shape[1])] for options in choices.options]
    for paths in takes:
        model.add_exactly_one(paths)
    on_link = _on_links(choices, takes)
    unit = math.gcd(*(weight for jobs in on_link.values() for rows in jobs.values() for *_, weight in rows)) or 1
    loads = [_load(model, jobs, unit) for jobs in on_link.values()]
    least = int(floor * _SCALE / unit)
    most = max((_heaviest(chain(*jobs.values())) // unit for jobs in on_link.values()), default=0)
    alpha = model.new_int_var(least, max(least, most), "alpha")
    for load in loads:
        model.add(load <= alpha)
    model.minimize(alpha)
    solver = solver_within(limits, limits.time_limit_s)
    # Probing and the search for symmetries would take longer than the whole solution of the published workloads.
    solver.parameters.cp_model_probing_level = 0
    solver.parameters.symmetry_level = 0
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    links = _no_links(choices)
    for flow, (paths, options) in enumerate(zip(takes, choices.options, strict=True)):
        links[:, flow] = options[:, [solver.boolean_value(path) for path in paths].index(True)]
    return Routed(links, max(floor, solver.best_objective_bound * unit / _SCALE) if choices.complete else floor)


def _on_links(
    choices: PathChoices, takes: Sequence[Sequence[cp_model.IntVar]]
) -> Mapping[int, dict[JobId, list[_Row]]]:
    """Per link and job the booleans that load it."""
    found: defaultdict[int, defaultdict[JobId, list[_Row]]] = defaultdict(lambda: defaultdict(list))
    per_bps = (_SCALE / choices.next_hops.capacity_bps).tolist()
    for flow, options, paths in zip(choices.flows, choices.options, takes, strict=True):
        for links in options.tolist():
            for link, path in zip(links, paths, strict=True):
                if link != choices.next_hops.nothing:
                    for phase, bps in flow.demand_bps:
                        found[link][flow.job_id].append((phase, path, min(_HEAVIEST, int(bps * per_bps[link]))))
    return found


def _load(model: cp_model.CpModel, jobs: Mapping[JobId, Sequence[_Row]], unit: int) -> Any:
    """The sum over jobs of the largest phase: an expression, with a variable for a job that has several."""
    parts = []
    for rows in jobs.values():
        sums = [
            cp_model.LinearExpr.weighted_sum(
                [path for of, path, _ in rows if of == phase], [weight // unit for of, _, weight in rows if of == phase]
            )
            for phase in sorted({phase for phase, *_ in rows})
        ]
        if len(sums) > 1:
            peak = model.new_int_var(0, _heaviest(rows) // unit, "peak")
            for of_phase in sums:
                model.add(of_phase <= peak)
            sums = [peak]
        parts += sums
    return cp_model.LinearExpr.sum(parts)


def _heaviest(rows: Iterable[_Row]) -> int:
    """The load of a link if all take it."""
    return sum(weight for *_, weight in rows)


def _no_links(choices: PathChoices) -> Ints:
    """For every flow a path that is filled up with ``nothing``."""
    return np.full((choices.next_hops.longest, len(choices.flows)), choices.next_hops.nothing)
