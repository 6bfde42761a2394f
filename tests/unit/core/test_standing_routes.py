"""Published routes are the paths of packets at every instant, while links fail and return and no plan follows.

Every packet of a published subflow takes the published path, whatever its ECMP hash. After every single rule change no
packet loops, and no packet is lost that arrived before."""

from __future__ import annotations

import random
from itertools import product

import pytest

from controller.config import Config
from controller.fabric.topology import Dpid, LinkId, PortRef
from controller.jobs.messages import RegisterJob
from controller.planning.plan import Planned
from controller.planning.problem import FlowId
from controller.tables import pins
from offline.scenarios.topologies import fat_tree
from signalbox.jobs.spec import JobId
from tests.support.every_way import Watch, lose_carrier, watch_changes
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric, ring_job
from tests.support.fake_switch import Packet
from tests.support.late_answers import LateAnswers
from tests.support.long_cases import with_long
from tests.support.three_rings import started

CONFIG = Config.model_validate(
    {
        "fabric": {"link_bps": FABRIC_BPS, "host_link_bps": FABRIC_BPS},
        "discovery": {"edge_after_s": 1.0, "hold_down_s": 0.5, "max_hold_down_s": 0.5},
        "planning": {"debounce_s": 20.0, "interval_s": 3600.0},
    }
)
LEAF1, LEAF3 = Dpid(1), Dpid(3)


def running(fabric: FakeFabric, rings: dict[str, list[str]], max_subflows: int = 1) -> FakeFabric:
    fabric.order = random.Random(1)
    started(fabric, config=CONFIG)
    for job_id, ips in rings.items():
        fabric.send(RegisterJob(ring_job(job_id, ips, lease_s=3600.0, max_subflows=max_subflows)))
    fabric.run(30, step=0.5)
    return fabric


def four_by_two() -> FakeFabric:
    rings = {f"job{host}": [f"10.0.{leaf}.{host}" for leaf in (1, 3, 2, 4)] for host in (1, 2)}
    return running(FakeFabric(4, 2, 2), rings)


def assert_told_as_it_is(fabric: FakeFabric) -> None:
    """Follow packets of every published subflow, and assert that they take the published path."""
    status = fabric.status
    for job in status.jobs.values():
        for flow, route in job.routes.items():
            for number, (path, _) in enumerate(route or ()):
                ports = job.dividing.bundles(flow.pair)[number][0].src if len(route or ()) > 1 else None
                packet = Packet(flow.src_ip, flow.dst_ip, src_port=ports.value if ports else 0)
                assert links_taken(fabric, packet) == list(path), f"{flow} at {fabric.now}"
        assert (job.state == "pinned") == (None not in job.routes.values())
    if status.plan_installed:
        assert status.plan
        for job in status.jobs.values():
            assert all(route == status.plan.routes.get(flow) for flow, route in job.routes.items())


def links_taken(fabric: FakeFabric, packet: Packet) -> list[LinkId]:
    """Return the links that the packet takes; fail when a switch can send it out of several ports."""
    at, links = fabric.hosts[packet.src], list[LinkId]()
    while True:
        (port,) = fabric.switches[at.dpid].possible(at.port, packet)
        assert port is not None
        if PortRef(at.dpid, port) == fabric.hosts[packet.dst]:
            return links
        links.append(LinkId(at.dpid, port))
        peer = fabric.switches[at.dpid].peers[port]
        assert peer
        at = peer


def cut(fabric: FakeFabric, end: PortRef, watch: Watch) -> None:
    lose_carrier(fabric, *end)
    watch.look()
    fabric.cut(*end)


def uplink(fabric: FakeFabric, leaf: Dpid, spine: str) -> PortRef:
    peers = fabric.switches[leaf].peers.items()
    return next(PortRef(leaf, port) for port, to in peers if to and fabric.switches[to.dpid].name == spine)


def test_a_detour_is_given_up_in_what_is_told_when_its_packets_leave_it() -> None:
    fabric = four_by_two()
    watch = Watch(fabric, list(fabric.hosts))
    watch_changes(fabric, watch)
    first, second = uplink(fabric, LEAF1, "spine1"), uplink(fabric, LEAF3, "spine2")
    for end in (first, second):
        cut(fabric, end, watch)
        assert not watch.lost
        assert_told_as_it_is(fabric)
    flow = FlowId("10.0.1.1", "10.0.3.1")
    before = fabric.status
    route = before.jobs[JobId("job1")].routes[flow]
    assert route, "planned"
    assert [len(path) for path, _ in route] == [4], "over a third leaf"
    plans, pins = before.plans_total, before.pins
    fabric.plug(*second)
    told = []
    for _ in range(30):
        fabric.run(0.1)
        assert_told_as_it_is(fabric)
        status = fabric.status
        job = status.jobs[JobId("job1")]
        told.append((job.routes[flow] is not None, job.state, bool(job.slowdown), status.plan_installed))
    assert told[0] == (True, "pinned", True, True), "held down"
    assert told[-1] == (False, "partly_pinned", False, False)
    assert fabric.status.plans_total == plans, "no plan has followed"
    assert fabric.status.pins < pins
    fabric.run(25)
    assert fabric.status.plans_total > plans
    assert {(job.state, bool(job.slowdown)) for job in fabric.status.jobs.values()} == {("pinned", True)}
    assert fabric.status.plan_installed
    assert_told_as_it_is(fabric)
    assert not watch.lost


POD = (0x001, 0x002)
"""Two edge switches, which have a path through other pods when their own aggregation switches have none."""


QUICK = [(0, 1), (1, pins.AT_ONCE), (3, 1)]


@pytest.mark.parametrize(("seed", "at_once"), with_long(QUICK, product(range(4), (1, pins.AT_ONCE))))
def test_whatever_links_go_and_come_packets_go_as_told(
    seed: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pins, "AT_ONCE", at_once)
    tree = seed == 3
    empty = FakeFabric(topology=fat_tree(4, FABRIC_BPS, FABRIC_BPS)) if tree else FakeFabric(5, 2, 2)
    leaves = [1, 3, 2, 4, 5] if tree else [1, 3, 5, 2, 4]
    rings = {"up": [f"10.0.{leaf}.1" for leaf in leaves], "down": [f"10.0.{leaf}.2" for leaf in sorted(leaves)]}
    fabric = running(empty, rings, max_subflows=1 + seed % 2)
    order, watch = random.Random(seed), Watch(fabric, [ip for ring in rings.values() for ip in ring[:4]])
    watch_changes(fabric, watch)
    ends = (
        PortRef(dpid, port) for dpid in map(Dpid, POD if tree else range(1, 6)) for port in fabric.switches[dpid].peers
    )
    cables = [end for end in ends if fabric.switches[end.dpid].peers[end.port]]
    dead: list[PortRef] = []
    invalid = 0
    for _ in range(24):
        if len(dead) < 2 or (len(dead) < 3 and order.random() < 0.5):
            end = order.choice(sorted(set(cables) - {*dead, *(other_end(fabric, one) for one in dead)}))
            cut(fabric, end, watch)
            dead.append(end)
        else:
            fabric.plug(*dead.pop(order.randrange(len(dead))))
        assert_told_as_it_is(fabric)
        for _ in range(order.choice([2, 12])):
            fabric.run(0.1)
            assert_told_as_it_is(fabric)
            invalid += bool(fabric.loop.state.wanted.pins.invalid)
    assert invalid, "some routes were given up"
    for end in dead:
        fabric.plug(*end)
    fabric.run(30, step=0.5)
    assert_told_as_it_is(fabric)
    assert not watch.lost
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}


def other_end(fabric: FakeFabric, end: PortRef) -> PortRef:
    other = fabric.switches[end.dpid].peers[end.port]
    assert other
    return other


def test_a_flow_whose_path_is_lost_is_not_told_as_pinned_while_no_repair_comes() -> None:
    fabric = LateAnswers(5, 2, 2)
    ring = [f"10.0.{leaf}.1" for leaf in (1, 3, 5, 2, 4)]
    running(fabric, {"ring": ring})
    watch = Watch(fabric, ring)
    watch_changes(fabric, watch)
    pins = fabric.status.pins
    fabric.is_late = lambda answer: isinstance(answer, Planned)
    (((first, _), _),) = fabric.loop.state.routes.routes[FlowId("10.0.1.1", "10.0.3.1")]
    cut(fabric, PortRef(*first.at), watch)
    for _ in range(20):
        fabric.run(0.1)
        assert_told_as_it_is(fabric)
    (job,) = fabric.status.jobs.values()
    assert (job.state, bool(job.slowdown), fabric.status.plan_installed) == ("partly_pinned", False, False)
    assert fabric.status.pins < pins
    assert fabric.status.repair_s is None, "it is not repaired yet"
    fabric.is_late = lambda _: False
    fabric.deliver()
    fabric.run(25)
    (job,) = fabric.status.jobs.values()
    assert (job.state, bool(job.slowdown), fabric.status.plan_installed) == ("pinned", True, True)
    assert fabric.status.repair_s is not None
    assert not watch.lost
