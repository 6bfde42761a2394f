"""Routes that a lost link has broken are repaired at once; what is best is planned afterwards."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from controller.config import Strategy
from controller.fabric.topology import Dpid, PortNo
from controller.jobs.messages import RegisterJob
from controller.planning.messages import Replan, ReplanOutcome, SetStrategy
from controller.serving.event_log import events
from controller.status import Status
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.slow_solver import SlowSolver
from tests.support.three_rings import CONFIG, assert_no_collision, register, spines_used

LEAF, UPLINK = Dpid(1), PortNo(2)


@pytest.fixture
def fabric() -> SlowSolver:
    """Three jobs run, planned: no two flows share a link."""
    fabric = SlowSolver()
    fabric.start(CONFIG)
    fabric.run(3)
    register(fabric, 0, 1, 2)
    for _ in range(10):
        fabric.run(0.5)
        fabric.solve()
    return fabric


def status_of(fabric: FakeFabric) -> Status:
    return fabric.status


def test_broken_routes_are_repaired_without_quiet_time_tick_or_solver(fabric: SlowSolver) -> None:
    before = spines_used(fabric)
    fabric.cut(LEAF, UPLINK)
    status = status_of(fabric)
    assert {job.state for job in status.jobs.values()} == {"pinned"}
    assert (status.repairs_total, status.repaired_flows_total, status.repair_s) == (1, 2, 0.0)
    assert not status.plan_installed, "the plan is still being solved"
    after = spines_used(fabric)
    moved = {flow for flow in before if before[flow] != after[flow]}
    assert moved == {flow for flow in before if before[flow] == "spine2" and "10.0.1." in flow.src_ip + flow.dst_ip}


def test_the_plan_that_follows_moves_nothing_that_need_not_move_again(fabric: SlowSolver) -> None:
    fabric.cut(LEAF, UPLINK)
    repaired, moved = spines_used(fabric), status_of(fabric).moved_flows_total
    fabric.forget_mods()
    fabric.solve()
    status = status_of(fabric)
    assert_no_collision(fabric)
    if status.plan_reason.startswith("kept"):
        assert (fabric.mods, spines_used(fabric)) == ([], repaired)
    else:
        assert status.moved_flows_total > moved
    assert status.plan_installed


def test_who_asked_for_a_plan_gets_the_plan_not_the_repair(fabric: SlowSolver) -> None:
    reply: Future[ReplanOutcome] = Future()
    fabric.cut(LEAF, UPLINK)
    fabric.send(Replan(reply))
    fabric.run(0.1)
    assert not [r for r in fabric.replies if r.future is reply]
    fabric.solve()
    (outcome,) = [r.value for r in fabric.replies if r.future is reply]
    assert isinstance(outcome, ReplanOutcome)
    assert outcome.plan is status_of(fabric).plan


def test_a_second_loss_is_repaired_while_the_first_is_still_being_planned(fabric: SlowSolver) -> None:
    fabric.cut(LEAF, UPLINK)
    (first,) = fabric.solving
    fabric.cut(LEAF, PortNo(3))
    status = status_of(fabric)
    assert status.repairs_total == 2
    assert {job.state for job in status.jobs.values()} == {"pinned"}
    routes = spines_used(fabric)
    fabric.forget_mods()
    fabric.send(first)  # over links that are gone
    assert (fabric.mods, spines_used(fabric)) == ([], routes)
    fabric.solve()
    assert {job.state for job in status_of(fabric).jobs.values()} == {"pinned"}


def test_a_link_that_no_route_uses_waits_for_quiet(fabric: SlowSolver) -> None:
    used = {link for route in fabric.loop.state.routes.routes.values() for path, _ in route for link in path}
    port = next(port for port in map(PortNo, range(1, 5)) if not any(link.at == (LEAF, port) for link in used))
    back = fabric.switches[LEAF].peers[port]
    assert not any(link.at == back for link in used)
    fabric.cut(LEAF, port)
    assert status_of(fabric).repairs_total == 0
    assert not fabric.solving
    fabric.run(0.5)
    assert fabric.solving, "after the quiet time it is planned for"


@pytest.mark.parametrize("strategy", [Strategy.ECMP, Strategy.SHADOW])
def test_nothing_is_repaired_where_nothing_is_pinned(fabric: SlowSolver, strategy: Strategy) -> None:
    fabric.send(SetStrategy(strategy))
    fabric.run(1)
    fabric.solve()
    fabric.cut(LEAF, UPLINK)
    fabric.run(1)
    fabric.solve()
    assert status_of(fabric).repairs_total == 0
    spines_used(fabric)


def test_flows_without_any_path_left_do_not_hold_up_the_others(fabric: SlowSolver) -> None:
    for port in (1, 3, 4, 2):
        fabric.cut(LEAF, PortNo(port))
    fabric.run(0.5)
    fabric.solve()
    status = status_of(fabric)
    assert status.plan
    assert {flow.src_ip.split(".")[2] for flow in status.plan.unrouted} == {"1", "4"}, "from leaf 1, and to it"
    pinned = [flow for job in status.jobs.values() for flow, route in job.routes.items() if route]
    assert len(pinned) == 12 - len(status.plan.unrouted)
    assert status.repair_s is not None


def test_split_routes_are_repaired_too() -> None:
    fabric = SlowSolver(leaves=2, spines=3, hosts_per_leaf=4)
    fabric.start(CONFIG)
    fabric.run(3)
    ring = [f"10.0.{leaf}.{host}" for host in range(1, 5) for leaf in (1, 2)]
    fabric.send(RegisterJob(ring_job("ring", ring, max_subflows=4)))
    fabric.run(0.5)
    fabric.solve()
    fabric.cut(LEAF, UPLINK)
    status = status_of(fabric)
    (job,) = status.jobs.values()
    assert (status.repairs_total, job.state) == (1, "pinned")
    lost = {
        link for route in job.routes.values() for path, _ in route or () for link in path
    } - fabric.loop.fabric.links.keys()
    assert not lost
    fabric.solve()
    assert status_of(fabric).network_efficiency == pytest.approx(1 / 2), "four flows over the two spines that are left"


def test_repairs_are_told_in_the_log(fabric: SlowSolver) -> None:
    before = status_of(fabric)
    fabric.cut(LEAF, UPLINK)
    told = dict(events(before, status_of(fabric)))
    assert told["routes repaired"]["flows"] == 2
    assert told["routes repaired"]["plan_ms"] > 0
    assert told["routes repaired"]["in_force_s"] == 0.0


def test_repaired_routes_do_not_count_as_confirmed_before_their_rules_are(fabric: SlowSolver) -> None:
    """One new generation for routes that were lost, and one for those that the switches confirm."""
    before = status_of(fabric).jobs
    fabric.cut(LEAF, UPLINK)
    after = status_of(fabric).jobs
    repaired = [job for job in before if before[job].routes != after[job].routes]
    assert repaired
    newest = max(job.routes_generation for job in before.values())
    assert max(job.routes_generation for job in after.values()) == newest + 2 * len(repaired)
