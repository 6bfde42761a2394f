"""The state in a real etcd: one writer, commits that are whole or not made, and etcd that is away."""

from __future__ import annotations

import itertools
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any, NoReturn

import grpc
import pytest

from controller.config import Config
from controller.jobs.messages import EndReason, SavedState
from controller.serving.kept_events import EventKeys
from controller.store.configured import prepare_access, store_of
from controller.store.etcd_client import Etcd, EtcdAccess, EtcdError
from controller.store.etcd_contents import MOST_RECORDS
from controller.store.etcd_events import MOST_KEYS
from controller.store.etcd_operations import delete, put
from controller.store.etcd_store import EtcdStore
from controller.store.etcd_v3 import etcd_pb2 as pb
from controller.store.exported import parsed
from controller.store.records import changes
from controller.store.sqlite_store import SqliteStore
from controller.store.store import EPOCHS_PER_S
from mininet_topos.controller_process import ControllerProcess, reserve_port
from mininet_topos.lab.record import wait_for
from signalbox.client import Client
from signalbox.errors import InvalidInput, SignalboxError
from signalbox.words import EventKind
from tests.support.by_id import registered
from tests.support.command_line import Signalbox, signalbox
from tests.support.waiting import until
from tests.support.wire.api_calls import ring
from tests.support.wire.certificates import Authority
from tests.support.wire.etcd import EtcdProcess, running_etcd
from tests.unit.store.test_sqlite_store import full, job

__all__ = ("signalbox",)

pytestmark = pytest.mark.usefixtures("logging_as_before")

LEASE_S = 5
LONG_LEASE_S = 600
HOLDER = """
import sys, time
from controller.store.etcd_client import EtcdAccess
from controller.store.etcd_store import EtcdStore
EtcdStore(EtcdAccess((sys.argv[1],)), sys.argv[2], int(sys.argv[3])).load()
time.sleep(10_000)
"""
"""Program that claims the state and keeps it."""
NOTHING = SavedState()
MANY = SavedState(registered(*(job(f"job{number}") for number in range(2 * MOST_RECORDS + 50))))
_prefixes = itertools.count()


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    with running_etcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


@pytest.fixture
def prefix() -> str:
    return f"/test{next(_prefixes)}/"


@contextmanager
def opened(access: EtcdAccess, prefix: str) -> Iterator[EtcdStore]:
    store = EtcdStore(access, prefix, LEASE_S)
    try:
        yield store
    finally:
        store.close()


def commit(store: EtcdStore, before: SavedState, after: SavedState) -> int | OSError:
    done: Future[int | OSError] = Future()
    store.commit(changes(before, after), done.set_result)
    return done.result(60)


def saved(access: EtcdAccess, prefix: str) -> SavedState:
    with opened(access, prefix) as store:
        return store.load()


# ---- what is saved


@pytest.mark.parametrize("state", [full(), MANY, NOTHING], ids=["every kind", "many", "nothing"])
def test_a_state_is_read_by_the_next_holder_as_it_was(etcd: EtcdProcess, prefix: str, state: SavedState) -> None:
    with opened(etcd.access, prefix) as store:
        assert store.load() == NOTHING
        store.begin()
        assert isinstance(commit(store, NOTHING, state), int)
        assert store.look() == state
    with opened(etcd.access, prefix) as store:
        assert store.load() == state
        store.begin()
        assert isinstance(commit(store, state, NOTHING), int)
    assert saved(etcd.access, prefix) == NOTHING


def test_each_holder_has_a_larger_epoch_and_the_same_secret(etcd: EtcdProcess, prefix: str) -> None:
    epochs: list[int] = []
    secrets = set()
    for _ in range(3):
        with opened(etcd.access, prefix) as store:
            store.load()
            secrets.add(store.secret(bool(epochs)))
            epochs.append(store.begin())
    assert epochs == sorted(set(epochs))
    assert len(secrets) == 1


def test_epochs_are_raised_above_a_generation_while_nobody_has_the_state(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as store:
        store.raise_epoch(1 << 60)
    with opened(etcd.access, prefix) as store, opened(etcd.access, prefix) as other:
        assert store.load() == NOTHING
        assert store.begin() > 1 << 60
        with pytest.raises(InvalidInput, match="another controller uses etcd"):
            other.raise_epoch(1 << 61)


def test_epochs_are_never_lowered(etcd: EtcdProcess, prefix: str) -> None:
    epochs = []
    for above in (0, 1 << 60, 5):
        with opened(etcd.access, prefix) as store:
            store.raise_epoch(above)
        with opened(etcd.access, prefix) as store:
            store.load()
            epochs.append(store.begin())
    assert int(time.time()) * EPOCHS_PER_S // 2 < epochs[0] < 1 << 60 < epochs[1] < epochs[2]


def test_a_secret_that_is_missing_while_jobs_need_it_is_not_made_again(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as store:
        store.load()
        with pytest.raises(InvalidInput, match="the secret of lease tokens is missing, and jobs are registered"):
            store.secret(True)


def test_jobs_and_ends_are_in_the_order_of_their_times(etcd: EtcdProcess, prefix: str) -> None:
    jobs = [replace(job(name), registered_at=at) for name, at in (("b", 1.0), ("c", 2.0), ("a", 3.0))]
    ends = {one.uid: one.end(EndReason.DEREGISTERED, one.registered_at) for one in jobs}
    with opened(etcd.access, prefix) as store:
        store.load()
        store.begin()
        assert isinstance(commit(store, NOTHING, SavedState(registered(*jobs), ends=ends)), int)
        found = store.look()
        assert [*found.jobs] == ["b", "c", "a"]
        assert [*found.ends] == ["b-1", "c-1", "a-1"]


def test_revisions_grow_and_no_epoch_exceeds_those_before(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as store:
        assert store.look().revision == 0
        store.load()
        epoch = store.begin()
        revision = commit(store, NOTHING, full())
        assert isinstance(revision, int)
        assert epoch < revision <= store.look().revision
    with opened(etcd.access, prefix) as store:
        assert revision <= store.load().revision
        assert epoch < store.begin()


# ---- events


def test_lines_of_events_are_kept_in_few_keys_by_the_holder_of_the_claim(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as store, opened(etcd.access, prefix) as other:
        assert [*store.events.read()] == [b""]
        store.load()
        lines: list[bytes] = []
        for number in range(3 * MOST_KEYS):
            lines.append(b"\n%d" % number)
            store.events.write(lines if store.events.is_full else lines[-1:])
            assert len(store._etcd.keys(f"{prefix}event/".encode())[0]) <= MOST_KEYS
        assert b"".join(lines).split(b"\n") == store.events.read() == other.events.read()
        with pytest.raises(OSError, match="the claim of the state has ended"):
            other.events.write([b"\nforeign"])
        assert other.events.is_full
        transaction = store._etcd.transaction
        store._etcd.transaction = Interrupted(store, 0, True)  # type: ignore[method-assign]
        with pytest.raises(OSError, match="no answer"):
            store.events.write([b"\nlost"])
        store._etcd.transaction = transaction  # type: ignore[method-assign]
        assert store.events.is_full
        store.events.write(lines)
        assert store.look() == NOTHING
        store._etcd.transaction([], [put(f"{prefix}event/1".encode(), b"x is not compressed")])
        with pytest.raises(OSError, match="while decompressing"):
            store.events.read()


def test_the_next_controller_has_the_events_of_the_one_before(etcd: EtcdProcess, prefix: str) -> None:
    texts = []
    for turn in range(3):
        with opened(etcd.access, prefix) as store:
            store.load()
            kept = EventKeys(store.events)
            for what in ("a", "b", "c"):
                texts.append(f"{what}{turn}")
                kept.history.add(EventKind.JOB, texts[-1], {}, 1.0)
            assert [event.what for event in kept.history.after(0, 100)] == texts
            kept.close()


# ---- commands that repair or move a state


def settings(folder: Path, etcd: EtcdProcess, prefix: str) -> Path:
    file = folder / "etcd.toml"
    file.write_text(f'store = "etcd://{etcd.endpoint}"\n[etcd]\nprefix = "{prefix}"\n')
    return file


def test_jobs_are_listed_and_dropped_valid_or_not(
    etcd: EtcdProcess, prefix: str, tmp_path: Path, signalbox: Signalbox
) -> None:
    options = ("--config", settings(tmp_path, etcd, prefix))
    with opened(etcd.access, prefix) as store:
        store.load()
        store.begin()
        assert isinstance(commit(store, NOTHING, SavedState(registered(job("a"), job("b")))), int)
        store._etcd.transaction([], [put(f"{prefix}record/job/b".encode(), b"{}")])
        with pytest.raises(InvalidInput, match=r"cannot be read: job 'b': .*signalbox state drop --config FILE JOB"):
            store.look()
        refused = signalbox("state", "drop", "b", *options)
        assert (refused.status, "another controller uses etcd" in refused.err) == (1, True)
    listed = signalbox("state", "list", *options, "--json").json["jobs"]
    assert [(found["job_id"], bool(found["problem"])) for found in listed] == [("a", False), ("b", True)]
    assert signalbox("state", "drop", "c", *options).status == 5
    assert signalbox("state", "drop", "b", *options).out.startswith("dropped b; the state has revision ")
    assert signalbox("state", "raise-epoch", "--above", 1 << 60, *options).status == 0
    with opened(etcd.access, prefix) as store:
        assert store.load() == SavedState(registered(job("a")))
        assert store.begin() > 1 << 60


def test_a_state_moves_into_etcd_and_back_with_its_secret_and_larger_epochs(
    etcd: EtcdProcess, prefix: str, tmp_path: Path, signalbox: Signalbox
) -> None:
    file, into_etcd = tmp_path / "exported", ("--config", settings(tmp_path, etcd, prefix))
    directories = [tmp_path / name for name in ("first", "second")]
    for directory in directories:
        directory.mkdir()
    state = SavedState({**MANY.jobs, **full().jobs}, ends=full().ends, silences=full().silences)
    with closing(SqliteStore(directories[0])) as store:
        store.load()
        secret = store.secret(False)
        epochs = [store.begin()]
        done: Future[int | OSError] = Future()
        store.commit(changes(NOTHING, state), done.set_result)
        assert isinstance(done.result(60), int)
    assert signalbox("state", "raise-epoch", "--above", 1 << 60, "--state-dir", directories[0]).status == 0
    assert signalbox("state", "export", file, "--state-dir", directories[0]).status == 0
    assert signalbox("state", "import", file, *into_etcd).status == 0
    refused = signalbox("state", "import", file, *into_etcd)
    assert (refused.status, "already. Nothing was changed" in refused.err) == (1, True)
    with opened(etcd.access, prefix) as store:
        assert store.load() == state
        assert store.secret(True) == secret
        epochs.append(store.begin())
        warned = signalbox("state", "export", file, *into_etcd)
        assert (warned.status, "warning: a controller may use the state" in warned.err) == (0, True)
        assert signalbox("state", "import", file, *into_etcd, "--replace").status == 1
    assert signalbox("state", "export", file, *into_etcd).status == 0
    assert signalbox("state", "import", file, "--state-dir", directories[1]).status == 0
    with closing(SqliteStore(directories[1])) as store:
        assert store.load() == state
        assert store.secret(True) == secret
        epochs.append(store.begin())
    assert signalbox("state", "import", file, *into_etcd, "--replace").status == 0
    with opened(etcd.access, prefix) as store:
        assert store.load() == state
        epochs.append(store.begin())
    assert epochs[0] < 1 << 60 < epochs[1] < epochs[2]
    assert epochs[1] < epochs[3]


def test_an_interrupted_import_into_etcd_is_whole_or_not_made(etcd: EtcdProcess, prefix: str) -> None:
    before, secret = SavedState(registered(job("before"))), bytes(32)
    for done in (True, False):
        for at in itertools.count():
            own = f"{prefix}{at}{done}/"
            with opened(etcd.access, own) as store:
                store.load()
                store.secret(False)
                store.begin()
                assert isinstance(commit(store, NOTHING, before), int)
            with opened(etcd.access, own) as store:
                store.load()
                interrupted = Interrupted(store, at, done)
                store._etcd.transaction = interrupted  # type: ignore[method-assign]
                with suppress(InvalidInput):
                    store.replace(MANY, secret, 1 << 60)
            with opened(etcd.access, own) as store:
                found = store.load()
                imported = found == MANY
                assert imported or found == before
                assert (store.secret(True) == secret) == imported
                assert (store.begin() > 1 << 60) == imported
            if not interrupted.happened:
                break


# ---- one writer


def test_one_controller_has_the_state_and_the_next_gets_it_when_it_ends(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as first, opened(etcd.access, prefix) as second, ThreadPoolExecutor(1) as pool:
        first.load()
        assert not second.claim()
        with pytest.raises(InvalidInput, match=r"store: another controller uses etcd at .* \(.*process \d+\)"):
            second.load()
        waiting = pool.submit(second.claim, wait=True)
        first.close()
        assert waiting.result(60)


def test_a_store_below_the_prefix_of_another_one_is_separate(etcd: EtcdProcess, prefix: str) -> None:
    below = SavedState(registered(job("below")))
    with opened(etcd.access, prefix) as outer, opened(etcd.access, f"{prefix}inner/") as inner:
        for store, state in ((inner, below), (outer, MANY)):
            assert store.load() == NOTHING
            store.begin()
            assert isinstance(commit(store, NOTHING, state), int)
        assert (inner.look(), outer.look()) == (below, MANY)
        assert isinstance(commit(outer, MANY, NOTHING), int)
        assert (inner.look(), outer.look()) == (below, NOTHING)


def test_a_claim_that_cannot_end_is_refused_and_one_that_can_is_waited_for(etcd: EtcdProcess, prefix: str) -> None:
    name = f"{prefix}claim".encode()
    with opened(etcd.access, prefix) as store, ThreadPoolExecutor(1) as pool:
        store._etcd.transaction([], [put(name, b"malformed")])
        for wait in (False, True):
            with pytest.raises(InvalidInput, match=rf"the key {prefix}claim has the value b'malformed' and no lease"):
                store.claim(wait)
        lease = store._etcd.grant(60)
        store._etcd.transaction([], [put(name, b"malformed", lease)])
        assert store.owner() == "unknown"
        assert not store.claim()
        waiting = pool.submit(store.claim, wait=True)
        store._etcd.revoke(lease)
        assert waiting.result(60)


def test_a_standby_keeps_waiting_when_etcd_refuses_a_call(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as first, opened(etcd.access, prefix) as second, ThreadPoolExecutor(1) as pool:
        first.load()
        assert not second.claim()
        grant, failed = second._etcd.grant, Event()

        def refused(*_: object) -> int:
            failed.set()
            raise EtcdError("database space exceeded", grpc.StatusCode.RESOURCE_EXHAUSTED)

        second._etcd.grant = refused  # type: ignore[method-assign,assignment]
        waiting = pool.submit(second.claim, wait=True)
        assert failed.wait(60)
        second._etcd.grant = grant  # type: ignore[method-assign]
        first.close()
        assert waiting.result(60)


def test_a_standby_takes_over_from_a_killed_process_before_its_lease_ends(etcd: EtcdProcess, prefix: str) -> None:
    words = [sys.executable, "-c", HOLDER, etcd.endpoint, prefix, str(LONG_LEASE_S)]
    with subprocess.Popen(words) as holder, closing(Etcd(etcd.access)) as direct, ThreadPoolExecutor(1) as pool:
        until(lambda: direct.get(f"{prefix}alive".encode()))
        with closing(EtcdStore(etcd.access, prefix, LONG_LEASE_S)) as second:
            waiting = pool.submit(second.claim, wait=True)
            until(lambda: second._watch.known)
            assert not waiting.done()
            holder.kill()
            assert waiting.result(60)


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


def test_a_name_that_resolves_slowly_ends_no_claim(
    etcd: EtcdProcess, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sign of life of the holder is at its address towards the first endpoint."""
    asked, go_on = Event(), Event()

    def resolve(*_: object, **__: object) -> NoReturn:
        asked.set()
        go_on.wait()
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with opened(etcd.access, prefix) as store:
        store.load()
        assert asked.wait(60)
        first = store._valid_until
        until(lambda: store._valid_until > first + 1)
        assert store.is_claimed
        go_on.set()


def test_the_sign_of_life_ends_the_present_lease_of_its_holder_only(etcd: EtcdProcess, prefix: str) -> None:
    with (
        opened(etcd.access, prefix) as first,
        opened(etcd.access, prefix) as second,
        closing(Etcd(etcd.access)) as direct,
    ):
        first.load()
        first.begin(lambda: pytest.fail("nobody else has claimed the state"))
        until(lambda: direct.get(f"{prefix}alive".encode()))
        before = first._lease
        first._etcd.revoke(before)
        until(lambda: (found := direct.get(f"{prefix}alive".encode())) and found.lease not in (0, before))
        created = first._created
        second._end(b"127.0.0.1:1 another")
        assert direct.get(f"{prefix}claim".encode())
        assert first._created == created
        assert first._sign
        second._end(first._sign.address.encode())
        until(lambda: first._created > created)


def test_a_holder_whose_claim_was_taken_writes_nothing_and_is_told(etcd: EtcdProcess, prefix: str) -> None:
    lost = Event()
    with opened(etcd.access, prefix) as old, opened(etcd.access, prefix) as new:
        old.load()
        old.begin(lost.set)
        old._etcd.revoke(old._lease)
        new.load()
        new.begin()
        assert isinstance(commit(old, NOTHING, full()), OSError)
        assert lost.wait(60)
        assert not old.is_claimed
        assert str(commit(old, NOTHING, full())) == "another controller has claimed the state"
        assert isinstance(commit(new, NOTHING, SavedState(registered(job("a")))), int)
    assert saved(etcd.access, prefix) == SavedState(registered(job("a")))


def test_a_controller_that_hears_nothing_from_etcd_does_not_extend_its_lease(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as deaf, opened(etcd.access, prefix) as other:
        deaf.load()
        get, renew = deaf._etcd.get, deaf._etcd.renew
        calls: list[str] = []

        def unanswered(*_: object) -> None:
            calls.append("get")
            raise EtcdError("no answer", grpc.StatusCode.DEADLINE_EXCEEDED)

        deaf._etcd.get = unanswered  # type: ignore[method-assign,assignment]
        deaf._etcd.renew = lambda *_: bool(calls.append("renew"))  # type: ignore[method-assign,func-returns-value]
        until(lambda: len(calls) > 1)
        assert other.claim(wait=True)
        assert "renew" not in calls
        deaf._etcd.get, deaf._etcd.renew = get, renew  # type: ignore[method-assign]


def test_a_claim_that_ended_is_made_again_by_its_last_holder(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as store:
        store.load()
        store.begin(lambda: pytest.fail("nobody else has claimed the state"))
        first = store._created
        store._etcd.revoke(store._lease)
        until(lambda: store._created > first)
        assert isinstance(commit(store, NOTHING, full()), int)
    assert saved(etcd.access, prefix) == full()


def test_a_call_of_another_thread_after_the_end_is_an_error_of_etcd() -> None:
    access = Etcd(EtcdAccess((f"127.0.0.1:{reserve_port()}",)))
    access.close()
    with pytest.raises(EtcdError, match="another thread has closed the connections"):
        access.get(b"claim")


def test_a_claim_that_was_deleted_is_made_again_or_lost_to_the_next(etcd: EtcdProcess, prefix: str) -> None:
    lost = Event()
    deleted = delete(f"{prefix}claim".encode())
    with opened(etcd.access, prefix) as old, opened(etcd.access, prefix) as new:
        old.load()
        old.begin(lost.set)
        first = old._created
        old._etcd.transaction([], [deleted])
        assert str(commit(old, NOTHING, full())) == "the claim of the state has ended"
        until(lambda: old._created > first and old.is_claimed)
        assert isinstance(commit(old, NOTHING, full()), int)
        assert not lost.is_set()
        new_claim = put(f"{prefix}claim".encode(), new._claim, new._etcd.grant(LEASE_S))
        old._etcd.transaction([], [deleted])
        old._etcd.transaction([], [new_claim])
        assert lost.wait(60)
        assert not old.is_claimed


def test_a_claim_whose_answer_was_lost_is_kept(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as store:
        Copied(store)
        store.load()
        store.begin(lambda: pytest.fail("nobody else has claimed the state"))
        store._stopping.set()
        store._check.set()
        assert store._renewing
        store._renewing.join()
        store._etcd.revoke(store._lease)
        transaction = store._etcd.transaction
        store._etcd.transaction = Interrupted(store, 0, True)  # type: ignore[method-assign]
        with pytest.raises(EtcdError, match="no answer"):
            store._renew_once()
        store._etcd.transaction = transaction  # type: ignore[method-assign]
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
        renew, failed = store._etcd.renew, Event()

        def fails(*_: object) -> bool:
            failed.set()
            raise ValueError

        store._etcd.renew = fails  # type: ignore[method-assign,assignment]
        assert failed.wait(60)
        until(lambda: not store.is_claimed)
        store._etcd.renew = renew  # type: ignore[method-assign]
        until(lambda: store.is_claimed)


def test_a_stream_that_ends_without_an_answer_is_an_error() -> None:
    class Silent(grpc.GenericRpcHandler):
        def service(self, _: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
            return grpc.stream_stream_rpc_method_handler(lambda *_: iter(()))

    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, handlers=[Silent()])
        client = Etcd(EtcdAccess((f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}",)))
        server.start()
        with closing(client), pytest.raises(EtcdError, match="the stream ended without an answer"):
            client.renew(1)
        server.stop(None).wait()


# ---- etcd is restored, or has malformed values


def test_changes_after_the_snapshot_survive_when_etcd_is_restored(tmp_path: Path, prefix: str) -> None:
    more = SavedState({**MANY.jobs, **registered(job("last"))})
    with running_etcd(tmp_path / "etcd") as etcd:
        with opened(etcd.access, prefix) as store:
            store.load()
            store.begin(lambda: pytest.fail("nobody else has claimed the state"))
            assert isinstance(commit(store, NOTHING, full()), int)
            etcd.snapshot(tmp_path / "snapshot")
            assert isinstance(commit(store, full(), MANY), int)
            etcd.restore(tmp_path / "snapshot")
            until(lambda: isinstance(commit(store, MANY, more), int))
        assert saved(etcd.access, prefix) == more


def test_epochs_after_a_restore_are_larger_than_those_before(tmp_path: Path, prefix: str) -> None:
    with running_etcd(tmp_path / "etcd") as etcd:

        def epoch() -> int:
            with opened(etcd.access, prefix) as store:
                store.load()
                return store.begin()

        epochs = [epoch()]
        etcd.snapshot(tmp_path / "snapshot")
        epochs.append(epoch())
        etcd.restore(tmp_path / "snapshot")
        epochs.append(epoch())
    assert epochs == sorted(set(epochs))


def test_a_claim_from_before_a_restore_writes_nothing(tmp_path: Path, prefix: str) -> None:
    with (
        running_etcd(tmp_path / "etcd") as etcd,
        opened(etcd.access, prefix) as old,
        opened(etcd.access, prefix) as new,
    ):
        etcd.snapshot(tmp_path / "snapshot")
        old.load()
        etcd.restore(tmp_path / "snapshot")
        new.load()
        assert new._created == old._created
        with pytest.raises(EtcdError, match="the claim of the state has ended"):
            old._records._fenced([])


@pytest.mark.parametrize(
    ("key", "value"),
    [("format", "abc"), ("epoch", "-1"), ("epoch", "9" * 30), ("commit", "[]"), ("commit", '{"id": 1, "parts": "x"}')],
)
def test_malformed_values_are_refused_by_the_name_of_their_key(
    etcd: EtcdProcess, prefix: str, key: str, value: str
) -> None:
    with opened(etcd.access, prefix) as store:
        store._etcd.transaction([], [put((prefix + key).encode(), value.encode())])
        with pytest.raises(InvalidInput, match=f"the key {key} has the malformed value"):
            store.raise_epoch(1)


# ---- commits that are interrupted


class Interrupted:
    """Transactions of a store, of which number ``at`` gets no answer; ``done``: whether etcd carries it out."""

    def __init__(self, store: EtcdStore, at: int, done: bool) -> None:
        self._transaction = store._etcd.transaction
        self._left = at
        self._done = done

    def __call__(self, *request: Any, **options: Any) -> pb.TxnResponse:
        self._left -= 1
        if self._left == -1:
            if self._done:
                self._transaction(*request, **options)
            raise EtcdError("no answer", grpc.StatusCode.UNAVAILABLE)
        return self._transaction(*request, **options)

    @property
    def happened(self) -> bool:
        return self._left < 0


def interruptions(
    etcd: EtcdProcess, prefix: str, after: Callable[[EtcdStore, int | OSError], None]
) -> Iterator[tuple[int | OSError, str]]:
    """Interrupt a commit of many records at each of its transactions, with and without effect; yield its results."""
    before = SavedState(registered(job("before")))
    for done in (True, False):
        for at in itertools.count():
            own = f"{prefix}{at}{done}/"
            with opened(etcd.access, own) as store:
                store.load()
                store.begin()
                commit(store, NOTHING, before)
                interrupted = Interrupted(store, at, done)
                transaction, store._etcd.transaction = store._etcd.transaction, interrupted  # type: ignore[method-assign]
                result = commit(store, before, MANY)
                store._etcd.transaction = transaction  # type: ignore[method-assign]
                after(store, result)
            if not interrupted.happened:
                break
            yield result, own


def test_an_interrupted_commit_is_whole_or_not_made_for_the_next_holder(etcd: EtcdProcess, prefix: str) -> None:
    seen = set()
    for result, own in interruptions(etcd, prefix, lambda *_: None):
        with opened(etcd.access, own) as store:
            found = store.look()
            assert found in (SavedState(registered(job("before"))), MANY)
            assert store.load() == found
        assert isinstance(result, OSError) or found == MANY
        seen.add((isinstance(result, OSError), len(found.jobs)))
    assert seen == {(True, 1), (True, len(MANY.jobs)), (False, len(MANY.jobs))}


def test_an_interrupted_commit_is_undone_by_the_next_one_of_the_same_holder(etcd: EtcdProcess, prefix: str) -> None:
    def after(result: int | OSError) -> tuple[SavedState, SavedState]:
        """Return the states before and after the next commit."""
        before = SavedState(registered(job("before"))) if isinstance(result, OSError) else MANY
        return before, SavedState({**before.jobs, **registered(job("last"))})

    def again(store: EtcdStore, result: int | OSError) -> None:
        assert isinstance(commit(store, *after(result)), int)

    for result, own in interruptions(etcd, prefix, again):
        assert saved(etcd.access, own) == after(result)[1]


class Copied:
    """Transactions of a store, each of which etcd gets twice, and a third time with ``late``."""

    def __init__(self, store: EtcdStore) -> None:
        self._transaction = store._etcd.transaction
        self._requests: list[Any] = []
        store._etcd.transaction = self  # type: ignore[method-assign]

    def __call__(self, *request: Any, **options: Any) -> pb.TxnResponse:
        self._requests.append(request)
        self._transaction(*request, **options)
        return self._transaction(*request, **options)

    def late(self) -> None:
        for request in self._requests:
            self._transaction(*request)


def test_copies_of_a_write_that_slow_members_still_have_change_nothing(etcd: EtcdProcess, prefix: str) -> None:
    few = SavedState(registered(job("few")))
    with opened(etcd.access, prefix) as store:
        store.load()
        store.begin()
        copied = Copied(store)
        for before, after in ((NOTHING, few), (few, MANY), (MANY, NOTHING), (NOTHING, full())):
            assert isinstance(commit(store, before, after), int)
            assert store.look() == after
            copied.late()
            assert store.look() == after


def test_a_write_that_arrives_after_it_was_refused_changes_nothing(etcd: EtcdProcess, prefix: str) -> None:
    kept, late = SavedState(registered(job("kept"))), []
    with opened(etcd.access, prefix) as store:
        store.load()
        store.begin()
        transaction = store._etcd.transaction

        def delayed(*request: Any) -> pb.TxnResponse:
            late.append(request)
            raise EtcdError("no answer", grpc.StatusCode.DEADLINE_EXCEEDED)

        store._etcd.transaction = delayed  # type: ignore[method-assign,assignment]
        assert isinstance(commit(store, NOTHING, full()), OSError)
        store._etcd.transaction = transaction  # type: ignore[method-assign]
        assert isinstance(commit(store, NOTHING, kept), int)
        assert not transaction(*late[0]).succeeded
        assert store.look() == kept


def test_only_the_parts_of_a_valid_commit_are_applied_and_all_of_them(etcd: EtcdProcess, prefix: str) -> None:
    few = SavedState(registered(job("few")))
    with opened(etcd.access, prefix) as store:
        of_another = put(f"{prefix}part/0/000007".encode(), pb.TxnRequest().SerializeToString())
        of_others = [of_another, put(f"{prefix}part/0/000008".encode(), b"malformed")]
        store._etcd.transaction([], of_others)
        store.load()
        assert not store._etcd.keys(f"{prefix}part/".encode())[0]
        store.begin()
        store._etcd.transaction([], of_others)
        assert isinstance(commit(store, NOTHING, few), int)
        parts = -(-(len(MANY.jobs) + 1) // MOST_RECORDS)
        transaction = store._etcd.transaction
        store._etcd.transaction = Interrupted(store, parts + 1, False)  # type: ignore[method-assign]
        assert isinstance(commit(store, few, MANY), int)
        store._etcd.transaction = transaction  # type: ignore[method-assign]
        assert store.look() == MANY
        name = next(each.key for each in store._etcd.keys(f"{prefix}part/".encode())[0] if b"/0/" not in each.key)
        transaction([], [delete(name)])
        with pytest.raises(InvalidInput, match=r"the key part/\w+/000000 is missing, a part of the last commit"):
            store.look()


def test_a_commit_that_fails_unexpectedly_is_refused_and_the_next_one_is_made(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as store:
        store.load()
        store.begin()
        put_all = store._records._put_all
        store._records._put_all = lambda _: 1 // 0  # type: ignore[method-assign,assignment,return-value]
        assert "ZeroDivisionError" in str(commit(store, NOTHING, MANY))
        store._records._put_all = put_all  # type: ignore[method-assign]
        assert isinstance(commit(store, NOTHING, full()), int)
        assert store.look() == full()


def test_a_record_that_is_too_large_for_one_request_is_saved_changed_and_removed(
    etcd: EtcdProcess, prefix: str
) -> None:
    def commented(size: int) -> SavedState:
        (key, silence), *_ = full().silences.items()
        return replace(full(), silences={key: replace(silence, comment=random.Random(size).randbytes(size).hex())})

    with opened(etcd.access, prefix) as store:
        store.load()
        store.begin()
        before = NOTHING
        for size, sections in ((2_500_000, 3), (1_200_000, 2), (2_500_000, 3), (10, 0)):
            state = commented(size)
            assert isinstance(commit(store, before, state), int)
            assert store.look() == state
            assert len(store._etcd.keys(f"{prefix}section/".encode())[0]) == sections
            before = state
        assert isinstance(commit(store, before, commented(1_200_000)), int)
        store._etcd.transaction([], [delete(store._etcd.keys(f"{prefix}section/".encode())[0][1].key)])
        with pytest.raises(InvalidInput, match=r"the key section/000001/silence/.* is missing, a section of a record"):
            store.look()


# ---- etcd is away, or refuses


def test_changes_are_refused_while_etcd_is_away_and_made_when_it_is_back(tmp_path: Path, prefix: str) -> None:
    with running_etcd(tmp_path / "etcd") as etcd, opened(etcd.access, prefix) as store:
        store.load()
        store.begin(lambda: pytest.fail("nobody else has claimed the state"))
        assert isinstance(commit(store, NOTHING, full()), int)
        etcd.kill()
        assert isinstance(commit(store, full(), MANY), OSError)
        until(lambda: not store.is_claimed)
        assert str(commit(store, full(), MANY)).startswith("this controller may have lost its claim of the state")
        etcd.start()
        until(lambda: store.is_claimed)
        assert isinstance(commit(store, full(), MANY), int)
        etcd.signal(signal.SIGSTOP)
        until(lambda: not store.is_claimed)
        etcd.signal(signal.SIGCONT)
        until(lambda: store.is_claimed)
        assert isinstance(commit(store, MANY, full()), int)
        assert store.look() == full()


def test_a_full_etcd_refuses_changes_loses_none_and_accepts_them_when_it_has_space(
    tmp_path: Path, prefix: str, signalbox: Signalbox
) -> None:
    with running_etcd(tmp_path / "etcd", "--quota-backend-bytes", "1000000") as etcd:
        with opened(etcd.access, prefix) as store:
            store.load()
            store.secret(False)
            store.begin(lambda: pytest.fail("nobody else has claimed the state"))
            states = itertools.cycle((MANY, NOTHING))
            before, after = NOTHING, next(states)
            while isinstance(result := commit(store, before, after), int):
                before, after = after, next(states)
            assert "database space exceeded; compact and defragment it" in str(result)
            until_renewed = store._valid_until
            until(lambda: store._valid_until > until_renewed)
            assert isinstance(commit(store, before, before), OSError)
            assert store.look() == before
            exported = signalbox("state", "export", tmp_path / "x", "--config", settings(tmp_path, etcd, prefix))
            assert (exported.status, parsed((tmp_path / "x").read_bytes()).state) == (0, before)
            etcd.free_space()
            assert isinstance(commit(store, before, full()), int)
            assert store.look() == full()
        assert saved(etcd.access, prefix) == full()


def test_any_endpoint_that_answers_is_used(etcd: EtcdProcess, prefix: str) -> None:
    access = EtcdAccess((f"127.0.0.1:{reserve_port()}", etcd.endpoint))
    with opened(access, prefix) as store:
        store.load()
        store.begin()
        assert isinstance(commit(store, NOTHING, full()), int)
    nobody = EtcdAccess((f"127.0.0.1:{reserve_port()}",))
    with opened(nobody, prefix) as store, pytest.raises(InvalidInput, match=r"store: etcd at 127\.0\.0\.1:\d+, below"):
        store.load()


@dataclass
class Guarded:
    """An etcd that demands a client's certificate, and the user ``signalbox`` for the keys below ``/signalbox/``."""

    etcd: EtcdProcess
    authority: Authority
    settings: dict[str, object]
    """Settings of the section ``etcd`` that give access."""
    password: Path

    def configured(self, **changed: object) -> Config:
        etcd_settings = {name: str(value) for name, value in {**self.settings, **changed}.items()}
        return Config.model_validate({"store": f"etcd://{self.etcd.endpoint}", "etcd": etcd_settings})

    def control(self, *words: str, given: str = "") -> None:
        files = ("--cacert", "ca_certificates"), ("--cert", "certificate"), ("--key", "private_key")
        options = [str(word) for option, name in files for word in (option, self.settings[name])]
        command = ["etcdctl", "--endpoints", self.etcd.endpoint, *options, *words]
        subprocess.run(command, check=True, env={"ETCDCTL_API": "3"}, capture_output=True, input=given.encode())


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    ours = Authority(tmp_path, "ours")
    server, mine = ours.sign("etcd", also="IP:127.0.0.1"), ours.sign("controller")
    options = ["--cert-file", server.certificate, "--key-file", server.private_key]
    options += ["--client-cert-auth", "--trusted-ca-file", ours.certificate]
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text("secret\n")
    settings = {"ca_certificates": ours.certificate, "user": "signalbox", "password_file": password}
    settings |= {"certificate": mine.certificate, "private_key": mine.private_key}
    with running_etcd(tmp_path / "etcd", *map(str, options), scheme="https") as etcd:
        found = Guarded(etcd, ours, settings, password)
        for command in (
            "user add root:rootpw",
            "user grant-role root root",
            "role add fabric",
            "role grant-permission fabric --prefix=true readwrite /signalbox/",
            "user add signalbox:secret",
            "user grant-role signalbox fabric",
            "auth enable",
        ):
            found.control(*command.split())
        yield found


def test_tls_certificates_users_and_passwords_are_used(guarded: Guarded) -> None:
    with closing(store_of(guarded.configured())) as store:
        assert store.load() == NOTHING
        store.begin(lambda: None)
    guarded.password.write_text("wrong")
    with pytest.raises(InvalidInput, match=r"authentication failed, .*; correct etcd\.user or etcd\.password_file"):
        store_of(guarded.configured()).load()
    guarded.password.write_text("secret")
    with pytest.raises(InvalidInput, match="permission denied; give the user access to all keys"):
        store_of(guarded.configured(prefix="/another/")).load()
    guarded.password.chmod(0o644)
    with pytest.raises(InvalidInput, match=r"etcd\.password_file: .*password"):
        store_of(guarded.configured())


def test_passwords_and_certificates_that_etcd_accepts_are_used_after_a_reload(guarded: Guarded) -> None:
    with closing(store_of(guarded.configured())) as store:
        assert isinstance(store, EtcdStore)
        store.load()
        store.begin(lambda: pytest.fail("nobody else has claimed the state"))
        first = store._etcd.access
        other, foreign = guarded.authority.sign("other"), Authority(guarded.password.parent, "theirs").sign("other")
        guarded.password.write_text("wrong")
        with pytest.raises(InvalidInput, match="authentication failed, invalid user ID or password"):
            prepare_access(store, guarded.configured())
        guarded.password.write_text("secret")
        with pytest.raises(InvalidInput, match=r"etcd\.private_key: .* is not the key of the certificate"):
            prepare_access(store, guarded.configured(certificate=other.certificate))
        with pytest.raises(InvalidInput, match=r"store: etcd at .*, below /signalbox/: "):
            prepare_access(store, guarded.configured(certificate=foreign.certificate, private_key=foreign.private_key))
        prepare_access(store, guarded.configured())()
        assert store._etcd.access is first
        assert isinstance(commit(store, NOTHING, full()), int)
        guarded.control("--user", "root:rootpw", "user", "passwd", "signalbox", "--interactive=false", given="new")
        guarded.password.write_text("new")
        changed = guarded.configured(certificate=other.certificate, private_key=other.private_key)
        prepare_access(store, changed)()
        until(lambda: store.is_claimed and isinstance(commit(store, full(), MANY), int))
        assert store.look() == MANY


# ---- whole controllers


def controller(folder: Path, etcd: EtcdProcess, prefix: str) -> ControllerProcess:
    folder.mkdir()
    settings = {"etcd": {"prefix": prefix, "lease_s": LEASE_S}}
    return ControllerProcess(folder, settings=settings, store=f"etcd://{etcd.endpoint}")


def test_a_paused_controller_is_replaced_loses_nothing_and_ends_when_it_resumes(
    etcd: EtcdProcess, prefix: str, tmp_path: Path
) -> None:
    first, second = controller(tmp_path / "a", etcd, prefix), controller(tmp_path / "b", etcd, prefix)
    try:
        with first.running() as client:
            token = client.register_job(ring("kept")).lease_token
            second.start("--standby")
            with closing(Etcd(etcd.access)) as reader:
                events = f"{prefix}event/".encode()
                until(lambda: any(b"job registered" in each.value for each in reader.keys(events)[0]))
            wait_for(lambda: "standing by" in second.log.read_text(), "the standby", 60)
            assert first.process
            assert second.process
            first.process.send_signal(signal.SIGSTOP)
            with Client(second.address) as other:

                def renewed() -> bool:
                    try:
                        other.renew_lease("kept", token)
                    except SignalboxError:
                        return False
                    return True

                wait_for(renewed, "the standby takes over", 60)
                first.process.send_signal(signal.SIGCONT)
                assert first.process.wait(60) == 1
                assert "error: another controller has claimed the state" in first.log.read_text()
                assert [found.spec.job_id for found in other.list_jobs()] == ["kept"]
                assert "job registered" in str([*other.list_events()])
    finally:
        first.kill()
        second.kill()
