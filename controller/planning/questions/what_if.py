"""What each single failure would do: to hashing, to the plan, and what no routing could avoid.

In: a ``Problem`` with the running routes, and the cases of ``single_failures``. Out: a ``Survey``, worst case first.
Of every case one failure is computed, the one that most flows run over; the others have the same levels.

From cheap to dear: (1) the bound of every case in closed form; (2) hashing, and the repair: the routes that stand
stay, the greedy finds paths for the others; (3) where the repair misses the bound, the planner. It can only improve
on the repair, so for the worst N cases those are left out whose repair is better already than N plans.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from controller.errors import SignalboxError
from controller.fabric.topology import LinkId
from controller.planning.bounds import level_bounds
from controller.planning.ecmp import ecmp_level
from controller.planning.efficiency import LEVEL_TOLERANCE
from controller.planning.plan import EcmpLevel, NoPlan, Plan
from controller.planning.planner import plan, repair
from controller.planning.problem import Flow, FlowId, PlanLimits, Problem
from controller.planning.questions.single_failures import Case, Failure, failed

Progress = Callable[[str, int, int], None]
"""Called with the stage, how many cases it has done, and how many there are."""

Computed = Literal["plan", "repair", "bound"]
"""What is known of a case: the planner's answer; the repair's, which reaches the bound or for which the time was over;
only the bound, because the time was over."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a case does. ``example``: the failure that was computed.

    ``bound``, ``fluid_bound``, ``integer_bound``: as a ``Plan``'s. ``lost``: flows that lose their last path.
    ``rerouted``: fewest and most flows, over the failures of the case, that are pinned to what fails and
    have other paths. ``ecmp``: when all flows are hashed. ``repaired_level``: worst level in the first milliseconds,
    before anything is planned. ``level``: after planning. These three are None when only the bound is known.
    ``moved``: flows that the plan for the example moves besides.
    """

    case: Case
    example: Failure
    lost: tuple[Flow, ...]
    rerouted: tuple[int, int]
    computed: Computed
    bound: float
    fluid_bound: float
    integer_bound: float
    ecmp: EcmpLevel | None = None
    repaired_level: float | None = None
    level: float | None = None
    moved: int = 0

    @property
    def proven(self) -> bool:
        """No routing has a smaller worst level."""
        return self.level is not None and self.level <= self.bound * (1 + LEVEL_TOLERANCE)

    @property
    def severity(self) -> tuple[int, float, int, float]:
        """Larger is worse: lost flows, then the level, then the flows to re-route, then what hashing makes of it."""
        level = self.bound if self.level is None else self.level
        return len(self.lost), round(level, 6), self.rerouted[1], self.ecmp.mean if self.ecmp else 0.0


@dataclass(frozen=True, slots=True)
class Present:
    """Before any failure. ``level``: of the running routes, with what the greedy finds for flows that have none.
    ``unrouted``: flows without a path already."""

    level: float
    bound: float
    fluid_bound: float
    integer_bound: float
    ecmp: EcmpLevel
    unrouted: tuple[Flow, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """``outcomes``: the worst first; those of which only the bound is known come last. ``cases``: all that were asked
    about."""

    present: Present
    outcomes: tuple[Outcome, ...]
    cases: tuple[Case, ...]

    @property
    def felt(self) -> tuple[Case, ...]:
        """Cases that some flow feels; those without an outcome are no worse than the outcomes."""
        return tuple(case for case in self.cases if case.felt)

    @property
    def unfelt(self) -> tuple[Case, ...]:
        """Cases that change nothing for any flow."""
        return tuple(case for case in self.cases if not case.felt)


@dataclass(frozen=True, slots=True)
class SurveyLimits:
    """``top``: outcomes wanted, None for all. ``within_s``: seconds for all cases. ``plan``: for the planner in each
    case; its draws are those of hashing."""

    top: int | None = None
    within_s: float = 60.0
    plan: PlanLimits = field(default_factory=PlanLimits)


def what_if(
    problem: Problem,
    cases: Sequence[Case],
    limits: SurveyLimits,
    progress: Progress = lambda _stage, _done, _of: None,
) -> Survey:
    """Raises ``SignalboxError`` when the planner has no answer for a case."""
    ends_at = time.monotonic() + limits.within_s
    felt = [case for case in cases if case.felt]
    bounded = _bounded(problem, felt, progress)
    repaired = _repaired(problem, bounded, limits.plan, ends_at, progress)
    planned = _planned(problem, repaired, limits, ends_at, progress)
    outcomes = [*planned, *bounded[len(repaired) :]][: limits.top]
    return Survey(_present(problem, limits.plan), tuple(outcomes), tuple(cases))


def _bounded(problem: Problem, cases: Sequence[Case], progress: Progress) -> list[Outcome]:
    """What is known of each case in closed form, worst first."""
    pinned_to = _pinned_to(problem)
    outcomes = []
    for done, case in enumerate(cases):
        progress("bounds", done, len(cases))
        hit = {failure: _hit(failure, pinned_to) for failure in case.failures}
        example = max(case.failures, key=lambda failure: len(hit[failure]))
        after = failed(problem, example)
        lost = tuple(flow for flow in problem.flows if problem.reachable(flow) and not after.reachable(flow))
        rerouted = [len(flows.difference(flow.id for flow in lost)) for flows in hit.values()]
        bounds = level_bounds(after)
        outcomes.append(
            Outcome(
                case=case,
                example=example,
                lost=lost,
                rerouted=(min(rerouted), max(rerouted)),
                computed="bound",
                bound=bounds.worst,
                fluid_bound=bounds.fluid,
                integer_bound=bounds.integer,
            )
        )
    return sorted(outcomes, key=lambda outcome: outcome.severity, reverse=True)


def _repaired(
    problem: Problem, bounded: Sequence[Outcome], limits: PlanLimits, ends_at: float, progress: Progress
) -> list[Outcome]:
    """Hashing and the repair, for as many of the cases as the time allows, in their order."""
    outcomes: list[Outcome] = []
    for outcome in bounded:
        if time.monotonic() > ends_at:
            break
        progress("hashing and repair", len(outcomes), len(bounded))
        after = failed(problem, outcome.example)
        answer = _answered(repair(after), outcome)
        level = answer.max_level
        ecmp = ecmp_level(after, limits.ecmp_draws, limits.seed)
        outcomes.append(replace(outcome, computed="repair", ecmp=ecmp, repaired_level=level, level=level))
    return outcomes


def _planned(
    problem: Problem, repaired: Sequence[Outcome], limits: SurveyLimits, ends_at: float, progress: Progress
) -> list[Outcome]:
    """The cases by severity, planned as far as the time allows and the worst ones are not known yet; cases that are
    left out for that are missing."""
    waiting = sorted(repaired, key=lambda outcome: outcome.severity)
    done: list[Outcome] = []
    while waiting:
        if limits.top is not None and len(done) >= limits.top:
            done.sort(key=lambda outcome: outcome.severity, reverse=True)
            if done[limits.top - 1].severity >= waiting[-1].severity:
                break
        progress("planning", len(done), len(repaired))
        outcome = waiting.pop()
        late = time.monotonic() > ends_at
        done.append(outcome if outcome.proven or late else _replanned(problem, outcome, limits.plan))
    return sorted(done, key=lambda outcome: outcome.severity, reverse=True)


def _replanned(problem: Problem, outcome: Outcome, limits: PlanLimits) -> Outcome:
    answer = _answered(plan(failed(problem, outcome.example), replace(limits, ecmp_draws=0)), outcome)
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


def _present(problem: Problem, limits: PlanLimits) -> Present:
    answer = repair(problem)
    if isinstance(answer, NoPlan):
        raise SignalboxError(f"no plan: {answer.reason}")
    ecmp = ecmp_level(problem, limits.ecmp_draws, limits.seed)
    unrouted = tuple(flow for flow in problem.flows if not problem.reachable(flow))
    return Present(answer.max_level, answer.bound, answer.fluid_bound, answer.integer_bound, ecmp, unrouted)


def _answered(answer: Plan | NoPlan, outcome: Outcome) -> Plan:
    if isinstance(answer, NoPlan):
        raise SignalboxError(f"no plan without {outcome.example.name}: {answer.reason}")
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
