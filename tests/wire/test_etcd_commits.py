"""Commits in a real etcd: they are whole or not made, even when etcd is full, and access to an etcd that is guarded."""

import itertools
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import grpc
import pytest

from controller.config import Config
from controller.jobs.messages import SavedState
from controller.store.configured import prepare_access, store_of
from controller.store.etcd_client import EtcdAccess, EtcdError
from controller.store.etcd_commits import EtcdCommits
from controller.store.etcd_contents import MOST_RECORDS
from controller.store.etcd_operations import delete, put
from controller.store.etcd_store import EtcdStore
from controller.store.etcd_v3 import etcd_pb2 as pb
from controller.store.exported import parsed
from mininet_topos.controller_process import reserve_port
from signalbox.errors import InvalidInput
from tests.support.by_id import registered
from tests.support.command_line import Signalbox
from tests.support.saved_states import MANY, NOTHING, commit, full, job, save
from tests.support.waiting import until
from tests.support.wire.certificates import Authority
from tests.support.wire.etcd import Copied, EtcdProcess, Interrupted, begun, never_lost, opened, running_etcd, saved

pytestmark = pytest.mark.usefixtures("logging_as_before")

FEW, BEFORE = (SavedState(registered(job(name))) for name in ("few", "before"))


def interruptions(
    etcd: EtcdProcess, prefix: str, after: Callable[[EtcdStore, int | OSError], object] = lambda *_: None
) -> Iterator[tuple[int | OSError, str]]:
    """Interrupt a commit of many records at each of its transactions, with and without effect; yield its results.

    The store ends without settling the commit, like a process that is killed."""
    for done in (True, False):
        for at in itertools.count():
            own = f"{prefix}{at}{done}/"
            with patch.object(EtcdCommits, "settle"), begun(etcd.access, own) as store:
                save(store, NOTHING, BEFORE)
                interrupted = Interrupted(store, at, done)
                with patch.object(store._etcd, "transaction", interrupted):
                    result = commit(store, BEFORE, MANY)
                after(store, result)
            if not interrupted.happened:
                break
            yield result, own


def test_an_interrupted_commit_is_whole_or_not_made_for_the_next_holder(etcd: EtcdProcess, prefix: str) -> None:
    seen = set()
    for result, own in interruptions(etcd, prefix):
        with opened(etcd.access, own) as store:
            found = store.look()
            assert found in (BEFORE, MANY)
            assert store.load() == found
        assert isinstance(result, OSError) or found == MANY
        seen.add((isinstance(result, OSError), len(found.jobs)))
    assert seen == {(True, 1), (True, len(MANY.jobs)), (False, len(MANY.jobs))}


def test_an_interrupted_commit_is_undone_by_the_next_one_of_the_same_holder(etcd: EtcdProcess, prefix: str) -> None:
    def after(result: int | OSError) -> tuple[SavedState, SavedState]:
        before = BEFORE if isinstance(result, OSError) else MANY
        return before, SavedState({**before.jobs, **registered(job("last"))})

    for result, own in interruptions(etcd, prefix, lambda store, result: save(store, *after(result))):
        assert saved(etcd.access, own) == after(result)[1]


def test_copies_of_a_write_that_slow_members_still_have_change_nothing(etcd: EtcdProcess, prefix: str) -> None:
    with begun(etcd.access, prefix) as store, patch.object(store._etcd, "transaction", copied := Copied(store)):
        for before, after in ((NOTHING, FEW), (FEW, MANY), (MANY, NOTHING), (NOTHING, full())):
            save(store, before, after)
            assert store.look() == after
            copied.late()
            assert store.look() == after


def test_a_write_that_arrives_after_it_was_refused_changes_nothing(etcd: EtcdProcess, prefix: str) -> None:
    late: list[Any] = []

    def delayed(*request: Any) -> pb.TxnResponse:
        late.append(request)
        raise EtcdError("no answer", grpc.StatusCode.DEADLINE_EXCEEDED)

    with begun(etcd.access, prefix) as store:
        with patch.object(store._etcd, "transaction", delayed):
            assert isinstance(commit(store, NOTHING, full()), OSError)
        save(store, NOTHING, FEW)
        assert not store._etcd.transaction(*late[0]).succeeded
        assert store.look() == FEW


def test_only_the_parts_of_a_valid_commit_are_applied_and_all_of_them(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as store:
        of_another = put(f"{prefix}part/0/000007".encode(), pb.TxnRequest().SerializeToString())
        of_others = [of_another, put(f"{prefix}part/0/000008".encode(), b"malformed")]
        store._etcd.transaction([], of_others)
        store.load()
        assert not store._etcd.keys(f"{prefix}part/".encode())[0]
        store.begin()
        store._etcd.transaction([], of_others)
        save(store, NOTHING, FEW)
        parts = -(-(len(MANY.jobs) + 1) // MOST_RECORDS)
        with patch.object(store._etcd, "transaction", Interrupted(store, parts + 1, False)):
            save(store, FEW, MANY)
        assert store.look() == MANY
        name = next(each.key for each in store._etcd.keys(f"{prefix}part/".encode())[0] if b"/0/" not in each.key)
        store._etcd.transaction([], [delete(name)])
        with pytest.raises(InvalidInput, match=r"a part of the last commit is missing: the key part/\w+/000000"):
            store.look()


def test_a_commit_that_fails_unexpectedly_is_refused_and_the_next_one_is_made(etcd: EtcdProcess, prefix: str) -> None:
    with begun(etcd.access, prefix) as store:
        with patch.object(store._records, "_put_all", lambda _: 1 // 0):
            assert "ZeroDivisionError" in str(commit(store, NOTHING, MANY))
        save(store, NOTHING, full())
        assert store.look() == full()


def test_a_record_that_is_too_large_for_one_request_is_saved_and_removed(etcd: EtcdProcess, prefix: str) -> None:
    def commented(size: int) -> SavedState:
        (key, silence), *_ = full().silences.items()
        return replace(full(), silences={key: replace(silence, comment=random.Random(size).randbytes(size).hex())})

    before = NOTHING
    with begun(etcd.access, prefix) as store:
        for size, sections in ((2_500_000, 3), (1_200_000, 2), (2_500_000, 3), (10, 0)):
            state = commented(size)
            save(store, before, state)
            assert store.look() == state
            assert len(store._etcd.keys(f"{prefix}section/".encode())[0]) == sections
            before = state
        save(store, before, commented(1_200_000))
        store._etcd.transaction([], [delete(store._etcd.keys(f"{prefix}section/".encode())[0][1].key)])
        with pytest.raises(InvalidInput, match=r"a section of a record is missing: the key section/000001/silence/"):
            store.look()


def test_a_full_etcd_refuses_changes_until_it_has_space(tmp_path: Path, prefix: str, signalbox: Signalbox) -> None:
    """Earlier changes are kept.

    etcd checks its space before a change and while it makes the change. In the second case it makes the change, and
    reports an error nevertheless."""
    with running_etcd(tmp_path / "etcd", "--quota-backend-bytes", "1000000") as etcd:
        with begun(etcd.access, prefix) as store:
            store.secret(False)
            states = itertools.cycle((MANY, NOTHING))
            before, after = NOTHING, next(states)
            while isinstance(result := commit(store, before, after), int):
                before, after = after, next(states)
            assert "database space exceeded; compact and defragment it" in str(result)
            until_renewed = store._valid_until
            until(lambda: store._valid_until > until_renewed)
            assert isinstance(commit(store, before, before), OSError)
            found = store.look()
            assert found in (before, after)
            file = tmp_path / "x"
            exported = signalbox("state", "export", file, "--config", etcd.configuration(tmp_path, prefix))
            assert (exported.status, parsed(file.read_bytes()).state) == (0, found)
            etcd.free_space()
            save(store, before, full())
            assert store.look() == full()
        assert saved(etcd.access, prefix) == full()


def test_any_endpoint_that_answers_is_used(etcd: EtcdProcess, prefix: str) -> None:
    access = EtcdAccess((f"127.0.0.1:{reserve_port()}", etcd.endpoint))
    with begun(access, prefix) as store:
        save(store, NOTHING, full())
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
    theirs = Authority(guarded.password.parent, "theirs")
    stranger = theirs.sign("controller")
    for wrong, why in (
        (guarded.configured(ca_certificates=theirs.certificate), "etcd's certificate must be signed by"),
        (guarded.configured(certificate=stranger.certificate, private_key=stranger.private_key), "etcd must accept"),
        (guarded.configured(prefix="/another/"), "permission denied; give the user access to all keys"),
    ):
        with pytest.raises(InvalidInput, match=why) as raised:
            store_of(wrong).load()
        assert raised.type is InvalidInput, "a standby waits after StateAway only"
    guarded.password.chmod(0o644)
    with pytest.raises(InvalidInput, match=r"etcd\.password_file: .*password"):
        store_of(guarded.configured())


def test_passwords_and_certificates_that_etcd_accepts_are_used_after_a_reload(guarded: Guarded) -> None:
    with closing(store_of(guarded.configured())) as store:
        assert isinstance(store, EtcdStore)
        store.load()
        store.begin(never_lost)
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
        save(store, NOTHING, full())
        guarded.control("--user", "root:rootpw", "user", "passwd", "signalbox", "--interactive=false", given="new")
        guarded.password.write_text("new")
        changed = guarded.configured(certificate=other.certificate, private_key=other.private_key)
        prepare_access(store, changed)()
        until(lambda: store.is_claimed and isinstance(commit(store, full(), MANY), int))
        assert store.look() == MANY
