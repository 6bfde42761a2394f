"""``signalbox state``: the saved state, and jobs that are dropped from it."""

from collections.abc import Sequence
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
from signalbox.errors import InvalidInput
from signalbox.jobs.collectives import VirtualLink, VirtualLinks
from signalbox.jobs.spec import JobId, JobSpec
from tests.support.by_id import registered
from tests.support.command_line import Result, Signalbox, signalbox

__all__ = ("signalbox",)


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
    assert f"signalbox state drop --state-dir {state} JOB" in str(error.value)
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
    assert raised == Result(0, f"the next controller begins above {above}\n", "")
    assert revision(state) == above + 1
    too_large = signalbox("state", "raise-epoch", "--config", config, "--above", 1 << 62)
    assert (too_large.status, revision(state)) == (1, above + 1)
    assert "above: is 4611686018427387904; it must be from 0 to 4611686018427387903" in too_large.err
