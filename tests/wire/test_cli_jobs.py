"""The ``signalbox`` commands about jobs against the real server, and those that watch."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from signalbox.client import Client
from signalbox.jobs.spec import JobSpec
from signalbox.words import EventKind
from tests.support.command_line import Result, Signalbox, api
from tests.support.doc_pages import ROOT
from tests.support.waiting import ended, error_line, line
from tests.support.wire.control_stand_in import H1, H2, Running, running_api

__all__ = ("api",)

pytestmark = pytest.mark.usefixtures("api")

SPEC = {
    "job_id": "ring",
    "endpoints": [H1, H2],
    "groups": [{"name": "dp", "ranks": [0, 1]}],
    "collectives": [{"algorithm": "ring_all_reduce", "groups": ["dp"], "bytes_per_iteration": 1000}],
}


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def leases(state_home: Path, api: Running) -> Path:
    return state_home / "signalbox/leases" / api.addresses[0]


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(SPEC))
    return path


def test_a_job_is_registered_listed_shown_and_deregistered(signalbox: Signalbox, spec_file: Path) -> None:
    """JSON has snake_case names and defaults."""
    assert signalbox("jobs", "list").out == "No jobs are registered.\n"
    registered = signalbox("jobs", "register", spec_file, "--json")
    assert registered.status == 0
    assert registered.json["state"] == "ecmp"
    assert [job["spec"]["job_id"] for job in signalbox("jobs", "list", "--json").json["jobs"]] == ["ring"]
    assert "ring all reduce" in signalbox("jobs", "show", "ring").out
    job = signalbox("jobs", "show", "ring", "--json").json
    assert {"missing_hosts", "efficiency_measured", "lease_left_s", "last_communication_s", "pinned"} <= set(job)
    assert (job["missing_hosts"], job["pinned"]) == ([], 0)
    assert signalbox("jobs", "deregister", "ring") == Result(0, "", "")
    assert signalbox("jobs", "list", "--json").json == {"jobs": []}


def test_a_job_with_parallelizations_is_registered_shown_and_updated(signalbox: Signalbox, tmp_path: Path) -> None:
    ring = {name: SPEC[name] for name in ("groups", "collectives")}
    by_hand = {"transfers": [{"src": 0, "dst": 1, "bytes_per_iteration": 5}]}
    ways = [{"name": "ring", **ring, "compute": [{"seconds": 0.5, "phase": 0}]}, {"name": "by hand", **by_hand}]
    path = tmp_path / "job.json"

    def write(ways: list[Any], **more: object) -> None:
        path.write_text(json.dumps({"job_id": "offer", "endpoints": [H1, H2], "parallelizations": ways, **more}))

    write(ways)
    registered = signalbox("jobs", "register", path, "--json").json
    assert (registered["virtual_links"], registered["spec"]["collectives"]) == (2, [])
    assert [way["name"] for way in registered["spec"]["parallelizations"]] == ["ring", "by hand"]
    assert registered["spec"]["parallelizations"][0]["compute"] == [{"seconds": 0.5, "phase": 0, "before": None}]
    shown = signalbox("jobs", "show", "offer")
    assert "2 parallelizations (library: generic)" in shown.text
    assert ["ring", "0", "ring", "all", "reduce", "1,000", "dp"] in shown.rows
    write(ways[::-1])
    assert signalbox("jobs", "update", path, "--json").json["virtual_links"] == 1
    write(ways, **ring)
    refused = signalbox("jobs", "update", path)
    assert refused.status == 1
    assert "job.json:1:" in refused.err
    assert "collectives: cannot be combined with parallelizations" in refused.err


def job_file(path: Path, job_id: str, hosts: tuple[str, str]) -> Path:
    path.write_text(json.dumps({**SPEC, "job_id": job_id, "endpoints": hosts}, indent=1))
    return path


def test_jobs_exchange_hosts_by_their_files(signalbox: Signalbox, tmp_path: Path) -> None:
    near, far = (H1, H2), ("10.0.8.1", "10.0.9.1")
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    for path, hosts in ((one, near), (two, far)):
        assert signalbox("jobs", "register", job_file(path, path.stem, hosts)).status == 0
    for path, hosts in ((one, far), (two, near)):
        job_file(path, path.stem, hosts)
    assert "announces it" in signalbox("jobs", "update", one).err
    changed = signalbox("jobs", "update", two, one, "--json").json
    assert [(job["spec"]["job_id"], tuple(job["spec"]["endpoints"])) for job in changed] == [
        ("two", near),
        ("one", far),
    ]
    listed = signalbox("jobs", "list", "--json").json["jobs"]
    assert [tuple(job["spec"]["endpoints"]) for job in listed] == [far, near]


def test_of_files_that_are_refused_together_the_one_at_fault_is_named(signalbox: Signalbox, tmp_path: Path) -> None:
    one, two = (tmp_path / f"{name}.json" for name in ("one", "two"))
    signalbox("jobs", "register", job_file(one, "one", (H1, H2)))
    before = [job["spec"] for job in signalbox("jobs", "list", "--json").json["jobs"]]
    job_file(one, "one", ("10.0.8.1", "10.0.9.1"))
    refused = signalbox("jobs", "update", one, job_file(two, "two", (H1, H2)))
    assert refused == Result(5, "", f"error: {two}:1:1: there is no job 'two'; signalbox jobs list shows all jobs\n")
    several = tmp_path / "several.json"
    several.write_text(json.dumps([json.loads(one.read_text())]))
    refused = signalbox("jobs", "update", one, several)
    assert refused.status == 1
    assert refused.err == f"error: {several}:1:3: job_id: 'one' is also in {one}:1:1; name each job once\n"
    assert [job["spec"] for job in signalbox("jobs", "list", "--json").json["jobs"]] == before


def test_a_job_is_updated_from_its_file_and_the_revision_that_was_read(signalbox: Signalbox, tmp_path: Path) -> None:
    one = job_file(tmp_path / "one.json", "one", (H1, H2))
    refused = "error: there is no job 'one'; signalbox jobs list shows all jobs\n"
    assert signalbox("jobs", "update", one) == Result(5, "", refused)
    signalbox("jobs", "register", one)
    assert ["revision", "1"] in signalbox("jobs", "show", "one").rows
    one.write_text(one.read_text().replace("1000", "2000"))
    refused = "error: job 'one' is registered with another spec; signalbox jobs update changes it"
    assert signalbox("jobs", "register", one) == Result(8, "", f"{refused}; --take-over ends it and registers again\n")
    assert signalbox("jobs", "update", one, "--revision", "1", "--json").json["revision"] == "2"
    one.write_text(one.read_text().replace("2000", "3000"))
    stale = signalbox("jobs", "update", one, "--revision", "1")
    assert stale.status == 8
    assert "it has revision 2, and this update is made from revision 1" in stale.err
    assert "3,000" in signalbox("jobs", "update", one, "--revision", "2").out
    two = job_file(tmp_path / "two.json", "two", ("10.0.8.1", "10.0.9.1"))
    several = signalbox("jobs", "update", one, two, "--revision", "3")
    assert several.status == 2
    assert "a revision applies to one job" in " ".join(several.err.split())


def test_the_lease_token_is_kept_for_its_user_alone(signalbox: Signalbox, spec_file: Path, leases: Path) -> None:
    registered = signalbox("jobs", "register", spec_file, "--json")
    token = (leases / "ring.token").read_text().strip()
    assert token.startswith(registered.json["uid"])
    assert (leases / "ring.token").stat().st_mode & 0o777 == 0o600
    assert [folder.stat().st_mode & 0o777 for folder in (leases, leases.parent)] == [0o700, 0o700]
    shown = [registered, signalbox("jobs", "show", "ring", "--json"), signalbox("jobs", "register", spec_file)]
    assert not any(token in result.out + result.err for result in shown)
    assert signalbox("jobs", "renew", "ring").out == "60 s left\n"
    assert signalbox("jobs", "renew", "ring", "--json").json == {"job_id": "ring", "lease_left_s": 60.0}
    assert signalbox("jobs", "deregister", "ring").status == 0
    assert list(leases.iterdir()) == []


def test_jobs_of_one_id_at_two_controllers_have_two_tokens(signalbox: Signalbox, spec_file: Path, api: Running) -> None:
    with running_api() as other:
        for address in (api.addresses[0], other.addresses[0]):
            assert signalbox("jobs", "register", spec_file, "--address", address).status == 0
        for address in (api.addresses[0], other.addresses[0]):
            assert signalbox("jobs", "renew", "ring", "--address", address).status == 0


def test_a_missing_token_that_is_saved_for_another_address_is_named(
    signalbox: Signalbox, spec_file: Path, api: Running
) -> None:
    by_name = f"localhost:{api.addresses[0].rpartition(':')[2]}"
    assert signalbox("jobs", "register", spec_file).status == 0
    where = f"; a job with this id was registered with --address {api.addresses[0]}"
    for command in (("renew", "ring"), ("deregister", "ring")):
        refused = signalbox("jobs", *command, "--address", by_name)
        assert (refused.status, where in refused.err) == (6, True)


def test_without_the_token_the_errors_say_what_helps(signalbox: Signalbox, spec_file: Path, leases: Path) -> None:
    first = signalbox("jobs", "register", spec_file, "--json").json["uid"]
    (leases / "ring.token").unlink()
    missing = "error: the lease token is missing; it is needed to change job 'ring'; "
    look = f"the token is read from {leases}/ring.token; signalbox jobs register --take-over FILE makes a new one\n"
    assert signalbox("jobs", "renew", "ring") == Result(6, "", missing + look)
    assert signalbox("jobs", "update", spec_file) == Result(6, "", missing + look)
    assert signalbox("jobs", "deregister", "ring") == Result(6, "", missing + "--force ends a job without its token\n")
    taken = (
        "error: job 'ring' belongs to another registration, whose lease token is not stored here; --take-over ends it"
    )
    assert signalbox("jobs", "register", spec_file) == Result(8, "", f"{taken} and registers again\n")
    (leases / "ring.token").touch(0o644)
    (leases / "ring.token").write_text("forged\n")
    open_to_others = f"error: {leases}/ring.token: other users have access to it (mode 0644): chmod 600 "
    assert signalbox("jobs", "renew", "ring").err.startswith(open_to_others)
    (leases / "ring.token").chmod(0o600)
    assert "the lease token is not that of job 'ring'" in signalbox("jobs", "renew", "ring").err
    second = signalbox("jobs", "register", "--take-over", spec_file, "--json").json["uid"]
    assert first != second
    assert signalbox("jobs", "renew", "ring").status == 0
    (leases / "ring.token").unlink()
    assert signalbox("jobs", "deregister", "--force", "ring") == Result(0, "", "")
    assert signalbox("jobs", "renew", "ring") == Result(5, "", "error: job 'ring' was deregistered\n")


def test_a_job_id_names_a_file_in_the_folder_whatever_it_is(signalbox: Signalbox, leases: Path) -> None:
    leases.mkdir(parents=True)
    (leases.parent / "other.token").write_text("not to be read")
    refused = "error: there is no job '../other'; signalbox jobs list shows all jobs\n"
    assert signalbox("jobs", "renew", "../other").err == refused
    assert signalbox("jobs", "deregister", "../other", "--force").status == 5
    assert (leases.parent / "other.token").exists()


def test_each_kind_of_job_is_registered_and_shown(signalbox: Signalbox, api: Running) -> None:
    for example, announced in (
        ("library.toml", "1 collective (library: gloo)"),
        ("rails.json", "1 collective (library: nccl), over 2 NICs per rank"),
        ("observed.json", "nothing, the job is observed"),
    ):
        assert signalbox("jobs", "register", ROOT / "examples" / example).status == 0
        (job,) = api.control.registry.jobs.values()
        assert f" {announced} " in signalbox("jobs", "show", job.id).text.replace("│", " ")
        signalbox("jobs", "deregister", job.id)


@pytest.mark.parametrize(
    ("name", "text"),
    [("job.json", b"\x00\xff"), ("job.toml", b"a = " + b"[" * 100_000), ("job.json", b"a" * 10_000_000)],
)
def test_a_file_that_is_no_spec_is_an_error_line(signalbox: Signalbox, tmp_path: Path, name: str, text: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(text)
    result = signalbox("jobs", "register", path)
    assert result.status == 1
    assert result.err.startswith(f"error: {path}:")
    assert result.err.count("\n") == 1


def test_of_many_problems_sixteen_are_lines(signalbox: Signalbox, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps({**SPEC, "endpoints": ["x"] * 1000}))
    lines = signalbox("jobs", "register", path).err.splitlines()
    assert (len(lines), lines[-1]) == (17, "error: and at least 84 more")


def test_a_job_that_waits_says_for_whom(signalbox: Signalbox, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps({**SPEC, "endpoints": [H1, "10.0.9.9"]}))
    found = signalbox("jobs", "register", path).text
    assert "Waiting for 10.0.9.9: " in found
    assert "communication ideal time not known yet; no iteration reported" in found
    assert "efficiency not predicted, not measured" in found


@contextmanager
def watching(address: str, *what: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "controller", *what, "--address", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_watching_prints_a_line_per_change_and_ends_with_the_job(api: Running) -> None:
    with Client(api.addresses[0]) as client:
        client.register_job(JobSpec.parse(SPEC))
        with watching(api.addresses[0], "jobs", "watch", "ring", "--json") as process:
            assert [route["pinned"] for route in json.loads(line(process))["routes"]] == [False, False]
            client.deregister_job("ring", force=True)
            assert ended(process) == (5, "", "error: job 'ring' was deregistered\n")


def test_a_watch_waits_for_a_controller_that_is_away_until_it_is_interrupted(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/api.sock"
    with running_api(address) as api, watching(address, "events", "--watch") as process:
        api.control.board.history.add(EventKind.DRAIN, "drained", {"part": "spine2", "flows": 0}, time.time())
        api.control.put(lambda: setattr(api.control, "status", replace(api.control.status)))
        assert line(process)[22:] == "spine2 drained: no flow is left on it\n"
        api.server.stop(grace_s=0.2)
        assert error_line(process).endswith("; trying again\n")
        process.send_signal(signal.SIGINT)
        assert ended(process)[2] == "", "said once"
