"""The published status of jobs, switches and links, and which alarms the controller raises, since when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.alarms import text
from controller.config import FabricConfig
from controller.core.messages import Command, Message, Tick
from controller.fabric.messages import LinkSeen
from controller.fabric.topology import Dpid, LinkId, PortNo, PortRef
from controller.planning.efficiency import EcmpSlowdown
from controller.planning.messages import SetMode
from controller.planning.plan import Plan, Planned
from controller.planning.problem import FlowId
from controller.tables.flow_tables import pin_key
from controller.tables.messages import Counters, PortCount, SwitchRules, TablesRead
from controller.tables.rules import Table
from signalbox.words import AlarmKind, Mode
from tests.support.fake_fabric import FakeFabric
from tests.support.three_rings import CONFIG, RINGS, register, started

LEAF, HOST_PORT = Dpid(1), PortNo(5)


def alarms(fabric: FakeFabric) -> dict[AlarmKind, str]:
    return {alarm.kind: alarm.subject for alarm in fabric.status.alarms.values()}


# ---- jobs


def test_a_job_that_waits_for_hosts_has_no_slowdown_and_no_ideal_time_and_counts_nothing() -> None:
    fabric = started(FakeFabric(), 0)
    assert fabric.job("job0").slowdown == 1.0
    fabric.silent_hosts = {RINGS[0][0], RINGS[0][1]}
    ends = [fabric.hosts[ip] for ip in RINGS[0][:2]]
    for src, dst in (ends, ends[::-1]):
        fabric.send(LinkSeen(src, dst))
    job = fabric.job("job0")
    assert (job.state, job.slowdown, job.ideal_communication_s) == ("pending", 0.0, 0.0)
    assert (job.efficiency_predicted, job.flows_without_path) == (0.0, 0)
    assert (fabric.status.unserved, fabric.status.network_efficiency) == ({"hosts_missing": 1}, 0.0)
    assert set(job.missing_hosts) == fabric.silent_hosts
    assert alarms(fabric)[AlarmKind.HOSTS_MISSING] == "job0"


# ---- rules of others


def test_foreign_rules_are_counted_and_said_to_be_more_when_some_were_not_read() -> None:
    fabric = started(FakeFabric())
    rules = fabric.switches[LEAF].rules()
    for is_partial, said in ((True, "leaf1 holds at least 3 foreign rules"), (False, "leaf1 holds 3 foreign rules")):
        fabric.loop.state.sync.read_soon(LEAF, fabric.now)
        fabric.loop.handle([Tick()], fabric.now)
        fabric.send(SwitchRules(LEAF, rules, 3, is_partial=is_partial))
        assert [text(alarm) for alarm in fabric.status.alarms.values()] == [said]


# ---- counters


def count(fabric: FakeFabric, dpid: Dpid, at: float, drops: dict[PortNo, int]) -> None:
    ports = {PortNo(1): PortCount(0, 0)}
    fabric.send(Counters(dpid, at, ports, {}, drops))


def test_counters_are_as_old_as_those_of_the_switch_that_was_read_first() -> None:
    fabric = started(FakeFabric(2, 1, 1))
    assert fabric.status.counters_at == 1000.0, "when the switches connected"
    for dpid, at in ((LEAF, 1007.0), (Dpid(2), 1005.0), (max(fabric.switches), 1006.0), (LEAF, 1009.0)):
        count(fabric, dpid, at, {})
    assert fabric.status.counters_at == 1005.0
    fabric.lose(Dpid(2))
    assert fabric.status.counters_at == 1006.0


def test_counters_of_which_a_part_is_missing_are_as_old_as_that_part() -> None:
    fabric = started(FakeFabric(2, 1, 1))
    for now in range(1002, 1052, 2):
        for dpid in fabric.switches:
            ports: dict[PortNo, PortCount] | None = {} if dpid != LEAF or now == 1002 else None
            fabric.send(Counters(dpid, now, ports, {}))
    assert fabric.status.counters_read[LEAF] == (1002, 1050)
    assert fabric.status.counters_read[LEAF].oldest == "ports"
    assert fabric.status.counters_at == 1002
    fabric.run(1021.9 - fabric.now)
    assert AlarmKind.COUNTERS_STALE not in alarms(fabric)
    fabric.run(0.3)
    (alarm,) = fabric.status.alarms.values()
    assert (alarm.kind, alarm.subject, alarm.facts) == (AlarmKind.COUNTERS_STALE, "leaf1", {"what": "ports"})
    fabric.send(Counters(LEAF, fabric.now, {}, {}))
    assert not fabric.status.alarms


def test_drops_at_a_port_are_told_while_the_port_is_there_and_raise_an_alarm_while_they_go_on() -> None:
    fabric = started(FakeFabric())
    for at, total in ((1002.0, 10), (1004.0, 30)):
        count(fabric, LEAF, at, {HOST_PORT: total, PortNo(99): total, PortNo(6): 0})
    assert fabric.status.punt_drops == {PortRef(LEAF, HOST_PORT): 30}
    assert alarms(fabric) == {AlarmKind.PUNT_LIMIT_EXCEEDED: "leaf1:5"}
    count(fabric, LEAF, 1006.0, {HOST_PORT: 30})
    assert fabric.status.punt_drops == {PortRef(LEAF, HOST_PORT): 30}
    assert alarms(fabric) == {}


# ---- alarms


class PoorPlanner(FakeFabric):
    """Fabric whose plans claim a lower slowdown under ECMP than their own slowdown."""

    def _carry_out(self, command: Command) -> list[Message]:
        answers = super()._carry_out(command)
        return [_worse_than_ecmp(answer) if isinstance(answer, Planned) else answer for answer in answers]


def _worse_than_ecmp(planned: Planned) -> Planned:
    assert isinstance(planned.answer, Plan)
    return replace(planned, answer=replace(planned.answer, ecmp=EcmpSlowdown(0.9, 0.9)))


def test_a_plan_that_is_worse_than_ecmp_is_an_alarm_when_it_is_installed() -> None:
    fabric = started(PoorPlanner(), 0)
    assert alarms(fabric) == {AlarmKind.PLAN_WORSE_THAN_ECMP: "plan"}
    fabric.send(SetMode(Mode.SHADOW))
    fabric.run(3)
    assert fabric.status.plan
    assert alarms(fabric) == {}


def test_an_alarm_dates_from_when_it_was_raised_and_one_that_comes_again_is_a_new_one() -> None:
    fabric = started(FakeFabric())
    for total, raised in ((10, False), (30, True), (30, False), (50, True), (70, True)):
        fabric.run(2)
        count(fabric, LEAF, fabric.now, {HOST_PORT: total})
        since = fabric.now if total < 70 else fabric.now - 2
        assert [alarm.since for alarm in fabric.status.alarms.values()] == [pytest.approx(since)] * raised


# ---- configured capacities


@pytest.mark.parametrize(("link_bps", "expected"), [(3e9, 3e9), (None, 10e9)])
def test_a_link_has_its_own_capacity_else_that_of_all_else_what_its_port_says(
    link_bps: float | None, expected: float
) -> None:
    own = {"switch": "leaf1", "port": "leaf1-eth2", "bps": 1e9}
    settings = FabricConfig.model_validate({"link_bps": link_bps, "host_link_bps": 2e9, "link": [own]})
    fabric = started(FakeFabric(), 0, config=CONFIG.model_copy(update={"fabric": settings}))
    links = fabric.status.fabric.links
    assert links[LinkId(LEAF, PortNo(1))].capacity_bps == expected
    assert links[LinkId(LEAF, PortNo(2))].capacity_bps == 1e9
    assert fabric.status.fabric.hosts[RINGS[0][0]].nic_bps == 2e9


def test_what_a_full_table_refused_is_sent_again_when_it_has_room_whatever_the_pause() -> None:
    fabric = started(FakeFabric())
    fabric.switches[LEAF].refuses = {pin_key(FlowId(RINGS[0][0], RINGS[0][1]))}
    register(fabric, 0)
    fabric.send(TablesRead(LEAF, {Table.PINNED: 20}, {Table.PINNED: 20}))
    fabric.run(40)  # retried after 5, 15 and 35 s; then after 75 s
    assert AlarmKind.RULES_REFUSED in alarms(fabric)
    fabric.switches[LEAF].refuses.clear()
    fabric.send(TablesRead(LEAF, {Table.PINNED: 20}, {Table.PINNED: 20}))
    fabric.run(0.2)
    assert AlarmKind.RULES_REFUSED in alarms(fabric), "no room is known of"
    fabric.send(TablesRead(LEAF, {Table.PINNED: 20}, {Table.PINNED: 100}))
    fabric.run(0.2)
    assert alarms(fabric).keys() == {AlarmKind.COUNTERS_STALE}
