"""A controller that has just started, and switches that have lost their rules or connect late."""

from __future__ import annotations

import pytest

from controller.fabric.messages import SwitchConnected
from controller.fabric.topology import Dpid, PortNo
from controller.jobs.messages import RegisterJob
from controller.planning.analysis.messages import Explain, GetPlanProof, WhatIf
from controller.tables.rules import Table
from signalbox.errors import NotKnownYet
from signalbox.jobs.spec import JobId
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.three_rings import CONFIG, assert_no_collision, spines_used, started


@pytest.fixture
def fabric() -> FakeFabric:
    """Return a fabric whose three jobs run on routes that a fresh plan would not choose.

    Links have failed and returned."""
    fabric = started(FakeFabric(), 0, 1, 2)
    for leaf, port in ((1, 2), (2, 3), (4, 1)):
        fabric.cut(Dpid(leaf), PortNo(port))
        fabric.run(3)
    for leaf, port in ((1, 2), (2, 3), (4, 1)):
        fabric.plug(Dpid(leaf), PortNo(port))
    fabric.run(10)
    assert_no_collision(fabric)
    return fabric


def test_nothing_is_planned_while_only_switches_without_rules_have_connected(fabric: FakeFabric) -> None:
    """Two leaves and a spine had lost power, and connect before the rest: a plan would use that spine alone."""
    fabric.send(RegisterJob(ring_job("pair", ["10.0.1.3", "10.0.2.2"])))
    fabric.run(3)
    rebooted = [Dpid(1), Dpid(2), Dpid(257)]
    for dpid in rebooted:
        fabric.switches[dpid].forget_rules()
    others = [dpid for dpid in fabric.switches if dpid not in rebooted]
    fabric.start(CONFIG, late=others)
    fabric.run(5)
    assert fabric.status.plan is None
    assert {key.table for dpid in rebooted for key in fabric.switches[dpid].flows} == {Table.CONTROL}
    fabric.connect(*others)
    fabric.run(20)
    status = fabric.status
    assert ({job.state for job in status.jobs.values()}, status.moved_flows_total) == ({"pinned"}, 0)
    assert_no_collision(fabric)


def test_routes_through_a_leaf_that_connects_after_the_others_were_adopted_stay(fabric: FakeFabric) -> None:
    before = spines_used(fabric)
    fabric.forget_mods()
    fabric.start(CONFIG, late=[Dpid(3)])
    fabric.run(CONFIG.discovery.adoption_patience_s + 5)
    assert not fabric.status.adopting
    fabric.connect(Dpid(3))
    fabric.run(10)
    status = fabric.status
    assert spines_used(fabric) == before
    assert {job.state for job in status.jobs.values()} == {"pinned"}
    assert status.moved_flows_total == 0


def test_a_cable_that_is_cut_while_rules_are_adopted_changes_none_of_them(fabric: FakeFabric) -> None:
    fabric.start(CONFIG, late=[Dpid(3)])
    fabric.run(2)
    fabric.forget_mods()
    fabric.cut(Dpid(1), PortNo(2))
    fabric.run(1)
    assert fabric.mods == []


@pytest.mark.parametrize(("empty", "after_s"), [(True, 0.0), (False, CONFIG.jobs.orphan_lease_s)])
def test_a_late_switch_without_rules_or_after_the_lease_begins_no_adoption(
    fabric: FakeFabric, empty: bool, after_s: float
) -> None:
    """During the lease jobs register again, and pins of unknown jobs stay."""
    late = fabric.switches[Dpid(3)]
    if empty:
        late.forget_rules()
    fabric.start(CONFIG, late=[late.dpid])
    fabric.run(CONFIG.discovery.adoption_patience_s + 5 + after_s, step=0.5)
    assert not fabric.status.adopting
    fabric.send(SwitchConnected(late.dpid, late.name, late.ports()))
    assert not fabric.status.adopting


def test_what_runs_is_not_known_while_rules_are_adopted(fabric: FakeFabric) -> None:
    """A proof about unknown routes would prove nothing."""
    fabric.start(CONFIG, late=[Dpid(3)])
    fabric.run(2)
    assert fabric.status.adopting
    for question in (Explain(JobId("job0")), WhatIf(frozenset(), None, 1.0), GetPlanProof()):
        assert isinstance(fabric.request(question), NotKnownYet)


def test_routes_of_a_job_that_waits_for_hosts_are_not_left_out_of_a_proof(fabric: FakeFabric) -> None:
    late = [Dpid(3)]
    fabric.start(CONFIG, late=late)
    fabric.run(CONFIG.discovery.adoption_patience_s + 5)
    assert not fabric.status.adopting
    assert "waits for hosts, but switches hold routes of it" in str(fabric.request(GetPlanProof()))
    assert fabric.request(WhatIf(frozenset(), None, 1.0)) is None, "failures are analysed of what runs"
    fabric.connect(*late)
    fabric.run(10)
    assert fabric.request(GetPlanProof()) is None, "it is being analysed"


def test_without_switches_there_is_nothing_to_analyse() -> None:
    fabric = FakeFabric()
    fabric.start(CONFIG, late=[*fabric.switches])
    refused = fabric.request(GetPlanProof())
    assert str(refused) == "no switch is connected yet: try again when the switches have connected"
