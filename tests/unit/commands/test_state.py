"""``signalbox state``: the saved state, and jobs that are dropped from it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from controller.config import Config, JobsConfig
from controller.core.state import initial
from controller.fabric.parts import Declared
from controller.jobs.messages import Registration, SavedState
from controller.store.records import FORMAT, changes
from controller.store.sqlite_database import checksum, opened, sealed
from controller.store.sqlite_store import FILE, SqliteStore
from signalbox.cli import main
from signalbox.errors import InvalidInput
from signalbox.jobs.collectives import VirtualLink, VirtualLinks
from signalbox.jobs.spec import JobId, JobSpec
from tests.support.by_id import registered

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def signalbox(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the command and returns its exit status, stdout and stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["signalbox", "state", *map(str, arguments)])
        capsys.readouterr()
        status = 0
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
        return (status, *capsys.readouterr())

    return run


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
    """Return a state directory with three jobs."""
    store = SqliteStore(tmp_path)
    store.load()
    store.begin()
    store.commit(changes(SavedState(), saved("first", "second", "third")), lambda _: None)
    store.close()
    return tmp_path


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


def start(state_dir: Path) -> SavedState:
    """Load the state as a controller whose limit is two jobs."""
    store = SqliteStore(state_dir)
    try:
        found = store.load()
        initial(Config(state_dir=state_dir, jobs=JobsConfig(max_jobs=2)), found, Declared(), 0.0)
        return found
    finally:
        store.close()


def test_a_job_that_was_taken_over_is_listed_by_when_that_was(signalbox: Run, state: Path) -> None:
    with closing(SqliteStore(state)) as store:
        before = store.load()
        store.begin()
        store.commit(changes(before, saved("first", "second", "third", later_s=(0, 60, 30))), lambda _: None)
    _, out, _ = signalbox("list", "--state-dir", state, "--json")
    assert [job["job_id"] for job in json.loads(out)["jobs"]] == ["first", "third", "second"]


def test_jobs_are_listed_in_their_order(signalbox: Run, state: Path) -> None:
    status, out, _ = signalbox("list", "--state-dir", state)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]
    assert status == 0
    assert rows == [[name, "blue", "2027-01-15 08:00:00", "2", "1", ""] for name in ("first", "second", "third")]


def test_as_json_each_job_has_what_the_table_has_and_what_is_wrong_with_it(signalbox: Run, state: Path) -> None:
    rewrite(state, "second", '"lease_s": 60.0', '"lease_s": -1.0')
    status, out, _ = signalbox("list", "--state-dir", state, "--json")
    found = json.loads(out)
    assert (status, found["revision"], found["format"]) == (0, 1, FORMAT)
    first, third, second = found["jobs"]  # a job without a time is the last one
    known = {"tenant": "blue", "register_time": "2027-01-15T08:00:00Z", "ranks": 2, "virtual_links": 1, "problem": None}
    assert (first, third) == ({"job_id": "first", **known}, {"job_id": "third", **known})
    assert second.pop("problem").startswith("lease_s: must be at least 1 s")
    assert second == {"job_id": "second", **dict.fromkeys(("tenant", "register_time", "ranks", "virtual_links"))}
    status, out, _ = signalbox("list", "--state-dir", state)
    assert (status, "lease_s: must be at least 1 s" in out) == (0, True)


def test_virtual_links_are_the_pairs_that_the_api_counts(signalbox: Run, tmp_path: Path) -> None:
    ips = ["10.0.0.1", "10.0.0.2"]
    both = JobSpec.parse(
        {
            "job_id": "both",
            "endpoints": ips,
            "groups": [{"name": "dp", "ranks": [0, 1]}],
            "collectives": [{"algorithm": "ring_all_gather", "groups": ["dp"], "bytes_per_iteration": 1000}],
            "transfers": [{"src": 0, "dst": 1, "bytes_per_iteration": 1000, "phase": 1}],
        }
    )
    observed = JobSpec.parse({"job_id": "observed", "endpoints": ["10.0.0.3", "10.0.0.4"]})
    measured = {JobId("observed"): VirtualLinks([VirtualLink("10.0.0.3", "10.0.0.4", 0, 1000)])}
    jobs = registered(Registration(both), Registration(observed))
    store = SqliteStore(tmp_path)
    store.load()
    store.begin()
    store.commit(changes(SavedState(), SavedState(jobs, measured=measured)), lambda _: None)
    store.close()
    _, out, _ = signalbox("list", "--state-dir", tmp_path, "--json")
    assert {job["job_id"]: job["virtual_links"] for job in json.loads(out)["jobs"]} == {"both": 2, "observed": 1}


def test_a_refused_start_names_the_command_after_which_it_succeeds(signalbox: Run, state: Path) -> None:
    with pytest.raises(InvalidInput) as error:
        start(state)
    assert "job 'third': 2 jobs are registered, which is the limit" in str(error.value)
    assert f"signalbox state drop --state-dir {state} JOB" in str(error.value)
    dropped = signalbox("drop", "--state-dir", state, "third")
    assert dropped == (0, "dropped third; the state has revision 2 now\n", "")
    assert start(state) == saved("first", "second")


def test_errors_are_a_line_and_make_no_directory(signalbox: Run, state: Path, tmp_path: Path) -> None:
    unknown = signalbox("drop", "--state-dir", state, "first", "fourth")
    assert unknown == (5, "", f"error: {state} has no job 'fourth'\n")
    running = SqliteStore(state)
    assert running.claim()
    for command in (["list"], ["drop", "first"]):
        status, out, err = signalbox(*command, "--state-dir", state)
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert err.startswith(f"error: state_dir: another controller uses {state} (process ")
    running.close()
    status, _, _ = signalbox("list", "--state-dir", tmp_path / "none")
    assert (status, (tmp_path / "none").exists()) == (2, False)
