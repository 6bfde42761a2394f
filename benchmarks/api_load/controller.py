"""Controller of the ``api-load`` benchmark: ``signalbox serve``, with each call of ``ControlLoop.handle`` timed.

    .venv/bin/python -m benchmarks.api_load --config FILE --measured FILE [--fabric 16x8x32]

With ``--fabric`` there are two more differences, because the benchmark measures the control loop and not a solver:

- Switches in memory, which carry out every command at once, replace the southbound.
- A trivial planner keeps every route, and gives new flows their candidate paths in turn.

Without ``--fabric`` the southbound is the real one, and no switch connects.

SIGUSR1 starts the measurement. When the controller stops, it writes a JSON file (``Measured``).
"""

from __future__ import annotations

import json
import signal
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, TypedDict

import typer

from benchmarks.api_load.switches import replace_southbound
from benchmarks.measures import Spread
from controller.config import load
from controller.control_loop import ControlLoop
from controller.core.messages import Command, Message
from controller.planning import answers
from controller.planning.efficiency import all_slowdowns
from controller.planning.plan import NoPlan, Plan, PlanTimes
from controller.planning.problem import FlowId, PlanLimits, Problem, Route, whole
from controller.planning.process import OnCrash, PlanningProcess, Put
from controller.planning.worker import PlanningWorker
from controller.serving import serve

LONGEST = 12


class Call(TypedDict):
    """Call of ``handle``: its duration and CPU time, and the numbers of its messages and commands by type."""

    ms: float
    cpu_ms: float
    messages: dict[str, int]
    commands: dict[str, int]


class Measured(TypedDict):
    """Measurements of all calls of ``handle``, in milliseconds.

    ``handle_cpu_ms``: CPU time of the control loop's thread. It leaves out the time in which the thread waits for
    the interpreter lock or for a processor. ``longest``: the calls with the longest durations."""

    calls: int
    handle_ms: dict[str, float] | None
    handle_cpu_ms: dict[str, float] | None
    longest: list[Call]


class Clock:
    """Timer of ``ControlLoop.handle``, which consists of a call of ``apply`` and a call of ``work``."""

    def __init__(self) -> None:
        self._ms, self._cpu_ms = array("d"), array("d")
        self._longest: list[tuple[float, int, Call]] = []
        self._order = count()
        apply, work = ControlLoop.apply, ControlLoop.work
        taken: list[Message] = []
        given: list[Command] = []
        ms = [0.0, 0.0]

        def clocked_apply(loop: ControlLoop, messages: Iterable[Message], now: float) -> list[Command]:
            taken[:] = messages
            given[:], ms[:] = _clocked(partial(apply, loop, taken, now))
            return [*given]

        def clocked_work(loop: ControlLoop, now: float) -> list[Command]:
            commands, more = _clocked(partial(work, loop, now))
            self._took(ms[0] + more[0], ms[1] + more[1], taken, [*given, *commands])
            return commands

        ControlLoop.apply, ControlLoop.work = clocked_apply, clocked_work  # type: ignore

    def begin(self) -> None:
        self._ms, self._cpu_ms, self._longest = array("d"), array("d"), []

    def _took(self, ms: float, cpu_ms: float, messages: list[Message], commands: list[Command]) -> None:
        self._ms.append(ms)
        self._cpu_ms.append(cpu_ms)
        if len(self._longest) < LONGEST or ms > self._longest[-1][0]:
            call = Call(ms=round(ms, 2), cpu_ms=round(cpu_ms, 2), messages=_kinds(messages), commands=_kinds(commands))
            self._longest = sorted([*self._longest, (ms, -next(self._order), call)], key=lambda one: -one[0])[:LONGEST]

    def measured(self) -> Measured:
        longest = [call for *_, call in self._longest]
        return Measured(
            calls=len(self._ms),
            handle_ms=_spread(self._ms),
            handle_cpu_ms=_spread(self._cpu_ms),
            longest=longest,
        )


def _clocked(call: Callable[[], list[Command]]) -> tuple[list[Command], tuple[float, float]]:
    """Return the result of ``call``, and its duration and CPU time in milliseconds."""
    began, cpu_began = time.perf_counter(), time.thread_time()
    commands = call()
    cpu_ms = 1000 * (time.thread_time() - cpu_began)
    return commands, (1000 * (time.perf_counter() - began), cpu_ms)


def _spread(ms: Sequence[float]) -> dict[str, float] | None:
    spread = Spread.of(ms)
    return asdict(spread) if spread else None


def _kinds(things: Iterable[object]) -> dict[str, int]:
    return dict(Counter(type(one).__name__ for one in things))


def round_robin_plan(problem: Problem, _: PlanLimits) -> Plan | NoPlan:
    """Return a plan that keeps every route in force, and gives other flows their candidate paths in turn."""
    turns = count()
    routes: dict[FlowId, Route] = {}
    for flow in problem.flows:
        if flow.current is not None and problem.is_in_force(flow):
            routes[flow.id] = flow.current
        elif paths := problem.candidates(flow):
            routes[flow.id] = whole(paths[next(turns) % len(paths)])
    slowdowns, own, _peak = all_slowdowns(problem, routes)
    return Plan(
        generation=problem.generation,
        routes=routes,
        unrouted=(),
        job_slowdown=slowdowns,
        own_slowdown=own,
        bound=1.0,
        fluid_bound=1.0,
        integer_bound=1.0,
        certificate="heuristic",
        slowdowns_proven=0,
        moves=0,
        solver="dealt",
        ecmp=None,
        times=PlanTimes(0.0, 0.0, 0.0),
    )


def round_robin_worker(put: Put, on_crash: OnCrash) -> PlanningWorker:
    """Return a worker that plans with ``round_robin_plan``. Call this in the planning process."""
    vars(answers)["plan"], vars(answers)["baseline_slowdowns"] = round_robin_plan, lambda *_: {}
    return PlanningWorker(put, on_crash)


def main(
    config: Annotated[Path, typer.Option(help="Configuration file, as for signalbox serve.")],
    measured: Annotated[Path, typer.Option(help="File for the measurements, written at the end.")],
    fabric: Annotated[str, typer.Option(help="Fabric in memory, such as 16x8x32; none if empty.")] = "",
) -> None:
    """Run the controller until SIGTERM."""
    clock = Clock()
    signal.signal(signal.SIGUSR1, lambda *_: clock.begin())
    if fabric:
        replace_southbound(fabric)
    make = partial(PlanningProcess, make=round_robin_worker) if fabric else None
    try:
        status = serve.serve(load(config), make_planner=make)
    finally:
        measured.write_text(json.dumps(clock.measured()))
    raise typer.Exit(status)
