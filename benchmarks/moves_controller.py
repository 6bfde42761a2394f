"""A controller whose planner knows two plans and always answers with the one that is not in force.

    .venv/bin/python -m benchmarks.moves_controller --config FILE

Everything but the planning worker is what ``signalbox serve`` runs: whoever asks it to plan again makes it move every
pinned flow to another path, through the same loop, difference, stages, barriers and switches as any other change. There
is no API for routes of somebody's own choice, and a good planner never moves flows for nothing. To be adopted, both
plans claim to be better than anything that runs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated
from unittest.mock import patch

import typer

from controller.config import load
from controller.planning.messages import Compared, Planned, SolvePlan
from controller.planning.plan import Plan, PlanTimes
from controller.planning.problem import FlowId, Problem, Route, whole
from controller.serve import serve

CLAIMED_LEVEL = 0.5
"""No real routing has less than 1."""


class TwoAnswers:
    """Stands where ``PlanningWorker`` stands."""

    def __init__(
        self, inbox_put: Callable[[Planned | Compared], None], _on_crash: Callable[[BaseException], None]
    ) -> None:
        self._inbox_put = inbox_put

    def submit(self, request: SolvePlan) -> None:
        self._inbox_put(Planned(_other_plan(request.problem)))

    def stop(self, timeout_s: float = 5.0) -> None:
        """Nothing runs beside the loop."""


def routes(problem: Problem, turn: int) -> dict[FlowId, Route]:
    """The n-th job's flows take candidate path n + ``turn``, so that no two jobs meet on a link between switches."""
    jobs = sorted({flow.job_id for flow in problem.flows})
    chosen = {}
    for flow in problem.flows:
        candidates = sorted(problem.candidates(flow))
        chosen[flow.id] = whole(candidates[(jobs.index(flow.job_id) + turn) % len(candidates)])
    return chosen


def _other_plan(problem: Problem) -> Plan:
    first = routes(problem, 0)
    current = {flow.id: flow.current for flow in problem.flows}
    chosen = routes(problem, 1) if current == first else first
    return Plan(
        generation=problem.generation,
        routes=chosen,
        unrouted=(),
        job_level=dict.fromkeys({flow.job_id for flow in problem.flows}, CLAIMED_LEVEL),
        bound=CLAIMED_LEVEL,
        fluid_bound=CLAIMED_LEVEL,
        integer_bound=CLAIMED_LEVEL,
        certificate="heuristic",
        levels_proven=0,
        moves=sum(route is not None and route != chosen[flow] for flow, route in current.items()),
        solver="two answers",
        ecmp=None,
        times=PlanTimes(0.0, 0.0, 0.0),
    )


def main(config: Annotated[Path, typer.Option(help="as for signalbox serve")]) -> None:
    """Run the controller until SIGTERM."""
    with patch("controller.serve.PlanningWorker", TwoAnswers):
        raise typer.Exit(serve(load(config)))


if __name__ == "__main__":
    typer.run(main)
