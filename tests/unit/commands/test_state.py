"""``signalbox state``: the saved state, and jobs that are dropped from it."""

import os
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from controller.config import Config, JobsConfig
from controller.core.state import initial
from controller.fabric.parts import Declared
from controller.jobs.messages import Registration, SavedState
from controller.store.exported import parsed
from controller.store.lease_secret import secret_in
from controller.store.records import FORMAT, changes
from controller.store.sqlite_database import checksum, opened, sealed
from controller.store.sqlite_store import FILE, SqliteStore
from signalbox.errors import InvalidInput
from signalbox.jobs.collectives import VirtualLink, VirtualLinks
from signalbox.jobs.spec import JobId, JobSpec
from tests.support.by_id import registered
from tests.support.command_line import Result, Signalbox, signalbox

__all__ = ("signalbox",)

pytestmark = pytest.mark.usefixtures("logging_as_before")


def saved(*names: str, later_s: Sequence[float] = (0, 0, 0)) -> SavedState:
    jobs = []
    for number, name in enumerate(names):
        ips = [f"10.0.{number}.1", f"10.0.{number}.2"]
        transfers = [{"src": 0, "dst": 1, "bytes_per_iteration": 1000}]
        spec = JobSpec.parse({"job_id": name, "endpoints": ips, "transfers": transfers})
        jobs.append(Registration(spec, f"uid-of-{name}", "blue", registered_at=1.8e9 + later_s[number]))
    return SavedState(registered(*jobs))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    save(tmp_path, saved("first", "second", "third"))
    return tmp_path


def save(state_dir: Path, found: SavedState) -> None:
    with closing(SqliteStore(state_dir)) as store:
        before = store.load()
        store.begin()
        store.commit(changes(before, found), lambda _: None)


def rewrite(state_dir: Path, name: str, old: str, new: str) -> None:
    """Change the text of a job's record, with right checksums, as a version with other rules could have saved it."""
    with closing(opened(state_dir / FILE)) as database:
        ((value, before),) = database.execute("SELECT value, checksum FROM record WHERE key = ?", (name,)).fetchall()
        assert old in value
        value = value.replace(old, new)
        own = checksum("job", name, value)
        database.execute("UPDATE record SET value = ?, checksum = ? WHERE key = ?", (value, own, name))
        number, records, total = database.execute("SELECT number, records, checksum FROM revision").fetchone()
        row = sealed(number, records, int.from_bytes(total) ^ int.from_bytes(before) ^ int.from_bytes(own))
        database.execute("UPDATE revision SET number = ?, records = ?, checksum = ?, seal = ?", row)


def revision(state_dir: Path) -> int:
    with closing(SqliteStore(state_dir)) as store:
        return store.written().revision


def start(state_dir: Path) -> SavedState:
    """Load the state as a controller whose limit is two jobs."""
    with closing(SqliteStore(state_dir)) as store:
        found = store.load()
        initial(Config(state_dir=state_dir, jobs=JobsConfig(max_jobs=2)), found, Declared(), 0.0)
        return found


def test_jobs_are_listed_in_their_order_and_by_when_they_were_taken_over(signalbox: Signalbox, state: Path) -> None:
    listed = signalbox("state", "list", "--state-dir", state)
    lines = [line for line in listed.out.splitlines() if line.startswith("│")]
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]
    assert listed.status == 0
    assert rows == [[name, "blue", "2027-01-15 08:00:00", "2", "1", ""] for name in ("first", "second", "third")]
    save(state, saved("first", "second", "third", later_s=(0, 60, 30)))
    jobs = signalbox("state", "list", "--state-dir", state, "--json").json["jobs"]
    assert [job["job_id"] for job in jobs] == ["first", "third", "second"]


def test_as_json_each_job_has_what_the_table_has_and_what_is_wrong_with_it(signalbox: Signalbox, state: Path) -> None:
    rewrite(state, "second", '"lease_s": 60.0', '"lease_s": -1.0')
    found = signalbox("state", "list", "--state-dir", state, "--json").json
    assert (found["revision"], found["format"]) == (revision(state), FORMAT)
    first, third, second = found["jobs"]  # a job without a time is the last one
    known = {"tenant": "blue", "register_time": "2027-01-15T08:00:00Z", "ranks": 2, "virtual_links": 1, "problem": None}
    assert (first, third) == ({"job_id": "first", **known}, {"job_id": "third", **known})
    assert second.pop("problem").startswith("lease_s: must be at least 1 s")
    assert second == {"job_id": "second", **dict.fromkeys(("tenant", "register_time", "ranks", "virtual_links"))}
    listed = signalbox("state", "list", "--state-dir", state)
    assert (listed.status, "lease_s: must be at least 1 s" in listed.out) == (0, True)


def test_virtual_links_are_the_pairs_that_the_api_counts(signalbox: Signalbox, tmp_path: Path) -> None:
    ips = ["10.0.0.1", "10.0.0.2"]
    ring = {"algorithm": "ring_all_gather", "groups": ["dp"], "bytes_per_iteration": 1000}
    again = {"src": 0, "dst": 1, "bytes_per_iteration": 1000, "phase": 1}
    sends = {"groups": [{"name": "dp", "ranks": [0, 1]}], "collectives": [ring], "transfers": [again]}
    both = JobSpec.parse({"job_id": "both", "endpoints": ips, **sends})
    observed = JobSpec.parse({"job_id": "observed", "endpoints": ["10.0.0.3", "10.0.0.4"]})
    measured = {JobId("observed"): VirtualLinks([VirtualLink("10.0.0.3", "10.0.0.4", 0, 1000)])}
    save(tmp_path, SavedState(registered(Registration(both), Registration(observed)), measured=measured))
    listed = signalbox("state", "list", "--state-dir", tmp_path, "--json").json["jobs"]
    assert {job["job_id"]: job["virtual_links"] for job in listed} == {"both": 2, "observed": 1}


def test_a_refused_start_names_the_command_after_which_it_succeeds(signalbox: Signalbox, state: Path) -> None:
    with pytest.raises(InvalidInput) as error:
        start(state)
    assert "job 'third': 2 jobs are registered, which is the limit" in str(error.value)
    assert "signalbox state drop --config FILE JOB" in str(error.value)
    dropped = signalbox("state", "drop", "--state-dir", state, "third")
    assert dropped == Result(0, f"dropped third; the state has revision {revision(state)} now\n", "")
    assert start(state) == saved("first", "second")


def test_errors_are_a_line_and_make_no_directory(signalbox: Signalbox, state: Path, tmp_path: Path) -> None:
    unknown = signalbox("state", "drop", "--state-dir", state, "first", "fourth")
    assert unknown == Result(5, "", f"error: {state} has no job 'fourth'\n")
    running = SqliteStore(state)
    assert running.claim()
    for command in (["list"], ["drop", "first"]):
        refused = signalbox("state", *command, "--state-dir", state)
        assert (refused.status, refused.out, refused.err.count("\n")) == (1, "", 1)
        assert refused.err.startswith(f"error: state_dir: another controller uses {state} (process ")
    running.close()
    absent = signalbox("state", "list", "--state-dir", tmp_path / "none")
    assert (absent.status, (tmp_path / "none").exists()) == (2, False)


def test_the_epoch_is_raised_above_a_generation_of_a_switch(signalbox: Signalbox, state: Path, tmp_path: Path) -> None:
    above = 1 << 60
    config = tmp_path / "signalbox.toml"
    config.write_text(f"state_dir = '{state}'")
    raised = signalbox("state", "raise-epoch", "--config", config, "--above", above)
    assert raised == Result(0, f"the next controller uses generation ids above {above}\n", "")
    assert revision(state) == above + 1
    too_large = signalbox("state", "raise-epoch", "--config", config, "--above", 1 << 62)
    assert (too_large.status, revision(state)) == (1, above + 1)
    assert "above: is 4611686018427387904; it must be from 0 to 4611686018427387903" in too_large.err


def test_either_option_names_the_state(signalbox: Signalbox, state: Path, tmp_path: Path) -> None:
    config = tmp_path / "signalbox.toml"
    config.write_text(f"state_dir = '{state}'")
    by_config, by_directory = ("--config", config), ("--state-dir", state)
    listed = [signalbox("state", "list", *option, "--json") for option in (by_config, by_directory)]
    assert listed[0] == listed[1]
    assert len(listed[0].json["jobs"]) == 3
    for options in ((), (*by_config, *by_directory)):
        refused = signalbox("state", "list", *options)
        assert (refused.status, "give one of --config and --state-dir" in refused.err) == (2, True)
    without = tmp_path / "without.toml"
    without.write_text("")
    for command in (["list"], ["drop", "a"], ["export", tmp_path / "x"], ["raise-epoch", "--above", 1]):
        assert signalbox("state", *command, "--config", without).status == 1


def test_root_does_not_use_the_directory_of_another_user(
    signalbox: Signalbox, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    status = Path.stat

    def of_daemon(path: Path, **options: bool) -> object:
        return SimpleNamespace(st_uid=1, st_mode=status(path).st_mode) if path == state else status(path, **options)

    monkeypatch.setattr(Path, "stat", of_daemon)
    refused = signalbox("state", "raise-epoch", "--state-dir", state, "--above", 1)
    assert refused.status == 1
    assert f"{state} belongs to the user daemon: run this as that user" in refused.err


@pytest.fixture
def exported(signalbox: Signalbox, state: Path, tmp_path: Path) -> Path:
    secret_in(state, in_use=False)
    file = tmp_path / "exported"
    done = signalbox("state", "export", file, "--state-dir", state)
    assert done == Result(0, f"exported 3 jobs and 0 other records from {state}\n", "")
    return file


def imported(state_dir: Path) -> tuple[SavedState, bytes, int]:
    with closing(SqliteStore(state_dir)) as store:
        return store.load(), store.secret(True), store.begin()


def test_an_imported_state_has_jobs_and_secret(
    signalbox: Signalbox, state: Path, exported: Path, tmp_path: Path
) -> None:
    assert exported.stat().st_mode & 0o777 == 0o600
    with closing(SqliteStore(state)) as store:
        store.raise_epoch(1 << 61)
    assert signalbox("state", "export", exported, "--state-dir", state).status == 0
    other = tmp_path / "other"
    other.mkdir()
    done = signalbox("state", "import", exported, "--state-dir", other)
    above = (1 << 61) + 1
    assert done == Result(
        0,
        f"imported 3 jobs and 0 other records into {other}; the next controller uses generation ids above {above}\n",
        "",
    )
    assert imported(other)[0] == saved("first", "second", "third")
    assert imported(other)[1] == secret_in(state, in_use=True)
    assert imported(other)[2] > above
    assert {path.name for path in other.iterdir()} == {"state.db", "lease.key", "lock"}


def test_a_state_is_replaced_when_asked_and_not_in_use(signalbox: Signalbox, exported: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    save(other, saved("fourth"))
    secret = secret_in(other, in_use=False)
    refused = signalbox("state", "import", exported, "--state-dir", other)
    assert (refused.status, refused.out) == (1, "")
    assert refused.err.startswith(f"error: state: {other} has 1 job and 0 other records already. Nothing was changed.")
    with closing(SqliteStore(other)) as running:
        before = running.load()
        refused = signalbox("state", "import", exported, "--state-dir", other, "--replace")
        assert (refused.status, "another controller uses" in refused.err) == (1, True)
        assert refused.err.endswith("; stop it, and any controller that stands by\n")
    assert (before, secret_in(other, in_use=True)) == (saved("fourth"), secret)
    done = signalbox("state", "import", exported, "--state-dir", other, "--replace")
    assert " in place of 1 job and 0 other records; the next controller uses" in done.out
    assert imported(other)[0] == saved("first", "second", "third")
    assert imported(other)[1] != secret


def test_a_running_controller_is_exported_with_a_warning(signalbox: Signalbox, state: Path, tmp_path: Path) -> None:
    with closing(SqliteStore(state)) as running:
        running.load()
        refused = signalbox("state", "export", tmp_path / "exported", "--state-dir", state)
        assert (refused.status, "lease.key is missing" in refused.err) == (1, True)
        secret_in(state, in_use=False)
        done = signalbox("state", "export", tmp_path / "exported", "--state-dir", state)
    assert done.status == 0
    assert done.err.startswith("warning: a controller may use the state (")
    assert parsed((tmp_path / "exported").read_bytes()).state == saved("first", "second", "third")
    (tmp_path / "empty").mkdir()
    nothing = signalbox("state", "export", tmp_path / "no", "--state-dir", tmp_path / "empty")
    assert nothing == Result(1, "", f"error: state: nothing is saved in {tmp_path / 'empty'}\n")
    assert not list((tmp_path / "empty").iterdir())


def test_a_file_that_is_no_export_changes_nothing(signalbox: Signalbox, exported: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    text = exported.read_text()
    wrong = {
        "": "it is not an exported state",
        "[]\n{}\n": "it is not an exported state",
        text.replace('"signalbox state": 1', '"signalbox state": 2'): "this version reads format 1",
        text.replace('"records": 7', '"records": 8'): "its state has format 8; this version reads format 7",
        text[:-40]: "its checksum does not match its lines",
        text.replace('"first"', '"other"'): "its checksum does not match its lines",
        "".join(text.splitlines(keepends=True)[:-2]): "its checksum does not match its lines",
    }
    for changed, why in wrong.items():
        exported.write_text(changed)
        refused = signalbox("state", "import", exported, "--state-dir", other)
        assert (refused.status, why in refused.err, "Nothing was changed" in refused.err) == (1, True, True)
        assert not list(other.iterdir())


@pytest.mark.parametrize("calls", range(1, 12))
def test_interrupted_imports_are_whole_or_not_made(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """Interrupt the import before each change of a name in the directory."""
    other = tmp_path / "other"
    other.mkdir()
    save(other, saved("fourth"))
    secret, (state, new_secret, epoch) = secret_in(other, in_use=False), parsed(exported.read_bytes())
    left = [calls]

    def interrupting(change: Callable[..., object]) -> Callable[..., object]:
        def counted(*words: object, **options: object) -> object:
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            return change(*words, **options)

        return counted

    with closing(SqliteStore(other)) as store:
        store.load()
        with monkeypatch.context() as patch:
            for name in ("replace", "unlink"):
                patch.setattr(Path, name, interrupting(getattr(Path, name)))
            with suppress(KeyboardInterrupt):
                store.replace(state, new_secret, epoch)
    found = imported(other)[:2]
    assert found in ((saved("fourth"), secret), (state, new_secret))
    if left[0] > 0:
        assert found == (state, new_secret)
