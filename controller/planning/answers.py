"""Answers to planning requests, the state that the next request needs, and plans with a cap on moves.

In: ``SolvePlan``. Out: up to four answers, which the caller requests separately and from any thread. They are the
repair, when routes are broken; the plan; the slowdowns of the running routes, if the plan keeps them; the slowdowns of
published schemes. When nothing has changed since the previous request, its answers are reused.

A plan with more moves than the cap is a *goal plan*, and every cycle makes some of its moves, by a *step* or a *jump*
(docs/explanation/planning.md#more-moves-than-a-cycle-may-make). A cycle makes the step or the jump, whichever gives the
smaller slowdowns. If a jump leaves moves unused, a step follows. A jump delays the goal plan by at most one cycle. Only
if steps alone do not reach the goal plan in N = ceil(moves of the goal plan / cap) cycles is every jump allowed.

While the planner looks for a goal plan, it has moves in reserve that unload the most loaded links. When there are too
many flows to find a goal plan in time, each cycle makes the best plan within the cap, until that plan moves no flow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import structlog

from controller.planning import greedy
from controller.planning.baselines import baseline_slowdowns
from controller.planning.bounds import Bounds, peak_bounds, slowdown_bounds
from controller.planning.efficiency import first_difference, is_less, job_slowdowns, sorted_slowdowns
from controller.planning.messages import PlanningRequest, SolvePlan
from controller.planning.plan import (
    NO_ROUTES,
    Drafts,
    GoalPlan,
    NoPlan,
    Plan,
    Planned,
    Slowdowns,
    answered,
    decided,
    draft,
    in_place,
    relative_gain,
    slowdowns,
)
from controller.planning.planner import judged, plan, relieved, repair, repair_first
from controller.planning.problem import FlowId, PlanLimits, Problem, Routes
from controller.planning.snapshot import Routed
from controller.planning.split_flows import search
from controller.planning.split_flows.leaf_spine import aligned_cutting
from controller.planning.split_flows.lp import fits
from controller.planning.transition import Stuck, smallest_group, step
from controller.planning.whole_flows.search import MAX_FLOWS

log = structlog.get_logger(__name__)
TRIES = 3
"""Largest number of attempts to compute a plan for the same request, if the time limit cuts the search short.

Further attempts seldom find a better plan, because only the load of the machine differs between the attempts."""
_SHARE = 0.5
"""Share of the time limit that is kept for a jump and a step, after the search for the goal plan."""
_S_PER_FLOW = 500e-6
"""Seconds per flow that the search for a goal plan, a jump and a step need in total.

When the time limit is shorter, a cycle makes the best plan found within the cap on moves."""
_JUMP_FRACTIONS = (1.0, 0.85, 0.7, 0.5)
"""Fractions of the cap on moves that a jump may use; the rest of the cap is for moves towards the goal plan."""
Cycle = tuple[Plan | NoPlan, GoalPlan | None]
"""Plan of one cycle, and the goal plan that the cycle has not reached yet; None when no goal plan remains."""


class Answers:
    """State of the planner between requests."""

    def __init__(self) -> None:
        self.goals: dict[int, GoalPlan] = {}
        """Goal plans that the next request may continue, by the generation of the last cycle towards them."""
        self._routed = Routed()
        self._last: tuple[SolvePlan, Planned] | None = None
        self._tries = 0
        self._baselines: Mapping[str, float] | None = None
        self._slowdowns: Slowdowns | None = None

    def repair(self, request: PlanningRequest) -> tuple[Planned | None, Problem]:
        """Repair broken routes, as ``planner.repair_first`` does."""
        problem = request.snapshot.problem_of(self._routed)
        repairs = isinstance(request, SolvePlan) and request.repairs
        return repair_first(problem, request.snapshot.routes) if repairs else (None, problem)

    def plan(self, request: SolvePlan, problem: Problem) -> Planned:
        """Return the plan for a request. ``problem`` is the problem that ``repair`` returned.

        The answer may lead to a new goal plan. The goal plan that the request names is then kept too, because the
        control loop may not adopt the answer."""
        if again := self._reused(request):
            if self._last and self._last[0].snapshot.timings != request.snapshot.timings:
                again = _with_sharing(again, request, problem)
                self._last = request, again
            return again
        self._baselines = self._slowdowns = None
        held = self.goals.get(request.goal.generation) if request.goal else None
        try:
            planned, goal = solved(problem, request.limits, request.min_gain, held, request.snapshot.routes)
        except Exception as error:
            log.exception("planning failed", generation=problem.generation)
            return Planned(NoPlan(problem.generation, f"planning failed: {type(error).__name__}: {error}"))
        self.goals = {each.left.generation: each for each in (held, goal) if each}
        self._tries = self._tries + 1 if self._last and _equal_apart_from_generation(self._last[0], request) else 1
        planned = _with_sharing(planned, request, problem)
        self._last = request, planned
        return planned

    def running(self, request: SolvePlan, problem: Problem, planned: Planned) -> Slowdowns | None:
        """Return the slowdowns of the running routes, or None if the plan replaces these routes.

        Call ``plan`` first. The result is also None when the slowdowns cannot be computed."""
        if request.installs and planned.adopted:
            return None
        self._slowdowns = self._slowdowns or slowdowns_of(problem, request.limits.ecmp_draws)
        return self._slowdowns and replace(self._slowdowns, generation=problem.generation)

    def compare(self, problem: Problem, request: SolvePlan) -> Slowdowns:
        """Return the slowdowns of published schemes for the latest plan's problem; empty when the comparison fails."""
        problem = problem.now if self._last and self._last[1].for_now else problem
        if self._baselines is None:
            try:
                self._baselines = baseline_slowdowns(problem, request.limits)
            except Exception:
                log.exception("cannot compute the slowdowns of published schemes", generation=problem.generation)
                self._baselines = {}
        return Slowdowns(problem.generation, of_scheme=self._baselines)

    def _reused(self, request: SolvePlan) -> Planned | None:
        if self._last is None:
            return None
        before, planned = self._last
        plan = planned.answer
        if (
            isinstance(plan, NoPlan)
            or planned.decision is None
            or planned.goal
            or not _equal_apart_from_generation(before, request)
        ):
            return None
        if plan.cut_short and (self._tries < TRIES or request.anew):
            return None
        return replace(planned, answer=replace(plan, generation=request.snapshot.generation))


def _equal_apart_from_generation(before: SolvePlan, now: SolvePlan) -> bool:
    a, b = before.snapshot, now.snapshot
    same_network = a.paths is b.paths and a.capacity_bps == b.capacity_bps
    return (
        same_network
        and a.flows == b.flows
        and a.routes == b.routes
        and replace(before, snapshot=b, anew=now.anew) == now
    )


def _with_sharing(planned: Planned, request: SolvePlan, problem: Problem) -> Planned:
    """Return the plan with slots and classes for the routes that are in force after it.

    Without timings of jobs, or while some routes are not known, there are none."""
    routes = planned.plan.routes if planned.adopted else request.snapshot.routes
    problem = problem.now if planned.for_now else problem
    timings = request.snapshot.timings
    if not timings or any(flow.id not in routes and problem.reachable(flow) for flow in problem.flows):
        return replace(planned, sharing=None) if planned.sharing else planned
    from controller.planning.contention.case import sharing

    try:
        return replace(planned, sharing=sharing(problem, routes, timings, request.limits.sharing))
    except Exception:
        log.exception("cannot choose slots and classes", generation=problem.generation)
        return replace(planned, sharing=None)


def slowdowns_of(problem: Problem, draws: int) -> Slowdowns | None:
    """Return the slowdowns of the running routes, or None when they cannot be computed.

    The computation fails for a problem that contradicts itself. The answer to a ``SolvePlan`` for this problem then
    names the contradiction."""
    try:
        return slowdowns(problem, draws)
    except Exception:
        log.exception("cannot compute the slowdowns of the running routes", generation=problem.generation)
        return None


# ---- goal plans


def solved(
    problem: Problem,
    limits: PlanLimits,
    min_gain: float = 0.0,
    held: GoalPlan | None = None,
    running: Routes = NO_ROUTES,
) -> tuple[Planned, GoalPlan | None]:
    """Return the plan with the decision whether to adopt it, and the goal plan that remains after the plan's moves.

    ``min_gain``, ``running``: see ``decided``. ``held``: the goal plan of an earlier cycle."""
    answer, goal = plan_towards(problem, limits, held)
    if isinstance(answer, NoPlan):
        return Planned(answer), None
    if of_now := _for_current_phases(problem, answer, limits, min_gain):
        problem, answer, goal = problem.now, of_now, None
    stay = repair(problem) if answer.moves and not all(map(problem.is_in_force, problem.flows)) else None
    planned = decided(problem, answer, min_gain, running, stay if isinstance(stay, Plan) else None, goal)
    decision = planned.decision
    assert decision
    if of_now:
        decision = replace(decision, reason=f"planned for what jobs send now: {decision.reason}")
    adopted = decision.adopt and decision.moving
    left = goal if goal and (goal.blocked or (adopted and goal.moves)) else None
    planned = replace(planned, decision=decision, goal=left.left if left else None, for_now=of_now is not None)
    return planned, left


def _for_current_phases(problem: Problem, union: Plan, limits: PlanLimits, min_gain: float) -> Plan | None:
    """Return a plan for the phases that jobs send now, or None if it is not better than ``union`` by ``min_gain``.

    Flows that send nothing now keep their routes. ``min_gain`` is relative."""
    now = problem.now
    if now is problem:
        return None
    slowdowns = sorted_slowdowns(job_slowdowns(now, union.routes))
    if first_difference(slowdowns, slowdown_bounds(now).vector) is None:
        return None
    found = plan(now, limits)
    if isinstance(found, NoPlan) or relative_gain(slowdowns, found.sorted_slowdowns) < min_gain:
        return None
    routes = dict(found.routes)
    for flow in now.flows:
        if not flow.demand_bps and flow.id in union.routes:
            routes[flow.id] = flow.current if flow.current and now.is_in_force(flow) else union.routes[flow.id]
    return replace(found, routes=routes, moves=problem.moves(routes))


def plan_towards(problem: Problem, limits: PlanLimits, held: GoalPlan | None) -> Cycle:
    """Return the plan for this cycle, and the goal plan that it leads to; the goal plan may be None.

    ``held``: the goal plan of an earlier cycle; it is dropped when anything but the running routes has changed."""
    limits = limits.begun()
    if not limits.max_moves:
        return plan(problem, limits), None
    if held and same_inputs(held.problem, problem):
        continued = _CycleSearch(problem, limits, held.plan).next_cycle(held)
        if continued:
            return continued
    if limits.allows("goal", _S_PER_FLOW * len(problem.flows)):
        quick = relieved(problem, limits)
        if isinstance(quick, NoPlan):
            return quick, None
    else:
        quick = plan(problem, limits)
        if isinstance(quick, NoPlan) or quick.moves or len(problem.flows) > MAX_FLOWS:
            return quick, None
        limits = replace(limits, until=math.inf).begun()
    found = plan(problem, replace(limits.sooner(_SHARE * limits.time_limit_s), max_moves=None))
    if isinstance(found, NoPlan) or found.moves <= (limits.max_moves or 0):
        return found, None
    return _CycleSearch(problem, limits, _by_common_links(problem, limits, found)).first_cycle(quick.routes)


def _by_common_links(problem: Problem, limits: PlanLimits, found: Plan) -> Plan:
    """Return the plan of ``aligned_cutting`` if it is as good as ``found`` and takes no more cycles, else ``found``."""
    routes = aligned_cutting(problem, None)
    if routes is None or not limits.max_moves:
        return found
    by_common_links = draft(problem, "aligned-cutting", routes)
    cycles, others = math.ceil(by_common_links.moves / limits.max_moves), math.ceil(found.moves / limits.max_moves)
    slowdowns = sorted_slowdowns(by_common_links.job_slowdown)
    if cycles > others or first_difference(slowdowns, found.sorted_slowdowns) is not None:
        return found
    free = replace(limits, max_moves=None, ecmp_draws=0)
    answer = judged(problem, free, lambda _: Drafts([by_common_links]))
    return found if isinstance(answer, NoPlan) else answer


def outlook(problem: Problem, limits: PlanLimits, where: str = "") -> tuple[Plan, Plan, int | None]:
    """Return the plan that is reached in the end, the plan of the first cycle, and the largest number of cycles needed.

    The number is None when moves within the cap do not lead to the plan that is reached in the end. Raises
    ``SignalboxError`` when there is no plan; ``where`` becomes a part of the error's text."""
    if limits.max_moves == 0:
        found = answered(plan(problem, replace(limits, max_moves=None)), where)
        return found, found, None if found.moves else 0
    answer, goal = plan_towards(problem, limits, None)
    first = answered(answer, where)
    if goal is None:
        return first, first, min(1, first.moves)
    cycles = 1 + math.ceil(goal.moves / (limits.max_moves or 1))
    return goal.plan, first, None if goal.blocked else cycles


def same_inputs(a: Problem, b: Problem) -> bool:
    """Return whether the problems differ at most in the running routes."""
    return (
        a.capacity_bps == b.capacity_bps
        and a.paths.far_end == b.paths.far_end
        and len(a.flows) == len(b.flows)
        and all(
            (one.id, one.job_id, one.demand_bps, one.max_subflows, one.nic_links, one.phase_share)
            == (other.id, other.job_id, other.demand_bps, other.max_subflows, other.nic_links, other.phase_share)
            for one, other in zip(a.flows, b.flows, strict=True)
        )
    )


class _CycleSearch:
    """Search for the moves of one cycle on the way from the running routes to the routes of a goal plan."""

    def __init__(self, problem: Problem, limits: PlanLimits, aim: Plan) -> None:
        self._problem = problem
        self._limits = limits
        self._cap = limits.max_moves or 0
        self._aim = aim
        self._running = greedy.assign(problem, keep_current=True)
        self._free = frozenset(flow.id for flow in problem.flows if not problem.is_in_force(flow))
        self._goal: Routes = {flow: in_place(route, self._running.get(flow)) for flow, route in aim.routes.items()}
        self._part = replace(limits, time_limit_s=_SHARE * limits.time_limit_s)
        self._cut_short = aim.cut_short

    def first_cycle(self, quick: Routes) -> Cycle:
        """Return the first cycle towards the goal plan.

        ``quick``: the best known routes within the cap; in the worst case the running routes."""
        quick = self._in_place(quick)
        routes, jump = self._after_step, self._jump(quick)
        if isinstance(routes, Stuck):
            better = (found for found in (jump, quick) if found and self._better(found, self._running))
            routes = next(better, None) or self._best_within_cap
            return self._answer(routes, held=False) if self._better(routes, self._running) else self._after_no_step()
        if jump and self._better(jump, routes) and (self._leads_to_goal(jump) or not self._leads_to_goal(routes)):
            routes = jump
        return self._answer(routes, held=False)

    def next_cycle(self, held: GoalPlan) -> Cycle | None:
        """Return the next cycle towards the goal plan ``held``; None when another goal plan may be better."""
        if held.blocked and self._cap <= held.searched and self._problem.flows == held.problem.flows:
            return self._judged(self._running), held
        if not self._better(self._goal, self._running):
            return None
        if self._problem.moves(self._goal) <= self._cap:
            return self._answer(self._goal, held=True)
        return None if isinstance(self._after_step, Stuck) else self._answer(self._after_step, held=True)

    @cached_property
    def _after_step(self) -> Routes | Stuck:
        found = self._step(self._running, self._cap)
        worse = not isinstance(found, Stuck) and self._better(self._running, found)
        return Stuck(final=False) if worse else found

    @property
    def _time_is_over(self) -> bool:
        return self._limits.left_s <= 0

    def _step(self, start: Routes, most: int, free: frozenset[FlowId] = frozenset()) -> Routes | Stuck:
        return step(self._problem, start, self._goal, most, self._free | free, self._part)

    def _leads_to_goal(self, routes: Routes) -> bool:
        """Return False only if steps certainly do not reach the goal plan within ceil(its moves / cap) cycles."""
        for _ in range(math.ceil(self._aim.moves / self._cap)):
            if self._moves_left(routes) <= self._cap or self._time_is_over:
                return True
            further = self._step(routes, self._cap)
            if isinstance(further, Stuck):
                return not further.final
            routes = further
        return self._moves_left(routes) == 0

    def _jump(self, quick: Routes) -> Routes | None:
        """Return the routes of a jump, and a step if moves are left; None when no jump moves any flow.

        A jump that delays the goal plan is returned only if no other jump is found."""
        cycles = math.ceil(self._aim.moves / self._cap)
        found: Routes | None = None
        for most in self._jump_sizes():
            if self._time_is_over:
                break
            routes = self._within(most, quick)
            moves = self._problem.moves(routes)
            if not moves:
                break
            found = found or routes
            if self._moves_left(routes) - (self._cap - moves) <= self._cap * (cycles - 1):
                found = routes
                break
        if self._time_is_over and self._better(quick, found or self._running):
            return quick
        return None if found is None else self._filled_with_step(found)

    def _jump_sizes(self) -> list[int]:
        parts = _JUMP_FRACTIONS if aligned_cutting(self._problem, None) else _JUMP_FRACTIONS[:1]
        return [max(1, int(part * self._cap)) for part in parts]

    def _filled_with_step(self, routes: Routes) -> Routes:
        moved = frozenset(flow for flow, route in routes.items() if route != self._running.get(flow))
        more = self._step(routes, self._cap - self._problem.moves(routes), moved)
        return routes if isinstance(more, Stuck) else more

    def _within(self, most: int, quick: Routes) -> Routes:
        """Return the best routes found with at most ``most`` moves; the running routes when nothing better is found."""
        problem, limits = self._problem, self._part
        routes = aligned_cutting(problem, most)
        if routes is not None:
            return self._in_place(routes)
        if all(flow.max_subflows == 1 for flow in problem.flows):
            return self._best_within_cap
        if fits(problem, limits, "jump"):
            by_lp = search.relieve(problem, limits, peak_bounds(problem), self._aim.routes)
            return self._in_place(by_lp) if by_lp and not self._better(quick, by_lp) else quick
        return quick

    @cached_property
    def _best_within_cap(self) -> Routes:
        limits = replace(self._part, ecmp_draws=0)
        if isinstance(self._after_step, Stuck):
            limits = limits.sooner(_SHARE * min(limits.left_s, limits.time_limit_s))
        found = None if self._time_is_over else plan(self._problem, limits)
        self._cut_short |= not isinstance(found, Plan) or found.cut_short
        return self._in_place(found.routes) if isinstance(found, Plan) else self._running

    def _in_place(self, routes: Routes) -> Routes:
        return {flow: in_place(route, self._running.get(flow)) for flow, route in routes.items()}

    def _moves_left(self, routes: Routes) -> int:
        return sum(routes.get(flow) != route for flow, route in self._goal.items())

    def _better(self, routes: Routes, others: Routes) -> bool:
        return is_less(*(sorted_slowdowns(job_slowdowns(self._problem, of)) for of in (routes, others)))

    def _after_no_step(self) -> Cycle:
        """Make the smallest useful group of moves if the cap allows it; otherwise move nothing, and name the group."""
        flows, smallest = smallest_group(self._problem, self._running, self._goal, self._part)
        together = {**self._running, **{flow: self._goal[flow] for flow in flows}}
        if self._problem.moves(together) <= self._cap:
            return self._answer(together, held=False)
        if self._time_is_over and not smallest:
            return self._answer(self._running, held=False)
        log.warning(
            "planning.max_moves is too small: no moves within it lead towards the goal plan",
            max_moves=self._cap,
            together=len(flows),
        )
        searched = 0 if self._cut_short or self._time_is_over else self._cap
        goal = GoalPlan(self._aim, self._problem, self._moves_left(self._running), False, flows, smallest, searched)
        return self._judged(self._running), goal

    def _answer(self, routes: Routes, held: bool) -> Cycle:
        return self._judged(routes), GoalPlan(self._aim, self._problem, self._moves_left(routes), held)

    def _judged(self, routes: Routes) -> Plan | NoPlan:
        def drafts(bounds: Bounds) -> Drafts:
            proven = bounds.vector
            if proven and self._aim.bound > proven[0]:
                proven = bounds.with_worst(self._aim.bound)
            return Drafts([draft(self._problem, "goal", routes)], proven)

        answer = judged(self._problem, self._limits, drafts)
        if isinstance(answer, NoPlan):
            return answer
        return replace(answer, cut_short=answer.cut_short or self._cut_short)
