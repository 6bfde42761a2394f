"""Effects of each single failure on hashing, on the repair and on the plan, beside what no routing could avoid.

In: ``AnalyseFailures``. Out: ``FailureAnalysis``, worst case first. Of every case of ``failure_cases`` one failure is
computed, the one with most flows on what fails; the others have the same levels.

The cheap steps come first: (1) the bound of every case in closed form; (2) hashing, and the repair: the routes that
stand stay, the greedy finds paths for the others; (3) where the repair misses the bound, the planner. It can only
improve on the repair, so for the worst N cases no plan is made where the repair is better already than N plans.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from controller.errors import SignalboxError
from controller.fabric.topology import LinkId
from controller.planning.analysis.failure_cases import cases, failed, single_failures
from controller.planning.analysis.requests import AnalyseFailures, Network
from controller.planning.analysis.results import Case, Failure, FailureAnalysis, Outcome, Present
from controller.planning.baselines.ecmp import ecmp_level
from controller.planning.bounds.level_bounds import level_bounds
from controller.planning.efficiency import LEVEL_TOLERANCE, Valuation
from controller.planning.first_aid import running
from controller.planning.plan import NoPlan, Plan
from controller.planning.planner import plan, repair
from controller.planning.problem import FlowId, Problem

Progress = Callable[[str, int, int], None]
"""Called with the stage, how many cases it has done, and how many there are."""


def analyse_failures(request: AnalyseFailures, progress: Progress = lambda _stage, _done, _of: None) -> FailureAnalysis:
    """When no flow that could be pinned is, the routes of a plan are analysed. Raises ``SignalboxError`` when the
    planner has no answer for a case."""
    network = request.network
    problem = network.problem
    crossing = [flow for flow in problem.flows if flow.src_leaf != flow.dst_leaf and problem.reachable(flow)]
    pinned = not crossing or any(map(problem.stands, crossing))
    if not pinned:
        planned = _answered(plan(problem, replace(network.limits, ecmp_draws=0)))
        network = replace(network, problem=running(problem, planned.routes))
    failures = single_failures(network.fabric, request.kinds, network.intact)
    found = cases(network.problem, network.fabric, failures)
    felt, unfelt = tuple(case for case in found if case.felt), tuple(case for case in found if not case.felt)
    ends_at = time.monotonic() + request.within_s
    bounded = _bounded(network, felt, progress)
    repaired = _repaired(network, bounded, ends_at, progress)
    worst = _planned(network, repaired, request.top, ends_at, progress)
    outcomes = [*worst, *bounded[len(repaired) :]][: request.top]
    return FailureAnalysis(pinned, _present(network), tuple(outcomes), felt, unfelt)


def _bounded(network: Network, felt: Sequence[Case], progress: Progress) -> list[Outcome]:
    """The bounds of each case, worst first."""
    problem = network.problem
    pinned_to = _pinned_to(problem)
    outcomes = []
    for done, case in enumerate(felt):
        progress("bounds", done, len(felt))
        hit = {failure: _hit(failure, pinned_to) for failure in case.failures}
        example = max(case.failures, key=lambda failure: len(hit[failure]))
        after = failed(problem, example)
        lost = [flow for flow in problem.flows if problem.reachable(flow) and not after.reachable(flow)]
        rerouted = [len(flows.difference(flow.id for flow in lost)) for flows in hit.values()]
        bounds = level_bounds(after, Valuation(after))
        outcomes.append(
            Outcome(
                case=case,
                example=example,
                lost=tuple(map(network.names.flow, lost)),
                rerouted=(min(rerouted), max(rerouted)),
                computed="bound",
                bound=bounds.worst,
                fluid_bound=bounds.fluid,
                integer_bound=bounds.integer,
            )
        )
    return sorted(outcomes, key=lambda outcome: outcome.severity, reverse=True)


def _repaired(network: Network, bounded: Sequence[Outcome], ends_at: float, progress: Progress) -> list[Outcome]:
    """With hashing and the repair, in the same order, for as many cases as the time allows."""
    limits = network.limits
    outcomes: list[Outcome] = []
    for outcome in bounded:
        if time.monotonic() > ends_at:
            break
        progress("hashing and repair", len(outcomes), len(bounded))
        after = failed(network.problem, outcome.example)
        level = _answered(repair(after), outcome.example).max_level
        ecmp = ecmp_level(after, limits.ecmp_draws, limits.seed)
        outcomes.append(replace(outcome, computed="repair", ecmp=ecmp, repaired_level=level, level=level))
    return outcomes


def _planned(
    network: Network, repaired: Sequence[Outcome], top: int | None, ends_at: float, progress: Progress
) -> list[Outcome]:
    """The ``top`` worst cases or more, worst first, planned as far as the time allows."""
    waiting = sorted(repaired, key=lambda outcome: outcome.severity)
    done: list[Outcome] = []
    while waiting:
        if top is not None and len(done) >= top:
            done.sort(key=lambda outcome: outcome.severity, reverse=True)
            if done[top - 1].severity >= waiting[-1].severity:
                break
        progress("planning", len(done), len(repaired))
        outcome = waiting.pop()
        late = time.monotonic() > ends_at
        done.append(outcome if outcome.proven or late else _replanned(network, outcome))
    return sorted(done, key=lambda outcome: outcome.severity, reverse=True)


def _replanned(network: Network, outcome: Outcome) -> Outcome:
    after = failed(network.problem, outcome.example)
    answer = _answered(plan(after, replace(network.limits, ecmp_draws=0)), outcome.example)
    known = replace(
        outcome,
        computed="plan",
        bound=max(outcome.bound, answer.bound),
        fluid_bound=max(outcome.fluid_bound, answer.fluid_bound),
        integer_bound=max(outcome.integer_bound, answer.integer_bound),
    )
    level = answer.max_level
    if outcome.level is not None and level >= outcome.level * (1 - LEVEL_TOLERANCE):
        return known
    return replace(known, level=level, moved=answer.moves)


def _present(network: Network) -> Present:
    problem, limits = network.problem, network.limits
    answer = _answered(repair(problem))
    ecmp = ecmp_level(problem, limits.ecmp_draws, limits.seed)
    unrouted = tuple(network.names.flow(flow) for flow in problem.flows if not problem.reachable(flow))
    return Present(answer.max_level, answer.bound, answer.fluid_bound, answer.integer_bound, ecmp, unrouted)


def _answered(answer: Plan | NoPlan, without: Failure | None = None) -> Plan:
    if isinstance(answer, NoPlan):
        where = f" without {without.name}" if without else ""
        raise SignalboxError(f"no plan{where}: {answer.reason}")
    return answer


def _pinned_to(problem: Problem) -> Mapping[LinkId, set[FlowId]]:
    """Per link the flows with a piece on it."""
    flows: defaultdict[LinkId, set[FlowId]] = defaultdict(set)
    for flow in problem.flows:
        for piece in flow.current or ():
            for link in piece.path:
                flows[link].add(flow.id)
    return flows


def _hit(failure: Failure, pinned_to: Mapping[LinkId, set[FlowId]]) -> set[FlowId]:
    return set[FlowId]().union(*(pinned_to.get(link, ()) for link in failure.links))
