"""The ``signalbox`` command against the real server."""

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.config import ApiConfig
from controller.planning.analysis.failures import analyse_failures
from controller.planning.analysis.messages import AnalyseFailures, FabricNames, FailureAnalysis, Network, Parts
from controller.planning.problem import PlanLimits, whole
from controller.status import DrainStatus
from signalbox.client import Client, resuming
from signalbox.commands import watch
from signalbox.jobs.spec import JobSpec
from signalbox.words import EventKind
from tests.support.command_line import Result, Signalbox, api, signalbox
from tests.support.doc_pages import ROOT
from tests.support.planning.fabrics import RATE, flow, leaf_spine, pinned, problem_of
from tests.support.waiting import ended, error_line, line
from tests.support.wire.certificates import Authority
from tests.support.wire.control_stand_in import H1, H2, Running, running_api
from tests.support.wire.secured import secret_file

__all__ = ("api", "signalbox")

pytestmark = pytest.mark.usefixtures("api")

SPEC = {
    "job_id": "ring",
    "endpoints": [H1, H2],
    "groups": [{"name": "dp", "ranks": [0, 1]}],
    "collectives": [{"algorithm": "ring_all_reduce", "groups": ["dp"], "bytes_per_iteration": 1000}],
}


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set the user's directory of state."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def leases(state_home: Path, api: Running) -> Path:
    """Return the folder of the lease tokens for this API."""
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
    assert registered["spec"]["parallelizations"][0]["compute"] == [{"seconds": 0.5, "phase": 0}]
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
    assert "a revision belongs to one job" in " ".join(several.err.split())


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


def test_without_the_token_the_errors_say_what_helps(signalbox: Signalbox, spec_file: Path, leases: Path) -> None:
    first = signalbox("jobs", "register", spec_file, "--json").json["uid"]
    (leases / "ring.token").unlink()
    missing = "error: the lease token is missing; it is needed to change job 'ring'; "
    look = f"the token is read from {leases}/ring.token; signalbox jobs register --take-over FILE makes a new one\n"
    assert signalbox("jobs", "renew", "ring") == Result(6, "", missing + look)
    assert signalbox("jobs", "update", spec_file) == Result(6, "", missing + look)
    assert signalbox("jobs", "deregister", "ring") == Result(6, "", missing + "--force needs no token\n")
    taken = (
        "error: job 'ring' belongs to another registration, whose lease token is not stored here; --take-over ends it"
    )
    assert signalbox("jobs", "register", spec_file) == Result(8, "", f"{taken} and registers again\n")
    (leases / "ring.token").touch(0o644)
    (leases / "ring.token").write_text("forged\n")
    open_to_others = f"error: {leases}/ring.token: others than its owner have access to it (mode 0644): chmod 600 "
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


def test_every_problem_of_a_spec_is_a_line_on_stderr(signalbox: Signalbox, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    text = json.dumps({**SPEC, "endpoints": [H1, "nowhere"], "color": "blue"})
    path.write_text(text)
    at = [1 + text.index(part) for part in ('"nowhere"', '"color"')]
    result = signalbox("jobs", "register", path)
    assert (result.status, result.out) == (1, "")
    assert [line.split(": ")[:3] for line in result.err.splitlines()] == [
        ["error", f"{path}:1:{at[0]}", "endpoints[1]"],
        ["error", f"{path}:1:{at[1]}", "color"],
    ]


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


def test_what_is_no_address_is_an_error_line(signalbox: Signalbox) -> None:
    wrong = (
        "",
        ":",
        "host",
        "127.0.0.1:x",
        "127.0.0.1:65536",
        "[::1",
        "http://127.0.0.1:1",
        "unix:",
        f"unix:/{'a' * 200}",
        "127.0.0.1:1,",
        "127.0.0.1:1,127.0.0.1:1",
        "127.0.0.1:1,unix:/run/api.sock",
    )
    for address in wrong:
        result = signalbox("status", "--address", address)
        assert (result.status, result.err.count("\n")) == (2, 1), address
        assert result.err.startswith("error: --address: ")
    assert signalbox("status", "--address", "host", "--token-file", "none").err.startswith("error: --address: ")


def test_arguments_that_are_no_text_are_an_error_line(signalbox: Signalbox) -> None:
    for arguments in (["jobs", "show", "\udcff"], ["status", "--address", "\udcff:1"]):
        result = signalbox(*arguments)
        assert (result.status, result.err) == (1, "error: '\\udcff' cannot be written as utf-8\n")


def test_files_that_are_no_certificates_are_named(signalbox: Signalbox, tmp_path: Path) -> None:
    ours, other = Authority(tmp_path, "ours"), Authority(tmp_path, "other")
    own, wrong = ours.sign("client"), tmp_path / "wrong"
    wrong.touch(0o600)
    given = {"--tls-ca": ours.certificate, "--tls-certificate": own.certificate, "--tls-key": own.private_key}
    for option, file, problem in (
        ("--tls-ca", wrong, "is not a PEM file with a certificate"),
        ("--tls-certificate", wrong, "is not a PEM file with a certificate"),
        ("--tls-key", wrong, "is not a PEM file with a private key"),
        ("--tls-key", other.sign("client").private_key, "is not the key of the certificate"),
    ):
        words = [word for pair in {**given, option: file}.items() for word in pair]
        assert signalbox("status", *words) == Result(1, "", f"error: {option}: {file} {problem}\n")


def test_wrong_usage_exits_with_2(signalbox: Signalbox) -> None:
    for arguments in (
        "jobs register missing.json",
        "nonsense",
        "jobs show",
        "forget",
        "undrain",
        "status --tls-certificate own.pem",
        "status --tls-certificate own.pem --tls-key own.key",
        "token page --role tenant",
        "token page --role reader --tenant a",
    ):
        assert signalbox(*arguments.split()).status == 2, arguments
    unknown = signalbox("mode", "best")
    assert unknown.status == 2
    assert "choose ecmp, planned, shadow" in " ".join(unknown.err.replace("│", " ").split())


def test_the_fabric_is_shown_and_what_is_down_counted_and_forgotten(signalbox: Signalbox) -> None:
    table = signalbox("fabric").out
    assert all(text in table for text in ("leaf1:1>spine1", "5 Mbit/s", H1, "not seen yet", "3 of 4 switches"))
    assert re.search(r"switch +spine2 +2001-09-09 01:46:40 UTC", table)
    assert len(signalbox("fabric", "--json").json["links"]) == 4
    assert signalbox("forget", "spine2").out == "forgot spine2\n"
    assert "spine2" not in signalbox("fabric").out


def test_a_plan_is_made_and_shown(signalbox: Signalbox, spec_file: Path) -> None:
    assert signalbox("plan").out == "There is no plan yet.\n"
    assert signalbox("plan", "--json").json is None
    signalbox("jobs", "register", spec_file)
    assert signalbox("plan", "--now").out.startswith("adopted: better\n")
    assert "leaf1 > spine1 > leaf2" in signalbox("plan").out
    assert signalbox("plan", "--json").json["jobs"] == [{"job_id": "ring", "slowdown": 1.25, "demand_source": None}]
    assert signalbox("plan", "--now", "--json").json["outcome"] == "adopted"


def test_alarms_are_listed_and_said_to_be_known(signalbox: Signalbox) -> None:
    assert signalbox("alarms", "acknowledge", "foreign_rules", "spine1", "--comment", "ours").status == 0
    known = "warning foreign_rules: spine1 holds 2 foreign rules (acknowledged: ours)\n"
    assert signalbox("alarms", "list").out == known
    assert "(acknowledged: ours)" in signalbox("status").out
    assert signalbox("alarms", "silence", "foreign-rules", "spine1", "--for", "2h").status == 0
    assert "(silenced until " in signalbox("alarms", "list").out
    (alarm,) = signalbox("alarms", "list", "--json").json["alarms"]
    assert alarm["silence"]["end_time"] > alarm["silence"]["silence_time"]
    assert signalbox("alarms", "unsilence", "foreign_rules", "spine1").status == 0
    assert "warning" in signalbox("alarms", "list").out
    for wrong, error in (
        (("acknowledge", "bad"), "there is no kind 'bad'"),
        (("silence", "foreign_rules"), "Missing option '--for'"),
        (("silence", "foreign_rules", "--for", "2 weeks"), "is not a duration such as 90s"),
    ):
        found = signalbox("alarms", *wrong)
        assert found.status == 2
        assert error in " ".join(found.err.split())


def test_events_are_listed_and_watched(api: Running, signalbox: Signalbox) -> None:
    assert signalbox("events").out == ""
    now = time.time()
    api.control.board.history.add(EventKind.DRAIN, "drained", {"part": "spine2", "flows": 0}, now - 7200)
    api.control.board.history.add(EventKind.PLAN, "plan adopted: better", {"moves": 3}, now)  # from another version
    assert [line[21:] for line in signalbox("events").out.splitlines()] == [
        " spine2 drained: no flow is left on it",
        " plan adopted: better  moves=3",
    ]
    assert "spine2" not in signalbox("events", "--since", "1h").out
    assert "adopted" not in signalbox("events", "--kind", "drain").out
    (event,) = map(json.loads, signalbox("events", "--kind", "plan", "--json").out.splitlines())
    assert event["details"] == [{"name": "moves", "value": "3"}]
    whats = [event["what"] for event in yaml.safe_load_all(signalbox("events", "-o", "yaml").out)]
    assert whats == ["drained", "plan adopted: better"]
    for wrong, error in (
        (("--since", "soon"), "is neither a time before now"),
        (("--kind", "x"), "there is no kind 'x'"),
    ):
        found = signalbox("events", *wrong)
        assert found.status == 2
        assert error in " ".join(found.err.split())


def test_parts_are_drained_shown_and_used_again(api: Running, signalbox: Signalbox) -> None:
    status = api.control.status
    api.control.status = replace(status, fabric=replace(status.fabric, hosts={}))
    assert signalbox("drain").out == "Nothing is drained.\n"
    table = signalbox("drain", "leaf1:spine1", "--wait").out
    assert "leaf1:1>spine1" in table
    assert "safe to pull" in table
    assert "leaf1:1>spine1 (safe to pull)" in signalbox("status").out
    (part,) = signalbox("drain", "--json").json["drains"]
    assert (part["name"], part["state"], part["links"], part["rate_bps"]) == ("leaf1:1>spine1", "safe", 2, 12.0)
    assert signalbox("undrain", "leaf1:1>spine1").out == "Nothing is drained.\n"


def test_a_drain_says_what_it_costs_and_does_not_wait_for_that(api: Running, signalbox: Signalbox) -> None:
    status = api.control.status
    api.control.status = replace(status, fabric=replace(status.fabric, hosts={}))
    assert signalbox("drain", "leaf1:spine1").out.endswith("\nThe cost is not known: nothing is analysed\n")
    assert signalbox("drain", "leaf1:spine1", "-o", "json").json["cost"]["slowdown"] is None
    api.control.analysis = without_a_spine()
    assert signalbox("drain", "leaf1:spine1").out.endswith("\nWorst job: slowdown 1.00 -> 2.00\n")
    cost = signalbox("drain", "leaf1:spine1", "--json").json["cost"]
    assert cost == {"mode": "planned", "slowdown": 1.0, "slowdown_drained": 2.0, "not_known": ""}
    signalbox("mode", "ecmp")
    found = signalbox("drain", "leaf1:spine1").text
    assert re.search(r"Worst job: slowdown 1\.\d\d -> 2\.00 on average under ECMP$", found), found
    assert "cost" not in signalbox("drain", "--json").json


def without_a_spine() -> FailureAnalysis:
    """Return the analysis of a lost spine: two jobs had a link of two spines each, and now share one."""
    fabric = leaf_spine(2, 2)
    problem = problem_of(fabric, [flow("a", (1, 1), (2, 1), RATE), flow("b", (1, 2), (2, 2), RATE)])
    problem = pinned(problem, {one.id: whole(problem.candidates(one)[n]) for n, one in enumerate(problem.flows)})
    lost = frozenset(link.id for link in fabric.links.values() if 101 in (link.src.dpid, link.dst.dpid))
    network = Network(problem, fabric, fabric, PlanLimits(), FabricNames(fabric))
    return analyse_failures(AnalyseFailures(network, frozenset(), None, 30.0, Parts("spine1", lost)))


def test_what_a_drained_part_waits_for_is_named(api: Running, signalbox: Signalbox) -> None:
    waits = DrainStatus("spine2", 1e9, "confirming", 0, 8, None, ("leaf1 (no control connection)", "leaf2 (counters)"))
    api.control.status = replace(api.control.status, drains={"spine2": waits})
    published = threading.Event()
    api.control.put(lambda: None)
    api.control.put(published.set)
    assert published.wait(60)
    assert "waiting for leaf1 (no control connection), leaf2 (counters)" in " ".join(signalbox("status").out.split())
    (part,) = signalbox("drain", "--json").json["drains"]
    assert (part["state"], part["waits_for"]) == ("confirming", list(waits.waits_for))


def test_what_cannot_be_drained_is_an_error(signalbox: Signalbox) -> None:
    refused = signalbox("drain", "spine1")
    assert (refused.status, refused.out) == (8, "")
    assert refused.err == "error: hosts on leaf1 would have no path to others: nothing is drained\n"
    refused = signalbox("drain", "leaf1:2")
    only = "only cables between switches can be drained"
    assert (refused.status, refused.err) == (1, f"error: 'leaf1:2' leads to host {H1}; {only}\n")


def test_a_name_of_nothing_ends_a_command_with_5_and_is_shown_as_it_was_typed(signalbox: Signalbox) -> None:
    for command, said in (
        (("drain", "spine9"), "there is no switch 'spine9'; a part is a switch (spine2)"),
        (("drain", "leaf1:9"), "'leaf1:9': leaf1 has no cable there"),
        (("undrain", "spine9"), "'spine9' is not drained; drained parts: none"),
        (("forget", "spine9"), "no part of the fabric has the name 'spine9'"),
        (("alarms", "unsilence", "foreign_rules", "spine9"), "no silence of foreign_rules exists for 'spine9'"),
        (("rules", "leaf9"), "there is no switch 'leaf9'"),
        (("rules", "leaf1", "--job", "x"), "there is no job 'x'"),
        (("describe", "host", "10.9.9.9"), "there is no host '10.9.9.9'"),
        (("get", "job", "x"), "there is no job 'x'"),
        (("describe", "job", "x"), "there is no job 'x'"),
        *(
            (("jobs", verb, "x"), "there is no job 'x'; signalbox jobs list shows all jobs")
            for verb in ("show", "renew", "deregister", "watch")
        ),
    ):
        found = signalbox(*command)
        assert (found.status, found.out) == (5, ""), command
        assert found.err.startswith(f"error: {said}"), found.err


def test_errors_of_the_api_name_the_options_and_arguments_of_the_command(signalbox: Signalbox) -> None:
    for command, said in (
        (("alarms", "silence", "foreign_rules", "--for", "900d"), "--for: must be more than 0 s"),
        (("alarms", "acknowledge", "foreign_rules", "--comment", "x" * 2000), "--comment: must have at most"),
        (("alarms", "silence", "foreign_rules", "x" * 2000, "--for", "2h"), f"{'x' * 61}...: must have at most"),
        (("what-if", "--within", "1000"), "--within: must be more than 0 and at most 120 s"),
    ):
        found = signalbox(*command)
        assert (found.status, found.err.partition(said)[0]) == (1, "error: "), found.err


def test_the_mode_is_shown_and_set(signalbox: Signalbox) -> None:
    assert signalbox("mode").out == "planned\n"
    assert signalbox("mode", "ecmp").out == "ecmp, in 0.25 s; 4 pins (acknowledgements have their own)\n"
    assert signalbox("mode", "--json").json == {"mode": "ecmp"}
    assert signalbox("status", "--json").json["mode"] == "ecmp"
    assert "3 of 4, 1 in sync" in signalbox("status").out


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


def test_watching_jobs_prints_a_line_per_change_until_it_is_interrupted(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/api.sock"
    with running_api(address) as first, watching(address, "watch", "jobs") as process:
        assert line(process)[10:] == "no jobs now\n"
        with Client(address) as client:
            client.register_job(JobSpec.parse(SPEC))
            shown = "job ring: ecmp, 0 of 2 flows pinned, planned for unconfirmed, slowdown 1.250, 0 iterations\n"
            assert line(process)[10:] == shown
            client.deregister_job("ring")
        assert line(process)[10:] == "job ring: deregistered\n"
        first.server.stop(grace_s=0.2)
        assert error_line(process).endswith("; trying again\n")
        with running_api(address), Client(address) as client:
            assert line(process)[10:] == "no jobs now\n", "the new controller has none of the old one's changes"
            client.register_job(JobSpec.parse(SPEC))
            assert line(process)[10:].startswith("job ring: ")
            process.send_signal(signal.SIGINT)
            assert ended(process)[2] == "", "said once"


def test_watching_the_status_through_a_pipe_prints_lines_until_it_is_interrupted(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/api.sock"
    with running_api(address) as first, watching(address, "status", "--watch") as process:
        assert line(process).startswith("planned: 1 of 4 switches in sync, 4 links, 2 hosts, 0 jobs")
        first.server.stop(grace_s=0.2)
        assert error_line(process).endswith("; trying again\n")
        with running_api(address), Client(address) as client:
            client.register_job(JobSpec.parse(SPEC))
            assert any("2 hosts, 1 job (" in shown for shown in iter(partial(line, process), ""))
            process.send_signal(signal.SIGINT)
            assert ended(process)[2] == "", "said once"


@pytest.mark.parametrize("what", ["fabric", "alarms", "plan"])
def test_watching_prints_an_object_a_message(signalbox: Signalbox, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(watch, "resuming", lambda *given: islice(resuming(*given), 1))
    message = signalbox("watch", what, "--json").json
    assert message["resume_token"]
    assert message.get("snapshot") is (None if what == "plan" else True)


def test_the_versions_are_printed(signalbox: Signalbox) -> None:
    names = ("signalbox-client", "signalbox-controller", "signalbox-offline")
    assert signalbox("--version").rows == [[name, version(name)] for name in names]


def test_the_help_of_every_command_has_one_pair_of_brackets_around_what_may_be_left_out(signalbox: Signalbox) -> None:
    for command in ("jobs", "serve", "jobs watch", "drain", "get jobs", "plan"):
        result = signalbox(*command.split(), "--help")
        assert result.status == 0
        (usage,) = (line for line in result.out.splitlines() if "Usage: signalbox" in line)
        assert "[[" not in usage


def test_a_configuration_is_checked_without_serving(signalbox: Signalbox, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text('[api]\nlisten = ["127.0.0.1:0"]\n')
    bad.write_text('[api]\nlisten = ["here"]\nport = 1\n')
    assert signalbox("serve", "--check", "--config", good) == Result(
        0,
        "the configuration is valid\n"
        "API 127.0.0.1:0: any program on this machine is an operator\n"
        "metrics 127.0.0.1:9464: any program on this machine can read them\n"
        "OpenFlow 127.0.0.1:6653: any program on this machine is taken for a switch\n",
        "",
    )
    result = signalbox("serve", "--check", "--config", bad)
    assert result.status == 1
    assert result.err.splitlines() == [
        f"error: {bad}: api.listen[0]: must be HOST:PORT or unix:PATH; this is neither (given: 'here')",
        f"error: {bad}: api.port: unknown field; known are {', '.join(ApiConfig.model_fields)}",
    ]


def test_a_new_token_is_printed_once_and_its_table_makes_it_known(signalbox: Signalbox, tmp_path: Path) -> None:
    made = signalbox("token", "ci", "--role", "reader")
    tokens, token_file = secret_file(tmp_path / "tokens.toml", made.err), secret_file(tmp_path / "token", made.out)
    assert made.out.strip() not in made.err
    with running_api(tokens=tokens) as api:
        at = ("--address", api.addresses[0])
        assert (
            signalbox("status", *at).err
            == "error: a token is required; client certificates are accepted only with api.ca_certificates\n"
        )
        assert signalbox("status", *at, "--token-file", token_file).status == 0
        token_file.chmod(0o604)
        refused = signalbox("status", *at, "--token-file", token_file)
        assert (refused.status, refused.err.partition(": ")[2]) == (
            1,
            f"{token_file}: others than its owner have access to it (mode 0604): chmod 600 {token_file}\n",
        )
        token_file.chmod(0o600)
        denied = signalbox("mode", "ecmp", *at, "--token-file", token_file)
        assert denied == Result(6, "", "error: the role 'reader' may not call SetMode; roles that may: operator\n")


def test_the_environment_may_name_the_client(
    signalbox: Signalbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = signalbox("token", "ci", "--tenant", "blue")
    tokens, token_file = secret_file(tmp_path / "tokens.toml", made.err), secret_file(tmp_path / "token", made.out)
    ours = Authority(tmp_path, "ours")
    server = ours.sign("controller", also="IP:127.0.0.1")
    with running_api(certificate=server.certificate, private_key=server.private_key, tokens=tokens) as api:
        monkeypatch.setenv("SIGNALBOX_ADDRESS", api.addresses[0])
        monkeypatch.setenv("SIGNALBOX_TLS_CA", str(ours.certificate))
        monkeypatch.setenv("SIGNALBOX_TOKEN_FILE", str(token_file))
        assert signalbox("jobs", "list").status == 0
        assert (
            signalbox("what-if").err
            == "error: the role 'tenant' may not call WhatIf; roles that may: operator, reader\n"
        )
        monkeypatch.delenv("SIGNALBOX_TLS_CA")
        away = signalbox("jobs", "list")
        assert (away.status, away.err.startswith("error: no answer from the controller at ")) == (7, True)


def test_what_cannot_work_here_is_found_without_serving(signalbox: Signalbox, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = tmp_path / "config.toml"
    config.write_text(f'state_dir = "{tmp_path}/file"\n[openflow]\nhost = "no host"\n')
    assert signalbox("serve", "--check", "--config", config).err.splitlines() == [
        f"error: state_dir: cannot write in {tmp_path}/file: Not a directory",
        "error: openflow.host: 'no host' cannot be resolved to an address",
    ]
