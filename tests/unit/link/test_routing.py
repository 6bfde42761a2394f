"""Routing of commands and messages between the control loop and several southbounds, without processes."""

from collections.abc import Iterable
from typing import Any

import pytest

from controller.fabric.messages import (
    ArpSeen,
    ConnectionRefused,
    ExpectLinks,
    GenerationRaised,
    HeardProbe,
    LinkLost,
    LinkSeen,
    MastershipLost,
    PortChanged,
    ProbeAnew,
    ProbePorts,
    ProbesHeard,
    SendArpReply,
    SwitchConnected,
    SwitchesInReach,
    SwitchFloods,
    SwitchLeft,
    SwitchMoved,
)
from controller.fabric.topology import Dpid, Port, PortNo, PortRef
from controller.link import routing
from controller.link.codec import Refused
from controller.link.routing import ANSWER_S, HANDED_OVER_S, Router
from controller.tables.messages import (
    InstallStage,
    PollHalfway,
    PollLearning,
    ReadRules,
    StageDone,
    SwitchResult,
    ToSwitches,
)
from controller.tables.rules import Bucket, GroupRule, MeterRule, Output, RuleMod, Stage

A, B, C = Dpid(1), Dpid(2), Dpid(3)
A1, B1, C1 = (PortRef(dpid, PortNo(1)) for dpid in (A, B, C))
GRACE_S, BARRIER_S = 5.0, 10.0
LEFT_S = GRACE_S + HANDED_OVER_S
"""Seconds after which the loop loses a switch without a holder."""
DONE, TIMED_OUT = SwitchResult(), SwitchResult(timed_out=True)
MODS = (RuleMod("add", MeterRule(1, 10, 10)),)


class Southbound:
    def __init__(self, fabric: "Loop", *holds: Dpid, member: str = "") -> None:
        self.fabric = fabric
        self.member = member or f"member/{id(self)}"
        self.sent: list[ToSwitches] = []
        fabric.router.add(self)
        for dpid in holds:
            self.says(SwitchConnected(dpid, f"s{dpid}", ()))
        self.sent.clear()
        fabric.heard.clear()

    def send(self, commands: Iterable[ToSwitches]) -> None:
        self.sent += commands

    def says(self, *messages: Any) -> list[Any]:
        before = len(self.fabric.heard)
        self.fabric.router.received(self, messages, lambda: None)
        return self.fabric.heard[before:]


class Loop:
    """End of the control loop, with a clock that only the test moves."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.now = 0.0
        self.router = Router(self._put, GRACE_S, BARRIER_S, lambda: self.now)

    def _put(self, message: Any, counted_by: Any = None) -> None:
        self.heard.append(message)
        if counted_by:
            counted_by.take()

    def wait(self, seconds: float) -> list[Any]:
        """Return what the control loop gets to know in this time."""
        self.heard.clear()
        self.now += seconds
        self.router.send([])
        return self.heard

    def install(self, *dpids: Dpid) -> None:
        self.router.send([InstallStage(7, Stage("install", dict.fromkeys(dpids, MODS)), 0.5)])


@pytest.fixture
def loop() -> Loop:
    return Loop()


def stage(*dpids: Dpid) -> InstallStage:
    return InstallStage(7, Stage("install", dict.fromkeys(dpids, MODS)), 0.5)


def test_each_command_goes_to_the_holder_of_its_switch_or_to_all(loop: Loop) -> None:
    one, two = Southbound(loop, A), Southbound(loop, B)
    reply = SendArpReply(B1, "10.0.0.1", "02:00:00:00:00:01", "10.0.0.2", "02:00:00:00:00:02")
    to_all: list[ToSwitches] = [PollHalfway(), ProbePorts(frozenset({A}))]
    loop.router.send([ReadRules(A), reply, ReadRules(C), *to_all])
    assert one.sent == [ReadRules(A), *to_all]
    assert two.sent == [reply, *to_all]


def test_a_southbound_learns_what_the_others_were_told_to_poll(loop: Loop) -> None:
    Southbound(loop)
    loop.router.send([PollLearning(frozenset({A}))])
    late = Southbound.__new__(Southbound)
    late.fabric, late.sent = loop, []
    loop.router.add(late)
    assert late.sent == [PollLearning(frozenset({A}))]


def test_a_stage_is_divided_and_its_first_results_are_joined(loop: Loop) -> None:
    one, two = Southbound(loop, A), Southbound(loop, B)
    loop.install(A, B)
    assert (one.sent, two.sent) == ([stage(A)], [stage(B)])
    assert one.says(StageDone(7, {A: DONE})) == []
    assert two.says(StageDone(7, {B: DONE})) == [StageDone(7, {A: DONE, B: DONE})]
    assert two.says(StageDone(7, {B: DONE})) == []


def test_a_large_stage_is_sent_in_parts_whose_first_results_are_joined(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "MOST_CHANGES", 2)
    one = Southbound(loop, A, B, C)
    loop.install(A, B, C)
    first, second = (command for command in one.sent if isinstance(command, InstallStage))
    assert (first, second.stage) == (stage(A, B), stage(C).stage)
    assert one.says(StageDone(first.change_id, {A: DONE})) == []
    assert loop.wait(BARRIER_S) == []
    assert one.says(StageDone(second.change_id, {C: DONE})) == [StageDone(7, {A: DONE, C: DONE})]
    assert loop.wait(BARRIER_S) == []
    assert one.says(StageDone(first.change_id, {B: DONE})) == [StageDone(7, {B: DONE})]


def test_groups_count_with_their_buckets(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "MOST_CHANGES", 3)
    one = Southbound(loop, A, B)
    group = RuleMod("add", GroupRule(1, "select", (Bucket(Output(PortNo(1))),) * 2))
    loop.router.send([InstallStage(7, Stage("install", {A: (group,), B: MODS}))])
    assert len(one.sent) == 2


def test_results_of_late_switches_follow_one_by_one(loop: Loop) -> None:
    one, two = Southbound(loop, A, C), Southbound(loop, B)
    loop.install(A, B, C)
    assert one.says(StageDone(7, {C: DONE})) == []
    assert two.says(StageDone(7, {})) == [StageDone(7, {C: DONE})]
    assert one.says(StageDone(7, {A: DONE})) == [StageDone(7, {A: DONE})]
    assert two.says(StageDone(7, {B: TIMED_OUT})) == [StageDone(7, {B: TIMED_OUT})]


def test_a_stage_whose_switches_are_all_late_is_reported_as_such_once(loop: Loop) -> None:
    one = Southbound(loop, A)
    loop.install(A)
    assert one.says(StageDone(7, {})) == [StageDone(7, {})]
    assert one.says(StageDone(7, {A: DONE})) == [StageDone(7, {A: DONE})]


def test_switches_that_nobody_holds_count_as_timed_out(loop: Loop) -> None:
    one = Southbound(loop, A)
    loop.install(A, C)
    assert one.says(StageDone(7, {A: DONE})) == [StageDone(7, {A: DONE, C: TIMED_OUT})]
    loop.heard.clear()
    loop.install(C)
    assert loop.heard == [StageDone(7, {C: TIMED_OUT})]


def test_a_stage_without_switches_is_done_at_once(loop: Loop) -> None:
    loop.install()
    assert loop.heard == [StageDone(7, {})]


def test_a_southbound_that_does_not_answer_a_stage_holds_it_up_until_the_barriers_are_overdue(loop: Loop) -> None:
    one, _ = Southbound(loop, A), Southbound(loop, B)
    loop.install(A, B)
    one.says(StageDone(7, {A: DONE}))
    assert loop.wait(BARRIER_S + ANSWER_S - 0.1) == []
    assert loop.wait(0.2) == [StageDone(7, {A: DONE, B: TIMED_OUT})]


def test_open_changes_of_a_lost_southbound_have_timed_out(loop: Loop) -> None:
    one, two = Southbound(loop, A), Southbound(loop, B)
    loop.install(A, B)
    one.says(StageDone(7, {A: DONE}))
    loop.router.remove(two)
    assert loop.heard == [StageDone(7, {A: DONE, B: TIMED_OUT})]


def test_a_switch_moves_to_another_southbound_without_leaving(loop: Loop) -> None:
    one = Southbound(loop, A, B)
    one.says(LinkSeen(A1, B1), LinkSeen(B1, A1))
    loop.install(A)
    loop.router.remove(one)
    assert loop.heard[-1:] == [StageDone(7, {A: TIMED_OUT})]
    assert loop.wait(LEFT_S - 0.1) == []
    two = Southbound(loop)
    assert two.says(SwitchConnected(A, "a", ())) == [SwitchMoved(A, "a", ())]
    assert two.sent == [ExpectLinks(((A1, B1),), frozenset({A}))]
    three = Southbound(loop)
    assert three.says(SwitchConnected(B, "b", ())) == [SwitchMoved(B, "b", ())]
    assert two.sent[1:] == [ExpectLinks(((A1, B1),))]
    assert three.sent == [ExpectLinks(((B1, A1),), frozenset({B}))]
    three.says(SwitchLeft(B, released=True))
    loop.heard.clear()
    assert loop.wait(LEFT_S) == [SwitchLeft(B, released=True)]
    assert loop.wait(LEFT_S) == []


def test_a_link_of_a_process_replaces_its_earlier_links_with_its_first_message(loop: Loop) -> None:
    earlier, present = Southbound(loop, A, member="one/1"), Southbound(loop, member="one/1")
    late = Southbound(loop, member="one/1")  # opened before, but the network was slow
    assert present.says(SwitchConnected(A, "a", ())) == [SwitchMoved(A, "a", ())]
    assert earlier.says(SwitchConnected(A, "a", ()), SwitchLeft(A)) == []
    for ended in (earlier, late):
        loop.router.remove(ended)
    assert loop.wait(2 * LEFT_S) == []
    assert loop.router.holders == {A: "one/1"}


def test_a_southbound_that_returns_has_its_switches_as_before(loop: Loop) -> None:
    one = Southbound(loop, A)
    loop.router.remove(one)
    loop.router.add(one)
    assert one.says(SwitchConnected(A, "a", ())) == [SwitchMoved(A, "a", ())]
    assert loop.wait(2 * LEFT_S) == []


def test_the_former_holder_has_nothing_more_to_say_about_a_switch(loop: Loop) -> None:
    one, two = Southbound(loop, A), Southbound(loop, B)
    loop.install(A)
    assert two.says(SwitchConnected(A, "a", ())) == [StageDone(7, {A: TIMED_OUT}), SwitchMoved(A, "a", ())]
    arp = ArpSeen(A1, "request", "10.0.0.1", "02:00:00:00:00:01", "10.0.0.2")
    late = [StageDone(7, {A: DONE}), SwitchFloods(A), LinkSeen(A1, B1), LinkLost(A1, B1), arp, MastershipLost(A, "a")]
    assert one.says(*late, SwitchLeft(A)) == []
    assert one.says(ConnectionRefused("192.0.2.1:1", A, "silent")) != []
    loop.router.send([ReadRules(A)])
    assert two.sent[-1] == ReadRules(A)


@pytest.mark.parametrize("message", [SwitchLeft(A, released=True), MastershipLost(A, "a")])
def test_a_former_holder_that_releases_a_switch_late_still_watches_the_links_to_it(loop: Loop, message: Any) -> None:
    """A southbound forgets the links to a switch that it releases, so it would not report that they are lost."""
    one, two = Southbound(loop, A, B), Southbound(loop)
    one.says(LinkSeen(A1, B1), LinkSeen(B1, A1))
    two.says(SwitchConnected(A, "a", ()))
    watched = ExpectLinks(((B1, A1),))
    assert one.sent == [watched]
    assert one.says(message) == []
    assert one.sent == [watched, watched]
    assert two.sent == [ExpectLinks(((A1, B1),), frozenset({A}))]


def test_a_switch_that_its_living_holder_loses_leaves_at_once(loop: Loop) -> None:
    one = Southbound(loop, A)
    assert one.says(SwitchLeft(A)) == [SwitchLeft(A)]
    assert one.says(SwitchConnected(A, "a", ())) == [SwitchConnected(A, "a", ())]


@pytest.mark.parametrize("message", [SwitchLeft(A, released=True), MastershipLost(A, "a")])
def test_a_switch_without_a_holder_leaves_after_a_while(loop: Loop, message: Any) -> None:
    one = Southbound(loop, A)
    assert one.says(message) == []
    assert loop.wait(LEFT_S) == [message]


def test_a_generation_id_that_is_ahead_is_reported_although_the_loss_is_known(loop: Loop) -> None:
    one, two = Southbound(loop, A), Southbound(loop, member="two/2")
    assert loop.router.holders == {A: one.member}
    assert one.says(MastershipLost(A, "a"), MastershipLost(A, "a", 5)) == []
    assert loop.router.holders == {}
    assert two.says(MastershipLost(A, "a")) == []
    assert loop.router.taken == {(A, one.member): 0, (A, two.member): 0}
    assert loop.wait(LEFT_S) == [MastershipLost(A, "a", 5)]
    assert loop.router.refused == {one.member: 2, two.member: 1}


def test_a_refusal_that_a_southbound_repeats_after_a_break_counts_once(loop: Loop) -> None:
    one = Southbound(loop, A)
    one.says(MastershipLost(A, "a"))
    loop.router.remove(one)
    loop.router.add(one)
    one.says(MastershipLost(A, "a", refused=False))
    assert loop.router.refused == {one.member: 1}


@pytest.mark.parametrize("end", [SwitchConnected(A, "a", (), 2), SwitchLeft(A), SwitchLeft(A, released=True), None])
def test_a_switch_counts_as_taken_until_its_holder_claims_or_leaves_it(loop: Loop, end: Any) -> None:
    one, two = Southbound(loop, A), Southbound(loop)
    one.says(MastershipLost(A, "a", newer=9))
    two.says(SwitchLeft(A, released=True))
    assert loop.router.taken == {(A, one.member): 9}
    if end:
        one.says(end)
    else:
        loop.router.remove(one)
    assert loop.router.taken == {}


def test_a_switch_whose_generation_id_was_raised_counts_as_taken_and_keeps_its_holder(loop: Loop) -> None:
    one, two = Southbound(loop, A), Southbound(loop, B)
    within, ahead = GenerationRaised(A, "a", 9, is_ahead=False), GenerationRaised(B, "b", 10, is_ahead=True)
    assert (one.says(within), two.says(ahead)) == ([within], [ahead])
    assert loop.router.taken == {(A, one.member): 9, (B, two.member): 10}
    one.says(GenerationRaised(A, "a", 10, is_ahead=True))
    assert loop.router.taken == {(A, one.member): 10, (B, two.member): 10}
    one.says(SwitchMoved(A, "a", ()))
    assert loop.router.taken == {(B, two.member): 10}
    assert loop.router.holders == {A: one.member, B: two.member}


def test_a_switch_that_its_holder_claims_anew_keeps_its_links(loop: Loop) -> None:
    one, two = Southbound(loop, A), Southbound(loop, B)
    two.says(LinkSeen(B1, A1))
    assert one.says(SwitchMoved(A, "a", ())) == [SwitchMoved(A, "a", ())]
    assert two.sent == []
    assert one.says(SwitchMoved(C, "c", ())) == [SwitchConnected(C, "c", ())]


def test_a_southbound_that_was_paused_does_not_get_a_switch_back_that_it_lost(loop: Loop) -> None:
    one, two = Southbound(loop), Southbound(loop)
    one.says(SwitchConnected(A, "a", (), 5))
    assert two.says(SwitchConnected(A, "a", (), 6)) == [SwitchMoved(A, "a", ())]
    loop.router.remove(one)
    loop.router.add(one)
    assert one.says(SwitchConnected(A, "a", (), 5), SwitchFloods(A), SwitchLeft(A, released=True)) == []
    assert two.says(SwitchFloods(A)) == [SwitchFloods(A)]
    assert one.says(SwitchConnected(A, "a", (), 7)) == [SwitchMoved(A, "a", ())]


def test_a_generation_id_that_is_not_assigned_gives_a_southbound_no_switch(loop: Loop) -> None:
    assigned = {("one/1", A, 5), ("two/2", A, 6)}
    loop.router = Router(loop._put, GRACE_S, BARRIER_S, lambda: loop.now, lambda *claim: claim in assigned)
    one, two = Southbound(loop, member="one/1"), Southbound(loop, member="two/2")
    with pytest.raises(Refused, match="generation id 9, but this switch is not assigned to it with this id"):
        one.says(ConnectionRefused("x", None, "tls"), SwitchMoved(A, "s", (), 9))
    assert loop.heard == []
    assert one.says(SwitchConnected(A, "s", (), 5)) == [SwitchConnected(A, "s", ())]
    assert two.says(SwitchConnected(A, "s", (), 6)) == [SwitchMoved(A, "s", ())]


def test_the_loop_learns_of_another_master_of_a_switch_that_it_never_had(loop: Loop) -> None:
    assert Southbound(loop).says(MastershipLost(A, "a")) == [MastershipLost(A, "a")]


def test_a_switch_that_connects_again_to_its_holder_is_new(loop: Loop) -> None:
    one = Southbound(loop, A)
    assert one.says(SwitchConnected(A, "a", ())) == [SwitchConnected(A, "a", ())]


def test_probes_reach_the_southbound_that_sent_them(loop: Loop) -> None:
    one, two, three = Southbound(loop, A), Southbound(loop, B), Southbound(loop, C)
    from_a, from_c = HeardProbe(A1, B1, 5), HeardProbe(C1, B1, 6)
    assert two.says(ProbesHeard((from_a, from_c))) == []
    assert (one.sent, three.sent) == ([ProbesHeard((from_a,))], [ProbesHeard((from_c,))])
    two.says(ProbesHeard((), frozenset({B})))
    assert one.sent[-1] == three.sent[-1] == ProbesHeard((), frozenset({B}))
    assert two.sent == []


def test_the_former_holder_of_a_switch_reports_no_probes_that_it_received(loop: Loop) -> None:
    """A member that was paused reports probes late, and they are no replays."""
    one, two = Southbound(loop, A), Southbound(loop, B)
    one.says(ProbesHeard((HeardProbe(A1, B1, 5),), frozenset({B})))
    assert (one.sent, two.sent) == ([], [])


def test_a_probe_that_the_holder_of_its_sender_does_not_know_returns_to_it(loop: Loop) -> None:
    one, two = Southbound(loop, A, B), Southbound(loop, C)
    unknown = ProbesHeard((HeardProbe(A1, B1, 5),))
    one.says(unknown)
    assert (one.sent, two.sent) == ([unknown], [])


def port(up: bool) -> Port:
    return Port(PortNo(1), "p", "02:00:00:00:00:01", up, 1e9)


@pytest.mark.parametrize(
    "change",
    [PortChanged(B, port(False)), PortChanged(B, port(True), True), SwitchLeft(B), SwitchConnected(B, "b", ())],
)
def test_the_far_end_finds_its_link_again_after_this_end_was_down(loop: Loop, change: Any) -> None:
    one, two = Southbound(loop, A), Southbound(loop, B)
    one.says(LinkSeen(A1, B1))
    two.says(LinkSeen(B1, A1))
    two.says(change)
    assert one.sent == [ProbeAnew(frozenset({A1}))]


def test_a_port_that_stays_up_changes_no_link(loop: Loop) -> None:
    one, two = Southbound(loop, A), Southbound(loop, B)
    one.says(LinkSeen(A1, B1))
    assert two.says(PortChanged(B, port(True))) == [PortChanged(B, port(True))]
    assert one.sent == []


def test_the_leader_knows_which_members_can_reach_a_switch(loop: Loop) -> None:
    one, two = Southbound(loop, member="one/1"), Southbound(loop, member="two/2")
    changes: list[None] = []
    loop.router.changed = lambda: changes.append(None)
    both, second = SwitchesInReach(frozenset({A, B})), SwitchesInReach(frozenset({B}), frozenset({A}))
    assert one.says(both) == []
    two.says(second)
    assert loop.router.in_reach == {"one/1": both, "two/2": second}
    loop.router.remove(one)
    assert loop.router.in_reach == {"two/2": second}
    assert len(changes) == 3


def test_messages_are_taken_when_the_loop_has_taken_the_last_or_wants_none(loop: Loop) -> None:
    one, taken = Southbound(loop, A), []
    loop.router.received(one, [SwitchFloods(A), SwitchFloods(B)], lambda: taken.append("shown"))
    loop.router.received(one, [SwitchFloods(B)], lambda: taken.append("none"))
    loop.router.remove(one)
    loop.router.received(one, [SwitchFloods(A)], lambda: taken.append("lost"))
    assert taken == ["shown", "none", "lost"]
