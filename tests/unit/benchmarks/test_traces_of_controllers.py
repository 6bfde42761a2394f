"""Replay of a recorded run against the model of assignments: which steps are possible, and which are refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Self

import pytest

from benchmarks.controllers.judge import MASTER, Judge
from benchmarks.controllers.trace import (
    EQUAL,
    NO_CHANGE,
    NO_GENERATION,
    SLAVE,
    STALE,
    Assigned,
    Late,
    steps_not_in_model,
)
from benchmarks.openflow_bytes import Type, message
from controller.fabric.topology import Dpid

LEAF = Dpid(1)
ASSIGNED = [Assigned(LEAF, 7, "a", "a1"), Assigned(LEAF, 8, "b", "b1"), Assigned(LEAF, 9, "a", "a1")]


class Record:
    """Record of a switch and the members a and b; each message is a second later than the one before."""

    def __init__(self) -> None:
        self.judge = Judge()
        self.restarts: list[float] = []
        self.now = 0.0
        self.xid = 0

    def steps(self, assigned: list[Assigned] = ASSIGNED, *late: str) -> list[str]:
        """Return the steps that the model forbids. ``late``: members whose answers may be recorded late."""
        always = [Late(member, 0.0, self.now + 1) for member in late]
        return [step.what for step in steps_not_in_model(self.judge.seen, self.restarts, assigned, always)]

    def message(self, member: str, kind: Type, xid: int = 0, body: bytes = bytes(8)) -> Self:
        self.now += 1
        self.judge.message(member, self.now, LEAF, message(kind, xid, body))
        return self

    def connect(self, *members: str) -> Self:
        for member in members:
            self.message(member, Type.FEATURES_REPLY)
        return self

    def restart(self) -> Self:
        self.now += 1
        self.restarts.append(self.now)
        return self.connect("a", "b")

    def asks(self, member: str, role: int, generation: int = 0) -> int:
        self.xid += 1
        self.message(member, Type.ROLE_REQUEST, self.xid, struct.pack("!I4xQ", role, generation))
        return self.xid

    def answers(self, member: str, xid: int, role: int, generation: int) -> Self:
        return self.message(member, Type.ROLE_REPLY, xid, struct.pack("!I4xQ", role, generation))

    def role(self, member: str, role: int, generation: int, *found: int) -> Self:
        role_found, generation_found = found or (role, generation)
        return self.answers(member, self.asks(member, role, generation), role_found, generation_found)

    def looks(self, member: str, role: int, generation: int) -> Self:
        return self.role(member, NO_CHANGE, 0, role, generation)

    def writes(self, member: str, *, refused: bool = False) -> Self:
        self.xid += 2
        self.message(member, Type.FLOW_MOD, self.xid)
        self.message(member, Type.BARRIER_REQUEST, self.xid + 1)
        if refused:
            self.message(member, Type.ERROR, self.xid, b"\0\1\0\x0a" + bytes(4))
        return self.message(member, Type.BARRIER_REPLY, self.xid + 1)

    def refuses(self, member: str, generation: int) -> Self:
        return self.message(member, Type.ERROR, self.asks(member, MASTER, generation), STALE)


def begun() -> Record:
    """Return a record in which b stands aside, and a holds the switch and writes."""
    record = Record().connect("a", "b").role("a", MASTER, 7).writes("a")
    return record.looks("b", EQUAL, 7).role("b", SLAVE, 7)


def test_handovers_and_a_restart_are_in_the_model() -> None:
    record = begun().role("b", MASTER, 8).writes("a", refused=True).writes("b").looks("a", SLAVE, 8)
    record.restart().looks("a", EQUAL, NO_GENERATION).looks("b", EQUAL, NO_GENERATION)
    record.role("b", MASTER, 8).writes("b").role("a", SLAVE, 8).role("a", MASTER, 9).writes("a").refuses("b", 8)
    assert record.steps() == []


def test_a_master_that_asks_for_its_role_may_write() -> None:
    record = begun().looks("a", MASTER, 7).writes("a")
    look = record.asks("a", NO_CHANGE)
    assert record.writes("a").answers("a", look, MASTER, 7).steps() == []


def test_a_question_without_an_answer_is_no_newer_claim() -> None:
    record = begun().role("b", MASTER, 8)
    record.asks("a", NO_CHANGE)
    assert record.role("a", MASTER, 9).writes("a").steps() == []


def test_a_write_before_the_answer_of_a_newer_claim_is_not() -> None:
    record = begun()
    record.writes("a").asks("a", MASTER, 9)
    record.writes("a", refused=True)
    assert record.steps() == ["switch 0x1, a: writes before the switch has confirmed its newest claim"]


def test_an_answer_to_an_older_claim_allows_no_write() -> None:
    record = begun()
    first, second = record.asks("a", MASTER, 7), record.asks("a", MASTER, 9)
    record.answers("a", first, MASTER, 7).writes("a").answers("a", second, MASTER, 9).writes("a")
    assert record.steps() == ["switch 0x1, a: writes before the switch has confirmed its newest claim"]


WRONG: dict[str, tuple[Callable[[Record], object], str]] = {
    "a write as EQUAL": (
        lambda record: record.connect("a").writes("a"),
        "writes before the switch has confirmed its newest claim",
    ),
    "a write of a former holder is accepted": (
        lambda record: record.role("b", MASTER, 8).writes("a"),
        "the switch accepts a write of a member that is not its newest holder",
    ),
    "a claim without an assignment": (
        lambda record: record.role("b", MASTER, 10),
        "claims the generation id 10, which no assignment gave to it",
    ),
    "a claim with the assignment of another member": (
        lambda record: record.role("b", MASTER, 9),
        "claims the generation id 9, which no assignment gave to it",
    ),
    "a former holder claims a switch that has restarted": (
        lambda record: record.role("b", MASTER, 8).restart().role("a", MASTER, 7),
        "is confirmed with the generation id 7 after 8",
    ),
    "a member stands aside with a later generation id": (
        lambda record: record.role("b", SLAVE, 8),
        "takes the role SLAVE with the generation id 8, and the switch has 7",
    ),
    "a switch confirms an older claim": (
        lambda record: record.role("b", MASTER, 8).role("a", MASTER, 7),
        "the switch confirms the generation id 7, although it has 8",
    ),
    "a switch refuses the newest claim": (
        lambda record: record.refuses("b", 8),
        "the switch refuses the generation id 8, although it has 7",
    ),
    "a switch leaves a former holder its role": (
        lambda record: record.role("b", MASTER, 8).looks("a", MASTER, 8),
        "the switch reports MASTER and 8, not SLAVE and 8",
    ),
    "a switch answers what nobody has asked": (
        lambda record: record.answers("b", 999, SLAVE, 7),
        "the switch answers a request for a role that no controller has made",
    ),
}


@pytest.mark.parametrize(("then", "why"), WRONG.values(), ids=WRONG)
def test_a_wrong_step_is_refused(then: Callable[[Record], object], why: str) -> None:
    record = begun()
    assert record.steps() == []
    then(record)
    assert any(step.endswith(why) for step in record.steps()), record.steps()


def test_two_holders_with_one_generation_id_are_refused() -> None:
    again = Assigned(LEAF, 8, "a", "a1")
    assert begun().steps([*ASSIGNED, again]) == ["switch 0x1: two holders have the generation id 8"]


def test_a_claim_whose_answer_is_late_is_found_in_the_answer_to_another_member() -> None:
    """The switch has confirmed b's claim before it answers a, and its answer to b is recorded at the end."""
    record = begun()
    claim = record.asks("b", MASTER, 8)
    record.looks("a", SLAVE, 8).refuses("a", 7).answers("b", claim, MASTER, 8)
    assert record.steps(ASSIGNED, "b") == []
    assert record.steps() != []


def test_an_answer_that_is_late_does_not_depose_a_newer_holder() -> None:
    record = begun()
    look, claim = record.asks("b", NO_CHANGE), record.asks("b", MASTER, 8)
    record.role("a", MASTER, 9).answers("b", look, SLAVE, 7).answers("b", claim, MASTER, 8)
    record.writes("a").writes("b", refused=True)
    assert record.steps(ASSIGNED, "b") == []
    assert record.steps() != []


def test_a_write_of_a_former_holder_is_found_although_its_answers_are_late() -> None:
    record = begun().role("b", MASTER, 8).writes("a")
    assert record.steps(ASSIGNED, "a") == record.steps() != []


def test_an_answer_that_never_was_true_is_found_although_other_answers_are_late() -> None:
    record = begun().looks("b", SLAVE, 8)
    assert record.steps(ASSIGNED, "a") == record.steps() != []
