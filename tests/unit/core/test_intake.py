"""What messages and ticks change that other tests do not see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from controller.config import Strategy
from controller.fabric.topology import Dpid, LinkId, PortNo, PortRef
from controller.jobs.messages import RegisterJob, SavedState
from controller.jobs.spec import JobId
from controller.planning.messages import SetStrategy
from controller.tables.default_table import destination_rules
from controller.tables.rules import FlowKey, Output, Prefix, Table
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.three_rings import CONFIG, RINGS, register

UPLINK = PortRef(Dpid(1), PortNo(1))


def test_background_is_measured_once_per_interval() -> None:
    fabric = FakeFabric()
    fabric.start(CONFIG)
    fabric.run(3)
    measured = []
    for total in range(200):
        fabric.count({UPLINK: total * 50_000}, {})
        fabric.run(0.1)
        measured.append(fabric.loop.state.load.background)
    changes = sum(before is not after for before, after in pairwise(measured))
    assert abs(changes - 20 / CONFIG.counters.interval_s) <= 1
    assert measured[-1][LinkId(*UPLINK)] > 0


def test_a_job_whose_lease_has_ended_is_not_saved_any_more() -> None:
    fabric = FakeFabric()
    fabric.start(CONFIG)
    fabric.run(3)
    fabric.send(RegisterJob(ring_job("short", RINGS[0], lease_s=5)))
    fabric.send(RegisterJob(ring_job("long", RINGS[1], lease_s=60)))
    assert [spec.job_id for spec in fabric.saved.specs] == ["short", "long"]
    fabric.run(6)
    assert [spec.job_id for spec in fabric.saved.specs] == ["long"]


def test_what_an_audit_finds_is_put_right_at_once() -> None:
    fabric = FakeFabric()
    fabric.start(CONFIG)
    fabric.run(3)
    leaf = fabric.switches[Dpid(1)]
    key, _ = leaf.flows.popitem()
    while not fabric.status.switches[leaf.dpid].healed_rules:
        fabric.run(0.1)
    assert key in leaf.flows


def test_rules_of_a_late_switch_do_not_move_a_host_that_is_known_elsewhere() -> None:
    fabric = FakeFabric()
    fabric.start(CONFIG)
    fabric.run(3)
    register(fabric, 0)
    fabric.run(2)
    late, ip = fabric.switches[Dpid(2)], RINGS[0][0]
    late.flows |= {rule.key: rule for rule in destination_rules(Prefix(ip), Output(PortNo(7)), 0)}
    fabric.lose(late.dpid)
    fabric.run(1)
    fabric.connect(late.dpid)
    fabric.run(1)
    assert fabric.loop.fabric.hosts[ip].at == fabric.hosts[ip]


def test_under_ecmp_pins_that_switches_hold_are_given_up() -> None:
    """The strategy was set while the switches could not be reached."""
    fabric = FakeFabric()
    fabric.start(CONFIG)
    fabric.run(3)
    register(fabric, 0)
    fabric.run(2)
    assert fabric.status.pins
    fabric.saved = replace(fabric.saved, strategy=Strategy.ECMP)
    fabric.start(CONFIG)
    fabric.run(10)
    assert (fabric.status.pins, fabric.status.jobs[JobId("job0")].state) == (0, "ecmp")


def test_pins_of_unknown_jobs_go_when_another_strategy_is_set() -> None:
    """They would otherwise stay for the lease."""
    fabric = FakeFabric()
    fabric.start(CONFIG)
    fabric.run(3)
    register(fabric, 0)
    fabric.run(2)
    fabric.saved = SavedState()
    fabric.start(CONFIG)
    fabric.run(5)
    assert any(pinned(fabric))
    fabric.send(SetStrategy(Strategy.ECMP))
    fabric.run(1)
    assert not any(pinned(fabric))


def pinned(fabric: FakeFabric) -> Iterator[FlowKey]:
    """Entries of pins, on any switch."""
    for switch in fabric.switches.values():
        yield from (key for key in switch.flows if key.table == Table.PINNED and key.match.ipv4_src)
