"""The state in a real etcd: what is saved, events, commands that repair or move it, and an etcd that was restored."""

import itertools
import signal
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from controller.jobs.messages import EndReason, SavedState
from controller.serving.kept_events import KeptEvents
from controller.store.etcd_client import Etcd, EtcdAccess, EtcdError
from controller.store.etcd_events import MOST_KEYS, MOST_TOGETHER
from controller.store.etcd_operations import put
from controller.store.sqlite_store import SqliteStore
from controller.store.store import EPOCHS_PER_S
from signalbox.client import Client
from signalbox.errors import InvalidInput, SignalboxError
from signalbox.words import EventKind
from tests.support.by_id import registered
from tests.support.command_line import Signalbox
from tests.support.saved_states import MANY, NOTHING, commit, full, job, save
from tests.support.waiting import DEADLINE_S, until
from tests.support.wire.api_calls import ring
from tests.support.wire.etcd import Copied, EtcdProcess, Interrupted, begun, member, opened, running_etcd, saved

pytestmark = pytest.mark.usefixtures("logging_as_before")


@pytest.mark.parametrize("state", [full(), MANY, NOTHING], ids=["every kind", "many", "nothing"])
def test_a_state_is_read_by_the_next_holder_as_it_was(etcd: EtcdProcess, prefix: str, state: SavedState) -> None:
    assert saved(etcd.access, prefix) == NOTHING
    with begun(etcd.access, prefix) as store:
        save(store, NOTHING, state)
        assert store.look() == state
    assert saved(etcd.access, prefix) == state
    with begun(etcd.access, prefix) as store:
        save(store, state, NOTHING)
    assert saved(etcd.access, prefix) == NOTHING


def epoch(access: EtcdAccess, prefix: str) -> int:
    with opened(access, prefix) as store:
        store.load()
        return store.begin()


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
        epochs.append(epoch(etcd.access, prefix))
    assert int(time.time()) * EPOCHS_PER_S // 2 < epochs[0] < 1 << 60 < epochs[1] < epochs[2]


def test_a_secret_that_is_missing_while_jobs_need_it_is_not_made_again(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as store:
        store.load()
        with pytest.raises(InvalidInput, match="the secret of lease tokens is missing, and without it"):
            store.secret(True)


def test_jobs_and_ends_are_in_the_order_of_their_times(etcd: EtcdProcess, prefix: str) -> None:
    jobs = [replace(job(name), registered_at=at) for name, at in (("b", 1.0), ("c", 2.0), ("a", 3.0))]
    ends = {one.uid: one.end(EndReason.DEREGISTERED, one.registered_at) for one in jobs}
    with begun(etcd.access, prefix) as store:
        save(store, NOTHING, SavedState(registered(*jobs), ends=ends))
        found = store.look()
        assert ([*found.jobs], [*found.ends]) == (["b", "c", "a"], ["b-1", "c-1", "a-1"])


def test_revisions_grow_and_no_epoch_exceeds_those_before(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as store:
        assert store.look().revision == 0
        store.load()
        first = store.begin()
        revision = save(store, NOTHING, full())
        assert first < revision <= store.look().revision
    assert revision <= saved(etcd.access, prefix).revision
    assert first < epoch(etcd.access, prefix)


def test_lines_of_events_are_kept_in_few_keys_by_the_holder_of_the_claim(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as store, opened(etcd.access, prefix) as other:
        assert [*store.events.read()] == [b""]
        store.load()
        lines: list[bytes] = []
        for number in range(3 * MOST_KEYS):
            lines.append(b"\n%d" % number)
            store.events.write(lines[-1:], lambda _: lines)
            assert len(store._etcd.keys(f"{prefix}event/".encode())[0]) <= MOST_KEYS
        assert b"".join(lines).split(b"\n") == store.events.read() == other.events.read()
        with pytest.raises(OSError, match="the claim of the state has ended"):
            other.events.write([b"\nforeign"], lambda _: lines)
        assert other.events.is_full
        interrupted = patch.object(store._etcd, "transaction", Interrupted(store, 0, True))
        with interrupted, pytest.raises(OSError, match="no answer"):
            store.events.write([b"\nlost"], lambda _: lines)
        assert store.events.is_full
        store.events.write([b"\nlast"], lambda _: lines)
        assert store.look() == NOTHING
        store._etcd.transaction([], [put(f"{prefix}event/1".encode(), b"x is not compressed")])
        with pytest.raises(OSError, match="while decompressing"):
            store.events.read()


def test_a_late_copy_of_a_write_deletes_no_newer_lines(etcd: EtcdProcess, prefix: str) -> None:
    with opened(etcd.access, prefix) as store:
        store.load()
        with patch.object(store._etcd, "transaction", Copied(store)) as copied:
            store.events.write([bytes(MOST_TOGETHER + 1)], lambda _: [b"\n1"])  # replaces all
        store.events.write([b"\n2"], lambda _: [])
        copied.late()
        assert store.events.read() == [b"", b"1", b"2"]


def test_the_next_controller_has_the_events_of_the_one_before(etcd: EtcdProcess, prefix: str) -> None:
    texts = []
    for turn in range(3):
        with opened(etcd.access, prefix) as store:
            store.load()
            kept = KeptEvents(store.events)
            for what in ("a", "b", "c"):
                texts.append(f"{what}{turn}")
                kept.history.add(EventKind.JOB, texts[-1], {}, 1.0)
            assert [event.what for event in kept.history.after(0, 100)] == texts
            kept.close()


@pytest.fixture
def settings(etcd: EtcdProcess, prefix: str, tmp_path: Path) -> tuple[str, Path]:
    return "--config", etcd.configuration(tmp_path, prefix)


def test_invalid_jobs_are_dropped(
    etcd: EtcdProcess, prefix: str, settings: tuple[str, Path], signalbox: Signalbox
) -> None:
    with begun(etcd.access, prefix) as store:
        save(store, NOTHING, SavedState(registered(job("a"), job("b"))))
        store._etcd.transaction([], [put(f"{prefix}record/job/b".encode(), b"{}")])
        with pytest.raises(InvalidInput, match=r"cannot be read: job 'b': .*signalbox state drop --config FILE JOB"):
            store.look()
        refused = signalbox("state", "drop", "b", *settings)
        assert (refused.status, "another controller uses etcd" in refused.err) == (1, True)
    listed = signalbox("state", "list", *settings, "--json").json["jobs"]
    assert [(found["job_id"], bool(found["problem"])) for found in listed] == [("a", False), ("b", True)]
    assert signalbox("state", "drop", "c", *settings).status == 5
    assert signalbox("state", "drop", "b", *settings).out.startswith("dropped b; the state has revision ")
    assert signalbox("state", "raise-epoch", "--above", 1 << 60, *settings).status == 0
    assert saved(etcd.access, prefix) == SavedState(registered(job("a")))
    assert epoch(etcd.access, prefix) > 1 << 60


def test_a_state_moves_into_etcd_and_back_with_its_secret_and_larger_epochs(
    etcd: EtcdProcess, prefix: str, settings: tuple[str, Path], tmp_path: Path, signalbox: Signalbox
) -> None:
    file, directories = tmp_path / "exported", [tmp_path / name for name in ("first", "second")]
    for directory in directories:
        directory.mkdir()
    state = SavedState({**MANY.jobs, **full().jobs}, ends=full().ends, silences=full().silences)
    with closing(SqliteStore(directories[0])) as store:
        store.load()
        secret, epochs = store.secret(False), [store.begin()]
        save(store, NOTHING, state)
    assert signalbox("state", "raise-epoch", "--above", 1 << 60, "--state-dir", directories[0]).status == 0
    assert signalbox("state", "export", file, "--state-dir", directories[0]).status == 0
    assert signalbox("state", "import", file, *settings).status == 0
    refused = signalbox("state", "import", file, *settings)
    assert (refused.status, "already. Nothing was changed" in refused.err) == (1, True)
    with opened(etcd.access, prefix) as of_etcd:
        assert (of_etcd.load(), of_etcd.secret(True)) == (state, secret)
        epochs.append(of_etcd.begin())
        warned = signalbox("state", "export", file, *settings)
        assert (warned.status, "warning: a controller may use the state" in warned.err) == (0, True)
        assert signalbox("state", "import", file, *settings, "--replace").status == 1
    assert signalbox("state", "export", file, *settings).status == 0
    assert signalbox("state", "import", file, "--state-dir", directories[1]).status == 0
    with closing(SqliteStore(directories[1])) as store:
        assert (store.load(), store.secret(True)) == (state, secret)
        epochs.append(store.begin())
    assert signalbox("state", "import", file, *settings, "--replace").status == 0
    assert saved(etcd.access, prefix) == state
    assert epochs[0] < 1 << 60 < epochs[1] < epochs[2]
    assert epochs[1] < epoch(etcd.access, prefix)


def test_an_interrupted_import_into_etcd_is_whole_or_not_made(etcd: EtcdProcess, prefix: str) -> None:
    before, secret = SavedState(registered(job("before"))), bytes(32)
    for done in (True, False):
        for at in itertools.count():
            own = f"{prefix}{at}{done}/"
            with begun(etcd.access, own) as store:
                store.secret(False)
                save(store, NOTHING, before)
            with opened(etcd.access, own) as store:
                store.load()
                interrupted = Interrupted(store, at, done)
                with patch.object(store._etcd, "transaction", interrupted), suppress(InvalidInput):
                    store.replace(MANY, secret, 1 << 60)
            with opened(etcd.access, own) as store:
                found = store.load()
                imported = found == MANY
                assert imported or found == before
                assert (store.secret(True) == secret) == imported
                assert (store.begin() > 1 << 60) == imported
            if not interrupted.happened:
                break


def test_changes_after_the_snapshot_survive_when_etcd_is_restored(tmp_path: Path, prefix: str) -> None:
    more = SavedState({**MANY.jobs, **registered(job("last"))})
    with running_etcd(tmp_path / "etcd") as etcd:
        with begun(etcd.access, prefix) as store:
            save(store, NOTHING, full())
            etcd.snapshot(tmp_path / "snapshot")
            save(store, full(), MANY)
            etcd.restore(tmp_path / "snapshot")
            until(lambda: isinstance(commit(store, MANY, more), int))
            etcd.restore(tmp_path / "snapshot")
            until(lambda: store.is_claimed)
        assert saved(etcd.access, prefix) == more, "a controller that ends writes what it has saved"


def test_epochs_after_a_restore_are_larger_than_those_before(tmp_path: Path, prefix: str) -> None:
    with running_etcd(tmp_path / "etcd") as etcd:
        epochs = [epoch(etcd.access, prefix)]
        etcd.snapshot(tmp_path / "snapshot")
        epochs.append(epoch(etcd.access, prefix))
        etcd.restore(tmp_path / "snapshot")
        epochs.append(epoch(etcd.access, prefix))
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
def test_malformed_values_are_refused_by_their_key(etcd: EtcdProcess, prefix: str, key: str, value: str) -> None:
    with opened(etcd.access, prefix) as store:
        store._etcd.transaction([], [put((prefix + key).encode(), value.encode())])
        with pytest.raises(InvalidInput, match=f"the key {key} has the malformed value"):
            store.raise_epoch(1)


def test_a_paused_controller_loses_nothing_and_ends_when_it_resumes(
    etcd: EtcdProcess, prefix: str, tmp_path: Path
) -> None:
    first, second = (member(etcd, prefix, tmp_path / name) for name in "ab")

    def renewed() -> bool:
        with suppress(SignalboxError):
            return other.renew_lease("kept", token) > 0
        return False

    with ExitStack() as ends:
        client = ends.enter_context(first.running())
        token = client.register_job(ring("kept")).lease_token
        ends.callback(second.kill)
        second.start("--standby")
        with closing(Etcd(etcd.access)) as reader:
            events = f"{prefix}event/".encode()
            until(lambda: any(b"job registered" in each.value for each in reader.keys(events)[0]))
        until(lambda: "standing by" in second.log.read_text())
        assert first.process
        first.process.send_signal(signal.SIGSTOP)
        other = ends.enter_context(Client(second.address))
        until(renewed, "the standby to take over")
        first.process.send_signal(signal.SIGCONT)
        assert first.process.wait(DEADLINE_S) == 1
        assert "error: another controller has claimed the state" in first.log.read_text()
        assert [found.spec.job_id for found in other.list_jobs()] == ["kept"]
        assert "job registered" in str([*other.list_events()])
