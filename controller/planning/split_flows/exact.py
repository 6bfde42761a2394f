"""Smallest worst slowdown of few flows with few subflows, by a mixed-integer programme that SCIP solves.

In: a problem, its bounds, the best candidate so far. Out: a better candidate if there is one, and the proven bounds.
The programme is solved only if the worst slowdown is not proven and the programme is small.

The fluid optimum ignores how many subflows a flow may have. Its rounded routes may therefore be worse than the best
routes, and its bound may be far below them. The programme here has a variable for each class of flows and candidate
path. A flow that may have fewer subflows than it has paths also has a boolean for each path.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from controller.fabric.topology import LinkId, Path
from controller.planning.bounds import Bounds
from controller.planning.efficiency import SLOWDOWN_TOLERANCE
from controller.planning.plan import Draft, Drafts, draft
from controller.planning.problem import Floats, Flow, FlowId, PathShare, PlanLimits, Problem, Route, whole
from controller.planning.split_flows.lp import Programme
from signalbox.jobs.spec import JobId

_MOST_COLUMNS = 4_000
"""Largest number of pairs of flow and path; a larger programme seldom ends within a second."""
_NODES = 2_000_000
"""Largest size of the search tree: number of its nodes * number of pairs of flow and path."""
_GAIN = SLOWDOWN_TOLERANCE / 10
"""Smallest relative gain that is searched for. When there is none, the best candidate is optimal."""
_ROUNDING = 1e-5
"""Relative amount by which a bound is reduced, and share below which a subflow is left out.

SCIP's own tolerance is a tenth of it."""


class _Class(NamedTuple):
    """Flows of one job with the same ends, demands and number of subflows.

    A flow with fewer subflows than paths, and with at least two, has a class of its own."""

    flows: list[Flow]
    paths: tuple[Path, ...]

    @property
    def most(self) -> int:
        return self.flows[0].max_subflows

    @property
    def few(self) -> bool:
        """Whether paths need booleans that say which of them the flow uses."""
        return 1 < self.most < len(self.paths)


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
    the amounts of classes on paths, and the booleans of ``_Class.few``. ``reached``: worst slowdown of the best
    candidate."""

    def __init__(self, problem: Problem, bounds: Bounds, reached: float) -> None:
        self._problem = problem
        self._bounds = bounds
        self._below = reached * (1 - _GAIN)
        self._programme = Programme()
        self._programme.variables(np.ones(1), np.full(1, max(0.0, self._below - bounds.worst)))
        self._classes = list(self._classified())
        self._first = [self._add(of) for of in self._classes]
        self._limit_loads()

    def solve(self, limits: PlanLimits, nodes: int) -> Drafts:
        values, above = self._programme.solve_integers(limits.left_s, nodes)
        bound = min(self._below, (self._bounds.worst + above) * (1 - _ROUNDING))
        proven = self._bounds.with_worst(bound) if bound > self._bounds.worst else self._bounds.vector
        return Drafts([] if values is None else [draft(self._problem, "exact", self._routes(values))], proven)

    def _classified(self) -> Iterator[_Class]:
        classes: defaultdict[object, list[Flow]] = defaultdict(list)
        for flow in self._problem.flows:
            if flow.src_leaf != flow.dst_leaf and self._problem.reachable(flow):
                few = _Class([flow], self._problem.candidates(flow)).few
                alike = (flow.job_id, flow.src_leaf, flow.dst_leaf, flow.demand_bps, flow.max_subflows)
                classes[flow.id if few else alike].append(flow)
        for flows in classes.values():
            yield _Class(flows, self._problem.candidates(flows[0]))

    def _add(self, of: _Class) -> int:
        """Add the amounts of a class on its paths; return the number of the first."""
        programme, paths, count = self._programme, len(of.paths), len(of.flows)
        capacity_bps = self._problem.capacity_bps
        peak = max((bps for _, bps in of.flows[0].demand_bps), default=0.0)
        # Load that one flow would put on the narrowest link of each path.
        loads = np.array([peak / min(capacity_bps[link] for link in path) for path in of.paths])
        first = programme.variables(np.zeros(paths), np.full(paths, float(count)), integer=of.most == 1)
        amounts = first + np.arange(paths)
        row = programme.constraints(np.full(1, float(count)), np.full(1, float(count)))
        programme.add(np.full(paths, row), amounts, np.ones(paths))
        if of.most < paths and loads.max() > of.most:
            # No link of a subflow's path has a load above the worst slowdown: share * load <= slowdown, for each of at
            # most ``most`` subflows.
            row = programme.constraints(np.full(1, -np.inf), np.full(1, count * of.most * self._bounds.worst))
            programme.add(np.full(paths, row), amounts, loads)
            programme.add(np.full(1, row), np.zeros(1, np.int64), np.full(1, -float(count * of.most)))
        if of.few:
            used = programme.variables(np.zeros(paths), np.ones(paths), integer=True) + np.arange(paths)
            row = programme.constraints(np.full(1, -np.inf), np.full(1, float(of.most)))
            programme.add(np.full(paths, row), used, np.ones(paths))
            rows = programme.constraints(np.full(paths, -np.inf), np.zeros(paths)) + np.arange(paths)
            programme.add(rows, amounts, np.ones(paths))
            largest = np.minimum(1.0, self._below / np.maximum(loads, 1e-9))
            programme.add(rows, used, -largest)
        return first

    def _limit_loads(self) -> None:
        programme, capacity_bps = self._programme, self._problem.capacity_bps
        terms: defaultdict[LinkId, defaultdict[JobId, defaultdict[int, list[tuple[int, float]]]]] = defaultdict(
            lambda: defaultdict(lambda: defaultdict(list))
        )
        for of, first in zip(self._classes, self._first, strict=True):
            flow = of.flows[0]
            for column, path in enumerate(of.paths, start=first):
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
        for of, first in zip(self._classes, self._first, strict=True):
            amounts = values[first : first + len(of.paths)].tolist()
            if of.most == 1:
                paths = [path for path, amount in zip(of.paths, amounts, strict=True) for _ in range(round(amount))]
                routes.update((flow.id, whole(path)) for flow, path in zip(of.flows, paths, strict=True))
                continue
            used = [(path, amount) for path, amount in zip(of.paths, amounts, strict=True) if amount > _ROUNDING]
            largest = sorted(used, key=lambda of_path: -of_path[1])[: of.most]
            total = math.fsum(amount for _, amount in largest)
            route = tuple(PathShare(path, amount / total) for path, amount in largest)
            routes.update((flow.id, route) for flow in of.flows)
        return routes
