"""What is delivered for Slurm: scripts that bash takes, a unit file that systemd takes, and folders that agree."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

DEPLOY = Path(__file__).resolve().parents[3] / "deploy" / "slurm"
SCRIPTS = sorted(DEPLOY.glob("*.sh"))
UNIT = (DEPLOY / "signalbox-jobs.service").read_text()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_bash_takes_it(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    assert (script.stat().st_mode & 0o111 == 0o111) is (script.name != "settings.sh")


def test_the_daemon_looks_where_the_hooks_write() -> None:
    (folder,) = re.findall(r"^jobs=/var/lib/(.*)$", (DEPLOY / "settings.sh").read_text(), re.MULTILINE)
    assert f"jobs keep /var/lib/{folder} " in UNIT
    assert f" {folder}\n" in next(line for line in UNIT.splitlines(True) if line.startswith("StateDirectory="))


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_finds_no_fault_with_the_unit_file(tmp_path: Path) -> None:
    unit = tmp_path / "signalbox-jobs.service"
    unit.write_text(re.sub(r"ExecStart=\S+", "ExecStart=/bin/true", UNIT))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert unit.name not in done.stderr
