"""One planning cycle after another: when to plan, from what, and what becomes of the answer.

Owned by the control loop. In: changes, ticks, counters and the worker's answers. Out: ``SolvePlan`` commands, new
running routes when the policy adopts a plan, and at once when routes are repaired, and replies to those who asked for a
plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from controller.config import Config, Strategy
from controller.core.asking import question
from controller.core.messages import Command, Reply
from controller.fabric.link_load import LinkLoad
from controller.fabric.topology import Fabric, LinkId, PortRef
from controller.jobs.registry import Job
from controller.jobs.spec import JobId
from controller.planning.ecmp import ecmp_job_levels
from controller.planning.first_aid import needs_repair, running
from controller.planning.messages import Compared, Explain, Foresee, Planned, ReplanOutcome, SolvePlan, WhatIf
from controller.planning.plan import NoPlan, Plan
from controller.planning.problem import PlanLimits, Problem
from controller.planning.questions.asked import Network
from controller.planning.replan_policy import decide
from controller.planning.schedule import ReplanSchedule
from controller.planning.snapshot import Snapshots, capacities, missing_hosts
from controller.status import Repair
from controller.tables.running_routes import RunningRoutes, in_place

ECMP_SEED = 1


class Replanning:
    """``levels``: L_j of the running routes, as of the last cycle. ``plan``: the newest plan, adopted or not.
    ``baseline_levels``: of other strategies on the plan's problem, empty until they are known. ``adopted``: it is what
    the switches should do. ``repair``: the latest one. ``unplanned``: new jobs until their first cycle is over; rules
    that only count them would be replaced by their pins in a moment."""

    def __init__(self, config: Config, routes: RunningRoutes, load: LinkLoad, now: float) -> None:
        self._config = config.planning
        self._routes = routes
        self._load = load
        self._load_interval_s = config.counters.interval_s
        self._load_at = now
        self._background: Mapping[LinkId, float] = {}
        self._nominal: tuple[Fabric, Mapping[LinkId, float]] | None = None
        self._schedule = ReplanSchedule(config.planning.debounce_s, config.planning.interval_s)
        self.snapshots = Snapshots(self._config.max_paths)
        self._solving: Problem | None = None
        self._asked_for: frozenset[JobId] = frozenset()
        self.unplanned: frozenset[JobId] = frozenset()
        self._generation = 0
        self._waiters: list[Future[Any]] = []
        self.levels: Mapping[JobId, float] = {}
        self.plan: Plan | None = None
        self.baseline_levels: Mapping[str, float] = {}
        self.adopted = False
        self.reason = ""
        self.cycles_done = 0
        self.plans_total = 0
        self.moved_flows_total = 0
        self.repair: Repair | None = None
        self.repairs_total = 0
        self.repaired_flows_total = 0

    def changed(self, now: float) -> None:
        """Links, hosts or jobs changed."""
        self._schedule.changed(now)

    def at_once(self, now: float, waiter: Future[Any] | None = None) -> None:
        """Plan with the next tick; a plan that is being solved was asked for earlier and is not waited for."""
        self._solving = None
        self._schedule.at_once(now)
        if waiter is not None:
            self._waiters.append(waiter)

    def take_counters(self, fabric: Fabric, now: float) -> None:
        """Turn the counters of the last interval into background."""
        if now < self._load_at + self._load_interval_s:
            return
        self._load_at = now
        if self._nominal is None or self._nominal[0] is not fabric:
            self._nominal = fabric, capacities(fabric, {})
            self._load.forget({PortRef(dpid, port) for dpid, s in fabric.switches.items() for port in s.ports})
        self._background = self._load.update(now, self._nominal[1])

    def start_if_due(self, strategy: Strategy, fabric: Fabric, jobs: Iterable[Job], now: float) -> list[Command]:
        """Begin a cycle when it is time. ``jobs``: those whose hosts are all known."""
        if self._solving is not None or not self._schedule.due(now):
            return []
        self._schedule.started(now)
        self._generation += 1
        jobs = list(jobs)
        self._asked_for = frozenset(job.id for job in jobs)
        problem = self.snapshots.take(self._generation, fabric, jobs, self._background, self._routes.routes)
        if not needs_repair(problem):
            self.levels = ecmp_job_levels(problem, self._routes.routes, self._config.ecmp_draws, ECMP_SEED)
        if strategy is Strategy.ECMP or not problem.flows:
            self.plan, self.adopted, self.baseline_levels = None, False, {}
            why = "the strategy is ecmp" if strategy is Strategy.ECMP else "no job is ready to be planned"
            return self._conclude("no plan", why)
        self._solving = problem
        limits = PlanLimits(
            time_limit_s=self._config.time_limit_s,
            max_moves=self._config.max_moves,
            ecmp_draws=self._config.ecmp_draws,
        )
        return [SolvePlan(problem, limits)]

    def foresee(self, asked: Explain | WhatIf, fabric: Fabric, intact: Fabric, jobs: Mapping[JobId, Job]) -> Foresee:
        """The question about the network as it is, with the routes in force. ``intact``: with the cables that have
        failed. Raises what ``asking.question`` does."""
        known = [job for job in jobs.values() if not missing_hosts(fabric, job)]
        problem = self.snapshots.take(self._generation, fabric, known, self._background, self._routes.routes)
        limits = PlanLimits(time_limit_s=self._config.time_limit_s, ecmp_draws=self._config.ecmp_draws)
        return Foresee(question(asked, Network(problem, fabric, intact, limits), jobs), asked.reply)

    def answered(self, planned: Planned, strategy: Strategy, fabric: Fabric) -> list[Command]:
        """The worker's answer; one for a problem that is not awaited any more is dropped."""
        problem, answer = self._solving, planned.answer
        if problem is None or answer.generation != problem.generation:
            return []
        if isinstance(answer, NoPlan):
            self._solving = None
            return self._conclude("no plan", answer.reason)
        gone = any(link not in fabric.links for route in answer.routes.values() for path, _ in route for link in path)
        if planned.repair:
            if strategy is Strategy.PLANNED and not gone:
                self._repair(problem, answer)
            return []
        self._solving = None
        if gone:
            return []  # a link went while it was solved: that change has its own cycle coming
        answer = _in_place(problem, answer)
        self.plan, self.adopted, self.baseline_levels = answer, False, {}
        self.plans_total += 1
        if strategy is not Strategy.PLANNED:
            return self._conclude("kept", f"the strategy is {strategy}: nothing is installed")
        decision = decide(problem, answer, self._config.min_gain)
        if decision.adopt:
            self.moved_flows_total += answer.moves
            self._routes.routes = dict(answer.routes)
            self.levels = answer.job_level
        self.adopted = self._routes.routes == answer.routes
        return self._conclude("adopted" if decision.adopt else "kept", decision.reason)

    def compared(self, message: Compared) -> None:
        """Taken for the newest plan only."""
        if self.plan and self.plan.generation == message.generation:
            self.baseline_levels = message.baseline_levels

    def _repair(self, problem: Problem, repair: Plan) -> None:
        """In force at once; the plan that follows is judged against it."""
        repair = _in_place(problem, repair)
        repaired = sum(
            flow.current is not None and flow.id in repair.routes and not problem.stands(flow) for flow in problem.flows
        )
        if repaired:
            self.repair = Repair(repaired, repair.times.total_ms)
            self.repairs_total += 1
            self.repaired_flows_total += repaired
        self._routes.routes = dict(repair.routes)
        self.levels = repair.job_level
        self.adopted = False
        self._solving = running(problem, repair.routes)

    def _conclude(self, outcome: str, reason: str) -> list[Command]:
        self.cycles_done += 1
        self.unplanned -= self._asked_for
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
