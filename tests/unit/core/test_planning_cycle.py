"""Times of plans, loads that start a plan, and which answers of the planner are used and published."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar

import pytest

from controller.core.messages import Command, Message
from controller.core.planning_cycle import LoadEvents, has_slowed
from controller.fabric.topology import Dpid, Host, LinkId, PortNo, PortRef
from controller.jobs.messages import DeregisterJob, RegisterJob, ReportIterations, UpdateJob
from controller.planning.efficiency import SLOWDOWN_TOLERANCE, first_difference, job_slowdowns
from controller.planning.messages import ModeSet, Replan, ReplanOutcome, SetMode, SolvePlan
from controller.planning.plan import Planned, decided
from controller.planning.problem import FlowId
from controller.tables.rules import FlowRule, host_prefix
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.words import Mode
from tests.support.busy_fabric import COUNTERS, STEP_S, BusyFabric, Ring
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric, ring_job
from tests.support.late_answers import LateAnswers, SlowSolver
from tests.support.long_cases import with_long
from tests.support.three_rings import CONFIG, RINGS, register, started

JOB0 = JobId("job0")


@pytest.mark.parametrize("mode", [Mode.SHADOW, Mode.PLANNED])
def test_a_job_that_registers_again_as_it_was_has_its_slowdown_again(mode: Mode) -> None:
    """The flows stay within a leaf, so no plan pins any of them; and the planner gets the same request as before."""
    fabric = started(FakeFabric())
    fabric.send(SetMode(mode))
    for _ in range(2):
        fabric.send(RegisterJob(ring_job("near", ["10.0.1.1", "10.0.1.2"])))
        fabric.run(3)
        assert fabric.status.jobs[JobId("near")].slowdown == 1
        fabric.send(DeregisterJob(JobId("near")))
        fabric.run(3)


def test_a_problem_that_takes_longer_than_the_period_is_waited_for() -> None:
    fabric = started(SlowSolver())
    register(fabric, 0)
    fabric.run(3 * CONFIG.planning.interval_s, step=0.5)
    assert len(fabric.asked) == 1
    fabric.solve()
    fabric.run(CONFIG.planning.interval_s + 1, step=0.5)
    assert len(fabric.asked) > 1


def test_after_a_plan_the_loop_has_as_long_for_itself_as_the_plan_took_but_not_when_routes_are_lost() -> None:
    fabric = started(SlowSolver())
    register(fabric, 0)
    fabric.run(1.5)
    fabric.solve()
    asked = len(fabric.asked)
    register(fabric, 1)
    fabric.run(0.7)
    assert len(fabric.asked) == asked, "the first took more than a second"
    fabric.run(1)
    assert len(fabric.asked) == asked + 1
    fabric.run(0.5)
    fabric.solve()
    path = next(route[0].path for route in fabric.job("job0").routes.values() if route and route[0].path)
    fabric.cut(path[0].dpid, path[0].port)
    assert len(fabric.asked) == asked + 2, "at once"


@pytest.mark.parametrize("changed", ["updated", "taken over"])
def test_a_job_that_becomes_an_observed_one_before_its_first_plan_is_counted(changed: str) -> None:
    fabric = started(SlowSolver())
    register(fabric, 0)
    fabric.run(1)
    fabric.solve()
    fabric.send(DeregisterJob(JOB0))
    register(fabric, 0)
    assert fabric.loop.state.cycle.unplanned == {JOB0}, "its hosts are known"
    observed = JobSpec.parse({"job_id": JOB0, "endpoints": RINGS[0], "lease_s": 600})
    fabric.send(UpdateJob(observed) if changed == "updated" else RegisterJob(observed, take_over=True))
    for _ in range(4):
        fabric.run(1)
        fabric.solve()
    assert not fabric.loop.state.cycle.unplanned
    assert JOB0 in fabric.loop.derived.with_rules()
    assert len(fabric.loop.derived.pins()) > 0


class OtherOrder(FakeFabric):
    """Fabric whose planner lists the subflows of each route in reverse order."""

    def _carry_out(self, command: Command) -> list[Message]:
        answers = super()._carry_out(command)
        if not isinstance(command, SolvePlan):
            return answers
        problem, turned = command.snapshot.problem, list[Message]()
        for answer in answers:
            if isinstance(answer, Planned):
                routes = {flow: route[::-1] for flow, route in answer.plan.routes.items()}
                plan = replace(answer.plan, routes=routes)
                answer = decided(problem, plan, None if answer.repair else command.min_gain)
                problem = problem.with_routes(answer.plan.routes)
            turned.append(answer)
        return turned


PAIR = ("10.0.3.1", "10.0.4.1")


@pytest.fixture
def split() -> OtherOrder:
    """Return a fabric with four split flows each way between two leaves.

    Two other leaves have one pair of hosts in use."""
    fabric = started(OtherOrder(leaves=4, spines=3, hosts_per_leaf=4))
    ring = [f"10.0.{leaf}.{host}" for host in range(1, 5) for leaf in (1, 2)]
    fabric.send(RegisterJob(ring_job("split", ring, max_subflows=4)))
    fabric.run(3)
    fabric.send(RegisterJob(ring_job("pair", [*PAIR])))
    fabric.run(3)
    fabric.forget_mods()
    jobs = fabric.status.jobs
    assert {job.state for job in jobs.values()} == {"pinned"}
    assert any(len(route or ()) > 1 for route in jobs[JobId("split")].routes.values())
    return fabric


def assert_subflows_stay(fabric: FakeFabric) -> None:
    sources = {mod.rule.key.match.ip_src for mod in fabric.mods if isinstance(mod.rule, FlowRule)}
    assert sources - {None} <= {host_prefix(ip) for ip in PAIR}
    assert fabric.status.moved_flows_total == 0


def test_subflows_keep_their_ports_whatever_order_a_plan_lists_them_in(split: OtherOrder) -> None:
    before = split.status.plans_total
    split.send(DeregisterJob(JobId("pair")))
    split.send(RegisterJob(ring_job("again", [*PAIR])))
    split.run(3)
    status = split.status
    assert status.plans_total > before
    assert status.jobs[JobId("again")].state == "pinned"
    assert_subflows_stay(split)


def test_subflows_keep_their_ports_whatever_order_a_repair_lists_them_in(split: OtherOrder) -> None:
    """The repair is due because a cable on the path of the job ``pair`` is cut."""
    route = split.status.jobs[JobId("pair")].routes[FlowId(*PAIR)]
    assert route
    ((path, _),) = route
    split.cut(path[0].dpid, path[0].port)
    assert split.status.repairs_total == 1
    assert_subflows_stay(split)


# ---- what is published about plans


def test_without_jobs_there_is_no_plan() -> None:
    fabric = started(FakeFabric(), 0)
    assert fabric.status.plan_installed
    fabric.send(DeregisterJob(JOB0))
    fabric.run(1)
    assert (fabric.status.plan, fabric.status.plan_installed) == (None, False)
    assert fabric.status.plan_reason == "no plan: no job is ready to be planned"


# ---- requests for plans that arrive faster than the planner solves them


SOLVE_S = 0.5
Value = TypeVar("Value")


class TakesHalfASecond(FakeFabric):
    """Fabric where every plan takes ``SOLVE_S`` seconds."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._asked: list[tuple[float, SolvePlan]] = []
        self.asked: list[SolvePlan] = []

    def _carry_out(self, command: Any) -> list[Any]:
        if isinstance(command, SolvePlan):
            self._asked.append((self.now, command))
            self.asked.append(command)
            return []
        return super()._carry_out(command)

    def run(self, seconds: float, step: float = 0.1) -> None:
        for _ in range(round(seconds / step)):
            super().run(step, step)
            while self._asked and self.now >= self._asked[0][0] + SOLVE_S - 1e-6:
                for answer in super()._carry_out(self._asked.pop(0)[1]):
                    self.send(answer)


def training() -> TakesHalfASecond:
    fabric = started(TakesHalfASecond(4, 4, 1))
    fabric.send(RegisterJob(ring_job("job", [f"10.0.{leaf}.1" for leaf in range(1, 5)], lease_s=600)))
    fabric.run(2)
    return fabric


def answers(fabric: FakeFabric, kind: type[Value]) -> list[Value]:
    return [reply.value for reply in fabric.replies if isinstance(reply.value, kind)]


def test_plans_are_taken_however_often_one_is_asked_for() -> None:
    fabric = training()
    before = fabric.status.plans_total
    for _ in range(25):
        fabric.send(Replan())
        fabric.run(0.4)
    assert fabric.status.plans_total - before >= 25 * 0.4 / (2 * SOLVE_S)
    fabric.run(2)
    assert len(answers(fabric, ReplanOutcome)) == 25, "each is answered"


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_plan_is_searched_again_for_an_operator_who_waits(cancelled: bool) -> None:
    fabric = training()
    first, second = Replan(), Replan()
    fabric.send(first)
    fabric.run(0.2)
    fabric.send(second)  # while the first request is solved
    if cancelled:
        second.reply.cancel()
    fabric.run(SOLVE_S + 2)
    assert [plan.anew for plan in fabric.asked[-2:]] == [True, not cancelled]


def test_modes_that_alternate_faster_than_plans_let_plans_through() -> None:
    fabric = training()
    before = fabric.status.plans_total
    for number in range(24):
        fabric.send(SetMode((Mode.SHADOW, Mode.PLANNED)[number % 2]))
        fabric.run(0.4)
    assert fabric.status.plans_total - before >= 24 * 0.4 / (2 * SOLVE_S)
    fabric.run(3)
    assert answers(fabric, ModeSet)[-1].mode is Mode.PLANNED
    assert fabric.job().state == "pinned"


def test_plans_are_numbered_without_gaps() -> None:
    fabric = training()
    for _ in range(3):
        fabric.send(Replan())
        fabric.run(2)
    numbers = [asked.snapshot.generation for asked in fabric.asked]
    assert numbers == [*range(numbers[0], numbers[0] + 4)]


# ---- unannounced traffic begins and ends beside training jobs: plans follow at once, and do not oscillate


STRAY = FlowId("10.0.1.4", "10.0.2.4")
HALF = 0.5 * FABRIC_BPS
"""Rate in bit/s of an elephant (a large flow) on a link that it shares with a flow of the same rate."""


def busy(count: int = 2, spines: int = 4, duty: Callable[[float], float] = lambda _: 1.0) -> BusyFabric:
    """Return a fabric with training jobs whose rings are pinned; some paths are free."""
    fabric = started(BusyFabric(hosts_per_leaf=4, spines=spines, seed=3))
    fabric.all_speak()
    fabric.rings = [Ring(ips, duty=duty) for ips in RINGS[:count]]
    register(fabric, *range(count), lease_s=6000)
    fabric.carry(12)
    return fabric


def used(fabric: BusyFabric) -> set[LinkId]:
    routes = [route for job in fabric.status.jobs.values() for route in job.routes.values() if route]
    return {link for route in routes for subflow in route for link in subflow.path}


def meeting(fabric: BusyFabric) -> FlowId:
    """Return an unannounced flow whose first link a job uses; change the ECMP seed until the flow takes such a link."""
    for _ in range(200):
        if LinkId(*fabric.ports_on(STRAY)[0]) in used(fabric):
            return STRAY
        fabric.seed += 1
    raise AssertionError("no flow meets another one")


QUARTERS = range(round(COUNTERS.interval_s / STEP_S))


@pytest.mark.parametrize("quarter", with_long([0, 3, 5], QUARTERS))
def test_flows_leave_a_link_soon_after_the_first_byte_of_an_elephant(quarter: int) -> None:
    """The planner needs two polls at most; one of them may be halfway between two regular polls."""
    fabric = busy()
    fabric.carry(quarter * STEP_S)
    before, moved = fabric.status.plans_total, fabric.status.moved_flows_total
    stray = meeting(fabric)
    fabric.stray_bps = {stray: HALF}
    link = LinkId(*fabric.ports_on(stray)[0])
    fabric.carry(1.25 * COUNTERS.interval_s + CONFIG.planning.debounce_s + STEP_S)
    assert link not in used(fabric)
    assert fabric.status.plans_total > before
    assert fabric.status.moved_flows_total > moved
    assert {job.slowdown for job in fabric.status.jobs.values()} == {1.0}


AT_A_HOST = FlowId("10.0.3.4", RINGS[0][0])


@pytest.mark.parametrize(
    ("spines", "stray", "quarter"),
    with_long([(1, STRAY, 3), (4, AT_A_HOST, 0)], [(1, STRAY, quarter) for quarter in QUARTERS[::3]]),
)
def test_the_slowdowns_of_flows_that_cannot_leave_are_true_with_the_second_reading(
    spines: int, stray: FlowId, quarter: int
) -> None:
    """The slowdown follows both the beginning and the end of traffic on the only link, or at a host of the job."""
    fabric = busy(count=1, spines=spines)
    assert fabric.job("job0").slowdown == 1.0
    fabric.carry(quarter * STEP_S)
    for stray_bps, slowdown in (({stray: HALF}, 2.0), ({}, 1.0)):
        fabric.stray_bps = stray_bps
        fabric.carry(2 * COUNTERS.interval_s + CONFIG.planning.debounce_s + STEP_S)
        assert fabric.job("job0").slowdown == pytest.approx(slowdown, rel=0.1)


@pytest.mark.parametrize("other", ["10.0.1.0", "10.0.1.9"])
def test_slowdowns_are_shown_anew_whichever_addresses_are_at_the_port_of_a_host(other: str) -> None:
    at, mine = PortRef(Dpid(1), PortNo(3)), RINGS[0][0]
    hosts = {ip: Host(ip, None, at, FABRIC_BPS) for ip in sorted((mine, other))}
    down = hosts[mine].downlink
    jobs = busy(count=1).loop.derived.ready()
    assert LoadEvents().show({down: HALF}, {down: FABRIC_BPS}, {}, jobs, hosts)


@pytest.mark.parametrize("period_s", with_long([1, 20], [4, 7]))
def test_an_elephant_that_comes_and_goes_moves_few_flows(period_s: float) -> None:
    """Most bursts move no flow, although jobs then share a link between bursts without need."""
    fabric = busy(spines=2)
    stray, before = meeting(fabric), fabric.status.moved_flows_total
    for _ in range(round(60 / STEP_S)):
        fabric.stray_bps = {stray: 0.7 * FABRIC_BPS} if fabric.now % period_s < period_s / 2 else {}
        fabric.carry(STEP_S)
    assert fabric.status.moved_flows_total - before <= 4


@pytest.mark.parametrize("seed", with_long([0], range(4)))
def test_traffic_of_many_that_comes_and_goes_moves_few_flows(seed: int) -> None:
    """Many mice (small flows), whose sum changes all the time, send beside jobs that send in bursts."""
    draw = random.Random(seed)
    iteration_s = draw.choice([0.8, 1.3, 3.0])
    fabric = busy(duty=lambda now: float(now / iteration_s % 1 < 0.5))
    hosts = sorted(fabric.hosts)
    before = fabric.status.moved_flows_total
    for _ in range(round(40 / STEP_S)):
        pairs = [draw.sample(hosts, 2) for _ in range(20)]
        mice = {FlowId(src, dst): draw.choice([0.02, 0.1]) * FABRIC_BPS for src, dst in pairs}
        fabric.stray_bps = {flow: bps for flow, bps in mice.items() if flow not in fabric.rings[0].flows}
        fabric.carry(STEP_S)
    assert fabric.status.moved_flows_total - before <= 8


def test_communication_that_takes_longer_starts_a_plan_with_the_next_reading() -> None:
    fabric = busy()
    times, plans = [0.5, 0.52, 0.49, 0.5, 0.7, 0.7], fabric.status.plans_total
    while fabric.status.plans_total == plans:
        fabric.carry(STEP_S)  # the next periodic plan is far away
    plans = fabric.status.plans_total
    for index, time_s in enumerate(times):
        fabric.send(ReportIterations(JobId("job0"), (IterationTime(index, time_s, time_s),)))
    fabric.carry(COUNTERS.interval_s + 0.5)
    assert fabric.status.plans_total == plans + 1


@pytest.mark.parametrize(
    ("times_s", "slow"),
    [
        pytest.param([1.0] * 16, False, id="steady"),
        pytest.param([1.0] * 5 + [1.4, 1.4], True, id="two slow ones"),
        pytest.param([1.0] * 5 + [1.4, 1.0, 1.4], True, id="two of three"),
        pytest.param([1.0] * 5 + [5.0, 1.0, 1.0], False, id="one alone"),
        pytest.param([1.0] * 5 + [1.2] * 3, False, id="a little"),
        pytest.param([1.0, 1.0, 2.0, 2.0], False, id="nothing to compare with"),
        pytest.param([1.0] * 5 + [1.4, 1.4, 1.4], False, id="slow before"),
    ],
)
def test_a_job_slows_down_when_two_of_three_iterations_take_longer(times_s: list[float], slow: bool) -> None:
    assert has_slowed(times_s, 1) == slow


def test_several_iterations_may_be_reported_together() -> None:
    assert has_slowed([1.0] * 5 + [1.4] * 4, 4)
    assert not has_slowed([1.0] * 5 + [1.4] * 4, 1)
    assert not has_slowed([], 0)


# ---- a plan with more moves than a cycle may make is reached in several cycles, none of which makes a slowdown worse


LEAVES = SPINES = HOSTS = 4
SPINE = Dpid(257)
CAP = 4
CAPPED = CONFIG.model_copy(update={"planning": CONFIG.planning.model_copy(update={"max_moves": CAP})})
CYCLE_S = CONFIG.planning.interval_s
Slowdowns = tuple[float, ...]


class Recorded(LateAnswers):
    """Fabric that records the planner's answers.

    ``answers``: answers of the planner, without repairs."""

    def __init__(self) -> None:
        super().__init__(LEAVES, SPINES, HOSTS)
        self.answers: list[Planned] = []

    def _carry_out(self, command: Command) -> list[Message]:
        found = super()._carry_out(command)
        self.answers += [answer for answer in found if isinstance(answer, Planned) and not answer.repair]
        return found

    def slowdowns(self) -> Slowdowns:
        routes = {
            flow: route for job in self.status.jobs.values() for flow, route in job.routes.items() if route is not None
        }
        return tuple(sorted(job_slowdowns(self.asked[-1].snapshot.problem, routes).values(), reverse=True))


@pytest.fixture
def fabric() -> Recorded:
    """Return a fabric whose links are all filled by two jobs, each with two split rings."""
    fabric = started(Recorded(), config=CAPPED)
    for job in (0, 1):
        ips = [f"10.0.{leaf}.{host}" for host in (2 * job + 1, 2 * job + 2) for leaf in range(1, LEAVES + 1)]
        rings = [{"name": f"r{n}", "ranks": list(range(LEAVES * n, LEAVES * (n + 1)))} for n in (0, 1)]
        collective = {"algorithm": "ring_all_reduce", "groups": ["r0", "r1"], "bytes_per_iteration": 1_000_000}
        spec = ring_job(f"job{job}", ips, 600.0, groups=rings, collectives=[collective], max_subflows=2)
        fabric.send(RegisterJob(spec))
    fabric.run(CYCLE_S)
    assert fabric.slowdowns() == pytest.approx((1.0, 1.0))
    fabric.answers.clear()
    return fabric


def cycles(fabric: Recorded) -> list[Slowdowns]:
    """Return the slowdowns after each cycle that moved a flow."""
    found: list[Slowdowns] = []
    for _ in range(6 * round(CYCLE_S)):
        moved = fabric.status.moved_flows_total
        fabric.run(1)
        assert fabric.status.moved_flows_total - moved <= CAP
        if fabric.status.moved_flows_total > moved:
            found.append(fabric.slowdowns())
    return found


def assert_never_worse(found: list[Slowdowns]) -> None:
    for before, after in pairwise(found):
        index = first_difference(before, after)
        assert index is None or after[index] < before[index]


def test_the_bound_is_reached_when_a_spine_dies_and_when_it_returns(fabric: Recorded) -> None:
    for change, bound in ((fabric.lose, LEAVES / (SPINES - 1)), (fabric.connect, 1.0)):
        fabric.answers.clear()
        change(SPINE)
        found = cycles(fabric)
        assert found[-1][0] <= bound * (1 + SLOWDOWN_TOLERANCE)
        assert_never_worse(found)
        goals = [fabric.planner.goals[answer.goal.generation] for answer in fabric.answers if answer.goal]
        assert goals or bound == 1.0, "it takes several cycles"
        assert len(found) <= math.ceil(goals[0].plan.moves / CAP if goals else 1) + 1
        assert fabric.loop.state.cycle.goal is None


def test_what_is_left_of_a_target_is_told(fabric: Recorded) -> None:
    fabric.lose(SPINE)
    fabric.run(1)
    goal = fabric.loop.state.cycle.goal
    assert goal
    assert (fabric.status.moves_left, fabric.status.blocked_flows) == (goal.moves, 0)
    assert f"with a further {goal.moves} flows moved" in fabric.status.plan_reason
    fabric.run(CYCLE_S)
    after = fabric.loop.state.cycle.goal
    goals = fabric.planner.goals
    same = after and goals[after.generation].plan is goals[goal.generation].plan
    assert after is None or (same and after.moves == goal.moves - CAP)


@pytest.mark.parametrize("mode", [Mode.ECMP, Mode.SHADOW])
def test_a_mode_that_installs_nothing_has_no_target(fabric: Recorded, mode: Mode) -> None:
    fabric.lose(SPINE)
    fabric.run(1)
    assert fabric.loop.state.cycle.goal
    fabric.send(SetMode(mode))
    fabric.run(1)
    assert fabric.loop.state.cycle.goal is None
