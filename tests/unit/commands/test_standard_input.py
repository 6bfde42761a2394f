"""The argument ``-``, wherever a command takes a file to read."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command_line import Signalbox, api, signalbox
from tests.support.wire.api_calls import ring
from tests.support.wire.control_stand_in import H1, H2

__all__ = ("api", "signalbox")

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

TOML = f"""
job_id = "ring"
endpoints = ["{H1}", "{H2}"]

[[transfers]]
src = 0
dst = 1
bytes_per_iteration = 1000
"""


Given = Callable[[str], None]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Given:
    """Return a function that sets the standard input of the commands that follow."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def give(text: str) -> None:
        (tmp_path / "given").write_text(text)
        monkeypatch.setattr("sys.stdin", (tmp_path / "given").open())

    return give


@pytest.mark.usefixtures("api")
def test_a_job_spec_may_be_json_toml_or_yaml(signalbox: Signalbox, given: Given) -> None:
    given(TOML)
    assert signalbox("jobs", "register", "-", "--json").json["spec"]["transfers"][0]["bytes_per_iteration"] == "1000"
    given(" \n" + ring().model_dump_json())
    assert signalbox("jobs", "update", "-", "--json").json["spec"]["collectives"]
    given("# the same\njob_id: ring\nendpoints:\n- " + H1 + "\n- " + H2)
    assert signalbox("jobs", "update", "-", "--json").json["spec"]["collectives"] == []
    given("{")
    assert signalbox("jobs", "register", "-").err.startswith("error: standard input:1:2: not JSON")
    given('job_id = "ring"\ncolor = "blue"\nendpoints = []')
    assert "error: standard input: color: unknown field" in signalbox("jobs", "register", "-").err


def test_so_may_a_plan_with_its_proofs_and_a_graph(signalbox: Signalbox, given: Given, tmp_path: Path) -> None:
    workload = tmp_path / "workload"
    workload.mkdir()
    (workload / "A.txt").write_text("8 12 0 1 7 1000 9 0\n12 8 1 0 7 1000 9 0\n")
    options = ("--workload", workload, "--leaves", 4, "--spines", 4, "--hosts-per-leaf", 4)
    assert signalbox("plan-file", *options, "--proof", tmp_path / "plan.json").status == 0
    given((tmp_path / "plan.json").read_text())
    assert signalbox("verify", "-") == signalbox("verify", tmp_path / "plan.json")
    given("[]")
    assert signalbox("verify", "-").err.startswith("error: standard input: ")
    given(json.dumps({"nodes": [], "edges": []}))
    refused = signalbox("plan-file", "--workload", workload, "--graph", "-")
    assert (refused.status, refused.err.startswith("error: standard input: nodes: ")) == (1, True)


def test_so_may_a_configuration_that_is_only_checked(signalbox: Signalbox, given: Given) -> None:
    given('[api]\nport = 1\nlisten = ["127.0.0.1:0"]\n')
    assert signalbox("serve", "--check", "--config", "-").err.startswith("error: standard input: api.port: unknown")
    given('[api]\nlisten = ["127.0.0.1:0"]\n')
    assert signalbox("serve", "--check", "--config", "-").out.startswith("the configuration is valid\n")
    given("")
    assert "standard input works with --check only" in " ".join(signalbox("serve", "--config", "-").err.split())
