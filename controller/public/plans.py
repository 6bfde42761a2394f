"""Plans, their bounds and proofs, baseline schemes, and analyses of failures and jobs.

The import loads the solver, which takes half a second.
"""

from __future__ import annotations

from controller.api.convert_analysis import what_if_message
from controller.api.convert_explain import explain_message
from controller.config import PlanningConfig
from controller.planning.analysis.failures import Progress, analyse_failures
from controller.planning.analysis.job import analyse_job
from controller.planning.analysis.messages import AnalyseFailures, AnalyseJob, Network
from controller.planning.answers import same_inputs, solved
from controller.planning.baselines import QUICK, Numbered
from controller.planning.bounds import Bounds, slowdown_bounds
from controller.planning.certificate import certificate, document, with_own_bound
from controller.planning.efficiency import hashed_links
from controller.planning.greedy import PathChoices
from controller.planning.next_hops import NextHops
from controller.planning.plan import Drafts, GoalPlan, NoPlan, Plan, Planned, answered, decide, draft
from controller.planning.planner import Fault, judged, plan
from controller.planning.whole_flows.cpsat import cp_model, solver_within

__all__ = (
    "QUICK",
    "AnalyseFailures",
    "AnalyseJob",
    "Bounds",
    "Drafts",
    "Fault",
    "GoalPlan",
    "Network",
    "NextHops",
    "NoPlan",
    "Numbered",
    "PathChoices",
    "Plan",
    "Planned",
    "PlanningConfig",
    "Progress",
    "analyse_failures",
    "analyse_job",
    "answered",
    "certificate",
    "cp_model",
    "decide",
    "document",
    "draft",
    "explain_message",
    "hashed_links",
    "judged",
    "plan",
    "same_inputs",
    "slowdown_bounds",
    "solved",
    "solver_within",
    "what_if_message",
    "with_own_bound",
)
