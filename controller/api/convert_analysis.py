"""The converter for ``Explain`` and ``WhatIf``, beside ``convert``.

In from the wire: requests, checked. Out to the wire: results of ``planning.analysis``, with their answers in sentences
(``analysis_words``). Parts of results have the fields of their messages.
"""

from __future__ import annotations

import math
from dataclasses import asdict

from controller.api.analysis_words import failure_sentences, job_sentences
from controller.api.pb.signalbox.v1 import signalbox_pb2 as pb
from controller.errors import FieldProblem, InvalidInput
from controller.jobs.spec import JobId
from controller.planning.analysis.requests import Explain, FailureKind, WhatIf
from controller.planning.analysis.results import Case, FailureAnalysis, JobAnalysis, Outcome

WITHIN_S = 60.0
MOST_S = 120.0
"""Less than clients wait."""


def explain_request(request: pb.ExplainRequest) -> Explain:
    return Explain(JobId(request.job_id))


def what_if_request(request: pb.WhatIfRequest) -> WhatIf:
    """Raises ``InvalidInput``."""
    problems = [
        FieldProblem(f"kinds[{n}]", f"there is no kind '{kind}'; choose {', '.join(FailureKind)}")
        for n, kind in enumerate(request.kinds)
        if kind not in set(FailureKind)
    ]
    within_s = request.within_s or WITHIN_S
    if not (math.isfinite(within_s) and 0 < within_s <= MOST_S):
        problems.append(FieldProblem("within_s", f"must be more than 0 and at most {MOST_S:g} (given: {within_s:g})"))
    if problems:
        raise InvalidInput(tuple(problems))
    kinds = frozenset(map(FailureKind, request.kinds)) or frozenset(FailureKind)
    return WhatIf(kinds, request.top or None, within_s)


def explain_message(found: JobAnalysis) -> pb.ExplainResponse:
    return pb.ExplainResponse(
        job_id=found.job_id,
        verdict=found.verdict,
        answer=job_sentences(found),
        level=found.level,
        efficiency_predicted=found.efficiency_predicted,
        efficiency_measured=found.efficiency_measured,
        least_level=found.least_level,
        nic_level=found.nic_level,
        flows=found.flows,
        flows_inside_a_leaf=found.flows_inside_a_leaf,
        flows_hashed=found.flows_hashed,
        flows_without_a_path=found.flows_without_a_path,
        equally_full_links=found.equally_full_links,
        fullest_links=[pb.BusyLink(**asdict(link)) for link in found.fullest_links],
        cut=pb.LeafCut(**asdict(found.cut)) if found.cut else None,
        best=pb.FoundRoutes(**asdict(found.best)) if found.best else None,
        split=pb.FoundRoutes(**asdict(found.split)) if found.split else None,
    )


def what_if_message(found: FailureAnalysis) -> pb.WhatIfResponse:
    present = found.present
    return pb.WhatIfResponse(
        answer=failure_sentences(found),
        now=pb.NetworkLevels(
            level=present.level,
            bound=present.fluid_bound,
            integer_bound=present.integer_bound,
            ecmp_level=pb.EcmpLevels(**asdict(present.ecmp)),
            unrouted=present.unrouted,
        ),
        outcomes=map(_outcome, found.outcomes),
        failures=sum(len(case.failures) for case in (*found.felt, *found.unfelt)),
        cases=len(found.felt),
        unfelt=[pb.UnfeltFailures(kind=case.kind, failures=_names(case)) for case in found.unfelt],
    )


def _outcome(outcome: Outcome) -> pb.FailureOutcome:
    return pb.FailureOutcome(
        kind=outcome.case.kind,
        example=outcome.example.name,
        failures=_names(outcome.case),
        computed=outcome.computed,
        level=outcome.level,
        repaired_level=outcome.repaired_level,
        bound=outcome.fluid_bound,
        integer_bound=outcome.integer_bound,
        proven=outcome.proven,
        ecmp_level=pb.EcmpLevels(**asdict(outcome.ecmp)) if outcome.ecmp else None,
        lost=outcome.lost,
        rerouted_fewest=outcome.rerouted[0],
        rerouted_most=outcome.rerouted[1],
        moved=outcome.moved,
    )


def _names(case: Case) -> list[str]:
    return [failure.name for failure in case.failures]
