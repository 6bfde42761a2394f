"""One planning cycle after another: which problem is being solved, and what becomes of the answers.

In: problems, the worker's answers. Out: ``SolvePlan`` commands, new running routes when a repair comes or
``planning.plan.decide`` is for a plan, and replies to those who asked for a plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from controller.config import PlanningConfig, Strategy
from controller.core.messages import Command, Reply
from controller.fabric.topology import Fabric
from controller.jobs.demand import DemandSource
from controller.jobs.spec import JobId
from controller.planning.ecmp import ecmp_job_levels
from controller.planning.efficiency import phase_levels
from controller.planning.messages import Compared, Planned, ReplanOutcome, SolvePlan
from controller.planning.plan import NoPlan, Plan, decide
from controller.planning.problem import PlanLimits, Problem
from controller.status import Repair
from controller.tables.running_routes import RunningRoutes, in_place

ECMP_SEED = 1


class PlanningCycle:
    """``levels``: L_j of the running routes, as of the last cycle; ``phase_levels``: of each phase, where all flows are
    pinned. ``plan``: the newest plan, adopted or not.
    ``baseline_levels``: of other schemes on the plan's problem, empty until they are known. ``adopted``: the running
    routes are those of the plan. ``demand_source``: which bytes of each job the plan was made for. ``reason``: what
    became of the newest plan, and why. ``repair``: the latest one. ``unplanned``: new jobs until their first cycle is
    over; rules that only count their flows would be replaced by pins in a moment. ``generation``: of the latest
    problem."""

    def __init__(self, config: PlanningConfig, routes: RunningRoutes) -> None:
        self._config = config
        self._routes = routes
        self._solving: Problem | None = None
        self._waiters: list[Future[Any]] = []
        self._waiters_for_next: list[Future[Any]] = []
        self._next_at = math.inf
        self.unplanned: frozenset[JobId] = frozenset()
        self.generation = 0
        self.levels: Mapping[JobId, float] = {}
        self.phase_levels: Mapping[JobId, Mapping[int, float]] = {}
        self.plan: Plan | None = None
        self.demand_source: Mapping[JobId, DemandSource] = {}
        self._solving_source: Mapping[JobId, DemandSource] = {}
        self.baseline_levels: Mapping[str, float] = {}
        self.adopted = False
        self.reason = ""
        self.cycles_done = 0
        self.plans_total = 0
        self.moved_flows_total = 0
        self.repair: Repair | None = None
        self.repairs_total = 0
        self.repaired_flows_total = 0

    @property
    def solving(self) -> bool:
        """An answer is awaited."""
        return self._solving is not None

    def period_over(self, now: float) -> bool:
        """The next periodic cycle is due."""
        return now >= self._next_at

    def supersede(self) -> None:
        """The network has changed: the answer to the problem that is being solved is not awaited any more."""
        self._solving = None

    def answer_next(self, waiter: Future[Any]) -> None:
        """Reply with the outcome of the next cycle that begins. One that is being solved is finished first: else no
        plan would ever be taken while requests come faster than answers."""
        self._waiters_for_next.append(waiter)

    def wait_for_plan(self, job_id: JobId) -> None:
        """The job is new, and its first plan is about to come."""
        self.unplanned |= {job_id}

    def stop_waiting(self, jobs: frozenset[JobId]) -> None:
        """These jobs have rules, or will not get a plan."""
        self.unplanned -= jobs

    def begin(
        self, problem: Problem, demand_source: Mapping[JobId, DemandSource], strategy: Strategy, now: float
    ) -> list[Command]:
        """``problem``: of all jobs whose hosts are known, with generation ``self.generation + 1``. ``demand_source``:
        of these jobs."""
        self._next_at = now + self._config.interval_s
        self._waiters, self._waiters_for_next = [*self._waiters, *self._waiters_for_next], []
        self.generation = problem.generation
        if not problem.broken:
            self.levels = ecmp_job_levels(problem, self._routes.routes, self._config.ecmp_draws, ECMP_SEED)
            pinned = all(flow.current is not None for flow in problem.flows)
            self.phase_levels = phase_levels(problem, self._routes.routes) if pinned else {}
        if strategy is Strategy.ECMP or not problem.flows:
            self.plan, self.adopted, self.baseline_levels = None, False, {}
            why = "the strategy is ecmp" if strategy is Strategy.ECMP else "no job is ready to be planned"
            return self._conclude(problem, "no plan", why)
        self._solving, self._solving_source = problem, demand_source
        return [SolvePlan(problem, replace(self.limits, max_moves=self._config.max_moves))]

    @property
    def limits(self) -> PlanLimits:
        """For any number of moves."""
        return PlanLimits(time_limit_s=self._config.time_limit_s, ecmp_draws=self._config.ecmp_draws)

    def take(self, planned: Planned, strategy: Strategy, fabric: Fabric) -> list[Command]:
        """The worker's answer; one for a problem that is not awaited any more is dropped."""
        problem, answer = self._solving, planned.answer
        if problem is None or answer.generation != problem.generation:
            return []
        if isinstance(answer, NoPlan):
            self._solving = None
            return self._conclude(problem, "no plan", answer.reason)
        lost = any(link not in fabric.links for route in answer.routes.values() for path, _ in route for link in path)
        if planned.repair:
            if strategy is Strategy.PLANNED and not lost:
                self._take_repair(problem, answer)
            return []
        self._solving = None
        if lost:
            return []  # a link was lost while the problem was solved: that change has its own cycle
        answer = _in_place(problem, answer)
        self.plan, self.adopted, self.baseline_levels = answer, False, {}
        self.demand_source = self._solving_source
        self.plans_total += 1
        if strategy is not Strategy.PLANNED:
            return self._conclude(problem, "kept", f"the strategy is {strategy}: nothing is installed")
        decision = decide(problem, answer, self._config.min_gain)
        if decision.adopt:
            self.moved_flows_total += answer.moves
            self._routes.replace(answer.routes)
            self.levels, self.phase_levels = answer.job_level, phase_levels(problem, answer.routes)
        self.adopted = self._routes.routes == answer.routes
        return self._conclude(problem, "adopted" if decision.adopt else "kept", decision.reason)

    def take_comparison(self, message: Compared) -> None:
        """Taken for the newest plan only."""
        if self.plan and self.plan.generation == message.generation:
            self.baseline_levels = message.baseline_levels

    def _take_repair(self, problem: Problem, repair: Plan) -> None:
        """Adopted at once; the plan that follows is compared with it."""
        repair = _in_place(problem, repair)
        repaired = sum(
            flow.current is not None and flow.id in repair.routes and not problem.stands(flow) for flow in problem.flows
        )
        if repaired:
            self.repair = Repair(repaired, repair.times.total_ms)
            self.repairs_total += 1
            self.repaired_flows_total += repaired
        self._routes.replace(repair.routes)
        self.levels, self.phase_levels = repair.job_level, phase_levels(problem, repair.routes)
        self.adopted = False
        self._solving = problem.with_routes(repair.routes)

    def _conclude(self, problem: Problem, outcome: str, reason: str) -> list[Command]:
        self.cycles_done += 1
        self.unplanned -= {flow.job_id for flow in problem.flows}
        self.reason = f"{outcome}: {reason}"
        waiters, self._waiters = self._waiters, []
        return [Reply(future, ReplanOutcome(outcome, reason, self.plan)) for future in waiters]  # type: ignore[arg-type]


def _in_place(problem: Problem, plan: Plan) -> Plan:
    """The same plan, with the subflows of each flow in the classes they are in now where that is possible: the rules
    and connections of a subflow that stays need not change."""
    routes = {flow.id: in_place(plan.routes[flow.id], flow.current) for flow in problem.flows if flow.id in plan.routes}
    moves = sum(
        flow.id in routes and flow.current not in (None, routes[flow.id]) and problem.stands(flow)
        for flow in problem.flows
    )
    return replace(plan, routes=routes, moves=moves)
