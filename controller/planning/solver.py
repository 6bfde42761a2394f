"""CP-SAT: import of its model builder without pandas, and searches in stages.

OR-Tools imports pandas for methods that take and return pandas series, which are not used here. Pandas would cost a
controller 45 MB and a second at every start. Therefore an empty module takes the place of pandas while ``cp_model`` is
imported, and only then."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from controller.planning.problem import PlanLimits

_NAME = "pandas"


class _Nothing:
    """Class without instances that replaces the classes of pandas."""


def _stand_in() -> ModuleType:
    module = ModuleType(_NAME)
    module.Index = module.Series = module.DataFrame = _Nothing  # type: ignore[attr-defined]
    return module


_stands_in = _NAME not in sys.modules
if _stands_in:
    sys.modules[_NAME] = _stand_in()
try:
    from ortools.sat.python import cp_model
finally:
    if _stands_in:
        del sys.modules[_NAME]

__all__ = ["StagedSearch", "cp_model", "solver_within"]


_SEARCH_SHARE = 0.3
"""Share of a stage's time for the search without linear relaxation."""


def solver_within(limits: PlanLimits, budget_s: float) -> cp_model.CpSolver:
    """Return a solver with a budget in CP-SAT's deterministic time, which advances by about one per second."""
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = 1
    parameters.random_seed = limits.seed
    parameters.catch_sigint_signal = False
    parameters.max_deterministic_time = budget_s
    if math.isfinite(limits.until):
        parameters.max_time_in_seconds = max(0.0, limits.left_s)
    return solver


class StagedSearch:
    """Search in stages over one model, each with its own objective, under one budget of deterministic time.

    The model may grow between the stages."""

    def __init__(self, cp: cp_model.CpModel, limits: PlanLimits) -> None:
        self._cp = cp
        self._limits = limits
        self._left_s = limits.time_limit_s
        self.values: Sequence[int] = ()
        """Value of each variable, by index, in the best solution so far; empty before the first solution."""
        self.bound = -math.inf
        """Proven bound of the latest objective."""
        self._reached = math.inf

    def minimise(self, objective: Any, share: float = 1.0) -> cp_model.CpSolverStatus | None:
        """Minimise an objective. Return OPTIMAL or FEASIBLE when a solution of the present model is found, else None.

        ``share``: share of the whole budget that may be used up when this stage ends.
        The first attempt has no linear relaxation, because without a relaxation the search finds routings ten times
        faster. Proofs need the relaxation."""
        self._cp.minimize(objective)
        self.bound, self._reached = -math.inf, math.inf
        found = None
        for linearization, part in ((0, _SEARCH_SHARE), (1, 1.0)):
            budget_s = part * (self._left_s - (1 - share) * self._limits.time_limit_s)
            if budget_s <= 0 or self._limits.left_s <= 0 or found == cp_model.OPTIMAL:
                break
            found = self._attempt(linearization, budget_s) or found
        return found

    def value(self, variable: cp_model.IntVar) -> int:
        return self.values[variable.index]

    def _attempt(self, linearization: int, budget_s: float) -> cp_model.CpSolverStatus | None:
        solver = solver_within(self._limits, budget_s)
        solver.parameters.linearization_level = linearization
        status = solver.solve(self._cp)
        self._left_s -= solver.response_proto.deterministic_time
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
            self.bound = max(self.bound, solver.best_objective_bound)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        if solver.objective_value > self._reached:
            return None
        self._reached = solver.objective_value
        self.values = list(solver.response_proto.solution)
        self._cp.clear_hints()  # type: ignore[no-untyped-call]
        for index, value in enumerate(self.values):
            self._cp.add_hint(self._cp.get_int_var_from_proto_index(index), value)
        return status
