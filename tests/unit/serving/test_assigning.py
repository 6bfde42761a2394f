"""The leader's assignment of switches: what it waits for, and what it writes."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

import pytest

from controller.fabric.messages import SwitchesInReach
from controller.fabric.topology import Dpid
from controller.serving.assigning import AWAY_S, BACK_S, LOOK_S, MOVES_S, SAME_S, TAKEN_S, Assigning, Connections, Reach
from controller.store.assignment import MOST_MOVES, Holder
from controller.store.members import Member, Members
from controller.store.store import epoch_at

A, B, C = (Holder(name, f"id of {name}") for name in "abc")
LEASE_S = 3.0
LOST_S = LEASE_S + AWAY_S
ONE, TWO = Dpid(1), Dpid(2)


class Stored:
    """Assignments that a test reads. ``fails``: whether the next write fails."""

    def __init__(self) -> None:
        self.is_read = True
        self.fails = False
        self.assigned: dict[Dpid, Holder] = {}
        self.writes: list[Mapping[Dpid, Holder | None]] = []
        self.bases: list[int] = []

    def holders(self) -> dict[Dpid, Holder]:
        return dict(self.assigned)

    def write(self, base: int, changes: Mapping[Dpid, Holder | None]) -> None:
        if self.fails:
            self.fails = False
            raise RuntimeError("etcd does not answer")
        self.writes.append(changes)
        self.bases.append(base)
        self.assigned |= {dpid: holder for dpid, holder in changes.items() if holder}


class Leader:
    """Leader of members that a test sets, on a clock that it moves."""

    def __init__(self, *members: Holder) -> None:
        self.stored = Stored()
        self.live = members
        self.draining: frozenset[str] = frozenset()
        self.far: Collection[Holder] = ()
        """Members that this leader cannot link, because it does not know their packet formats."""
        self.reach: Reach = {}
        self.taken: Mapping[tuple[Dpid, Holder], int] = {}
        self.assigning = Assigning(
            self.stored, self.members, lambda: self.reach, 7, LEASE_S, {}, taken=lambda: self.taken
        )
        self.now = self.assigning._connections.began
        self.read_at = self.now
        """Time of the latest reading of etcd."""

    def members(self) -> Members:
        links = {one: (2, 2) if one in self.far else (1, 1) for one in self.live}
        all_ = tuple(Member(one.id, one.name, "", "1", 0.0, link=link) for one, link in links.items())
        return Members(all_, all_[0], self.read_at, self.draining)

    def after(self, seconds: float, etcd_answers: bool = True) -> dict[Dpid, Holder]:
        """Let time pass, and return all holders."""
        until = self.now + seconds
        while self.now < until:
            self.now += LOOK_S
            self.read_at = self.now if etcd_answers else self.read_at
            self.assigning.assign(self.now)
        return self.stored.assigned


def everywhere(switches: int, *members: Holder) -> Reach:
    return reach({Dpid(number): members for number in range(switches)})


def reach(connected: Mapping[Dpid, Collection[Holder]], *linked: Holder) -> Reach:
    """Return the reports of the members that are connected to these switches, and of others that are ``linked``."""
    members = {*linked, *(member for members in connected.values() for member in members)}
    return {one: SwitchesInReach(frozenset(d for d, found in connected.items() if one in found)) for one in members}


def settled() -> Leader:
    """Return a leader whose two members hold ten switches in balance."""
    leader = Leader(A, B)
    leader.reach = everywhere(10, A, B)
    leader.after(5 * MOVES_S)
    return leader


def test_switches_are_assigned_at_once_and_no_write_follows_when_nothing_changes() -> None:
    leader = Leader(A, B)
    leader.reach = everywhere(10, A, B)
    assert set(leader.after(LOOK_S).values()) == {A, B}
    leader.after(5 * MOVES_S)
    writes = len(leader.stored.writes)
    leader.after(60.0)
    assert len(leader.stored.writes) == writes <= 2
    assert set(leader.stored.bases) == {7}


def test_a_taken_switch_is_assigned_to_its_holder_again_with_a_larger_base_but_not_often() -> None:
    leader = Leader(A, B)
    leader.reach = everywhere(3, A, B)
    leader.stored.assigned = {Dpid(0): A, ONE: A, TWO: B}
    leader.after(LOOK_S)
    leader.stored.writes.clear()
    leader.taken = {(ONE, A): 0, (TWO, A): 0}  # A is a former holder of the second one
    leader.after(TAKEN_S)
    assert leader.stored.writes == [{ONE: A}]
    leader.after(LOOK_S)
    assert leader.stored.writes == [{ONE: A}, {ONE: A}]
    within = epoch_at(time.time() + 3600)
    assert all(1 << 50 < base < within for base in leader.stored.bases[-2:])
    leader.taken = {(ONE, A): within}
    leader.after(TAKEN_S)
    assert (len(leader.stored.writes), leader.stored.bases[-1]) == (3, within), "the clock of the stranger is ahead"
    leader.taken = {}
    leader.after(2 * TAKEN_S)
    assert len(leader.stored.writes) == 3


def test_a_switch_that_would_refuse_every_other_holder_stays_until_its_holder_is_gone() -> None:
    leader = Leader(A, B)
    leader.reach = everywhere(1, A, B)
    leader.stored.assigned = {Dpid(0): A}
    leader.taken = {(Dpid(0), A): 1 << 60}
    leader.draining = frozenset({A.name})
    assert leader.after(TAKEN_S) == {Dpid(0): A}
    assert leader.stored.writes == []
    leader.live = (B,)
    assert leader.after(MOVES_S) == {Dpid(0): B}


def test_a_member_that_joins_gets_few_switches_at_a_time() -> None:
    leader = Leader(A, B)
    leader.reach = everywhere(60, A)
    assert set(leader.after(LOOK_S).values()) == {A}
    leader.reach = everywhere(60, A, B)
    leader.after(30 * MOVES_S)
    sizes = [len(changes) for changes in leader.stored.writes[1:]]
    assert max(sizes) == MOST_MOVES
    assert list(leader.stored.assigned.values()).count(B) >= 22


@pytest.mark.parametrize("reports", [(A, B), (B,)])
def test_the_switches_of_a_member_whose_lease_has_ended_get_other_holders_at_once(reports: tuple[Holder, ...]) -> None:
    leader = settled()
    leader.live, leader.reach = (B,), everywhere(10, *reports)
    assert set(leader.after(LOOK_S).values()) == {B}


def test_a_member_whose_lease_has_ended_and_that_still_reports_may_renew_it_after_etcd_was_away() -> None:
    """After a while without answers, etcd ends leases as soon as it answers again."""
    leader = settled()
    before = leader.stored.holders()
    leader.after(LEASE_S, etcd_answers=False)
    leader.live = (B,)
    assert leader.after(BACK_S - LOOK_S) == before
    leader.live = (A, B)
    assert leader.after(BACK_S) == before
    leader.after(LEASE_S, etcd_answers=False)
    leader.live = (B,)
    assert set(leader.after(BACK_S + 2 * LOOK_S).values()) == {B}


def test_the_switches_of_a_member_of_a_version_too_far_apart_get_other_holders_at_once() -> None:
    leader = settled()
    leader.far, leader.reach = (B,), everywhere(10, A)
    assert set(leader.after(LOOK_S).values()) == {A}


def test_a_member_that_lives_and_does_not_report_keeps_its_switches_for_a_while() -> None:
    leader = settled()
    before = leader.stored.holders()
    leader.reach = everywhere(10, B)
    assert leader.after(LOST_S - LOOK_S) == before
    assert set(leader.after(2 * LOOK_S).values()) == {B}


def test_a_new_leader_waits_for_the_reports_of_holders_that_live() -> None:
    before = settled().stored.holders()
    leader = Leader(A, B)
    leader.stored.assigned = dict(before)
    leader.reach = everywhere(10, B)
    assert leader.after(LOST_S - LOOK_S) == before
    assert set(leader.after(2 * LOOK_S).values()) == {B}


def test_a_switch_that_only_its_holder_has_lost_moves_at_once() -> None:
    connections, holders = Connections(LOST_S, LEASE_S / 2, began=0.0), {ONE: A, TWO: A}
    both, without = reach({ONE: [A, B], TWO: [A]}), reach({ONE: [B], TWO: [A]})
    assert connections.connected(both, holders, 10.0)[ONE] == {A, B}
    assert connections.connected(without, holders, 10.0 + SAME_S - 0.1)[ONE] == {A, B}
    assert connections.connected(without, holders, 10.0 + SAME_S)[ONE] == {B}


def test_a_switch_that_restarts_stays_with_its_holder_whichever_member_it_reaches_first() -> None:
    connections = Connections(LOST_S, LEASE_S / 2, began=0.0)
    holders = {ONE: A, TWO: A}
    both, without = reach({ONE: [A, B], TWO: [A]}), reach({ONE: [B], TWO: [A]})
    assert connections.connected(both, holders, 10.0) == {ONE: {A, B}, TWO: {A}}
    assert connections.connected(reach({TWO: [A]}), holders, 11.0) == {TWO: {A}}
    assert connections.connected(without, holders, 10.0 + BACK_S - 0.1) == {ONE: {A, B}, TWO: {A}}
    assert connections.connected(without, holders, 10.0 + BACK_S) == {ONE: {B}, TWO: {A}}
    assert connections.connected(both, holders, 20.0) == {ONE: {A, B}, TWO: {A}}


def test_a_switch_that_its_holder_reports_as_silent_moves_at_once() -> None:
    connections, holders = Connections(LOST_S, LEASE_S / 2, began=0.0), {ONE: A}
    connections.connected(reach({ONE: [A, B]}), holders, 10.0)
    silent = {A: SwitchesInReach(frozenset(), frozenset({ONE})), B: SwitchesInReach(frozenset({ONE}))}
    assert connections.connected(silent, holders, 10.0) == {ONE: {B}}


def test_a_linked_member_without_any_connection_does_not_count_as_a_member_without_a_link() -> None:
    connections, holders = Connections(LOST_S, LEASE_S / 2, began=0.0), {ONE: A}
    connections.connected(reach({ONE: [A, B]}), holders, 10.0)
    assert connections.connected(reach({ONE: [B]}, A), holders, 10.0 + SAME_S) == {ONE: {B}}


def test_a_member_has_time_for_its_first_link_and_after_each_break() -> None:
    connections, linked = Connections(LOST_S, LEASE_S / 2, began=0.0), reach({}, A, B)
    assert connections.unlinked([A, B], reach({}, A), 10.0) == set()
    assert connections.unlinked([A, B], reach({}, A), 10.0 + LOST_S) == {B}
    assert connections.unlinked([A, B], linked, 20.0) == set()
    assert connections.unlinked([A, B], reach({}, A), 20.0 + LOST_S - 0.1) == set()
    assert connections.unlinked([A, C], reach({}, A), 20.0 + LOST_S) == set(), "B has no lease, and C is new"


def test_a_member_that_drains_is_empty_after_a_while() -> None:
    leader = Leader(A, B)
    leader.reach = everywhere(40, A, B)
    leader.after(5 * MOVES_S)
    leader.draining = frozenset("a")
    assert A not in leader.after(40 / MOST_MOVES * (MOVES_S + LOOK_S)).values()
    leader.draining = frozenset()
    assert A in leader.after(5 * MOVES_S).values()


def test_a_write_that_failed_is_repeated() -> None:
    leader = Leader(A)
    leader.reach = everywhere(3, A)
    leader.stored.fails = True
    with pytest.raises(RuntimeError):
        leader.after(LOOK_S)
    assert len(leader.after(LOOK_S)) == 3
