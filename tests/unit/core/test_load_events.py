"""Unannounced traffic begins and ends beside training jobs: plans follow at once, and do not oscillate."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from controller.core.planning_cycle import LoadEvents, has_slowed
from controller.fabric.topology import Dpid, Host, LinkId, PortNo, PortRef
from controller.jobs.messages import ReportIterations
from controller.planning.problem import FlowId
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId
from tests.support.busy_fabric import COUNTERS, STEP_S, BusyFabric, Ring
from tests.support.fake_fabric import FABRIC_BPS
from tests.support.long_cases import with_long
from tests.support.three_rings import CONFIG, RINGS, register, started

STRAY = FlowId("10.0.1.4", "10.0.2.4")
HALF = 0.5 * FABRIC_BPS
"""Rate in bit/s of an elephant (a large flow) on a link that it shares with a flow of the same rate."""


def training(count: int = 2, spines: int = 4, duty: Callable[[float], float] = lambda _: 1.0) -> BusyFabric:
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
    fabric = training()
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
    fabric = training(count=1, spines=spines)
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
    jobs = training(count=1).loop.derived.ready()
    assert LoadEvents().show({down: HALF}, {down: FABRIC_BPS}, {}, jobs, hosts)


@pytest.mark.parametrize("period_s", with_long([1, 20], [4, 7]))
def test_an_elephant_that_comes_and_goes_moves_few_flows(period_s: float) -> None:
    """Most bursts move no flow, although jobs then share a link between bursts without need."""
    fabric = training(spines=2)
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
    fabric = training(duty=lambda now: float(now / iteration_s % 1 < 0.5))
    hosts = sorted(fabric.hosts)
    before = fabric.status.moved_flows_total
    for _ in range(round(40 / STEP_S)):
        pairs = [draw.sample(hosts, 2) for _ in range(20)]
        mice = {FlowId(src, dst): draw.choice([0.02, 0.1]) * FABRIC_BPS for src, dst in pairs}
        fabric.stray_bps = {flow: bps for flow, bps in mice.items() if flow not in fabric.rings[0].flows}
        fabric.carry(STEP_S)
    assert fabric.status.moved_flows_total - before <= 8


def test_communication_that_takes_longer_starts_a_plan_with_the_next_reading() -> None:
    fabric = training()
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
