"""Dispatch of analysis requests, in the process that analyses (``Answerer``).

The controller's process imports this module, but no module with a solver: OR-Tools costs 30 MB and half a second.
"""

from __future__ import annotations

from controller.planning.analysis.messages import AnalyseFailures, AnalyseJob, Analysis, AnalysisRequest, ProveRoutes


def analyse(request: AnalysisRequest) -> Analysis:
    """Return the result of the analysis that the request describes.

    Raises ``NotFound`` for a job without flows, ``SignalboxError`` when there is no answer."""
    from controller.planning.analysis.failures import analyse_failures
    from controller.planning.analysis.job import analyse_job, prove_routes

    match request:
        case AnalyseJob():
            return analyse_job(request)
        case AnalyseFailures():
            return analyse_failures(request)
        case ProveRoutes():
            return prove_routes(request)
