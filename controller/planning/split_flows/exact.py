"""Smallest worst slowdown of few flows with few subflows, by a mixed-integer programme that SCIP solves.

In: a problem, its bounds, the best candidate so far. Out: a better candidate if there is one, and the proven bounds.
The programme is solved only if the worst slowdown is not proven and the programme is small.

The fluid optimum ignores how many subflows a flow may have. Its rounded routes may therefore be worse than the best
routes, and its bound may be far below them. The programme here has a variable for each flow and candidate path. A flow
that may have fewer subflows than it has paths also has a boolean for each path.
"""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np

from controller.fabric.topology import LinkId
from controller.planning.bounds import Bounds
from controller.planning.efficiency import SLOWDOWN_TOLERANCE
from controller.planning.plan import Draft, Drafts, draft
from controller.planning.problem import Floats, Flow, FlowId, PathShare, PlanLimits, Problem, Route, whole
from controller.planning.programme import Programme
from signalbox.jobs.spec import JobId

_MOST_COLUMNS = 400
"""Largest number of pairs of flow and path. In larger programmes SCIP seldom finds better routes or bounds in time."""
_NODES = 2_000_000
"""Largest size of the search tree: number of its nodes * number of pairs of flow and path."""
_GAIN = SLOWDOWN_TOLERANCE / 10
"""Smallest relative gain that is searched for. When there is none, the best candidate is optimal."""
_ROUNDING = 1e-5
"""Relative amount by which a bound is reduced, and share below which a subflow is left out.

SCIP's own tolerance is a tenth of this value."""


def solve(problem: Problem, limits: PlanLimits, bounds: Bounds, best: Draft) -> Drafts | None:
    """Return a better candidate if there is one, and the bounds; None when the programme is too large."""
    columns = 0
    for flow in () if problem.paths.stretch else problem.flows:
        columns += len(problem.candidates(flow))
        if columns > _MOST_COLUMNS or problem.paths.cut(flow.src_leaf, flow.dst_leaf):
            return None
    return _Model(problem, bounds, best.vector[0]).solve(limits, _NODES // columns) if columns else None


class _Model:
    """Programme for the smallest worst slowdown.

    The first variable is the difference between the worst slowdown and its known lower bound. The other variables are
    the shares of flows on paths, and the booleans. ``reached``: worst slowdown of the best candidate."""

    def __init__(self, problem: Problem, bounds: Bounds, reached: float) -> None:
        self._problem = problem
        self._bounds = bounds
        self._below = reached * (1 - _GAIN)
        self._programme = Programme()
        self._programme.variables(np.ones(1), np.full(1, max(0.0, self._below - bounds.worst)))
        self._flows = [f for f in problem.flows if f.src_leaf != f.dst_leaf and problem.reachable(f)]
        self._first = [self._add(flow) for flow in self._flows]
        self._limit_loads()

    def solve(self, limits: PlanLimits, nodes: int) -> Drafts:
        values, above = self._programme.solve_integers(limits.left_s, nodes)
        bound = min(self._below, (self._bounds.worst + above) * (1 - _ROUNDING))
        proven = self._bounds.with_worst(bound) if bound > self._bounds.worst else self._bounds.vector
        return Drafts([] if values is None else [draft(self._problem, "exact", self._routes(values))], proven)

    def _add(self, flow: Flow) -> int:
        """Add the shares of a flow on its paths; return the number of the first."""
        programme, paths, most = self._programme, self._problem.candidates(flow), flow.max_subflows
        capacity_bps, count = self._problem.capacity_bps, len(paths)
        peak = max((bps for _, bps in flow.demand_bps), default=0.0)
        # Load that the flow would put on the narrowest link of each path.
        loads = np.array([peak / min(capacity_bps[link] for link in path) for path in paths])
        first = programme.variables(np.zeros(count), np.ones(count), integer=most == 1)
        shares = first + np.arange(count)
        row = programme.constraints(np.ones(1), np.ones(1))
        programme.add(np.full(count, row), shares, np.ones(count))
        if most < count and loads.max() > most:
            # No link of a subflow's path has a load above the worst slowdown: share * load <= slowdown, for each of at
            # most ``most`` subflows.
            row = programme.constraints(np.full(1, -np.inf), np.full(1, most * self._bounds.worst))
            programme.add(np.full(count, row), shares, loads)
            programme.add(np.full(1, row), np.zeros(1, np.int64), np.full(1, -float(most)))
        if 1 < most < count:
            used = programme.variables(np.zeros(count), np.ones(count), integer=True) + np.arange(count)
            row = programme.constraints(np.full(1, -np.inf), np.full(1, float(most)))
            programme.add(np.full(count, row), used, np.ones(count))
            rows = programme.constraints(np.full(count, -np.inf), np.zeros(count)) + np.arange(count)
            programme.add(rows, shares, np.ones(count))
            programme.add(rows, used, -np.minimum(1.0, self._below / np.maximum(loads, 1e-9)))
        return first

    def _limit_loads(self) -> None:
        programme, capacity_bps = self._programme, self._problem.capacity_bps
        terms: defaultdict[LinkId, defaultdict[JobId, defaultdict[int, list[tuple[int, float]]]]] = defaultdict(
            lambda: defaultdict(lambda: defaultdict(list))
        )
        for flow, first in zip(self._flows, self._first, strict=True):
            for column, path in enumerate(self._problem.candidates(flow), start=first):
                for link in path:
                    for phase, bps in flow.demand_bps:
                        terms[link][flow.job_id][phase].append((column, bps / capacity_bps[link]))
        for jobs in terms.values():
            row = programme.constraints(np.full(1, -np.inf), np.full(1, self._bounds.worst))
            programme.add(np.full(1, row), np.zeros(1, np.int64), np.full(1, -1.0))
            for phases in jobs.values():
                if len(phases) == 1:
                    self._sum(row, *phases.values())
                    continue
                peak = programme.variables(np.zeros(1), np.full(1, np.inf))
                self._sum(row, [(peak, 1.0)])
                for of_phase in phases.values():
                    below = programme.constraints(np.full(1, -np.inf), np.zeros(1))
                    self._sum(below, [*of_phase, (peak, -1.0)])

    def _sum(self, row: int, terms: list[tuple[int, float]]) -> None:
        columns, values = zip(*terms, strict=True)
        self._programme.add(np.full(len(terms), row), np.array(columns, np.int64), np.array(values))

    def _routes(self, values: Floats) -> dict[FlowId, Route]:
        routes = {flow.id: whole(()) for flow in self._problem.flows if flow.src_leaf == flow.dst_leaf}
        for flow, first in zip(self._flows, self._first, strict=True):
            paths = self._problem.candidates(flow)
            shares = values[first : first + len(paths)].tolist()
            used = [(path, share) for path, share in zip(paths, shares, strict=True) if share > _ROUNDING]
            largest = sorted(used, key=lambda of_path: -of_path[1])[: flow.max_subflows]
            total = math.fsum(share for _, share in largest)
            routes[flow.id] = tuple(PathShare(path, share / total) for path, share in largest)
        return routes
