"""Planner: turns a problem into a plan by bounds, candidates, and an independent check.

In: one immutable ``Problem`` and ``PlanLimits``. Out: a checked ``Plan``, or ``NoPlan`` with the reason. No state is
kept between calls.

Stages run from the cheapest to the most expensive, until one of them finds a candidate that is proven optimal.
docs/explanation/planning.md lists the stages in this order. The best candidate that passes the check becomes the plan.
If a stage fails, the candidates of the other stages remain.

Some senders stripe the same number of bytes over each connection. A flow of such a sender becomes several *equal
subflows*, each of which is a whole flow to the planner (``signalbox.jobs.subflows``). A plan of all equal subflows
shows which slowdowns can be reached, but each further path of a flow costs switch rules. So two kinds of candidates
divide only the flows that must be divided to reach these slowdowns. ``closed_forms.color_whole_first`` makes one kind.
The other kind is planned in the *joined* problem, which has one flow in place of all equal subflows that have the same
route now.

The planner has only stages without which plans are worse: higher slowdowns, 1.5 times the time, or 1.5 times the moves.
The list names each stage and the case that was measured. The figures after the last colon are the result without the
stage, then the result with it. Figures without a unit are worst slowdowns. *Published*: the workloads of arXiv
2503.05324.

Measured on 2026-11-28 with 2 s per plan:

- residual links: 65,536 split flows, 512 x 128, 20 cables failed: 1.17, 1.01
- peeling: 4,000 flows in two subflows, 64 x 32, 5 cables failed, 16 jobs: 1.5 s, 0.22 s
- aligned cutting: a job joins, 64 x 32, two subflows, no cap on moves: 1,798 moves, 258
- aligned cutting: published, a spine fails, two subflows, cap of 50: 1.90, 1.14 after the first cycle
- three tiers, cutting: fat-tree of k = 16, a core failed, three subflows: 1.40 in 2.2 s, 1.016 in 0.03 s
- three tiers, choice of planes: the same fabric, whole flows in rings over all hosts: 2 in 3 s, 1 in 0.1 s
- jumps: published, a spine fails or background begins, caps of 50 and 256: 3 to 12 % higher without, after one cycle
- relief: 8,000 whole flows, 64 x 32, background begins, cap of 256: 6.49, 6.09 after the first cycle
- exact optimum: 80 flows of unequal bytes in two subflows, 8 x 16: bound 1.13, 1.45; plan 1.48
- equal subflows joined: published, a spine failed, each flow in 8 equal subflows: 3,072 paths, 440
- whole flows first: 4,000 flows in 4 equal subflows, 64 x 32, a spine failed: 15,843 paths, 4,873

Measured on 2026-11-30 with 2 s of processor time per plan, on cases of the benchmark ``mixes``:

- tabu search: 912 whole flows of experts, 16 x 8: 2.86, 2.29
- fluid optimum by PDLP: the same flows in eight subflows: 2.12 in 2 s, 2.00 in 0.6 s, which is the bound
- shares on few paths, whole flows first: 360 flows, halving and sharded, 5 cables failed, two subflows: 4, 2.67
"""

from __future__ import annotations

import gc
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import structlog

from controller.planning import closed_forms, greedy, three_tiers
from controller.planning.bounds import Bounds, least_slowdowns, peak_bounds
from controller.planning.efficiency import ecmp_slowdown, first_difference, is_less, sorted_slowdowns
from controller.planning.greedy import relieve
from controller.planning.plan import (
    Draft,
    Drafts,
    NoPlan,
    Plan,
    Planned,
    PlanTimes,
    best_first,
    certified,
    compare_slowdowns,
    decided,
    draft,
    slowdowns_proven,
)
from controller.planning.plan_check import check
from controller.planning.problem import Flow, FlowId, PlanLimits, Problem, Routes
from controller.planning.slowdown_vector import SlowdownVector
from controller.planning.split_flows import search as split_search
from controller.planning.split_flows.leaf_spine import aligned_cutting
from controller.planning.whole_flows import iterations, own
from controller.planning.whole_flows import search as whole_search
from signalbox.jobs.spec import JobId

log = structlog.get_logger(__name__)

_FINISH_S = 8e-6
"""Seconds per flow that are reserved for the work after the searches: comparing candidates, certificate, check."""
_CLOSED_S = 16e-6
"""Seconds per flow that closed forms need.

When time is short and relief has found routes, closed forms are skipped: their plans mostly exceed a cap on moves."""
_GREEDY_S = 30e-6
"""Seconds per flow that the greedy needs on 128 spines."""
_NEAR = 0.01
"""Relative distance from the bound of the worst slowdown that counts as near."""
_WHOLE_S, _WHOLE_FLOW_S, _WHOLE_SHARES = 0.05, 150e-6, (0.2, 0.75)
"""Time for whole flows if flows may be split: seconds, plus seconds per flow, but at least and at most these shares of
the time limit."""
_OWN_SHARE = 0.05
"""Share of the remaining time that is reserved for smaller own slowdowns."""
_FIRST_SHARE = 0.75
"""Share of the remaining time for stages before others: joined subflows, and peak slowdowns with several phases."""


class Fault(Exception):
    """Error for a problem that contradicts itself, so that there is no plan; the message says why."""


def plan(problem: Problem, limits: PlanLimits) -> Plan | NoPlan:
    """Return a plan that routes every flow with a candidate path; the other flows are ``unrouted``.

    Return a ``NoPlan`` for a problem that contradicts itself."""
    limits = limits.begun()
    searching, seconds = limits.sooner(_FINISH_S * len(problem.flows)), min(limits.left_s, limits.time_limit_s)
    return judged(problem, limits, lambda bounds: _drafts(problem, searching, bounds, seconds))


def repair(problem: Problem) -> Plan | NoPlan:
    """Return the running routes, with paths from the greedy for flows that have no route or a lost path.

    The repair takes milliseconds and moves no other flow."""
    return judged(problem, PlanLimits(ecmp_draws=0), lambda _: Drafts([_running(problem)]))


def relieved(problem: Problem, limits: PlanLimits) -> Plan | NoPlan:
    """Return the repair, or better routes within the cap on moves that unload the most loaded links (``relief``).

    This takes a fraction of a second."""

    def drafts(bounds: Bounds) -> Drafts:
        kept = _running(problem)
        found = None if _optimal(kept, bounds.vector) else relieve(problem, bounds, kept.routes, limits)
        return Drafts([kept, found] if found else [kept])

    return judged(problem, replace(limits, ecmp_draws=0), drafts)


def repair_first(problem: Problem, running: Routes) -> tuple[Planned | None, Problem]:
    """Repair broken routes; return the repair, and the problem for the plan that follows.

    The repaired routes are the running routes of the returned problem. So the plan moves a repaired flow again only
    when the move is worth it. The repair is None when no route is broken, or when the repair fails. ``running``: see
    ``decided``."""
    if not problem.broken:
        return None, problem
    try:
        answer = repair(problem)
    except Exception:
        log.exception("repair failed; the plan repairs the routes instead", generation=problem.generation)
        return None, problem
    if not isinstance(answer, Plan):
        return None, problem
    repaired = decided(problem, answer, None, running)
    return repaired, problem.with_routes(repaired.plan.routes)


@contextmanager
def _garbage_collector_off() -> Iterator[None]:
    """Switch off Python's garbage collector, which would scan all new routes often and free next to nothing."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@_garbage_collector_off()
def judged(problem: Problem, limits: PlanLimits, route: Callable[[Bounds], Drafts]) -> Plan | NoPlan:
    """Return the best candidate that the checker accepts, as a plan.

    ``route`` makes candidates from the problem's closed-form bounds, or raises ``Fault``. The plan is then compared
    with ECMP if ``limits`` has draws."""
    started = time.perf_counter()
    try:
        refuse_faults(problem)
        bounds = peak_bounds(problem)
        built = time.perf_counter()
        found = route(bounds)
    except Fault as fault:
        return NoPlan(problem.generation, str(fault))
    solved = time.perf_counter()
    cut_short = limits.left_s <= 0 or bool(limits.left_out)
    times = PlanTimes(build_ms=1000 * (built - started), solve_ms=1000 * (solved - built), check_ms=0.0)
    answer = _first_valid(problem, limits, bounds, found, times)
    if isinstance(answer, NoPlan):
        return answer
    times = replace(times, check_ms=1000 * (time.perf_counter() - solved))
    cut_short &= answer.certificate != "optimal" or answer.moves > 0
    ecmp = ecmp_slowdown(problem, limits.ecmp_draws, limits.seed) if limits.ecmp_draws else None
    return replace(answer, cut_short=cut_short, ecmp=ecmp, times=times)


def _first_valid(
    problem: Problem, limits: PlanLimits, bounds: Bounds, found: Drafts, times: PlanTimes
) -> Plan | NoPlan:
    violations: tuple[str, ...] = ()
    for candidate in best_first(found.drafts):
        answer = certified(problem, candidate, bounds, found, times)
        violations = check(problem, answer, limits.max_moves)
        if not violations:
            return answer
        log.error("plan rejected by the checker", solver=candidate.solver, violations=violations[:8])
    return NoPlan(problem.generation, f"no candidate passed the checker; the last one failed with: {violations[0]}")


def refuse_faults(problem: Problem) -> None:
    """Raise ``Fault`` when the problem contradicts itself."""
    if len({flow.id for flow in problem.flows}) < len(problem.flows):
        raise Fault("a flow is in the problem twice")
    try:
        numbers = problem.numbers
        without = [problem.links.ids[link] for link in np.flatnonzero(~(numbers.capacity_bps > 0)).tolist()]
    except KeyError as unknown:
        without = [unknown.args[0]]
    if without:
        raise Fault(f"link {without[0]} has no capacity")
    wrong = np.flatnonzero(~((numbers.entry_bps > 0) & np.isfinite(numbers.entry_bps)))
    if len(wrong):
        flow = problem.flows[numbers.entry_flow[wrong[0]]].id
        raise Fault(f"flow {flow.src_ip} > {flow.dst_ip} has a demand that is not a positive number")


def _drafts(
    problem: Problem,
    limits: PlanLimits,
    bounds: Bounds,
    seconds: float = math.inf,
    known: Draft | None = None,
    whole: list[Draft] | None = None,
) -> Drafts:
    """Return candidates of all stages; none if bounds show that none is better than ``known``.

    If flows may be split, the problem is also planned with whole flows, as if no flow might be split, before the
    searches, which start from the best candidate so far. If flows may have more than two subflows, the problem is also
    planned with two, after the searches. So searches without a deadline never make plans worse with more subflows.
    ``seconds``: time of the whole run. ``whole``: candidates with whole flows, if they were searched for before."""
    share = problem.phase_share
    least = least_slowdowns(problem, bounds)
    if known and not is_less(least, sorted_slowdowns(known.job_slowdown)):
        return Drafts([])
    kept = _running(problem) if problem.runs else None
    if kept and kept.solver == "no-search" and _reaches(kept.job_slowdown, least):
        return Drafts([kept])
    untangles = own.searches(problem)
    searching = limits.part(1 - _OWN_SHARE) if untangles else limits
    drafts = _in_closed_form(problem, searching, bounds, kept)
    if not whole:
        least_s, most_s = (of * seconds for of in _WHOLE_SHARES)
        part = searching.within(min(max(least_s, _WHOLE_S + _WHOLE_FLOW_S * len(problem.flows)), most_s))
        whole = _with_subflows(problem, 1, part, seconds, bounds, drafts, least)
    drafts += whole
    first = searching.part(_FIRST_SHARE) if share is not None and iterations.searches(problem) else searching
    found = _searched(problem, first, bounds, drafts, kept)
    best = best_first(found.drafts)[0]
    if share is not None and not _reaches(best.job_slowdown, least):
        try:
            better = iterations.shortened(problem, bounds, best, searching)
        except Exception:
            log.exception("the search for smaller slowdowns over all phases failed", generation=problem.generation)
        else:
            found.drafts.extend([better] if better else [])
            searching.allows("the rest of the search over phases", 0.0)
    found.drafts.extend(_with_subflows(problem, 2, limits, seconds, bounds, found.drafts, least, whole))
    return _untangled(problem, limits, bounds, found) if untangles else found


def _with_subflows(
    problem: Problem,
    most: int,
    limits: PlanLimits,
    seconds: float,
    bounds: Bounds,
    drafts: list[Draft],
    least: tuple[float, ...],
    whole: list[Draft] | None = None,
) -> list[Draft]:
    """Return candidates with at most ``most`` subflows per flow, if more are allowed and may have better plans."""
    best = best_first(drafts)[0] if drafts else None
    if best and (_reaches(best.job_slowdown, least) or _is_near(problem, best, least)):
        return []
    fewer = problem.with_subflows(most)
    if fewer is problem or (best and not limits.allows("fewer subflows", 0.0)):
        return []
    of_fewer = peak_bounds(fewer)
    of_fewer.cuts.share_meetings(bounds.cuts)
    return _drafts(fewer, limits, of_fewer, seconds, best, whole).drafts


def _is_near(problem: Problem, best: Draft, least: tuple[float, ...]) -> bool:
    """Return whether the worst slowdown is near its bound, and there are too many flows to search."""
    return len(problem.flows) > whole_search.MAX_FLOWS and max(best.job_slowdown.values()) <= least[0] * (1 + _NEAR)


def _in_closed_form(problem: Problem, limits: PlanLimits, bounds: Bounds, kept: Draft | None) -> list[Draft]:
    """Return the running routes, and candidates of stages that hardly take time."""
    drafts = [kept] if kept else []
    if kept and _optimal(kept, bounds.vector):
        return drafts
    relieved = relieve(problem, bounds, kept.routes, limits) if kept and limits.max_moves else None
    drafts += [relieved] if relieved else []
    splits = bool((problem.numbers.most > 1).any())
    aligned = aligned_cutting(problem, limits.max_moves) if kept and splits else None
    drafts += [draft(problem, "aligned-cutting", aligned)] if aligned else []
    if not relieved or limits.allows("closed forms", _CLOSED_S * len(problem.flows)):
        drafts += _candidates_without_subflows(problem, limits, bounds)
        if not any(_optimal(of, bounds.vector) for of in drafts):
            exact = closed_forms.route(problem, bounds) or three_tiers.route(problem, bounds)
            drafts += [draft(problem, *exact)] if exact else []
    best = best_first(drafts)[0] if drafts else None
    if splits and best and (best.moves > 0 or not _optimal(best, bounds.vector)):
        drafts += split_search.in_closed_form(problem, limits, bounds, drafts)
    return drafts


def _searched(problem: Problem, limits: PlanLimits, bounds: Bounds, drafts: list[Draft], kept: Draft | None) -> Drafts:
    """Return ``drafts`` and the candidates of searches for small peak slowdowns, within the cap on moves."""
    best = best_first(drafts)[0] if drafts else None
    missed = best is None or not slowdowns_proven(best.vector, bounds.vector)
    splits = bool((problem.numbers.most > 1).any())
    if best is None or (missed and not splits and limits.allows("greedy", _GREEDY_S * len(problem.flows))):
        drafts = [*drafts, draft(problem, "greedy", greedy.assign(problem, keep_current=False))]
    best = best_first(drafts)[0]
    found = Drafts([])
    if (best.moves > 0 or not _optimal(best, bounds.vector)) and limits.allows("search", 0.0):
        found = _search(problem, limits, bounds, drafts, kept or best)
        drafts = [*found.drafts, *drafts]
    drafts = [*drafts, *_candidate_with_few_paths(problem, limits, drafts, bounds)]
    if limits.left_s <= 0:
        limits.left_out.append("the rest of a search")
    cap = math.inf if limits.max_moves is None else limits.max_moves
    within = [of for of in drafts if of.moves <= cap] or [_running(problem)]
    best = best_first(within)[0]
    staying = [of for of in within if not of.moves and not compare_slowdowns(of, best)]
    return found._replace(drafts=staying if kept and staying else within)


def _candidates_without_subflows(problem: Problem, limits: PlanLimits, bounds: Bounds) -> Iterator[Draft]:
    """Yield candidates where all equal subflows of a flow take one path, or as few flows as possible are divided."""
    whole = joined(problem) if problem.has_equal_subflows else None
    if whole is None:
        return
    of_whole = peak_bounds(whole)
    enough = first_difference(of_whole.vector, bounds.vector) is None
    routes = None if enough else closed_forms.color_whole_first(problem, bounds)
    if routes:
        yield draft(problem, "edge-coloring", routes)
        if len(problem.flows) > whole_search.MAX_FLOWS:
            return
    # No search runs for whole flows when whole flows cannot be as good as subflows. ``_candidate_with_few_paths`` then
    # divides the flows that need it.
    part = limits.part(_FIRST_SHARE) if enough else replace(limits, until=-math.inf, left_out=[])
    found = best_first(_drafts(whole, part, of_whole).drafts)[0]
    together = draft(problem, found.solver, of_subflows(problem, found.routes))
    yield together
    if enough and not _optimal(together, bounds.vector) and (routes := closed_forms.color_whole_first(problem, bounds)):
        yield draft(problem, "edge-coloring", routes)


def _candidate_with_few_paths(
    problem: Problem, limits: PlanLimits, drafts: list[Draft], bounds: Bounds
) -> Iterator[Draft]:
    """Yield the result of a search from the candidate with the fewest paths to the best candidate's slowdowns."""
    best, start = best_first(drafts)[0], min(drafts, key=lambda of: (of.paths, of.moves))
    if start.paths == best.paths or start.moves > best.moves or len(problem.flows) > whole_search.MAX_FLOWS:
        return
    if all(flow.max_subflows == 1 for flow in problem.flows) and limits.allows("joining", 0.0):
        aim = SlowdownVector(best.vector, best.peak_slowdown)
        yield draft(problem, "local-search", whole_search.local_search(problem, bounds, aim, start.routes, limits))


def _untangled(problem: Problem, limits: PlanLimits, bounds: Bounds, found: Drafts) -> Drafts:
    """Add a candidate with smaller own slowdowns, and no more moves than the best candidate, when one is found."""
    best = best_first(found.drafts)[0]
    if best.solver == "no-search":
        return found
    try:
        better = own.untangled(problem, bounds, best, replace(limits, max_moves=best.moves) if problem.runs else limits)
    except Exception:
        log.exception("the search for smaller own slowdowns failed", generation=problem.generation)
        return found
    return found._replace(drafts=[*found.drafts, better]) if better else found


def _running(problem: Problem) -> Draft:
    routes = greedy.assign(problem, keep_current=True)
    unchanged = all(flow.current == routes.get(flow.id) for flow in problem.flows)
    found = draft(problem, "no-search" if unchanged else "greedy", routes)
    if unchanged or not problem.has_equal_subflows or (whole := joined(problem)) is None:
        return found
    together = draft(problem, "greedy", of_subflows(problem, greedy.assign(whole, keep_current=True)))
    return best_first([found, together])[0]


def _optimal(candidate: Draft, proven: tuple[float, ...]) -> bool:
    return _reaches(candidate.peak_slowdown, proven)


def _reaches(of_job: Mapping[JobId, float], least: tuple[float, ...]) -> bool:
    return slowdowns_proven(sorted_slowdowns(of_job), least) == len(of_job)


def _search(problem: Problem, limits: PlanLimits, bounds: Bounds, drafts: list[Draft], kept: Draft) -> Drafts:
    if all(flow.max_subflows == 1 for flow in problem.flows):
        found = whole_search.solve(problem, limits, bounds, best_first(drafts)[0], kept)
    else:
        found = split_search.solve(problem, limits, bounds, drafts, kept)
    pairs = {(flow.src_leaf, flow.dst_leaf) for flow in problem.flows} if problem.paths.stretch else ()
    if any(problem.paths.cut(*pair) for pair in pairs):
        return found._replace(proven=bounds.vector, listed=found.listed or found.proven)
    return found


# ---- equal subflows


def joined(problem: Problem) -> Problem | None:
    """Return the problem in which one flow replaces all equal subflows of a pair that have the same valid route.

    Equal subflows that all lack a valid route are replaced too. Return None when no two subflows can be joined."""
    of_flow: defaultdict[FlowId, list[Flow]] = defaultdict(list)
    for flow in problem.flows:
        of_flow[flow.id.joined].append(flow)
    flows: list[Flow] = []
    for subflows in of_flow.values():
        routes = {subflow.current if subflow.id in problem.in_force else None for subflow in subflows}
        flows += [_merged(subflows)] if len(routes) == 1 else subflows
    return problem.with_flows(flows) if len(flows) < len(problem.flows) else None


def of_subflows(problem: Problem, routes: Routes) -> Routes:
    """Return the routes of the subflows, given the routes of the joined problem."""
    found = {flow.id: routes.get(flow.id) or routes.get(flow.id.joined) for flow in problem.flows}
    return {flow: route for flow, route in found.items() if route is not None}


def _merged(subflows: Sequence[Flow]) -> Flow:
    """Return one flow that replaces equal subflows; all equal subflows must have demands in the same phases."""
    if len(subflows) == 1:
        return subflows[0]
    phases = zip(*(subflow.demand_bps for subflow in subflows), strict=True)
    demand_bps = tuple((of[0][0], sum(bps for _, bps in of)) for of in phases)
    return replace(subflows[0], id=subflows[0].id.joined, demand_bps=demand_bps)
