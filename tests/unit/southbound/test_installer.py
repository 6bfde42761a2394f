from __future__ import annotations

from itertools import count, pairwise

from controller.fabric.topology import Dpid
from controller.southbound.framework import ofp
from controller.southbound.given_rules import GivenRules
from controller.southbound.installer import BATCH, PATIENCE_S, Installer
from controller.tables.messages import InstallStage, StageDone, SwitchResult
from controller.tables.rules import MeterRule, RuleMod, Stage

A, B = Dpid(1), Dpid(2)
TIMEOUT = 10.0


def kind(message: bytes) -> int:
    return message[1]


class Wire:
    """Record of the messages sent to switches, and of the reports of the installer."""

    def __init__(self, *connected: Dpid) -> None:
        self.connected = set(connected)
        self.sent: dict[Dpid, list[tuple[int, bytes]]] = {A: [], B: []}
        self.done: list[StageDone] = []
        self._xids = count(100)
        self.installer = Installer(TIMEOUT, self._send, self.done.append, GivenRules())

    def _send(self, dpid: Dpid, /, *messages: bytes) -> list[int]:
        assert dpid in self.connected
        sent = [(next(self._xids), message) for message in messages]
        self.sent[dpid] += sent
        return [xid for xid, _ in sent]

    def install(self, stage: dict[Dpid, tuple[RuleMod, ...]], change_id: int = 1, now: float = 0.0) -> None:
        for _ in self.installer.install(InstallStage(change_id, Stage("test", stage)), self.connected, now):
            pass

    def barrier(self, dpid: Dpid) -> int:
        return max(xid for xid, message in self.sent[dpid] if kind(message) == ofp.OFPT_BARRIER_REQUEST)

    def confirm(self, dpid: Dpid) -> None:
        self.installer.barrier_reply(dpid, self.barrier(dpid))


def mods(number: int) -> tuple[RuleMod, ...]:
    return tuple(RuleMod("add", MeterRule(n, 10, 10)) for n in range(1, number + 1))


def test_mods_go_out_in_order_with_one_barrier_behind_them() -> None:
    wire = Wire(A)
    wire.install({A: mods(3)})
    kinds = [kind(message) for _, message in wire.sent[A]]
    assert kinds == [ofp.OFPT_METER_MOD] * 3 + [ofp.OFPT_BARRIER_REQUEST]
    assert [int.from_bytes(message[12:16], "big") for _, message in wire.sent[A][:3]] == [1, 2, 3]


def test_a_stage_is_done_when_every_barrier_is_in() -> None:
    wire = Wire(A, B)
    wire.install({A: mods(1), B: mods(1)})
    wire.confirm(A)
    assert wire.done == []
    for _ in range(2):  # a second reply changes nothing
        wire.confirm(B)
    assert wire.done == [StageDone(1, {A: SwitchResult(), B: SwitchResult()})]


def test_errors_belong_to_the_mod_with_their_number() -> None:
    wire = Wire(A)
    wire.install({A: mods(3)})
    assert wire.installer.error(A, wire.sent[A][1][0], "no room")
    assert not wire.installer.error(A, wire.sent[A][1][0], "again"), "which costs memory each time"
    assert not wire.installer.error(A, 1, "not ours")
    assert not wire.installer.error(B, wire.sent[A][1][0], "another switch")
    wire.confirm(A)
    assert wire.done[0].results[A] == SwitchResult(((mods(3)[1], "no room"),))


def test_neither_an_error_in_answer_to_a_barrier_nor_the_end_of_a_connection_confirms_anything() -> None:
    wire = Wire(A, B)
    wire.install({A: mods(2), B: mods(1)})
    wire.installer.error(A, wire.sent[A][0][0], "no room")
    assert wire.installer.error(A, wire.barrier(A), "barriers are not known")
    assert not wire.installer.error(A, wire.barrier(A), "again"), "the stage has ended there"
    wire.confirm(B)
    rejected = ((mods(2)[0], "no room"),)
    assert wire.done == [StageDone(1, {A: SwitchResult(rejected, timed_out=True), B: SwitchResult()})]
    wire.install({A: mods(2)}, change_id=2)
    wire.installer.error(A, wire.sent[A][-3][0], "no room")
    wire.installer.switch_left(A)
    assert wire.done[1] == StageDone(2, {A: SwitchResult(rejected, timed_out=True)})


def test_overlapping_changes_are_told_apart() -> None:
    wire = Wire(A)
    wire.install({A: mods(1)}, change_id=1)
    first = wire.barrier(A)
    wire.install({A: mods(2)}, change_id=2)
    wire.installer.error(A, wire.sent[A][2][0], "no room")
    wire.installer.barrier_reply(A, first)
    wire.confirm(A)
    assert [(done.change_id, len(done.results[A].rejected)) for done in wire.done] == [(1, 0), (2, 1)]


def test_a_silent_barrier_times_out_and_keeps_the_other_switchs_result() -> None:
    wire = Wire(A, B)
    wire.install({A: mods(1), B: mods(1)})
    wire.confirm(B)
    wire.installer.expire(0.0)
    wire.installer.expire(TIMEOUT - 0.1)
    assert [done.results for done in wire.done] == [{B: SwitchResult()}]
    wire.installer.expire(TIMEOUT)
    assert [done.results for done in wire.done[1:]] == [{A: SwitchResult(timed_out=True)}]
    wire.confirm(A)
    assert len(wire.done) == 2


def test_the_time_for_a_barrier_counts_from_when_it_was_sent() -> None:
    wire = Wire(A)
    sending = wire.installer.install(InstallStage(1, Stage("test", {A: mods(2 * BATCH)})), wire.connected, 0.0)
    next(sending)
    wire.installer.expire(TIMEOUT)
    for _ in sending:
        pass
    wire.installer.expire(TIMEOUT + 0.1)
    wire.installer.expire(2 * TIMEOUT)
    assert [done.results for done in wire.done] == [{}], "the report that it is late"
    wire.installer.expire(2 * TIMEOUT + 0.1)
    assert [done.results for done in wire.done[1:]] == [{A: SwitchResult(timed_out=True)}]


def test_a_late_switch_delays_no_other_and_is_reported_when_it_answers() -> None:
    wire = Wire(A, B)
    wire.install({A: mods(1), B: mods(1)})
    wire.confirm(A)
    wire.installer.expire(PATIENCE_S / 2)
    assert wire.done == []
    wire.installer.expire(PATIENCE_S)
    wire.installer.expire(2 * PATIENCE_S)
    assert wire.done == [StageDone(1, {A: SwitchResult()})]
    wire.confirm(B)
    assert wire.done[1:] == [StageDone(1, {B: SwitchResult()})]
    wire.installer.expire(TIMEOUT)
    assert len(wire.done) == 2


def test_a_switch_that_is_not_connected_counts_as_timed_out_and_an_empty_stage_is_done_at_once() -> None:
    wire = Wire(A)
    wire.install({B: mods(1)})
    wire.install({}, change_id=2)
    assert wire.done == [StageDone(1, {B: SwitchResult(timed_out=True)}), StageDone(2, {})]
    assert wire.sent[B] == []


def test_a_switch_that_leaves_while_its_mods_go_out_gets_no_more_even_when_it_is_back() -> None:
    wire = Wire(A)
    sending = wire.installer.install(InstallStage(1, Stage("test", {A: mods(3 * BATCH)})), wire.connected, 0.0)
    next(sending)
    wire.installer.switch_left(A)
    for _ in sending:
        pass
    assert len(wire.sent[A]) == BATCH
    assert wire.done[0].results[A].timed_out


def test_others_may_run_after_a_batch_however_it_is_spread_over_switches() -> None:
    wire = Wire(A, B)
    sending = wire.installer.install(InstallStage(1, Stage("test", {A: mods(BATCH), B: mods(2 * BATCH)})), {A, B}, 0.0)
    sent = [0, *(sum(map(len, wire.sent.values())) for _ in sending)]
    steps = [after - before for before, after in pairwise(sent)]
    assert sum(steps) == 3 * BATCH + 2
    assert max(steps) <= BATCH + 2
