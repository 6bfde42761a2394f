"""The times at which plans are made, the planner's answers that are used, and the published status of plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core.messages import Command, Message
from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.jobs.messages import DeregisterJob, RegisterJob, ReportIterations, UpdateJob
from controller.planning.messages import Planned, SetMode, SolvePlan
from controller.planning.plan import Plan
from controller.planning.planned import decided
from controller.planning.problem import FlowId
from controller.tables.rules import FlowRule, host_prefix
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.words import Mode
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric, ring_job
from tests.support.late_answers import LateAnswers, SlowSolver
from tests.support.three_rings import CONFIG, RINGS, register, spines_used

JOB0 = JobId("job0")
LEAF, UPLINK = Dpid(1), PortNo(2)


def started(fabric: FakeFabric) -> None:
    fabric.start(CONFIG)
    fabric.run(3)


def test_a_new_job_waits_until_it_is_quiet() -> None:
    fabric = FakeFabric()
    started(fabric)
    register(fabric, 0)
    fabric.run(0.1)
    assert fabric.status.plan is None
    fabric.run(0.2)
    assert fabric.status.jobs[JOB0].state == "pinned"


def test_plans_and_moves_are_counted_from_nothing() -> None:
    fabric = FakeFabric()
    started(fabric)
    status = fabric.status
    assert (status.plans_total, status.moved_flows_total) == (0, 0)
    assert (status.repairs_total, status.repaired_flows_total) == (0, 0)


def test_a_link_that_flaps_all_the_time_does_not_postpone_planning_for_ever() -> None:
    """The link changes twice in each quiet time, and no route uses it."""
    fabric = FakeFabric()
    started(fabric)
    register(fabric, 0)
    fabric.send(RegisterJob(ring_job("pair", ["10.0.2.3", "10.0.3.3"])))
    for _ in range(15):
        fabric.cut(Dpid(4), PortNo(4))
        fabric.run(0.1)
        fabric.plug(Dpid(4), PortNo(4))
        fabric.run(0.1)
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}


@pytest.mark.parametrize("mode", [Mode.SHADOW, Mode.PLANNED])
def test_a_job_that_registers_again_as_it_was_has_its_slowdown_again(mode: Mode) -> None:
    """The flows stay within a leaf, so no plan pins any of them; and the planner gets the same request as before."""
    fabric = FakeFabric()
    started(fabric)
    fabric.send(SetMode(mode))
    for _ in range(2):
        fabric.send(RegisterJob(ring_job("near", ["10.0.1.1", "10.0.1.2"])))
        fabric.run(3)
        assert fabric.status.jobs[JobId("near")].slowdown == 1
        fabric.send(DeregisterJob(JobId("near")))
        fabric.run(3)


def test_times_measured_on_routes_that_have_changed_are_forgotten_and_no_others() -> None:
    fabric = FakeFabric()
    started(fabric)
    register(fabric, 0, 1, 2)
    fabric.run(5)  # the iteration and its report take 3 s at most
    for job in ("job0", "job1", "job2"):
        fabric.send(ReportIterations(JobId(job), (IterationTime(1, 1.0, 0.5),)))
    before = spines_used(fabric)
    fabric.cut(LEAF, UPLINK)
    fabric.run(3)
    after = spines_used(fabric)
    moved = {
        f"job{number}"
        for number, ring in enumerate(RINGS)
        if any(before[flow] != after[flow] for flow in before if flow.src_ip in ring)
    }
    measured = {str(job.spec.job_id): job.mean_communication_s for job in fabric.status.jobs.values()}
    assert 0 < len(moved) < 3
    assert measured == {job: 0.0 if job in moved else 0.5 for job in measured}


def test_a_plan_over_a_link_that_was_lost_meanwhile_is_not_adopted() -> None:
    fabric = SlowSolver()
    started(fabric)
    register(fabric, 0)
    fabric.run(0.5)
    (outdated,) = fabric.solving
    assert isinstance(outdated.answer, Plan)
    used = {link for route in outdated.answer.routes.values() for path, _ in route for link in path}
    lost = min(link for link in used if link.dpid == LEAF)
    fabric.cut(lost.dpid, lost.port)
    fabric.forget_mods()
    fabric.solve()
    assert fabric.mods == []
    assert fabric.status.plan is None
    fabric.run(0.5)
    fabric.solve()
    assert fabric.status.jobs[JOB0].state == "pinned"


def test_a_problem_that_takes_longer_than_the_period_is_waited_for() -> None:
    fabric = SlowSolver()
    started(fabric)
    register(fabric, 0)
    fabric.run(3 * CONFIG.planning.interval_s, step=0.5)
    assert len(fabric.asked) == 1
    fabric.solve()
    fabric.run(CONFIG.planning.interval_s + 1, step=0.5)
    assert len(fabric.asked) > 1


def test_after_a_plan_the_loop_has_as_long_for_itself_as_the_plan_took_but_not_when_routes_are_lost() -> None:
    fabric = SlowSolver()
    started(fabric)
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
    path = next(route[0].path for route in fabric.status.jobs[JOB0].routes.values() if route and route[0].path)
    fabric.cut(path[0].dpid, path[0].port)
    assert len(fabric.asked) == asked + 2, "at once"


@pytest.mark.parametrize("changed", ["updated", "taken over"])
def test_a_job_that_becomes_an_observed_one_before_its_first_plan_is_counted(changed: str) -> None:
    fabric = SlowSolver()
    started(fabric)
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
    fabric = OtherOrder(leaves=4, spines=3, hosts_per_leaf=4)
    started(fabric)
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


def test_the_cap_on_moves_goes_with_every_problem() -> None:
    fabric = LateAnswers()
    fabric.start(CONFIG.model_copy(update={"planning": CONFIG.planning.model_copy(update={"max_moves": 3})}))
    fabric.run(3)
    register(fabric, 0)
    fabric.run(1)
    assert {request.limits.max_moves for request in fabric.asked} == {3}


def test_moves_of_all_plans_are_added_up() -> None:
    """The flow moves away from other traffic on its link, time and again."""
    fabric = FakeFabric()
    started(fabric)
    register(fabric, 0)
    fabric.run(3)
    total, moves = dict.fromkeys((PortNo(1), PortNo(2), PortNo(3), PortNo(4)), 0), [0]
    for _ in range(2):
        passed = fabric.trace(RINGS[0][0], RINGS[0][1])
        assert passed
        spine = passed[1]
        for _ in range(10):
            fabric.run(2)
            total[PortNo(int(spine[-1]))] += int(0.5 * FABRIC_BPS / 8 * 2)
            fabric.count({PortRef(LEAF, port): count for port, count in total.items()}, {})
        moves.append(fabric.status.moved_flows_total)
    assert moves == sorted(set(moves))


def test_without_jobs_there_is_no_plan() -> None:
    fabric = FakeFabric()
    started(fabric)
    register(fabric, 0)
    fabric.run(1)
    assert fabric.status.plan_installed
    fabric.send(DeregisterJob(JOB0))
    fabric.run(1)
    assert (fabric.status.plan, fabric.status.plan_installed) == (None, False)
    assert fabric.status.plan_reason == "no plan: no job is ready to be planned"
