"""The control loop meets duplicate dpids, another master, full tables, manual changes of rules, and false switches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.alarms import text
from controller.config import PlanningConfig
from controller.core.messages import Command, Message
from controller.core.sending import MOST_PATIENCES
from controller.fabric.messages import ConnectionRefused, MastershipLost, SwitchConnected
from controller.fabric.parts import Declared
from controller.fabric.refusals import DUPLICATES_RECENT_S
from controller.fabric.topology import Dpid, Port, PortNo
from controller.fabric.topology_state import DeclaredHost
from controller.planning.analysis.messages import GetPlanProof
from controller.serving.event_log import events
from controller.tables.messages import InstallStage, ReadRules
from controller.tables.rules import Table
from signalbox.errors import NotKnownYet
from tests.support.fake_fabric import FakeFabric
from tests.support.three_rings import CONFIG, assert_no_collision, register, started

SPINE = Dpid(257)


@pytest.fixture
def fabric() -> FakeFabric:
    return started(FakeFabric(), 0, 1, 2, lease_s=600)


def alarms(fabric: FakeFabric) -> str:
    return "\n".join(map(text, fabric.status.alarms.values()))


def test_nothing_is_written_to_a_switch_that_another_controller_took(fabric: FakeFabric) -> None:
    fabric.send(MastershipLost(SPINE, "spine1"))
    fabric.forget_mods()
    fabric.run(10)
    assert fabric.switches[SPINE].mods == []
    assert fabric.mods, "the others send around it"
    assert "another controller is the master of spine1" in alarms(fabric)
    fabric.connect(SPINE)
    fabric.run(5)
    assert "another controller" not in alarms(fabric)
    assert_no_collision(fabric)


def test_a_second_switch_with_a_dpid_is_told_of_while_it_keeps_coming_and_changes_nothing(fabric: FakeFabric) -> None:
    fabric.forget_mods()
    before = fabric.status
    fabric.send(ConnectionRefused("192.0.2.5:40000", SPINE, "duplicate_dpid"))
    after = fabric.status
    assert "a second switch, at 192.0.2.5, has the dpid of spine1 (0x101) and is refused" in alarms(fabric)
    assert after.refused_connections["duplicate_dpid"] == 1
    assert (fabric.mods, after.fabric) == ([], before.fabric)
    fabric.run(DUPLICATES_RECENT_S + 1, step=1)
    assert "a second switch" not in alarms(fabric)


def test_what_somebody_deletes_comes_back_with_the_next_audit_and_is_counted(fabric: FakeFabric) -> None:
    leaf = fabric.switches[Dpid(1)]
    gone = [key for key in leaf.flows if key.table == Table.PINNED and key.match.ip_src]
    for key in gone:
        del leaf.flows[key]
    before = fabric.status
    fabric.forget_mods()
    fabric.run(CONFIG.openflow.audit_interval_s + 2, step=0.5)
    after = fabric.status
    assert set(gone) <= leaf.flows.keys()
    assert {mod.rule for mod in leaf.mods} == {leaf.flows[key] for key in gone}
    assert after.switches[Dpid(1)].healed_rules == len(gone)
    told = {what: details for _, what, details in events(before, after)}
    assert told["foreign change to rules undone"] == {"switch": "leaf1", "count": len(gone)}
    assert {job.state for job in after.jobs.values()} == {"pinned"}


def test_audits_that_find_nothing_cause_nothing() -> None:
    fabric = FakeFabric()
    fabric.start(CONFIG.model_copy(update={"planning": PlanningConfig(interval_s=1000)}))
    fabric.run(CONFIG.jobs.orphan_lease_s + 10, step=1)
    fabric.forget_mods()
    desired, stages = fabric.loop.state.wanted.rules, len(fabric.stages)
    fabric.run(CONFIG.openflow.audit_interval_s + 2, step=1)
    assert (fabric.mods, len(fabric.stages)) == ([], stages)
    assert fabric.loop.state.wanted.rules is desired, "nothing was worked out anew"


def test_many_refused_rules_are_one_alarm(fabric: FakeFabric) -> None:
    leaf = fabric.switches[Dpid(1)]
    pins = {key for key in leaf.flows if key.table == Table.PINNED and key.match.ip_src}
    leaf.flows = {key: rule for key, rule in leaf.flows.items() if key not in pins}
    leaf.refuses = pins
    fabric.connect(Dpid(1))
    fabric.run(6)
    refused = [alarm for alarm in alarms(fabric).splitlines() if "refused" in alarm]
    assert refused == [f"leaf1 refused {len(pins)} rules (table full); the flows of these rules stay on ECMP"]


def test_routes_that_switches_refuse_are_not_proven(fabric: FakeFabric) -> None:
    for switch in fabric.switches.values():
        switch.refuses.update(key for key in switch.flows if key.table is Table.PINNED)
        switch.flows = {key: rule for key, rule in switch.flows.items() if key.table is not Table.PINNED}
    fabric.start(CONFIG)
    fabric.run(10)
    refused = fabric.request(GetPlanProof())
    assert isinstance(refused, NotKnownYet)
    assert "are being installed or were refused" in str(refused)
    assert refused.retry_s, "jobs may come all the time; a moment later none may be under way"


# ---- switches that claim what is not true


class WithStrangers(FakeFabric):
    """Fabric to which foreign switches connect, which answer nothing."""

    def stranger(self, number: int, name: str, ports: tuple[Port, ...]) -> None:
        self.send(SwitchConnected(Dpid(0xBAD + number), name, ports))

    def _carry_out(self, command: Command) -> list[Message]:
        if isinstance(command, ReadRules) and command.dpid not in self.switches:
            return []
        if isinstance(command, InstallStage):
            stage = command.stage.only(lambda dpid, _: dpid in self.switches)
            return super()._carry_out(replace(command, stage=stage))
        return super()._carry_out(command)


def test_ever_new_switches_keep_a_started_controller_from_planning_only_so_long() -> None:
    fabric = WithStrangers()
    fabric.start(CONFIG)
    register(fabric, 0, lease_s=600)
    ports = tuple(Port(PortNo(n), f"eth{n}", "02:00:00:00:00:01", True, 1e9) for n in (1, 2))
    for number in range(2 * MOST_PATIENCES):
        fabric.stranger(number, "stranger", ports)
        fabric.run(CONFIG.discovery.adoption_patience_s - 1, step=1)
    assert fabric.job("job0").state == "pinned"


def test_a_switch_that_takes_the_name_of_another_takes_none_of_its_declared_hosts() -> None:
    fabric = WithStrangers()
    ip, at = next(iter(fabric.hosts.items()))
    leaf = fabric.switches[at.dpid]
    port = next(port for port in leaf.ports() if port.number == at.port)
    fabric.declared = Declared((DeclaredHost(ip, None, leaf.name, port.name),))
    fabric.start()
    fabric.stranger(0, leaf.name, tuple(leaf.ports()))
    assert fabric.loop.fabric.hosts[ip].at == at
