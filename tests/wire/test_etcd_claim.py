"""The claim of the state in a real etcd: one writer, and who has the claim next."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import patch

import grpc
import pytest

from controller.jobs.messages import SavedState
from controller.store import etcd_claim
from controller.store.etcd_client import Etcd, EtcdAccess, EtcdError
from controller.store.etcd_operations import delete, put
from mininet_topos.controller_process import reserve_port
from signalbox.errors import InvalidInput
from tests.support.by_id import registered
from tests.support.saved_states import MANY, NOTHING, commit, full, job, save
from tests.support.waiting import DEADLINE_S, beside, until
from tests.support.wire.etcd import (
    LEASE_S,
    Copied,
    EtcdProcess,
    Interrupted,
    begun,
    never_lost,
    opened,
    running_etcd,
    saved,
)

pytestmark = pytest.mark.usefixtures("logging_as_before")


def test_one_controller_has_the_state_and_the_next_gets_it_when_it_ends(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as first, opened(etcd.access, prefix) as second:
        first.load()
        assert not second.claim()
        with pytest.raises(InvalidInput, match=r"store: another controller uses etcd at .* \(.*process \d+\)"):
            second.load()
        waiting = beside(second.claim, True)
        first.close()
        assert waiting.result(DEADLINE_S)


def test_a_store_below_the_prefix_of_another_one_is_separate(etcd: EtcdProcess, prefix: str) -> None:
    below = SavedState(registered(job("below")))
    with begun(etcd.access, prefix) as outer, opened(etcd.access, f"{prefix}inner/") as inner:
        assert inner.load() == NOTHING
        inner.begin()
        save(inner, NOTHING, below)
        save(outer, NOTHING, MANY)
        assert (inner.look(), outer.look()) == (below, MANY)
        save(outer, MANY, NOTHING)
        assert (inner.look(), outer.look()) == (below, NOTHING)


def test_a_claim_that_cannot_end_is_refused_and_one_that_can_is_waited_for(etcd: EtcdProcess, prefix: str) -> None:
    name = f"{prefix}claim".encode()
    with opened(etcd.access, prefix) as store:
        store._etcd.transaction([], [put(name, b"malformed")])
        for wait in (False, True):
            with pytest.raises(InvalidInput, match=rf"the key {prefix}claim has the value b'malformed' and no lease"):
                store.claim(wait)
        lease = store._etcd.grant(60)
        store._etcd.transaction([], [put(name, b"malformed", lease)])
        assert store.owner() == "unknown"
        assert not store.claim()
        waiting = beside(store.claim, True)
        store._etcd.revoke(lease)
        assert waiting.result(DEADLINE_S)


def test_a_standby_keeps_waiting_when_etcd_refuses_a_call(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as first, opened(etcd.access, prefix) as second:
        first.load()
        assert not second.claim()
        failed = Event()

        def refused(*_: object) -> int:
            failed.set()
            raise EtcdError("database space exceeded", grpc.StatusCode.RESOURCE_EXHAUSTED)

        with patch.object(second._etcd, "grant", refused):
            waiting = beside(second.claim, True)
            assert failed.wait(DEADLINE_S)
        first.close()
        assert waiting.result(DEADLINE_S)


def test_a_controller_starts_although_etcd_answers_late(etcd: EtcdProcess, prefix: str) -> None:
    """Etcd may answer late while its disk is busy. Only an etcd that cannot be reached ends the start at once."""
    with opened(etcd.access, prefix) as store:
        grant, late = store._etcd.grant, [EtcdError("late", grpc.StatusCode.DEADLINE_EXCEEDED)] * 2

        def granted(*arguments: Any) -> int:
            if late:
                raise late.pop()
            return grant(*arguments)

        with patch.object(store._etcd, "grant", granted):
            assert store.load() == NOTHING
        assert not late
    away = EtcdError("away", grpc.StatusCode.UNAVAILABLE)
    with (
        opened(etcd.access, prefix) as store,
        patch.object(store._etcd, "grant", side_effect=away),
        pytest.raises(InvalidInput, match="away"),
    ):
        store.load()


def test_a_claim_ends_while_the_machine_sleeps(etcd: EtcdProcess, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CLOCK_MONOTONIC stops while the machine sleeps, and leases in etcd do not."""
    with opened(etcd.access, prefix) as store:
        store.load()
        assert store.is_claimed
        clock = time.clock_gettime
        shift = {time.CLOCK_BOOTTIME: LEASE_S}
        monkeypatch.setattr(time, "clock_gettime", lambda which: clock(which) + shift.get(which, 0))
        assert not store.is_claimed
        until(lambda: store.is_claimed)


def test_a_holder_whose_claim_was_taken_writes_nothing_and_is_told(etcd: EtcdProcess, prefix: str) -> None:
    lost = Event()
    with begun(etcd.access, prefix, lost.set) as old:
        old._etcd.revoke(old._lease)
        with begun(etcd.access, prefix) as new:
            assert isinstance(commit(old, NOTHING, full()), OSError)
            assert lost.wait(DEADLINE_S)
            assert not old.is_claimed
            assert str(commit(old, NOTHING, full())) == "another controller has claimed the state"
            save(new, NOTHING, SavedState(registered(job("a"))))
    assert saved(etcd.access, prefix) == SavedState(registered(job("a")))


def test_a_controller_that_hears_nothing_from_etcd_does_not_extend_its_lease(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as deaf, opened(etcd.access, prefix) as other:
        deaf.load()
        calls: list[str] = []

        def unanswered(*_: object) -> None:
            calls.append("get")
            raise EtcdError("no answer", grpc.StatusCode.DEADLINE_EXCEEDED)

        with patch.multiple(deaf._etcd, get=unanswered, renew=lambda *_: calls.append("renew")):
            until(lambda: len(calls) > 1)
            assert other.claim(wait=True)
            assert "renew" not in calls


@pytest.mark.parametrize("is_adopted", [False, True])
def test_a_claim_lasts_from_before_it_was_read(
    etcd: EtcdProcess, prefix: str, monkeypatch: pytest.MonkeyPatch, is_adopted: bool
) -> None:
    """A controller may be paused between reading its claim and renewing it, so the time of the reading counts."""
    with opened(etcd.access, prefix) as store:
        store.load()
        store._stopping.set()
        store._check.set()
        assert store._renewing
        store._renewing.join(DEADLINE_S)
        now, get = [1e9], store._etcd.get

        def paused(*arguments: Any) -> Any:
            found = get(*arguments)
            now[0] += LEASE_S
            return found

        monkeypatch.setattr(etcd_claim, "_now", lambda: now[0])
        lease = store._lease
        if is_adopted:
            store._lease = 0  # as before the lost answer to the request that made the claim
        with patch.object(store._etcd, "get", paused):
            assert store._renew_once()
        assert (store._lease, store.is_claimed) == (lease, False)


def test_a_claim_that_ended_is_made_again_by_its_last_holder(etcd: EtcdProcess, prefix: str) -> None:
    with begun(etcd.access, prefix) as store:
        first = store._created
        store._etcd.revoke(store._lease)
        until(lambda: store._created > first)
        save(store, NOTHING, full())
    assert saved(etcd.access, prefix) == full()


def test_a_call_of_another_thread_after_the_end_is_an_error_of_etcd() -> None:
    access = Etcd(EtcdAccess((f"127.0.0.1:{reserve_port()}",)))
    access.close()
    with pytest.raises(EtcdError, match="another thread has closed the connections"):
        access.get(b"claim")


def test_a_claim_that_was_deleted_is_made_again_or_lost_to_the_next(etcd: EtcdProcess, prefix: str) -> None:
    lost = Event()
    deleted = delete(f"{prefix}claim".encode())
    with begun(etcd.access, prefix, lost.set) as old, opened(etcd.access, prefix) as new:
        first = old._created
        old._etcd.transaction([], [deleted])
        assert str(commit(old, NOTHING, full())) == "the claim of the state has ended"
        until(lambda: old._created > first and old.is_claimed)
        save(old, NOTHING, full())
        assert not lost.is_set()
        new_claim = put(f"{prefix}claim".encode(), new._claim, new._etcd.grant(LEASE_S))
        old._etcd.transaction([], [deleted])
        old._etcd.transaction([], [new_claim])
        assert lost.wait(DEADLINE_S)
        assert not old.is_claimed


def test_a_claim_whose_answer_was_lost_is_kept(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as store, patch.object(store._etcd, "transaction", Copied(store)):
        store.load()
        store.begin(never_lost)
        store._stopping.set()
        store._check.set()
        assert store._renewing
        store._renewing.join(DEADLINE_S)
        store._etcd.revoke(store._lease)
        interrupted = patch.object(store._etcd, "transaction", Interrupted(store, 0, True))
        with interrupted, pytest.raises(EtcdError, match="no answer"):
            store._renew_once()
        assert store._renew_once()
        claim = store._etcd.get(f"{prefix}claim".encode())
        assert claim
        assert (store._lease, store._created) == (claim.lease, claim.create_revision)


def test_a_controller_that_lost_the_claim_before_it_began_never_begins(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as old, opened(etcd.access, prefix) as new:
        old.load()
        old._etcd.revoke(old._lease)
        new.load()
        until(lambda: old._has_ended)
        new.close()
        for step in (old.claim, old.load, old.begin):
            with pytest.raises(InvalidInput, match="another controller has claimed etcd"):
                step()


def test_an_unexpected_error_does_not_end_the_renewals(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as store:
        store.load()
        failed = Event()

        def fails(*_: object) -> bool:
            failed.set()
            raise ValueError

        with patch.object(store._etcd, "renew", fails):
            assert failed.wait(DEADLINE_S)
            until(lambda: not store.is_claimed)
        until(lambda: store.is_claimed)


def test_a_stream_that_ends_without_an_answer_is_an_error() -> None:
    class Silent(grpc.GenericRpcHandler):
        def service(self, _: grpc.HandlerCallDetails) -> Any:
            return grpc.stream_stream_rpc_method_handler(lambda *_: iter(()))

    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, handlers=[Silent()])
        client = Etcd(EtcdAccess((f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}",)))
        server.start()
        with closing(client), pytest.raises(EtcdError, match="the stream ended without an answer"):
            client.renew(1)
        server.stop(None).wait()


def test_a_claim_is_doubted_while_etcd_is_away_and_made_again_when_it_is_back(tmp_path: Path, prefix: str) -> None:
    with running_etcd(tmp_path / "etcd") as etcd, begun(etcd.access, prefix) as store:
        save(store, NOTHING, full())
        etcd.kill()
        assert isinstance(commit(store, full(), MANY), OSError)
        until(lambda: not store.is_claimed)
        assert str(commit(store, full(), MANY)).startswith("this controller may have lost its claim of the state")
        etcd.start()
        until(lambda: store.is_claimed)
        save(store, full(), MANY)
        etcd.signal(signal.SIGSTOP)
        until(lambda: not store.is_claimed)
        etcd.signal(signal.SIGCONT)
        until(lambda: store.is_claimed)
        save(store, MANY, full())
        assert store.look() == full()
