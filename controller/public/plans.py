"""Plans, published schemes to compare them with, their bounds and proofs, and analyses of failures and jobs.

The import loads the solver, which takes half a second.
"""

from __future__ import annotations

from controller.api.convert_analysis import what_if_message
from controller.api.convert_explain import explain_message
from controller.config import PlanningConfig
from controller.planning.analysis.failures import Progress, analyse_failures
from controller.planning.analysis.job import analyse_job
from controller.planning.analysis.requests import AnalyseFailures, AnalyseJob, Network
from controller.planning.baselines import SCHEMES, Scheme
from controller.planning.bounds import Bounds, level_bounds
from controller.planning.certificate import certificate, document
from controller.planning.ecmp import NextHops, hashed_links
from controller.planning.plan import NoPlan, Plan, Target, answered, decide
from controller.planning.planned import Planned
from controller.planning.planner import plan
from controller.planning.target import same_inputs, solved

__all__ = (
    "SCHEMES",
    "AnalyseFailures",
    "AnalyseJob",
    "Bounds",
    "Network",
    "NextHops",
    "NoPlan",
    "Plan",
    "Planned",
    "PlanningConfig",
    "Progress",
    "Scheme",
    "Target",
    "analyse_failures",
    "analyse_job",
    "answered",
    "certificate",
    "decide",
    "document",
    "explain_message",
    "hashed_links",
    "level_bounds",
    "plan",
    "same_inputs",
    "solved",
    "what_if_message",
)
