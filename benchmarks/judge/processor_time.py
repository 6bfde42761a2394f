"""Processor time in place of wall time, so that plans hardly depend on other programs of the machine."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event, Thread
from time import process_time
from typing import Any
from unittest.mock import patch

from ortools.math_opt import parameters_pb2, result_pb2
from ortools.util.python.pybind_solve_interrupter import PySolveInterrupter

from benchmarks.judge import adapter
from controller.planning.problem import PlanLimits
from controller.planning.programme import Programme
from controller.planning.whole_flows import cpsat

_LEAST_S = 1e-3
_CHECKED_S = 0.005
"""Time between two looks at the processor time of a solver."""
_solver_within, _solved = cpsat.solver_within, Programme._solved


@contextmanager
def processor_time() -> Iterator[None]:
    """Let the planner count processor time while the block runs.

    The solvers' own limits count wall time. In their place, solvers are stopped when they have used their processor
    time, and CP-SAT also when it has used as much deterministic time."""
    with (
        patch("time.perf_counter", process_time),
        patch.object(adapter, "perf_counter", process_time),
        patch.object(cpsat, "solver_within", _within),
        patch.object(Programme, "_solved", _solved_in_processor_time),
    ):
        yield


@contextmanager
def _stopped(stop: Callable[[], object], until_s: float) -> Iterator[None]:
    """Call ``stop`` in another thread when the processor time reaches ``until_s``, unless the block has ended."""
    ended = Event()

    def watch() -> None:
        while not ended.wait(_CHECKED_S):
            if process_time() >= until_s:
                stop()

    watcher = Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


class _Solver(cpsat.cp_model.CpSolver):
    until_s = math.inf

    def solve(self, *of: Any) -> Any:
        with _stopped(self.stop_search, self.until_s):
            return super().solve(*of)


def _within(limits: PlanLimits, budget_s: float) -> cpsat.cp_model.CpSolver:
    solver = _Solver()
    seconds = max(_LEAST_S, min(budget_s, limits.left_s))
    solver.parameters.copy_from(_solver_within(replace(limits, until=math.inf), seconds).parameters)
    solver.until_s = process_time() + limits.left_s
    return solver


def _solved_in_processor_time(
    programme: Programme,
    seconds: float,
    solver_type: int = parameters_pb2.SOLVER_TYPE_GLOP,
    parameters: parameters_pb2.SolveParametersProto | None = None,
) -> result_pb2.SolveResultProto:
    interrupter = PySolveInterrupter()
    with _stopped(interrupter.interrupt, process_time() + seconds):
        return _solved(programme, math.inf, solver_type, parameters, interrupter)
