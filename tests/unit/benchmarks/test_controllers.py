"""Judge of ``benchmarks controllers``: who wrote to a switch, what had to hold in a case, and which cases are drawn."""

from __future__ import annotations

import struct
from dataclasses import replace
from math import inf
from unittest.mock import Mock

import pytest

from benchmarks.controllers.command import LEASE_S as LEASE_OF_CHANGED_S
from benchmarks.controllers.command import Changes
from benchmarks.controllers.judge import (
    KINDS,
    OF_MEMBERS,
    PAUSE_S,
    WITH_ETCD_S,
    Case,
    Fault,
    Judge,
    Outcome,
    Verdict,
    broken,
    draw,
    limits,
    single,
)
from benchmarks.openflow_bytes import Type, message
from controller.fabric.topology import Dpid
from signalbox.errors import InvalidInput

LEAF, SPINE = Dpid(1), Dpid(0x101)
NO_CHANGE, EQUAL, MASTER, SLAVE = range(4)
LEASE_S = 3.0


class Wire:
    """Messages of several members to switches; time advances by a second per message."""

    def __init__(self) -> None:
        self.judge = Judge()
        self.now = 0.0

    def sent(self, member: str, kind: Type, xid: int = 0, body: bytes = bytes(8), dpid: Dpid = LEAF) -> float:
        self.now += 1
        self.judge.message(member, self.now, dpid, message(kind, xid, body))
        return self.now

    def connects(self, member: str, dpid: Dpid = LEAF) -> None:
        self.sent(member, Type.FEATURES_REPLY, dpid=dpid)

    def is_master(self, member: str, generation: int, role: int = MASTER, dpid: Dpid = LEAF) -> float:
        self.requests(member, role, generation, dpid)
        return self.answers(member, role, generation, dpid)

    def reports(self, member: str, role: int, generation: int) -> float:
        """Let the switch answer a question for the member's role."""
        self.requests(member, NO_CHANGE, 0)
        return self.answers(member, role, generation)

    def requests(self, member: str, role: int, generation: int, dpid: Dpid = LEAF) -> None:
        self.sent(member, Type.ROLE_REQUEST, body=struct.pack("!I4xQ", role, generation), dpid=dpid)

    def answers(self, member: str, role: int, generation: int, dpid: Dpid = LEAF) -> float:
        return self.sent(member, Type.ROLE_REPLY, body=struct.pack("!I4xQ", role, generation), dpid=dpid)

    def writes(self, member: str, xid: int, kind: Type = Type.FLOW_MOD) -> None:
        """Send a write and a barrier, which the switch answers."""
        self.sent(member, kind, xid)
        self.sent(member, Type.BARRIER_REQUEST, xid + 1)
        self.sent(member, Type.BARRIER_REPLY, xid + 1)

    def count(self, verdict: Verdict) -> int:
        return sum(write.verdict is verdict for write in self.judge.writes_in(0, self.now + 1))

    def deposed(self) -> int:
        return self.count(Verdict.DEPOSED)


@pytest.fixture
def wire() -> Wire:
    made = Wire()
    made.connects("a")
    made.connects("b")
    made.is_master("a", 7)
    return made


@pytest.mark.parametrize("kind", [Type.FLOW_MOD, Type.GROUP_MOD, Type.METER_MOD])
def test_the_master_may_write_and_nobody_else(wire: Wire, kind: Type) -> None:
    wire.writes("a", 1, kind)
    assert (wire.deposed(), wire.count(Verdict.WRITTEN)) == (0, 1)
    wire.writes("b", 1, kind)
    assert wire.deposed() == 1


def test_a_write_of_a_deposed_member_that_the_switch_refuses_is_none(wire: Wire) -> None:
    wire.is_master("b", 8)
    wire.sent("a", Type.FLOW_MOD, 4)
    wire.sent("a", Type.BARRIER_REQUEST, 5)
    wire.sent("a", Type.ERROR, 4)
    wire.sent("a", Type.BARRIER_REPLY, 5)
    assert (wire.deposed(), wire.count(Verdict.REFUSED)) == (0, 1)
    wire.writes("a", 6)
    assert wire.deposed() == 1


def test_an_error_before_the_barrier_request_refuses_too(wire: Wire) -> None:
    wire.sent("b", Type.FLOW_MOD, 4)
    wire.sent("b", Type.ERROR, 4)
    wire.sent("b", Type.BARRIER_REQUEST, 5)
    wire.sent("b", Type.BARRIER_REPLY, 5)
    assert (wire.deposed(), wire.count(Verdict.REFUSED)) == (0, 1)


def test_a_write_whose_connection_ends_before_an_answer_is_not_decided(wire: Wire) -> None:
    wire.sent("b", Type.FLOW_MOD, 4)
    wire.connects("b")
    wire.sent("b", Type.BARRIER_REPLY, 5)
    assert (wire.deposed(), wire.count(Verdict.UNANSWERED)) == (0, 1)


def test_a_new_connection_of_the_master_may_write_after_its_claim_only(wire: Wire) -> None:
    wire.connects("a")
    wire.writes("a", 1)
    assert wire.deposed() == 1
    wire.is_master("a", 7)
    wire.writes("a", 3)
    assert wire.deposed() == 1


def test_a_member_that_becomes_slave_may_not_write(wire: Wire) -> None:
    wire.is_master("a", 7, SLAVE)
    wire.writes("a", 1)
    assert wire.deposed() == 1


def test_a_role_of_another_connection_changes_no_master(wire: Wire) -> None:
    wire.is_master("b", 7, EQUAL)
    wire.writes("a", 1)
    assert wire.deposed() == 0


def test_a_generation_id_that_a_stranger_raised_deposes_nobody(wire: Wire) -> None:
    wire.reports("a", MASTER, 9)
    wire.writes("a", 1)
    wire.connects("a")
    wire.is_master("a", 7)  # the stranger has lowered the id again
    wire.writes("a", 3)
    assert (wire.deposed(), wire.count(Verdict.WRITTEN)) == (0, 2)
    wire.is_master("b", 8)
    wire.writes("a", 5)
    assert wire.deposed() == 1
    assert [claim.generation for claim in wire.judge.claims] == [7, 7, 8]


def test_a_report_of_the_role_makes_no_master_but_ends_one(wire: Wire) -> None:
    wire.reports("b", MASTER, 7)
    wire.writes("b", 1)
    assert wire.deposed() == 1
    wire.reports("a", SLAVE, 7)
    wire.writes("a", 3)
    assert wire.deposed() == 2


def test_a_late_confirmation_of_an_older_claim_deposes_only_its_own_member(wire: Wire) -> None:
    wire.connects("a")
    wire.requests("a", MASTER, 7)
    wire.is_master("b", 8)
    wire.answers("a", MASTER, 7)
    wire.writes("b", 1)
    assert wire.deposed() == 0
    wire.writes("a", 3)
    assert wire.deposed() == 1


def test_a_switch_that_forgot_its_generation_is_no_excuse_for_a_deposed_member(wire: Wire) -> None:
    wire.is_master("b", 8)
    for member in ("a", "b"):
        wire.connects(member)
    wire.is_master("a", 7)
    wire.writes("a", 1)
    assert wire.deposed() == 1


def test_switches_are_held_when_the_last_one_of_a_victim_has_a_newer_claim(wire: Wire) -> None:
    wire.is_master("a", 7, dpid=SPINE)
    start = wire.now + 1
    wire.connects("b", SPINE)
    wire.is_master("b", 8)
    assert wire.judge.held_s(start, ["a"]) is None
    wire.is_master("a", 7, dpid=SPINE)
    assert wire.judge.held_s(start, ["a"]) is None, "the same claim again"
    last = wire.is_master("b", 8, dpid=SPINE)
    wire.is_master("b", 8)
    assert wire.judge.held_s(start, ["a"]) == last - start
    assert wire.judge.held_s(start, ["b"]) == 0, "it held nothing before"


KILLED = Fault("leader", "killed", 0.0, 6.0)
PAUSED = Fault("leader", "paused", 1.0, 30.0)
OTHER_KILLED = Fault("standby", "killed", 0.5, 6.0)
LEADER = Fault("etcd leader", "killed", 0.5, 6.0)
MAJORITY = Fault("etcd majority", "paused", 0.0, 6.0)
RESTORED = Fault("etcd", "restored", 0.0, 6.0)
RESTARTED = Fault("Open vSwitch", "restarted", 0.0, 6.0)
RIGHT = Outcome((KILLED,), 1.5, 2.5, 4.0, 0, 5, 2, 0, [], [], sent=100)


@pytest.mark.parametrize(
    ("case", "since_s", "answer_s", "held_s"),
    [
        ((KILLED,), 0, 2, 3),
        ((PAUSED,), 1, LEASE_S + 1, LEASE_S + 1),
        ((OTHER_KILLED,), 0.5, 2, LEASE_S + 1),
        ((KILLED, OTHER_KILLED), 0.5, 2, LEASE_S + 1),
        ((KILLED, LEADER), 0.5, WITH_ETCD_S, WITH_ETCD_S),
        ((MAJORITY, PAUSED), 6, WITH_ETCD_S, WITH_ETCD_S),
        ((Fault("leader", "deaf to etcd", 0.0, 5.0), MAJORITY), 6, WITH_ETCD_S, None),
        ((LEADER,), 0.5, WITH_ETCD_S, None),
        ((KILLED, RESTARTED), 0, 2, None),
        ((RESTORED,), 6, inf, None),
        ((Fault("standby", "paused", 0.0, 30.0),), 0, 2, LEASE_S + 1),
        ((Fault("leader", "cut off from members", 0.0, 6.0),), 0, 2, None),
        ((Fault("leader", "clock + 1 h", 0.0, 6.0),), 0, 2, None),
    ],
)
def test_limits_of_a_case(case: Case, since_s: float, answer_s: float, held_s: float | None) -> None:
    found = limits(case, LEASE_S)
    assert (found.since_s, found.answer_s, found.held_s) == (since_s, answer_s, held_s)


def test_nothing_is_broken_within_the_limits() -> None:
    assert broken(RIGHT, LEASE_S) == []


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"deposed": 1}, "1 writes of a deposed member accepted"),
        ({"jobs": ["job case1 lost"]}, "job case1 lost"),
        ({"changed": ["- leaf1: old", "+ leaf1: new"]}, "2 rules differ"),
        ({"written": 3}, "3 rules written"),
        ({"lost": 4}, "4 packets lost"),
        ({"answered_s": 2.1}, "first change answered after 2.1 s, later than 2 s"),
        ({"answered_s": None}, "no change answered within 2 s"),
        ({"held_s": 3.1}, "the last switch has a new master after 3.1 s, later than 3 s"),
        ({"held_s": None}, "a switch has no new master within 3 s"),
        ({"settled_s": None}, "the site has not settled again"),
        ({"not_in_model": ["a claims"]}, "a claims"),
    ],
)
def test_each_line_can_be_broken(change: dict[str, object], line: str) -> None:
    assert broken(replace(RIGHT, **change), LEASE_S) == [line]  # type: ignore[arg-type]


def test_switches_that_lost_their_rules_get_them_again_and_lose_packets() -> None:
    seen = replace(RIGHT, case=(RESTARTED,), written=900, changed=["- leaf1: old"], lost=50, held_s=None)
    assert broken(seen, LEASE_S) == []


@pytest.mark.parametrize(("number", "kept"), [(7, True), (8, True), (5, True), (6, False), (9, False)])
def test_only_the_last_acknowledged_change_or_one_without_an_answer_may_be_in_force(number: int, kept: bool) -> None:
    changes = Changes(Mock(), Mock(), "token", acknowledged=7, unknown={5, 8})
    assert changes.is_kept(LEASE_OF_CHANGED_S + number) is kept
    assert changes.is_kept(LEASE_OF_CHANGED_S + number), "what is in force is acknowledged from then on"


def test_cases_are_drawn_by_the_seed() -> None:
    cases = draw(3, 200, LEASE_S)
    assert cases == draw(3, 200, LEASE_S) != draw(4, 200, LEASE_S)
    assert {len(case) for case in cases} == {1, 2}
    assert {fault.who for case in cases for fault in case} == {who for who, *_ in KINDS}
    assert all(fault.lasts_s > LEASE_S for case in cases for fault in case)
    assert {fault.what for case in cases for fault in case} >= {*OF_MEMBERS}
    assert all(case == (fault,) for case in cases for fault in case if fault.what == "restored")


def test_a_single_fault_is_found_by_its_name() -> None:
    [fault] = single("leader paused", LEASE_S)
    assert (fault.who, fault.what, fault.lasts_s) == ("leader", "paused", PAUSE_S)
    with pytest.raises(InvalidInput, match="choose from: leader killed"):
        single("leader happy", LEASE_S)


def test_two_faults_at_once_are_in_different_places() -> None:
    for case in draw(5, 300, LEASE_S):
        places = ["etcd" if fault.who.startswith("etcd") else fault.who for fault in case]
        assert len(set(places)) == len(case)
