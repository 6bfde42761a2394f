"""A controller that has just started or was killed, and switches that have lost their rules or connect late."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest

from controller.fabric.messages import SwitchConnected
from controller.fabric.topology import Dpid, PortNo
from controller.jobs.messages import DeregisterJob, RegisterJob, UpdateJob, UpdateJobs
from controller.planning.analysis.messages import Explain, GetPlanProof, WhatIf
from controller.tables.rules import FlowRule, GroupRule, RuleMod, RuleSet, Table
from signalbox.errors import NotKnownYet
from signalbox.jobs.spec import JobId
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.fake_switch import FakeSwitch
from tests.support.long_cases import with_long
from tests.support.three_rings import CONFIG, RINGS, assert_no_collision, register, spines_used, started


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
    assert "waits for hosts, and switches hold its earlier routes" in str(fabric.request(GetPlanProof()))
    assert fabric.request(WhatIf(frozenset(), None, 1.0)) is None, "failures are analysed of what runs"
    fabric.connect(*late)
    fabric.run(10)
    assert fabric.request(GetPlanProof()) is None, "it is being analysed"


def test_without_switches_there_is_nothing_to_analyse() -> None:
    fabric = FakeFabric()
    fabric.start(CONFIG, late=[*fabric.switches])
    refused = fabric.request(GetPlanProof())
    assert str(refused) == "no switch is connected yet: try again when the switches have connected"


# ---- a controller is killed after any single rule change: the next one finishes the work and changes nothing else


REGISTER, EXCHANGE = "jobs register", "jobs exchange their hosts"
QUICK = [*product([REGISTER], range(0, 100, 12)), *product([EXCHANGE], (0, 48, 96))]
"""Work, and the percentage of its rule changes after which the controller is killed."""


class Killed(BaseException):
    """End of the controller as by SIGKILL: it finishes and announces nothing."""


def before(work: str) -> FakeFabric:
    fabric = started(FakeFabric(), *((0, 1, 2) if work == EXCHANGE else ()), lease_s=600)
    fabric.forget_mods()
    return fabric


def do(work: str, fabric: FakeFabric) -> None:
    if work == REGISTER:
        register(fabric, 0, 1, 2, lease_s=600)
    else:
        fabric.send(UpdateJobs(tuple(UpdateJob(ring_job(f"job{n}", RINGS[1 - n], lease_s=600)) for n in (0, 1))))
    fabric.run(3)


def end(fabric: FakeFabric) -> dict[str, RuleSet]:
    for number in range(len(RINGS)):
        fabric.send(DeregisterJob(JobId(f"job{number}")))
    fabric.run(CONFIG.jobs.orphan_lease_s, step=0.5)
    return {switch.name: switch.rules() for switch in fabric.switches.values()}


@cache
def undisturbed(work: str) -> tuple[int, dict[str, RuleSet]]:
    fabric = before(work)
    do(work, fabric)
    return len(fabric.mods), end(fabric)


@pytest.mark.parametrize(("work", "percent"), with_long(QUICK, product([REGISTER, EXCHANGE], range(0, 100, 4))))
def test_killed_after_any_change_the_next_controller_finishes_the_work(
    work: str, percent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, rules_left = undisturbed(work)
    fabric = before(work)

    def kill() -> None:
        if len(fabric.mods) == 1 + changes * percent // 100:
            raise Killed

    fabric.after_each_mod = kill
    with pytest.raises(Killed):
        do(work, fabric)
    fabric.after_each_mod = lambda: None
    monkeypatch.setattr(FakeSwitch, "apply", only_changes)
    fabric.start(CONFIG)
    assert not any(fabric.loop.state.sync.foreign.values()), "also what leads to switches that connected later is ours"
    fabric.run(CONFIG.discovery.adoption_patience_s + 4, step=0.5)
    status = fabric.status
    assert {job.state for job in status.jobs.values()} == {"pinned"}
    assert all(switch.in_sync for switch in status.switches.values())
    assert_no_collision(fabric)
    assert end(fabric) == rules_left


apply = FakeSwitch.apply


def only_changes(switch: FakeSwitch, mod: RuleMod) -> str | None:
    """Apply a rule change, and assert that it changes something: no rule that is already right is sent again."""
    rule = mod.rule
    if isinstance(rule, FlowRule):
        assert (mod.op == "delete") == (switch.flows.get(rule.key) == rule), f"{mod.op} of a rule that is right"
    elif isinstance(rule, GroupRule):
        assert (mod.op == "delete") == (switch.groups.get(rule.group_id) == rule), f"{mod.op} of a group that is right"
    return apply(switch, mod)
