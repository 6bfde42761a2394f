"""Saved states are loaded again, or refused and left unchanged."""

import json
import os
import random
import shutil
import sqlite3
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from controller.config import Config
from controller.jobs.messages import EndReason, JobEnd, SavedState
from controller.store import sqlite_database
from controller.store import sqlite_store as store_module
from controller.store.configured import store_of
from controller.store.records import FORMAT, MAX_NAMED, PRESENT_NAMES, Key, Kind, Unreadable, changes, decode, encode
from controller.store.sqlite_store import SqliteStore
from controller.store.store import LARGEST_EPOCH, epoch_at
from signalbox.errors import InvalidInput, NotFound
from signalbox.jobs.collectives import VirtualLink, VirtualLinks
from signalbox.jobs.spec import Compute, JobId
from signalbox.words import Mode
from tests.support.by_id import registered
from tests.support.saved_states import NOTHING, commit, full, job, parts, save
from tests.support.waiting import DEADLINE_S, beside


def written(directory: Path, *states: SavedState) -> None:
    """Write one commit per state."""
    store = SqliteStore(directory)
    before = store.load()
    store.begin()
    for state in states:
        save(store, before, state)
        before = state
    store.close()


def opened(directory: Path) -> SqliteStore:
    store = SqliteStore(directory)
    store.load()
    store.begin()
    return store


def read(directory: Path) -> SavedState:
    store = SqliteStore(directory)
    try:
        return store.load()
    finally:
        store.close()


def test_saved_state_comes_back_equal_from_files_for_their_owner_only(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "state"
    assert read(tmp_path / "missing") == NOTHING
    written(directory, full())
    assert directory.stat().st_mode & 0o077 == 0
    assert {path.name: path.stat().st_mode & 0o077 for path in directory.iterdir()} == {"state.db": 0, "lock": 0}
    assert read(directory) == full()


def test_a_job_without_newer_fields_is_saved_as_versions_without_them_read_it() -> None:
    keys = [Key(Kind.JOB, name) for name in ("b", "offer")]
    plain, several = (json.loads(encode(key, full().jobs[JobId(key.key)])) for key in keys)
    newer = {"strategies", "provisional", "compute", "gpus", "work_per_iteration", "weight", "keeps_slots"}
    assert plain["spec"].keys().isdisjoint(newer)
    assert plain.keys().isdisjoint({"wiring", "revision"})
    assert [way["name"] for way in several["spec"]["strategies"]] == ["one", "two"]
    assert Compute(seconds=1, phase=0).model_dump() == {"seconds": 1, "phase": 0}


def test_fields_that_were_renamed_are_saved_and_read_under_their_earlier_names() -> None:
    key, job = Key(Kind.JOB, "offer"), full().jobs[JobId("offer")]
    saved = encode(key, job)
    assert json.loads(saved)["spec"].keys() >= PRESENT_NAMES.keys()
    assert json.loads(saved)["spec"].keys().isdisjoint(PRESENT_NAMES.values())
    assert json.loads(saved)["wiring"]["strategy"] == "two"
    for old, new in PRESENT_NAMES.items():
        for text in (saved, saved.replace(f'"{old}"', f'"{new}"')):
            assert decode([(key, text)]).jobs == {"offer": job}


def test_only_what_changed_is_written_and_what_is_gone_is_deleted(tmp_path: Path) -> None:
    before = full()
    jobs, gone = registered(*[*before.jobs.values()][1:]), parts()[0]
    others = {key: part for key, part in before.parts.items() if key != gone.key}
    after = SavedState(jobs, None, {}, {}, before.connections, before.ends, parts=others)
    changed = changes(before, after)
    assert {(key.kind, key.key): value for key, value in changed.items()} == {
        ("job", "b"): None, ("strategy", ""): None, ("shares", "10.0.0.1 10.0.0.2"): None,
        ("shares", "10.0.0.2 10.0.0.1"): None, ("measured", "a"): None, ("drain", "spine2"): None,
        ("drain", "leaf1:3>spine2"): None, ("silence", "host_down "): None, ("silence", "link_down a 1>b"): None,
        ("part", "switch 0x1"): None,
    }  # fmt: skip
    written(tmp_path, before, after)
    assert read(tmp_path) == after


def test_each_start_has_a_larger_epoch_also_when_the_clock_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = 0
    for now in (2e9, 1e9, 1e9, 2.1e9):
        monkeypatch.setattr("time.time", lambda now=now: now)
        store = SqliteStore(tmp_path)
        saved = store.load()
        assert saved.revision == before
        epoch = store.begin()
        assert epoch == max(before + 1, epoch_at(now))
        assert store.look().revision == epoch, "it is on disk before anything is claimed with it"
        after = SavedState() if saved.jobs else SavedState(registered(job("a")))
        before = epoch + 1
        assert commit(store, saved, after) == before
        store.close()


def test_epochs_are_raised_above_a_generation_and_nothing_else_changes(tmp_path: Path) -> None:
    written(tmp_path, full())
    store = SqliteStore(tmp_path)
    store.raise_epoch(LARGEST_EPOCH - 1)
    assert (store.load(), store.begin()) == (full(), LARGEST_EPOCH + 1)
    store.close()
    with pytest.raises(InvalidInput, match=f"above: is {LARGEST_EPOCH}; it must be from 0 to {LARGEST_EPOCH - 1}"):
        store.raise_epoch(LARGEST_EPOCH)


JOBS: dict[tuple[str, str], str] = {Key(Kind.JOB, name): encode(Key(Kind.JOB, name), job(name)) for name in "ba"}


def write_records(directory: Path, records: Mapping[tuple[str, str], str]) -> None:
    database = sqlite3.connect(directory / "state.db", isolation_level=None)
    with closing(database):
        database.execute("PRAGMA journal_mode = WAL")
        for statement in sqlite_database.TABLES.split(";")[:-1]:
            database.execute(statement)
        total = 0
        for (kind, key), value in records.items():
            own = sqlite_database.checksum(kind, key, value)
            total ^= int.from_bytes(own)
            insert = "INSERT INTO record (kind, key, value, checksum) VALUES (?, ?, ?, ?)"
            database.execute(insert, (kind, key, value, own))
        revision = sqlite_database.sealed(2, len(records), total)
        database.execute("INSERT INTO revision VALUES (?, ?, ?, ?)", revision)
        database.execute(f"PRAGMA application_id = {sqlite_database.APPLICATION}")
        database.execute(f"PRAGMA user_version = {FORMAT}")


@pytest.mark.parametrize(("field", "saved"), [
    *(("spec", value) for value in (3, "ring", [1], None)),
    *(("revision", value) for value in (0, -1, "first", None)),
])  # fmt: skip
def test_a_job_without_a_spec_or_a_revision_is_refused_by_its_name(tmp_path: Path, field: str, saved: object) -> None:
    key = Key(Kind.JOB, "a")
    write_records(tmp_path, {key: json.dumps({**json.loads(JOBS[key]), field: saved})})
    with pytest.raises(InvalidInput, match="job 'a': "):
        read(tmp_path)


@pytest.mark.parametrize(("key", "value"), [
    ("bridge 0x1", '{"ends": [[1, 0, "leaf1", ""]], "down_since": null}'),
    ("switch 0x1", '{"ends": [], "down_since": null}'),
    ("link 0x1:1 0x2:1", '{"ends": [[1, 1, "leaf1", "eth1"]], "down_since": null}'),
    ("host 10.0.0.1", '{"ends": [[1, 1, "leaf1"]], "down_since": null}'),
    ("host 10.0.0.1", '{"ends": [[1, 1, "leaf1", "eth1"]], "down_since": "yesterday"}'),
    ("host 10.0.0.1", '{"ends": [[1, 1, "leaf1", "eth1"]]}'),
])  # fmt: skip
def test_a_part_that_is_none_is_refused_by_its_name(tmp_path: Path, key: str, value: str) -> None:
    write_records(tmp_path, {("part", key): value})
    with pytest.raises(InvalidInput, match=f"part '{key}': "):
        read(tmp_path)


def test_ends_come_back_in_their_order(tmp_path: Path) -> None:
    ends = [JobEnd(JobId("a"), uid, "", EndReason.LEASE_RAN_OUT, 1e9) for uid in "zbyaxc"]
    states = [SavedState(ends={end.uid: end for end in ends[first : first + 3]}) for first in range(4)]
    written(tmp_path, *states)
    assert list(read(tmp_path).ends.values()) == ends[3:]


def test_a_virtual_link_has_bytes_and_a_phase() -> None:
    """The smallest link has one byte in the first phase."""
    saved = decode([(Key(Kind.MEASURED, "a"), '[["10.0.0.1", "10.0.0.2", 0, 1]]')])
    assert saved.measured[JobId("a")] == VirtualLinks([VirtualLink("10.0.0.1", "10.0.0.2", 0, 1)])
    for phase, size in ((0, 0), (-1, 1), (0, -1)):
        with pytest.raises(Unreadable, match=rf"at least 1 byte and a phase from 0 \(saved: {size}, {phase}\)"):
            decode([(Key(Kind.MEASURED, "a"), f'[["10.0.0.1", "10.0.0.2", {phase}, {size}]]')])


def test_many_records_that_cannot_be_read_are_counted() -> None:
    for number, end in ((MAX_NAMED, "problem 15"), (MAX_NAMED + 1, "problem 15; and 1 more")):
        text = str(Unreadable([f"problem {n}" for n in range(number)]))
        assert text.startswith("problem 0; problem 1; ")
        assert text.endswith(f"; {end}")


def test_every_job_that_cannot_be_read_is_named_and_the_state_stays_as_it_is(tmp_path: Path) -> None:
    bad = encode(Key(Kind.JOB, "c"), job("c")).replace("all_to_all", "telepathy")
    other = encode(Key(Kind.JOB, "e"), job("e"))
    write_records(tmp_path, JOBS | {("job", "c"): bad, ("job", "d"): other})
    before = (tmp_path / "state.db").read_bytes()
    with pytest.raises(
        InvalidInput,
        match=r"cannot be read: .*job 'c': .*algorithm.*job 'd': the saved spec belongs to another job, 'e'",
    ):
        read(tmp_path)
    assert (tmp_path / "state.db").read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"3"])
def test_a_file_that_is_no_state_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.db").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"state_dir: the state in .* cannot be read: .* Nothing was changed"):
        read(tmp_path)
    assert (tmp_path / "state.db").read_bytes() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "state.db"]


@pytest.mark.parametrize(("version", "advice"), [(6, "cannot be read"), (8, "Start the version that wrote it")])
def test_another_format_is_refused(tmp_path: Path, version: int, advice: str) -> None:
    written(tmp_path, full())
    with closing(sqlite3.connect(tmp_path / "state.db")) as database:
        database.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(InvalidInput, match=f"it has format {version}; this version reads format 7") as error:
        read(tmp_path)
    assert advice in str(error.value)
    assert ("without jobs" in str(error.value)) == (version < FORMAT)


@pytest.mark.parametrize("change", [
    "UPDATE record SET value = replace(value, '7.5', '9.5') WHERE key = 'a'",
    "UPDATE record SET key = 'z' WHERE key = 'a'",
    "DELETE FROM record WHERE key = 'a'",
    "UPDATE revision SET number = number + 1",
    "UPDATE record SET value = CAST(value AS BLOB) WHERE key = 'a'",
])  # fmt: skip
def test_an_altered_record_is_refused(tmp_path: Path, change: str) -> None:
    """A flipped bit in the head of a row turns a text into bytes, as in the last case; SQLite does not notice it."""
    written(tmp_path, full())
    with closing(sqlite3.connect(tmp_path / "state.db")) as database:
        database.execute(change)
        database.commit()
    with pytest.raises(InvalidInput, match="it is damaged: "):
        read(tmp_path)


def states(count: int) -> list[SavedState]:
    draw = random.Random(5)
    found = [NOTHING]
    for number in range(count):
        jobs = [one for one in found[-1].jobs.values() if draw.random() > 0.2]
        found.append(SavedState(registered(*jobs, job(f"job{number}")), draw.choice(list(Mode))))
    return found


@pytest.mark.parametrize("seed", [*range(25), *(pytest.param(n, marks=pytest.mark.long) for n in range(25, 100))])
def test_damaged_files_open_at_a_commit_or_are_refused(
    seed: int, tmp_path: Path, killed: tuple[Path, list[SavedState]]
) -> None:
    """A killed process leaves the database and its log. The test cuts or alters one file at a random place."""
    directory, commits = killed
    shutil.copytree(directory, tmp_path / "state")
    draw = random.Random(seed)
    file = tmp_path / "state" / draw.choice(["state.db", "state.db-wal"])
    content = bytearray(file.read_bytes())
    at = draw.randrange(len(content))
    if draw.random() < 0.5:
        del content[at:]
    else:
        content[at : at + 8] = draw.randbytes(8)
    file.write_bytes(content)
    before = {path.name: path.read_bytes() for path in (tmp_path / "state").iterdir()}
    try:
        found = read(tmp_path / "state")
    except InvalidInput:
        (tmp_path / "state" / "lock").write_bytes(before["lock"])
        assert {path.name: path.read_bytes() for path in (tmp_path / "state").iterdir()} == before
    else:
        assert found in commits[1:]


@pytest.fixture(scope="session")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[SavedState]]:
    """Return a state directory in the worst state that a killed process leaves, and its commits.

    The second half of the commits is only in SQLite's log, not in the database file."""
    original, copy = tmp_path_factory.mktemp("state"), tmp_path_factory.mktemp("killed") / "state"
    commits = states(30)
    store = opened(original)
    with pytest.MonkeyPatch.context() as patch:
        for number, (before, after) in enumerate(pairwise(commits)):
            if number == len(commits) // 2:
                patch.setattr(store_module, "empty_log", lambda _database: None)
            commit(store, before, after)
    shutil.copytree(original, copy, ignore=shutil.ignore_patterns("*-shm"))
    store.close()
    return copy, commits


@pytest.fixture
def left(tmp_path: Path) -> tuple[Path, list[SavedState]]:
    """Return a state directory after some commits, copied while it is used, and the commits."""
    commits = states(12)
    store = opened(tmp_path / "live")
    for before, after in pairwise(commits):
        commit(store, before, after)
    commit(store, commits[-1], commits[-1])  # returns when the store has ended its work after the last commit
    shutil.copytree(tmp_path / "live", tmp_path / "killed")
    store.close()
    return tmp_path / "killed", commits


@pytest.mark.parametrize("at", [3, 40, 2779, -1])
def test_damage_in_the_log_costs_the_last_commits_at_most(left: tuple[Path, list[SavedState]], at: int) -> None:
    """SQLite drops everything after the damage."""
    directory, commits = left
    log = directory / "state.db-wal"
    content = bytearray(log.read_bytes())
    content[at] ^= 1
    log.write_bytes(content)
    assert read(directory) == commits[-1]
    log.unlink(missing_ok=True)
    assert read(directory) == commits[-1]


@pytest.mark.parametrize("lost", [["state.db"], ["state.db", "state.db-shm"], ["state.db", "state.db-wal"]])
def test_a_log_without_its_database_is_no_new_directory(left: tuple[Path, list[SavedState]], lost: list[str]) -> None:
    directory, _ = left
    for name in lost:
        (directory / name).unlink()
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(InvalidInput, match=r"state.db is missing, although .* Restore the directory"):
        read(directory)
    assert {path.name for path in directory.iterdir()} == before.keys()


def test_commits_that_wait_together_share_one(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    before = store.load()
    store.begin()
    done: list[Future[int | OSError]] = []
    for number in range(200):
        after = SavedState(registered(*before.jobs.values(), job(f"job{number}")))
        done.append(Future())
        store.commit(changes(before, after), done[-1].set_result)
        before = after
    revisions = [future.result(60) for future in done]
    store.close()
    assert len(set(revisions)) < 200
    assert read(tmp_path) == before


def test_a_database_that_is_read_only_for_a_time_takes_all_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[sqlite3.Connection] = []
    original = sqlite_database.opened

    def remember(path: Path) -> sqlite3.Connection:
        opened.append(original(path))
        return opened[-1]

    monkeypatch.setattr(store_module, "opened", remember)
    store = SqliteStore(tmp_path)
    before = store.load()
    store.begin()
    opened[-1].execute("PRAGMA query_only = ON")
    refused = commit(store, before, SavedState(registered(job("a"))))
    assert isinstance(refused, OSError)
    assert "readonly" in str(refused)
    opened[-1].execute("PRAGMA query_only = OFF")
    after = SavedState(registered(job("a"), job("b")))
    save(store, before, after)
    store.close()
    assert read(tmp_path) == after


def test_two_controllers_do_not_share_a_directory(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("12345678901234")
    first = SqliteStore(tmp_path)
    first.load()
    assert first.owner() == str(os.getpid())
    second = SqliteStore(tmp_path)
    said = rf"state_dir: another controller uses .* \(process {os.getpid()}\); stop it first; 'serve --standby' waits"
    with pytest.raises(InvalidInput, match=said):
        second.load()
    assert not second.claim()
    first.close()
    assert read(tmp_path) == NOTHING


def test_who_waits_has_the_directory_as_soon_as_it_is_free(tmp_path: Path) -> None:
    first, second = SqliteStore(tmp_path), SqliteStore(tmp_path)
    assert first.claim()
    waiting = beside(second.claim, True)
    with pytest.raises(TimeoutError):
        waiting.result(0.05)  # on a busy machine a wrong, early answer may arrive later; the test then passes
    first.close()
    assert waiting.result(DEADLINE_S)
    assert not first.claim()
    second.close()


@pytest.mark.parametrize("where", ["file", "file/below", "/proc/signalbox"])
def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="state_dir: cannot write in "):
        SqliteStore(tmp_path / where).load()


def test_without_a_state_directory_nothing_is_kept() -> None:
    store = store_of(Config())
    assert store.load() == NOTHING
    assert commit(store, NOTHING, full()) == 0


def test_a_job_is_dropped_in_one_commit_with_all_that_is_saved_of_it(tmp_path: Path) -> None:
    before = full()
    written(tmp_path, SavedState(registered(job("b"))), before)
    store = SqliteStore(tmp_path)
    assert store.drop(["c", "a"]) == store.look().revision
    store.close()
    left = registered(job("b"), before.jobs[JobId("offer")])
    assert read(tmp_path) == replace(before, jobs=left, measured={}, connections={})


def test_what_cannot_be_read_is_dropped_and_the_rest_stays_as_it_was(tmp_path: Path) -> None:
    wrong = JOBS[Key(Kind.JOB, "a")].replace("7.5", "-1")
    write_records(tmp_path, JOBS | {Key(Kind.JOB, "a"): wrong})
    with pytest.raises(InvalidInput, match=rf"job 'a': lease_s.*\(signalbox state drop --state-dir {tmp_path} JOB\)"):
        read(tmp_path)
    store = SqliteStore(tmp_path)
    store.drop(["a"])
    store.close()
    assert read(tmp_path) == SavedState(registered(job("b")))


def test_nothing_is_dropped_of_an_unknown_job_a_used_directory_a_damaged_state_or_none(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with pytest.raises(InvalidInput, match=f"there is no state.db in {tmp_path}"):
        SqliteStore(tmp_path).drop(["a"])
    written(tmp_path, full())
    before = path.read_bytes()
    store = SqliteStore(tmp_path)
    with pytest.raises(NotFound, match=f"{tmp_path} has no job 'd'"):
        store.drop(["a", "d"])
    with pytest.raises(InvalidInput, match=rf"another controller uses {tmp_path} \(process {os.getpid()}\); stop it"):
        SqliteStore(tmp_path).drop(["a"])
    store.close()
    assert path.read_bytes() == before
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE record SET value = replace(value, '7.5', '8.5') WHERE key = 'b'")
    with pytest.raises(InvalidInput, match=r"it is damaged: job 'b' is not what was written\. Nothing was changed"):
        SqliteStore(tmp_path).drop(["a"])


def test_a_commit_is_on_disk_when_it_returns(tmp_path: Path) -> None:
    """A test cannot show that the commit is on disk, only that SQLite waits for the disk (2 is FULL)."""
    with closing(sqlite_database.opened(tmp_path / "state.db")) as database:
        assert database.execute("PRAGMA synchronous").fetchone() == (2,)
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize("name", ["state.db", "lock"])
@pytest.mark.parametrize("replaced", [False, True])
def test_changes_are_refused_when_a_file_lost_its_name(tmp_path: Path, name: str, replaced: bool) -> None:
    """Data in a file without a name is lost after a restart; a lock file without a name excludes no other process."""
    store = opened(tmp_path)
    (tmp_path / name).rename(tmp_path / "elsewhere")
    if replaced:
        (tmp_path / name).touch()
    refused = commit(store, NOTHING, full())
    assert str(refused).endswith(f"{name} was {'replaced' if replaced else 'removed'} while the controller runs")
    (tmp_path / "elsewhere").replace(tmp_path / name)
    save(store, NOTHING, full())
    store.close()
    assert read(tmp_path) == full()
