"""Linear programmes, also with integers, solved by OR-Tools' MathOpt.

GLOP solves exactly, PDLP within an error, and SCIP solves programmes with integers.
"""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import numpy as np
from ortools.math_opt import callback_pb2, model_parameters_pb2, model_pb2, parameters_pb2, result_pb2
from ortools.math_opt.core.python import solver
from ortools.util.python.pybind_solve_interrupter import PySolveInterrupter

from controller.planning.problem import Floats, Ints

_ITERATIONS = 20_000
"""Largest number of iterations of PDLP."""


class Programme:
    """Linear programme: minimise a cost over non-negative variables.

    ``variables`` returns the number of the first variable that it adds. ``constraints`` returns the number of the first
    constraint that it adds."""

    def __init__(self) -> None:
        self._cost: list[float] = []
        self._upper: list[float] = []
        self._integer: list[bool] = []
        self._row_lower: list[float] = []
        self._row_upper: list[float] = []
        self._rows: list[Ints] = []
        self._columns: list[Ints] = []
        self._values: list[Floats] = []

    def variables(self, cost: Floats, upper: Floats, *, integer: bool = False) -> int:
        first = len(self._cost)
        self._cost += cost.tolist()
        self._upper += upper.tolist()
        self._integer += [integer] * len(cost)
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

    def solve(self, seconds: float, *, error: float = 0.0) -> tuple[Floats, Floats] | None:
        """Return the values of the variables and the duals of the constraints at the optimum; None when time runs out.

        ``seconds``: time limit, inf for none. ``error``: relative error that is allowed."""
        if seconds <= 0:
            return None
        if error:
            parameters = parameters_pb2.SolveParametersProto(iteration_limit=_ITERATIONS, threads=1)
            criteria = parameters.pdlp.termination_criteria.simple_optimality_criteria
            criteria.eps_optimal_relative = criteria.eps_optimal_absolute = error
            result = self._solved(seconds, parameters_pb2.SOLVER_TYPE_PDLP, parameters)
        else:
            result = self._solved(seconds)
        if result.termination.reason != result_pb2.TERMINATION_REASON_OPTIMAL:
            return None
        values, duals = self._values_of(result), np.zeros(len(self._row_lower))
        dual = result.solutions[0].dual_solution.dual_values
        duals[np.array(dual.ids, np.int64)] = dual.values
        return values, duals

    def solve_integers(self, seconds: float, nodes: int) -> tuple[Floats | None, float]:
        """Return the best values found, None if there are none, and a lower bound of the cost.

        The bound is infinite when no values satisfy all constraints. ``nodes``: largest size of the search tree."""
        if seconds <= 0:
            return None, 0.0
        parameters = parameters_pb2.SolveParametersProto(node_limit=nodes, threads=1)
        parameters.gscip.bool_params["misc/catchctrlc"] = False
        # In this thread, converting the result would lose a signal that arrived during the solve.
        with ThreadPoolExecutor(1) as other:
            solving = other.submit(self._solved, seconds, parameters_pb2.SOLVER_TYPE_GSCIP, parameters)
            result = solving.result()
        if result.termination.reason == result_pb2.TERMINATION_REASON_INFEASIBLE:
            return None, math.inf
        bound = result.termination.objective_bounds.dual_bound
        return self._values_of(result) if result.solutions else None, max(0.0, bound)

    def _values_of(self, result: result_pb2.SolveResultProto) -> Floats:
        values = np.zeros(len(self._cost))
        primal = result.solutions[0].primal_solution.variable_values
        values[np.array(primal.ids, np.int64)] = primal.values
        return values

    def _solved(
        self,
        seconds: float,
        solver_type: int = parameters_pb2.SOLVER_TYPE_GLOP,
        parameters: parameters_pb2.SolveParametersProto | None = None,
        interrupter: PySolveInterrupter | None = None,
    ) -> result_pb2.SolveResultProto:
        """Solve through the layer below ``mathopt.solve``, because ``mathopt.solve`` makes an object per value.

        With 2,000 variables ``mathopt.solve`` takes 65 ms, the layer below 30 ms (OR-Tools 9.15)."""
        parameters = parameters or parameters_pb2.SolveParametersProto()
        until = time.perf_counter() + seconds
        model = self._model()
        if math.isfinite(seconds):
            left_s = max(0.0, until - time.perf_counter())
            parameters.time_limit.FromTimedelta(timedelta(seconds=left_s))
        return solver.solve(
            model,
            solver_type,
            parameters_pb2.SolverInitializerProto(),
            parameters,
            model_parameters_pb2.ModelSolveParametersProto(),
            None,
            callback_pb2.CallbackRegistrationProto(),
            None,
            interrupter,
        )

    def _model(self) -> model_pb2.ModelProto:
        model = model_pb2.ModelProto()
        count = len(self._cost)
        model.variables.ids.extend(range(count))
        model.variables.lower_bounds.extend([0.0] * count)
        model.variables.upper_bounds.extend(self._upper)
        model.variables.integers.extend(self._integer)
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
