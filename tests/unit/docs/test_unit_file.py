"""The unit file that docs/how-to/run-a-standby.md shows is one that systemd takes."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from controller.config import Config
from tests.support.doc_pages import PAGES

GUIDE = next(page for page in PAGES if page.name == "docs/how-to/run-a-standby.md")


def block(language: str) -> str:
    (found,) = [block.text for block in GUIDE.blocks if block.language == language]
    return found


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_finds_no_fault_with_the_unit_file(tmp_path: Path) -> None:
    unit = tmp_path / "signalbox@.service"
    (program,) = [line.split()[0] for line in block("systemd").splitlines() if line.startswith("ExecStart=")]
    unit.write_text(block("systemd").replace(program, "ExecStart=/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert str(unit.name) not in done.stderr


def test_its_directories_are_those_of_the_configuration() -> None:
    config = Config.model_validate(tomllib.loads(block("toml")))
    lines = block("systemd").splitlines()
    assert f"StateDirectory={str(config.state_dir).removeprefix('/var/lib/')}" in lines
    assert f"RuntimeDirectory={config.api.listen[1].split('/')[-2]}" in lines
