"""Routes that are in force in the simulation, and the controller that replaces them.

In: problems, at the times that ``training`` chooses, and a scheme that plans for them. Out: a route for every flow that
was ever planned for, and the flows whose routes changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from controller.public.plans import GoalPlan, NextHops, NoPlan, Plan, Planned, decide, hashed_links, same_inputs, solved
from controller.public.problems import Flow, FlowId, PlanLimits, Problem, Route, Routes
from offline.simulator.options import CYCLE_S, Replan

Scheme = Callable[[Problem], Plan | NoPlan]
"""Function that plans for all flows of a problem. Equal problems must get equal plans."""


class Routing:
    """Routes in force of a simulated controller.

    - ``routes``: route of every flow that was planned for.
    - ``plans``: number of plans that were made.
    - ``adopted``: number of plans that changed a route.
    - ``moves``: number of times that a flow with a route got another route.
    - ``goal``: plan that the last cycle approached, but has not reached."""

    def __init__(
        self, scheme: Scheme, replan: Replan, min_gain: float, seed: int, live: PlanLimits | None = None
    ) -> None:
        """Start without routes.

        ``live``: with hysteresis, simulate the controller's own cycles under these limits instead of ``scheme``."""
        self.routes: dict[FlowId, Route] = {}
        self.plans = self.adopted = self.moves = 0
        self.mode = replan
        self._scheme = scheme
        self._min_gain = min_gain
        self._seed = seed
        self._known: dict[object, Plan | NoPlan] = {}
        self._cycles: dict[object, tuple[Planned, GoalPlan | None]] = {}
        self._live = live
        self._cycle_at_s = 0.0
        self.goal: GoalPlan | None = None

    def replan(self, problem: Problem, now_s: float) -> set[FlowId]:
        """Plan for the flows of the problem, and return the flows with a changed or new route.

        Flows that no plan serves are hashed."""
        if self.mode is Replan.HYSTERESIS:
            problem = problem.with_routes(self.routes)
            if self._live:
                return self._cycle(problem, self._live, now_s) | self.fail_over(problem)
        plan = self._plan(problem)
        changed: set[FlowId] = set()
        always = self.mode is not Replan.HYSTERESIS
        if isinstance(plan, Plan) and (always or decide(problem, plan, self._min_gain).adopt):
            changed = self._put_in_force(plan.routes)
            self.adopted += bool(changed)
        return changed | self.fail_over(problem)

    def _cycle(self, problem: Problem, limits: PlanLimits, now_s: float) -> set[FlowId]:
        """Run a planning cycle of the controller, and return the flows with a changed or new route.

        A cycle that only continues towards a goal plan runs ``CYCLE_S`` after the previous cycle."""
        if self.goal and now_s < self._cycle_at_s + CYCLE_S and same_inputs(self.goal.problem, problem):
            return set()
        key = (_key_of(problem), id(self.goal))
        if key not in self._cycles:
            self._cycles[key] = solved(problem, limits, self._min_gain, self.goal)
            self.plans += 1
        planned, goal = self._cycles[key]
        self._cycle_at_s, self.goal = now_s, goal
        if not planned.adopted:
            return set()
        changed = self._put_in_force(planned.plan.routes)
        self.adopted += bool(changed)
        return changed

    def fail_over(self, problem: Problem) -> set[FlowId]:
        """Hash each flow whose route is not in force to one of its intact paths, as switches do; return these flows."""
        lost = tuple(flow for flow in problem.flows if not self._is_in_force(problem, flow))
        if not lost:
            return set()
        problem = replace(problem, flows=lost)
        hops = NextHops(problem)
        return self._put_in_force(hops.routes(hashed_links(problem, hops, self._seed)))

    def _is_in_force(self, problem: Problem, flow: Flow) -> bool:
        route = self.routes.get(flow.id)
        return route is not None and problem.is_in_force(replace(flow, current=route))

    def _plan(self, problem: Problem) -> Plan | NoPlan:
        key = _key_of(problem)
        if key not in self._known:
            self._known[key] = self._scheme(problem)
            self.plans += 1
        return self._known[key]

    def _put_in_force(self, routes: Routes) -> set[FlowId]:
        changed = {flow: route for flow, route in routes.items() if self.routes.get(flow) != route}
        self.moves += sum(flow in self.routes for flow in changed)
        self.routes |= changed
        return set(changed)


def _key_of(problem: Problem) -> object:
    return problem.generation, tuple((flow.id, flow.current) for flow in problem.flows)
