"""Phases, adoption and departures; the state that the switches have confirmed; and when each caller learns of it."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import product

import pytest

from controller.core.sending import (
    GRACE_S,
    HURRY_S,
    MOST_PATIENCES,
    TOGETHER_S,
    Adoption,
    Departures,
    IllegalTransition,
    Input,
    Phase,
    Phases,
)
from controller.fabric.messages import ArpSeen, PortChanged, SwitchConnected, SwitchLeft
from controller.fabric.topology import Dpid, Fabric, PortNo
from controller.jobs.messages import DeregisterJob, ReportIterations
from controller.planning.messages import SetMode
from controller.shared_map import Histogram
from controller.tables.messages import InstallStage, StageDone, SwitchResult
from controller.tables.rules import Bucket, FlowKey, FlowRule, GroupRule, Match, Output, RuleSet, Table
from offline.scenarios.fabrics import leaf_spine
from signalbox.errors import Superseded
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId
from signalbox.words import Mode
from tests.support.fake_fabric import FakeFabric
from tests.support.late_answers import LateAnswers, SlowSolver
from tests.support.three_rings import CONFIG, register, spines_used, started


def test_routes_that_change_have_another_generation_and_no_measured_times_and_others_keep_theirs() -> None:
    fabric = started(FakeFabric(), 0, 1, 2)
    for index, port in enumerate((2, 3)):
        fabric.run(4)  # an iteration and its report take 3 s at most
        for job_id in fabric.status.jobs:
            fabric.send(ReportIterations(job_id, (IterationTime(index, 1.0, 0.5),)))
        before, jobs = spines_used(fabric), fabric.status.jobs
        numbers = {job_id: job.routes_generation for job_id, job in jobs.items()}
        fabric.cut(Dpid(1), PortNo(port))
        fabric.run(3)
        after = spines_used(fabric)
        moved = {f"job{int(flow.src_ip[-1]) - 1}" for flow in before if before[flow] != after[flow]}
        assert 0 < len(moved) < 3
        for job_id, job in fabric.status.jobs.items():
            number = job.routes_generation
            assert number > max(numbers.values()) if job_id in moved else number == numbers[job_id]
            assert job.mean_communication_s == (0.0 if job_id in moved else 0.5)


def test_routes_are_confirmed_when_the_switch_of_their_source_is() -> None:
    fabric = started(LateAnswers())
    fabric.is_late = lambda answer: isinstance(answer, StageDone)
    register(fabric, 0)
    fabric.run(1)
    assert fabric.status.pins == 0
    while fabric.late:
        fabric.deliver()
    assert fabric.status.pins == 8, "four flows, both ways"


def test_a_mode_is_set_when_a_plan_for_it_is_in_force() -> None:
    fabric = started(SlowSolver())
    register(fabric, 0, 1, 2)
    fabric.run(1)
    fabric.solve()
    fabric.send(SetMode(Mode.ECMP))
    fabric.run(1)
    wanted = SetMode(Mode.PLANNED)
    fabric.send(wanted)
    fabric.run(1)
    assert fabric.reply_to(wanted.reply) is None, "it is being planned"
    fabric.is_late = lambda answer: isinstance(answer, StageDone)
    fabric.solve()
    assert fabric.reply_to(wanted.reply) is None, "switches have not confirmed the rules"
    while fabric.late:
        fabric.deliver()
    assert fabric.reply_to(wanted.reply).pins == 24
    assert fabric.reply_to(wanted.reply).mode is Mode.PLANNED


def test_a_request_to_set_a_mode_is_refused_when_another_comes_before_it_is_done() -> None:
    fabric = started(SlowSolver())
    register(fabric, 0)
    fabric.run(1)
    assert fabric.solving
    first, second = SetMode(Mode.SHADOW), SetMode(Mode.ECMP)
    fabric.send(first)
    fabric.send(second)
    fabric.run(0.2)
    assert isinstance(fabric.reply_to(first.reply), Superseded)
    assert fabric.reply_to(second.reply).mode is Mode.ECMP, "it waits for no plan"


class SilentSpine(FakeFabric):
    """Fabric with a spine that carries out rule changes and never confirms them."""

    def _install(self, command: InstallStage) -> StageDone:
        done = super()._install(command)
        return StageDone(done.change_id, {dpid: result for dpid, result in done.results.items() if dpid != 260})


def test_a_switch_that_confirms_nothing_delays_an_answer_about_a_host_by_half_a_second_at_most() -> None:
    fabric = started(SilentSpine())
    asker, target = "10.0.1.1", "10.0.3.2"
    fabric.send(ArpSeen(fabric.hosts[asker], "request", asker, fabric.mac(asker), target))
    fabric.run(0.4)
    assert not fabric.arp_replies
    fabric.run(0.2)
    assert [reply.ip for reply in fabric.arp_replies] == [target]


# ---- the table of phases: legal and refused pairs of phase and input, and the effect of phases on the controller


LEGAL = {
    (Phase.ADOPTING, Input.ADOPTION_NEEDED): Phase.ADOPTING,
    (Phase.ADOPTING, Input.ADOPTED): Phase.STEADY,
    (Phase.STEADY, Input.ADOPTION_NEEDED): Phase.ADOPTING,
    (Phase.STEADY, Input.NEXT_HOPS_REMOVED): Phase.REMOVING_NEXT_HOPS,
    (Phase.STEADY, Input.REPAIR_ASKED): Phase.REPAIRING,
    (Phase.REMOVING_NEXT_HOPS, Input.ADOPTION_NEEDED): Phase.ADOPTING,
    (Phase.REMOVING_NEXT_HOPS, Input.NEXT_HOPS_REMOVED): Phase.REMOVING_NEXT_HOPS,
    (Phase.REMOVING_NEXT_HOPS, Input.ALL_CONFIRMED): Phase.STEADY,
    (Phase.REMOVING_NEXT_HOPS, Input.TIME_OVER): Phase.STEADY,
    (Phase.REPAIRING, Input.ADOPTION_NEEDED): Phase.ADOPTING,
    (Phase.REPAIRING, Input.NEXT_HOPS_REMOVED): Phase.REMOVING_NEXT_HOPS,
    (Phase.REPAIRING, Input.REPAIR_ANSWERED): Phase.REMOVING_NEXT_HOPS,
    (Phase.REPAIRING, Input.TIME_OVER): Phase.STEADY,
}


@pytest.mark.parametrize(("phase", "happened"), list(product(Phase, Input)))
def test_each_legal_input_leads_to_its_phase_and_any_other_is_refused(phase: Phase, happened: Input) -> None:
    phases = Phases()
    phases.phase = phase
    legal = (phase, happened) in LEGAL
    with nullcontext() if legal else pytest.raises(IllegalTransition, match=happened.name):
        phases.transition(happened, 0.0)
    assert phases.phase is LEGAL.get((phase, happened), phase)


def test_lost_links_are_urgent_for_a_tenth_of_a_second_each() -> None:
    phases = Phases()
    phases.transition(Input.ADOPTED, 0.0)
    phases.transition(Input.NEXT_HOPS_REMOVED, 1.0)
    phases.pass_time(1.0 + 0.9 * HURRY_S)
    assert phases.urgent
    phases.transition(Input.ALL_CONFIRMED, 1.0 + 0.9 * HURRY_S)
    phases.transition(Input.REPAIR_ASKED, 1.0 + 0.9 * HURRY_S)
    phases.pass_time(1.0 + 1.8 * HURRY_S)
    assert phases.urgent, "the repair has its own time"
    phases.pass_time(1.0 + 1.95 * HURRY_S)
    assert phases.phase is Phase.STEADY


def test_an_adoption_lasts_until_it_is_over() -> None:
    phases = Phases()
    phases.pass_time(1e9)
    assert phases.adopting
    assert not phases.urgent


# ---- the period in which the rules that switches hold take precedence over the state of the controller


GROUP = GroupRule(1, "select", (Bucket(Output(PortNo(1))),))


def adoption() -> Adoption:
    return Adoption(patience_s=15, orphan_lease_s=60, expects_rules=False, now=0.0)


def test_the_lease_of_unknown_rules_is_over_once() -> None:
    first = adoption()
    assert not first.lease_over(1000.0), "nothing is adopted yet"
    assert first.is_complete(Fabric(), {}, True, False, 1.0)
    first.end(1.0)
    assert [first.lease_over(60.9), first.is_first] == [False, True]
    assert [first.lease_over(now) for now in (61.0, 61.1, 1000.0)] == [True, False, False]
    assert not first.is_first


def test_a_switch_that_cannot_be_read_is_waited_for_only_so_long() -> None:
    """A switch that connects again and again does not renew the deadline; only new switches do."""
    first = adoption()
    for now in range(0, 20, 2):
        first.switch_connected(Dpid(1), float(now))
        if now == 10:
            first.switch_connected(Dpid(2), 10.0)
    assert not first.is_complete(Fabric(), {}, False, False, 24.9)
    assert first.is_complete(Fabric(), {}, False, False, 25.0)


def test_ever_new_switches_renew_the_patience_only_so_often() -> None:
    first, most_s = adoption(), MOST_PATIENCES * 15.0
    for number in range(2 * MOST_PATIENCES):
        first.switch_connected(Dpid(number), 10.0 * number)
        assert first.is_complete(Fabric(), {}, False, False, 10.0 * number) is (10.0 * number >= most_s)


@pytest.mark.parametrize(("connects", "until"), [([], 115.0), ([105.0], 120.0)])
def test_another_adoption_has_a_patience_of_its_own_and_waits_for_all_switches_again(
    connects: list[float], until: float
) -> None:
    second = adoption()
    second.switch_connected(Dpid(1), 0.0)
    second.end(1.0)
    second.begin(100.0)
    for now in connects:
        second.switch_connected(Dpid(1), now)
    assert not second.is_complete(Fabric(), {}, False, False, until - 0.1)
    assert second.is_complete(Fabric(), {}, False, False, until)


def test_after_a_restart_one_switch_without_rules_does_not_delay_the_adoption_of_the_others() -> None:
    restarted = Adoption(patience_s=15, orphan_lease_s=60, expects_rules=True, now=0.0)
    held, empty = RuleSet.of(groups=[GROUP]), RuleSet()
    assert not restarted.is_complete(Fabric(), {Dpid(1): empty, Dpid(2): empty}, True, False, 1.0)
    assert restarted.is_complete(Fabric(), {Dpid(1): held, Dpid(2): empty}, True, False, 1.0)


def test_after_a_restart_all_known_switches_without_rules_get_rules_at_once() -> None:
    restarted, empty = Adoption(patience_s=15, orphan_lease_s=60, expects_rules=True, now=0.0), RuleSet()
    assert restarted.is_complete(Fabric(), {Dpid(1): empty, Dpid(2): empty}, True, True, 1.0)
    assert not restarted.is_complete(Fabric(), {Dpid(1): empty}, False, True, 1.0)


def test_a_switch_begins_another_adoption_only_when_it_is_read_for_the_first_time_with_rules_within_the_lease() -> None:
    def asks_for_another(dpid: int, rules: RuleSet, now: float) -> bool:
        return first.rules_read(Dpid(dpid), rules, now)

    first, held = adoption(), RuleSet.of([FlowRule(FlowKey(Table.DEFAULT, 0, Match()), 0)])
    first.end(1.0)
    assert asks_for_another(1, held, 2.0)
    assert not asks_for_another(1, held, 3.0), "it was read before"
    assert not asks_for_another(2, RuleSet(), 4.0), "nothing depends on it"
    assert first.lease_over(61.0)
    assert not asks_for_another(3, held, 62.0), "the lease is over"


# ---- lost control connections: one switch is given up at once, a large part of the fabric only when packets are lost


@pytest.fixture
def fabric() -> FakeFabric:
    return started(FakeFabric(), 0, 1, 2, lease_s=1000)


def test_a_switch_is_given_up_once() -> None:
    departures = Departures()
    departures.switch_left(Dpid(1), Fabric(), 0.0)
    assert (departures.waiting, departures.due(0.0)) == (True, [])
    assert departures.due(GRACE_S) == [Dpid(1)]
    assert (departures.waiting, departures.due(GRACE_S)) == (False, [])


def test_switches_are_used_until_it_is_known_whether_many_leave_together() -> None:
    departures, fabric = Departures(), leaf_spine(20, 10, 1, 1e9, 1e9)
    left = list(fabric.switches)[:12]
    many = [departures.switch_left(dpid, fabric, 0.05 * number) for number, dpid in enumerate(left)]
    assert many.index(True) == 7, "a quarter of 30 switches"
    later = Departures()
    assert not any(later.switch_left(dpid, fabric, 0.05 * number) for number, dpid in enumerate(left[:5]))
    assert later.due(0.2 + GRACE_S) == []
    assert later.due(TOGETHER_S) == left[:1]
    assert later.due(0.2 + TOGETHER_S) == left[1:5]


def test_one_that_is_back_within_that_moment_was_never_given_up(fabric: FakeFabric) -> None:
    fabric.send(SwitchLeft(Dpid(257)))
    assert any(link.dpid == 257 for link in fabric.loop.fabric.links)
    fabric.connect(Dpid(257))
    fabric.run(5)
    assert sum(link.dpid == 257 for link in fabric.loop.fabric.links) == 4
    assert fabric.status.switches[Dpid(257)].in_sync


def test_switches_that_leave_one_after_the_other_are_given_up_a_moment_later(fabric: FakeFabric) -> None:
    for number, spine in enumerate((257, 258, 259), 1):
        fabric.lose(Dpid(spine))
        fabric.run(0.3)
        assert not fabric.status.adopting
        assert len({link.dpid for link in fabric.loop.fabric.links if link.dpid > 256}) == 4 - number
        fabric.run(1.7)
    assert set(spines_used(fabric).values()) == {"spine4"}


def test_two_switches_are_no_large_part_of_the_fabric(fabric: FakeFabric) -> None:
    """Two switches are a quarter of the fabric, but fewer than ``MANY_AT_LEAST``."""
    for spine in (257, 258):
        fabric.loop.handle([SwitchLeft(Dpid(spine))], fabric.now)
    fabric.run(1)
    assert not fabric.status.adopting
    assert {link.dpid for link in fabric.loop.fabric.links if link.dpid > 256} == {259, 260}


@pytest.mark.parametrize(
    ("gone", "after_s"), [(None, 0.0), ([Dpid(257), Dpid(258), Dpid(1)], 70.0)], ids=["all", "three of eight, later"]
)
def test_when_many_connections_end_and_return_nothing_is_rewritten(
    fabric: FakeFabric, gone: list[Dpid] | None, after_s: float
) -> None:
    """The ports of the switches stay up; after 70 s, the first adoption and its lease are over."""
    fabric.run(after_s)
    fabric.send(ReportIterations(JobId("job0"), (IterationTime(1, 1.0, 0.5),)))
    jobs, before = fabric.status.jobs, spines_used(fabric)
    fabric.forget_mods()
    for dpid in gone or fabric.switches:
        fabric.now += 0.01
        fabric.loop.handle([SwitchLeft(dpid)], fabric.now)
        fabric._connected.discard(dpid)
    fabric.run(2)
    assert fabric.mods == []
    for dpid in gone or fabric.switches:
        fabric.run(0.5)
        fabric.connect(dpid)
    fabric.run(10)
    assert fabric.mods == []
    assert spines_used(fabric) == before
    assert not fabric.status.adopting
    for job_id, job in fabric.status.jobs.items():
        assert (job.state, job.routes_generation) == ("pinned", jobs[job_id].routes_generation)
        assert job.mean_communication_s == jobs[job_id].mean_communication_s


def test_when_many_die_their_neighbours_say_so_and_nobody_waits(fabric: FakeFabric) -> None:
    """Three of four spines lose power: half of the connections end, and the leaves' ports go down."""
    dead = [Dpid(257), Dpid(258), Dpid(259)]
    for dpid in dead:
        fabric.loop.handle([SwitchLeft(dpid)], fabric.now)
        fabric._connected.discard(dpid)
    for dpid in dead:
        for at in filter(None, fabric.switches[dpid].peers.values()):
            fabric.switches[at.dpid].up[at.port] = False
            port = next(port for port in fabric.switches[at.dpid].ports() if port.number == at.port)
            fabric.send(PortChanged(at.dpid, port))
    fabric.run(0.5)
    assert set(spines_used(fabric).values()) == {"spine4"}


def test_switches_without_links_are_no_part_of_the_fabric(fabric: FakeFabric) -> None:
    """A client connects and disconnects six times, each time with another dpid."""
    for number in range(6):
        dpid = Dpid(0xBAD0 + number)
        fabric.loop.handle([SwitchConnected(dpid, "stranger", ())], fabric.now)
        fabric.loop.handle([SwitchLeft(dpid)], fabric.now)
    assert not fabric.status.adopting


def test_what_a_job_leaves_behind_while_nobody_is_connected_goes_with_the_return(fabric: FakeFabric) -> None:
    fabric.run(70)
    for dpid in fabric.switches:
        fabric.loop.handle([SwitchLeft(dpid)], fabric.now)
    fabric._connected.clear()
    fabric.send(DeregisterJob(JobId("job0")))
    fabric.run(1)
    fabric.connect(*fabric.switches)
    fabric.run(10)
    assert fabric.loop.state.routes.orphans == ()
    assert sum(not pin.learning for pin in fabric.loop.state.wanted.pins) == 16, "two jobs of four flows, both ways"


# ---- published totals of the durations of plans, repairs, stages and iterations


def count(histogram: Histogram) -> int:
    return dict(histogram.buckets)["+Inf"]


def test_plans_are_timed_and_the_latest_has_an_age() -> None:
    fabric = started(FakeFabric(), 0)
    status = fabric.status
    assert count(status.plan_times) == status.plans_total >= 1
    assert status.plan
    assert status.plan_times.total >= status.plan.times.total_ms / 1000
    assert status.plan_at is not None
    assert fabric.now - 3 < status.plan_at <= fabric.now


def test_repairs_are_timed_until_the_switches_have_confirmed_them() -> None:
    fabric = started(LateAnswers(), 0)
    used = next(iter(fabric.loop.state.routes.routes.values()))[0].path[0]
    assert count(fabric.status.repair_times) == 0
    fabric.is_late = lambda answer: isinstance(answer, StageDone)
    fabric.cut(used.dpid, used.port)
    for _ in range(20):
        fabric.run(0.05, step=0.05)
        fabric.deliver()
    times = fabric.status.repair_times
    assert count(times) == 1
    assert times.total == pytest.approx(fabric.status.repair_s)
    assert times.total > 0


@pytest.mark.parametrize("answered", [True, False])
def test_a_stage_is_timed_from_its_sending_until_all_of_its_switches_have_confirmed_it(answered: bool) -> None:
    fabric = LateAnswers()
    fabric.is_late = lambda answer: isinstance(answer, StageDone)
    fabric.start(CONFIG)
    fabric.run(0.5)
    assert count(fabric.status.install_times) == 0
    ((done,), fabric.late) = fabric.late, []
    assert isinstance(done, StageDone)
    silent = {} if answered else {next(iter(done.results)): SwitchResult(timed_out=True)}
    fabric.send(StageDone(done.change_id, {**done.results, **silent}))
    times = fabric.status.install_times
    assert (count(times), times.total) == ((1, pytest.approx(0.5)) if answered else (0, 0.0))


def test_every_reported_iteration_counts_once() -> None:
    fabric = started(FakeFabric(), 0)
    for _ in range(2):
        iterations = (IterationTime(0, 2.0, 0.5), IterationTime(1, 2.0, 0.25))
        fabric.send(ReportIterations(JobId("job0"), iterations))
    fabric.run(1)
    times = fabric.status.communication_times
    assert (count(times), times.total) == (2, 0.75)
