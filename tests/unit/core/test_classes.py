"""Classes of jobs that an extension gives: switches mark the packets of a job where they begin."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from controller.core.messages import NO_EFFECTS, Arrange, Effects, Extension, Work, at_once
from controller.jobs.messages import RegisterJob
from controller.tables.rules import FlowKey, FlowRule, RuleSet, SetDscp, Table, ToGroup
from signalbox.jobs.spec import JobId
from tests.support.fake_fabric import FakeFabric, ring_job

HOSTS = ["10.0.1.1", "10.0.2.1", "10.0.3.1"]
OTHERS = ["10.0.1.2", "10.0.2.2"]


class Marking(Extension):
    """Extension that gives jobs the DSCP that the test has chosen."""

    def __init__(self) -> None:
        self.chosen: Mapping[JobId, int] = {}
        self._given: Mapping[JobId, int] = {}

    def tick(self, arrange: Arrange, now: float) -> Effects:  # noqa: ARG002
        before, self._given = self._given, self.chosen
        return NO_EFFECTS if self._given is before else at_once(Work.RULES)

    @property
    def dscp(self) -> Mapping[JobId, int]:
        return self._given


@pytest.fixture
def marking(monkeypatch: pytest.MonkeyPatch) -> Marking:
    extension = Marking()
    monkeypatch.setattr("controller.control_loop.configured", lambda *_: extension)
    return extension


@pytest.fixture
def fabric(marking: Marking) -> FakeFabric:
    fabric = FakeFabric()
    fabric.start()
    assert fabric.loop.extension is marking
    for name, hosts in (("job", HOSTS), ("other", OTHERS)):
        fabric.request(RegisterJob(ring_job(name, hosts)))
    fabric.run(5)
    return fabric


def held(fabric: FakeFabric) -> dict[int, RuleSet]:
    return {dpid: RuleSet.of(switch.flows.values()) for dpid, switch in fabric.switches.items()}


def pins(fabric: FakeFabric) -> dict[tuple[int, FlowKey], FlowRule]:
    found = ((dpid, rule) for dpid, switch in fabric.switches.items() for rule in switch.flows.values())
    return {(dpid, rule.key): rule for dpid, rule in found if rule.key.table is Table.PINNED and rule.key.match.ip_src}


def test_the_pins_of_a_job_with_a_class_mark_its_packets_and_no_others(fabric: FakeFabric, marking: Marking) -> None:
    before = pins(fabric)
    stages = len(fabric.stages)
    marking.chosen = {JobId("job"): 26}
    routes: list[list[str] | None] = []
    states = set()

    def look() -> None:
        routes.append(fabric.trace("10.0.1.1", "10.0.2.1"))
        states.add(fabric.job("job").state)

    fabric.after_each_mod = look
    fabric.forget_mods()
    fabric.run(1)
    after = pins(fabric)
    marked = {at for at, rule in after.items() if SetDscp(26) in rule.actions}
    assert marked == {at for at in before if {end.address for end in at[1].match.ends} <= set(HOSTS)}
    assert {after[at].actions[0] for at in marked} == {SetDscp(26)}
    assert all(after[at].actions[1:] == before[at].actions for at in marked)
    assert all(isinstance(after[at].actions[1], ToGroup) for at in marked)
    assert {at: rule for at, rule in after.items() if at not in marked} == {
        at: rule for at, rule in before.items() if at not in marked
    }
    assert len(fabric.stages) == stages + 1
    assert {mod.op for mod in fabric.mods} == {"modify"}
    assert len(fabric.mods) == len(marked)
    assert routes
    assert all(route == routes[0] and route for route in routes)
    assert states == {"pinned"}  # the route is confirmed all the time


def test_a_change_and_the_end_of_a_class_modify_the_same_pins(fabric: FakeFabric, marking: Marking) -> None:
    unmarked = held(fabric)
    for dscp in (10, 18):
        marking.chosen = {JobId("job"): dscp}
        fabric.run(1)
        values = {action.dscp for rule in pins(fabric).values() for action in rule.marking}
        assert values == {dscp}
    fabric.forget_mods()
    marking.chosen = {}
    fabric.run(1)
    assert {mod.op for mod in fabric.mods} == {"modify"}
    assert held(fabric) == unmarked


def test_a_job_keeps_its_mark_while_it_uses_ecmp(fabric: FakeFabric, marking: Marking) -> None:
    """The counting rules that replace its pins mark its packets too."""
    marking.chosen = {JobId("job"): 26}
    fabric.run(1)
    fabric.loop.state.routes.replace({})
    marking.chosen = {**marking.chosen}
    fabric.run(0.2)
    counting = [rule for rule in pins(fabric).values() if rule.goto is Table.DEFAULT and rule.actions]
    assert counting
    assert all(rule.actions == (SetDscp(26),) for rule in counting)
    assert len(counting) == sum(SetDscp(26) in rule.actions for rule in pins(fabric).values())


def test_after_a_restart_pins_keep_their_mark_until_their_job_is_known(fabric: FakeFabric, marking: Marking) -> None:
    marking.chosen = {JobId("job"): 26}
    fabric.run(1)
    marked = pins(fabric)
    fabric.saved = type(fabric.saved)()
    marking.chosen = {}
    fabric.start()
    fabric.run(5)
    assert pins(fabric) == marked
