"""Tests of scripts/bootstrap.sh that need no installation of system packages."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

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


def test_a_commit_with_a_long_subject_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    (folder / "scripts").mkdir(parents=True)
    for name in ("bootstrap.sh", "plain_english.py"):
        shutil.copy(ROOT / "scripts" / name, folder / "scripts" / name)

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)

    def commit(subject: str) -> subprocess.CompletedProcess[str]:
        who = ("-c", "user.name=Someone", "-c", "user.email=someone@example.org")
        return run("git", *who, "commit", "--allow-empty", "-m", subject)

    run("git", "init")
    for _ in range(2):
        installed = run("bash", "-c", "source scripts/bootstrap.sh && install_commit_hook")
        assert installed.returncode == 0, installed.stderr
    assert commit("x" * 72).returncode == 0
    refused = commit("x" * 73)
    assert refused.returncode != 0
    assert "the subject has 73 characters; at most 72 are allowed" in refused.stdout + refused.stderr


def test_no_commit_hook_is_installed_outside_of_a_checkout(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/bootstrap.sh", tmp_path / "scripts")
    command = ["bash", "-c", "source scripts/bootstrap.sh && install_commit_hook"]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}, check=False
    )
    assert done.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scripts"]


# ---- environment of PyTorch


class Checkouts:
    """Checkouts on one machine; pip installs a small package with PyTorch's name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wheels = folder / "wheels"
        self.wheels.mkdir()

    def lock(self, version: str) -> str:
        """Make a wheel of this version where pip finds it, and return the text of its lock file."""
        wheel, info = self.wheels / f"torch-{version}-py3-none-any.whl", f"torch-{version}.dist-info"
        with zipfile.ZipFile(wheel, "w") as file:
            file.writestr("torch/__init__.py", f"__version__ = {version!r}")
            file.writestr("torch/distributed.py", "")
            file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
            file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            file.writestr(f"{info}/RECORD", "")
        return f"torch=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"

    def install(self, name: str, lock: str) -> str:
        """Install PyTorch in checkout ``name`` as ``scripts/bootstrap.sh --libraries`` does; return the output."""
        root = self.folder / name
        (root / "scripts").mkdir(parents=True, exist_ok=True)
        (root / "requirements").mkdir(exist_ok=True)
        shutil.copy(ROOT / "scripts/bootstrap.sh", root / "scripts")
        (root / "requirements/torch.txt").write_text(lock)
        if not (root / ".venv").exists():
            (root / ".venv").symlink_to(sys.prefix)
        done = subprocess.run(
            ["bash", "-c", "source scripts/bootstrap.sh; install_torch"],
            env=os.environ | {
                "XDG_CACHE_HOME": str(self.folder / "cache"), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels),
            },
            cwd=root, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    def version(self, name: str) -> str:
        python = self.folder / name / ".venv-torch/bin/python"
        argv = [str(python), "-c", "import torch; print(torch.__version__)"]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def test_pytorch_is_installed_once_for_all_checkouts_with_the_same_lock_and_anew_if_that_failed(tmp_path: Path) -> None:
    checkouts = Checkouts(tmp_path)
    lock = checkouts.lock("1.0")
    (wheel,) = checkouts.wheels.iterdir()
    wheel.rename(tmp_path / "away")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        checkouts.install("one", lock)
    assert "pip could not install PyTorch" in failed.value.stderr
    assert not (tmp_path / "one/.venv-torch").exists()
    (tmp_path / "away").rename(wheel)
    (tmp_path / "one/.venv-torch/bin").mkdir(parents=True)  # left by a version of the script without a cache
    assert "installing PyTorch" in checkouts.install("one", lock)
    wheel.unlink()
    for name in ("one", "two"):
        assert checkouts.install(name, lock) == ""
    assert "installing PyTorch" in checkouts.install("two", checkouts.lock("2.0"))
    assert (checkouts.version("one"), checkouts.version("two")) == ("1.0", "2.0")
