"""The times at which plans are made, the planner's answers that are used, and the published status of plans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import pytest

from controller.core.messages import Command, Message
from controller.fabric.topology import Dpid, PortNo
from controller.jobs.messages import DeregisterJob, RegisterJob, UpdateJob
from controller.planning.messages import ModeSet, Replan, ReplanOutcome, SetMode, SolvePlan
from controller.planning.plan import Planned, decided
from controller.planning.problem import FlowId
from controller.tables.rules import FlowRule, host_prefix
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.words import Mode
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.late_answers import SlowSolver
from tests.support.three_rings import CONFIG, RINGS, register, started

JOB0 = JobId("job0")
LEAF, UPLINK = Dpid(1), PortNo(2)


def test_a_new_job_waits_until_it_is_quiet() -> None:
    fabric = started(FakeFabric())
    register(fabric, 0)
    fabric.run(0.1)
    assert fabric.status.plan is None
    fabric.run(0.2)
    assert fabric.job("job0").state == "pinned"


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
    """Assert that only the pins of the pair of hosts have changed."""
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
    """The pair of hosts has lost its path."""
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
