"""A job's own bytes are not background (traffic of no job), also those before it registered or changed its path."""

from __future__ import annotations

import gc
from itertools import product

import pytest

from controller.config import CountersConfig
from controller.fabric.messages import DrainParts, UndrainParts
from controller.fabric.topology import LinkId
from controller.jobs.messages import DeregisterJob, RegisterJob
from controller.planning.messages import SetMode
from controller.planning.plan import Plan
from controller.planning.problem import FlowId
from signalbox.jobs.spec import JobId
from signalbox.words import Mode
from tests.support.busy_fabric import BusyFabric, Ring
from tests.support.fake_fabric import FABRIC_BPS, ring_job
from tests.support.long_cases import with_long
from tests.support.three_rings import CONFIG, RINGS, register, started

OURS = ("controller.core.", "controller.fabric.", "controller.jobs.", "controller.tables.", "signalbox.")
"""Packages whose objects may not be in a cycle; the planner is another process, with the usual garbage collector."""

STRAY = FlowId("10.0.1.4", "10.0.2.4")


def training(most_bps: float = FABRIC_BPS, seed: int = 1) -> BusyFabric:
    """Return a fabric where three rings train and no job is registered; with some seeds, ECMP makes flows collide."""
    fabric = started(BusyFabric(hosts_per_leaf=4, seed=seed))
    fabric.all_speak()
    fabric.rings = [Ring(ips, most_bps) for ips in RINGS]
    return fabric


def plan_of(fabric: BusyFabric) -> Plan:
    plan = fabric.status.plan
    assert plan is not None
    return plan


@pytest.mark.parametrize(
    ("seed", "moment"), with_long([(1, 0.0), (2, 0.5), (3, 1.5)], product((1, 2, 3), (0.0, 0.5, 1.0, 1.5)))
)
def test_the_first_plan_is_that_of_an_idle_fabric(seed: int, moment: float) -> None:
    """The jobs register at various times after the last poll."""
    fabric = training(seed=seed)
    fabric.carry(16 + moment)
    assert len(fabric.background_bps()) > 30
    register(fabric, 0, 1, 2, lease_s=600)
    assert fabric.background_bps() == {}
    fabric.carry(0.5)
    first = plan_of(fabric)
    assert (first.bound, first.max_slowdown) == (1.0, 1.0)
    assert set(fabric.rates_bps().values()) == {FABRIC_BPS}, "the plan is in force"
    for _ in range(50):
        fabric.carry(0.5)
        assert fabric.background_bps() == {}
        assert plan_of(fabric).max_slowdown == 1.0
    assert fabric.status.moved_flows_total == 0


@pytest.mark.parametrize("pause_s", [1.0, 9.0])
def test_jobs_that_are_registered_one_after_the_other_end_on_the_same_plan(pause_s: float) -> None:
    fabric = training()
    fabric.carry(16)
    for number in (0, 1, 2):
        register(fabric, number, lease_s=600)
        fabric.carry(pause_s)
    for _ in range(30):
        fabric.carry(0.5)
        assert fabric.background_bps() == {}
    assert plan_of(fabric).max_slowdown == 1.0


def test_a_registration_under_ecmp_leaves_no_background_either() -> None:
    fabric = training()
    fabric.send(SetMode(Mode.ECMP))
    fabric.carry(16)
    register(fabric, 0, 1, 2, lease_s=600)
    for _ in range(30):
        assert fabric.background_bps() == {}
        fabric.carry(0.5)


def test_a_link_that_others_fill_is_still_avoided() -> None:
    fabric = training(most_bps=0.2 * FABRIC_BPS)
    fabric.stray_bps = {STRAY: 0.95 * FABRIC_BPS}
    fabric.carry(16)
    ports = [LinkId(*port) for port in fabric.ports_on(STRAY)[:2]]
    assert fabric.background_bps().keys() >= {*ports}
    register(fabric, 0, 1, 2, lease_s=600)
    for _ in range(30):
        found = fabric.background_bps()
        for link in ports:
            assert found[link] >= (0.95 - 3 * 0.2) * FABRIC_BPS - 1
        fabric.carry(0.5)
        routes = [route for job in fabric.status.jobs.values() for route in job.routes.values() if route]
        used = {link for route in routes for subflow in route for link in subflow.path}
        assert len(routes) == 12
        assert used.isdisjoint(ports)
    assert fabric.background_bps() == {
        link: pytest.approx(0.95 * FABRIC_BPS, rel=0.01)
        for link in (*ports, LinkId(*fabric.hosts[STRAY.dst_ip]), LinkId(*fabric.hosts[STRAY.src_ip], "in"))
    }


def test_what_others_send_is_known_again_as_soon_as_the_job_is_counted() -> None:
    """The background is right at once; it does not approach its value by half with every further poll."""
    fabric = training()
    fabric.carry(16)
    fabric.stray_bps = {STRAY: 0.9 * FABRIC_BPS}
    register(fabric, 0, lease_s=600)
    fabric.rings = fabric.rings[:1]
    link = LinkId(*fabric.ports_on(STRAY)[0])
    seen = []
    for _ in range(30):
        fabric.carry(0.5)
        seen.append(fabric.background_bps().get(link, 0.0))
    known = next(bps for bps in seen[seen.index(0.0) :] if bps)  # at first the old value may remain
    assert known == pytest.approx(0.9 * FABRIC_BPS, rel=0.01)


def test_the_bytes_of_a_job_that_leaves_are_background_when_they_go_on() -> None:
    fabric = training()
    register(fabric, 0, 1, 2, lease_s=600)
    fabric.carry(20)
    assert fabric.background_bps() == {}
    fabric.send(DeregisterJob(JobId("job0")))
    fabric.carry(40)
    link = LinkId(*fabric.ports_on(fabric.rings[0].flows[0])[0])
    assert fabric.background_bps()[link] > 0.4 * FABRIC_BPS
    register(fabric, 0, lease_s=600)
    assert fabric.background_bps() == {}
    fabric.carry(0.5)
    assert plan_of(fabric).max_slowdown == 1.0
    for _ in range(30):
        fabric.carry(0.5)
        assert fabric.background_bps() == {}


@pytest.mark.parametrize("gone_s", [0.5, 9.0, 12.5])
def test_own_bytes_are_no_background_when_a_job_is_registered_again(gone_s: float) -> None:
    """The job's former rules counted in the same window as its new rules, or in a part of that window."""
    fabric = training()
    register(fabric, 0, 1, 2, lease_s=600)
    fabric.carry(20.5)
    fabric.send(DeregisterJob(JobId("job0")))
    fabric.carry(gone_s)
    register(fabric, 0, lease_s=600)
    for _ in range(30):
        assert fabric.background_bps() == {}
        fabric.carry(0.5)
    assert plan_of(fabric).max_slowdown == 1.0


def test_a_job_that_has_ended_leaves_no_cycle_of_objects() -> None:
    """The collector skips objects that have lived for 2 s, except once an hour, so such cycles fill memory."""
    fabric = training()
    fabric.carry(4)
    gc.collect()
    gc.disable()
    try:
        register(fabric, 0, 1, lease_s=600)
        fabric.carry(12)
        for number in (0, 1):
            fabric.send(DeregisterJob(JobId(f"job{number}")))
        fabric.carry(4)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = {type(each).__qualname__ for each in gc.garbage if type(each).__module__.startswith(OURS)}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not left


# ---- paths that change


def test_the_bytes_on_a_path_that_was_left_before_counters_were_evaluated_are_no_background() -> None:
    """The controller evaluates counters every 5 s."""
    config = CONFIG.model_copy(update={"counters": CountersConfig(interval_s=5.0, window_s=6.0)})
    fabric = started(BusyFabric(leaves=2, spines=3, hosts_per_leaf=1), config=config)
    ring = Ring(["10.0.1.1", "10.0.2.1"], 0.8 * FABRIC_BPS)
    fabric.rings = [ring]
    fabric.send(RegisterJob(ring_job("ring", [*ring.ips], lease_s=600)))
    fabric.run(2)
    fabric.carry(15)
    paths = []
    for seconds in (4.5, 1.5):
        paths.append(fabric.ports_on(ring.flows[0]))
        fabric.cut(*paths[-1][0])
        fabric.carry(seconds)
    paths.append(fabric.ports_on(ring.flows[0]))
    assert len({ports[0] for ports in paths}) == 3
    assert fabric.background_bps() == {}


def test_hashed_bytes_on_links_that_are_used_again_after_a_drain_are_no_background() -> None:
    """The job registers while the links are drained."""
    fabric = started(BusyFabric(4, 2, 3, seed=1))
    fabric.all_speak()
    fabric.send(SetMode(Mode.ECMP))
    fabric.send(DrainParts(("spine2",)))
    fabric.run(2)
    ring = [f"10.0.{leaf}.1" for leaf in (1, 3, 2, 4)]
    fabric.send(RegisterJob(ring_job("ring", ring, lease_s=600)))
    fabric.run(2)
    fabric.rings = [Ring(ring)]
    fabric.carry(3)
    fabric.send(UndrainParts(("spine2",)))
    fabric.run(1)
    used = {fabric.switches[at.dpid].name for flow in fabric.rings[0].flows for at in fabric.ports_on(flow)}
    assert "spine2" in used
    fabric.carry(20)
    assert fabric.background_bps() == {}
