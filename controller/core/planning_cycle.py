"""One planning cycle after another: which problem is being solved, and what becomes of the answers.

In: problems, the worker's answers with the decisions on them. Out: ``SolvePlan`` commands, new running routes when a
repair comes or a plan is worth its moves, and replies to those who asked for a plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from controller.config import PlanningConfig
from controller.core.messages import Command, Reply
from controller.fabric.topology import Fabric, Link, LinkId
from controller.histogram import Histogram
from controller.jobs.demand import DemandSource
from controller.jobs.job import Job
from controller.planning.messages import Planned, ReplanOutcome, SolvePlan, WorkOutLevels
from controller.planning.plan import NoPlan, Plan, TargetLeft
from controller.planning.planned import Levels
from controller.planning.problem import PlanLimits, Snapshot
from controller.status import Repair
from controller.tables.running_routes import RunningRoutes
from signalbox.jobs.spec import JobId
from signalbox.words import Strategy

MOST_REST_S = 2.0


class PlanningCycle:
    """``levels``: of jobs under the running routes, as of the last cycle. ``plan``: the newest plan, adopted or not.
    ``target``: a plan with more moves than a cycle may make: the adopted plans lead there.
    ``plan_at``: monotonic seconds when it came; ``plan_times``: seconds that each plan took.
    ``baseline_levels``: of other schemes on the plan's problem, empty until they are known. ``adopted``: the running
    routes are those of the plan. ``demand_source``: which bytes of each job the plan was made for. ``reason``: what
    became of the newest plan, and why. ``repair``: the latest one. ``unplanned``: new jobs until their first cycle is
    over; rules that only count their flows would be replaced by pins in a moment. ``generation``: of the latest
    problem; ``jobs``: all that there were then."""

    def __init__(self, config: PlanningConfig, routes: RunningRoutes) -> None:
        self._config = config
        self._routes = routes
        self._solving: Snapshot | None = None
        self._links: Mapping[LinkId, Link] = {}
        self._levels_due = False
        self._lost = False
        self.jobs: Mapping[JobId, Job] = {}
        self._waiters: list[Future[Any]] = []
        self._waiters_for_next: list[Future[Any]] = []
        self._next_at = math.inf
        self._began_at = 0.0
        self._rests_until = -math.inf
        self.unplanned: frozenset[JobId] = frozenset()
        self.generation = 0
        self.levels = Levels(0)
        self.plan: Plan | None = None
        self.target: TargetLeft | None = None
        self.demand_source: Mapping[JobId, DemandSource] = {}
        self._solving_source: Mapping[JobId, DemandSource] = {}
        self.baseline_levels: Mapping[str, float] = {}
        self.adopted = False
        self.reason = ""
        self.cycles_done = 0
        self.plans_total = 0
        self.plan_at: float | None = None
        self.plan_times = Histogram()
        self.moved_flows_total = 0
        self.repair: Repair | None = None
        self.repairs_total = 0
        self.repaired_flows_total = 0

    @property
    def solving(self) -> bool:
        """An answer is awaited."""
        return self._solving is not None

    def take_settings(self, config: PlanningConfig, now: float) -> None:
        """They count from the next cycle on; a shorter interval at once."""
        if self._next_at < math.inf:
            self._next_at = min(self._next_at, now + config.interval_s)
        self._config = config

    def rests(self, now: float) -> bool:
        """After an answer there is no other cycle for as long as that took, ``MOST_REST_S`` at most: jobs that come and
        go all the time would else keep a processor busy with plans."""
        return now < self._rests_until

    def period_over(self, now: float) -> bool:
        """The next periodic cycle is due."""
        return now >= self._next_at

    def supersede(self) -> None:
        """The network has changed: the answer to the problem that is being solved is not awaited any more, and the next
        cycle need not rest."""
        self._solving, self._rests_until = None, -math.inf

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
        self,
        snapshot: Snapshot,
        jobs: Mapping[JobId, Job],
        demand_source: Mapping[JobId, DemandSource],
        strategy: Strategy,
        links: Mapping[LinkId, Link],
        repairs: bool,
        lost: bool,
        now: float,
    ) -> list[Command]:
        """``snapshot``: of all ``jobs`` whose hosts are known, on these ``links``, with generation ``self.generation +
        1``. ``demand_source``: of the jobs whose hosts are known. ``repairs``: flows whose paths have gone
        are repaired before the plan comes. ``lost``: because links were lost; flows that leave a detour, or follow a
        host that has moved, are no repair that counts."""
        self._next_at = now + self._config.interval_s
        self._waiters, self._waiters_for_next = [*self._waiters, *self._waiters_for_next], []
        self.generation, self.jobs, self._links = snapshot.generation, jobs, links
        self._levels_due, self._lost = True, lost
        if strategy is Strategy.ECMP or not any(snapshot.flows.values()):
            self.plan, self.target, self.adopted, self.baseline_levels = None, None, False, {}
            why = "the strategy is ecmp" if strategy is Strategy.ECMP else "no job is ready to be planned"
            return [WorkOutLevels(snapshot, self._config.ecmp_draws), *self._conclude("no plan", why)]
        self._solving, self._solving_source = snapshot, demand_source
        self._began_at = now
        installs = strategy is Strategy.PLANNED
        anew = not all(waiter.cancelled() for waiter in self._waiters)
        return [SolvePlan(snapshot, self.limits, self._config.min_gain, self.target, installs, anew, repairs)]

    def work_out_levels(self, snapshot: Snapshot) -> list[Command]:
        """Return what asks for the levels of the running routes, when loads are others and nothing is planned.
        ``snapshot``: as for ``begin``."""
        self.generation, self._levels_due = snapshot.generation, True
        return [WorkOutLevels(snapshot, self._config.ecmp_draws)]

    def take_levels(self, levels: Levels) -> None:
        """Take those of the running routes as long as no others have been adopted, and those of published schemes for
        the newest plan."""
        if levels.of_scheme is not None:
            if self.plan and self.plan.generation == levels.generation:
                self.baseline_levels = levels.of_scheme
        elif self._levels_due and levels.generation == self.generation:
            self.levels = levels

    @property
    def limits(self) -> PlanLimits:
        """Of every cycle."""
        config = self._config
        return PlanLimits(config.time_limit_s, config.max_moves, config.ecmp_draws)

    def take(self, planned: Planned, strategy: Strategy, fabric: Fabric, now: float) -> list[Command]:
        """The worker's answer; one for a problem that is not awaited any more is dropped."""
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
            if strategy is Strategy.PLANNED and not lost:
                self._take_repair(planned)
            return []
        self._solving = None
        if lost:
            return []  # a link was lost while the problem was solved: that change has its own cycle
        decision = planned.decision
        assert decision
        self.plan, self.adopted, self.baseline_levels = answer, False, {}
        self.demand_source = self._solving_source
        self.plans_total += 1
        self.plan_at, self.plan_times = now, self.plan_times.observed(answer.times.total_ms / 1000)
        if strategy is not Strategy.PLANNED:
            self.target = None
            return self._conclude("kept", f"the strategy is {strategy}: nothing is installed")
        self.target = planned.target
        if decision.adopt:
            self.moved_flows_total += answer.moves
            self._adopt(planned)
        self.adopted = self._routes.routes == answer.routes
        return self._conclude("adopted" if decision.adopt else "kept", decision.reason)

    def forget_repair(self) -> None:
        """Routes use more lost links: the latest repair is not the answer to these."""
        self.repair = None

    def _take_repair(self, planned: Planned) -> None:
        """Adopt it at once; the plan that follows is compared with it."""
        if planned.repaired and self._lost:
            self.repair = Repair(planned.repaired, planned.plan.times.total_ms)
            self.repairs_total += 1
            self.repaired_flows_total += planned.repaired
        self._adopt(planned)
        self.adopted = False

    @property
    def min_gain(self) -> float:
        """Relative gain of levels that makes moves worth it."""
        return self._config.min_gain

    def _adopt(self, planned: Planned) -> None:
        assert planned.levels
        self._routes.replace(planned.plan.routes)
        self.levels = planned.levels
        self._levels_due = False

    def _conclude(self, outcome: str, reason: str) -> list[Command]:
        self.cycles_done += 1
        self.unplanned = frozenset(job_id for job_id in self.unplanned if job_id not in self.jobs)
        self.reason = f"{outcome}: {reason}"
        waiters, self._waiters = self._waiters, []
        return [Reply(future, ReplanOutcome(outcome, reason, self.plan)) for future in waiters]  # type: ignore[arg-type]
