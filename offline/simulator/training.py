"""Training of many jobs on one fabric: they compute, run their rings, and share links (docs/explanation/simulator.md).

In: the jobs of a workload, the fabric as the planner's problem, one for each state of the fabric over time, and a
scheme that routes. Out: when the all-reduce of each iteration began and how long it took. Data parallelism is modelled
as in the simulator of arXiv 2503.05324. A job leaves after the requested number of iterations.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
from statistics import fmean
from typing import NamedTuple

from controller.public.plans import GoalPlan
from controller.public.problems import Flow, FlowId, PathShare, PlanLimits, Problem, Route, flow_ids
from offline.scenarios.workloads import WorkloadJob
from offline.simulator.fluid import Fluid
from offline.simulator.options import CYCLE_S, GAINED_WEIGHT, LEAST_WEIGHT, PARTS, Options, Replan, Sharing
from offline.simulator.routing import Routing, Scheme
from offline.simulator.slots import Waits
from signalbox.jobs.collectives import VirtualLink
from signalbox.jobs.spec import JobId, Striping


class Stage(NamedTuple):
    """State of the fabric from ``from_s`` on."""

    from_s: float
    problem: Problem


class Iteration(NamedTuple):
    """All-reduce of one iteration: its start and its duration in seconds, without computing between its parts."""

    start_s: float
    all_reduce_s: float


@dataclass(frozen=True, slots=True)
class JobTimes:
    """Iterations of a job and their slowdowns."""

    job_id: JobId
    ideal_s: float
    """Ideal time of the job's all-reduce in seconds."""
    iterations: tuple[Iteration, ...]
    cut_off: bool
    """True if a failure left a flow of the job without a path, which stopped the job."""

    @property
    def slowdowns(self) -> tuple[float, ...]:
        """Slowdown of each iteration: the time of the slowest ring / the ideal time."""
        return tuple(iteration.all_reduce_s / self.ideal_s for iteration in self.iterations)

    @property
    def mean_slowdown(self) -> float | None:
        """Mean of the slowdowns over the iterations; None without iterations."""
        return fmean(self.slowdowns) if self.iterations else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a simulation."""

    jobs: tuple[JobTimes, ...]
    plans: int
    """Number of plans that the scheme made."""
    adopted: int
    """Number of plans that changed a route."""
    moves: int
    """Number of times that a flow with a route got another route."""
    end_s: float
    """Time in seconds when the last job left."""

    @property
    def mean_slowdown(self) -> float | None:
        """Mean of the mean slowdowns of all jobs that ran an iteration; None if no job ran an iteration."""
        means = [mean for job in self.jobs if (mean := job.mean_slowdown) is not None]
        return fmean(means) if means else None


def simulate(
    stages: Sequence[Stage],
    jobs: Sequence[WorkloadJob],
    scheme: Scheme,
    options: Options,
    live: PlanLimits | None = None,
) -> Outcome:
    """Simulate the training of the jobs.

    - ``stages``: states of the fabric in the order of time; the first begins at 0. Each problem has the flows of all
      jobs. Links may fail and be repaired from stage to stage, but capacities never change.
    - ``live``: limits of the controller's own cycles, which replace the scheme with ``Replan.HYSTERESIS``."""
    return _Simulation(stages, jobs, scheme, options, live).run()


@dataclass(slots=True, eq=False)
class _Line:
    """Bits of one flow that are sent together, and the connections for them.

    With a common queue, the bits are those of all subflows of one pair."""

    ring: _Ring
    flows: tuple[FlowId, ...]
    weight: float
    step_bits: float
    nics: tuple[int, int]
    connections: list[int] = field(default_factory=list)
    shares: tuple[float, ...] = ()
    """Share of the line's bits for each connection that does not take them from a common queue."""
    helpers: Sequence[int] = ()
    """Connections that take bits from the queue of the first connection."""
    unfinished: int = 0


@dataclass(slots=True, eq=False)
class _Ring:
    job: _Job
    steps: int
    part: int
    lines: list[_Line] = field(default_factory=list)
    unfinished: int = 0
    left: int = 0
    """Number of steps to do in this iteration, including the running step."""


@dataclass(slots=True, eq=False)
class _Job:
    spec: WorkloadJob
    rings: list[_Ring] = field(default_factory=list)
    unfinished: int = 0
    """Number of rings at work; 0 while the job computes."""
    part: int = 0
    """Index of the part of the iteration that is running."""
    began_s: float = 0.0
    paused_s: float = 0.0
    """Computing between the parts of this iteration."""
    iterations: list[Iteration] = field(default_factory=list)
    chance: random.Random = field(default_factory=random.Random)
    cut_off: bool = False

    @property
    def running(self) -> list[_Ring]:
        return [ring for ring in self.rings if ring.part == self.part]

    @property
    def lines(self) -> Iterator[_Line]:
        return (line for ring in self.rings for line in ring.lines)

    @property
    def flows(self) -> Iterator[FlowId]:
        return (flow for line in self.lines for flow in line.flows)


class _Simulation:
    def __init__(
        self,
        stages: Sequence[Stage],
        jobs: Sequence[WorkloadJob],
        scheme: Scheme,
        options: Options,
        live: PlanLimits | None,
    ) -> None:
        capacity_bps = {link: bps for _, problem in stages for link, bps in problem.capacity_bps.items()}
        self._number = {link: number for number, link in enumerate(capacity_bps)}
        self._fluid = Fluid([*capacity_bps.values()], options.floor)
        self._options = options
        self._routing = Routing(scheme, options.replan, options.min_gain, options.seed, live)
        self._problem = stages[0].problem
        self._lines_of: defaultdict[FlowId, list[_Line]] = defaultdict(list)
        self._line_of: list[_Line] = []
        self._jobs = [self._build(job) for job in jobs]
        self._waits = Waits({job.id: job.slot for job in jobs if job.slot}, options.max_wait)
        self._training: dict[JobId, _Job] = {}
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._before_s = 0.0
        for from_s, problem in stages[1:]:
            self._schedule(from_s, partial(self._change_links, problem))
        for job in self._jobs:
            start_s = job.spec.slot.start_s if job.spec.slot else job.spec.start_s
            self._schedule(start_s, partial(self._communicate, job))

    def run(self) -> Outcome:
        self._change_links(self._problem)
        if self._routing.mode is Replan.NEVER:
            self._route(self._routing.replan(self._of_jobs(job for job in self._jobs if not job.cut_off), 0.0))
        while any(len(job.iterations) < self._options.iterations and not job.cut_off for job in self._jobs):
            before_s = self._fluid.now_s
            if done := self._fluid.advance(self._agenda[0][0] if self._agenda else math.inf):
                self._before_s = before_s
                self._handle_done(done)
            else:
                heapq.heappop(self._agenda)[2]()
        times = (JobTimes(j.spec.id, j.spec.ideal_s, tuple(j.iterations), j.cut_off) for j in self._jobs)
        routing = self._routing
        return Outcome(tuple(times), routing.plans, routing.adopted, routing.moves, self._fluid.now_s)

    # ---- events

    def _communicate(self, job: _Job) -> None:
        if job.cut_off:
            return
        self._training[job.spec.id] = job
        job.began_s = self._waits.begun_s[job.spec.id] = self._fluid.now_s
        self._begin(job, 0)

    def _begin(self, job: _Job, part: int) -> None:
        if job.cut_off:
            return
        job.part = part
        job.unfinished = len(job.running)
        self._replan(job)
        for ring in job.running:
            ring.left = ring.steps
            self._step(ring)

    def _step(self, ring: _Ring) -> None:
        ring.unfinished = len(ring.lines)
        for line in ring.lines:
            self._send(line, line.step_bits)

    def _send(self, line: _Line, bits: float) -> None:
        line.unfinished = len(line.shares)
        if self._options.sharing is Sharing.MLTCP:
            ring = line.ring
            sent = (ring.part + 1 - ring.left / ring.steps) / (1 + max(of.part for of in ring.job.rings))
            for connection in line.connections:
                self._fluid.weigh(connection, LEAST_WEIGHT + GAINED_WEIGHT * sent)
        for connection, share in zip(line.connections, line.shares, strict=False):
            self._fluid.start(connection, bits * share, line.helpers)

    def _handle_done(self, done: Iterable[int]) -> None:
        """Handle connections that are done.

        If several connections are done at the same time, all of them are ended before any next step begins. So a plan
        that is made now counts only flows that still send."""
        lines = [self._line_of[connection] for connection in done]
        finished: list[_Ring] = []
        for line in lines:
            line.unfinished -= 1
            if not line.unfinished:
                line.ring.unfinished -= 1
                if not line.ring.unfinished:
                    finished.append(line.ring)
        for ring in finished:
            ring.left -= 1
            if ring.left:
                self._step(ring)
                continue
            ring.job.unfinished -= 1
            if not ring.job.unfinished and ring.part < max(of.part for of in ring.job.rings):
                self._begin_next(ring.job, ring.part + 1)
            elif not ring.job.unfinished:
                self._iteration_done(ring.job)

    def _begin_next(self, job: _Job, part: int) -> None:
        if pause_s := job.spec.pauses_s[part - 1] * self._factor(job) if job.spec.pauses_s else 0.0:
            job.paused_s += pause_s
            self._schedule(self._fluid.now_s + pause_s, partial(self._begin, job, part))
        else:
            self._begin(job, part)

    def _factor(self, job: _Job) -> float:
        return job.spec.variation.factor(len(job.iterations), job.chance)

    def _iteration_done(self, job: _Job) -> None:
        now_s = self._fluid.now_s
        job.iterations.append(Iteration(job.began_s, now_s - job.began_s - job.paused_s))
        job.paused_s = 0.0
        if len(job.iterations) == self._options.iterations:
            del self._training[job.spec.id]
        else:
            pause_s = job.spec.compute_s * self._factor(job) + self._waits.of(job.spec.id)
            self._schedule(now_s + pause_s, partial(self._communicate, job))
        self._replan(None)

    def _change_links(self, problem: Problem) -> None:
        """Apply failures or repairs of links; switches fail over and the controller plans at once."""
        self._problem = problem
        for job in self._jobs:
            if not all(map(problem.candidates, self._of_jobs([job]).flows)):
                self._cut_off(job)
        if self._training:
            self._route(self._routing.fail_over(self._of_jobs(self._training.values())))
            self._replan(None)

    def _cut_off(self, job: _Job) -> None:
        job.cut_off = True
        job.unfinished = 0
        self._training.pop(job.spec.id, None)
        for line in job.lines:
            line.unfinished = 0
            for connection in line.connections:
                self._fluid.stop(connection)

    # ---- routes

    def _replan(self, beginner: _Job | None) -> None:
        """Plan anew. ``beginner``: job that is about to send."""
        mode = self._routing.mode
        if mode is Replan.NEVER:
            self._route(self._routing.fail_over(self._of_jobs([beginner] if beginner else [])))
            return
        if mode is Replan.HYSTERESIS:
            problem = self._of_jobs(self._training.values())
        else:
            sending = (line for job in self._training.values() for line in job.lines if line.unfinished)
            lines = chain(sending, (line for ring in beginner.running for line in ring.lines) if beginner else ())
            problem = self._problem_of_flows(flow for line in lines for flow in line.flows)
        if problem.flows:
            lose = self._options.lose_sent and not beginner
            self._route(self._routing.replan(problem, self._fluid.now_s), self._before_s if lose else math.inf)
            goal = self._routing.goal
            if goal and not goal.blocked:
                self._schedule(self._fluid.now_s + CYCLE_S, partial(self._continue_towards, goal))

    def _continue_towards(self, goal: GoalPlan) -> None:
        if self._routing.goal is goal:
            self._replan(None)

    def _of_jobs(self, jobs: Iterable[_Job]) -> Problem:
        return self._problem_of_flows(flow for job in jobs for flow in job.flows)

    def _problem_of_flows(self, flows: Iterable[FlowId]) -> Problem:
        wanted = set(flows)
        return replace(self._problem, flows=tuple(flow for flow in self._problem.flows if flow.id in wanted))

    def _route(self, changed: Iterable[FlowId], sent_until_s: float = math.inf) -> None:
        """Put flows on their new routes.

        The bits that a flow still has to send in its present step are divided by the shares of the new route. Bits that
        a flow sent after ``sent_until_s`` are lost: it sends them again."""
        for line in dict.fromkeys(chain.from_iterable(self._lines_of[flow] for flow in changed)):
            left = sum(self._fluid.stop(connection, sent_until_s) for connection in line.connections)
            subflows = tuple(subflow for flow in line.flows for subflow in self._routing.routes[flow])
            striping = line.ring.job.spec.striping
            ways = [subflows] if striping is Striping.PACED else [(PathShare(path, 1.0),) for path, _ in subflows]
            while len(line.connections) < len(ways):
                line.connections.append(self._fluid.connect(dict.fromkeys(line.nics, 1.0)))
                self._line_of.append(line)
            queue = striping is Striping.COMMON_QUEUE
            line.helpers = line.connections[1 : len(ways)] if queue else ()
            line.shares = (1.0,) if queue or len(ways) == 1 else tuple(share for _, share in subflows)
            weighted = self._options.sharing is Sharing.WEIGHTED and not queue
            parts = line.shares if weighted else (1.0,) * len(ways)
            for connection, way, part in zip(line.connections, ways, parts, strict=False):
                self._fluid.route(connection, self._uses(line, way), part * line.weight, line.ring.job.spec.rank)
            if line.unfinished:
                self._send(line, left)

    def _uses(self, line: _Line, subflows: Route) -> dict[int, float]:
        """Return for each link the fraction of the line's bits that crosses it."""
        uses = dict.fromkeys(line.nics, 1.0)
        for path, share in subflows:
            for link in path:
                number = self._number[link]
                uses[number] = uses.get(number, 0.0) + share
        return uses

    def _schedule(self, time_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (time_s, next(self._order), action))

    def _build(self, spec: WorkloadJob) -> _Job:
        job = _Job(spec, chance=random.Random(f"{self._options.seed} {spec.id}"))
        flows = {flow.id: flow for flow in self._problem.flows}
        steps = spec.steps or [2 * (len(members) - 1) for members in spec.rings]
        for members, of_ring, part in zip(spec.rings, steps, spec.parts or (0,) * len(steps), strict=True):
            if self._options.sharing is Sharing.MLTCP:
                of_ring *= -(-PARTS // of_ring)  # a weight is renewed after each step
            ring = _Ring(job, of_ring, part)
            for link in (spec.virtual_links[member] for member in members):
                ring.lines += self._lines(ring, link, flows)
            job.rings.append(ring)
        return job

    def _lines(self, ring: _Ring, link: VirtualLink, flows: Mapping[FlowId, Flow]) -> Iterator[_Line]:
        dividing, pair = ring.job.spec.dividing, (link.src_ip, link.dst_ip)
        ids, parts = flow_ids(dividing, pair), dividing.subflows(pair).weights
        together = [ids] if dividing.striping is Striping.COMMON_QUEUE else [(one,) for one in ids]
        for of, part in zip(together, (1.0,) if len(together) == 1 else parts, strict=True):
            flow = flows[of[0]]
            nics = self._number[flow.nic_links[0]], self._number[flow.nic_links[1]]
            weight = max(bps for _, bps in flow.demand_bps) if self._options.sharing is Sharing.WEIGHTED else 1.0
            line = _Line(ring, of, weight, part * 8 * link.bytes / ring.steps, nics)
            for flow_id in of:
                self._lines_of[flow_id].append(line)
            yield line
