"""The integer program that arXiv 2503.05324 compares itself with: minimise the largest load of a link.

One boolean per flow and path, of which each flow takes one; every link carries at most alpha; minimise alpha. Published
for the number of flows on a link; here for its load as ``efficiency`` defines it, which is that number when flows are
equal, fill a link and have one phase. Loads below what NICs or a level of 1 impose are not told apart: nobody would
gain from them. Neither classes of flows nor the running routes help the solver here, ``cpsat`` has those.

In: ``PathChoices``. Out: the links that each flow takes and the bound that OR-Tools CP-SAT proved for whole flows; None
when it found nothing in its time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from controller.jobs.spec import JobId
from controller.planning.baselines.path_choices import PathChoices
from controller.planning.cp_sat import cp_model
from controller.planning.efficiency import Ints
from controller.planning.problem import PlanLimits

_SCALE = 10_000_000
"""Integer units per load of 1. Weights are rounded down, so that a bound of the model is a bound of the problem."""
_HEAVIEST = 1 << 40
"""Weights beyond this are not told apart: sums of 10^5 of them fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class Solution:
    """``links``: shape (hops, flows), link numbers. ``bound``: no routing of whole flows has a smaller worst level."""

    links: Ints
    bound: float


def solve(choices: PathChoices, floor: float, limits: PlanLimits) -> Solution | None:
    """``floor``: the level (>= 1) that NICs impose on every routing."""
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
    solver = _solver(limits)
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    links = np.full((choices.next_hops.longest, len(choices.flows)), choices.next_hops.nothing)
    for flow, (paths, options) in enumerate(zip(takes, choices.options, strict=True)):
        links[:, flow] = options[:, [solver.boolean_value(path) for path in paths].index(True)]
    return Solution(links, max(floor, solver.best_objective_bound * unit / _SCALE))


_Row = tuple[int, cp_model.IntVar, int]
"""Phase, boolean, weight."""


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
    """What a link bears if all take it."""
    return sum(weight for *_, weight in rows)


def _solver(limits: PlanLimits) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1 if limits.deterministic else limits.workers
    solver.parameters.random_seed = limits.seed
    solver.parameters.catch_sigint_signal = False
    # Probing and the search for symmetries would take longer than the whole solution of the published workloads.
    solver.parameters.cp_model_probing_level = 0
    solver.parameters.symmetry_level = 0
    if limits.deterministic:
        solver.parameters.max_deterministic_time = limits.time_limit_s
    else:
        solver.parameters.max_time_in_seconds = limits.time_limit_s
    return solver
