"""The ``signalbox`` command against the real server: what operators do, wrong usage, configurations and tokens."""

import json
import re
import threading
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from controller.config import ApiConfig
from controller.planning.analysis.failures import analyse_failures
from controller.planning.analysis.messages import AnalyseFailures, FabricNames, FailureAnalysis, Network, Parts
from controller.planning.problem import PlanLimits, whole
from controller.status import DrainStatus
from controller.store.assignment import Holder
from controller.store.members import Member
from signalbox.words import EventKind
from tests.support.command_line import Result, Signalbox, api
from tests.support.known_members import KnownMembers
from tests.support.planning.fabrics import RATE, flow, leaf_spine, pinned, problem_of
from tests.support.wire.certificates import Authority
from tests.support.wire.control_stand_in import H1, Running, running_api
from tests.support.wire.secured import secret_file
from tests.wire.test_cli_jobs import spec_file, state_home

__all__ = ("api", "spec_file", "state_home")

pytestmark = pytest.mark.usefixtures("api")


def test_what_is_no_address_is_an_error_line(signalbox: Signalbox) -> None:
    wrong = (
        "", ":", "host", "127.0.0.1:x", "127.0.0.1:65536", "[::1", "http://127.0.0.1:1", "unix:",
        f"unix:/{'a' * 200}", "127.0.0.1:1,", "127.0.0.1:1,127.0.0.1:1", "127.0.0.1:1,unix:/run/api.sock",
    )  # fmt: skip
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
    wrong = ["jobs register missing.json", "nonsense", "jobs show", "forget", "undrain", "token page --role tenant"]
    wrong += [f"status --tls-certificate own.pem{more}" for more in ("", " --tls-key own.key")]
    for arguments in (*wrong, "token page --role reader --tenant a"):
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
    ring = {"job_id": "ring", "slowdown": 1.25, "demand_source": None, "own_slowdown": 1.0}
    assert signalbox("plan", "--json").json["jobs"] == [ring]
    assert signalbox("plan", "--now", "--json").json["outcome"] == "adopted"


def test_alarms_are_listed_and_said_to_be_known(signalbox: Signalbox) -> None:
    assert signalbox("alarms", "acknowledge", "foreign_rules", "spine1", "--comment", "ours").status == 0
    known = "warning foreign_rules: spine1 holds 2 foreign rules, which Signalbox did not make (acknowledged: ours)\n"
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
        (("--since", "soon"), "is neither an age"),
        (("--kind", "x"), "there is no kind 'x'"),
    ):
        found = signalbox("events", *wrong)
        assert found.status == 2
        assert error in " ".join(found.err.split())


@pytest.fixture
def hostless(api: Running) -> Running:
    """Remove the hosts of the fabric, so that any part can be drained."""
    status = api.control.status
    api.control.status = replace(status, fabric=replace(status.fabric, hosts={}))
    return api


@pytest.mark.usefixtures("hostless")
def test_parts_are_drained_shown_and_used_again(signalbox: Signalbox) -> None:
    assert signalbox("drain").out == "Nothing is drained.\n"
    table = signalbox("drain", "leaf1:spine1", "--wait").out
    assert "leaf1:1>spine1" in table
    assert "safe to pull" in table
    assert "leaf1:1>spine1 (safe to pull)" in signalbox("status").out
    (part,) = signalbox("drain", "--json").json["drains"]
    assert (part["name"], part["state"], part["links"], part["rate_bps"]) == ("leaf1:1>spine1", "safe", 2, 12.0)
    assert signalbox("undrain", "leaf1:1>spine1").out == "Nothing is drained.\n"


def test_a_drain_says_what_it_costs_and_does_not_wait_for_that(hostless: Running, signalbox: Signalbox) -> None:
    assert signalbox("drain", "leaf1:spine1").out.endswith("\nThe cost is not known: nothing is analysed\n")
    assert signalbox("drain", "leaf1:spine1", "-o", "json").json["cost"]["slowdown"] is None
    hostless.control.analysis = without_a_spine()
    assert signalbox("drain", "leaf1:spine1").out.endswith("\nWorst job: slowdown 1.00 -> 2.00\n")
    cost = signalbox("drain", "leaf1:spine1", "--json").json["cost"]
    assert cost == {"mode": "planned", "slowdown": 1.0, "slowdown_drained": 2.0, "not_known": ""}
    signalbox("mode", "ecmp")
    found = signalbox("drain", "leaf1:spine1").text
    assert re.search(r"Worst job: slowdown 1\.\d\d -> 2\.00 on average under ECMP$", found), found
    assert "cost" not in signalbox("drain", "--json").json


def without_a_spine() -> FailureAnalysis:
    """Return the analysis of a lost spine: two jobs used one spine each, and now share the other spine."""
    fabric = leaf_spine(2, 2)
    problem = problem_of(fabric, [flow("a", (1, 1), (2, 1), RATE), flow("b", (1, 2), (2, 2), RATE)])
    problem = pinned(problem, {one.id: whole(problem.candidates(one)[n]) for n, one in enumerate(problem.flows)})
    lost = frozenset(link.id for link in fabric.links.values() if 101 in (link.src.dpid, link.dst.dpid))
    network = Network(problem, fabric, fabric, PlanLimits(), FabricNames(fabric))
    return analyse_failures(AnalyseFailures(network, frozenset(), None, 30.0, Parts("spine1", lost)))


def test_what_a_drained_part_waits_for_is_named(api: Running, signalbox: Signalbox) -> None:
    others = ("leaf1 (no control connection)", "leaf2 (counters not read yet)")
    waits = DrainStatus("spine2", 1e9, "confirming", 0, 8, None, others)
    api.control.status = replace(api.control.status, drains={"spine2": waits})
    published = threading.Event()
    api.control.put(lambda: None)
    api.control.put(published.set)
    assert published.wait(60)
    assert f"waiting for {', '.join(others)}" in " ".join(signalbox("status").out.split())
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
        (("drain", "leaf1:9"), "'leaf1:9': leaf1 has no such cable"),
        (("undrain", "spine9"), "'spine9' is not drained; drained parts: none"),
        (("forget", "spine9"), "no part of the fabric has the name 'spine9'"),
        (("alarms", "unsilence", "foreign_rules", "spine9"), "no silence of foreign_rules exists for 'spine9'"),
        (("rules", "leaf9"), "there is no switch 'leaf9'"),
        (("rules", "leaf1", "--job", "x"), "there is no job 'x'"),
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
    assert (
        signalbox("mode", "ecmp").out == "ecmp, in force after 0.25 s; 4 pins, including those for acknowledgements\n"
    )
    assert signalbox("mode", "--json").json == {"mode": "ecmp"}
    assert signalbox("status", "--json").json["mode"] == "ecmp"
    assert "3 of 4, 1 in sync" in signalbox("status").out


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
        "OpenFlow 127.0.0.1:6653: any program on this machine can act as a switch\n",
        "",
    )
    result = signalbox("serve", "--check", "--config", bad)
    assert result.status == 1
    assert result.err.splitlines() == [
        f"error: {bad}: api.listen[0]: must be HOST:PORT or unix:PATH; this is neither (given: 'here')",
        f"error: {bad}: api.port: unknown field; known are {', '.join(ApiConfig.model_fields)}",
    ]
    bad.write_text(f'state_dir = "{good}"\n[openflow]\nhost = "no host"\n')
    assert signalbox("serve", "--check", "--config", bad).err.splitlines() == [
        f"error: state_dir: cannot write in {good}: Not a directory",
        "error: openflow.host: 'no host' cannot be resolved to an address",
    ]


def test_a_new_token_is_printed_once_and_its_table_makes_it_known(signalbox: Signalbox, tmp_path: Path) -> None:
    made = signalbox("token", "ci", "--role", "reader")
    tokens, token_file = secret_file(tmp_path / "tokens.toml", made.err), secret_file(tmp_path / "token", made.out)
    assert made.out.strip() not in made.err
    with running_api(tokens=tokens) as api:
        at = ("--address", api.addresses[0])
        assert (
            signalbox("status", *at).err
            == "error: a token is required (--token-file); client certificates are accepted only with "
            "api.ca_certificates\n"
        )
        assert signalbox("status", *at, "--token-file", token_file).status == 0
        token_file.chmod(0o604)
        refused = signalbox("status", *at, "--token-file", token_file)
        assert (refused.status, refused.err.partition(": ")[2]) == (
            1,
            f"{token_file}: other users have access to it (mode 0604): chmod 600 {token_file}\n",
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


def test_members_are_listed_and_drained_where_they_divide_the_switches(signalbox: Signalbox, api: Running) -> None:
    assert "is not in etcd" in signalbox("members").out
    for action in ("drain", "undrain", "forget"):
        assert "has no members, because its state is not in etcd" in signalbox("members", action, "b").err
    board = api.control.board
    a, b = (Member(str(n), name, f"{name}:1", "1.2", 1e9) for n, name in enumerate("ab", 1))
    board.membership = KnownMembers((a, b), leading="1")
    try:
        assert [row[:3] for row in signalbox("members").rows[2:]] == [["a", "leader", "3"], ["b", "standby", "0"]]
        refused = signalbox("members", "drain", "b")
        assert refused.status
        assert "the leader holds all switches" in refused.err
        leaf1, leaf2, spine1 = sorted(board.status.fabric.switches)
        of_a, of_b = (Holder(one.name, one.id) for one in (a, b))
        board.assigned = lambda: {leaf1: of_a, leaf2: of_b, spine1: of_b}
        board.holders = board.assigned
        assert [row[2:4] for row in signalbox("members", "drain", "b").rows[2:]] == [["1", "-"], ["2", "draining"]]
        listed = json.loads(signalbox("members", "--json").out)["members"]
        assert [(one["name"], one["switches"], one["draining"]) for one in listed] == [("a", 1, False), ("b", 2, True)]
        assert [row[2:4] for row in signalbox("members", "undrain", "b").rows[2:]] == [["1", "-"], ["2", "-"]]
        board.holders = lambda: {leaf1: of_a, spine1: of_a}
        board.membership = KnownMembers((a, b), leading="1", began=time.monotonic() - 90)
        rows = [" ".join(row) for row in signalbox("members").rows[2:]]
        assert [row[:15] for row in rows] == ["a leader 2 (1 a", "b standby 0 (2 "]
        assert all(re.search(r" 9\d s ago ", row) for row in rows)
        for command in ("get switches", "fabric"):
            found = {row[0]: row[-1] for row in reversed(signalbox(*command.split()).rows) if row}
            assert [found[name] for name in ("leaf1", "leaf2", "spine1")] == ["a", "none", "a"]
        board.holders = board.assigned
        board.membership = KnownMembers((a, replace(b, link=(2, 2))), leading="1")
        shown = [" ".join(row[:4]) for row in signalbox("members").rows[2:]]
        assert shown == ["a leader 1 -", "b standby, incompatible version"]
        board.membership = KnownMembers((a,), leading="1", absent={"b": 1_764_476_000.0, "c": 0.0})
        (last,) = [row for row in signalbox("members", "forget", "c").rows[2:] if row[0] != "a"]
        assert last[:4] == ["b", "absent", "0", "-"]
        assert "2025-11-30 04:13:20" in " ".join(last)
        for words in (("drain",), ("undrain",), ("b",), ("drain", "b", "c")):
            assert signalbox("members", *words).status == 2
    finally:
        board.membership = board.holders = None
        board.assigned = dict
