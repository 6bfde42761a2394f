"""Controller whose planner has two plans, and always answers with the one that is not in force.

    .venv/bin/python -m benchmarks.live.moves_controller --config FILE

Everything except the planner is that of ``signalbox serve``. A request to plan thus moves every pinned flow to another
path in the usual way. Both plans claim a slowdown that is lower than any real one, so the controller adopts them.
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
"""Slowdown that both plans claim. A real slowdown is at least 1."""


class TwoAnswers:
    """Planner that answers every request at once."""

    def __init__(self, put: Put, _: OnCrash) -> None:
        self._put = put

    def submit(self, request: PlanningRequest) -> None:
        if isinstance(request, SolvePlan):
            problem = request.snapshot.problem
            self._put(decided(problem, _other_plan(problem), request.min_gain))

    def stop(self) -> None: ...


def routes(problem: Problem, turn: int) -> dict[FlowId, Route]:
    """Return the routes of plan ``turn`` (0 or 1): flows of the n-th job take their candidate path n + ``turn``.

    The jobs' paths therefore share no link between switches."""
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
