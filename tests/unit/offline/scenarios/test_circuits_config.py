"""Configuration of optical switches for a controller."""

import tomllib
from dataclasses import replace
from pathlib import Path

from typer.testing import CliRunner

from offline.scenarios.topologies import circuits_config, optical
from signalbox.cli import app

FABRIC = optical(3, 2, 5e6)


def test_a_port_without_a_fibre_is_empty() -> None:
    cables = tuple(c for c in FABRIC.cables if (c.a, c.b) != ("server2", "optical1") and c.b != "optical2")
    read = tomllib.loads(circuits_config(replace(FABRIC, cables=cables), dark_s=0.5))["circuits"]
    assert read["dark_s"] == 0.5
    assert [switch["fibres"] for switch in read["switch"]] == [["0x1:2", "", "0x3:2"], []]


def test_the_lab_has_a_file_for_it_only_with_optical_switches(tmp_path: Path) -> None:
    for argv, reason in (
        (["--circuits", str(tmp_path / "circuits.toml")], "needs --fabric direct-connect"),
        (["--fabric", "direct-connect", "--train", "localhost:50051"], "does not work on a direct-connect fabric"),
    ):
        refused = CliRunner().invoke(app, ["lab", *argv])
        assert refused.exit_code == 2
        assert reason in " ".join(refused.output.replace("│", " ").split())
