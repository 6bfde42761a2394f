"""The state in a real etcd: one writer, commits that are whole or not made, and etcd that is away."""

from __future__ import annotations

import itertools
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import grpc
import pytest

from controller.config import Config
from controller.jobs.messages import SavedState
from controller.store.configured import store_of
from controller.store.etcd_client import EtcdAccess, EtcdError
from controller.store.etcd_store import MOST_RECORDS, EtcdStore
from controller.store.etcd_v3 import etcd_pb2 as pb
from controller.store.records import changes
from mininet_topos.controller_process import ControllerProcess, reserve_port
from mininet_topos.lab.record import wait_for
from signalbox.client import Client
from signalbox.errors import InvalidInput, SignalboxError
from tests.support.by_id import registered
from tests.support.waiting import until
from tests.support.wire.api_calls import ring
from tests.support.wire.certificates import Authority
from tests.support.wire.etcd import EtcdProcess, running_etcd
from tests.unit.store.test_sqlite_store import full, job

LEASE_S = 2
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


def test_a_secret_that_is_missing_while_jobs_need_it_is_not_made_again(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as store:
        store.load()
        with pytest.raises(InvalidInput, match="the secret of lease tokens is missing, and jobs are registered"):
            store.secret(True)


# ---- one writer


def test_one_controller_has_the_state_and_the_next_gets_it_when_it_ends(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as first, opened(etcd.access, prefix) as second, ThreadPoolExecutor(1) as pool:
        first.load()
        assert not first.has_standby()
        assert not second.claim()
        with pytest.raises(InvalidInput, match=r"store: another controller uses etcd at .* \(.*process \d+\)"):
            second.load()
        with second.standing_by():
            until(first.has_standby)
            waiting = pool.submit(second.claim, wait=True)
            first.close()
            assert waiting.result(60)


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
        assert str(commit(old, NOTHING, full())).startswith("etcd does not answer")
        assert isinstance(commit(new, NOTHING, SavedState(registered(job("a")))), int)
    assert saved(etcd.access, prefix) == SavedState(registered(job("a")))


def test_a_claim_that_ended_is_made_again_by_its_last_holder(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as store:
        store.load()
        store.begin(lambda: pytest.fail("nobody else has claimed the state"))
        first = store._created
        store._etcd.revoke(store._lease)
        until(lambda: store._created > first)
        assert isinstance(commit(store, NOTHING, full()), int)
    assert saved(etcd.access, prefix) == full()


# ---- commits that are interrupted


class Interrupted:
    """Transactions of a store, of which number ``at`` gets no answer; ``done``: whether etcd carries it out."""

    def __init__(self, store: EtcdStore, at: int, done: bool) -> None:
        self._transaction = store._etcd.transaction
        self._left = at
        self._done = done

    def __call__(self, compare: Sequence[pb.Compare], operations: Sequence[pb.RequestOp]) -> pb.TxnResponse:
        self._left -= 1
        if self._left == -1:
            if self._done:
                self._transaction(compare, operations)
            raise EtcdError("no answer", grpc.StatusCode.UNAVAILABLE)
        return self._transaction(compare, operations)

    @property
    def happened(self) -> bool:
        return self._left < 0


def interruptions(
    etcd: EtcdProcess, prefix: str, after: Callable[[EtcdStore], None]
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
                after(store)
            if not interrupted.happened:
                break
            yield result, own


def test_an_interrupted_commit_is_whole_or_not_made_for_the_next_holder(etcd: EtcdProcess, prefix: str) -> None:
    seen = set()
    for result, own in interruptions(etcd, prefix, lambda _: None):
        with opened(etcd.access, own) as store:
            found = store.look()
            assert found in (SavedState(registered(job("before"))), MANY)
            assert store.load() == found
        assert isinstance(result, OSError) or found == MANY
        seen.add((isinstance(result, OSError), len(found.jobs)))
    assert seen == {(True, 1), (True, len(MANY.jobs)), (False, len(MANY.jobs))}


def test_an_interrupted_commit_is_undone_by_the_next_one_of_the_same_holder(etcd: EtcdProcess, prefix: str) -> None:
    last = SavedState(registered(job("before"), job("last")))

    def again(store: EtcdStore) -> None:
        if store._in_doubt:
            assert isinstance(commit(store, SavedState(registered(job("before"))), last), int)

    for result, own in interruptions(etcd, prefix, again):
        assert saved(etcd.access, own) == (last if isinstance(result, OSError) else MANY)


# ---- etcd is away, or refuses


def test_changes_are_refused_while_etcd_is_away_and_made_when_it_is_back(tmp_path: Path, prefix: str) -> None:
    with running_etcd(tmp_path / "etcd") as etcd, opened(etcd.access, prefix) as store:
        store.load()
        store.begin(lambda: pytest.fail("nobody else has claimed the state"))
        assert isinstance(commit(store, NOTHING, full()), int)
        etcd.kill()
        assert isinstance(commit(store, full(), MANY), OSError)
        until(lambda: not store.is_claimed)
        assert str(commit(store, full(), MANY)).startswith("etcd does not answer")
        etcd.start()
        until(lambda: store.is_claimed)
        assert isinstance(commit(store, full(), MANY), int)
        etcd.signal(signal.SIGSTOP)
        until(lambda: not store.is_claimed)
        etcd.signal(signal.SIGCONT)
        until(lambda: store.is_claimed)
        assert isinstance(commit(store, MANY, full()), int)
        assert store.look() == full()


def test_a_full_etcd_refuses_changes_and_loses_none(tmp_path: Path, prefix: str) -> None:
    with running_etcd(tmp_path / "etcd", "--quota-backend-bytes", "1000000") as etcd:
        with opened(etcd.access, prefix) as store:
            store.load()
            store.begin()
            states = itertools.cycle((MANY, NOTHING))
            before, after = NOTHING, next(states)
            while isinstance(result := commit(store, before, after), int):
                before, after = after, next(states)
            assert "database space exceeded" in str(result)
        with opened(etcd.access, prefix) as store:
            assert store.look() == before


def test_any_endpoint_that_answers_is_used(etcd: EtcdProcess, prefix: str) -> None:
    access = EtcdAccess((f"127.0.0.1:{reserve_port()}", etcd.endpoint))
    with opened(access, prefix) as store:
        store.load()
        store.begin()
        assert isinstance(commit(store, NOTHING, full()), int)
    nobody = EtcdAccess((f"127.0.0.1:{reserve_port()}",))
    with opened(nobody, prefix) as store, pytest.raises(InvalidInput, match=r"store: etcd at 127\.0\.0\.1:\d+, below"):
        store.load()


def test_tls_certificates_users_and_passwords_are_used(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    server = ours.sign("etcd", also="IP:127.0.0.1")
    mine = ours.sign("controller")
    options = ["--cert-file", server.certificate, "--key-file", server.private_key]
    options += ["--client-cert-auth", "--trusted-ca-file", ours.certificate]
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text("secret\n")
    access = {"ca_certificates": ours.certificate, "certificate": mine.certificate, "private_key": mine.private_key}
    with running_etcd(tmp_path / "etcd", *map(str, options), scheme="https") as etcd:
        words = ["etcdctl", "--endpoints", etcd.endpoint, "--cacert", ours.certificate]
        words += ["--cert", mine.certificate, "--key", mine.private_key]
        for command in (
            "user add root:rootpw",
            "user grant-role root root",
            "role add fabric",
            "role grant-permission fabric --prefix=true readwrite /signalbox/",
            "user add signalbox:secret",
            "user grant-role signalbox fabric",
            "auth enable",
        ):
            subprocess.run(
                [*map(str, words), *command.split()], check=True, env={"ETCDCTL_API": "3"}, capture_output=True
            )
        settings = {**access, "user": "signalbox", "password_file": password}

        def configured(**changed: object) -> Config:
            etcd_settings = {name: str(value) for name, value in {**settings, **changed}.items()}
            return Config.model_validate({"store": f"etcd://{etcd.endpoint}", "etcd": etcd_settings})

        store = store_of(configured())
        assert store.load() == NOTHING
        store.begin(lambda: None)
        store.close()
        password.write_text("wrong")
        with pytest.raises(InvalidInput, match="authentication failed, invalid user ID or password"):
            store_of(configured()).load()
        password.write_text("secret")
        with pytest.raises(InvalidInput, match="permission denied"):
            store_of(configured(prefix="/another/")).load()
        password.chmod(0o644)
        with pytest.raises(InvalidInput, match=r"etcd\.password_file: .*password"):
            store_of(configured())


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
    finally:
        first.kill()
        second.kill()
