"""Assignments in a real etcd: who may write them, what a member reads, and the generation ids that follow."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from controller.fabric.topology import Dpid
from controller.store import etcd_assignments
from controller.store.assignment import Holder
from controller.store.etcd_assignments import EtcdAssignments
from controller.store.etcd_client import EtcdError
from controller.store.etcd_store import EtcdStore
from signalbox.errors import SignalboxError
from tests.support.waiting import until
from tests.support.wire.etcd import LEASE_S, EtcdProcess, begun, running_etcd

A, B = Holder("a", "1"), Holder("b", "2")
LEAF, SPINE = Dpid(0x1), Dpid(0xFFFF_FFFF_FFFF_FFFF)


@contextmanager
def read_by(
    etcd: EtcdProcess, prefix: str, own: Holder, store: EtcdStore, live: bool = True
) -> Iterator[EtcdAssignments]:
    with EtcdAssignments(etcd.access, prefix, own, lambda: live, store.fence()) as assignments:
        until(lambda: assignments.is_read)
        yield assignments


def test_each_later_holder_of_a_switch_has_a_larger_generation_id(etcd: EtcdProcess, prefix: str) -> None:
    with (
        begun(etcd.access, prefix) as store,
        read_by(etcd, prefix, A, store) as leader,
        read_by(etcd, prefix, B, store) as other,
    ):
        generations = []
        for holder in (A, B, A, A):
            leader.write(store.base, {LEAF: holder, SPINE: B})
            newest = leader.newest[LEAF]
            until(lambda: other.newest == leader.newest)
            assert (newest.holder, leader.holders().get(LEAF), other.holders().get(SPINE)) == (holder, holder, B)
            assert leader.generation(LEAF) == (newest.generation if holder == A else None)
            assert other.generation(LEAF) == (newest.generation if holder == B else None)
            generations.append(newest.generation)
        leader.write(store.base + 1000, {LEAF: A})
        generations.append(leader.newest[LEAF].generation)
        leader.write(store.base, {LEAF: A})
        newest = leader.newest[LEAF]
        generations.append(newest.generation)
        assert generations == sorted(set(generations))
        assert store.base < generations[0] < 1 << 63
        assert [leader.is_assigned(A, LEAF, newest.generation + more) for more in (-1, 0, 1)] == [True, True, False]
        assert not leader.is_assigned(B, LEAF, newest.generation)
        assert not leader.is_assigned(A, Dpid(7), 1)
        changes: list[None] = []
        leader.changed = lambda: changes.append(None)
        leader.write(store.base, {LEAF: None})
        until(lambda: other.holders().get(LEAF) is None)
        assert (leader.holders().get(LEAF), leader.generation(LEAF), len(changes)) == (None, None, 1)
        assert other.generation(SPINE)


def test_a_replaced_leader_assigns_nothing(etcd: EtcdProcess, prefix: str) -> None:
    with begun(etcd.access, prefix, lambda: None) as store, read_by(etcd, prefix, A, store) as replaced:
        replaced.write(store.base, {LEAF: A})
        etcd.put(f"{prefix}claim", "another one's")
        with pytest.raises(EtcdError, match="the claim of the state has ended"):
            replaced.write(store.base, {LEAF: B})
        with read_by(etcd, prefix, B, store) as fresh:
            assert fresh.holders().get(LEAF) == A


def test_a_leader_that_has_not_read_a_change_assigns_nothing_until_it_has(etcd: EtcdProcess, prefix: str) -> None:
    with begun(etcd.access, prefix) as store, read_by(etcd, prefix, A, store) as leader:
        stale = EtcdAssignments(etcd.access, prefix, A, lambda: True, store.fence())
        leader.write(store.base, {LEAF: A})
        with pytest.raises(EtcdError, match="changed meanwhile"):
            stale.write(store.base, {LEAF: B})
        with stale:
            until(lambda: stale.holders().get(LEAF) == A)
            stale.write(store.base, {LEAF: B})
        until(lambda: leader.holders().get(LEAF) == B)


def test_a_late_copy_of_an_earlier_assignment_changes_nothing(etcd: EtcdProcess, prefix: str) -> None:
    with begun(etcd.access, prefix) as store, read_by(etcd, prefix, A, store) as leader:
        with patch.object(leader._etcd, "transaction", wraps=leader._etcd.transaction) as sent:
            for holder in (A, B, A):
                leader.write(store.base, {LEAF: holder, SPINE: holder})
        newest = leader.newest
        for request in sent.call_args_list:
            assert not leader._etcd.transaction(*request.args).succeeded
        leader._read()
        assert leader.newest == newest


def test_more_switches_than_one_transaction_has_are_written(etcd: EtcdProcess, prefix: str) -> None:
    switches = {Dpid(number): A for number in range(1, 301)}
    with (
        begun(etcd.access, prefix) as store,
        read_by(etcd, prefix, A, store) as leader,
        read_by(etcd, prefix, B, store) as other,
    ):
        leader.write(store.base, switches)
        until(lambda: {dpid: found.holder for dpid, found in other.newest.items()} == switches)
        assert other.newest == leader.newest


def test_a_switch_is_claimed_only_after_a_reading_that_began_after_it_connected(etcd: EtcdProcess, prefix: str) -> None:
    with begun(etcd.access, prefix) as store, read_by(etcd, prefix, A, store) as member:
        member.write(store.base, {LEAF: A})
        connected_at = time.monotonic()
        assert not member.may_claim(LEAF, connected_at)
        until(lambda: member.may_claim(LEAF, connected_at))
        with read_by(etcd, prefix, A, store, live=False) as ended:
            assert not ended.may_claim(LEAF, 0.0)


def test_an_older_change_that_a_watch_brings_late_is_not_taken(etcd: EtcdProcess, prefix: str) -> None:
    with begun(etcd.access, prefix) as store, read_by(etcd, prefix, A, store) as member:
        member.write(store.base, {LEAF: A})
        first = member.newest[LEAF]
        member.write(store.base, {LEAF: None})
        member._read()
        member._take({LEAF: first}, first.revision)
        assert member.generation(LEAF) is None
        member.write(store.base, {LEAF: B})
        member._take({LEAF: first}, first.revision)
        assert member.holders().get(LEAF) == B


@pytest.mark.parametrize("value", ["", "[1]", '{"name": 5}', '{"name": "a", "id": "1", "base": -1}'])
def test_a_malformed_assignment_names_nobody_and_is_replaced(etcd: EtcdProcess, prefix: str, value: str) -> None:
    with begun(etcd.access, prefix) as store:
        etcd.put(f"{prefix}assign/0000000000000001", value)
        etcd.put(f"{prefix}assign/leaf", value)
        with read_by(etcd, prefix, A, store) as leader:
            assert leader.holders().get(LEAF) == Holder("", "")
            assert leader.generation(LEAF) is None
            assert leader.newest.keys() == {LEAF}
            leader.write(store.base, {LEAF: A})
            assert leader.generation(LEAF)


def test_fields_of_a_newer_version_are_left_out(etcd: EtcdProcess, prefix: str) -> None:
    with begun(etcd.access, prefix) as store:
        etcd.put(f"{prefix}assign/0000000000000001", '{"name": "a", "id": "1", "base": 7, "zone": "x"}')
        with read_by(etcd, prefix, A, store) as member:
            assert member.generation(LEAF) == 7 + member.newest[LEAF].revision


def test_a_member_that_etcd_did_not_answer_learns_what_it_has_missed(tmp_path: Path, prefix: str) -> None:
    with (
        running_etcd(tmp_path / "etcd") as etcd,
        begun(etcd.access, prefix, lambda: None) as store,
        read_by(etcd, prefix, B, store) as member,
    ):
        etcd.put(f"{prefix}assign/0000000000000001", '{"name": "b", "id": "2", "base": 7}')
        until(lambda: member.generation(LEAF))
        etcd.signal(signal.SIGSTOP)
        etcd.kill()
        etcd.start()
        etcd.put(f"{prefix}assign/0000000000000001", '{"name": "a", "id": "1", "base": 7}')
        until(lambda: member.holders().get(LEAF) == A)
        etcd.free_space()
        etcd.delete(f"{prefix}assign/0000000000000001")
        until(lambda: member.holders().get(LEAF) is None)


def test_nothing_is_missed_between_two_watches(monkeypatch: pytest.MonkeyPatch, etcd: EtcdProcess, prefix: str) -> None:
    monkeypatch.setattr(etcd_assignments, "RECONCILE_S", 0.05)
    monkeypatch.setattr(etcd_assignments, "PAUSE_S", 3600.0)
    with begun(etcd.access, prefix) as store, read_by(etcd, prefix, A, store) as member:
        reads: list[None] = []
        monkeypatch.setattr(member, "_read", lambda: reads.append(None))
        until(lambda: len(reads) > 3)
        etcd.put(f"{prefix}assign/0000000000000001", '{"name": "b", "id": "2", "base": 7}')
        until(lambda: member.holders().get(LEAF) == B)


def test_a_member_claims_nothing_once_etcd_was_restored_from_a_snapshot(tmp_path: Path, prefix: str) -> None:
    """The restored etcd names an earlier holder, which could claim a restarted switch beside the present holder."""
    with (
        running_etcd(tmp_path / "etcd") as etcd,
        begun(etcd.access, prefix, lambda: None) as store,
        read_by(etcd, prefix, A, store) as leader,
        read_by(etcd, prefix, B, store) as holder,
    ):
        failed: list[SignalboxError] = []
        leader.fail = holder.fail = failed.append
        leader.write(store.base, {LEAF: A})
        etcd.snapshot(tmp_path / "snapshot")
        leader.write(store.base, {LEAF: B})
        until(lambda: holder.generation(LEAF))
        etcd.restore(tmp_path / "snapshot")
        until(lambda: len(failed) == 2)
        assert "etcd was restored from a snapshot" in str(failed[0])
        assert not holder.may_claim(LEAF, 0.0)
        with pytest.raises(EtcdError, match="etcd was restored"):
            leader.write(store.base, {LEAF: A})
        assert (holder.holders().get(LEAF), leader.holders().get(LEAF)) == (B, B), "the holder keeps its connections"
        until(lambda: store.is_claimed)


def test_a_restore_is_noticed_although_others_have_written_since(tmp_path: Path, prefix: str) -> None:
    """Else a replaced holder that etcd did not answer meanwhile could claim a restarted switch."""
    with running_etcd(tmp_path / "etcd") as etcd, begun(etcd.access, prefix, lambda: None) as store:
        with read_by(etcd, prefix, A, store) as leader:
            etcd.snapshot(tmp_path / "snapshot")
            leader.write(store.base, {SPINE: A})
            leader.write(store.base, {LEAF: B})
            newest = leader.newest
        holder = EtcdAssignments(etcd.access, prefix, B, lambda: True, store.fence())
        holder._read()
        etcd.restore(tmp_path / "snapshot")
        until(lambda: store.is_claimed)
        with read_by(etcd, prefix, A, store) as leader:
            leader.write(store.base + 1000, {LEAF: A})
            assert leader.newest[LEAF].revision < newest[LEAF].revision
            while leader._revision < newest[LEAF].revision:
                leader.write(store.base + 1000, {SPINE: A})
        failed: list[SignalboxError] = []
        holder.fail = failed.append
        connected_at = time.monotonic()
        with pytest.raises(EtcdError, match="etcd was restored"):
            holder._read()
        assert len(failed) == 1
        assert not holder.may_claim(LEAF, connected_at)


@pytest.mark.parametrize("divides", [True, False])
def test_a_leader_that_holds_all_switches_ends_the_assignments_of_an_earlier_one(
    etcd: EtcdProcess, prefix: str, divides: bool
) -> None:
    with begun(etcd.access, prefix) as store, read_by(etcd, prefix, A, store) as leader:
        leader.write(store.base, {LEAF: B, SPINE: B})
        first = leader.newest
    store = EtcdStore(etcd.access, prefix, LEASE_S, api="unix:/members.sock" if divides else "")
    store.load()
    with read_by(etcd, prefix, B, store) as member:
        assert member.newest == first
        store.begin(lambda: None)
        if divides:
            member._read()
            assert member.newest == first
        else:
            until(lambda: not member.newest)
            assert member.generation(LEAF) is None
    store.close()
