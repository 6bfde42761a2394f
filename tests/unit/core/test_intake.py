"""Effects of messages, ticks and changed settings that the other tests do not cover."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from controller.config import Config, Reloaded, reloaded_settings, with_settings
from controller.core.messages import (
    MAX_DEBOUNCES,
    NO_EFFECTS,
    Effects,
    NewSettings,
    Work,
    at_once,
    commands,
    when_quiet,
)
from controller.fabric.messages import ArpSeen, LinkLost, LinkSeen, ProbePorts
from controller.fabric.topology import Dpid, LinkId, PortNo, PortRef
from controller.jobs.messages import DeregisterJob, RegisterJob, SavedState
from controller.planning.messages import SetMode, SolvePlan
from controller.planning.problem import FlowId
from controller.tables.messages import TablesRead
from controller.tables.rules import FlowKey, GroupRule, OtherTable, Table
from controller.tables.switch_sync import TableUse
from signalbox.jobs.spec import JobId
from signalbox.words import AlarmKind, Mode
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.late_answers import SlowSolver
from tests.support.three_rings import CONFIG, RINGS, register, started

UPLINK = PortRef(Dpid(1), PortNo(1))


def test_background_is_measured_when_all_switches_have_answered() -> None:
    fabric = started(FakeFabric())
    first, *others = fabric.switches
    before = fabric.loop.derived.background()
    for total in range(10):
        fabric.count_rules({UPLINK: total * 1_000_000}, {}, of=others)
        fabric.run(0.1)
        assert fabric.loop.derived.background() is before, "a switch has not answered"
        fabric.count_rules({UPLINK: total * 1_000_000}, {}, of=[first])
        assert fabric.loop.derived.background() is not before
        before = fabric.loop.derived.background()
        fabric.run(1.9)
        assert fabric.loop.derived.background() is before, "once per interval"
    assert before[LinkId(*UPLINK)] > 0


def test_a_controller_that_was_stopped_for_longer_than_a_lease_waits_one_more_for_a_heartbeat() -> None:
    """A controller stopped by SIGSTOP or a hypervisor could not receive the renewals sent in this time."""
    fabric = started(FakeFabric())
    fabric.send(RegisterJob(ring_job("short", RINGS[0], lease_s=5)))
    fabric.run(4)
    fabric.now += 30
    fabric.run(4)
    assert [*fabric.status.jobs] == ["short"]
    fabric.run(2)
    assert not fabric.status.jobs


def test_under_ecmp_pins_that_switches_hold_are_given_up() -> None:
    """The operator set the mode while the switches were unreachable."""
    fabric = started(FakeFabric(), 0)
    assert fabric.status.pins
    fabric.saved = replace(fabric.saved, mode=Mode.ECMP)
    fabric.start(CONFIG)
    fabric.run(10)
    assert (fabric.status.pins, fabric.job("job0").state) == (0, "ecmp")


def test_pins_of_unknown_jobs_go_when_another_mode_is_set() -> None:
    """The pins would otherwise stay for the length of the lease."""
    fabric = started(FakeFabric(), 0)
    fabric.saved = SavedState()
    fabric.start(CONFIG)
    fabric.run(5)
    assert any(pinned(fabric))
    fabric.send(SetMode(Mode.ECMP))
    fabric.run(1)
    assert not any(pinned(fabric))


def test_a_job_that_registers_again_changes_nothing_but_its_lease() -> None:
    fabric = started(SlowSolver(), 0)
    fabric.solve()
    fabric.run(1)
    saved = fabric.saved
    fabric.forget_mods()
    register(fabric, 0)
    fabric.run(1)
    assert (fabric.solving, fabric.mods) == ([], [])
    assert fabric.saved is saved


def test_a_job_that_goes_before_its_plan_comes_leaves_nothing_behind() -> None:
    fabric = started(SlowSolver(leaves=2, spines=3, hosts_per_leaf=4))
    ring = [f"10.0.{leaf}.{host}" for host in range(1, 5) for leaf in (1, 2)]
    for _ in range(2):  # the hosts are known at the second registration
        fabric.send(RegisterJob(ring_job("job0", ring, max_subflows=4)))
        fabric.run(1)
        assert fabric.solving
        fabric.send(DeregisterJob(JobId("job0")))
    fabric.send(RegisterJob(ring_job("job0", [*ring[:2], "10.0.4.99"])))
    fabric.run(0.2)
    assert any(pinned(fabric)), "another job of this name: its flows are counted while a host is missing"
    fabric.solve()
    assert fabric.saved.shares == {}


def test_rules_and_routes_follow_a_host_that_moves() -> None:
    fabric = started(FakeFabric(), 0)
    host, before = RINGS[0][0], fabric.hosts[RINGS[0][0]]
    fabric.cut(*before)
    fabric.hosts[host] = PortRef(Dpid(2), PortNo(7))
    fabric.send(ArpSeen(fabric.hosts[host], "request", host, fabric.mac(host), RINGS[0][1]))
    assert fabric.trace("10.0.3.1", host)
    fabric.run(1)
    assert fabric.job("job0").state == "pinned"
    assert fabric.trace(host, RINGS[0][1]) == ["leaf2"]


def test_a_host_that_appears_is_seen_by_each_job_that_still_waits_for_it() -> None:
    fabric = FakeFabric()
    late = RINGS[0][1]
    fabric.silent_hosts = {late}
    started(fabric)
    for n in (0, 1):
        fabric.send(RegisterJob(ring_job(f"job{n}", [RINGS[n][0], late])))
    fabric.run(1)
    assert fabric.job("job1").missing_hosts == (late,)
    fabric.send(DeregisterJob(JobId("job0")))
    fabric.send(ArpSeen(fabric.hosts[late], "request", late, fabric.mac(late), RINGS[1][0]))
    fabric.run(1)
    assert fabric.job("job1").missing_hosts == ()


def test_links_that_come_are_used_when_no_more_come() -> None:
    """Thousands of links are added when a fabric is found.

    The ports of two cables are up, and no probe has arrived yet."""
    fabric = FakeFabric()
    peers = fabric.switches[Dpid(1)].peers
    cables = [(PortRef(Dpid(1), PortNo(port)), peers[PortNo(port)]) for port in (2, 3)]
    for at, _ in cables:
        peers[at.port] = None
    started(fabric, 0)
    fabric.forget_mods()
    for at, to in cables:
        assert to
        fabric.send(LinkSeen(at, to))
        fabric.send(LinkSeen(to, at))
        fabric.run(0.1)
        assert fabric.mods == []
    fabric.run(0.2)
    assert any(isinstance(mod.rule, GroupRule) for mod in fabric.mods)


def test_routes_leave_a_link_whose_probes_stop() -> None:
    """The ports of the link stay up."""
    fabric = started(FakeFabric(), 0)
    route = fabric.job("job0").routes[FlowId(RINGS[0][0], RINGS[0][1])]
    assert route
    link = fabric.loop.fabric.links[route[0].path[0]]
    fabric.send(LinkLost(link.src, link.dst))
    assert link.id not in fabric.loop.fabric.links
    now = fabric.job("job0").routes.values()
    assert not {link.id, LinkId(*link.dst)} & {link for route in now for path, _ in route or () for link in path}
    assert all(now)


def test_counters_of_a_switch_that_returns_begin_anew() -> None:
    fabric = started(FakeFabric())
    for total in (1000, 2000):
        fabric.run(2)
        fabric.count({UPLINK: total}, {})
    assert fabric.status.links[LinkId(*UPLINK)].bytes_total == 2000
    fabric.lose(UPLINK.dpid)
    fabric.run(5)
    fabric.connect(UPLINK.dpid)
    fabric.run(5)
    assert LinkId(*UPLINK) in fabric.status.fabric.links
    assert LinkId(*UPLINK) not in fabric.status.links, "it is not counted yet"
    fabric.count({UPLINK: 300}, {})
    again = fabric.status.links[LinkId(*UPLINK)]
    assert (again.bytes_total, again.rate_bps, again.background_bps) == (300, None, None)


def pinned(fabric: FakeFabric) -> Iterator[FlowKey]:
    for switch in fabric.switches.values():
        yield from (key for key in switch.flows if key.table == Table.PINNED and key.match.ip_src)


def test_switches_are_out_of_sync_until_the_pins_of_jobs_that_have_gone_are_taken_away() -> None:
    """The removal waits a moment when rules have just been made for another job."""
    fabric = started(FakeFabric(leaves=4, spines=2, hosts_per_leaf=1))
    for number, leaves in enumerate(((1, 2), (3, 4))):
        fabric.send(RegisterJob(ring_job(f"job{number}", [f"10.0.{leaf}.1" for leaf in leaves])))
    fabric.run(3)
    assert all(switch.in_sync for switch in fabric.status.switches.values())
    fabric.send(RegisterJob(ring_job("job1", ["10.0.3.1", "10.0.4.1"]), take_over=True))
    assert all(switch.in_sync for switch in fabric.status.switches.values()), "its pins stay as they are"
    fabric.send(DeregisterJob(JobId("job0")))
    fabric.send(DeregisterJob(JobId("job1")))
    out_of_sync = {dpid for dpid, switch in fabric.status.switches.items() if not switch.in_sync}
    assert {Dpid(3), Dpid(4)} <= out_of_sync, "where the pins of the second job are"
    assert not {Dpid(1), Dpid(2)} & out_of_sync
    fabric.run(0.3)
    assert all(switch.in_sync for switch in fabric.status.switches.values())
    assert fabric.status.pins == 0


# ---- effects of messages: the effects of many messages add up to one value, from which the due work follows


def due_at(effects: Effects, work: Work) -> float:
    return next(now / 10 for now in range(1000) if effects.has_due(work, now / 10))


def test_work_waits_for_the_longest_quiet_time_since_it_was_asked_for_last() -> None:
    assert not any(NO_EFFECTS.has_due(work, 1e9) for work in Work)
    for earlier, quiet_s, due in ((1.4, 0.5, 1.9), (1.0, 0.2, 1.5)):
        effects = when_quiet(Work.PLAN, 1.0, 0.5) | when_quiet(Work.PLAN, earlier, quiet_s)
        assert due_at(effects, Work.PLAN) == due


def test_work_that_is_asked_for_again_and_again_is_done_after_ten_quiet_times() -> None:
    effects = NO_EFFECTS
    for tenth in range(100):
        effects |= when_quiet(Work.PLAN, tenth / 10, 0.5)
    assert due_at(effects, Work.PLAN) == MAX_DEBOUNCES * 0.5 == 5.0


def test_work_at_once_does_not_wait_for_quiet_whatever_comes_first() -> None:
    for effects in (
        at_once(Work.RULES) | when_quiet(Work.RULES, 1.0, 0.5),
        when_quiet(Work.RULES, 1.0, 0.5) | at_once(Work.RULES),
    ):
        assert effects.has_due(Work.RULES, 1.0)


def test_kinds_of_work_do_not_delay_each_other_and_what_was_done_is_not_due() -> None:
    effects = at_once(Work.RULES, Work.SAVE) | when_quiet(Work.PLAN, 1.0, 0.5)
    assert effects.has_due(Work.RULES, 1.0)
    assert effects.has_due(Work.SAVE, 1.0)
    assert not effects.has_due(Work.PLAN, 1.4)
    effects = effects.without(Work.RULES)
    assert not effects.has_due(Work.RULES, 1e9)
    assert effects.has_due(Work.SAVE, 0.0)


def test_commands_keep_their_order() -> None:
    first, second = ProbePorts(frozenset({1})), ProbePorts(frozenset({2}))  # type: ignore[arg-type]
    assert (commands(first) | at_once(Work.RULES) | commands(second)).commands == (first, second)
    assert (commands(first) | NO_EFFECTS).commands == (first,)


# ---- settings that change while the controller runs apply to later events, and change no existing state


@pytest.fixture
def fabric() -> FakeFabric:
    return started(FakeFabric(), 0)


def other(**sections: Mapping[str, object]) -> Config:
    return Config.model_validate({**CONFIG.model_dump(), **sections})


def plans(fabric: FakeFabric, seconds: float) -> list[SolvePlan]:
    asked: list[SolvePlan] = []
    answers = fabric.planner.answers

    def noted(command: SolvePlan) -> object:
        asked.append(command)
        return answers(command)

    fabric.planner.answers = noted  # type: ignore[assignment, method-assign]
    fabric.run(seconds)
    fabric.planner.answers = answers  # type: ignore[method-assign]
    return [command for command in asked if isinstance(command, SolvePlan)]


def test_a_shorter_interval_and_fewer_moves_count_from_the_next_plan_on(fabric: FakeFabric) -> None:
    fabric.forget_mods()
    planning = {"interval_s": 2.0, "max_moves": 7, "min_gain": 0.5, "time_limit_s": 1.0, "ecmp_draws": 3}
    fabric.send(NewSettings(other(planning=planning)))
    found = plans(fabric, 4.5)
    assert len(found) == 2, "the period that had begun is shortened too"
    limits = found[0].limits
    assert (limits.max_moves, limits.time_limit_s, limits.ecmp_draws, found[0].min_gain) == (7, 1.0, 3, 0.5)
    assert fabric.mods == [], "what runs stays"


def test_every_setting_that_is_marked_reaches_its_owner(fabric: FakeFabric) -> None:
    """Settings of the log, and files, are applied elsewhere."""
    wanted = other(
        planning={"time_limit_s": 9.0, "interval_s": 8.0, "debounce_s": 7.0, "min_gain": 0.6, "max_moves": 5}
        | {"ecmp_draws": 4},
        counters={"noise_fraction": 0.3, "table_alarm_fraction": 0.4},
        openflow={"audit_interval_s": 33.0},
        jobs={"max_jobs": 3000, "max_virtual_links": 300_000, "max_learning_rules": 5000},
    )
    settings = [(section, name) for section, name, how in reloaded_settings() if how is not Reloaded.REPLACED]
    marked = {f"{section}.{name}" for section, name in settings} - {"log.level"}
    assert with_settings(CONFIG, wanted) == wanted, "each of the marked ones is different here, and no other"
    assert {
        f"{section}.{name}"
        for section, name in settings
        if getattr(getattr(wanted, section), name) != getattr(getattr(CONFIG, section), name)
    } == marked
    fabric.send(NewSettings(wanted))
    s = fabric.loop.state
    assert s.load.noise_fraction == 0.3
    assert s.sync.audit_interval_s == 33.0
    assert (s.jobs.max_jobs, s.jobs.max_virtual_links, s.demand.max_learning_rules) == (3000, 300_000, 5000)
    register(fabric, 1)
    assert plans(fabric, 6.5) == []
    assert len(plans(fabric, 1.0)) == 1, "the changed debounce_s"


def test_another_share_of_entries_raises_and_ends_the_alarm_of_a_table_at_once(fabric: FakeFabric) -> None:
    fabric.send(TablesRead(Dpid(1), {Table.PINNED: 120}, {Table.PINNED: 200, OtherTable.METERS: 8}))
    assert TableUse(Table.PINNED, 120, 200) in fabric.status.switches[Dpid(1)].tables
    assert TableUse(OtherTable.METERS, 7, 8) in fabric.status.switches[Dpid(1)].tables
    raised = []
    for fraction in (0.9, 0.5, 0.7):
        counters = {**CONFIG.counters.model_dump(), "table_alarm_fraction": fraction}
        fabric.send(NewSettings(other(counters=counters)))
        raised.append({(alarm.kind, alarm.subject) for alarm in fabric.status.alarms.values()})
    pins, meters = ((AlarmKind.TABLE_NEARLY_FULL, f"leaf1:{name}") for name in ("table1", OtherTable.METERS))
    assert raised == [set(), {pins, meters}, {meters}]
