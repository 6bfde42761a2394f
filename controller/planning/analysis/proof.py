"""The routes in force with the proofs that none are better, for a checker without a solver.

In: ``ProveRoutes``. Out: ``PlanProof``. Nothing is planned anew: of the planner only the lower bounds are wanted, which
its search may prove for more levels than there are witnesses for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from controller.planning.analysis.requests import ProveRoutes
from controller.planning.analysis.results import PlanProof
from controller.planning.certificate import certificate, document
from controller.planning.plan import answered
from controller.planning.planner import plan
from signalbox.errors import NotKnownYet, SignalboxError


def prove_routes(request: ProveRoutes) -> PlanProof:
    """Flows without any path are left out. Raises ``NotKnownYet`` while others have no route in force: how they are
    hashed is not known, so that no level would be right. Raises ``SignalboxError`` when the planner has no answer, or
    capacities are too far apart for a proof."""
    network = request.network.sending
    problem = network.problem
    hashed = Counter(flow.job_id for flow in problem.flows if problem.reachable(flow) and not problem.stands(flow))
    if hashed:
        job_id, flows = hashed.most_common(1)[0]
        others = f", and of other jobs ({len(hashed) - 1})," if len(hashed) > 1 else ""
        text = (
            f"flows of job '{job_id}' ({flows}){others} have no route in force, and no level is proven of hashed ones: "
            "ask again after the next plan; with another strategy than planned there are no routes"
        )
        raise NotKnownYet(text, {"jobId": job_id})
    if not problem.standing:
        raise NotKnownYet("no route is in force: no flow of a job has a path", {})
    as_they_are = answered(plan(problem, replace(network.limits, max_moves=0, ecmp_draws=0)))
    try:
        form = certificate(problem, as_they_are, network.names)
    except ValueError as error:
        raise SignalboxError(f"the routes have no proof: {error}") from None
    return PlanProof(document(form), problem.generation)
