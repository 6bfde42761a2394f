"""Sequence of planning cycles: the problem that is being solved, and the use of the answer.

In: problems, and the worker's answers, each with a decision whether to adopt it. Out: ``SolvePlan`` commands, new
running routes when a repair arrives or a plan is worth its moves, and replies to requests for a plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from controller.config import PlanningConfig
from controller.core.messages import Command, Reply
from controller.demand.job_demand import DemandSource
from controller.fabric.topology import Fabric, Link, LinkId
from controller.histogram import Histogram
from controller.jobs.job import Job
from controller.planning.messages import Planned, ReplanOutcome, SolvePlan, WorkOutSlowdowns
from controller.planning.plan import GoalPlanLeft, NoPlan, Plan
from controller.planning.planned import Slowdowns
from controller.planning.problem import PlanLimits, Snapshot
from controller.status import Repair
from controller.tables.running_routes import RunningRoutes
from signalbox.jobs.spec import JobId
from signalbox.words import Mode

MOST_REST_S = 2.0
"""Longest rest in seconds between an answer of the planner and the next cycle."""


class PlanningCycle:
    """State of the planning cycle and the newest plan."""

    def __init__(self, config: PlanningConfig, routes: RunningRoutes) -> None:
        self._config = config
        self._routes = routes
        self._solving: Snapshot | None = None
        self._links: Mapping[LinkId, Link] = {}
        self._slowdowns_due = False
        self._lost = False
        self.jobs: Mapping[JobId, Job] = {}
        """All jobs at the time of the latest problem."""
        self._waiters: list[Future[Any]] = []
        self._waiters_for_next: list[Future[Any]] = []
        self._next_at = math.inf
        self._began_at = 0.0
        self._rests_until = -math.inf
        self.unplanned: frozenset[JobId] = frozenset()
        """New jobs whose first cycle is not over.

        They get no rules until then, because the plan would soon replace those rules."""
        self.generation = 0
        """Number of the latest problem."""
        self.slowdowns = Slowdowns(0)
        """Slowdowns of jobs under the running routes, as of the last cycle."""
        self.plan: Plan | None = None
        """The newest plan, adopted or not."""
        self.goal: GoalPlanLeft | None = None
        """Goal plan, which has more moves than a cycle may make; the adopted plans lead to it step by step."""
        self.demand_source: Mapping[JobId, DemandSource] = {}
        """Source, by job, of the bytes for which the newest plan was made."""
        self._solving_source: Mapping[JobId, DemandSource] = {}
        self.baseline_slowdowns: Mapping[str, float] = {}
        """Slowdown of each baseline on the problem of the plan; empty until the slowdowns are known."""
        self.adopted = False
        """Whether the running routes are the routes of the newest plan."""
        self.reason = ""
        """Decision on the newest plan, and its reason."""
        self.cycles_done = 0
        self.plans_total = 0
        self.plan_at: float | None = None
        """Time of the newest plan in monotonic seconds."""
        self.plan_times = Histogram()
        """Distribution of the planning times in seconds."""
        self.moved_flows_total = 0
        self.repair: Repair | None = None
        """The latest repair of broken routes."""
        self.repairs_total = 0
        self.repaired_flows_total = 0

    @property
    def solving(self) -> bool:
        """Whether the planner is working on a problem."""
        return self._solving is not None

    def take_settings(self, config: PlanningConfig, now: float) -> None:
        """Apply settings from the next cycle on; a shorter interval applies at once."""
        if self._next_at < math.inf:
            self._next_at = min(self._next_at, now + config.interval_s)
        self._config = config

    def rests(self, now: float) -> bool:
        """Return whether the next cycle must wait.

        The rest after an answer is as long as the answer took, but at most ``MOST_REST_S``. Otherwise jobs that are
        added and removed all the time would keep a processor busy with plans."""
        return now < self._rests_until

    def period_over(self, now: float) -> bool:
        """Return whether the next periodic cycle is due."""
        return now >= self._next_at

    def supersede(self) -> None:
        """Drop the problem that is being solved, because it is outdated. The next cycle need not wait for a rest."""
        self._solving, self._rests_until = None, -math.inf

    def answer_next(self, waiter: Future[Any]) -> None:
        """Keep a request whose reply is the outcome of the next cycle that begins.

        A running cycle is finished first: otherwise no plan would be adopted while requests arrive faster than the
        planner answers."""
        self._waiters_for_next.append(waiter)

    def wait_for_plan(self, job_id: JobId) -> None:
        """Record that the job is new and gets no rules before its first plan."""
        self.unplanned |= {job_id}

    def stop_waiting(self, jobs: frozenset[JobId]) -> None:
        """Record that these jobs have rules or will not get a plan."""
        self.unplanned -= jobs

    def begin(
        self,
        snapshot: Snapshot,
        jobs: Mapping[JobId, Job],
        demand_source: Mapping[JobId, DemandSource],
        mode: Mode,
        links: Mapping[LinkId, Link],
        repairs: bool,
        lost: bool,
        now: float,
    ) -> list[Command]:
        """Begin a cycle and return its commands.

        ``snapshot``: problem of all ``jobs`` with known hosts on ``links``, of generation ``self.generation + 1``.
        ``demand_source``: source of the bytes of each job with known hosts.
        ``repairs``: whether flows with lost paths are repaired before the plan arrives.
        ``lost``: whether links were lost. Otherwise a repair only moves flows off a detour, or follows a host that
        has moved, and is not counted."""
        self._next_at = now + self._config.interval_s
        self._waiters, self._waiters_for_next = [*self._waiters, *self._waiters_for_next], []
        self.generation, self.jobs, self._links = snapshot.generation, jobs, links
        self._slowdowns_due, self._lost = True, lost
        if mode is Mode.ECMP or not any(snapshot.flows.values()):
            self.plan, self.goal, self.adopted, self.baseline_slowdowns = None, None, False, {}
            why = "the mode is ecmp" if mode is Mode.ECMP else "no job is ready to be planned"
            return [WorkOutSlowdowns(snapshot, self._config.ecmp_draws), *self._conclude("no plan", why)]
        self._solving, self._solving_source = snapshot, demand_source
        self._began_at = now
        installs = mode is Mode.PLANNED
        anew = not all(waiter.cancelled() for waiter in self._waiters)
        return [SolvePlan(snapshot, self.limits, self._config.min_gain, self.goal, installs, anew, repairs)]

    def work_out_slowdowns(self, snapshot: Snapshot) -> list[Command]:
        """Return the command that computes the slowdowns under the running routes when changed loads start no plan.

        ``snapshot``: as in ``begin``."""
        self.generation, self._slowdowns_due = snapshot.generation, True
        return [WorkOutSlowdowns(snapshot, self._config.ecmp_draws)]

    def take_slowdowns(self, slowdowns: Slowdowns) -> None:
        """Record slowdowns unless they are outdated.

        The slowdowns are those of the baselines on the newest plan's problem, or those under the running routes."""
        if slowdowns.of_scheme is not None:
            if self.plan and self.plan.generation == slowdowns.generation:
                self.baseline_slowdowns = slowdowns.of_scheme
        elif self._slowdowns_due and slowdowns.generation == self.generation:
            self.slowdowns = slowdowns

    @property
    def limits(self) -> PlanLimits:
        """Limits of the planner in every cycle, as configured."""
        config = self._config
        return PlanLimits(config.time_limit_s, config.max_moves, config.ecmp_draws)

    def take(self, planned: Planned, mode: Mode, fabric: Fabric, now: float) -> list[Command]:
        """Handle an answer of the worker and return the replies; an answer to a superseded problem is dropped."""
        snapshot, answer = self._solving, planned.answer
        if snapshot is None or answer.generation != snapshot.generation:
            return []
        if not planned.repair:
            self._rests_until = now + min(now - self._began_at, MOST_REST_S)
        if isinstance(answer, NoPlan):
            self._solving = None
            return self._conclude("no plan", answer.reason)
        lost = fabric.links is not self._links and any(
            link not in fabric.links for route in answer.routes.values() for path, _ in route for link in path
        )
        if planned.repair:
            if mode is Mode.PLANNED and not lost:
                self._take_repair(planned)
            return []
        self._solving = None
        if lost:
            return []  # a link was lost during the solve; that change starts its own cycle
        decision = planned.decision
        assert decision
        self.plan, self.adopted, self.baseline_slowdowns = answer, False, {}
        self.demand_source = self._solving_source
        self.plans_total += 1
        self.plan_at, self.plan_times = now, self.plan_times.observed(answer.times.total_ms / 1000)
        if mode is not Mode.PLANNED:
            self.goal = None
            return self._conclude("kept", f"the mode is {mode}: nothing is installed")
        self.goal = planned.goal
        if decision.adopt:
            self.moved_flows_total += answer.moves
            self._adopt(planned)
        self.adopted = self._routes.routes == answer.routes
        return self._conclude("adopted" if decision.adopt else "kept", decision.reason)

    def forget_repair(self) -> None:
        """Forget the latest repair, because routes now use more lost links."""
        self.repair = None

    def _take_repair(self, planned: Planned) -> None:
        """Adopt a repair at once; the planner compares the next plan with it."""
        if planned.repaired and self._lost:
            self.repair = Repair(planned.repaired, planned.plan.times.total_ms)
            self.repairs_total += 1
            self.repaired_flows_total += planned.repaired
        self._adopt(planned)
        self.adopted = False

    @property
    def min_gain(self) -> float:
        """Smallest relative gain in slowdown that makes moves worthwhile."""
        return self._config.min_gain

    def _adopt(self, planned: Planned) -> None:
        assert planned.slowdowns
        self._routes.replace(planned.plan.routes)
        self.slowdowns = planned.slowdowns
        self._slowdowns_due = False

    def _conclude(self, outcome: str, reason: str) -> list[Command]:
        self.cycles_done += 1
        self.unplanned = frozenset(job_id for job_id in self.unplanned if job_id not in self.jobs)
        self.reason = f"{outcome}: {reason}"
        waiters, self._waiters = self._waiters, []
        return [Reply(future, ReplanOutcome(outcome, reason, self.plan)) for future in waiters]  # type: ignore[arg-type]
