"""Processor time in place of wall time, so that plans hardly depend on other programs of the machine."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import process_time
from unittest.mock import patch

from ortools.math_opt import parameters_pb2, result_pb2

from benchmarks.judge import adapter
from controller.planning.problem import PlanLimits
from controller.planning.programme import Programme
from controller.planning.whole_flows import cpsat

_LEAST_S = 1e-3
_CLOCK, _OF_PROCESSOR = "timing/clocktype", 1
"""SCIP's parameter that chooses its clock, and the value for processor time."""
_solver_within, _solved = cpsat.solver_within, Programme._solved


@contextmanager
def processor_time() -> Iterator[None]:
    """Let the planner count processor time while the block runs.

    The solvers' own limits count wall time. In their place, CP-SAT and GLOP count deterministic time, and SCIP
    processor time. PDLP has only its limit of iterations."""
    with (
        patch("time.perf_counter", process_time),
        patch.object(adapter, "perf_counter", process_time),
        patch.object(cpsat, "solver_within", _deterministic),
        patch.object(Programme, "_solved", _solved_in_processor_time),
    ):
        yield


def _deterministic(limits: PlanLimits, budget_s: float) -> cpsat.cp_model.CpSolver:
    return _solver_within(replace(limits, until=math.inf), max(_LEAST_S, min(budget_s, limits.left_s)))


def _solved_in_processor_time(
    programme: Programme,
    seconds: float,
    solver_type: int = parameters_pb2.SOLVER_TYPE_GLOP,
    parameters: parameters_pb2.SolveParametersProto | None = None,
) -> result_pb2.SolveResultProto:
    parameters = parameters or parameters_pb2.SolveParametersProto()
    if solver_type == parameters_pb2.SOLVER_TYPE_GSCIP:
        parameters.gscip.int_params[_CLOCK] = _OF_PROCESSOR
        return _solved(programme, seconds, solver_type, parameters)
    if solver_type == parameters_pb2.SOLVER_TYPE_GLOP and math.isfinite(seconds):
        parameters.glop.max_deterministic_time = seconds
    return _solved(programme, math.inf, solver_type, parameters)
