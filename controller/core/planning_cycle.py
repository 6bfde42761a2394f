"""Planning cycles, and changes of load that start one. Pure; ``now`` is monotonic seconds.

In: the background of links after each reading of counters; times of iterations; problems; the planner's answers, each
with the decision whether to adopt the plan. Out: whether a plan or new slowdowns are due; ``SolvePlan`` commands; new
running routes from a repair or an adopted plan; replies to requests for a plan.

A plan starts when background appears on links with pinned flows, or when a job becomes slower. When background ends,
only the slowdowns are computed again; the next periodic cycle uses the free capacity.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from concurrent.futures import Future
from statistics import median
from typing import Any

from controller.config import PlanningConfig
from controller.core.messages import Command, Reply
from controller.demand.job_demand import DemandSource
from controller.fabric.topology import Fabric, Host, Link, LinkId
from controller.jobs.job import Job
from controller.planning.messages import ReplanOutcome, SolvePlan, WorkOutSlowdowns
from controller.planning.plan import GoalPlanLeft, NoPlan, Plan, Planned, Slowdowns
from controller.planning.problem import PlanLimits, Routes, SharingRules
from controller.planning.snapshot import Snapshot, left_bps
from controller.shared_map import Histogram, differing
from controller.status import Repair
from controller.tables.running_routes import RunningRoutes
from signalbox.jobs.spec import JobId
from signalbox.words import Mode

RISE = 1.1
"""Factor by which background must slow down the flows on a link, compared with the latest plan, to start a plan."""

SHOWN = 1.03
"""Factor by which a change of background must slow down or speed up flows, for slowdowns to be computed again."""

SLOWER = 1.3
"""Factor by which the communication time of an iteration must exceed the usual one for the iteration to count as
slow."""

LATEST = 3
"""Number of latest iterations that are compared with the usual time. The job is slower if all but one are slow."""

FEWEST_BEFORE = 3
"""Smallest number of earlier iterations from which the usual communication time is computed."""

FIRST_REST_S = 1.5
"""Smallest number of seconds between two plans that are started by changed loads.

The pause doubles with each plan that changed loads start, up to the interval of periodic plans. After one interval
without such a plan, the pause is ``FIRST_REST_S`` again. Recurring bursts thus do not keep the planner busy."""


class LoadEvents:
    """Detector of changed loads that start a plan: it compares loads with those of the latest plan."""

    def __init__(self) -> None:
        self._planned_bps: Mapping[LinkId, float] = {}
        self._shown_bps: Mapping[LinkId, float] = {}
        self._has_slowed = False
        self._senders: frozenset[LinkId] = frozenset()
        self._started_at = -math.inf
        self._rest_s = FIRST_REST_S

    def plan_begins(self, background_bps: Mapping[LinkId, float]) -> None:
        """Record the background with which the new plan is made."""
        self._planned_bps = self._shown_bps = background_bps
        self._has_slowed = False

    def look_again(self, senders: frozenset[LinkId]) -> bool:
        """Return whether counters should be read again soon, because ``senders`` has a new link.

        ``senders``: links on which hosts send more bytes than counting rules count. The first reading of new traffic
        shows too low a rate, since it also covers idle time. Called once per regular reading."""
        before, self._senders = self._senders, senders
        return not senders <= before

    def slowed(self) -> None:
        """Record that a job has become slower, so that the next reading of counters starts a plan."""
        self._has_slowed = True

    def start_plan(
        self,
        background_bps: Mapping[LinkId, float],
        capacity_bps: Mapping[LinkId, float],
        carrying: Container[LinkId],
        period_s: float,
        now: float,
    ) -> bool:
        """Return whether changed loads make a plan due. Called once per reading of counters.

        ``carrying``: links that pinned flows use. ``period_s``: seconds between two periodic plans."""
        rises = _rises(self._planned_bps, background_bps, capacity_bps, carrying)
        risen = self._has_slowed or any(rise >= RISE for rise in rises)
        if not risen or now < self._started_at + self._rest_s:
            return False
        self._rest_s = min(2 * self._rest_s, period_s) if now < self._started_at + period_s else FIRST_REST_S
        self._started_at = now
        return True

    def show(
        self,
        background_bps: Mapping[LinkId, float],
        capacity_bps: Mapping[LinkId, float],
        routed: Container[LinkId],
        jobs: Mapping[JobId, Job],
        hosts: Mapping[str, Host],
    ) -> bool:
        """Return whether the published slowdowns must be computed again, because background has changed.

        ``routed``: links that pinned flows of the ``jobs`` use."""
        carrying = _links_of_flows({**self._shown_bps, **background_bps}, routed, jobs, hosts)
        rises = _rises(self._shown_bps, background_bps, capacity_bps, carrying)
        if all(1 / SHOWN < rise < SHOWN for rise in rises):
            return False
        self._shown_bps = background_bps
        return True


def _rises(
    before_bps: Mapping[LinkId, float],
    now_bps: Mapping[LinkId, float],
    capacity_bps: Mapping[LinkId, float],
    carrying: Container[LinkId],
) -> Iterator[float]:
    """Yield, for each link in ``carrying``, the factor by which the changed background makes flows slower."""
    for link in {**before_bps, **now_bps}:
        if link in carrying and link in capacity_bps:
            before, now = (left_bps(capacity_bps[link], bps.get(link, 0.0)) for bps in (before_bps, now_bps))
            yield before / now


def _links_of_flows(
    links: Collection[LinkId], routed: Container[LinkId], jobs: Mapping[JobId, Job], hosts: Mapping[str, Host]
) -> frozenset[LinkId]:
    """Return the given links that are in ``routed``, or lead to or from a host of one of the jobs."""
    others = {link for link in links if link not in routed}
    at = {ip: host.at for ip, host in hosts.items() if {host.uplink, host.downlink} & others} if others else {}
    used = {ip for job in jobs.values() for ip in at.keys() & job.virtual_links.addresses} if at else set[str]()
    ports = {at[ip] for ip in used}
    return frozenset(link for link in links if link in routed or link.at in ports)


def has_slowed(recent_s: Sequence[float], new: int) -> bool:
    """Return whether communication has become slow at one of the latest ``new`` iterations.

    At such an iteration the job counts as slower (``SLOWER``, ``LATEST``); at the iteration before, the job did not.

    ``recent_s``: communication times, oldest first, of iterations on the same routes with the same bytes."""
    counts = range(max(len(recent_s) - new, 0) + 1, len(recent_s) + 1)
    return any(_is_slow(recent_s[:count]) and not _is_slow(recent_s[: count - 1]) for count in counts)


def _is_slow(times_s: Sequence[float]) -> bool:
    before, latest = times_s[:-LATEST], times_s[-LATEST:]
    if len(before) < FEWEST_BEFORE:
        return False
    usual_s = median(before)
    return sum(time_s >= SLOWER * usual_s for time_s in latest) >= LATEST - 1


MOST_REST_S = 2.0
"""Longest pause in seconds after an answer of the planner, before the next cycle."""


class PlanningCycle:
    """State of the planning cycle and the newest plan."""

    def __init__(self, config: PlanningConfig, routes: RunningRoutes, sharing: SharingRules) -> None:
        self._config, self._sharing = config, sharing
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

        New jobs get no rules yet, because the first plan would soon replace the rules."""
        self.generation = 0
        """Number of the latest problem."""
        self.slowdowns = Slowdowns(0)
        """Slowdowns of jobs under the running routes, as of the last cycle."""
        self.plan: Plan | None = None
        """The newest plan, adopted or not."""
        self.goal: GoalPlanLeft | None = None
        """Goal plan, which needs more moves than one cycle may make; the adopted plans approach the goal plan step by
        step."""
        self.demand_source: Mapping[JobId, DemandSource] = {}
        """Source of the bytes for which the newest plan was made, by job."""
        self._solving_source: Mapping[JobId, DemandSource] = {}
        self.baseline_slowdowns: Mapping[str, float] = {}
        """Slowdown of each baseline on the problem of the plan; empty until the slowdowns are known."""
        self.adopted = False
        """Whether the running routes are the routes of the newest plan."""
        self.reason = ""
        """Text with the decision on the newest plan, and the reason."""
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
        return self._solving is not None

    def take_settings(self, config: PlanningConfig, now: float) -> None:
        """Apply settings to the next cycle; a shorter interval applies at once."""
        if self._next_at < math.inf:
            self._next_at = min(self._next_at, now + config.interval_s)
        self._config = config

    def must_pause(self, now: float) -> bool:
        """Return whether the pause after the last answer of the planner is not over.

        The pause is as long as the answer took, at most ``MOST_REST_S``. Without pauses, jobs that are added and
        removed all the time would keep a processor busy."""
        return now < self._rests_until

    def period_over(self, now: float) -> bool:
        """Return whether the next periodic cycle is due."""
        return now >= self._next_at

    def supersede(self) -> None:
        """Drop the problem that is being solved, because it is outdated. The next cycle may begin without a pause."""
        self._solving, self._rests_until = None, -math.inf

    def answer_next(self, waiter: Future[Any]) -> None:
        """Keep a request for a plan, whose reply is the outcome of the next cycle to begin.

        The running cycle is not interrupted. Otherwise frequent requests would prevent any plan."""
        self._waiters_for_next.append(waiter)

    def wait_for_plan(self, job_id: JobId) -> None:
        """Record that the job is new and gets no rules before its first plan."""
        self.unplanned |= {job_id}

    def stop_waiting(self, jobs: frozenset[JobId]) -> None:
        """Record that these jobs need not wait for a plan any longer."""
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
        is_claimed: bool,
        now: float,
    ) -> list[Command]:
        """Begin a cycle and return its commands.

        ``snapshot``: problem of all ``jobs`` with known hosts on ``links``, of generation ``self.generation + 1``.
        ``demand_source``: source of the bytes of each job with known hosts. ``repairs``: whether flows with lost paths
        are repaired before the plan arrives. ``lost``: whether links were lost. If no link was lost, a repair only
        moves flows off a detour, or to the new place of a host. The status does not count such a repair.
        ``is_claimed``: whether this process has the claim of the state. Without claim, only repairs are installed."""
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
        installs = mode is Mode.PLANNED and is_claimed
        anew = not all(waiter.cancelled() for waiter in self._waiters)
        return [SolvePlan(snapshot, self.limits, self._config.min_gain, self.goal, installs, anew, repairs)]

    def work_out_slowdowns(self, snapshot: Snapshot) -> list[Command]:
        """Return the command that computes the slowdowns under the running routes, for changes that start no plan.

        ``snapshot``: as in ``begin``."""
        self.generation, self._slowdowns_due = snapshot.generation, True
        return [WorkOutSlowdowns(snapshot, self._config.ecmp_draws)]

    def take_slowdowns(self, slowdowns: Slowdowns) -> None:
        """Record slowdowns unless they are outdated.

        ``slowdowns``: of the running routes, or of each baseline on the problem of the newest plan."""
        if slowdowns.of_scheme is not None:
            if self.plan and self.plan.generation == slowdowns.generation:
                self.baseline_slowdowns = slowdowns.of_scheme
        elif self._slowdowns_due and slowdowns.generation == self.generation:
            self.slowdowns = slowdowns

    @property
    def limits(self) -> PlanLimits:
        """Limits of the planner in every cycle, as configured."""
        config = self._config
        return PlanLimits(config.time_limit_s, config.max_moves, config.ecmp_draws, sharing=self._sharing)

    def handle_answer(
        self, planned: Planned, mode: Mode, is_claimed: bool, fabric: Fabric, now: float
    ) -> list[Command]:
        """Handle an answer of the planning process and return the replies. Answers to superseded problems are dropped.

        ``is_claimed``: see ``begin``."""
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
        self.goal = planned.goal if is_claimed else None
        if decision.adopt and is_claimed:
            self.moved_flows_total += answer.moves
            self._adopt(planned)
        self.adopted = _holds(self._routes.routes, answer.routes)
        if not is_claimed:
            return self._conclude("kept", "another controller may be active, so only lost paths are replaced")
        return self._conclude("adopted" if decision.adopt else "kept", decision.reason)

    def forget_repair(self) -> None:
        """Forget the latest repair, because routes now use more lost links."""
        self.repair = None

    def _take_repair(self, planned: Planned) -> None:
        if planned.repaired and self._lost:
            self.repair = Repair(planned.repaired, planned.plan.times.total_ms)
            self.repairs_total += 1
            self.repaired_flows_total += planned.repaired
        self._adopt(planned)
        self.adopted = False

    @property
    def min_gain(self) -> float:
        """Smallest relative reduction of the slowdown for which flows are moved."""
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


def _holds(running: Routes, planned: Routes) -> bool:
    """Return whether the running routes are the planned ones, apart from flows inside a leaf, which have no pins."""
    return all(
        was == route or (was is None and route is not None and not any(path for path, _ in route))
        for _, was, route in differing(running, planned)
    )
