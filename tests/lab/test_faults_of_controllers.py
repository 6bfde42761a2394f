"""A kill of a controller in the benchmark ``controllers``: nothing is lost, and only holders write to switches.

The benchmark ``controllers`` makes many more faults. Its limits of time are not tested, because the machine may be
busy."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

LITTLE = ("--faults", "1", "--only", "leader killed", "--switches", "6", "--members", "2")


def test_a_killed_controller_is_replaced_without_a_trace(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "benchmarks", "controllers", *LITTLE, "--out", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "1 of 1 cases" in done.stdout, done.stderr
    (case,) = json.loads((tmp_path / "controllers.json").read_text())["cases"]
    assert case["sent"] > 0
    assert {name: case[name] for name in ("deposed", "written", "lost", "changed", "jobs", "not_in_model")} == {
        "deposed": 0, "written": 0, "lost": 0, "changed": [], "jobs": [], "not_in_model": [],
    }  # fmt: skip
    assert case["handovers"] > 0
    assert case["answered_s"] is not None
    assert case["held_s"] is not None
