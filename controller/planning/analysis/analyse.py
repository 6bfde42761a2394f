"""Dispatch of analysis requests, and the proofs that no routes are better than the routes in force.

In: a request of the control loop, with all parts of the state that the analysis needs. Out: the result. Analyses that
need many plans run in a process of their own, in an ``Answerer``."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from controller.planning.analysis.failures import analyse_failures
from controller.planning.analysis.job import analyse_job
from controller.planning.analysis.requests import AnalyseFailures, AnalyseJob, AnalysisRequest, ProveRoutes
from controller.planning.analysis.results import Analysis, PlanProof
from controller.planning.certificate import certificate, document
from controller.planning.plan import answered
from controller.planning.planner import plan
from signalbox.errors import NotKnownYet, SignalboxError


def analyse(request: AnalysisRequest) -> Analysis:
    """Return the result of the analysis that the request describes.

    Raises ``NotFound`` for a job without flows, ``SignalboxError`` when there is no answer."""
    match request:
        case AnalyseJob():
            return analyse_job(request)
        case AnalyseFailures():
            return analyse_failures(request)
        case ProveRoutes():
            return prove_routes(request)


def prove_routes(request: ProveRoutes) -> PlanProof:
    """Return the routes in force with the proofs that no routes are better, for a checker without a solver.

    The planner makes no new routes; only its lower bounds are used. Its search may prove the bounds of more slowdowns
    than there are witnesses for. Flows without any path are left out.

    Raises ``NotKnownYet`` while a flow with a path has no route in force: switches choose its links by hash, so the
    slowdown of its job is not known. Raises ``SignalboxError`` when the planner has no answer, or when capacities are
    too far apart for a proof."""
    network = request.network.sending
    problem = network.problem
    hashed = Counter(flow.job_id for flow in problem.flows if problem.reachable(flow) and not problem.is_in_force(flow))
    if hashed:
        job_id, flows = hashed.most_common(1)[0]
        others = f", and of other jobs ({len(hashed) - 1})," if len(hashed) > 1 else ""
        text = (
            f"flows of job '{job_id}' ({flows}){others} have no route in force, and no slowdown can be proven for "
            "hashed flows: retry after the next plan; only in the mode planned flows have routes"
        )
        raise NotKnownYet(text, {"jobId": job_id})
    if not problem.in_force:
        raise NotKnownYet("no route is in force: no flow of a job has a path", {})
    as_they_are = answered(plan(problem, replace(network.limits, max_moves=0, ecmp_draws=0)))
    try:
        form = certificate(problem, as_they_are, network.names)
    except ValueError as error:
        raise SignalboxError(f"the routes have no proof: {error}") from None
    return PlanProof(document(form), problem.generation)
