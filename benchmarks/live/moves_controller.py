"""Controller whose planner has two plans and always answers with the one that is not in force.

    .venv/bin/python -m benchmarks.live.moves_controller --config FILE

Apart from the planning worker it is what ``signalbox serve`` runs. A request to plan moves every pinned flow to another
path, through the same loop, difference, stages, barriers and switches as any other change. Both plans claim a slowdown
below any real one, so that the controller always adopts them.
"""

from pathlib import Path
from typing import Annotated

import typer

from controller.config import load
from controller.planning.messages import PlanningRequest, SolvePlan
from controller.planning.plan import Plan, PlanTimes, decided
from controller.planning.problem import FlowId, Problem, Route, whole
from controller.planning.process import OnCrash, Put
from controller.serving.serve import serve

CLAIMED_SLOWDOWN = 0.5
"""Slowdown that both plans claim; no real routing has less than 1."""


class TwoAnswers:
    """Planner that answers at once with one of two plans."""

    def __init__(self, put: Put, _: OnCrash) -> None:
        self._put = put

    def submit(self, request: PlanningRequest) -> None:
        if isinstance(request, SolvePlan):
            problem = request.snapshot.problem
            self._put(decided(problem, _other_plan(problem), request.min_gain))

    def stop(self) -> None: ...


def routes(problem: Problem, turn: int) -> dict[FlowId, Route]:
    """Return candidate path n + ``turn`` for the n-th job, so that no two jobs share a link between switches."""
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
    jobs = {flow.job_id for flow in problem.flows}
    return Plan(
        generation=problem.generation,
        routes=chosen,
        unrouted=(),
        job_slowdown=dict.fromkeys(jobs, CLAIMED_SLOWDOWN),
        own_slowdown=dict.fromkeys(jobs, 1.0),
        bound=CLAIMED_SLOWDOWN,
        fluid_bound=CLAIMED_SLOWDOWN,
        integer_bound=CLAIMED_SLOWDOWN,
        certificate="heuristic",
        slowdowns_proven=0,
        moves=sum(route is not None and route != chosen[flow] for flow, route in current.items()),
        solver="two answers",
        ecmp=None,
        times=PlanTimes(0.0, 0.0, 0.0),
    )


def main(config: Annotated[Path, typer.Option(help="Configuration file, as for signalbox serve.")]) -> None:
    """Run the controller until SIGTERM."""
    raise typer.Exit(serve(load(config), make_planner=TwoAnswers))


if __name__ == "__main__":
    typer.run(main)
