"""scripts/bootstrap.sh as far as it can be asked without installing anything."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def check(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "scripts" / "bootstrap.sh", "--check"],
        env=os.environ | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_check_names_the_packages_that_are_missing(tmp_path: Path) -> None:
    for tool in ("bash", "env", "dirname", "xargs", "sha256sum", "cat", "echo"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
    done = check(PATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stdout.startswith("bootstrap: missing system packages (installing them needs root): ")
    assert {"openvswitch-switch", "mininet", "iputils-ping", "prometheus", "prometheus-alertmanager"} <= set(
        done.stdout.split()
    )


def test_a_wrong_argument_gets_the_usage() -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "bootstrap.sh", "--nonsense"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "bootstrap: usage: scripts/bootstrap.sh [--check | --libraries]\n")
