"""Which routes run in the simulation, and when a controller replaces them.

In: problems, at the moments that ``training`` names, and a strategy that plans for them. Out: a route for every flow
that was ever planned for, and which of them changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import StrEnum
from hashlib import blake2b

from controller.planning.plan import NoPlan, Plan
from controller.planning.problem import Flow, FlowId, Problem, Route, whole
from controller.planning.replan_policy import decide

Strategy = Callable[[Problem], Plan | NoPlan]
"""Plans for all flows of a problem. The same problem gets the same plan."""


class Replan(StrEnum):
    """``published``: whenever a job begins or ends its all-reduce, over the flows that send at this moment, without
    memory of the running routes; every plan is adopted (as the simulator of arXiv 2503.05324 does it). ``hysteresis``:
    over all flows of the jobs in training, whether they send or not, and a plan is adopted as the controller adopts one
    (``replan_policy``). ``never``: one plan for all jobs before the first of them starts."""

    PUBLISHED = "published"
    HYSTERESIS = "hysteresis"
    NEVER = "never"


class Routing:
    """The running routes of a simulated controller.

    ``routes``: of every flow that was planned for. ``plans``, ``adopted``: plans that were made, and those that changed
    a route. ``moves``: how often a flow that had a route got another one.
    """

    def __init__(self, strategy: Strategy, replan: Replan, min_gain: float, seed: int) -> None:
        self.routes: dict[FlowId, Route] = {}
        self.plans = self.adopted = self.moves = 0
        self.mode = replan
        self._strategy = strategy
        self._min_gain = min_gain
        self._seed = seed
        self._known: dict[object, Plan | NoPlan] = {}

    def replan(self, problem: Problem) -> set[FlowId]:
        """Plans for the flows of the problem. Returns the flows whose route changed or is new; those that no plan
        serves are hashed."""
        if self.mode is Replan.HYSTERESIS:
            flows = tuple(replace(flow, current=self.routes.get(flow.id)) for flow in problem.flows)
            problem = replace(problem, flows=flows)
        plan = self._plan(problem)
        changed: set[FlowId] = set()
        if isinstance(plan, Plan) and self._adopts(problem, plan):
            changed = self._take(plan.routes.items())
            self.adopted += bool(changed)
        return changed | self.fail_over(problem)

    def fail_over(self, problem: Problem) -> set[FlowId]:
        """Flows whose path has gone are hashed onto those that are left, as the switches do it by themselves. Returns
        them."""
        lost = [flow for flow in problem.flows if not problem.stands(replace(flow, current=self.routes.get(flow.id)))]
        return self._take((flow.id, hashed_route(problem, flow, self._seed)) for flow in lost)

    def _plan(self, problem: Problem) -> Plan | NoPlan:
        """The same question gets the answer that it got before."""
        question = (problem.generation, tuple((flow.id, flow.current) for flow in problem.flows))
        if question not in self._known:
            self._known[question] = self._strategy(problem)
            self.plans += 1
        return self._known[question]

    def _adopts(self, problem: Problem, plan: Plan) -> bool:
        return self.mode is not Replan.HYSTERESIS or decide(problem, plan, self._min_gain).adopt

    def _take(self, routes: Iterable[tuple[FlowId, Route]]) -> set[FlowId]:
        changed = {flow: route for flow, route in routes if self.routes.get(flow) != route}
        self.moves += sum(flow in self.routes for flow in changed)
        self.routes |= changed
        return set(changed)


def hashed_route(problem: Problem, flow: Flow, seed: int) -> Route:
    """Whole, on the candidate that a hash of its addresses picks: always the same one while they
    are the same. Raises ``ValueError`` for a flow without candidates."""
    candidates = problem.candidates(flow)
    if not candidates:
        raise ValueError(f"{flow.id.src_ip} > {flow.id.dst_ip} cannot be routed")
    digest = blake2b(f"{seed} {flow.id.src_ip} {flow.id.dst_ip}".encode(), digest_size=8).digest()
    return whole(candidates[int.from_bytes(digest) % len(candidates)])
