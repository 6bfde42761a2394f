"""Which routes run in the simulation, and when a controller replaces them.

In: problems, at the moments that ``training`` names, and a scheme that plans for them. Out: a route for every flow
that was ever planned for, and which of them changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from controller.public.plans import NextHops, NoPlan, Plan, Planned, Target, decide, hashed_links, same_inputs, solved
from controller.public.problems import Flow, FlowId, PlanLimits, Problem, Route, Routes
from offline.simulator.options import CYCLE_S, Replan

Scheme = Callable[[Problem], Plan | NoPlan]
"""Plans for all flows of a problem. The same problem gets the same plan."""


class Routing:
    """The running routes of a simulated controller.

    ``routes``: of every flow that was planned for. ``plans``, ``adopted``: plans that were made, and those that changed
    a route. ``moves``: how often a flow that had a route got another one. ``target``: that a cycle has left.
    """

    def __init__(
        self, scheme: Scheme, replan: Replan, min_gain: float, seed: int, live: PlanLimits | None = None
    ) -> None:
        """``live``: with hysteresis the controller's own cycles under these limits take the place of ``scheme``."""
        self.routes: dict[FlowId, Route] = {}
        self.plans = self.adopted = self.moves = 0
        self.mode = replan
        self._scheme = scheme
        self._min_gain = min_gain
        self._seed = seed
        self._known: dict[object, Plan | NoPlan] = {}
        self._cycles: dict[object, tuple[Planned, Target | None]] = {}
        self._live = live
        self._cycle_at_s = 0.0
        self.target: Target | None = None

    def replan(self, problem: Problem, now_s: float) -> set[FlowId]:
        """Plans for the flows of the problem. Returns the flows whose route changed or is new; those that no plan
        serves are hashed."""
        if self.mode is Replan.HYSTERESIS:
            problem = problem.with_routes(self.routes)
            if self._live:
                return self._cycle(problem, self._live, now_s) | self.fail_over(problem)
        plan = self._plan(problem)
        changed: set[FlowId] = set()
        always = self.mode is not Replan.HYSTERESIS
        if isinstance(plan, Plan) and (always or decide(problem, plan, self._min_gain).adopt):
            changed = self._take(plan.routes)
            self.adopted += bool(changed)
        return changed | self.fail_over(problem)

    def _cycle(self, problem: Problem, limits: PlanLimits, now_s: float) -> set[FlowId]:
        """A cycle of the controller; the next one that only goes on is ``CYCLE_S`` later."""
        if self.target and now_s < self._cycle_at_s + CYCLE_S and same_inputs(self.target.problem, problem):
            return set()
        key = (_state(problem), id(self.target))
        if key not in self._cycles:
            self._cycles[key] = solved(problem, limits, self._min_gain, self.target)
            self.plans += 1
        planned, target = self._cycles[key]
        self._cycle_at_s, self.target = now_s, target
        if not planned.adopted:
            return set()
        changed = self._take(planned.plan.routes)
        self.adopted += bool(changed)
        return changed

    def fail_over(self, problem: Problem) -> set[FlowId]:
        """Flows that lost a path are hashed onto the paths that are left, as switches do. Returns them."""
        lost = tuple(flow for flow in problem.flows if not self._stands(problem, flow))
        if not lost:
            return set()
        problem = replace(problem, flows=lost)
        hops = NextHops(problem)
        return self._take(hops.routes(hashed_links(problem, hops, self._seed)))

    def _stands(self, problem: Problem, flow: Flow) -> bool:
        route = self.routes.get(flow.id)
        return route is not None and problem.stands(replace(flow, current=route))

    def _plan(self, problem: Problem) -> Plan | NoPlan:
        """The same problem gets the plan that it got before."""
        key = _state(problem)
        if key not in self._known:
            self._known[key] = self._scheme(problem)
            self.plans += 1
        return self._known[key]

    def _take(self, routes: Routes) -> set[FlowId]:
        changed = {flow: route for flow, route in routes.items() if self.routes.get(flow) != route}
        self.moves += sum(flow in self.routes for flow in changed)
        self.routes |= changed
        return set(changed)


def _state(problem: Problem) -> object:
    """The same for the same problem."""
    return problem.generation, tuple((flow.id, flow.current) for flow in problem.flows)
