"""A controller that has just started, and switches that have lost their rules or connect late."""

from __future__ import annotations

import pytest

from controller.config import JobsConfig
from controller.fabric.messages import SwitchConnected
from controller.fabric.topology import Dpid, PortNo
from controller.jobs.messages import RegisterJob
from controller.planning.analysis.requests import Explain, GetPlanProof, Question, WhatIf
from controller.tables.rules import Table
from signalbox.errors import InvalidInput, NotKnownYet
from signalbox.jobs.spec import JobId
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.three_rings import CONFIG, assert_no_collision, register, spines_used


@pytest.fixture
def fabric() -> FakeFabric:
    """Return a fabric whose three jobs run on routes that a fresh plan would not choose.

    Links have failed and returned."""
    fabric = FakeFabric()
    fabric.start(CONFIG)
    fabric.run(3)
    register(fabric, 0, 1, 2)
    fabric.run(3)
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
    for switch in (fabric.switches[dpid] for dpid in rebooted):
        switch.flows, switch.groups, switch.meters = {}, {}, {}
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


def returned(fabric: FakeFabric, dpid: Dpid) -> bool:
    """Connect a switch and read its rules; return whether the controller then adopts the rules of switches."""
    fabric.send(SwitchConnected(dpid, fabric.switches[dpid].name, fabric.switches[dpid].ports()))
    return fabric.status.adopting


def test_a_switch_that_connects_again_begins_no_adoption(fabric: FakeFabric) -> None:
    fabric.start(CONFIG)
    fabric.run(10)
    fabric.lose(Dpid(3))
    fabric.run(1)
    assert not returned(fabric, Dpid(3))


@pytest.mark.parametrize(("empty", "after_s"), [(True, 0.0), (False, CONFIG.jobs.orphan_lease_s)])
def test_a_late_switch_without_rules_or_after_the_lease_begins_no_adoption(
    fabric: FakeFabric, empty: bool, after_s: float
) -> None:
    """During the lease jobs register again, and pins of unknown jobs stay."""
    late = fabric.switches[Dpid(3)]
    if empty:
        late.flows, late.groups, late.meters = {}, {}, {}
    fabric.start(CONFIG, late=[late.dpid])
    fabric.run(CONFIG.discovery.adoption_patience_s + 5 + after_s, step=0.5)
    assert not fabric.status.adopting
    assert not returned(fabric, late.dpid)


@pytest.mark.parametrize("question", [Explain(JobId("job0")), WhatIf(frozenset(), None, 1.0), GetPlanProof()])
def test_what_runs_is_not_known_while_rules_are_adopted(fabric: FakeFabric, question: Question) -> None:
    """A proof about unknown routes would prove nothing."""
    fabric.start(CONFIG, late=[Dpid(3)])
    fabric.run(2)
    assert fabric.status.adopting
    fabric.send(question)
    assert isinstance(fabric.replies[-1].value, NotKnownYet)
    assert fabric.replies[-1].future is question.reply


def test_routes_of_a_job_that_waits_for_hosts_are_not_left_out_of_a_proof(fabric: FakeFabric) -> None:
    late = [Dpid(3)]
    fabric.start(CONFIG, late=late)
    fabric.run(CONFIG.discovery.adoption_patience_s + 5)
    assert not fabric.status.adopting
    fabric.send(GetPlanProof())
    assert "waits for hosts, but switches hold routes of it" in str(fabric.replies[-1].value)
    before = len(fabric.replies)
    fabric.send(WhatIf(frozenset(), None, 1.0))
    assert len(fabric.replies) == before, "failures are analysed of what runs"
    fabric.connect(*late)
    fabric.run(10)
    before = len(fabric.replies)
    fabric.send(GetPlanProof())
    assert len(fabric.replies) == before, "it is being analysed"


def test_without_switches_there_is_nothing_to_analyse() -> None:
    fabric = FakeFabric()
    fabric.start(CONFIG, late=[*fabric.switches])
    fabric.send(GetPlanProof())
    assert str(fabric.replies[-1].value) == "no switch is connected yet: try again when the switches have connected"


def test_saved_jobs_that_are_more_than_allowed_are_refused_with_what_to_do(fabric: FakeFabric) -> None:
    with pytest.raises(InvalidInput, match=r"cannot be accepted: .*Nothing was changed.*jobs\.max_jobs is 2"):
        fabric.start(CONFIG.model_copy(update={"jobs": JobsConfig(max_jobs=2)}))
