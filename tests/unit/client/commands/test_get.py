"""``get`` and ``describe`` against a real server: kinds of objects, forms of output, and errors for wrong names."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from controller.planning.problem import FlowId
from controller.tables.counters import CountersRead
from signalbox.client import Client
from signalbox.commands import output
from signalbox.commands.connecting import completed, host_names, job_names, link_names, switch_names
from signalbox.jobs.spec import JobId
from tests.support.command_line import Signalbox, api, signalbox
from tests.support.wire.api_calls import ring
from tests.support.wire.control_stand_in import H1, H2, LEAF1, VIA_SPINE, Running, example_plan

__all__ = ("api", "signalbox")

pytestmark = pytest.mark.usefixtures("trained")

AWAY = "127.0.0.1:1"


@pytest.fixture
def trained(api: Running) -> Running:
    """Return an API with two jobs: one waits for a host, the other has a planned flow and a hashed flow."""
    api.control.set_route(FlowId(H1, H2), VIA_SPINE)
    with Client(api.addresses[0]) as client:
        client.register_job(ring())
        client.register_job(ring("waits", (H2, "10.0.9.9")))
        client.replan()
    return api


# ---- get


def test_all_of_a_kind_are_listed_or_those_that_are_named_and_the_busiest_links_first(signalbox: Signalbox) -> None:
    assert [job["spec"]["job_id"] for job in signalbox("get", "jobs", "--json").json["jobs"]] == ["ring", "waits"]
    assert [job["spec"]["job_id"] for job in signalbox("get", "job", "ring", "--json").json["jobs"]] == ["ring"]
    names = {link["name"] for link in signalbox("get", "links", "--json").json["links"]}
    assert names == {"leaf1:1>spine1", "spine1:1>leaf1", "leaf2:1>spine1", "spine1:2>leaf2"}
    assert [row[0] for row in signalbox("get", "switches").rows[-4:]] == ["leaf1", "leaf2", "spine1", "Down:"]
    assert [host["ip"] for host in signalbox("get", "host", H2, "-o", "json").json["hosts"]] == [H2]
    assert signalbox("get", "alarms", "spine1", "--json").json["alarms"][0]["kind"] == "foreign_rules"
    columns, _, alarm = signalbox("get", "alarms", "foreign_rules").rows
    assert columns == ["severity", "kind", "subject", "since", "text"]
    assert alarm[:3] == ["warning", "foreign_rules", "spine1"]
    assert alarm[-10:] == ["spine1", "holds", "2", "foreign", "rules,", "which", "Signalbox", "did", "not", "make"]
    sentence = signalbox("alarms", "list", "foreign_rules").text
    assert sentence == "warning foreign_rules: spine1 holds 2 foreign rules, which Signalbox did not make"
    found = signalbox("get", "links", "--top", 2, "--json").json
    shown = [(link["name"], link["use"], link["jobs"]) for link in found["links"]]
    assert shown == [("leaf1:1>spine1", 0.8, [{"job_id": "ring", "flows": 1}]), ("leaf2:1>spine1", None, [])]
    assert found["flows_hashed"] == 1
    (row,) = (row for row in signalbox("get", "links", "--top", 1).rows if row[:1] == ["leaf1:1>spine1"])
    assert row[1:] == ["80%", "4", "Mbit/s", "5", "Mbit/s", "1", "Mbit/s", "ring", "(1)"]
    assert "1 flow is hashed" in signalbox("get", "links", "--top", 1).out


def test_a_rate_is_unknown_while_counters_are_not_up_to_date(trained: Running, signalbox: Signalbox) -> None:
    fresh = trained.control.status
    (link,) = signalbox("get", "links", "leaf1:spine1", "--json").json["links"]
    assert (link["rate_bps"], link["background_bps"]) == (4e6, 1e6)
    then = fresh.counters_read[LEAF1].ports - 60
    late = replace(fresh, counters_read={LEAF1: CountersRead(then, then + 60)}, counters_late_after_s=30.0)
    trained.control.board.publish(late)
    (link,) = signalbox("get", "links", "leaf1:spine1", "--json").json["links"]
    assert (link["rate_bps"], link["background_bps"], link["use"]) == (None, None, None)
    why = "not measured yet, or the switch's counters are not up to date"
    for command in (("get", "links", "leaf1:spine1"), ("get", "links", "--top", 9), ("describe", "switch", "leaf1")):
        assert f"-: {why}." in signalbox(*command).text
    described = signalbox("describe", "link", "leaf1:spine1").text
    assert f"rate {why} announced - background -" in described
    with Client(trained.addresses[0]) as client:
        rates = {link.name: link.HasField("rate_bps") for link in next(client.watch_fabric()).links}
    assert not rates["leaf1:1>spine1"]


def test_a_plan_may_be_that_of_some_jobs(signalbox: Signalbox, trained: Running) -> None:
    found = signalbox("get", "plan", "ring", "--json").json
    assert found == signalbox("plan", "--json").json
    assert signalbox("get", "plan", "nix").status == 5
    of_job = {JobId("ring"): 1.25, JobId("idle"): 1.0}
    both = replace(example_plan(), job_slowdown=of_job, own_slowdown=of_job)
    trained.control.board.publish(replace(trained.control.status, plan=both))
    found = signalbox("get", "plan", "idle", "--json").json
    assert ([job["job_id"] for job in found["jobs"]], found["routes"], found["subflows"]) == (["idle"], [], 0)


# ---- forms


def test_yaml_says_what_json_says(signalbox: Signalbox) -> None:
    for wrong in (("--json", "-o", "yaml"), ("-o", "xml")):
        assert signalbox("get", "jobs", *wrong).status == 2
    for command in (["describe", "switch", "leaf1"], ["mode"], ["fabric"]):
        said = signalbox(*command, "--json")
        assert signalbox(*command, "-o", "yaml").yaml == said.json
        assert signalbox(*command, "-o", "json").out == said.out
    output.FORM.set(output.Form.YAML)
    try:
        text = "\n".join(output.document({"change": number}) for number in range(3))
    finally:
        output.FORM.set(output.Form.TABLE)
    assert [*yaml.safe_load_all(text)] == [{"change": 0}, {"change": 1}, {"change": 2}], "they can be told apart"


def test_at_80_columns_no_name_is_cut_and_wide_has_everything(
    trained: Running, signalbox: Signalbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    name = "a-job-with-a-name-of-forty-characters-xx"
    with Client(trained.addresses[0]) as client:
        client.register_job(ring(name, (H1, "10.0.8.8")))
    narrow, wide = signalbox("get", "jobs"), signalbox("get", "jobs", "-o", "wide")
    assert max(map(len, narrow.out.splitlines())) <= 80
    assert name in narrow.out
    assert "lease left" not in narrow.out.splitlines()[0]
    assert "-o wide also shows" in narrow.out
    assert {"predicted", "iterations", "lease"} <= {*wide.rows[0]}


# ---- describe


def test_jobs_hosts_and_links_are_described_with_routes_and_what_they_wait_for(signalbox: Signalbox) -> None:
    """Names without ``>`` need no quotes in a shell."""
    shown = signalbox("describe", "job", "ring")
    assert [H1, H2, "leaf1", ">", "spine1", ">", "leaf2", "same"] in shown.rows
    assert [H2, H1, "ecmp", "leaf2", ">", "spine1", ">", "leaf1"] in shown.rows
    found = signalbox("describe", "job", "ring", "--json").json
    assert [len(route["held"]) for route in found["routes"]] == [1, 0]
    waits = signalbox("describe", "job", "waits").rows
    assert ["hosts", "not", "found", "10.0.9.9"] in waits
    assert [H2, "10.0.9.9", "host", "not", "found"] in waits
    found = signalbox("describe", "host", H2, "--json").json
    assert found["jobs"] == [
        {"job_id": "ring", "state": "ecmp", "flows_sent": 1, "flows_received": 1},
        {"job_id": "waits", "state": "pending", "flows_sent": 1, "flows_received": 1},
    ]
    assert ["at", "leaf2,", "port", "2"] in signalbox("describe", "host", H2).rows
    (link,) = signalbox("get", "links", "leaf1:spine1", "--json").json["links"]
    assert (link["name"], link["use"]) == ("leaf1:1>spine1", 0.8)
    for name in ("leaf1:1>spine1", "leaf1:1", "leaf1:spine1"):
        found = signalbox("describe", "link", name, "--json").json
        assert found["link"] == link
    assert found["jobs"] == [{"job_id": "ring", "flows": 1}]
    assert found["flows"] == [{"job_id": "ring", "src": H1, "dst": H2, "share": 1.0}]
    shown = signalbox("describe", "link", "leaf1:1")
    assert ["announced", "3", "Mbit/s"] in shown.rows
    assert ["ring", H1, H2, "100.0%"] in shown.rows


def test_a_switch_is_described_with_what_crosses_it_and_how_full_its_tables_are(signalbox: Signalbox) -> None:
    spine = signalbox("describe", "switch", "0xb", "--json").json
    assert spine["switch"]["name"] == "spine1", "it goes by its dpid too"
    assert spine["jobs"] == [{"job_id": "ring", "flows": 1}]
    assert [alarm["kind"] for alarm in spine["alarms"]] == ["foreign_rules"]
    assert "spine1 holds 2 foreign rules, which Signalbox did not make" in signalbox("describe", "switch", "spine1").out
    leaf = signalbox("describe", "switch", "leaf1", "--json").json
    assert leaf["jobs"] == [{"job_id": "ring", "flows": 2}], "one of them is hashed, but ends here"
    assert [host["ip"] for host in leaf["hosts"]] == [H1]
    port = ["1", "eth1", "yes", "spine1", "5", "Mbit/s", "4", "Mbit/s", "80%", "-", "-"]
    shown = signalbox("describe", "switch", "leaf1")
    assert port in shown.rows
    assert leaf["switch"]["tables"][1] == {"table": 2, "entries": 3, "max_entries": None}
    assert "flow tables 1 has 9 of 200, 2 has 3" in shown.text
    assert "other tables meters has 4 of 64" in shown.text
    assert "flow tables not reported" in signalbox("describe", "switch", "leaf2").text


# ---- wrong names, and the exit status


def test_what_is_not_there_is_named_and_each_kind_of_error_has_its_exit_status(
    signalbox: Signalbox, tmp_path: Path
) -> None:
    some = signalbox("get", "jobs", "nix", "ring", "--json")
    assert (some.status, [job["spec"]["job_id"] for job in some.json["jobs"]]) == (3, ["ring"])
    assert some.err == "error: there is no job 'nix'; signalbox get jobs lists all\n"
    assert signalbox("get", "links", "leaf1:9").status == 5
    for kind, name in (("job", "nix"), ("link", "leaf1:9"), ("switch", "leaf"), ("host", "10.0.0.0")):
        result = signalbox("describe", kind, name)
        assert (result.status, result.out) == (5, "")
        assert f"there is no {kind} '{name}'" in result.err
    assert signalbox("get", "jobs", "--address", AWAY).status == 7
    file = tmp_path / "ring.json"
    file.write_text(ring(size=5).model_dump_json())
    taken = signalbox("jobs", "register", file)
    assert (taken.status, "belongs to another registration" in taken.err) == (8, True)


def test_an_acknowledgement_says_which_alarms_it_concerns(signalbox: Signalbox) -> None:
    said = "spine1 holds 2 foreign rules, which Signalbox did not make (acknowledged"
    assert said in signalbox("alarms", "acknowledge", "foreign_rules", "spine1").text
    none = signalbox("alarms", "acknowledge", "foreign_rules", "spine")
    assert (none.status, "no alarm foreign_rules of spine is raised now; alarms silence" in none.err) == (5, True)
    assert signalbox("alarms", "unsilence", "foreign_rules", "spine").status == 5, "it would have been for the next one"
    later = signalbox("alarms", "silence", "foreign_rules", "spine", "--for", "2h")
    assert (later.status, "Silenced; no alarm foreign_rules of spine is raised now." in later.text) == (0, True)


# ---- completion


def test_names_come_from_the_server_and_a_shell_gets_them(
    trained: Running, signalbox: Signalbox, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line: Any = SimpleNamespace(params={"address": trained.addresses[0]})
    assert completed(job_names)(line, "") == ["ring", "waits"]
    assert completed(switch_names)(line, "le") == ["leaf1", "leaf2"]
    assert completed(link_names)(line, "leaf1") == [("leaf1:1", "to spine1"), ("leaf1:spine1", "all cables")]
    assert completed(host_names)(line, "10.0.2") == [(H2, "at leaf2")]
    line.params["address"] = AWAY
    assert completed(job_names)(line, "") == [], "without the controller there are none"
    assert capsys.readouterr() == ("", "")
    asked = f"signalbox get jobs --address {trained.addresses[0]} r"
    shown = {"signalbox describe switch s": ["spine1"], asked: ["ring"], "signalbox jobs show w": ["waits"]}
    for line, names in shown.items():
        monkeypatch.setenv("_SIGNALBOX_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
        assert signalbox().out.split() == names


# ---- topology


def test_the_cabling_is_printed_for_slurm(signalbox: Signalbox, tmp_path: Path) -> None:
    found = signalbox("get", "topology")
    leaves = f"SwitchName=leaf1 Nodes={H1}\nSwitchName=leaf2 Nodes={H2}\n"
    assert found.out == f"{leaves}SwitchName=tier1-1 Switches=leaf1,leaf2\n"
    assert found.err == "left out, because they are down: spine2\n"
    names = tmp_path / "addresses.yaml"
    names.write_text(f"a: {H1}\nb: [10.0.9.9, {H2}]\nc: 10.0.9.8\n")
    named = signalbox("get", "topology", "--addresses", names)
    assert "SwitchName=leaf2 Nodes=b\n" in named.out
    assert "left out, because they are not found: c\n" in named.err
    names.write_text(f"a: {H1}\n")
    unnamed = signalbox("get", "topology", "--addresses", names)
    assert f"left out, because they have no name: {H2}\n" in unnamed.err
    shown = signalbox("get", "topology", "--json").json["switches"][2]
    assert shown == {"name": "tier1-1", "nodes": [], "switches": ["leaf1", "leaf2"]}
