"""Integer program to which the authors of arXiv 2503.05324 compare their scheme.

In: ``PathChoices``. Out: the links that each flow takes, in the link numbers of ``NextHops``, and a lower bound.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from controller.public.plans import PathChoices, cp_model, solver_within
from controller.public.problems import Ints, PlanLimits
from signalbox.jobs.spec import JobId

_SCALE = 10_000_000
"""Integer units of a load of 1. Weights are rounded down, so a bound of the model is a bound of the problem."""
_HEAVIEST = 1 << 40
"""Largest weight; larger weights are reduced to it, so that sums of 10^5 weights fit into 64 bits."""

_Row = tuple[int, cp_model.IntVar, int]
"""Load that a flow puts on a link if it takes one of its paths.

The items are the phase, the boolean variable that chooses the path, and the load in 1 / ``_SCALE``."""


@dataclass(frozen=True, slots=True)
class Routed:
    """Result of a routing of whole flows."""

    links: Ints
    """Links of each flow, shape (hops, flows)."""
    bound: float = 1.0
    """Lower bound of the worst slowdown for any routing of whole flows."""


def min_max_ilp(choices: PathChoices, floor: float, limits: PlanLimits) -> Routed | None:
    """Return the routing whose most loaded link has the smallest load, or None when the solver finds none in time.

    The model for OR-Tools CP-SAT has one boolean per flow and path. Each flow takes one path, every link carries at
    most alpha, and alpha is minimized. ``floor``: the slowdown (>= 1) that NICs impose on every routing; smaller loads
    of links count as ``floor``.

    The publication minimizes the number of flows on a link, this function the load as ``efficiency`` defines it. Number
    and load are the same when flows are equal, fill a link and have one phase. Unlike in ``whole_flows.cpsat``, neither
    classes of flows nor the running routes help the solver."""
    model = cp_model.CpModel()
    takes = [[model.new_bool_var("") for _ in range(options.shape[1])] for options in choices.options]
    for paths in takes:
        model.add_exactly_one(paths)
    on_link = _on_links(choices, takes)
    unit = math.gcd(*(weight for jobs in on_link.values() for rows in jobs.values() for *_, weight in rows)) or 1
    loads = [_load(model, jobs, unit) for jobs in on_link.values()]
    least = int(floor * _SCALE / unit)
    most = max((_largest_load(chain(*jobs.values())) // unit for jobs in on_link.values()), default=0)
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
    links = choices.no_links()
    for flow, (paths, options) in enumerate(zip(takes, choices.options, strict=True)):
        links[:, flow] = options[:, [solver.boolean_value(path) for path in paths].index(True)]
    return Routed(links, max(floor, solver.best_objective_bound * unit / _SCALE) if choices.complete else floor)


def _on_links(
    choices: PathChoices, takes: Sequence[Sequence[cp_model.IntVar]]
) -> Mapping[int, dict[JobId, list[_Row]]]:
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
    """Return the load of a link: the sum over jobs of their largest phase.

    A job with several phases gets a variable for its largest phase."""
    parts = []
    for rows in jobs.values():
        sums = [
            cp_model.LinearExpr.weighted_sum(
                [path for of, path, _ in rows if of == phase], [weight // unit for of, _, weight in rows if of == phase]
            )
            for phase in sorted({phase for phase, *_ in rows})
        ]
        if len(sums) > 1:
            peak = model.new_int_var(0, _largest_load(rows) // unit, "peak")
            for of_phase in sums:
                model.add(of_phase <= peak)
            sums = [peak]
        parts += sums
    return cp_model.LinearExpr.sum(parts)


def _largest_load(rows: Iterable[_Row]) -> int:
    return sum(weight for *_, weight in rows)
