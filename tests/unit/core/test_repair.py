"""Routes broken by a lost link are repaired at once; the best routes are planned afterwards."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from controller.alarms import text
from controller.core.messages import Tick
from controller.fabric.messages import ArpSeen
from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.jobs.messages import RegisterJob
from controller.planning.messages import Replan, ReplanOutcome, SetMode
from controller.planning.plan import Plan, Planned
from controller.serving.event_log import events
from controller.tables.messages import StageDone
from controller.tables.rules import NARROW
from signalbox.jobs.spec import JobId
from signalbox.words import AlarmKind, Mode
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.late_answers import LateAnswers, SlowSolver
from tests.support.three_rings import assert_no_collision, register, spines_used, started

LEAF, UPLINK = Dpid(1), PortNo(2)


@pytest.fixture
def fabric() -> SlowSolver:
    """Return a fabric with three planned, running jobs, no two flows of which share a link."""
    fabric = started(SlowSolver(), 0, 1, 2)
    for _ in range(5):
        fabric.run(0.5)
        fabric.solve()
    return fabric


def test_broken_routes_are_repaired_without_quiet_time_tick_or_solver(fabric: SlowSolver) -> None:
    published, before = fabric.status, spines_used(fabric)
    fabric.cut(LEAF, UPLINK)
    status = fabric.status
    assert {job.state for job in status.jobs.values()} == {"pinned"}
    assert (status.repairs_total, status.repaired_flows_total, status.repair_s) == (1, 2, 0.0)
    assert not status.plan_installed, "the plan is still being solved"
    after = spines_used(fabric)
    moved = {flow for flow in before if before[flow] != after[flow]}
    assert moved == {flow for flow in before if before[flow] == "spine2" and "10.0.1." in flow.src_ip + flow.dst_ip}
    told = {what: details for _, what, details in events(published, status)}["routes repaired"]
    assert (told["flows"], told["plan_ms"] > 0, told["in_force_s"]) == (2, True, 0.0)


def test_without_the_claim_of_the_state_only_lost_paths_are_replaced() -> None:
    fabric = started(SlowSolver(), 0, 1)
    fabric.solve()

    def run_unclaimed() -> None:
        for _ in range(20):
            fabric.now += 0.1
            fabric.send(Tick(is_claimed=False))
        fabric.solve()

    run_unclaimed()
    register(fabric, 2)
    run_unclaimed()
    assert fabric.status.plan_reason == "kept: another controller may be active, so only lost paths are replaced"
    assert fabric.status.jobs[JobId("job2")].state != "pinned"
    fabric.cut(LEAF, UPLINK)
    assert fabric.status.repairs_total == 1
    assert spines_used(fabric)
    run_unclaimed()
    assert {fabric.status.jobs[JobId(name)].state for name in ("job0", "job1")} == {"pinned"}
    fabric.run(2)
    fabric.solve()
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}, (
        "it is planned as soon as the claim is back"
    )


def test_the_plan_that_follows_moves_nothing_that_need_not_move_again(fabric: SlowSolver) -> None:
    fabric.cut(LEAF, UPLINK)
    repaired = spines_used(fabric)
    fabric.forget_mods()
    fabric.solve()
    assert_no_collision(fabric)
    assert (fabric.mods, spines_used(fabric)) == ([], repaired)
    assert fabric.status.plan_reason == "kept: the running routes are as good as the plan"
    assert fabric.status.plan_installed


def test_who_asked_for_a_plan_gets_the_next_plan_not_the_repair(fabric: SlowSolver) -> None:
    asked = Replan()
    fabric.cut(LEAF, UPLINK)
    fabric.send(asked)
    fabric.run(0.1)
    assert fabric.reply_to(asked.reply) is None
    fabric.solve()
    assert fabric.reply_to(asked.reply) is None, "this one was begun before it was asked for"
    fabric.run(0.1)
    fabric.solve()
    outcome = fabric.reply_to(asked.reply)
    assert isinstance(outcome, ReplanOutcome)
    assert outcome.plan is fabric.status.plan


def test_a_second_loss_is_repaired_while_the_first_is_still_being_planned(fabric: SlowSolver) -> None:
    fabric.cut(LEAF, UPLINK)
    (first,) = fabric.solving
    fabric.cut(LEAF, PortNo(3))
    status = fabric.status
    assert status.repairs_total == 2
    assert {job.state for job in status.jobs.values()} == {"pinned"}
    routes = spines_used(fabric)
    fabric.forget_mods()
    fabric.send(first)  # the plan uses links that are gone
    assert (fabric.mods, spines_used(fabric)) == ([], routes)
    fabric.solve()
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}


def test_a_link_that_no_route_uses_waits_for_quiet(fabric: SlowSolver) -> None:
    used = {link for route in fabric.loop.state.routes.routes.values() for path, _ in route for link in path}
    port = next(port for port in map(PortNo, range(1, 5)) if not any(link.at == (LEAF, port) for link in used))
    back = fabric.switches[LEAF].peers[port]
    assert not any(link.at == back for link in used)
    fabric.cut(LEAF, port)
    assert fabric.status.repairs_total == 0
    assert not fabric.solving
    fabric.run(0.5)
    assert fabric.solving, "after the quiet time it is planned for"


@pytest.mark.parametrize("mode", [Mode.ECMP, Mode.SHADOW])
def test_nothing_is_repaired_where_nothing_is_pinned(fabric: SlowSolver, mode: Mode) -> None:
    fabric.send(SetMode(mode))
    fabric.run(1)
    fabric.solve()
    fabric.cut(LEAF, UPLINK)
    fabric.run(1)
    fabric.solve()
    assert fabric.status.repairs_total == 0
    spines_used(fabric)


def test_flows_without_any_path_left_do_not_hold_up_the_others(fabric: SlowSolver) -> None:
    for port in (1, 3, 4, 2):
        fabric.cut(LEAF, PortNo(port))
    fabric.run(0.5)
    fabric.solve()
    status = fabric.status
    assert status.plan
    assert {flow.src_ip.split(".")[2] for flow in status.plan.unrouted} == {"1", "4"}, "from leaf 1, and to it"
    pinned = [flow for job in status.jobs.values() for flow, route in job.routes.items() if route]
    assert len(pinned) == 12 - len(status.plan.unrouted)
    assert status.repair_s is not None
    (alarm,) = (one for one in status.alarms.values() if one.kind is AlarmKind.FLOWS_WITHOUT_PATH)
    assert re.fullmatch(r"\d flows have no path: \d of job \w+.*", text(alarm)), "by its jobs, before and after a plan"
    fabric.run(0.5)
    fabric.solve()
    find_host(fabric, "10.0.2.77")  # rules change for another reason
    assert not fabric.solving, "the flows are no reason to plan at once again"
    fabric.run(0.5)
    assert fabric.solving, "after the quiet time"


@pytest.fixture
def late_repairs() -> LateAnswers:
    """Return a fabric with three planned, running jobs, whose repairs are answered when the test says so."""
    fabric = started(LateAnswers(), 0, 1, 2)
    fabric.is_late = lambda answer: isinstance(answer, Planned)
    return fabric


def test_other_rules_wait_for_a_repair_a_tenth_of_a_second_at_most(late_repairs: LateAnswers) -> None:
    late_repairs.stages.clear()
    late_repairs.cut(LEAF, UPLINK)
    late_repairs.run(0.05, step=0.05)
    assert {stage.stage.name for stage in late_repairs.stages} == {NARROW}
    late_repairs.run(0.1, step=0.05)
    assert {stage.stage.name for stage in late_repairs.stages} > {NARROW}


def test_a_repair_is_asked_for_when_lost_next_hops_are_removed_or_a_tenth_of_a_second_later(
    late_repairs: LateAnswers,
) -> None:
    late_repairs.is_late = lambda answer: isinstance(answer, StageDone)
    asked = len(late_repairs.asked)
    late_repairs.cut(LEAF, UPLINK)
    assert len(late_repairs.asked) == asked
    late_repairs.deliver()
    assert len(late_repairs.asked) == asked + 1
    late_repairs.deliver()
    late_repairs.run(1)
    asked = len(late_repairs.asked)
    late_repairs.cut(LEAF, PortNo(3))
    late_repairs.run(0.05, step=0.05)
    assert len(late_repairs.asked) == asked
    late_repairs.run(0.1, step=0.05)
    assert len(late_repairs.asked) > asked


def test_the_time_of_a_repair_is_from_the_first_loss_until_all_routes_are_repaired(late_repairs: LateAnswers) -> None:
    late_repairs.cut(LEAF, UPLINK)
    assert late_repairs.late
    late_repairs.run(0.2, step=0.05)
    assert late_repairs.status.repair_s is None, "next hops were removed, routes are not repaired yet"
    late_repairs.cut(LEAF, PortNo(3))
    late_repairs.run(0.2, step=0.05)
    late_repairs.is_late = lambda _: False
    late_repairs.deliver()
    assert late_repairs.status.repair_s == pytest.approx(0.4)
    assert {job.state for job in late_repairs.status.jobs.values()} == {"pinned"}


def test_a_repair_by_a_plan_that_was_due_anyway_is_timed_too(late_repairs: LateAnswers) -> None:
    late_repairs.is_late = lambda answer: isinstance(answer, StageDone)
    late_repairs.cut(LEAF, UPLINK)
    late_repairs.send(Replan())
    late_repairs.is_late = lambda _: False
    late_repairs.run(0.05, step=0.05)
    assert late_repairs.status.repair_s is None, "lost next hops are not confirmed as removed yet"
    late_repairs.deliver()
    late_repairs.run(0.2, step=0.05)
    assert {job.state for job in late_repairs.status.jobs.values()} == {"pinned"}
    assert late_repairs.status.repair_s == pytest.approx(0.05)


def test_a_repair_over_a_link_that_was_lost_meanwhile_is_not_adopted(late_repairs: LateAnswers) -> None:
    late_repairs.cut(LEAF, UPLINK)
    repair = next(answer for answer in late_repairs.late if isinstance(answer, Planned))
    assert isinstance(repair.answer, Plan)
    used = late_repairs.status.jobs
    now = {link for job in used.values() for route in job.routes.values() for path, _ in route or () for link in path}
    then = {link for route in repair.answer.routes.values() for path, _ in route for link in path}
    lost = min(link for link in then - now if link in late_repairs.loop.fabric.links)
    late_repairs.cut(lost.dpid, lost.port)
    late_repairs.run(0.2, step=0.05)
    late_repairs.forget_mods()
    late_repairs.send(repair)
    assert late_repairs.status.repairs_total == 0
    assert late_repairs.mods == []


def test_a_loss_that_leaves_no_path_is_no_repair_and_not_told_as_the_one_before_it() -> None:
    fabric = started(FakeFabric(leaves=2, spines=2, hosts_per_leaf=1))
    fabric.send(RegisterJob(ring_job("pair", ["10.0.1.1", "10.0.2.1"])))
    fabric.run(3)
    (job,) = fabric.status.jobs.values()
    used = {path[0] for route in job.routes.values() for path, _ in route or ()}
    (spine,) = {link.port for link in used if link.dpid == LEAF}
    fabric.cut(LEAF, spine)
    fabric.run(1)
    repaired = fabric.status
    assert (repaired.repairs_total, repaired.repair is None) == (1, False)
    fabric.cut(LEAF, PortNo(3 - spine))
    fabric.run(1)
    cut_off = fabric.status
    assert (cut_off.repairs_total, sum(cut_off.repair_times.counts)) == (1, 2)
    published_between = replace(repaired, repair_s=None)
    told = {what for _, what, _ in events(published_between, cut_off)}
    assert "routes repaired" not in told
    assert cut_off.repair is None


def test_a_repair_that_takes_long_is_not_asked_for_again_when_rules_change(late_repairs: LateAnswers) -> None:
    late_repairs.cut(LEAF, UPLINK)
    asked = len(late_repairs.late)
    late_repairs.run(0.15, step=0.05)
    find_host(late_repairs, "10.0.2.77")
    assert len(late_repairs.late) == asked
    late_repairs.is_late = lambda _: False
    late_repairs.deliver()
    assert late_repairs.status.repairs_total == 1
    assert {job.state for job in late_repairs.status.jobs.values()} == {"pinned"}


def find_host(fabric: FakeFabric, ip: str) -> None:
    """Let a host that no job uses speak for the first time."""
    fabric.hosts[ip] = PortRef(Dpid(2), PortNo(7))
    fabric.send(ArpSeen(fabric.hosts[ip], "request", ip, fabric.mac(ip), "10.0.3.1"))
    assert ip in fabric.loop.fabric.hosts


def test_repaired_routes_do_not_count_as_confirmed_before_their_rules_are(fabric: SlowSolver) -> None:
    """The loss of routes begins a new generation, and the confirmation of their repairs begins another generation."""
    before = fabric.status.jobs
    fabric.cut(LEAF, UPLINK)
    after = fabric.status.jobs
    repaired = [job for job in before if before[job].routes != after[job].routes]
    assert repaired
    newest = max(job.routes_generation for job in before.values())
    assert max(job.routes_generation for job in after.values()) == newest + 2 * len(repaired)
