"""Routings with the smallest slowdowns, found by HiGHS, or by SCIP where HiGHS fails.

This module imports nothing of the controller. It returns a routing, or the finding that no better routing exists. The
caller evaluates routings in fractions, so that rounding cannot make a routing look better than it is. The finding is as
exact as HiGHS is (1e-6).
"""

import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from fractions import Fraction
from typing import Any, NamedTuple

from ortools.math_opt.python import mathopt

from benchmarks.judge.exact import Exact, Path, Routing
from benchmarks.judge.instances import limit_of

_GAP = 1e-7
"""Gap between a solution and its bound at which HiGHS stops, relative and absolute."""


class Found(NamedTuple):
    routing: Routing | None
    """Best routing; None if none was found below the requested slowdown."""
    decided: bool
    """Whether it is proven that there is no better routing."""


def fluid(exact: Exact, seconds: float) -> Found:
    """Return a routing with the smallest worst slowdown, if flows may have any number of subflows."""
    return _Model(exact, None, seconds).solve(None)


def better(exact: Exact, max_subflows: int, vector: Sequence[Fraction], below: Fraction, seconds: float) -> Found:
    """Return a routing that keeps the largest slowdowns and minimizes the next one.

    Its largest slowdowns are at most those of ``vector``. The next slowdown is minimal, and at most ``below``; if
    ``vector`` is empty, it is the worst slowdown. A flow has at most ``max_subflows`` subflows."""
    return _Model(exact, max_subflows, seconds, vector).solve(below)


class _Class(NamedTuple):
    """Flows of one job that are interchangeable: they have the same demands, and the same switches at their ends."""

    flows: list[int]
    paths: tuple[Path, ...]
    most: int | None
    """Number of subflows that a flow may have; None for any number."""

    @property
    def whole(self) -> bool:
        """Whether flows are not split, so that the number of flows on a path is an integer."""
        return self.most == 1

    @property
    def cut(self) -> bool:
        """Whether this is a single flow that may use only some of its paths, so that each path needs a boolean."""
        return self.most is not None and 1 < self.most < len(self.paths)


class _Model:
    """Linear programme of an instance. ``max_subflows``: subflows that a flow may have; None for any number.

    Loads in the programme are relative to the capacities of the links."""

    def __init__(self, exact: Exact, max_subflows: int | None, seconds: float, vector: Sequence[Fraction] = ()) -> None:
        self._exact = exact
        self._vector = [float(slowdown) for slowdown in vector]
        self._by_job = bool(vector) or exact.over_iterations
        """Whether each job has a variable for its slowdown, and each path of a flow a variable for its use."""
        self._parameters = mathopt.SolveParameters(
            time_limit=timedelta(seconds=seconds), relative_gap_tolerance=_GAP, absolute_gap_tolerance=_GAP
        )
        self._model = mathopt.Model()
        self._classes = self._classified(max_subflows)
        self._worst = self._model.add_variable(lb=1.0 if vector else float(max(exact.nic_slowdowns.values())))
        self._share: list[list[Any]] = []
        """Variables for the number of flows on each path, by class and path."""
        self._there: list[list[Any]] = []
        """Variables, by class and path, that are 1 if a flow uses the path; variables of ``_share`` where possible."""
        for of in self._classes:
            self._add(of)
        self._slowdown = self._slowdowns() if self._by_job else None
        self._limit_loads()

    def _classified(self, max_subflows: int | None) -> list[_Class]:
        exact, alike = self._exact, defaultdict[Any, list[int]](list)
        for number, flow in enumerate(exact.flows):
            most = None if max_subflows is None else limit_of(max_subflows, flow.job)
            cut = _Class([number], exact.paths(*flow.ends), most).cut
            alike[number if cut else -1, flow.job, flow.ends, tuple(flow.demand.items()), most].append(number)
        return [_Class(flows, exact.paths(*ends), most) for (_, _, ends, _, most), flows in alike.items()]

    def _add(self, of: _Class) -> None:
        model, count = self._model, len(of.flows)
        if of.whole:
            share = [model.add_integer_variable(lb=0, ub=count) for _ in of.paths]
        else:
            share = [model.add_variable(lb=0, ub=count) for _ in of.paths]
        model.add_linear_constraint(mathopt.fast_sum(share) == count)
        there = share
        if of.cut or (self._by_job and not (of.whole and count == 1)):
            there = [model.add_binary_variable() for _ in of.paths]
            for amount, boolean in zip(share, there, strict=True):
                model.add_linear_constraint(amount <= count * boolean)
        if of.cut:
            model.add_linear_constraint(mathopt.fast_sum(there) <= of.most)
        self._share.append(share)
        self._there.append(there)

    def _limit_loads(self) -> None:
        exact, model = self._exact, self._model
        terms: defaultdict[int, defaultdict[tuple[int, int], list[Any]]] = defaultdict(lambda: defaultdict(list))
        users: defaultdict[tuple[int, int, int], list[Any]] = defaultdict(list)
        for of, share, there in zip(self._classes, self._share, self._there, strict=True):
            flow = exact.flows[of.flows[0]]
            for path, amount, boolean in zip(of.paths, share, there, strict=True):
                for link in path:
                    for phase, bps in flow.demand.items():
                        users[flow.job, phase, link].append(boolean)
                        terms[link][flow.job, phase].append(bps / exact.capacity[link] * amount)
        for link, phases in terms.items():
            of_job: defaultdict[int, dict[int, Any]] = defaultdict(dict)
            for (job, phase), loads in phases.items():
                of_job[job][phase] = mathopt.fast_sum(loads)
            peaks = {
                job: self._largest([*sums.values()]) if len(sums) > 1 else next(iter(sums.values()))
                for job, sums in of_job.items()
            }
            load = mathopt.fast_sum(peaks.values())
            if self._slowdown is None:
                model.add_linear_constraint(load <= self._worst)
                continue
            if not exact.over_iterations:
                model.add_linear_constraint(load <= self._vector[0])
            most = float(sum(sum(flow.demand.values()) for flow in exact.flows) / exact.capacity[link])
            for job, sums in of_job.items():
                if exact.over_iterations:
                    for phase, own in sums.items():
                        used = self._any(users[job, phase, link])
                        seen = load - peaks[job] + own
                        model.add_linear_constraint(seen <= self._of_cell[job, phase] + most * (1 - used))
                else:
                    used = self._any([of for phase in sums for of in users[job, phase, link]])
                    model.add_linear_constraint(load <= self._slowdown[job] + (self._vector[0] - 1) * (1 - used))

    def _any(self, booleans: Sequence[Any]) -> Any:
        found = self._model.add_binary_variable()
        for boolean in booleans:
            self._model.add_linear_constraint(found >= boolean)
        return found

    def _largest(self, sums: Sequence[Any]) -> Any:
        peak = self._model.add_variable(lb=0)
        for load in sums:
            self._model.add_linear_constraint(load <= peak)
        return peak

    def _slowdowns(self) -> dict[int, Any]:
        """Return a variable for the slowdown of each job, and limit the sorted slowdowns.

        At most m jobs may have a slowdown above entry m of the vector, counted from 0. The last entry is the
        variable that is minimized."""
        model, exact = self._model, self._exact
        if not self._vector:
            slowdown = {job: model.add_variable(lb=1.0) for job in exact.jobs}
            for own in slowdown.values():
                model.add_linear_constraint(own <= self._worst)
            return self._over_phases(slowdown)
        highest = self._vector[0]
        least = {job: min(float(slowdown), highest) for job, slowdown in exact.nic_slowdowns.items()}
        slowdown = {job: model.add_variable(lb=lowest, ub=highest) for job, lowest in least.items()}
        for index, entry in enumerate([*self._vector[1:], self._worst], start=1):
            above = [model.add_binary_variable() for _ in exact.jobs]
            model.add_linear_constraint(mathopt.fast_sum(above) <= index)
            for own, boolean in zip(slowdown.values(), above, strict=True):
                model.add_linear_constraint(own <= entry + (highest - 1) * boolean)
        return self._over_phases(slowdown) if exact.over_iterations else slowdown

    def _over_phases(self, slowdown: dict[int, Any]) -> dict[int, Any]:
        """Let the slowdown of each job be at least the sum over its phases of share x slowdown."""
        exact, model = self._exact, self._model
        least = exact.of_phases(exact.only_nics)
        self._of_cell = {cell: model.add_variable(lb=float(slowdown)) for cell, slowdown in least.items()}
        for job, own in slowdown.items():
            of_job = [float(exact.share[cell]) * of for cell, of in self._of_cell.items() if cell[0] == job]
            model.add_linear_constraint(own >= mathopt.fast_sum(of_job))
        return slowdown

    def solve(self, below: Fraction | None) -> Found:
        if below is not None:
            self._worst.upper_bound = float(below)
            if self._worst.lower_bound > float(below):
                return Found(None, True)
        self._model.minimize(self._worst)
        result = self._solved(mathopt.SolverType.HIGHS) or self._solved(mathopt.SolverType.GSCIP)
        if result is None:
            return Found(None, False)
        reason = result.termination.reason
        if result.has_primal_feasible_solution():
            return Found(self._routing(result.variable_values()), reason == mathopt.TerminationReason.OPTIMAL)
        return Found(None, reason == mathopt.TerminationReason.INFEASIBLE)

    def _solved(self, solver: mathopt.SolverType) -> mathopt.SolveResult | None:
        """Return the result, or None when the solver fails.

        OR-Tools raises ``AttributeError`` when it tries to report a failure of the solver."""
        with _without_output():
            try:
                return mathopt.solve(self._model, solver, params=self._parameters)
            except (AttributeError, RuntimeError):
                return None

    def _routing(self, values: Mapping[Any, float]) -> Routing:
        routing: list[Sequence[tuple[Path, Fraction]]] = [()] * len(self._exact.flows)
        for of, share, there in zip(self._classes, self._share, self._there, strict=True):
            if of.whole:
                places = [
                    path for path, amount in zip(of.paths, share, strict=True) for _ in range(round(values[amount]))
                ]
                for flow, path in zip(of.flows, places, strict=True):
                    routing[flow] = [(path, Fraction(1))]
                continue
            parts = [
                (path, Fraction(values[amount]))
                for path, amount, boolean in zip(of.paths, share, there, strict=True)
                if values[amount] > 1e-9 and (not of.cut or values[boolean] > 0.5)
            ]
            total = sum(part for _, part in parts)
            for flow in of.flows:
                routing[flow] = [(path, part / total) for path, part in parts]
        return routing


@contextmanager
def _without_output() -> Iterator[None]:
    """Discard what libraries outside Python write to stdout while the block runs.

    HiGHS writes lines for its own developers, which would end up in the JSON output."""
    sys.stdout.flush()
    kept, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)
