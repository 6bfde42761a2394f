"""Linear programmes that are built from arrays, a thousand variables at a time, and solved by GLOP.

The interface is OR-Tools' MathOpt. In: costs, limits and coefficients. Out: values and duals."""

from __future__ import annotations

import math
from datetime import timedelta

import numpy as np
from ortools.math_opt import callback_pb2, model_parameters_pb2, model_pb2, parameters_pb2, result_pb2
from ortools.math_opt.core.python import solver

from controller.planning.problem import Floats, Ints


class Programme:
    """Linear programme: minimise a cost over non-negative variables.

    ``variables`` returns the number of the first variable that it adds. ``constraints`` returns the number of the first
    constraint that it adds."""

    def __init__(self) -> None:
        self._cost: list[float] = []
        self._upper: list[float] = []
        self._row_lower: list[float] = []
        self._row_upper: list[float] = []
        self._rows: list[Ints] = []
        self._columns: list[Ints] = []
        self._values: list[Floats] = []

    def variables(self, cost: Floats, upper: Floats) -> int:
        first = len(self._cost)
        self._cost += cost.tolist()
        self._upper += upper.tolist()
        return first

    def constraints(self, lower: Floats, upper: Floats) -> int:
        first = len(self._row_lower)
        self._row_lower += lower.tolist()
        self._row_upper += upper.tolist()
        return first

    def add(self, rows: Ints, columns: Ints, values: Floats) -> None:
        """Add coefficients; several coefficients of one variable in one constraint are summed."""
        self._rows.append(rows)
        self._columns.append(columns)
        self._values.append(values)

    def solve(self, seconds: float) -> tuple[Floats, Floats] | None:
        """Return the values of the variables and the duals of the constraints at the optimum; None when time runs out.

        ``seconds``: time limit, inf for none."""
        if seconds <= 0:
            return None
        result = self._solved(seconds)
        if result.termination.reason != result_pb2.TERMINATION_REASON_OPTIMAL:
            return None
        values, duals = np.zeros(len(self._cost)), np.zeros(len(self._row_lower))
        primal = result.solutions[0].primal_solution.variable_values
        values[np.array(primal.ids, np.int64)] = primal.values
        dual = result.solutions[0].dual_solution.dual_values
        duals[np.array(dual.ids, np.int64)] = dual.values
        return values, duals

    def _solved(self, seconds: float) -> result_pb2.SolveResultProto:
        """Solve through the layer below ``mathopt.solve``, because ``mathopt.solve`` makes an object per value.

        With 2,000 variables ``mathopt.solve`` takes 65 ms, the layer below 30 ms (OR-Tools 9.15)."""
        parameters = parameters_pb2.SolveParametersProto()
        if math.isfinite(seconds):
            parameters.time_limit.FromTimedelta(timedelta(seconds=seconds))
        return solver.solve(
            self._model(),
            parameters_pb2.SOLVER_TYPE_GLOP,
            parameters_pb2.SolverInitializerProto(),
            parameters,
            model_parameters_pb2.ModelSolveParametersProto(),
            None,
            callback_pb2.CallbackRegistrationProto(),
            None,
            None,
        )

    def _model(self) -> model_pb2.ModelProto:
        model = model_pb2.ModelProto()
        count = len(self._cost)
        model.variables.ids.extend(range(count))
        model.variables.lower_bounds.extend([0.0] * count)
        model.variables.upper_bounds.extend(self._upper)
        model.variables.integers.extend([False] * count)
        model.objective.linear_coefficients.ids.extend(range(count))
        model.objective.linear_coefficients.values.extend(self._cost)
        model.linear_constraints.ids.extend(range(len(self._row_lower)))
        model.linear_constraints.lower_bounds.extend(self._row_lower)
        model.linear_constraints.upper_bounds.extend(self._row_upper)
        keys, place = np.unique(np.concatenate(self._rows) * count + np.concatenate(self._columns), return_inverse=True)
        matrix = model.linear_constraint_matrix
        matrix.row_ids.extend((keys // count).tolist())
        matrix.column_ids.extend((keys % count).tolist())
        matrix.coefficients.extend(np.bincount(place, np.concatenate(self._values), len(keys)).tolist())
        return model
