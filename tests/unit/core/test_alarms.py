"""The published status of the network, alarms and their times, and parts that are down and keep their names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.alarms import Alarm, text
from controller.config import FabricConfig
from controller.core.alarms import switch_alarms
from controller.core.derived import named_parts
from controller.core.messages import Command, Message, Tick
from controller.fabric.messages import (
    DrainParts,
    ForgetParts,
    GenerationRaised,
    LinkSeen,
    MastershipLost,
    SwitchMoved,
    UndrainParts,
)
from controller.fabric.parts import (
    Declared,
    DeclaredSwitch,
    End,
    Part,
    PartKey,
    PartKind,
    SwitchRole,
    host_key,
    switch_key,
)
from controller.fabric.topology import Dpid, LinkId, PortNo, PortRef
from controller.jobs.job import Job
from controller.jobs.messages import DeregisterJob, RegisterJob, SavedState
from controller.planning.efficiency import EcmpSlowdown
from controller.planning.messages import SetMode
from controller.planning.plan import Plan, Planned
from controller.planning.problem import FlowId
from controller.shared_map import Index
from controller.store.members import MissingMembers
from controller.tables.flow_tables import pin_key
from controller.tables.messages import Counters, PortCount, SwitchRules, TablesRead
from controller.tables.rules import Table
from signalbox.errors import Unavailable
from signalbox.jobs.spec import JobId
from signalbox.words import AlarmKind, Mode
from tests.support.fake_fabric import FakeFabric, ring_job
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
    for is_partial, said in (
        (True, "leaf1 holds at least 3 foreign rules, which Signalbox did not make"),
        (False, "leaf1 holds 3 foreign rules, which Signalbox did not make"),
    ):
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


def test_drops_at_a_port_are_told_while_it_is_there_and_raise_an_alarm_from_when_they_go_on() -> None:
    fabric = started(FakeFabric())
    for total, raised in ((10, False), (30, True), (30, False), (50, True), (70, True)):
        fabric.run(2)
        count(fabric, LEAF, fabric.now, {HOST_PORT: total, PortNo(99): total, PortNo(6): 0})
        since = fabric.now if total < 70 else fabric.now - 2
        assert [alarm.since for alarm in fabric.status.alarms.values()] == [pytest.approx(since)] * raised
        assert alarms(fabric) == ({AlarmKind.PUNT_LIMIT_EXCEEDED: "leaf1:5"} if raised else {})
        assert fabric.status.punt_drops == {PortRef(LEAF, HOST_PORT): total}


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


# ---- parts that are down keep their names, from the switch to the alarm, until they return or are forgotten


LEAF1, SPINE2 = Dpid(1), Dpid(258)
PATIENCE_S = CONFIG.discovery.adoption_patience_s
EPOCH = 1_700_000_000.0


class Clocked(FakeFabric):
    """Fabric whose ticks carry the time of day; ``EPOCH`` is at the monotonic second 0."""

    def run(self, seconds: float, step: float = 0.1) -> None:
        for _ in range(round(seconds / step)):
            self.now += step
            self.send(Tick(EPOCH + self.now))

    @property
    def alarms(self) -> dict[AlarmKind, list[str]]:
        found: dict[AlarmKind, list[str]] = {}
        for alarm in self._raised():
            found.setdefault(alarm.kind, []).append(alarm.subject)
        return found

    @property
    def texts(self) -> list[str]:
        return [text(alarm) for alarm in self._raised()]

    def _raised(self) -> list[Alarm]:
        """Return the alarms, except those for missing counters: the fake switches send no counters."""
        return [alarm for alarm in self.status.alarms.values() if alarm.kind is not AlarmKind.COUNTERS_STALE]


@pytest.fixture
def fabric() -> Clocked:
    """Return a fabric with 4 leaves, 4 spines and three hosts per leaf, all known and saved, and one job."""
    return started(Clocked(), 0)


def forget(fabric: FakeFabric, *names: str) -> Any:
    return fabric.request(ForgetParts(names))


def test_a_healthy_fabric_has_no_alarm_and_is_saved_once(fabric: Clocked) -> None:
    assert fabric.alarms == {}
    assert {key.kind for key in fabric.saved.parts} == {PartKind.SWITCH, PartKind.LINK}
    assert len(fabric.saved.parts) == 8 + 16
    before = fabric.commits
    fabric.run(30, step=0.5)
    assert fabric.commits == before


def test_a_spine_that_goes_is_one_alarm_with_its_name_until_it_returns(fabric: Clocked) -> None:
    fabric.lose(SPINE2)
    fabric.run(0.3)
    assert fabric.alarms == {AlarmKind.SWITCH_DOWN: ["spine2"]}
    assert fabric.texts == ["switch spine2 (0x102) is down since 2023-11-14 22:30:06 UTC"]
    fabric.run(PATIENCE_S + 5)
    assert fabric.alarms == {AlarmKind.SWITCH_DOWN: ["spine2"]}
    fabric.connect(SPINE2)
    fabric.run(10)
    assert fabric.alarms == {}
    assert not fabric.status.down_parts


def test_a_cable_that_is_cut_is_an_alarm_with_the_names_of_its_ports(fabric: Clocked) -> None:
    fabric.cut(LEAF1, PortNo(2))
    fabric.run(1.5)
    assert fabric.alarms == {AlarmKind.LINK_DOWN: ["leaf1:2>spine2"]}
    assert "link leaf1:2>spine2 (leaf1-eth2 to spine2-eth1) is down since " in fabric.texts[0]
    fabric.plug(LEAF1, PortNo(2))
    fabric.run(5)
    assert fabric.alarms == {}


def test_a_dead_host_is_an_alarm_if_a_job_names_it_and_else_a_line_in_the_log(fabric: Clocked) -> None:
    fabric.cut(*fabric.hosts[RINGS[0][0]])
    fabric.run(1.5)
    assert fabric.alarms == {AlarmKind.HOST_DOWN: ["10.0.1.1"], AlarmKind.FLOWS_WITHOUT_PATH: ["plan"]}
    assert "host 10.0.1.1 at leaf1:5 is down since " in " ".join(fabric.texts)
    assert "2 flows have no path: 2 of job job0" in fabric.texts
    fabric.send(DeregisterJob(JobId("job0")))
    fabric.run(0.5)
    assert fabric.alarms == {}
    assert host_key("10.0.1.1") in fabric.status.down_parts
    fabric.run(3)
    assert host_key("10.0.1.1") not in fabric.saved.parts, "no job names it"
    register(fabric, 0)
    fabric.run(0.5)
    assert fabric.alarms == {AlarmKind.HOST_DOWN: ["10.0.1.1"], AlarmKind.FLOWS_WITHOUT_PATH: ["plan"]}
    fabric.plug(*fabric.hosts[RINGS[0][0]])
    fabric.run(0.5)
    assert fabric.alarms == {}


def test_after_a_restart_what_was_down_is_named_and_what_has_not_come_after_a_while(fabric: Clocked) -> None:
    fabric.lose(SPINE2)
    fabric.cut(*fabric.hosts[RINGS[0][0]])
    fabric.cut(LEAF1, PortNo(3))
    fabric.run(3)
    before = dict(fabric.status.down_parts)
    fabric.now += 3600
    others = [dpid for dpid in fabric.switches if dpid not in (SPINE2, Dpid(4))]
    fabric.start(CONFIG, late=fabric.switches)
    assert fabric.status.down_parts == before
    assert fabric.alarms[AlarmKind.SWITCH_DOWN] == ["spine2"]
    began = fabric.now
    fabric.run(1)
    fabric.connect(*others)
    fabric.run(3)
    assert fabric.alarms == {
        AlarmKind.SWITCH_DOWN: ["spine2"],
        AlarmKind.LINK_DOWN: ["leaf1:3>spine3"],
        AlarmKind.HOST_DOWN: ["10.0.1.1"],
    }
    fabric.run(PATIENCE_S + 1)
    assert set(fabric.alarms[AlarmKind.SWITCH_DOWN]) == {"spine2", "leaf4"}
    assert not any(job.is_undiscovered for job in fabric.status.jobs.values())
    assert {kind: fabric.alarms[kind] for kind in (AlarmKind.HOSTS_MISSING, AlarmKind.FLOWS_WITHOUT_PATH)} == {
        AlarmKind.HOSTS_MISSING: ["job0"],
        AlarmKind.FLOWS_WITHOUT_PATH: ["plan"],
    }
    assert fabric.status.down_parts[switch_key(Dpid(4))].down_since == pytest.approx(EPOCH + began, abs=0.2)


@pytest.mark.parametrize("rules_are_there", [True, False])
def test_a_restart_in_which_all_comes_back_one_after_the_other_raises_no_alarm(
    fabric: Clocked, rules_are_there: bool
) -> None:
    """The controller finds hosts in the rules of switches, or asks for hosts once their switches are connected."""
    register(fabric, 1)
    fabric.run(3)
    if not rules_are_there:
        for switch in fabric.switches.values():
            switch.forget_rules()
    fabric.start(CONFIG, late=fabric.switches)
    undiscovered = set[JobId]()
    for dpid in fabric.switches:
        for _ in range(2):
            fabric.run(0.1)
            assert fabric.alarms == {}
        fabric.connect(dpid)
        assert fabric.alarms == {}
        found = {job_id: job for job_id, job in fabric.status.jobs.items() if job.is_undiscovered}
        assert {job.efficiency_predicted for job in found.values() if not job.missing_hosts} <= {None}
        assert "no_path" not in fabric.status.unserved
        undiscovered |= found.keys()
    for _ in range(20):
        fabric.run(0.2)
        assert fabric.alarms == {}
    assert not fabric.status.unserved.get("hosts_missing")
    assert undiscovered == (set(fabric.status.jobs) if rules_are_there else set())
    assert not any(job.is_undiscovered for job in fabric.status.jobs.values())


def test_a_new_job_with_an_unknown_host_says_so_at_once_after_a_restart_too(fabric: Clocked) -> None:
    fabric.start(CONFIG, late=fabric.switches)
    fabric.send(RegisterJob(ring_job("job9", ["10.0.1.2", "10.0.9.9"])))
    assert fabric.alarms == {AlarmKind.HOSTS_MISSING: ["job9"]}


def test_a_host_that_a_saved_job_names_is_missed_when_it_had_the_time_to_come(fabric: Clocked) -> None:
    fabric.silent_hosts = {RINGS[0][0]}
    for switch in fabric.switches.values():
        switch.forget_rules()
    fabric.start(CONFIG)
    fabric.run(PATIENCE_S - 1)
    assert fabric.alarms == {}
    fabric.run(2)
    assert fabric.texts == ["job job0 waits for 1 host: 10.0.1.1"]


def test_switches_that_leave_and_return_count_once_at_every_moment(fabric: Clocked) -> None:
    expected = set[str]()

    def look() -> None:
        expected.update(each.partition(",")[0] for each in fabric.texts if each.startswith("expected"))

    lost = list(fabric.switches)[:5]
    for act in (fabric.lose, fabric.connect):
        for dpid in lost:
            act(dpid)
            look()
        for _ in range(30):
            fabric.run(0.1)
            look()
    assert expected == {"expected 8 switches"}


def test_a_wrong_fabric_is_one_message_in_which_declared_roles_are_counted_apart() -> None:
    fabric = Clocked(leaves=2, spines=2)
    leaves = (DeclaredSwitch(f"leaf{n}", Dpid(n), SwitchRole.LEAF) for n in range(1, 65))
    spines = (DeclaredSwitch(f"spine{n}", role=SwitchRole.SPINE) for n in range(1, 4))
    fabric.declared = Declared(switches=(*leaves, *spines, DeclaredSwitch("router")))
    fabric.start(CONFIG)
    fabric.run(PATIENCE_S - 1)
    assert fabric.alarms == {}
    fabric.run(PATIENCE_S + 1)
    assert fabric.texts == [
        "expected 64 leaves, found 2 (missing: leaf3, leaf4, leaf5, leaf6 and 58 more); "
        "expected 3 spines, found 2 (missing: spine3); expected 1 switch, found 0 (missing: router)",
    ]
    assert fabric.alarms == {AlarmKind.FABRIC_INCOMPLETE: ["fabric"]}


def test_many_missing_switches_of_one_role_are_one_alarm_though_they_are_few_of_all() -> None:
    roles: dict[Dpid | str, SwitchRole] = {Dpid(n): SwitchRole.LEAF for n in range(1, 65)}
    roles |= {f"spine{n}": SwitchRole.SPINE for n in range(1, 21)}
    missing = {part.key: part for part in (down(f"spine{n}", 100 + n) for n in range(1, 7))}
    (alarm,) = switch_alarms(missing, {}, 84, roles).values()
    assert text(alarm) == "expected 20 spines, found 14 (missing: spine1, spine2, spine3, spine4 and 2 more)"
    assert len(switch_alarms(missing, {}, 84, {})) == 6


def down(name: str, number: int = 1) -> Part:
    return Part(switch_key(Dpid(number)), (End(PortRef(Dpid(number), PortNo(0)), name),), 1e9)


@pytest.mark.parametrize(("missing", "known", "one"), [(4, 4, False), (5, 20, False), (5, 19, True), (90, 96, True)])
def test_many_missing_switches_are_one_alarm(missing: int, known: int, one: bool) -> None:
    parts = {part.key: part for part in (down(f"leaf{n}", n) for n in range(1, missing + 1))}
    raised = switch_alarms(parts, {}, known, {})
    assert (len(raised) == 1) is one
    first = {switch_key(Dpid(1)): True}
    assert all(alarm.subject != "leaf1" for alarm in switch_alarms(parts, first, known, {}).values())


def test_a_switch_that_another_controller_took_is_one_alarm(fabric: Clocked) -> None:
    fabric.send(MastershipLost(SPINE2, "spine2"))
    fabric.run(3)
    assert fabric.alarms == {AlarmKind.MASTERSHIP_LOST: ["spine2"]}
    assert switch_key(SPINE2) in fabric.status.down_parts
    fabric.lose(SPINE2)
    fabric.run(1)
    assert fabric.alarms == {AlarmKind.SWITCH_DOWN: ["spine2"]}


def test_a_switch_with_a_generation_id_that_is_ahead_is_one_alarm_with_the_commands_that_recover_it(
    fabric: Clocked,
) -> None:
    for ahead, remedy in (
        (1 << 61, "or stop all controllers and run 'signalbox state raise-epoch"),
        (1 << 63, "no controller can have an id above it"),
    ):
        fabric.send(MastershipLost(SPINE2, "spine2", ahead))
        fabric.run(3)
        (alarm,) = fabric.status.alarms.values()
        assert alarm.kind is AlarmKind.GENERATION_AHEAD
        assert f"spine2 has the generation id {ahead}, " in text(alarm)
        assert remedy in text(alarm)
        assert "restart its Open vSwitch ('systemctl restart openvswitch-switch')" in text(alarm)


def test_a_raised_generation_id_is_an_alarm_although_the_switch_is_still_used(fabric: Clocked) -> None:
    fabric.send(GenerationRaised(SPINE2, "spine2", 1 << 50, is_ahead=False))
    fabric.run(1)
    assert fabric.alarms == {}
    switch = fabric.switches[SPINE2]
    for end in (SwitchMoved(SPINE2, "spine2", switch.ports()), GenerationRaised(SPINE2, "spine2", 9, is_ahead=False)):
        fabric.send(GenerationRaised(SPINE2, "spine2", 1 << 61, is_ahead=True))
        fabric.run(1)
        assert fabric.alarms == {AlarmKind.GENERATION_AHEAD: ["spine2"]}
        assert switch_key(SPINE2) not in fabric.status.down_parts
        fabric.send(end)
        fabric.run(1)
        assert fabric.alarms == {}


def test_a_missing_member_is_an_alarm_until_it_is_back(fabric: Clocked) -> None:
    fabric.send(MissingMembers({"b": 1_764_476_000.0}, frozenset({"c"})))
    fabric.run(1)
    assert {text(alarm) for alarm in fabric.status.alarms.values()} == {
        "member b is absent; it was seen last at 2025-11-30 04:13:20 UTC",
        "member c runs, but has no link to the leader, so other members hold its switches",
    }
    fabric.send(MissingMembers())
    fabric.run(1)
    assert fabric.status.alarms == {}


def test_hosts_are_named_as_long_as_a_job_or_the_file_names_them(fabric: Clocked) -> None:
    named = Index[JobId, Job, PartKey](named_parts, [host_key("10.0.9.9")])
    register(fabric, 1)
    fabric.run(1)
    jobs = fabric.loop.derived.published_jobs()
    assert set(named(jobs)) == {host_key(ip) for ip in (*RINGS[0], *RINGS[1], "10.0.9.9")}
    assert named(jobs) is named(jobs)
    assert set(named({JobId("job1"): jobs[JobId("job1")]})) == {host_key(ip) for ip in (*RINGS[1], "10.0.9.9")}
    assert set(named({})) == {host_key("10.0.9.9")}


def test_a_cable_that_flaps_is_saved_once_in_a_while(fabric: Clocked) -> None:
    before = fabric.commits
    for _ in range(40):
        fabric.cut(LEAF1, PortNo(2))
        fabric.run(0.2)
        fabric.plug(LEAF1, PortNo(2))
        fabric.run(0.2)
    assert fabric.commits - before <= 4


# ---- forget


def test_a_part_that_is_forgotten_is_gone_for_good_when_that_is_on_disk(fabric: Clocked) -> None:
    fabric.lose(SPINE2)
    fabric.run(3)
    assert [part.name for part in forget(fabric, "spine2")] == [
        "spine2",
        *(f"leaf{n}:2>spine2" for n in (1, 2, 3, 4)),
    ]
    assert len(fabric.saved.parts) == 7 + 12
    fabric.run(3)
    assert fabric.alarms == {}
    fabric.start(CONFIG, late=[SPINE2])
    fabric.run(2 * PATIENCE_S)
    assert fabric.alarms == {}


def test_what_cannot_be_forgotten_on_disk_is_not_forgotten(fabric: Clocked) -> None:
    fabric.lose(SPINE2)
    fabric.run(3)
    before = fabric.status.down_parts
    fabric.disk_error = "full"
    assert isinstance(forget(fabric, "spine2"), Unavailable)
    assert fabric.status.down_parts == before


# ---- what is saved beside the parts


def test_a_fabric_that_is_saved_saves_no_mode_that_was_only_configured() -> None:
    """The configuration decides the mode at the next start."""
    fabric = started(Clocked())
    assert fabric.saved.parts
    assert fabric.saved == SavedState(parts=fabric.saved.parts)
    shadow = CONFIG.planning.model_copy(update={"mode": Mode.SHADOW})
    fabric.start(CONFIG.model_copy(update={"planning": shadow}))
    assert fabric.status.mode is Mode.SHADOW


def test_a_saved_fabric_without_jobs_does_not_delay_a_start_with_empty_switches() -> None:
    fabric = started(Clocked())
    for switch in fabric.switches.values():
        switch.forget_rules()
    fabric.start(CONFIG)
    fabric.run(1)
    assert not fabric.status.adopting


def test_what_is_drained_raises_no_alarm_when_it_is_pulled(fabric: Clocked) -> None:
    fabric.send(DrainParts(("spine2", "leaf1:spine3")))
    fabric.run(2)
    fabric.lose(SPINE2)
    fabric.cut(Dpid(1), PortNo(3))
    fabric.run(2)
    assert fabric.alarms == {}
    assert {part.name for part in fabric.status.down_parts.values()} > {"spine2", "leaf1:3>spine3"}
    fabric.send(UndrainParts(("spine2",)))
    fabric.run(1)
    assert fabric.alarms == {AlarmKind.SWITCH_DOWN: ["spine2"]}


def test_a_host_on_a_drained_switch_that_is_pulled_is_an_alarm(fabric: Clocked) -> None:
    """The host was plugged in after the drain. The drained switch raises no alarm that explains why it is down."""
    fabric.send(DeregisterJob(JobId("job0")))
    on_leaf1 = [ip for ip, at in fabric.hosts.items() if at.dpid == LEAF1]
    for ip in on_leaf1:
        fabric.cut(*fabric.hosts[ip])
    fabric.send(DrainParts(("leaf1",)))
    fabric.run(2)
    assert list(fabric.status.drains) == ["leaf1"]
    for ip in on_leaf1:
        fabric.plug(*fabric.hosts[ip])
    register(fabric, 0)
    fabric.run(2)
    fabric.lose(LEAF1)
    fabric.run(2)
    (named,) = set(on_leaf1) & set(RINGS[0])
    assert fabric.alarms[AlarmKind.HOST_DOWN] == [named]
    assert AlarmKind.SWITCH_DOWN not in fabric.alarms
    fabric.connect(LEAF1)
    fabric.run(2)
    assert AlarmKind.HOST_DOWN not in fabric.alarms


def test_switches_of_one_name_have_an_alarm_each_that_stays_when_the_other_returns() -> None:
    fabric = Clocked()
    spine3 = Dpid(259)
    fabric.switches[spine3].name = "spine2"
    fabric.start(CONFIG, late=[spine3])
    fabric.run(3)
    fabric.lose(SPINE2)
    fabric.run(2)
    assert fabric.alarms == {AlarmKind.SWITCH_DOWN: ["spine2"]}, "no other switch has the name yet"
    fabric.connect(spine3)
    fabric.run(2)
    (before,) = fabric.status.alarms.values()
    assert before.subject == "spine2(0x102)"
    fabric.lose(spine3)
    fabric.run(2)
    assert sorted(fabric.alarms[AlarmKind.SWITCH_DOWN]) == ["spine2(0x102)", "spine2(0x103)"]
    assert [alarm for alarm in fabric.status.alarms.values() if alarm.key == before.key] == [before]
    fabric.connect(SPINE2, spine3)
    fabric.run(2)
    assert fabric.alarms == {}
    for number in (2, 3):
        fabric.cut(LEAF1, PortNo(number))
    fabric.run(2)
    assert sorted(fabric.alarms[AlarmKind.LINK_DOWN]) == ["leaf1:2>spine2(0x102)", "leaf1:3>spine2(0x103)"]
    fabric.run(30)
    stale = [alarm.subject for alarm in fabric.status.alarms.values() if alarm.kind is AlarmKind.COUNTERS_STALE]
    assert {"spine2(0x102)", "spine2(0x103)", "spine1"} < set(stale)
    fabric.lose(SPINE2)
    fabric.run(2)
    forget(fabric, "0x102")
    assert AlarmKind.SWITCH_DOWN not in fabric.alarms
